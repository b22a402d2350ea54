"""TFLite's fixed-point arithmetic: multipliers, requantisation, activation ranges and gemmlowp's exp and reciprocal.

A real multiplier is a pair (multiplier, shift): real = multiplier * 2^(shift - 31), multiplier in [2^30, 2^31) or 0; a positive
shift goes to the left.  The numpy functions work element by element on int64 arrays that hold int32 values; the `tir_` functions
build the same value as an expression.  Semantics follow TensorFlow Lite's `kernels/internal/quantization_util.cc`, `common.h` and
gemmlowp's `fixedpoint.h`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import Enum
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.support.dtype import int_range
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Imm, Var, as_expr, binop, cast, clamp, equal, imm, maximum, minimum, select
from aot.tir.intrin import Intrin

Int64 = npt.NDArray[np.int64]
INT32_MIN, INT32_MAX = int_range("int32")


# --- preparation: real numbers to integers --------------------------------------------------------------------------


def round_half_away(value: float) -> int:
    """C's round(): halves go away from zero."""
    low = math.floor(abs(value))
    nearest = low + 1 if abs(value) - low >= 0.5 else low
    return nearest if value >= 0 else -nearest


class NotAMultiplierError(ValueError):
    """Scales that have no integer multiplier."""


def quantize_multiplier(real: float) -> tuple[int, int]:
    """QuantizeMultiplier: the pair (multiplier, shift) of a non-negative double; below 2^-32 it is (0, 0).

    NotAMultiplierError for negative, infinite or NaN values, for which the reference's result is undefined.
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
    """Round a multiplier to 16 bits in place (a multiple of 2^16), as MultiplyByQuantizedMultiplier for int64 does."""
    return ((multiplier + (1 << 15)) >> 16 if multiplier < 0x7FFF0000 else 0x7FFF) << 16


def is_reduced(multipliers: Iterable[int]) -> bool:
    """Whether all multipliers have 16 bits."""
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
    """CalculateActivationRangeQuantized: the clamp (lo, hi) of a fused activation in quantised values of the output.

    KeyError for an activation that is not a clamp (TANH, SIGN_BIT).
    """
    low, high = _ACTIVATION_REAL[activation]
    lo, hi = int_range(out_type.dtype)
    if low is None and high is None:
        return lo, hi
    assert out_type.quant is not None, "an activation on quantised values needs their scale"
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
    """Values modulo 2^32 in the range of int32 (what two's complement hardware leaves after an overflow)."""
    return _int64(x).astype(np.int32).astype(np.int64)


def saturating_rounding_doubling_high_mul(a: Any, b: Any, bits: int = 32) -> Int64:
    """SaturatingRoundingDoublingHighMul: floor((a*b + 2^(bits-2)) / 2^(bits-1)), saturated for the smallest integer squared."""
    high: Int64 = np.minimum((_int64(a) * _int64(b) + (1 << (bits - 2))) >> (bits - 1), (1 << (bits - 1)) - 1)
    return high


def rounding_divide_by_pot(x: Any, exponent: Any) -> Int64:
    """RoundingDivideByPOT: x / 2^exponent to the nearest, halves away from zero; 0 <= exponent <= 31."""
    v, e = _int64(x), _int64(exponent)
    mask = (np.int64(1) << e) - 1
    return (v >> e) + ((v & mask) > (mask >> 1) + (v < 0))


def saturating_shift_left(x: Any, amount: int, bits: int = 32) -> Int64:
    """SaturatingRoundingMultiplyByPOT for a positive exponent."""
    shifted: Int64 = np.clip(_int64(x) << amount, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return shifted


def _rounded_once(v: Int64, m: Int64, total: Int64, *, rounding: str) -> Int64:
    """floor((v*m + 2^(total-1)) / 2^total) for m < 2^31 and |v| < 2^47 (2^31 if total < 16).

    The product is split below bit 16.  "away": a negative half rounds to the next integer below.
    """
    half = (np.int64(1) << (total - 1)) - ((v < 0) if rounding == "away" else 0)
    low = (v & 0xFFFF) * m + half
    split = ((v >> 16) * m + (low >> 16)) >> np.maximum(total - 16, 0)
    return _int64(np.where(total >= 16, split, (v * m + half) >> total) if np.any(total < 16) else split)


def multiply_by_quantized_multiplier(x: Any, multiplier: Any, shift: Any, *, rounding: str = "double") -> Int64:
    """MultiplyByQuantizedMultiplier of int32 values; multiplier and shift are numbers or arrays that broadcast (last axis).

    `rounding`: "double" rounds the high product, then the shift; "single" is floor((x*m + 2^(30-shift)) / 2^(31-shift));
    "away" is the same with halves away from zero.
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

    The product is summed from its lowest part; the comment after each line is the weight of that line.
    """
    v, m, f = _int64(x), _int64(multiplier), _int64(fraction)
    high, low = v >> 16, v & 0xFFFF
    lowest = high * f + ((low * f - (v < 0)) >> 16)  # 2^16
    middle = low * m + (lowest >> 15)  # 2^31
    total = high * m + (middle >> 16)  # 2^47
    right = 15 - _int64(shift)
    return _int64((total + (np.int64(1) << (right - 1))) >> right)


def requantize(x: Any, multiplier: Any, shift: Any, *, zero_point: int, lo: int, hi: int, rounding: str = "double") -> Int64:
    """Rescale, add the zero point and clamp to [lo, hi]."""
    scaled = multiply_by_quantized_multiplier(x, multiplier, shift, rounding=rounding)
    return np.clip(scaled + zero_point, lo, hi)


# --- gemmlowp's exp and reciprocal ----------------------------------------------------------------------------------

_EXP_BARREL = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
"""round(exp(-2^k) * 2^31) for k from -2 on: the factors of exp for each bit of the argument from one quarter up."""

_EXP_EIGHTH, _THIRD = 1895147668, 715827883
"""e^(-1/8) and 1/3 as fractions of 2^31."""

EXP_INTEGER_BITS = 5
"""Softmax's scaled differences have 5 integer and 26 fractional bits."""


def _narrowed(number: int, bits: int) -> int:
    """A 32-bit fixed-point constant rounded to `bits` bits."""
    return number if bits == 32 else (number + (1 << (31 - bits))) >> (32 - bits)


def exp_on_negative_values(a: Any, integer_bits: int = EXP_INTEGER_BITS, bits: int = 32) -> Int64:
    """gemmlowp's exp_on_negative_values of numbers of `bits` bits <= 0; the result, without integer bits, is the largest for 0.

    A Taylor series of fourth order about -1/8 for the part in [-1/4, 0), then a factor for each higher bit.
    """

    def mul(x: Any, y: Any) -> Int64:
        return saturating_rounding_doubling_high_mul(x, y, bits)

    v, largest, fractional = _int64(a), (1 << (bits - 1)) - 1, bits - 1 - integer_bits
    quarter = 1 << (fractional - 2)
    last = (v & (quarter - 1)) - quarter
    x = saturating_shift_left(last, integer_bits, bits) + (1 << (bits - 4))
    x2 = mul(x, x)
    x4_over_4 = rounding_divide_by_pot(mul(x2, x2), 2)
    tail = rounding_divide_by_pot(mul(x4_over_4 + mul(x2, x), _narrowed(_THIRD, bits)) + x2, 1)
    eighth = _narrowed(_EXP_EIGHTH, bits)
    result = np.minimum(eighth + mul(x + tail, eighth), largest)
    for exponent, factor in enumerate(_EXP_BARREL, -2):
        if integer_bits > exponent:
            bit = (last - v) & (1 << (fractional + exponent))
            result = np.where(bit != 0, mul(result, _narrowed(factor, bits)), result)
    if integer_bits > 5:
        result = np.where(v < -(1 << (fractional + 5)), 0, result)
    return np.where(v == 0, largest, result)


def _newton(a: Any, bits: int) -> Int64:
    """2 / (1 + a) for a in [0, 1] without integer bits, with two of them, by three Newton steps."""
    half_denominator = (_int64(a) + (1 << (bits - 1))) >> 1
    x = saturating_rounding_doubling_high_mul(half_denominator, _narrowed(-1010580540, bits), bits) + _narrowed(1515870810, bits)
    for _ in range(3):
        error = (1 << (bits - 3)) - saturating_rounding_doubling_high_mul(half_denominator, x, bits)
        x = x + saturating_shift_left(saturating_rounding_doubling_high_mul(x, error, bits), 2, bits)
    return x


def one_over_one_plus_x(a: Any) -> Int64:
    """gemmlowp's one_over_one_plus_x_for_x_in_0_1: Q0.31 argument in [0, 1), Q0.31 result, by three Newton steps."""
    return saturating_shift_left(_newton(a, 32), 1)


def reciprocal(x: Any, integer_bits: int) -> tuple[Int64, Int64]:
    """GetReciprocal of a positive fixed-point number: (Q0.31 mantissa, bits over unit)."""
    v = _int64(x)
    leading_zeros = 32 - np.frexp(v.astype(np.float64))[1].astype(np.int64)  # exact: an int32 fits a double
    return one_over_one_plus_x((v << leading_zeros) - (1 << 31)), integer_bits - leading_zeros


def softmax_scaling(input_scale: float) -> tuple[int, int, int]:
    """PreprocessSoftmaxScaling (for a scale that includes beta) and CalculateInputRadius.

    Return (multiplier, left shift, smallest difference that counts).
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
    twice (checked in tests/op).  Appends a `let` to `b` for operands that are used more than once.
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
    """`x` as an expression that can be repeated: a variable or a constant."""
    return x if isinstance(x, (Var, Imm)) else b.let(name, x)


def tir_multiply_right_shift(x: Expr, multiplier: Expr, right_shift: Expr, *, rounding: str = "double") -> Expr:
    """Like `tir_multiply_by_quantized_multiplier`, with an int32 right shift in [1, 31] (per channel, from a stream)."""
    total = cast("int64", right_shift) + 31
    product = cast("int64", x) * cast("int64", multiplier) + (imm(1, "int64") << (total - 1))
    if rounding == "double":
        product = product + select(x < 0, imm(-(1 << 30), "int64"), imm(1 << 30, "int64"))
    return cast("int32", product >> total)


def tir_multiply_wide(
    b: IRBuilder, x: Expr, multiplier: int | Expr, shift: int | Expr, *, reduced: bool, rounding: str = "single"
) -> Expr:
    """MultiplyByQuantizedMultiplier of an int64 expression below 2^47 with one rounding; int32.

    The product may have more than 64 bits, so it is split below bit 16; `reduced` multipliers are zero there.
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
    """Like `tir_multiply_by_quantized_multiplier`, with an int32 shift of either sign in [-31, 30]."""
    wide = cast("int64", x)
    if rounding in ("single", "away"):
        total = imm(31, "int64") - cast("int64", shift)
        half: Expr = imm(1, "int64") << (total - 1)
        half = half + cast("int64", x >> 31) if rounding == "away" else half
        return cast("int32", (wide * cast("int64", multiplier) + half) >> total)
    left = cast("int32", wide * (imm(1, "int64") << cast("int64", maximum(shift, 0))))
    to_left = cast("int32", (cast("int64", left) * cast("int64", multiplier) + (1 << 30)) >> 31)
    # keep the shift in range on the side that is not chosen too, for compilers that evaluate both
    to_right = tir_multiply_right_shift(x, multiplier, maximum(imm(0) - shift, 1), rounding=rounding)
    return select(shift >= 0, to_left, to_right)


def tir_saturating_rounding_doubling_high_mul(a: Expr, b: Expr) -> Expr:
    """floor((a*b + 2^30) / 2^31) without the saturation of INT32_MIN squared, which no caller reaches."""
    return cast("int32", (cast("int64", a) * cast("int64", b) + (1 << 30)) >> 31)


def tir_rounding_divide_by_pot(b: IRBuilder, x: Expr, exponent: int) -> Expr:
    """RoundingDivideByPOT of an int32 expression by a constant power of two; x + 2^(exponent-1) must fit 32 bits."""
    v = named(b, "x", x)
    half = 1 << (exponent - 1)
    return (v + select(v < 0, imm(half - 1), imm(half))) >> exponent


def tir_exp_on_negative_values(b: IRBuilder, a: Expr) -> Expr:
    """`exp_on_negative_values` of an int32 expression; returns a name in Q0.31."""
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
    for exponent, factor in enumerate(_EXP_BARREL, -2):
        with b.if_(binop("!=", rest & (1 << (fractional + exponent)), imm(0))):
            b.store(result, 0, mul(result[0], imm(factor)))
    return b.let("value", select(equal(v, 0), imm(INT32_MAX), result[0]))


def tir_one_over_one_plus_x(b: IRBuilder, half: Expr) -> Expr:
    """`one_over_one_plus_x` for `a` in [0, 1); `half` is the name of (1 + a) / 2 in Q0.31; returns a name in Q0.31."""
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
    """Rescale by constants, add the zero point and clamp to [lo, hi]; an int32 expression."""
    scaled = tir_multiply_by_quantized_multiplier(b, x, multiplier, shift, rounding=rounding)
    return clamp(scaled + zero_point, lo, hi)


def clamp_array(x: Any, lo: int, hi: int, dtype: str) -> Array:
    """Clamp and convert to `dtype`."""
    clamped: Array = np.clip(x, lo, hi).astype(dtype)
    return clamped


# The precision in which each reference multiplies and divides the scales of an operator's tensors: one table for all converters.
#
# A quantised operator rescales by a real number computed from scales (a/c, a*b/c, a/(b*c)), which QuantizeMultiplier then turns
# into 31 bits.  The scales are float32; rounding a product or quotient to float32 on the way changes the last seven of those
# bits, which occasionally shows in a result.  The references do not agree: the rows below are from their Prepare functions,
# TensorFlow Lite's in `tflite/kernels/NAME.cc`, TFLM's in `tensorflow/lite/micro/kernels/NAME_common.cc`.
#
# Multipliers that are infinite or NaN: see `aot.numerics.ties`.


class Precision(Enum):
    """How factors / divisors is computed; products go from left to right."""

    DOUBLE = "every step in double precision"
    SINGLE = "every step in float32"
    SINGLE_PRODUCT = "products in float32, the quotient in double precision"


_D, _S, _P = Precision.DOUBLE, Precision.SINGLE, Precision.SINGLE_PRODUCT

LITERT: dict[tuple[str, str], Precision] = {
    # kernel_util.cc PopulateConvolutionQuantizationParams; for uint8 GetQuantizedConvolutionMultipler
    **{(name, "*"): _D for name in ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV")},
    **{(name, "uint8"): _P for name in ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV")},
    # reference/integer_ops/fully_connected.h and reference/fully_connected.h: effective_output_scale, which stays a double
    ("FULLY_CONNECTED", "*"): _D,
    # batch_matmul.cc Prepare: GetQuantizedConvolutionMultipler
    ("BATCH_MATMUL", "*"): _P,
    # add.cc, sub.cc, squared_difference.cc: twice_max_input_scale is a double, and the powers of two change no bit
    **{(name, "*"): _D for name in ("ADD", "SUB", "SQUARED_DIFFERENCE")},
    # mul.cc, div.cc: real_multiplier is a double computed from floats
    **{(name, "*"): _S for name in ("MUL", "DIV")},
    # activations.cc ReluPrepare, LeakyReluPrepare, PreluPrepare, HardSwishPrepare
    **{(name, "*"): _S for name in ("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "LEAKY_RELU", "PRELU", "HARD_SWISH")},
    # activations.cc SoftmaxPrepare
    ("SOFTMAX", "*"): _D,
    ("SOFTMAX", "int16"): _P,
    # elementwise.cc SetAbsOutputMultiplier; SetRsqrtOutputMultiplier: 1.0 / (sqrt(in) * out), the product of floats
    ("ABS", "*"): _S,
    ("RSQRT", "*"): _P,
    # svdf.cc Prepare: floats, which become a double at the end
    ("SVDF", "*"): _S,
    # quantize.cc Prepare, reduce.cc PrepareMeanOrSum and PrepareProd, comparisons.cc ComparisonQuantized (a single scale)
    **{(name, "*"): _D for name in ("QUANTIZE", "MEAN", "SUM", "REDUCE_PROD")},
    **{(name, "*"): _D for name in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")},
}
"""(TFLite operator, element type of its data, "*" for the others) -> precision in TensorFlow Lite's reference kernels."""

TFLM: dict[tuple[str, str], Precision] = {
    # add_n.cc CalculateOpData
    ("ADD_N", "*"): _D,
    **{(name, "*"): _D for name in ("MUL", "DIV", "PRELU", "RELU", "LEAKY_RELU", "ABS", "BATCH_MATMUL", "HARD_SWISH", "RSQRT")},
    # softmax_common.cc
    ("SOFTMAX", "int16"): _D,
}
"""The rows of TFLM that differ from LITERT's, or that LITERT does not have."""


def precision(opcode: str, dtype: str, *, oracle: str) -> Precision:
    """The precision of an operator on data of `dtype` ("per channel": weights with more than one scale).

    KeyError for an operator that computes no multiplier from scales.
    """
    keys = ((opcode, dtype), (opcode, "*"))
    tables = (TFLM, LITERT) if oracle == "tflm" else (LITERT,)
    entry = next((table[key] for table in tables for key in keys if key in table), None)
    if entry is None:
        raise KeyError(f"{opcode} of {dtype}")
    return entry


def quotient(factors: Sequence[float], divisors: Sequence[float], how: Precision) -> float:
    """The product of the factors over the product of the divisors; infinite or NaN as in C arithmetic, never an exception."""
    if how is Precision.DOUBLE:
        return _ratio(float(prod(factors)), float(prod(divisors)))
    with np.errstate(all="ignore"):
        above, below = _product32(factors), _product32(divisors)
        return float(np.float32(above) / np.float32(below)) if how is Precision.SINGLE else _ratio(float(above), float(below))


def _ratio(above: float, below: float) -> float:
    if below:
        return above / below
    with np.errstate(all="ignore"):
        return float(np.float64(above) / np.float64(below))


def real_multiplier(
    opcode: str, dtype: str, factors: Sequence[float], divisors: Sequence[float] = (1.0,), *, oracle: str = "litert"
) -> float:
    """The real number that operator `opcode` of the oracle passes to QuantizeMultiplier."""
    return quotient(factors, divisors, precision(opcode, dtype, oracle=oracle))


def _product32(numbers: Sequence[float]) -> float:
    """From left to right, each product rounded to float32; a single number is returned unchanged."""
    total = numbers[0]
    for number in numbers[1:]:
        total = float(np.float32(total) * np.float32(number))
    return total


# The fixed-point inverse square root of TFLite: used by RSQRT and L2_NORMALIZATION.
#
# Five Newton steps from 1 in Q3.28.  Source: `GetInvSqrtQuantizedMultiplierExp` of `kernels/internal/common.h`.


_HALF_SQRT_2 = 1518500250
"""sqrt(2) / 2 in Q0.31."""


def inverse_sqrt(value: int) -> tuple[int, int]:
    """(multiplier, shift): 1 / sqrt(value) = multiplier * 2^(shift - 31) for value >= 1; 0 counts as 1."""
    if value <= 1:
        return (1 << 31) - 1, 0
    right = 11
    while value >= 1 << 29:
        value //= 4
        right += 1
    pairs = (31 - value.bit_length()) // 2 - 1
    right -= pairs
    value <<= 2 * pairs
    mul, half = saturating_rounding_doubling_high_mul, ((value >> 1) + 1) >> 1  # Q3.28
    x = _int64(1 << 28)
    for _ in range(5):
        cube = saturating_shift_left(mul(mul(x, x), x), 6)
        x = saturating_shift_left(mul((1 << 28) + (1 << 27), x) - mul(half, cube), 3)
    result = int(mul(x, _HALF_SQRT_2))
    if right < 0:
        result, right = result << -right, 0
    return result, -right


def tir_inverse_sqrt(b: IRBuilder, value: Expr) -> tuple[Expr, Expr]:
    """`inverse_sqrt` of an int32 expression >= 0: int32 expressions.  Nothing saturates: x stays below 2 until the last step."""
    mul = tir_saturating_rounding_doubling_high_mul
    value = named(b, "value", value)
    number, right = b.local("number", (1,), "int32"), b.local("right", (1,), "int32", init=11)
    b.store(number, 0, maximum(value, 2))
    with b.if_(number[0] >= 1 << 29):
        b.store(number, 0, number[0] >> 2)
        b.store(right, 0, 12)
    for step in (8, 4, 2, 1):
        with b.if_(number[0] < 1 << (29 - 2 * step)):
            b.store(number, 0, number[0] * (1 << (2 * step)))
            b.store(right, 0, right[0] - step)
    half = b.let("half", ((number[0] >> 1) + 1) >> 1)
    x = b.local("x", (1,), "int32", init=1 << 28)
    with b.for_("newton", 5):
        cube = mul(mul(x[0], x[0]), x[0]) * (1 << 6)
        b.store(x, 0, (mul(x[0], imm((1 << 28) + (1 << 27))) - mul(half, cube)) * (1 << 3))
    b.store(x, 0, mul(x[0], imm(_HALF_SQRT_2)))
    with b.if_(right[0] < 0):
        b.store(x, 0, x[0] << (imm(0) - right[0]))
        b.store(right, 0, 0)
    is_tiny = value <= 1
    multiplier = b.let("multiplier", select(is_tiny, imm(INT32_MAX), x[0]))
    return multiplier, b.let("exponent", select(is_tiny, imm(0), imm(0) - right[0]))


# Sigmoid and tanh of 16-bit fixed-point numbers as gemmlowp computes them, with 15 fractional bits in the result.
#
# Arguments have 15 - integer_bits fractional bits.  `crt/include/aot/fixed16.h` is the C equivalent.


def _as_int16(x: Any) -> Int64:
    return np.asarray(x).astype(np.int16).astype(np.int64)


def sigmoid16(x: Array) -> Array:
    """1 / (1 + e^-x) of int16 with three integer bits, int16."""
    a = x.astype(np.int64)
    size = np.where(a > 0, a, _as_int16(-a))
    value = saturating_shift_left(_newton(exp_on_negative_values(_as_int16(-size), 3, 16), 16), 1, 16)
    return np.where(a == 0, 1 << 14, np.where(a > 0, value, (1 << 15) - 1 - value)).astype(np.int16)


def tanh16(x: Array, integer_bits: int) -> Array:
    """tanh of int16 with 0 to 6 integer bits, int16."""
    a = x.astype(np.int64)
    below = np.where(a < 0, a, -a)
    value = saturating_shift_left(_newton(exp_on_negative_values(below, integer_bits + 1, 16), 16) - (1 << 13), 2, 16)
    return np.where(a == 0, 0, np.where(a < 0, -value, value)).astype(np.int16)


SIGMOID16 = Intrin(
    "aot_sigmoid16",
    ("int32",),
    "int32",
    "aot_sigmoid16({0})",
    lambda x: int(sigmoid16(np.array([x], np.int16))[0]),
    header="aot/fixed16.h",
)
TANH16 = Intrin(
    "aot_tanh16",
    ("int32", "int32"),
    "int32",
    "aot_tanh16({0}, {1})",
    lambda x, bits: int(tanh16(np.array([x], np.int16), bits)[0]),
    header="aot/fixed16.h",
)
"""Functions of int32 expressions within int16; the second argument is the constant number of integer bits."""
