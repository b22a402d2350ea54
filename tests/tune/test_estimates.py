"""Estimates against counts, on drawn layers: how far a kernel's author may be off."""

from __future__ import annotations

import os
import shutil
from statistics import median

import pytest

from aot.micro.board import load_board
from aot.target.target import find_target
from aot.tune.measure import measure
from tests.tune.drawn_layers import MOST_MACS, TAILS, Fit, drawn_layers, inputs_of, tail_of

M4 = find_target("cortex-m4")


def test_layers_are_drawn_the_same_each_time() -> None:
    first, again = list(drawn_layers(40)), list(drawn_layers(40))
    assert first == again
    assert len(set(first)) == 40
    assert {layer.kind for layer in first} == {"conv", "dw", "dense"}
    assert first != list(drawn_layers(40, seed=1))
    assert MOST_MACS > 1_000_000
    assert {tail_of(i, seed=0) for i in range(40)} == set(TAILS)


def fits(count: int) -> list[Fit]:
    layers = inputs_of(list(drawn_layers(count)), M4)
    told = {given.workload: (estimates, text) for given, estimates, text in layers}
    found = []
    for i in range(0, len(layers), 6):
        for result in measure([given for given, _, _ in layers[i : i + 6]], load_board("mps2-an386"), M4):
            assert not result.wrong, result
            assert result.count, result
            estimates, text = told[result.workload]
            found.append(Fit(result.kernel, f"{result.workload} {text}", estimates[result.kernel], result.count))
    return found


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("qemu-system-arm") is None or shutil.which("arm-none-eabi-gcc") is None,
    reason="arm-none-eabi-gcc or qemu-system-arm is not installed",
)
def test_estimates_are_near_what_is_counted() -> None:
    """Half of all estimates within 5 %, every one within 25 %: 300 layers with AOT_FULL=1, else 12."""
    found = fits(300 if os.environ.get("AOT_FULL") == "1" else 12)
    assert median(abs(f.error) for f in found) <= 0.05
    assert [f for f in found if abs(f.error) > 0.25] == []
