"""nn.conv2d_transpose: TRANSPOSE_CONV of TFLite: each input pixel adds a window of products to the output.

acc[n, y, x, o] = sum over ky, kx, i of w[o, ky, kx, i] * (data[n, (y + top - ky) / sy, (x + left - kx) / sx, i] -
input_zp), over the taps for which both quotients are whole and inside the image.  Oracle:
`reference_integer_ops::TransposeConv`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.errors import UnsupportedError
from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.float_layer import Bounds, bounds, layer_operands
from aot.op.common.quantized_layer import check_quantized_layer, finish_layer, layer_weights
from aot.op.common.uint8 import legacy_uint8
from aot.op.common.window import TransposedWindow, Window, explicit_padding
from aot.op.convert import ConvertContext, ForwardingContext, from_tflite, operand, unsupported
from aot.op.nn.conv2d_transpose_float import NAME as FLOAT
from aot.op.nn.conv2d_transpose_float import FloatTransposeAttrs
from aot.op.nn.conv2d_transpose_hybrid import NAME as HYBRID
from aot.op.nn.conv2d_transpose_hybrid import convert_hybrid_transposed
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Expr, call
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, reduce_axis, tensor_fn, wrapping
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr as TirExpr
from aot.tir.expr import cast


@dataclass(frozen=True, slots=True)
class Conv2DTransposeAttrs:
    """(vertical, horizontal) strides, what is cut off at the top and the left, and the output's height and width."""

    strides: tuple[int, int]
    padding: tuple[int, int]
    size: tuple[int, int]
    input_zp: int = 0
    weight_zp: int = 0
    acc_dtype: str = "int32"


def infer_type(types: Sequence[Type], attrs: Conv2DTransposeAttrs) -> Type:
    """data [N, H, W, I], weight [O, KH, KW, I] -> attrs.acc_dtype [N, *attrs.size, O]."""
    data, weight = types
    if not isinstance(data, TensorType) or not isinstance(weight, TensorType) or len(data.shape) != 4 or len(weight.shape) != 4:
        raise TypeRuleError(f"conv2d_transpose takes 4-D data and weights, not {data} and {weight}")
    if data.shape[3] != weight.shape[3]:
        raise TypeRuleError(f"{data.shape[3]} input channels, but weights for {weight.shape[3]}")
    if min(*attrs.strides, *attrs.size) < 1 or min(attrs.padding) < 0:
        raise TypeRuleError(f"strides {attrs.strides}, padding {attrs.padding}, size {attrs.size}")
    return TensorType((data.shape[0], *attrs.size, weight.shape[0]), attrs.acc_dtype)


def evaluate(data: Array, weight: Array, *, attrs: Conv2DTransposeAttrs, out_type: TensorType) -> Array:
    x, w = data.astype(np.float64) - attrs.input_zp, weight.astype(np.float64) - attrs.weight_zp
    (n, height, width, _), (channels, kh, kw, _) = data.shape, weight.shape
    (sy, sx), (top, left) = attrs.strides, attrs.padding
    rows = max((height - 1) * sy + kh, top + attrs.size[0])
    columns = max((width - 1) * sx + kw, left + attrs.size[1])
    whole = np.zeros((n, rows, columns, channels))
    for ky in range(kh):
        for kx in range(kw):
            whole[:, ky : ky + (height - 1) * sy + 1 : sy, kx : kx + (width - 1) * sx + 1 : sx] += x @ w[:, ky, kx].T
    result = whole[:, top : top + attrs.size[0], left : left + attrs.size[1]]
    return result.astype(np.int64).astype(out_type.dtype)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: Conv2DTransposeAttrs, out_type: TensorType) -> TensorFn:
    data, weight = args
    wide = wrapping(attrs.acc_dtype)
    window = TransposedWindow(data.shape[1:3], weight.shape[1:3], attrs.strides, attrs.padding)
    sy, sx = attrs.strides

    def rule(b: IRBuilder, n: TirExpr, y: TirExpr, x: TirExpr, o: TirExpr) -> TirExpr:
        row, column = window.taps(b, y, x)

        def term(ty: TirExpr, tx: TirExpr, i: TirExpr) -> TirExpr:
            w = weight.at(b, (o, row.rest + ty * sy, column.rest + tx * sx, i))
            value = data.at(b, (n, row.quotient - ty, column.quotient - tx, i))
            left_side = cast("int32", w) - attrs.weight_zp
            return cast(wide, left_side) * cast(wide, cast("int32", value) - attrs.input_zp)

        axes = [
            reduce_axis(row.last, start=row.first, name="ty"),
            reduce_axis(column.last, start=column.first, name="tx"),
            reduce_axis(weight.shape[3], name="i"),
        ]
        return cast(attrs.acc_dtype, te_sum(b, axes, term, dtype=wide))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


_ORDER = (2, 1, 3)
"""Positions of data, weights and bias among the operands; the first one is the shape of the result."""


class _AsConvolution(ForwardingContext):
    """Shows the operands in the order of a convolution's."""

    def input(self, op: OperatorView, i: int) -> Expr | None:
        return self._ctx.input(op, _ORDER[i])

    def constant(self, op: OperatorView, i: int) -> Array:
        return self._ctx.constant(op, _ORDER[i])

    def input_type(self, op: OperatorView, i: int) -> TensorType:
        return self._ctx.input_type(op, _ORDER[i])


def _size(ctx: ConvertContext, op: OperatorView, image: Sequence[int], kernel: Sequence[int]) -> tuple[int, ...]:
    """The result's shape: operand 0, which some models compute at run time.  Then it is the declared one, or where that is
    open what undoes a convolution of all of its pixels.
    """
    try:
        return tuple(map(int, ctx.constant(op, 0).ravel()))
    except UnsupportedError:
        declared = ctx.output_shape(op)
    if declared is not None:
        return declared
    data, weight = ctx.input_type(op, 2), ctx.input_type(op, 1)
    strides, same = (op.option("stride_h"), op.option("stride_w")), op.option("padding") == "SAME"
    sizes = [n * s + (0 if same else max(k - s, 0)) for n, s, k in zip(image, strides, kernel, strict=True)]
    return (data.shape[0], *sizes, weight.shape[0])


@from_tflite(
    "TRANSPOSE_CONV",
    "int8*int8 int8*int4 int16*int8 uint8*uint8 float32*int8 float32*float32",
    f"nn.conv2d_transpose {FLOAT} {HYBRID} qnn.dynamic_params qnn.dynamic_quantize qnn.dynamic_range",
)
@legacy_uint8
def convert(ctx: ConvertContext, op: OperatorView) -> Expr:
    """conv2d_transpose + bias_add + requantize (+ clip), conv2d_transpose_float, or the hybrid one of quantised data."""
    view = _AsConvolution(ctx)
    data, weight = view.input_type(op, 0), view.input_type(op, 1)
    if len(data.shape) != 4 or len(weight.shape) != 4:
        unsupported(ctx, op, "data and weights must have four dimensions")
    strides = (op.option("stride_h"), op.option("stride_w"))
    size = _size(ctx, op, data.shape[1:3], weight.shape[1:3])
    if len(size) != 4 or (size[0], size[3]) != (data.shape[0], weight.shape[0]):
        unsupported(ctx, op, f"the size {size} is not that of the result", code="E1120")
    cut = explicit_padding(op.option("padding"), Window(size[1:3], weight.shape[1:3], strides))[:2]
    if data.dtype == "float32" and ctx.output_type(op).dtype == "float32" and weight.dtype in ("float32", "int8"):
        float_attrs = FloatTransposeAttrs(strides, cut, size[1:3], Bounds(*bounds(view, op)))
        if weight.dtype == "int8":
            return convert_hybrid_transposed(view, op, float_attrs)
        return call(FLOAT, layer_operands(view, op), float_attrs, span=ctx.span(op))
    layer = check_quantized_layer(view, op, channel_axis=0)
    attrs = Conv2DTransposeAttrs(strides, cut, size[1:3], layer.input_zp, layer.weight_zp, layer.acc_dtype)
    weights = layer_weights(view, op, layer, channel_axis=0)
    acc = call("nn.conv2d_transpose", [operand(view, op, 0), weights], attrs, span=ctx.span(op))
    return finish_layer(view, op, acc, layer=layer, rounding="double")


register_op(
    "nn.conv2d_transpose",
    2,
    arguments=[
        ("data", "int8, int16 [N, H, W, I]", "the image"),
        ("weight", "int8 [O, KH, KW, I]", "one filter for each output channel"),
    ],
    attrs_type=Conv2DTransposeAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="TRANSPOSE_CONV; int8, int16 x int8, uint8",
)
F_TE.set("nn.conv2d_transpose", te_rule)
