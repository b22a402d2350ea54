"""Builds of one model, and which of them no other one beats."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.report.explore import Limits, Point, explore, fastest, nearest, on_boards, pareto

MODELS = Path(__file__).resolve().parents[1] / "models"
A, B, C, D = (Point(w, *f, ()) for w, f in zip("abcd", ((10, 10, 10), (5, 20, 10), (10, 10, 11), (4, 30, 9)), strict=True))


def test_the_front_holds_what_nothing_beats() -> None:
    assert pareto([A, B, C, D]) == [A, B, D]
    assert pareto([A, A]) == [A, A]


def test_limits_choose_the_fastest_or_the_nearest() -> None:
    assert fastest([A, B, C, D], Limits(10, 20)) is A
    assert fastest([A, B, C, D], Limits(5)) is D
    assert fastest([A, B, C, D], Limits(4, 20)) is None
    assert nearest([A, B, C, D], Limits(4, 20), count=2) == [B, D]


def test_points_are_what_a_compilation_gives() -> None:
    """Every mode is there, each figure is that of the compilation, and processes or threads change nothing."""
    data = (MODELS / "max_pool.tflite").read_bytes()
    points = explore(data, Options(), target="cortex-m4", name="m", limits=Limits(), steps=1)
    again = explore(
        data, Options(), target="cortex-m4", name="m", limits=Limits(), steps=1, pool=lambda: ThreadPoolExecutor(2)
    )  # fmt: skip
    assert points == again
    fast = compile_model(data, target="cortex-m4", name="m", options=Options(opt="speed"))
    assert min(p.instructions for p in points) == fast.lowered.estimate
    small = compile_model(data, target="cortex-m4", name="m", options=Options(opt="ram"))
    assert min(p.ram for p in points) <= small.artifact.metadata["workspace"]["size"]
    assert on_boards(points)["mps2-an386"] == points[0]


@pytest.mark.slow
def test_budgets_fill_the_gap_between_the_modes() -> None:
    data = (MODELS / "net_sww.tflite").read_bytes()
    points = explore(data, Options(), target="cortex-m4", name="sww", limits=Limits(ram=6_000), steps=2)
    assert any("--ram-budget" in p.words for p in pareto(points))
    chosen = fastest(points, Limits(ram=6_000))
    assert chosen is not None
    assert chosen.ram <= 6_000
