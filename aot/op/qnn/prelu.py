"""qnn.prelu: PRELU of TFLite on quantised values, and LEAKY_RELU on int16 values (8-bit ones go through a table).

x = q - zp_in; out = clamp(zp + (x >= 0 ? rescale(x) : rescale'(x * (alpha - zp_alpha)))), double rounding.
LEAKY_RELU has alpha = 1 and its slope in the second multiplier.  Oracles: `reference_ops::BroadcastPrelu4DSlow`,
`QuantizeLeakyRelu`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import clamp_array, multiply_by_quantized_multiplier, named, tir_multiply_by_quantized_multiplier
from aot.op.common.binary import broadcast_at, broadcast_shape
from aot.op.common.check import Clamped
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, imm, select


@dataclass(frozen=True, slots=True)
class PreluAttrs(Clamped):
    """Zero points of data, alpha and result; (multiplier, shift) for x >= 0 and for x < 0; the clamp [lo, hi]."""

    input_zp: int
    alpha_zp: int
    zero_point: int
    positive: tuple[int, int]
    negative: tuple[int, int]
    lo: int
    hi: int
    quant: QuantParams | None = None


def infer_type(types: Sequence[Type], attrs: PreluAttrs) -> Type:
    """data int8 or int16, alpha int8 that broadcasts to its shape -> the type of data."""
    data, alpha = types
    if not isinstance(data, TensorType) or not isinstance(alpha, TensorType) or alpha.dtype != "int8":
        raise TypeRuleError(f"prelu takes quantised values and an int8 alpha, not {data} and {alpha}")
    if data.dtype not in ("int8", "int16") or broadcast_shape(data, alpha) != data.shape:
        raise TypeRuleError(f"prelu of {data} with alpha {alpha}")
    return data.with_dtype(data.dtype, attrs.quant)


def evaluate(data: Array, alpha: Array, *, attrs: PreluAttrs, out_type: TensorType) -> Array:
    x, slope = data.astype(np.int64) - attrs.input_zp, alpha.astype(np.int64) - attrs.alpha_zp
    above = multiply_by_quantized_multiplier(x, *attrs.positive)
    below = multiply_by_quantized_multiplier(x * slope, *attrs.negative)
    return clamp_array(np.where(x >= 0, above, below) + attrs.zero_point, attrs.lo, attrs.hi, out_type.dtype)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: PreluAttrs, out_type: TensorType) -> TensorFn:
    def rule(b: IRBuilder, *i: Expr) -> Expr:
        x = named(b, "x", cast("int32", args[0].at(b, i)) - attrs.input_zp)
        slope = cast("int32", broadcast_at(b, args[1], i)) - attrs.alpha_zp
        product = named(b, "product", select(x >= 0, imm(0), x * slope))
        above = tir_multiply_by_quantized_multiplier(b, named(b, "above", select(x >= 0, x, imm(0))), *attrs.positive)
        below = tir_multiply_by_quantized_multiplier(b, product, *attrs.negative)
        return cast(out_type.dtype, clamp(above + below + attrs.zero_point, attrs.lo, attrs.hi))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "qnn.prelu",
    2,
    arguments=[("data", "int8, int16", "the operand"), ("alpha", "as data", "the slopes below zero; shapes broadcast")],
    attrs_type=PreluAttrs,
    pattern=OpPattern.BROADCAST,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="PRELU on int8, int16, uint8; LEAKY_RELU on int16",
)
F_TE.set("qnn.prelu", te_rule)
