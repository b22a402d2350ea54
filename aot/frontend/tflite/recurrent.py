"""Converters of recurrent operators: LSTM, RNN, SVDF."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aot.frontend.tflite.convert import CLAMPS, Operator, converter
from aot.frontend.tflite.layer import quantized_data
from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.numerics.fixed_point import quantize_multiplier, reduced_multiplier
from aot.op import recurrent as ops
from aot.op.math.arithmetic import BinaryAttrs
from aot.op.math.unary import UnaryAttrs
from aot.op.nn.dense import DenseAttrs
from aot.op.qnn.quantize import HYBRID, HybridOutputAttrs, RequantizeAttrs
from aot.op.tensor import ConcatenateAttrs
from aot.relay.expr import Expr, const, get_item
from aot.relay.state import Variable
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range

# Shared: states, sequences, scales.

_F = np.float32


def _scale(op: Operator, position: int, what: str = "") -> np.float32:
    return _F(op.quant(op.type(position), what=what or f"operand {position}")[0])


def _sequence(data: TensorType, *, time_major: bool) -> tuple[tuple[int, ...], bool, int]:
    """The data's shape with a time axis, whether that comes first (rows are a single step), and the batch."""
    if len(data.shape) == 2:
        return (1, *data.shape), True, data.shape[0]
    return data.shape, time_major, data.shape[1 if time_major else 0]


def _rows_of(op: Operator, batch: int, *states: Variable) -> list[Expr]:
    """The states' values as rows."""
    return [op.reshaped(v.read(), (batch, v.type.size // batch)) for v in states]


def _finish(op: Operator, result: Expr, shape: Sequence[int], *states: Variable) -> Expr:
    """The outputs in this shape; the states get new values."""
    for i, variable in enumerate(states, 1):
        variable.assign(op.reshaped(get_item(result, i, span=op.span), variable.type.shape))
    return op.reshaped(get_item(result, 0, span=op.span), shape)


def _both(op: Operator, forward: Expr, backward: Expr) -> list[Expr]:
    """Two results, or with `merge_outputs` one with both side by side."""
    if op.option("merge_outputs"):
        return [op.call("concatenate", (forward, backward), ConcatenateAttrs(2))]
    return [forward, backward]


# The operands of TFLite's LSTM operators by name, and the kind of LSTM that they define.


@dataclass(frozen=True, slots=True)
class LstmOperands:
    """Positions of the operands of one direction, per gate: input, forget, cell, output; None for those left out.

    `gates` are the indices of the existing gates: without an input gate it is 1 - forget (CIFG).
    """

    data: int
    weights: tuple[int, ...]
    recurrent: tuple[int, ...]
    peepholes: tuple[int, ...]
    biases: tuple[int, ...]
    projection: int | None
    projection_bias: int | None
    output_state: int
    cell_state: int
    norms: tuple[int, ...]
    auxiliary: tuple[int, ...] = ()

    @property
    def gates(self) -> int:
        return len(self.weights)


def _one_direction(
    op: Operator, *, first: int, states: tuple[int, int], data: int = 0, norms: int | None = None, auxiliary: int | None = None
) -> LstmOperands:
    """Seventeen operands from `first` on: four weights, four recurrent ones, three peepholes, four biases, projection, its bias;
    then the positions of data and states, and the first ones of layer normalisation and of weights for auxiliary data.
    """

    def present(position: int) -> bool:
        return op.input(position) is not None

    kept = tuple(g for g in range(4) if g > 0 or present(first))
    norm = () if norms is None else tuple(norms + g for g in kept if len(op.inputs) > norms + 3 and present(norms + g))
    peepholes = tuple(first + 8 + i for i in range(len(kept) - 1) if present(first + 10)) if len(kept) == 4 else ()
    if len(kept) == 3 and present(first + 10):
        peepholes = (first + 9, first + 10)
    aux = () if auxiliary is None else tuple(auxiliary + g for g in kept if present(auxiliary + g))
    operands = LstmOperands(
        data,
        tuple(first + g for g in kept),
        tuple(first + 4 + g for g in kept),
        peepholes,
        tuple(first + 11 + g for g in kept),
        first + 15 if present(first + 15) else None,
        first + 16 if present(first + 15) and present(first + 16) else None,
        *states,
        norm,
        aux,
    )
    _check_operands(op, operands)
    return operands


def _check_operands(op: Operator, lstm: LstmOperands) -> None:
    """Refuse missing operands, or shapes that do not match."""
    data = op.type(lstm.data)
    cells, outputs = op.type(lstm.recurrent[-1]).shape[0], op.type(lstm.recurrent[-1]).shape[-1]
    if len(lstm.norms) not in (0, lstm.gates) or len(lstm.auxiliary) not in (0, lstm.gates):
        op.refuse("some gates have operands that others lack", code="E1207")
    expected = [
        *((p, (cells, data.shape[-1])) for p in lstm.weights),
        *((p, (cells, outputs)) for p in lstm.recurrent),
        *((p, (cells,)) for p in (*lstm.peepholes, *lstm.biases, *lstm.norms)),
        *((p, (outputs, cells)) for p in [lstm.projection] if p is not None),
        *((p, (outputs,)) for p in [lstm.projection_bias] if p is not None),
    ]
    for position, shape in expected:
        if (actual := op.type(position).shape) != shape:
            op.refuse(f"operand {position} is {list(actual)}, expected {list(shape)}", code="E1207")
    if lstm.projection is None and cells != outputs:
        op.refuse(f"{cells} cells give {outputs} outputs without a projection", code="E1207")


CELL_POWER = -11
"""log2 of the cell's scale: the reference accepts no other."""
_BASIC_GATE = 2.0**12


def _basic_lstm(op: Operator) -> list[Expr]:
    """(output, cell, v, gates), all of which the file may read; both states get new values."""
    if len(op.inputs) != 5 or len(op.outputs) != 4:
        op.refuse(f"the basic kernel has 5 operands and 4 results, not {len(op.inputs)} and {len(op.outputs)}")
    data, weight, bias = op.types(0, 2, 3)
    output, cell = op.variable(1), op.variable(4)
    is_float = data.dtype == "float32"
    kinds = ("float32",) * 5 if is_float else ("uint8", "uint8", "uint8", "int32", "int16")
    for type_, kind in zip((data, output.type, weight, bias, cell.type), kinds, strict=True):
        op.require_dtype(type_, {kind}, what="an operand of the basic kernel")
    _check_basic_shapes(op, data, output.type, weight, bias, cell.type)
    if is_float and data.shape[0] > 1:
        # the reference then uses a matrix product, whose order of summation depends on all sizes
        op.refuse(f"{data.shape[0]} batches of float32 data are not supported by the basic kernel; only 1 is")
    attrs = ops.LstmBasicAttrs() if is_float else _basic_attrs(op)
    joined = op.call("concatenate", [op.operand(0), output.read()], ConcatenateAttrs(1))
    lstm = op.call(ops.LSTM_BASIC, [joined, cell.read(), const(op.constant(2)), const(op.constant(3))], attrs)
    results = [get_item(lstm, i, span=op.span) for i in range(3)]
    output.assign(results[0])
    cell.assign(results[1])
    return [results[0], results[1], joined, results[2]]


def _check_basic_shapes(op: Operator, *types: TensorType) -> None:
    data, output, weight, bias, cell = (t.shape for t in types)
    rows = 4 * cell[-1]
    expected = ((*data[:1], cell[-1]), (rows, data[-1] + cell[-1]), (rows,), (*data[:1], cell[-1]))
    if len(data) != 2 or (output, weight, bias, cell) != expected:
        shapes = ", ".join(str(list(t.shape)) for t in types)
        op.refuse(f"data, output, weights, bias and cell of {shapes} do not match", code="E1207")


def _basic_attrs(op: Operator) -> ops.LstmBasicAttrs:
    scale, _ = op.quant(op.result_type(1), what="the cell")
    if abs(np.log2(scale) - CELL_POWER) >= 1e-3:
        op.refuse(f"the cell's scale {scale} is not 2^{CELL_POWER}, the only one that the basic kernel supports", code="E1226")
    _, weight_zp = op.quant(op.type(2), what="the weights")
    bias, _ = op.quant(op.type(3), what="the bias")
    quants = tuple(op.result_type(i).quant for i in (0, 1, 3))
    return ops.LstmBasicAttrs(weight_zp, *quantize_multiplier(_BASIC_GATE * float(np.float32(bias))), quants)


# A float32 LSTM, and a hybrid one: float32 data, int8 weights.


LSTM_ACTIVATIONS = ("TANH", "RELU", "RELU6", "RELU_N1_TO_1")


def _float_lstm(
    op: Operator, lstm: LstmOperands, *, time_major: bool, backward: bool = False, auxiliary: Expr | None = None
) -> Expr:
    """The outputs; both states get new values."""
    data, output, cell = op.type(lstm.data), op.variable(lstm.output_state), op.variable(lstm.cell_state)
    for type_, what in ((output.type, "the output's state"), (cell.type, "the cell's state")):
        op.require_dtype(type_, {"float32"}, what=what)
    shape, major, batch = _sequence(data, time_major=time_major)
    if major and batch > 1:
        # the reference then uses a matrix product, whose order of summation depends on all sizes
        op.refuse(f"{batch} batches of float32 data with the time first are not supported; only 1 is")
    attrs = _float_attrs(op, lstm, time_major=major, backward=backward, auxiliary=auxiliary is not None)
    operands = [op.reshaped(op.operand(lstm.data), shape), *_rows_of(op, batch, output, cell)]
    matrix = "int8" if attrs.scales else "float32"
    operands += [const(_joined(op, lstm.weights, matrix)), const(_joined(op, lstm.recurrent, matrix))]
    operands.append(const(_joined(op, lstm.biases)))
    if auxiliary is not None:
        operands += [auxiliary, const(_joined(op, lstm.auxiliary, matrix))]
    if lstm.peepholes:
        operands.append(const(np.concatenate([_peephole(op, p, matrix) for p in lstm.peepholes])))
    if lstm.norms:
        operands.append(const(_joined(op, lstm.norms)))
    operands += [const(_joined(op, [p], matrix)) for p in [lstm.projection] if p is not None]
    operands += [const(_joined(op, [p])) for p in [lstm.projection_bias] if p is not None]
    return _finish(op, op.call(ops.LSTM_FLOAT, operands, attrs), _result_shape(op, lstm), output, cell)


def _result_shape(op: Operator, lstm: LstmOperands) -> tuple[int, ...]:
    return (*op.type(lstm.data).shape[:-1], op.type(lstm.recurrent[-1]).shape[1])


def _float_attrs(op: Operator, lstm: LstmOperands, *, time_major: bool, backward: bool, auxiliary: bool) -> ops.LstmFloatAttrs:
    activation = op.option("fused_activation_function")
    if activation not in LSTM_ACTIVATIONS:
        op.refuse(f"the activation {activation} is not supported")
    return ops.LstmFloatAttrs(
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
        _weight_scales(op, lstm) if op.type(lstm.weights[-1]).dtype == "int8" else (),
        bool(op.option("asymmetric_quantize_inputs")),
    )


def _weight_scales(op: Operator, lstm: LstmOperands) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """The scales of each int8 matrix."""
    matrices = {"input": lstm.weights, "recurrent": lstm.recurrent, "auxiliary_weight": lstm.auxiliary}
    matrices["projection"] = () if lstm.projection is None else (lstm.projection,)
    return tuple((name, tuple(float(_scale(op, p)) for p in positions)) for name, positions in matrices.items() if positions)


def _joined(op: Operator, positions: Sequence[int], dtype: str = "float32") -> Array:
    for p in positions:
        op.require_dtype(op.type(p), {dtype}, what=f"operand {p}")
    return np.concatenate([op.constant(p) for p in positions])


def _peephole(op: Operator, position: int, dtype: str) -> Array:
    """The peephole; int8 as the float32 values that the reference computes from it."""
    weight = _joined(op, [position], dtype)
    return weight if dtype == "float32" else _scale(op, position) * weight.astype(np.float32)


# The integers of a quantised LSTM: what the reference's `PopulateQuantizedLstmParams8x8_16` and TFLM's Prepare compute.


_GATE_SCALE = _F(2.0**-12)
_PRODUCT = 2.0**-15
_LEAST_POWER, _MOST_POWER = -29, 1
"""Exponents of the cell's scale: the product of two gates is shifted by 30 more, between 1 and 31."""


def _integer_lstm(op: Operator, lstm: LstmOperands, *, time_major: bool) -> Expr:
    """The outputs; both states get new values."""
    data, output, cell = op.type(lstm.data), op.variable(lstm.output_state), op.variable(lstm.cell_state)
    op.require_dtype(output.type, {data.dtype}, what="the output's state")
    op.require_dtype(cell.type, {"int16"}, what="the cell's state")
    for position in (*lstm.weights, *lstm.recurrent):
        op.require_dtype(op.type(position), {"int8"}, what="a weight")
    shape, major, batch = _sequence(data, time_major=time_major)
    attrs = _integer_attrs(op, lstm, time_major=major)
    operands = [op.reshaped(op.operand(lstm.data), shape), *_rows_of(op, batch, output, cell)]
    operands += map(const, _integer_constants(op, lstm, attrs))
    return _finish(op, op.call(ops.LSTM_INTEGER, operands, attrs), _result_shape(op, lstm), output, cell)


def _integer_attrs(op: Operator, lstm: LstmOperands, *, time_major: bool) -> ops.LstmAttrs:
    """All scales in float32, in the reference's order."""
    data = op.type(lstm.data)
    cell_scale, output_scale = _scale(op, lstm.cell_state), _scale(op, lstm.output_state)
    power = float(np.round(np.log2(cell_scale)))
    if abs(np.log2(cell_scale) - power) >= 1e-3:
        op.refuse(f"the cell's scale {cell_scale} is not a power of two", code="E1226")
    gate_scales = [_GATE_SCALE] * lstm.gates
    if lstm.norms:
        first = 4 - lstm.gates
        gate_scales = [_intermediate(op, first + g)[0] for g in range(lstm.gates)]
    inputs = _gate_scales(op, lstm.weights, _scale(op, lstm.data), gate_scales)
    recurrent = _gate_scales(op, lstm.recurrent, output_scale, gate_scales)
    out = op.result_type()
    zp = op.quant(op.type(lstm.output_state))[1]
    attrs = ops.LstmAttrs(time_major, inputs, recurrent, (0, 15), (0, int(30 + power)), int(15 + power), (0, 0), 0, zp)
    attrs = replace(attrs, cell_clip=_clip_code(op, "cell_clip", cell_scale, 32767), quant=out.quant)
    if op.opcode != "LSTM" and (op.oracle == "tflm" or data.dtype == "int16"):  # LiteRT has no int16, TFLM no single step
        return _tflm(op, lstm, attrs, cell_scale=float(cell_scale), output_scale=float(output_scale))
    # without an input gate there is nothing in place of tanh; for single steps the reference requires at most 2^-9
    least = -15 if lstm.gates < 4 else _LEAST_POWER
    most = -9 if lstm.gates < 4 or op.opcode == "LSTM" else _MOST_POWER
    if not least <= power <= most:
        op.refuse(f"the cell's scale {cell_scale} is not between 2^{least} and 2^{most}", code="E1226")
    return _litert(op, lstm, attrs, power=power, gate_scales=gate_scales)


def _gate_scales(op: Operator, weights: Sequence[int], data: np.float32, gates: Sequence[np.float32]) -> tuple[ops.Scale, ...]:
    return tuple(quantize_multiplier(float(_F(_F(_scale(op, p) * data) / g))) for p, g in zip(weights, gates, strict=True))


def _clip_code(op: Operator, option: str, scale: np.float32, most: int) -> int:
    """A bound from the file in steps of `scale`; 0 for none."""
    bound = _F(op.option(option))
    return int(min(_F(bound / scale), _F(most))) if bound > 0 else 0


def _intermediate(op: Operator, i: int) -> tuple[np.float32, int]:
    scale, zp = op.quant(op.ctx.intermediate_type(op.view, i), what=f"intermediate {i}")
    return _F(scale), zp


def _litert(
    op: Operator, lstm: LstmOperands, attrs: ops.LstmAttrs, *, power: float, gate_scales: Sequence[np.float32]
) -> ops.LstmAttrs:
    hidden, zp = _intermediate(op, 4)
    attrs = replace(attrs, hidden_scale=quantize_multiplier(float(_F(_PRODUCT / float(hidden) * _PRODUCT))), hidden_zp=zp)
    output_scale = _scale(op, lstm.output_state)
    if lstm.projection is not None:
        # the reference adds the negated zero point here, and its multiple to the projection's bias
        real = _F(_F(_scale(op, lstm.projection) * hidden) / output_scale)
        clip = _clip_code(op, "proj_clip", _F(op.quant(op.result_type(), what="the result")[0]), 127)
        attrs = replace(attrs, hidden_zp=-zp, projection_scale=quantize_multiplier(float(real)), projection_clip=clip)
    if lstm.peepholes:
        others = [s for g, s in enumerate(gate_scales) if g != lstm.gates - 2]
        reals = [_F(2.0**power * float(_scale(op, p)) / float(s)) for p, s in zip(lstm.peepholes, others, strict=True)]
        attrs = replace(attrs, peephole_scales=tuple(quantize_multiplier(float(r)) for r in reals))
    scales = [_scale(op, p) for p in lstm.norms]
    return replace(attrs, norm=tuple((*quantize_multiplier(float(s)), max(1, int(_F(10000) * s))) for s in scales))


def _tflm(op: Operator, lstm: LstmOperands, attrs: ops.LstmAttrs, *, cell_scale: float, output_scale: float) -> ops.LstmAttrs:
    if lstm.gates < 4 or lstm.peepholes or lstm.norms or lstm.projection is not None:
        op.refuse("TFLM has no LSTM with peepholes, a projection, layer normalisation or without an input gate")
    if op.option("fused_activation_function") != "TANH":
        op.refuse(f"the activation {op.option('fused_activation_function')} is not supported with integers")
    if op.type(lstm.data).dtype == "int16":
        inputs, recurrent = _reduced_sum(attrs.input_scales), _reduced_sum(attrs.recurrent_scales)
        attrs = replace(attrs, input_scales=inputs, recurrent_scales=recurrent, rounding="single")
    return replace(
        attrs,
        forget_scale=quantize_multiplier(_PRODUCT * cell_scale / cell_scale),
        update_scale=quantize_multiplier(_PRODUCT * _PRODUCT / cell_scale),
        hidden_scale=quantize_multiplier(_PRODUCT * _PRODUCT / output_scale),
        hidden_zp=attrs.output_zp,
        activation="table",
    )


def _reduced_sum(scales: tuple[ops.Scale, ...]) -> tuple[ops.Scale, ...]:
    return tuple((reduced_multiplier(m), s) for m, s in scales)


def _integer_constants(op: Operator, lstm: LstmOperands, attrs: ops.LstmAttrs) -> list[Array]:
    """Weights by gate, and biases with the contributions of the zero points."""
    data_zp = op.quant(op.type(lstm.data))[1]
    weight, recurrent = (np.concatenate([op.constant(p) for p in positions]) for positions in (lstm.weights, lstm.recurrent))
    wide = "int64" if op.type(lstm.data).dtype == "int16" else "int32"
    biases = np.concatenate([_integer_bias(op, p, wide) for p in lstm.biases])
    input_bias = -data_zp * weight.sum(axis=1, dtype=np.int64) + (0 if lstm.norms else biases)
    recurrent_bias = -attrs.output_zp * recurrent.sum(axis=1, dtype=np.int64)
    constants = [weight, recurrent, input_bias.astype(wide), recurrent_bias.astype(wide)]
    if lstm.peepholes:
        constants.append(np.concatenate([op.constant(p).astype(np.int16) for p in lstm.peepholes]))
    if lstm.norms:
        constants += [np.concatenate([op.constant(p).astype(np.int16) for p in lstm.norms]), biases.astype(np.int32)]
    if lstm.projection is not None:
        matrix = op.constant(lstm.projection)
        bias = np.zeros(len(matrix), np.int64) if lstm.projection_bias is None else op.constant(lstm.projection_bias)
        constants += [matrix, (bias - attrs.hidden_zp * matrix.sum(axis=1, dtype=np.int64)).astype(np.int32)]
    return constants


def _integer_bias(op: Operator, position: int, dtype: str) -> Array:
    if op.input(position) is None:
        return np.zeros(op.type(position).shape, np.int64)
    op.require_dtype(op.type(position), {dtype}, what="a bias")
    return op.constant(position).astype(np.int64)


# UNIDIRECTIONAL_SEQUENCE_LSTM and LSTM of TFLite.


EIGHT_BITS_BETWEEN = 12
"""Number of intermediate tensors by which LiteRT recognises an LSTM whose gates are sums of 8-bit numbers; the usual has five."""


@converter(
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "int8*int8 int16*int8 float32*int8 float32*float32",
    "qnn.lstm nn.lstm",
    oracle="LiteRT; of integers TFLM with `--oracle tflm`",
)
def _lstm_sequence(op: Operator) -> Expr:
    """A sequence [T, B, I], or [B, T, I] if it is not time-major."""
    return _convert_lstm(op, time_major=bool(op.option("time_major")))


@converter("LSTM", "int8*int8 uint8*uint8 float32*int8 float32*float32", "qnn.lstm nn.lstm nn.lstm_basic concatenate")
def _lstm(op: Operator) -> Expr | list[Expr]:
    """One step [B, I]."""
    if op.option("kernel_type") == "BASIC":
        return _basic_lstm(op)
    return _convert_lstm(op, time_major=True)


def _convert_lstm(op: Operator, *, time_major: bool) -> Expr:
    data, lstm = op.type(0), _one_direction(op, first=1, states=(18, 19), norms=20)
    if data.dtype == "float32":
        return _float_lstm(op, lstm, time_major=time_major)
    if op.opcode == "LSTM" and len(op.view.intermediates) == EIGHT_BITS_BETWEEN:
        op.refuse(f"an LSTM with {EIGHT_BITS_BETWEEN} intermediate tensors (8x8 to 8 bits) is not supported", code="E1261")
    op.require_dtype(data, {"int8", "float32"} if op.opcode == "LSTM" else {"int8", "int16", "float32"})
    return _integer_lstm(op, lstm, time_major=time_major)


# BIDIRECTIONAL_SEQUENCE_LSTM of TFLite: one LSTM from the first step to the last, one in reverse, on float32 or hybrid.
#
# Auxiliary data goes to both directions if there are weights for it, else it is the data of the backward one.


_AUXILIARY = 39


@converter("BIDIRECTIONAL_SEQUENCE_LSTM", "float32*int8 float32*float32", "concatenate nn.lstm")
def _bidirectional_lstm(op: Operator) -> list[Expr]:
    data = op.type(0, {"float32"})
    if len(data.shape) != 3:
        op.refuse(f"data of {len(data.shape)} dimensions are not supported", code="E1207")
    time_major = bool(op.option("time_major"))
    if op.option("merge_outputs") and not time_major and data.shape[0] > 1:
        # the reference then reads the states of the second batch beyond their end
        op.refuse(f"merged outputs of {data.shape[0]} batches before the time are not supported; only 1 is")
    weighted = len(op.inputs) > 41 and op.input(41) is not None
    has_auxiliary = len(op.inputs) > _AUXILIARY and op.input(_AUXILIARY) is not None
    auxiliary = op.operand(_AUXILIARY) if weighted else None
    places = (40, 44) if weighted else (None, None)
    forward = _one_direction(op, first=1, states=(35, 36), auxiliary=places[0])
    source = _AUXILIARY if has_auxiliary and not weighted else 0
    backward = _one_direction(op, first=18, states=(37, 38), data=source, auxiliary=places[1])
    first = _float_lstm(op, forward, time_major=time_major, auxiliary=auxiliary)
    return _both(op, first, _float_lstm(op, backward, time_major=time_major, auxiliary=auxiliary, backward=True))


# The converters of nn.rnn.


_RNN_TYPES = "float32*int8 float32*float32"
_RNN_ACTIVATIONS = ("NONE", "TANH", *ops.BOUNDS)


@converter("RNN", _RNN_TYPES, "nn.rnn")
def _rnn(op: Operator) -> Expr:
    """One step [B, I]."""
    return _one_rnn(op, time_major=True)


@converter("UNIDIRECTIONAL_SEQUENCE_RNN", _RNN_TYPES, "nn.rnn")
def _rnn_sequence(op: Operator) -> Expr:
    """A sequence [T, B, I], or [B, T, I] if it is not time-major."""
    return _one_rnn(op, time_major=bool(op.option("time_major")))


@converter("BIDIRECTIONAL_SEQUENCE_RNN", _RNN_TYPES, "concatenate nn.rnn")
def _bidirectional_rnn(op: Operator) -> list[Expr]:
    """Auxiliary data as in BIDIRECTIONAL_SEQUENCE_LSTM."""
    time_major = bool(op.option("time_major"))
    weighted = len(op.inputs) > 11 and op.input(10) is not None
    alone = len(op.inputs) > 9 and op.input(9) is not None and not weighted
    if weighted and op.type(9).shape != op.type(0).shape:
        # the reference assumes that its rows are as long as the data's
        op.refuse(f"auxiliary data of {op.type(9)} with data of {op.type(0)} is not supported")
    data, symmetric = op.type(0), not op.option("asymmetric_quantize_inputs")
    if time_major and op.option("merge_outputs") and op.type(1).dtype == "int8" and symmetric and data.shape[1] > 1:
        # the reference then reads zero points that do not exist
        op.refuse(f"merged outputs of {data.shape[1]} batches with int8 weights are not supported; only 1 is")
    forward = _one_rnn(op, auxiliary=10 if weighted else None, time_major=time_major)
    source = 9 if alone and time_major else 0
    backward = _one_rnn(op, source, 5, auxiliary=11 if weighted else None, time_major=time_major, backward=True)
    return _both(op, forward, backward)


def _one_rnn(
    op: Operator, data: int = 0, first: int = 1, *, auxiliary: int | None = None, time_major: bool, backward: bool = False
) -> Expr:  # fmt: skip
    """One direction: weights, recurrent weights, bias and state are the operands from `first` on."""
    data_type, weight, state = (
        op.type(data, {"float32"}),
        op.type(first, {"int8", "float32"}, what="a weight"),
        op.variable(first + 3),
    )
    op.require_dtype(op.type(first + 1), {weight.dtype}, what="a recurrent weight")
    for position, what in ((first + 2, "a bias"), (first + 3, "a state")):
        op.require_dtype(op.type(position), {"float32"}, what=what)
    activation = op.option("fused_activation_function")
    if activation not in _RNN_ACTIVATIONS:
        op.refuse(f"the activation {activation} is not supported")
    shape, major, batch = _sequence(data_type, time_major=time_major)
    places = [first, first + 1] + ([auxiliary] if auxiliary is not None else [])
    scales = tuple(float(_scale(op, p, "a weight")) for p in places if weight.dtype == "int8")
    passes = data_type.shape[0] if scales and op.opcode == "BIDIRECTIONAL_SEQUENCE_RNN" and major else 1
    asymmetric = bool(op.option("asymmetric_quantize_inputs"))
    attrs = ops.RnnAttrs(major, activation, backward, auxiliary is not None, scales, asymmetric, passes)
    operands = [op.reshaped(op.operand(data), shape), *_rows_of(op, batch, state)]
    operands += [const(op.constant(p)) for p in range(first, first + 3)]
    if auxiliary is not None:
        operands += [op.operand(9), const(op.constant(auxiliary))]
    return _finish(op, op.call(ops.RNN, operands, attrs), (*data_type.shape[:-1], weight.shape[0]), state)


# SVDF of TFLite: a fully connected layer whose outputs are filtered in time, one step per run.
#
# feature = weights_feature * data; nn.svdf_memory puts it into the state, nn.svdf_time filters the state; bias and activation
# follow.  Integers: the feature is rounded twice to the state's type, the sums to int8; the activation, always RELU, is left to
# the range of the result.  Oracles: `svdf.cc` and `reference/svdf.h`; for int8 states, which LiteRT treats as int16, TFLM's
# `svdf_common.cc`.


@converter(
    "SVDF",
    "int8*int8 float32*int8 float32*float32",
    "add nn.dense nn.dense_lanes nn.svdf_memory nn.svdf_time qnn.dynamic_params qnn.dynamic_quantize qnn.dynamic_range"
    " qnn.hybrid_output",
    oracle="LiteRT; TFLM for int8 states",
)
def _svdf(op: Operator) -> Expr:
    """Data [B, I], feature weights [F, I], time weights [F, M], bias [F / rank], state [B, F * M]."""
    _check_svdf_shapes(op)
    data, weight = op.type(0, {"int8", "float32"}), op.type(1)
    op.require_dtype(weight, {"int8"} if data.dtype == "int8" else {"int8", "float32"}, what="a weight")
    return _integer_svdf(op) if data.dtype == "int8" else _float_svdf(op)


def _check_svdf_shapes(op: Operator) -> None:
    """Refuse feature weights, bias and rank that do not match; the state has been checked with the file."""
    data, weight, time = (op.type(i).shape for i in range(3))
    rank = op.option("rank")
    if len(data) != 2 or len(weight) != 2 or len(time) != 2 or (weight[1], time[0]) != (data[1], weight[0]):
        shapes = f"data {list(data)}, feature weights {list(weight)} and time weights {list(time)}"
        op.refuse(f"{shapes} do not match", code="E1207")
    if rank < 1 or weight[0] % rank:
        op.refuse(f"{weight[0]} filters are not a multiple of rank {rank}", code="E1122")
    if op.input(3) is not None and op.type(3).size != weight[0] // rank:
        op.refuse(f"a bias of {op.type(3).size} values for {weight[0] // rank} units", code="E1207")


def _integer_svdf(op: Operator) -> Expr:
    """dense + requantize give the feature, svdf_time + bias_add + requantize the result."""
    state, out = op.variable(4), op.result_type()
    allowed = ("int16",) if op.oracle == "litert" and state.type.dtype != "int8" else ("int8", "int16")
    for i, what in ((2, "a weight in time"), (4, "a state")):
        op.require_dtype(op.type(i), {state.type.dtype} & set(allowed) or set(allowed), what=what)
    op.require_dtype(out, {"int8"}, what="the result")
    if op.option("fused_activation_function") != "RELU":
        op.refuse(f"the fused activation {op.option('fused_activation_function')} is not supported with int8 data")
    (data_scale, data_zp), (weight_scale, _), (time_scale, _) = (op.quant(op.type(i)) for i in range(3))
    (state_scale, state_zp), (out_scale, _) = op.quant(state.type), op.quant(out)
    dtype = state.type.dtype
    acc = op.call("nn.dense", op.operands(0, 1), DenseAttrs(data_zp))
    feature = op.call("qnn.requantize", [acc], _svdf_rescaled(op, ((data_scale, weight_scale), (state_scale,)), dtype))
    state_zp = state_zp if dtype == "int8" else 0  # LiteRT treats int16 as symmetric, whatever the file says
    state.assign(op.call(ops.MEMORY, [state.read(), feature], ops.SvdfMemoryAttrs(state_zp)))
    sums = op.call(ops.TIME, [state.read(), op.operand(2)], ops.SvdfTimeAttrs(op.option("rank"), state_zp))
    if (bias := op.input(3)) is not None:
        op.require_dtype(op.type(3), {"int32"}, what="a bias")
        sums = op.call("nn.bias_add", [sums, bias])
    return op.call("qnn.requantize", [sums], _svdf_rescaled(op, ((state_scale, time_scale), (out_scale,)), "int8", out))


def _svdf_rescaled(
    op: Operator, scales: tuple[tuple[float, ...], tuple[float, ...]], dtype: str, out: TensorType | None = None
) -> RequantizeAttrs:
    """Rounded twice, and clamped to the type; `scales` are factors and divisors."""
    multiplier, shift = op.multiplier("int8", *scales)
    quant = None if out is None else out.quant
    zero_point = quant.zero_point[0] if quant else 0
    return RequantizeAttrs((multiplier,), (shift,), zero_point, *int_range(dtype), "double", dtype, quant)


def _float_svdf(op: Operator) -> Expr:
    """Float32 data with float32 weights, or with int8 weights and dynamically quantised data."""
    state = op.variable(4)
    activation = op.option("fused_activation_function")
    if activation not in CLAMPS:
        op.refuse(f"the fused activation {activation} is not supported")
    for type_, what in ((state.type, "a state"), (op.result_type(), "the result")):
        op.require_dtype(type_, {"float32"}, what=what)
    weight = op.type(1).dtype
    op.require_dtype(op.type(2), {weight}, what="a weight in time")
    feature, time = _hybrid_svdf(op) if weight == "int8" else (op.call(ops.DENSE_LANES, op.operands(0, 1)), op.operand(2))
    state.assign(op.call(ops.MEMORY, [state.read(), feature], ops.SvdfMemoryAttrs()))
    result = op.call(ops.TIME, [state.read(), time], ops.SvdfTimeAttrs(op.option("rank")))
    if (bias := op.input(3)) is not None:
        op.require_dtype(op.type(3), {"float32"}, what="a bias")
        result = op.call("add", [result, bias], BinaryAttrs())
    lo, hi = CLAMPS[activation]
    return result if lo is None else op.call("relu", [result], UnaryAttrs(lo=lo, hi=hi))


def _hybrid_svdf(op: Operator) -> tuple[Expr, Expr]:
    """The integer feature; the time weights as the float32 values that the reference computes in its first run."""
    scale, time_scale = _scale(op, 1, "a weight"), _scale(op, 2, "a weight")
    integers, params = quantized_data(op, op.operand(0), asymmetric=bool(op.option("asymmetric_quantize_inputs")))
    sums = op.call("nn.dense", [integers, const(op.constant(1))], DenseAttrs())
    feature = op.call(HYBRID, [sums, params, const(np.array([scale]))], HybridOutputAttrs())
    return feature, const(op.constant(2).astype(np.float32) * time_scale)
