"""Operators that keep a state from one run to the next: RNN, SVDF, LSTM of floats, integers, and hybrid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import QuantParams, TensorType, TupleType, Type
from aot.numerics.elementary import apply
from aot.numerics.fixed_point import inverse_sqrt, multiply_by_quantized_multiplier, sigmoid16, tanh16
from aot.op.common.layer import LANES, np_eigen_sum, np_lane_sum, tir_lane_sum
from aot.op.common.operator import Index, operator
from aot.op.qnn.lut import Sigmoid16Attrs
from aot.op.qnn.quantize import quantized
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, reduce_axis
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, logical_and, select


# The axes of a sequence: time, batch, and the data of each step.
@dataclass(frozen=True, slots=True)
class Sequences:
    """Data of shape [T, B, I] (`time_major`) or [B, T, I]."""

    shape: tuple[int, ...]
    time_major: bool

    @property
    def steps(self) -> int:
        return self.shape[0 if self.time_major else 1]

    @property
    def batch(self) -> int:
        return self.shape[1 if self.time_major else 0]

    @property
    def depth(self) -> int:
        return self.shape[2]

    def by_time(self, data: Array) -> Array:
        """[T, B, I]."""
        return data if self.time_major else np.swapaxes(data, 0, 1)

    def from_time(self, data: Array) -> Array:
        """The inverse of `by_time`."""
        return np.ascontiguousarray(data if self.time_major else np.swapaxes(data, 0, 1))


# nn.rnn: RNN, UNIDIRECTIONAL_SEQUENCE_RNN and BIDIRECTIONAL_SEQUENCE_RNN of TFLite, on float32 or hybrid.
#
# At each step h = activation(bias + W x + V y + R h), with y the auxiliary data.  float32 products are summed in four lanes
# (`aot.op.common.layer`); in hybrid layers the matrices are int8 and vectors are quantised at run time
# (`aot.op.qnn.quantize`).  Oracle: `RnnBatchStep` of `kernel_utils.cc`.  Its BIDIRECTIONAL_SEQUENCE_RNN has faults, which are
# reproduced: hybrid and time-major, it walks the sequence once per step; batch-major, the backward half ignores its auxiliary
# data.

Results = tuple[Array, Array, Array]
RNN = "nn.rnn"
_F = np.float32
BOUNDS: dict[str, tuple[float, float | None]] = {"RELU": (0.0, None), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0)}


@operator(
    RNN,
    "RNN, UNIDIRECTIONAL_SEQUENCE_RNN, BIDIRECTIONAL_SEQUENCE_RNN; float32, hybrid",
    [
        ("data", "float32 [T, B, I]", "the sequence; [B, T, I] if not time-major"),
        ("output", "float32 [B, N]", "of the last step"),
        ("weight", "float32, int8 [N, I]", "of the data"),
        ("recurrent_weight", "float32, int8 [N, N]", "of the last output"),
        ("bias", "float32 [N]", "of each unit"),
        ("*auxiliary", "float32, int8", "auxiliary data and its weights"),
    ],
)
class RnnAttrs:
    """`activation`: NONE, TANH or one of BOUNDS; `backward`: from the last step to the first.

    `scales`: for hybrid layers, of the weights for data, output and auxiliary data; `asymmetric`: how their vectors are
    quantised; `passes`: how often the sequence is walked, each time from the state left by the previous pass.
    """

    time_major: bool
    activation: str
    backward: bool = False
    auxiliary: bool = False
    scales: tuple[float, ...] = ()
    asymmetric: bool = False
    passes: int = 1

    def infer_type(self, *types: TensorType) -> Type:
        """data [T, B, I] (or [B, T, I]), output [B, N], weights, bias -> (outputs [T, B, N], output)."""
        matrices = ("int8", "float32") if self.scales else ("float32",)
        fits = all(t.dtype in matrices for t in types) and len(types) == 5 + 2 * self.auxiliary
        if not fits or len(types[0].shape) != 3:
            raise TypeRuleError(f"{RNN} does not accept {', '.join(map(str, types))}")
        data, output, weight, recurrent, bias = types[:5]
        units = output.shape[-1]
        batch = Sequences(data.shape, time_major=self.time_major).batch
        expected = [(batch, units), (units, data.shape[2]), (units, units), (units,)]
        if [t.shape for t in (output, weight, recurrent, bias)] != expected:
            raise TypeRuleError(f"{RNN}: {output}, {weight}, {recurrent}, {bias} do not match {data}")
        return TupleType((TensorType((*data.shape[:2], units), "float32"), output))

    def evaluate(
        self, data: Array, output: Array, weight: Array, recurrent: Array, bias: Array, *more: Array, out_type: TupleType
    ) -> tuple[Array, Array]:
        sizes = Sequences(data.shape, time_major=self.time_major)
        steps = sizes.by_time(data)
        extra = sizes.by_time(more[0]) if self.auxiliary else steps
        result, h = np.zeros((sizes.steps, *output.shape), np.float32), output.copy()
        for t in list(range(sizes.steps)[::-1] if self.backward else range(sizes.steps)) * self.passes:
            for batch in range(sizes.batch):
                value = _added(bias, weight, steps[t, batch], self, 0)
                value = _added(value, more[1], extra[t, batch], self, 2) if self.auxiliary else value
                h[batch] = activated(_added(value, recurrent, h[batch], self, 1), self.activation)
            result[t] = h
        return sizes.from_time(result), h


def _added(value: Array, matrix: Array, x: Array, attrs: RnnAttrs, which: int) -> Array:
    """value + matrix * x."""
    with np.errstate(all="ignore"):
        if not attrs.scales:
            return np_lane_sum(matrix * x, value)
        integers, scale = quantized(x, asymmetric=attrs.asymmetric)
        sums = (matrix.astype(np.int64) @ integers.astype(np.int64)).astype(np.float32)
        return np.asarray(value + sums * (scale * _F(attrs.scales[which])))


def activated(x: Array, activation: str) -> Array:
    """The fused activation, by its name in the file, of float32 values."""
    if activation in BOUNDS:
        low, high = BOUNDS[activation]
        x = np.where(x > _F(low), x, _F(low))
        return x if high is None else np.where(x < _F(high), x, _F(high))
    return apply("eigen_tanh", x) if activation == "TANH" else x


# nn.svdf_memory and nn.svdf_time: the two halves of SVDF's filter in time.
#
# nn.svdf_memory: state [B, F * M] has the last M features of each of F filters, oldest first:
#   out[b, f, m] = state[b, f, m + 1], the newest being feature[b, f] + zero point (int8 wraps there, as in TFLM).
# nn.svdf_time: each of U = F / rank units adds up `rank` filters:
#   acc[b, u] = sum over r, m of weight[u * rank + r, m] * state[b, u * rank + r, m]
# Integers give int32 sums; float32 is summed in four lanes (`aot.op.common.layer`), first over m, then over r.
# Oracles: `reference_ops::EvalIntegerSVDF`, `EvalFloatSVDF`.

MEMORY, TIME = "nn.svdf_memory", "nn.svdf_time"


@operator(
    MEMORY,
    "SVDF's state: every filter forgets its oldest feature",
    [("state", "int8, int16, float32 [B, F * M]", "the last features"), ("feature", "as state [B, F]", "the newest")],
    OpPattern.INJECTIVE,
)
class SvdfMemoryAttrs:
    """The offset that turns a feature into a value of the state."""

    state_zp: int = 0

    def infer_type(self, state: TensorType, feature: TensorType) -> Type:
        """state [B, F * M] and feature [B, F] of one type -> the type of state."""
        if len(state.shape) != 2 or len(feature.shape) != 2 or state.dtype != feature.dtype:
            raise TypeRuleError(f"{MEMORY} needs a state and features, not {state} and {feature}")
        if state.shape[0] != feature.shape[0] or state.shape[1] % feature.shape[1]:
            raise TypeRuleError(f"{MEMORY}: features {feature} do not fit the state {state}")
        return state

    def evaluate(self, state: Array, feature: Array, *, out_type: TensorType) -> Array:
        filters = state.reshape(*feature.shape, -1)
        newest = feature if feature.dtype == np.float32 else (feature.astype(np.int32) + self.state_zp).astype(state.dtype)
        return np.concatenate([filters[..., 1:], newest[..., None]], axis=-1).reshape(state.shape)

    def element(self, b: IRBuilder, index: Index, state: TensorFn, feature: TensorFn, *, out_type: TensorType) -> Expr:
        batch, place = index
        depth = state.shape[1] // feature.shape[1]
        newest = feature.at(b, (batch, place // depth))
        if self.state_zp:
            newest = cast(state.dtype, cast("int32", newest) + self.state_zp)
        older = logical_and(place % depth < depth - 1, place < state.shape[1] - 1)
        return select(older, state.at(b, (batch, place + 1)), newest)


@operator(
    TIME,
    "SVDF's filter in time; int8, int16, float32",
    [
        ("state", "int8, int16, float32 [B, F * M]", "the last features of each filter"),
        ("weight", "int8, int16, float32 [F, M]", "one for each of them"),
    ],
    OpPattern.OUT_ELEMWISE_FUSABLE,
)
class SvdfTimeAttrs:
    """Filters of one unit; the state's zero point."""

    rank: int
    state_zp: int = 0

    def infer_type(self, state: TensorType, weight: TensorType) -> Type:
        """state [B, F * M], weight [F, M] -> int32 or float32 [B, F / rank]."""
        if len(state.shape) != 2 or len(weight.shape) != 2 or state.shape[1] != weight.size:
            raise TypeRuleError(f"{TIME} needs a state and weights of as many values, not {state} and {weight}")
        if (state.dtype == "float32") != (weight.dtype == "float32") or self.rank < 1 or weight.shape[0] % self.rank:
            raise TypeRuleError(f"{TIME}: rank {self.rank} or types do not fit {state} and {weight}")
        dtype = "float32" if state.dtype == "float32" else "int32"
        return TensorType((state.shape[0], weight.shape[0] // self.rank), dtype)

    def evaluate(self, state: Array, weight: Array, *, out_type: TensorType) -> Array:
        filters = state.reshape(len(state), *weight.shape)
        units = (len(state), -1, self.rank)
        if out_type.dtype == "float32":
            with np.errstate(all="ignore"):
                return np_lane_sum(np_lane_sum(weight * filters).reshape(units))
        products = weight.astype(np.int64) * (filters.astype(np.int64) - self.state_zp)
        return np.asarray(products.sum(-1).reshape(units).sum(-1).astype(np.int32))

    def element(self, b: IRBuilder, index: Index, state: TensorFn, weight: TensorFn, *, out_type: TensorType) -> Expr:
        batch, unit = index
        depth = weight.shape[1]

        def filtered(r: Expr) -> Expr:
            row = b.let("row", unit * self.rank + r)
            return tir_lane_sum(b, depth, lambda m: weight.at(b, (row, m)) * state.at(b, (batch, row * depth + m)))

        def term(r: Expr, m: Expr) -> Expr:
            row = unit * self.rank + r
            value = cast("int32", state.at(b, (batch, row * depth + m))) - self.state_zp
            return cast("uint32", cast("int32", weight.at(b, (row, m))) * value)

        if out_type.dtype == "float32":
            return tir_lane_sum(b, self.rank, filtered)
        axes = [reduce_axis(self.rank, name="r"), reduce_axis(depth, name="m")]
        return cast("int32", te_sum(b, axes, term, dtype="uint32"))


# nn.dense_lanes: rows times a float32 matrix in the order of the reference's recurrent kernels (`aot.op.common.layer`).
#
# out[m, o] = lanes over k of weight[o, k] * data[m, k].  Oracle: `tensor_utils::MatrixBatchVectorMultiplyAccumulate` of float.

DENSE_LANES = "nn.dense_lanes"


@operator(
    DENSE_LANES,
    "matrix products of SVDF; float32, in the order of four partial sums",
    [("data", "float32 [M, K]", "rows of data"), ("weight", "float32 [O, K]", "one row for each output")],
    OpPattern.OUT_ELEMWISE_FUSABLE,
    has_attributes=False,
)
class DenseLanes:
    """No attributes."""

    def infer_type(self, data: TensorType, weight: TensorType) -> Type:
        """data [M, K], weight [O, K] -> float32 [M, O]."""
        fits = (data.dtype, weight.dtype) == ("float32", "float32") and len(data.shape) == len(weight.shape) == 2
        if not fits or data.shape[1] != weight.shape[1]:
            raise TypeRuleError(f"{DENSE_LANES} needs rows and a matrix of float32, not {data}, {weight}")
        return TensorType((data.shape[0], weight.shape[0]), "float32")

    def evaluate(self, data: Array, weight: Array, *, out_type: TensorType) -> Array:
        with np.errstate(all="ignore"):
            return np.float32(0) + np_lane_sum(weight[None] * data[:, None, :])

    def element(self, b: IRBuilder, index: Index, data: TensorFn, weight: TensorFn, *, out_type: TensorType) -> Expr:
        m, o = index
        return tir_lane_sum(b, weight.shape[1], lambda k: weight.at(b, (o, k)) * data.at(b, (m, k)))


# nn.lstm: LSTM over all time steps of a sequence of float32, each batch separately.
#
# At each step, with x the data, h the last output, c the cell (gates in the order input, forget, cell, output; without an input
# gate, CIFG, it is 1 - forget):
#
#   gate = R h + (W x + bias), with auxiliary data R h + (V y + (W x + bias)), plus peephole * c (not for the cell gate; the
#          new c for the output gate); or its layer normalisation without the bias, times a weight, plus the bias
#   c    = cell gate * input gate + forget * c, clipped
#   h    = output gate * tanh(c), or its projection, clipped
#
# Matrix products are in Eigen's order (`aot.op.common.layer`).  In hybrid layers the matrices are int8 and vectors are quantised
# at run time (`aot.op.qnn.quantize`): a product is float(integer sum) * (vector's scale * matrix's scale).
#
# The sigmoid of a gate is Eigen's for vectors of four, except for the unaligned elements before and after them in the reference's
# scratch memory, where gates follow one another.
# Oracles: `EvalFloat`, `EvalHybrid` of `lstm_eval.cc`.

LSTM_FLOAT = "nn.lstm"


@operator(
    LSTM_FLOAT,
    "UNIDIRECTIONAL_SEQUENCE_LSTM, LSTM; float32, hybrid",
    [
        ("data", "float32 [T, B, I]", "the sequence; [B, T, I] if not time-major"),
        ("output", "float32 [B, O]", "of the last step"),
        ("cell", "float32 [B, N]", "of the last step"),
        ("input_weight", "float32, int8 [G * N, I]", "gate by gate"),
        ("recurrent_weight", "float32, int8 [G * N, O]", "gate by gate"),
        ("bias", "float32 [G * N]", "gate by gate"),
        ("*others", "float32", "auxiliary data and weights; peepholes; layer normalisation; projection and its bias"),
    ],
)
class LstmFloatAttrs:
    """Which optional operands exist; `backward`: from the last step to the first.  Clips are 0 if there are none.

    `scales`: for hybrid layers, with int8 matrices, by the names of the matrices; `asymmetric`: how their vectors are quantised.
    """

    time_major: bool
    gates: int = 4
    backward: bool = False
    auxiliary: bool = False
    peephole: bool = False
    norm: bool = False
    projection: bool = False
    projection_bias: bool = False
    cell_clip: float = 0.0
    projection_clip: float = 0.0
    activation: str = "TANH"
    scales: tuple[tuple[str, tuple[float, ...]], ...] = ()
    asymmetric: bool = False

    def scale(self, name: str, gate: int = 0) -> float:
        """The scale of an integer matrix, by gate."""
        return dict(self.scales)[name][gate]

    @property
    def cell_gate(self) -> int:
        """The gate that has the activation, no peephole."""
        return self.gates - 2

    def scratch_place(self, gate: int) -> int:
        """The gate's position in the reference's scratch memory: the cell gate comes before the forget gate."""
        forget = self.cell_gate - 1
        return {forget: self.cell_gate, self.cell_gate: forget}.get(gate, gate)

    def peephole_of(self, gate: int) -> int:
        """The index of the gate's peephole."""
        return gate if gate < self.cell_gate else gate - 1

    def names(self) -> list[str]:
        """Names of the operands after the states."""
        names = ["input", "recurrent", "bias"] + ["auxiliary", "auxiliary_weight"] * self.auxiliary
        names += ["peephole"] * self.peephole + ["norm"] * self.norm
        return names + ["projection"] * self.projection + ["projection_bias"] * self.projection_bias

    def infer_type(self, *types: TensorType) -> Type:
        """data [T, B, I] (or [B, T, I]), output [B, O], cell [B, N], weights -> (outputs [T, B, O], output, cell)."""
        matrices = ("int8", "float32") if self.scales else ("float32",)
        fits = all(t.dtype in matrices for t in types) and len(types) == 3 + len(self.names())
        if not fits or len(types[0].shape) != 3:
            raise TypeRuleError(f"{LSTM_FLOAT} does not accept {', '.join(map(str, types))}")
        data, output, cell, weight, recurrent, bias, *_ = types
        batch, rows = Sequences(data.shape, time_major=self.time_major).batch, self.gates * cell.shape[-1]
        expected = [(batch, output.shape[-1]), (batch, cell.shape[-1]), (rows, data.shape[2]), (rows, output.shape[-1]), (rows,)]
        if [output.shape, cell.shape, weight.shape, recurrent.shape, bias.shape] != expected:
            raise TypeRuleError(f"{LSTM_FLOAT}: {output}, {cell}, {weight}, {recurrent}, {bias} do not match {data}")
        return TupleType((TensorType((*data.shape[:2], output.shape[-1]), "float32"), output, cell))

    def evaluate(self, data: Array, output: Array, cell: Array, *others: Array, out_type: TupleType) -> Results:
        operands = dict(zip(self.names(), others, strict=True))
        sizes = Sequences(data.shape, time_major=self.time_major)
        steps = sizes.by_time(data)
        extra = sizes.by_time(operands["auxiliary"]) if self.auxiliary else steps
        result = np.zeros((sizes.steps, sizes.batch, output.shape[-1]), np.float32)
        h, c = output.copy(), cell.copy()
        order = range(sizes.steps)[::-1] if self.backward else range(sizes.steps)
        for t in order:
            for batch in range(sizes.batch):
                row = _Row(operands, self, batch, sizes.batch)
                h[batch], c[batch] = row.step(steps[t, batch], extra[t, batch], h[batch], c[batch])
                result[t, batch] = h[batch]
        return sizes.from_time(result), h, c


def first_vector(place: int, cells: int, *, batch: int, batches: int) -> tuple[int, int]:
    """The elements of a gate that Eigen computes in vectors of four: those aligned to 16 bytes."""
    lead = min(-(place * batches + batch) * cells % LANES, cells)
    return lead, lead + (cells - lead) // LANES * LANES


def float_product(matrix: Array, x: Array) -> Array:
    """matrix * x in Eigen's order."""
    with np.errstate(all="ignore"):
        return np_eigen_sum(matrix * x, single=len(matrix) == 1)


def gate_activated(x: Array, activation: str) -> Array:
    """The fused activation, by its name in the file, of float32 values."""
    match activation:
        case "TANH":
            return apply("eigen_tanh", x)
        case "RELU":
            return np.where(x > 0, x, _F(0))
        case "RELU6":
            return np.clip(x, _F(0), _F(6))
    return np.clip(x, _F(-1), _F(1))


@dataclass(frozen=True, slots=True)
class _Row:
    """One batch."""

    operands: dict[str, Array]
    attrs: LstmFloatAttrs
    batch: int
    batches: int

    def step(self, x: Array, y: Array, h: Array, c: Array) -> tuple[Array, Array]:
        attrs, operands = self.attrs, self.operands
        with np.errstate(all="ignore"):
            forget = self._gate(attrs.cell_gate - 1, x, y, h, c)
            entry = self._gate(0, x, y, h, c) if attrs.gates == 4 else _F(1) - forget
            update = self._gate(attrs.cell_gate, x, y, h, c)
            c = forget * c + update * entry
            c = _clipped(c, attrs.cell_clip)
            hidden = self._gate(attrs.gates - 1, x, y, h, c) * gate_activated(c, attrs.activation)
            if not attrs.projection:
                return hidden, c
            value = self._times("projection", slice(None), 0, hidden) + operands.get("projection_bias", _F(0))
            return _clipped(value, attrs.projection_clip), c

    def _times(self, name: str, part: slice, gate: int, x: Array) -> Array:
        """The rows `part` of a matrix times a vector."""
        matrix = self.operands[name][part]
        if not self.attrs.scales:
            return float_product(matrix, x)
        integers, scale = quantized(x, asymmetric=self.attrs.asymmetric)
        sums = matrix.astype(np.int64) @ integers.astype(np.int64)
        return np.asarray(sums.astype(np.float32) * (scale * _F(self.attrs.scale(name, gate))))

    def _gate(self, gate: int, x: Array, y: Array, h: Array, c: Array) -> Array:
        attrs, operands = self.attrs, self.operands
        n = len(c)
        part = slice(gate * n, (gate + 1) * n)
        bias = operands["bias"][part]
        value = self._times("input", part, gate, x) + (_F(0) if attrs.norm else bias)
        if attrs.auxiliary:
            value = self._times("auxiliary_weight", part, gate, y) + value
        value = self._times("recurrent", part, gate, h) + value
        if attrs.peephole and gate != attrs.cell_gate:
            own = attrs.peephole_of(gate) * n
            value = value + operands["peephole"][own : own + n] * c
        if attrs.norm:
            value = float_normalized(value) * operands["norm"][part] + bias
        if gate == attrs.cell_gate:
            return gate_activated(value, attrs.activation)
        start, stop = first_vector(attrs.scratch_place(gate), n, batch=self.batch, batches=self.batches)
        inside = (np.arange(n) >= start) & (np.arange(n) < stop)
        return np.where(inside, apply("eigen_logistic", value), apply("eigen_scalar_logistic", value))


def _clipped(x: Array, most: float) -> Array:
    return np.clip(x, -_F(most), _F(most)) if most > 0 else x


def float_normalized(x: Array) -> Array:
    """(x - mean) / deviation, with sequential sums, as in `PortableMeanStddevNormalization`."""
    count = _F(len(x))
    total = _F(0)
    for value in x:
        total = total + value
    mean = total / count
    squares = _F(0)
    for value in x:
        squares = squares + (value - mean) * (value - mean)
    return np.asarray((x - mean) * (_F(1) / np.sqrt(squares / count + _F(1e-8))))


# qnn.lstm: LSTM over all time steps of a sequence, int8 or int16 data, int8 weights, int16 gates and cells.
#
# At each step, with x the data, h the last output, c the cell (gates in the order input, forget, cell, output; without an input
# gate, CIFG, it is 1 - forget):
#
#   gate  = sat(rescale(W x + input bias)), sat(gate + rescale(R h + recurrent bias))
#   gate += rescale(peephole * c) (not for the cell gate; the new c for the output gate), layer normalisation
#   c     = sat(sigmoid(forget) * c + sigmoid(input) * tanh(cell)), clipped
#   h     = zp + rescale(sigmoid(output) * tanh(c)), or its projection, clipped
#
# Gates have 12 fractional bits.  `activation` "fixed": gemmlowp's functions (LiteRT); "table": those of int16 LOGISTIC and TANH
# (TFLM).  Oracles: `LstmStepInteger8x8_16` of `lstm_eval.cc`; TFLM's `lstm_eval.h`.

LSTM_INTEGER = "qnn.lstm"
Scale = tuple[int, int]
"""Multiplier and shift."""


@operator(
    LSTM_INTEGER,
    "UNIDIRECTIONAL_SEQUENCE_LSTM, LSTM; int8, int16 x int8",
    [
        ("data", "int8, int16 [T, B, I]", "the sequence; [B, T, I] if not time-major"),
        ("output", "as data [B, O]", "of the last step"),
        ("cell", "int16 [B, N]", "of the last step"),
        ("input_weight", "int8 [G * N, I]", "gate by gate"),
        ("recurrent_weight", "int8 [G * N, O]", "gate by gate"),
        ("input_bias", "int32 [G * N]", "with the data's zero point in it"),
        ("recurrent_bias", "int32 [G * N]", "the output's zero point"),
        ("*others", "int16, int8, int32", "peepholes; layer normalisation and its bias; projection and its bias"),
    ],
)
class LstmAttrs:
    """`input_scales`, `recurrent_scales`: per gate; three gates make a CIFG LSTM.

    `peephole_scales`: per gate except the cell gate; `norm`: (multiplier, shift, least variance) per gate; empty without.
    `forget_scale`, `update_scale`: for the two products of the cell; a multiplier of 0 means only a rounding shift.
    `cell_bits`: integer bits of the cell (for "table" the sigmoid's argument is scaled by it too); see `has_cell_tanh`.
    `hidden_scale`, `hidden_zp`: of the output before the projection, `projection_scale` (None: there is none) and `output_zp`
    of the output after it.  Clips are 0 if there are none.  `rounding` applies to the sums of products: "single", with 16-bit
    multipliers, for int16 data.
    """

    time_major: bool
    input_scales: tuple[Scale, ...]
    recurrent_scales: tuple[Scale, ...]
    forget_scale: Scale
    update_scale: Scale
    cell_bits: int
    hidden_scale: Scale
    hidden_zp: int
    output_zp: int = 0
    projection_scale: Scale | None = None
    peephole_scales: tuple[Scale, ...] = ()
    norm: tuple[tuple[int, int, int], ...] = ()
    cell_clip: int = 0
    projection_clip: int = 0
    activation: str = "fixed"
    rounding: str = "double"
    quant: QuantParams | None = None

    @property
    def is_tflm(self) -> bool:
        """TFLM saturates both parts of a gate before it adds them."""
        return self.activation == "table"

    @property
    def has_cell_tanh(self) -> bool:
        """LiteRT has tanh for 0 to 6 integer bits; otherwise it multiplies by the input gate, which its buffer still contains."""
        return self.is_tflm or 0 <= self.cell_bits <= 6

    @property
    def gates(self) -> int:
        return len(self.input_scales)

    @property
    def cell_gate(self) -> int:
        """The gate that has tanh, no peephole."""
        return self.gates - 2

    def infer_type(self, *types: TensorType) -> Type:
        """data [T, B, I] (or [B, T, I]), output [B, O], cell [B, N], weights -> (outputs [T, B, O], output, cell)."""
        if len(types) < 7 or len(types[0].shape) != 3:
            raise TypeRuleError(f"{LSTM_INTEGER} does not accept {', '.join(map(str, types))}")
        data, output, cell, input_weight, recurrent_weight = types[:5]
        sizes = Sequences(data.shape, time_major=self.time_major)
        cells, outputs, rows = cell.shape[-1], output.shape[-1], self.gates * cell.shape[-1]
        expected = [(sizes.batch, outputs), (sizes.batch, cells), (rows, sizes.depth), (rows, outputs)]
        if [t.shape for t in types[1:5]] != expected or data.dtype != output.dtype or cell.dtype != "int16":
            raise TypeRuleError(f"{LSTM_INTEGER}: {output}, {cell}, {input_weight}, {recurrent_weight} do not match {data}")
        result = TensorType((*data.shape[:2], outputs), data.dtype, self.quant)
        return TupleType((result, output, cell))

    def evaluate(self, data: Array, output: Array, cell: Array, *constants: Array, out_type: TupleType) -> Results:
        weights = weights_of(self, [c.astype(np.int64) for c in constants])
        sizes = Sequences(data.shape, time_major=self.time_major)
        steps = sizes.by_time(data.astype(np.int64))
        h, c = output.astype(np.int64), cell.astype(np.int64)
        results = []
        for x in steps:
            h, c = _step(x, h, c, weights, self, str(data.dtype))
            results.append(h)
        outputs_by_step = sizes.from_time(np.stack(results)).astype(data.dtype)
        return outputs_by_step, h.astype(output.dtype), c.astype(cell.dtype)


@dataclass(frozen=True, slots=True)
class LstmWeights:
    """The constant operands, in this order; None for those that the attributes do not require."""

    input: Array
    recurrent: Array
    input_bias: Array
    recurrent_bias: Array
    peephole: Array | None = None
    norm: Array | None = None
    norm_bias: Array | None = None
    projection: Array | None = None
    projection_bias: Array | None = None


def weights_of(attrs: LstmAttrs, constants: Sequence[Array]) -> LstmWeights:
    """The constants by name."""
    names = ["input", "recurrent", "input_bias", "recurrent_bias"]
    names += ["peephole"] * bool(attrs.peephole_scales) + ["norm", "norm_bias"] * bool(attrs.norm)
    names += ["projection", "projection_bias"] * (attrs.projection_scale is not None)
    return LstmWeights(**dict(zip(names, constants, strict=True)))


def sigmoid(x: Array, attrs: LstmAttrs) -> Array:
    """The sigmoid of a gate, int64."""
    if attrs.activation == "fixed":
        return sigmoid16(x).astype(np.int64)
    return _table("logistic", x, 3)


def tanh(x: Array, attrs: LstmAttrs, bits: int = 3) -> Array:
    """tanh of a gate or, with its integer bits, of the cell; int64."""
    return tanh16(x, bits).astype(np.int64) if attrs.activation == "fixed" else _table("tanh", x, bits)


def _table(function: str, x: Array, bits: int) -> Array:
    attrs = table_attrs(function, bits)
    return attrs.evaluate(x, out_type=TensorType(x.shape, "int16")).astype(np.int64)


def table_attrs(function: str, bits: int) -> Sigmoid16Attrs:
    """The function of arguments with `bits` integer bits, which are multiplied by 3 * 2^n or 3 / 2^n."""
    return Sigmoid16Attrs(function, *((3 << (bits - 3), 0) if bits >= 3 else (3, 3 - bits)))


def product(a: Array, b: Array, scale: Scale) -> Array:
    """a * b, rescaled; a multiplier of 0 is a shift to the right with halves away from zero."""
    multiplier, shift = scale
    if multiplier:
        return multiply_by_quantized_multiplier(a * b, multiplier, shift)
    value = a * b
    return value if shift == 0 else (value + (1 << (shift - 1)) - (value < 0)) >> shift


def _saturated(x: Array, dtype: str = "int16") -> Array:
    limits = np.iinfo(dtype)
    return np.clip(x, limits.min, limits.max)


def normalized(x: Array, weight: Array, bias: Array, scale: tuple[int, int, int]) -> Array:
    """Layer normalisation of rows of gates [.., N], as in `PortableApplyLayerNorm`; int64 within int16."""
    multiplier, shift, least = scale
    count = x.shape[-1]
    rows = []
    for row in x.reshape(-1, count):
        total, squares = int(row.sum()), int((row * row).sum())
        mean = abs(total * 1024) // count * (1 if total >= 0 else -1)
        spread = squares * ((1 << 20) // count) - mean * mean
        variance = abs(spread) // (1 << 20) * (1 if spread >= 0 else -1)
        variance = (variance + (1 << 31)) % (1 << 32) - (1 << 31)
        inverse, exponent = inverse_sqrt(least if variance < 1 else variance)
        value = multiply_by_quantized_multiplier(1024 * row - mean, inverse, exponent) * weight + bias
        value = (np.abs(value) + 512) // 1024 * np.where(value > 0, 1, -1)
        rows.append(_saturated(multiply_by_quantized_multiplier(value, multiplier, shift + 12)))
    return np.asarray(rows).reshape(x.shape)


def _step(x: Array, h: Array, c: Array, weights: LstmWeights, attrs: LstmAttrs, dtype: str) -> tuple[Array, Array]:
    from_data = x @ weights.input.T + weights.input_bias
    from_output = h @ weights.recurrent.T + weights.recurrent_bias
    n = c.shape[-1]

    def gate(g: int, cells: Array) -> Array:
        part = slice(g * n, (g + 1) * n)
        share = multiply_by_quantized_multiplier(from_output[:, part], *attrs.recurrent_scales[g], rounding=attrs.rounding)
        value = _saturated(multiply_by_quantized_multiplier(from_data[:, part], *attrs.input_scales[g], rounding=attrs.rounding))
        value = _saturated(value + (_saturated(share) if attrs.is_tflm else share))
        if weights.peephole is not None and g != attrs.cell_gate:
            value = _peeped(value, cells, weights.peephole, attrs, gate=g, outputs=h.shape[-1])
        if weights.norm is not None and weights.norm_bias is not None:
            value = normalized(value, weights.norm[part], weights.norm_bias[part], attrs.norm[g])
        return tanh(value, attrs) if g == attrs.cell_gate else sigmoid(value, attrs)

    forget = gate(attrs.cell_gate - 1, c)
    entry = gate(0, c) if attrs.gates == 4 else 32767 - forget
    update = product(entry, gate(attrs.cell_gate, c), attrs.update_scale)
    c = _saturated(product(forget, c, attrs.forget_scale).astype(np.int16).astype(np.int64) + update.astype(np.int16))
    c = np.clip(c, -attrs.cell_clip, attrs.cell_clip) if attrs.cell_clip else c
    opened = gate(attrs.gates - 1, c)
    hidden = product(opened, tanh(c, attrs, attrs.cell_bits) if attrs.has_cell_tanh else entry, attrs.hidden_scale)
    if weights.projection is None or weights.projection_bias is None or attrs.projection_scale is None:
        return _saturated(hidden + attrs.hidden_zp, dtype), c
    hidden = _saturated(hidden + attrs.hidden_zp, "int8")
    sums = hidden @ weights.projection.T + weights.projection_bias
    h = _saturated(multiply_by_quantized_multiplier(sums, *attrs.projection_scale) + attrs.output_zp, dtype)
    return (np.clip(h, -attrs.projection_clip, attrs.projection_clip) if attrs.projection_clip else h), c


def _peeped(value: Array, cells: Array, weight: Array, attrs: LstmAttrs, *, gate: int, outputs: int) -> Array:
    """The gate plus the cell's part; as in the reference, of the first `outputs` cells of each batch, counted consecutively."""
    index = peephole_of(attrs, gate)
    multiplier, shift = attrs.peephole_scales[index]
    n = value.shape[-1]
    if attrs.time_major:
        flat, own = value.reshape(-1).copy(), cells.reshape(-1)
        count = outputs * len(value)
        share = multiply_by_quantized_multiplier(
            own[:count] * np.tile(weight[index * n : index * n + outputs], len(value)), multiplier, shift
        )
        flat[:count] = _saturated(flat[:count] + share)
        return flat.reshape(value.shape)
    value = value.copy()
    share = multiply_by_quantized_multiplier(cells[:, :outputs] * weight[index * n : index * n + outputs], multiplier, shift)
    value[:, :outputs] = _saturated(value[:, :outputs] + share)
    return value


def peephole_of(attrs: LstmAttrs, gate: int) -> int:
    """The index of the gate's peephole: the cell gate has none."""
    return gate if gate < attrs.cell_gate else gate - 1


# nn.lstm_basic: one step of TFLite's LSTM with the basic kernel, whose gates share one matrix.
#
# With v the data followed by the last output, gates in the order input, cell, forget, output:
#
#   gates = W v + bias
#   c     = sigmoid(input) * tanh(cell gate) + sigmoid(forget) * c
#   h     = sigmoid(output) * tanh(c)
#
# float32: the sums are in Eigen's order (`aot.op.common.layer`), and the sigmoid is Eigen's for vectors of four; the last
# N % 4 cells use the one for single elements.
#
# uint8: every zero point of v is 128, whatever the file says.  Gates are int16 with three integer bits, cells int16 with four.
# The sum is rounded twice, halves upwards both times: in the doubling high multiply and in the shift.
#
# Oracle: `optimized_ops::LstmCell`, which LiteRT runs with any resolver; the file's `LstmCell<4>` for uint8.

LSTM_BASIC = "nn.lstm_basic"
DATA_ZP = 128


@operator(
    LSTM_BASIC,
    "LSTM with the basic kernel; float32, uint8",
    [
        ("data", "float32, uint8 [B, I + N]", "the data of the step, then the last output"),
        ("cell", "float32, int16 [B, N]", "of the last step"),
        ("weight", "float32, uint8 [4 * N, I + N]", "gate by gate"),
        ("bias", "float32, int32 [4 * N]", "gate by gate"),
    ],
)
class LstmBasicAttrs:
    """For integers: the weights' zero point and the scaling of sums to gates; `quants` of the results (output, cell, gates)."""

    weight_zp: int = 0
    multiplier: int = 0
    shift: int = 0
    quants: tuple[QuantParams | None, ...] = (None, None, None)

    def infer_type(self, data: TensorType, cell: TensorType, weight: TensorType, bias: TensorType) -> Type:
        """v [B, I + N], cell [B, N], weight [4 N, I + N], bias [4 N] -> (output [B, N], cell [B, N], gates [B, 4 N])."""
        kinds = data.dtype, cell.dtype, weight.dtype, bias.dtype
        ranks = {len(t.shape) for t in (data, cell, weight)}
        if kinds not in (("float32",) * 4, ("uint8", "int16", "uint8", "int32")) or ranks != {2}:
            raise TypeRuleError(f"{LSTM_BASIC} does not accept {data}, {cell}, {weight}, {bias}")
        (batch, cells), depth = cell.shape, data.shape[1]
        if data.shape[0] != batch or weight.shape != (4 * cells, depth) or bias.shape != (4 * cells,) or cells >= depth:
            raise TypeRuleError(f"{LSTM_BASIC}: {data}, {cell}, {weight}, {bias} do not match")
        shapes = ((batch, cells), (batch, cells), (batch, 4 * cells))
        dtypes = (data.dtype, cell.dtype, cell.dtype)
        return TupleType(tuple(map(TensorType, shapes, dtypes, self.quants)))

    def evaluate(self, data: Array, cell: Array, weight: Array, bias: Array, *, out_type: TupleType) -> Results:
        if data.dtype == np.float32:
            return _floats(data, cell, weight, bias)
        return _integers(data, cell, weight, bias, self)


def _floats(data: Array, cell: Array, weight: Array, bias: Array) -> Results:
    with np.errstate(all="ignore"):
        gates = np.stack([np_eigen_sum(weight * row, single=False) + bias for row in data])
        entry, update, forget, opened = np.split(gates, 4, axis=1)
        new = _sigmoid(entry) * apply("eigen_tanh", update) + _sigmoid(forget) * cell
        return _sigmoid(opened) * apply("eigen_tanh", new), new, gates


def _sigmoid(x: Array) -> Array:
    whole = x.shape[1] - x.shape[1] % LANES
    parts = [apply("eigen_logistic", x[:, :whole]), apply("eigen_scalar_logistic", x[:, whole:])]
    return np.concatenate(parts, axis=1)


def _integers(data: Array, cell: Array, weight: Array, bias: Array, attrs: LstmBasicAttrs) -> Results:
    sums = (data.astype(np.int64) - DATA_ZP) @ (weight.astype(np.int64) - attrs.weight_zp).T + bias
    sums = (sums << max(attrs.shift, 0)).astype(np.int32).astype(np.int64)
    value = (sums * attrs.multiplier + (1 << 30)) >> 31
    if attrs.shift < 0:
        value = (value + (1 << (-attrs.shift - 1))) >> -attrs.shift
    gates = _clamped(value, 16)
    entry, update, forget, opened = np.split(gates.astype(np.int16), 4, axis=1)
    new = _clamped(_halves_away(_product(sigmoid16(entry), tanh16(update, 3)), 4) + _product(sigmoid16(forget), cell), 16)
    hidden = _product(sigmoid16(opened), tanh16(_clamped(2 * new, 16).astype(np.int16), 3))
    output = _clamped(_halves_away(hidden, 8), 8) + DATA_ZP
    return output.astype(np.uint8), new.astype(np.int16), gates.astype(np.int16)


def _product(a: Array, b: Array) -> Array:
    """The product of fractions with 15 bits, halves upwards."""
    product: Array = (a.astype(np.int64) * b.astype(np.int64) + (1 << 14)) >> 15
    return product


def _halves_away(x: Array, shift: int) -> Array:
    return (x + (1 << (shift - 1)) - (x < 0)) >> shift


def _clamped(x: Array, bits: int) -> Array:
    return np.clip(x, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)
