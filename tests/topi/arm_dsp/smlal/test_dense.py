"""Fully connected layers by SMLAL (Cortex-M3) against the operators' meaning, in the interpreter; test_drawn.py has the board."""

from __future__ import annotations

import pytest

from aot.executor.candidates import group_of
from aot.target.target import find_target
from aot.topi.strategy import implementations
from tests.topi.layers import Layer, build, check

CHAIN = next(i for i in implementations("nn.dense") if i.name == "arm_dsp.dense_chain")
M3 = find_target("cortex-m3")


@pytest.mark.parametrize(("depth", "channels"), [(1, 1), (2, 4), (31, 5), (33, 6), (64, 3)])
def test_kernel_equals_meaning(depth: int, channels: int) -> None:
    """Odd depths, a loop and a rest, blocks of channels that are not whole."""
    for rounding in ("double", "single"):
        assert check(CHAIN, Layer("dense", (2, depth), (channels, depth), rounding=rounding, seed=depth), M3) >= 1


def test_the_lanes_bound_the_sums() -> None:
    """258 weights of 127 may fill the low lane, 300 leave it; cores with DSP have better kernels."""
    fits = Layer("dense", (1, 258), (4, 258), ends=True)
    assert CHAIN.accepts(group_of(build(fits)), M3)
    assert check(CHAIN, fits, M3) >= 1
    assert not CHAIN.accepts(group_of(build(Layer("dense", (1, 300), (4, 300), ends=True))), M3)
    assert not CHAIN.accepts(group_of(build(fits)), find_target("cortex-m4"))
