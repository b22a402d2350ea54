"""`aot build MODEL`: a folder with firmware for a board and all its sources."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from aot.cli.options import (
    BoardName,
    CompileOptions,
    Force,
    ForceOverBudget,
    JsonFlag,
    LimitsFile,
    ModelPath,
    OutputFolder,
    QuietFlag,
    SbomFlag,
    VerboseFlag,
    compiles,
)
from aot.cli.output import Output
from aot.cli.verbs.compile import over_too, request_under

if TYPE_CHECKING:
    from aot.micro.build.project import Project

NAME = "build"


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
    files["metadata.json"] = json.dumps(project.artifact.metadata, indent=2, ensure_ascii=False) + "\n"
    return files


@compiles()
def command(
    model: ModelPath,
    *,
    output: OutputFolder = None,
    board: BoardName = None,
    options: CompileOptions,
    sbom: SbomFlag = False,
    force: Force = False,
    over: ForceOverBudget = False,
    budget: LimitsFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Compile MODEL and build firmware that runs it on a board (reads inputs.bin, writes outputs.bin via semihosting)."""
    from aot.cli.budgets import built_totals, check_budget_file, open_budget
    from aot.cli.common import compile_for, find_board, import_text, plan_rows
    from aot.cli.files import check_replaceable, write_folder
    from aot.micro.build.image import StatedStack, built_by, with_stack_bound
    from aot.micro.build.project import prepare
    from aot.report.figures.sbom import FILE as SBOM
    from aot.report.figures.sbom import sbom as bill
    from aot.report.figures.size import LAYER_HEADERS, flash_of, layer_rows, ram_of
    from aot.report.measure.fitting import linker
    from aot.report.measure.verify import image_facts

    out = Output(json=as_json, quiet=quiet, verbose=verbose)
    place = find_board(board)
    req = request_under(limits := open_budget(budget), model, options, place=place, target=place.cpu)
    folder = output or Path("out") / f"{req.name}-{place.name}"
    check_replaceable(folder, force=force)
    with tempfile.TemporaryDirectory(prefix="aot-build-") as scratch, out.working(f"building {model.name} for {place.name}"):
        artifact = compile_for(over_too(req, over=over), place, out, link=linker(place, Path(scratch)), writes=True)
        project = prepare(artifact, place, folder=Path(scratch))
        image = project.image("measure")
        facts = image_facts(project)
        constants = artifact.metadata["constants"]["size"] if facts.constant_bytes is None else facts.constant_bytes
        totals = built_totals(project) if limits is not None else {}
        check_budget_file(limits, totals, name=artifact.name, board=place.name, force=over, out=out)
        files = project_files(project, image)
        if facts.stack_bound is not None:
            header = f"{artifact.name}.h"
            stack = StatedStack(facts.stack_bound, built_by(project))
            files[header] = with_stack_bound(artifact.files[header], name=artifact.name, stack=stack)
        if sbom:
            files[SBOM] = bill(artifact.name, [artifact.metadata], files, board=place.name, compiler=facts.compiler)
        write_folder(folder, files, force=force)
    meta = artifact.metadata
    out.row("import", import_text(req))
    plan_rows(out, meta)
    out.row("build", f"{facts.compiler} for {place.cpu}")
    out.row("flash", flash_of(meta, code_bytes=facts.code_bytes, constant_bytes=constants))
    out.row("RAM", ram_of(meta, stack_bound=facts.stack_bound))
    out.row("write", f"{folder / (artifact.name + '.elf')}")
    if verbose:
        out.table(LAYER_HEADERS, layer_rows(meta["layers"]))
    out.result({
        "ok": True, "output": str(folder), "image": f"{artifact.name}.elf", "board": place.name, "code_bytes": facts.code_bytes,
        "constant_bytes": constants, "workspace_bytes": meta["workspace"]["size"], "heap_bytes": facts.heap_bytes,
    })  # fmt: skip
