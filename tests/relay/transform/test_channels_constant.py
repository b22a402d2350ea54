"""remove_constant_channels: each law alone, where it must not apply, and random graphs before and after."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aot.ir.module import IRModule
from aot.ir.op import Op
from aot.ir.transform import PassContext
from aot.ir.type import QuantParams
from aot.op.nn.conv import Conv2DAttrs
from aot.op.qnn.quantize import RequantizeAttrs
from aot.relay.analysis import cost
from aot.relay.expr import Call, Constant, Expr, Function, const, is_call, post_order, tensor_type
from aot.relay.interpreter import evaluate_all
from aot.relay.printer import print_func
from aot.relay.transform import remove_constant_channels
from aot.relay.verify import verify
from tests.relay.channel_nets import SAME3, VALID, QuantNet, assert_same_results, inputs_of, random_net
from tests.relay.toy import ScaleAttrs  # noqa: F401 - registers t.flip


def run(func: Function, *, align: int = 1) -> Function:
    """The function after the pass: well-formed, of the same results, and not to be improved by the same pass."""
    verify(func)
    with PassContext(config={"channels.align": align}):
        new = remove_constant_channels(IRModule({"main": func}))["main"]
        assert isinstance(new, Function)
        assert remove_constant_channels(IRModule({"main": new}))["main"] is new, "not idempotent"
    verify(new)
    assert_same_results(func, new)
    return new


def shapes(func: Function, name: str) -> list[tuple[int, ...]]:
    return [tensor_type(e).shape for e in post_order(func.body) if is_call(e, name)]


def channels(func: Function, name: str) -> list[int]:
    return [s[-1] for s in shapes(func, name)]


def constant_at(net: QuantNet, x: Expr, constants: dict[int, int], outputs: int = 4) -> Call:
    """A 1x1 convolution whose outputs `constants` have that value whatever the input, the others depend on it."""
    w = net.weights(outputs, 1, 1, tensor_type(x).shape[3])
    w[list(constants)] = 0
    bias = np.zeros(outputs, np.int64)
    for channel, value in constants.items():
        bias[channel] = (value - 5) * 512
    acc = net.op("nn.bias_add", net.conv(x, w), const(bias.astype(np.int32)))
    return net.op("qnn.requantize", acc, attrs=RequantizeAttrs((1 << 30,), (-8,), 5, -128, 127, "double"))


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 1, 1, 4]))
def test_random_graphs(seed: int, align: int) -> None:
    func = random_net(seed)
    new = run(func, align=align)
    assert cost(new).macs <= cost(func).macs
    _assert_same_tensors(func, new)


def _assert_same_tensors(func: Function, new: Function) -> None:
    """Every int8 tensor that is left, at the kept channels, as attrs["channels"] promises."""
    kept = new.attrs.get("channels", {})
    for inputs in inputs_of(func, count=1):
        reference, values = evaluate_all(func, inputs)[1], evaluate_all(new, inputs)[1]
        for tensor, value in values.items():
            if value.dtype == np.int8:
                whole = reference[tensor]
                np.testing.assert_array_equal(whole[..., list(kept[tensor])] if tensor in kept else whole, value)


@pytest.mark.slow
@settings(max_examples=3000)
@given(st.integers(0, 2**32 - 1))
def test_many_random_graphs(seed: int) -> None:
    func = random_net(seed)
    _assert_same_tensors(func, run(func))


def test_is_deterministic() -> None:
    texts = {print_func(run(random_net(11))) for _ in range(3)}
    assert len(texts) == 1


# Constant input channels.


def test_constant_channels_fold_into_the_next_bias() -> None:
    net = QuantNet(1)
    x = constant_at(net, net.input(1, 3, 3, 2), {1: -30, 3: 99})
    new = run(net.func(net.finish(net.conv(x, net.weights(5, 2, 2, 4), input_zp=9), bias=[1, 2, 3, 4, 5])))
    assert channels(new, "nn.conv2d") == [2, 5]
    assert channels(new, "nn.bias_add") == [2, 5], "one bias a layer"
    assert new.attrs["channels"] == {1: (0, 2), 2: (0, 2), 3: (0, 2)}


def test_a_layer_without_bias_gets_one() -> None:
    net = QuantNet(2)
    x = constant_at(net, net.input(1, 3, 3, 2), {0: 77})
    new = run(net.func(net.finish(net.conv(x, net.weights(5, 1, 1, 4)))))
    assert channels(new, "nn.bias_add") == [3, 5]


@pytest.mark.parametrize(("pad_value", "left"), [(-30, 3), (-31, 4)])
def test_under_padding_only_the_pad_value_folds(pad_value: int, left: int) -> None:
    net = QuantNet(3)
    x = constant_at(net, net.input(1, 3, 3, 2), {2: -30})
    acc = net.conv(x, net.weights(5, 3, 3, 4), padding=SAME3, pad_value=pad_value)
    assert channels(run(net.func(net.finish(acc))), "nn.conv2d")[0] == left


def test_taps_that_stay_inside_the_image_need_no_pad_value() -> None:
    net = QuantNet(4)
    x = constant_at(net, net.input(1, 3, 3, 2), {2: -30})
    w = net.weights(5, 3, 3, 4)
    w[:, 0, :, 2] = w[:, 2, :, 2] = w[:, :, 0, 2] = w[:, :, 2, 2] = 0
    acc = net.conv(x, w, padding=SAME3, pad_value=0)
    assert channels(run(net.func(net.finish(acc))), "nn.conv2d")[0] == 3


def test_sums_near_32_bits_stay_as_they_are() -> None:
    net = QuantNet(5)
    x = constant_at(net, net.input(1, 1, 1, 1), {0: 127, 1: 127}, outputs=3)
    attrs = Conv2DAttrs((1, 1), VALID, (1, 1), -(2**25), 0)
    acc = net.op("nn.conv2d", x, const(np.full((2, 1, 1, 3), 100, np.int8)), attrs=attrs)
    func = net.func(net.finish(acc))
    assert run(func) is func, "2^25 * 300 leaves 32 bits"


# Passing on.


def test_through_depthwise_pool_clip_table_resize_pad_and_mean() -> None:
    net = QuantNet(6)
    x: Expr = constant_at(net, net.input(1, 4, 4, 2), {1: -30})
    x = net.finish(net.depthwise(x, net.weights(1, 3, 3, 8)), bias=np.arange(8), zp=0)
    x = net.pool("nn.max_pool2d", x, 2)
    x = net.pool("nn.avg_pool2d", net.resize(net.lut(net.clip(x, -99, 99))), 2)
    x = net.mean(net.reshape(x, 1, 1, 1, 8), 1, 2)
    new = run(net.func(net.finish(net.dense(x, net.weights(3, 8)))))
    for name in ("nn.depthwise_conv2d", "nn.max_pool2d", "qnn.lut", "clip", "image.resize_nearest", "nn.avg_pool2d", "mean"):
        assert channels(new, name) == [6], name
    assert cost(new).weight_bytes == 2 * 3 + 9 * 6 + 6 * 3


@pytest.mark.parametrize(("pad_value", "left"), [(-30, 3), (0, 4)])
def test_depthwise_over_the_border(pad_value: int, left: int) -> None:
    net = QuantNet(7)
    x = constant_at(net, net.input(1, 4, 4, 2), {1: -30})
    x = net.finish(net.depthwise(x, np.full((1, 3, 3, 4), 7, np.int8), padding=SAME3, pad_value=pad_value), bias=[4000] * 4)
    new = run(net.func(net.finish(net.conv(x, net.weights(2, 1, 1, 4)))))
    assert channels(new, "nn.depthwise_conv2d") == [left]


@pytest.mark.parametrize(("second", "left"), [({1: -30, 2: 4}, 3), ({0: 3}, 4)])
def test_a_sum_loses_a_channel_if_both_operands_do(second: dict[int, int], left: int) -> None:
    net = QuantNet(8)
    x = net.input(1, 3, 3, 2)
    total = net.add(constant_at(net, x, {1: -30}), constant_at(net, x, second))
    new = run(net.func(net.finish(net.conv(total, net.weights(2, 1, 1, 4)))))
    assert channels(new, "qnn.add") == [left]


def test_a_sum_with_constants_cuts_them() -> None:
    net = QuantNet(9)
    x = constant_at(net, net.input(1, 3, 3, 2), {1: -30})
    total = net.add(net.add(x, const(net.weights(3, 3, 4))), const(np.asarray([[[7]]], np.int8)))
    w = net.weights(2, 1, 1, 4)
    w[..., 1] = 0
    new = run(net.func(net.finish(net.conv(total, w))))
    assert channels(new, "qnn.add") == [3, 3]
    assert [e.type.shape for e in post_order(new.body) if isinstance(e, Constant) and e.type.shape[:1] == (3,)][-1] == (3, 3, 3)


def test_a_sum_with_one_channel_for_all_keeps_it() -> None:
    net = QuantNet(10)
    x = net.input(1, 3, 3, 2)
    total = net.add(constant_at(net, x, {1: -30}), net.finish(net.conv(x, net.weights(1, 1, 1, 2))))
    w = net.weights(2, 1, 1, 4)
    w[..., 1] = 0
    new = run(net.func(net.finish(net.conv(total, w))))
    assert channels(new, "nn.conv2d") == [3, 1, 2]


def test_concatenation_maps_channels_and_drops_empty_operands() -> None:
    net = QuantNet(11)
    x = net.input(1, 3, 3, 2)
    parts = [constant_at(net, x, {1: -30, 3: 2}), constant_at(net, x, {0: 1, 1: 2, 2: 3, 3: 4}), constant_at(net, x, {0: 9})]
    joined = net.concat(*parts, const(net.weights(1, 3, 3, 2)))
    w = net.weights(5, 1, 1, 14)
    w[..., 13] = 0
    new = run(net.func(net.finish(net.conv(joined, w))))
    assert channels(new, "nn.conv2d") == [2, 3, 5], "the second branch is gone"
    assert channels(new, "concatenate") == [2 + 3 + 1]
    assert new.attrs["channels"][joined.span.tensor] == (0, 2, 9, 10, 11, 12)


def test_concatenation_along_another_axis_keeps_what_any_operand_needs() -> None:
    net = QuantNet(12)
    x = net.input(1, 3, 3, 2)
    joined = net.concat(constant_at(net, x, {1: -30, 3: 2}), constant_at(net, x, {1: -30, 2: 2}), axis=1)
    new = run(net.func(net.finish(net.conv(joined, net.weights(5, 1, 1, 4)))))
    assert shapes(new, "concatenate") == [(1, 6, 3, 3)]


def test_flattening_maps_channels_to_every_position() -> None:
    net = QuantNet(13)
    x = constant_at(net, net.input(2, 3, 2, 2), {1: -30})
    new = run(net.func(net.finish(net.dense(net.reshape(x, 2, 24), net.weights(3, 24), input_zp=4))))
    assert shapes(new, "reshape") == [(2, 18)]
    assert new.attrs["channels"][4] == tuple(i for i in range(24) if i % 4 != 1)


def test_a_reshape_that_splits_channels_keeps_them() -> None:
    net = QuantNet(14)
    x = constant_at(net, net.input(1, 2, 2, 2), {1: -30})
    new = run(net.func(net.finish(net.dense(net.reshape(x, 8, 2), net.weights(3, 2)))))
    assert channels(new, "nn.conv2d") == [4]


def test_channels_of_padding_go_too() -> None:
    net = QuantNet(15)
    x = constant_at(net, net.input(1, 2, 2, 2), {1: -30})
    wide = net.pad(x, (0, 0), (0, 0), (0, 0), (2, 3), value=11)
    w = net.weights(3, 1, 1, 9)
    new = run(net.func(net.finish(net.conv(wide, w)), net.add(wide, wide)))
    assert channels(new, "nn.pad") == [9], "a result needs all of them"
    new = run(net.func(net.finish(net.conv(wide, w))))
    assert channels(new, "nn.pad") == [3], "a constant folds, wherever it comes from"


# Channels that nobody reads.


def test_unread_channels_are_not_computed() -> None:
    net = QuantNet(16)
    first = net.finish(net.conv(net.input(1, 3, 3, 2), net.weights(6, 3, 3, 2), padding=SAME3))
    w = net.weights(4, 3, 3, 6)
    w[..., [0, 4]] = 0
    new = run(net.func(net.finish(net.conv(first, w, padding=SAME3, pad_value=3))))
    assert channels(new, "nn.conv2d") == [4, 4]


def test_reading_for_unread_outputs_does_not_count() -> None:
    net = QuantNet(17)
    first = net.finish(net.conv(net.input(1, 3, 3, 2), net.weights(4, 1, 1, 2)))
    w = np.zeros((2, 1, 1, 4), np.int8)
    w[0, ..., :2], w[1, ..., 2:] = 5, 5
    last = net.weights(3, 1, 1, 2)
    last[..., 1] = 0
    new = run(net.func(net.finish(net.conv(net.finish(net.conv(first, w)), last))))
    assert channels(new, "nn.conv2d") == [2, 1, 3]


def test_every_reader_counts() -> None:
    net = QuantNet(18)
    x = constant_at(net, net.input(1, 3, 3, 2), {1: -30, 2: 8})
    w = net.weights(3, 1, 1, 4)
    pooled = net.pool("nn.max_pool2d", net.pad(x, (0, 0), (1, 0), (0, 0), (0, 0), value=8), 2)
    new = run(net.func(net.finish(net.conv(x, w)), net.finish(net.conv(pooled, w))))
    assert channels(new, "nn.conv2d")[0] == 3, "channel 1 is not constant for the second reader"


def test_a_single_input_channel_frees_depthwise_outputs() -> None:
    net = QuantNet(19)
    x = net.finish(net.depthwise(net.input(1, 4, 4, 1), net.weights(1, 3, 3, 5), padding=SAME3))
    w = net.weights(3, 1, 1, 5)
    w[..., [0, 3]] = 0
    new = run(net.func(net.finish(net.conv(x, w))))
    assert channels(new, "nn.depthwise_conv2d") == [3]


def test_several_outputs_of_a_channel_stay_together() -> None:
    net = QuantNet(20)
    x = net.finish(net.depthwise(net.input(1, 4, 4, 2), net.weights(1, 3, 3, 6), padding=SAME3))
    w = net.weights(3, 1, 1, 6)
    w[..., [0, 3]] = 0
    assert channels(run(net.func(net.finish(net.conv(x, w)))), "nn.depthwise_conv2d") == [6]


# What stays.


def test_results_keep_all_channels() -> None:
    net = QuantNet(21)
    x = constant_at(net, net.input(1, 3, 3, 2), {1: -30})
    func = net.func(x, net.finish(net.conv(x, net.weights(2, 1, 1, 4))))
    assert run(func) is func


def test_at_least_one_channel_stays() -> None:
    net = QuantNet(22)
    x = constant_at(net, net.input(1, 3, 3, 2), {0: 1, 1: 2, 2: 3, 3: 4})
    new = run(net.func(net.finish(net.conv(x, net.weights(2, 1, 1, 4)), bias=[3, 4])))
    assert channels(new, "nn.conv2d") == [1, 2]


def test_unknown_operators_keep_channels() -> None:
    net = QuantNet(23)
    x = net.op("t.flip", constant_at(net, net.input(1, 3, 3, 2), {1: -30}))
    func = net.func(net.finish(net.conv(x, net.weights(2, 1, 1, 4))))
    assert run(func) is func


def test_computed_weights_keep_channels() -> None:
    net = QuantNet(24)
    x = constant_at(net, net.input(1, 3, 3, 2), {1: -30})
    weight = net.input(2, 1, 1, 4)
    func = net.func(net.finish(net.op("nn.conv2d", x, weight, attrs=Conv2DAttrs((1, 1), VALID))))
    assert run(func) is func


@pytest.mark.parametrize(("align", "left"), [(1, 3), (2, 4), (4, 4), (8, 8), (16, 10)])
def test_alignment_keeps_some(align: int, left: int) -> None:
    net = QuantNet(25)
    x = constant_at(net, net.input(1, 3, 3, 2), {c: -30 for c in range(10) if c not in (2, 5, 9)}, outputs=10)
    new = run(net.func(net.finish(net.conv(x, net.weights(16, 1, 1, 10)))), align=align)
    assert channels(new, "nn.conv2d") == [left, 16]


def test_kept_indices_of_two_runs_are_the_models() -> None:
    net = QuantNet(27)
    x = constant_at(net, net.input(1, 3, 3, 2), {c: -30 for c in range(10) if c not in (2, 5, 9)}, outputs=10)
    func = net.func(net.finish(net.conv(x, net.weights(16, 1, 1, 10))))
    first = run(func, align=8)
    assert first.attrs["channels"][3] == (0, 1, 2, 3, 4, 5, 6, 9)
    assert run(first).attrs == run(func).attrs == {"channels": {t: (2, 5, 9) for t in (1, 2, 3)}}


def test_spans_and_weight_parameters_stay_with_their_channels() -> None:
    net = QuantNet(26)
    w = net.weights(4, 1, 1, 2)
    quant = QuantParams((0.5, 0.25, 0.125, 0.75), (0, 0, 0, 0), 0)
    acc = net.op("nn.conv2d", net.input(1, 2, 2, 2), const(w, quant=quant), attrs=Conv2DAttrs((1, 1), VALID))
    last = net.weights(2, 1, 1, 4)
    last[..., 1] = 0
    func = net.func(net.finish(net.conv(net.finish(acc), last)))
    new = run(func)
    first = next(e for e in post_order(new.body) if is_call(e, "nn.conv2d"))
    assert isinstance(first, Call)
    assert isinstance(first.op, Op)
    assert first.span == acc.span
    assert tensor_type(first.args[1]).quant == QuantParams((0.5, 0.125, 0.75), (0, 0, 0), 0)
