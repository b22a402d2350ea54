"""Random stateful networks: variables of a few shapes that are read, joined, shifted, exchanged and assigned in any order."""

from __future__ import annotations

from collections.abc import Sequence
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


@dataclass
class _BranchingNet(_Net):
    """With branches and loops that `k`, an int32, decides; they take values, and read and assign variables themselves."""

    k: int = -1

    def inner(self, rows: int, to: tuple[int, int] | None) -> int:
        """A subgraph of two values and a number that gives a value and the next number, and may assign a variable."""
        g = self.b.subgraph(f"inner{len(self.b.subgraphs)}")
        shape = self.shape(rows)
        values = [g.tensor(f"given{i}", shape, self.dtype, **self.quant) for i in range(2)]
        count, after = g.tensor("count", (), "int32"), g.tensor("after", (), "int32")
        one = g.tensor("one", (), "int32", data=np.array(1, np.int32))
        g.op("ADD", [count, one], [after], fused_activation_function="NONE")
        if to is not None and self.rng.random() < 0.5:
            values.append(read(g, handle(g, f"v{to[1]}"), shape, self.dtype, **self.quant))
        made = g.tensor("made", shape, self.dtype, **self.quant)
        names = ["MAXIMUM", "MINIMUM"] if self.dtype == "int8" else ["ADD", "MAXIMUM", "SUB"]
        name = str(self.rng.choice(names))
        options: dict[str, Any] = {"fused_activation_function": "NONE"} if name in ("ADD", "SUB") else {}
        g.op(name, [int(self.rng.choice(values)), int(self.rng.choice(values))], [made], **options)
        if to is not None:
            assign(g, handle(g, f"v{to[1]}"), int(self.rng.choice([made, *values])))
        g.inputs, g.outputs = (values[0], values[1], count), (made, values[int(self.rng.integers(2))], after)
        return len(self.b.subgraphs) - 1

    def condition(self, rows: int, most: int) -> int:
        """A subgraph of the same operands that says whether the number is below `most`."""
        g = self.b.subgraph(f"held{len(self.b.subgraphs)}")
        values = [g.tensor(f"given{i}", self.shape(rows), self.dtype, **self.quant) for i in range(2)]
        count, held = g.tensor("count", (), "int32"), g.tensor("held", (), "bool")
        g.op("LESS", [count, g.tensor("most", (), "int32", data=np.array(most, np.int32))], [held])
        g.inputs, g.outputs = (*values, count), (held,)
        return len(self.b.subgraphs) - 1

    def assigned(self, rows: int) -> tuple[int, int] | None:
        """(rows, number) of a variable of so many rows, or none."""
        fitting = [(n, i) for i, (n, _) in enumerate(self.handles) if n == rows]
        return fitting[int(self.rng.integers(len(fitting)))] if fitting and self.rng.random() < 0.5 else None

    def operands(self) -> tuple[int, list[int]]:
        rows, first = self.any_value()
        return rows, [first, self.any_value(rows)[1]]

    def branch(self) -> None:
        rows, operands = self.operands()
        held = self.b.tensor(f"held{len(self.b.subgraphs)}", (), "bool")
        self.b.op("LESS", [self.k, self.number(int(self.rng.integers(3)))], [held])
        inner = [self.inner(rows, self.assigned(rows)) for _ in range(2)]
        outs = [self.tensor(rows), self.tensor(rows), self.b.tensor(f"after{len(self.b.subgraphs)}", (), "int32")]
        self.b.op("IF", [held, *operands, self.k], outs, then_subgraph_index=inner[0], else_subgraph_index=inner[1])

    def carry(self) -> None:
        """A loop that goes on from a variable, which then is what comes out."""
        rows, of = self.variable()
        if rows in self.values:
            old = read(self.b.subgraphs[0], of, self.shape(rows), self.dtype, **self.quant)
            self.loop(rows, [old, self.any_value(rows)[1]], times=self.rng.random() < 0.8)
            assign(self.b.subgraphs[0], of, self.values[rows][-2])

    def loop(self, rows: int = 0, operands: Sequence[int] = (), *, times: bool = False) -> None:
        """`times`: it is known how often it runs."""
        if not operands:
            rows, operands = self.operands()
        first = self.number(0) if times or self.rng.random() < 0.5 else self.k
        parts = self.condition(rows, int(self.rng.integers(4))), self.inner(rows, self.assigned(rows))
        outs = [self.tensor(rows), self.tensor(rows), self.b.tensor(f"after{len(self.b.subgraphs)}", (), "int32")]
        self.b.op("WHILE", [*operands, first], outs, cond_subgraph_index=parts[0], body_subgraph_index=parts[1])

    def number(self, value: int) -> int:
        return self.b.tensor(f"n{len(self.b.subgraphs[0].tensors)}", (), "int32", data=np.array(value, np.int32))


def draw_branching_network(seed: int) -> tuple[bytes, list[list[Array]]]:
    """A model of a value and a number, with branches and loops beside its variables or around them, and inputs for some steps."""
    rng = np.random.default_rng(seed)
    net = _BranchingNet(rng, "int8" if seed % 2 else "float32", int(rng.integers(1, 6)))
    _begin(net)
    rows = int(rng.integers(1, 4))
    x, net.k = net.tensor(rows), net.b.tensor("k", (), "int32")
    kinds = (net.read, net.assign, net.combine, net.slide, net.branch, net.loop, net.carry)
    for kind in rng.choice(7, int(rng.integers(3, 9)), p=[0.2, 0.05, 0.25, 0.2, 0.1, 0.05, 0.15]):
        kinds[int(kind)]()
    net.read()
    kinds[int(rng.integers(3, 7))]()
    made = [t for group in net.values.values() for t in group if t != x]
    outputs = list(dict.fromkeys([made[-1], *(int(rng.choice(made)) for _ in range(2))]))
    steps = [[_draw(rng, net.shape(rows), net.dtype), np.array(rng.integers(-1, 4), np.int32)] for _ in range(10)]
    return net.b.build([x, net.k], outputs), steps


def _begin(net: _Net) -> None:
    """Some variables and their first values."""
    rng = net.rng
    initial, quants = {}, {}
    for k in range(int(rng.integers(1, 4))):
        name, rows = f"v{k}", int(rng.integers(1, 6))
        data = rng.integers(-9, 9, net.shape(rows)) if rng.random() < 0.5 else np.full(net.shape(rows), rng.integers(-9, 9))
        initial[name], quants[name] = data.astype(net.dtype), net.quant
    initialize(net.b, initial, **quants)
    net.handles = [(data.shape[1], handle(net.b.subgraphs[0], name)) for name, data in initial.items()]


def draw_network(seed: int) -> tuple[bytes, list[list[Array]]]:
    """A model with one input, and inputs for some steps."""
    rng = np.random.default_rng(seed)
    net = _Net(rng, "int8" if seed % 2 else "float32", int(rng.integers(1, 6)))
    _begin(net)
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
