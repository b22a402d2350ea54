"""nn.conv2d_transpose: TRANSPOSE_CONV of TFLite: each input pixel adds a window of products to the output.

acc[n, y, x, o] = sum over ky, kx, i of w[o, ky, kx, i] * (data[n, (y + top - ky) / sy, (x + left - kx) / sx, i] -
input_zp), over the taps for which both quotients are whole and inside the image.  Oracle:
`reference_integer_ops::TransposeConv`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.window import TransposedWindow
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, reduce_axis, sum, tensor_fn, wrapping
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast


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

    def rule(b: IRBuilder, n: Expr, y: Expr, x: Expr, o: Expr) -> Expr:
        row, column = window.taps(b, y, x)

        def term(ty: Expr, tx: Expr, i: Expr) -> Expr:
            w = weight.at(b, (o, row.rest + ty * sy, column.rest + tx * sx, i))
            value = data.at(b, (n, row.quotient - ty, column.quotient - tx, i))
            left_side = cast("int32", w) - attrs.weight_zp
            return cast(wide, left_side) * cast(wide, cast("int32", value) - attrs.input_zp)

        axes = [
            reduce_axis(row.last, start=row.first, name="ty"),
            reduce_axis(column.last, start=column.first, name="tx"),
            reduce_axis(weight.shape[3], name="i"),
        ]
        return cast(attrs.acc_dtype, sum(b, axes, term, dtype=wide))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


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
