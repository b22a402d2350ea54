"""The cache of compiled models: the same bytes with it and without, and nothing that was damaged or is out of date."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from aot.driver import model_cache
from aot.driver.build import build
from aot.driver.options import Options
from aot.executor.artifact import Artifact
from aot.system import disk_cache
from tests.models.golden import FOLDER

MODEL = FOLDER / "add.tflite"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("AOT_NO_CACHE", raising=False)


def never() -> Artifact:
    raise AssertionError("compiled, though the entry is there")


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return build(MODEL)


def entry(key: str) -> Path:
    return model_cache.usage()[0] / key


def test_an_entry_is_the_artifact(artifact: Artifact) -> None:
    assert model_cache.kept("k", lambda: artifact) == artifact
    found = model_cache.kept("k", never)
    assert found == artifact
    assert json.dumps(found.metadata) == json.dumps(artifact.metadata)  # the order of its keys too, as files show it


@pytest.mark.parametrize("damage", [b"", b"short", None, "flip", "cut"])
def test_damaged_entries_are_made_anew(artifact: Artifact, damage: bytes | str | None) -> None:
    model_cache.kept("k", lambda: artifact)
    path = entry("k")
    good = path.read_bytes()
    if damage is None:
        path.unlink()
        path.mkdir()
    elif isinstance(damage, bytes):
        path.write_bytes(damage)
    else:
        path.write_bytes(good[:-1] if damage == "cut" else good[:-1] + bytes([good[-1] ^ 1]))
    assert model_cache.kept("k", lambda: artifact) == artifact
    if damage is not None:
        assert path.read_bytes() == good


def test_the_key_tells_everything_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    data, usual = MODEL.read_bytes(), Options()
    keys = [
        model_cache.key_of(data, "add.tflite", "add", "cortex-m4", usual),
        model_cache.key_of(data + b"\0", "add.tflite", "add", "cortex-m4", usual),
        model_cache.key_of(data, "b.tflite", "add", "cortex-m4", usual),
        model_cache.key_of(data, "add.tflite", "b", "cortex-m4", usual),
        model_cache.key_of(data, "add.tflite", "add", "cortex-m0", usual),
        model_cache.key_of(data, "add.tflite", "add", "cortex-m4", replace(usual, opt="size")),
        model_cache.key_of(data, "add.tflite", "add", "cortex-m4", replace(usual, ram_budget=1000)),
    ]
    assert keys[0] == model_cache.key_of(data, "add.tflite", "add", "cortex-m4", Options())
    monkeypatch.setattr(model_cache, "compiler_fingerprint", lambda: "another compiler")
    keys.append(model_cache.key_of(data, "add.tflite", "add", "cortex-m4", usual))
    assert len(set(keys)) == len(keys)


def test_the_fingerprint_sees_a_changed_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    before = list(disk_cache._files(tmp_path))
    os.utime(tmp_path / "a.py", ns=(1, 1))
    assert list(disk_cache._files(tmp_path)) != before


def test_the_least_recently_used_go(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    for n, key in enumerate("abc"):
        model_cache.kept(key, lambda: artifact)
        os.utime(entry(key), ns=(n, n))
    model_cache.kept("a", never)  # used again
    monkeypatch.setattr(model_cache, "LIMIT", 3 * entry("a").stat().st_size)
    model_cache.kept("d", lambda: artifact)
    assert sorted(p.name for p in model_cache.usage()[0].iterdir()) == ["a", "c", "d"]


def test_many_at_once(artifact: Artifact) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: model_cache.kept(f"k{n % 3}", lambda: artifact), range(40)))
    assert all(f == artifact for f in found)
    assert model_cache.usage()[1] == 3


def test_a_folder_that_cannot_be_written_does_no_harm(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert model_cache.kept("k", lambda: artifact) == artifact
    assert model_cache.usage()[1] == 0


@pytest.mark.slow
def test_the_command_line_writes_the_same_files(tmp_path: Path) -> None:
    def compiled(folder: str, *words: str) -> dict[str, bytes]:
        args = [sys.executable, "-m", "aot", "compile", str(MODEL), "-o", str(tmp_path / folder), *words]
        subprocess.run(args, check=True, capture_output=True, env={**os.environ, "AOT_CACHE": str(tmp_path / "cache")})
        return {p.name: p.read_bytes() for p in sorted((tmp_path / folder).rglob("*")) if p.is_file()}

    without = compiled("none", "--no-cache")
    assert not (tmp_path / "cache" / "models").exists() or not any((tmp_path / "cache" / "models").iterdir())
    cold, warm = compiled("cold"), compiled("warm")
    assert len(list((tmp_path / "cache" / "models").iterdir())) == 1
    assert without == cold == warm
