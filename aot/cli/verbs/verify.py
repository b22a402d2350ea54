"""`aot verify MODEL`: compile, build, run, and compare every byte with the reference."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aot.cli.files import check_usable
from aot.cli.options import (
    BoardName,
    ClockRate,
    CompileOptions,
    JsonFlag,
    ModelPath,
    QuietFlag,
    Timeout,
    VerboseFlag,
    compiles,
    words_of,
)
from aot.cli.output import Output, paint
from aot.errors import EXIT_VERIFICATION, Problem, UsageError, VerificationError
from aot.support.text import does_of

if TYPE_CHECKING:
    from aot.executor.artifact import Artifact
    from aot.report.measure.sets import Sets
    from aot.report.measure.verify import Verification


NAME = "verify"

InputsFile = Annotated[
    Path | None,
    typer.Option("--inputs", metavar="FILE.npz", help="Golden file (in0_0, out0_0 ...) or samples (x).", show_default=False),
]
RandomCount = Annotated[
    int | None,
    typer.Option(
        "--random",
        metavar="N",
        help="N sets of generated inputs, the same each time; default 4.",
        show_default=False,
    ),
]
ReproducerFolder = Annotated[
    Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for the files that reproduce a difference.")
]
PoisonFlag = Annotated[bool, typer.Option("--poison", help="Run again with all dead memory overwritten between layers.")]
FaultsFlag = Annotated[
    bool,
    typer.Option(
        "--accept-known-faults/--no-accept-known-faults",
        help="Exit 0 if outputs differ only by a known fault of the reference kernels.",
    ),
]
ProfileFlag = Annotated[bool, typer.Option("--profile/--no-profile", help="Also count the instructions of each layer.")]
SerialName = Annotated[
    str | None,
    typer.Option("--serial", metavar="PORT[:BAUD]", help="zephyr:BOARD is connected here: flash it, and run over its console."),
]
RequireFlag = Annotated[
    bool,
    typer.Option(
        "--require-reference/--no-require-reference",
        help="Exit 6 if the reference is not installed or rejects the model, instead of comparing with the compiler's own.",
    ),
]


def choose_sets(artifact: Artifact, inputs: Path | None, count: int | None, *, oracle: str) -> Sets:
    """The sets that the command line asks for."""
    from aot.cli.common import noted
    from aot.report.measure.samples import sets_for

    return noted(sets_for(artifact.metadata, inputs, count, oracle=oracle))


def show(out: Output, found: Verification, artifact: Artifact) -> None:
    """The figures of a verification, as rows."""
    from aot.report.figures.size import LAYER_HEADERS, flash_of, layer_rows, load_text, pushes_text, ram_of, slowest_of, time_of
    from aot.report.measure.divergence import fault_text

    out.rule()
    if not found.reference_independent:
        out.line(" " + paint(own_word(found.reference), "yellow"))
    verdict = paint("bit-exact", "green") if found.exact else paint("exact, the others DIFFER", "red")
    worst = "" if found.exact else f" by up to {found.max_abs_diff}"
    out.row("outputs", f"{found.sets_exact}/{found.sets} sets {verdict}{worst}, reference: {found.reference}")
    if found.known_fault is not None:
        out.row("reference", fault_text(found.known_fault))
    out.row("flash", flash_of(artifact.metadata, code_bytes=found.code_bytes, constant_bytes=found.constant_bytes))
    out.row(
        "RAM",
        ram_of(artifact.metadata, touched=found.workspace_extent, stack_bytes=found.stack_bytes, stack_bound=found.stack_bound),
    )
    if found.poisoned_exact is not None:
        out.row("poison", "outputs unchanged" if found.poisoned_exact else paint("outputs CHANGE: dead memory is read", "red"))
    if found.instructions is not None:
        out.row("time", time_of(found.instructions, found.macs, found.macs_nominal))
    if found.pushes is not None:
        out.row("pushes", pushes_text((found.pushes["average"], found.pushes["most"]), found.sets))
    if found.load is not None:
        out.row("load", load_text(found.load))
    if slowest_of(found.layers):
        out.row("slowest", slowest_of(found.layers))
    if found.first_divergence is not None and found.divergence is not None:
        out.row("differs", divergence_text(found.first_divergence))
        show_divergence(out, found.divergence)
    if out.verbose:
        out.table(LAYER_HEADERS, layer_rows(found.layers))


def own_word(reference: str) -> str:
    """The warning that nobody but this compiler said what is right."""
    return f"NOT compared with an independent reference: {reference}; --require-reference makes this an error"


def show_divergence(out: Output, found: Mapping[str, Any], *, top: int = 10) -> None:
    """The layers that differ, how far the outputs are off, and the files that show it."""
    rows = [(x["layer"], does_of(x), x["kernel"], x["count"], x["size"], x["max_abs"]) for x in found["layers"]]
    if rows:
        out.table(("layer", "operator", "kernel", "values that differ", "of", "by at most"), rows if out.verbose else rows[:top])
    if found.get("inside"):
        out.row("inside", f"{found['inside']} layers in branches and loops are not compared: the reference shows none of theirs")
    if found["histogram"]:
        off = ", ".join(f"{h['difference']:+d}: {h['count']:,}" for h in found["histogram"])
        out.row("off by", f"{off} (values of all outputs and sets)")
    alone = found["one_layer"]
    if alone is not None and alone["model"] is None:
        out.row("alone", f"no model of layer {alone['layer']} alone: {alone['why_not']}")
    elif alone is not None:
        words = {True: "differs, too", False: "is exact: the fault needs the layers around it", None: "cannot be compiled or run"}
        out.row("alone", f"layer {alone['layer']} as a model of its own {words[alone['reproduces']]}")


OF_ANY_MODEL = {"oracle", "opt", "kernels", "flash_budget", "ram_budget", "io"}
OF_THE_MODEL = frozenset(f.name for f in fields(CompileOptions)) - OF_ANY_MODEL
"""Options that mean nothing for a layer alone: they name graphs and tensors of the whole model."""


def reproducer_text(found: Mapping[str, Any], folder: Path, *, model: Path, board: str, options: CompileOptions) -> list[str]:
    """The commands that show the difference again, with the options that are not the defaults."""
    lines = []
    if found["reproducer"] is not None:
        chosen = " ".join(["", *words_of(options, always=())])
        lines.append(
            f"aot verify {quoted(model)} --board {quoted(board)}{chosen} --inputs {quoted(folder / found['reproducer'])}"
        )
    alone = found["one_layer"]
    if alone is not None and alone["model"] is not None:
        chosen = " ".join(["", *words_of(options, leave_out=OF_THE_MODEL, always=())])
        files = [quoted(folder / alone[key]) for key in ("model", "inputs")]
        lines.append(f"aot verify {files[0]} --board {quoted(board)}{chosen} --inputs {files[1]}")
    return lines


def quoted(text: object) -> str:
    """One word of a shell."""
    return shlex.quote(str(text))


def divergence_text(place: object) -> str:
    """One sentence on the first difference."""
    assert isinstance(place, dict)
    values = f"element {place['element']} of {place['size']} is {place['actual']}, the reference has {place['expected']}"
    if "layer" not in place:
        return f"output {place['output']} of set {place['set']}: {values} (every layer agrees with the reference's tensors)"
    ops, word = ", ".join(map(str, place["ops"])), "ops" if len(place["ops"]) > 1 else "op"
    where = f'layer {place["layer"]}, {word} {ops} {does_of(place)} "{place["name"]}", kernel {place["kernel"]}'
    return f"first at {where}, set {place['set']}: {values}"


@compiles()
def command(
    model: ModelPath,
    *,
    board: BoardName = None,
    inputs: InputsFile = None,
    random: RandomCount = None,
    options: CompileOptions,
    output: ReproducerFolder = Path("out/verify"),
    profile: ProfileFlag = True,
    poison: PoisonFlag = False,
    accept_known_faults: FaultsFlag = True,
    require_reference: RequireFlag = False,
    serial: SerialName = None,
    clock: ClockRate = None,
    timeout: Timeout = 0.0,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Run MODEL on a board and compare every output byte with the reference; exit 5 and name the first operator that differs."""
    from aot.cli.common import compile_for, find_board, import_text, request
    from aot.micro.build.project import prepare
    from aot.report.figures.size import check_clock, operators_of, plan_of
    from aot.report.measure.fitting import linker
    from aot.report.measure.verify import verify

    out = Output(json=as_json, quiet=quiet, verbose=verbose)
    hertz = check_asked(output, serial=serial, board=board, clock=clock)
    if board is not None and board.startswith("zephyr:"):
        found, artifact = run_with_zephyr(
            out, model, board.removeprefix("zephyr:"), options, serial=serial, timeout=timeout,
            choose_sets=partial(choose_sets, inputs=inputs, count=random, oracle=options.oracle),
            check=partial(require, wanted=require_reference),
        )  # fmt: skip
        show(out, found, artifact)
        conclude(out, found)
        return
    place = find_board(board)
    wanted = request(model, options, target=place.cpu, board=place)
    with out.working(f"compiling {model.name}"):
        artifact = compile_for(wanted, place, out, link=linker(place))
        check_clock(artifact.metadata, hertz)
        sets = choose_sets(artifact, inputs, random, oracle=options.oracle)
        require(wanted.data, artifact, sets, wanted=require_reference)
    out.row("import", import_text(wanted))
    out.row("compile", f"{operators_of(artifact.metadata)}, for {wanted.target}")
    out.row("plan", plan_of(artifact.metadata))
    with out.working(f"running {model.name} on {place.name}"):
        project = prepare(artifact, place)
        found = verify(
            wanted.data, artifact, project, sets, profile=profile, poison=poison, timeout=timeout or None, folder=output,
            clock=hertz, progress=out.row,
        )  # fmt: skip
    show(out, found, artifact)
    if found.divergence is not None:
        for line in reproducer_text(found.divergence, output, model=model, board=place.name, options=options):
            out.row("again", line)
    conclude(out, found, accept_faults=accept_known_faults)


def check_asked(output: Path, *, serial: str | None, board: str | None, clock: str | None) -> int | None:
    """The clock in hertz.  A folder that cannot be written; E5017 for a serial port or a clock that the board has no use for."""
    from aot.report.figures.size import parse_clock

    check_usable(output)
    if serial is not None and not (board or "").startswith("zephyr:"):
        raise UsageError(Problem("E5017", "--serial goes with --board zephyr:BOARD; other boards are reached as board.toml says"))
    if clock is not None and (board or "").startswith("zephyr:"):
        raise UsageError(Problem("E5017", f"--clock counts instructions, which --board {board} does not tell"))
    return parse_clock(clock)


def require(model: bytes, artifact: Artifact, sets: Sets, *, wanted: bool) -> None:
    """E3031 or E3032 if a reference is `wanted`, the sets have no expected outputs, and only our own interpreter runs it."""
    from aot.report.measure.reference import check_reference
    from aot.report.measure.sets import as_windows

    if wanted and sets.expected is None:
        meta = artifact.metadata
        first = as_windows(sets, meta).inputs[0]
        check_reference(model, meta["oracle"], outputs=len(meta["outputs"]), inputs=first)


def conclude(out: Output, found: Verification, *, accept_faults: bool = True) -> None:
    """The result as JSON, and the error where outputs differ (E4001), unless by a known fault, or change with poison (E4040)."""
    out.result(found.to_json())
    if not found.exact and not (accept_faults and found.known_fault is not None):
        if not out.json:
            where = divergence_text(found.first_divergence) if found.first_divergence else ""
            complain(where, found)
        raise typer.Exit(EXIT_VERIFICATION)
    if found.poisoned_exact is False:
        raise VerificationError(Problem("E4040", "the outputs change when dead memory is overwritten", found.model))


def complain(where: str, found: Verification) -> None:
    """The error that outputs differ (E4001), to stderr."""
    import sys

    bad = found.sets - found.sets_exact
    print(Problem("E4001", f"{bad} of {found.sets} sets differ from {found.reference}; {where}", found.model), file=sys.stderr)


# ---- --board zephyr:BOARD


def run_with_zephyr(
    out: Output,
    model: Path,
    board: str,
    options: CompileOptions,
    *,
    choose_sets: Callable[[Artifact], Sets],
    check: Callable[[bytes, Artifact, Sets], None],
    serial: str | None,
    timeout: float,
) -> tuple[Verification, Artifact]:
    """Run the model in an application of Zephyr's, whose configuration says which core it is compiled for, and compare."""
    from aot.cli.common import compile_for, import_text, request
    from aot.micro.run.zephyr import zephyr_base
    from aot.report.figures.size import operators_of, plan_of
    from aot.report.measure.verify import verify_on_zephyr

    zephyr_base()
    wanted = request(model, options, target="cortex-m3")  # for the tensors; the core is not known yet
    like = compile_for(wanted, None)
    sets = choose_sets(like)
    check(wanted.data, like, sets)
    out.row("import", import_text(wanted))
    how = "building and running" if serial is None else "building, flashing and running"
    with out.working(f"{how} {model.name} with Zephyr on {board}"):
        found, artifact = verify_on_zephyr(
            wanted.data, board, sets, compile_for=lambda cpu: compile_for(replace(wanted, target=cpu), None), like=like,
            serial=serial, timeout=timeout or None,
        )  # fmt: skip
    out.row("compile", f"{operators_of(artifact.metadata)}, for {artifact.metadata['target']['cpu']}")
    out.row("plan", plan_of(artifact.metadata))
    return found, artifact
