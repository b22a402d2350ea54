"""TFLite's fixed-point arithmetic: multipliers, requantisation, activation ranges and gemmlowp's exp and reciprocal.

A real multiplier is a pair (multiplier, shift): real = multiplier * 2^(shift - 31), multiplier in [2^30, 2^31) or 0; a positive
shift goes to the left.  The numpy functions work element by element on int64 arrays that hold int32 values; the `tir_` functions
build the same value as an expression.  Semantics follow TensorFlow Lite's `kernels/internal/quantization_util.cc`, `common.h` and
gemmlowp's `fixedpoint.h`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.support.dtype import int_range
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Imm, Var, as_expr, binop, cast, clamp, equal, imm, maximum, minimum, select

Int64 = npt.NDArray[np.int64]
INT32_MIN, INT32_MAX = int_range("int32")


# --- preparation: real numbers to integers --------------------------------------------------------------------------


def round_half_away(value: float) -> int:
    """C's round(): halves go away from zero."""
    low = math.floor(abs(value))
    nearest = low + 1 if abs(value) - low >= 0.5 else low
    return nearest if value >= 0 else -nearest


class NotAMultiplierError(ValueError):
    """Scales of which no integers can be made."""


def quantize_multiplier(real: float) -> tuple[int, int]:
    """QuantizeMultiplier: the pair (multiplier, shift) of a non-negative double; below 2^-32 it is (0, 0).

    NotAMultiplierError for what is negative, infinite or NaN, of which the reference's result is undefined.
    """
    if not (math.isfinite(real) and real >= 0):
        raise NotAMultiplierError(f"the scales give a multiplier of {real:g}")
    if real == 0:
        return 0, 0
    fraction, shift = math.frexp(real)
    fixed = round_half_away(fraction * (1 << 31))
    if fixed == 1 << 31:
        fixed //= 2
        shift += 1
    return (0, 0) if shift < -31 else (fixed, shift)


def reduced_multiplier(multiplier: int) -> int:
    """What MultiplyByQuantizedMultiplier for int64 keeps of a multiplier: 16 bits, here in place (a multiple of 2^16)."""
    return ((multiplier + (1 << 15)) >> 16 if multiplier < 0x7FFF0000 else 0x7FFF) << 16


def is_reduced(multipliers: Iterable[int]) -> bool:
    """Whether these are multipliers of 16 bits."""
    return not any(m % (1 << 16) for m in multipliers)


def quantize_value(real: float, scale: float, zero_point: int) -> int:
    """zero_point + round(real / scale) with the division in float32, as CalculateActivationRangeQuantized does."""
    with np.errstate(over="ignore"):
        quotient = float(np.float32(real) / np.float32(scale))
    if not math.isfinite(quotient):
        return INT32_MAX if quotient > 0 else INT32_MIN
    return zero_point + round_half_away(quotient)


_ACTIVATION_REAL: dict[str, tuple[float | None, float | None]] = {
    "NONE": (None, None),
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
}
"""Lower and upper real bound of each fused activation that clamps."""


def activation_range(activation: str, out_type: TensorType) -> tuple[int, int]:
    """CalculateActivationRangeQuantized: the clamp (lo, hi) of a fused activation in codes of the output.

    KeyError for an activation that is not a clamp (TANH, SIGN_BIT).
    """
    low, high = _ACTIVATION_REAL[activation]
    lo, hi = int_range(out_type.dtype)
    if low is None and high is None:
        return lo, hi
    assert out_type.quant is not None, "an activation on codes needs their scale"
    scale, zero_point = out_type.quant.scale[0], out_type.quant.zero_point[0]
    if low is not None:
        lo = max(lo, quantize_value(low, scale, zero_point))
    if high is not None:
        hi = min(hi, quantize_value(high, scale, zero_point))
    return lo, hi


def is_clamp_activation(activation: str) -> bool:
    return activation in _ACTIVATION_REAL


# --- numpy ----------------------------------------------------------------------------------------------------------


def _int64(x: Any) -> Int64:
    return np.asarray(x, dtype=np.int64)


def wrap_int32(x: Any) -> Int64:
    """Values modulo 2^32, in int32's range (what two's complement hardware leaves of an overflow)."""
    return _int64(x).astype(np.int32).astype(np.int64)


def saturating_rounding_doubling_high_mul(a: Any, b: Any) -> Int64:
    """SaturatingRoundingDoublingHighMul: floor((a*b + 2^30) / 2^31), INT32_MAX where a == b == INT32_MIN."""
    high: Int64 = np.minimum((_int64(a) * _int64(b) + (1 << 30)) >> 31, INT32_MAX)
    return high


def rounding_divide_by_pot(x: Any, exponent: Any) -> Int64:
    """RoundingDivideByPOT: x / 2^exponent to the nearest, halves away from zero; 0 <= exponent <= 31."""
    v, e = _int64(x), _int64(exponent)
    mask = (np.int64(1) << e) - 1
    return (v >> e) + ((v & mask) > (mask >> 1) + (v < 0))


def saturating_shift_left(x: Any, amount: int) -> Int64:
    """SaturatingRoundingMultiplyByPOT for a positive exponent."""
    shifted: Int64 = np.clip(_int64(x) << amount, INT32_MIN, INT32_MAX)
    return shifted


def _rounded_once(v: Int64, m: Int64, total: Int64, *, rounding: str) -> Int64:
    """floor((v*m + 2^(total-1)) / 2^total) for m < 2^31 and |v| < 2^47 (2^31 where total < 16); the product is split
    below bit 16.  "away": a negative half falls to the next integer below.
    """
    half = (np.int64(1) << (total - 1)) - ((v < 0) if rounding == "away" else 0)
    low = (v & 0xFFFF) * m + half
    split = ((v >> 16) * m + (low >> 16)) >> np.maximum(total - 16, 0)
    return _int64(np.where(total >= 16, split, (v * m + half) >> total) if np.any(total < 16) else split)


def multiply_by_quantized_multiplier(x: Any, multiplier: Any, shift: Any, *, rounding: str = "double") -> Int64:
    """MultiplyByQuantizedMultiplier of int32 values; multiplier and shift are numbers or arrays that broadcast (last axis).

    `rounding`: "double" rounds the high product, then the shift; "single" is floor((x*m + 2^(30-shift)) / 2^(31-shift));
    "away" is that with halves away from zero.
    """
    v, m, s = _int64(x), _int64(multiplier), _int64(shift)
    if rounding in ("single", "away"):
        return _rounded_once(v, m, 31 - s, rounding=rounding)
    if rounding != "double":
        raise ValueError(rounding)
    shifted = wrap_int32(v << np.maximum(s, 0)) if np.any(s > 0) else v
    high = saturating_rounding_doubling_high_mul(shifted, m)
    return rounding_divide_by_pot(high, np.maximum(-s, 0)) if np.any(s < 0) else high


def multiply_by_long_multiplier(x: Any, multiplier: Any, fraction: Any, shift: Any) -> Int64:
    """round(x * (multiplier + fraction / 2^31) * 2^(shift-31)), halves away from zero, for |x| < 2^47 and shift <= 14.

    The product is added up from its lowest part: each line is worth the power of two after it.
    """
    v, m, f = _int64(x), _int64(multiplier), _int64(fraction)
    high, low = v >> 16, v & 0xFFFF
    lowest = high * f + ((low * f - (v < 0)) >> 16)  # 2^16
    middle = low * m + (lowest >> 15)  # 2^31
    total = high * m + (middle >> 16)  # 2^47
    right = 15 - _int64(shift)
    return _int64((total + (np.int64(1) << (right - 1))) >> right)


def requantize(x: Any, multiplier: Any, shift: Any, *, zero_point: int, lo: int, hi: int, rounding: str = "double") -> Int64:
    """Rescaled, shifted by the zero point and clamped to [lo, hi]."""
    scaled = multiply_by_quantized_multiplier(x, multiplier, shift, rounding=rounding)
    return np.clip(scaled + zero_point, lo, hi)


# --- gemmlowp's exp and reciprocal ----------------------------------------------------------------------------------

_EXP_BARREL = (
    (-2, 1672461947),
    (-1, 1302514674),
    (0, 790015084),
    (1, 290630308),
    (2, 39332535),
    (3, 720401),
    (4, 242),
)
"""(k, round(exp(-2^k) * 2^31)): the factors of exp for each bit of the argument from one quarter up."""

EXP_INTEGER_BITS = 5
"""Softmax's scaled differences have 5 integer and 26 fractional bits."""


def _exp_on_last_quarter(a: Int64) -> Int64:
    """exp(a) for a in [-1/4, 0), Q0.31: Taylor's series to the fourth power about -1/8."""
    mul = saturating_rounding_doubling_high_mul
    x = a + (1 << 28)
    x2 = mul(x, x)
    x3 = mul(x2, x)
    x4_over_4 = rounding_divide_by_pot(mul(x2, x2), 2)
    tail = rounding_divide_by_pot(mul(x4_over_4 + x3, 715827883) + x2, 1)
    return mul(1895147668, x + tail) + 1895147668


def exp_on_negative_values(a: Any) -> Int64:
    """gemmlowp's exp_on_negative_values: Q5.26 argument <= 0, Q0.31 result (exactly INT32_MAX for 0)."""
    v = _int64(a)
    fractional = 31 - EXP_INTEGER_BITS
    quarter = 1 << (fractional - 2)
    in_quarter = (v & (quarter - 1)) - quarter
    result = _exp_on_last_quarter(saturating_shift_left(in_quarter, EXP_INTEGER_BITS))
    remainder = in_quarter - v
    for exponent, factor in _EXP_BARREL:
        bit = remainder & (1 << (fractional + exponent))
        result = np.where(bit != 0, saturating_rounding_doubling_high_mul(result, factor), result)
    return np.where(v == 0, INT32_MAX, result)


def one_over_one_plus_x(a: Any) -> Int64:
    """gemmlowp's one_over_one_plus_x_for_x_in_0_1: Q0.31 argument in [0, 1), Q0.31 result, by three Newton steps."""
    mul = saturating_rounding_doubling_high_mul
    half_denominator = (_int64(a) + INT32_MAX + 1) >> 1
    x = mul(half_denominator, -1010580540) + 1515870810
    for _ in range(3):
        x = x + saturating_shift_left(mul(x, (1 << 29) - mul(half_denominator, x)), 2)
    return saturating_shift_left(x, 1)


def reciprocal(x: Any, integer_bits: int) -> tuple[Int64, Int64]:
    """GetReciprocal of a positive fixed-point number: (Q0.31 mantissa, bits over unit)."""
    v = _int64(x)
    leading_zeros = 32 - np.frexp(v.astype(np.float64))[1].astype(np.int64)  # exact: an int32 fits a double
    return one_over_one_plus_x((v << leading_zeros) - (1 << 31)), integer_bits - leading_zeros


def softmax_scaling(input_scale: float) -> tuple[int, int, int]:
    """PreprocessSoftmaxScaling, of a scale that holds beta, and CalculateInputRadius: (multiplier, left shift, smallest
    difference that counts).
    """
    real = min(input_scale * (1 << (31 - EXP_INTEGER_BITS)), (1 << 31) - 1.0)
    multiplier, left_shift = quantize_multiplier(real)
    radius = ((1 << EXP_INTEGER_BITS) - 1) * (1 << (31 - EXP_INTEGER_BITS)) / (2.0**left_shift)
    return multiplier, left_shift, -math.floor(radius)


# --- TIR ------------------------------------------------------------------------------------------------------------


def _shift_left(x: Expr, amount: int) -> Expr:
    """x * 2^amount modulo 2^32, without signed overflow."""
    return cast("int32", cast("int64", x) * (1 << amount)) if amount else x


def tir_multiply_by_quantized_multiplier(
    b: IRBuilder, x: Expr, multiplier: int | Expr, shift: int | Expr, *, rounding: str = "double"
) -> Expr:
    """MultiplyByQuantizedMultiplier of an int32 expression; multiplier and shift are numbers or int32 expressions.

    One multiply, one add, one shift: for s = -shift >= 1, y = floor((x*m + 2^(30+s) + sgn(x)*2^30) / 2^(31+s)) equals rounding
    twice (checked in tests/op).  Appends a `let` to `b` for an operand that is used more than once.
    """
    if rounding not in ("double", "single", "away"):
        raise ValueError(rounding)
    if not isinstance(shift, int):
        return _any_shift(named(b, "x", x), as_expr(multiplier), named(b, "shift", shift), rounding=rounding)
    if rounding == "single":
        product = cast("int64", x) * cast("int64", as_expr(multiplier))
        return cast("int32", (product + (1 << (30 - shift))) >> (31 - shift))
    x = named(b, "x", x) if shift < 0 or rounding == "away" else x
    if rounding == "away":
        product = cast("int64", x) * cast("int64", as_expr(multiplier))
        return cast("int32", (product + (cast("int64", x >> 31) + (1 << (30 - shift)))) >> (31 - shift))
    product = cast("int64", _shift_left(x, max(shift, 0))) * cast("int64", as_expr(multiplier))
    if shift >= 0:
        return cast("int32", (product + (1 << 30)) >> 31)
    half = 1 << (30 - shift)
    bias = select(x < 0, imm(half - (1 << 30), "int64"), imm(half + (1 << 30), "int64"))
    return cast("int32", (product + bias) >> (31 - shift))


def named(b: IRBuilder, name: str, x: Expr) -> Expr:
    """`x` as something that may be repeated: a variable or a constant."""
    return x if isinstance(x, (Var, Imm)) else b.let(name, x)


def tir_multiply_right_shift(x: Expr, multiplier: Expr, right_shift: Expr, *, rounding: str = "double") -> Expr:
    """The same with a right shift that is an int32 expression in [1, 31] (per channel, from a stream)."""
    total = cast("int64", right_shift) + 31
    product = cast("int64", x) * cast("int64", multiplier) + (imm(1, "int64") << (total - 1))
    if rounding == "double":
        product = product + select(x < 0, imm(-(1 << 30), "int64"), imm(1 << 30, "int64"))
    return cast("int32", product >> total)


def tir_multiply_wide(
    b: IRBuilder, x: Expr, multiplier: int | Expr, shift: int | Expr, *, reduced: bool, rounding: str = "single"
) -> Expr:
    """MultiplyByQuantizedMultiplier of an int64 expression below 2^47 with one rounding; int32.

    The product is split below bit 16, as it may have more than 64; `reduced` multipliers have nothing there.
    """
    m = cast("int64", as_expr(multiplier))
    total: Expr = imm(15 - shift, "int64") if isinstance(shift, int) else imm(15, "int64") - cast("int64", shift)
    if reduced and rounding == "single":
        return cast("int32", (x * (m >> 16) + (imm(1, "int64") << (total - 1))) >> total)
    x, total, m = named(b, "x", x), named(b, "total", total), named(b, "m", m)
    low = (x & 0xFFFF) * m + (imm(1, "int64") << (total + 15))
    low = low + (x >> 63) if rounding == "away" else low
    return cast("int32", ((x >> 16) * m + (low >> 16)) >> total)


def tir_multiply_long(b: IRBuilder, x: Expr, multiplier: int | Expr, *, fraction: int | Expr, shift: int | Expr) -> Expr:
    """`multiply_by_long_multiplier` of an int32 or int64 expression; int32."""
    x, m, f = named(b, "x", x), cast("int64", as_expr(multiplier)), cast("int64", as_expr(fraction))
    right: Expr = imm(31 - shift, "int64") if isinstance(shift, int) else imm(31, "int64") - cast("int64", shift)
    if x.dtype == "int32":
        wide = cast("int64", x)
        total = wide * m + ((wide * f + cast("int64", x >> 31)) >> 31)
    else:
        m, f, right = named(b, "m", m), named(b, "f", f), right - 16
        lowest = (x >> 16) * f + (((x & 0xFFFF) * f + (x >> 63)) >> 16)
        total = (x >> 16) * m + (((x & 0xFFFF) * m + (lowest >> 15)) >> 16)
    right = named(b, "right", right)
    return cast("int32", (total + (imm(1, "int64") << (right - 1))) >> right)


def _any_shift(x: Expr, multiplier: Expr, shift: Expr, *, rounding: str) -> Expr:
    """The same with a shift of either sign that is an int32 expression in [-31, 30]."""
    wide = cast("int64", x)
    if rounding in ("single", "away"):
        total = imm(31, "int64") - cast("int64", shift)
        half: Expr = imm(1, "int64") << (total - 1)
        half = half + cast("int64", x >> 31) if rounding == "away" else half
        return cast("int32", (wide * cast("int64", multiplier) + half) >> total)
    left = cast("int32", wide * (imm(1, "int64") << cast("int64", maximum(shift, 0))))
    to_left = cast("int32", (cast("int64", left) * cast("int64", multiplier) + (1 << 30)) >> 31)
    # the shift is kept in range on the side that is not chosen, for compilers that evaluate both
    to_right = tir_multiply_right_shift(x, multiplier, maximum(imm(0) - shift, 1), rounding=rounding)
    return select(shift >= 0, to_left, to_right)


def tir_saturating_rounding_doubling_high_mul(a: Expr, b: Expr) -> Expr:
    """floor((a*b + 2^30) / 2^31) without the saturation of INT32_MIN squared, which no caller reaches."""
    return cast("int32", (cast("int64", a) * cast("int64", b) + (1 << 30)) >> 31)


def tir_rounding_divide_by_pot(b: IRBuilder, x: Expr, exponent: int) -> Expr:
    """RoundingDivideByPOT of an int32 expression by a constant power of two: x + 2^(exponent-1) must stay in 32 bits."""
    v = named(b, "x", x)
    half = 1 << (exponent - 1)
    return (v + select(v < 0, imm(half - 1), imm(half))) >> exponent


def tir_exp_on_negative_values(b: IRBuilder, a: Expr) -> Expr:
    """`exp_on_negative_values` of an int32 expression; a name of Q0.31."""
    mul = tir_saturating_rounding_doubling_high_mul
    v = named(b, "v", a)
    fractional = 31 - EXP_INTEGER_BITS
    quarter = 1 << (fractional - 2)
    part = b.let("part", (v & (quarter - 1)) - quarter)
    x = b.let("x", part * (1 << EXP_INTEGER_BITS) + (1 << 28))
    x2 = b.let("x2", mul(x, x))
    x4 = b.let("x4", tir_rounding_divide_by_pot(b, mul(x2, x2), 2))
    third = b.let("third", mul(x4 + mul(x2, x), imm(715827883)))
    tail = b.let("tail", tir_rounding_divide_by_pot(b, third + x2, 1))
    result = b.local("exp", (1,), "int32", init=0)
    b.store(result, 0, mul(imm(1895147668), x + tail) + 1895147668)
    rest = b.let("rest", part - v)
    for exponent, factor in _EXP_BARREL:
        with b.if_(binop("!=", rest & (1 << (fractional + exponent)), imm(0))):
            b.store(result, 0, mul(result[0], imm(factor)))
    return b.let("value", select(equal(v, 0), imm(INT32_MAX), result[0]))


def tir_one_over_one_plus_x(b: IRBuilder, half: Expr) -> Expr:
    """`one_over_one_plus_x` of an `a` in [0, 1), given as the name of (1 + a) / 2 in Q0.31; a name of Q0.31."""
    mul = tir_saturating_rounding_doubling_high_mul
    y = b.local("y", (1,), "int32")
    b.store(y, 0, mul(half, imm(-1010580540)) + 1515870810)
    with b.for_("newton", 3):
        error = imm(1 << 29) - mul(half, y[0])
        b.store(y, 0, y[0] + mul(y[0], error) * 4)
    return b.let("scale", tir_doubled(y[0]))


def tir_doubled(x: Expr) -> Expr:
    """Twice an int32 >= 0, saturated."""
    return select(x >= imm(1 << 30), imm(INT32_MAX), minimum(x, (1 << 30) - 1) * 2)


def tir_requantize(
    b: IRBuilder, x: Expr, *, multiplier: int, shift: int, zero_point: int, lo: int, hi: int, rounding: str = "double"
) -> Expr:
    """Rescaled by constants, shifted by the zero point and clamped to [lo, hi]; an int32 expression."""
    scaled = tir_multiply_by_quantized_multiplier(b, x, multiplier, shift, rounding=rounding)
    return clamp(scaled + zero_point, lo, hi)


def clamp_array(x: Any, lo: int, hi: int, dtype: str) -> Array:
    """Clamp and convert to `dtype`."""
    clamped: Array = np.clip(x, lo, hi).astype(dtype)
    return clamped
