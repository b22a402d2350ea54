"""The folder that a model is compiled to: its files, and what of an old folder may be replaced."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aot.executor.artifact import Artifact


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
    from aot.report.figures.size import compile_report
    from aot.support.data import data_folder

    files: dict[str, str | bytes] = dict(sorted(artifact.files.items()))
    folder = data_folder("crt") / "include"
    for header in runtime_headers(artifact.files.values(), folder):
        files[f"include/{header}"] = (folder / header).read_bytes()
    files["metadata.json"] = to_json(artifact.metadata)
    files["report.json"] = to_json(compile_report(artifact.metadata))
    return files


def check_folder(folder: Path, *, force: bool) -> None:
    """Refuse to replace what is not ours before the long work (E5004, E5005)."""
    from aot.cli.output_folder import check_replaceable

    check_replaceable(folder, force=force)


def write_sources(folder: Path, artifact: Artifact, *, force: bool, sbom: bool, profiler: bool) -> list[str]:
    """Write the output folder, with `sbom` a bill of materials of it as well; the paths of its files in it."""
    from aot.cli.output_folder import write_folder

    files = with_profiler(output_files(artifact), wanted=profiler)
    files = with_sbom(files, [artifact], name=artifact.name, wanted=sbom)
    return [str(p.relative_to(folder)) for p in write_folder(folder, files, force=force)]


PROFILER = ("layer_profile.c", "include/aot/layer_profile.h")


def with_profiler(files: dict[str, str | bytes], *, wanted: bool) -> dict[str, str | bytes]:
    """The files of a folder, and those that count cycles of each layer in firmware where they are wanted."""
    from aot.support.data import data_folder

    if not wanted:
        return files
    source, header = PROFILER
    crt = data_folder("crt")
    return {**files, source: (crt / "src" / source).read_bytes(), header: (crt / header).read_bytes()}


def with_sbom(files: dict[str, str | bytes], artifacts: Sequence[Artifact], *, name: str, wanted: bool) -> dict[str, str | bytes]:
    """The files of a folder, and their bill of materials where it is wanted."""
    from aot.report.figures.sbom import FILE, sbom

    return {**files, FILE: sbom(name, [a.metadata for a in artifacts], files)} if wanted else files
