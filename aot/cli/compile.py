"""`aot compile MODEL`: C sources, metadata and report in a folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aot.cli.options import (
    BoardName,
    Force,
    Io,
    JsonFlag,
    ModelName,
    ModelPath,
    Opt,
    Oracle,
    OutputFolder,
    QuietFlag,
    TargetName,
    VerboseFlag,
)
from aot.cli.output import Output

if TYPE_CHECKING:
    from aot.executor.artifact import Artifact

NAME = "compile"
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


def output_files(artifact: Artifact) -> dict[str, str | bytes]:
    """All files of an output folder: sources, the headers of the runtime that they include, metadata and report."""
    from aot.micro.board import data_folder
    from aot.report.size import compile_report

    files: dict[str, str | bytes] = dict(sorted(artifact.files.items()))
    folder = data_folder("crt") / "include"
    for header in runtime_headers(artifact.files.values(), folder):
        files[f"include/{header}"] = (folder / header).read_bytes()
    files["metadata.json"] = to_json(artifact.metadata)
    files["report.json"] = to_json(compile_report(artifact.metadata))
    return files


def command(
    model: ModelPath,
    *,
    output: OutputFolder = None,
    name: ModelName = None,
    target: TargetName = None,
    board: BoardName = None,
    oracle: Oracle = "litert",
    opt: Opt = "balanced",
    io: Io = "arena",
    force: Force = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Compile MODEL to C. With --board, refuse what does not fit its memory."""
    from aot.cli.common import choose_target, compile_model, find_board, import_text, request
    from aot.cli.files import check_replaceable, write_folder
    from aot.report.size import LAYER_HEADERS, flash_of, layer_rows, operators_of, plan_of

    out = Output(json=as_json, quiet=quiet, verbose=verbose)
    place = find_board(board) if board else None
    wanted = request(model, name=name, target=choose_target(target, place), oracle=oracle, opt=opt, io=io)
    folder = output or Path("out") / wanted.name
    check_replaceable(folder, force=force)
    with out.working(f"compiling {model.name}"):
        artifact = compile_model(wanted)
        if place is not None and not place.is_host:
            from aot.micro.project import choose_places

            choose_places(place, artifact.metadata)
    written = write_folder(folder, output_files(artifact), force=force)
    meta = artifact.metadata
    out.row("import", import_text(wanted))
    out.row("compile", f"{operators_of(meta)} for {wanted.target}")
    out.row("plan", plan_of(meta))
    out.row("flash", flash_of(code_bytes=None, constant_bytes=meta["constants"]["size"]))
    out.row("write", f"{folder}: {', '.join(str(p.relative_to(folder)) for p in written)}")
    if verbose:
        out.table(LAYER_HEADERS, layer_rows(meta["layers"]))
    out.result({"ok": True, "output": str(folder), "files": [str(p.relative_to(folder)) for p in written], "metadata": meta})
