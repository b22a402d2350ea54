"""Convolution2DTransposeBias: a transposed convolution on float32 whose sums begin with the bias.

Oracle: MediaPipe's `transpose_conv_bias.cc`, which has its own rule for what SAME cuts off.
"""

from __future__ import annotations

from aot.frontend.view import OperatorView
from aot.op.common.check import require_dtype
from aot.op.common.custom import padding_name, steps_and_window, struct_options
from aot.op.common.float_layer import Bounds
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.nn.conv2d_transpose_float import NAME, FloatTransposeAttrs
from aot.relay.expr import Expr, call

ORACLES = ("litert",)


def extent(size: int, kernel: int, stride: int, *, same: bool) -> tuple[int, int]:
    """(Rows of the result, rows cut off before the first one) of an image of `size` rows; columns are alike."""
    cut = max(0, kernel - (size - 1) % stride - 1) if same else 0
    return stride * (size - 1) + kernel - cut, cut // 2


@from_tflite("CUSTOM:Convolution2DTransposeBias", "float32*float32", NAME, oracle="MediaPipe")
def convert(ctx: ConvertContext, op: OperatorView) -> Expr:
    """nn.conv2d_transpose_float on data, weights [O, KH, KW, I] and the bias."""
    types = data, weight, bias = [ctx.input_type(op, i) for i in range(3)]
    for type_ in types:
        require_dtype(ctx, op, type_, {"float32"})
    if (len(data.shape), len(weight.shape)) != (4, 4) or bias.shape != weight.shape[:1] or data.shape[3] != weight.shape[3]:
        unsupported(ctx, op, f"{data}, {weight} and {bias} do not fit together", code="E1121")
    padding, width, height = struct_options(ctx, op, 3)
    steps_and_window(ctx, op, (height, width), (weight.shape[1], weight.shape[2]))
    same = padding_name(ctx, op, padding) == "SAME"
    axes = zip(data.shape[1:3], weight.shape[1:3], (height, width), strict=True)
    (rows, top), (columns, left) = (extent(n, k, s, same=same) for n, k, s in axes)
    if min(rows, columns) < 1:
        unsupported(ctx, op, f"the result has {rows} rows and {columns} columns", code="E1121")
    attrs = FloatTransposeAttrs((height, width), (top, left), (rows, columns), Bounds(), bias_first=True)
    return call(NAME, [operand(ctx, op, i) for i in range(3)], attrs, span=ctx.span(op))
