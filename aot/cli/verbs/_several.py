"""`aot compile A B`: several models in one folder, with a workspace each or with one that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aot.cli.options import CompileOptions
from aot.cli.output import Output
from aot.cli.verbs._folder import check_folder, runtime_headers, to_json
from aot.errors import Problem, UsageError

if TYPE_CHECKING:
    from aot.cli.common import Request
    from aot.executor.artifact import Artifact
    from aot.micro.board import Board

SCHEMA = "aot-models/1"


def compile_several(
    models: Sequence[Path],
    *,
    options: CompileOptions,
    target: str | None,
    board: str | None,
    output: Path | None,
    share: bool,
    force: bool,
    over: bool,
    form: str,
    plan: Path | None,
    out: Output,
) -> None:
    """Compile all models and write one folder; E5017 for options that take a single model."""
    from aot.cli.budgets import check_budgets
    from aot.cli.common import choose_target, compile_model, find_board
    from aot.executor.artifact import check_names
    from aot.report.figures.size import plan_of

    alone = (("--format", form != "c"), ("--plan", plan is not None), ("--name", bool(options.name) and len(models) > 1))
    for name, given in alone:
        if given:
            raise UsageError(Problem("E5017", f"{name} takes a single model"))
    place = find_board(board) if board else None
    wanted = requests(models, options, target=choose_target(target, place), share=share)
    check_names([w.name for w in wanted])
    path = output or Path("out") / "-".join(w.name for w in wanted)
    check_folder(path, force=force)
    with out.working(f"compiling {len(wanted)} models"):
        artifacts = [compile_model(w) for w in wanted]
        check_budgets([a.metadata for a in artifacts], force=over)
        metadata = combined(artifacts, share=share)
        if place is not None and not place.is_host:
            check_fit(place, artifacts, metadata)
    written = write_several(path, artifacts, metadata, force=force)
    for artifact in artifacts:
        out.row(artifact.name, plan_of(artifact.metadata))
    out.row("workspace", f"{metadata['workspace']['size']:,} B in all{', shared' if share else ''}")
    out.row("write", f"{path}: {', '.join(written)}")
    out.result({"ok": True, "output": str(path), "files": written, "metadata": metadata})


def requests(models: Sequence[Path], options: CompileOptions, *, target: str, share: bool) -> list[Request]:
    """A request a model, all with the same options."""
    from aot.cli.common import request

    wanted = [request(path, options, target=target) for path in models]
    return [replace(w, options=replace(w.options, share_workspace=share)) for w in wanted]


def combined(artifacts: Sequence[Artifact], *, share: bool) -> dict[str, Any]:
    """metadata.json of a folder of several models: their own is in <name>.metadata.json."""
    from aot.executor.codegen.shared_workspace import workspace_size

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


def write_several(folder: Path, artifacts: Sequence[Artifact], metadata: Mapping[str, Any], *, force: bool) -> list[str]:
    """Write the folder; the paths of its files in it."""
    from aot.cli.output_folder import write_folder
    from aot.executor.codegen.shared_workspace import shared_files
    from aot.support.data import data_folder

    sources = shared_files(artifacts)
    files: dict[str, str | bytes] = dict(sorted(sources.items()))
    headers = data_folder("crt") / "include"
    for header in runtime_headers(sources.values(), headers):
        files[f"include/{header}"] = (headers / header).read_bytes()
    for artifact in artifacts:
        files[f"{artifact.name}.metadata.json"] = to_json(artifact.metadata)
    files["metadata.json"] = to_json(metadata)
    return [str(p.relative_to(folder)) for p in write_folder(folder, files, force=force)]
