"""RNN models of all kinds, from a few numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.testing import ModelBuilder


@dataclass(frozen=True, slots=True)
class Rnn:
    """`op`: the TFLite operator; the single step RNN has no time.  `auxiliary`: depth of auxiliary data, of both directions."""

    op: str = "UNIDIRECTIONAL_SEQUENCE_RNN"
    hybrid: bool = False
    steps: int = 2
    batch: int = 1
    depth: int = 4
    units: int = 4
    time_major: bool = True
    activation: str = "TANH"
    asymmetric: bool = False
    merged: bool = True
    auxiliary: int = 0
    weighted: bool = False
    seed: int = 0

    @property
    def directions(self) -> int:
        return 2 if self.op == "BIDIRECTIONAL_SEQUENCE_RNN" else 1

    def shape(self, last: int) -> tuple[int, ...]:
        if self.op == "RNN":
            return (self.batch, last)
        return (self.steps, self.batch, last) if self.time_major else (self.batch, self.steps, last)

    def options(self) -> dict[str, Any]:
        found: dict[str, Any] = {"fused_activation_function": self.activation, "asymmetric_quantize_inputs": self.asymmetric}
        found |= {} if self.op == "RNN" else {"time_major": self.time_major}
        return found | ({"merge_outputs": self.merged} if self.directions == 2 else {})


def rnn_model(rnn: Rnn) -> bytes:
    b, rng = ModelBuilder(), np.random.default_rng(rnn.seed)

    def matrix(name: str, columns: int) -> int:
        shape = (rnn.units, columns)
        if not rnn.hybrid:
            return b.tensor(name, shape, "float32", data=rng.normal(size=shape).astype(np.float32))
        codes = rng.integers(-127, 127, shape, endpoint=True).astype(np.int8)
        return b.tensor(name, shape, "int8", scale=float(np.float32(rng.uniform(0.002, 0.02))), zero_point=0, data=codes)

    x = b.tensor("x", rnn.shape(rnn.depth), "float32")
    operands, inputs = [x], [x]
    for d in range(rnn.directions):
        bias = b.tensor(f"b{d}", (rnn.units,), "float32", data=rng.normal(size=rnn.units).astype(np.float32))
        state = b.tensor(f"h{d}", (rnn.batch, rnn.units), "float32", is_variable=True)
        operands += [matrix(f"w{d}", rnn.depth), matrix(f"r{d}", rnn.units), bias, state]
    if rnn.directions == 2:
        aux = b.tensor("aux", rnn.shape(rnn.auxiliary), "float32") if rnn.auxiliary else -1
        inputs += [aux] if rnn.auxiliary else []
        operands += [aux, *(matrix(f"v{d}", rnn.auxiliary) if rnn.weighted else -1 for d in range(2))]
    widths = [2 * rnn.units] if rnn.directions == 2 and rnn.merged else [rnn.units] * rnn.directions
    results = [b.tensor(f"y{i}", rnn.shape(n), "float32") for i, n in enumerate(widths)]
    b.op(rnn.op, operands, results, version=3, **rnn.options())
    return b.build(inputs, results)
