"""Pooling: averages and maxima over windows, averages of sums, MediaPipe's argmax and unpooling."""

from __future__ import annotations

from math import prod

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import clamp_array
from aot.op.common.layer import PoolAttrs, infer_pool, inside, window_axes
from aot.op.common.operator import Index, elementwise, operator, register
from aot.op.common.tensors import Clamped
from aot.support.dtype import int_range, is_float, lowest
from aot.te.tensor import TensorFn, reduce
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
    total, count = np.zeros(out_type.shape, wide), np.zeros((1, *out_type.shape[1:3], 1), np.int64)
    for image, sums in ((data.astype(wide), total), (np.ones((1, *data.shape[1:3], 1), np.int64), count)):
        for _, _, part in attrs.taps(attrs.padded(image), attrs.pool_size, out_type):
            sums += part
    if is_float(out_type.dtype):
        return np.asarray(total / count.astype(np.float32), np.float32)
    mean = np.sign(total) * ((np.abs(total) + count // 2) // count)
    return clamp_array(mean, attrs.lo, attrs.hi, out_type.dtype)


def element_avg_pool2d(attrs: PoolAttrs, b: IRBuilder, index: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
    n, y, x, c = index
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


# nn.avg_of_sums: nn.avg_pool2d's results from the sums of its windows.
#
# For moving windows, whose sums are kept between runs (relay/transform/stateful.py).
# Oracle: the end of `reference_integer_ops::AveragePool`: halves away from zero, then the clamp.
@operator(
    "nn.avg_of_sums",
    "AVERAGE_POOL_2D over a window that moves",
    [("sums", "int32", "sums of `count` numbers each")],
    OpPattern.ELEMWISE,
)
class AvgOfSumsAttrs(Clamped):
    """Each sum is of `count` numbers of type `dtype`; the result is in [lo, hi]."""

    count: int
    lo: int
    hi: int
    dtype: str = "int8"
    quant: QuantParams | None = None

    def infer_type(self, sums: TensorType) -> Type:
        """int32 sums -> means in the type of the summed values."""
        if sums.dtype != "int32" or self.count < 1:
            raise TypeRuleError(f"avg_of_sums needs int32 sums of one number or more, not {sums} of {self.count}")
        return TensorType(sums.shape, self.dtype, self.quant)

    def evaluate(self, sums: Array, *, out_type: TensorType) -> Array:
        wide = sums.astype(np.int64)
        mean = np.sign(wide) * ((np.abs(wide) + self.count // 2) // self.count)
        return clamp_array(mean, self.lo, self.hi, out_type.dtype)

    def element(self, b: IRBuilder, i: Index, sums: TensorFn, *, out_type: TensorType) -> Expr:
        half = self.count // 2
        total = b.let("total", sums.at(b, i))
        mean = select(total > 0, total + half, total - half) / self.count
        return cast(out_type.dtype, clamp(mean, self.lo, self.hi))


# nn.max_pool2d: MAX_POOL_2D of TFLite on int8, int16, uint8 and float32.
#
# The largest of the window's elements inside the image, then clamped (integers only).
# Oracle: `reference_integer_ops::MaxPool` and `reference_ops::MaxPool`.
def evaluate_max_pool2d(data: Array, *, attrs: PoolAttrs, out_type: TensorType) -> Array:
    start = lowest(out_type.dtype)
    result = np.full(out_type.shape, start, data.dtype)
    for _, _, part in attrs.taps(attrs.padded(data, start), attrs.pool_size, out_type):
        result = np.where(result < part, part, result)
    return result if is_float(out_type.dtype) else np.clip(result, attrs.lo, attrs.hi).astype(data.dtype)


def element_max_pool2d(attrs: PoolAttrs, b: IRBuilder, index: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
    n, y, x, c = index
    dtype = "float32" if is_float(out_type.dtype) else "int32"

    def larger(a: Expr, b: Expr) -> Expr:
        return select(a < b, b, a) if dtype == "float32" else maximum(a, b)

    def term(ry: Expr, rx: Expr) -> Expr:
        return cast(dtype, data.at(b, (n, ry, rx, c)))

    axes = window_axes(b, y, x, image=data.shape[1:3], attrs=attrs)
    best = reduce(b, axes, term, combine=larger, init=lowest(out_type.dtype), dtype=dtype)
    if dtype == "float32":
        return best
    low, high = int_range(out_type.dtype)
    return cast(out_type.dtype, best if (attrs.lo, attrs.hi) == (low, high) else clamp(best, attrs.lo, attrs.hi))


# mediapipe.argmax: the position of a maximum pool's largest element in its window, as MaxPoolingWithArgmax2D counts.
#
# The number of the tap, counted by rows of the whole window, plus 0.1, as float32; 0.1 if no element is above the lowest number.
# Oracle: MediaPipe's `max_pool_argmax.cc`; the maxima themselves are those of MAX_POOL_2D.

ARGMAX = "mediapipe.argmax"
_REST = float(np.float32(0.1))


def evaluate_argmax(data: Array, *, attrs: PoolAttrs, out_type: TensorType) -> Array:
    best = np.full(out_type.shape, lowest("float32"), np.float32)
    where = np.zeros(out_type.shape, np.float32)
    for number, (_, _, tap) in enumerate(attrs.taps(attrs.padded(data, lowest("float32")), attrs.pool_size, out_type)):
        better = tap > best
        best, where = np.where(better, tap, best), np.where(better, np.float32(number), where)
    return np.asarray(where + np.float32(_REST), np.float32)


def element_argmax(attrs: PoolAttrs, b: IRBuilder, index: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
    n, y, x, c = index
    (kh, kw), (sy, sx), (top, left, _, _) = attrs.pool_size, attrs.strides, attrs.padding
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


_TYPES = "int8, int16, float32"

for _name, _types, _doc, _evaluate, _element in (
    (
        "nn.avg_pool2d",
        "int8, int16, float32",
        "AVERAGE_POOL_2D; int8, int16, uint8, float32",
        evaluate_avg_pool2d,
        element_avg_pool2d,
    ),
    (
        "nn.max_pool2d",
        "int8, int16, float32",
        "MAX_POOL_2D; int8, int16, uint8, float32",
        evaluate_max_pool2d,
        element_max_pool2d,
    ),
    (ARGMAX, "float32", "MaxPoolingWithArgmax2D of MediaPipe: the places of the maxima", evaluate_argmax, element_argmax),
):
    register(
        _name,
        _doc,
        [("data", f"{_types} [N, H, W, C]", "the image")],
        OpPattern.OUT_ELEMWISE_FUSABLE,
        attrs=PoolAttrs,
        infer_type=infer_pool,
        evaluate=_evaluate,
        te=elementwise(_element),
    )


# mediapipe.unpool: MaxUnpooling2D, which puts each element back where a maximum pool found it, with zeros elsewhere.
#
# `indices` are tap numbers as counted by MaxPoolingWithArgmax2D, rounded down; windows do not overlap.  An element whose index
# is outside its window, which the oracle writes elsewhere or beyond the image, is dropped.
# Oracle: MediaPipe's `max_unpooling.cc`.

UNPOOLING = "mediapipe.unpool"


@operator(
    UNPOOLING,
    "MaxUnpooling2D of MediaPipe",
    [("data", "float32 [N, H, W, C]", "the maxima"), ("indices", "as data", "their places in the windows")],
    OpPattern.OUT_ELEMWISE_FUSABLE,
)
class UnpoolAttrs:
    """(Vertical, horizontal) window, which is also the stride."""

    window: tuple[int, int]

    def infer_type(self, data: TensorType, indices: TensorType) -> Type:
        """Two float32 [N, H, W, C] -> float32 [N, H * window, W * window, C]."""
        if len(data.shape) != 4:
            raise TypeRuleError(f"{UNPOOLING} does not accept {data} and {indices}")
        if data.shape != indices.shape or {data.dtype, indices.dtype} != {"float32"} or min(self.window) < 1:
            raise TypeRuleError(f"{UNPOOLING} does not accept {data} and {indices} with a window of {self.window}")
        n, h, w, c = data.shape
        return TensorType((n, h * self.window[0], w * self.window[1], c), "float32")

    def evaluate(self, data: Array, indices: Array, *, out_type: TensorType) -> Array:
        (n, h, w, c), (kh, kw) = data.shape, self.window
        place = np.floor(indices)[:, :, None, :, None, :]
        taps = np.arange(kh * kw, dtype=np.float32).reshape(kh, 1, kw, 1)
        spread = np.where(place == taps, data[:, :, None, :, None, :], np.float32(0))
        return np.asarray(spread.reshape(n, h * kh, w * kw, c), np.float32)

    def element(self, b: IRBuilder, index: Index, data: TensorFn, indices: TensorFn, *, out_type: TensorType) -> Expr:
        n, y, x, c = index
        kh, kw = self.window
        source = (n, b.let("row", y // kh), b.let("column", x // kw), c)
        tap = (y - source[1] * kh) * kw + (x - source[2] * kw)
        number = b.let("number", cast("float32", tap))
        place = b.let("place", indices.at(b, source))
        here = logical_and(place >= number, place < number + imm(1.0, "float32"))
        return select(here, data.at(b, source), imm(0.0, "float32"))
