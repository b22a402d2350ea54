"""qnn.conv2d_transpose_hybrid: TRANSPOSE_CONV of TFLite on float32 data with integer weights.

The data is quantised image by image, asymmetrically (`qnn/dynamic_quantize.py`).  Unlike other hybrid layers, whose sums are
integers, the reference scales every product and adds up float32:

  out[n, y, x, o] = clamp(sum over ty, tx, i of float(w[o, ky, kx, i] * q[n, ..., i]) * weight scale[o] * data scale[n] + bias[o])

in the order of the image's pixels, as nn.conv2d_transpose_float.  Oracle: `reference_ops::HybridTransposeConv`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import VARIABLE, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.float_layer import np_layer, tir_layer
from aot.op.common.window import TransposedWindow
from aot.op.nn.conv2d_transpose_float import FloatTransposeAttrs
from aot.op.te_rule import F_TE, TeContext
from aot.te.tensor import TensorFn, reduce_axis, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm

NAME = "qnn.conv2d_transpose_hybrid"


def infer_type(types: Sequence[Type], attrs: FloatTransposeAttrs) -> Type:
    """Data int16 [N, H, W, I], params float32 [N, 3], weight int8 [O, KH, KW, I], scales float32 [1] or [O], bias float32 [O]
    -> float32 [N, *attrs.size, O].
    """
    found = [t for t in types if isinstance(t, TensorType)]
    if len(found) != len(types) or [t.dtype for t in found] not in (_DTYPES[:4], _DTYPES):
        raise TypeRuleError(f"{NAME} does not take {', '.join(map(str, types))}")
    data, params, weight, scales, *bias = found
    if len(data.shape) != 4 or len(weight.shape) != 4 or data.shape[3] != weight.shape[3] or params.shape != (data.shape[0], 3):
        raise TypeRuleError(f"{NAME} of {data} has weights {weight} and parameters {params}")
    channels = weight.shape[0]
    if scales.shape not in ((1,), (channels,)) or any(t.size != channels for t in bias):
        raise TypeRuleError(f"{NAME} of {channels} channels has {scales.size} scales or a bias of another size")
    if min(*attrs.strides, *attrs.size) < 1 or min(attrs.padding) < 0:
        raise TypeRuleError(f"strides {attrs.strides}, padding {attrs.padding}, size {attrs.size}")
    return TensorType((data.shape[0], *attrs.size, channels), "float32")


_DTYPES = ["int16", "float32", "int8", "float32", "float32"]


def evaluate(
    data: Array, params: Array, weight: Array, scales: Array, *bias: Array, attrs: FloatTransposeAttrs, out_type: TensorType
) -> Array:  # fmt: skip
    (n, height, width, _), (channels, kh, kw, depth) = data.shape, weight.shape
    (sy, sx), (top, left), (rows, columns) = attrs.strides, attrs.padding, attrs.size
    whole = (n, max((height - 1) * sy + kh, top + rows), max((width - 1) * sx + kw, left + columns), channels)
    image, filters, of_image = data.astype(np.float32), weight.astype(np.float32), params[:, 0].reshape(-1, 1, 1, 1)

    def product(ky: int, kx: int, i: int) -> Array:
        """Of all pixels, at the outputs that they reach with this tap; adding 0 changes no other."""
        found = np.zeros(whole, np.float32)
        pixels = image[..., i, None] * filters[:, ky, kx, i]  # exact: 9 bits times 8
        found[:, ky : ky + (height - 1) * sy + 1 : sy, kx : kx + (width - 1) * sx + 1 : sx] = pixels * scales * of_image
        return found[:, top : top + rows, left : left + columns]

    products = (product(ky, kx, i) for ky in reversed(range(kh)) for kx in reversed(range(kw)) for i in range(depth))
    return np_layer(products, bias, attrs=attrs.clamp, out_type=out_type)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: FloatTransposeAttrs, out_type: TensorType) -> TensorFn:
    data, params, weight, scales, *bias = args
    window = TransposedWindow(data.shape[1:3], weight.shape[1:3], attrs.strides, attrs.padding)
    sy, sx = attrs.strides

    def rule(b: IRBuilder, n: Expr, y: Expr, x: Expr, o: Expr) -> Expr:
        row, column = window.taps(b, y, x)
        of_weight = b.let("of_weight", scales.at(b, (o if scales.shape[0] > 1 else imm(0),)))
        of_image = b.let("of_image", params.at(b, (n, imm(0))))

        def product(uy: Expr, ux: Expr, i: Expr) -> Expr:
            ty, tx = b.let("ty", row.first + row.last - 1 - uy), b.let("tx", column.first + column.last - 1 - ux)
            w = cast("int32", weight.at(b, (o, row.rest + ty * sy, column.rest + tx * sx, i)))
            value = cast("int32", data.at(b, (n, row.quotient - ty, column.quotient - tx, i)))
            return cast("float32", w * value) * of_weight * of_image

        axes = [
            reduce_axis(row.last, start=row.first, name="uy"),
            reduce_axis(column.last, start=column.first, name="ux"),
            reduce_axis(weight.shape[3], name="i"),
        ]
        return tir_layer(b, axes, product, bias=bias, channel=o, attrs=attrs.clamp)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    NAME,
    VARIABLE,
    arguments=[
        ("data", "int16 [N, H, W, I]", "the image, quantised, its zero point taken off"),
        ("params", "float32 [N, 3]", "of the quantised images"),
        ("weight", "int8 [O, KH, KW, I]", "one filter for each output channel"),
        ("scales", "float32 [1] or [O]", "of the weights"),
        ("bias?", "float32 [O]", "what is added to each output channel"),
    ],
    attrs_type=FloatTransposeAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="TRANSPOSE_CONV; float32 x int8",
)
F_TE.set(NAME, te_rule)
