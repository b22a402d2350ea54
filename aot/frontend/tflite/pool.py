"""Converters of operators with windows but no weights: pooling, and MediaPipe's unpooling."""

from __future__ import annotations

from collections.abc import Sequence

from aot.frontend.tflite.convert import (
    ACTIVATION_NAMES,
    ConvertContext,
    from_tflite,
    fused_range,
    operand,
    padding_name,
    require_dtype,
    require_quant,
    require_same_quant,
    steps_and_window,
    struct_options,
    unsupported,
)
from aot.frontend.tflite.layer import Window, bounds, explicit_padding
from aot.frontend.view import OperatorView
from aot.op.common.float_layer import FLOAT_ACTIVATIONS
from aot.op.common.window import PoolAttrs
from aot.op.math.unary import UnaryAttrs
from aot.op.nn.pool import ARGMAX, UnpoolAttrs
from aot.op.nn.pool import UNPOOLING as MAX_UNPOOLING_NAME
from aot.relay.expr import Expr, call
from aot.support.dtype import is_float


def convert_pool(ctx: ConvertContext, op: OperatorView, *, name: str, dtypes: Sequence[str]) -> Expr:
    """The pool, with the clamp of its fused activation (a separate operator for float32); input and output must have the same
    quantisation, as TFLite requires.
    """
    data, out = ctx.input_type(op, 0), ctx.output_type(op)
    require_dtype(ctx, op, data, dtypes)
    if len(data.shape) != 4:
        unsupported(ctx, op, "pooling needs four dimensions")
    lo, hi = 0, 0
    if not is_float(data.dtype):
        if require_quant(ctx, op, data, may_be_zero=True)[0]:  # values of scale 0 are moved as they are
            require_same_quant(ctx, op, data, out)
        lo, hi = fused_range(ctx, op, out)
    kernel = (op.option("filter_height"), op.option("filter_width"))
    strides = (op.option("stride_h"), op.option("stride_w"))
    if min(kernel) < 1 or min(strides) < 1:
        unsupported(ctx, op, f"a window of {kernel} with strides {strides} is not supported", code="E1122")
    padding = explicit_padding(op.option("padding"), Window(data.shape[1:3], kernel, strides))
    result = call(name, [operand(ctx, op, 0)], PoolAttrs(kernel, strides, padding, lo, hi), span=ctx.span(op))
    if not is_float(data.dtype):
        return result
    low, high = bounds(ctx, op)
    return call("relu", [result], UnaryAttrs(lo=low, hi=high), span=ctx.span(op))


@from_tflite("AVERAGE_POOL_2D", "int8 uint8 int16 float32", "nn.avg_pool2d")
def convert_avg_pool2d(ctx: ConvertContext, op: OperatorView) -> Expr:
    """nn.avg_pool2d."""
    return convert_pool(ctx, op, name="nn.avg_pool2d", dtypes=("int8", "int16", "uint8", "float32"))


@from_tflite("MAX_POOL_2D", "int8 uint8 int16 float32", "nn.max_pool2d")
def convert_max_pool2d(ctx: ConvertContext, op: OperatorView) -> Expr:
    """nn.max_pool2d."""
    return convert_pool(ctx, op, name="nn.max_pool2d", dtypes=("int8", "int16", "uint8", "float32"))


# L2_POOL_2D of TFLite, from `square`, `nn.avg_pool2d` and `sqrt`: the root of the mean square under a window.
#
# Oracle: `reference_ops::L2Pool`, in the same order.


@from_tflite("L2_POOL_2D", "float32", "nn.avg_pool2d relu sqrt square")
def convert_l2_pool2d(ctx: ConvertContext, op: OperatorView) -> Expr:
    """The squares, their mean, its root, and the clamp."""
    data, span = ctx.input_type(op, 0), ctx.span(op)
    require_dtype(ctx, op, data, {"float32"})
    kernel, strides = (op.option("filter_height"), op.option("filter_width")), (op.option("stride_h"), op.option("stride_w"))
    if len(data.shape) != 4 or min(kernel) < 1 or min(strides) < 1:
        unsupported(ctx, op, f"a window of {kernel} with strides {strides} on {data} is not supported", code="E1122")
    padding = explicit_padding(op.option("padding"), Window(data.shape[1:3], kernel, strides))
    squares = call("square", [operand(ctx, op, 0)], UnaryAttrs(), span=span)
    means = call("nn.avg_pool2d", [squares], PoolAttrs(kernel, strides, padding, 0, 0), span=span)
    low, high = bounds(ctx, op)
    return call("relu", [call("sqrt", [means], UnaryAttrs(), span=span)], UnaryAttrs(lo=low, hi=high), span=span)


@from_tflite("CUSTOM:MaxPoolingWithArgmax2D", "float32", f"{ARGMAX} nn.max_pool2d relu", oracle="MediaPipe")
def convert_max_pool_argmax(ctx: ConvertContext, op: OperatorView) -> list[Expr]:
    """The maxima, clamped by the activation, and their positions."""
    data, span = ctx.input_type(op, 0), ctx.span(op)
    require_dtype(ctx, op, data, {"float32"})
    if len(data.shape) != 4:
        unsupported(ctx, op, "pooling needs four dimensions")
    padding, sx, sy, width, height, activation = struct_options(ctx, op, 6)
    steps_and_window(ctx, op, (sy, sx), (height, width))
    if activation not in ACTIVATION_NAMES:
        unsupported(ctx, op, f"the fused activation {activation} is not supported")
    around = explicit_padding(padding_name(ctx, op, padding), Window(data.shape[1:3], (height, width), (sy, sx)))
    attrs = PoolAttrs((height, width), (sy, sx), around, 0, 0)
    x, (low, high) = operand(ctx, op, 0), FLOAT_ACTIVATIONS[ACTIVATION_NAMES[activation]]
    maxima = call("relu", [call("nn.max_pool2d", [x], attrs, span=span)], UnaryAttrs(lo=low, hi=high), span=span)
    return [maxima, call(ARGMAX, [x], attrs, span=span)]


@from_tflite("CUSTOM:MaxUnpooling2D", "float32", MAX_UNPOOLING_NAME, oracle="MediaPipe")
def convert_max_unpooling(ctx: ConvertContext, op: OperatorView) -> Expr:
    """mediapipe.unpool; windows that overlap or leave gaps are refused."""
    for i in range(2):
        require_dtype(ctx, op, ctx.input_type(op, i), {"float32"})
    _, sx, sy, width, height = struct_options(ctx, op, 5)
    steps_and_window(ctx, op, (sy, sx), (height, width))
    if (sy, sx) != (height, width):
        unsupported(ctx, op, f"strides {(sy, sx)} that differ from the window {(height, width)} are not supported")
    return call(MAX_UNPOOLING_NAME, [operand(ctx, op, 0), operand(ctx, op, 1)], UnpoolAttrs((height, width)), span=ctx.span(op))
