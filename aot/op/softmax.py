"""qnn.softmax: SOFTMAX of TFLite on int8 over the last axis, in fixed point.

exp of the scaled difference to the row's maximum (gemmlowp, Q5.26 to Q0.31; 0 below `diff_min`), their sum with 12 integer bits,
one reciprocal by Newton's method a row.  Oracle: `reference_ops::Softmax`.  (A sum of 512 or more, which takes that many equal
largest elements in a row, would shift by more than 31 bits: there the reference aborts, here the result is 0.)

There is no te rule: the row's maximum and sum must be computed once a row.  `aot.topi.generic.softmax` lowers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.op._check import require_dtype, require_quant
from aot.op._fixed_point import (
    Int64,
    exp_on_negative_values,
    reciprocal,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
    softmax_scaling,
)
from aot.op._uint8 import legacy_uint8
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.row_norm import convert_softmax
from aot.op.softmax16 import convert_softmax16
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call

ACCUMULATION_INTEGER_BITS = 12
OUTPUT_SCALE = 1 / 256
OUTPUT_ZERO_POINT = -128
MAX_DEPTH = 4095
"""Elements of a row; more could overflow the sum's 12 integer bits."""


@dataclass(frozen=True, slots=True)
class SoftmaxAttrs:
    """multiplier * 2^(left_shift - 31) takes a difference of codes to Q5.26; differences below `diff_min` count as 0."""

    multiplier: int
    left_shift: int
    diff_min: int


def infer_type(types: Sequence[Type], _attrs: SoftmaxAttrs) -> Type:
    """int8 [..., C] -> int8 of the same shape with scale 1/256 and zero point -128."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "int8" or not data.shape:
        raise TypeRuleError(f"softmax takes an int8 tensor, not {data}")
    return data.with_dtype("int8", QuantParams((OUTPUT_SCALE,), (OUTPUT_ZERO_POINT,)))


def exp_table(attrs: SoftmaxAttrs) -> Int64:
    """exp of minus 0, 1, ... 255 codes, Q0.31; 0 below diff_min."""
    diff = -np.arange(256, dtype=np.int64)
    counts = diff >= attrs.diff_min
    scaled = saturating_rounding_doubling_high_mul(np.where(counts, diff, 0) << attrs.left_shift, attrs.multiplier)
    return np.where(counts, exp_on_negative_values(scaled), 0)


def evaluate(data: Array, *, attrs: SoftmaxAttrs, out_type: TensorType) -> Array:
    wide = data.astype(np.int64)
    exps = exp_table(attrs)[wide.max(axis=-1, keepdims=True) - wide]
    total = rounding_divide_by_pot(exps, ACCUMULATION_INTEGER_BITS).sum(axis=-1, keepdims=True)
    scale, bits_over_unit = reciprocal(total, ACCUMULATION_INTEGER_BITS)
    result = rounding_divide_by_pot(saturating_rounding_doubling_high_mul(scale, exps), bits_over_unit + 31 - 8)
    return np.clip(result + OUTPUT_ZERO_POINT, -128, 127).astype(np.int8)


@from_tflite("SOFTMAX", "int8 uint8 int16 float32", "divide exp qnn.softmax qnn.softmax16 reduce_max subtract sum")
@legacy_uint8
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """qnn.softmax with the integers of SoftmaxPrepare, qnn.softmax16, or float32 arithmetic."""
    data, out = ctx.input_type(op, 0), ctx.output_type(op)
    if data.dtype == "int16":
        return convert_softmax16(ctx, op)
    if data.dtype == "float32":
        return convert_softmax(ctx, op)
    require_dtype(ctx, op, data, {"int8"})
    require_dtype(ctx, op, out, {"int8"}, what="a result")
    scale, _ = require_quant(ctx, op, data)
    out_scale, out_zp = require_quant(ctx, op, out, what="the result")
    if abs(out_scale - OUTPUT_SCALE) > 0.001 * OUTPUT_SCALE or out_zp != OUTPUT_ZERO_POINT:
        unsupported(ctx, op, "the result must have scale 1/256 and zero point -128", code="E1206")
    if not data.shape or not 0 < data.shape[-1] <= MAX_DEPTH:
        unsupported(ctx, op, f"rows of 1 to {MAX_DEPTH} elements are supported")
    real = op.option("beta") * scale * (1 << 26)
    if not real > 1:
        unsupported(ctx, op, f"beta {op.option('beta')} with scale {scale} is not supported", code="E1122")
    attrs = SoftmaxAttrs(*softmax_scaling(op.option("beta"), scale))
    return call("qnn.softmax", [operand(ctx, op, 0)], attrs, span=ctx.span(op))


register_op("qnn.softmax", pattern=OpPattern.OPAQUE, infer_type=infer_type, evaluate=evaluate, doc="SOFTMAX; int8, last axis")
