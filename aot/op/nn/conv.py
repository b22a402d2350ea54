"""Convolutions: plain, depthwise, transposed and three-dimensional, of integers, float32, and hybrid; bias_add."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.op.common.layer import Bounds, FloatWindow, Padding, Windowed, check_layer, np_layer, tir_layer
from aot.op.common.operator import Index, operator
from aot.support.dataclass import dataclass
from aot.te.tensor import IterVar, TensorFn, reduce_axis, wrapping
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, equal, imm, logical_and, maximum, minimum, select


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
FLOAT_OPERANDS = [
    ("data", "float32 [N, H, W, I]", "the image"),
    ("weight", "float32 [O, KH, KW, I]", "one filter for each output channel"),
    ("bias?", "float32 [O]", "what is added to each output channel"),
]


# nn.conv2d_float: CONV_2D of TFLite on float32, also grouped.
#
# out[n, y, x, o] = clamp(sum over ky, kx, i of data[n, .., .., group*I + i] * w[o, ky, kx, i] + bias[o]), in this order.
# Oracle: `reference_ops::Conv` of float.
@operator(
    CONV2D_FLOAT,
    "CONV_2D; float32, also in groups",
    FLOAT_OPERANDS,
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

    def element(self, b: IRBuilder, index: Index, *args: TensorFn, out_type: TensorType) -> Expr:
        data, weight, *bias = args
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

    def element(self, b: IRBuilder, index: Index, *args: TensorFn, out_type: TensorType) -> Expr:
        data, weight, *bias = args
        o, multiplier = index[3], weight.shape[3] // data.shape[3]

        def product(ky: Expr, kx: Expr) -> Expr:
            return self.tap(b, data, index, o // multiplier, at=(ky, kx)) * weight.at(b, (imm(0), ky, kx, o))

        axes = self.tap_axes(b, index[1:3], data.shape[1:3], weight.shape[1:3])
        return tir_layer(b, axes, product, bias=bias, channel=o, attrs=self)


@dataclass(frozen=True, slots=True)
class TransposedTaps:
    """Taps rest + stride*t, t from first to last, of one output coordinate; tap t reads coordinate quotient - t."""

    quotient: Expr
    rest: Expr
    first: Expr
    last: Expr


class Transposed:
    """Attributes of a transposed convolution: (vertical, horizontal) strides, cut at the top and the left, size of the output."""

    __slots__ = ()

    strides: tuple[int, int]
    padding: tuple[int, int]
    size: tuple[int, int]

    def shape_of(self, data: TensorType, weight: TensorType) -> tuple[int, ...]:
        """[N, *size, O]; TypeRuleError if an attribute is not valid."""
        if min(*self.strides, *self.size) < 1 or min(self.padding) < 0:
            raise TypeRuleError(f"strides {self.strides}, padding {self.padding}, size {self.size}")
        return data.shape[0], *self.size, weight.shape[0]

    def taps(self, b: IRBuilder, index: Index, data: TensorFn, weight: TensorFn) -> list[TransposedTaps]:
        """The taps along both axes that contribute to the output at `index`."""
        found = []
        geometry = zip(data.shape[1:3], weight.shape[1:3], self.strides, self.padding, strict=True)
        for position, (size, kernel, stride, cut) in zip(index[1:3], geometry, strict=True):
            shifted = b.let("shifted", position + cut)
            quotient, rest = b.let("quotient", shifted // stride), b.let("rest", shifted % stride)
            count = (rest * -1 + (kernel + stride - 1)) // stride  # of taps from rest on, none where rest is beyond the window
            first = b.let("first", maximum(quotient - (size - 1), 0))
            found.append(TransposedTaps(quotient, rest, first, b.let("last", minimum(quotient + 1, count))))
        return found


# nn.conv2d_transpose: TRANSPOSE_CONV of TFLite: each input pixel adds a window of products to the output.
#
# acc[n, y, x, o] = sum over ky, kx, i of w[o, ky, kx, i] * (data[n, (y + top - ky) / sy, (x + left - kx) / sx, i] -
# input_zp), over the taps for which both quotients are whole and inside the image.  Oracle:
# `reference_integer_ops::TransposeConv`.
@operator(
    "nn.conv2d_transpose",
    "TRANSPOSE_CONV; int8, int16 x int8, uint8",
    [("data", "int8, int16 [N, H, W, I]", "the image"), ("weight", "int8 [O, KH, KW, I]", "one filter for each output channel")],
    OpPattern.OUT_ELEMWISE_FUSABLE,
)
class Conv2DTransposeAttrs(Transposed):
    """(vertical, horizontal) strides, rows and columns cut off at the top and the left, and the output's height and width."""

    strides: tuple[int, int]
    padding: tuple[int, int]
    size: tuple[int, int]
    input_zp: int = 0
    weight_zp: int = 0
    acc_dtype: str = "int32"

    def infer_type(self, data: TensorType, weight: TensorType) -> Type:
        """data [N, H, W, I], weight [O, KH, KW, I] -> attrs.acc_dtype [N, *attrs.size, O]."""
        if len(data.shape) != 4 or len(weight.shape) != 4:
            raise TypeRuleError(f"conv2d_transpose needs 4-D data and weights, not {data} and {weight}")
        if data.shape[3] != weight.shape[3]:
            raise TypeRuleError(f"{data.shape[3]} input channels, but weights for {weight.shape[3]}")
        return TensorType(self.shape_of(data, weight), self.acc_dtype)

    def evaluate(self, data: Array, weight: Array, *, out_type: TensorType) -> Array:
        x, w = data.astype(np.float64) - self.input_zp, weight.astype(np.float64) - self.weight_zp
        (n, height, width, _), (channels, kh, kw, _) = data.shape, weight.shape
        (sy, sx), (top, left) = self.strides, self.padding
        rows = max((height - 1) * sy + kh, top + self.size[0])
        columns = max((width - 1) * sx + kw, left + self.size[1])
        whole = np.zeros((n, rows, columns, channels))
        for ky in range(kh):
            for kx in range(kw):
                whole[:, ky : ky + (height - 1) * sy + 1 : sy, kx : kx + (width - 1) * sx + 1 : sx] += x @ w[:, ky, kx].T
        result = whole[:, top : top + self.size[0], left : left + self.size[1]]
        return result.astype(np.int64).astype(out_type.dtype)

    def element(self, b: IRBuilder, index: Index, data: TensorFn, weight: TensorFn, *, out_type: TensorType) -> Expr:
        n, _, _, o = index
        wide, (sy, sx) = wrapping(self.acc_dtype), self.strides
        row, column = self.taps(b, index, data, weight)

        def term(ty: Expr, tx: Expr, i: Expr) -> Expr:
            w = weight.at(b, (o, row.rest + ty * sy, column.rest + tx * sx, i))
            value = data.at(b, (n, row.quotient - ty, column.quotient - tx, i))
            left_side = cast("int32", w) - self.weight_zp
            return cast(wide, left_side) * cast(wide, cast("int32", value) - self.input_zp)

        axes = [
            reduce_axis(row.last, start=row.first, name="ty"),
            reduce_axis(column.last, start=column.first, name="tx"),
            reduce_axis(weight.shape[3], name="i"),
        ]
        return cast(self.acc_dtype, te_sum(b, axes, term, dtype=wide))


FLOAT_TRANSPOSE, HYBRID_TRANSPOSE = "nn.conv2d_transpose_float", "qnn.conv2d_transpose_hybrid"


@dataclass(frozen=True, slots=True)
class FloatTransposed(Transposed):
    """(vertical, horizontal) strides, the cut at the top and the left, the output's height and width, and the clamp.

    `bias_first`: the sum starts with the bias.  Products are added in float32, in the order of the image's pixels.
    """

    strides: tuple[int, int]
    padding: tuple[int, int]
    size: tuple[int, int]
    clamp: Bounds
    bias_first: bool = False

    def products(self, data: Array, weight: Array, pixels: Callable[[int, int, int], Array]) -> Iterator[Array]:
        """The products of all pixels with each tap, `pixels(ky, kx, i)`, at the outputs that they reach; 0 changes no other."""
        (n, height, width, _), (channels, kh, kw, depth) = data.shape, weight.shape
        (sy, sx), (top, left), (rows, columns) = self.strides, self.padding, self.size
        whole = (n, max((height - 1) * sy + kh, top + rows), max((width - 1) * sx + kw, left + columns), channels)
        # at the pixels that reach an output, the last tap meets the first pixel
        for ky, kx, i in product(reversed(range(kh)), reversed(range(kw)), range(depth)):
            placed = np.zeros(whole, np.float32)
            placed[:, ky : ky + (height - 1) * sy + 1 : sy, kx : kx + (width - 1) * sx + 1 : sx] = pixels(ky, kx, i)
            yield placed[:, top : top + rows, left : left + columns]

    def reads(
        self, b: IRBuilder, index: Index, data: TensorFn, weight: TensorFn
    ) -> tuple[list[IterVar], Callable[..., tuple[Expr, Expr]]]:
        """The axes of the sum at one output; (weight, data) that a product at a position along them multiplies."""
        n, _, _, o = index
        row, column = self.taps(b, index, data, weight)

        def factors(uy: Expr, ux: Expr, i: Expr) -> tuple[Expr, Expr]:
            ty, tx = b.let("ty", row.first + row.last - 1 - uy), b.let("tx", column.first + column.last - 1 - ux)
            w = weight.at(b, (o, row.rest + ty * self.strides[0], column.rest + tx * self.strides[1], i))
            return w, data.at(b, (n, row.quotient - ty, column.quotient - tx, i))

        axes = [reduce_axis(t.last, start=t.first, name=name) for t, name in ((row, "uy"), (column, "ux"))]
        return [*axes, reduce_axis(weight.shape[3], name="i")], factors


# nn.conv2d_transpose_float: TRANSPOSE_CONV of TFLite on float32.
#
# out[n, y, x, o] = clamp(sum over ty, tx, i of w[o, ky, kx, i] * data[n, (y + top - ky) / sy, (x + left - kx) / sx, i] +
# bias[o]), over the taps for which both quotients are whole and inside the image, in the order of the image's pixels. Oracles:
# `reference_ops::TransposeConv` of float; MediaPipe's Convolution2DTransposeBias, whose sums begin with the bias.
@operator(
    FLOAT_TRANSPOSE,
    "TRANSPOSE_CONV, Convolution2DTransposeBias; float32",
    FLOAT_OPERANDS,
    OpPattern.OUT_ELEMWISE_FUSABLE,
)
class FloatTransposeAttrs(FloatTransposed):
    """Products of data and weights."""

    def infer_type(self, data: TensorType, weight: TensorType, *bias: TensorType) -> Type:
        """data [N, H, W, I], weight [O, KH, KW, I], bias [O] -> float32 [N, *attrs.size, O]."""
        check_layer((data, weight, *bias), FLOAT_TRANSPOSE, rank=4, channel_axis=0)
        if data.shape[3] != weight.shape[3]:
            raise TypeRuleError(f"{data.shape[3]} input channels, but weights for {weight.shape[3]}")
        return TensorType(self.shape_of(data, weight), "float32")

    def evaluate(self, data: Array, weight: Array, *bias: Array, out_type: TensorType) -> Array:
        products = self.products(data, weight, lambda ky, kx, i: data[..., i, None] * weight[:, ky, kx, i])
        first, last = (bias, ()) if self.bias_first else ((), bias)
        return np_layer(products, last, attrs=self.clamp, out_type=out_type, first=first)

    def element(self, b: IRBuilder, index: Index, *args: TensorFn, out_type: TensorType) -> Expr:
        data, weight, *bias = args
        axes, factors = self.reads(b, index, data, weight)

        def product(*at: Expr) -> Expr:
            w, x = factors(*at)
            return w * x

        first, last = (bias, ()) if self.bias_first else ((), bias)
        return tir_layer(b, axes, product, bias=last, channel=index[3], attrs=self.clamp, first=first)


# qnn.conv2d_transpose_hybrid: TRANSPOSE_CONV of TFLite on float32 data with integer weights.
#
# The data is quantised image by image, asymmetrically (qnn.dynamic_quantize).  Unlike in other hybrid layers, whose sums are
# integers, the reference scales every product and sums in float32:
#
#   out[n, y, x, o] = clamp(sum over ty, tx, i of float(w[o, ky, kx, i] * q[n, ..., i]) * weight scale[o] * data scale[n]
#                     + bias[o])
#
# in the order of the image's pixels, as in nn.conv2d_transpose_float.  Oracle: `reference_ops::HybridTransposeConv`.
@operator(
    HYBRID_TRANSPOSE,
    "TRANSPOSE_CONV; float32 x int8",
    [
        ("data", "int16 [N, H, W, I]", "the image, quantised, its zero point taken off"),
        ("params", "float32 [N, 3]", "of the quantised images"),
        ("weight", "int8 [O, KH, KW, I]", "one filter for each output channel"),
        ("scales", "float32 [1] or [O]", "of the weights"),
        ("bias?", "float32 [O]", "what is added to each output channel"),
    ],
    OpPattern.OUT_ELEMWISE_FUSABLE,
)
class HybridTransposeAttrs(FloatTransposed):
    """The bias is always last."""

    def infer_type(self, *types: TensorType) -> Type:
        """Data int16 [N, H, W, I], params float32 [N, 3], weight int8 [O, KH, KW, I], scales float32 [1] or [O], bias float32 [O]
        -> float32 [N, *attrs.size, O].
        """
        if [t.dtype for t in types] not in (_DTYPES[:4], _DTYPES):
            raise TypeRuleError(f"{HYBRID_TRANSPOSE} does not accept {', '.join(map(str, types))}")
        data, params, weight, scales, *bias = types
        if (
            len(data.shape) != 4
            or len(weight.shape) != 4
            or data.shape[3] != weight.shape[3]
            or params.shape != (data.shape[0], 3)
        ):
            raise TypeRuleError(f"{HYBRID_TRANSPOSE} of {data} has weights {weight} and parameters {params}")
        channels = weight.shape[0]
        if scales.shape not in ((1,), (channels,)) or any(t.size != channels for t in bias):
            raise TypeRuleError(f"{HYBRID_TRANSPOSE} of {channels} channels has {scales.size} scales or a bias of another size")
        return TensorType(self.shape_of(data, weight), "float32")

    def evaluate(self, data: Array, params: Array, weight: Array, scales: Array, *bias: Array, out_type: TensorType) -> Array:
        image, filters, of_image = data.astype(np.float32), weight.astype(np.float32), params[:, 0].reshape(-1, 1, 1, 1)

        def pixels(ky: int, kx: int, i: int) -> Array:
            exact = image[..., i, None] * filters[:, ky, kx, i]  # 9 bits times 8
            return np.asarray(exact * scales * of_image)

        return np_layer(self.products(data, weight, pixels), bias, attrs=self.clamp, out_type=out_type)

    def element(self, b: IRBuilder, index: Index, *args: TensorFn, out_type: TensorType) -> Expr:
        data, params, weight, scales, *bias = args
        axes, factors = self.reads(b, index, data, weight)
        of_weight = b.let("of_weight", scales.at(b, (index[3] if scales.shape[0] > 1 else imm(0),)))
        of_image = b.let("of_image", params.at(b, (index[0], imm(0))))

        def product(*at: Expr) -> Expr:
            w, x = factors(*at)
            return cast("float32", cast("int32", w) * cast("int32", x)) * of_weight * of_image

        return tir_layer(b, axes, product, bias=bias, channel=index[3], attrs=self.clamp)


_DTYPES = ["int16", "float32", "int8", "float32", "float32"]


# nn.conv3d and nn.conv3d_transpose: CONV_3D and CONV_3D_TRANSPOSE of TFLite on float32, [N, D, H, W, C].
#
# Sums run in the reference's order: over the window and the input channels, or, transposed, over the input positions and channels
# that contribute to a result.  Oracles: `reference_ops::Conv3D`, `reference_ops::Conv3DTranspose`.

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Window3D:
    """Strides, dilations, padding before the first position (depth, height, width), and the result's extents."""

    strides: Triple
    dilation: Triple
    before: Triple
    extents: Triple

    def result_type(self, data: TensorType, weight: TensorType, *, channels: tuple[int, int]) -> TensorType:
        """float32 [N, *extents, O]; `channels`: the axes of the weights with input and output channels."""
        fits = data.dtype == weight.dtype == "float32" and len(data.shape) == len(weight.shape) == 5
        if not fits or data.shape[4] != weight.shape[channels[0]] or not data.size or not weight.size:
            raise TypeRuleError(f"a three-dimensional convolution of {data} by {weight} is not valid")
        if min(*self.strides, *self.dilation, *self.extents) < 1 or min(self.before) < 0:
            raise TypeRuleError(f"a three-dimensional convolution with {self} is not valid")
        return TensorType((data.shape[0], *self.extents, weight.shape[channels[1]]), "float32")


@operator(
    "nn.conv3d",
    "CONV_3D; float32",
    [("data", "float32 [N, D, H, W, I]", "volumes"), ("weight", "float32 [KD, KH, KW, I, O]", "the window")],
    OpPattern.OUT_ELEMWISE_FUSABLE,
)
class Conv3DAttrs(Window3D):
    """Each result is the sum over its window."""

    def infer_type(self, data: TensorType, weight: TensorType) -> Type:
        """float32 [N, D, H, W, I], weights [KD, KH, KW, I, O] -> [N, *extents, O]."""
        return self.result_type(data, weight, channels=(3, 4))

    def evaluate(self, data: Array, weight: Array, *, out_type: TensorType) -> Array:
        total = np.zeros(out_type.shape, np.float32)
        with np.errstate(all="ignore"):
            for taps in product(*(range(k) for k in weight.shape[:3])):
                places, inside = zip(*(self._reads(data, axis, tap) for axis, tap in enumerate(taps)), strict=True)
                if not all(len(p) for p in places):
                    continue
                part, under = np.ix_(range(len(data)), *inside), data[np.ix_(range(len(data)), *places)]
                for channel in range(data.shape[4]):
                    total[part] += under[..., channel, None] * weight[taps][channel]
        return total

    def element(self, b: IRBuilder, index: Index, data: TensorFn, weight: TensorFn, *, out_type: TensorType) -> Expr:
        n, *position, o = index
        origins = [b.let("origin", i * s - p) for i, s, p in zip(position, self.strides, self.before, strict=True)]

        def term(*taps: Expr) -> Expr:
            *window, channel = taps
            places = [o + t * d for o, t, d in zip(origins, window, self.dilation, strict=True)]
            inside: Expr | None = None
            for axis, (place, size) in enumerate(zip(places, data.shape[1:4], strict=True)):
                reach = (self.extents[axis] - 1) * self.strides[axis] + (weight.shape[axis] - 1) * self.dilation[axis]
                if self.before[axis] or reach >= size:
                    within = logical_and(place >= 0, place < size)
                    inside = within if inside is None else logical_and(inside, within)
            value = data.at(b, (n, *places, channel)) * weight.at(b, (*window, channel, o))
            # a sum that starts with +0 is never -0, so adding +0 leaves it unchanged
            return value if inside is None else select(inside, value, imm(0.0, "float32"))

        axes = [reduce_axis(extent, name="k") for extent in (*weight.shape[:3], data.shape[4])]
        return te_sum(b, axes, term, init=imm(0.0, "float32"), dtype="float32")

    def _reads(self, data: Array, axis: int, tap: int) -> tuple[list[int], list[int]]:
        """Positions of the data that a tap reads along an axis, and the result positions for which it does."""
        offset, stride = tap * self.dilation[axis] - self.before[axis], self.strides[axis]
        pairs = [(i * stride + offset, i) for i in range(self.extents[axis]) if 0 <= i * stride + offset < data.shape[axis + 1]]
        return [p for p, _ in pairs], [i for _, i in pairs]


@operator(
    "nn.conv3d_transpose",
    "CONV_3D_TRANSPOSE; float32",
    [("data", "float32 [N, D, H, W, I]", "volumes"), ("weight", "float32 [KD, KH, KW, O, I]", "the window")],
    OpPattern.OUT_ELEMWISE_FUSABLE,
)
class Conv3DTransposeAttrs(Window3D):
    """Each position of the data adds a window of products."""

    def infer_type(self, data: TensorType, weight: TensorType) -> Type:
        """float32 [N, D, H, W, I], weights [KD, KH, KW, O, I] -> [N, *extents, O]."""
        return self.result_type(data, weight, channels=(4, 3))

    def evaluate(self, data: Array, weight: Array, *, out_type: TensorType) -> Array:
        total = np.zeros(out_type.shape, np.float32)
        taps = list(product(*map(range, weight.shape[:3])))
        with np.errstate(all="ignore"):
            for *place, channel in np.ndindex(data.shape[1:]):
                here: Any = (slice(None), *place, channel)
                for tap in taps:
                    axes = zip(place, self.strides, self.before, tap, self.dilation, strict=True)
                    out = [p * s - b + t * d for p, s, b, t, d in axes]
                    if all(0 <= o < n for o, n in zip(out, self.extents, strict=True)):
                        there: Any = (slice(None), *out)
                        total[there] += data[here][:, None] * weight[tap][:, channel]
        return total

    def element(self, b: IRBuilder, index: Index, data: TensorFn, weight: TensorFn, *, out_type: TensorType) -> Expr:
        n, *position, o = index
        reach = [b.let("reach", i + p) for i, p in zip(position, self.before, strict=True)]

        def axis_of(axis: int) -> IterVar:
            """The data positions from which some tap contributes to this result position."""
            stride, span = self.strides[axis], (weight.shape[axis] - 1) * self.dilation[axis]
            first = maximum((reach[axis] - span + (stride - 1)) / stride, 0)
            last = minimum(reach[axis] / stride + 1, data.shape[axis + 1])
            return reduce_axis(b.let("last", last), start=b.let("first", first), name="p")

        def term(*at: Expr) -> Expr:
            *places, channel = at
            steps = [r - p * s for r, p, s in zip(reach, places, self.strides, strict=True)]
            taps = [s / d for s, d in zip(steps, self.dilation, strict=True)]
            value = data.at(b, (n, *places, channel)) * weight.at(b, (*taps, o, channel))
            for step, dilation in zip(steps, self.dilation, strict=True):
                if dilation > 1:
                    value = select(equal(step % dilation, 0), value, imm(0.0, "float32"))
            return value

        axes = [*(axis_of(axis) for axis in range(3)), reduce_axis(data.shape[4], name="c")]
        return te_sum(b, axes, term, init=imm(0.0, "float32"), dtype="float32")
