"""Between real numbers and quantised values, also at run time for hybrid layers; clip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

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
from aot.op.common.tensors import Clamped, Rescaled, np_bounded, require, tir_bounded
from aot.support.dtype import int_range, is_int
from aot.te.tensor import TensorFn, reduce_axis, tensor_fn
from aot.te.tensor import max as te_max
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
        numbers = {"multiplier": self.multiplier, "shift": self.shift} | ({"fraction": self.fraction} if self.fraction else {})
        tables = [ctx.constant(name, np.asarray(v, np.int32)) for name, v in numbers.items()] if self.per_channel else []

        def rule(b: IRBuilder, *i: Expr) -> Expr:
            chosen: Sequence[Expr | int] = [t.at(b, i[-1:]) for t in tables] or [v[0] for v in numbers.values()]
            multiplier, shift, *fraction = chosen
            acc = b.let("acc", args[0].at(b, i))
            if fraction:
                scaled = tir_multiply_long(b, acc, multiplier, fraction=fraction[0], shift=shift)
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
# broken networks; `aot.numerics.ties` explains what the reference does with them and why x86 is decisive.
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


# qnn.dynamic_range, qnn.dynamic_params and qnn.dynamic_quantize: float32 data quantised at run time, for hybrid layers.
#
# Each of B batches (rows of a fully connected layer, images of a convolution) has its own scale, from its smallest and largest
# value, zero included:
#
#   symmetric:   scale = max|x| / 127, factor = 127 / max|x|, q = clamp(round(x * factor), -127, 127)
#   asymmetric:  scale = (max - min) / 255, factor = 1 / scale, q = clamp(zp + round(x * factor), -128, 127)
#
# Everything is in float32, except for the zero point of an asymmetric quantisation, which is found in double precision.  Halves
# round away from zero; since the reference rounds whole vectors of eight by adding 0.5 and truncating, 0.49999997 becomes 1 there
# and 0 in the left-over elements at a batch's end.  The result of an asymmetric quantisation is q - zp, which fits int16 and
# needs no zero point afterwards.  The factor of the smallest data is infinite; it is 0 if the scale of an asymmetric quantisation
# rounds to 0.  A product that is infinite, or NaN (from a zero), becomes what the reference's x86-64 build computes:
#
#   symmetric:   in vectors 127 for infinity; everything else, and everything at the end, INT_MIN and so -127
#   asymmetric:  in vectors INT_MAX for infinity and INT_MIN for the rest, to which the zero point is added and may wrap; at the
#                end the sum with the zero point saturates, and NaN is 0
#
# Infinite data and NaN have no defined result in the reference; here they follow the same rule.  Oracles:
# `NeonSymmetricQuantizeFloats`, `NeonAsymmetricQuantizeFloats` (x86 also runs them).

RANGE, PARAMS, QUANTIZE = "qnn.dynamic_range", "qnn.dynamic_params", "qnn.dynamic_quantize"


_DATA = ("data", "float32 [B, ...]", "batches")
_PARAMETERS = ("params", "float32 [B, 3]", "scale, its inverse and zero point of each batch")


@operator(RANGE, "hybrid layers: least and largest value of each batch", [_DATA], OpPattern.COMM_REDUCE, has_attributes=False)
class DynamicRange:
    """No attributes."""

    def infer_type(self, data: TensorType) -> Type:
        """float32 [B, ...] -> float32 [B, 2]: max(-x, 0) and max(x, 0) over each batch."""
        if data.dtype != "float32" or not data.size:
            raise TypeRuleError(f"{RANGE} needs float32 data, not {data}")
        return TensorType((data.shape[0], 2), "float32")

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        rows = data.reshape(len(data), -1)
        zero = np.float32(0)
        ends = np.stack([np.fmax.reduce(-rows, axis=1, initial=zero), np.fmax.reduce(rows, axis=1, initial=zero)], axis=1)
        return np.asarray(ends + zero, np.float32)  # -0 is not the end of a range

    def element(self, b: IRBuilder, index: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        batch, side = index

        def term(*index: Expr) -> Expr:
            value = b.let("x", data.at(b, (batch, *index)))
            return select(binop("==", side, 0), zero - value, value)

        zero = imm(0.0, "float32")
        return te_max(b, [reduce_axis(extent, name="r") for extent in data.shape[1:]], term, init=zero, dtype="float32")


@operator(
    PARAMS,
    "hybrid layers: scale, its inverse and zero point of each batch",
    [("ends", "float32 [B, 2]", "least and largest value of each batch")],
    OpPattern.BROADCAST,
)
class DynamicParamsAttrs:
    """Whether zero points follow the data (`asymmetric`) or are zero."""

    asymmetric: bool = False

    def infer_type(self, ends: TensorType) -> Type:
        """Ends float32 [B, 2] -> float32 [B, 3]: scale, factor from data to integers, zero point."""
        if ends.dtype != "float32" or len(ends.shape) != 2 or ends.shape[1] != 2:
            raise TypeRuleError(f"{PARAMS} needs float32 [batches, 2], not {ends}")
        return TensorType((ends.shape[0], 3), "float32")

    def evaluate(self, ends: Array, *, out_type: TensorType) -> Array:
        return np.asarray([(_asymmetric if self.asymmetric else _symmetric)(*row) for row in ends], np.float32)

    def element(self, b: IRBuilder, index: Index, ends: TensorFn, *, out_type: TensorType) -> Expr:
        batch, which = index
        below, above = (b.let(name, ends.at(b, (batch, imm(i)))) for i, name in enumerate(("below", "above")))
        params = _tir_asymmetric(b, below, above) if self.asymmetric else _tir_symmetric(b, below, above)
        scale, factor, zero_point = params
        return select(binop("==", which, 0), scale, select(binop("==", which, 1), factor, zero_point))


def _symmetric(below: np.float32, above: np.float32) -> tuple[float, float, float]:
    largest = max(below, above)
    if largest == 0:
        return 1.0, 0.0, 0.0
    with np.errstate(all="ignore"):
        return float(largest / np.float32(127)), float(np.float32(127) / largest), 0.0


def _asymmetric(below: np.float32, above: np.float32) -> tuple[float, float, float]:
    low, high = -np.float64(below), np.float64(above)
    if low == high:
        return 1.0, 0.0, 0.0
    with np.errstate(all="ignore"):
        scale = np.float64(np.float32(above + below)) / 255.0
        from_low, from_high = -128.0 - low / scale, 127.0 - high / scale
        nearer = from_low if 128.0 + abs(low / scale) < 127.0 + abs(high / scale) else from_high
        zero_point = min(max(np.sign(nearer) * np.floor(abs(nearer) + 0.5), -128.0), 127.0)
        narrow = np.float32(scale)
        return float(narrow), float(np.float32(1) / narrow) if narrow else 0.0, float(zero_point)


def _tir_symmetric(b: IRBuilder, below: Expr, above: Expr) -> tuple[Expr, Expr, Expr]:
    largest, zero, top = b.let("largest", maximum(below, above)), imm(0.0, "float32"), imm(127.0, "float32")
    is_zero = largest <= zero
    divisor = b.let("divisor", select(is_zero, top, largest))
    return divisor / top, select(is_zero, zero, top / divisor), zero


def _tir_asymmetric(b: IRBuilder, below: Expr, above: Expr) -> tuple[Expr, Expr, Expr]:
    zero, one = imm(0.0, "float32"), imm(1.0, "float32")
    down, up = b.let("down", cast("float64", below)), b.let("up", cast("float64", above))  # -min and max
    is_zero = (below + above) <= zero
    scale = b.let("scale", select(is_zero, imm(1.0, "float64"), cast("float64", below + above) / imm(255.0, "float64")))
    steps_down, steps_up = b.let("steps_down", down / scale), b.let("steps_up", up / scale)
    closer = imm(128.0, "float64") + steps_down < imm(127.0, "float64") + steps_up
    nearer = b.let("nearer", select(closer, steps_down - imm(128.0, "float64"), imm(127.0, "float64") - steps_up))
    bounded = maximum(imm(-128.0, "float64"), minimum(nearer, imm(127.0, "float64")))
    zero_point = cast("float32", tir_nearest(b, bounded))
    narrow = b.let("narrow", cast("float32", scale))
    factor = select(narrow > zero, one / select(narrow > zero, narrow, one), zero)
    return narrow, select(is_zero, zero, factor), select(is_zero, zero, zero_point)


@operator(QUANTIZE, "hybrid layers: float32 to integers by each batch's parameters", [_DATA, _PARAMETERS], OpPattern.BROADCAST)
class DynamicQuantizeAttrs:
    """Whether zero points follow the data (`asymmetric`) or are zero."""

    asymmetric: bool = False

    def infer_type(self, data: TensorType, params: TensorType) -> Type:
        """data float32 [B, ...], params float32 [B, 3] -> int8, or int16 where `asymmetric`, of the data's shape."""
        if data.dtype != "float32":
            raise TypeRuleError(f"{QUANTIZE} needs float32 data and parameters, not {data} and {params}")
        if params.dtype != "float32" or params.shape != (data.shape[0], 3):
            raise TypeRuleError(f"{QUANTIZE} of {data} has parameters {params}")
        return data.with_dtype("int16" if self.asymmetric else "int8")

    def evaluate(self, data: Array, params: Array, *, out_type: TensorType) -> Array:
        factor, zero_point = params[:, 1:2], params[:, 2:3]
        with np.errstate(all="ignore"):
            product = data.reshape(len(params), -1) * factor
        whole = np.arange(product.shape[1]) < product.shape[1] // _VECTOR * _VECTOR
        in_vectors, at_end = _bounds(zero_point if self.asymmetric else None)
        with np.errstate(all="ignore"):
            kind = np.where(product >= _FAR, 0, np.where(product <= -_FAR, 1, 2))
            far = np.where(whole, np.choose(kind, in_vectors), np.choose(kind, at_end))
            value = np.where(np.abs(product) < _FAR, product, far).astype(np.float32)
        wide = np.abs(np.where(whole, value, value.astype(np.float64)))  # float32 numbers
        added = np.where(whole, (np.abs(value) + np.float32(0.5)).astype(np.float64), wide + 0.5)
        nearest = np.sign(value) * np.floor(added)
        low = -128 if self.asymmetric else -127
        return np.asarray(np.clip(nearest, low - zero_point, 127 - zero_point), out_type.dtype).reshape(data.shape)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, params: TensorFn, *, out_type: TensorType) -> Expr:
        each = prod(data.shape[1:])
        value = b.let("value", data.at(b, i) * params.at(b, (i[0], imm(1))))
        position = _position(i[1:], data.shape[1:])
        zero_point = params.at(b, (i[0], imm(2))) if self.asymmetric else None
        code = b.let("code", _rounded(b, _bounded(b, value, zero_point, position, each), position, each))
        if zero_point is None:
            return cast(out_type.dtype, clamp(code, -127, 127))
        zp = b.let("zp", cast("int32", zero_point))
        return cast(out_type.dtype, maximum(imm(-128) - zp, minimum(code, imm(127) - zp)))


_VECTOR = 8
"""Elements that the reference quantises at once."""

_FAR = 512.0
"""Above all products with a finite factor: anything not smaller is infinite or NaN."""


def _bounds(zero_point: Array | None) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The values of infinity, minus infinity and NaN before they are clamped: in vectors, and at the end."""
    if zero_point is None:
        return (_FAR, -_FAR, -_FAR), (-_FAR, -_FAR, -_FAR)
    other = np.where(zero_point < 0, _FAR, -_FAR)
    return (np.where(zero_point > 0, -_FAR, _FAR), other, other), (_FAR, -_FAR, -zero_point)


def _bounded(b: IRBuilder, value: Expr, zero_point: Expr | None, position: Expr, each: int) -> Expr:
    """A product, or the replacement of an infinite one or NaN; only then a further comparison distinguishes them."""
    low, high, zero = (imm(v, "float32") for v in (-_FAR, _FAR, 0.0))
    in_vectors: list[Expr] = [high, low, low]
    at_end: list[Expr] = [low, low, low]
    if zero_point is not None:
        otherwise = select(zero_point < zero, high, low)
        in_vectors, at_end = [select(zero_point > zero, low, high), otherwise, otherwise], [high, low, zero - zero_point]
    whole = each // _VECTOR * _VECTOR
    if whole == each:
        bounds = in_vectors
    else:
        bounds = [select(position < whole, v, e) for v, e in zip(in_vectors, at_end, strict=True)] if whole else at_end
    above, below, other = bounds
    within = select(value > low, value, below)
    return b.let("bounded", select(value < high, within, select(value >= high, above, other)))


def _rounded(b: IRBuilder, value: Expr, position: Expr, each: int) -> Expr:
    """The integer of a batch's value at `position`."""
    zero, half = imm(0.0, "float32"), imm(0.5, "float32")
    in_vectors = each // _VECTOR * _VECTOR
    cut = cast("int32", value + select(value < zero, zero - half, half))
    if in_vectors == each:
        return cut
    nearest = tir_nearest(b, value)
    return select(position < in_vectors, cut, nearest) if in_vectors else nearest


def _position(index: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """The position in memory of an element of this shape."""
    flat: Expr = imm(0)
    for i, extent in zip(index, shape, strict=True):
        flat = flat * extent + i
    return flat


# One float32 vector quantised at run time, as hybrid recurrent layers need it at each step.
def quantized(x: Array, *, asymmetric: bool) -> tuple[Array, np.float32]:
    """A vector as integers without zero point, and its scale."""
    row = x[None]
    ends = DynamicRange().evaluate(row, out_type=TensorType((1, 2), "float32"))
    params = DynamicParamsAttrs(asymmetric).evaluate(ends, out_type=TensorType((1, 3), "float32"))
    type_ = TensorType(row.shape, integer_type(asymmetric))
    integers = DynamicQuantizeAttrs(asymmetric).evaluate(row, params, out_type=type_)
    return integers[0], np.float32(params[0, 0])


def integer_type(asymmetric: bool) -> str:
    """The type of quantised vectors: without a zero point they may need 9 bits."""
    return "int16" if asymmetric else "int8"


# qnn.hybrid_output, and the hybrid forms of FULLY_CONNECTED, CONV_2D and DEPTHWISE_CONV_2D: float32 data, integer weights.
#
# The data is quantised at run time (qnn.dynamic_quantize), the products are summed in integers, and the sums become float32:
#
#   out = clamp(float(acc) * (weight scale * data scale) + bias)   FULLY_CONNECTED, DEPTHWISE_CONV_2D, CONV_2D of one weight scale
#   out = clamp(float(acc) * weight scale * data scale + bias)     CONV_2D of several weight scales or several groups
#
# Without a bias 0 is added: the reference adds to an output of zeros, which turns the -0 of an underflowing product into 0.
# FULLY_CONNECTED quantises its data symmetrically unless its option says otherwise, CONV_2D with one weight scale symmetrically,
# everything else asymmetrically.  Oracles: `EvalHybridDense`, `HybridConv`, `HybridConvPerChannel`,
# `DepthwiseConvHybridPerChannel`.

HYBRID = "qnn.hybrid_output"


@operator(
    HYBRID,
    "hybrid layers: integer sums to float32, bias and activation",
    [
        ("acc", "int32 [B, ..., C]", "the sums of a layer"),
        ("params", "float32 [B, 3]", "of the quantised data"),
        ("scales", "float32 [1] or [C]", "of the weights"),
        ("bias?", "float32 [C]", "what is added to each channel"),
    ],
    OpPattern.BROADCAST,
)
class HybridOutputAttrs:
    """Whether the weight scale is applied to the sum separately, before the data's (`weight_first`); clamp (None: none)."""

    weight_first: bool = False
    lo: float | None = None
    hi: float | None = None

    def infer_type(self, *types: TensorType) -> Type:
        """acc int32 [B, ..., C], params float32 [B, 3], scales float32 [1] or [C], bias float32 [C] -> float32, as acc."""
        if len(types) not in (3, 4) or types[0].dtype != "int32" or not types[0].shape:
            raise TypeRuleError(f"{HYBRID} does not accept {', '.join(map(str, types))}")
        acc, params, scales, *bias = types
        if any(t.dtype != "float32" for t in types[1:]) or params.shape != (acc.shape[0], 3):
            raise TypeRuleError(f"{HYBRID} of {acc} has parameters {params}")
        if scales.size not in (1, acc.shape[-1]) or any(t.size != acc.shape[-1] for t in bias):
            raise TypeRuleError(f"{HYBRID} of {acc.shape[-1]} channels has {scales.size} scales or a bias of another size")
        return acc.with_dtype("float32")

    def evaluate(self, acc: Array, params: Array, scales: Array, *bias: Array, out_type: TensorType) -> Array:
        data_scale = params[:, 0].reshape((-1,) + (1,) * (acc.ndim - 1))
        weight_scale = scales.reshape(-1)
        total = acc.astype(np.float32)
        with np.errstate(all="ignore"):
            value = total * weight_scale * data_scale if self.weight_first else total * (weight_scale * data_scale)
            value = value + (bias[0].reshape(-1) if bias else np.float32(0))
        return np_bounded(np.asarray(value, np.float32), self.lo, self.hi)

    def element(self, b: IRBuilder, i: Index, *args: TensorFn, out_type: TensorType) -> Expr:
        acc, params, scales, *bias = args
        total = cast("float32", acc.at(b, i))
        weight_scale = scales.at(b, (i[-1] if scales.shape[0] > 1 else imm(0),))
        data_scale = params.at(b, (i[0], imm(0)))
        value = total * weight_scale * data_scale if self.weight_first else total * (weight_scale * data_scale)
        return tir_bounded(b, value + (bias[0].at(b, (i[-1],)) if bias else imm(0.0, "float32")), self.lo, self.hi)
