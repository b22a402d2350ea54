"""What the cache returns is executed and written, so nobody else may decide what it holds: no folder on the way, no entry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aot.driver import model_cache
from aot.driver.build import build
from aot.errors import UsageError
from aot.executor.artifact import Artifact
from aot.system import disk_cache
from aot.system.disk_cache import cache_folder, read_own
from tests.models.golden import FOLDER
from tests.regression.untrusted.mutate import mutants

NOBODY = 65534


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AOT_CACHE", str(tmp_path / "a" / "b" / "cache"))
    monkeypatch.delenv("AOT_NO_CACHE", raising=False)
    return tmp_path / "a" / "b" / "cache"


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return build(FOLDER / "add.tflite")


def refuse() -> None:
    with pytest.raises(UsageError, match="E5061"):
        cache_folder("host")


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_folder_on_the_way_that_others_may_write_to(base: Path, depth: int) -> None:
    cache_folder("host")
    place = [base, *base.parents][depth]
    place.chmod(0o777)
    refuse()
    place.chmod(0o1777)  # only who owns a folder in it may exchange that
    assert cache_folder("host") == base / "host"


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_folder_on_the_way_of_another_user(base: Path, depth: int) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    cache_folder("host")
    os.chown([base, *base.parents][depth], NOBODY, NOBODY)
    refuse()


def test_links_are_followed_where_nobody_else_can_set_them(base: Path, tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real/../real")
    base.parent.parent.symlink_to(tmp_path / "link" / "inner")
    assert cache_folder("host") == tmp_path / "real" / "inner" / "b" / "cache" / "host"
    (tmp_path / "real" / "inner").chmod(0o777)
    refuse()


def test_links_in_a_circle_and_of_another_user(base: Path, tmp_path: Path) -> None:
    base.parent.parent.symlink_to("a")
    refuse()
    base.parent.parent.unlink()
    if os.geteuid() == 0:
        (tmp_path / "mine").mkdir()
        base.parent.parent.symlink_to("mine")
        os.chown(base.parent.parent, NOBODY, NOBODY, follow_symlinks=False)
        refuse()


def test_the_default_gives_way_to_a_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AOT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o777)
    disk_cache._private.cache_clear()
    assert cache_folder("host").parent.parent == tmp_path / "tmp"
    disk_cache._private.cache_clear()
    (tmp_path / "tmp").chmod(0o777)  # a temporary folder of all users without the sticky bit protects nothing
    assert not cache_folder("host").is_relative_to(tmp_path)
    disk_cache._private.cache_clear()


def never() -> Artifact:
    raise AssertionError("compiled, though the entry is there")


def planted(artifact: Artifact, change: Callable[[dict[str, Any]], object]) -> bytes:
    """An entry that somebody made who knows its form, but not the secret of this user's cache."""
    data = {"name": artifact.name, "files": dict(artifact.files), "metadata": dict(artifact.metadata), "graph": artifact.graph}
    change(data)
    packed = zlib.compress(json.dumps(data).encode(), 1)
    return model_cache.seal(b"guessed", b"k", packed) + packed


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "none": lambda data: None,
    "outside": lambda data: data["files"].update({"../../evil.c": "int evil;"}),
    "absolute": lambda data: data["files"].update({"/tmp/evil.c": "int evil;"}),
    "hidden": lambda data: data["files"].update({".evil.c": "int evil;"}),
    "makefile": lambda data: data["files"].update({"Makefile": "all:"}),
    "number": lambda data: data["files"].update({"add.c": 1}),
    "name": lambda data: data.update(name="../x"),
    "files": lambda data: data.update(files=["add.c"]),
    "metadata": lambda data: data.update(metadata=[]),
    "layers": lambda data: data["metadata"].update(layers={}),
    "missing": lambda data: data["metadata"].pop("workspace"),
    "graph": lambda data: data.update(graph=3),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_entry_of_somebody_else(
    base: Path, artifact: Artifact, change: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = cache_folder("models") / "k"
    path.write_bytes(planted(artifact, CHANGES[change]))
    path.chmod(0o600)
    assert model_cache.kept("k", lambda: artifact) is artifact
    path.write_bytes(planted(artifact, CHANGES[change]))
    monkeypatch.setattr(model_cache, "secret", lambda: b"guessed")  # and what he gets who knows it
    if change == "none":
        assert model_cache.kept("k", never) == artifact
    else:
        assert model_cache.kept("k", lambda: artifact) is artifact


def test_an_entry_counts_under_its_own_name(base: Path, artifact: Artifact) -> None:
    model_cache.kept("a", lambda: artifact)
    folder = cache_folder("models")
    (folder / "a").rename(folder / "b")
    assert model_cache.kept("b", lambda: artifact) is artifact


def test_only_files_of_this_user(base: Path, artifact: Artifact) -> None:
    model_cache.kept("k", lambda: artifact)
    path = cache_folder("models") / "k"
    assert model_cache.kept("k", never) == artifact
    path.chmod(0o666)
    assert model_cache.kept("k", lambda: artifact) is artifact
    good = path.rename(path.with_name("good"))
    path.symlink_to(good)
    assert model_cache.kept("k", lambda: artifact) is artifact
    assert not path.is_symlink()
    path.unlink()
    os.mkfifo(path)
    assert model_cache.kept("k", lambda: artifact) is artifact  # and does not wait for a writer


@pytest.mark.parametrize("place", ["/dev/null", "/dev/zero", "/", "/no/such/file", "\0"])
def test_read_own_is_for_files(place: str) -> None:
    assert read_own(Path(place), most=100) is None


def test_a_fact_that_waits(base: Path) -> None:
    from aot.system import disk_memo

    path = cache_folder("facts") / "f"
    os.mkfifo(path)
    kept = disk_memo.Facts(path)
    assert kept.find(b"k") is None
    kept.enter(b"k", 1)
    kept.write()


def examine(packed: bytes) -> None:
    """An entry whose seal is right, whatever it says: an artifact that stays in its folder, or None."""
    path = cache_folder("models") / "k"
    path.write_bytes(model_cache._sealed(path, packed) + packed)
    path.chmod(0o600)
    found = model_cache._read(path)
    assert found is None or all("/" not in name and name.startswith(f"{found.name}") for name in found.files)


def mutated(artifact: Artifact, *, count: int) -> None:
    small = Artifact(artifact.name, dict.fromkeys(artifact.files, "int x;"), artifact.metadata, artifact.graph)
    text = json.dumps({"name": small.name, "files": small.files, "metadata": small.metadata, "graph": None}).encode()
    for n, changed in enumerate(mutants(text, count=count, seed=14)):
        examine(zlib.compress(changed, 1) if n % 2 else changed)
    for changed in mutants(zlib.compress(text, 1), count=count, seed=15):
        examine(changed)


def test_mutated_entries(base: Path, artifact: Artifact) -> None:
    mutated(artifact, count=150)


@pytest.mark.slow
def test_many_mutated_entries(base: Path, artifact: Artifact) -> None:
    mutated(artifact, count=2_000)


@pytest.mark.slow
def test_the_command_line_with_a_planted_folder(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o777)
    variables = {k: v for k, v in os.environ.items() if k not in ("AOT_CACHE", "XDG_CACHE_HOME")} | {
        "HOME": str(tmp_path / "home")
    }
    command = [sys.executable, "-m", "aot", "compile", str(FOLDER / "add.tflite"), "-o", str(tmp_path / "out")]
    subprocess.run(command, check=True, capture_output=True, env=variables)
    assert not any((tmp_path / "home").iterdir())
