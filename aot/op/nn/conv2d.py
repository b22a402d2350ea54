"""Convolutions, plain and depthwise, of integers and of float32, and bias_add."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.op.common.float_layer import FloatWindowAttrs, np_layer, np_taps, tap, te_window, window_types
from aot.op.common.operator import Index, operator, register
from aot.op.common.te_rule import TeContext
from aot.op.common.window import padded, spatial_shape, tap_value, window
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, reduce_axis, wrapping
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm


# nn.conv2d: CONV_2D of TFLite on int8 or int16 data.
#
# acc[n, y, x, o] = sum over ky, kx, i of w[o, ky, kx, i] * (data[n, y*sy + ky*dy - top, x*sx + kx*dx - left, i] -
# input_zp), where data outside the image is `pad_value`.  Oracle: TFLite's reference kernels `ConvPerChannel` (int8,
# int16) and `Conv` (uint8, shifted to int8).
@operator(
    "nn.conv2d",
    "CONV_2D; int8, int16 x int8, int8 x int4, uint8; per-tensor and per-channel, also in groups",
    [
        ("data", "int8, int16 [N, H, W, I]", "the image"),
        ("weight", "int8, int4 [O, KH, KW, I]", "one filter for each output channel"),
    ],
    OpPattern.OUT_ELEMWISE_FUSABLE,
)
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

    def infer_type(self, data: TensorType, weight: TensorType) -> Type:
        """data [N, H, W, I], weight [O, KH, KW, I] -> attrs.acc_dtype [N, H', W', O]."""
        if len(data.shape) != 4 or len(weight.shape) != 4:
            raise TypeRuleError(f"conv2d needs 4-D data and weights, not {data} and {weight}")
        if data.shape[3] != weight.shape[3]:
            raise TypeRuleError(f"{data.shape[3]} input channels, but weights for {weight.shape[3]}")
        height, width = spatial_shape(data, weight.shape[1:3], self)
        if height <= 0 or width <= 0:
            raise TypeRuleError(f"the window {weight.shape[1:3]} is larger than the padded image")
        return TensorType((data.shape[0], height, width, weight.shape[0]), self.acc_dtype)

    def evaluate(self, data: Array, weight: Array, *, out_type: TensorType) -> Array:
        x = padded(data, self)
        w = weight.astype(np.float64) - self.weight_zp
        n, height, width, channels = out_type.shape
        acc = np.zeros((n * height * width, channels), np.float64)
        for ky in range(weight.shape[1]):
            for kx in range(weight.shape[2]):
                acc += window(x, ky, kx, attrs=self, height=height, width=width).reshape(-1, x.shape[3]) @ w[:, ky, kx, :].T
        return acc.astype(np.int64).astype(out_type.dtype).reshape(out_type.shape)

    def element(self, b: IRBuilder, index: Index, data: TensorFn, weight: TensorFn, *, out_type: TensorType) -> Expr:
        n, y, x, o = index
        wide = wrapping(self.acc_dtype)
        _, kh, kw, channels = weight.shape

        def term(ky: Expr, kx: Expr, i: Expr) -> Expr:
            tap = tap_value(b, data, (n, y, x, i), tap=(ky, kx), attrs=self)
            w = cast("int32", weight.at(b, (o, ky, kx, i))) - self.weight_zp
            return cast(wide, w) * cast(wide, tap)

        axes = [reduce_axis(kh, name="ky"), reduce_axis(kw, name="kx"), reduce_axis(channels, name="i")]
        return cast(self.acc_dtype, te_sum(b, axes, term, dtype=wide))


# nn.depthwise_conv2d: DEPTHWISE_CONV_2D of TFLite, any channel multiplier.
#
# acc[n, y, x, c*M + m] = sum over ky, kx of w[0, ky, kx, c*M + m] * (data[n, .., .., c] - input_zp); see conv2d for the window.
# Oracle: TFLite's reference kernels `DepthwiseConvPerChannel` (int8, int16) and `DepthwiseConv` (uint8, shifted to int8).
@operator(
    "nn.depthwise_conv2d",
    "DEPTHWISE_CONV_2D; int8, int16 x int8, int8 x int4, uint8; any channel multiplier",
    [("data", "int8, int16 [N, H, W, C]", "the image"), ("weight", "int8, int4 [1, KH, KW, C*M]", "M filters for each channel")],
    OpPattern.OUT_ELEMWISE_FUSABLE,
)
@dataclass(frozen=True, slots=True)
class DepthwiseConv2DAttrs:
    """As Conv2DAttrs; `multiplier` output channels per input channel."""

    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int] = (1, 1)
    input_zp: int = 0
    pad_value: int = 0
    multiplier: int = 1
    weight_zp: int = 0
    acc_dtype: str = "int32"

    def infer_type(self, data: TensorType, weight: TensorType) -> Type:
        """data [N, H, W, C], weight [1, KH, KW, C*M] -> attrs.acc_dtype [N, H', W', C*M]."""
        if len(data.shape) != 4 or len(weight.shape) != 4:
            raise TypeRuleError(f"depthwise_conv2d needs 4-D data and weights, not {data} and {weight}")
        if weight.shape[0] != 1 or weight.shape[3] != data.shape[3] * self.multiplier:
            raise TypeRuleError(f"weights {weight} do not match {data.shape[3]} channels with multiplier {self.multiplier}")
        height, width = spatial_shape(data, weight.shape[1:3], self)
        if height <= 0 or width <= 0:
            raise TypeRuleError(f"the window {weight.shape[1:3]} is larger than the padded image")
        return TensorType((data.shape[0], height, width, weight.shape[3]), self.acc_dtype)

    def evaluate(self, data: Array, weight: Array, *, out_type: TensorType) -> Array:
        x = padded(data, self)
        _, height, width, _ = out_type.shape
        acc = np.zeros(out_type.shape, np.float64)
        for ky in range(weight.shape[1]):
            for kx in range(weight.shape[2]):
                taps = window(x, ky, kx, attrs=self, height=height, width=width)
                acc += np.repeat(taps, self.multiplier, axis=3) * (weight[0, ky, kx, :].astype(np.float64) - self.weight_zp)
        return acc.astype(np.int64).astype(out_type.dtype)

    def element(self, b: IRBuilder, index: Index, data: TensorFn, weight: TensorFn, *, out_type: TensorType) -> Expr:
        n, y, x, o = index
        wide = wrapping(self.acc_dtype)
        _, kh, kw, _ = weight.shape

        def term(ky: Expr, kx: Expr) -> Expr:
            tap = tap_value(b, data, (n, y, x, o // self.multiplier), tap=(ky, kx), attrs=self)
            w = cast("int32", weight.at(b, (imm(0), ky, kx, o))) - self.weight_zp
            return cast(wide, w) * cast(wide, tap)

        return cast(self.acc_dtype, te_sum(b, [reduce_axis(kh, name="ky"), reduce_axis(kw, name="kx")], term, dtype=wide))


# nn.bias_add: an int32 bias for each index of the last axis.
@operator(
    "nn.bias_add",
    "adds a bias to each channel; part of convolutions and fully connected layers",
    [("data", "int32, int64 [..., C]", "the sums of a layer"), ("bias", "as data [C]", "one value for each channel")],
    OpPattern.BROADCAST,
)
class BiasAdd:
    """No attributes."""

    def infer_type(self, data: TensorType, bias: TensorType) -> Type:
        """data [..., C] and bias [C] of one integer type -> the type of data."""
        if bias.shape != (data.shape[-1],) or bias.dtype != data.dtype:
            raise TypeRuleError(f"a bias of {bias} does not match {data}")
        return data

    def evaluate(self, data: Array, bias: Array, *, out_type: TensorType) -> Array:
        return (data.astype(np.int64) + bias).astype(data.dtype)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, bias: TensorFn, *, out_type: TensorType) -> Expr:
        dtype, wide = out_type.dtype, wrapping(out_type.dtype)
        return cast(dtype, cast(wide, data.at(b, i)) + cast(wide, bias.at(b, i[-1:])))


# nn.conv2d_float: CONV_2D of TFLite on float32, also grouped.
#
# out[n, y, x, o] = clamp(sum over ky, kx, i of data[n, .., .., group*I + i] * w[o, ky, kx, i] + bias[o]), in this order.
# Oracle: `reference_ops::Conv` of float.


CONV2D_FLOAT = "nn.conv2d_float"


def infer_conv2d_float(types: Sequence[Type], attrs: FloatWindowAttrs) -> Type:
    """data [N, H, W, G*I], weight [O, KH, KW, I], bias [O] -> float32 [N, H', W', O]; O is a multiple of the groups G."""
    data, weight, result = window_types(types, attrs, CONV2D_FLOAT, channels=lambda w: w.shape[0])
    groups, remainder = divmod(data.shape[3], weight.shape[3])
    if remainder or not groups or weight.shape[0] % groups:
        raise TypeRuleError(f"weights {weight} do not match {data.shape[3]} channels")
    return result


def evaluate_conv2d_float(data: Array, weight: Array, *bias: Array, attrs: FloatWindowAttrs, out_type: TensorType) -> Array:
    depth = weight.shape[3]
    groups = data.shape[3] // depth
    first = np.repeat(np.arange(groups) * depth, weight.shape[0] // groups)  # first input channel of each output channel
    taps = np_taps(data, weight.shape[1:3], attrs, out_type)
    products = (under[..., first + i] * weight[:, ky, kx, i] for ky, kx, under in taps for i in range(depth))
    return np_layer(products, bias, attrs=attrs, out_type=out_type)


def te_conv2d_float(_ctx: TeContext, args: Sequence[TensorFn], attrs: FloatWindowAttrs, out_type: TensorType) -> TensorFn:
    data, weight, *_ = args
    channels, _, _, depth = weight.shape
    each = channels * depth // data.shape[3]  # output channels of a group

    def product(b: IRBuilder, position: tuple[Expr, Expr, Expr, Expr], ky: Expr, kx: Expr, i: Expr) -> Expr:
        n, y, x, o = position
        channel = i if each == channels else o // each * depth + i
        return tap(b, data, (n, y, x, channel), at=(ky, kx), attrs=attrs) * weight.at(b, (o, ky, kx, i))

    return te_window(args, product, attrs=attrs, out_type=out_type, depth=depth)


register(
    CONV2D_FLOAT,
    "CONV_2D; float32, also in groups",
    [
        ("data", "float32 [N, H, W, I]", "the image"),
        ("weight", "float32 [O, KH, KW, I]", "one filter for each output channel"),
        ("bias?", "float32 [O]", "what is added to each output channel"),
    ],
    OpPattern.OUT_ELEMWISE_FUSABLE,
    attrs=FloatWindowAttrs,
    infer_type=infer_conv2d_float,
    evaluate=evaluate_conv2d_float,
    te=te_conv2d_float,
)


# nn.depthwise_conv2d_float: DEPTHWISE_CONV_2D of TFLite on float32.
#
# out[n, y, x, o] = clamp(sum over ky, kx of data[n, .., .., o / M] * w[0, ky, kx, o] + bias[o]), in this order, in float32.
# Oracle: `reference_ops::DepthwiseConv` of float.


DEPTHWISE_FLOAT = "nn.depthwise_conv2d_float"


def infer_depthwise_float(types: Sequence[Type], attrs: FloatWindowAttrs) -> Type:
    """data [N, H, W, C], weight [1, KH, KW, C*M], bias [C*M] -> float32 [N, H', W', C*M]."""
    data, weight, result = window_types(types, attrs, DEPTHWISE_FLOAT, channels=lambda w: w.shape[3])
    if weight.shape[0] != 1 or weight.shape[3] % data.shape[3]:
        raise TypeRuleError(f"weights {weight} do not match {data.shape[3]} channels")
    return result


def evaluate_depthwise_float(data: Array, weight: Array, *bias: Array, attrs: FloatWindowAttrs, out_type: TensorType) -> Array:
    multiplier = weight.shape[3] // data.shape[3]
    taps = np_taps(data, weight.shape[1:3], attrs, out_type)
    products = (np.repeat(under, multiplier, axis=3) * weight[0, ky, kx] for ky, kx, under in taps)
    return np_layer(products, bias, attrs=attrs, out_type=out_type)


def te_depthwise_float(_ctx: TeContext, args: Sequence[TensorFn], attrs: FloatWindowAttrs, out_type: TensorType) -> TensorFn:
    data, weight, *_ = args
    multiplier = weight.shape[3] // data.shape[3]

    def product(b: IRBuilder, position: tuple[Expr, Expr, Expr, Expr], ky: Expr, kx: Expr) -> Expr:
        n, y, x, o = position
        value = tap(b, data, (n, y, x, o // multiplier), at=(ky, kx), attrs=attrs)
        return value * weight.at(b, (imm(0), ky, kx, o))

    return te_window(args, product, attrs=attrs, out_type=out_type)


register(
    DEPTHWISE_FLOAT,
    "DEPTHWISE_CONV_2D; float32, any channel multiplier",
    [
        ("data", "float32 [N, H, W, C]", "the image"),
        ("weight", "float32 [1, KH, KW, C*M]", "M filters for each channel"),
        ("bias?", "float32 [C*M]", "what is added to each output channel"),
    ],
    OpPattern.OUT_ELEMWISE_FUSABLE,
    attrs=FloatWindowAttrs,
    infer_type=infer_depthwise_float,
    evaluate=evaluate_depthwise_float,
    te=te_depthwise_float,
)
