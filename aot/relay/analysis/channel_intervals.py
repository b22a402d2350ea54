"""The values that each channel of each tensor can take, for any input.

A channel is an index of the last axis.  Interval arithmetic over independent values: every interval holds all values that
occur, and is exact for a single layer; values that depend on each other can make it wider than need be, never narrower.
The rules ask the operators' own `evaluate` wherever rounding matters, so that they cannot disagree with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd, prod

import numpy as np

from aot.ir.op import F_EVALUATE, Array, Op
from aot.ir.type import TensorType
from aot.relay.analysis.interval import Int64, Interval, channels, full_range, hull, of_array, span_of
from aot.relay.analysis.window import tap_values
from aot.relay.expr import Call, Constant, Expr, Function, is_call, post_order, tensor_type
from aot.support.dtype import bits, int_range, is_int, numpy_dtype

Rule = Callable[[Call, Sequence[Interval]], Interval | None]
"""(call, intervals of its tensor arguments) -> interval of the result; None if the type's range is all that is known."""


def channel_intervals(func: Function) -> dict[int, Interval]:
    """For each tensor of integers of up to 32 bits (by id of its node) an interval for each channel.

    Parameters, and results of operators without a rule in `RULES`, take the whole range of their type.
    """
    found: dict[int, Interval] = {}
    for expr in post_order(func.body):
        if isinstance(expr.type, TensorType) and _is_followed(expr.type):
            found[id(expr)] = _bounded(_of(expr, found), expr.type)
    return found


def _is_followed(type_: TensorType) -> bool:
    """Integers of up to 32 bits, whose sums and products fit into 64; not of empty tensors."""
    return is_int(type_.dtype) and bits(type_.dtype) <= 32 and type_.size > 0


def _of(expr: Expr, found: dict[int, Interval]) -> Interval | None:
    match expr:
        case Constant():
            return of_array(np.asarray(expr.data))
        case Call(op=Op(name=name)) if name in RULES and all(id(a) in found for a in expr.args):
            return RULES[name](expr, [found[id(a)] for a in expr.args])
        case _:
            return None


def _bounded(found: Interval | None, type_: TensorType) -> Interval:
    """What a rule has found; a channel whose values leave the type would wrap around, so anything is possible there."""
    whole = full_range(type_)
    if found is None:
        return whole
    leaves = (found.lo < whole.lo) | (found.hi > whole.hi)
    return Interval(np.where(leaves, whole.lo, found.lo), np.where(leaves, whole.hi, found.hi))


def _evaluate(expr: Call, *arrays: Array) -> Array:
    """The operator on other arrays than its own: points, with the channels along the last axis."""
    assert isinstance(expr.op, Op)
    type_ = tensor_type(expr)
    wanted = [np.asarray(a).astype(numpy_dtype(tensor_type(o).dtype)) for a, o in zip(arrays, expr.args, strict=True)]
    shape = np.broadcast_shapes(*(a.shape for a in wanted))
    out = TensorType(tuple(map(int, shape)), type_.dtype, type_.quant)
    return np.asarray(F_EVALUATE.get(expr.op.name)(*wanted, attrs=expr.attrs, out_type=out))


# Layers: sums of products.


def layer(expr: Call, args: Sequence[Interval]) -> Interval | None:
    """acc = sum of w*x: the largest is reached with x = hi where w > 0 and x = lo where w < 0, the smallest the other way."""
    weight = effective_weight(expr)
    if weight is None:
        return None
    taps = tap_values(expr, args[0])
    if is_call(expr, "nn.depthwise_conv2d"):
        m = expr.attrs.multiplier
        lo, hi = np.repeat(taps.lo, m, axis=2), np.repeat(taps.hi, m, axis=2)
        ends = [weight[0] * lo, weight[0] * hi]
        low: Int64 = np.minimum(*ends).sum(axis=(0, 1), dtype=np.int64)
        high: Int64 = np.maximum(*ends).sum(axis=(0, 1), dtype=np.int64)
        return Interval(low, high)
    rows = weight.reshape(len(weight), -1)
    positive: Int64 = np.maximum(rows, 0)
    negative: Int64 = np.minimum(rows, 0)
    lo, hi = taps.lo.reshape(-1), taps.hi.reshape(-1)
    return Interval(positive @ lo + negative @ hi, positive @ hi + negative @ lo)


def effective_weight(expr: Call) -> Int64 | None:
    """A layer's constant integer weights less their zero point, in their own layout; None if there is no such thing."""
    weight = expr.args[1]
    if not isinstance(weight, Constant) or not is_int(weight.type.dtype):
        return None
    result: Int64 = np.asarray(weight.data).astype(np.int64) - getattr(expr.attrs, "weight_zp", 0)
    return result


def bias_add(_expr: Call, args: Sequence[Interval]) -> Interval:
    return Interval(args[0].lo + args[1].lo, args[0].hi + args[1].hi)


# Maps of single values.


def requantize(expr: Call, args: Sequence[Interval]) -> Interval:
    """Rounded multiplication and clamp are monotone, so both ends give the ends; a left shift must stay in 32 bits for that."""
    (data,) = args
    shift = np.maximum(np.asarray(expr.attrs.shift, np.int64), 0)
    low, high = int_range("int32")
    wraps = (data.lo << shift < low) | (data.hi << shift > high)
    ends = span_of(_evaluate(expr, np.stack([data.lo, data.hi])))
    return Interval(np.where(wraps, expr.attrs.lo, ends.lo), np.where(wraps, expr.attrs.hi, ends.hi))


def clip(expr: Call, args: Sequence[Interval]) -> Interval:
    return _clamped(args[0], expr)


def _clamped(data: Interval, expr: Call) -> Interval:
    lo, hi = expr.attrs.lo, expr.attrs.hi
    return Interval(np.clip(data.lo, lo, hi), np.clip(data.hi, lo, hi))


def every_code(expr: Call, args: Sequence[Interval]) -> Interval | None:
    """A map of 8-bit codes (a table, another quantisation): every code of the interval is tried."""
    dtype = tensor_type(expr.args[0]).dtype
    if bits(dtype) > 8:
        return None
    low, high = int_range(dtype)
    codes = np.arange(low, high + 1)
    count = len(args[0].lo)
    values = _evaluate(expr, np.broadcast_to(codes[:, None], (len(codes), count))).astype(np.int64)
    occurs = (codes[:, None] >= args[0].lo) & (codes[:, None] <= args[0].hi)
    lowest, highest = int_range("int64")
    return Interval(np.where(occurs, values, highest).min(axis=0), np.where(occurs, values, lowest).max(axis=0))


def add(expr: Call, args: Sequence[Interval]) -> Interval | None:
    """Monotone in each operand when the other is held, so the ends lie on the four corners; left shifts could wrap."""
    if max(*expr.attrs.shift, expr.attrs.output_shift) > 0:
        return None
    a, b = args
    values = _evaluate(expr, np.stack([a.lo, a.hi])[:, None, :], np.stack([b.lo, b.hi])[None, :, :])
    return span_of(values.reshape(4, -1))


# Windows and reductions.


def pool(expr: Call, args: Sequence[Interval]) -> Interval:
    """The rounded mean and the maximum of values in [lo, hi] lie in [lo, hi]; padding does not take part."""
    return _clamped(args[0], expr)


def mean(expr: Call, args: Sequence[Interval]) -> Interval | None:
    """Monotone in the sum, so that a tensor of lower ends and one of upper ends give the ends, unless the sum leaves 32 bits."""
    type_ = tensor_type(expr.args[0])
    axes = [a % len(type_.shape) for a in expr.attrs.axes]
    widest = np.maximum(np.abs(args[0].lo - expr.attrs.input_zp), np.abs(args[0].hi - expr.attrs.input_zp)).max()
    if int(widest) * prod(type_.shape[a] for a in axes) << max(expr.attrs.shift, 0) > int_range("int32")[1]:
        return None
    ends = [_evaluate_as_typed(expr, np.broadcast_to(v, type_.shape)) for v in (args[0].lo, args[0].hi)]
    return hull([of_array(e) for e in ends])


def _evaluate_as_typed(expr: Call, data: Array) -> Array:
    assert isinstance(expr.op, Op)
    typed = data.astype(numpy_dtype(tensor_type(expr.args[0]).dtype))
    return np.asarray(F_EVALUATE.get(expr.op.name)(typed, attrs=expr.attrs, out_type=expr.type))


# Movement of data.


def same(_expr: Call, args: Sequence[Interval]) -> Interval:
    """Elements move, but not to another channel."""
    return args[0]


def pad(expr: Call, args: Sequence[Interval]) -> Interval:
    """A border in other axes mixes the pad value into every channel; one in the last axis adds channels of it."""
    value = int(expr.attrs.pad_value)
    *others, (before, after) = expr.attrs.pad_width
    lo, hi = args[0].lo, args[0].hi
    if any(map(any, others)):
        lo, hi = np.minimum(lo, value), np.maximum(hi, value)
    return Interval(*(np.pad(end, (before, after), constant_values=value) for end in (lo, hi)))


def concatenate(expr: Call, args: Sequence[Interval]) -> Interval:
    """Channels one after the other where the last axis is joined, else the union of each channel's values."""
    if expr.attrs.axis % len(tensor_type(expr).shape) != len(tensor_type(expr).shape) - 1:
        return hull(args)
    return Interval(np.concatenate([a.lo for a in args]), np.concatenate([a.hi for a in args]))


def reshape(expr: Call, args: Sequence[Interval]) -> Interval:
    """Element e has channel e mod C before and e mod C' after: channels equal modulo gcd(C, C') can meet."""
    after = channels(tensor_type(expr))
    (data,) = args
    if after % len(data.lo) == 0:
        times = after // len(data.lo)
        return Interval(np.tile(data.lo, times), np.tile(data.hi, times))
    step = gcd(after, len(data.lo))
    lo, hi = data.lo.reshape(-1, step).min(axis=0), data.hi.reshape(-1, step).max(axis=0)
    return Interval(np.tile(lo, after // step), np.tile(hi, after // step))


def transpose(expr: Call, args: Sequence[Interval]) -> Interval:
    """The same channels where the last axis stays, else all values in each."""
    (data,) = args
    if expr.attrs.axes[-1] == len(expr.attrs.axes) - 1:
        return data
    count = channels(tensor_type(expr))
    return Interval(np.full(count, data.lo.min()), np.full(count, data.hi.max()))


RULES: dict[str, Rule] = {
    "nn.conv2d": layer,
    "nn.depthwise_conv2d": layer,
    "nn.dense": layer,
    "nn.bias_add": bias_add,
    "qnn.requantize": requantize,
    "qnn.requantize8": every_code,
    "qnn.lut": every_code,
    "clip": clip,
    "qnn.add": add,
    "nn.avg_pool2d": pool,
    "nn.max_pool2d": pool,
    "mean": mean,
    "image.resize_nearest": same,
    "nn.pad": pad,
    "concatenate": concatenate,
    "reshape": reshape,
    "transpose": transpose,
}
"""By operator. A rule must hold for every value of the attributes that the operator's type rule accepts."""
