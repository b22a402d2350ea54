"""Between real numbers and quantised values: quantize, requantize, dequantize, cast_sums; and clip."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import (
    is_reduced,
    multiply_by_long_multiplier,
    multiply_by_quantized_multiplier,
    named,
    tir_multiply_by_quantized_multiplier,
    tir_multiply_long,
    tir_multiply_wide,
)
from aot.numerics.linear import rescaling_of_range
from aot.op.common.operator import Index, operator
from aot.op.common.te_rule import TeContext
from aot.op.common.tensors import Clamped, Rescaled, require
from aot.support.dtype import int_range, is_int
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Imm, binop, cast, clamp, imm, maximum, minimum, select


# clip: clamp every element to [lo, hi] in units of the data's own type (a fused or standalone RELU on quantised values).
#
# Oracle: the clamp at the end of TFLite's kernels (`ActivationFunctionWithMinMax`).
@operator("clip", "clamp of a fused activation", [("data", "integers", "the operand")], OpPattern.ELEMWISE)
class ClipAttrs:
    """Bounds, both inclusive."""

    lo: int
    hi: int

    def infer_type(self, data: TensorType) -> Type:
        """An integer tensor -> the same type."""
        if not is_int(data.dtype):
            raise TypeRuleError(f"clip needs an integer tensor, not {data}")
        low, high = int_range(data.dtype)
        if not low <= self.lo <= self.hi <= high:
            raise TypeRuleError(f"clip range [{self.lo}, {self.hi}] outside {data.dtype}")
        return data

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        return np.clip(data, self.lo, self.hi).astype(out_type.dtype)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        return clamp(data.at(b, i), self.lo, self.hi)


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
@operator(
    "qnn.requantize",
    "accumulator to int8 or int16, rounding as the oracle does",
    [("data", "int32, int64 [..., C]", "the sums of a layer")],
    OpPattern.ELEMWISE,
)
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

    def infer_type(self, data: TensorType) -> Type:
        """int32 or, rounded once, int64 [..., C] -> attrs.dtype of the same shape."""
        require(data, "requantize", "int32", "int64")
        if data.dtype == "int64" and self.rounding == "double":
            raise TypeRuleError("int64 accumulators are rounded once")
        if self.per_channel and len(self.multiplier) != data.shape[-1]:
            raise TypeRuleError(f"{len(self.multiplier)} multipliers for {data.shape[-1]} channels")
        low, high = int_range(self.dtype)
        if not low <= self.lo <= self.hi <= high:
            raise TypeRuleError(f"clamp range [{self.lo}, {self.hi}] outside {self.dtype}")
        return data.with_dtype(self.dtype, self.quant)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        multiplier, shift = np.asarray(self.multiplier, np.int64), np.asarray(self.shift, np.int64)
        if self.fraction:
            scaled = multiply_by_long_multiplier(data, multiplier, np.asarray(self.fraction, np.int64), shift)
        else:
            scaled = multiply_by_quantized_multiplier(data, multiplier, shift, rounding=self.rounding)
        return np.clip(scaled.astype(np.int64) + self.zero_point, self.lo, self.hi).astype(self.dtype)

    def te_rule(self, ctx: TeContext, args: Sequence[TensorFn], out_type: TensorType) -> TensorFn:
        (data,) = args
        if self.per_channel:
            multipliers = ctx.constant("multiplier", np.asarray(self.multiplier, np.int32))
            shifts = ctx.constant("shift", np.asarray(self.shift, np.int32))
            fractions = ctx.constant("fraction", np.asarray(self.fraction, np.int32)) if self.fraction else None

        def rule(b: IRBuilder, *i: Expr) -> Expr:
            multiplier: Expr | int = multipliers.at(b, i[-1:]) if self.per_channel else self.multiplier[0]
            shift: Expr | int = shifts.at(b, i[-1:]) if self.per_channel else self.shift[0]
            acc = b.let("acc", data.at(b, i))
            if self.fraction:
                fraction: Expr | int = fractions.at(b, i[-1:]) if self.per_channel and fractions else self.fraction[0]
                scaled = tir_multiply_long(b, acc, multiplier, fraction=fraction, shift=shift)
            elif acc.dtype == "int64":
                reduced = is_reduced(self.multiplier)
                scaled = tir_multiply_wide(b, acc, multiplier, shift, reduced=reduced, rounding=self.rounding)
            else:
                scaled = tir_multiply_by_quantized_multiplier(b, acc, multiplier, shift, rounding=self.rounding)
            return cast(self.dtype, clamp(scaled + self.zero_point, self.lo, self.hi))

        return tensor_fn(out_type.shape, out_type.dtype, rule)


# qnn.cast_sums: sums whose products with the multiplier do not fit an int32, as x86's conversion leaves them.
#
# It is between a fully connected layer's sums and qnn.requantize if the scales allow such products at all, which happens only in
# broken networks; `aot.numerics.indefinite` explains what the reference does with them and why x86 is decisive.
@operator(
    "qnn.cast_sums",
    "sums whose products leave an int32, as x86 casts them; fully connected layers of impossible scales",
    [("data", "int32, int64 [..., C]", "the sums of a layer")],
    OpPattern.ELEMWISE,
)
class CastSumsAttrs:
    """As in `aot.numerics.indefinite.CastSums`: one limit and bound for all sums, or one per index of the last axis."""

    limit: tuple[int, ...]
    bound: tuple[int, ...]
    sign: int

    def __post_init__(self) -> None:
        assert len(self.limit) == len(self.bound)
        assert self.sign in (1, -1)

    def infer_type(self, data: TensorType) -> Type:
        """int32 or int64 [..., C] -> the same type."""
        require(data, "cast_sums", "int32", "int64")
        if len(self.limit) not in (1, data.shape[-1]):
            raise TypeRuleError(f"{len(self.limit)} limits for {data.shape[-1]} channels")
        return data

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        limit, bound = np.asarray(self.limit, np.int64), np.asarray(self.bound, np.int64)
        beyond = data > limit if self.sign > 0 else data < limit
        result: Array = np.where(beyond, -self.sign * bound, np.clip(data, -bound, bound)).astype(out_type.dtype)
        return result

    def te_rule(self, ctx: TeContext, args: Sequence[TensorFn], out_type: TensorType) -> TensorFn:
        (data,) = args
        limit, lowest, highest = (
            _numbers(ctx, name, values, out_type.dtype)
            for name, values in (("limit", self.limit), ("lowest", [-b for b in self.bound]), ("highest", self.bound))
        )

        def rule(b: IRBuilder, *i: Expr) -> Expr:
            acc = b.let("acc", data.at(b, i))
            low, high = lowest(b, i[-1]), highest(b, i[-1])
            beyond = binop(">" if self.sign > 0 else "<", acc, limit(b, i[-1]))
            return select(beyond, low if self.sign > 0 else high, minimum(maximum(acc, low), high))

        return tensor_fn(out_type.shape, out_type.dtype, rule)


def _numbers(ctx: TeContext, name: str, values: Sequence[int], dtype: str) -> Callable[[IRBuilder, Expr], Expr]:
    """The number for a channel: a constant, or read from a table."""
    if len(values) == 1:
        return lambda _b, _channel: imm(values[0], dtype)
    table = ctx.constant(name, np.asarray(values, dtype))
    return lambda b, channel: b.let(name, table.at(b, (channel,)))


# qnn.quantize and qnn.requantize8: QUANTIZE of TFLite, from float32 or from one quantisation to another.
#
# From float32: q = clamp(zp + round(x / scale)), the quotient in float32, halves away from zero.  A quotient beyond int32
# saturates here (in the reference it is undefined behaviour); NaN gives the zero point, as the conversion does on Arm.  Oracle:
# `reference_ops::AffineQuantize`.  Between quantisations: q = clamp(zp + rescale(q_in - zp_in)) with double rounding.  Oracle:
# `reference_ops::Requantize`; the loop nest uses the 32-bit form of `aot.numerics.linear` if there is one.


CODES = ("int8", "uint8", "int16")
SOURCES = (*CODES, "int32")


@operator("qnn.quantize", "QUANTIZE; float32 to int8, uint8, int16", [("data", "float32", "the operand")], OpPattern.ELEMWISE)
class QuantizeAttrs(Clamped):
    """Parameters and type of the result; clamp [lo, hi]."""

    scale: float
    zero_point: int
    lo: int
    hi: int
    dtype: str = "int8"

    def infer_type(self, data: TensorType) -> Type:
        """float32 -> attrs.dtype of the same shape."""
        require(data, "quantize", "float32")
        return data.with_dtype(self.dtype, QuantParams((self.scale,), (self.zero_point,)))

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        low, high = self.lo - self.zero_point, self.hi - self.zero_point
        with np.errstate(over="ignore", invalid="ignore"):
            quotient = data.astype(np.float32) / np.float32(self.scale)
        number = np.where(np.isnan(quotient), np.float32(0), quotient)
        bounded = np.clip(number, np.float32(low), np.float32(high)).astype(np.float64)
        nearest = np.sign(bounded) * np.floor(np.abs(bounded) + 0.5)
        return (nearest.astype(np.int64) + self.zero_point).astype(self.dtype)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        scale, limits = imm(self.scale, "float32"), (self.lo, self.hi)
        code = tir_quantize(b, data.at(b, i), scale=scale, zero_point=self.zero_point, limits=limits)
        return cast(self.dtype, code)


@operator(
    "qnn.requantize8",
    "QUANTIZE; between quantisations of int8, uint8, int16, int32",
    [("data", "int8, uint8, int16, int32", "quantised values")],
    OpPattern.ELEMWISE,
)
class Requantize8Attrs(Rescaled):
    """Zero point of the data; multiplier, shift and zero point of the result; clamp [lo, hi]; the result's type."""

    input_zp: int
    multiplier: int
    shift: int
    zero_point: int
    lo: int
    hi: int
    dtype: str = "int8"
    quant: QuantParams | None = None

    def infer_type(self, data: TensorType) -> Type:
        """Codes of 8, 16 or 32 bits -> attrs.dtype of the same shape."""
        require(data, "requantize8", *SOURCES)
        return data.with_dtype(self.dtype, self.quant)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        centred = (data.astype(np.int64) - self.input_zp).astype(np.int32)  # int32 wraps
        return self.rescaled(centred).astype(self.dtype)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        if data.dtype == "int32":
            return self._wrapping(b, data.at(b, i))
        low, high = (v - self.input_zp for v in int_range(data.dtype))
        form = rescaling_of_range(low, high, self.rescaling)
        centred = named(b, "x", cast("int32", data.at(b, i)) - self.input_zp)
        if (self.multiplier, self.shift) == (1 << 30, 1):  # equal scales: nothing to round
            return cast(self.dtype, clamp(centred + self.zero_point, self.lo, self.hi))
        return cast(self.dtype, self.tir_rescaled(b, centred) if form is None else form.emit(b, centred))

    def _wrapping(self, b: IRBuilder, x: Expr) -> Expr:
        """For int32, which fills the accumulator: differences wrap, and the clamp comes before the zero point is added."""
        zp = self.zero_point
        if self.input_zp:
            x = cast("int32", cast("uint32", x) - imm(self.input_zp % (1 << 32), "uint32"))
        scaled = tir_multiply_by_quantized_multiplier(b, named(b, "x", x), self.multiplier, self.shift)
        return cast(self.dtype, clamp(scaled, self.lo - zp, self.hi - zp) + zp)


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


# qnn.dequantize: DEQUANTIZE of TFLite, int8, uint8, int16 or float16 to float32; for constants also int4.
#
# out = scale * (q - zero_point).  The reference multiplies in double and rounds to float32; a float32 product is the same number,
# since a 24-bit scale times a 9-bit or 16-bit integer is exact before that one rounding.  Oracle: `reference_ops::Dequantize`.


DEQUANTIZABLE = ("int8", "uint8", "int16")


@operator(
    "qnn.dequantize",
    "DEQUANTIZE; int8, uint8, int16 to float32",
    [("data", "int8, uint8, int16", "quantised values")],
    OpPattern.ELEMWISE,
)
class DequantizeAttrs:
    """Parameters of the data."""

    scale: float
    zero_point: int

    def infer_type(self, data: TensorType) -> Type:
        """int8, uint8 or int16 -> float32 of the same shape."""
        require(data, "dequantize", *DEQUANTIZABLE)
        return data.with_dtype("float32")

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        return (self.scale * (data.astype(np.float64) - self.zero_point)).astype(np.float32)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        centred = cast("int32", data.at(b, i)) - self.zero_point
        return cast("float32", centred) * imm(self.scale, "float32")
