"""canonicalize, one rule at a time, on the product's own operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from aot.ir.span import Span
from aot.ir.type import TensorType
from aot.op import load_all
from aot.op.common.layer import PoolAttrs
from aot.op.nn.conv import Conv2DAttrs, DepthwiseConv2DAttrs
from aot.op.nn.dense import DenseAttrs
from aot.op.qnn.lut import LutAttrs
from aot.op.qnn.quantize import ClipAttrs, Requantize8Attrs, RequantizeAttrs
from aot.op.tensor import ConcatenateAttrs, PadAttrs, ReshapeAttrs, TransposeAttrs
from aot.relay.expr import Call, Constant, Expr, Function, Var, call, const, make_tuple, post_order
from aot.relay.transform.canonicalize import RULES, canonicalize
from tests.relay.check import ops, run

load_all()
RNG = np.random.default_rng(7)
X = (1, 6, 5, 4)


def var(shape: Sequence[int] = X, dtype: str = "int8") -> Var:
    return Var("x", TensorType(tuple(shape), dtype))


def weights(*shape: int) -> Constant:
    return const(RNG.integers(-127, 128, shape).astype(np.int8))


def bias(n: int, scale: int = 1000) -> Constant:
    return const(RNG.integers(-scale, scale, n).astype(np.int32))


def conv(x: Expr, *, zp: int = 0, padding: tuple[int, int, int, int] = (0, 0, 0, 0), pad_value: int | None = None) -> Call:
    attrs = Conv2DAttrs((1, 1), padding, input_zp=zp, pad_value=zp if pad_value is None else pad_value)
    return call("nn.conv2d", [x, weights(3, 3, 3, 4)], attrs)


def depthwise(x: Expr, *, zp: int = 0) -> Call:
    return call("nn.depthwise_conv2d", [x, weights(1, 3, 3, 8)], DepthwiseConv2DAttrs((2, 1), (1, 1, 1, 1), (1, 1), zp, zp, 2))


def requantize(x: Expr, lo: int = -128, hi: int = 127) -> Call:
    return call("qnn.requantize", [x], RequantizeAttrs((1518500250,), (-9,), -3, lo, hi, "double"))


def clip(x: Expr, lo: int, hi: int) -> Call:
    return call("clip", [x], ClipAttrs(lo, hi))


def pad(x: Expr, *widths: tuple[int, int], value: int = 0) -> Call:
    return call("nn.pad", [x], PadAttrs(widths, value))


def border(x: Expr, value: int = 0) -> Call:
    """A row above, two below, a column on the left."""
    return pad(x, (0, 0), (1, 2), (1, 0), (0, 0), value=value)


def canonical(x: Var, body: Expr) -> Function:
    return run(canonicalize, Function((x,), body))


def find(func: Function, name: str) -> Call:
    (found,) = [e for e in post_order(func.body) if isinstance(e, Call) and str(e.op) == name]
    return found


# Zero points.


@pytest.mark.parametrize("layer", [conv, depthwise])
def test_zero_point_goes_into_a_new_bias(layer) -> None:  # type: ignore[no-untyped-def]
    x = var()
    new = canonical(x, layer(x, zp=-17))
    assert ops(new)[1:] == ["nn.bias_add"]
    inner = new.body.args[0]  # type: ignore[union-attr]
    assert inner.attrs.input_zp == 0
    assert inner.attrs.pad_value == -17


def test_zero_point_goes_into_the_bias_that_is_there() -> None:
    x = var()
    new = canonical(x, requantize(call("nn.bias_add", [conv(x, zp=5), bias(3)])))
    assert ops(new) == ["nn.conv2d", "nn.bias_add", "qnn.requantize"]
    assert find(new, "nn.conv2d").attrs.input_zp == 0


def test_zero_point_of_dense_with_weight_zero_point() -> None:
    x = var((2, 6))
    new = canonical(x, call("nn.dense", [x, weights(3, 6)], DenseAttrs(input_zp=9, weight_zp=4)))
    assert ops(new) == ["nn.dense", "nn.bias_add"]
    assert find(new, "nn.dense").attrs == DenseAttrs(0, 4)


def test_zero_point_of_a_shared_layer_moves_once() -> None:
    x = var()
    y = conv(x, zp=5)
    new = canonical(x, make_tuple([requantize(y), clip(requantize(y), -100, 100)]))
    assert ops(new).count("nn.conv2d") == 1
    assert ops(new).count("nn.bias_add") == 1


def test_zero_point_stays_where_weights_are_not_constant() -> None:
    x, w = var((2, 6)), Var("w", TensorType((3, 6), "int8"))
    body = call("nn.dense", [x, w], DenseAttrs(input_zp=9))
    assert run(canonicalize, Function((x, w), body)).body is body


def test_zero_point_stays_where_the_sum_could_overflow() -> None:
    depth = (1 << 31) // (127 * 256)
    for n, moves in ((depth - 9, True), (depth + 9, False)):
        x = var((1, n))
        full = const(np.full((1, n), 127, np.int8))
        new = canonical(x, call("nn.dense", [x, full], DenseAttrs(input_zp=-128)))
        assert ("nn.bias_add" in ops(new)) is moves


def test_biases_stay_apart_where_their_sum_could_overflow() -> None:
    x = var((1, 64))
    full = const(np.full((1, 64), 127, np.int8))
    dense = call("nn.dense", [x, full], DenseAttrs(input_zp=-128))
    near = const(np.array([(1 << 31) - 1 - 64 * 127 * 255], np.int32))
    new = canonical(x, call("nn.bias_add", [dense, near]))
    assert ops(new) == ["nn.dense", "nn.bias_add", "nn.bias_add"]


def test_zero_bias_is_dropped() -> None:
    x = var()
    assert ops(canonical(x, call("nn.bias_add", [conv(x), const(np.zeros(3, np.int32))]))) == ["nn.conv2d"]


# Padding.


@pytest.mark.parametrize("zp", [0, -128, 11])
def test_pad_goes_into_convolution(zp: int) -> None:
    x = var()
    new = canonical(x, conv(border(x, zp), zp=zp))
    layer = find(new, "nn.conv2d")
    assert layer.attrs.padding == (1, 1, 2, 0)
    assert layer.attrs.pad_value == zp
    assert "nn.pad" not in ops(new)


def test_pad_adds_to_the_padding_that_is_there() -> None:
    x = var()
    assert find(canonical(x, conv(border(x, 3), padding=(0, 1, 0, 2), pad_value=3)), "nn.conv2d").attrs.padding == (1, 2, 2, 2)


def test_pad_of_another_value_stays_beside_padding() -> None:
    x = var()
    assert ops(canonical(x, conv(border(x, 3), padding=(1, 1, 1, 1), pad_value=4))) == ["nn.pad", "nn.conv2d"]


def test_pad_of_another_value_goes_into_a_layer_without_padding() -> None:
    x = var()
    new = canonical(x, conv(border(x, 3), zp=4))
    assert find(new, "nn.conv2d").attrs.pad_value == 3


def test_pad_goes_into_depthwise() -> None:
    x = var()
    assert "nn.pad" not in ops(canonical(x, depthwise(pad(x, (0, 0), (1, 1), (1, 1), (0, 0)), zp=0)))


@pytest.mark.parametrize(
    "widths",
    [
        ((0, 0), (1, 1), (1, 1), (0, 1)),
        ((1, 0), (0, 0), (0, 0), (0, 0)),
        ((0, 0), (3, 0), (0, 0), (0, 0)),
        ((0, 0), (0, 0), (0, 4), (0, 0)),
    ],
)
def test_pad_stays_where_it_is_not_a_window_s_border(widths: tuple[tuple[int, int], ...]) -> None:
    channels = 4 - sum(widths[3])
    x = var((1, 6, 5, channels))
    assert ops(canonical(x, conv(pad(x, *widths)))) == ["nn.pad", "nn.conv2d"]


def test_pad_read_by_two_windows_goes_into_both() -> None:
    x = var()
    y = pad(x, (0, 0), (1, 1), (1, 1), (0, 0))
    assert ops(canonical(x, make_tuple([conv(y), depthwise(y)]))) == ["nn.conv2d", "nn.depthwise_conv2d"]
    assert ops(canonical(x, make_tuple([conv(y), conv(y, zp=3, padding=(1, 1, 1, 1))]))).count("nn.pad") == 1


def test_pad_stays_where_something_else_reads_it() -> None:
    x = var()
    y = border(x)
    assert ops(canonical(x, make_tuple([conv(y), y]))) == ["nn.pad", "nn.conv2d"]
    assert ops(canonical(x, make_tuple([conv(y), clip(y, -5, 5)]))) == ["nn.pad", "nn.conv2d", "clip"]


@pytest.mark.parametrize(("value", "left"), [(-128, []), (-127, ["nn.pad"])])
def test_pad_goes_into_max_pool_only_with_the_lowest_value(value: int, left: list[str]) -> None:
    x = var()
    attrs = PoolAttrs((3, 3), (2, 2), (0, 0, 0, 0), -128, 127)
    assert ops(canonical(x, call("nn.max_pool2d", [border(x, value)], attrs))) == [*left, "nn.max_pool2d"]


@pytest.mark.parametrize(("value", "left"), [(-np.inf, []), (-3.4028234663852886e38, []), (-3e38, ["nn.pad"]), (0.0, ["nn.pad"])])
def test_pad_of_floats_goes_into_max_pool_only_with_the_lowest_value(value: float, left: list[str]) -> None:
    x = var(dtype="float32")
    padded = call("nn.pad", [x], PadAttrs(((0, 0), (1, 2), (1, 0), (0, 0)), value))
    new = canonical(x, call("nn.max_pool2d", [padded], PoolAttrs((3, 3), (2, 2), (0, 0, 0, 0), 0, 0)))
    assert ops(new) == [*left, "nn.max_pool2d"]


def test_pad_stays_before_avg_pool() -> None:
    x = var()
    attrs = PoolAttrs((3, 3), (2, 2), (0, 0, 0, 0), -128, 127)
    assert ops(canonical(x, call("nn.avg_pool2d", [border(x, -128)], attrs))) == ["nn.pad", "nn.avg_pool2d"]


def test_pad_of_nothing_is_dropped() -> None:
    x = var()
    assert canonical(x, pad(x, (0, 0), (0, 0), (0, 0), (0, 0))).body is x


# Clamps.


def test_clips_merge() -> None:
    x = var()
    new = canonical(x, clip(clip(x, -50, 90), -20, 100))
    assert ops(new) == ["clip"]
    assert find(new, "clip").attrs == ClipAttrs(-20, 90)


def test_clips_without_common_values_merge_to_a_constant() -> None:
    x = var()
    assert find(canonical(x, clip(clip(x, -50, -40), 20, 30)), "clip").attrs == ClipAttrs(20, 20)


def test_clip_goes_into_requantize_and_keeps_the_last_span() -> None:
    x = var(dtype="int32")
    inner, outer = Span(0, "CONV_2D", "a", 1), Span(1, "RELU", "b", 2)
    y = call("qnn.requantize", [x], RequantizeAttrs((1 << 30,), (-9,), 3, -128, 127, "double"), span=inner)
    new = canonical(x, call("clip", [y], ClipAttrs(3, 60), span=outer))
    assert ops(new) == ["qnn.requantize"]
    assert (new.body.attrs.lo, new.body.attrs.hi) == (3, 60)  # type: ignore[union-attr]
    assert new.body.span == outer


def test_chain_of_clips_goes_into_requantize() -> None:
    x = var(dtype="int32")
    y: Expr = requantize(x)
    for i in range(50):
        y = clip(y, -100 + i, 120 - i)
    assert ops(canonical(x, y)) == ["qnn.requantize"]


@pytest.mark.parametrize("pool", ["nn.max_pool2d", "nn.avg_pool2d"])
def test_clip_goes_into_pool(pool: str) -> None:
    x = var()
    body = clip(call(pool, [x], PoolAttrs((2, 2), (2, 2), (0, 0, 0, 0), -128, 100)), -7, 120)
    new = canonical(x, body)
    assert ops(new) == [pool]
    assert (new.body.attrs.lo, new.body.attrs.hi) == (-7, 100)  # type: ignore[union-attr]


def test_clip_stays_where_the_unclipped_value_is_read() -> None:
    x = var(dtype="int32")
    y = requantize(x)
    assert ops(canonical(x, make_tuple([y, clip(y, 0, 9)]))) == ["qnn.requantize", "clip"]


def test_clip_stays_where_a_dropped_operator_leads_to_another_reader() -> None:
    x = var(dtype="int32")
    y = requantize(x)
    same = call("reshape", [y], ReshapeAttrs(X))
    assert ops(canonical(x, make_tuple([same, clip(y, 0, 9)]))) == ["qnn.requantize", "clip"]


def test_wide_clips_are_dropped() -> None:
    x = var()
    assert canonical(x, clip(x, -128, 127)).body is x
    x = var(dtype="int32")
    y = requantize(x, -20, 30)
    assert ops(canonical(x, make_tuple([y, clip(y, -20, 40)]))) == ["qnn.requantize"]


# Maps of codes.

_IDENTITY = Requantize8Attrs(12, 1 << 30, 1, 12, -128, 127)
_DOUBLE = Requantize8Attrs(0, 1 << 30, 2, 3, -128, 127)
_SQUARES = tuple(int(q) for q in (np.arange(-128, 128) ** 2 // 70 - 100).clip(-128, 127))


def test_identical_requantize8_is_dropped() -> None:
    x = var()
    assert canonical(x, call("qnn.requantize8", [x], _IDENTITY)).body is x
    assert ops(canonical(x, call("qnn.requantize8", [x], _DOUBLE))) == ["qnn.requantize8"]
    narrow = Requantize8Attrs(12, 1 << 30, 1, 12, -128, 126)
    assert ops(canonical(x, call("qnn.requantize8", [x], narrow))) == ["qnn.requantize8"]


def test_map_after_a_table_goes_into_it() -> None:
    x = var()
    table = call("qnn.lut", [x], LutAttrs(_SQUARES))
    assert ops(canonical(x, clip(call("qnn.requantize8", [table], _DOUBLE), -90, 90))) == ["qnn.lut"]
    assert ops(canonical(x, make_tuple([table, call("qnn.requantize8", [table], _DOUBLE)]))) == ["qnn.lut", "qnn.requantize8"]


def test_map_before_a_table_goes_into_it() -> None:
    x = var()
    assert ops(canonical(x, call("qnn.lut", [call("qnn.requantize8", [x], _DOUBLE)], LutAttrs(_SQUARES)))) == ["qnn.lut"]


# Operators that change nothing.


def test_reshapes() -> None:
    x = var()
    flat = call("reshape", [x], ReshapeAttrs((120,)))
    assert ops(canonical(x, call("reshape", [flat], ReshapeAttrs((2, 60))))) == ["reshape"]
    assert canonical(x, call("reshape", [flat], ReshapeAttrs(X))).body is x


def test_transposes() -> None:
    x = var()
    once = call("transpose", [x], TransposeAttrs((0, 2, 3, 1)))
    assert ops(canonical(x, once)) == ["transpose"]
    assert find(canonical(x, call("transpose", [once], TransposeAttrs((3, 0, 1, 2)))), "transpose").attrs.axes == (1, 0, 2, 3)
    assert canonical(x, call("transpose", [once], TransposeAttrs((0, 3, 1, 2)))).body is x


def test_concatenation_of_one() -> None:
    x = var()
    assert canonical(x, call("concatenate", [x], ConcatenateAttrs(3))).body is x
    assert ops(canonical(x, call("concatenate", [x, x], ConcatenateAttrs(3)))) == ["concatenate"]


def test_rules_meet() -> None:
    """Dropping one operator lets another rule see through it."""
    x = var()
    y = call("reshape", [border(x, -5)], ReshapeAttrs((1, 9, 6, 4)))
    body = clip(call("reshape", [requantize(conv(y, zp=-5))], ReshapeAttrs((1, 7, 4, 3))), -3, 50)
    assert ops(canonical(x, body)) == ["nn.conv2d", "nn.bias_add", "qnn.requantize"]


def test_every_rule_states_its_law() -> None:
    rules = {rule for rules in RULES.values() for rule in rules}
    assert all((rule.__doc__ or "").strip() for rule in rules)
