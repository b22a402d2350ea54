"""The intervals of channels: sound on random graphs, exact for single layers."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aot.op.qnn.arithmetic import AddAttrs
from aot.op.qnn.quantize import RequantizeAttrs
from aot.relay.expr import Expr, Function, const, post_order, tensor_type
from aot.relay.interpreter import evaluate, evaluate_all
from aot.relay.transform.channels import Interval, channel_intervals
from tests.relay.channel_nets import SAME3, QuantNet, inputs_of, random_net
from tests.relay.toy import Net


def interval(func: Function, expr: Expr | None = None) -> Interval:
    return channel_intervals(func)[id(expr if expr is not None else func.body)]


def ends(found: Interval) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in zip(found.lo, found.hi, strict=True)]


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_every_value_lies_in_its_interval(seed: int) -> None:
    func = random_net(seed)
    found = channel_intervals(func)
    for inputs in inputs_of(func, seed=seed):
        values = evaluate_all(func, inputs)[1]
        for expr in post_order(func.body):
            if expr.span.tensor in values and id(expr) in found:
                rows = values[expr.span.tensor].reshape(-1, tensor_type(expr).shape[-1])
                assert (rows >= found[id(expr)].lo).all(), expr
                assert (rows <= found[id(expr)].hi).all(), expr


def test_ends_of_a_convolution_are_reached() -> None:
    net = QuantNet(1)
    w = net.weights(3, 2, 2, 2)
    func = net.func(net.finish(net.conv(net.input(1, 2, 2, 2), w, input_zp=7), bias=[100, -5, 0]))
    for channel, (lo, hi) in enumerate(ends(interval(func))):
        for wanted, sign in ((lo, -1), (hi, 1)):
            image = np.where(sign * w[channel].astype(int) > 0, 127, -128).astype(np.int8)[None]
            assert evaluate(func, [image])[0][0, 0, 0, channel] == wanted


@pytest.mark.parametrize("pad_value", [-128, 0, 127])
def test_padding_takes_part_where_a_tap_can_leave_the_image(pad_value: int) -> None:
    net = QuantNet(2)
    w = np.zeros((2, 3, 3, 1), np.int8)
    w[0, 1, 1], w[1, 0, 2] = 1, 1
    x = net.clip(net.input(1, 4, 4, 1), 5, 5)
    found = interval(net.func(net.conv(x, w, padding=SAME3, pad_value=pad_value)))
    assert ends(found) == [(5, 5), (min(5, pad_value), max(5, pad_value))]


def test_taps_that_only_see_padding() -> None:
    net = QuantNet(3)
    w = np.zeros((2, 3, 3, 1), np.int8)
    w[0, 0, 1], w[1, 1, 1] = 3, 3
    found = interval(net.func(net.conv(net.input(1, 1, 1, 1), w, padding=SAME3, pad_value=-7)))
    assert ends(found) == [(-21, -21), (-384, 381)]


def test_depthwise_follows_its_multiplier() -> None:
    net = QuantNet(4)
    x = net.clip(net.input(1, 2, 2, 2), -1, 2)
    w = np.asarray([1, -1, 2, 0], np.int8).reshape(1, 1, 1, 4)
    assert ends(interval(net.func(net.depthwise(x, w)))) == [(-1, 2), (-2, 1), (-2, 4), (0, 0)]


def test_add_by_all_pairs() -> None:
    net = QuantNet(5)
    a, b = net.clip(net.input(1, 1), -20, 13), net.clip(net.input(1, 1), 100, 127)
    func = net.func(net.add(a, b))
    pairs = product(range(-20, 14), (100, 127))
    seen = [int(evaluate(func, [np.full((1, 1), v, np.int8) for v in pair])[0][0, 0]) for pair in pairs]
    assert ends(interval(func)) == [(min(seen), max(seen))]


def test_table_is_tried_code_by_code() -> None:
    net = QuantNet(6)
    func = net.func(net.lut(net.clip(net.input(1, 3), -40, 90)))
    codes = np.arange(-40, 91).astype(np.int8)
    values = [int(evaluate(func, [np.full((1, 3), c)])[0][0, 0]) for c in codes]
    assert ends(interval(func)) == [(min(values), max(values))] * 3
    assert values[0] > min(values), "the table is not monotone, its ends are not the interval's"


def test_movement_of_data() -> None:
    net = QuantNet(7)
    x = net.input(1, 2, 2, 3)
    constant = const(np.arange(12, dtype=np.int8).reshape(1, 2, 2, 3))
    joined = net.concat(net.clip(x, -3, 4), constant)
    wide = net.pad(joined, (0, 0), (0, 0), (0, 0), (1, 1), value=-9)
    flat = net.reshape(wide, 1, 32)
    halves = net.reshape(wide, 8, 4)
    bordered = net.pad(joined, (0, 0), (1, 0), (0, 0), (0, 0), value=0)
    func = net.func(flat, halves, bordered)
    body = ends(interval(func, joined))
    assert body == [(-3, 4)] * 3 + [(0, 9), (1, 10), (2, 11)]
    assert ends(interval(func, wide)) == [(-9, -9), *body, (-9, -9)]
    assert ends(interval(func, flat)) == 4 * [(-9, -9), *body, (-9, -9)]
    assert ends(interval(func, halves))[0] == (-9, 9), "channels 0 and 4 meet"
    assert ends(interval(func, bordered)) == [(-3, 4)] * 3 + [(0, 9), (0, 10), (0, 11)]


def test_sums_that_could_wrap_are_unknown() -> None:
    net = QuantNet(8)
    acc = net.conv(net.input(1, 1, 1, 1), np.full((1, 1, 1, 1), 127, np.int8))
    func = net.func(net.op("nn.bias_add", acc, const(np.asarray([2**31 - 100], np.int32))))
    assert ends(interval(func)) == [(-(2**31), 2**31 - 1)]


def test_mean_ends() -> None:
    net = QuantNet(9)
    func = net.func(net.mean(net.clip(net.input(1, 3, 3, 2), -50, 60), 1, 2))
    reached = [int(evaluate(func, [np.full((1, 3, 3, 2), v, np.int8)])[0][0, 0]) for v in (-50, 60)]
    assert ends(interval(func)) == [tuple(reached)] * 2


def test_unknown_operators_know_nothing() -> None:
    net = Net()
    func = net.func(net.op("neg", net.var(2)))
    assert ends(interval(func)) == [(-128, 127)] * 2


def test_left_shifts_that_wrap_are_unknown() -> None:
    net = QuantNet(10)
    data = net.clip(net.input(1, 1), 3, 4)
    attrs = RequantizeAttrs((1 << 30,), (30,), 0, -100, 101, "double")
    acc = net.dense(data, np.ones((1, 1), np.int8))
    assert ends(interval(net.func(net.op("qnn.requantize", acc, attrs=attrs)))) == [(-100, 101)], "4 << 30 wraps to 0"
    added = net.op("qnn.add", data, data, attrs=AddAttrs((0, 0), (1 << 30, 1 << 30), (12, 0), 1 << 30, 0, 0, -128, 127))
    assert ends(interval(net.func(added))) == [(-128, 127)]
