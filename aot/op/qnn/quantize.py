"""qnn.quantize and qnn.requantize8: QUANTIZE of TFLite, from float32 or from one quantisation to another.

From float32: q = clamp(zp + round(x / scale)), the quotient in float32, halves away from zero.  A quotient beyond int32 saturates
here (in the reference it is undefined behaviour); NaN gives the zero point, as the conversion does on Arm.  Oracle:
`reference_ops::AffineQuantize`.
Between codes: q = clamp(zp + rescale(q_in - zp_in)) with double rounding.  Oracle: `reference_ops::Requantize`; the loop
nest uses the 32-bit form of `aot.numerics.linear` where there is one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import named, requantize, tir_multiply_by_quantized_multiplier, tir_requantize
from aot.numerics.linear import Rescaling, rescaling_of_range
from aot.op.common.check import Clamped
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Imm, cast, clamp, imm, select

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
        raise TypeRuleError(f"quantize takes a float32 tensor, not {data}")
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
    """The code (int32) of a float32 in TIR; `limits` are the lowest and the highest value."""
    low, high = (imm(float(v - zero_point), "float32") for v in limits)
    quotient = b.let("quotient", value / scale)
    # the second comparison, only made beyond the range, tells what is too large from NaN
    below = b.let("below", select(quotient < high, quotient, select(quotient >= high, high, _within(low, high))))
    bounded = b.let("bounded", select(below > low, below, low))
    return tir_nearest(b, bounded) + zero_point


def tir_nearest(b: IRBuilder, value: Expr) -> Expr:
    """The nearest int32 of a float whose double fits one, halves away from zero."""
    # of t = 2x towards zero (2x is exact), (t + 1) >> 1, or t >> 1 where it is negative
    twice = b.let("twice", cast("int32", value + value))
    return (twice + 1 + (twice >> 31)) >> 1


def _within(low: Imm, high: Imm) -> Imm:
    """Zero, or the bound next to it where a clamp excludes it."""
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
        raise TypeRuleError(f"requantize8 takes an int8, uint8, int16 or int32 tensor, not {data}")
    return data.with_dtype(attrs.dtype, attrs.quant)


def evaluate_requantize8(data: Array, *, attrs: Requantize8Attrs, out_type: TensorType) -> Array:
    centred = (data.astype(np.int64) - attrs.input_zp).astype(np.int32)  # one of int32 wraps
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
    """Of int32, which fills the accumulator: differences wrap, and the clamp comes before the zero point is added."""
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
