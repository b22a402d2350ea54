"""A float32 LSTM, and a hybrid one: float32 data, int8 weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array
from aot.op.common.check import require_dtype, require_quant
from aot.op.common.move import reshaped
from aot.op.convert import ConvertContext, operand, unsupported
from aot.op.recurrent.lstm_float import NAME, LstmFloatAttrs
from aot.op.recurrent.lstm_operands import LstmOperands, sequence_shape
from aot.relay.expr import Expr, call, const, get_item

ACTIVATIONS = ("TANH", "RELU", "RELU6", "RELU_N1_TO_1")


def convert_float(
    ctx: ConvertContext,
    op: OperatorView,
    lstm: LstmOperands,
    *,
    time_major: bool,
    backward: bool = False,
    auxiliary: Expr | None = None,
) -> Expr:
    """The outputs; both states get new values."""
    data, span = ctx.input_type(op, lstm.data), ctx.span(op)
    output, cell = ctx.variable(op, lstm.output_state), ctx.variable(op, lstm.cell_state)
    for type_, what in ((output.type, "the output's state"), (cell.type, "the cell's state")):
        require_dtype(ctx, op, type_, {"float32"}, what=what)
    shape, major = sequence_shape(data, time_major=time_major)
    batch = shape[1 if major else 0]
    if major and batch > 1:
        # the reference then multiplies matrices, whose order of summation depends on all their sizes
        unsupported(ctx, op, f"{batch} batches of float32 data with the time first are not supported; 1 is")
    attrs = _attrs(ctx, op, lstm, time_major=major, backward=backward, auxiliary=auxiliary is not None)
    operands = [reshaped(operand(ctx, op, lstm.data), shape, span)]
    operands += [reshaped(v.read(), (batch, v.type.size // batch), span) for v in (output, cell)]
    matrix = "int8" if attrs.scales else "float32"
    operands += [const(_joined(ctx, op, p, matrix)) for p in (lstm.weights, lstm.recurrent)]
    operands.append(const(_joined(ctx, op, lstm.biases)))
    if auxiliary is not None:
        operands += [auxiliary, const(_joined(ctx, op, lstm.auxiliary, matrix))]
    if lstm.peepholes:
        operands.append(const(np.concatenate([_peephole(ctx, op, p, matrix) for p in lstm.peepholes])))
    if lstm.norms:
        operands.append(const(_joined(ctx, op, lstm.norms)))
    operands += [const(_joined(ctx, op, [p], matrix)) for p in [lstm.projection] if p is not None]
    operands += [const(_joined(ctx, op, [p])) for p in [lstm.projection_bias] if p is not None]
    made = call(NAME, operands, attrs, span=span)
    for i, variable in ((1, output), (2, cell)):
        variable.assign(reshaped(get_item(made, i, span=span), variable.type.shape, span))
    return reshaped(get_item(made, 0, span=span), (*data.shape[:-1], ctx.input_type(op, lstm.recurrent[-1]).shape[1]), span)


def _attrs(
    ctx: ConvertContext, op: OperatorView, lstm: LstmOperands, *, time_major: bool, backward: bool, auxiliary: bool
) -> LstmFloatAttrs:
    activation = op.option("fused_activation_function")
    if activation not in ACTIVATIONS:
        unsupported(ctx, op, f"the activation {activation} is not supported")
    return LstmFloatAttrs(
        time_major,
        lstm.gates,
        backward,
        auxiliary,
        bool(lstm.peepholes),
        bool(lstm.norms),
        lstm.projection is not None,
        lstm.projection_bias is not None,
        float(np.float32(op.option("cell_clip"))),
        float(np.float32(op.option("proj_clip"))),
        activation,
        _scales(ctx, op, lstm) if ctx.input_type(op, lstm.weights[-1]).dtype == "int8" else (),
        bool(op.option("asymmetric_quantize_inputs")),
    )


def _scales(ctx: ConvertContext, op: OperatorView, lstm: LstmOperands) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """Those of each int8 matrix."""
    matrices = {"input": lstm.weights, "recurrent": lstm.recurrent, "auxiliary_weight": lstm.auxiliary}
    matrices["projection"] = () if lstm.projection is None else (lstm.projection,)
    return tuple((name, tuple(_scale(ctx, op, p) for p in positions)) for name, positions in matrices.items() if positions)


def _scale(ctx: ConvertContext, op: OperatorView, position: int) -> float:
    return float(np.float32(require_quant(ctx, op, ctx.input_type(op, position), what=f"operand {position}")[0]))


def _joined(ctx: ConvertContext, op: OperatorView, positions: Sequence[int], dtype: str = "float32") -> Array:
    for p in positions:
        require_dtype(ctx, op, ctx.input_type(op, p), {dtype}, what=f"operand {p}")
    return np.concatenate([ctx.constant(op, p) for p in positions])


def _peephole(ctx: ConvertContext, op: OperatorView, position: int, dtype: str) -> Array:
    """Of int8 the float32 values that the reference makes of it."""
    weight = _joined(ctx, op, [position], dtype)
    return weight if dtype == "float32" else np.float32(_scale(ctx, op, position)) * weight.astype(np.float32)
