"""Random graphs of several operators: what fusing, canonicalising and composing te rules make of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from aot.testing import ModelBuilder, Quant
from tests.op._differential import check

SCALES = [0.0625, 0.125, 0.05, 0.1, 0.031, 0.25]
ZERO_POINTS = [-128, 127, 0, 17, -3]
SOFT = Quant(1 / 256, -128)


@dataclass(frozen=True, slots=True)
class Value:
    tensor: int
    shape: tuple[int, ...]
    quant: Quant


@dataclass(slots=True)
class Graph:
    """A model that grows by random operators over its int8 values of four dimensions."""

    rng: np.random.Generator
    b: ModelBuilder = field(default_factory=ModelBuilder)
    values: list[Value] = field(default_factory=list)

    def quant(self) -> Quant:
        return Quant(float(np.float32(self.rng.choice(SCALES))), int(self.rng.choice(ZERO_POINTS)))

    def new(self, shape: tuple[int, ...], quant: Quant) -> Value:
        tensor = self.b.tensor(f"t{len(self.values)}", shape, scale=quant.scale, zero_point=quant.zero_point)
        self.values.append(Value(tensor, shape, quant))
        return self.values[-1]

    def pick(self) -> Value:
        """Mostly the latest value, so that chains come about."""
        return self.values[-1] if self.rng.random() < 0.7 else self.values[int(self.rng.integers(len(self.values)))]

    def const(self, name: str, data: object) -> int:
        array = np.asarray(data, np.int32)
        return self.b.tensor(name, array.shape, "int32", data=array)


def add(g: Graph) -> None:
    x = g.pick()
    same = [v for v in g.values if v.shape == x.shape]
    y = same[int(g.rng.integers(len(same)))]
    activation = str(g.rng.choice(["NONE", "RELU", "RELU6"]))
    out = g.new(x.shape, g.quant())
    g.b.op("ADD", [x.tensor, y.tensor], [out.tensor], fused_activation_function=activation)


def pool(g: Graph) -> None:
    x = g.pick()
    n, h, w, c = x.shape
    kind = str(g.rng.choice(["AVERAGE_POOL_2D", "MAX_POOL_2D"]))
    out = g.new((n, -(-h // 2), w, c), x.quant)
    g.b.op(kind, [x.tensor], [out.tensor], padding="SAME", stride_h=2, stride_w=1, filter_height=3, filter_width=2)


def unary(name: str) -> Callable[[Graph], None]:
    def grow(g: Graph) -> None:
        x = g.pick()
        quant = SOFT if name in ("SOFTMAX", "LOGISTIC") else Quant(1 / 128, 0) if name == "TANH" else g.quant()
        out = g.new(x.shape, quant)
        if name == "SOFTMAX":
            g.b.op(name, [x.tensor], [out.tensor], beta=1.0)
        else:
            g.b.op(name, [x.tensor], [out.tensor], version=1 if name == "QUANTIZE" else 2)

    return grow


def pad(g: Graph) -> None:
    x = g.pick()
    if max(x.shape) > 5:
        return
    pads = [[0, 0], [1, 0], [0, 2], [int(g.rng.integers(2)), 0]]
    out = g.new(tuple(n + a + b for n, (a, b) in zip(x.shape, pads, strict=True)), x.quant)
    g.b.op("PAD", [x.tensor, g.const(f"pads{out.tensor}", pads)], [out.tensor])


def concat(g: Graph) -> None:
    x = g.pick()
    if max(x.shape) > 5:
        return
    like = [v for v in g.values if v.shape == x.shape and v.quant == x.quant]
    parts = [x, *(like[int(i)] for i in g.rng.integers(0, len(like), int(g.rng.integers(1, 3))))]
    axis = int(g.rng.integers(1, 4))
    shape = list(x.shape)
    shape[axis] *= len(parts)
    out = g.new(tuple(shape), x.quant)
    g.b.op("CONCATENATION", [p.tensor for p in parts], [out.tensor], axis=axis)


def transpose(g: Graph) -> None:
    x = g.pick()
    perm = [0, *(int(p) + 1 for p in g.rng.permutation(3))]
    out = g.new(tuple(x.shape[p] for p in perm), x.quant)
    g.b.op("TRANSPOSE", [x.tensor, g.const(f"perm{out.tensor}", perm)], [out.tensor])


def reshape(g: Graph) -> None:
    x = g.pick()
    n, h, w, c = x.shape
    shape = (n, w, c, h)
    out = g.new(shape, x.quant)
    g.b.op("RESHAPE", [x.tensor, g.const(f"shape{out.tensor}", shape)], [out.tensor])


def resize(g: Graph) -> None:
    x = g.pick()
    n, _, _, c = x.shape
    size = [int(v) for v in g.rng.integers(1, 7, 2)]
    out = g.new((n, *size, c), x.quant)
    g.b.op("RESIZE_NEAREST_NEIGHBOR", [x.tensor, g.const(f"size{out.tensor}", size)], [out.tensor])


def mean(g: Graph) -> None:
    x = g.pick()
    axes = [[1, 2], [3], [1]][int(g.rng.integers(3))]
    out = g.new(tuple(1 if i in axes else n for i, n in enumerate(x.shape)), g.quant())
    g.b.op("MEAN", [x.tensor, g.const(f"axes{out.tensor}", axes)], [out.tensor], keep_dims=True)


GROW = [add, add, pool, pad, concat, transpose, reshape, resize, mean]
GROW += [unary(name) for name in ("SOFTMAX", "LOGISTIC", "TANH", "QUANTIZE", "QUANTIZE", "RELU", "RELU6")]


def random_model(seed: int, *, operators: int) -> bytes:
    """A connected part of what has grown is live; two of its values are outputs."""
    g = Graph(np.random.default_rng(seed))
    inputs = [g.new((1, 4, 3, 2), g.quant()) for _ in range(2)]
    while len(g.values) < operators + 2:
        GROW[int(g.rng.integers(len(GROW)))](g)
    outputs = sorted({g.values[-1].tensor, g.values[-2].tensor} - {v.tensor for v in inputs})
    return g.b.build([v.tensor for v in inputs], outputs)


@pytest.mark.parametrize("seed", range(12))
def test_random_graph(seed: int) -> None:
    check(random_model(seed, operators=6), host=seed < 4, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 400))
def test_random_graphs(seed: int) -> None:
    check(random_model(seed, operators=3 + seed % 9), host=True, seed=seed)
