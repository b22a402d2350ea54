"""The options that several verbs share, each described once."""

from __future__ import annotations

import functools
import inspect
import math
import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from aot.cli import completion
from aot.support.dataclass import dataclass


def one_of(flag: str, words: str, text: str) -> Any:
    """An option with a choice: `words` are the values, separated by |; `text` is the help."""
    return typer.Option(flag, metavar=words, autocompletion=completion.choices(*words.split("|")), help=text)


ModelPath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The model, a .tflite file (or a graph as text: .relay).", show_default=False)
]
OutputFolder = Annotated[Path | None, typer.Option("-o", "--output", metavar="DIR", help="Folder to write; default out/NAME.")]
ModelName = Annotated[str | None, typer.Option("-n", "--name", help="Prefix of all C symbols; default: the file's name.")]
TargetName = Annotated[
    str | None,
    typer.Option("--target", metavar="CPU", autocompletion=completion.targets, help="Core, such as cortex-m4 (aot targets)."),
]
BoardName = Annotated[
    str | None,
    typer.Option("--board", metavar="BOARD", autocompletion=completion.boards, help="Board, such as mps2-an386 (aot boards)."),
]
Oracle = Annotated[
    str,
    typer.Option(
        "--oracle",
        metavar="litert|tflm|litert-reference",
        autocompletion=completion.oracles,
        help="Match the results of TensorFlow Lite, of TFLM, or of LiteRT's reference kernels including their bugs.",
    ),
]
Opt = Annotated[
    str,
    one_of("--opt", "speed|balanced|size|ram", "What to optimise for; balanced: a bounded trade-off of all three."),
]
Kernels = Annotated[
    str,
    one_of("--kernels", "native|generic", "Use the core's special instructions, or portable C only."),
]
FlashBudget = Annotated[
    str | None, typer.Option("--flash-budget", metavar="SIZE", help="Limit for constants and code in flash, such as 96KiB.")
]
RamBudget = Annotated[
    str | None,
    typer.Option(
        "--ram-budget", metavar="SIZE", help="Limit for workspace and state, such as 20KiB; picks the fastest build within it."
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=N,N,..",
        autocompletion=completion.inputs,
        help="Fix an input's dynamic dimensions; may be repeated.",
    ),
]
Batch = Annotated[
    int | None, typer.Option("--batch", metavar="N", help="Batch size: the first dimension of inputs, if it is dynamic.")
]
Signature = Annotated[
    str | None,
    typer.Option(
        "--signature", metavar="KEY", autocompletion=completion.signatures, help="The graph to compile, by signature key."
    ),
]
Subgraph = Annotated[
    int | None,
    typer.Option(
        "--subgraph", metavar="N", autocompletion=completion.subgraphs, help="The graph to compile, by number; default 0."
    ),
]
Io = Annotated[
    str,
    one_of("--io", "arena|user", "Keep inputs and outputs in the workspace, or in the caller's buffers."),
]
Pools = Annotated[
    list[str] | None,
    typer.Option("--pool", metavar="NAME=SIZE@ADDRESS:SPEED", help="A memory for the workspace; may be repeated."),
]
ConstPools = Annotated[
    list[str] | None,
    typer.Option("--const-pool", metavar="NAME=SIZE@ADDRESS:SPEED", help="A memory for the constants; may be repeated."),
]
Pins = Annotated[
    list[str] | None,
    typer.Option(
        "--pin",
        metavar="TENSOR=POOL",
        autocompletion=completion.tensors,
        help="Place a tensor, or the state, in a pool; may be repeated.",
    ),
]
FeedRows = Annotated[
    bool, typer.Option("--feed-rows", help="The input arrives row by row (NAME_feed_row) and is not kept in the workspace.")
]
InSteps = Annotated[
    bool, typer.Option("--in-steps", help="A run may be split into steps: NAME_run_step returns after each layer.")
]
Slides = Annotated[
    list[str] | None,
    typer.Option(
        "--slide",
        metavar="INPUT=HOP",
        autocompletion=completion.inputs,
        help="The input is a window that moves by HOP rows per run; a run gets the new rows only.",
    ),
]
SlideAxis = Annotated[int, typer.Option("--slide-axis", metavar="N", help="The time dimension of the --slide inputs.")]
Byoc = Annotated[
    list[str] | None,
    typer.Option(
        "--byoc",
        metavar="NAME[=OPS]",
        autocompletion=completion.choices("cmsis-nn"),
        help="Give layers to an external code generator, such as cmsis-nn; may be repeated.",
    ),
]
ByocPath = Annotated[
    Path | None,
    typer.Option("--byoc-path", metavar="DIR", help="Folder of the --byoc library, which contains Include and Source."),
]
MaxIterations = Annotated[
    int,
    typer.Option(
        "--max-iterations", metavar="N", min=0, max=(1 << 32) - 1, help="Stop a WHILE with an error after N iterations; 0: never."
    ),
]
Rings = Annotated[
    str,
    one_of("--rings", "auto|copy|slide", "State windows: move the data in each run (copy), or slide through more memory."),
]
Float16 = Annotated[
    str,
    one_of("--float16", "keep|fold", "Keep float16 weights in flash as they are, or store them as float32."),
]
FastFloat = Annotated[
    bool,
    typer.Option("--fast-float", help="Compute float32 layers with MVE vectors, which flush numbers below 2^-126 to zero."),
]
Tuning = Annotated[
    Path | None,
    typer.Option("--tuning", metavar="FILE", help="Choose kernels by records of aot tune (tophub: the records in the package)."),
]
Plugins = Annotated[
    list[Path] | None,
    typer.Option("--plugin", metavar="FILE.py", help="Load a plug-in first (docs/plugins.md); may be repeated."),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Ignore the cache and compile again.")]
Share = Annotated[bool, typer.Option("--share-workspace", help="One workspace for all models, which run one at a time.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an output folder that an earlier run of aot wrote.")]
ForceOverBudget = Annotated[
    bool, typer.Option("--force-over-budget", help="Write the files even if --ram-budget or --flash-budget is exceeded.")
]
LimitsFile = Annotated[
    Path | None,
    typer.Option("--budget", metavar="FILE", help="Absolute limits, as in budget.toml.", show_default=False),
]
ProfilerFlag = Annotated[
    bool,
    typer.Option("--profiler", help="Also write layer_profile.c, which counts cycles per layer in your firmware (aot profile)."),
]
SbomFlag = Annotated[bool, typer.Option("--sbom", help="Also write sbom.cdx.json, a CycloneDX bill of materials.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
QuietFlag = Annotated[bool, typer.Option("-q", "--quiet", help="Print errors only.")]
VerboseFlag = Annotated[bool, typer.Option("-v", "--verbose", help="Print more.")]


def finite(value: float | None) -> float | None:
    """The value; refuses NaN and infinities, which a range check does not catch reliably."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0,
        max=1e6,
        callback=finite,
        help="Stop a run after this time; 0: the board's own limit.",
        show_default=False,
    ),
]

ClockRate = Annotated[
    str | None,
    typer.Option(
        "--clock",
        metavar="HZ",
        help="For chains with a rate: print the CPU load at this clock, such as 64MHz.",
        show_default=False,
    ),
]

DEFAULT_TARGET = "cortex-m4"
DEFAULT_BOARD = "mps2-an386"


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """The options shared by all verbs that compile a model, as typed; `aot.cli.common.request` checks them."""

    name: ModelName = None
    oracle: Oracle = "litert"
    opt: Opt = "balanced"
    kernels: Kernels = "native"
    flash_budget: FlashBudget = None
    ram_budget: RamBudget = None
    io: Io = "arena"
    shape: Shapes = None
    batch: Batch = None
    signature: Signature = None
    subgraph: Subgraph = None
    pool: Pools = None
    pin: Pins = None
    const_pool: ConstPools = None
    feed_rows: FeedRows = False
    plugin: Plugins = None
    byoc: Byoc = None
    byoc_path: ByocPath = None
    no_cache: NoCache = False
    max_iterations: MaxIterations = 1_000_000
    slide: Slides = None
    slide_axis: SlideAxis = 1
    rings: Rings = "auto"
    float16: Float16 = "keep"
    fast_float: FastFloat = False
    in_steps: InSteps = False
    tuning: Tuning = None


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
    for option in fields(CompileOptions):
        value = getattr(options, option.name)
        if option.name in leave_out or (value == option.default and option.name not in always):
            continue
        for one in value if isinstance(value, list) else [value]:
            flag = f"--{option.name.replace('_', '-')}"
            words += [flag] if one is True else [flag, shlex.quote(str(one))]
    return tuple(words)


def compiles(*, leave_out: tuple[str, ...] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator: replaces a verb's parameter `options` by the options of CompileOptions, and passes them as one object.

    `leave_out` names the fields that the verb does not offer; they keep their defaults.
    """

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(CompileOptions, include_extras=True)
        verb_hints = get_type_hints(verb, include_extras=True)
        offered = [f for f in fields(CompileOptions) if f.name not in leave_out]
        keyword = inspect.Parameter.KEYWORD_ONLY
        shared = [inspect.Parameter(f.name, keyword, default=f.default, annotation=hints[f.name]) for f in offered]
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(verb).parameters.values():
            if parameter.name == "options":
                parameters += shared
            else:
                parameters.append(parameter.replace(annotation=verb_hints[parameter.name]))

        @functools.wraps(verb)
        def wrapper(*args: Any, **values: Any) -> None:
            options = CompileOptions(**{f.name: values.pop(f.name) for f in offered if f.name in values})
            load_plugins(options.plugin or ())
            verb(*args, options=options, **values)

        wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapper

    return decorate
