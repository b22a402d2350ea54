"""BIDIRECTIONAL_SEQUENCE_LSTM of TFLite: one LSTM from the first step to the last, one the other way, on float32 or hybrid.

Auxiliary data belongs to both where there are weights for it, else it is the data of the one that goes backward.
"""

from __future__ import annotations

from aot.frontend.view import OperatorView
from aot.op.common.check import require_dtype
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.recurrent.lstm_convert_float import convert_float
from aot.op.recurrent.lstm_operands import one_direction
from aot.op.tensor.concatenate import ConcatenateAttrs
from aot.relay.expr import Expr, call

_AUXILIARY = 39


@from_tflite("BIDIRECTIONAL_SEQUENCE_LSTM", "float32*int8 float32*float32", "concatenate nn.lstm")
def convert(ctx: ConvertContext, op: OperatorView) -> list[Expr]:
    """Two results, or with `merge_outputs` one that has both side by side."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, {"float32"})
    if len(data.shape) != 3:
        unsupported(ctx, op, f"data of {len(data.shape)} dimensions", code="E1207")
    time_major, merged = bool(op.option("time_major")), bool(op.option("merge_outputs"))
    if merged and not time_major and data.shape[0] > 1:
        # the reference then takes the states of the second batch from beyond their end
        unsupported(ctx, op, f"merged outputs of {data.shape[0]} batches before the time are not supported; 1 is")
    weighted = len(op.inputs) > 41 and ctx.input(op, 41) is not None
    has_auxiliary = len(op.inputs) > _AUXILIARY and ctx.input(op, _AUXILIARY) is not None
    auxiliary = operand(ctx, op, _AUXILIARY) if weighted else None
    places = (40, 44) if weighted else (None, None)
    forward = one_direction(ctx, op, first=1, states=(35, 36), auxiliary=places[0])
    source = _AUXILIARY if has_auxiliary and not weighted else 0
    backward = one_direction(ctx, op, first=18, states=(37, 38), data=source, auxiliary=places[1])
    results = [
        convert_float(ctx, op, forward, time_major=time_major, auxiliary=auxiliary),
        convert_float(ctx, op, backward, time_major=time_major, auxiliary=auxiliary, backward=True),
    ]
    return [call("concatenate", tuple(results), ConcatenateAttrs(2), span=ctx.span(op))] if merged else results
