"""The cache belongs to this user alone, or is a fresh private folder: what lies in it is executed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from aot.errors import UsageError
from aot.system import disk_cache
from aot.system.disk_cache import cache_folder

NOBODY = 65534


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AOT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    disk_cache._private.cache_clear()
    return tmp_path / "home"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_the_default_is_below_the_home_folder_and_private(home: Path) -> None:
    folder = cache_folder("host")
    assert folder == home / ".cache" / "aot" / "host"
    assert mode(folder) == 0o700
    assert cache_folder("host") == folder


def test_named_folders(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder("build") == tmp_path / "xdg" / "aot" / "build"
    monkeypatch.setenv("AOT_CACHE", str(tmp_path / "mine"))
    assert cache_folder("build") == tmp_path / "mine" / "build"


def plant(folder: Path, how: str) -> None:
    """What another user could have prepared."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if how == "link":
        (folder.parent / "elsewhere").mkdir()
        folder.symlink_to("elsewhere")
        return
    if how == "file":
        folder.touch()
        return
    folder.mkdir()
    folder.chmod(0o775 if how == "group" else 0o777 if how == "others" else 0o700)
    if how == "owner":
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(folder, NOBODY, NOBODY)


@pytest.mark.parametrize("how", ["link", "file", "group", "others", "owner"])
def test_a_planted_folder_is_not_used(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    plant(home / ".cache" / "aot" / "host", how)
    folder = cache_folder("host")
    assert folder.parent.parent == tmp_path / "tmp"
    assert (mode(folder), mode(folder.parent)) == (0o700, 0o700)
    assert cache_folder("host") == folder
    monkeypatch.setenv("AOT_CACHE", str(home / ".cache" / "aot"))
    with pytest.raises(UsageError, match="E5061"):
        cache_folder("host")


@pytest.mark.parametrize("value", ["/dev/null", "/proc/no/such/folder", "relative-and-absent\0"])
def test_an_unusable_home(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    if "\0" in value:
        monkeypatch.setattr(Path, "home", lambda: Path(value))
    else:
        monkeypatch.setenv("HOME", value)
    assert cache_folder("build").parent.parent == tmp_path / "tmp"


def test_no_home_at_all(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", none)
    assert cache_folder("build").parent.parent == tmp_path / "tmp"


def test_the_private_folder_goes_with_the_process(tmp_path: Path) -> None:
    code = "from aot.system.disk_cache import cache_folder\nprint(cache_folder('host'))\n"
    pool = "from concurrent.futures import ProcessPoolExecutor as P\nfrom aot.system.disk_cache import cache_folder\n"
    pool += "if __name__ == '__main__':\n    with P(1) as p: print(p.submit(cache_folder, 'host').result())\n"
    variables = {k: v for k, v in os.environ.items() if k not in ("AOT_CACHE", "XDG_CACHE_HOME")}
    variables |= {"HOME": "/dev/null", "TMPDIR": str(tmp_path)}
    for text in (code, pool):
        (tmp_path / "x.py").write_text(text)
        done = subprocess.run([sys.executable, str(tmp_path / "x.py")], capture_output=True, text=True, check=True, env=variables)
        assert Path(done.stdout.strip()).parent.parent == tmp_path
        assert [p.name for p in tmp_path.iterdir()] == ["x.py"]
