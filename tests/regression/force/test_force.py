"""--force touches only what aot wrote, and at every moment the old folder or the new one is there, whole."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from aot.cli import files
from aot.cli.files import MANIFEST, SCHEMA, write_folder
from aot.cli.verbs.new import existing_files, write_project
from aot.errors import UsageError
from aot.micro.new.generate import MANIFEST as PROJECT_MANIFEST
from aot.micro.new.generate import PROJECT_SCHEMA
from aot.micro.new.registry import ProjectFiles
from aot.system.files import digest

OLD = {"metadata.json": '{"schema": "aot-metadata/1"}', "a.c": "int a;\n", "include/aot/b.h": b"#define B 1\n"}
NEW = {"metadata.json": '{"schema": "aot-metadata/1"}', "c.c": "int c;\n", "include/aot/b.h": b"#define B 2\n"}
OWN = {"notes.txt": "mine", "include/own.h": "mine too", "deep/er/x": "and this"}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def add_own(folder: Path) -> None:
    for name, text in OWN.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("notes.txt")


def expected(folder: Path, files: dict[str, Any], *, own: bool = True) -> dict[str, bytes]:
    write_folder(folder, files, force=False)
    if own:
        add_own(folder)
    return contents(folder)


def test_files_of_the_users_stay(tmp_path: Path) -> None:
    old, new = expected(tmp_path / "old", OLD), expected(tmp_path / "new", NEW)
    folder = tmp_path / "old"
    folder.chmod(0o750)
    write_folder(folder, NEW, force=True)
    assert contents(folder) == new != old
    assert (folder / "link").is_symlink()
    assert (folder / "empty").is_dir()
    assert folder.stat().st_mode & 0o777 == 0o750
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "old"]


def test_a_generated_file_that_was_changed_is_not_lost(tmp_path: Path) -> None:
    expected(tmp_path / "out", OLD)
    (tmp_path / "out" / "a.c").write_text("hours of work")
    with pytest.raises(UsageError, match=r"E5041 .*a\.c"):
        write_folder(tmp_path / "out", NEW, force=True)
    (tmp_path / "out" / "a.c").write_bytes(b"int a;\r\n")  # what a version control system does to line ends
    write_folder(tmp_path / "out", NEW, force=True)


@pytest.mark.parametrize(
    "manifest",
    [
        None,
        "",
        "[" * 100_000,
        '{"schema": "someone-else", "generated": {}}',
        json.dumps({"schema": SCHEMA, "generated": {"../other/thesis.txt": digest("years of work")}}),
        json.dumps({"schema": SCHEMA, "generated": {"/etc/passwd": "0"}}),
        json.dumps({"schema": SCHEMA, "generated": {"thesis.txt": 3}}),
        json.dumps({"schema": SCHEMA, "generated": {"thesis.txt": "0"}}),
        json.dumps({"schema": SCHEMA, "generated": {"a\0": "0"}}),
    ],
)
def test_a_foreign_folder_is_refused(tmp_path: Path, manifest: str | None) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    (folder / "metadata.json").write_text('{"schema": "aot-metadata/1"}')
    if manifest is not None:
        (folder / MANIFEST).write_text(manifest)
    before = contents(folder)
    with pytest.raises(UsageError, match=r"E5005|E5041"):
        write_folder(folder, NEW, force=True)
    assert contents(folder) == before


@pytest.mark.parametrize("mine", ["c.c", "include/aot/b.h/x", "include"])
def test_a_file_of_the_users_in_the_way(tmp_path: Path, mine: str) -> None:
    folder = tmp_path / "out"
    write_folder(folder, {"a.c": ""}, force=False)
    (folder / mine).parent.mkdir(parents=True, exist_ok=True)
    (folder / mine).write_text("mine")
    with pytest.raises(UsageError, match=r"E5005 .*already exists"):
        write_folder(folder, NEW, force=True)
    assert (folder / mine).read_text() == "mine"


def test_the_current_folder_is_not_swapped_under_our_feet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "out", OLD, force=False)
    monkeypatch.chdir(tmp_path / "out" / "include")
    for folder in (Path(".."), tmp_path / "out", Path()):
        with pytest.raises(UsageError, match=r"E5005 .*current folder"):
            write_folder(folder, NEW, force=True)


@contextmanager
def interrupt_at(count: int) -> Iterator[list[int]]:
    """Ctrl-C before the `count`-th line of aot/cli/files.py that is executed; yields the number of lines seen."""
    seen = [0]

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        if frame.f_code.co_filename != files.__file__:
            return None
        if event == "line":
            seen[0] += 1
            if seen[0] == count:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield seen
    finally:
        sys.settrace(before)


CALLS = ("rename", "link", "mkdir", "symlink", "chmod", "replace")


@contextmanager
def failing_at(count: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The `count`-th call that changes names in the file system fails; yields the number of calls seen."""
    seen = [0]

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            seen[0] += 1
            if seen[0] == count:
                raise OSError(errno.EIO, "Input/output error")
            return real(*arguments, **named)

        return call

    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, wrap(getattr(os, name)))
        patch.setattr(files, "exchange", wrap(files.exchange))
        yield seen


def attempts(tmp_path: Path, fault: Callable[[int], Any], *, first: bool, stride: int = 1) -> tuple[int, int]:
    """Replace a folder (`first`: write it) with a fault at step `stride`, 2 `stride` ... until there are no more steps.

    Returns how many there were, and how many temporary folders stayed behind.
    """
    old = {} if first else expected(tmp_path / "wanted_old", OLD)
    new = expected(tmp_path / "wanted_new", NEW, own=not first)
    count, left = 0, list[str]()
    while True:
        count += stride
        place = tmp_path / str(count)
        place.mkdir()
        if not first:
            expected(place / "out", OLD)
        done = False
        with fault(count) as seen:
            try:
                write_folder(place / "out", NEW, force=True)
                done = True
            except (KeyboardInterrupt, UsageError):
                pass
        found = contents(place / "out")
        assert found in (old, new), count
        assert found == new or not done
        left += [p.name for p in place.iterdir() if p.name != "out"]
        if seen[0] < count:
            return count - stride, len(left)


@pytest.mark.parametrize(("first", "stride"), [(True, 2), (False, 7), pytest.param(False, 1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("atomic", [True, False])
def test_an_interrupt_at_every_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, atomic: bool, first: bool, stride: int
) -> None:
    if sys.gettrace() is not None:
        pytest.skip("a debugger or coverage traces this process")
    if not atomic:
        monkeypatch.setattr(files, "exchange", lambda *_: False)
    steps, left = attempts(tmp_path, interrupt_at, first=first, stride=stride)
    assert steps > 20
    assert left < 8  # only an interrupt while the temporary folder is made or removed leaves one behind


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("atomic", [True, False])
def test_a_failing_call_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, atomic: bool, first: bool) -> None:
    if not atomic:
        monkeypatch.setattr(files, "exchange", lambda *_: False)
    steps, left = attempts(tmp_path, lambda count: failing_at(count, monkeypatch), first=first)
    assert steps >= 3
    assert left == 0


def project(version: int) -> ProjectFiles:
    generated = {"aot/x.c": f"int x{version};\n", "models/m.tflite": b"m", "regenerate.sh": f"# {version}\n"}
    manifest = {"schema": PROJECT_SCHEMA, "generated": {n: digest(t) for n, t in generated.items()}}
    return ProjectFiles({**generated, PROJECT_MANIFEST: json.dumps(manifest)}, {"src/main.c": "mine\n"})


def test_an_interrupted_project_can_be_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever write was the last one: the same command again finds nothing that was "changed by hand"."""
    for count in range(1, 12):
        folder = tmp_path / str(count)
        write_project(folder, project(1), old=None)
        with failing_at(count, monkeypatch), suppress(UsageError):
            write_project(folder, project(2), old=existing_files(folder, force=True))
        write_project(folder, project(2), old=existing_files(folder, force=True))
        assert (folder / "aot" / "x.c").read_text() == "int x2;\n"


def test_a_project_removes_only_what_it_wrote(tmp_path: Path) -> None:
    write_project(tmp_path / "p", project(1), old=None)
    (tmp_path / "p" / "models" / "m.tflite").write_bytes(b"exchanged by the user")
    fewer = ProjectFiles({PROJECT_MANIFEST: project(1).generated[PROJECT_MANIFEST]})
    write_project(tmp_path / "p", fewer, old=existing_files(tmp_path / "p", force=True))
    assert (tmp_path / "p" / "models" / "m.tflite").read_bytes() == b"exchanged by the user"
    assert not (tmp_path / "p" / "aot" / "x.c").exists()


def test_an_empty_folder_stays_empty_when_a_project_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for count in range(1, 6):
        with failing_at(count, monkeypatch), pytest.raises(UsageError):
            write_project(tmp_path, project(1), old=None)
        assert list(tmp_path.iterdir()) == []
