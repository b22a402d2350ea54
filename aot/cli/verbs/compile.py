"""`aot compile MODEL`: write C sources, metadata and report to a folder."""

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
    """The verb's arguments except the models: `options` are shared by all verbs that compile, the others belong to this one."""

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


# ---- the files of the output folder


_INCLUDE = re.compile(r'^\s*#\s*include "(aot/\w+\.h)"', re.MULTILINE)


def to_json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def runtime_headers(sources: Iterable[str], folder: Path) -> list[str]:
    """The headers `aot/….h` below `folder` that the sources include, directly or indirectly; sorted."""
    headers: set[str] = set()
    waiting = list(sources)
    while waiting:
        for name in _INCLUDE.findall(waiting.pop()):
            if name not in headers:
                headers.add(name)
                waiting.append((folder / name).read_text(encoding="utf-8"))
    return sorted(headers)


def with_headers(sources: Mapping[str, str]) -> dict[str, str | bytes]:
    """The sources by file name, and the runtime headers that they include."""
    from aot.system.files import data_folder

    folder = data_folder("crt") / "include"
    headers = {f"include/{name}": (folder / name).read_bytes() for name in runtime_headers(sources.values(), folder)}
    return {**dict(sorted(sources.items())), **headers}


def output_files(artifact: Artifact) -> dict[str, str | bytes]:
    """All files of an output folder: sources, runtime headers, metadata and report."""
    from aot.report.figures.size import compile_report

    files = with_headers(artifact.files)
    files["metadata.json"] = to_json(artifact.metadata)
    files["report.json"] = to_json(compile_report(artifact.metadata))
    return files


def check_folder(folder: Path, *, force: bool) -> None:
    """Raise E5004 or E5005 before the long work if the folder must not be replaced."""
    from aot.cli.files import check_replaceable

    check_replaceable(folder, force=force)


def write_sources(folder: Path, artifact: Artifact, *, force: bool, sbom: bool, profiler: bool) -> list[str]:
    """Write the output folder, with `sbom` including a bill of materials; return the paths of its files, relative to it."""
    from aot.cli.files import write_folder

    files = output_files(artifact)
    if profiler:
        files = with_profiler(files)
    if sbom:
        files = with_sbom(files, [artifact], name=artifact.name)
    return [str(p.relative_to(folder)) for p in write_folder(folder, files, force=force)]


PROFILER = ("layer_profile.c", "include/aot/layer_profile.h")


def with_profiler(files: dict[str, str | bytes]) -> dict[str, str | bytes]:
    """`files`, and the profiler's sources, which count cycles per layer in firmware."""
    from aot.system.files import data_folder

    source, header = PROFILER
    crt = data_folder("crt")
    return {**files, source: (crt / "src" / source).read_bytes(), header: (crt / header).read_bytes()}


def with_sbom(files: dict[str, str | bytes], artifacts: Sequence[Artifact], *, name: str) -> dict[str, str | bytes]:
    """`files`, and their bill of materials."""
    from aot.report.figures.sbom import FILE, sbom

    return {**files, FILE: sbom(name, [a.metadata for a in artifacts], files)}


# ---- several models in one folder, with one workspace per model or a shared one


SCHEMA = "aot-models/1"


def compile_several(models: Sequence[Path], asked: Compilation) -> None:
    """Compile all models and write one folder; E5017 for options that apply to a single model."""
    from aot.cli.budgets import check_budgets
    from aot.cli.common import choose_target, compile_model, find_board
    from aot.cli.files import write_folder
    from aot.executor.artifact import check_names
    from aot.report.figures.size import plan_of

    check_alone(asked, several=len(models) > 1)
    place = find_board(asked.board) if asked.board else None
    reqs = requests(models, asked.options, target=choose_target(asked.target, place), share=asked.share)
    check_names([w.name for w in reqs])
    path = asked.output or Path("out") / "-".join(w.name for w in reqs)
    check_folder(path, force=asked.force)
    with asked.out.working(f"compiling {len(reqs)} models"):
        artifacts = [compile_model(w) for w in reqs]
        check_budgets([a.metadata for a in artifacts], force=asked.over)
        metadata = combined(artifacts, share=asked.share)
        if place is not None and not place.is_host:
            check_fit(place, artifacts, metadata)
    files = several_files(artifacts, metadata)
    if asked.profiler:
        files = with_profiler(files)
    if asked.sbom:
        files = with_sbom(files, artifacts, name=path.name)
    written = [str(p.relative_to(path)) for p in write_folder(path, files, force=asked.force)]
    for artifact in artifacts:
        asked.out.row(artifact.name, plan_of(artifact.metadata))
    asked.out.row("workspace", f"{metadata['workspace']['size']:,} B in total{', shared' if asked.share else ''}")
    asked.out.row("write", f"{path}: {', '.join(written)}")
    asked.out.result({"ok": True, "output": str(path), "files": written, "metadata": metadata})


def check_alone(asked: Compilation, *, several: bool) -> None:
    """Raise E5017 for an option that applies to a single model only."""
    named = several and bool(asked.options.name)
    for name, is_set in (("--format", asked.form != "c"), ("--plan", asked.plan is not None), ("--name", named)):
        if is_set:
            raise UsageError(Problem("E5017", f"{name} works with a single model only"))


def requests(models: Sequence[Path], options: CompileOptions, *, target: str, share: bool) -> list[Request]:
    """One request per model, all with the same options."""
    from aot.cli.common import request

    reqs = [request(path, options, target=target) for path in models]
    return [replace(w, options=replace(w.options, share_workspace=share)) for w in reqs]


def combined(artifacts: Sequence[Artifact], *, share: bool) -> dict[str, Any]:
    """metadata.json of a folder with several models; each model's own metadata is in <name>.metadata.json."""
    from aot.executor.c_files import workspace_size

    sizes = [-(-int(a.metadata["workspace"]["size"]) // 16) * 16 for a in artifacts]
    return {
        "schema": SCHEMA,
        "models": [a.name for a in artifacts],
        "workspace": {"size": workspace_size(artifacts) if share else sum(sizes), "shared": share},
        "constants": {"size": sum(int(a.metadata["constants"]["size"]) for a in artifacts)},
    }


def check_fit(board: Board, artifacts: Sequence[Artifact], metadata: Mapping[str, Any]) -> None:
    """Raise E2010 or E2011 if the models together do not fit the board."""
    from aot.micro.build.project import choose_places

    tensors = {k: [t for a in artifacts for t in a.metadata[k]] for k in ("inputs", "outputs")}
    choose_places(board, {**metadata, **tensors, "layers": [], "io": artifacts[0].metadata["io"]})


def several_files(artifacts: Sequence[Artifact], metadata: Mapping[str, Any]) -> dict[str, str | bytes]:
    """All files of a folder with several models."""
    from aot.executor.c_files import shared_files

    files = with_headers(shared_files(artifacts))
    for artifact in artifacts:
        files[f"{artifact.name}.metadata.json"] = to_json(artifact.metadata)
    files["metadata.json"] = to_json(metadata)
    return files


# ---- `--watch`: repeat the work whenever a file changes


SECONDS = 0.4
"""Polling interval; files must be equal in two polls, so that a file being written is left alone."""

Stamps = Mapping[Path, tuple[int, int, int] | None]


def stamps(files: Sequence[Path]) -> Stamps:
    """Inode, time and size of each file, to detect changes; None while a file does not exist."""
    result: dict[Path, tuple[int, int, int] | None] = {}
    for path in files:
        try:
            info = path.stat()
        except OSError:
            result[path] = None
        else:
            result[path] = (info.st_ino, info.st_mtime_ns, info.st_size)
    return result


def wait_for_change(files: Sequence[Path], before: Stamps, *, sleep: Callable[[float], None] = time.sleep) -> Stamps:
    """Wait until a file differs from `before`, all files exist, and none is changing any more; return the new stamps."""
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

    Usage errors in the first round are raised, as changing a file does not fix them.  All other errors are printed, and the loop
    waits for the next change.
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
        out.line(f" watching {', '.join(str(p) for p in files)}; press Ctrl-C to stop")
        out.flush()
        wait_for_change(files, before, sleep=sleep)


NAME = "compile"

Format = Annotated[
    str,
    one_of("--format", "c|mlf", "Write a folder of C, or one tar archive in Model Library Format."),
]

Models = Annotated[list[Path], typer.Argument(metavar="MODEL...", help="The models, .tflite files.", show_default=False)]

PlanFile = Annotated[
    Path | None,
    typer.Option("--plan", metavar="FILE", help="Draw the memory plan (.svg) or write it as data (.json); replaces FILE."),
]

Watch = Annotated[bool, typer.Option("--watch", help="Compile again whenever the model file changes, until Ctrl-C.")]

VerifyPasses = Annotated[
    bool,
    typer.Option("--verify-passes", help="Run every function before and after each pass and compare the results (E9003, E9004)."),
]
StackFlag = Annotated[
    bool, typer.Option("--stack-bound", help="Define the worst-case stack in the header; needs the cross compiler.")
]


def check_library(path: Path, *, force: bool) -> None:
    """Raise E5004 or E5005 if `path` exists and must not be replaced: --force replaces archives of aot only."""
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


def write_library(path: Path, artifact: Artifact, req: Request) -> list[str]:
    """Write one archive in Model Library Format; return the paths of its members."""
    from aot.cli.files import write_file
    from aot.driver.front import module_of
    from aot.micro.new.mlf import pack, unpack
    from aot.relay.printer import print_module

    relay = print_module(module_of(req.data, options=req.options, name=req.name))
    data = pack(artifact, relay=relay)
    write_file(path, data)
    return sorted(unpack(data).files)


def write_plan(path: Path, artifact: Artifact) -> None:
    """Write the memory plan as a drawing or as data, depending on the file's extension (E5006, E5007)."""
    from aot.cli.files import write_file
    from aot.report.figures.plan import plan_data
    from aot.report.render.drawings import standalone

    plan = plan_data(artifact.metadata["workspace"], artifact.metadata["layers"])
    title = f"{artifact.name}: {plan['size']:,} B of workspace"
    write_file(path, standalone(plan, title=title) if path.suffix == ".svg" else to_json(plan))


def add_stack_bound(artifact: Artifact, place: Board | None, target: str) -> Artifact:
    """The artifact with the worst-case stack in its header; E5017 if no known board has this core."""
    from aot.micro.build.image import board_of, state_stack_bound

    board = place or board_of(target)
    if board is None or board.is_host:
        raise UsageError(Problem("E5017", f"--stack-bound links an image, but no known board has a {target}"))
    return state_stack_bound(artifact, board)


def check_forms(form: str, plan: Path | None, *, sbom: bool, profiler: bool) -> None:
    """Check --format, --plan, --sbom and --profiler (E5009, E5017, E5018)."""
    if form not in ("c", "mlf"):
        raise UsageError(Problem("E5009", f"--format {form}: choose one of c, mlf"))
    if sbom and form != "c":
        raise UsageError(Problem("E5017", "--sbom needs --format c; --format mlf writes one archive"))
    if profiler and form != "c":
        raise UsageError(Problem("E5017", "--profiler needs --format c; --format mlf writes one archive"))
    if plan is not None and plan.suffix not in (".svg", ".json"):
        raise UsageError(Problem("E5018", f"--plan {plan}: the file name must end in .svg or .json"))


def over_too(req: Request, *, over: bool) -> Request:
    """The request with --force-over-budget."""
    return replace(req, options=replace(req.options, force_over_budget=over))


def compile_watched(req: Request, place: Board | None, out: Output, *, verify: bool) -> tuple[Artifact, list[str]]:
    """The artifact, and with -v one line per plug-in kernel that says whether it is used.

    `verify`: run every function before and after each pass, and compare (E9003, E9004).
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
        return compile_for(req, place, out, writes=True), []
    from aot.ir.transform import PassContext

    with PassContext(instruments=watching):
        artifact = compile_for(req, place, out, writes=True)
    if verify:
        out.row("passes", f"{check.compared} function runs give the same result after a pass as before it")
    return artifact, kernels.lines() if kernels is not None else []


def show(out: Output, req: Request, meta: Mapping[str, Any]) -> None:
    """Print the summary: the model, the layers, the plan, and the flash."""
    from aot.cli.common import import_text, plan_rows
    from aot.report.figures.size import flash_of, operators_of, slide_lines

    out.row("import", import_text(req))
    out.row("compile", f"{operators_of(meta)} for {req.target}")
    plan_rows(out, meta)
    out.row("flash", flash_of(meta))
    for line in slide_lines(meta)[: None if out.verbose else 1]:
        out.row("slide", line)


def request_under(budget: Budget | None, model: Path, options: CompileOptions, *, place: Board | None, target: str) -> Request:
    """The request; the options that the budget file has for the model override `options` (E5052)."""
    from aot.cli.common import request

    if budget is not None:
        from aot.cli.budgets import options_for
        from aot.cli.files import model_name

        where = target if place is None else place.name
        options = options_for(options, budget, name=model_name(model, options.name), board=where)
    return request(model, options, target=target, board=place)


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
    req = request_under(budget, model, asked.options, place=place, target=target)
    path = asked.output or Path("out") / (f"{req.name}.tar" if mlf else req.name)
    (check_library if mlf else check_folder)(path, force=asked.force)
    with out.working(f"compiling {model.name}"):
        req = over_too(req, over=asked.over)
        artifact, kernels = compile_watched(req, place, out, verify=asked.verify_passes)
        if asked.stack_bound:
            artifact = add_stack_bound(artifact, place, req.target)
    meta = artifact.metadata
    check_budget_file(budget, compiled_totals(meta), name=artifact.name, board=where, force=asked.over, out=out)
    if asked.plan is not None:
        write_plan(asked.plan, artifact)
    if mlf:
        written = write_library(path, artifact, req)
    else:
        written = write_sources(path, artifact, force=asked.force, sbom=asked.sbom, profiler=asked.profiler)
    show(out, req, meta)
    out.row("write", f"{path}: {', '.join(written)}")
    if out.verbose:
        out.table(CHOICE_HEADERS, choice_rows(meta["layers"]))
    for line in kernels:
        out.row("kernel", line)
    out.result({"ok": True, "output": str(path), "files": written, "metadata": meta})


def compile_all(models: Sequence[Path], asked: Compilation) -> None:
    """Compile one model, or several into one folder (E5017 for options that apply to a single model)."""
    if len(models) == 1 and not asked.share:
        compile_one(models[0], asked)
        return
    if asked.budget is not None:
        raise UsageError(Problem("E5017", "--budget works with a single model here; aot report accepts several"))
    compile_several(models, asked)


def compile_on_change(models: Sequence[Path], asked: Compilation) -> None:
    """Compile now, and again whenever a model, board.toml or the budget file changes; later rounds replace the files."""
    if asked.out.json:
        raise UsageError(Problem("E5017", "--watch and --json are mutually exclusive: --json prints one object"))
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
    """Compile MODEL to C, or several models into one folder. With --board, fail if they do not fit its memory."""
    asked = Compilation(
        options=options, output=output, target=target, board=board, form=form, plan=plan, share=share, sbom=sbom,
        profiler=profiler, stack_bound=stack_bound, verify_passes=verify_passes, force=force, over=over, budget=budget,
        out=Output(json=as_json, quiet=quiet, verbose=verbose),
    )  # fmt: skip
    (compile_on_change if watch else compile_all)(models, asked)
