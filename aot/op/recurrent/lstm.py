"""UNIDIRECTIONAL_SEQUENCE_LSTM and LSTM of TFLite."""

from __future__ import annotations

from aot.frontend.view import OperatorView
from aot.op.common.check import require_dtype
from aot.op.convert import ConvertContext, from_tflite, unsupported
from aot.op.recurrent.lstm_basic import convert_basic
from aot.op.recurrent.lstm_convert_float import convert_float
from aot.op.recurrent.lstm_convert_integer import convert_integer
from aot.op.recurrent.lstm_operands import lstm_operands
from aot.relay.expr import Expr

EIGHT_BITS_BETWEEN = 12
"""Intermediate tensors by which LiteRT knows an LSTM whose gates are sums of 8-bit numbers; that of the common one has five."""


@from_tflite(
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "int8*int8 int16*int8 float32*int8 float32*float32",
    "qnn.lstm nn.lstm",
    oracle="LiteRT; of integers TFLM with `--oracle tflm`",
)
def convert_sequence(ctx: ConvertContext, op: OperatorView) -> Expr:
    """A sequence [T, B, I], or [B, T, I] if it is not time-major."""
    return _convert(ctx, op, time_major=bool(op.option("time_major")))


@from_tflite("LSTM", "int8*int8 uint8*uint8 float32*int8 float32*float32", "qnn.lstm nn.lstm nn.lstm_basic concatenate")
def convert_step(ctx: ConvertContext, op: OperatorView) -> Expr | list[Expr]:
    """One step [B, I]."""
    if op.option("kernel_type") == "BASIC":
        return convert_basic(ctx, op)
    return _convert(ctx, op, time_major=True)


def _convert(ctx: ConvertContext, op: OperatorView, *, time_major: bool) -> Expr:
    data = ctx.input_type(op, 0)
    lstm = lstm_operands(ctx, op)
    if data.dtype == "float32":
        return convert_float(ctx, op, lstm, time_major=time_major)
    if op.opcode == "LSTM" and len(op.intermediates) == EIGHT_BITS_BETWEEN:
        unsupported(ctx, op, f"an LSTM with {EIGHT_BITS_BETWEEN} intermediate tensors is one of 8x8 to 8 bits", code="E1261")
    require_dtype(ctx, op, data, {"int8", "float32"} if op.opcode == "LSTM" else {"int8", "int16", "float32"})
    return convert_integer(ctx, op, lstm, time_major=time_major)
