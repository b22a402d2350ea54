"""nn.lstm: LSTM over all time steps of a sequence of float32, each batch separately.

At each step, with x the data, h the last output, c the cell (gates in the order input, forget, cell, output; without an input
gate, CIFG, it is 1 - forget):

  gate = R h + (W x + bias), with auxiliary data R h + (V y + (W x + bias)), plus peephole * c (not of the cell gate; of the new c
         for the output gate); or layer normalisation of that without the bias, times a weight, plus the bias
  c    = cell gate * input gate + forget * c, clipped
  h    = output gate * tanh(c), or a projection of that, clipped

Matrix products are in Eigen's order (`aot.op.common.lanes`).  Hybrid, the matrices are int8 and vectors are quantised as they
come (`aot.op.qnn.dynamic_quantize`): a product is float(integer sum) * (vector's scale * matrix's scale).

The sigmoid of a gate is that of Eigen's vectors of four, but for what lies before and after them in the reference's scratch
memory, where gates follow one another.
Oracles: `EvalFloat`, `EvalHybrid` of `lstm_eval.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import VARIABLE, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, TupleType, Type
from aot.numerics.elementary import apply
from aot.op.common.integer_vector import quantized
from aot.op.common.lanes import LANES, np_eigen_sum
from aot.op.common.sequence import Sequences
from aot.support.dataclass import dataclass

NAME = "nn.lstm"
_F = np.float32


@dataclass(frozen=True, slots=True)
class LstmFloatAttrs:
    """Which optional operands there are; `backward`: from the last step to the first.  Clips are 0 if there is none.

    `scales`: of hybrid ones, whose matrices are int8, by the names of the matrices; `asymmetric`: how vectors are quantised then.
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
        """Of an integer matrix, gate by gate."""
        return dict(self.scales)[name][gate]

    @property
    def cell_gate(self) -> int:
        """The gate that has the activation, no peephole."""
        return self.gates - 2

    def scratch_place(self, gate: int) -> int:
        """Where the reference keeps a gate: the cell's goes before the forget gate's."""
        forget = self.cell_gate - 1
        return {forget: self.cell_gate, self.cell_gate: forget}.get(gate, gate)

    def peephole_of(self, gate: int) -> int:
        """Which of the peepholes is the gate's."""
        return gate if gate < self.cell_gate else gate - 1

    def names(self) -> list[str]:
        """Of the operands after the states."""
        found = ["input", "recurrent", "bias"] + ["auxiliary", "auxiliary_weight"] * self.auxiliary
        found += ["peephole"] * self.peephole + ["norm"] * self.norm
        return found + ["projection"] * self.projection + ["projection_bias"] * self.projection_bias


def infer_type(types: Sequence[Type], attrs: LstmFloatAttrs) -> Type:
    """data [T, B, I] (or [B, T, I]), output [B, O], cell [B, N], weights -> (outputs [T, B, O], output, cell)."""
    matrices = ("int8", "float32") if attrs.scales else ("float32",)
    found = [t for t in types if isinstance(t, TensorType) and t.dtype in matrices]
    if len(found) != len(types) or len(found) != 3 + len(attrs.names()) or len(found[0].shape) != 3:
        raise TypeRuleError(f"{NAME} does not take {', '.join(map(str, types))}")
    data, output, cell, weight, recurrent, bias, *_ = found
    batch, rows = Sequences(data.shape, time_major=attrs.time_major).batch, attrs.gates * cell.shape[-1]
    wanted = [(batch, output.shape[-1]), (batch, cell.shape[-1]), (rows, data.shape[2]), (rows, output.shape[-1]), (rows,)]
    if [output.shape, cell.shape, weight.shape, recurrent.shape, bias.shape] != wanted:
        raise TypeRuleError(f"{NAME}: {output}, {cell}, {weight}, {recurrent}, {bias} do not match {data}")
    return TupleType((TensorType((*data.shape[:2], output.shape[-1]), "float32"), output, cell))


def first_vector(place: int, cells: int, *, batch: int, batches: int) -> tuple[int, int]:
    """The elements of a gate that Eigen computes in vectors of four: those that lie on multiples of 16 bytes."""
    lead = min(-(place * batches + batch) * cells % LANES, cells)
    return lead, lead + (cells - lead) // LANES * LANES


def product(matrix: Array, x: Array) -> Array:
    """matrix * x in Eigen's order."""
    with np.errstate(all="ignore"):
        return np_eigen_sum(matrix * x, single=len(matrix) == 1)


def activated(x: Array, activation: str) -> Array:
    """The fused activation, by its name in the file, of float32 values."""
    match activation:
        case "TANH":
            return apply("eigen_tanh", x)
        case "RELU":
            return np.where(x > 0, x, _F(0))
        case "RELU6":
            return np.clip(x, _F(0), _F(6))
    return np.clip(x, _F(-1), _F(1))


def evaluate(
    data: Array, output: Array, cell: Array, *others: Array, attrs: LstmFloatAttrs, out_type: TupleType
) -> tuple[Array, Array, Array]:
    operands = dict(zip(attrs.names(), others, strict=True))
    sizes = Sequences(data.shape, time_major=attrs.time_major)
    steps = sizes.by_time(data)
    extra = sizes.by_time(operands["auxiliary"]) if attrs.auxiliary else steps
    result = np.zeros((sizes.steps, sizes.batch, output.shape[-1]), np.float32)
    h, c = output.copy(), cell.copy()
    order = range(sizes.steps)[::-1] if attrs.backward else range(sizes.steps)
    for t in order:
        for batch in range(sizes.batch):
            row = _Row(operands, attrs, batch, sizes.batch)
            h[batch], c[batch] = row.step(steps[t, batch], extra[t, batch], h[batch], c[batch])
            result[t, batch] = h[batch]
    return sizes.from_time(result), h, c


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
            hidden = self._gate(attrs.gates - 1, x, y, h, c) * activated(c, attrs.activation)
            if not attrs.projection:
                return hidden, c
            value = self._times("projection", slice(None), 0, hidden) + operands.get("projection_bias", _F(0))
            return _clipped(value, attrs.projection_clip), c

    def _times(self, name: str, part: slice, gate: int, x: Array) -> Array:
        """The rows `part` of a matrix times a vector."""
        matrix = self.operands[name][part]
        if not self.attrs.scales:
            return product(matrix, x)
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
            value = normalized(value) * operands["norm"][part] + bias
        if gate == attrs.cell_gate:
            return activated(value, attrs.activation)
        start, stop = first_vector(attrs.scratch_place(gate), n, batch=self.batch, batches=self.batches)
        inside = (np.arange(n) >= start) & (np.arange(n) < stop)
        return np.where(inside, apply("eigen_logistic", value), apply("eigen_scalar_logistic", value))


def _clipped(x: Array, most: float) -> Array:
    return np.clip(x, -_F(most), _F(most)) if most > 0 else x


def normalized(x: Array) -> Array:
    """(x - mean) / deviation, sums one after the other, as `PortableMeanStddevNormalization`."""
    count = _F(len(x))
    total = _F(0)
    for value in x:
        total = total + value
    mean = total / count
    squares = _F(0)
    for value in x:
        squares = squares + (value - mean) * (value - mean)
    return np.asarray((x - mean) * (_F(1) / np.sqrt(squares / count + _F(1e-8))))


register_op(
    NAME,
    VARIABLE,
    arguments=[
        ("data", "float32 [T, B, I]", "the sequence; [B, T, I] if not time-major"),
        ("output", "float32 [B, O]", "of the last step"),
        ("cell", "float32 [B, N]", "of the last step"),
        ("input_weight", "float32, int8 [G * N, I]", "gate by gate"),
        ("recurrent_weight", "float32, int8 [G * N, O]", "gate by gate"),
        ("bias", "float32 [G * N]", "gate by gate"),
        ("*others", "float32", "auxiliary data and weights; peepholes; layer normalisation; projection and its bias"),
    ],
    attrs_type=LstmFloatAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="UNIDIRECTIONAL_SEQUENCE_LSTM, LSTM; float32, hybrid",
)
