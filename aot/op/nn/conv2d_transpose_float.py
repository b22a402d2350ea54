"""nn.conv2d_transpose_float: TRANSPOSE_CONV of TFLite on float32.

out[n, y, x, o] = clamp(sum over ty, tx, i of w[o, ky, kx, i] * data[n, (y + top - ky) / sy, (x + left - kx) / sx, i] + bias[o]),
over the taps for which both quotients are whole and inside the image, in the order of the image's pixels.
Oracles: `reference_ops::TransposeConv` of float; MediaPipe's Convolution2DTransposeBias, whose sums begin with the bias.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import VARIABLE, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.float_layer import Bounds, layer_types, np_layer, tir_layer
from aot.op.common.window import TransposedWindow
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, reduce_axis, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr

NAME = "nn.conv2d_transpose_float"


@dataclass(frozen=True, slots=True)
class FloatTransposeAttrs:
    """(vertical, horizontal) strides, what is cut off at the top and the left, the output's height and width, the clamp.

    `bias_first`: the sum begins with the bias.
    """

    strides: tuple[int, int]
    padding: tuple[int, int]
    size: tuple[int, int]
    clamp: Bounds
    bias_first: bool = False


def infer_type(types: Sequence[Type], attrs: FloatTransposeAttrs) -> Type:
    """data [N, H, W, I], weight [O, KH, KW, I], bias [O] -> float32 [N, *attrs.size, O]."""
    data, weight, *_ = layer_types(types, NAME, rank=4, channels=lambda w: w.shape[0])
    if data.shape[3] != weight.shape[3]:
        raise TypeRuleError(f"{data.shape[3]} input channels, but weights for {weight.shape[3]}")
    if min(*attrs.strides, *attrs.size) < 1 or min(attrs.padding) < 0:
        raise TypeRuleError(f"strides {attrs.strides}, padding {attrs.padding}, size {attrs.size}")
    return TensorType((data.shape[0], *attrs.size, weight.shape[0]), "float32")


def evaluate(data: Array, weight: Array, *bias: Array, attrs: FloatTransposeAttrs, out_type: TensorType) -> Array:
    (n, height, width, _), (channels, kh, kw, depth) = data.shape, weight.shape
    (sy, sx), (top, left), (rows, columns) = attrs.strides, attrs.padding, attrs.size
    whole = (n, max((height - 1) * sy + kh, top + rows), max((width - 1) * sx + kw, left + columns), channels)

    def product(ky: int, kx: int, i: int) -> Array:
        """Of all pixels, at the outputs that they reach with this tap; adding 0 changes no other."""
        found = np.zeros(whole, np.float32)
        pixels = data[..., i, None] * weight[:, ky, kx, i]
        found[:, ky : ky + (height - 1) * sy + 1 : sy, kx : kx + (width - 1) * sx + 1 : sx] = pixels
        return found[:, top : top + rows, left : left + columns]

    # of the pixels that reach an output, the last tap meets the first one
    products = (product(ky, kx, i) for ky in reversed(range(kh)) for kx in reversed(range(kw)) for i in range(depth))
    first, last = (bias, ()) if attrs.bias_first else ((), bias)
    return np_layer(products, last, attrs=attrs.clamp, out_type=out_type, first=first)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: FloatTransposeAttrs, out_type: TensorType) -> TensorFn:
    data, weight, *bias = args
    window = TransposedWindow(data.shape[1:3], weight.shape[1:3], attrs.strides, attrs.padding)
    sy, sx = attrs.strides

    def rule(b: IRBuilder, n: Expr, y: Expr, x: Expr, o: Expr) -> Expr:
        row, column = window.taps(b, y, x)

        def product(uy: Expr, ux: Expr, i: Expr) -> Expr:
            ty, tx = b.let("ty", row.first + row.last - 1 - uy), b.let("tx", column.first + column.last - 1 - ux)
            w = weight.at(b, (o, row.rest + ty * sy, column.rest + tx * sx, i))
            return w * data.at(b, (n, row.quotient - ty, column.quotient - tx, i))

        axes = [
            reduce_axis(row.last, start=row.first, name="uy"),
            reduce_axis(column.last, start=column.first, name="ux"),
            reduce_axis(weight.shape[3], name="i"),
        ]
        first, last = (bias, []) if attrs.bias_first else ([], bias)
        return tir_layer(b, axes, product, bias=last, channel=o, attrs=attrs.clamp, first=first)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    NAME,
    VARIABLE,
    arguments=[
        ("data", "float32 [N, H, W, I]", "the image"),
        ("weight", "float32 [O, KH, KW, I]", "one filter for each output channel"),
        ("bias?", "float32 [O]", "what is added to each output channel"),
    ],
    attrs_type=FloatTransposeAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="TRANSPOSE_CONV, Convolution2DTransposeBias; float32",
)
F_TE.set(NAME, te_rule)
