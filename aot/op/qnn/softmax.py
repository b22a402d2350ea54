"""Normalisation of rows: softmax, log_softmax, l2_normalization of quantised values; local response normalisation."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np

from aot.ir.op import Array, TypeRuleError
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics import fixed_point
from aot.numerics.elementary import POW_DOUBLE, apply, pow_double
from aot.op.common.operator import Index, operator
from aot.op.common.tensors import require
from aot.op.qnn.lut import look_up, populate
from aot.support.dtype import bits, int_range
from aot.te.tensor import TensorFn, reduce_axis
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, maximum, minimum

# qnn.softmax: SOFTMAX of TFLite on int8 over the last axis, in fixed point; the result is int8 or int16.
#
# exp of the scaled difference to the row's maximum (gemmlowp, Q5.26 to Q0.31; 0 below `diff_min`), their sum with 12 integer
# bits, and one reciprocal per row by Newton's method.  Oracle: `reference_ops::Softmax`.  (With an int8 result, a sum of 512 or
# more, which needs that many equal largest elements in a row, would shift by more than 31 bits: the reference aborts, here the
# result is 0.)
#
# There is no te rule: the row's maximum and sum must be computed once per row.  `aot.topi.generic.softmax` lowers it.

ACCUMULATION_INTEGER_BITS = 12


@operator("qnn.softmax", "SOFTMAX; int8 to int8 or int16, last axis", [("data", "int8 [..., C]", "the operand")])
class SoftmaxAttrs:
    """multiplier * 2^(left_shift - 31) scales a difference of quantised values to Q5.26; differences below `diff_min` count as 0.

    `out_dtype`: the type of the result.
    """

    multiplier: int
    left_shift: int
    diff_min: int
    out_dtype: str = "int8"

    @property
    def zero_point(self) -> int:
        """The zero point of the result."""
        return int_range(self.out_dtype)[0]

    def infer_type(self, data: TensorType) -> Type:
        """int8 [..., C] -> the same shape, int8 with scale 1/256 and zero point -128, or int16 with 1/65536 and -32768."""
        require(data, "softmax", "int8", least_rank=1)
        return data.with_dtype(self.out_dtype, QuantParams((2.0 ** -bits(self.out_dtype),), (self.zero_point,)))

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        wide = data.astype(np.int64)
        exps = exp_table(self)[wide.max(axis=-1, keepdims=True) - wide]
        total = fixed_point.rounding_divide_by_pot(exps, ACCUMULATION_INTEGER_BITS).sum(axis=-1, keepdims=True)
        scale, bits_over_unit = fixed_point.reciprocal(total, ACCUMULATION_INTEGER_BITS)
        right = bits_over_unit + 31 - bits(self.out_dtype)
        result = fixed_point.rounding_divide_by_pot(fixed_point.saturating_rounding_doubling_high_mul(scale, exps), right)
        return fixed_point.clamp_array(result + self.zero_point, *int_range(self.out_dtype), self.out_dtype)


def exp_table(attrs: SoftmaxAttrs) -> fixed_point.Int64:
    """exp of minus 0, 1, ... 255 values, Q0.31; 0 below diff_min."""
    diff = -np.arange(256, dtype=np.int64)
    counts = diff >= attrs.diff_min
    scaled = fixed_point.saturating_rounding_doubling_high_mul(np.where(counts, diff, 0) << attrs.left_shift, attrs.multiplier)
    return np.where(counts, fixed_point.exp_on_negative_values(scaled), 0)


# qnn.softmax16: SOFTMAX of TFLite on int16 over the last axis, by two tables with interpolation.
#
# The difference to the row's maximum is scaled so that 65535 steps are 10, its exp looked up (Q0.15), the sum normalised and
# its reciprocal looked up; the products are rounded to Q0.15.  Oracle: `reference_ops::SoftmaxInt16` with the tables of
# `activations.cc`.  TFLM computes the tables in single precision and the scale in double, TensorFlow Lite the other way round.
#
# There is no te rule: the row's maximum and sum must be computed once per row.  `aot.topi.generic.softmax` lowers it.

RANGE = 65535
KINDS: dict[str, type[np.floating[Any]]] = {"float32": np.float32, "float64": np.float64}


@operator("qnn.softmax16", "SOFTMAX; int16, last axis", [("data", "int16 [..., C]", "the operand")])
class Softmax16Attrs:
    """multiplier * 2^(shift - 31) scales a difference to steps of 10 / 65535; the type in which tables are computed."""

    multiplier: int
    shift: int
    tables: str = "float64"

    def infer_type(self, data: TensorType) -> Type:
        """int16 [..., C] -> int16 of the same shape with scale 2^-15."""
        require(data, "softmax16", "int16", least_rank=1)
        return data.with_dtype("int16", QuantParams((2.0**-15,), (0,)))

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        wide = data.astype(np.int64)
        difference = wide - wide.max(axis=-1, keepdims=True)
        scaled = fixed_point.multiply_by_quantized_multiplier(difference, self.multiplier, self.shift)
        exps = look_up(np.clip(scaled + 32767, -32768, 32767), np.asarray(exp_table16(self.tables))).astype(np.int64)
        total = exps.sum(axis=-1, keepdims=True)
        zeros = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)  # exact: an int32 fits a double
        mantissa = ((total << (zeros - 1)) + (1 << 13)) >> 14
        centred = np.clip(mantissa - ((1 << 15) + (1 << 16)), -32768, 32767)
        scale = look_up(centred, np.asarray(reciprocal_table(self.tables))).astype(np.int64)
        right = 31 - zeros
        result = (exps * scale + (np.int64(1) << (right - 1))) >> right
        return np.asarray(np.clip(result, 0, 32767)).astype(np.int16)


@cache
def exp_table16(kind: str) -> tuple[int, ...]:
    """exp over [-10, 0], Q0.15, computed in `kind`."""
    function = np.exp if kind == "float64" else partial(apply, "exp")
    return populate(function, (10.0 / RANGE, 32767), (2.0 / RANGE, 0), KINDS[kind])


@cache
def reciprocal_table(kind: str) -> tuple[int, ...]:
    """1 / (1 + x) over [0, 1], Q0.15, computed in `kind`."""
    one = KINDS[kind](1)
    return populate(lambda x: one / (one + x), (1.0 / RANGE, -32768), (2.0 / RANGE, 0), KINDS[kind])


# qnn.log_softmax: LOG_SOFTMAX of TFLite on int8 over the last axis, in fixed point; on float32 it is reductions.
#
# out = clamp(127 + round(16 * (d - log(sum of e^d)))) with d the scaled difference to the row's maximum (gemmlowp, Q5.26).  The
# sum has 12 integer bits, its logarithm is a quotient of polynomials about the fourth root of 1/2.  Differences at or below a
# limit that the logarithm sets give -128.  Oracle: `reference_integer_ops::LogSoftmax` with
# `log_x_for_x_greater_than_or_equal_to_1` of `kernels/internal/common.h`; legacy uint8 is shifted to int8.
#
# There is no te rule: the row's maximum and sum must be computed once per row.  `aot.topi.generic.softmax` lowers it.

LOG_ACCUMULATION_BITS = 12
INPUT_INTEGER_BITS = 5
FRACTION_BITS = 22
"""Bits of a result in Q5.26 that are rounded away: one step is 1/16."""

OUTPUT_SCALE = 1 / 16
OUTPUT_ZERO_POINT = 127


LOG_INTEGER_BITS = INPUT_INTEGER_BITS + 1
"""Integer bits of the logarithm before its last step."""

LOG_2, SQRT_HALF, SQRT_SQRT_HALF, QUARTER = 1488522236, 1518500250, 1805811301, 1 << (29 - LOG_INTEGER_BITS)
"""Q0.31, but 1/4 with LOG_INTEGER_BITS."""

ALPHA_N, ALPHA_D, ALPHA_I, ALPHA_F = 117049297, 127690142, 1057819769, 638450708
"""Q0.31, with r = the fourth root of 2: 11/240 * r, 1/20 * r, 2/r - r, 1/4 * r."""


@operator("qnn.log_softmax", "LOG_SOFTMAX; int8, last axis", [("data", "int8 [..., C]", "the operand")])
class LogSoftmaxAttrs:
    """multiplier * 2^(left_shift - 31) scales a difference of values to Q5.26, reverse_multiplier * 2^(reverse_shift - 31)
    scales it back; differences below `diff_min` are ignored.
    """

    multiplier: int
    left_shift: int
    diff_min: int
    reverse_multiplier: int
    reverse_shift: int

    def infer_type(self, data: TensorType) -> Type:
        """int8 [..., C] -> int8 of the same shape with scale 1/16 and zero point 127."""
        require(data, "log_softmax", "int8", least_rank=1)
        return data.with_dtype("int8", QuantParams((OUTPUT_SCALE,), (OUTPUT_ZERO_POINT,)))

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        wide = data.astype(np.int64)
        below = wide.max(axis=-1, keepdims=True) - wide
        logs = log(log_exp_table(self)[below].sum(axis=-1, keepdims=True))
        limit = fixed_point.multiply_by_quantized_multiplier(
            logs + fixed_point.INT32_MIN, self.reverse_multiplier, self.reverse_shift
        )
        codes = fixed_point.rounding_divide_by_pot(scaled_differences(self)[below] - logs, FRACTION_BITS) + OUTPUT_ZERO_POINT
        return np.where(-below > np.maximum(limit, self.diff_min - 1), np.clip(codes, -128, 127), -128).astype(np.int8)


def scaled_differences(attrs: LogSoftmaxAttrs) -> fixed_point.Int64:
    """Minus 0, 1, ... 255 values in Q5.26; those below diff_min as diff_min."""
    diff = np.maximum(-np.arange(256, dtype=np.int64), attrs.diff_min)
    return fixed_point.saturating_rounding_doubling_high_mul(diff << attrs.left_shift, attrs.multiplier)


def log_exp_table(attrs: LogSoftmaxAttrs) -> fixed_point.Int64:
    """exp of minus 0, 1, ... 255 values, Q12.19; 0 below diff_min."""
    exps = fixed_point.rounding_divide_by_pot(
        fixed_point.exp_on_negative_values(scaled_differences(attrs)), LOG_ACCUMULATION_BITS
    )
    return np.where(-np.arange(256) >= attrs.diff_min, exps, 0)


def log(x: Any) -> fixed_point.Int64:
    """log_x_for_x_greater_than_or_equal_to_1: natural logarithm of x >= 1 in Q12.19, in Q5.26.

    x = z * 2^k with z in [1/2, 1) is written as r * 2^(k'), r in [sqrt(1/2), 1), where k' has a fraction of 1/4; q is twice r's
    distance from the fourth root of 1/2, and log r = log(that root) + q * polynomial(q) / polynomial(q).
    """
    mul = fixed_point.saturating_rounding_doubling_high_mul
    v = np.asarray(x, np.int64)
    zeros, half_zeros = _leading_zeros(v), _leading_zeros(mul(v, SQRT_HALF)) - 1
    r = np.minimum(mul(v << (zeros - 1), SQRT_HALF) << 1, np.minimum(v << half_zeros, fixed_point.INT32_MAX))
    unit = 1 << (31 - LOG_INTEGER_BITS)
    above = (LOG_ACCUMULATION_BITS - zeros) * unit + QUARTER
    power = np.maximum(above, (LOG_ACCUMULATION_BITS - half_zeros) * unit - QUARTER)
    p = (r + SQRT_SQRT_HALF + 1) >> 1
    q = 2 * (r - SQRT_SQRT_HALF)
    square = mul(q, q)
    numerator = mul(q, r) + mul(mul(q, square), ALPHA_N)
    denominator = mul(p, ALPHA_I + q + mul(ALPHA_D, square)) + mul(ALPHA_F, q)
    quotient = mul(fixed_point.rounding_divide_by_pot(numerator, LOG_INTEGER_BITS), fixed_point.one_over_one_plus_x(denominator))
    return (mul(power, LOG_2) + quotient) << (LOG_INTEGER_BITS - INPUT_INTEGER_BITS)


def _leading_zeros(x: fixed_point.Int64) -> fixed_point.Int64:
    """Leading zeros of positive int32 values."""
    return 32 - np.frexp(x.astype(np.float64))[1].astype(np.int64)  # exact: an int32 fits a double


# qnn.l2_normalize: L2_NORMALIZATION of TFLite on int8 over the last axis, in fixed point; on float32 it is reductions.
#
# out = clamp(round(128 * (x - zp) / sqrt(sum of (x - zp)^2))) with the inverse root in 31 bits by Newton's method; a row of zero
# points stays zero.  Oracles: `reference_integer_ops::L2Normalization`; for legacy uint8 `reference_ops::L2Normalization`, which
# multiplies by 128 before the rounding, whereas int8 rounds first.
#
# There is no te rule: the row's sum must be computed once per row.  `aot.topi.generic.softmax` lowers it.

OUTPUT_BITS = 7
"""The result has scale 2^-7 and zero point 0."""


@operator("qnn.l2_normalize", "L2_NORMALIZATION; int8, last axis", [("data", "int8 [..., C]", "the operand")])
class L2NormalizeAttrs:
    """The zero point of the data (their scale does not matter), and by how many of the result's 7 bits their values are shifted
    left before the multiplication: 0 or, for legacy uint8, all."""

    input_zp: int
    left_shift: int = 0

    def infer_type(self, data: TensorType) -> Type:
        """int8 [..., C] -> int8 of the same shape with scale 1/128 and zero point 0."""
        require(data, "l2_normalize", "int8", least_rank=1)
        return data.with_dtype("int8", QuantParams((2.0**-OUTPUT_BITS,), (0,)))

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        wide = data.astype(np.int64) - self.input_zp
        sums, rows = np.unique((wide * wide).sum(axis=-1, keepdims=True), return_inverse=True)
        multiplier, shift = np.array([fixed_point.inverse_sqrt(int(s)) for s in sums], np.int64).reshape(-1, 2).T
        rows = rows.reshape(*wide.shape[:-1], 1)
        exponent = shift[rows] + (OUTPUT_BITS - self.left_shift)
        scaled = fixed_point.multiply_by_quantized_multiplier(wide << self.left_shift, multiplier[rows], exponent)
        return fixed_point.clamp_array(scaled, -128, 127, "int8")


# nn.lrn: LOCAL_RESPONSE_NORMALIZATION of TFLite: each number times a power of the sum of squares of neighbouring channels.
#
# out[c] = x[c] * (bias + alpha * sum of x[k]^2) ^ -beta over k from c - radius to c + radius - 1, the sum in float32,
# the power in double precision.  Oracle: `reference_ops::LocalResponseNormalization`.
@operator("nn.lrn", "LOCAL_RESPONSE_NORMALIZATION; float32", [("data", "float32 [..., C]", "channels last")])
class LrnAttrs:
    """Channels on either side, and the numbers of the formula."""

    radius: int
    bias: float
    alpha: float
    beta: float

    def infer_type(self, data: TensorType) -> Type:
        """float32 [..., C] -> float32."""
        if data.dtype != "float32" or not data.shape or self.radius < 0:
            raise TypeRuleError(f"lrn of {data} by {self} is not valid")
        return data

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        depth = data.shape[-1]
        sums = np.zeros(data.shape, np.float32)
        with np.errstate(all="ignore"):
            squares = data * data
            for c in range(depth):
                for k in range(max(0, c - self.radius), min(depth, c + self.radius)):
                    sums[..., c] += squares[..., k]
            base = self.bias + self.alpha * sums.astype(np.float64)
            powers = np.array([pow_double(v, -self.beta) for v in base.ravel().tolist()]).reshape(data.shape)
            return np.asarray(data * powers.astype(np.float32), np.float32)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        bias, alpha, power = (imm(v, "float64") for v in (self.bias, self.alpha, -self.beta))
        c = i[-1]
        axis = reduce_axis(minimum(c + self.radius, data.shape[-1]), start=maximum(c - self.radius, 0), name="k")

        def square(k: Expr) -> Expr:
            value = b.let("value", data.at(b, (*i[:-1], k)))
            return value * value

        total = te_sum(b, [axis], square, init=imm(0.0, "float32"), dtype="float32")
        return data.at(b, i) * cast("float32", POW_DOUBLE(bias + alpha * cast("float64", total), power))
