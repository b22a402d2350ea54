"""qnn.divide: DIV of TFLite on int8, int16 and legacy uint8 with broadcasting (plain numbers: `arithmetic.py`).

out = clamp(zp + round((a - zp_a) * 1/(b - zp_b) * multiplier)) with gemmlowp's reciprocal, all in 32 bits.  Oracle:
`DivElementwise` of `reference/div.h`.  Small quotients ask it for right shifts by more than 31, which C leaves undefined; the
reference, on the machines that it runs on, shifts by the number modulo 32 and rounds with a mask of all bits.  So does this
operator, far from the quotient as those results are, and the same for the shifts by negative numbers that very large
multipliers ask for.  A division by zero, an error in the reference, gives the zero point, or
with TFLM as the oracle what its arithmetic makes of it: a product with `INVERSE_OF_ZERO`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import F_DOMAIN, Array, OpPattern, register_op
from aot.ir.type import TensorType, Type
from aot.numerics.fixed_point import (
    Int64,
    clamp_array,
    named,
    reciprocal,
    saturating_rounding_doubling_high_mul,
    tir_one_over_one_plus_x,
    tir_saturating_rounding_doubling_high_mul,
)
from aot.op.common.binary import RescaledAttrs, broadcast_at, broadcast_type, two_of_one_type
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, equal, imm, maximum, select

BITS = {"int8": 8, "int16": 16}
"""Bits of a centred code's size."""
INVERSE_OF_ZERO = -1515870788
"""What gemmlowp's three Newton steps lead to from 0, in 32 bits that wrap; it counts as one of a divisor of half a bit."""


@dataclass(frozen=True, slots=True)
class DivideAttrs(RescaledAttrs):
    """And whether a divisor of zero counts as `INVERSE_OF_ZERO`."""

    inverts_zero: bool = False


def infer_type(types: Sequence[Type], attrs: DivideAttrs) -> Type:
    """Two int8 or int16 tensors whose shapes broadcast -> the same type."""
    a, b = two_of_one_type(list(types), "qnn.divide", tuple(BITS))
    return broadcast_type(a, b, a.dtype, attrs.quant)


def domain(types: Sequence[Type], attrs: DivideAttrs) -> dict[int, tuple[float, float]]:
    """The reference stops at a divisor of 0."""
    _, divisor = two_of_one_type(list(types), "qnn.divide", tuple(BITS))
    (low, high), zp = int_range(divisor.dtype), attrs.input_zp[1]
    return {1: (zp + 1, high) if zp < high else (low, zp - 1)}


def _sign_bits(x: Int64) -> Int64:
    """CountLeadingSignBits of int32 values: copies of the sign after the sign."""
    return 31 - np.frexp(np.where(x < 0, ~x, x).astype(np.float64))[1].astype(np.int64)


def _shifted_right(x: Int64, exponent: Int64) -> Int64:
    """RoundingDivideByPOT as the reference's machine computes it, for exponents in [0, 128)."""
    mask = np.where(exponent & 32, -1, (np.int64(1) << (exponent & 31)) - 1)
    return (x >> (exponent & 31)) + ((x & mask) > (mask >> 1) + (x < 0))


def evaluate(a: Array, b: Array, *, attrs: DivideAttrs, out_type: TensorType) -> Array:
    x, y = (v.astype(np.int64) - zp for v, zp in zip((a, b), attrs.input_zp, strict=True))
    x, y = np.where(y < 0, -x, x), np.abs(y)
    inverse, over_unit = reciprocal(np.maximum(y, 1), 31)
    if attrs.inverts_zero:
        inverse, over_unit = np.where(y == 0, INVERSE_OF_ZERO, inverse), np.where(y == 0, -1, over_unit)
    headroom = _sign_bits(x)
    quotient = saturating_rounding_doubling_high_mul(x << headroom, inverse)
    scaled = saturating_rounding_doubling_high_mul(quotient, attrs.multiplier)
    result = _shifted_right(scaled, headroom + over_unit - attrs.shift)
    result = result if attrs.inverts_zero else np.where(y == 0, 0, result)
    return clamp_array(result + attrs.zero_point, attrs.lo, attrs.hi, out_type.dtype)


def _normalized(b: IRBuilder, name: str, x: Expr, *, bits: int) -> tuple[Expr, Expr]:
    """(x shifted up to bit 31, by how much) of a uint32 below 2^bits; 0 is shifted by 31."""
    value, zeros = b.local(name, (1,), "uint32"), b.local(f"{name}_zeros", (1,), "int32", init=32 - bits)
    b.store(value, 0, x << (32 - bits))
    step = bits // 2
    while step:
        with b.if_(value[0] < imm(1 << (32 - step), "uint32")):
            b.store(value, 0, value[0] << step)
            b.store(zeros, 0, zeros[0] + step)
        step //= 2
    return value[0], zeros[0]


def _tir_quotient(b: IRBuilder, x: Expr, y: Expr, *, attrs: DivideAttrs, bits: int) -> Expr:
    """x / y rescaled, for names of int32 values."""
    mul = tir_saturating_rounding_doubling_high_mul
    size, zeros = _normalized(b, "divisor", cast("uint32", maximum(select(y < 0, imm(0) - y, y), 1)), bits=bits)
    inverse = tir_one_over_one_plus_x(b, b.let("half", cast("int32", size >> 1)))
    if attrs.inverts_zero:
        inverse, zeros = select(equal(y, 0), imm(INVERSE_OF_ZERO), inverse), select(equal(y, 0), imm(32), zeros)
    dividend = b.let("dividend", select(y < 0, imm(0) - x, x))
    # the sign's copies are the zeros before ~x or x, less the sign itself
    _, room = _normalized(b, "room", cast("uint32", select(dividend < 0, imm(-1) - dividend, dividend) * 2 + 1), bits=2 * bits)
    headroom = b.let("headroom", room)
    quotient = mul(cast("int32", cast("uint32", dividend) << cast("uint32", headroom)), inverse)
    scaled = b.let("scaled", mul(quotient, imm(attrs.multiplier)))
    exponent = b.let("exponent", headroom + (31 - attrs.shift) - zeros)
    count = b.let("count", exponent & 31)
    mask = b.let("mask", select(equal(exponent & 32, 0), cast("int32", (imm(1, "uint32") << cast("uint32", count)) - 1), imm(-1)))
    up = (scaled & mask) > (mask >> 1) + cast("int32", scaled < 0)
    result = (scaled >> count) + cast("int32", up)
    return result if attrs.inverts_zero else select(equal(y, 0), imm(0), result)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: DivideAttrs, out_type: TensorType) -> TensorFn:
    def rule(b: IRBuilder, *i: Expr) -> Expr:
        x, y = (
            named(b, name, cast("int32", broadcast_at(b, t, i)) - zp)
            for name, t, zp in zip("xy", args, attrs.input_zp, strict=True)
        )
        value = _tir_quotient(b, x, y, attrs=attrs, bits=BITS[out_type.dtype])
        return cast(out_type.dtype, clamp(value + attrs.zero_point, attrs.lo, attrs.hi))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "qnn.divide",
    2,
    arguments=[("a", "int8, int16", "the left operand"), ("b", "as a", "the right operand; shapes broadcast")],
    attrs_type=DivideAttrs,
    pattern=OpPattern.BROADCAST,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="DIV; int8, int16, uint8, with broadcasting",
)
F_TE.set("qnn.divide", te_rule)
F_DOMAIN.set("qnn.divide", domain)
