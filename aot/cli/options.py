"""Options of the command line, each described once: those of one verb beside it, shared ones and those of compilation here."""

from __future__ import annotations

import functools
import inspect
import math
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from aot.cli import completion
from aot.support.dataclass import dataclass

DEFAULT_TARGET = "cortex-m4"
DEFAULT_BOARD = "mps2-an386"

ClickUsageError: type[Exception] = typer.BadParameter.__bases__[0]  # typer carries its own copy of click since 0.26


def option(form: str, text: str, complete: completion.Complete | None = None, **more: Any) -> Any:
    """An option for an Annotated type: `form` has its flags and metavar as a manual page has them, such as "-o --output DIR".

    A metavar with | lists the values, which the shell completes; `complete` is another completer.  `more` as for typer.Option.
    """
    words = form.split()
    flags = [w for w in words if w.startswith("-")]
    metavar = words[-1] if len(words) > len(flags) else None
    if metavar is not None and "|" in metavar and complete is None:
        complete = completion.choices(*metavar.split("|"))
    return typer.Option(*flags, metavar=metavar, autocompletion=complete, help=text, **more)


def finite(value: float | None) -> float | None:
    """The value; refuses NaN and infinities, which a range check does not catch reliably."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


ModelPath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The model, a .tflite file (or a graph as text: .relay).", show_default=False)
]
TargetName = Annotated[str | None, option("--target CPU", "Core, such as cortex-m4 (aot targets).", completion.targets)]
BoardName = Annotated[str | None, option("--board BOARD", "Board, such as mps2-an386 (aot boards).", completion.boards)]
BoardNames = Annotated[str | None, option("--board BOARD,...", f"Boards; default {DEFAULT_BOARD}.", completion.board_list)]
OutputFolder = Annotated[Path | None, option("-o --output DIR", "Folder to write; default out/NAME.")]
LimitsFile = Annotated[Path | None, option("--budget FILE", "Absolute limits, as in budget.toml.")]
Force = Annotated[bool, option("--force", "Replace an output folder that an earlier run of aot wrote.")]
ForceOverBudget = Annotated[
    bool, option("--force-over-budget", "Write the files even if --ram-budget or --flash-budget is exceeded.")
]
Share = Annotated[bool, option("--share-workspace", "One workspace for all models, which run one at a time.")]
SbomFlag = Annotated[bool, option("--sbom", "Also write sbom.cdx.json, a CycloneDX bill of materials.")]
InputsFile = Annotated[Path | None, option("--inputs FILE.npz", "A golden file (in0_0, out0_0 ...) or samples (x).")]
RandomCount = Annotated[int | None, option("--random N", "Use N sets of generated inputs, the same each time; default 4.")]
FaultsFlag = Annotated[
    bool,
    option(
        "--accept-known-faults/--no-accept-known-faults",
        "Exit 0 if outputs differ only by a known fault of the reference kernels.",
    ),
]
RequireFlag = Annotated[
    bool,
    option(
        "--require-reference/--no-require-reference",
        "Exit 6 if the reference is not installed or rejects the model; otherwise aot's own interpreter is used instead.",
    ),
]
ClockRate = Annotated[
    str | None, option("--clock HZ", "For chains with a rate: print the CPU load at this clock, such as 64MHz.")
]
Timeout = Annotated[
    float,
    option(
        "--timeout SECONDS", "Stop a run after this time; 0: the board's own limit.",
        min=0, max=1e6, callback=finite, show_default=False,
    ),
]  # fmt: skip
Allow = Annotated[
    list[str] | None,
    option("--allow PART", "Compare even if this part of the fingerprint differs.", completion.fingerprint_parts),
]
Jobs = Annotated[int, option("-j --jobs N", "Number of processes that run at the same time.", min=1)]
Scheduler = Annotated[
    str | None, option("--scheduler ADDRESS", "Run the jobs on the workers of a Dask scheduler, such as tcp://10.0.0.1:8786.")
]


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """The options shared by all verbs that compile a model, as typed; `aot.cli.common.request` checks them."""

    name: Annotated[str | None, option("-n --name", "Prefix of all C symbols; default: the file's name.")] = None
    oracle: Annotated[
        str,
        option(
            "--oracle litert|tflm|litert-reference",
            "Match the results of TensorFlow Lite, of TFLM, or of LiteRT's reference kernels including their bugs.",
            completion.oracles,
        ),
    ] = "litert"
    opt: Annotated[
        str, option("--opt speed|balanced|size|ram", "What to optimise for; balanced: a bounded trade-off of all three.")
    ] = "balanced"
    kernels: Annotated[str, option("--kernels native|generic", "Use the core's special instructions, or portable C only.")] = (
        "native"
    )
    flash_budget: Annotated[
        str | None, option("--flash-budget SIZE", "Limit for constants and code in flash, such as 96KiB.")
    ] = None
    ram_budget: Annotated[
        str | None,
        option("--ram-budget SIZE", "Limit for workspace and state, such as 20KiB; picks the fastest build within it."),
    ] = None
    io: Annotated[str, option("--io arena|user", "Keep inputs and outputs in the workspace, or in the caller's buffers.")] = (
        "arena"
    )
    shape: Annotated[
        list[str] | None,
        option("--shape NAME=N,N,..", "Fix an input's dynamic dimensions; may be repeated.", completion.inputs),
    ] = None
    batch: Annotated[int | None, option("--batch N", "Batch size: the first dimension of inputs, if it is dynamic.")] = None
    signature: Annotated[
        str | None, option("--signature KEY", "The graph to compile, by signature key.", completion.signatures)
    ] = None
    subgraph: Annotated[
        int | None, option("--subgraph N", "The graph to compile, by number; default 0.", completion.subgraphs)
    ] = None
    pool: Annotated[
        list[str] | None, option("--pool NAME=SIZE@ADDRESS:SPEED", "A memory for the workspace; may be repeated.")
    ] = None
    pin: Annotated[
        list[str] | None,
        option("--pin TENSOR=POOL", "Place a tensor, or the state, in a pool; may be repeated.", completion.tensors),
    ] = None
    const_pool: Annotated[
        list[str] | None, option("--const-pool NAME=SIZE@ADDRESS:SPEED", "A memory for the constants; may be repeated.")
    ] = None
    feed_rows: Annotated[
        bool, option("--feed-rows", "The input arrives row by row (NAME_feed_row) and is not kept in the workspace.")
    ] = False
    plugin: Annotated[
        list[Path] | None, option("--plugin FILE.py", "Load a plug-in first (docs/plugins.md); may be repeated.")
    ] = None
    byoc: Annotated[
        list[str] | None,
        option(
            "--byoc NAME[=OPS]",
            "Give layers to an external code generator, such as cmsis-nn; may be repeated.",
            completion.choices("cmsis-nn"),
        ),
    ] = None
    byoc_path: Annotated[
        Path | None, option("--byoc-path DIR", "Folder of the --byoc library, which contains Include and Source.")
    ] = None
    no_cache: Annotated[bool, option("--no-cache", "Ignore the cache and compile again.")] = False
    max_iterations: Annotated[
        int, option("--max-iterations N", "Stop a WHILE with an error after N iterations; 0: never.", min=0, max=(1 << 32) - 1)
    ] = 1_000_000
    slide: Annotated[
        list[str] | None,
        option(
            "--slide INPUT=HOP",
            "The input is a window that moves by HOP rows per run; a run gets the new rows only.",
            completion.inputs,
        ),
    ] = None
    slide_axis: Annotated[int, option("--slide-axis N", "The time dimension of the --slide inputs.")] = 1
    rings: Annotated[
        str,
        option("--rings auto|copy|slide", "State windows: move the data in each run (copy), or slide through more memory."),
    ] = "auto"
    float16: Annotated[
        str, option("--float16 keep|fold", "Keep float16 weights in flash as they are, or store them as float32.")
    ] = "keep"
    fast_float: Annotated[
        bool,
        option("--fast-float", "Compute float32 layers with MVE vectors, which flush numbers below 2^-126 to zero."),
    ] = False
    in_steps: Annotated[bool, option("--in-steps", "A run may be split into steps: NAME_run_step returns after each layer.")] = (
        False
    )
    tuning: Annotated[
        Path | None,
        option("--tuning FILE", "Choose kernels by records of aot tune (tophub: the records in the package)."),
    ] = None


def load_plugins(files: Sequence[Path] = ()) -> None:
    """Load the installed plug-ins and these files (E5110, E5111)."""
    from aot.driver.plugins import load_file, load_installed

    load_installed()
    for path in files:
        load_file(path)


def words_of(
    options: CompileOptions, *, leave_out: Collection[str] = (), always: Collection[str] = ("oracle", "opt")
) -> tuple[str, ...]:
    """The options as words for a shell: those in `always`, and any others that differ from their defaults."""
    words: list[str] = []
    for field in fields(CompileOptions):
        value = getattr(options, field.name)
        if field.name in leave_out or (value == field.default and field.name not in always):
            continue
        for one in value if isinstance(value, list) else [value]:
            flag = f"--{field.name.replace('_', '-')}"
            words += [flag] if one is True else [flag, shlex.quote(str(one))]
    return tuple(words)


def verb(*, leave_out: Collection[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator: offers the fields of a parameter that is a record, such as CompileOptions, as options of the verb.

    `leave_out` names fields that the verb does not offer; they keep their defaults.  Plug-ins are loaded first.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(function, include_extras=True)
        signature = inspect.signature(function)
        parameters = [p for own in signature.parameters.values() for p in _offered(own, hints[own.name], leave_out)]

        @functools.wraps(function)
        def wrapper(*args: Any, **values: Any) -> None:
            if "plugin" in values:
                load_plugins(values["plugin"] or ())
            records = {name: _taken(hint, values, leave_out) for name, hint in hints.items() if is_dataclass(hint)}
            function(*args, **records, **values)

        wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapper

    return decorate


def _offered(parameter: inspect.Parameter, hint: Any, leave_out: Collection[str]) -> Iterator[inspect.Parameter]:
    """The parameter with its type or, for a record, those of its fields."""
    if not is_dataclass(hint):
        yield parameter.replace(annotation=hint)
        return
    hints = get_type_hints(hint, include_extras=True)
    record: Any = hint
    for own in inspect.signature(record).parameters.values():
        if own.name not in leave_out:
            yield from _offered(own.replace(kind=inspect.Parameter.KEYWORD_ONLY), hints[own.name], leave_out)


def _taken(record: Any, values: dict[str, Any], leave_out: Collection[str]) -> Any:
    """The record from `values`, except fields in `leave_out`, whose names other parameters of the verb may have."""
    hints = get_type_hints(record)
    parts = {f.name: _taken(hints[f.name], values, leave_out) for f in fields(record) if is_dataclass(hints[f.name])}
    offered = (f.name for f in fields(record) if f.name in values and f.name not in leave_out)
    return record(**parts, **{name: values.pop(name) for name in offered})
