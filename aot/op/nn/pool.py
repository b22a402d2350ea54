"""Pooling: averages and maxima over windows, averages of sums, MediaPipe's argmax and unpooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import clamp_array
from aot.op.common.te_rule import F_TE, TeContext
from aot.op.common.tensors import Clamped
from aot.op.common.window import PoolAttrs, infer_pool, inside, pad_widths, taps, window_axes
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_float, lowest
from aot.te.tensor import TensorFn, reduce, tensor_fn
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, as_expr, cast, clamp, imm, logical_and, maximum, select

# nn.avg_pool2d: AVERAGE_POOL_2D of TFLite on int8, int16, uint8 and float32.
#
# The mean of the window's elements inside the image, rounded to the nearest with halves away from zero, then clamped.
# Oracles: `reference_integer_ops::AveragePool`, `reference_ops::AveragePool` (uint8, on the unshifted quantised values: shifted
# to int8, halves would round the other way).  Floats are added in the order of the window, then divided.


def evaluate_avg_pool2d(data: Array, *, attrs: PoolAttrs, out_type: TensorType) -> Array:
    wide = np.float32 if is_float(out_type.dtype) else np.int64
    total = np.zeros(out_type.shape, wide)
    count = np.zeros((1, *out_type.shape[1:3], 1), np.int64)
    widths = pad_widths(attrs)
    padded = np.pad(data.astype(wide), widths)
    ones = np.pad(np.ones((1, *data.shape[1:3], 1), np.int64), widths)
    for part, here in zip(taps(padded, attrs, out_type), taps(ones, attrs, out_type), strict=True):
        total += part
        count += here
    if is_float(out_type.dtype):
        return np.asarray(total / count.astype(np.float32), np.float32)
    mean = np.sign(total) * ((np.abs(total) + count // 2) // count)
    return clamp_array(mean, attrs.lo, attrs.hi, out_type.dtype)


def te_avg_pool2d(_ctx: TeContext, args: Sequence[TensorFn], attrs: PoolAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args

    def rule(b: IRBuilder, n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        axes = rows, columns = window_axes(b, y, x, image=data.shape[1:3], attrs=attrs)
        count: Expr | int = prod(attrs.pool_size)
        if any(attrs.padding):
            count = b.let("count", (rows.stop - rows.start) * (columns.stop - columns.start))
        if is_float(out_type.dtype):
            zero = imm(0.0, "float32")
            total = te_sum(b, axes, lambda ry, rx: data.at(b, (n, ry, rx, c)), init=zero, dtype="float32")
            return total / (imm(float(count), "float32") if isinstance(count, int) else cast("float32", count))
        acc = b.let("total", te_sum(b, axes, lambda ry, rx: cast("int32", data.at(b, (n, ry, rx, c)))))
        n_window = as_expr(count)
        half = n_window / 2
        mean = select(acc > 0, acc + half, acc - half) / n_window
        return cast(out_type.dtype, clamp(mean, attrs.lo, attrs.hi))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "nn.avg_pool2d",
    1,
    arguments=[("data", "int8, int16, float32 [N, H, W, C]", "the image")],
    attrs_type=PoolAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_pool,
    evaluate=evaluate_avg_pool2d,
    doc="AVERAGE_POOL_2D; int8, int16, uint8, float32",
)
F_TE.set("nn.avg_pool2d", te_avg_pool2d)


# nn.avg_of_sums: nn.avg_pool2d's results from the sums of its windows.
#
# For moving windows, whose sums are kept between runs (relay/transform/slide_window.py).
# Oracle: the end of `reference_integer_ops::AveragePool`: halves away from zero, then the clamp.


@dataclass(frozen=True, slots=True)
class AvgOfSumsAttrs(Clamped):
    """Each sum is of `count` numbers of type `dtype`; the result is in [lo, hi]."""

    count: int
    lo: int
    hi: int
    dtype: str = "int8"
    quant: QuantParams | None = None


def infer_avg_of_sums(types: Sequence[Type], attrs: AvgOfSumsAttrs) -> Type:
    """int32 sums -> means in the type of the summed values."""
    (sums,) = types
    if not isinstance(sums, TensorType) or sums.dtype != "int32" or attrs.count < 1:
        raise TypeRuleError(f"avg_of_sums needs int32 sums of one number or more, not {sums} of {attrs.count}")
    return TensorType(sums.shape, attrs.dtype, attrs.quant)


def evaluate_avg_of_sums(sums: Array, *, attrs: AvgOfSumsAttrs, out_type: TensorType) -> Array:
    wide = sums.astype(np.int64)
    mean = np.sign(wide) * ((np.abs(wide) + attrs.count // 2) // attrs.count)
    return clamp_array(mean, attrs.lo, attrs.hi, out_type.dtype)


def te_avg_of_sums(_ctx: TeContext, args: Sequence[TensorFn], attrs: AvgOfSumsAttrs, out_type: TensorType) -> TensorFn:
    (sums,) = args
    half = attrs.count // 2

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        total = b.let("total", sums.at(b, i))
        mean = select(total > 0, total + half, total - half) / attrs.count
        return cast(out_type.dtype, clamp(mean, attrs.lo, attrs.hi))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "nn.avg_of_sums",
    1,
    arguments=[("sums", "int32", "sums of `count` numbers each")],
    attrs_type=AvgOfSumsAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_avg_of_sums,
    evaluate=evaluate_avg_of_sums,
    doc="AVERAGE_POOL_2D over a window that moves",
)
F_TE.set("nn.avg_of_sums", te_avg_of_sums)


# nn.max_pool2d: MAX_POOL_2D of TFLite on int8, int16, uint8 and float32.
#
# The largest of the window's elements inside the image, then clamped (integers only).
# Oracle: `reference_integer_ops::MaxPool` and `reference_ops::MaxPool`.


def evaluate_max_pool2d(data: Array, *, attrs: PoolAttrs, out_type: TensorType) -> Array:
    start = lowest(out_type.dtype)
    padded = np.pad(data, pad_widths(attrs), constant_values=start)
    result = np.full(out_type.shape, start, data.dtype)
    for part in taps(padded, attrs, out_type):
        result = np.where(result < part, part, result)
    return result if is_float(out_type.dtype) else np.clip(result, attrs.lo, attrs.hi).astype(data.dtype)


def te_max_pool2d(_ctx: TeContext, args: Sequence[TensorFn], attrs: PoolAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args
    dtype = "float32" if is_float(out_type.dtype) else "int32"

    def larger(a: Expr, b: Expr) -> Expr:
        return select(a < b, b, a) if dtype == "float32" else maximum(a, b)

    def rule(b: IRBuilder, n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        def term(ry: Expr, rx: Expr) -> Expr:
            return cast(dtype, data.at(b, (n, ry, rx, c)))

        axes = window_axes(b, y, x, image=data.shape[1:3], attrs=attrs)
        best = reduce(b, axes, term, combine=larger, init=lowest(out_type.dtype), dtype=dtype)
        if dtype == "float32":
            return best
        low, high = int_range(out_type.dtype)
        return cast(out_type.dtype, best if (attrs.lo, attrs.hi) == (low, high) else clamp(best, attrs.lo, attrs.hi))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "nn.max_pool2d",
    1,
    arguments=[("data", "int8, int16, float32 [N, H, W, C]", "the image")],
    attrs_type=PoolAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_pool,
    evaluate=evaluate_max_pool2d,
    doc="MAX_POOL_2D; int8, int16, uint8, float32",
)
F_TE.set("nn.max_pool2d", te_max_pool2d)


# mediapipe.argmax: the position of a maximum pool's largest element in its window, as MaxPoolingWithArgmax2D counts.
#
# The number of the tap, counted by rows of the whole window, plus 0.1, as float32; 0.1 if no element is above the lowest number.
# Oracle: MediaPipe's `max_pool_argmax.cc`; the maxima themselves are those of MAX_POOL_2D.


ARGMAX = "mediapipe.argmax"
_REST = float(np.float32(0.1))


def evaluate_argmax(data: Array, *, attrs: PoolAttrs, out_type: TensorType) -> Array:
    padded = np.pad(data, pad_widths(attrs), constant_values=lowest("float32"))
    best = np.full(out_type.shape, lowest("float32"), np.float32)
    where = np.zeros(out_type.shape, np.float32)
    for number, tap in enumerate(taps(padded, attrs, out_type)):
        better = tap > best
        best, where = np.where(better, tap, best), np.where(better, np.float32(number), where)
    return np.asarray(where + np.float32(_REST), np.float32)


def te_argmax(_ctx: TeContext, args: Sequence[TensorFn], attrs: PoolAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args
    (kh, kw), (sy, sx), (top, left, _, _) = attrs.pool_size, attrs.strides, attrs.padding

    def rule(b: IRBuilder, n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        best = b.local("best", (1,), "float32", init=lowest("float32"))
        where = b.local("where", (1,), "int32", init=0)
        (first, last), (begin, end) = (
            inside(y, stride=sy, before=top, kernel=kh, size=data.shape[1]),
            inside(x, stride=sx, before=left, kernel=kw, size=data.shape[2]),
        )
        row, column = b.let("row", y * sy - top), b.let("column", x * sx - left)
        with b.for_("iy", last, start=first) as iy, b.for_("ix", end, start=begin) as ix:
            value = b.let("value", data.at(b, (n, iy, ix, c)))
            with b.if_(value > best[0]):
                b.store(best, 0, value)
                b.store(where, 0, (iy - row) * kw + (ix - column))
        return cast("float32", where[0]) + imm(_REST, "float32")

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    ARGMAX,
    1,
    arguments=[("data", "float32 [N, H, W, C]", "the image")],
    attrs_type=PoolAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_pool,
    evaluate=evaluate_argmax,
    doc="MaxPoolingWithArgmax2D of MediaPipe: the places of the maxima",
)
F_TE.set(ARGMAX, te_argmax)


# mediapipe.unpool: MaxUnpooling2D, which puts each element back where a maximum pool found it, with zeros elsewhere.
#
# `indices` are tap numbers as counted by MaxPoolingWithArgmax2D, rounded down; windows do not overlap.  An element whose index
# is outside its window, which the oracle writes elsewhere or beyond the image, is dropped.
# Oracle: MediaPipe's `max_unpooling.cc`.


UNPOOLING = "mediapipe.unpool"


@dataclass(frozen=True, slots=True)
class UnpoolAttrs:
    """(Vertical, horizontal) window, which is also the stride."""

    window: tuple[int, int]


def infer_unpooling(types: Sequence[Type], attrs: UnpoolAttrs) -> Type:
    """Two float32 [N, H, W, C] -> float32 [N, H * window, W * window, C]."""
    data, indices = types
    if not isinstance(data, TensorType) or not isinstance(indices, TensorType) or len(data.shape) != 4:
        raise TypeRuleError(f"{UNPOOLING} does not accept {data} and {indices}")
    if data.shape != indices.shape or {data.dtype, indices.dtype} != {"float32"} or min(attrs.window) < 1:
        raise TypeRuleError(f"{UNPOOLING} does not accept {data} and {indices} with a window of {attrs.window}")
    n, h, w, c = data.shape
    return TensorType((n, h * attrs.window[0], w * attrs.window[1], c), "float32")


def evaluate_unpooling(data: Array, indices: Array, *, attrs: UnpoolAttrs, out_type: TensorType) -> Array:
    (n, h, w, c), (kh, kw) = data.shape, attrs.window
    place = np.floor(indices)[:, :, None, :, None, :]
    taps = np.arange(kh * kw, dtype=np.float32).reshape(kh, 1, kw, 1)
    spread = np.where(place == taps, data[:, :, None, :, None, :], np.float32(0))
    return np.asarray(spread.reshape(n, h * kh, w * kw, c), np.float32)


def te_unpooling(_ctx: TeContext, args: Sequence[TensorFn], attrs: UnpoolAttrs, out_type: TensorType) -> TensorFn:
    data, indices = args
    kh, kw = attrs.window

    def rule(b: IRBuilder, n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        source = (n, b.let("row", y // kh), b.let("column", x // kw), c)
        tap = (y - source[1] * kh) * kw + (x - source[2] * kw)
        number = b.let("number", cast("float32", tap))
        place = b.let("place", indices.at(b, source))
        here = logical_and(place >= number, place < number + imm(1.0, "float32"))
        return select(here, data.at(b, source), imm(0.0, "float32"))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    UNPOOLING,
    2,
    arguments=[("data", "float32 [N, H, W, C]", "the maxima"), ("indices", "as data", "their places in the windows")],
    attrs_type=UnpoolAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_unpooling,
    evaluate=evaluate_unpooling,
    doc="MaxUnpooling2D of MediaPipe",
)
F_TE.set(UNPOOLING, te_unpooling)
