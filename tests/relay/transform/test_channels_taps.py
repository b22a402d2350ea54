"""fold_zero_taps: windows shrink, results stay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aot.ir.module import IRModule
from aot.ir.op import TypeRuleError
from aot.op.nn.conv import Conv2DAttrs, DepthwiseConv2DAttrs
from aot.relay.expr import Call, Function, const, is_call, post_order, tensor_type
from aot.relay.transform import fold_zero_taps
from aot.relay.verify import verify
from tests.relay.channel_nets import SAME3, VALID, QuantNet, assert_same_results


def run(func: Function) -> Function:
    verify(func)
    new = fold_zero_taps(IRModule({"main": func}))["main"]
    assert isinstance(new, Function)
    assert fold_zero_taps(IRModule({"main": new}))["main"] is new, "not idempotent"
    verify(new)
    assert_same_results(func, new)
    return new


def layer(func: Function) -> Call:
    found = [e for e in post_order(func.body) if is_call(e, "nn.conv2d") or is_call(e, "nn.depthwise_conv2d")]
    assert len(found) == 1
    assert isinstance(found[0], Call)
    return found[0]


def window(func: Function) -> tuple[int, ...]:
    return tensor_type(layer(func).args[1]).shape[1:3]


@settings(max_examples=80)
@given(st.data())
def test_random_layers(data: st.DataObject) -> None:
    draw = data.draw
    size = draw(st.tuples(*[st.integers(1, 6)] * 2))
    kernel = draw(st.tuples(*[st.integers(1, 5)] * 2))
    zeros = draw(st.tuples(*[st.integers(0, 3)] * 4))
    padding = draw(st.tuples(*[st.integers(0, 4)] * 4))
    strides, dilation = draw(st.tuples(*[st.integers(1, 3)] * 2)), draw(st.tuples(*[st.integers(1, 2)] * 2))
    zp, pad_value = draw(st.sampled_from([0, -128, 5])), draw(st.sampled_from([0, -128, 9]))
    net = QuantNet(draw(st.integers(0, 999)))
    depthwise = draw(st.booleans())
    w = net.weights(1 if depthwise else 3, *kernel, 4 if depthwise else 2)
    w[:, : zeros[0]] = 0
    w[:, max(kernel[0] - zeros[1], 0) :] = 0
    w[:, :, : zeros[2]] = 0
    w[:, :, max(kernel[1] - zeros[3], 0) :] = 0
    x = net.input(1, *size, 2)
    try:
        if depthwise:
            attrs = DepthwiseConv2DAttrs(strides, padding, dilation, zp, pad_value, 2)
            acc = net.op("nn.depthwise_conv2d", x, const(w), attrs=attrs)
        else:
            acc = net.op("nn.conv2d", x, const(w), attrs=Conv2DAttrs(strides, padding, dilation, zp, pad_value))
    except TypeRuleError:
        assume(False)
    new = run(net.func(acc))
    assert all(a <= b for a, b in zip(window(new), kernel, strict=True))
    if layer(new).attrs.padding != padding:
        reach = [(k - 1) * d + 1 for k, d in zip(window(new), dilation, strict=True)]
        cut = [axis for axis in (0, 1) if window(new)[axis] < kernel[axis]]
        assert all(max(layer(new).attrs.padding[a], layer(new).attrs.padding[a + 2]) < reach[a] for a in cut)


@pytest.mark.parametrize("depthwise", [False, True])
def test_zero_edges_shrink_the_window_and_its_padding(depthwise: bool) -> None:
    net = QuantNet(1)
    w = net.weights(1, 5, 5, 2)
    w[:, [0, 4]] = 0
    w[:, :, 0] = 0
    x = net.input(1, 6, 6, 2)
    acc = (net.depthwise if depthwise else net.conv)(x, w, padding=(2, 2, 2, 2))
    new = run(net.func(net.finish(acc)))
    assert window(new) == (3, 4)
    assert layer(new).attrs.padding == (1, 1, 1, 2)


def test_zero_edges_without_padding_stay() -> None:
    net = QuantNet(2)
    w = net.weights(2, 3, 3, 2)
    w[:, 0] = w[:, 2] = 0
    func = net.func(net.conv(net.input(1, 5, 5, 2), w))
    assert run(func) is func, "the window would begin behind the image's first row"


def test_a_stride_leaves_room_at_the_end() -> None:
    net = QuantNet(3)
    w = net.weights(2, 3, 1, 2)
    w[:, 2] = 0
    for size, padding in ((5, VALID), (4, (0, 0, 1, 0))):
        new = run(net.func(net.conv(net.input(1, size, 5, 2), w, padding=padding, stride=2)))
        assert window(new) == (2, 1)
        assert layer(new).attrs.padding == VALID
    func = net.func(net.conv(net.input(1, 5, 5, 2), w))
    assert run(func) is func, "two taps would fit one row further down"


def test_all_zero_weights_keep_one_tap() -> None:
    net = QuantNet(4)
    new = run(net.func(net.conv(net.input(1, 3, 3, 2), np.zeros((2, 3, 3, 2), np.int8), padding=SAME3)))
    assert min(window(new)) >= 1
    assert window(new) < (3, 3)


def test_taps_outside_the_image_go_into_the_bias() -> None:
    net = QuantNet(5)
    acc = net.conv(net.input(1, 1, 1, 2), net.weights(4, 3, 3, 2), padding=SAME3, pad_value=-100, input_zp=3)
    new = run(net.func(net.finish(acc, bias=[1, 2, 3, 4])))
    assert window(new) == (1, 1)
    assert layer(new).attrs.padding == VALID
    assert [e for e in post_order(new.body) if is_call(e, "nn.bias_add")][1:] == [], "one bias"


def test_rows_can_follow_columns() -> None:
    net = QuantNet(7)
    w = net.weights(2, 2, 2, 1)
    w[:, 0, 0] = 0  # what is left of row 0 once the column outside the image has gone
    new = run(net.func(net.conv(net.input(1, 3, 1, 1), w, padding=(1, 0, 0, 1))))
    assert window(new) == (1, 1)


def test_a_zero_row_of_one_output_channel_only_stays() -> None:
    net = QuantNet(6)
    w = net.weights(2, 3, 3, 2)
    w[0, 0] = 0
    func = net.func(net.conv(net.input(1, 5, 5, 2), w, padding=SAME3))
    assert run(func) is func


def test_sums_near_32_bits_stay_as_they_are() -> None:
    net = QuantNet(8)
    w = np.full((1, 3, 3, 1), 100, np.int8)
    func = net.func(net.conv(net.input(1, 1, 1, 1), w, padding=SAME3, pad_value=0, input_zp=-(2**23)))
    assert run(func) is func, "900 * 2^23 leaves 32 bits"
