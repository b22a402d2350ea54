"""nn.dense: FULLY_CONNECTED of TFLite.

acc[m, o] = sum over k of (w[o, k] - weight_zp) * (data[m, k] - input_zp).  Oracle: TFLite's reference kernel
`FullyConnected`, which rounds once, halves away from zero, where its convolutions round twice; TFLite Micro rounds twice here
too (`--oracle tflm`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.op.common.float_layer import is_float_layer
from aot.op.common.move import reshaped
from aot.op.common.quantized_layer import check_quantized_layer, finish_layer, layer_weights, running_weights
from aot.op.common.uint8 import legacy_uint8
from aot.op.convert import ConvertContext, ForwardingContext, from_tflite, operand, unsupported
from aot.op.nn.dense_blockwise import convert_blockwise
from aot.op.nn.dense_float import convert_float, dense_shapes
from aot.op.qnn.hybrid import convert_hybrid, is_hybrid_layer
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Expr, call
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, reduce_axis, tensor_fn, wrapping
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr as TirExpr
from aot.tir.expr import cast


@dataclass(frozen=True, slots=True)
class DenseAttrs:
    """Zero points still to be subtracted."""

    input_zp: int = 0
    weight_zp: int = 0
    acc_dtype: str = "int32"


def infer_type(types: Sequence[Type], attrs: DenseAttrs) -> Type:
    """data [M, K], weight [O, K] -> attrs.acc_dtype [M, O]."""
    data, weight = types
    if not isinstance(data, TensorType) or not isinstance(weight, TensorType) or len(data.shape) != 2 or len(weight.shape) != 2:
        raise TypeRuleError(f"dense takes 2-D data and weights, not {data} and {weight}")
    if data.shape[1] != weight.shape[1]:
        raise TypeRuleError(f"rows of {data.shape[1]} data values, but weights for {weight.shape[1]}")
    return TensorType((data.shape[0], weight.shape[0]), attrs.acc_dtype)


def evaluate(data: Array, weight: Array, *, attrs: DenseAttrs, out_type: TensorType) -> Array:
    x = data.astype(np.float64) - attrs.input_zp
    w = weight.astype(np.float64) - attrs.weight_zp
    result: Array = (x @ w.T).astype(np.int64).astype(out_type.dtype)
    return result


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: DenseAttrs, out_type: TensorType) -> TensorFn:
    data, weight = args
    wide = wrapping(attrs.acc_dtype)

    def rule(b: IRBuilder, m: TirExpr, o: TirExpr) -> TirExpr:
        def term(k: TirExpr) -> TirExpr:
            w, x = cast("int32", weight.at(b, (o, k))) - attrs.weight_zp, cast("int32", data.at(b, (m, k))) - attrs.input_zp
            return cast(wide, w) * cast(wide, x)

        return cast(attrs.acc_dtype, te_sum(b, [reduce_axis(weight.shape[1], name="k")], term, dtype=wide))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


@from_tflite(
    "FULLY_CONNECTED",
    "int8*int8 int8*int4 int16*int8 int16*int4 uint8*uint8 float32*int4 float32*int8 float32*float32",
    "nn.dense nn.dense_float qnn.dense_blockwise qnn.dynamic_params qnn.dynamic_quantize qnn.dynamic_range qnn.hybrid_output",
    oracle="LiteRT, or TFLM with `--oracle tflm`",
)
@legacy_uint8
def convert(ctx: ConvertContext, op: OperatorView) -> Expr:
    """reshape to rows, dense + bias_add + requantize (+ clip), reshape to the output's shape."""
    blocks = ctx.blocks(op, 1)
    if blocks is not None:
        return _convert_hybrid(_NoScale(ctx), op) if ctx.to_the_letter else convert_blockwise(ctx, op, blocks)
    if is_float_layer(ctx, op):
        return convert_float(ctx, op)
    if is_hybrid_layer(ctx, op):
        return _convert_hybrid(ctx, op)
    data = operand(ctx, op, 0)
    layer = check_quantized_layer(ctx, op, channel_axis=0)
    span, (rows, shape) = ctx.span(op), dense_shapes(ctx, op)
    data = reshaped(data, rows, span)
    attrs = DenseAttrs(layer.input_zp, layer.weight_zp, layer.acc_dtype)
    weight = running_weights(ctx, op)
    if weight is None:
        weight = layer_weights(ctx, op, layer, channel_axis=0)
    elif layer.flipped:
        unsupported(ctx, op, "weights computed at run time with a negative scale are not supported", code="E1226")
    acc = call("nn.dense", [data, weight], attrs, span=span)
    rounding = "once" if ctx.oracle == "litert" else "double"
    return reshaped(finish_layer(ctx, op, acc, layer=layer, rounding=rounding), shape, span)


class _NoScale(ForwardingContext):
    """Weights as LiteRT's reference kernel sees those with a scale a block: with one scale for all, which nobody has set."""

    def input_type(self, op: OperatorView, i: int) -> TensorType:
        type_ = super().input_type(op, i)
        return replace(type_, quant=QuantParams((0.0,), (0,))) if i == 1 else type_


def _convert_hybrid(ctx: ConvertContext, op: OperatorView) -> Expr:
    """Float32 data with integer weights: rows, quantised one by one, and the output's shape."""
    span, (rows, shape) = ctx.span(op), dense_shapes(ctx, op)
    data = reshaped(operand(ctx, op, 0), rows, span)
    result = convert_hybrid(
        ctx,
        op,
        lambda integers, weight: call("nn.dense", [integers, weight], DenseAttrs(), span=span),
        data=data,
        channel_axis=0,
        asymmetric=bool(op.option("asymmetric_quantize_inputs")),
    )
    return reshaped(result, shape, span)


register_op(
    "nn.dense",
    2,
    arguments=[("data", "int8, int16 [M, K]", "rows of data"), ("weight", "int8, int4 [O, K]", "one row for each output")],
    attrs_type=DenseAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="FULLY_CONNECTED; int8, int16 x int8, int8 and int16 x int4, uint8; one rounding (TFLite) or two (TFLite Micro)",
)
F_TE.set("nn.dense", te_rule)
