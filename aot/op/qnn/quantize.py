"""Between real numbers and quantised values: quantize, requantize, dequantize, cast_sums; and clip."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import (
    is_reduced,
    multiply_by_long_multiplier,
    multiply_by_quantized_multiplier,
    named,
    requantize,
    tir_multiply_by_quantized_multiplier,
    tir_multiply_long,
    tir_multiply_wide,
    tir_requantize,
)
from aot.numerics.linear import Rescaling, rescaling_of_range
from aot.op.common.te_rule import F_TE, TeContext
from aot.op.common.tensors import Clamped
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_int
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Imm, binop, cast, clamp, imm, maximum, minimum, select

# clip: clamp every element to [lo, hi] in units of the data's own type (a fused or standalone RELU on quantised values).
#
# Oracle: the clamp at the end of TFLite's kernels (`ActivationFunctionWithMinMax`).


@dataclass(frozen=True, slots=True)
class ClipAttrs:
    """Bounds, both inclusive."""

    lo: int
    hi: int


def infer_clip(types: Sequence[Type], attrs: ClipAttrs) -> Type:
    """An integer tensor -> the same type."""
    (data,) = types
    if not isinstance(data, TensorType) or not is_int(data.dtype):
        raise TypeRuleError(f"clip needs an integer tensor, not {data}")
    low, high = int_range(data.dtype)
    if not low <= attrs.lo <= attrs.hi <= high:
        raise TypeRuleError(f"clip range [{attrs.lo}, {attrs.hi}] outside {data.dtype}")
    return data


def evaluate_clip(data: Array, *, attrs: ClipAttrs, out_type: TensorType) -> Array:
    return np.clip(data, attrs.lo, attrs.hi).astype(out_type.dtype)


def te_clip(_ctx: TeContext, args: Sequence[TensorFn], attrs: ClipAttrs, out_type: TensorType) -> TensorFn:
    def rule(b: IRBuilder, *i: Expr) -> Expr:
        return clamp(args[0].at(b, i), attrs.lo, attrs.hi)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "clip",
    1,
    arguments=[("data", "integers", "the operand")],
    attrs_type=ClipAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_clip,
    evaluate=evaluate_clip,
    doc="clamp of a fused activation",
)
F_TE.set("clip", te_clip)


# qnn.requantize: from an accumulator to a narrow quantised type, as in TFLite's kernels.
#
# out = clamp(zero_point + round(acc * multiplier * 2^(shift - 31)), lo, hi) with a 31-bit multiplier and TFLite's sign of the
# shift (positive shifts left).  `rounding`: "double" rounds twice, in the doubling high multiply and in the right shift
# (gemmlowp; convolutions, and everything in TFLite Micro), "single" once with halves upwards, "away" once with halves away from
# zero (TFLite's fully connected; `aot.numerics.ties` says when these agree), with 31 further bits of the multiplier if
# needed.
#
# 64-bit accumulators (int16 data with a 64-bit bias) are rounded once.  Convolutions keep 16 bits of the multiplier there, (acc *
# m16 + 2^(14-shift)) >> (15-shift), which is "single" with the multiplier m16 << 16 (`reduced_multiplier`).  Either way an
# accumulator that fits 32 bits gives the same result as the wide one.


@dataclass(frozen=True, slots=True)
class RequantizeAttrs(Clamped):
    """One (multiplier, shift) for all, or one per index of the last axis; the result is in [lo, hi].

    `fraction`: 31 further bits of each multiplier, for "away" only, or empty.
    """

    multiplier: tuple[int, ...]
    shift: tuple[int, ...]
    zero_point: int
    lo: int
    hi: int
    rounding: str
    dtype: str = "int8"
    quant: QuantParams | None = None
    fraction: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert self.rounding in ("double", "single", "away")
        assert len(self.multiplier) == len(self.shift)
        assert not self.fraction or (self.rounding == "away" and len(self.fraction) == len(self.multiplier))

    @property
    def per_channel(self) -> bool:
        return len(self.multiplier) > 1


def infer_requantize(types: Sequence[Type], attrs: RequantizeAttrs) -> Type:
    """int32 or, rounded once, int64 [..., C] -> attrs.dtype of the same shape."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype not in ("int32", "int64"):
        raise TypeRuleError(f"requantize needs an int32 or int64 tensor, not {data}")
    if data.dtype == "int64" and attrs.rounding == "double":
        raise TypeRuleError("int64 accumulators are rounded once")
    if attrs.per_channel and len(attrs.multiplier) != data.shape[-1]:
        raise TypeRuleError(f"{len(attrs.multiplier)} multipliers for {data.shape[-1]} channels")
    low, high = int_range(attrs.dtype)
    if not low <= attrs.lo <= attrs.hi <= high:
        raise TypeRuleError(f"clamp range [{attrs.lo}, {attrs.hi}] outside {attrs.dtype}")
    return data.with_dtype(attrs.dtype, attrs.quant)


def evaluate_requantize(data: Array, *, attrs: RequantizeAttrs, out_type: TensorType) -> Array:
    multiplier, shift = np.asarray(attrs.multiplier, np.int64), np.asarray(attrs.shift, np.int64)
    if attrs.fraction:
        scaled = multiply_by_long_multiplier(data, multiplier, np.asarray(attrs.fraction, np.int64), shift)
    else:
        scaled = multiply_by_quantized_multiplier(data, multiplier, shift, rounding=attrs.rounding)
    return np.clip(scaled.astype(np.int64) + attrs.zero_point, attrs.lo, attrs.hi).astype(attrs.dtype)


def te_requantize(ctx: TeContext, args: Sequence[TensorFn], attrs: RequantizeAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args
    if attrs.per_channel:
        multipliers = ctx.constant("multiplier", np.asarray(attrs.multiplier, np.int32))
        shifts = ctx.constant("shift", np.asarray(attrs.shift, np.int32))
        fractions = ctx.constant("fraction", np.asarray(attrs.fraction, np.int32)) if attrs.fraction else None

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        multiplier: Expr | int = multipliers.at(b, i[-1:]) if attrs.per_channel else attrs.multiplier[0]
        shift: Expr | int = shifts.at(b, i[-1:]) if attrs.per_channel else attrs.shift[0]
        acc = b.let("acc", data.at(b, i))
        if attrs.fraction:
            fraction: Expr | int = fractions.at(b, i[-1:]) if attrs.per_channel and fractions else attrs.fraction[0]
            scaled = tir_multiply_long(b, acc, multiplier, fraction=fraction, shift=shift)
        elif acc.dtype == "int64":
            reduced = is_reduced(attrs.multiplier)
            scaled = tir_multiply_wide(b, acc, multiplier, shift, reduced=reduced, rounding=attrs.rounding)
        else:
            scaled = tir_multiply_by_quantized_multiplier(b, acc, multiplier, shift, rounding=attrs.rounding)
        return cast(attrs.dtype, clamp(scaled + attrs.zero_point, attrs.lo, attrs.hi))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "qnn.requantize",
    1,
    arguments=[("data", "int32, int64 [..., C]", "the sums of a layer")],
    attrs_type=RequantizeAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_requantize,
    evaluate=evaluate_requantize,
    doc="accumulator to int8 or int16, rounding as the oracle does",
)
F_TE.set("qnn.requantize", te_requantize)


# qnn.cast_sums: sums whose products with the multiplier do not fit an int32, as x86's conversion leaves them.
#
# It is between a fully connected layer's sums and qnn.requantize if the scales allow such products at all, which happens only in
# broken networks; `aot.numerics.indefinite` explains what the reference does with them and why x86 is decisive.


@dataclass(frozen=True, slots=True)
class CastSumsAttrs:
    """As in `aot.numerics.indefinite.CastSums`: one limit and bound for all sums, or one per index of the last axis."""

    limit: tuple[int, ...]
    bound: tuple[int, ...]
    sign: int

    def __post_init__(self) -> None:
        assert len(self.limit) == len(self.bound)
        assert self.sign in (1, -1)


def infer_cast_sums(types: Sequence[Type], attrs: CastSumsAttrs) -> Type:
    """int32 or int64 [..., C] -> the same type."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype not in ("int32", "int64"):
        raise TypeRuleError(f"cast_sums needs an int32 or int64 tensor, not {data}")
    if len(attrs.limit) not in (1, data.shape[-1]):
        raise TypeRuleError(f"{len(attrs.limit)} limits for {data.shape[-1]} channels")
    return data


def evaluate_cast_sums(data: Array, *, attrs: CastSumsAttrs, out_type: TensorType) -> Array:
    limit, bound = np.asarray(attrs.limit, np.int64), np.asarray(attrs.bound, np.int64)
    beyond = data > limit if attrs.sign > 0 else data < limit
    result: Array = np.where(beyond, -attrs.sign * bound, np.clip(data, -bound, bound)).astype(out_type.dtype)
    return result


def te_cast_sums(ctx: TeContext, args: Sequence[TensorFn], attrs: CastSumsAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args
    limit, lowest, highest = (
        _numbers(ctx, name, values, out_type.dtype)
        for name, values in (("limit", attrs.limit), ("lowest", [-b for b in attrs.bound]), ("highest", attrs.bound))
    )

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        acc = b.let("acc", data.at(b, i))
        low, high = lowest(b, i[-1]), highest(b, i[-1])
        beyond = binop(">" if attrs.sign > 0 else "<", acc, limit(b, i[-1]))
        return select(beyond, low if attrs.sign > 0 else high, minimum(maximum(acc, low), high))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


def _numbers(ctx: TeContext, name: str, values: Sequence[int], dtype: str) -> Callable[[IRBuilder, Expr], Expr]:
    """The number for a channel: a constant, or read from a table."""
    if len(values) == 1:
        return lambda _b, _channel: imm(values[0], dtype)
    table = ctx.constant(name, np.asarray(values, dtype))
    return lambda b, channel: b.let(name, table.at(b, (channel,)))


register_op(
    "qnn.cast_sums",
    1,
    arguments=[("data", "int32, int64 [..., C]", "the sums of a layer")],
    attrs_type=CastSumsAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_cast_sums,
    evaluate=evaluate_cast_sums,
    doc="sums whose products leave an int32, as x86 casts them; fully connected layers of impossible scales",
)
F_TE.set("qnn.cast_sums", te_cast_sums)


# qnn.quantize and qnn.requantize8: QUANTIZE of TFLite, from float32 or from one quantisation to another.
#
# From float32: q = clamp(zp + round(x / scale)), the quotient in float32, halves away from zero.  A quotient beyond int32
# saturates here (in the reference it is undefined behaviour); NaN gives the zero point, as the conversion does on Arm.  Oracle:
# `reference_ops::AffineQuantize`.  Between quantisations: q = clamp(zp + rescale(q_in - zp_in)) with double rounding.  Oracle:
# `reference_ops::Requantize`; the loop nest uses the 32-bit form of `aot.numerics.linear` if there is one.


CODES = ("int8", "uint8", "int16")
SOURCES = (*CODES, "int32")


@dataclass(frozen=True, slots=True)
class QuantizeAttrs(Clamped):
    """Parameters and type of the result; clamp [lo, hi]."""

    scale: float
    zero_point: int
    lo: int
    hi: int
    dtype: str = "int8"


@dataclass(frozen=True, slots=True)
class Requantize8Attrs(Clamped):
    """Zero point of the data; multiplier, shift and zero point of the result; clamp [lo, hi]; the result's type."""

    input_zp: int
    multiplier: int
    shift: int
    zero_point: int
    lo: int
    hi: int
    dtype: str = "int8"
    quant: QuantParams | None = None


def infer_quantize(types: Sequence[Type], attrs: QuantizeAttrs) -> Type:
    """float32 -> attrs.dtype of the same shape."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "float32":
        raise TypeRuleError(f"quantize needs a float32 tensor, not {data}")
    return data.with_dtype(attrs.dtype, QuantParams((attrs.scale,), (attrs.zero_point,)))


def evaluate_quantize(data: Array, *, attrs: QuantizeAttrs, out_type: TensorType) -> Array:
    low, high = attrs.lo - attrs.zero_point, attrs.hi - attrs.zero_point
    with np.errstate(over="ignore", invalid="ignore"):
        quotient = data.astype(np.float32) / np.float32(attrs.scale)
    number = np.where(np.isnan(quotient), np.float32(0), quotient)
    bounded = np.clip(number, np.float32(low), np.float32(high)).astype(np.float64)
    nearest = np.sign(bounded) * np.floor(np.abs(bounded) + 0.5)
    return (nearest.astype(np.int64) + attrs.zero_point).astype(attrs.dtype)


def tir_quantize(b: IRBuilder, value: Expr, *, scale: Expr, zero_point: int, limits: tuple[int, int]) -> Expr:
    """The quantised value (int32) of a float32 in TIR; `limits` are the lowest and the highest value."""
    low, high = (imm(float(v - zero_point), "float32") for v in limits)
    quotient = b.let("quotient", value / scale)
    # the second comparison, made only out of range, distinguishes large values from NaN
    below = b.let("below", select(quotient < high, quotient, select(quotient >= high, high, _within(low, high))))
    bounded = b.let("bounded", select(below > low, below, low))
    return tir_nearest(b, bounded) + zero_point


def tir_nearest(b: IRBuilder, value: Expr) -> Expr:
    """The nearest int32 of a float whose double fits an int32, halves away from zero."""
    # with t = 2x truncated towards zero (2x is exact): (t + 1) >> 1, or t >> 1 if negative
    twice = b.let("twice", cast("int32", value + value))
    return (twice + 1 + (twice >> 31)) >> 1


def _within(low: Imm, high: Imm) -> Imm:
    """Zero, or the bound next to it if a clamp excludes zero."""
    return imm(min(max(0.0, float(low.value)), float(high.value)), "float32")


def te_quantize(_ctx: TeContext, args: Sequence[TensorFn], attrs: QuantizeAttrs, out_type: TensorType) -> TensorFn:
    scale, limits = imm(attrs.scale, "float32"), (attrs.lo, attrs.hi)

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        code = tir_quantize(b, args[0].at(b, i), scale=scale, zero_point=attrs.zero_point, limits=limits)
        return cast(attrs.dtype, code)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


def infer_requantize8(types: Sequence[Type], attrs: Requantize8Attrs) -> Type:
    """Codes of 8, 16 or 32 bits -> attrs.dtype of the same shape."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype not in SOURCES:
        raise TypeRuleError(f"requantize8 needs an int8, uint8, int16 or int32 tensor, not {data}")
    return data.with_dtype(attrs.dtype, attrs.quant)


def evaluate_requantize8(data: Array, *, attrs: Requantize8Attrs, out_type: TensorType) -> Array:
    centred = (data.astype(np.int64) - attrs.input_zp).astype(np.int32)  # int32 wraps
    result = requantize(centred, attrs.multiplier, attrs.shift, zero_point=attrs.zero_point, lo=attrs.lo, hi=attrs.hi)
    return result.astype(attrs.dtype)


def te_requantize8(_ctx: TeContext, args: Sequence[TensorFn], attrs: Requantize8Attrs, out_type: TensorType) -> TensorFn:
    if args[0].dtype == "int32":
        return _te_requantize32(args[0], attrs, out_type)
    numbers = Rescaling(attrs.multiplier, attrs.shift, attrs.zero_point, attrs.lo, attrs.hi)
    low, high = (v - attrs.input_zp for v in int_range(args[0].dtype))
    form = rescaling_of_range(low, high, numbers)

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        centred = named(b, "x", cast("int32", args[0].at(b, i)) - attrs.input_zp)
        if (attrs.multiplier, attrs.shift) == (1 << 30, 1):  # equal scales: nothing to round
            return cast(attrs.dtype, clamp(centred + attrs.zero_point, attrs.lo, attrs.hi))
        if form is not None:
            return cast(attrs.dtype, form.emit(b, centred))
        value = tir_requantize(
            b,
            centred,
            multiplier=attrs.multiplier,
            shift=attrs.shift,
            zero_point=attrs.zero_point,
            lo=attrs.lo,
            hi=attrs.hi,
        )
        return cast(attrs.dtype, value)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


def _te_requantize32(data: TensorFn, attrs: Requantize8Attrs, out_type: TensorType) -> TensorFn:
    """For int32, which fills the accumulator: differences wrap, and the clamp comes before the zero point is added."""
    zp = attrs.zero_point

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        x = data.at(b, i)
        if attrs.input_zp:
            x = cast("int32", cast("uint32", x) - imm(attrs.input_zp % (1 << 32), "uint32"))
        scaled = tir_multiply_by_quantized_multiplier(b, named(b, "x", x), attrs.multiplier, attrs.shift)
        return cast(attrs.dtype, clamp(scaled, attrs.lo - zp, attrs.hi - zp) + zp)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "qnn.quantize",
    1,
    arguments=[("data", "float32", "the operand")],
    attrs_type=QuantizeAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_quantize,
    evaluate=evaluate_quantize,
    doc="QUANTIZE; float32 to int8, uint8, int16",
)
register_op(
    "qnn.requantize8",
    1,
    arguments=[("data", "int8, uint8, int16, int32", "quantised values")],
    attrs_type=Requantize8Attrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_requantize8,
    evaluate=evaluate_requantize8,
    doc="QUANTIZE; between quantisations of int8, uint8, int16, int32",
)
F_TE.set("qnn.quantize", te_quantize)
F_TE.set("qnn.requantize8", te_requantize8)


# qnn.dequantize: DEQUANTIZE of TFLite, int8, uint8, int16 or float16 to float32; for constants also int4.
#
# out = scale * (q - zero_point).  The reference multiplies in double and rounds to float32; a float32 product is the same number,
# since a 24-bit scale times a 9-bit or 16-bit integer is exact before that one rounding.  Oracle: `reference_ops::Dequantize`.


DEQUANTIZABLE = ("int8", "uint8", "int16")


@dataclass(frozen=True, slots=True)
class DequantizeAttrs:
    """Parameters of the data."""

    scale: float
    zero_point: int


def infer_dequantize(types: Sequence[Type], attrs: DequantizeAttrs) -> Type:
    """int8, uint8 or int16 -> float32 of the same shape."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype not in DEQUANTIZABLE:
        raise TypeRuleError(f"dequantize needs an int8, uint8 or int16 tensor, not {data}")
    return data.with_dtype("float32")


def evaluate_dequantize(data: Array, *, attrs: DequantizeAttrs, out_type: TensorType) -> Array:
    return (attrs.scale * (data.astype(np.float64) - attrs.zero_point)).astype(np.float32)


def te_dequantize(_ctx: TeContext, args: Sequence[TensorFn], attrs: DequantizeAttrs, out_type: TensorType) -> TensorFn:
    def rule(b: IRBuilder, *i: Expr) -> Expr:
        centred = cast("int32", args[0].at(b, i)) - attrs.zero_point
        return cast("float32", centred) * imm(attrs.scale, "float32")

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "qnn.dequantize",
    1,
    arguments=[("data", "int8, uint8, int16", "quantised values")],
    attrs_type=DequantizeAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_dequantize,
    evaluate=evaluate_dequantize,
    doc="DEQUANTIZE; int8, uint8, int16 to float32",
)
F_TE.set("qnn.dequantize", te_dequantize)
