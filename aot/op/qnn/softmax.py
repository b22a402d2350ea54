"""qnn.softmax: SOFTMAX of TFLite on int8 over the last axis, in fixed point; the result is int8 or int16.

exp of the scaled difference to the row's maximum (gemmlowp, Q5.26 to Q0.31; 0 below `diff_min`), their sum with 12 integer bits,
one reciprocal by Newton's method a row.  Oracle: `reference_ops::Softmax`.  (With an int8 result, a sum of 512 or more, which
takes that many equal largest elements in a row, would shift by more than 31 bits: there the reference aborts, here the result
is 0.)

There is no te rule: the row's maximum and sum must be computed once a row.  `aot.topi.generic.softmax` lowers it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import (
    Int64,
    clamp_array,
    exp_on_negative_values,
    reciprocal,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)
from aot.support.dataclass import dataclass
from aot.support.dtype import bits, int_range

ACCUMULATION_INTEGER_BITS = 12


@dataclass(frozen=True, slots=True)
class SoftmaxAttrs:
    """multiplier * 2^(left_shift - 31) takes a difference of quantised values to Q5.26; differences below `diff_min` count as 0.

    `out_dtype`: the type of the result.
    """

    multiplier: int
    left_shift: int
    diff_min: int
    out_dtype: str = "int8"

    @property
    def zero_point(self) -> int:
        """Of the result."""
        return int_range(self.out_dtype)[0]


def infer_type(types: Sequence[Type], attrs: SoftmaxAttrs) -> Type:
    """int8 [..., C] -> the same shape, int8 with scale 1/256 and zero point -128, or int16 with 1/65536 and -32768."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "int8" or not data.shape:
        raise TypeRuleError(f"softmax takes an int8 tensor, not {data}")
    return data.with_dtype(attrs.out_dtype, QuantParams((2.0 ** -bits(attrs.out_dtype),), (attrs.zero_point,)))


def exp_table(attrs: SoftmaxAttrs) -> Int64:
    """exp of minus 0, 1, ... 255 values, Q0.31; 0 below diff_min."""
    diff = -np.arange(256, dtype=np.int64)
    counts = diff >= attrs.diff_min
    scaled = saturating_rounding_doubling_high_mul(np.where(counts, diff, 0) << attrs.left_shift, attrs.multiplier)
    return np.where(counts, exp_on_negative_values(scaled), 0)


def evaluate(data: Array, *, attrs: SoftmaxAttrs, out_type: TensorType) -> Array:
    wide = data.astype(np.int64)
    exps = exp_table(attrs)[wide.max(axis=-1, keepdims=True) - wide]
    total = rounding_divide_by_pot(exps, ACCUMULATION_INTEGER_BITS).sum(axis=-1, keepdims=True)
    scale, bits_over_unit = reciprocal(total, ACCUMULATION_INTEGER_BITS)
    right = bits_over_unit + 31 - bits(attrs.out_dtype)
    result = rounding_divide_by_pot(saturating_rounding_doubling_high_mul(scale, exps), right)
    return clamp_array(result + attrs.zero_point, *int_range(attrs.out_dtype), attrs.out_dtype)


register_op(
    "qnn.softmax",
    1,
    arguments=[("data", "int8 [..., C]", "the operand")],
    attrs_type=SoftmaxAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="SOFTMAX; int8 to int8 or int16, last axis",
)
