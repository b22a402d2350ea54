"""The SMLAL chain kernel against the operators' meaning, in the TIR interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from aot.executor.candidates import group_of
from aot.target.target import find_target
from aot.topi.arm_dsp.smlal import ChainConfig, plan_segments
from aot.topi.strategy import implementations
from tests.topi.layers import Layer, build, check

IMPLS = {i.name: i for i in implementations("nn.conv2d")}
CHAIN = {name: IMPLS[name] for name in ("arm_dsp.conv2d_chain", "arm_dsp.conv2d_chain_common")}
ROWS = IMPLS["arm_dsp.conv2d_chain_rows"]

CASES = [
    Layer("conv", (1, 3, 3, 8), (8, 1, 1, 8), out_zp=5),
    Layer("conv", (1, 1, 4, 3), (5, 1, 1, 3), per_channel=False, out_zp=-20),
    Layer("conv", (1, 6, 7, 5), (7, 3, 3, 5), padding=(1, 1, 1, 1)),
    Layer(
        "conv",
        (2, 9, 7, 4),
        (4, 3, 2, 4),
        strides=(2, 1),
        padding=(0, 0, 1, 1),
        dilation=(2, 2),
        pad_value=3,
        out_zp=5,
        clip=(-100, 127),
    ),
    Layer("conv", (1, 9, 7, 4), (2, 3, 2, 4), strides=(2, 1), pad_value=127, out_zp=127),
    Layer("conv", (1, 20, 22, 6), (4, 3, 3, 6), strides=(3, 3), padding=(1, 1, 1, 1), pad_value=-1, out_zp=1),
    Layer("conv", (1, 2, 3, 70), (6, 1, 1, 70), out_zp=0),
    Layer("conv", (1, 9, 25, 20), (4, 3, 3, 20), strides=(2, 2), padding=(1, 1, 1, 0), pad_value=-7),
    Layer("conv", (2, 5, 6, 3), (5, 3, 3, 3), padding=(1, 1, 1, 1), out_zp=9, spread=2000.0),
]


@pytest.mark.parametrize("cpu", ["cortex-m3", "cortex-m4"])
@pytest.mark.parametrize("name", sorted(CHAIN))
@pytest.mark.parametrize("layer", CASES)
def test_kernel_equals_meaning(layer: Layer, name: str, cpu: str) -> None:
    assert check(CHAIN[name], layer, find_target(cpu)) > 10


@pytest.mark.parametrize("layer", [x for x in CASES if x.weight[1] > 1])
def test_rows_of_the_window_one_by_one(layer: Layer) -> None:
    assert check(ROWS, layer, find_target("cortex-m4")) > 10


def test_rows_take_little_scratch() -> None:
    """The convolution of a network for keywords: 10 rows of 112 taps."""
    group = group_of(build(Layer("conv", (1, 25, 10, 28), (30, 10, 4, 28), strides=(2, 1))))
    whole, rows = (
        sum(b.nbytes for b in k.lower(group, find_target("cortex-m4"), "kernel").func.scratch)
        for k in (CHAIN["arm_dsp.conv2d_chain"], ROWS)
    )
    assert rows < whole // 5


def test_segments_respect_the_lanes() -> None:
    """Weights of full size allow 32 taps a segment; every segment of the plan keeps its sums below 2^20."""
    full = np.full((100, 4), -128)
    plan = plan_segments(full, ChainConfig(common=False))
    assert plan.count * plan.length >= 100
    assert 128 * 2 * 128 * plan.length < 1 << 20
    assert plan_segments(np.full((100, 4), 1), ChainConfig(common=True)).count == 1
