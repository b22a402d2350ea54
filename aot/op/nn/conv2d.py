"""nn.conv2d: CONV_2D of TFLite on int8 or int16 data.

acc[n, y, x, o] = sum over ky, kx, i of w[o, ky, kx, i] * (data[n, y*sy + ky*dy - top, x*sx + kx*dx - left, i] -
input_zp), where data outside the image is `pad_value`.  Oracle: TFLite's reference kernels `ConvPerChannel` (int8,
int16) and `Conv` (uint8, shifted to int8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.conv_window import padded, spatial_shape, tap_value, window
from aot.op.common.float_layer import is_float_layer
from aot.op.common.quantized_layer import check_quantized_layer, finish_layer, layer_weights
from aot.op.common.uint8 import legacy_uint8
from aot.op.common.window import Window, explicit_padding
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.nn.conv2d_float import convert_float
from aot.op.nn.conv2d_groups import convert_groups
from aot.op.qnn.hybrid import convert_hybrid, is_hybrid_layer, is_symmetric_conv
from aot.op.te_rule import F_TE, TeContext
from aot.op.tensor.concatenate import ConcatenateAttrs
from aot.op.tensor.strided_slice import slice_of
from aot.relay.expr import Constant, Expr, call, const
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, reduce_axis, tensor_fn, wrapping
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr as TirExpr
from aot.tir.expr import cast


@dataclass(frozen=True, slots=True)
class Conv2DAttrs:
    """padding is (top, left, bottom, right); everything else is (vertical, horizontal)."""

    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int] = (1, 1)
    input_zp: int = 0
    pad_value: int = 0
    weight_zp: int = 0
    acc_dtype: str = "int32"


def infer_type(types: Sequence[Type], attrs: Conv2DAttrs) -> Type:
    """data [N, H, W, I], weight [O, KH, KW, I] -> attrs.acc_dtype [N, H', W', O]."""
    data, weight = types
    if not isinstance(data, TensorType) or not isinstance(weight, TensorType) or len(data.shape) != 4 or len(weight.shape) != 4:
        raise TypeRuleError(f"conv2d takes 4-D data and weights, not {data} and {weight}")
    if data.shape[3] != weight.shape[3]:
        raise TypeRuleError(f"{data.shape[3]} input channels, but weights for {weight.shape[3]}")
    height, width = spatial_shape(data, weight.shape[1:3], attrs)
    if height <= 0 or width <= 0:
        raise TypeRuleError(f"the window {weight.shape[1:3]} is larger than the padded image")
    return TensorType((data.shape[0], height, width, weight.shape[0]), attrs.acc_dtype)


def evaluate(data: Array, weight: Array, *, attrs: Conv2DAttrs, out_type: TensorType) -> Array:
    x = padded(data, attrs)
    w = weight.astype(np.float64) - attrs.weight_zp
    n, height, width, channels = out_type.shape
    acc = np.zeros((n * height * width, channels), np.float64)
    for ky in range(weight.shape[1]):
        for kx in range(weight.shape[2]):
            acc += window(x, ky, kx, attrs=attrs, height=height, width=width).reshape(-1, x.shape[3]) @ w[:, ky, kx, :].T
    return acc.astype(np.int64).astype(out_type.dtype).reshape(out_type.shape)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: Conv2DAttrs, out_type: TensorType) -> TensorFn:
    data, weight = args
    wide = wrapping(attrs.acc_dtype)
    _, kh, kw, channels = weight.shape

    def rule(b: IRBuilder, n: TirExpr, y: TirExpr, x: TirExpr, o: TirExpr) -> TirExpr:
        def term(ky: TirExpr, kx: TirExpr, i: TirExpr) -> TirExpr:
            tap = tap_value(b, data, (n, y, x, i), tap=(ky, kx), attrs=attrs)
            w = cast("int32", weight.at(b, (o, ky, kx, i))) - attrs.weight_zp
            return cast(wide, w) * cast(wide, tap)

        axes = [reduce_axis(kh, name="ky"), reduce_axis(kw, name="kx"), reduce_axis(channels, name="i")]
        return cast(attrs.acc_dtype, te_sum(b, axes, term, dtype=wide))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


@from_tflite(
    "CONV_2D",
    "int8*int8 int8*int4 int16*int8 int16*int4 uint8*uint8 float32*int4 float32*int8 float32*float32",
    "nn.conv2d nn.conv2d_float qnn.dynamic_params qnn.dynamic_quantize qnn.dynamic_range qnn.hybrid_output",
)
@legacy_uint8
def convert(ctx: ConvertContext, op: OperatorView) -> Expr:
    """conv2d + bias_add + requantize (+ clip); with fewer weight channels than data channels, in groups."""
    if is_float_layer(ctx, op):
        return convert_float(ctx, op)
    if is_hybrid_layer(ctx, op):
        return _convert_hybrid(ctx, op)
    layer = check_quantized_layer(ctx, op, channel_axis=0)
    groups, attrs = _geometry(ctx, op)
    zp = layer.input_zp
    attrs = replace(attrs, input_zp=zp, pad_value=zp, weight_zp=layer.weight_zp, acc_dtype=layer.acc_dtype)
    args = operand(ctx, op, 0), layer_weights(ctx, op, layer, channel_axis=0)
    if groups > 1:
        return convert_groups(ctx, op, layer, args=args, attrs=attrs)
    return finish_layer(ctx, op, call("nn.conv2d", args, attrs, span=ctx.span(op)), layer=layer, rounding="double")


def _geometry(ctx: ConvertContext, op: OperatorView) -> tuple[int, Conv2DAttrs]:
    """The number of groups, and the window."""
    shape, weight = ctx.input_type(op, 0).shape, ctx.input_type(op, 1).shape
    if len(shape) != 4 or len(weight) != 4:
        unsupported(ctx, op, "data and weights must have four dimensions")
    groups = shape[3] // max(weight[3], 1)
    if groups == 0 or shape[3] != groups * weight[3] or weight[0] % groups:
        message = f"{shape[3]} data channels, {weight[3]} and {weight[0]} of the weights do not form groups"
        unsupported(ctx, op, message, code="E1207")
    strides = (op.option("stride_h"), op.option("stride_w"))
    dilation = (op.option("dilation_h_factor"), op.option("dilation_w_factor"))
    pads = explicit_padding(op.option("padding"), Window(shape[1:3], weight[1:3], strides, dilation))
    return groups, Conv2DAttrs(strides, pads, dilation)


def _convert_hybrid(ctx: ConvertContext, op: OperatorView) -> Expr:
    """Float32 data with integer weights: each image is quantised as a whole; groups side by side."""
    groups, attrs = _geometry(ctx, op)
    shape, span = ctx.input_type(op, 0).shape, ctx.span(op)
    depth, symmetric = shape[3] // groups, is_symmetric_conv(ctx, op)

    def layer(integers: Expr, weight: Constant) -> Expr:
        if groups == 1:
            return call("nn.conv2d", [integers, weight], attrs, span=span)
        parts = []
        for group, filters in enumerate(np.split(weight.data, groups)):
            channels = range(group * depth, (group + 1) * depth)
            data = slice_of(ctx, op, integers, (*map(range, shape[:3]), channels))
            parts.append(call("nn.conv2d", [data, const(filters)], attrs, span=span))
        return call("concatenate", parts, ConcatenateAttrs(3), span=span)

    return convert_hybrid(
        ctx,
        op,
        layer,
        data=operand(ctx, op, 0),
        channel_axis=0,
        asymmetric=not symmetric,
        weight_first=not symmetric,
    )


register_op(
    "nn.conv2d",
    2,
    arguments=[
        ("data", "int8, int16 [N, H, W, I]", "the image"),
        ("weight", "int8, int4 [O, KH, KW, I]", "one filter for each output channel"),
    ],
    attrs_type=Conv2DAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="CONV_2D; int8, int16 x int8, int8 x int4, uint8; per-tensor and per-channel, also in groups",
)
F_TE.set("nn.conv2d", te_rule)
