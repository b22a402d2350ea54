"""qnn.log_softmax: LOG_SOFTMAX of TFLite on int8 over the last axis, in fixed point; on float32 see `row_norm`.

out = clamp(127 + round(16 * (d - log(sum of e^d)))) with d the scaled difference to the row's maximum (gemmlowp, Q5.26).  The
sum has 12 integer bits, its logarithm is a quotient of polynomials about the fourth root of 1/2.  Differences at or below a limit
that the logarithm sets give -128.  Oracle: `reference_integer_ops::LogSoftmax` with `log_x_for_x_greater_than_or_equal_to_1`
of `kernels/internal/common.h`; legacy uint8 is shifted to int8.

There is no te rule: the row's maximum and sum must be computed once a row.  `aot.topi.generic.normalization` lowers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import (
    INT32_MAX,
    INT32_MIN,
    Int64,
    exp_on_negative_values,
    multiply_by_quantized_multiplier,
    one_over_one_plus_x,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)
from aot.support.dataclass import dataclass

ACCUMULATION_INTEGER_BITS = 12
INPUT_INTEGER_BITS = 5
FRACTION_BITS = 22
"""Of a result in Q5.26 that are rounded away: one code is 1/16."""

OUTPUT_SCALE = 1 / 16
OUTPUT_ZERO_POINT = 127


LOG_INTEGER_BITS = INPUT_INTEGER_BITS + 1
"""Of the logarithm before its last step."""

LOG_2, SQRT_HALF, SQRT_SQRT_HALF, QUARTER = 1488522236, 1518500250, 1805811301, 1 << (29 - LOG_INTEGER_BITS)
"""Q0.31, but 1/4 with LOG_INTEGER_BITS."""

ALPHA_N, ALPHA_D, ALPHA_I, ALPHA_F = 117049297, 127690142, 1057819769, 638450708
"""Q0.31, with r = the fourth root of 2: 11/240 * r, 1/20 * r, 2/r - r, 1/4 * r."""


@dataclass(frozen=True, slots=True)
class LogSoftmaxAttrs:
    """multiplier * 2^(left_shift - 31) takes a difference of values to Q5.26, reverse_multiplier * 2^(reverse_shift - 31)
    takes it back; differences below `diff_min` do not count.
    """

    multiplier: int
    left_shift: int
    diff_min: int
    reverse_multiplier: int
    reverse_shift: int


def infer_type(types: Sequence[Type], _attrs: LogSoftmaxAttrs) -> Type:
    """int8 [..., C] -> int8 of the same shape with scale 1/16 and zero point 127."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "int8" or not data.shape:
        raise TypeRuleError(f"log_softmax takes an int8 tensor, not {data}")
    return data.with_dtype("int8", QuantParams((OUTPUT_SCALE,), (OUTPUT_ZERO_POINT,)))


def scaled_differences(attrs: LogSoftmaxAttrs) -> Int64:
    """Minus 0, 1, ... 255 values in Q5.26; those below diff_min as diff_min."""
    diff = np.maximum(-np.arange(256, dtype=np.int64), attrs.diff_min)
    return saturating_rounding_doubling_high_mul(diff << attrs.left_shift, attrs.multiplier)


def exp_table(attrs: LogSoftmaxAttrs) -> Int64:
    """exp of minus 0, 1, ... 255 values, Q12.19; 0 below diff_min."""
    exps = rounding_divide_by_pot(exp_on_negative_values(scaled_differences(attrs)), ACCUMULATION_INTEGER_BITS)
    return np.where(-np.arange(256) >= attrs.diff_min, exps, 0)


def log(x: Any) -> Int64:
    """log_x_for_x_greater_than_or_equal_to_1: natural logarithm of x >= 1 in Q12.19, in Q5.26.

    x = z * 2^k with z in [1/2, 1) is written as r * 2^(k'), r in [sqrt(1/2), 1), where k' has a fraction of 1/4; q is twice r's
    distance from the fourth root of 1/2, and log r = log(that root) + q * polynomial(q) / polynomial(q).
    """
    mul = saturating_rounding_doubling_high_mul
    v = np.asarray(x, np.int64)
    zeros, half_zeros = _leading_zeros(v), _leading_zeros(mul(v, SQRT_HALF)) - 1
    r = np.minimum(mul(v << (zeros - 1), SQRT_HALF) << 1, np.minimum(v << half_zeros, INT32_MAX))
    unit = 1 << (31 - LOG_INTEGER_BITS)
    above = (ACCUMULATION_INTEGER_BITS - zeros) * unit + QUARTER
    power = np.maximum(above, (ACCUMULATION_INTEGER_BITS - half_zeros) * unit - QUARTER)
    p = (r + SQRT_SQRT_HALF + 1) >> 1
    q = 2 * (r - SQRT_SQRT_HALF)
    square = mul(q, q)
    numerator = mul(q, r) + mul(mul(q, square), ALPHA_N)
    denominator = mul(p, ALPHA_I + q + mul(ALPHA_D, square)) + mul(ALPHA_F, q)
    quotient = mul(rounding_divide_by_pot(numerator, LOG_INTEGER_BITS), one_over_one_plus_x(denominator))
    return (mul(power, LOG_2) + quotient) << (LOG_INTEGER_BITS - INPUT_INTEGER_BITS)


def _leading_zeros(x: Int64) -> Int64:
    """Of positive int32 values."""
    return 32 - np.frexp(x.astype(np.float64))[1].astype(np.int64)  # exact: an int32 fits a double


def evaluate(data: Array, *, attrs: LogSoftmaxAttrs, out_type: TensorType) -> Array:
    wide = data.astype(np.int64)
    below = wide.max(axis=-1, keepdims=True) - wide
    logs = log(exp_table(attrs)[below].sum(axis=-1, keepdims=True))
    limit = multiply_by_quantized_multiplier(logs + INT32_MIN, attrs.reverse_multiplier, attrs.reverse_shift)
    codes = rounding_divide_by_pot(scaled_differences(attrs)[below] - logs, FRACTION_BITS) + OUTPUT_ZERO_POINT
    return np.where(-below > np.maximum(limit, attrs.diff_min - 1), np.clip(codes, -128, 127), -128).astype(np.int8)


register_op(
    "qnn.log_softmax",
    1,
    arguments=[("data", "int8 [..., C]", "the operand")],
    attrs_type=LogSoftmaxAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="LOG_SOFTMAX; int8, last axis",
)
