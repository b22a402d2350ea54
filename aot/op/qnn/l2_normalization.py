"""qnn.l2_normalize: L2_NORMALIZATION of TFLite on int8 over the last axis, in fixed point; on float32 see `row_norm`.

out = clamp(round(128 * (x - zp) / sqrt(sum of (x - zp)^2))) with the inverse root in 31 bits by Newton's method; a row of zero
points stays zero.  Oracles: `reference_integer_ops::L2Normalization`; for legacy uint8 `reference_ops::L2Normalization`, which
multiplies by 128 before the rounding that int8 does first.

There is no te rule: the row's sum must be computed once a row.  `aot.topi.generic.normalization` lowers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import clamp_array, multiply_by_quantized_multiplier
from aot.numerics.inv_sqrt import inverse_sqrt
from aot.op.common.check import require_dtype, require_quant, require_rows
from aot.op.common.uint8 import is_legacy, legacy_uint8
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.math.row_norm import convert_l2
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call
from aot.support.dataclass import dataclass

OUTPUT_BITS = 7
"""The result has scale 2^-7 and zero point 0."""

MAX_DEPTH = 1 << 15
"""Elements of a row; more could overflow the sum of their squares."""


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


@from_tflite("L2_NORMALIZATION", "int8 uint8 float32", "divide qnn.l2_normalize relu sqrt square sum")
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr | Sequence[RelayExpr]:
    """qnn.l2_normalize, or float32 arithmetic."""
    left_shift = OUTPUT_BITS if is_legacy(ctx.input_type(op, 0)) else 0
    return legacy_uint8(partial(_convert, left_shift=left_shift))(ctx, op)


def _convert(ctx: ConvertContext, op: OperatorView, *, left_shift: int) -> RelayExpr:
    if op.option("fused_activation_function") != "NONE":
        unsupported(ctx, op, "a fused activation is not supported(TFLite rejects it too)")
    data, out = ctx.input_type(op, 0), ctx.output_type(op)
    if data.dtype == "float32":
        return convert_l2(ctx, op)
    require_dtype(ctx, op, data, {"int8"})
    require_dtype(ctx, op, out, {"int8"}, what="a result")
    _, zp = require_quant(ctx, op, data, may_be_zero=True)
    if require_quant(ctx, op, out, what="the result") != (2.0**-OUTPUT_BITS, 0):
        unsupported(ctx, op, "the result must have scale 1/128 and zero point 0 (128 for uint8)", code="E1225")
    require_rows(ctx, op, data, most=MAX_DEPTH)
    return call("qnn.l2_normalize", [operand(ctx, op, 0)], L2NormalizeAttrs(zp, left_shift), span=ctx.span(op))


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
