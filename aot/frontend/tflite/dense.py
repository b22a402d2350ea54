"""Converters of FULLY_CONNECTED and BATCH_MATMUL."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TypeGuard

import numpy as np

from aot.frontend.tflite.convert import (
    Blocks,
    ConvertContext,
    ForwardingContext,
    from_tflite,
    operand,
    require_quant,
    reshaped,
    unsupported,
)
from aot.frontend.tflite.layer import (
    bounds,
    check_quantized_layer,
    convert_hybrid,
    finish_layer,
    is_float_layer,
    is_hybrid_layer,
    layer_operands,
    layer_weights,
    running_weights,
)
from aot.frontend.tflite.retyped import legacy_uint8
from aot.frontend.view import OperatorView
from aot.ir.span import Span
from aot.ir.type import QuantParams, TensorType
from aot.numerics.fixed_point import quantize_multiplier, real_multiplier, reduced_multiplier
from aot.op.common.float_layer import Bounds
from aot.op.nn.dense import (
    BLOCKWISE,
    MOST,
    BatchMatmulAttrs,
    DenseAttrs,
    DenseBlockwiseAttrs,
    infer_batch_matmul,
    matrix_of,
    packed,
)
from aot.op.nn.dense import DENSE_FLOAT as DENSE_FLOAT_NAME
from aot.op.qnn.hybrid import PARAMS, QUANTIZE, RANGE, DynamicQuantizeAttrs
from aot.op.qnn.quantize import RequantizeAttrs
from aot.op.tensor.shape import ReshapeAttrs
from aot.relay.expr import Constant, Expr, call, const
from aot.support.dtype import int_range


@from_tflite(
    "FULLY_CONNECTED",
    "int8*int8 int8*int4 int16*int8 int16*int4 uint8*uint8 float32*int4 float32*int8 float32*float32",
    "nn.dense nn.dense_float qnn.dense_blockwise qnn.dynamic_params qnn.dynamic_quantize qnn.dynamic_range qnn.hybrid_output",
    oracle="LiteRT, or TFLM with `--oracle tflm`",
)
@legacy_uint8
def convert_dense(ctx: ConvertContext, op: OperatorView) -> Expr:
    """reshape to rows, dense + bias_add + requantize (+ clip), reshape to the output's shape."""
    blocks = ctx.blocks(op, 1)
    if blocks is not None:
        return _hybrid_dense(_NoScale(ctx), op) if ctx.to_the_letter else convert_blockwise(ctx, op, blocks)
    if is_float_layer(ctx, op):
        return convert_dense_float(ctx, op)
    if is_hybrid_layer(ctx, op):
        return _hybrid_dense(ctx, op)
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
    """Weights with per-block scales as LiteRT's reference kernel sees them: with a single scale that nobody has set."""

    def input_type(self, op: OperatorView, i: int) -> TensorType:
        type_ = super().input_type(op, i)
        return replace(type_, quant=QuantParams((0.0,), (0,))) if i == 1 else type_


def _hybrid_dense(ctx: ConvertContext, op: OperatorView) -> Expr:
    """Float32 data with integer weights: rows, each quantised separately, and the output's shape."""
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


def convert_dense_float(ctx: ConvertContext, op: OperatorView) -> Expr:
    """FULLY_CONNECTED whose data, weights and result are float32: rows, dense, the output's shape."""
    rows, shape = dense_shapes(ctx, op)
    data, *others = layer_operands(ctx, op)
    result = call(DENSE_FLOAT_NAME, [reshaped(data, rows, ctx.span(op)), *others], Bounds(*bounds(ctx, op)), span=ctx.span(op))
    return reshaped(result, shape, ctx.span(op))


def dense_shapes(ctx: ConvertContext, op: OperatorView) -> tuple[tuple[int, int], tuple[int, ...]]:
    """FULLY_CONNECTED's data as rows, and the shape of its result: rows of channels, or with `keep_num_dims` like the data.

    If the file declares another shape with as many elements, that one is used: TFLite Micro's kernels ignore it.
    """
    if op.option("weights_format") != "DEFAULT":
        unsupported(ctx, op, f"weight format {op.option('weights_format')} is not supported")
    data, weight, declared = ctx.input_type(op, 0).shape, ctx.input_type(op, 1).shape, ctx.output_shape(op)
    if len(weight) != 2:
        unsupported(ctx, op, f"weights of {len(weight)} dimensions are not supported", code="E1207")
    channels, depth = weight
    rows, remainder = divmod(prod(data), depth)
    if remainder or (declared is not None and rows * channels != prod(declared)):
        unsupported(ctx, op, f"data of {prod(data)} values does not match weights {list(weight)}", code="E1207")
    keep = op.option("keep_num_dims") and data[-1:] == (depth,)
    return (rows, depth), declared or ((*data[:-1], channels) if keep else (rows, channels))


def convert_blockwise(ctx: ConvertContext, op: OperatorView, blocks: Blocks) -> Expr:
    """Rows, each quantised by itself, qnn.dense_blockwise, and the output's shape; called by the converter of FULLY_CONNECTED."""
    data, weight = ctx.input_type(op, 0), ctx.input_type(op, 1)
    if (data.dtype, weight.dtype, ctx.output_type(op).dtype) != ("float32", "int4", "float32"):
        unsupported(
            ctx, op, f"blockwise quantisation of {weight.dtype} weights for {data.dtype} data is not supported", code="E1220"
        )
    if op.option("fused_activation_function") != "NONE":
        unsupported(ctx, op, "blockwise quantisation with a fused activation is not supported (TFLite rejects it too)")
    if blocks.size % 2 or blocks.size > MOST:
        unsupported(ctx, op, f"blocks of {blocks.size} weights are not supported; only even numbers up to {MOST}", code="E1220")
    span, (rows, shape) = ctx.span(op), dense_shapes(ctx, op)
    x = reshaped(operand(ctx, op, 0), rows, span)
    params = call(PARAMS, [call(RANGE, [x], span=span)], DynamicQuantizeAttrs(True), span=span)
    integers = call(QUANTIZE, [x, params], DynamicQuantizeAttrs(True), span=span)
    args: list[Expr] = [integers, params, const(packed(ctx.constant(op, 1))), const(blocks.scales)]
    bias = ctx.input(op, 2)
    if bias is not None:
        if ctx.input_type(op, 2).dtype != "float32":
            unsupported(ctx, op, f"a bias of {ctx.input_type(op, 2).dtype} is not supported with float32 data")
        args.append(bias)
    result = call(BLOCKWISE, args, DenseBlockwiseAttrs(blocks.size), span=span)
    return reshaped(result, shape, span)


_MATMUL_KINDS = (("int8", "int8", "int8"), ("int16", "int16", "int16"), ("int16", "int8", "int16"))


@from_tflite("BATCH_MATMUL", "int8 int16 float32", "nn.batch_matmul")
def convert_batch_matmul(ctx: ConvertContext, op: OperatorView) -> Expr:
    """batch_matmul, + requantize for integers; a fully connected layer if the right side is one constant matrix."""
    a, b, out = ctx.input_type(op, 0), ctx.input_type(op, 1), ctx.output_type(op)
    kind, span = (a.dtype, b.dtype, out.dtype), ctx.span(op)
    adj_x, adj_y = bool(op.option("adj_x")), bool(op.option("adj_y"))
    left, right = operand(ctx, op, 0), operand(ctx, op, 1)
    if kind == ("float32",) * 3:
        attrs = BatchMatmulAttrs(adj_x, adj_y, acc_dtype="float32")
        if _is_one_matrix(right) and right.stored is None and not adj_x:
            dense = call(
                "nn.dense_float", [_matmul_rows(left, a, span), _matmul_weights(right, adj_y=adj_y)], Bounds(), span=span
            )
            return call("reshape", [dense], ReshapeAttrs(infer_batch_matmul([a, b], attrs).shape), span=span)
        return call("nn.batch_matmul", [left, right], attrs, span=span)
    if kind not in _MATMUL_KINDS:
        unsupported(ctx, op, f"{kind[0]} by {kind[1]} giving {kind[2]} is not supported", code="E1202")
    (scale_a, a_zp), (scale, zp) = require_quant(ctx, op, a, may_be_zero=True), require_quant(ctx, op, out, what="the result")
    # the reference ignores per-channel scales: its multiplier is then 0
    per_channel = b.quant is not None and len(b.quant.scale) > 1 and not any(b.quant.zero_point)
    scale_b, b_zp = (0.0, 0) if per_channel else require_quant(ctx, op, b, may_be_zero=True)
    if a.dtype == "int16" and (a_zp or b_zp or zp):
        unsupported(ctx, op, "int16 with a non-zero zero point is not supported (TFLite rejects it too)", code="E1224")
    depth = matrix_of(a.shape, adj_x)[1]
    acc_dtype = "int64" if a.dtype == "int16" and _largest_code(b.dtype) * depth << 15 >= 1 << 31 else "int32"
    real = real_multiplier(op.opcode, a.dtype, (scale_a, scale_b), (scale,), oracle=ctx.oracle)
    multiplier, shift = quantize_multiplier(real)
    rounding = "double"
    if a.dtype == "int16":
        multiplier, rounding = reduced_multiplier(multiplier), "single"
    low, high = int_range(out.dtype)
    requant = RequantizeAttrs((multiplier,), (shift,), zp, low, high, rounding, out.dtype, out.quant)
    if _is_one_matrix(right) and not adj_x:
        weights = _matmul_weights(right, adj_y=adj_y, quant=b.quant)
        acc = call("nn.dense", [_matmul_rows(left, a, span), weights], DenseAttrs(a_zp, b_zp, acc_dtype), span=span)
        shape = infer_batch_matmul([a, b], BatchMatmulAttrs(adj_x, adj_y)).shape
        return call("reshape", [call("qnn.requantize", [acc], requant, span=span)], ReshapeAttrs(shape), span=span)
    acc = call("nn.batch_matmul", [left, right], BatchMatmulAttrs(adj_x, adj_y, a_zp, b_zp, acc_dtype), span=span)
    return call("qnn.requantize", [acc], requant, span=span)


def _is_one_matrix(right: Expr) -> TypeGuard[Constant]:
    """Whether the right side is a constant with no leading dimensions other than 1."""
    return isinstance(right, Constant) and right.data.size == right.data.shape[-1] * right.data.shape[-2]


def _matmul_rows(left: Expr, a: TensorType, span: Span) -> Expr:
    """All rows of all matrices of the left side."""
    return call("reshape", [left], ReshapeAttrs((int(np.prod(a.shape[:-1])), a.shape[-1])), span=span)


def _matmul_weights(right: Constant, *, adj_y: bool, quant: QuantParams | None = None) -> Constant:
    """The matrix in the form of a fully connected layer: [N, K]."""
    matrix = right.data.reshape(right.data.shape[-2:])
    return const(np.ascontiguousarray(matrix if adj_y else matrix.T), quant=quant)


def _largest_code(dtype: str) -> int:
    return -int_range(dtype)[0]
