"""Reductions: of plain numbers and quantised values, positions of extremes, running sums, top k, sliding windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import product
from math import prod

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import (
    Int64,
    clamp_array,
    multiply_by_quantized_multiplier,
    named,
    tir_multiply_wide,
    tir_requantize,
    wrap_int32,
)
from aot.op.common.te_rule import F_TE, TeContext
from aot.op.common.tensors import Clamped, reduced_index, reduced_shape, tensors_of
from aot.op.qnn.arithmetic import AddNAttrs, sum_codes
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_float, numpy_dtype
from aot.te.tensor import TensorFn, reduce, reduce_axis, tensor_fn
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


@dataclass(frozen=True, slots=True)
class ReduceAttrs:
    """`kind` is the operator's name; `axes` sorted and non-negative."""

    kind: str
    axes: tuple[int, ...]
    keepdims: bool


def infer_reduce(types: Sequence[Type], attrs: ReduceAttrs) -> Type:
    """A tensor -> the same type without the axes, or with extent 1 in their place."""
    (data,) = tensors_of(types, 1)
    if data.dtype not in _TYPES[attrs.kind]:
        raise TypeRuleError(f"{attrs.kind} of {data} is not valid")
    return TensorType(reduced_shape(data.shape, attrs.axes, keepdims=attrs.keepdims), data.dtype, data.quant)


def start_value(kind: str, dtype: str) -> int | float:
    """The reduction of no elements."""
    low, high = (-_LARGEST, _LARGEST) if is_float(dtype) else int_range(dtype)
    starts = {"prod": 1, "all": 1, "reduce_max": low, "reduce_min": high}
    return float(starts.get(kind, 0)) if is_float(dtype) else starts.get(kind, 0)


def evaluate_reduce(data: Array, *, attrs: ReduceAttrs, out_type: TensorType) -> Array:
    kept = [a for a in range(data.ndim) if a not in attrs.axes]
    rows = np.transpose(data, (*kept, *attrs.axes)).reshape(out_type.size, prod(data.shape[a] for a in attrs.axes))
    start = np.full((out_type.size, 1), start_value(attrs.kind, out_type.dtype), data.dtype)
    with np.errstate(all="ignore"):
        return np.asarray(_reduced(rows, start, attrs.kind), data.dtype).reshape(out_type.shape)


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


def _combine(kind: str, acc: Expr, value: Expr) -> Expr:
    match kind:
        case "any":
            return binop("||", acc, value)
        case "all":
            return binop("&&", acc, value)
        case "reduce_max":
            return maximum(value, acc)  # in this order a NaN has no effect
        case "reduce_min":
            return minimum(value, acc)
        case "prod":
            return acc * value
        case _:
            return acc + value


def te_reduce(_ctx: TeContext, args: Sequence[TensorFn], attrs: ReduceAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args
    kind, wide = attrs.kind, _accumulator(attrs.kind, data.dtype)
    count = prod(data.shape[a] for a in attrs.axes)

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        def term(*reduced: Expr) -> Expr:
            return cast(wide, data.at(b, reduced_index(i, reduced, axes=attrs.axes, keepdims=attrs.keepdims)))

        start = imm(start_value(kind, data.dtype), wide)
        axes = [reduce_axis(data.shape[a], name="r") for a in attrs.axes]
        total = reduce(b, axes, term, combine=lambda acc, value: _combine(kind, acc, value), init=start, dtype=wide)
        if kind != "average":
            return cast(out_type.dtype, total)
        if is_float(wide):
            return total / imm(float(count), wide)
        return cast(out_type.dtype, cast("int64", total) / count)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


for _opcode, (_kind, _dtypes) in OPERATORS.items():
    register_op(
        _kind,
        1,
        arguments=[("data", "numbers, bool", "the operand")],
        attrs_type=ReduceAttrs,
        pattern=OpPattern.COMM_REDUCE,
        infer_type=infer_reduce,
        evaluate=evaluate_reduce,
        doc=f"{_opcode}; {', '.join(_dtypes)}, any axes",
    )
    F_TE.set(_kind, te_reduce)


# mean and qnn.sum: MEAN and SUM of TFLite on int8, uint8 and int16 values over any axes (plain numbers: see sum).
#
# out = clamp(zp + rescale(sum(x) - count * zp_in)) where the multiplier already contains 1/count: it is shifted left by
# floor(log2(count)) bits (at most 32, and no more than keeps the shift above -31), then divided by count.
# A sum is the same without the count.
# Oracle: `reference_ops::QuantizedMeanOrSum` with the parameters of `reduce.cc`; for SUM of int8 and int16, which TFLite's
# reference does not compute correctly, TFLM's `reduce_common.cc`.


MEAN_CODES = ("int8", "uint8", "int16")


@dataclass(frozen=True, slots=True)
class MeanAttrs(Clamped):
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


def infer_mean(types: Sequence[Type], attrs: MeanAttrs) -> Type:
    """int8, uint8 or int16 -> the same without the axes, or with extent 1 in their place."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype not in MEAN_CODES:
        raise TypeRuleError(f"mean needs a tensor of {', '.join(MEAN_CODES)}, not {data}")
    return TensorType(reduced_shape(data.shape, attrs.axes, keepdims=attrs.keepdims), data.dtype, attrs.quant)


def evaluate_mean(data: Array, *, attrs: MeanAttrs, out_type: TensorType) -> Array:
    count = prod(data.shape[a] for a in attrs.axes)
    total = data.astype(np.int64).sum(axis=attrs.axes) if attrs.axes else data.astype(np.int64)
    scaled = multiply_by_quantized_multiplier(wrap_int32(total - attrs.input_zp * count), attrs.multiplier, attrs.shift)
    return clamp_array(scaled + attrs.zero_point, attrs.lo, attrs.hi, out_type.dtype).reshape(out_type.shape)


def te_mean(_ctx: TeContext, args: Sequence[TensorFn], attrs: MeanAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args
    count = prod(data.shape[a] for a in attrs.axes)

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        def term(*reduced: Expr) -> Expr:
            index = reduced_index(i, reduced, axes=attrs.axes, keepdims=attrs.keepdims)
            return cast("int32", data.at(b, index))

        total = te_sum(b, [reduce_axis(data.shape[a], name="r") for a in attrs.axes], term, init=-attrs.input_zp * count)
        value = tir_requantize(
            b,
            total,
            multiplier=attrs.multiplier,
            shift=attrs.shift,
            zero_point=attrs.zero_point,
            lo=attrs.lo,
            hi=attrs.hi,
        )
        return cast(out_type.dtype, value)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


for _name, _doc in (("mean", "MEAN; int8, uint8, int16, any axes"), ("qnn.sum", "SUM; int8, uint8, int16, any axes")):
    register_op(
        _name,
        1,
        arguments=[("data", "int8, int16", "the operand")],
        attrs_type=MeanAttrs,
        pattern=OpPattern.COMM_REDUCE,
        infer_type=infer_mean,
        evaluate=evaluate_mean,
        doc=_doc,
    )
    F_TE.set(_name, te_mean)


# qnn.prod: REDUCE_PROD of TFLite on int8 and int16 values over any constant axes (plain numbers: see prod).
#
# p = x0; p = rescale(p * x1); ... in memory order; out = clamp(zp + rescale(p)), x = q - zp_in.  Every rescale is the 64-bit
# MultiplyByQuantizedMultiplier, with a 16-bit multiplier, by scale_in / scale^(1/n).  Oracle: `QuantizedReduceProd`.


PROD_CODES = ("int8", "int16")


@dataclass(frozen=True, slots=True)
class ProdAttrs:
    """Sorted axes; zero point of the data; multiplier (16 bits, in place), shift and zero point of the result."""

    axes: tuple[int, ...]
    keepdims: bool
    input_zp: int
    multiplier: int
    shift: int
    zero_point: int
    quant: QuantParams | None = None


def infer_prod(types: Sequence[Type], attrs: ProdAttrs) -> Type:
    """int8 or int16 -> the same type without the axes, or with extent 1 in their place."""
    (data,) = tensors_of(types, 1)
    if data.dtype not in PROD_CODES:
        raise TypeRuleError(f"the product of {data} is not valid")
    return TensorType(reduced_shape(data.shape, attrs.axes, keepdims=attrs.keepdims), data.dtype, attrs.quant)


def _rescaled(x: Int64, attrs: ProdAttrs) -> Int64:
    total = 15 - attrs.shift
    return wrap_int32((x * (attrs.multiplier >> 16) + (1 << (total - 1))) >> total)


def evaluate_prod(data: Array, *, attrs: ProdAttrs, out_type: TensorType) -> Array:
    kept = [a for a in range(data.ndim) if a not in attrs.axes]
    rows = np.transpose(data, (*kept, *attrs.axes)).reshape(out_type.size, prod(data.shape[a] for a in attrs.axes))
    centred = rows.astype(np.int64) - attrs.input_zp
    product = centred[:, 0]
    for i in range(1, centred.shape[1]):
        product = _rescaled(product * centred[:, i], attrs)
    result = _rescaled(product, attrs) + attrs.zero_point
    return clamp_array(result, *int_range(out_type.dtype), out_type.dtype).reshape(out_type.shape)


def te_prod(_ctx: TeContext, args: Sequence[TensorFn], attrs: ProdAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args

    def rescaled(b: IRBuilder, x: Expr) -> Expr:
        return tir_multiply_wide(b, x, attrs.multiplier, attrs.shift, reduced=True)

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        product = b.local("product", (1,), "int32", init=0)
        with ExitStack() as loops:
            inner = [loops.enter_context(b.for_("r", data.shape[a])) for a in attrs.axes]
            index = reduced_index(i, inner, axes=attrs.axes, keepdims=attrs.keepdims)
            value = b.let("value", cast("int32", data.at(b, index)) - attrs.input_zp)
            first = equal(inner[0], 0)
            for position in inner[1:]:
                first = logical_and(first, equal(position, 0))
            with b.if_(first):
                b.store(product, 0, value)
            with b.else_():
                b.store(product, 0, rescaled(b, cast("int64", product[0]) * cast("int64", value)))
        result = rescaled(b, cast("int64", product[0])) + attrs.zero_point
        return cast(out_type.dtype, clamp(result, *int_range(out_type.dtype)))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "qnn.prod",
    1,
    arguments=[("data", "int8, int16", "the operand")],
    attrs_type=ProdAttrs,
    pattern=OpPattern.COMM_REDUCE,
    infer_type=infer_prod,
    evaluate=evaluate_prod,
    doc="REDUCE_PROD; int8, int16, any axes",
)
F_TE.set("qnn.prod", te_prod)


# argmax and argmin: ARG_MAX and ARG_MIN of TFLite: the first position of the largest or smallest element along one axis.
#
# Oracle: `reference_ops::ArgMinMax`.  NaNs are skipped: the first of the largest numbers counts, or position 0 if there is no
# number.  TFLM only compares with `>` and `<`, so that a NaN at the first position stays.
#
# A limit: along the last axis (or before axes of one element), from four elements on, LiteRT's x86 build uses the kernel's NEON
# form with the pairwise minimum of ARMv7, which lets a NaN through, so that it differs from other axes and from
# AArch64 (a comment there calls it a limitation); its result, which depends on the lane of the NaN, is not reproduced.


@dataclass(frozen=True, slots=True)
class ArgReduceAttrs:
    """The axis, which the result lacks; whether to find the largest; the type of positions; whether NaNs are skipped."""

    axis: int
    largest: bool
    dtype: str = "int32"
    passes_nan: bool = False


def infer_arg_reduce(types: Sequence[Type], attrs: ArgReduceAttrs) -> Type:
    """A tensor -> positions in the shape without the axis."""
    (data,) = tensors_of(types, 1)
    if not 0 <= attrs.axis < len(data.shape) or not data.shape[attrs.axis]:
        raise TypeRuleError(f"the extreme position along axis {attrs.axis} of {data} is not valid")
    return TensorType((*data.shape[: attrs.axis], *data.shape[attrs.axis + 1 :]), attrs.dtype)


def evaluate_arg_reduce(data: Array, *, attrs: ArgReduceAttrs, out_type: TensorType) -> Array:
    if is_float(str(data.dtype)):  # numpy stops at a NaN
        return _first_extreme(data, attrs)
    positions = np.argmax(data, attrs.axis) if attrs.largest else np.argmin(data, attrs.axis)
    return np.asarray(positions, numpy_dtype(attrs.dtype))


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


def te_arg_reduce(_ctx: TeContext, args: Sequence[TensorFn], attrs: ArgReduceAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args
    axis = attrs.axis

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        def element(k: Expr) -> Expr:
            return data.at(b, (*i[:axis], k, *i[axis:]))

        best = b.local("best", (1,), data.dtype, init=element(imm(0)))
        where = b.local("where", (1,), attrs.dtype, init=0)
        with b.for_("k", data.shape[axis], start=1) as k:
            value = named(b, "value", element(k))
            better = value > best[0] if attrs.largest else value < best[0]
            if attrs.passes_nan:  # a NaN is not equal to itself
                better = binop("||", better, logical_and(binop("!=", best[0], best[0]), equal(value, value)))
            with b.if_(better):
                b.store(best, 0, value)
                b.store(where, 0, k)
        return where[0]

    return tensor_fn(out_type.shape, out_type.dtype, rule)


for _name in ("argmax", "argmin"):
    register_op(
        _name,
        1,
        arguments=[("data", "numbers", "the operand")],
        attrs_type=ArgReduceAttrs,
        pattern=OpPattern.COMM_REDUCE,
        infer_type=infer_arg_reduce,
        evaluate=evaluate_arg_reduce,
        doc=f"{_name[:3].upper()}_{_name[3:].upper()}; one constant axis; a NaN is ignored (with a limit, see its file)",
    )
    F_TE.set(_name, te_arg_reduce)


# cumsum and qnn.cumsum: CUMSUM of TFLite: running sums along one constant axis, integers wrapping.
#
# Oracle: `reference_ops::CumSum`: inclusive or exclusive (the sum of the preceding elements), from either end.  For int8 values
# TFLM's, as TensorFlow Lite has none: every sum is rescaled like ADD_N's (`add_n.py`) and also starts with the value 0.


CUMSUM_TYPES = ("int32", "int64", "float32")


@dataclass(frozen=True, slots=True)
class CumSumAttrs:
    """The axis; whether an element is part of its own sum; the end to start from."""

    axis: int
    exclusive: bool
    reverse: bool
    codes: AddNAttrs | None = None
    """How a sum becomes a quantised value; None for numbers."""


def infer_cumsum(types: Sequence[Type], attrs: CumSumAttrs) -> Type:
    """int32, int64 or float32 -> the same type."""
    (data,) = tensors_of(types, 1)
    if data.dtype not in CUMSUM_TYPES or not 0 <= attrs.axis < len(data.shape):
        raise TypeRuleError(f"running sums of {data} along axis {attrs.axis} are not valid")
    return data


def infer_codes(types: Sequence[Type], attrs: CumSumAttrs) -> Type:
    """int8 -> int8."""
    (data,) = tensors_of(types, 1)
    if data.dtype != "int8" or attrs.codes is None or not 0 <= attrs.axis < len(data.shape):
        raise TypeRuleError(f"running sums of {data} along axis {attrs.axis} are not valid")
    return data.with_dtype("int8", attrs.codes.quant)


def evaluate_codes(data: Array, *, attrs: CumSumAttrs, out_type: TensorType) -> Array:
    assert attrs.codes is not None
    centred = data.astype(np.int64) - attrs.codes.input_zp
    sums = evaluate_cumsum(centred, attrs=attrs, out_type=out_type)
    return sum_codes(sums - attrs.codes.input_zp, attrs.codes)


def evaluate_cumsum(data: Array, *, attrs: CumSumAttrs, out_type: TensorType) -> Array:
    rows = np.moveaxis(data, attrs.axis, -1)
    rows = rows[..., ::-1] if attrs.reverse else rows
    with np.errstate(all="ignore"):
        sums = np.add.accumulate(np.concatenate([np.zeros_like(rows[..., :1]), rows], axis=-1), axis=-1, dtype=data.dtype)
    sums = sums[..., :-1] if attrs.exclusive else sums[..., 1:]
    sums = sums[..., ::-1] if attrs.reverse else sums
    return np.ascontiguousarray(np.moveaxis(sums, -1, attrs.axis))


register_op(
    "cumsum",
    1,
    arguments=[("data", "numbers", "the operand")],
    attrs_type=CumSumAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_cumsum,
    evaluate=evaluate_cumsum,
    doc="CUMSUM; one constant axis",
)
register_op(
    "qnn.cumsum",
    1,
    arguments=[("data", "int8", "the operand")],
    attrs_type=CumSumAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_codes,
    evaluate=evaluate_codes,
    doc="CUMSUM; int8, one constant axis",
)


# topk: TOPK_V2 of TFLite: positions of the k largest elements of each row, equal ones in order, NaNs
# after all numbers; their values are a `take`.
#
# Oracle: `kernels/topk_v2.cc`.


@dataclass(frozen=True, slots=True)
class TopKAttrs:
    """How many; the type of positions."""

    k: int
    dtype: str = "int32"


def infer_topk(types: Sequence[Type], attrs: TopKAttrs) -> Type:
    """[..., n] -> positions [..., k]."""
    (data,) = tensors_of(types, 1)
    if not data.shape or not 1 <= attrs.k <= data.shape[-1]:
        raise TypeRuleError(f"the {attrs.k} largest of {data} are not valid")
    return TensorType((*data.shape[:-1], attrs.k), attrs.dtype)


def evaluate_topk(data: Array, *, attrs: TopKAttrs, out_type: TensorType) -> Array:
    # a stable sort of the reversed row, read backwards, keeps equal elements in order
    n = data.shape[-1]
    row = data[..., ::-1]
    order = np.argsort(row, axis=-1, kind="stable")[..., ::-1]
    if is_float(str(data.dtype)):  # numpy sorts NaNs last, so they come first here
        behind = np.take_along_axis(np.isnan(row), order, -1)
        order = np.take_along_axis(order, np.argsort(behind, axis=-1, kind="stable"), -1)
    order = n - 1 - order
    return np.ascontiguousarray(order[..., : attrs.k]).astype(numpy_dtype(attrs.dtype))


register_op(
    "topk",
    1,
    arguments=[("data", "numbers [..., C]", "the operand")],
    attrs_type=TopKAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_topk,
    evaluate=evaluate_topk,
    doc="TOPK_V2; constant k; a NaN sorts after all numbers",
)


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


@dataclass(frozen=True, slots=True)
class ReduceWindowAttrs:
    """The reduction, and window, strides and dilations per dimension."""

    kind: str
    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]


def infer_reduce_window(types: Sequence[Type], attrs: ReduceWindowAttrs) -> Type:
    """Data and a start value [1] -> the data's type, one element per window position."""
    data, first = tensors_of(types, 2)
    rank = len(data.shape)
    if (
        data.dtype not in WINDOWED_TYPES
        or first.dtype != data.dtype
        or first.shape != (1,)
        or attrs.kind not in KINDS
        or not rank
    ):
        raise TypeRuleError(f"reduce_window of {data} from {first} is not valid")
    numbers = (attrs.window, attrs.strides, attrs.dilations)
    if any(len(n) != rank or min(n) < 1 for n in numbers):
        raise TypeRuleError(f"reduce_window of {data} by {attrs} is not valid")
    spans = [(w - 1) * d + 1 for w, d in zip(attrs.window, attrs.dilations, strict=True)]
    if any(n < s for n, s in zip(data.shape, spans, strict=True)):
        raise TypeRuleError(f"no window {attrs.window} fits {data}")
    shape = tuple((n - s) // stride + 1 for n, s, stride in zip(data.shape, spans, attrs.strides, strict=True))
    return TensorType(shape, data.dtype, data.quant)


_JOIN: dict[str, Callable[[Array, Array], Array]] = {
    "ADD": lambda a, b: a + b,
    "MUL": lambda a, b: a * b,
    "MINIMUM": lambda a, b: np.where(a <= b, a, b),
    "MAXIMUM": lambda a, b: np.where(a >= b, a, b),
    "ALL": lambda a, b: np.logical_and(a != 0, b != 0).astype(a.dtype),
    "ANY": lambda a, b: np.logical_or(a != 0, b != 0).astype(a.dtype),
}


def evaluate_reduce_window(data: Array, first: Array, *, attrs: ReduceWindowAttrs, out_type: TensorType) -> Array:
    result = np.full(out_type.shape, first[0], data.dtype)
    with np.errstate(all="ignore"):
        for taps in product(*(range(w) for w in attrs.window)):
            places = zip(taps, attrs.dilations, attrs.strides, out_type.shape, strict=True)
            part = data[tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, s, n in places)]
            result = _JOIN[attrs.kind](result, part)
    return np.asarray(result, data.dtype)


def _joined(kind: str, a: Expr, b: Expr) -> Expr:
    if kind in ("MINIMUM", "MAXIMUM"):
        return select(a <= b if kind == "MINIMUM" else a >= b, a, b)
    if kind in ("ALL", "ANY"):
        return cast(a.dtype, binop("&&" if kind == "ALL" else "||", _truth(a), _truth(b)))
    return a + b if kind == "ADD" else a * b


def _truth(x: Expr) -> Expr:
    return x if x.dtype == "bool" else binop("!=", x, imm(0, x.dtype))


def te_reduce_window(_ctx: TeContext, args: Sequence[TensorFn], attrs: ReduceWindowAttrs, out_type: TensorType) -> TensorFn:
    data, first = args
    wide = data.dtype
    if attrs.kind in ("ADD", "MUL") and not is_float(wide):
        wide = "uint64" if wide == "int64" else "uint32"

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        def term(*taps: Expr) -> Expr:
            places = zip(i, taps, attrs.strides, attrs.dilations, strict=True)
            return b.let("x", cast(wide, data.at(b, tuple(at * s + t * d for at, t, s, d in places))))

        axes = [reduce_axis(w, name="w") for w in attrs.window]
        start = cast(wide, first.at(b, (imm(0),)))
        result = reduce(b, axes, term, combine=lambda x, y: _joined(attrs.kind, x, y), init=start, dtype=wide)
        return cast(data.dtype, result)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "reduce_window",
    2,
    arguments=[("data", "numbers, bool", "the operand"), ("first", "[1]", "what each window starts from")],
    attrs_type=ReduceWindowAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_reduce_window,
    evaluate=evaluate_reduce_window,
    doc="REDUCE_WINDOW, STABLEHLO_REDUCE_WINDOW",
)
F_TE.set("reduce_window", te_reduce_window)
