"""`aot compile MODEL`: C sources, metadata and report in a folder."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
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
    ProfilerFlag,
    QuietFlag,
    SbomFlag,
    Share,
    TargetName,
    VerboseFlag,
    compiles,
    one_of,
)
from aot.cli.output import Output, print_problems
from aot.errors import AotError, Problem, UsageError
from aot.support.dataclass import dataclass

if TYPE_CHECKING:
    from aot.cli.common import Request
    from aot.executor.artifact import Artifact
    from aot.ir.transform import PassInstrument
    from aot.micro.board import Board
    from aot.report.gate.budget import Budget


@dataclass(frozen=True, slots=True)
class Compilation:
    """The options of the verb beside the models: `options` are those that all verbs share, the others its own."""

    options: CompileOptions
    output: Path | None
    target: str | None
    board: str | None
    form: str
    plan: Path | None
    share: bool
    sbom: bool
    profiler: bool
    stack_bound: bool
    verify_passes: bool
    force: bool
    over: bool
    budget: Path | None
    out: Output


# ---- the folder: its files, and what of an old one may be replaced


_INCLUDE = re.compile(r'^\s*#\s*include "(aot/\w+\.h)"', re.MULTILINE)


def to_json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def runtime_headers(sources: Iterable[str], folder: Path) -> list[str]:
    """The headers `aot/….h` below `folder` that the sources include, also by way of each other; sorted."""
    found: set[str] = set()
    waiting = list(sources)
    while waiting:
        for name in _INCLUDE.findall(waiting.pop()):
            if name not in found:
                found.add(name)
                waiting.append((folder / name).read_text(encoding="utf-8"))
    return sorted(found)


def with_headers(sources: Mapping[str, str]) -> dict[str, str | bytes]:
    """The sources of a folder by name, and the headers of the runtime that they include."""
    from aot.system.files import data_folder

    folder = data_folder("crt") / "include"
    headers = {f"include/{name}": (folder / name).read_bytes() for name in runtime_headers(sources.values(), folder)}
    return {**dict(sorted(sources.items())), **headers}


def output_files(artifact: Artifact) -> dict[str, str | bytes]:
    """All files of an output folder: sources, the headers of the runtime that they include, metadata and report."""
    from aot.report.figures.size import compile_report

    files = with_headers(artifact.files)
    files["metadata.json"] = to_json(artifact.metadata)
    files["report.json"] = to_json(compile_report(artifact.metadata))
    return files


def check_folder(folder: Path, *, force: bool) -> None:
    """Refuse to replace what is not ours before the long work (E5004, E5005)."""
    from aot.cli.files import check_replaceable

    check_replaceable(folder, force=force)


def write_sources(folder: Path, artifact: Artifact, *, force: bool, sbom: bool, profiler: bool) -> list[str]:
    """Write the output folder, with `sbom` a bill of materials of it as well; the paths of its files in it."""
    from aot.cli.files import write_folder

    files = with_profiler(output_files(artifact), wanted=profiler)
    files = with_sbom(files, [artifact], name=artifact.name, wanted=sbom)
    return [str(p.relative_to(folder)) for p in write_folder(folder, files, force=force)]


PROFILER = ("layer_profile.c", "include/aot/layer_profile.h")


def with_profiler(files: dict[str, str | bytes], *, wanted: bool) -> dict[str, str | bytes]:
    """The files of a folder, and those that count cycles of each layer in firmware where they are wanted."""
    from aot.system.files import data_folder

    if not wanted:
        return files
    source, header = PROFILER
    crt = data_folder("crt")
    return {**files, source: (crt / "src" / source).read_bytes(), header: (crt / header).read_bytes()}


def with_sbom(files: dict[str, str | bytes], artifacts: Sequence[Artifact], *, name: str, wanted: bool) -> dict[str, str | bytes]:
    """The files of a folder, and their bill of materials where it is wanted."""
    from aot.report.figures.sbom import FILE, sbom

    return {**files, FILE: sbom(name, [a.metadata for a in artifacts], files)} if wanted else files


# ---- several models in one folder, with a workspace each or with one that they share


SCHEMA = "aot-models/1"


def compile_several(models: Sequence[Path], asked: Compilation) -> None:
    """Compile all models and write one folder; E5017 for options that take a single model."""
    from aot.cli.budgets import check_budgets
    from aot.cli.common import choose_target, compile_model, find_board
    from aot.cli.files import write_folder
    from aot.executor.artifact import check_names
    from aot.report.figures.size import plan_of

    check_alone(asked, several=len(models) > 1)
    place = find_board(asked.board) if asked.board else None
    wanted = requests(models, asked.options, target=choose_target(asked.target, place), share=asked.share)
    check_names([w.name for w in wanted])
    path = asked.output or Path("out") / "-".join(w.name for w in wanted)
    check_folder(path, force=asked.force)
    with asked.out.working(f"compiling {len(wanted)} models"):
        artifacts = [compile_model(w) for w in wanted]
        check_budgets([a.metadata for a in artifacts], force=asked.over)
        metadata = combined(artifacts, share=asked.share)
        if place is not None and not place.is_host:
            check_fit(place, artifacts, metadata)
    files = with_profiler(several_files(artifacts, metadata), wanted=asked.profiler)
    files = with_sbom(files, artifacts, name=path.name, wanted=asked.sbom)
    written = [str(p.relative_to(path)) for p in write_folder(path, files, force=asked.force)]
    for artifact in artifacts:
        asked.out.row(artifact.name, plan_of(artifact.metadata))
    asked.out.row("workspace", f"{metadata['workspace']['size']:,} B in all{', shared' if asked.share else ''}")
    asked.out.row("write", f"{path}: {', '.join(written)}")
    asked.out.result({"ok": True, "output": str(path), "files": written, "metadata": metadata})


def check_alone(asked: Compilation, *, several: bool) -> None:
    """Raise E5017 for an option that takes a single model."""
    named = several and bool(asked.options.name)
    for name, given in (("--format", asked.form != "c"), ("--plan", asked.plan is not None), ("--name", named)):
        if given:
            raise UsageError(Problem("E5017", f"{name} takes a single model"))


def requests(models: Sequence[Path], options: CompileOptions, *, target: str, share: bool) -> list[Request]:
    """A request a model, all with the same options."""
    from aot.cli.common import request

    wanted = [request(path, options, target=target) for path in models]
    return [replace(w, options=replace(w.options, share_workspace=share)) for w in wanted]


def combined(artifacts: Sequence[Artifact], *, share: bool) -> dict[str, Any]:
    """metadata.json of a folder of several models: their own is in <name>.metadata.json."""
    from aot.executor.c_files import workspace_size

    sizes = [-(-int(a.metadata["workspace"]["size"]) // 16) * 16 for a in artifacts]
    return {
        "schema": SCHEMA,
        "models": [a.name for a in artifacts],
        "workspace": {"size": workspace_size(artifacts) if share else sum(sizes), "shared": share},
        "constants": {"size": sum(int(a.metadata["constants"]["size"]) for a in artifacts)},
    }


def check_fit(board: Board, artifacts: Sequence[Artifact], metadata: Mapping[str, Any]) -> None:
    """All models together must fit the board (E2010, E2011)."""
    from aot.micro.build.project import choose_places

    tensors = {k: [t for a in artifacts for t in a.metadata[k]] for k in ("inputs", "outputs")}
    choose_places(board, {**metadata, **tensors, "layers": [], "io": artifacts[0].metadata["io"]})


def several_files(artifacts: Sequence[Artifact], metadata: Mapping[str, Any]) -> dict[str, str | bytes]:
    """All files of the folder."""
    from aot.executor.c_files import shared_files

    files = with_headers(shared_files(artifacts))
    for artifact in artifacts:
        files[f"{artifact.name}.metadata.json"] = to_json(artifact.metadata)
    files["metadata.json"] = to_json(metadata)
    return files


# ---- doing something again whenever a file changes: `--watch`


SECONDS = 0.4
"""Between two looks at the files, which must be the same in both: a file that is being written is left alone."""

Stamps = Mapping[Path, tuple[int, int, int] | None]


def stamps(files: Sequence[Path]) -> Stamps:
    """What tells a file from its next version: inode, time and size; None while it is not there."""
    found: dict[Path, tuple[int, int, int] | None] = {}
    for path in files:
        try:
            info = path.stat()
        except OSError:
            found[path] = None
        else:
            found[path] = (info.st_ino, info.st_mtime_ns, info.st_size)
    return found


def wait_for_change(files: Sequence[Path], before: Stamps, *, sleep: Callable[[float], None] = time.sleep) -> Stamps:
    """Return when a file differs from `before`, is there, and has come to rest; the new stamps."""
    last = before
    while True:
        sleep(SECONDS)
        now = stamps(files)
        if now == last and now != before and None not in now.values():
            return now
        last = now


def watch(
    files: Sequence[Path], work: Callable[[bool], None], out: Output, *, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Call `work(again)` now and after each change of a file, until interrupted; `again`: it has succeeded before.

    Errors of usage in the first round are raised: to change a file does not cure them.  All others are printed, and the next
    change is waited for.
    """
    again, first = False, True
    while True:
        before = stamps(files)
        try:
            work(again)
            again = True
        except AotError as error:
            if first and isinstance(error, UsageError):
                raise
            print_problems(error.problems, exit_code=error.exit_code, as_json=False)
        first = False
        out.line(f" watching {', '.join(str(p) for p in files)}; Ctrl-C ends")
        out.flush()
        wait_for_change(files, before, sleep=sleep)


NAME = "compile"

Format = Annotated[
    str,
    one_of("--format", "c|mlf", "A folder of C, or one tar in Model Library Format."),
]

Models = Annotated[list[Path], typer.Argument(metavar="MODEL...", help="The models, .tflite files.", show_default=False)]

PlanFile = Annotated[
    Path | None, typer.Option("--plan", metavar="FILE", help="Draw the memory plan as .svg, or write it as .json; replaces FILE.")
]

Watch = Annotated[bool, typer.Option("--watch", help="Compile again whenever the model's file changes, until Ctrl-C.")]

VerifyPasses = Annotated[
    bool, typer.Option("--verify-passes", help="Run every function before and after each pass, and compare (E9003, E9004).")
]
StackFlag = Annotated[
    bool, typer.Option("--stack-bound", help="State the worst-case stack in the header; needs the cross compiler.")
]


def check_library(path: Path, *, force: bool) -> None:
    """An archive is replaced only with --force, and only by another archive (E5004, E5005)."""
    from aot.driver.reading import read_limited
    from aot.micro.new.mlf import unpack

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
    from aot.driver.front import module_of
    from aot.micro.new.mlf import pack, unpack
    from aot.relay.printer import print_module

    relay = print_module(module_of(wanted.data, options=wanted.options, name=wanted.name))
    data = pack(artifact, relay=relay)
    write_file(path, data)
    return sorted(unpack(data).files)


def write_plan(path: Path, artifact: Artifact) -> None:
    """The memory plan as a drawing or as data, by the file's ending (E5006, E5007)."""
    from aot.cli.files import write_file
    from aot.report.figures.plan import plan_data
    from aot.report.render.drawings import standalone

    plan = plan_data(artifact.metadata["workspace"], artifact.metadata["layers"])
    title = f"{artifact.name}: {plan['size']:,} B of workspace"
    write_file(path, standalone(plan, title=title) if path.suffix == ".svg" else to_json(plan))


def add_stack_bound(artifact: Artifact, place: Board | None, target: str) -> Artifact:
    """The artifact with the worst-case stack in its header; E5017 if there is no board with the core to link for."""
    from aot.micro.build.image import board_of, state_stack_bound

    board = place or board_of(target)
    if board is None or board.is_host:
        raise UsageError(Problem("E5017", f"--stack-bound: there is no board with a {target} to link for"))
    return state_stack_bound(artifact, board)


def check_forms(form: str, plan: Path | None, *, sbom: bool, profiler: bool) -> None:
    """What can be written, and how (E5009, E5017, E5018)."""
    if form not in ("c", "mlf"):
        raise UsageError(Problem("E5009", f"--format {form}: choose one of c, mlf"))
    if sbom and form != "c":
        raise UsageError(Problem("E5017", "--sbom is of a folder of C; --format mlf writes one archive"))
    if profiler and form != "c":
        raise UsageError(Problem("E5017", "--profiler writes C beside the model's; --format mlf writes one archive"))
    if plan is not None and plan.suffix not in (".svg", ".json"):
        raise UsageError(Problem("E5018", f"--plan {plan}: name a file that ends in .svg or .json"))


def over_too(wanted: Request, *, over: bool) -> Request:
    """The request with --force-over-budget."""
    return replace(wanted, options=replace(wanted.options, force_over_budget=over))


def compile_watched(wanted: Request, place: Board | None, out: Output, *, verify: bool) -> tuple[Artifact, list[str]]:
    """The artifact, and with -v what came of the kernels of plug-ins, a line each.

    `verify`: every function is run before and after each pass (E9003, E9004).
    """
    from aot.cli.common import compile_for
    from aot.driver.plugins import any_loaded

    kernels = None
    watching: list[PassInstrument] = []
    if verify:
        from aot.ir.instrument import CheckSemantics, VerifyIR

        check = CheckSemantics()
        watching += [VerifyIR(), check]
    if out.verbose and any_loaded():
        from aot.driver.foreign_kernels import ForeignKernels

        kernels = ForeignKernels()
        watching.append(kernels)
    if not watching:
        return compile_for(wanted, place, out, writes=True), []
    from aot.ir.transform import PassContext

    with PassContext(instruments=watching):
        artifact = compile_for(wanted, place, out, writes=True)
    if verify:
        out.row("passes", f"{check.compared} function runs give the same result after a pass as before it")
    return artifact, kernels.lines() if kernels is not None else []


def show(out: Output, wanted: Request, meta: Mapping[str, Any]) -> None:
    """What was read, and what came of it."""
    from aot.cli.common import import_text, plan_rows
    from aot.report.figures.size import flash_of, operators_of, slide_lines

    out.row("import", import_text(wanted))
    out.row("compile", f"{operators_of(meta)} for {wanted.target}")
    plan_rows(out, meta)
    out.row("flash", flash_of(meta))
    for line in slide_lines(meta)[: None if out.verbose else 1]:
        out.row("slide", line)


def request_under(budget: Budget | None, model: Path, given: CompileOptions, *, place: Board | None, target: str) -> Request:
    """The request with the budget's options for the model over the given ones (E5052)."""
    from aot.cli.common import request

    if budget is not None:
        from aot.cli.budgets import options_for
        from aot.cli.files import model_name

        where = target if place is None else place.name
        given = options_for(given, budget, name=model_name(model, given.name), board=where)
    return request(model, given, target=target, board=place)


def compile_one(model: Path, asked: Compilation) -> None:
    """Compile and write one model."""
    from aot.cli.budgets import check_budget_file, compiled_totals, open_budget
    from aot.cli.common import choose_target, find_board
    from aot.report.figures.size import CHOICE_HEADERS, choice_rows

    mlf, out = asked.form == "mlf", asked.out
    check_forms(asked.form, asked.plan, sbom=asked.sbom, profiler=asked.profiler)
    place = find_board(asked.board) if asked.board else None
    target, budget = choose_target(asked.target, place), open_budget(asked.budget)
    where = target if place is None else place.name
    wanted = request_under(budget, model, asked.options, place=place, target=target)
    path = asked.output or Path("out") / (f"{wanted.name}.tar" if mlf else wanted.name)
    (check_library if mlf else check_folder)(path, force=asked.force)
    with out.working(f"compiling {model.name}"):
        wanted = over_too(wanted, over=asked.over)
        artifact, kernels = compile_watched(wanted, place, out, verify=asked.verify_passes)
        if asked.stack_bound:
            artifact = add_stack_bound(artifact, place, wanted.target)
    meta = artifact.metadata
    check_budget_file(budget, compiled_totals(meta), name=artifact.name, board=where, force=asked.over, out=out)
    if asked.plan is not None:
        write_plan(asked.plan, artifact)
    if mlf:
        written = write_library(path, artifact, wanted)
    else:
        written = write_sources(path, artifact, force=asked.force, sbom=asked.sbom, profiler=asked.profiler)
    show(out, wanted, meta)
    out.row("write", f"{path}: {', '.join(written)}")
    if out.verbose:
        out.table(CHOICE_HEADERS, choice_rows(meta["layers"]))
    for line in kernels:
        out.row("kernel", line)
    out.result({"ok": True, "output": str(path), "files": written, "metadata": meta})


def compile_all(models: Sequence[Path], asked: Compilation) -> None:
    """One model, or several in one folder (E5017 for options that take one)."""
    if len(models) == 1 and not asked.share:
        compile_one(models[0], asked)
        return
    if asked.budget is not None:
        raise UsageError(Problem("E5017", "--budget takes one model; aot report takes several"))
    compile_several(models, asked)


def compile_on_change(models: Sequence[Path], asked: Compilation) -> None:
    """Compile now, and again whenever a model, the board's or the budget's file changes; what was written is replaced then."""
    if asked.out.json:
        raise UsageError(Problem("E5017", "--watch prints text, round after round; --json is one object"))
    board = [Path(asked.board) / "board.toml"] if asked.board and "/" in asked.board else []
    files = [*models, *board, *([asked.budget] if asked.budget else [])]
    watch(files, lambda again: compile_all(models, replace(asked, force=asked.force or again)), asked.out)


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
    sbom: SbomFlag = False,
    profiler: ProfilerFlag = False,
    watch: Watch = False,
    force: Force = False,
    over: ForceOverBudget = False,
    budget: LimitsFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Compile MODEL to C, or several into one folder. With --board, refuse what does not fit its memory."""
    asked = Compilation(
        options=options, output=output, target=target, board=board, form=form, plan=plan, share=share, sbom=sbom,
        profiler=profiler, stack_bound=stack_bound, verify_passes=verify_passes, force=force, over=over, budget=budget,
        out=Output(json=as_json, quiet=quiet, verbose=verbose),
    )  # fmt: skip
    (compile_on_change if watch else compile_all)(models, asked)
