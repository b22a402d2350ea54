"""Pairs of options that ended in an internal error, or were refused though they go together (found by scripts/pairs.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from aot.cli.__main__ import run
from aot.driver.build import build
from aot.driver.options import Options
from aot.memory.memory_pools import Pooling, parse_pool
from aot.report.measure.inputs import rule_set
from aot.runtime.module import load

ROOT = Path(__file__).parents[3]
MODEL = ROOT / "tests" / "models" / "conv2d_same.tflite"
POOLS = ("--pool", "FAST=64:9", "--pool", "SLOW=1MiB:1")


def test_a_pool_without_an_address_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compile", str(MODEL), *POOLS, "--plan", str(tmp_path / "plan.svg"), "-o", str(tmp_path / "out")]
    assert run(arguments) == 0, capsys.readouterr().err
    assert "SLOW: " in (tmp_path / "plan.svg").read_text(encoding="utf-8")


def test_passes_are_verified_with_an_external_code_generator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library = ROOT / "tests" / "byoc" / "stub"
    words = ["--byoc", "cmsis-nn", "--byoc-path", str(library), "--verify-passes", "-o", str(tmp_path / "out")]
    assert run(["compile", str(MODEL), *words]) == 0, capsys.readouterr().err


@pytest.mark.slow
def test_rows_are_fed_into_several_memories() -> None:
    pooling = Pooling(tuple(map(parse_pool, ("FAST=96:9", "SLOW=64KiB:1"))), (), ())
    fed, plain = (build(MODEL, name="m", options=Options(feed_rows=rows, pooling=pooling)) for rows in (True, False))
    assert [p["name"] for p in fed.metadata["workspace"]["pools"]] == ["FAST", "SLOW"]
    assert fed.metadata["feed"]
    (values,) = rule_set(plain.metadata["inputs"], 0)
    assert [x.tobytes() for x in load(fed).run([values])] == [x.tobytes() for x in load(plain).run([values])]
