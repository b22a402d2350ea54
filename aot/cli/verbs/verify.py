"""`aot verify MODEL`: compile, build, run, and compare every output byte with the reference."""

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
    typer.Option("--inputs", metavar="FILE.npz", help="A golden file (in0_0, out0_0 ...) or samples (x).", show_default=False),
]
RandomCount = Annotated[
    int | None,
    typer.Option(
        "--random",
        metavar="N",
        help="Use N sets of generated inputs, the same each time; default 4.",
        show_default=False,
    ),
]
ReproducerFolder = Annotated[
    Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for the files that reproduce a mismatch.")
]
PoisonFlag = Annotated[bool, typer.Option("--poison", help="Run again, overwriting all dead memory between layers.")]
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
    typer.Option(
        "--serial", metavar="PORT[:BAUD]", help="Port of a connected --board zephyr:BOARD: flash it, and run over its console."
    ),
]
RequireFlag = Annotated[
    bool,
    typer.Option(
        "--require-reference/--no-require-reference",
        help="Exit 6 if the reference is not installed or rejects the model; otherwise aot's own interpreter is used instead.",
    ),
]


def choose_sets(artifact: Artifact, inputs: Path | None, count: int | None, *, oracle: str) -> Sets:
    """The input sets of --inputs or --random."""
    from aot.cli.common import noted
    from aot.report.measure.samples import sets_for

    return noted(sets_for(artifact.metadata, inputs, count, oracle=oracle))


def show(out: Output, result: Verification, artifact: Artifact) -> None:
    """Print the figures of a verification."""
    from aot.report.figures.size import LAYER_HEADERS, flash_of, layer_rows, load_text, pushes_text, ram_of, slowest_of, time_of
    from aot.report.measure.divergence import fault_text

    out.rule()
    if not result.reference_independent:
        out.line(" " + paint(own_warning(result.reference), "yellow"))
    verdict = paint("bit-exact", "green") if result.exact else paint("exact, the others DIFFER", "red")
    worst = "" if result.exact else f" by up to {result.max_abs_diff}"
    out.row("outputs", f"{result.sets_exact}/{result.sets} sets {verdict}{worst}, reference: {result.reference}")
    if result.known_fault is not None:
        out.row("reference", fault_text(result.known_fault))
    out.row("flash", flash_of(artifact.metadata, code_bytes=result.code_bytes, constant_bytes=result.constant_bytes))
    out.row(
        "RAM",
        ram_of(
            artifact.metadata, touched=result.workspace_extent, stack_bytes=result.stack_bytes, stack_bound=result.stack_bound
        ),
    )
    if result.poisoned_exact is not None:
        out.row("poison", "outputs unchanged" if result.poisoned_exact else paint("outputs CHANGE: dead memory is read", "red"))
    if result.instructions is not None:
        out.row("time", time_of(result.instructions, result.macs, result.macs_nominal))
    if result.pushes is not None:
        out.row("pushes", pushes_text((result.pushes["average"], result.pushes["most"]), result.sets))
    if result.load is not None:
        out.row("load", load_text(result.load))
    if slowest_of(result.layers):
        out.row("slowest", slowest_of(result.layers))
    if result.first_divergence is not None and result.divergence is not None:
        out.row("differs", divergence_text(result.first_divergence))
        show_divergence(out, result.divergence)
    if out.verbose:
        out.table(LAYER_HEADERS, layer_rows(result.layers))


def own_warning(reference: str) -> str:
    """The warning that the expected outputs come from this compiler's own interpreter."""
    return f"NOT compared with an independent reference: {reference}; --require-reference makes this an error"


def show_divergence(out: Output, divergence: Mapping[str, Any], *, top: int = 10) -> None:
    """Print the layers that differ, a histogram of the differences, and whether the first layer differs alone."""
    rows = [(x["layer"], does_of(x), x["kernel"], x["count"], x["size"], x["max_abs"]) for x in divergence["layers"]]
    if rows:
        out.table(("layer", "operator", "kernel", "values that differ", "of", "by at most"), rows if out.verbose else rows[:top])
    if divergence.get("inside"):
        out.row(
            "inside",
            f"{divergence['inside']} layers in branches and loops are not compared: the reference does not expose their tensors",
        )
    if divergence["histogram"]:
        off = ", ".join(f"{h['difference']:+d}: {h['count']:,}" for h in divergence["histogram"])
        out.row("off by", f"{off} (values of all outputs and sets)")
    alone = divergence["one_layer"]
    if alone is not None and alone["model"] is None:
        out.row("alone", f"layer {alone['layer']} cannot be extracted as a model: {alone['why_not']}")
    elif alone is not None:
        words = {True: "differs too", False: "is exact: the fault depends on other layers", None: "cannot be compiled or run"}
        out.row("alone", f"layer {alone['layer']} as a separate model {words[alone['reproduces']]}")


OF_ANY_MODEL = {"oracle", "opt", "kernels", "flash_budget", "ram_budget", "io"}
OF_THE_MODEL = frozenset(f.name for f in fields(CompileOptions)) - OF_ANY_MODEL
"""Options that do not apply to a single layer: they name graphs and tensors of the whole model."""


def reproducer_text(
    divergence: Mapping[str, Any], folder: Path, *, model: Path, board: str, options: CompileOptions
) -> list[str]:
    """The commands that reproduce the mismatch, with all options that differ from their defaults."""
    lines = []
    if divergence["reproducer"] is not None:
        chosen = " ".join(["", *words_of(options, always=())])
        lines.append(
            f"aot verify {quoted(model)} --board {quoted(board)}{chosen} --inputs {quoted(folder / divergence['reproducer'])}"
        )
    alone = divergence["one_layer"]
    if alone is not None and alone["model"] is not None:
        chosen = " ".join(["", *words_of(options, leave_out=OF_THE_MODEL, always=())])
        files = [quoted(folder / alone[key]) for key in ("model", "inputs")]
        lines.append(f"aot verify {files[0]} --board {quoted(board)}{chosen} --inputs {files[1]}")
    return lines


def quoted(text: object) -> str:
    """`text` as one shell word."""
    return shlex.quote(str(text))


def divergence_text(place: object) -> str:
    """One sentence about the first difference."""
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
    require: RequireFlag = False,
    serial: SerialName = None,
    clock: ClockRate = None,
    timeout: Timeout = 0.0,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Run MODEL on a board and compare every output byte with the reference.

    On a mismatch, exit 5 and name the first operator that differs.
    """
    from aot.cli.common import compile_for, find_board, import_text, request
    from aot.micro.build.project import prepare
    from aot.report.figures.size import check_clock, operators_of, plan_of
    from aot.report.measure.fitting import linker
    from aot.report.measure.verify import verify

    out = Output(json=as_json, quiet=quiet, verbose=verbose)
    hertz = check_asked(output, serial=serial, board=board, clock=clock)
    chosen = partial(choose_sets, inputs=inputs, count=random, oracle=options.oracle)
    check = require_reference if require else None
    if board is not None and board.startswith("zephyr:"):
        name = board.removeprefix("zephyr:")
        result, artifact = run_with_zephyr(
            out, model, name, options, serial=serial, timeout=timeout, choose_sets=chosen, check=check
        )  # fmt: skip
        show(out, result, artifact)
        conclude(out, result)
        return
    place = find_board(board)
    req = request(model, options, target=place.cpu, board=place)
    with out.working(f"compiling {model.name}"):
        artifact = compile_for(req, place, out, link=linker(place))
        check_clock(artifact.metadata, hertz)
        sets = chosen(artifact)
        if check is not None:
            check(req.data, artifact, sets)
    out.row("import", import_text(req))
    out.row("compile", f"{operators_of(artifact.metadata)}, for {req.target}")
    out.row("plan", plan_of(artifact.metadata))
    with out.working(f"running {model.name} on {place.name}"):
        project = prepare(artifact, place)
        result = verify(
            req.data, artifact, project, sets, profile=profile, poison=poison, timeout=timeout or None, folder=output,
            clock=hertz, progress=out.row,
        )  # fmt: skip
    show(out, result, artifact)
    if result.divergence is not None:
        for line in reproducer_text(result.divergence, output, model=model, board=place.name, options=options):
            out.row("again", line)
    conclude(out, result, accept_faults=accept_known_faults)


def check_asked(output: Path, *, serial: str | None, board: str | None, clock: str | None) -> int | None:
    """The clock in hertz.  E5005 for an unusable folder; E5017 for --serial or --clock if the board does not support it."""
    from aot.report.figures.size import parse_clock

    check_usable(output)
    if serial is not None and not (board or "").startswith("zephyr:"):
        raise UsageError(
            Problem("E5017", "--serial works with --board zephyr:BOARD only; for other boards, board.toml defines the connection")
        )
    if clock is not None and (board or "").startswith("zephyr:"):
        raise UsageError(Problem("E5017", f"--clock needs instruction counts, which --board {board} does not provide"))
    return parse_clock(clock)


def require_reference(model: bytes, artifact: Artifact, sets: Sets) -> None:
    """E3031 or E3032 if there are no expected outputs and only our own interpreter could compute them."""
    from aot.report.measure.reference import check_reference
    from aot.report.measure.sets import as_windows

    if sets.expected is None:
        meta = artifact.metadata
        first = as_windows(sets, meta).inputs[0]
        check_reference(model, meta["oracle"], outputs=len(meta["outputs"]), inputs=first)


def conclude(out: Output, result: Verification, *, accept_faults: bool = True) -> None:
    """Print the result as JSON; raise E4001 if outputs differ (unless by a known fault), E4040 if they change with --poison."""
    out.result(result.to_json())
    if not result.exact and not (accept_faults and result.known_fault is not None):
        if not out.json:
            where = divergence_text(result.first_divergence) if result.first_divergence else ""
            complain(where, result)
        raise typer.Exit(EXIT_VERIFICATION)
    if result.poisoned_exact is False:
        raise VerificationError(Problem("E4040", "the outputs change when dead memory is overwritten", result.model))


def complain(where: str, result: Verification) -> None:
    """Print E4001 (outputs differ) to stderr."""
    import sys

    bad = result.sets - result.sets_exact
    print(Problem("E4001", f"{bad} of {result.sets} sets differ from {result.reference}; {where}", result.model), file=sys.stderr)


# ---- --board zephyr:BOARD


def run_with_zephyr(
    out: Output,
    model: Path,
    board: str,
    options: CompileOptions,
    *,
    choose_sets: Callable[[Artifact], Sets],
    check: Callable[[bytes, Artifact, Sets], None] | None,
    serial: str | None,
    timeout: float,
) -> tuple[Verification, Artifact]:
    """Run the model in a Zephyr application, compiled for the core in Zephyr's configuration, and compare."""
    from aot.cli.common import compile_for, import_text, request
    from aot.micro.run.zephyr import zephyr_base
    from aot.report.figures.size import operators_of, plan_of
    from aot.report.measure.verify import verify_on_zephyr

    zephyr_base()
    req = request(model, options, target="cortex-m3")  # only for the tensors; the core is not known yet
    like = compile_for(req, None)
    sets = choose_sets(like)
    if check is not None:
        check(req.data, like, sets)
    out.row("import", import_text(req))
    how = "building and running" if serial is None else "building, flashing and running"
    with out.working(f"{how} {model.name} with Zephyr on {board}"):
        result, artifact = verify_on_zephyr(
            req.data, board, sets, compile_for=lambda cpu: compile_for(replace(req, target=cpu), None), like=like,
            serial=serial, timeout=timeout or None,
        )  # fmt: skip
    out.row("compile", f"{operators_of(artifact.metadata)}, for {artifact.metadata['target']['cpu']}")
    out.row("plan", plan_of(artifact.metadata))
    return result, artifact
