"""Output folders appear whole or not at all."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aot.cli.files import MANIFEST, check_usable, model_name, write_file, write_folder
from aot.errors import UsageError

OURS = {"metadata.json": '{"schema": "aot-metadata/1"}', "a.c": "int a;\n", "include/aot/b.h": b"#define B\n"}


def listing(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_writes_all_files_and_leaves_no_temporary_ones(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "out"
    written = write_folder(folder, OURS, force=False)
    assert listing(folder) == sorted([*OURS, MANIFEST])
    assert all(p.is_file() for p in written)
    assert (folder / "a.c").read_text() == "int a;\n"
    assert [p.name for p in folder.parent.iterdir()] == ["out"]
    assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777


def test_a_folder_with_more_than_ours_needs_force(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write_folder(folder, {**OURS, "old.c": ""}, force=False)
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="E5004"):
        write_folder(folder, OURS, force=False)
    assert "old.c" in listing(folder)
    write_folder(folder, OURS, force=True)
    assert listing(folder) == sorted([*OURS, "mine.txt", MANIFEST])
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_folder_of_ours_alone_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write_folder(folder, {**OURS, "deep/old.c": ""}, force=False)
    write_folder(folder, OURS, force=False)
    assert listing(folder) == sorted([*OURS, MANIFEST])
    (folder / "a.c").write_text("int changed;\n")
    with pytest.raises(UsageError, match="E5004"):
        write_folder(folder, OURS, force=False)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write_folder(tmp_path / "out", OURS, force=False)
    assert listing(tmp_path / "out") == sorted([*OURS, MANIFEST])


def test_force_never_removes_what_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="E5005"):
        write_folder(tmp_path, OURS, force=True)
    (tmp_path / "metadata.json").write_text('{"schema": "someone-else"}')
    with pytest.raises(UsageError, match="E5005"):
        write_folder(tmp_path, OURS, force=True)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    with pytest.raises(UsageError, match="E5005"):
        write_folder(tmp_path / "thesis.txt", OURS, force=True)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="E5005"):
        write_folder(tmp_path / "link", OURS, force=True)


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.write_bytes

    def full(self: Path, data: Any) -> int:
        if self.name == "b.h":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UsageError, match="E5006"):
        write_folder(tmp_path / "out", OURS, force=False)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_keeps_the_old_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "out", OURS, force=False)

    def full(self: Path, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UsageError, match="E5006"):
        write_folder(tmp_path / "out", {**OURS, "a.c": "new"}, force=True)
    assert (tmp_path / "out" / "a.c").read_text() == "int a;\n"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_limit_of_the_system_on_file_sizes(tmp_path: Path) -> None:
    """The same with the kernel's own error instead of a made one."""
    code = (
        "import resource, signal, sys\nfrom pathlib import Path\nfrom aot.cli.files import write_folder\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "write_folder(Path(sys.argv[1]), {'small': b'x', 'large': b'x' * 5000}, force=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")], capture_output=True, text=True, check=False)
    assert "E5006" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="E5007"):
        write_folder(tmp_path / "file" / "out", OURS, force=False)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_file(tmp_path / "a" / "x.json", "1")
    write_file(tmp_path / "a" / "x.json", b"2")
    (tmp_path / "a" / "d").mkdir()
    for place in ("x.json/y", "d"):
        with pytest.raises(UsageError, match="E5007"):
            write_file(tmp_path / "a" / place, "3")
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["d", "x.json"]
    assert (tmp_path / "a" / "x.json").read_text() == "2"


def test_a_file_in_the_way_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for good in (tmp_path, tmp_path / "a" / "b"):
        check_usable(good)
    for bad in (tmp_path / "file", tmp_path / "file" / "a" / "b"):
        with pytest.raises(UsageError, match="E5005"):
            check_usable(bad)


def test_names() -> None:
    assert model_name(Path("dir/My Model-v2.tflite"), None) == "my_model_v2"
    assert model_name(Path("42.tflite"), None) == "model_42"
    assert model_name(Path("x.tflite"), "kws") == "kws"
    assert model_name(Path("aot.tflite"), None) == "model_aot"
    for bad in ("2nd", "a-b", "int", "Kws", "", "aot", "aot_kws"):
        with pytest.raises(UsageError, match="E5003"):
            model_name(Path("x.tflite"), bad)
