"""LSTM models of all kinds, from a few numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.testing import ModelBuilder


@dataclass(frozen=True, slots=True)
class Lstm:
    """`op`: the TFLite operator; the single step LSTM has no time.  `outputs` differ from `cells` with a projection only.

    `intermediates` is how many more intermediate tensors there are than the five of the common integer LSTM.
    """

    op: str = "UNIDIRECTIONAL_SEQUENCE_LSTM"
    dtype: str = "int8"
    steps: int = 2
    batch: int = 1
    depth: int = 4
    cells: int = 4
    outputs: int = 0
    time_major: bool = True
    cifg: bool = False
    peephole: bool = False
    norm: bool = False
    projection: bool = False
    projection_bias: bool = True
    cell_power: int = -11
    cell_clip: float = 0.0
    projection_clip: float = 0.0
    activation: str = "TANH"
    asymmetric: bool = False
    intermediates: int = 0
    seed: int = 0

    @property
    def results(self) -> int:
        return (self.outputs or self.cells) if self.projection else self.cells

    def shape(self, last: int) -> tuple[int, ...]:
        if self.op == "LSTM":
            return (self.batch, last)
        return (self.steps, self.batch, last) if self.time_major else (self.batch, self.steps, last)

    def options(self) -> dict[str, Any]:
        major = {} if self.op == "LSTM" else {"time_major": self.time_major}
        clips = {"cell_clip": self.cell_clip, "proj_clip": self.projection_clip}
        asymmetric = {"asymmetric_quantize_inputs": self.asymmetric} if self.dtype == "hybrid" else {}
        return {"fused_activation_function": self.activation, **clips, **major, **asymmetric}


def lstm_model(lstm: Lstm) -> bytes:
    b = ModelBuilder()
    kinds = {"float32": _Floats, "hybrid": _Hybrid}
    parts = kinds.get(lstm.dtype, _Integers)(b, lstm)
    x, weights = parts.data(), parts.gates()
    projection = parts.projection()
    states = parts.states()
    norm, y, intermediates = parts.norms(), parts.result(), parts.intermediates()
    version = 4 if lstm.op == "LSTM" else 3
    b.op(lstm.op, [x, *weights, *projection, *states, *norm], [y], version=version, intermediates=intermediates, **lstm.options())
    return b.build([x], [y])


def bidirectional_model(lstm: Lstm, *, merged: bool, auxiliary: int = 0, weighted: bool = False) -> bytes:
    """BIDIRECTIONAL_SEQUENCE_LSTM; `auxiliary`: depth of auxiliary data, with weights of its own if `weighted`."""
    b = ModelBuilder()
    parts = (_Hybrid if lstm.dtype == "hybrid" else _Floats)(b, lstm)
    x = parts.data()
    directions = [[*parts.gates(), *parts.projection()] for _ in range(2)]
    states = [s for _ in range(2) for s in parts.states()]
    extra, more = [-1], [-1] * 8
    inputs = [x]
    if auxiliary:
        extra = [b.tensor("aux", lstm.shape(auxiliary), "float32")]
        inputs += extra
    if weighted:
        more = [parts.constant((lstm.cells, auxiliary), "int8", (0.002, 0.02), 127) for _ in range(8)]
        more = [-1 if lstm.cifg and i % 4 == 0 else m for i, m in enumerate(more)]
    widths = [2 * lstm.results] if merged else [lstm.results] * 2
    results = [b.tensor(f"y{i}", lstm.shape(n), "float32") for i, n in enumerate(widths)]
    operands = [x, *directions[0], *directions[1], *states, *extra, *more]
    b.op("BIDIRECTIONAL_SEQUENCE_LSTM", operands, results, version=3, merge_outputs=merged, **lstm.options())
    return b.build(inputs, results)


class _Integers:
    """Tensors of a quantised LSTM, whose scales let gates and outputs use their range."""

    def __init__(self, b: ModelBuilder, lstm: Lstm) -> None:
        self.b, self.lstm, self.rng = b, lstm, np.random.default_rng(lstm.seed)
        wide = lstm.dtype == "int16"
        self.data_scale, self.output_scale = (0.0003, 2.0**-15) if wide else (0.03, 0.0071)
        self.zps = [0 if wide else int(z) for z in self.rng.integers(-60, 60, 2)]
        self.count = 0

    def constant(self, shape: tuple[int, ...], dtype: str, scales: tuple[float, float], most: int) -> int:
        """Values up to `most` with a scale between `scales`."""
        self.count += 1
        scale = float(np.float32(self.rng.uniform(*scales)))
        values = self.rng.integers(-most, most, shape, endpoint=True).astype(dtype)
        return self.b.tensor(f"c{self.count}", shape, dtype, scale=scale, zero_point=0, data=values)

    def data(self) -> int:
        shape = self.lstm.shape(self.lstm.depth)
        return self.b.tensor("x", shape, self.lstm.dtype, scale=self.data_scale, zero_point=self.zps[0])

    def gates(self) -> list[int]:
        """Operands 1 to 15."""
        lstm = self.lstm
        weights = [self.constant((lstm.cells, lstm.depth), "int8", (0.002, 0.01), 127) for _ in range(4)]
        recurrent = [self.constant((lstm.cells, lstm.results), "int8", (0.002, 0.01), 127) for _ in range(4)]
        peepholes = [-1] * 3
        if lstm.peephole:
            peepholes = [self.constant((lstm.cells,), "int16", (1e-5, 5e-5), 32767) for _ in range(3)]
        bias = "int64" if lstm.dtype == "int16" else "int32"
        biases = [self.constant((lstm.cells,), bias, (1e-4, 1e-4), 3000) for _ in range(4)]
        if lstm.cifg:
            weights[0] = recurrent[0] = peepholes[0] = biases[0] = -1
        return [*weights, *recurrent, *peepholes, *biases]

    def projection(self) -> list[int]:
        lstm = self.lstm
        if not lstm.projection:
            return [-1, -1]
        matrix = self.constant((lstm.results, lstm.cells), "int8", (0.005, 0.02), 127)
        return [matrix, self.constant((lstm.results,), "int32", (1e-4, 1e-4), 3000) if lstm.projection_bias else -1]

    def states(self) -> list[int]:
        lstm, quant = self.lstm, {"scale": self.output_scale, "zero_point": self.zps[1]}
        output = self.b.tensor("h", (lstm.batch, lstm.results), lstm.dtype, is_variable=True, **quant)
        cell = self.b.tensor("c", (lstm.batch, lstm.cells), "int16", scale=2.0**lstm.cell_power, zero_point=0, is_variable=True)
        return [output, cell]

    def norms(self) -> list[int]:
        if not self.lstm.norm:
            return [-1] * 4
        found = [self.constant((self.lstm.cells,), "int16", (1e-5, 5e-5), 32767) for _ in range(4)]
        return [-1, *found[1:]] if self.lstm.cifg else found

    def result(self) -> int:
        shape = self.lstm.shape(self.lstm.results)
        return self.b.tensor("y", shape, self.lstm.dtype, scale=self.output_scale, zero_point=self.zps[1])

    def intermediates(self) -> list[int]:
        """Of the gates before normalisation, of the hidden value before the projection; without elements, as TFLM wants them."""
        scales = [float(np.float32(s)) for s in self.rng.uniform(0.001, 0.01, 4)]
        found = [self.b.tensor(f"gate{g}", (0,), "int16", scale=s, zero_point=0) for g, s in enumerate(scales)]
        scale, zp = (self.output_scale * 0.9, -self.zps[0]) if self.lstm.projection else (self.output_scale, self.zps[1])
        more = [self.b.tensor(f"more{i}", (0,), "int8", scale=0.01, zero_point=0) for i in range(self.lstm.intermediates)]
        return [*found, self.b.tensor("hidden", (0,), "int8", scale=scale, zero_point=zp), *more]


class _Floats(_Integers):
    """The same tensors as float32."""

    def constant(self, shape: tuple[int, ...], dtype: str, scales: tuple[float, float], most: int) -> int:
        self.count += 1
        return self.b.tensor(f"c{self.count}", shape, "float32", data=self.rng.normal(size=shape).astype(np.float32))

    def data(self) -> int:
        return self.b.tensor("x", self.lstm.shape(self.lstm.depth), "float32")

    def states(self) -> list[int]:
        shapes = {"h": (self.lstm.batch, self.lstm.results), "c": (self.lstm.batch, self.lstm.cells)}
        return [self.b.tensor(name, shape, "float32", is_variable=True) for name, shape in shapes.items()]

    def result(self) -> int:
        return self.b.tensor("y", self.lstm.shape(self.lstm.results), "float32")

    def intermediates(self) -> list[int]:
        return []


class _Hybrid(_Floats):
    """Float32 data and biases, int8 matrices and peepholes."""

    def constant(self, shape: tuple[int, ...], dtype: str, scales: tuple[float, float], most: int) -> int:
        is_matrix = dtype == "int8" or (dtype == "int16" and not self.in_norms)
        if not is_matrix:
            return super().constant(shape, dtype, scales, most)
        return _Integers.constant(self, shape, "int8", (0.002, 0.02), 127)

    in_norms = False

    def norms(self) -> list[int]:
        self.in_norms = True
        return super().norms()
