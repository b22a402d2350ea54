"""Convolutions with one byte a weight against the operators' meaning, in the TIR interpreter."""

from __future__ import annotations

from math import prod

import pytest

from aot.executor.candidates import group_of
from aot.target.target import find_target
from tests.topi.arm_dsp.test_tile_dense import impl
from tests.topi.layers import Layer, build, check

CONV = [
    Layer("conv", (1, 3, 3, 8), (8, 1, 1, 8), out_zp=5),
    Layer("conv", (1, 1, 4, 3), (5, 1, 1, 3), per_channel=False, out_zp=-20),
    Layer("conv", (1, 6, 7, 5), (7, 3, 3, 5), padding=(1, 1, 1, 1)),
    Layer("conv", (2, 9, 7, 4), (4, 3, 2, 4), strides=(2, 1), padding=(0, 0, 1, 1), dilation=(2, 2), pad_value=3, out_zp=5),
    Layer("conv", (1, 9, 7, 4), (2, 3, 2, 4), strides=(2, 1), pad_value=127, out_zp=127),
    Layer("conv", (1, 8, 9, 1), (3, 3, 3, 1), padding=(1, 2, 2, 1), strides=(2, 3), pad_value=9),
    Layer("conv", (1, 12, 2, 6), (1, 3, 3, 6), padding=(1, 1, 1, 1), pad_value=-1, out_zp=1),
    Layer("conv", (1, 2, 3, 70), (6, 1, 1, 70), out_zp=0),
    Layer("conv", (1, 5, 2, 44), (33, 1, 1, 44), strides=(2, 1), rounding="single"),
]


@pytest.mark.parametrize("common", ["", "_common"])
@pytest.mark.parametrize("layer", CONV)
def test_conv_equals_meaning(layer: Layer, common: str) -> None:
    assert check(impl("nn.conv2d", f"arm_dsp.conv2d_w8{common}"), layer, find_target("cortex-m4")) > 10


@pytest.mark.parametrize("layer", [*CONV, Layer("conv", (1, 5, 7, 8), (6, 3, 3, 8), padding=(1, 1, 1, 1), pad_value=3)])
def test_conv_from_bytes_equals_meaning(layer: Layer) -> None:
    """Windows copied as bytes, and as words where the depth allows it; at most a byte of scratch memory a tap."""
    direct, target, taps = impl("nn.conv2d", "arm_dsp.conv2d_w8_direct"), find_target("cortex-m4"), prod(layer.weight[1:])
    group = group_of(build(layer))
    assert direct.accepts(group, target) == (taps >= 4)
    if taps >= 4:
        assert check(direct, layer, target) > 10
        assert sum(b.nbytes for b in direct.lower(group, target, "kernel").func.scratch) in (0, taps)
