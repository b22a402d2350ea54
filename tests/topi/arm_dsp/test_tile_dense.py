"""Kernels with one byte a weight against the operators' meaning, in the TIR interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from aot.executor.candidates import group_of
from aot.ir.type import TensorType
from aot.op.nn.dense import DenseAttrs
from aot.op.qnn.quantize import RequantizeAttrs
from aot.relay.expr import Function, Var, call, const
from aot.target.target import find_target
from aot.topi.strategy import OpImplementation, implementations
from tests.scale import cases
from tests.topi.layers import Layer, build, check


def impl(anchor: str, name: str) -> OpImplementation:
    return next(i for i in implementations(anchor) if i.name == name)


DENSE = [
    Layer("dense", (1, 16), (8, 16)),
    Layer("dense", (1, 37), (7, 37), rounding="single", per_channel=False),
    Layer("dense", (2, 3), (5, 3), out_zp=7, per_channel=False),
    Layer("dense", (1, 1), (1, 1), rounding="single", out_zp=127),
    Layer("dense", (3, 44), (9, 44), rounding="single", out_zp=-3, clip=(-90, 80)),
    Layer("dense", (1, 640), (4, 640), out_zp=3),
    Layer("dense", (1, 900), (3, 900), rounding="single"),
    Layer("dense", (1, 580), (2, 580), rounding="single", per_channel=False),
]


@pytest.mark.parametrize("common", ["", "_common", "_apart"])
@pytest.mark.parametrize("layer", DENSE)
def test_dense_equals_meaning(layer: Layer, common: str) -> None:
    assert check(impl("nn.dense", f"arm_dsp.dense_w8{common}"), layer, find_target("cortex-m4")) >= min(2, layer.weight[0])


def test_matrix_apart_does_not_depend_on_the_zero_point() -> None:
    """Layers of one matrix whose biases differ have it in one array."""
    apart = impl("nn.dense", "arm_dsp.dense_w8_apart")
    layers = [Layer("dense", (1, 37), (7, 37), seed=2), Layer("dense", (1, 37), (7, 37), seed=2, spread=90.0)]
    low = [apart.lower(group_of(build(layer)), find_target("cortex-m4"), "kernel").constants for layer in layers]
    np.testing.assert_array_equal(low[0]["matrix"], low[1]["matrix"])
    assert (low[0]["params"] != low[1]["params"]).any()


SEGMENTS = [
    (Layer("dense", (1, 1300), (5, 1300)), 2),
    (Layer("dense", (2, 1301), (4, 1301), rounding="single", per_channel=False), 2),
    (Layer("dense", (1, 1303), (3, 1303), out_zp=7, ends=True), 3),
]


@pytest.mark.parametrize(("layer", "segments"), SEGMENTS)
def test_wide_sums_come_in_segments(layer: Layer, segments: int) -> None:
    """Where the sums leave 2^23, and only there."""
    wide, target = impl("nn.dense", "arm_dsp.dense_w8_segments"), find_target("cortex-m4")
    assert not impl("nn.dense", "arm_dsp.dense_w8").accepts(group_of(build(layer)), target)
    assert check(wide, layer, target) >= 2
    kernel = wide.lower(group_of(build(layer)), target, "kernel").func.attrs.kernel
    assert f"segments={segments}" in kernel
    assert not wide.accepts(group_of(build(Layer("dense", (1, 900), (3, 900)))), target)


DIRECT = [
    Layer("dense", (1, 16), (16, 16)),
    Layer("dense", (3, 7), (13, 7), rounding="single", out_zp=-3, per_channel=False),
    Layer("dense", (1, 52), (18, 52), rounding="single", clip=(-90, 80)),
    Layer("dense", (2, 101), (15, 101), out_zp=7),
    Layer("dense", (1, 24), (13, 24), out_zp=3, ends=True),
]


@pytest.mark.parametrize("layer", DIRECT)
def test_dense_without_scratch_equals_meaning(layer: Layer) -> None:
    """All numbers of quads: one loop, none, two; whole rows and those with a rest."""
    direct = impl("nn.dense", "arm_dsp.dense_w8_direct")
    assert check(direct, layer, find_target("cortex-m4")) >= 2
    assert not direct.lower(group_of(build(layer)), find_target("cortex-m4"), "kernel").func.scratch


def test_dense_without_scratch_takes_what_packing_would_pay_for() -> None:
    direct, target = impl("nn.dense", "arm_dsp.dense_w8_direct"), find_target("cortex-m4")
    for shape, taken in (((13, 4), True), ((12, 4), False), ((13, 3), False)):
        assert direct.accepts(group_of(build(Layer("dense", (1, shape[1]), shape))), target) == taken


@pytest.mark.parametrize("layer", [x for x in DENSE if x.weight[1] >= 4])
def test_few_channels_without_scratch(layer: Layer) -> None:
    few, target = impl("nn.dense", "arm_dsp.dense_w8_direct_few"), find_target("cortex-m4")
    assert check(few, layer, target) >= 2
    assert not few.lower(group_of(build(layer)), target, "kernel").func.scratch


def test_pointwise_of_one_pixel() -> None:
    layer = Layer("conv", (1, 1, 1, 30), (17, 1, 1, 30), out_zp=4)
    for name in ("arm_dsp.dense_w8", "arm_dsp.dense_w8_direct"):
        assert check(impl("nn.conv2d", name), layer, find_target("cortex-m4")) > 10


def test_weights_outside_of_the_range_are_refused() -> None:
    """-128 as the second weight of a pair would need 17 bits."""
    target = find_target("cortex-m4")
    for lowest, taken in ((-127, True), (-128, False)):
        weights = const(np.array([[1, lowest, 3, 4]], np.int8))
        acc = call("nn.dense", [Var("x", TensorType((1, 4), "int8")), weights], DenseAttrs())
        requant = RequantizeAttrs((1 << 30,), (-8,), 0, -128, 127, "single")
        func = Function((acc.args[0],), call("qnn.requantize", [acc], requant), {"Primitive": 1})  # type: ignore[arg-type]
        assert impl("nn.dense", "arm_dsp.dense_w8").accepts(group_of(func), target) == taken


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(cases(200)))
def test_random_layers(seed: int) -> None:
    """Twenty random layers a seed; where a kernel does not take the layer (accumulators too large), that is fine."""
    rng = np.random.default_rng(seed)
    target = find_target("cortex-m4")
    for case in range(20):
        layer = random_layer(rng, seed * 100 + case)
        anchor = "nn.dense" if layer.kind == "dense" else "nn.conv2d"
        group = group_of(build(layer))
        for kernel in (i for i in implementations(anchor) if "_w8" in i.name and i.accepts(group, target)):
            check(kernel, layer, target)


def random_layer(rng: np.random.Generator, seed: int) -> Layer:
    def pick(*values: int) -> int:
        return int(rng.choice(values))

    out_zp = pick(-128, 127, 0, -7)
    common = {
        "out_zp": out_zp,
        "rounding": ("double", "single")[pick(0, 1)],
        "per_channel": bool(pick(0, 1)),
        "seed": seed,
        "clip": (-128, 127) if pick(0, 1) else (min(out_zp, -100), max(out_zp, 90)),
    }
    depth, channels = pick(1, 2, 3, 4, 5, 7, 8, 12, 17, 33), pick(1, 2, 3, 4, 5, 7, 17)
    if pick(0, 1):
        return Layer("dense", (pick(1, 2, 3), depth), (channels, depth), **common)  # type: ignore[arg-type]
    kernel, dilation = (pick(1, 2, 3), pick(1, 1, 3, 4)), (pick(1, 1, 2), pick(1, 1, 2))
    padding = (pick(0, 1), pick(0, 2), pick(0, 1), pick(0, 1)) if pick(0, 1) else (0, 0, 0, 0)
    height, width = (max(pick(1, 2, 5, 7), (k - 1) * d + 1) for k, d in zip(kernel, dilation, strict=True))
    data, weight = (pick(1, 1, 2), height, width, depth), (channels, *kernel, depth)
    strides = (pick(1, 2, 3), pick(1, 2))
    return Layer("conv", data, weight, strides, padding, dilation, pad_value=pick(-128, 127, 5), **common)  # type: ignore[arg-type]
