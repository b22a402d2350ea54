"""The integers of a quantised LSTM: what the reference's `PopulateQuantizedLstmParams8x8_16` and TFLM's Prepare compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array
from aot.numerics.fixed_point import quantize_multiplier, reduced_multiplier
from aot.op.common.check import require_dtype, require_quant
from aot.op.common.move import reshaped
from aot.op.convert import ConvertContext, operand, unsupported
from aot.op.recurrent.lstm_integer import NAME, LstmAttrs, Scale
from aot.op.recurrent.lstm_operands import LstmOperands, sequence_shape
from aot.relay.expr import Expr, call, const, get_item

_F = np.float32
_GATE_SCALE = _F(2.0**-12)
_PRODUCT = 2.0**-15
_LEAST_POWER, _MOST_POWER = -29, 1
"""Of the cell's scale: the product of two gates is shifted by 30 more, between 1 and 31."""


def convert_integer(ctx: ConvertContext, op: OperatorView, lstm: LstmOperands, *, time_major: bool) -> Expr:
    """The outputs; both states get new values."""
    data, span = ctx.input_type(op, lstm.data), ctx.span(op)
    output, cell = ctx.variable(op, lstm.output_state), ctx.variable(op, lstm.cell_state)
    require_dtype(ctx, op, output.type, {data.dtype}, what="the output's state")
    require_dtype(ctx, op, cell.type, {"int16"}, what="the cell's state")
    for position in (*lstm.weights, *lstm.recurrent):
        require_dtype(ctx, op, ctx.input_type(op, position), {"int8"}, what="a weight")
    shape, major = sequence_shape(data, time_major=time_major)
    attrs = _attrs(ctx, op, lstm, time_major=major)
    sequence = reshaped(operand(ctx, op, lstm.data), shape, span)
    batch = shape[1 if major else 0]
    states = [reshaped(v.read(), (batch, v.type.size // batch), span) for v in (output, cell)]
    made = call(NAME, [sequence, *states, *map(const, _constants(ctx, op, lstm, attrs))], attrs, span=span)
    for i, variable in ((1, output), (2, cell)):
        variable.assign(reshaped(get_item(made, i, span=span), variable.type.shape, span))
    return reshaped(get_item(made, 0, span=span), (*data.shape[:-1], ctx.input_type(op, lstm.recurrent[-1]).shape[1]), span)


def _scale(ctx: ConvertContext, op: OperatorView, position: int) -> np.float32:
    return _F(require_quant(ctx, op, ctx.input_type(op, position), what=f"operand {position}")[0])


def _attrs(ctx: ConvertContext, op: OperatorView, lstm: LstmOperands, *, time_major: bool) -> LstmAttrs:
    """All scales in float32, in the reference's order."""
    data = ctx.input_type(op, lstm.data)
    cell_scale, output_scale = _scale(ctx, op, lstm.cell_state), _scale(ctx, op, lstm.output_state)
    power = float(np.round(np.log2(cell_scale)))
    if abs(np.log2(cell_scale) - power) >= 1e-3:
        unsupported(ctx, op, f"the cell's scale, {cell_scale}, is not a power of two", code="E1226")
    gate_scales = [_GATE_SCALE] * lstm.gates
    if lstm.norms:
        first = 4 - lstm.gates
        gate_scales = [_intermediate(ctx, op, first + g)[0] for g in range(lstm.gates)]
    inputs = _gate_scales(ctx, op, lstm.weights, _scale(ctx, op, lstm.data), gate_scales)
    recurrent = _gate_scales(ctx, op, lstm.recurrent, output_scale, gate_scales)
    out = ctx.output_type(op)
    zp = require_quant(ctx, op, ctx.input_type(op, lstm.output_state))[1]
    attrs = LstmAttrs(time_major, inputs, recurrent, (0, 15), (0, int(30 + power)), int(15 + power), (0, 0), 0, zp)
    attrs = replace(attrs, cell_clip=_clip(op, "cell_clip", cell_scale, 32767), quant=out.quant)
    if op.opcode != "LSTM" and (ctx.oracle == "tflm" or data.dtype == "int16"):  # LiteRT has no int16, TFLM no single step
        return _tflm(ctx, op, lstm, attrs, cell_scale=float(cell_scale), output_scale=float(output_scale))
    # without an input gate there is nothing in place of tanh; of single steps the reference demands at most 2^-9
    least = -15 if lstm.gates < 4 else _LEAST_POWER
    most = -9 if lstm.gates < 4 or op.opcode == "LSTM" else _MOST_POWER
    if not least <= power <= most:
        unsupported(ctx, op, f"the cell's scale, {cell_scale}, is not between 2^{least} and 2^{most}", code="E1226")
    return _litert(ctx, op, lstm, attrs, power=power, gate_scales=gate_scales)


def _gate_scales(
    ctx: ConvertContext, op: OperatorView, weights: Sequence[int], data: np.float32, gates: Sequence[np.float32]
) -> tuple[Scale, ...]:
    reals = [_F(_F(_scale(ctx, op, p) * data) / g) for p, g in zip(weights, gates, strict=True)]
    return tuple(quantize_multiplier(float(r)) for r in reals)


def _clip(op: OperatorView, option: str, scale: np.float32, most: int) -> int:
    """A bound of the file in steps of `scale`; 0 for none."""
    bound = _F(op.option(option))
    return int(min(_F(bound / scale), _F(most))) if bound > 0 else 0


def _intermediate(ctx: ConvertContext, op: OperatorView, i: int) -> tuple[np.float32, int]:
    scale, zp = require_quant(ctx, op, ctx.intermediate_type(op, i), what=f"intermediate {i}")
    return _F(scale), zp


def _litert(
    ctx: ConvertContext,
    op: OperatorView,
    lstm: LstmOperands,
    attrs: LstmAttrs,
    *,
    power: float,
    gate_scales: Sequence[np.float32],
) -> LstmAttrs:
    hidden, zp = _intermediate(ctx, op, 4)
    attrs = replace(attrs, hidden_scale=quantize_multiplier(float(_F(_PRODUCT / float(hidden) * _PRODUCT))), hidden_zp=zp)
    output_scale = _scale(ctx, op, lstm.output_state)
    if lstm.projection is not None:
        # the reference adds the negated zero point here, and its multiple to the projection's bias
        real = _F(_F(_scale(ctx, op, lstm.projection) * hidden) / output_scale)
        clip = _clip(op, "proj_clip", _F(require_quant(ctx, op, ctx.output_type(op), what="the result")[0]), 127)
        attrs = replace(attrs, hidden_zp=-zp, projection_scale=quantize_multiplier(float(real)), projection_clip=clip)
    if lstm.peepholes:
        others = [s for g, s in enumerate(gate_scales) if g != lstm.gates - 2]
        reals = [_F(2.0**power * float(_scale(ctx, op, p)) / float(s)) for p, s in zip(lstm.peepholes, others, strict=True)]
        attrs = replace(attrs, peephole_scales=tuple(quantize_multiplier(float(r)) for r in reals))
    if lstm.norms:
        scales = [_scale(ctx, op, p) for p in lstm.norms]
        norm = tuple((*quantize_multiplier(float(s)), max(1, int(_F(10000) * s))) for s in scales)
        attrs = replace(attrs, norm=norm)
    return attrs


def _tflm(
    ctx: ConvertContext, op: OperatorView, lstm: LstmOperands, attrs: LstmAttrs, *, cell_scale: float, output_scale: float
) -> LstmAttrs:
    if lstm.gates < 4 or lstm.peepholes or lstm.norms or lstm.projection is not None:
        unsupported(ctx, op, "TFLM has no LSTM with peepholes, a projection, layer normalisation or without an input gate")
    if op.option("fused_activation_function") != "TANH":
        unsupported(ctx, op, f"the activation {op.option('fused_activation_function')} is not supported with integers")
    if ctx.input_type(op, lstm.data).dtype == "int16":
        inputs, recurrent = _reduced(attrs.input_scales), _reduced(attrs.recurrent_scales)
        attrs = replace(attrs, input_scales=inputs, recurrent_scales=recurrent, rounding="single")
    return replace(
        attrs,
        forget_scale=quantize_multiplier(_PRODUCT * cell_scale / cell_scale),
        update_scale=quantize_multiplier(_PRODUCT * _PRODUCT / cell_scale),
        hidden_scale=quantize_multiplier(_PRODUCT * _PRODUCT / output_scale),
        hidden_zp=attrs.output_zp,
        activation="table",
    )


def _reduced(scales: tuple[Scale, ...]) -> tuple[Scale, ...]:
    return tuple((reduced_multiplier(m), s) for m, s in scales)


def _constants(ctx: ConvertContext, op: OperatorView, lstm: LstmOperands, attrs: LstmAttrs) -> list[Array]:
    """Weights gate by gate, biases with what the zero points add to them."""
    data_zp = require_quant(ctx, op, ctx.input_type(op, lstm.data))[1]
    weight, recurrent = (np.concatenate([ctx.constant(op, p) for p in positions]) for positions in (lstm.weights, lstm.recurrent))
    wide = "int64" if ctx.input_type(op, lstm.data).dtype == "int16" else "int32"
    given = np.concatenate([_bias(ctx, op, p, wide) for p in lstm.biases])
    input_bias = -data_zp * weight.sum(axis=1, dtype=np.int64) + (0 if lstm.norms else given)
    recurrent_bias = -attrs.output_zp * recurrent.sum(axis=1, dtype=np.int64)
    found = [weight, recurrent, input_bias.astype(wide), recurrent_bias.astype(wide)]
    if lstm.peepholes:
        found.append(np.concatenate([ctx.constant(op, p).astype(np.int16) for p in lstm.peepholes]))
    if lstm.norms:
        found += [np.concatenate([ctx.constant(op, p).astype(np.int16) for p in lstm.norms]), given.astype(np.int32)]
    if lstm.projection is not None:
        matrix = ctx.constant(op, lstm.projection)
        bias = np.zeros(len(matrix), np.int64) if lstm.projection_bias is None else ctx.constant(op, lstm.projection_bias)
        found += [matrix, (bias - attrs.hidden_zp * matrix.sum(axis=1, dtype=np.int64)).astype(np.int32)]
    return found


def _bias(ctx: ConvertContext, op: OperatorView, position: int, dtype: str) -> Array:
    if ctx.input(op, position) is None:
        return np.zeros(ctx.input_type(op, position).shape, np.int64)
    require_dtype(ctx, op, ctx.input_type(op, position), {dtype}, what="a bias")
    return ctx.constant(op, position).astype(np.int64)
