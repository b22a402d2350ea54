"""qnn.l2_normalize: L2_NORMALIZATION of TFLite on int8 over the last axis, in fixed point; on float32 see `row_norm`.

out = clamp(round(128 * (x - zp) / sqrt(sum of (x - zp)^2))) with the inverse root in 31 bits by Newton's method; a row of zero
points stays zero.  Oracles: `reference_integer_ops::L2Normalization`; for legacy uint8 `reference_ops::L2Normalization`, which
multiplies by 128 before the rounding that int8 does first.

There is no te rule: the row's sum must be computed once a row.  `aot.topi.generic.normalization` lowers it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import clamp_array, multiply_by_quantized_multiplier
from aot.numerics.inv_sqrt import inverse_sqrt
from aot.support.dataclass import dataclass

OUTPUT_BITS = 7
"""The result has scale 2^-7 and zero point 0."""


@dataclass(frozen=True, slots=True)
class L2NormalizeAttrs:
    """The zero point of the data (their scale does not matter), and how many of the result's 7 bits their values are shifted left
    before the multiplication: 0 or, for legacy uint8, all.
    """

    input_zp: int
    left_shift: int = 0


def infer_type(types: Sequence[Type], _attrs: L2NormalizeAttrs) -> Type:
    """int8 [..., C] -> int8 of the same shape with scale 1/128 and zero point 0."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "int8" or not data.shape:
        raise TypeRuleError(f"l2_normalize takes an int8 tensor, not {data}")
    return data.with_dtype("int8", QuantParams((2.0**-OUTPUT_BITS,), (0,)))


def evaluate(data: Array, *, attrs: L2NormalizeAttrs, out_type: TensorType) -> Array:
    wide = data.astype(np.int64) - attrs.input_zp
    sums, rows = np.unique((wide * wide).sum(axis=-1, keepdims=True), return_inverse=True)
    multiplier, shift = np.array([inverse_sqrt(int(s)) for s in sums], np.int64).reshape(-1, 2).T
    rows = rows.reshape(*wide.shape[:-1], 1)
    exponent = shift[rows] + (OUTPUT_BITS - attrs.left_shift)
    scaled = multiply_by_quantized_multiplier(wide << attrs.left_shift, multiplier[rows], exponent)
    return clamp_array(scaled, -128, 127, "int8")


register_op(
    "qnn.l2_normalize",
    1,
    arguments=[("data", "int8 [..., C]", "the operand")],
    attrs_type=L2NormalizeAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="L2_NORMALIZATION; int8, last axis",
)
