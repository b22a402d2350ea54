"""Kernels with one byte a weight against the operators' meaning, in the TIR interpreter and on an emulated core."""

from __future__ import annotations

import pytest

from aot.op.impl import Impl, implementations
from aot.target.target import find_target
from tests.topi.layers import Layer, check


def impl(anchor: str, name: str) -> Impl:
    return next(i for i in implementations(anchor) if i.name == name)


DENSE = [
    Layer("dense", (1, 16), (8, 16)),
    Layer("dense", (1, 37), (7, 37), rounding="single", per_channel=False),
    Layer("dense", (2, 3), (5, 3), out_zp=7, per_channel=False),
    Layer("dense", (1, 1), (1, 1), rounding="single", out_zp=127),
    Layer("dense", (3, 44), (9, 44), rounding="single", out_zp=-3, clip=(-90, 80)),
    Layer("dense", (1, 640), (4, 640), out_zp=3),
    Layer("dense", (1, 900), (3, 900), rounding="single"),
]


@pytest.mark.parametrize("layer", DENSE)
def test_dense_equals_meaning(layer: Layer) -> None:
    assert check(impl("nn.dense", "arm_dsp.dense_w8"), layer, find_target("cortex-m4")) >= min(2, layer.weight[0])


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


@pytest.mark.parametrize("layer", CONV)
def test_conv_equals_meaning(layer: Layer) -> None:
    assert check(impl("nn.conv2d", "arm_dsp.conv2d_w8"), layer, find_target("cortex-m4")) > 10


def test_pointwise_of_one_pixel() -> None:
    layer = Layer("conv", (1, 1, 1, 30), (17, 1, 1, 30), out_zp=4)
    assert check(impl("nn.conv2d", "arm_dsp.dense_w8"), layer, find_target("cortex-m4")) > 10
