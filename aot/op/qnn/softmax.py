"""qnn.softmax: SOFTMAX of TFLite on int8 over the last axis, in fixed point; the result is int8 or int16.

exp of the scaled difference to the row's maximum (gemmlowp, Q5.26 to Q0.31; 0 below `diff_min`), their sum with 12 integer bits,
one reciprocal by Newton's method a row.  Oracle: `reference_ops::Softmax`.  (With an int8 result, a sum of 512 or more, which
takes that many equal largest elements in a row, would shift by more than 31 bits: there the reference aborts, here the result
is 0.)

There is no te rule: the row's maximum and sum must be computed once a row.  `aot.topi.generic.softmax` lowers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import (
    Int64,
    clamp_array,
    exp_on_negative_values,
    reciprocal,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
    softmax_scaling,
)
from aot.numerics.multipliers import real_multiplier
from aot.op.common.check import require_dtype, require_quant, require_rows
from aot.op.common.half import widens_halves
from aot.op.common.uint8 import legacy_uint8
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.math.row_norm import convert_softmax
from aot.op.qnn.softmax16 import convert_softmax16
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call
from aot.support.dataclass import dataclass
from aot.support.dtype import bits, int_range

ACCUMULATION_INTEGER_BITS = 12
RESULTS = frozenset({"int8", "int16"})
"""Types of the result; the scale is 2^-bits and the zero point the type's lowest value."""

MAX_DEPTH = 4095
"""Elements of a row; more could overflow the sum's 12 integer bits."""


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


@from_tflite(
    "SOFTMAX",
    "int8 uint8 int16 float16 float32",
    "cast divide exp qnn.softmax qnn.softmax16 reduce_max subtract sum",
    oracle="LiteRT; of int16 TFLM with `--oracle tflm`",
)
@legacy_uint8
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr | Sequence[RelayExpr]:
    """qnn.softmax with the integers of SoftmaxPrepare, qnn.softmax16, or float32 arithmetic."""
    data, out = ctx.input_type(op, 0), ctx.output_type(op)
    if data.dtype == "int16":
        return convert_softmax16(ctx, op)
    if data.dtype == "float32":
        return convert_softmax(ctx, op)
    if data.dtype == "float16":
        return widens_halves(partial(convert_softmax, halves=True))(ctx, op)
    require_dtype(ctx, op, data, {"int8"})
    require_dtype(ctx, op, out, RESULTS, what="a result")
    scale, _ = require_quant(ctx, op, data)
    out_scale, out_zp = require_quant(ctx, op, out, what="the result")
    codes, lowest = 2 ** bits(out.dtype), int_range(out.dtype)[0]
    if abs(out_scale * codes - 1) > 0.001 or out_zp != lowest:
        unsupported(ctx, op, f"the result must have scale 1/{codes} and zero point {lowest}", code="E1225")
    require_rows(ctx, op, data, most=MAX_DEPTH)
    real = real_multiplier(op.opcode, data.dtype, (op.option("beta"), scale), oracle=ctx.oracle)
    if not real * (1 << 26) > 1:
        unsupported(ctx, op, f"beta {op.option('beta')} with scale {scale} is not supported", code="E1122")
    attrs = SoftmaxAttrs(*softmax_scaling(real), out.dtype)
    return call("qnn.softmax", [operand(ctx, op, 0)], attrs, span=ctx.span(op))


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
