"""Random models with branches and loops, as .tflite files: nested, with shared subgraphs, swapped and unchanged variables."""

from __future__ import annotations

from typing import Any

import numpy as np

from aot.testing import ModelBuilder

SIZE = 4
CALLS = ("ADD", "SUB", "MAXIMUM", "MINIMUM", "ABS", "NEG", "RELU", "HALF")


class _Maker:
    """Fills graphs; `drawn` decides all."""

    def __init__(self, seed: int) -> None:
        self.drawn = np.random.default_rng(seed)
        self.b = ModelBuilder()
        self.graphs = 0
        self.names = 0
        self.loops: dict[tuple[int, int], tuple[int, int]] = {}
        self.left = 6  # branches and loops that may still come

    def pick(self, values: list[Any]) -> Any:
        return values[int(self.drawn.integers(len(values)))]

    def tensor(self, g: Any, shape: tuple[int, ...], dtype: str, data: Any = None) -> Any:
        self.names += 1
        return g.tensor(f"t{self.names}", shape, dtype, data=None if data is None else np.asarray(data, dtype))

    def subgraph(self, name: str) -> tuple[Any, int]:
        self.graphs += 1
        return self.b.subgraph(f"{name}_{self.graphs}"), self.graphs

    def op(self, g: Any, values: list[Any]) -> Any:
        """An element-wise operator on vectors of float32."""
        name, out = self.pick(list(CALLS)), self.tensor(g, (SIZE,), "float32")
        if name == "HALF":
            half = self.tensor(g, (), "float32", 0.5)
            g.op("MUL", [self.pick(values), half], [out], fused_activation_function="NONE")
        elif name in ("ABS", "NEG", "RELU"):
            g.op(name, [self.pick(values)], [out])
        elif name in ("ADD", "SUB"):
            g.op(name, [self.pick(values), self.pick(values)], [out], fused_activation_function="NONE")
        else:
            g.op(name, [self.pick(values), self.pick(values)], [out])
        return out

    def condition(self, g: Any, values: list[Any], counter: Any) -> Any:
        """One bool of a counter, or of the sum of a vector."""
        held = self.tensor(g, (), "bool")
        if self.drawn.integers(2):
            g.op("LESS", [counter, self.tensor(g, (), "int32", int(self.drawn.integers(-1, 4)))], [held])
        else:
            total, axis = self.tensor(g, (), "float32"), self.tensor(g, (1,), "int32", [0])
            g.op("SUM", [self.pick(values), axis], [total], keep_dims=False)
            g.op("GREATER", [total, self.tensor(g, (), "float32", 0.0)], [held])
        return held

    def fill(self, g: Any, values: list[Any], counter: Any, depth: int) -> list[Any]:
        """Operators, branches and loops over what there is; everything that there is then."""
        values = list(values)
        for _ in range(int(self.drawn.integers(1, 4))):
            kind = int(self.drawn.integers(4)) if depth and self.left else 3
            if kind < 2:
                self.left -= 1
                values += (self.branch, self.loop)[kind](g, values, counter, depth - 1)
            else:
                values.append(self.op(g, values))
        return values

    def given(self, g: Any, count: int) -> tuple[list[Any], Any]:
        return [self.tensor(g, (SIZE,), "float32") for _ in range(count)], self.tensor(g, (), "int32")

    def branch(self, g: Any, values: list[Any], counter: Any, depth: int) -> list[Any]:
        operands = [self.pick(values) for _ in range(int(self.drawn.integers(1, 3)))]
        results = int(self.drawn.integers(1, 3))
        indices = []
        for _ in range(2):
            inner, index = self.subgraph("branch")
            given, count = self.given(inner, len(operands))
            found = self.fill(inner, given, count, depth)
            # different ones: of two results that are one tensor, LiteRT's IF leaves the first unwritten
            chosen = self.drawn.permutation(len(found))[:results]
            inner.inputs, inner.outputs = [*given, count], [found[int(i)] for i in chosen]
            indices.append(index)
        held = self.condition(g, values, counter)
        outs = [self.tensor(g, (SIZE,), "float32") for _ in range(results)]
        g.op("IF", [held, *operands, counter], outs, then_subgraph_index=indices[0], else_subgraph_index=indices[1])
        return outs

    def loop(self, g: Any, values: list[Any], counter: Any, depth: int) -> list[Any]:
        operands = [self.pick(values) for _ in range(int(self.drawn.integers(1, 4)))]
        key = len(operands), depth
        if key not in self.loops or self.drawn.integers(2):
            self.loops[key] = self.cond(len(operands)), self.body(len(operands), depth)
        cond, body = self.loops[key]
        first = self.tensor(g, (), "int32", 0) if self.drawn.integers(2) else counter
        outs = [*(self.tensor(g, (SIZE,), "float32") for _ in operands), self.tensor(g, (), "int32")]
        g.op("WHILE", [*operands, first], outs, cond_subgraph_index=cond, body_subgraph_index=body)
        return outs[:-1]

    def cond(self, count: int) -> int:
        inner, index = self.subgraph("cond")
        given, counter = self.given(inner, count)
        held = self.tensor(inner, (), "bool")
        inner.op("LESS", [counter, self.tensor(inner, (), "int32", int(self.drawn.integers(0, 4)))], [held])
        inner.inputs, inner.outputs = [*given, counter], [held]
        return index

    def body(self, count: int, depth: int) -> int:
        inner, index = self.subgraph("body")
        given, counter = self.given(inner, count)
        found = self.fill(inner, given, counter, depth)
        after = self.tensor(inner, (), "int32")
        inner.op("ADD", [counter, self.tensor(inner, (), "int32", 1)], [after], fused_activation_function="NONE")
        inner.inputs, inner.outputs = [*given, counter], [*(self.pick(found) for _ in given), after]
        return index


def control_net(seed: int) -> bytes:
    """A model of two vectors and a number (from -2 to 4), with at least one branch or loop."""
    maker = _Maker(seed)
    b = maker.b
    x, y = (b.tensor(n, (SIZE,), "float32") for n in "xy")
    k = b.tensor("k", (), "int32")
    values = maker.fill(b, [x, y], k, 2)
    values += (maker.branch, maker.loop)[seed % 2](b, values, k, 1)
    results = list(dict.fromkeys([values[-1], *(maker.pick(values[2:]) for _ in range(2))]))
    return b.build([x, y, k], results)


def control_inputs(seed: int) -> list[list[np.ndarray[Any, Any]]]:
    """Four sets; the number takes every way."""
    drawn = np.random.default_rng(seed)
    return [
        [*(drawn.integers(-8, 8, SIZE).astype(np.float32) for _ in "xy"), np.array(k, np.int32)] for k in (-2, 0, 1, 4)
    ]  # fmt: skip
