"""Reductions: of plain numbers and quantised values, positions of extremes, running sums, top k, sliding windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import product
from math import prod

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import Int64, clamp_array, named, tir_multiply_wide, wrap_int32
from aot.op.common.operator import Index, operator
from aot.op.common.tensors import Rescaled, reduced_index, reduced_shape
from aot.op.qnn.arithmetic import AddNAttrs, sum_codes
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_float, numpy_dtype
from aot.te.tensor import IterVar, TensorFn, reduce, reduce_axis
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, clamp, equal, imm, logical_and, maximum, minimum, select

# sum, prod, reduce_max, reduce_min, any, all and average: SUM, REDUCE_PROD, REDUCE_MAX, REDUCE_MIN, REDUCE_ANY, REDUCE_ALL and
# MEAN of TFLite on plain numbers (and the extremes of quantised values, which need no arithmetic) over any constant axes.
#
# Floats are added in memory order, as in the reference; integers wrap; an average of integers is truncated towards zero.
# For quantised values see mean, qnn.sum and qnn.prod.  Oracles: `reference_ops::ReduceGeneric`, `Mean`.

NUMBERS = ("int32", "int64", "float32")
ORDERED = ("int8", "uint8", "int16", *NUMBERS)

OPERATORS = {
    "SUM": ("sum", NUMBERS),
    "MEAN": ("average", NUMBERS),
    "REDUCE_PROD": ("prod", NUMBERS),
    "REDUCE_MAX": ("reduce_max", ORDERED),
    "REDUCE_MIN": ("reduce_min", ORDERED),
    "REDUCE_ANY": ("any", ("bool",)),
    "REDUCE_ALL": ("all", ("bool",)),
}
"""TFLite operator -> relay operator, element types."""


_TYPES = dict(OPERATORS.values())
_LARGEST = float(np.finfo(np.float32).max)


class Reduced:
    """Attributes of a reduction of some axes, sorted and non-negative, which the result lacks or has with extent 1."""

    __slots__ = ()

    axes: tuple[int, ...]
    keepdims: bool

    def shape_of(self, data: TensorType) -> tuple[int, ...]:
        """The result's shape."""
        return reduced_shape(data.shape, self.axes, keepdims=self.keepdims)

    def rows(self, data: Array, out_type: TensorType) -> Array:
        """[result, what is reduced to it]."""
        kept = [a for a in range(data.ndim) if a not in self.axes]
        return np.transpose(data, (*kept, *self.axes)).reshape(out_type.size, prod(data.shape[a] for a in self.axes))

    def read(self, b: IRBuilder, data: TensorFn, i: Index, position: Sequence[Expr]) -> Expr:
        """The element of the data for element i of the result and a position along the axes."""
        return data.at(b, reduced_index(i, position, axes=self.axes, keepdims=self.keepdims))

    def loops(self, data: TensorFn) -> list[IterVar]:
        """The axes that are reduced."""
        return [reduce_axis(data.shape[a], name="r") for a in self.axes]


@dataclass(frozen=True, slots=True)
class ReduceAttrs(Reduced):
    """`kind` is the operator's name; `axes` sorted and non-negative."""

    kind: str
    axes: tuple[int, ...]
    keepdims: bool

    def infer_type(self, data: TensorType) -> Type:
        """A tensor -> the same type without the axes, or with extent 1 in their place."""
        if data.dtype not in _TYPES[self.kind]:
            raise TypeRuleError(f"{self.kind} of {data} is not valid")
        return TensorType(self.shape_of(data), data.dtype, data.quant)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        start = np.full((out_type.size, 1), start_value(self.kind, out_type.dtype), data.dtype)
        with np.errstate(all="ignore"):
            return np.asarray(_reduced(self.rows(data, out_type), start, self.kind), data.dtype).reshape(out_type.shape)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        kind, wide = self.kind, _accumulator(self.kind, data.dtype)
        count = prod(data.shape[a] for a in self.axes)
        start, combine = imm(start_value(kind, data.dtype), wide), _COMBINE.get(kind, _sum)
        axes = self.loops(data)
        total = reduce(b, axes, lambda *r: cast(wide, self.read(b, data, i, r)), combine=combine, init=start, dtype=wide)
        if kind != "average":
            return cast(out_type.dtype, total)
        if is_float(wide):
            return total / imm(float(count), wide)
        return cast(out_type.dtype, cast("int64", total) / count)


def start_value(kind: str, dtype: str) -> int | float:
    """The reduction of no elements."""
    low, high = (-_LARGEST, _LARGEST) if is_float(dtype) else int_range(dtype)
    starts = {"prod": 1, "all": 1, "reduce_max": low, "reduce_min": high}
    return float(starts.get(kind, 0)) if is_float(dtype) else starts.get(kind, 0)


def _reduced(rows: Array, start: Array, kind: str) -> Array:
    """One number per row; floats one after the other, starting with the start value."""
    both = np.concatenate([start, rows], axis=1)
    simple = {"any": np.logical_or, "all": np.logical_and, "reduce_max": np.fmax, "reduce_min": np.fmin}
    if kind in simple:
        return np.asarray(simple[kind].reduce(both, axis=1))
    total: Array = (np.multiply if kind == "prod" else np.add).accumulate(both, axis=1)[:, -1]
    if kind == "average" and is_float(str(rows.dtype)):
        return np.asarray(total / np.float32(rows.shape[1]))
    if kind == "average":
        whole: Array = both.sum(axis=1, dtype=np.int64)
        down: Array = whole // rows.shape[1]
        return np.asarray(down + ((whole < 0) & (down * rows.shape[1] != whole)))
    return total


def _accumulator(kind: str, dtype: str) -> str:
    """Integers are added in unsigned types, which wrap; an average of int32 in 64 bits."""
    if kind == "average" and dtype == "int32":
        return "int64"
    return {"int32": "uint32", "int64": "uint64"}.get(dtype, dtype) if kind in ("sum", "average", "prod") else dtype


def _sum(acc: Expr, value: Expr) -> Expr:
    return acc + value


_COMBINE: dict[str, Callable[[Expr, Expr], Expr]] = {
    "any": lambda acc, value: binop("||", acc, value),
    "all": lambda acc, value: binop("&&", acc, value),
    "reduce_max": lambda acc, value: maximum(value, acc),  # in this order a NaN has no effect
    "reduce_min": lambda acc, value: minimum(value, acc),
    "prod": lambda acc, value: acc * value,
}


for _opcode, (_kind, _dtypes) in OPERATORS.items():
    _doc = f"{_opcode}; {', '.join(_dtypes)}, any axes"
    operator(_kind, _doc, [("data", "numbers, bool", "the operand")], OpPattern.COMM_REDUCE)(ReduceAttrs)


# mean and qnn.sum: MEAN and SUM of TFLite on int8, uint8 and int16 values over any axes (plain numbers: see sum).
#
# out = clamp(zp + rescale(sum(x) - count * zp_in)) where the multiplier already contains 1/count: it is shifted left by
# floor(log2(count)) bits (at most 32, and no more than keeps the shift above -31), then divided by count.
# A sum is the same without the count.
# Oracle: `reference_ops::QuantizedMeanOrSum` with the parameters of `reduce.cc`; for SUM of int8 and int16, which TFLite's
# reference does not compute correctly, TFLM's `reduce_common.cc`.

MEAN_CODES = ("int8", "uint8", "int16")


@operator("qnn.sum", "SUM; int8, uint8, int16, any axes", [("data", "int8, int16", "the operand")], OpPattern.COMM_REDUCE)
@operator("mean", "MEAN; int8, uint8, int16, any axes", [("data", "int8, int16", "the operand")], OpPattern.COMM_REDUCE)
class MeanAttrs(Rescaled, Reduced):
    """`axes` sorted and non-negative; multiplier and shift represent input scale / (output scale * count)."""

    axes: tuple[int, ...]
    keepdims: bool
    input_zp: int
    multiplier: int
    shift: int
    zero_point: int
    lo: int = -128
    hi: int = 127
    quant: QuantParams | None = None

    def infer_type(self, data: TensorType) -> Type:
        """int8, uint8 or int16 -> the same without the axes, or with extent 1 in their place."""
        if data.dtype not in MEAN_CODES:
            raise TypeRuleError(f"mean needs a tensor of {', '.join(MEAN_CODES)}, not {data}")
        return TensorType(self.shape_of(data), data.dtype, self.quant)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        count = prod(data.shape[a] for a in self.axes)
        total = data.astype(np.int64).sum(axis=self.axes) if self.axes else data.astype(np.int64)
        return self.rescaled(wrap_int32(total - self.input_zp * count)).astype(out_type.dtype).reshape(out_type.shape)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        count = prod(data.shape[a] for a in self.axes)
        total = te_sum(b, self.loops(data), lambda *r: cast("int32", self.read(b, data, i, r)), init=-self.input_zp * count)
        return cast(out_type.dtype, self.tir_rescaled(b, total))


# qnn.prod: REDUCE_PROD of TFLite on int8 and int16 values over any constant axes (plain numbers: see prod).
#
# p = x0; p = rescale(p * x1); ... in memory order; out = clamp(zp + rescale(p)), x = q - zp_in.  Every rescale is the 64-bit
# MultiplyByQuantizedMultiplier, with a 16-bit multiplier, by scale_in / scale^(1/n).  Oracle: `QuantizedReduceProd`.

PROD_CODES = ("int8", "int16")


@operator("qnn.prod", "REDUCE_PROD; int8, int16, any axes", [("data", "int8, int16", "the operand")], OpPattern.COMM_REDUCE)
class ProdAttrs(Reduced):
    """Sorted axes; zero point of the data; multiplier (16 bits, in place), shift and zero point of the result."""

    axes: tuple[int, ...]
    keepdims: bool
    input_zp: int
    multiplier: int
    shift: int
    zero_point: int
    quant: QuantParams | None = None

    def infer_type(self, data: TensorType) -> Type:
        """int8 or int16 -> the same type without the axes, or with extent 1 in their place."""
        if data.dtype not in PROD_CODES:
            raise TypeRuleError(f"the product of {data} is not valid")
        return TensorType(self.shape_of(data), data.dtype, self.quant)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        centred = self.rows(data, out_type).astype(np.int64) - self.input_zp
        product = centred[:, 0]
        for i in range(1, centred.shape[1]):
            product = _rescaled(product * centred[:, i], self)
        result = _rescaled(product, self) + self.zero_point
        return clamp_array(result, *int_range(out_type.dtype), out_type.dtype).reshape(out_type.shape)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        def rescaled(x: Expr) -> Expr:
            return tir_multiply_wide(b, x, self.multiplier, self.shift, reduced=True)

        product = b.local("product", (1,), "int32", init=0)
        with ExitStack() as loops:
            inner = [loops.enter_context(b.for_("r", data.shape[a])) for a in self.axes]
            value = b.let("value", cast("int32", self.read(b, data, i, inner)) - self.input_zp)
            first = equal(inner[0], 0)
            for position in inner[1:]:
                first = logical_and(first, equal(position, 0))
            with b.if_(first):
                b.store(product, 0, value)
            with b.else_():
                b.store(product, 0, rescaled(cast("int64", product[0]) * cast("int64", value)))
        result = rescaled(cast("int64", product[0])) + self.zero_point
        return cast(out_type.dtype, clamp(result, *int_range(out_type.dtype)))


def _rescaled(x: Int64, attrs: ProdAttrs) -> Int64:
    total = 15 - attrs.shift
    return wrap_int32((x * (attrs.multiplier >> 16) + (1 << (total - 1))) >> total)


# argmax and argmin: ARG_MAX and ARG_MIN of TFLite: the first position of the largest or smallest element along one axis.
#
# Oracle: `reference_ops::ArgMinMax`.  NaNs are skipped: the first of the largest numbers counts, or position 0 if there is no
# number.  TFLM only compares with `>` and `<`, so that a NaN at the first position stays.
#
# A limit: along the last axis (or before axes of one element), from four elements on, LiteRT's x86 build uses the kernel's NEON
# form with the pairwise minimum of ARMv7, which lets a NaN through, so that it differs from other axes and from
# AArch64 (a comment there calls it a limitation); its result, which depends on the lane of the NaN, is not reproduced.

_ARG = "one constant axis; a NaN is ignored (with a limit, see its file)"


@operator("argmin", f"ARG_MIN; {_ARG}", [("data", "numbers", "the operand")], OpPattern.COMM_REDUCE)
@operator("argmax", f"ARG_MAX; {_ARG}", [("data", "numbers", "the operand")], OpPattern.COMM_REDUCE)
class ArgReduceAttrs:
    """The axis, which the result lacks; whether to find the largest; the type of positions; whether NaNs are skipped."""

    axis: int
    largest: bool
    dtype: str = "int32"
    passes_nan: bool = False

    def infer_type(self, data: TensorType) -> Type:
        """A tensor -> positions in the shape without the axis."""
        if not 0 <= self.axis < len(data.shape) or not data.shape[self.axis]:
            raise TypeRuleError(f"the extreme position along axis {self.axis} of {data} is not valid")
        return TensorType((*data.shape[: self.axis], *data.shape[self.axis + 1 :]), self.dtype)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        if is_float(str(data.dtype)):  # numpy stops at a NaN
            return _first_extreme(data, self)
        positions = np.argmax(data, self.axis) if self.largest else np.argmin(data, self.axis)
        return np.asarray(positions, numpy_dtype(self.dtype))

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        axis = self.axis

        def element(k: Expr) -> Expr:
            return data.at(b, (*i[:axis], k, *i[axis:]))

        best = b.local("best", (1,), data.dtype, init=element(imm(0)))
        where = b.local("where", (1,), self.dtype, init=0)
        with b.for_("k", data.shape[axis], start=1) as k:
            value = named(b, "value", element(k))
            better = value > best[0] if self.largest else value < best[0]
            if self.passes_nan:  # a NaN is not equal to itself
                better = binop("||", better, logical_and(binop("!=", best[0], best[0]), equal(value, value)))
            with b.if_(better):
                b.store(best, 0, value)
                b.store(where, 0, k)
        return where[0]


def _first_extreme(data: Array, attrs: ArgReduceAttrs) -> Array:
    """The position found by walking the axis and keeping whatever exceeds the best one so far."""
    moved = np.moveaxis(data, attrs.axis, 0)
    best, position = moved[0], np.zeros(moved.shape[1:], numpy_dtype(attrs.dtype))
    for k, value in enumerate(moved):
        better = value > best if attrs.largest else value < best
        if attrs.passes_nan:
            better |= np.isnan(best) & ~np.isnan(value)
        best, position = np.where(better, value, best), np.where(better, position.dtype.type(k), position)
    return np.asarray(position)


# cumsum and qnn.cumsum: CUMSUM of TFLite: running sums along one constant axis, integers wrapping.
#
# Oracle: `reference_ops::CumSum`: inclusive or exclusive (the sum of the preceding elements), from either end.  For int8 values
# TFLM's, as TensorFlow Lite has none: every sum is rescaled like those of qnn.add_n and also starts with the value 0.

CUMSUM_TYPES = ("int32", "int64", "float32")


@operator("qnn.cumsum", "CUMSUM; int8, one constant axis", [("data", "int8", "the operand")])
@operator("cumsum", "CUMSUM; one constant axis", [("data", "numbers", "the operand")])
class CumSumAttrs:
    """The axis; whether an element is part of its own sum; the end to start from."""

    axis: int
    exclusive: bool
    reverse: bool
    codes: AddNAttrs | None = None
    """How a sum becomes a quantised value; None for numbers."""

    def infer_type(self, data: TensorType) -> Type:
        """int32, int64, float32, or with `codes` int8 -> the same type."""
        if data.dtype not in (CUMSUM_TYPES if self.codes is None else ("int8",)) or not 0 <= self.axis < len(data.shape):
            raise TypeRuleError(f"running sums of {data} along axis {self.axis} are not valid")
        return data if self.codes is None else data.with_dtype("int8", self.codes.quant)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        if self.codes is None:
            return self._sums(data)
        zp = self.codes.input_zp
        return sum_codes(self._sums(data.astype(np.int64) - zp) - zp, self.codes)

    def _sums(self, data: Array) -> Array:
        rows = np.moveaxis(data, self.axis, -1)
        rows = rows[..., ::-1] if self.reverse else rows
        with np.errstate(all="ignore"):
            sums = np.add.accumulate(np.concatenate([np.zeros_like(rows[..., :1]), rows], axis=-1), axis=-1, dtype=data.dtype)
        sums = sums[..., :-1] if self.exclusive else sums[..., 1:]
        sums = sums[..., ::-1] if self.reverse else sums
        return np.ascontiguousarray(np.moveaxis(sums, -1, self.axis))


# topk: TOPK_V2 of TFLite: positions of the k largest elements of each row, equal ones in order, NaNs
# after all numbers; their values are a `take`.
#
# Oracle: `kernels/topk_v2.cc`.
@operator("topk", "TOPK_V2; constant k; a NaN sorts after all numbers", [("data", "numbers [..., C]", "the operand")])
class TopKAttrs:
    """How many; the type of positions."""

    k: int
    dtype: str = "int32"

    def infer_type(self, data: TensorType) -> Type:
        """[..., n] -> positions [..., k]."""
        if not data.shape or not 1 <= self.k <= data.shape[-1]:
            raise TypeRuleError(f"the {self.k} largest of {data} are not valid")
        return TensorType((*data.shape[:-1], self.k), self.dtype)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        n = data.shape[-1]
        row = data[..., ::-1]
        order = np.argsort(row, axis=-1, kind="stable")[..., ::-1]
        if is_float(str(data.dtype)):  # numpy sorts NaNs last, so they come first here
            behind = np.take_along_axis(np.isnan(row), order, -1)
            order = np.take_along_axis(order, np.argsort(behind, axis=-1, kind="stable"), -1)
        order = n - 1 - order
        return np.ascontiguousarray(order[..., : self.k]).astype(numpy_dtype(self.dtype))


# reduce_window: REDUCE_WINDOW and STABLEHLO_REDUCE_WINDOW of TFLite: windows in any number of dimensions, each reduced to one
# element.
#
# A window starts with a given value and combines its elements in order: sums and products (integers wrap), minima, maxima, "and"
# (ALL) and "or" (ANY), which are 0 or 1 in the data's type.  Window, strides and dilations are constants.
# STABLEHLO_REDUCE_WINDOW first inserts the given value, a constant there, between and around the elements, or removes some, and
# names the reduction by a subgraph of one operator; the reference looks only at that operator's name.  Oracle:
# `kernels/stablehlo_reduce_window.cc`.

WINDOWED_TYPES = ("bool", "int8", "uint8", "int16", "int32", "int64", "float32")
KINDS = ("ADD", "MUL", "MINIMUM", "MAXIMUM", "ALL", "ANY")


@operator(
    "reduce_window",
    "REDUCE_WINDOW, STABLEHLO_REDUCE_WINDOW",
    [("data", "numbers, bool", "the operand"), ("first", "[1]", "what each window starts from")],
)
class ReduceWindowAttrs:
    """The reduction, and window, strides and dilations per dimension."""

    kind: str
    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]

    def infer_type(self, data: TensorType, first: TensorType) -> Type:
        """Data and a start value [1] -> the data's type, one element per window position."""
        rank = len(data.shape)
        if (
            data.dtype not in WINDOWED_TYPES
            or first.dtype != data.dtype
            or first.shape != (1,)
            or self.kind not in KINDS
            or not rank
        ):
            raise TypeRuleError(f"reduce_window of {data} from {first} is not valid")
        numbers = (self.window, self.strides, self.dilations)
        if any(len(n) != rank or min(n) < 1 for n in numbers):
            raise TypeRuleError(f"reduce_window of {data} by {self} is not valid")
        spans = [(w - 1) * d + 1 for w, d in zip(self.window, self.dilations, strict=True)]
        if any(n < s for n, s in zip(data.shape, spans, strict=True)):
            raise TypeRuleError(f"no window {self.window} fits {data}")
        shape = tuple((n - s) // stride + 1 for n, s, stride in zip(data.shape, spans, self.strides, strict=True))
        return TensorType(shape, data.dtype, data.quant)

    def evaluate(self, data: Array, first: Array, *, out_type: TensorType) -> Array:
        result = np.full(out_type.shape, first[0], data.dtype)
        with np.errstate(all="ignore"):
            for taps in product(*(range(w) for w in self.window)):
                places = zip(taps, self.dilations, self.strides, out_type.shape, strict=True)
                part = data[tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, s, n in places)]
                result = _JOIN[self.kind](result, part)
        return np.asarray(result, data.dtype)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, first: TensorFn, *, out_type: TensorType) -> Expr:
        wide = data.dtype
        if self.kind in ("ADD", "MUL") and not is_float(wide):
            wide = "uint64" if wide == "int64" else "uint32"

        def term(*taps: Expr) -> Expr:
            places = zip(i, taps, self.strides, self.dilations, strict=True)
            return b.let("x", cast(wide, data.at(b, tuple(at * s + t * d for at, t, s, d in places))))

        axes = [reduce_axis(w, name="w") for w in self.window]
        start = cast(wide, first.at(b, (imm(0),)))
        result = reduce(b, axes, term, combine=lambda x, y: _joined(self.kind, x, y), init=start, dtype=wide)
        return cast(data.dtype, result)


_JOIN: dict[str, Callable[[Array, Array], Array]] = {
    "ADD": lambda a, b: a + b,
    "MUL": lambda a, b: a * b,
    "MINIMUM": lambda a, b: np.where(a <= b, a, b),
    "MAXIMUM": lambda a, b: np.where(a >= b, a, b),
    "ALL": lambda a, b: np.logical_and(a != 0, b != 0).astype(a.dtype),
    "ANY": lambda a, b: np.logical_or(a != 0, b != 0).astype(a.dtype),
}


def _joined(kind: str, a: Expr, b: Expr) -> Expr:
    if kind in ("MINIMUM", "MAXIMUM"):
        return select(a <= b if kind == "MINIMUM" else a >= b, a, b)
    if kind in ("ALL", "ANY"):
        return cast(a.dtype, binop("&&" if kind == "ALL" else "||", _truth(a), _truth(b)))
    return a + b if kind == "ADD" else a * b


def _truth(x: Expr) -> Expr:
    return x if x.dtype == "bool" else binop("!=", x, imm(0, x.dtype))
