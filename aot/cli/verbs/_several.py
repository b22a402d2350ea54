"""`aot compile A B`: several models in one folder, with a workspace each or with one that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aot.cli.options import CompileOptions
from aot.cli.verbs._compilation import Compilation
from aot.cli.verbs._folder import check_folder, runtime_headers, to_json, with_profiler, with_sbom
from aot.errors import Problem, UsageError

if TYPE_CHECKING:
    from aot.cli.common import Request
    from aot.executor.artifact import Artifact
    from aot.micro.board import Board

SCHEMA = "aot-models/1"


def compile_several(models: Sequence[Path], asked: Compilation) -> None:
    """Compile all models and write one folder; E5017 for options that take a single model."""
    from aot.cli.budgets import check_budgets
    from aot.cli.common import choose_target, compile_model, find_board
    from aot.cli.output_folder import write_folder
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
    from aot.support.data import data_folder

    sources = shared_files(artifacts)
    files: dict[str, str | bytes] = dict(sorted(sources.items()))
    headers = data_folder("crt") / "include"
    for header in runtime_headers(sources.values(), headers):
        files[f"include/{header}"] = (headers / header).read_bytes()
    for artifact in artifacts:
        files[f"{artifact.name}.metadata.json"] = to_json(artifact.metadata)
    files["metadata.json"] = to_json(metadata)
    return files
