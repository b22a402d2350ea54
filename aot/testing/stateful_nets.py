"""Random stateful networks: variables of a few shapes that are read, joined, shifted, exchanged and assigned in any order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aot.testing.builder import ModelBuilder
from aot.testing.state import assign, handle, initialize, read

Array = np.ndarray[Any, Any]
QUANT = {"scale": 0.25, "zero_point": -5}


@dataclass
class _Net:
    """A graph that grows: `values` by number of rows, all of one width."""

    rng: np.random.Generator
    dtype: str
    width: int
    b: ModelBuilder = field(default_factory=ModelBuilder)
    values: dict[int, list[int]] = field(default_factory=dict)
    handles: list[tuple[int, int]] = field(default_factory=list)

    @property
    def quant(self) -> dict[str, Any]:
        return QUANT if self.dtype == "int8" else {}

    def shape(self, rows: int) -> tuple[int, int, int]:
        return (1, rows, self.width)

    def tensor(self, rows: int) -> int:
        """A value that an operator makes."""
        index = self.b.tensor(f"t{len(self.b.subgraphs[0].tensors)}", self.shape(rows), self.dtype, **self.quant)
        self.values.setdefault(rows, []).append(index)
        return index

    def numbers(self, *values: int) -> int:
        return self.b.tensor(f"n{len(self.b.subgraphs[0].tensors)}", (len(values),), "int32", data=np.array(values, np.int32))

    def any_value(self, rows: int | None = None) -> tuple[int, int]:
        """(rows, tensor)"""
        rows = int(self.rng.choice(sorted(self.values))) if rows is None else rows
        return rows, int(self.rng.choice(self.values[rows]))

    def variable(self) -> tuple[int, int]:
        """(rows, handle)"""
        return self.handles[int(self.rng.integers(len(self.handles)))]

    def read(self) -> None:
        rows, of = self.variable()
        value = read(self.b.subgraphs[0], of, self.shape(rows), self.dtype, **self.quant)
        self.values.setdefault(rows, []).append(value)

    def assign(self) -> None:
        rows, to = self.variable()
        if rows in self.values:
            assign(self.b.subgraphs[0], to, self.any_value(rows)[1])

    def combine(self) -> None:
        rows, a = self.any_value()
        _, c = self.any_value(rows)
        name = str(self.rng.choice(["MAXIMUM", "MINIMUM"] if self.dtype == "int8" else ["ADD", "MAXIMUM", "SUB"]))
        options: dict[str, Any] = {"fused_activation_function": "NONE"} if name in ("ADD", "SUB") else {}
        self.b.op(name, [a, c], [self.tensor(rows)], **options)

    def slide(self) -> None:
        """The window of a variable and a value; its last rows, or any others, stay."""
        rows, of = self.variable()
        old = read(self.b.subgraphs[0], of, self.shape(rows), self.dtype, **self.quant)
        new_rows, new = self.any_value()
        both = [old, new] if self.rng.random() < 0.8 else [new, old]
        window = self.tensor(rows + new_rows)
        self.b.op("CONCATENATION", both, [window], axis=1, fused_activation_function="NONE")
        start = new_rows if self.rng.random() < 0.8 else int(self.rng.integers(new_rows + 1))
        tail = self.tensor(rows)
        self.b.op("SLICE", [window, self.numbers(0, start, 0), self.numbers(1, rows, self.width)], [tail])
        assign(self.b.subgraphs[0], of, tail)


def draw_network(seed: int) -> tuple[bytes, list[list[Array]]]:
    """A model with one input, and inputs for some steps."""
    rng = np.random.default_rng(seed)
    net = _Net(rng, "int8" if seed % 2 else "float32", int(rng.integers(1, 6)))
    initial, quants = {}, {}
    for k in range(int(rng.integers(1, 4))):
        name, rows = f"v{k}", int(rng.integers(1, 6))
        data = rng.integers(-9, 9, net.shape(rows)) if rng.random() < 0.5 else np.full(net.shape(rows), rng.integers(-9, 9))
        initial[name], quants[name] = data.astype(net.dtype), net.quant
    initialize(net.b, initial, **quants)
    net.handles = [(data.shape[1], handle(net.b.subgraphs[0], name)) for name, data in initial.items()]
    rows = int(rng.integers(1, 4))
    x = net.tensor(rows)
    for _ in range(int(rng.integers(4, 12))):
        (net.read, net.assign, net.combine, net.slide)[int(rng.choice(4, p=[0.2, 0.3, 0.25, 0.25]))]()
    net.read()
    made = [t for group in net.values.values() for t in group if t != x]
    outputs = sorted({made[-1], *(int(rng.choice(made)) for _ in range(2))})
    steps = [[_draw(rng, net.shape(rows), net.dtype)] for _ in range(8)]
    return net.b.build([x], outputs), steps


def _draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    made: Array = rng.integers(-128, 128, shape).astype(np.int8) if dtype == "int8" else rng.standard_normal(shape)
    return made.astype(dtype)
