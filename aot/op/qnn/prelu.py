"""qnn.prelu: PRELU of TFLite on quantised values, and LEAKY_RELU on int16 values (8-bit ones go through a table).

x = q - zp_in; out = clamp(zp + (x >= 0 ? rescale(x) : rescale'(x * (alpha - zp_alpha)))), double rounding.
LEAKY_RELU has alpha = 1 and its slope in the second multiplier.  Oracles: `reference_ops::BroadcastPrelu4DSlow`,
`QuantizeLeakyRelu`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import (
    clamp_array,
    multiply_by_quantized_multiplier,
    named,
    quantize_multiplier,
    tir_multiply_by_quantized_multiplier,
)
from aot.op.common.binary import broadcast_at, broadcast_shape
from aot.op.common.check import Clamped, require_dtype, require_quant
from aot.op.common.uint8 import legacy_uint8
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.math.arithmetic import BinaryAttrs, is_plain
from aot.op.math.compare import CompareAttrs
from aot.op.math.select import SelectAttrs
from aot.op.math.unary import UnaryAttrs, convert_unary
from aot.op.qnn.activation import codes_of, leaky_codes, leaky_multipliers, table_call
from aot.op.qnn.lut import codes
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call, const
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
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


@from_tflite("PRELU", "int8 uint8 int16 float32", "greater_equal multiply qnn.prelu select")
@legacy_uint8
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """qnn.prelu of quantised values; a select of float32."""
    data, alpha = ctx.input_type(op, 0), ctx.input_type(op, 1)
    x, slope, span = operand(ctx, op, 0), operand(ctx, op, 1), ctx.span(op)
    if is_plain(data):
        require_dtype(ctx, op, data, {"float32"})
        return _float_prelu(x, slope, ctx, op)
    found = codes_of(ctx, op)
    require_dtype(ctx, op, alpha, {"int8"}, what="an alpha")
    scale_alpha, alpha_zp = require_quant(ctx, op, alpha, what="alpha", may_be_zero=True)
    positive = quantize_multiplier(found.ratio())
    negative = quantize_multiplier(found.ratio(scale_alpha))
    lo, hi = int_range(found.dtype)
    attrs = PreluAttrs(found.data[1], alpha_zp, found.out[1], positive, negative, lo, hi, ctx.output_type(op).quant)
    return call("qnn.prelu", [x, slope], attrs, span=span)


def _float_prelu(x: RelayExpr, slope: RelayExpr, ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """x, or x * alpha unless x >= 0, which -0 is."""
    span, zero = ctx.span(op), const(np.zeros((), np.float32))
    above = call("greater_equal", [x, zero], CompareAttrs(), span=span)
    return call("select", [above, x, call("multiply", [x, slope], BinaryAttrs(), span=span)], SelectAttrs(), span=span)


@from_tflite("LEAKY_RELU", "int8 uint8 int16 float32", "leaky_relu qnn.lut qnn.prelu")
@legacy_uint8
def convert_leaky(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """x, or alpha * x below 0."""
    alpha = float(op.option("alpha"))
    if is_plain(ctx.input_type(op, 0)):
        return convert_unary(ctx, op, "leaky_relu", UnaryAttrs(alpha=alpha))
    found = codes_of(ctx, op)
    if found.dtype == "int8":
        return table_call(ctx, op, leaky_codes(codes() - found.data[1], found, alpha))
    if alpha < 0:
        unsupported(ctx, op, "a negative slope on int16 is not supported", code="E1122")
    positive, negative = leaky_multipliers(found, alpha)
    lo, hi = int_range("int16")
    attrs = PreluAttrs(0, 0, 0, positive, negative, lo, hi, ctx.output_type(op).quant)
    one = const(np.ones((1,) * len(ctx.input_type(op, 0).shape), np.int8))
    return call("qnn.prelu", [operand(ctx, op, 0), one], attrs, span=ctx.span(op))


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
