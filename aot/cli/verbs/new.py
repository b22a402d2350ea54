"""`aot new DIR MODEL...`: a complete firmware project for one or more models."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import typer

from aot.cli import common, completion
from aot.cli.files import encoded, read_manifest, write_file, write_new_folder
from aot.cli.options import BoardName, CompileOptions, ForceOverBudget, Share, option, verb, words_of
from aot.cli.output import Output
from aot.errors import Problem, UsageError
from aot.system.files import write_error

if TYPE_CHECKING:
    from aot.micro.board import Board
    from aot.micro.new.registry import Part, ProjectFiles


@verb(leave_out=("name", "io", "verbose"))
def aot_new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The project's folder.", show_default=False)],
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="One or more .tflite files.", show_default=False)],
    *,
    kind: Annotated[
        str,
        option("--kind KIND", "The build system or IDE of the project (docs/projects.md).", completion.kinds),
    ] = "make",
    board: BoardName = None,
    name: Annotated[
        list[str] | None, option("-n --name", "Prefix of a model's C symbols; give it once per model, in order.")
    ] = None,
    title: Annotated[str | None, option("--title", "The project's name; default: the folder's.")] = None,
    options: CompileOptions,
    share: Share = False,
    force: Annotated[bool, option("--force", "Replace the generated files of an existing project.")] = False,
    over: ForceOverBudget = False,
    out: Output,
) -> None:
    """Write a firmware project that builds without aot. With --force, replace only its generated files."""
    from aot.executor.artifact import check_names
    from aot.micro.new.generate import default_board, generate
    from aot.micro.new.library import target_of
    from aot.micro.new.registry import Spec

    place = common.find_board(board or default_board(kind))
    cpu = target_of(kind, place.cpu)
    names = list(name or [])
    if names and len(names) != len(models):
        raise UsageError(Problem("E5043", f"{len(names)} names for {len(models)} models; give --name once per model"))
    reqs = [
        common.request(path, replace(options, name=one), target=cpu).with_options(share_workspace=share)
        for path, one in zip_longest(models, names)
    ]
    check_names([w.name for w in reqs])
    old = existing_files(folder, force=force)
    with out.working(f"compiling {len(reqs)} models"):
        parts = tuple(make_part(w) for w in reqs)
        common.check_budgets([p.artifact.metadata for p in parts], force=over)
        label = title or folder.resolve().name
        words = words_of(options, leave_out=("name",)) + (("--force-over-budget",) if over else ())
        workspace = workspace_files(parts) if share else {}
        files = generate(
            Spec(kind, _title(label), place, parts, options.oracle, options.opt, workspace, board_file(board), words)
        )
    written = write_project(folder, files, old=old)
    _report(out, folder, place, kind=kind, files=files, written=written, parts=parts)


def board_file(name: str | None) -> str:
    """The text of board.toml if the board is one of the user's folders, else ""; the project keeps a copy."""
    from aot.micro.board import EMULATED

    folder = (name or "").removeprefix(EMULATED)
    return (Path(folder) / "board.toml").read_text(encoding="utf-8") if "/" in folder else ""


def workspace_files(parts: tuple[Part, ...]) -> dict[str, str]:
    """aot_workspace.h and .c for models that share a workspace; E5043 for two models with the same name."""
    from aot.executor.c_files import SHARED_WORKSPACE, shared_files

    files = shared_files([p.artifact for p in parts])
    return {name: text for name, text in files.items() if name.startswith(f"{SHARED_WORKSPACE}.")}


def _title(text: str) -> str:
    """The title with all but letters, digits and `._-` replaced, as it appears in comments and scripts."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in text).lstrip("-") or "project"


def make_part(req: common.Request) -> Part:
    """Compile a model and compute its test vector: generated input set 0, and the outputs of the graph interpreter."""
    from aot.driver.reading import NamedBytes
    from aot.frontend.formats import format_of
    from aot.micro.new.registry import STATEFUL_RUNS, Part
    from aot.report.measure.inputs import rule_set
    from aot.report.measure.reference import graph

    file = NamedBytes(Path(req.name + format_of(req.data).suffix), req.data)  # its name in the project, with the chosen shapes
    artifact = common.compile_model(replace(req, source=file))
    inputs = rule_set(artifact.metadata["inputs"], 0)
    runs = STATEFUL_RUNS if artifact.metadata.get("stateful") else 1
    outputs = graph(req.data, req.oracle).outputs([inputs] * runs)[-1]
    return Part(artifact, req.data, tuple(inputs), tuple(outputs))


def existing_files(folder: Path, *, force: bool) -> Mapping[str, str] | None:
    """The generated files (path -> checksum) of the existing project; None if the folder is empty or does not exist.

    Raises UsageError E5004 (exists, no --force) and E5005 (not a project that aot wrote).
    """
    from aot.micro.new.generate import MANIFEST, PROJECT_SCHEMA

    try:
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise UsageError(Problem("E5005", f"'{folder}' exists and is not a folder"))
        if not folder.exists() or not any(folder.iterdir()):
            return None
    except OSError as error:
        raise write_error(folder, error) from None
    if not force:
        raise UsageError(Problem("E5004", f"'{folder}' exists; --force replaces the generated files of a project"))
    listed = read_manifest(folder / MANIFEST, PROJECT_SCHEMA)
    if listed is not None:
        return listed
    raise UsageError(Problem("E5005", f"'{folder}' is not a project that aot wrote, so --force does not change it"))


def write_project(folder: Path, files: ProjectFiles, *, old: Mapping[str, str] | None) -> list[str]:
    """Write a new project completely or not at all, or update the generated files of an existing one.

    Returns the paths that were written or removed.  If the user changed a generated file, raises UsageError E5041 before writing
    anything.  The manifest is written last, so that the same command can resume after an interrupt.
    """
    from aot.micro.new.generate import MANIFEST
    from aot.system.files import digest

    if old is None:
        content = {**files.once, **files.generated}
        if folder.exists():  # it is empty; as it may be the current folder, it must not be replaced
            _fill(folder, content)
        else:
            write_new_folder(folder, content)
        _make_executable(folder / "regenerate.sh")
        return sorted(content)
    changed = _changed_by_hand(folder, files, old)
    if changed:
        raise UsageError(
            *(Problem("E5041", f"'{folder / n}' was changed by hand; move it away to get a new one") for n in changed)
        )
    in_order = sorted(files.generated, key=lambda n: n == MANIFEST)
    written = [n for n in in_order if _replace(folder / n, files.generated[n])]
    written += [n for n, text in files.once.items() if not (folder / n).exists() and _replace(folder / n, text)]
    for name in sorted(set(old) - set(files.generated)):
        if (folder / name).is_file() and digest((folder / name).read_bytes()) == old[name]:
            (folder / name).unlink()
            written.append(name)
    _make_executable(folder / "regenerate.sh")
    return sorted(written)


def _fill(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write all files into an empty folder; on an error, empty it again."""
    try:
        for name, text in files.items():
            _replace(folder / name, text)
    except BaseException:
        for name in files:
            (folder / name).unlink(missing_ok=True)
        for parent in sorted({folder / p for n in files for p in PurePosixPath(n).parents} - {folder}, reverse=True):
            with suppress(OSError):
                parent.rmdir()
        raise


def _changed_by_hand(folder: Path, files: ProjectFiles, listed: Mapping[str, str]) -> list[str]:
    """Generated files that the user changed; models and boards may be changed."""
    from aot.micro.new.generate import MANIFEST
    from aot.system.files import digest

    changed = []
    for name in sorted({*files.generated, *listed}):
        path = folder / name
        exchangeable = name.startswith(("models/", "board/")) and name in listed
        if name == MANIFEST or exchangeable or not path.is_file():
            continue
        now = digest(path.read_bytes())
        new = digest(files.generated[name]) if name in files.generated else None
        if now not in (listed.get(name), new):
            changed.append(name)
    return changed


def _replace(path: Path, text: str | bytes) -> bool:
    """Write one file through a temporary one; False if it already has this content."""
    data = encoded(text)
    if path.is_file() and path.read_bytes() == data:
        return False
    write_file(path, data)
    return True


def _make_executable(path: Path) -> None:
    try:
        if path.is_file():
            path.chmod(path.stat().st_mode | 0o111 & ~0o022)
    except OSError as error:
        raise write_error(path, error) from None


def _report(
    out: Output, folder: Path, board: Board, *, kind: str, files: ProjectFiles, written: list[str], parts: tuple[Part, ...]
) -> None:
    from aot.report.figures.size import plan_of

    for part in parts:
        out.row("model", f"{part.name}: {plan_of(part.artifact.metadata)}")
    out.row("project", f"{kind} for {board.name}")
    out.row("write", f"{folder}: {len(written)} of {len(files.generated) + len(files.once)} files; see {folder / 'README.md'}")
    out.result({
        "ok": True, "output": str(folder), "kind": kind, "board": board.name, "models": [p.name for p in parts],
        "generated": sorted(files.generated), "once": sorted(files.once), "written": written,
    })  # fmt: skip
