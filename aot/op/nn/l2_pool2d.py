"""L2_POOL_2D of TFLite, from `square`, `nn.avg_pool2d` and `sqrt`: the root of the mean square under a window.

Oracle: `reference_ops::L2Pool`, in the same order.
"""

from __future__ import annotations

from aot.frontend.view import OperatorView
from aot.op.common.check import require_dtype
from aot.op.common.float_layer import bounds
from aot.op.common.pool import PoolAttrs
from aot.op.common.window import Window, explicit_padding
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.math.unary import UnaryAttrs
from aot.relay.expr import Expr, call


@from_tflite("L2_POOL_2D", "float32", "nn.avg_pool2d relu sqrt square")
def convert(ctx: ConvertContext, op: OperatorView) -> Expr:
    """Squares, their mean, its root, the clamp."""
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
