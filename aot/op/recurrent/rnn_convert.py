"""The converters of nn.rnn."""

from __future__ import annotations

import numpy as np

from aot.frontend.view import OperatorView
from aot.op.common.check import require_dtype, require_quant
from aot.op.common.move import reshaped
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.recurrent.lstm_operands import sequence_shape
from aot.op.recurrent.rnn import BOUNDS, NAME, RnnAttrs
from aot.op.tensor.concatenate import ConcatenateAttrs
from aot.relay.expr import Expr, call, const, get_item
from aot.support.dataclass import dataclass

_TYPES = "float32*int8 float32*float32"
_ACTIVATIONS = ("NONE", "TANH", *BOUNDS)


@dataclass(frozen=True, slots=True)
class _Operands:
    """Positions of the operands of one direction."""

    data: int
    weight: int
    recurrent: int
    bias: int
    state: int
    auxiliary: int | None = None


@from_tflite("RNN", _TYPES, "nn.rnn")
def convert_step(ctx: ConvertContext, op: OperatorView) -> Expr:
    """One step [B, I]."""
    return _convert(ctx, op, _Operands(0, 1, 2, 3, 4), time_major=True)


@from_tflite("UNIDIRECTIONAL_SEQUENCE_RNN", _TYPES, "nn.rnn")
def convert_sequence(ctx: ConvertContext, op: OperatorView) -> Expr:
    """A sequence [T, B, I], or [B, T, I] if it is not time-major."""
    return _convert(ctx, op, _Operands(0, 1, 2, 3, 4), time_major=bool(op.option("time_major")))


@from_tflite("BIDIRECTIONAL_SEQUENCE_RNN", _TYPES, "concatenate nn.rnn")
def convert_bidirectional(ctx: ConvertContext, op: OperatorView) -> list[Expr]:
    """Two results, or with `merge_outputs` one that has both side by side; auxiliary data as in BIDIRECTIONAL_SEQUENCE_LSTM."""
    time_major = bool(op.option("time_major"))
    weighted = len(op.inputs) > 11 and ctx.input(op, 10) is not None
    alone = len(op.inputs) > 9 and ctx.input(op, 9) is not None and not weighted
    forward = _Operands(0, 1, 2, 3, 4, 10 if weighted else None)
    backward = _Operands(9 if alone and time_major else 0, 5, 6, 7, 8, 11 if weighted else None)
    if weighted and ctx.input_type(op, 9).shape != ctx.input_type(op, 0).shape:
        # the reference takes its rows to be as long as the data's
        unsupported(ctx, op, f"auxiliary data of {ctx.input_type(op, 9)} with data of {ctx.input_type(op, 0)} is not supported")
    data, symmetric = ctx.input_type(op, 0), not op.option("asymmetric_quantize_inputs")
    if time_major and op.option("merge_outputs") and ctx.input_type(op, 1).dtype == "int8" and symmetric and data.shape[1] > 1:
        # the reference then reads zero points that it does not have
        unsupported(ctx, op, f"merged outputs of {data.shape[1]} batches with int8 weights are not supported; 1 is")
    results = [
        _convert(ctx, op, forward, time_major=time_major),
        _convert(ctx, op, backward, time_major=time_major, backward=True),
    ]
    if not op.option("merge_outputs"):
        return results
    return [call("concatenate", tuple(results), ConcatenateAttrs(2), span=ctx.span(op))]


def _convert(ctx: ConvertContext, op: OperatorView, rnn: _Operands, *, time_major: bool, backward: bool = False) -> Expr:
    data, weight, span = ctx.input_type(op, rnn.data), ctx.input_type(op, rnn.weight), ctx.span(op)
    state = ctx.variable(op, rnn.state)
    require_dtype(ctx, op, data, {"float32"})
    require_dtype(ctx, op, weight, {"int8", "float32"}, what="a weight")
    require_dtype(ctx, op, ctx.input_type(op, rnn.recurrent), {weight.dtype}, what="a recurrent weight")
    for position, what in ((rnn.bias, "a bias"), (rnn.state, "a state")):
        require_dtype(ctx, op, ctx.input_type(op, position), {"float32"}, what=what)
    units = weight.shape[0]
    if op.option("fused_activation_function") not in _ACTIVATIONS:
        unsupported(ctx, op, f"the activation {op.option('fused_activation_function')} is not supported")
    shape, major = sequence_shape(data, time_major=time_major)
    batch = shape[1 if major else 0]
    attrs = _attrs(ctx, op, rnn, time_major=major, backward=backward)
    operands = [
        reshaped(operand(ctx, op, rnn.data), shape, span),
        reshaped(state.read(), (batch, state.type.size // batch), span),
    ]
    operands += [const(ctx.constant(op, p)) for p in (rnn.weight, rnn.recurrent, rnn.bias)]
    if rnn.auxiliary is not None:
        operands += [operand(ctx, op, 9), const(ctx.constant(op, rnn.auxiliary))]
    made = call(NAME, operands, attrs, span=span)
    state.assign(reshaped(get_item(made, 1, span=span), state.type.shape, span))
    return reshaped(get_item(made, 0, span=span), (*data.shape[:-1], units), span)


def _attrs(ctx: ConvertContext, op: OperatorView, rnn: _Operands, *, time_major: bool, backward: bool) -> RnnAttrs:
    places = [rnn.weight, rnn.recurrent] + ([rnn.auxiliary] if rnn.auxiliary is not None else [])
    is_hybrid = ctx.input_type(op, rnn.weight).dtype == "int8"
    scales = tuple(
        float(np.float32(require_quant(ctx, op, ctx.input_type(op, p), what="a weight")[0])) for p in places if is_hybrid
    )
    activation, asymmetric = op.option("fused_activation_function"), bool(op.option("asymmetric_quantize_inputs"))
    shape = ctx.input_type(op, rnn.data).shape
    again = scales and op.opcode == "BIDIRECTIONAL_SEQUENCE_RNN" and time_major
    passes = shape[0] if again else 1
    return RnnAttrs(time_major, activation, backward, rnn.auxiliary is not None, scales, asymmetric, passes)
