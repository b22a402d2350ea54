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
    """An option with a choice: `words` separated by |, `text` its help."""
    return typer.Option(flag, metavar=words, autocompletion=completion.choices(*words.split("|")), help=text)


ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="The model, a .tflite file.", show_default=False)]
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
        help="Whose rounding: TensorFlow Lite's or TFLM's; litert-reference: the faults of LiteRT's reference kernels too.",
    ),
]
Opt = Annotated[
    str,
    one_of("--opt", "speed|balanced|size|ram", "What to optimise for; balanced: all of them, within bounds."),
]
Kernels = Annotated[
    str,
    one_of("--kernels", "native|generic", "With the core's special instructions, or portable C only."),
]
FlashBudget = Annotated[
    str | None, typer.Option("--flash-budget", metavar="SIZE", help="Limit for constants and code in flash, such as 96KiB.")
]
RamBudget = Annotated[
    str | None,
    typer.Option(
        "--ram-budget", metavar="SIZE", help="Limit for workspace and state, such as 20KiB; then the fewest instructions."
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
Batch = Annotated[int | None, typer.Option("--batch", metavar="N", help="The first dimension of inputs where it is dynamic.")]
Signature = Annotated[
    str | None,
    typer.Option("--signature", metavar="KEY", autocompletion=completion.signatures, help="Which graph, by its signature's key."),
]
Subgraph = Annotated[
    int | None,
    typer.Option("--subgraph", metavar="N", autocompletion=completion.subgraphs, help="Which graph, by its number; default 0."),
]
Io = Annotated[
    str,
    one_of("--io", "arena|user", "Inputs and outputs in the workspace or in the caller's buffers."),
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
    bool, typer.Option("--feed-rows", help="The input comes row by row (NAME_feed_row) and is not in the workspace.")
]
InSteps = Annotated[
    bool, typer.Option("--in-steps", help="A run may be split into steps: NAME_run_step gives way after each layer.")
]
Slides = Annotated[
    list[str] | None,
    typer.Option(
        "--slide",
        metavar="INPUT=HOP",
        autocompletion=completion.inputs,
        help="The input is a window that moves by HOP rows a run, which alone are given.",
    ),
]
SlideAxis = Annotated[int, typer.Option("--slide-axis", metavar="N", help="The dimension of the window that is time.")]
Byoc = Annotated[
    list[str] | None,
    typer.Option(
        "--byoc",
        metavar="NAME[=OPS]",
        autocompletion=completion.choices("cmsis-nn"),
        help="Layers for an external code generator: cmsis-nn; may be repeated.",
    ),
]
ByocPath = Annotated[
    Path | None, typer.Option("--byoc-path", metavar="DIR", help="The folder of its library, with Include and Source in it.")
]
MaxIterations = Annotated[
    int,
    typer.Option(
        "--max-iterations", metavar="N", min=0, max=(1 << 32) - 1, help="Stop a WHILE with an error after N iterations; 0: never."
    ),
]
Rings = Annotated[
    str,
    one_of("--rings", "auto|copy|slide", "Windows of a state are moved in each run, or slide through more memory."),
]
Float16 = Annotated[
    str,
    one_of("--float16", "keep|fold", "Weights of float16 stay so in flash, or become float32 there."),
]
FastFloat = Annotated[
    bool,
    typer.Option("--fast-float", help="float32 layers in vectors of MVE, which take numbers below 2^-126 for zero."),
]
Tuning = Annotated[
    Path | None,
    typer.Option(
        "--tuning", metavar="FILE", help="Choose kernels by these records of aot tune (tophub: by those of the package)."
    ),
]
Plugins = Annotated[
    list[Path] | None, typer.Option("--plugin", metavar="FILE.py", help="Run a plug-in first (docs/plugins.md); may be repeated.")
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
    bool, typer.Option("--profiler", help="Write layer_profile.c too: cycles of each layer in your firmware (aot profile).")
]
SbomFlag = Annotated[bool, typer.Option("--sbom", help="Write sbom.cdx.json too, a CycloneDX bill of materials.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
QuietFlag = Annotated[bool, typer.Option("-q", "--quiet", help="Print errors only.")]
VerboseFlag = Annotated[bool, typer.Option("-v", "--verbose", help="Print more.")]


def finite(value: float | None) -> float | None:
    """Refuses nan and infinities, which pass every comparison of a range or none."""
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
        help="Give up on a run after this time; 0: the board's.",
        show_default=False,
    ),
]

ClockRate = Annotated[
    str | None,
    typer.Option(
        "--clock", metavar="HZ", help="Of a chain: the load of a core with this clock, such as 64MHz.", show_default=False
    ),
]

DEFAULT_TARGET = "cortex-m4"
DEFAULT_BOARD = "mps2-an386"


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """The options of all verbs that compile a model, as the command line has them; `aot.cli.common.request` checks them."""

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
    """The options as words of a shell's command line: some `always`, the others where they are not the defaults."""
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
    """Gives a verb the options of CompileOptions in place of its parameter `options`, which collects them.

    `leave_out` names fields that the verb does not offer; they keep their defaults.
    """

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(CompileOptions, include_extras=True)
        own = get_type_hints(verb, include_extras=True)
        offered = [f for f in fields(CompileOptions) if f.name not in leave_out]
        keyword = inspect.Parameter.KEYWORD_ONLY
        shared = [inspect.Parameter(f.name, keyword, default=f.default, annotation=hints[f.name]) for f in offered]
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(verb).parameters.values():
            if parameter.name == "options":
                parameters += shared
            else:
                parameters.append(parameter.replace(annotation=own[parameter.name]))

        @functools.wraps(verb)
        def wrapper(*args: Any, **given: Any) -> None:
            chosen = CompileOptions(**{f.name: given.pop(f.name) for f in offered if f.name in given})
            load_plugins(chosen.plugin or ())
            verb(*args, options=chosen, **given)

        wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapper

    return decorate
