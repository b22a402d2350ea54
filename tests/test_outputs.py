"""Every generated file of every model of ours, as hashes: a change of structure leaves them alone, others say what moves."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.scripts import script

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def outputs() -> ModuleType:
    return script("outputs")


@pytest.mark.slow
def test_generated_files_are_known(outputs: ModuleType, request: pytest.FixtureRequest) -> None:
    """`pytest -m slow tests/test_outputs.py --update-golden` accepts what a change does (about a minute)."""
    now = list(outputs.lines(ROOT, "tests/models/*.tflite"))
    if request.config.getoption("--update-golden"):
        outputs.GOLDEN.write_text("\n".join(now) + "\n", encoding="utf-8")
        return
    found = outputs.differences(outputs.GOLDEN.read_text(encoding="utf-8").splitlines(), now)
    assert not found, "\n".join(found)


def test_differences(outputs: ModuleType) -> None:
    before = ["a m4 opt=size: a.c=1 a.h=2", "b m4: b.c=1", "c m4: refused E1"]
    assert outputs.differences(before, before) == []
    now = ["a m4 opt=size: a.c=1 a.h=3", "c m4: c.c=4", "d m4: d.c=5"]
    assert outputs.differences(before, now) == ["b m4: gone", "a m4 opt=size: a.h", "c m4: E1 c.c refused", "d m4: new"]


def test_cases_cover_every_choice(outputs: ModuleType) -> None:
    models = sorted(p.stem for p in (ROOT / "tests" / "models").glob("*.tflite"))
    cases = list(outputs.cases(models))
    assert len({str(c) for c in cases}) == len(cases)
    assert {c.core for c in cases} == set(outputs.CORES)
    assert {v for c in cases for k, v in c.options if k == "opt"} == set(outputs.OPTS)
    assert {v for c in cases for k, v in c.options if k == "io"} == {"arena", "user"}
    assert {"feed_rows", "pooling", "share_workspace", "oracle", "kernels"} <= {k for c in cases for k, _ in c.options}
