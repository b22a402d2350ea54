"""Element-wise operators on two or more quantised tensors: add, multiply, divide, squared difference."""

from __future__ import annotations

from functools import lru_cache, reduce

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import (
    Int64,
    clamp_array,
    multiply_by_quantized_multiplier,
    named,
    precision,
    quantize_multiplier,
    quotient,
    reciprocal,
    requantize,
    saturating_rounding_doubling_high_mul,
    tir_multiply_by_quantized_multiplier,
    tir_one_over_one_plus_x,
    tir_requantize,
    tir_saturating_rounding_doubling_high_mul,
    wrap_int32,
)
from aot.numerics.linear import rescaling_of_products
from aot.op.common.operator import Index, operator
from aot.op.common.tensors import Clamped, Rescaled, broadcast_at, broadcast_type
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.te.tensor import TensorFn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, equal, imm, maximum, select

# qnn.add: ADD and SUB of TFLite on int8 and int16 with broadcasting (float32 and plain integers: `math/arithmetic.py`).
#
# out = clamp(zp + rescale(rescale_a((a - zp_a) << n) + sign * rescale_b((b - zp_b) << n)), lo, hi), each rescale a
# MultiplyByQuantizedMultiplier with double rounding; n is 20 for int8 and 15 for int16.  Oracles:
# `reference_integer_ops::Add` with the parameters of `add.cc`, `reference_ops::BroadcastQuantSubSlow` with those of
# `sub.cc`.  int16 with `pot_scale_int16` and scales that are powers of two (`Add` and `BroadcastSub16POTSlow`) is the
# same formula with n = 1: (a << 1) * 2^-(1+s) rounds like a / 2^s.
#
# For int8 the loop nest uses `(A*a + B*b + C) >> k` in 32 bits instead if such numbers give the same result for all
# 65,536 pairs: `linear_form` searches for them and keeps only what it has checked on every pair.

CODES = ("int8", "int16")
PAIR = [("a", "int8, int16", "the left operand"), ("b", "as a", "the right operand; shapes broadcast")]
ADD_LEFT_SHIFT = {"int8": 20, "int16": 15}
"""Bits by which the operands are scaled up before they are rescaled."""


@operator("qnn.add", "ADD, SUB; int8, int16, uint8, with broadcasting", PAIR, OpPattern.BROADCAST)
class AddAttrs(Clamped):
    """Zero point, multiplier and shift of each operand and of the result; the clamp [lo, hi]; the result's parameters."""

    input_zp: tuple[int, int]
    multiplier: tuple[int, int]
    shift: tuple[int, int]
    output_multiplier: int
    output_shift: int
    zero_point: int
    lo: int
    hi: int
    quant: QuantParams | None = None
    left_shift: int = ADD_LEFT_SHIFT["int8"]
    sign: int = 1

    def infer_type(self, a: TensorType, b: TensorType) -> Type:
        """Two int8 or int16 tensors whose shapes broadcast -> the same type."""
        return broadcast_type(a, b, name="qnn.add", dtypes=CODES, quant=self.quant)

    def evaluate(self, a: Array, b: Array, *, out_type: TensorType) -> Array:
        total = _rescaled(a, self, 0) + self.sign * _rescaled(b, self, 1)
        scaled = multiply_by_quantized_multiplier(total, self.output_multiplier, self.output_shift)
        return np.clip(scaled + self.zero_point, self.lo, self.hi).astype(out_type.dtype)

    def element(self, b: IRBuilder, i: Index, *tensors: TensorFn, out_type: TensorType) -> Expr:
        form = linear_form(self) if out_type.dtype == "int8" else None
        x, y = (broadcast_at(b, t, i) for t in tensors)
        if form is not None:
            total = cast("int32", x) * form.a_factor + form.bias + cast("int32", y) * form.b_factor
            return cast("int8", clamp(total >> form.shift, self.lo, self.hi))
        left, right = _tir_rescaled(b, x, self, 0), _tir_rescaled(b, y, self, 1)
        total = named(b, "sum", left + right if self.sign > 0 else left - right)
        scaled = tir_multiply_by_quantized_multiplier(b, total, self.output_multiplier, self.output_shift)
        return cast(out_type.dtype, clamp(scaled + self.zero_point, self.lo, self.hi))


def _rescaled(values: Array, attrs: AddAttrs, side: int) -> Int64:
    """One operand in the common scale, int64."""
    shifted = (values.astype(np.int64) - attrs.input_zp[side]) << attrs.left_shift
    return multiply_by_quantized_multiplier(shifted, attrs.multiplier[side], attrs.shift[side])


@dataclass(frozen=True, slots=True)
class LinearForm:
    """out = clamp((a_factor*a + b_factor*b + bias) >> shift, lo, hi); no intermediate leaves int32."""

    a_factor: int
    b_factor: int
    bias: int
    shift: int


_FREE = 1 << 32
"""Result for a pair that bounds no bias from one side: so far from all results that it is never the nearest."""

_FACTOR_STEPS = (0, 1, -1, 2, -2)


@lru_cache(maxsize=256)
def linear_form(attrs: AddAttrs) -> LinearForm | None:
    """The finest 32-bit coefficients that give ADD's result for all pairs of int8; None if none are found."""
    codes = np.arange(-128, 128, dtype=np.int64)
    type_ = TensorType((256, 256), "int8")
    expected = attrs.evaluate(codes[:, None], codes[None, :], out_type=type_).astype(np.int64)
    if attrs.lo == attrs.hi:
        return LinearForm(0, 0, 0, 0)
    output = attrs.output_multiplier * 2.0 ** (attrs.output_shift - 31)
    reals = [attrs.multiplier[i] * 2.0 ** (attrs.shift[i] - 31 + attrs.left_shift) * output for i in range(2)]
    reals[1] *= attrs.sign
    fit = _Fit(expected, attrs.lo, attrs.hi)
    for shift in range(22, 16, -1):
        factors = [round(r * 2.0**shift) for r in reals]
        if 256 * max(map(abs, factors)) >= 1 << 31:
            continue
        for da in _FACTOR_STEPS:
            for db in _FACTOR_STEPS:
                form = fit.form((factors[0] + da, factors[1] + db), shift)
                if form is not None:
                    return form
    return None


class _Fit:
    """Biases for one ADD: each pair of values allows an interval of biases.

    Pairs that ruled out a choice of factors usually rule out the next one too, so they are checked first.
    """

    def __init__(self, expected: Int64, lo: int, hi: int) -> None:
        self._expected, self._codes = expected, np.arange(-128, 128, dtype=np.int64)
        self._above, self._below = np.where(expected > lo, expected, -_FREE), np.where(expected < hi, expected, _FREE)
        self._bounded = bool((expected > lo).any()), bool((expected < hi).any())
        self._spoilers: tuple[list[int], list[int]] = [], []

    def form(self, factors: tuple[int, int], shift: int) -> LinearForm | None:
        """The bias that is right for every pair with these factors, if there is one."""
        if self._is_spoilt(factors, shift):
            return None
        sides = [f * self._codes for f in factors]
        sums = np.add.outer(*sides)
        least, most = (self._above << shift) - sums, (self._below << shift) - sums
        lowest = int(least.max() if self._bounded[0] else ((self._expected << shift) - sums).min())
        highest = int(most.min()) + (1 << shift) - 1 if self._bounded[1] else lowest
        if lowest > highest:
            if self._bounded[0]:
                self._spoilers[0].append(int(least.argmax()))
                self._spoilers[1].append(int(most.argmin()))
            return None
        bias = (lowest + highest) // 2
        ends = [sum(int(end(s)) for s in sides) for end in (np.min, np.max)]
        largest = max(*(abs(end + bias) for end in ends), abs(bias) + 128 * max(map(abs, factors)))
        if largest >= 1 << 31:
            return None
        return LinearForm(*factors, bias, shift)

    def _is_spoilt(self, factors: tuple[int, int], shift: int) -> bool:
        """Whether pairs found earlier rule out every bias."""
        lows, highs = ([self._low(pair, factors, shift) for pair in pairs] for pairs in self._spoilers)
        return bool(lows and highs) and max(lows) > min(highs) + (1 << shift) - 1

    def _low(self, pair: int, factors: tuple[int, int], shift: int) -> int:
        a, b = divmod(pair, 256)
        return (int(self._expected[a, b]) << shift) - factors[0] * (a - 128) - factors[1] * (b - 128)


def _tir_rescaled(b: IRBuilder, value: Expr, attrs: AddAttrs, side: int) -> Expr:
    centred = cast("int32", value) - attrs.input_zp[side]
    multiplier, shift = attrs.multiplier[side], attrs.shift[side]
    if multiplier == 1 << 30 and -attrs.left_shift < shift <= 0:
        return centred * (1 << (attrs.left_shift - 1 + shift))  # a power of two: nothing to round
    return tir_multiply_by_quantized_multiplier(b, centred * (1 << attrs.left_shift), multiplier, shift)


def add_attrs(
    dtype: str,
    scales: tuple[float, ...],
    zero_points: tuple[int, ...],
    *,
    limits: tuple[int, int],
    sign: int = 1,
    quant: QuantParams | None = None,
) -> AddAttrs | None:
    """Attributes for scales and zero points of a, b and the result; None if the result's scale is too small for the operands'."""
    (scale_a, scale_b, scale), (zp_a, zp_b, zp) = scales, zero_points
    left_shift = ADD_LEFT_SHIFT[dtype]
    twice_max = 2.0 * max(scale_a, scale_b)
    how = precision("ADD" if sign > 0 else "SUB", dtype, oracle="litert")  # TFLM's is the same
    output_real = quotient((twice_max,), (2.0**left_shift, scale), how)
    if output_real >= 1:
        return None
    (m_a, s_a), (m_b, s_b) = (quantize_multiplier(quotient((x,), (twice_max,), how)) for x in (scale_a, scale_b))
    m, s = quantize_multiplier(output_real)
    return AddAttrs((zp_a, zp_b), (m_a, m_b), (s_a, s_b), m, s, zp, *limits, quant, left_shift, sign)


# ADD_N: the sum of several tensors of one shape: a chain of `add` for numbers, qnn.add_n for int8 values.
#
# Oracle: `reference_ops::AddN`, for numbers (float32, int32) in the order of the operands.  For quantised values TFLM's, as
# TensorFlow Lite has none: out = clamp(zp + rescale(sum << 19)) in 32 bits that wrap, with the sum starting at the
# quantised value 0, not at the zero point, as in TFLM: x = q - zp_in, sum = -zp_in + x0 + x1 + ...

SUM_SHIFT = 19
"""Bits by which a sum of quantised values is scaled up before it is rescaled: 20, minus one for the operands' factor 1/2."""


@operator("qnn.add_n", "ADD_N; int8", [("*tensors", "int8", "two or more operands of one shape")], OpPattern.ELEMWISE)
class AddNAttrs:
    """The operands' zero point; multiplier, shift and zero point of the result."""

    input_zp: int
    multiplier: int
    shift: int
    zero_point: int
    quant: QuantParams | None = None

    def infer_type(self, *types: TensorType) -> Type:
        """int8 tensors of one shape -> int8."""
        first, *others = types
        if first.dtype != "int8" or any((t.dtype, t.shape) != (first.dtype, first.shape) for t in others):
            raise TypeRuleError(f"add_n needs int8 tensors of one shape, not {', '.join(map(str, types))}")
        return first.with_dtype("int8", self.quant)

    def evaluate(self, *tensors: Array, out_type: TensorType) -> Array:
        total = reduce(np.add, [t.astype(np.int64) for t in tensors])
        return sum_codes(total - self.input_zp * (len(tensors) + 1), self)

    def element(self, b: IRBuilder, i: Index, *tensors: TensorFn, out_type: TensorType) -> Expr:
        codes = reduce(lambda x, y: x + y, [cast("int32", t.at(b, i)) for t in tensors])
        return tir_sum_code(b, codes - self.input_zp * (len(tensors) + 1), self)


def sum_codes(total: Int64, attrs: AddNAttrs) -> Array:
    """The int8 values of sums of centred quantised values."""
    scaled = wrap_int32(total << SUM_SHIFT)
    return requantize(scaled, attrs.multiplier, attrs.shift, zero_point=attrs.zero_point, lo=-128, hi=127).astype(np.int8)


def tir_sum_code(b: IRBuilder, total: Expr, attrs: AddNAttrs) -> Expr:
    """The int8 value of an int32 sum of centred quantised values."""
    scaled = b.let("scaled", cast("int32", cast("uint32", total) << SUM_SHIFT))
    multiplier, shift, zp = attrs.multiplier, attrs.shift, attrs.zero_point
    return cast("int8", tir_requantize(b, scaled, multiplier=multiplier, shift=shift, zero_point=zp, lo=-128, hi=127))


# qnn.multiply: MUL of TFLite on int8 and int16 with broadcasting (float32 and plain integers: `math/arithmetic.py`).
#
# out = clamp(zp + rescale((a - zp_a) * (b - zp_b)), lo, hi) with double rounding.
# For int8 the loop nest uses the 32-bit form of `aot.numerics.linear` if there is one.
# Oracle: `reference_integer_ops::Mul` with the parameters of `mul.cc`, which multiplies the scales in float32 (TFLM in double).


@operator("qnn.multiply", "MUL; int8, int16, uint8, with broadcasting", PAIR, OpPattern.BROADCAST)
class MultiplyAttrs(Rescaled):
    """Zero points of the operands; multiplier, shift and zero point of the result; the clamp [lo, hi]."""

    input_zp: tuple[int, int]
    multiplier: int
    shift: int
    zero_point: int
    lo: int
    hi: int
    quant: QuantParams | None = None

    def infer_type(self, a: TensorType, b: TensorType) -> Type:
        """Two int8 or int16 tensors whose shapes broadcast -> the same type."""
        return broadcast_type(a, b, name="qnn.multiply", dtypes=CODES, quant=self.quant)

    def evaluate(self, a: Array, b: Array, *, out_type: TensorType) -> Array:
        product = (a.astype(np.int64) - self.input_zp[0]) * (b.astype(np.int64) - self.input_zp[1])
        return self.rescaled(product).astype(out_type.dtype)

    def element(self, b: IRBuilder, i: Index, *tensors: TensorFn, out_type: TensorType) -> Expr:
        form = rescaling_of_products(self.input_zp, self.rescaling) if out_type.dtype == "int8" else None
        x, y = (cast("int32", broadcast_at(b, t, i)) - zp for t, zp in zip(tensors, self.input_zp, strict=True))
        value = self.tir_rescaled(b, named(b, "product", x * y)) if form is None else form.emit(b, x * y)
        return cast(out_type.dtype, value)


# qnn.divide: DIV of TFLite on int8, int16 and legacy uint8 with broadcasting (plain numbers: `math/arithmetic.py`).
#
# out = clamp(zp + round((a - zp_a) * 1/(b - zp_b) * multiplier)) with gemmlowp's reciprocal, all in 32 bits.  Oracle:
# `DivElementwise` of `reference/div.h`.  Small quotients need right shifts by more than 31, undefined in C; on the reference's
# machines they shift by the number modulo 32 and round with a mask of all bits.  This operator reproduces that, although such
# results are far from the quotient, and the same for the negative shifts of very large multipliers.  A division by zero, an error
# in the reference, gives the zero point, or, with TFLM as the oracle, the result of its arithmetic: a product with
# `INVERSE_OF_ZERO`.

BITS = {"int8": 8, "int16": 16}
"""Bits of a centred value."""
INVERSE_OF_ZERO = -1515870788
"""Result of gemmlowp's three Newton steps from 0, in 32 bits that wrap; treated as the reciprocal of half a bit."""


@operator("qnn.divide", "DIV; int8, int16, uint8, with broadcasting", PAIR, OpPattern.BROADCAST)
class DivideAttrs(MultiplyAttrs):
    """As MultiplyAttrs; `inverts_zero`: whether a divisor of zero counts as `INVERSE_OF_ZERO`."""

    inverts_zero: bool = False

    def infer_type(self, a: TensorType, b: TensorType) -> Type:
        """Two int8 or int16 tensors whose shapes broadcast -> the same type."""
        return broadcast_type(a, b, name="qnn.divide", dtypes=CODES, quant=self.quant)

    def evaluate(self, a: Array, b: Array, *, out_type: TensorType) -> Array:
        x, y = (v.astype(np.int64) - zp for v, zp in zip((a, b), self.input_zp, strict=True))
        x, y = np.where(y < 0, -x, x), np.abs(y)
        inverse, over_unit = reciprocal(np.maximum(y, 1), 31)
        if self.inverts_zero:
            inverse, over_unit = np.where(y == 0, INVERSE_OF_ZERO, inverse), np.where(y == 0, -1, over_unit)
        headroom = _sign_bits(x)
        quotient = saturating_rounding_doubling_high_mul(x << headroom, inverse)
        scaled = saturating_rounding_doubling_high_mul(quotient, self.multiplier)
        result = _shifted_right(scaled, headroom + over_unit - self.shift)
        result = result if self.inverts_zero else np.where(y == 0, 0, result)
        return clamp_array(result + self.zero_point, self.lo, self.hi, out_type.dtype)

    def element(self, b: IRBuilder, i: Index, *tensors: TensorFn, out_type: TensorType) -> Expr:
        x, y = (
            named(b, name, cast("int32", broadcast_at(b, t, i)) - zp)
            for name, t, zp in zip("xy", tensors, self.input_zp, strict=True)
        )
        value = _tir_quotient(b, x, y, attrs=self, bits=BITS[out_type.dtype])
        return cast(out_type.dtype, clamp(value + self.zero_point, self.lo, self.hi))

    def domain(self, _: TensorType, divisor: TensorType) -> dict[int, tuple[float, float]]:
        """The reference aborts at a divisor of 0."""
        (low, high), zp = int_range(divisor.dtype), self.input_zp[1]
        return {1: (zp + 1, high) if zp < high else (low, zp - 1)}


def _sign_bits(x: Int64) -> Int64:
    """CountLeadingSignBits of int32 values: copies of the sign bit after the sign bit."""
    return 31 - np.frexp(np.where(x < 0, ~x, x).astype(np.float64))[1].astype(np.int64)


def _shifted_right(x: Int64, exponent: Int64) -> Int64:
    """RoundingDivideByPOT as the reference's machine computes it, for exponents in [0, 128)."""
    mask = np.where(exponent & 32, -1, (np.int64(1) << (exponent & 31)) - 1)
    return (x >> (exponent & 31)) + ((x & mask) > (mask >> 1) + (x < 0))


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
    # the copies of the sign bit are the leading zeros of ~x or x, without the sign bit itself
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


# qnn.squared_difference: SQUARED_DIFFERENCE of TFLite on int8 and int16 with broadcasting (plain numbers: `math/arithmetic.py`).
#
# d = rescale_a((a - zp_a) << n) - rescale_b((b - zp_b) << n); out = clamp(zp + rescale(d * d)), double rounding; n is 7 for
# int8 and 0 for int16.  Oracle: `SquaredDifference` of `squared_difference.cc`, TFLM's for int16, which TensorFlow Lite
# does not have.

DIFFERENCE_LEFT_SHIFT = {"int8": 7, "int16": 0}
"""Bits by which the operands are scaled up before they are rescaled."""


@operator("qnn.squared_difference", "SQUARED_DIFFERENCE; int8, int16, with broadcasting", PAIR, OpPattern.BROADCAST)
class SquaredDifferenceAttrs:
    """Zero point, multiplier and shift of each operand and of the result."""

    input_zp: tuple[int, int]
    multiplier: tuple[int, int]
    shift: tuple[int, int]
    output_multiplier: int
    output_shift: int
    zero_point: int
    quant: QuantParams | None = None

    def infer_type(self, a: TensorType, b: TensorType) -> Type:
        """Two int8 or int16 tensors whose shapes broadcast -> the same type."""
        return broadcast_type(a, b, name="qnn.squared_difference", dtypes=CODES, quant=self.quant)

    def evaluate(self, a: Array, b: Array, *, out_type: TensorType) -> Array:
        sides = []
        for i, x in enumerate((a, b)):
            shifted = (x.astype(np.int64) - self.input_zp[i]) << DIFFERENCE_LEFT_SHIFT[out_type.dtype]
            sides.append(multiply_by_quantized_multiplier(shifted, self.multiplier[i], self.shift[i]))
        return self._result(out_type.dtype).rescaled((sides[0] - sides[1]) ** 2).astype(out_type.dtype)

    def element(self, b: IRBuilder, i: Index, *tensors: TensorFn, out_type: TensorType) -> Expr:
        factor = 1 << DIFFERENCE_LEFT_SHIFT[out_type.dtype]
        sides = []
        for k, x in enumerate(tensors):
            shifted = named(b, "x", (cast("int32", broadcast_at(b, x, i)) - self.input_zp[k]) * factor)
            sides.append(tir_multiply_by_quantized_multiplier(b, shifted, self.multiplier[k], self.shift[k]))
        difference = named(b, "difference", sides[0] - sides[1])
        square = named(b, "square", difference * difference)
        return cast(out_type.dtype, self._result(out_type.dtype).tir_rescaled(b, square))

    def _result(self, dtype: str) -> MultiplyAttrs:
        """How the square is rescaled."""
        return MultiplyAttrs((0, 0), self.output_multiplier, self.output_shift, self.zero_point, *int_range(dtype))
