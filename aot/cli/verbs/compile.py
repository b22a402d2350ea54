"""`aot compile MODEL`: C sources, metadata and report in a folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aot.cli.options import (
    BoardName,
    CompileOptions,
    Force,
    ForceOverBudget,
    JsonFlag,
    LimitsFile,
    OutputFolder,
    QuietFlag,
    TargetName,
    VerboseFlag,
    compiles,
)
from aot.cli.output import Output
from aot.errors import Problem, UsageError

if TYPE_CHECKING:
    from aot.cli.common import Request
    from aot.executor.artifact import Artifact
    from aot.micro.board import Board
from aot.cli.verbs._folder import check_folder, to_json, write_sources

NAME = "compile"

Format = Annotated[str, typer.Option("--format", metavar="c|mlf", help="A folder of C, or one tar in Model Library Format.")]

Models = Annotated[list[Path], typer.Argument(metavar="MODEL...", help="The models, .tflite files.", show_default=False)]

Share = Annotated[bool, typer.Option("--share-workspace", help="One workspace for all models, which run one at a time.")]

PlanFile = Annotated[
    Path | None, typer.Option("--plan", metavar="FILE", help="Draw the memory plan as .svg, or write it as .json; replaces FILE.")
]

VerifyPasses = Annotated[
    bool, typer.Option("--verify-passes", help="Run every function before and after each pass, and compare (E9003, E9004).")
]
StackFlag = Annotated[
    bool, typer.Option("--stack-bound", help="State the worst-case stack in the header; needs the cross compiler.")
]


def check_library(path: Path, *, force: bool) -> None:
    """An archive is replaced only with --force, and only by another archive (E5004, E5005)."""
    from aot.driver.reading import read_limited
    from aot.micro.mlf import unpack

    if not os.path.exists(path):
        return
    if not force:
        raise UsageError(Problem("E5004", f"'{path}' exists; --force replaces it, -o chooses another file"))
    try:
        unpack(read_limited(path))
    except UsageError:
        raise UsageError(Problem("E5005", f"'{path}' was not written by aot, so --force does not replace it")) from None


def write_library(path: Path, artifact: Artifact, wanted: Request) -> list[str]:
    """Write one archive in Model Library Format; the paths of its members."""
    from aot.cli.files import write_file
    from aot.frontend.tflite import from_tflite
    from aot.micro.mlf import pack, unpack
    from aot.relay.printer import print_module

    relay = print_module(from_tflite(wanted.data, oracle=wanted.oracle, name=wanted.name))
    data = pack(artifact, relay=relay)
    write_file(path, data)
    return sorted(unpack(data).files)


def write_plan(path: Path, artifact: Artifact) -> None:
    """The memory plan as a drawing or as data, by the file's ending (E5006, E5007)."""
    from aot.cli.files import write_file
    from aot.report.render.plan_svg import plan_data, standalone

    plan = plan_data(artifact.metadata["workspace"], artifact.metadata["layers"])
    title = f"{artifact.name}: {plan['size']:,} B of workspace"
    write_file(path, standalone(plan, title=title) if path.suffix == ".svg" else to_json(plan))


def add_stack_bound(artifact: Artifact, place: Board | None, target: str) -> Artifact:
    """The artifact with the worst-case stack in its header; E5017 if there is no board with the core to link for."""
    from aot.micro.build.stack import board_of, state_stack_bound

    board = place or board_of(target)
    if board is None or board.is_host:
        raise UsageError(Problem("E5017", f"--stack-bound: there is no board with a {target} to link for"))
    return state_stack_bound(artifact, board)


def check_forms(form: str, plan: Path | None) -> None:
    """What can be written, and how (E5009, E5018)."""
    if form not in ("c", "mlf"):
        raise UsageError(Problem("E5009", f"--format {form}: choose one of c, mlf"))
    if plan is not None and plan.suffix not in (".svg", ".json"):
        raise UsageError(Problem("E5018", f"--plan {plan}: name a file that ends in .svg or .json"))


def compile_checked(wanted: Request, out: Output) -> Artifact:
    """The artifact, with every function run before and after each pass (E9003, E9004)."""
    from aot.cli.common import compile_model
    from aot.ir.instrument import CheckSemantics, VerifyIR
    from aot.ir.transform import PassContext

    check = CheckSemantics()
    with PassContext(instruments=(VerifyIR(), check)):
        artifact = compile_model(wanted)
    out.row("passes", f"{check.compared} function runs give the same result after a pass as before it")
    return artifact


def show(out: Output, wanted: Request, meta: Mapping[str, Any]) -> None:
    """What was read, and what came of it."""
    from aot.cli.common import import_text
    from aot.report.figures.size import flash_of, operators_of, plan_of
    from aot.report.figures.slide import slide_lines

    out.row("import", import_text(wanted))
    out.row("compile", f"{operators_of(meta)} for {wanted.target}")
    out.row("plan", plan_of(meta))
    out.row("flash", flash_of(meta))
    for line in slide_lines(meta)[: None if out.verbose else 1]:
        out.row("slide", line)


@compiles()
def command(
    models: Models,
    *,
    output: OutputFolder = None,
    target: TargetName = None,
    board: BoardName = None,
    options: CompileOptions,
    form: Format = "c",
    plan: PlanFile = None,
    share: Share = False,
    stack_bound: StackFlag = False,
    verify_passes: VerifyPasses = False,
    force: Force = False,
    over: ForceOverBudget = False,
    budget: LimitsFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Compile MODEL to C, or several into one folder. With --board, refuse what does not fit its memory."""
    if len(models) > 1 or share:
        if budget is not None:
            raise UsageError(Problem("E5017", "--budget takes one model; aot report takes several"))
        from aot.cli.verbs._several import compile_several

        compile_several(
            models, options=options, target=target, board=board, output=output, share=share, force=force, over=over, form=form,
            plan=plan, out=Output(json=as_json, quiet=quiet, verbose=verbose),
        )  # fmt: skip
        return
    (model,) = models
    from aot.cli.budgets import check_budget_file, check_budgets, compiled_totals
    from aot.cli.common import choose_target, compile_model, find_board, request
    from aot.report.figures.choice import CHOICE_HEADERS, choice_rows

    check_forms(form, plan)
    out = Output(json=as_json, quiet=quiet, verbose=verbose)
    place = find_board(board) if board else None
    wanted = request(model, options, target=choose_target(target, place), board=place)
    path = output or Path("out") / (wanted.name if form == "c" else f"{wanted.name}.tar")
    (check_library if form == "mlf" else check_folder)(path, force=force)
    with out.working(f"compiling {model.name}"):
        artifact = compile_checked(wanted, out) if verify_passes else compile_model(wanted)
        if place is not None and not place.is_host:
            from aot.micro.build.project import choose_places

            choose_places(place, artifact.metadata)
        if stack_bound:
            artifact = add_stack_bound(artifact, place, wanted.target)
    check_budgets([artifact.metadata], force=over)
    meta, where = artifact.metadata, place.name if place is not None else wanted.target
    check_budget_file(budget, compiled_totals(meta), name=artifact.name, board=where, force=over, out=out)
    if plan is not None:
        write_plan(plan, artifact)
    written = write_library(path, artifact, wanted) if form == "mlf" else write_sources(path, artifact, force=force)
    show(out, wanted, meta)
    out.row("write", f"{path}: {', '.join(written)}")
    if verbose:
        out.table(CHOICE_HEADERS, choice_rows(meta["layers"]))
    out.result({"ok": True, "output": str(path), "files": written, "metadata": meta})
