"""Convolutions, plain and depthwise, of integers and of float32, and bias_add."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.op.common.float_layer import FloatWindow, check_layer, np_layer, tir_layer
from aot.op.common.operator import Index, operator
from aot.op.common.window import Padding, Windowed
from aot.te.tensor import TensorFn, reduce_axis, wrapping
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, logical_and, select


class IntegerWindow(Windowed):
    """Attributes of a convolution of integers, whose data is `pad_value` outside the image."""

    __slots__ = ()

    input_zp: int
    pad_value: int
    weight_zp: int
    acc_dtype: str

    def result_type(self, data: TensorType, weight: TensorType, channels: int) -> TensorType:
        """attrs.acc_dtype [N, H', W', channels]; TypeRuleError if the window does not fit."""
        return TensorType((data.shape[0], *self.extents(data.shape[1:3], weight.shape[1:3]), channels), self.acc_dtype)

    def centred(self, data: Array) -> Array:
        """data - input_zp with the border added, as int64-exact float64 for BLAS."""
        return np.asarray(self.padded(data.astype(np.float64), self.pad_value) - self.input_zp)

    def total(
        self, b: IRBuilder, index: Index, args: Sequence[TensorFn], extents: Sequence[int], at: Callable[..., tuple[Expr, Index]]
    ) -> Expr:
        """The sum of products at [n, y, x, o] over ky, kx, perhaps i; `at(ky, kx, i)`: the data's channel, the weight's index."""
        data, weight = args
        wide = wrapping(self.acc_dtype)

        def term(*tap: Expr) -> Expr:
            channel, place = at(*tap)
            row, column = self.source(index[1:3], tap)
            value = cast("int32", data.at(b, (index[0], row, column, channel)))
            if any(self.padding):
                rows = logical_and(row >= 0, row < data.shape[1])
                columns = logical_and(column >= 0, column < data.shape[2])
                value = select(logical_and(rows, columns), value, imm(self.pad_value))
            value = value - self.input_zp
            w = cast("int32", weight.at(b, place)) - self.weight_zp
            return cast(wide, w) * cast(wide, value)

        axes = [reduce_axis(extent, name=name) for extent, name in zip(extents, ("ky", "kx", "i"), strict=False)]
        return cast(self.acc_dtype, te_sum(b, axes, term, dtype=wide))


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
class Conv2DAttrs(IntegerWindow):
    """padding is (top, left, bottom, right); everything else is (vertical, horizontal)."""

    strides: tuple[int, int]
    padding: Padding
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
        return self.result_type(data, weight, weight.shape[0])

    def evaluate(self, data: Array, weight: Array, *, out_type: TensorType) -> Array:
        w = weight.astype(np.float64) - self.weight_zp
        acc = np.zeros((out_type.size // len(weight), len(weight)), np.float64)
        for ky, kx, part in self.taps(self.centred(data), weight.shape[1:3], out_type):
            acc += part.reshape(-1, data.shape[3]) @ w[:, ky, kx, :].T
        return acc.astype(np.int64).astype(out_type.dtype).reshape(out_type.shape)

    def element(self, b: IRBuilder, index: Index, data: TensorFn, weight: TensorFn, *, out_type: TensorType) -> Expr:
        return self.total(b, index, (data, weight), weight.shape[1:], lambda ky, kx, i: (i, (index[3], ky, kx, i)))


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
class DepthwiseConv2DAttrs(IntegerWindow):
    """As Conv2DAttrs; `multiplier` output channels per input channel."""

    strides: tuple[int, int]
    padding: Padding
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
        return self.result_type(data, weight, weight.shape[3])

    def evaluate(self, data: Array, weight: Array, *, out_type: TensorType) -> Array:
        acc = np.zeros(out_type.shape, np.float64)
        for ky, kx, part in self.taps(self.centred(data), weight.shape[1:3], out_type):
            acc += np.repeat(part, self.multiplier, axis=3) * (weight[0, ky, kx, :].astype(np.float64) - self.weight_zp)
        return acc.astype(np.int64).astype(out_type.dtype)

    def element(self, b: IRBuilder, index: Index, data: TensorFn, weight: TensorFn, *, out_type: TensorType) -> Expr:
        o = index[3]
        return self.total(b, index, (data, weight), weight.shape[1:3], lambda *tap: (o // self.multiplier, (imm(0), *tap, o)))


# nn.bias_add: an int32 bias for each index of the last axis.
@operator(
    "nn.bias_add",
    "adds a bias to each channel; part of convolutions and fully connected layers",
    [("data", "int32, int64 [..., C]", "the sums of a layer"), ("bias", "as data [C]", "one value for each channel")],
    OpPattern.BROADCAST,
    has_attributes=False,
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


CONV2D_FLOAT, DEPTHWISE_FLOAT = "nn.conv2d_float", "nn.depthwise_conv2d_float"


# nn.conv2d_float: CONV_2D of TFLite on float32, also grouped.
#
# out[n, y, x, o] = clamp(sum over ky, kx, i of data[n, .., .., group*I + i] * w[o, ky, kx, i] + bias[o]), in this order.
# Oracle: `reference_ops::Conv` of float.
@operator(
    CONV2D_FLOAT,
    "CONV_2D; float32, also in groups",
    [
        ("data", "float32 [N, H, W, I]", "the image"),
        ("weight", "float32 [O, KH, KW, I]", "one filter for each output channel"),
        ("bias?", "float32 [O]", "what is added to each output channel"),
    ],
    OpPattern.OUT_ELEMWISE_FUSABLE,
)
class Conv2DFloatAttrs(FloatWindow):
    """The weights say in how many groups the channels are."""

    def infer_type(self, data: TensorType, weight: TensorType, *bias: TensorType) -> Type:
        """data [N, H, W, G*I], weight [O, KH, KW, I], bias [O] -> float32 [N, H', W', O]; O is a multiple of the groups G."""
        check_layer((data, weight, *bias), CONV2D_FLOAT, rank=4, channel_axis=0)
        result = self.result_type(data, weight, weight.shape[0])
        groups, remainder = divmod(data.shape[3], weight.shape[3])
        if remainder or not groups or weight.shape[0] % groups:
            raise TypeRuleError(f"weights {weight} do not match {data.shape[3]} channels")
        return result

    def evaluate(self, data: Array, weight: Array, *bias: Array, out_type: TensorType) -> Array:
        depth = weight.shape[3]
        groups = data.shape[3] // depth
        first = np.repeat(np.arange(groups) * depth, weight.shape[0] // groups)  # first input channel of each output channel
        taps = self.taps(self.padded(data), weight.shape[1:3], out_type)
        products = (under[..., first + i] * weight[:, ky, kx, i] for ky, kx, under in taps for i in range(depth))
        return np_layer(products, bias, attrs=self, out_type=out_type)

    def element(
        self, b: IRBuilder, index: Index, data: TensorFn, weight: TensorFn, *bias: TensorFn, out_type: TensorType
    ) -> Expr:
        channels, *kernel, depth = weight.shape
        each = channels * depth // data.shape[3]  # output channels of a group
        o = index[3]

        def product(ky: Expr, kx: Expr, i: Expr) -> Expr:
            channel = i if each == channels else o // each * depth + i
            return self.tap(b, data, index, channel, at=(ky, kx)) * weight.at(b, (o, ky, kx, i))

        axes = [*self.tap_axes(b, index[1:3], data.shape[1:3], kernel), reduce_axis(depth, name="i")]
        return tir_layer(b, axes, product, bias=bias, channel=o, attrs=self)


# nn.depthwise_conv2d_float: DEPTHWISE_CONV_2D of TFLite on float32.
#
# out[n, y, x, o] = clamp(sum over ky, kx of data[n, .., .., o / M] * w[0, ky, kx, o] + bias[o]), in this order, in float32.
# Oracle: `reference_ops::DepthwiseConv` of float.
@operator(
    DEPTHWISE_FLOAT,
    "DEPTHWISE_CONV_2D; float32, any channel multiplier",
    [
        ("data", "float32 [N, H, W, C]", "the image"),
        ("weight", "float32 [1, KH, KW, C*M]", "M filters for each channel"),
        ("bias?", "float32 [C*M]", "what is added to each output channel"),
    ],
    OpPattern.OUT_ELEMWISE_FUSABLE,
)
class DepthwiseConv2DFloatAttrs(FloatWindow):
    """The weights say how many output channels an input channel has."""

    def infer_type(self, data: TensorType, weight: TensorType, *bias: TensorType) -> Type:
        """data [N, H, W, C], weight [1, KH, KW, C*M], bias [C*M] -> float32 [N, H', W', C*M]."""
        check_layer((data, weight, *bias), DEPTHWISE_FLOAT, rank=4, channel_axis=3)
        result = self.result_type(data, weight, weight.shape[3])
        if weight.shape[0] != 1 or weight.shape[3] % data.shape[3]:
            raise TypeRuleError(f"weights {weight} do not match {data.shape[3]} channels")
        return result

    def evaluate(self, data: Array, weight: Array, *bias: Array, out_type: TensorType) -> Array:
        multiplier = weight.shape[3] // data.shape[3]
        taps = self.taps(self.padded(data), weight.shape[1:3], out_type)
        products = (np.repeat(under, multiplier, axis=3) * weight[0, ky, kx] for ky, kx, under in taps)
        return np_layer(products, bias, attrs=self, out_type=out_type)

    def element(
        self, b: IRBuilder, index: Index, data: TensorFn, weight: TensorFn, *bias: TensorFn, out_type: TensorType
    ) -> Expr:
        o, multiplier = index[3], weight.shape[3] // data.shape[3]

        def product(ky: Expr, kx: Expr) -> Expr:
            return self.tap(b, data, index, o // multiplier, at=(ky, kx)) * weight.at(b, (imm(0), ky, kx, o))

        axes = self.tap_axes(b, index[1:3], data.shape[1:3], weight.shape[1:3])
        return tir_layer(b, axes, product, bias=bias, channel=o, attrs=self)
