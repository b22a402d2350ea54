"""Facts on disk: found again, never wrong, and the same C with them as without."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from aot.driver.build import build
from aot.driver.options import Options
from aot.system import disk_memo
from aot.system.disk_memo import recall, remembering
from tests.models.golden import FOLDER

MODELS = sorted(FOLDER.glob("*.tflite"))


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOT_CACHE", str(tmp_path / "cache"))


def ask(n: int, compute: Callable[[], list[int]]) -> list[int]:
    def unpack(data: Any) -> list[int] | None:
        return data if data[0] == n else None

    return recall("squares", lambda: str(n).encode(), compute, pack=lambda x: x, unpack=unpack)


def never() -> list[int]:
    raise AssertionError("computed, though the fact is there")


def one_file() -> Path:
    (path,) = disk_memo.usage()[0].iterdir()
    return path


def test_a_fact_is_found_again() -> None:
    with remembering():
        assert ask(3, lambda: [3, 9]) == [3, 9]
        assert ask(3, never) == [3, 9]
    with remembering():
        assert ask(3, never) == [3, 9]
        assert recall("cubes", lambda: b"3", lambda: 27, pack=int, unpack=int) == 27  # of another kind
    assert ask(3, lambda: [3, 0]) == [3, 0]  # nothing is remembered out of the block
    mode = one_file().stat()
    assert stat.S_IMODE(mode.st_mode) == 0o600
    assert stat.S_IMODE(disk_memo.usage()[0].stat().st_mode) == 0o700


@pytest.mark.parametrize("damage", ["cut", "flip", "noise", "other", "empty"])
def test_what_is_damaged_is_no_fact(damage: str) -> None:
    with remembering():
        ask(3, lambda: [3, 9])
    path = one_file()
    data = path.read_bytes()
    places = {
        "cut": data[:-4],
        "flip": data.replace(b"9", b"8"),
        "noise": os.urandom(500),
        "other": data.replace(b"[3,9]", b"[4,16]"),
        "empty": b"",
    }
    path.write_bytes(places[damage])
    with remembering():
        assert ask(3, lambda: [3, 9]) == [3, 9]
    with remembering():
        assert ask(3, never) == [3, 9]


def test_a_fact_that_cannot_be_one_is_found_anew() -> None:
    with remembering():
        recall("squares", lambda: b"5", lambda: [4, 16], pack=lambda x: x, unpack=lambda x: x)
    with remembering():
        assert ask(5, lambda: [5, 25]) == [5, 25]


def test_processes_may_share_it() -> None:
    def work(k: int) -> None:
        for n in range(k, k + 20):
            with remembering():
                assert ask(n, lambda n=n: [n, n * n]) == [n, n * n]  # type: ignore[misc]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(40)))
    with remembering():
        for n in range(59):
            assert ask(n, never) == [n, n * n]


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_memo, "LIMIT", 2000)
    for n in range(100):
        with remembering():
            ask(n, lambda n=n: [n, *range(50)])  # type: ignore[misc]
    assert disk_memo.usage()[1] < 2000 + 500
    for k in range(5):
        (disk_memo.usage()[0] / f"old{k}").write_bytes(b"x" * k)
    with remembering():
        ask(1000, lambda: [1000])
    assert len(list(disk_memo.usage()[0].iterdir())) == disk_memo.VERSIONS


def same_with_and_without(model: Path) -> None:
    for opt in ("balanced", "ram"):
        options = Options(opt=opt)
        plain = build(model, options=options)
        for _ in range(2):
            with remembering():
                assert build(model, options=options) == plain


@pytest.mark.parametrize("name", ["graph_branches", "add"])
def test_the_same_c_with_and_without(name: str) -> None:
    same_with_and_without(next(m for m in MODELS if m.stem.startswith(name)))


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.stem)
def test_the_same_c_of_every_model(model: Path) -> None:
    same_with_and_without(model)
