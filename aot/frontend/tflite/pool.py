"""Converters of operators with windows but no weights: pooling, and MediaPipe's unpooling."""

from __future__ import annotations

from collections.abc import Sequence

from aot.frontend.tflite.convert import ACTIVATION_NAMES, Operator, converter, padding_name, steps_and_window, struct_options
from aot.frontend.tflite.layer import Window, bounds, explicit_padding
from aot.op.common.float_layer import FLOAT_ACTIVATIONS
from aot.op.common.window import PoolAttrs
from aot.op.math.unary import UnaryAttrs
from aot.op.nn.pool import ARGMAX, UnpoolAttrs
from aot.op.nn.pool import UNPOOLING as MAX_UNPOOLING_NAME
from aot.relay.expr import Expr
from aot.support.dtype import is_float


def convert_pool(op: Operator, *, name: str, dtypes: Sequence[str]) -> Expr:
    """The pool, with the clamp of its fused activation (a separate operator for float32); input and output must have the same
    quantisation, as TFLite requires.
    """
    data, out = op.type(0, dtypes), op.result_type()
    if len(data.shape) != 4:
        op.refuse("pooling needs four dimensions")
    lo, hi = 0, 0
    if not is_float(data.dtype):
        if op.quant(data, may_be_zero=True)[0]:  # values of scale 0 are moved as they are
            op.require_same_quant(data, out)
        lo, hi = op.fused_range(out)
    kernel = (op.option("filter_height"), op.option("filter_width"))
    strides = (op.option("stride_h"), op.option("stride_w"))
    if min(kernel) < 1 or min(strides) < 1:
        op.refuse(f"a window of {kernel} with strides {strides} is not supported", code="E1122")
    padding = explicit_padding(op.option("padding"), Window(data.shape[1:3], kernel, strides))
    result = op.call(name, [op.operand(0)], PoolAttrs(kernel, strides, padding, lo, hi))
    if not is_float(data.dtype):
        return result
    low, high = bounds(op)
    return op.call("relu", [result], UnaryAttrs(lo=low, hi=high))


@converter("AVERAGE_POOL_2D", "int8 uint8 int16 float32", "nn.avg_pool2d")
def convert_avg_pool2d(op: Operator) -> Expr:
    """nn.avg_pool2d."""
    return convert_pool(op, name="nn.avg_pool2d", dtypes=("int8", "int16", "uint8", "float32"))


@converter("MAX_POOL_2D", "int8 uint8 int16 float32", "nn.max_pool2d")
def convert_max_pool2d(op: Operator) -> Expr:
    """nn.max_pool2d."""
    return convert_pool(op, name="nn.max_pool2d", dtypes=("int8", "int16", "uint8", "float32"))


# L2_POOL_2D of TFLite, from `square`, `nn.avg_pool2d` and `sqrt`: the root of the mean square under a window.
#
# Oracle: `reference_ops::L2Pool`, in the same order.


@converter("L2_POOL_2D", "float32", "nn.avg_pool2d relu sqrt square")
def convert_l2_pool2d(op: Operator) -> Expr:
    """The squares, their mean, its root, and the clamp."""
    data = op.type(0, {"float32"})
    kernel, strides = (op.option("filter_height"), op.option("filter_width")), (op.option("stride_h"), op.option("stride_w"))
    if len(data.shape) != 4 or min(kernel) < 1 or min(strides) < 1:
        op.refuse(f"a window of {kernel} with strides {strides} on {data} is not supported", code="E1122")
    padding = explicit_padding(op.option("padding"), Window(data.shape[1:3], kernel, strides))
    squares = op.call("square", [op.operand(0)], UnaryAttrs())
    means = op.call("nn.avg_pool2d", [squares], PoolAttrs(kernel, strides, padding, 0, 0))
    low, high = bounds(op)
    return op.call("relu", [op.call("sqrt", [means], UnaryAttrs())], UnaryAttrs(lo=low, hi=high))


@converter("CUSTOM:MaxPoolingWithArgmax2D", "float32", f"{ARGMAX} nn.max_pool2d relu", oracle="MediaPipe")
def convert_max_pool_argmax(op: Operator) -> list[Expr]:
    """The maxima, clamped by the activation, and their positions."""
    data = op.type(0, {"float32"})
    if len(data.shape) != 4:
        op.refuse("pooling needs four dimensions")
    padding, sx, sy, width, height, activation = struct_options(op, 6)
    steps_and_window(op, (sy, sx), (height, width))
    if activation not in ACTIVATION_NAMES:
        op.refuse(f"the fused activation {activation} is not supported")
    around = explicit_padding(padding_name(op, padding), Window(data.shape[1:3], (height, width), (sy, sx)))
    attrs = PoolAttrs((height, width), (sy, sx), around, 0, 0)
    x, (low, high) = op.operand(0), FLOAT_ACTIVATIONS[ACTIVATION_NAMES[activation]]
    maxima = op.call("relu", [op.call("nn.max_pool2d", [x], attrs)], UnaryAttrs(lo=low, hi=high))
    return [maxima, op.call(ARGMAX, [x], attrs)]


@converter("CUSTOM:MaxUnpooling2D", "float32", MAX_UNPOOLING_NAME, oracle="MediaPipe")
def convert_max_unpooling(op: Operator) -> Expr:
    """mediapipe.unpool; windows that overlap or leave gaps are refused."""
    for i in range(2):
        op.require_dtype(op.type(i), {"float32"})
    _, sx, sy, width, height = struct_options(op, 5)
    steps_and_window(op, (sy, sx), (height, width))
    if (sy, sx) != (height, width):
        op.refuse(f"strides {(sy, sx)} that differ from the window {(height, width)} are not supported")
    return op.call(MAX_UNPOOLING_NAME, op.operands(0, 1), UnpoolAttrs((height, width)))
