"""Networks over time for tests: random stateful networks, and a hand-written temporal convolution network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aot.testing.builder import ModelBuilder, assign, handle, initialize, read

# ---- random networks: variables of a few shapes that are read, joined, shifted, exchanged and assigned in any order


Array = np.ndarray[Any, Any]
QUANT = {"scale": 0.25, "zero_point": -5}


@dataclass
class _Net:
    """A growing graph: `values` by number of rows, all of one width."""

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
        """A value made by an operator."""
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
        """The window of a variable and a value; its last rows, or any others, are kept."""
        rows, of = self.variable()
        old = read(self.b.subgraphs[0], of, self.shape(rows), self.dtype, **self.quant)
        new_rows, new = self.any_value()
        both = [old, new] if self.rng.random() < 0.8 else [new, old]
        window = self.tensor(rows + new_rows)
        self.b.op("CONCATENATION", both, [window], axis=1, fused_activation_function="NONE")
        start = new_rows if self.rng.random() < 0.8 else int(self.rng.integers(new_rows + 1))
        kept = self.tensor(rows)
        self.b.op("SLICE", [window, self.numbers(0, start, 0), self.numbers(1, rows, self.width)], [kept])
        assign(self.b.subgraphs[0], of, kept)


@dataclass
class _BranchingNet(_Net):
    """With branches and loops controlled by `k`, an int32; they use values, and read and assign variables."""

    k: int = -1

    def inner(self, rows: int, to: tuple[int, int] | None) -> int:
        """A subgraph of two values and a number that returns a value and the next number, and may assign a variable."""
        g = self.b.subgraph(f"inner{len(self.b.subgraphs)}")
        shape = self.shape(rows)
        values = [g.tensor(f"given{i}", shape, self.dtype, **self.quant) for i in range(2)]
        count, after = g.tensor("count", (), "int32"), g.tensor("after", (), "int32")
        one = g.tensor("one", (), "int32", data=np.array(1, np.int32))
        g.op("ADD", [count, one], [after], fused_activation_function="NONE")
        if to is not None and self.rng.random() < 0.5:
            values.append(read(g, handle(g, f"v{to[1]}"), shape, self.dtype, **self.quant))
        result = g.tensor("made", shape, self.dtype, **self.quant)
        names = ["MAXIMUM", "MINIMUM"] if self.dtype == "int8" else ["ADD", "MAXIMUM", "SUB"]
        name = str(self.rng.choice(names))
        options: dict[str, Any] = {"fused_activation_function": "NONE"} if name in ("ADD", "SUB") else {}
        g.op(name, [int(self.rng.choice(values)), int(self.rng.choice(values))], [result], **options)
        if to is not None:
            assign(g, handle(g, f"v{to[1]}"), int(self.rng.choice([result, *values])))
        g.inputs, g.outputs = (values[0], values[1], count), (result, values[int(self.rng.integers(2))], after)
        return len(self.b.subgraphs) - 1

    def condition(self, rows: int, most: int) -> int:
        """A subgraph of the same operands that returns whether the number is below `most`."""
        g = self.b.subgraph(f"held{len(self.b.subgraphs)}")
        values = [g.tensor(f"given{i}", self.shape(rows), self.dtype, **self.quant) for i in range(2)]
        count, held = g.tensor("count", (), "int32"), g.tensor("held", (), "bool")
        g.op("LESS", [count, g.tensor("most", (), "int32", data=np.array(most, np.int32))], [held])
        g.inputs, g.outputs = (*values, count), (held,)
        return len(self.b.subgraphs) - 1

    def assigned(self, rows: int) -> tuple[int, int] | None:
        """(rows, number) of a variable with that many rows, or none."""
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
        """A loop that starts from a variable and assigns its result to it."""
        rows, of = self.variable()
        if rows in self.values:
            old = read(self.b.subgraphs[0], of, self.shape(rows), self.dtype, **self.quant)
            self.loop(rows, [old, self.any_value(rows)[1]], times=self.rng.random() < 0.8)
            assign(self.b.subgraphs[0], of, self.values[rows][-2])

    def loop(self, rows: int = 0, operands: Sequence[int] = (), *, times: bool = False) -> None:
        """A loop; `times`: the number of iterations is known."""
        if not operands:
            rows, operands = self.operands()
        first = self.number(0) if times or self.rng.random() < 0.5 else self.k
        parts = self.condition(rows, int(self.rng.integers(4))), self.inner(rows, self.assigned(rows))
        outs = [self.tensor(rows), self.tensor(rows), self.b.tensor(f"after{len(self.b.subgraphs)}", (), "int32")]
        self.b.op("WHILE", [*operands, first], outs, cond_subgraph_index=parts[0], body_subgraph_index=parts[1])

    def number(self, value: int) -> int:
        return self.b.tensor(f"n{len(self.b.subgraphs[0].tensors)}", (), "int32", data=np.array(value, np.int32))


def draw_branching_network(seed: int) -> tuple[bytes, list[list[Array]]]:
    """A model of a value and a number, with branches and loops around or next to its variables, and inputs for some steps."""
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
    values = [t for group in net.values.values() for t in group if t != x]
    outputs = list(dict.fromkeys([values[-1], *(int(rng.choice(values)) for _ in range(2))]))
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
    values = [t for group in net.values.values() for t in group if t != x]
    outputs = sorted({values[-1], *(int(rng.choice(values)) for _ in range(2))})
    steps = [[_draw(rng, net.shape(rows), net.dtype)] for _ in range(8)]
    return net.b.build([x], outputs), steps


def _draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    made: Array = rng.integers(-128, 128, shape).astype(np.int8) if dtype == "int8" else rng.standard_normal(shape)
    return made.astype(dtype)


# ---- a temporal convolution network, over a window and hand-written for one frame at a time
# int8 [1, frames, 1, features]: convolutions of three frames with dilations, without padding, then the mean over time and a fully
# connected layer.  Both files have the same weights.


FRAME_QUANT: dict[str, Any] = {"scale": 0.1, "zero_point": -128}
TAPS = 3


@dataclass(frozen=True, slots=True)
class Tcn:
    """The sizes of a network; `seed` determines its weights."""

    frames: int = 128
    features: int = 64
    channels: int = 64
    classes: int = 12
    dilations: Sequence[int] = (1, 2, 4, 8)
    seed: int = 1

    @property
    def last(self) -> int:
        """Frames of the last layer's result."""
        return self.frames - (TAPS - 1) * sum(self.dilations)

    @property
    def macs(self) -> int:
        """MACs of a run on the whole window."""
        rows, depth, total = self.frames, self.features, 0
        for dilation in self.dilations:
            rows -= (TAPS - 1) * dilation
            total += rows * self.channels * TAPS * depth
            depth = self.channels
        return total + self.channels * self.classes


def tcn(net: Tcn) -> bytes:
    """The network over a window."""
    b = ModelBuilder()
    x = b.tensor("x", (1, net.frames, 1, net.features), "int8", **FRAME_QUANT)
    value, rows = x, net.frames
    for k, dilation in enumerate(net.dilations):
        rows -= (TAPS - 1) * dilation
        value = _conv(b, net, value, k, rows=rows, dilation=dilation)
    return b.build([x], [_head(b, net, value)])


def tcn_by_hand(net: Tcn) -> bytes:
    """The network over one frame: each layer joins its kept frames with the new one."""
    b = ModelBuilder()
    x = b.tensor("x", (1, 1, 1, net.features), "int8", **FRAME_QUANT)
    kept = [(TAPS - 1) * d for d in net.dilations] + [net.last - 1]
    depths = [net.features] + [net.channels] * len(net.dilations)
    names = [f"kept{k}" for k in range(len(kept))]
    initialize(
        b,
        {n: np.full((1, rows, 1, depth), -128, np.int8) for n, rows, depth in zip(names, kept, depths, strict=True)},
        **dict.fromkeys(names, FRAME_QUANT),
    )
    value = x
    for k, dilation in enumerate(net.dilations):
        window = _joined(b, names[k], value, rows=kept[k], depth=depths[k])
        value = _conv(b, net, window, k, rows=1, dilation=dilation)
    return b.build([x], [_head(b, net, _joined(b, names[-1], value, rows=kept[-1], depth=net.channels))])


def _joined(b: ModelBuilder, name: str, value: int, *, rows: int, depth: int) -> int:
    """The window of a variable and a new frame; its last rows are kept."""
    graph = b.subgraphs[0]
    to = handle(graph, name)
    old = read(graph, to, (1, rows, 1, depth), "int8", **FRAME_QUANT)
    window = b.tensor(f"{name}_window", (1, rows + 1, 1, depth), "int8", **FRAME_QUANT)
    b.op("CONCATENATION", [old, value], [window], axis=1, fused_activation_function="NONE")
    kept = b.tensor(f"{name}_tail", (1, rows, 1, depth), "int8", **FRAME_QUANT)
    begin = b.tensor(f"{name}_begin", (4,), "int32", data=np.array([0, 1, 0, 0], np.int32))
    size = b.tensor(f"{name}_size", (4,), "int32", data=np.array([1, rows, 1, depth], np.int32))
    b.op("SLICE", [window, begin, size], [kept])
    assign(graph, to, kept)
    return window


def _conv(b: ModelBuilder, net: Tcn, x: int, k: int, *, rows: int, dilation: int) -> int:
    depth = net.features if k == 0 else net.channels
    rng = np.random.default_rng([net.seed, k])
    scale = np.full(net.channels, 1 / (60 * np.sqrt(TAPS * depth)), np.float32)
    w = b.tensor(
        f"w{k}", (net.channels, TAPS, 1, depth), "int8", scale=scale, axis=0,
        data=rng.integers(-127, 128, (net.channels, TAPS, 1, depth)).astype(np.int8),
    )  # fmt: skip
    bias_scale = np.float32(FRAME_QUANT["scale"]) * scale
    data = rng.integers(-3000, 9000, net.channels).astype(np.int32)
    bias = b.tensor(f"b{k}", (net.channels,), "int32", scale=bias_scale, axis=0, data=data)
    y = b.tensor(f"y{k}", (1, rows, 1, net.channels), "int8", **FRAME_QUANT)
    b.op(
        "CONV_2D", [x, w, bias], [y], padding="VALID", stride_h=1, stride_w=1, dilation_h_factor=dilation, dilation_w_factor=1,
        fused_activation_function="RELU",
    )  # fmt: skip
    return y


def _head(b: ModelBuilder, net: Tcn, x: int) -> int:
    """The mean over time, and a fully connected layer."""
    pooled = b.tensor("pooled", (1, 1, 1, net.channels), "int8", **FRAME_QUANT)
    b.op(
        "AVERAGE_POOL_2D", [x], [pooled], padding="VALID", stride_h=net.last, stride_w=1, filter_height=net.last, filter_width=1,
        fused_activation_function="NONE",
    )  # fmt: skip
    flat = b.tensor("flat", (1, net.channels), "int8", **FRAME_QUANT)
    shape = b.tensor("shape", (2,), "int32", data=np.array([1, net.channels], np.int32))
    b.op("RESHAPE", [pooled, shape], [flat], new_shape=np.array([1, net.channels], np.int32))
    rng = np.random.default_rng([net.seed, 99])
    weights = rng.integers(-127, 128, (net.classes, net.channels)).astype(np.int8)
    w = b.tensor("w", (net.classes, net.channels), "int8", scale=0.01, zero_point=0, data=weights)
    bias = b.tensor(
        "b", (net.classes,), "int32", scale=0.001, zero_point=0, data=rng.integers(-900, 900, net.classes).astype(np.int32)
    )
    y = b.tensor("y", (1, net.classes), "int8", scale=0.2, zero_point=0)
    b.op("FULLY_CONNECTED", [flat, w, bias], [y], fused_activation_function="NONE")
    return y
