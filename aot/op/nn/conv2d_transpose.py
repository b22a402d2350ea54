"""Transposed convolutions: of integers, of float32, and hybrid (float32 data, int8 weights)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.op.common.float_layer import Bounds, check_layer, np_layer, tir_layer
from aot.op.common.operator import Index, operator
from aot.op.common.window import TransposedWindow
from aot.support.dataclass import dataclass
from aot.te.tensor import IterVar, TensorFn, reduce_axis, wrapping
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm


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
class Conv2DTransposeAttrs:
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
        if min(*self.strides, *self.size) < 1 or min(self.padding) < 0:
            raise TypeRuleError(f"strides {self.strides}, padding {self.padding}, size {self.size}")
        return TensorType((data.shape[0], *self.size, weight.shape[0]), self.acc_dtype)

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
        n, y, x, o = index
        wide = wrapping(self.acc_dtype)
        window = TransposedWindow(data.shape[1:3], weight.shape[1:3], self.strides, self.padding)
        sy, sx = self.strides
        row, column = window.taps(b, y, x)

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
class FloatTransposed:
    """(vertical, horizontal) strides, the cut at the top and the left, the output's height and width, and the clamp.

    `bias_first`: the sum starts with the bias.  Products are added in float32, in the order of the image's pixels.
    """

    strides: tuple[int, int]
    padding: tuple[int, int]
    size: tuple[int, int]
    clamp: Bounds
    bias_first: bool = False

    def result_type(self, data: TensorType, weight: TensorType) -> TensorType:
        """float32 [N, *attrs.size, O]; TypeRuleError if an attribute is not valid."""
        if min(*self.strides, *self.size) < 1 or min(self.padding) < 0:
            raise TypeRuleError(f"strides {self.strides}, padding {self.padding}, size {self.size}")
        return TensorType((data.shape[0], *self.size, weight.shape[0]), "float32")

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
        n, y, x, o = index
        row, column = TransposedWindow(data.shape[1:3], weight.shape[1:3], self.strides, self.padding).taps(b, y, x)

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
    [
        ("data", "float32 [N, H, W, I]", "the image"),
        ("weight", "float32 [O, KH, KW, I]", "one filter for each output channel"),
        ("bias?", "float32 [O]", "what is added to each output channel"),
    ],
    OpPattern.OUT_ELEMWISE_FUSABLE,
)
class FloatTransposeAttrs(FloatTransposed):
    """Products of data and weights."""

    def infer_type(self, data: TensorType, weight: TensorType, *bias: TensorType) -> Type:
        """data [N, H, W, I], weight [O, KH, KW, I], bias [O] -> float32 [N, *attrs.size, O]."""
        check_layer((data, weight, *bias), FLOAT_TRANSPOSE, rank=4, channel_axis=0)
        if data.shape[3] != weight.shape[3]:
            raise TypeRuleError(f"{data.shape[3]} input channels, but weights for {weight.shape[3]}")
        return self.result_type(data, weight)

    def evaluate(self, data: Array, weight: Array, *bias: Array, out_type: TensorType) -> Array:
        products = self.products(data, weight, lambda ky, kx, i: data[..., i, None] * weight[:, ky, kx, i])
        first, last = (bias, ()) if self.bias_first else ((), bias)
        return np_layer(products, last, attrs=self.clamp, out_type=out_type, first=first)

    def element(
        self, b: IRBuilder, index: Index, data: TensorFn, weight: TensorFn, *bias: TensorFn, out_type: TensorType
    ) -> Expr:
        axes, factors = self.reads(b, index, data, weight)

        def product(*at: Expr) -> Expr:
            w, x = factors(*at)
            return w * x

        first, last = (bias, ()) if self.bias_first else ((), bias)
        return tir_layer(b, axes, product, bias=last, channel=index[3], attrs=self.clamp, first=first)


# qnn.conv2d_transpose_hybrid: TRANSPOSE_CONV of TFLite on float32 data with integer weights.
#
# The data is quantised image by image, asymmetrically (`qnn/dynamic_quantize.py`).  Unlike in other hybrid layers, whose sums are
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
        return self.result_type(data, weight)

    def evaluate(self, data: Array, params: Array, weight: Array, scales: Array, *bias: Array, out_type: TensorType) -> Array:
        image, filters, of_image = data.astype(np.float32), weight.astype(np.float32), params[:, 0].reshape(-1, 1, 1, 1)

        def pixels(ky: int, kx: int, i: int) -> Array:
            exact = image[..., i, None] * filters[:, ky, kx, i]  # 9 bits times 8
            return np.asarray(exact * scales * of_image)

        return np_layer(self.products(data, weight, pixels), bias, attrs=self.clamp, out_type=out_type)

    def element(
        self,
        b: IRBuilder,
        index: Index,
        data: TensorFn,
        params: TensorFn,
        weight: TensorFn,
        scales: TensorFn,
        *bias: TensorFn,
        out_type: TensorType,
    ) -> Expr:
        axes, factors = self.reads(b, index, data, weight)
        of_weight = b.let("of_weight", scales.at(b, (index[3] if scales.shape[0] > 1 else imm(0),)))
        of_image = b.let("of_image", params.at(b, (index[0], imm(0))))

        def product(*at: Expr) -> Expr:
            w, x = factors(*at)
            return cast("float32", cast("int32", w) * cast("int32", x)) * of_weight * of_image

        return tir_layer(b, axes, product, bias=bias, channel=index[3], attrs=self.clamp)


_DTYPES = ["int16", "float32", "int8", "float32", "float32"]
