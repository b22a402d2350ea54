"""PACK of TFLite: tensors side by side along a new axis, as a concatenation of reshapes; pure movement of data.

Oracle: `reference_ops::Pack`; TFLite demands one quantisation of all operands and the result.
"""

from __future__ import annotations

from aot.frontend.view import OperatorView
from aot.op.common.check import require_dtype
from aot.op.common.move import MOVABLE, normalized_axis, reshaped
from aot.op.convert import EVERY, ConvertContext, from_tflite, operand
from aot.op.tensor.concatenate import ConcatenateAttrs
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call


@from_tflite("PACK", EVERY, "concatenate")
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """Each operand with an extent of 1 at the axis, concatenated."""
    out, data = ctx.output_type(op), ctx.input_type(op, 0)
    require_dtype(ctx, op, out, MOVABLE)
    axis, span = normalized_axis(ctx, op, int(op.option("axis")), len(data.shape) + 1), ctx.span(op)
    shape = (*data.shape[:axis], 1, *data.shape[axis:])
    parts = []
    for i in range(len(op.inputs)):
        parts.append(reshaped(operand(ctx, op, i), shape, span))
    return parts[0] if len(parts) == 1 else call("concatenate", parts, ConcatenateAttrs(axis), span=span)
