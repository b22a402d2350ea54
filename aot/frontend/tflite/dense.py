"""Converters of FULLY_CONNECTED and BATCH_MATMUL."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import prod
from typing import TypeGuard

import numpy as np

from aot.frontend.tflite.convert import Blocks, Operator, converter
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
from aot.ir.span import Span
from aot.ir.type import QuantParams, TensorType
from aot.numerics.fixed_point import quantize_multiplier, reduced_multiplier
from aot.op.nn.dense import (
    BLOCKWISE,
    MOST,
    BatchMatmulAttrs,
    DenseAttrs,
    DenseBlockwiseAttrs,
    DenseFloatAttrs,
    matrix_of,
    packed,
)
from aot.op.nn.dense import DENSE_FLOAT as DENSE_FLOAT_NAME
from aot.op.qnn.quantize import PARAMS, QUANTIZE, RANGE, DynamicParamsAttrs, DynamicQuantizeAttrs, RequantizeAttrs
from aot.op.tensor import ReshapeAttrs
from aot.relay.expr import Constant, Expr, call, const
from aot.support.dtype import int_range


@converter(
    "FULLY_CONNECTED",
    "int8*int8 int8*int4 int16*int8 int16*int4 uint8*uint8 float32*int4 float32*int8 float32*float32",
    "nn.dense nn.dense_float qnn.dense_blockwise qnn.dynamic_params qnn.dynamic_quantize qnn.dynamic_range qnn.hybrid_output",
    oracle="LiteRT, or TFLM with `--oracle tflm`",
)
@legacy_uint8
def _dense(op: Operator) -> Expr:
    """reshape to rows, dense + bias_add + requantize (+ clip), reshape to the output's shape."""
    blocks = op.ctx.blocks(op.view, 1)
    if blocks is not None:
        return _hybrid_dense(_NoScale(op.ctx, op.view)) if op.ctx.to_the_letter else convert_blockwise(op, blocks)
    if is_float_layer(op):
        return convert_dense_float(op)
    if is_hybrid_layer(op):
        return _hybrid_dense(op)
    data = op.operand(0)
    layer = check_quantized_layer(op, channel_axis=0)
    (rows, shape) = dense_shapes(op)
    data = op.reshaped(data, rows)
    attrs = DenseAttrs(layer.input_zp, layer.weight_zp, layer.acc_dtype)
    weight = running_weights(op)
    if weight is None:
        weight = layer_weights(op, layer, channel_axis=0)
    elif layer.flipped:
        op.refuse("weights computed at run time with a negative scale are not supported", code="E1226")
    acc = op.call("nn.dense", [data, weight], attrs)
    rounding = "once" if op.oracle == "litert" else "double"
    return op.reshaped(finish_layer(op, acc, layer=layer, rounding=rounding), shape)


class _NoScale(Operator):
    """Weights with per-block scales as LiteRT's reference kernel sees them: with a single scale that nobody has set."""

    def type(self, i: int, allowed: Collection[str] | None = None, *, what: str = "data") -> TensorType:
        type_ = super().type(i, allowed, what=what)
        return replace(type_, quant=QuantParams((0.0,), (0,))) if i == 1 else type_


def _hybrid_dense(op: Operator) -> Expr:
    """Float32 data with integer weights: rows, each quantised separately, and the output's shape."""
    (rows, shape) = dense_shapes(op)
    data = op.reshaped(op.operand(0), rows)
    result = convert_hybrid(
        op,
        lambda integers, weight: op.call("nn.dense", [integers, weight], DenseAttrs()),
        data=data,
        channel_axis=0,
        asymmetric=bool(op.option("asymmetric_quantize_inputs")),
    )
    return op.reshaped(result, shape)


def convert_dense_float(op: Operator) -> Expr:
    """FULLY_CONNECTED whose data, weights and result are float32: rows, dense, the output's shape."""
    rows, shape = dense_shapes(op)
    data, *others = layer_operands(op)
    result = op.call(DENSE_FLOAT_NAME, [op.reshaped(data, rows), *others], DenseFloatAttrs(*bounds(op)))
    return op.reshaped(result, shape)


def dense_shapes(op: Operator) -> tuple[tuple[int, int], tuple[int, ...]]:
    """FULLY_CONNECTED's data as rows, and the shape of its result: rows of channels, or with `keep_num_dims` like the data.

    If the file declares another shape with as many elements, that one is used: TFLite Micro's kernels ignore it.
    """
    if op.option("weights_format") != "DEFAULT":
        op.refuse(f"weight format {op.option('weights_format')} is not supported")
    data, weight, declared = op.type(0).shape, op.type(1).shape, op.result_shape()
    if len(weight) != 2:
        op.refuse(f"weights of {len(weight)} dimensions are not supported", code="E1207")
    channels, depth = weight
    rows, remainder = divmod(prod(data), depth)
    if remainder or (declared is not None and rows * channels != prod(declared)):
        op.refuse(f"data of {prod(data)} values does not match weights {list(weight)}", code="E1207")
    keep = op.option("keep_num_dims") and data[-1:] == (depth,)
    return (rows, depth), declared or ((*data[:-1], channels) if keep else (rows, channels))


def convert_blockwise(op: Operator, blocks: Blocks) -> Expr:
    """Rows, each quantised by itself, qnn.dense_blockwise, and the output's shape; called by the converter of FULLY_CONNECTED."""
    data, weight = op.type(0), op.type(1)
    if (data.dtype, weight.dtype, op.result_type().dtype) != ("float32", "int4", "float32"):
        op.refuse(f"blockwise quantisation of {weight.dtype} weights for {data.dtype} data is not supported", code="E1220")
    if op.option("fused_activation_function") != "NONE":
        op.refuse("blockwise quantisation with a fused activation is not supported (TFLite rejects it too)")
    if blocks.size % 2 or blocks.size > MOST:
        op.refuse(f"blocks of {blocks.size} weights are not supported; only even numbers up to {MOST}", code="E1220")
    (rows, shape) = dense_shapes(op)
    x = op.reshaped(op.operand(0), rows)
    params = op.call(PARAMS, [op.call(RANGE, [x])], DynamicParamsAttrs(True))
    integers = op.call(QUANTIZE, [x, params], DynamicQuantizeAttrs(True))
    args: list[Expr] = [integers, params, const(packed(op.constant(1))), const(blocks.scales)]
    bias = op.input(2)
    if bias is not None:
        if op.type(2).dtype != "float32":
            op.refuse(f"a bias of {op.type(2).dtype} is not supported with float32 data")
        args.append(bias)
    result = op.call(BLOCKWISE, args, DenseBlockwiseAttrs(blocks.size))
    return op.reshaped(result, shape)


_MATMUL_KINDS = (("int8", "int8", "int8"), ("int16", "int16", "int16"), ("int16", "int8", "int16"))


@converter("BATCH_MATMUL", "int8 int16 float32", "nn.batch_matmul")
def _batch_matmul(op: Operator) -> Expr:
    """batch_matmul, + requantize for integers; a fully connected layer if the right side is one constant matrix."""
    a, b, out = op.type(0), op.type(1), op.result_type()
    kind, span = (a.dtype, b.dtype, out.dtype), op.span
    adj_x, adj_y = bool(op.option("adj_x")), bool(op.option("adj_y"))
    left, right = op.operands(0, 1)
    if kind == ("float32",) * 3:
        attrs = BatchMatmulAttrs(adj_x, adj_y, acc_dtype="float32")
        if _is_one_matrix(right) and right.stored is None and not adj_x:
            dense = op.call(
                "nn.dense_float", [_matmul_rows(left, a, span), _matmul_weights(right, adj_y=adj_y)], DenseFloatAttrs()
            )
            return op.call("reshape", [dense], ReshapeAttrs(attrs.infer_type(a, b).shape))
        return op.call("nn.batch_matmul", [left, right], attrs)
    if kind not in _MATMUL_KINDS:
        op.refuse(f"{kind[0]} by {kind[1]} giving {kind[2]} is not supported", code="E1202")
    (scale_a, a_zp), (scale, zp) = op.quant(a, may_be_zero=True), op.quant(out, what="the result")
    # the reference ignores per-channel scales: its multiplier is then 0
    per_channel = b.quant is not None and len(b.quant.scale) > 1 and not any(b.quant.zero_point)
    scale_b, b_zp = (0.0, 0) if per_channel else op.quant(b, may_be_zero=True)
    if a.dtype == "int16" and (a_zp or b_zp or zp):
        op.refuse("int16 with a non-zero zero point is not supported (TFLite rejects it too)", code="E1224")
    depth = matrix_of(a.shape, adj_x)[1]
    acc_dtype = "int64" if a.dtype == "int16" and _largest_code(b.dtype) * depth << 15 >= 1 << 31 else "int32"
    real = op.real_multiplier(a.dtype, (scale_a, scale_b), (scale,))
    multiplier, shift = quantize_multiplier(real)
    rounding = "double"
    if a.dtype == "int16":
        multiplier, rounding = reduced_multiplier(multiplier), "single"
    low, high = int_range(out.dtype)
    requant = RequantizeAttrs((multiplier,), (shift,), zp, low, high, rounding, out.dtype, out.quant)
    if _is_one_matrix(right) and not adj_x:
        weights = _matmul_weights(right, adj_y=adj_y, quant=b.quant)
        acc = op.call("nn.dense", [_matmul_rows(left, a, span), weights], DenseAttrs(a_zp, b_zp, acc_dtype))
        shape = BatchMatmulAttrs(adj_x, adj_y).infer_type(a, b).shape
        return op.call("reshape", [op.call("qnn.requantize", [acc], requant)], ReshapeAttrs(shape))
    acc = op.call("nn.batch_matmul", [left, right], BatchMatmulAttrs(adj_x, adj_y, a_zp, b_zp, acc_dtype))
    return op.call("qnn.requantize", [acc], requant)


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
