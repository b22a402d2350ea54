"""`aot compile`, `aot build` and `aot dump`: a model as C, as firmware for a board, and as the steps in between."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aot.cli import common, completion
from aot.cli import options as opts
from aot.cli.files import check_replaceable, check_usable, model_name, write_file, write_folder
from aot.cli.options import CompileOptions, option, verb
from aot.cli.output import Output, print_problems
from aot.errors import AotError, Problem, UsageError
from aot.support.dataclass import dataclass
from aot.support.text import did_you_mean
from aot.system.files import data_folder, write_error

if TYPE_CHECKING:
    from aot.executor.artifact import Artifact
    from aot.ir.module import IRModule
    from aot.ir.transform import Pass, PassInstrument
    from aot.micro.board import Board
    from aot.micro.build.project import Project
    from aot.report.measure.gate import Budget

Models = Annotated[list[Path], typer.Argument(metavar="MODEL...", help="The models, .tflite files.", show_default=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """The options of `aot compile`: `options` are shared by all verbs that compile, the others belong to this one."""

    output: opts.OutputFolder = None
    target: opts.TargetName = None
    board: opts.BoardName = None
    options: CompileOptions
    form: Annotated[str, option("--format c|mlf", "Write a folder of C, or one tar archive in Model Library Format.")] = "c"
    plan: Annotated[
        Path | None,
        option("--plan FILE", "Draw the memory plan (.svg) or write it as data (.json); replaces FILE."),
    ] = None
    share: opts.Share = False
    stack_bound: Annotated[
        bool, option("--stack-bound", "Define the worst-case stack in the header; needs the cross compiler.")
    ] = False
    verify_passes: Annotated[
        bool,
        option("--verify-passes", "Run every function before and after each pass and compare the results (E9003, E9004)."),
    ] = False
    sbom: opts.SbomFlag = False
    profiler: Annotated[
        bool,
        option("--profiler", "Also write layer_profile.c, which counts cycles per layer in your firmware (aot profile)."),
    ] = False
    watch: Annotated[bool, option("--watch", "Compile again whenever the model file changes, until Ctrl-C.")] = False
    force: opts.Force = False
    over: opts.ForceOverBudget = False
    budget: opts.LimitsFile = None
    out: Output


@verb()
def aot_compile(models: Models, *, asked: Compilation) -> None:
    """Compile MODEL to C, or several models into one folder. With --board, fail if they do not fit its memory."""
    (compile_on_change if asked.watch else compile_all)(models, asked)


def compile_on_change(models: Sequence[Path], asked: Compilation) -> None:
    """Compile now, and again whenever a model, board.toml or the budget file changes; later rounds replace the files."""
    if asked.out.json:
        raise UsageError(Problem("E5017", "--watch and --json are mutually exclusive: --json prints one object"))
    board = [Path(asked.board) / "board.toml"] if asked.board and "/" in asked.board else []
    files = [*models, *board, *([asked.budget] if asked.budget else [])]
    watch(files, lambda again: compile_all(models, replace(asked, force=asked.force or again)), asked.out)


def compile_all(models: Sequence[Path], asked: Compilation) -> None:
    """Compile one model, or several into one folder (E5017 for options that apply to a single model)."""
    if len(models) == 1 and not asked.share:
        compile_one(models[0], asked)
        return
    if asked.budget is not None:
        raise UsageError(Problem("E5017", "--budget works with a single model here; aot report accepts several"))
    compile_several(models, asked)


# ---- the files of the output folder


_INCLUDE = re.compile(r'^\s*#\s*include "(aot/\w+\.h)"', re.MULTILINE)


def to_json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def with_headers(sources: Mapping[str, str]) -> dict[str, str | bytes]:
    """The sources by file name, and the runtime headers `aot/….h` that they include, directly or indirectly."""
    folder = data_folder("crt") / "include"
    headers: dict[str, bytes] = {}
    waiting = list(sources.values())
    while waiting:
        for name in _INCLUDE.findall(waiting.pop()):
            if name not in headers:
                headers[name] = (folder / name).read_bytes()
                waiting.append(headers[name].decode("utf-8"))
    return {**dict(sorted(sources.items())), **{f"include/{name}": headers[name] for name in sorted(headers)}}


def write_sources(folder: Path, files: Mapping[str, str | bytes], artifacts: Sequence[Artifact], asked: Compilation) -> list[str]:
    """Write the output folder, if asked with profiler and bill of materials; return the paths of its files, relative to it."""
    files = dict(files)
    if asked.profiler:
        source, header = PROFILER
        crt = data_folder("crt")
        files |= {source: (crt / "src" / source).read_bytes(), header: (crt / header).read_bytes()}
    if asked.sbom:
        from aot.report.figures.sbom import FILE, sbom

        name = folder.name if len(artifacts) > 1 or asked.share else artifacts[0].name
        files[FILE] = sbom(name, [a.metadata for a in artifacts], files)
    return [str(p.relative_to(folder)) for p in write_folder(folder, files, force=asked.force)]


PROFILER = ("layer_profile.c", "include/aot/layer_profile.h")
"""What counts cycles per layer in firmware."""


# ---- one model: its folder or archive


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


def write_library(path: Path, artifact: Artifact, req: common.Request) -> list[str]:
    """Write one archive in Model Library Format; return the paths of its members."""
    from aot.driver.front import module_of
    from aot.micro.new.mlf import pack, unpack
    from aot.relay.printer import print_module

    relay = print_module(module_of(req.data, options=req.options, name=req.name))
    data = pack(artifact, relay=relay)
    write_file(path, data)
    return sorted(unpack(data).files)


def write_plan(path: Path, artifact: Artifact) -> None:
    """Write the memory plan as a drawing or as data, depending on the file's extension (E5006, E5007)."""
    from aot.report.figures.size import plan_data
    from aot.report.render.drawings import standalone

    plan = plan_data(artifact.metadata["workspace"], artifact.metadata["layers"])
    title = f"{artifact.name}: {plan['size']:,} B of workspace"
    write_file(path, standalone(plan, title=title) if path.suffix == ".svg" else to_json(plan))


def check_asked(asked: Compilation, *, models: int = 1) -> None:
    """Check --format, --plan, --sbom, --profiler and --name; some apply only to a single model (E5009, E5017, E5018)."""
    form, plan = asked.form, asked.plan
    if models > 1 or asked.share:
        named = models > 1 and bool(asked.options.name)
        for name, is_set in (("--format", form != "c"), ("--plan", plan is not None), ("--name", named)):
            if is_set:
                raise UsageError(Problem("E5017", f"{name} works with a single model only"))
        return
    if form not in ("c", "mlf"):
        raise UsageError(Problem("E5009", f"--format {form}: choose one of c, mlf"))
    for name, is_set in (("--sbom", asked.sbom), ("--profiler", asked.profiler)):
        if is_set and form != "c":
            raise UsageError(Problem("E5017", f"{name} needs --format c; --format mlf writes one archive"))
    if plan is not None and plan.suffix not in (".svg", ".json"):
        raise UsageError(Problem("E5018", f"--plan {plan}: the file name must end in .svg or .json"))


def compile_watched(req: common.Request, place: Board | None, out: Output, *, verify: bool) -> tuple[Artifact, list[str]]:
    """The artifact, and with -v one line per plug-in kernel that says whether it is used.

    `verify`: run every function before and after each pass, and compare (E9003, E9004).
    """
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
        return common.compile_for(req, place, out, writes=True), []
    from aot.ir.transform import PassContext

    with PassContext(instruments=watching):
        artifact = common.compile_for(req, place, out, writes=True)
    if verify:
        out.row("passes", f"{check.compared} function runs give the same result after a pass as before it")
    return artifact, kernels.lines() if kernels is not None else []


def show(out: Output, req: common.Request, meta: Mapping[str, Any]) -> None:
    """Print the summary: the model, the layers, the plan, and the flash."""
    from aot.report.figures.size import flash_of, operators_of, slide_lines

    out.row("import", common.import_text(req))
    out.row("compile", f"{operators_of(meta)} for {req.target}")
    common.plan_rows(out, meta)
    out.row("flash", flash_of(meta))
    for line in slide_lines(meta)[: None if out.verbose else 1]:
        out.row("slide", line)


def request_under(
    budget: Budget | None, model: Path, options: CompileOptions, *, place: Board | None, target: str, over: bool
) -> common.Request:
    """The request; the options that the budget file has for the model override `options` (E5052).  `over`: limits only warn."""
    if budget is not None:
        where = target if place is None else place.name
        options = common.options_for(options, budget, name=model_name(model, options.name), board=where)
    return common.request(model, options, target=target, board=place).with_options(force_over_budget=over)


def compile_one(model: Path, asked: Compilation) -> None:
    """Compile and write one model."""
    from aot.report.figures.size import CHOICE_HEADERS, choice_rows, compile_report

    mlf, out = asked.form == "mlf", asked.out
    check_asked(asked)
    place = common.find_board(asked.board) if asked.board else None
    target, budget = common.choose_target(asked.target, place), common.open_budget(asked.budget)
    where = target if place is None else place.name
    req = request_under(budget, model, asked.options, place=place, target=target, over=asked.over)
    path = asked.output or Path("out") / (f"{req.name}.tar" if mlf else req.name)
    (check_library if mlf else check_replaceable)(path, force=asked.force)
    with out.working(f"compiling {model.name}"):
        artifact, kernels = compile_watched(req, place, out, verify=asked.verify_passes)
        if asked.stack_bound:
            from aot.micro.build.image import board_of, state_stack_bound

            linked = place or board_of(req.target)
            if linked is None or linked.is_host:
                raise UsageError(Problem("E5017", f"--stack-bound links an image, but no known board has a {req.target}"))
            artifact = state_stack_bound(artifact, linked)
    meta = artifact.metadata
    common.check_budget_file(budget, common.compiled_totals(meta), name=artifact.name, board=where, force=asked.over, out=out)
    if asked.plan is not None:
        write_plan(asked.plan, artifact)
    if mlf:
        written = write_library(path, artifact, req)
    else:
        report = to_json(compile_report(meta))
        files = {**with_headers(artifact.files), "metadata.json": to_json(meta), "report.json": report}
        written = write_sources(path, files, [artifact], asked)
    show(out, req, meta)
    out.row("write", f"{path}: {', '.join(written)}")
    if out.verbose:
        out.table(CHOICE_HEADERS, choice_rows(meta["layers"]))
    for line in kernels:
        out.row("kernel", line)
    out.result({"ok": True, "output": str(path), "files": written, "metadata": meta})


# ---- several models in one folder, with one workspace per model or a shared one


SCHEMA = "aot-models/1"


def compile_several(models: Sequence[Path], asked: Compilation) -> None:
    """Compile all models and write one folder; E5017 for options that apply to a single model."""
    from aot.executor.artifact import check_names
    from aot.executor.c_files import shared_files, workspace_size
    from aot.report.figures.size import plan_of

    check_asked(asked, models=len(models))
    place = common.find_board(asked.board) if asked.board else None
    target = common.choose_target(asked.target, place)
    reqs = [common.request(path, asked.options, target=target).with_options(share_workspace=asked.share) for path in models]
    check_names([w.name for w in reqs])
    path = asked.output or Path("out") / "-".join(w.name for w in reqs)
    check_replaceable(path, force=asked.force)
    with asked.out.working(f"compiling {len(reqs)} models"):
        artifacts = [common.compile_model(w) for w in reqs]
        common.check_budgets([a.metadata for a in artifacts], force=asked.over)
        sizes = [-(-int(a.metadata["workspace"]["size"]) // 16) * 16 for a in artifacts]
        metadata: dict[str, Any] = {  # each model's own is in <name>.metadata.json
            "schema": SCHEMA,
            "models": [a.name for a in artifacts],
            "workspace": {"size": workspace_size(artifacts) if asked.share else sum(sizes), "shared": asked.share},
            "constants": {"size": sum(int(a.metadata["constants"]["size"]) for a in artifacts)},
        }
        if place is not None and not place.is_host:
            from aot.micro.build.project import choose_places

            tensors = {k: [t for a in artifacts for t in a.metadata[k]] for k in ("inputs", "outputs")}
            choose_places(place, {**metadata, **tensors, "layers": [], "io": artifacts[0].metadata["io"]})  # E2010, E2011
    files = with_headers(shared_files(artifacts)) | {f"{a.name}.metadata.json": to_json(a.metadata) for a in artifacts}
    written = write_sources(path, files | {"metadata.json": to_json(metadata)}, artifacts, asked)
    for artifact in artifacts:
        asked.out.row(artifact.name, plan_of(artifact.metadata))
    asked.out.row("workspace", f"{metadata['workspace']['size']:,} B in total{', shared' if asked.share else ''}")
    asked.out.row("write", f"{path}: {', '.join(written)}")
    asked.out.result({"ok": True, "output": str(path), "files": written, "metadata": metadata})


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


# ---- `aot build MODEL`: a folder with firmware for a board and all its sources


def project_files(project: Project, image: Path) -> dict[str, str | bytes]:
    """The files of the build folder except objects: sources, runtime, linker script, the image as NAME.elf, and its map."""
    skip = {image.name, image.with_suffix(".map").name}
    files: dict[str, str | bytes] = {}
    for path in sorted(project.folder.rglob("*")):
        relative = path.relative_to(project.folder)
        if path.is_file() and relative.parts[0] != "obj" and path.suffix not in (".elf", ".map") and path.name not in skip:
            files[str(relative)] = path.read_bytes()
    files[f"{project.artifact.name}.elf"] = image.read_bytes()
    if image.with_suffix(".map").is_file():
        files[f"{project.artifact.name}.map"] = image.with_suffix(".map").read_bytes()
    files["metadata.json"] = to_json(project.artifact.metadata)
    return files


@verb()
def aot_build(
    model: opts.ModelPath,
    *,
    output: opts.OutputFolder = None,
    board: opts.BoardName = None,
    options: CompileOptions,
    sbom: opts.SbomFlag = False,
    force: opts.Force = False,
    over: opts.ForceOverBudget = False,
    budget: opts.LimitsFile = None,
    out: Output,
) -> None:
    """Compile MODEL and build firmware that runs it on a board (reads inputs.bin, writes outputs.bin via semihosting)."""
    from aot.micro.build.image import StatedStack, built_by, with_stack_bound
    from aot.micro.build.project import prepare
    from aot.report.figures.sbom import FILE as SBOM
    from aot.report.figures.sbom import sbom as bill
    from aot.report.figures.size import LAYER_HEADERS, flash_of, layer_rows, ram_of
    from aot.report.measure.fitting import linker
    from aot.report.measure.verify import image_facts

    place = common.find_board(board)
    req = request_under(limits := common.open_budget(budget), model, options, place=place, target=place.cpu, over=over)
    folder = output or Path("out") / f"{req.name}-{place.name}"
    check_replaceable(folder, force=force)
    with tempfile.TemporaryDirectory(prefix="aot-build-") as scratch, out.working(f"building {model.name} for {place.name}"):
        artifact = common.compile_for(req, place, out, link=linker(place, Path(scratch)), writes=True)
        project = prepare(artifact, place, folder=Path(scratch))
        image = project.image("measure")
        facts = image_facts(project)
        constants = artifact.metadata["constants"]["size"] if facts.constant_bytes is None else facts.constant_bytes
        totals = common.built_totals(project) if limits is not None else {}
        common.check_budget_file(limits, totals, name=artifact.name, board=place.name, force=over, out=out)
        files = project_files(project, image)
        if facts.stack_bound is not None:
            header = f"{artifact.name}.h"
            stack = StatedStack(facts.stack_bound, built_by(project))
            files[header] = with_stack_bound(artifact.files[header], name=artifact.name, stack=stack)
        if sbom:
            files[SBOM] = bill(artifact.name, [artifact.metadata], files, board=place.name, compiler=facts.compiler)
        write_folder(folder, files, force=force)
    meta = artifact.metadata
    out.row("import", common.import_text(req))
    common.plan_rows(out, meta)
    out.row("build", f"{facts.compiler} for {place.cpu}")
    out.row("flash", flash_of(meta, code_bytes=facts.code_bytes, constant_bytes=constants))
    out.row("RAM", ram_of(meta, stack_bound=facts.stack_bound))
    out.row("write", f"{folder / (artifact.name + '.elf')}")
    if out.verbose:
        out.table(LAYER_HEADERS, layer_rows(meta["layers"]))
    out.result({
        "ok": True, "output": str(folder), "image": f"{artifact.name}.elf", "board": place.name, "code_bytes": facts.code_bytes,
        "constant_bytes": constants, "workspace_bytes": meta["workspace"]["size"], "heap_bytes": facts.heap_bytes,
    })  # fmt: skip


# ---- `aot dump MODEL`: the intermediate representations of a model, as text


def module_text(module: IRModule, form: str | None) -> str:
    """The module's functions of one dialect (all with None), main first."""
    from aot.ir.module import dialect_of

    parts = []
    for name in sorted(module.functions, key=lambda n: (n != "main", n)):
        kind = dialect_of(module[name])
        if form in (None, kind.name):
            parts.append(kind.to_text(module[name], name).rstrip("\n") + "\n")
    return "\n".join(parts)


def new_folder(folder: Path) -> Path:
    """The folder, created if it does not exist; it must be empty (E5004, E5005, E5007)."""
    check_usable(folder)
    if os.path.exists(folder) and any(folder.iterdir()):
        raise UsageError(Problem("E5004", f"'{folder}' is not empty; name a new folder"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from None
    return folder


def pick(modules: Mapping[str, IRModule], after: str | None, form: str | None) -> tuple[str, str]:
    """(pass, text) of the module after `after`, by default after the last pass with functions of the requested form (E5009)."""
    from aot.ir.transform import pass_name

    if after is not None and pass_name(after) not in modules:
        hint = did_you_mean(pass_name(after), modules)
        raise UsageError(Problem("E5009", f"--after {after}: no such pass ran{hint}; these did: {', '.join(modules)}"))
    for name in list(modules)[::-1] if after is None else [pass_name(after)]:
        text = module_text(modules[name], form)
        if text:
            return name, text
    raise UsageError(Problem("E5009", f"there are no {form} functions after {after or 'any pass'}"))


def _check_form(form: str | None, stop_after: str | None) -> None:
    if form not in (None, "relay", "tir", "c"):
        raise UsageError(Problem("E5009", f"--format {form}: choose one of relay, tir, c"))
    if form == "c" and stop_after is not None:
        raise UsageError(Problem("E5009", "--stop-after stops before C is generated; choose --format relay or tir"))


@verb(leave_out=("quiet", "verbose"))
def aot_dump(
    model: opts.ModelPath,
    *,
    after: Annotated[
        str | None, option("--after PASS", "The module after this pass; default: after the last one.", completion.passes)
    ] = None,
    form: Annotated[str | None, option("--format relay|tir|c", "The kind of functions to print; default: all.")] = None,
    stop_after: Annotated[str | None, option("--stop-after PASS", "Stop after the first run of PASS.", completion.passes)] = None,
    folder: Annotated[
        Path | None, option("--all DIR", "Write the module to DIR before the first pass and after each one.")
    ] = None,
    list_passes: Annotated[bool, option("--list", "List the passes in the order in which they run.")] = False,
    metadata: Annotated[bool, option("--metadata", "Append the metadata that aot.ir.parse needs to read the text back.")] = False,
    target: opts.TargetName = None,
    board: opts.BoardName = None,
    options: CompileOptions,
    out: Output,
) -> None:
    """Print MODEL as a graph (relay), as loop nests (tir) or as C, after any pass."""
    from aot.ir.instrument import DumpIR, Stopped
    from aot.ir.instrument import StopAfter as Stop
    from aot.ir.transform import PassContext, PassInstrument

    class Record(PassInstrument):
        """Keeps the module that each pass returned, ordered by the pass's last run."""

        def run_after_pass(self, module: IRModule, info: Pass) -> None:
            ran.append(info.name)
            modules.pop(info.name, None)
            modules[info.name] = module

    _check_form(form, stop_after)
    files = None if folder is None else DumpIR(new_folder(folder))
    stop = None if stop_after is None else Stop(stop_after)
    ran: list[str] = []
    modules: dict[str, IRModule] = {}
    target = common.choose_target(target, common.find_board(board) if board else None)
    req = common.request(model, options, target=target)
    artifact = None
    with PassContext(instruments=[i for i in (Record(), files, stop) if i is not None]), suppress(Stopped):
        artifact = common.compile_model(req)
    if artifact is not None and stop_after is not None:
        raise UsageError(Problem("E5009", f"--stop-after {stop_after}: the pass did not run"))
    names = list(dict.fromkeys(ran))
    if list_passes:
        out.line("\n".join(names))
        out.result({"passes": names})
        return
    if files is not None:
        out.line("\n".join(str(path) for path in files.files))
        out.result({"model": req.name, "files": [str(path) for path in files.files]})
        return
    if form == "c" and artifact is not None:
        shown, text = "codegen_c", "\n".join(f"/* {file} */\n{content}" for file, content in artifact.files.items())
    else:
        shown, text = pick(modules, after, form)
        if metadata:
            text = modules[shown].astext(show_meta_data=True)
    out.line(text.rstrip("\n"))
    out.result({"model": req.name, "after": shown, "format": form, "text": text})
