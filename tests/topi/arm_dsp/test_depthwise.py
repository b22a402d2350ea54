"""Depthwise convolution by channel planes against the operator's meaning, in the TIR interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot.executor.candidates import LoweringCache, candidates, group_of
from aot.executor.config import History, SelectionConfig
from aot.relay.analysis import workload_key
from aot.relay.expr import Call, Function, call
from aot.relay.interpreter import evaluate
from aot.target.target import find_target
from aot.tir.analysis import safe_distances
from aot.topi.strategy import OpImplementation, implementations
from aot.tune.task import choices_of
from tests.topi.layers import Layer, build, check, data_for, interpret

IMPLS = {i.name: i for i in implementations("nn.depthwise_conv2d")}
DEPTHWISE, PACKED, COMMON, PAIRS = (IMPLS[f"arm_dsp.depthwise{kind}"] for kind in ("", "_w8", "_common", "_pairs"))
RESIDENT = IMPLS["arm_dsp.depthwise_3x3_common"]
BANDS, TURNED = IMPLS["arm_dsp.depthwise_bands"], IMPLS["arm_dsp.depthwise_turned"]


def dw(data: tuple[int, int, int], kernel: tuple[int, int], *, multiplier: int = 1, batch: int = 1, **rest: object) -> Layer:
    height, width, channels = data
    weight = (1, *kernel, channels * multiplier)
    return Layer("dw", (batch, height, width, channels), weight, multiplier=multiplier, **rest)  # type: ignore[arg-type]


SAME = (1, 1, 1, 1)
CASES = [
    dw((6, 6, 3), (3, 3), padding=SAME),
    dw((7, 5, 4), (3, 3), padding=SAME),
    dw((5, 19, 2), (3, 3), padding=(0, 1, 0, 1), pad_value=3),
    dw((5, 37, 1), (3, 3), padding=SAME, out_zp=5),
    dw((4, 6, 33), (3, 3), out_zp=127, per_channel=False),
    dw((6, 6, 5), (3, 3), strides=(2, 2), padding=(0, 0, 1, 1)),
    dw((9, 7, 3), (3, 3), strides=(2, 1), padding=SAME, out_zp=-7, clip=(-100, 90)),
    dw((9, 11, 2), (3, 3), strides=(3, 3), padding=(2, 0, 0, 2)),
    dw((1, 1, 7), (3, 3), padding=SAME),
    dw((2, 2, 1), (2, 2), padding=(0, 0, 1, 1), pad_value=127),
    dw((7, 9, 3), (5, 5), padding=(2, 2, 2, 2)),
    dw((8, 8, 2), (7, 7), padding=(3, 3, 3, 3), strides=(2, 2), clip=(-128, 100)),
    dw((8, 9, 2), (7, 7), padding=(3, 3, 3, 3), out_zp=0),
    dw((20, 1, 5), (3, 1), out_zp=-3),
    dw((24, 1, 3), (10, 1), out_zp=11),
    dw((15, 1, 4), (15, 1), out_zp=-5),
    dw((1, 30, 2), (1, 23), padding=(0, 3, 0, 0)),
    dw((6, 7, 3), (3, 3), multiplier=2, padding=SAME),
    dw((12, 10, 1), (10, 8), multiplier=3, strides=(2, 2), padding=(4, 3, 5, 3)),
    dw((8, 5, 3), (3, 2), dilation=(3, 1), padding=SAME),
    dw((20, 1, 2), (3, 1), dilation=(9, 1), out_zp=-5),
    dw((3, 4, 2), (3, 3), padding=SAME, batch=2),
    dw((5, 4, 3), (1, 1), strides=(2, 2)),
]


@pytest.mark.parametrize("impl", [DEPTHWISE, PACKED, COMMON], ids=lambda i: i.name)
@pytest.mark.parametrize("layer", CASES)
def test_kernel_equals_meaning(layer: Layer, impl: OpImplementation) -> None:
    if impl is COMMON and (layer.multiplier > 1 or layer.data[0] > 1):
        assert not impl.accepts(group_of(build(layer)), find_target("cortex-m4"))
        return
    assert check(impl, layer, find_target("cortex-m4")) > 1


@pytest.mark.parametrize("layer", [x for x in CASES if (x.data[1], x.weight[2]) in ((9, 3), (12, 8), (3, 3))])
def test_bands_equal_meaning(layer: Layer) -> None:
    assert check(BANDS, layer, find_target("cortex-m4")) > 1


@pytest.mark.parametrize("layer", [x for x in CASES if x.data[1] != x.data[2]][:6])
def test_the_other_orientation_equals_meaning(layer: Layer) -> None:
    assert check(TURNED, layer, find_target("cortex-m4")) > 1


def test_the_other_orientation_waits_for_a_count() -> None:
    """It competes where it was measured, and wins where it was measured to be faster."""
    func, m4 = build(dw((6, 19, 8), (3, 3), padding=SAME)), find_target("cortex-m4")
    plain = {c.kernel: c for c in candidates(func, m4, "layer", SelectionConfig(opt="speed"))}
    turned = TURNED.lower(group_of(func), m4, "layer").func.attrs.kernel
    assert turned.startswith("arm_dsp.depthwise_turned(")
    assert turned not in plain
    assert turned in {c.kernel for c in choices_of(func, m4, LoweringCache())}
    counts = tuple((m4.name, workload_key(func) or "", kernel, 900) for kernel in plain)
    history = History((*counts, (m4.name, workload_key(func) or "", turned, 800)))
    found = candidates(func, m4, "layer", SelectionConfig(opt="speed", history=history))
    assert min(found, key=lambda c: c.instructions).kernel == turned


def test_bands_let_the_result_lie_over_the_data() -> None:
    """As in the network for keywords of TFLM, whose only convolution has one channel of data and eight of results."""
    layer = dw((49, 40, 1), (10, 8), multiplier=8, strides=(2, 2), padding=(4, 3, 5, 3))
    func = BANDS.lower(group_of(build(layer)), find_target("cortex-m4"), "kernel").func
    (data,), (out,), (plane,) = func.inputs, func.outputs, func.scratch
    distance = safe_distances(func)[data, out].up
    assert max(out.nbytes, distance + data.nbytes) + plane.nbytes < data.nbytes + out.nbytes


CHAIN = IMPLS["arm_dsp.depthwise_chain"]
SMALL = [layer for layer in CASES if max(layer.weight[1:3]) <= 3 and layer.strides[1] <= 2 and layer.dilation == (1, 1)]


SMALL += [
    dw((7, size, 2), (3, taps), padding=(1, left, 1, right), strides=(1, 2))
    for size in range(4, 30, 5)
    for taps, left, right in ((3, 0, 1), (3, 1, 0), (2, 1, 2), (1, 0, 0), (3, 3, 3))
]  # every beginning and end of a line of groups of four columns, in one turn and in several


@pytest.mark.parametrize("layer", SMALL)
def test_chain_equals_meaning(layer: Layer) -> None:
    assert check(CHAIN, layer, find_target("cortex-m3")) > 1


NARROW = [
    layer
    for layer in CASES
    if layer.weight[2] <= 7 and layer.strides[1] <= 2 and layer.dilation == (1, 1) and layer.multiplier * layer.data[0] == 1
]
NARROW += [
    dw((9, 13, 2), (5, 5), padding=(2, 2, 2, 2), strides=(2, 2)),
    dw((40, 41, 2), (3, 3), padding=SAME),
    dw((50, 62, 1), (4, 6), strides=(3, 2), clip=(-128, 100)),
    dw((5, 6, 2), (2, 2), padding=(0, 0, 1, 1), out_zp=3),
]


@pytest.mark.parametrize("layer", NARROW)
def test_pairs_equal_meaning(layer: Layer) -> None:
    assert check(PAIRS, layer, find_target("cortex-m4")) > 1


@pytest.mark.parametrize("layer", [x for x in NARROW if x.weight[1:3] == (3, 3) and x.strides in ((1, 1), (2, 2))])
def test_3x3_equals_meaning(layer: Layer) -> None:
    assert check(RESIDENT, layer, find_target("cortex-m4")) > 1


@pytest.mark.parametrize("impl", [DEPTHWISE, PACKED, COMMON, CHAIN], ids=lambda i: i.name)
def test_channels_that_shift_left(impl: OpImplementation) -> None:
    """A channel whose scale is above one keeps the layer's kernel."""
    layer = dw((5, 6, 4), (3, 3), padding=SAME)
    func = build(layer)
    requant = func.body
    assert isinstance(requant, Call)
    attrs = replace(requant.attrs, shift=(1, -3, 0, -7))
    func = Function(func.params, call("qnn.requantize", list(requant.args), attrs), func.attrs)
    target = find_target("cortex-m3" if impl is CHAIN else "cortex-m4")
    group = group_of(func)
    assert impl.accepts(group, target)
    x = data_for(layer)
    (expected,) = evaluate(func, [x])
    np.testing.assert_array_equal(interpret(impl.lower(group, target, "kernel"), [x], expected.shape), expected)
