"""Layers as networks have them, drawn: what estimates are compared with counts on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from aot.executor.candidates import LoweringCache
from aot.relay.analysis import workload_text
from aot.relay.expr import Function
from aot.target.target import Target
from aot.tune.measure import MeasureInput
from aot.tune.task import choices_of
from tests.topi.drawn import with_tail
from tests.topi.layers import Layer, build

MOST_MACS = 1_500_000
"""Of a drawn layer, so that a run of many stays short."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What a kernel was estimated to take for a layer, and what it took."""

    kernel: str
    text: str
    estimate: int
    count: int

    @property
    def family(self) -> str:
        """The kernel without its parameters."""
        return self.kernel.partition("(")[0]

    @property
    def error(self) -> float:
        """Of the estimate, as a part of the count; positive where it is too high."""
        return self.estimate / self.count - 1


def drawn_layers(count: int, *, seed: int = 0) -> Iterator[Layer]:
    """`count` different layers: convolutions, pointwise and depthwise ones, fully connected ones, a quarter each."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        layer = _draw(rng, number)
        while _macs(layer) > MOST_MACS:
            layer = _draw(rng, number)
        yield layer


def _draw(rng: np.random.Generator, number: int) -> Layer:
    kind = ("conv", "pointwise", "dw", "dense")[number % 4]
    clip = (-128, 127)
    own = {"seed": number, "clip": clip, "rounding": "double", "spread": 200.0, "out_zp": int(rng.integers(-128, 128)),
           "pad_value": int(rng.integers(-128, 128))}  # fmt: skip
    depth, channels = int(rng.choice([4, 8, 12, 16, 24, 32, 48, 64, 96, 128])), int(rng.choice([4, 8, 10, 16, 24, 32, 64, 128]))
    height, width = int(rng.integers(3, 33)), int(rng.integers(3, 33))
    if kind == "dense":
        depth = int(rng.choice([16, 32, 64, 128, 200, 256, 392, 640, 1000]))
        return Layer(
            "dense", (1, depth), (int(rng.choice([2, 4, 8, 10, 12, 16, 32, 64, 128])), depth), **{**own, "rounding": "single"}
        )
    if kind == "pointwise":
        return Layer("conv", (1, height, width, depth), (channels, 1, 1, depth), **own)
    kernel = [(3, 3), (3, 3), (3, 3), (5, 5), (1, 3), (3, 1), (10, 4), (2, 2)][int(rng.integers(8))]
    kernel = (min(kernel[0], height), min(kernel[1], width))
    strides = [(1, 1), (1, 1), (2, 2)][int(rng.integers(3))]
    same = tuple((k - 1) // 2 for k in kernel) if rng.random() < 0.7 else (0, 0)
    padding = (*same, *(k - 1 - s if any(same) else 0 for k, s in zip(kernel, same, strict=True)))
    if kind == "dw":
        return Layer("dw", (1, height, width, depth), (1, *kernel, depth), strides, padding, **own)  # type: ignore[arg-type]
    depth = int(rng.choice([1, 3, 4, 8, 16, 24, 32, 64]))
    return Layer("conv", (1, height, width, depth), (channels, *kernel, depth), strides, padding, **own)  # type: ignore[arg-type]


def _macs(layer: Layer) -> int:
    if layer.kind == "dense":
        return layer.weight[0] * layer.weight[1]
    (_, height, width, _), (top, left, bottom, right) = layer.data, layer.padding
    kh, kw = layer.weight[1:3]
    outputs = ((height + top + bottom - kh) // layer.strides[0] + 1) * ((width + left + right - kw) // layer.strides[1] + 1)
    return outputs * layer.weight[0] * kh * kw * layer.weight[3]


TAILS = ("", "", "", "", "", "add", "add", "table", "dequantize", "add table")
"""What is behind a layer; a residual ADD is what networks have most."""


def tail_of(number: int, *, seed: int) -> str:
    """What is drawn for the layer of that number; another generator than that of layers, which stay what they are."""
    return TAILS[int(np.random.default_rng([seed, number]).integers(len(TAILS)))]


def inputs_of(layers: Sequence[Layer], target: Target, *, seed: int = 0) -> list[tuple[MeasureInput, dict[str, int], str]]:
    """What to measure of each layer with its tail, the estimates of its kernels, and its text."""
    found, known = [], LoweringCache()
    for i, layer in enumerate(layers):
        func: Function = with_tail(build(layer), layer, tail_of(i, seed=seed))
        estimates = {c.kernel: c.estimate for c in choices_of(func, target, known) if c.estimate > 0}
        found.append((MeasureInput(f"layer {i}", func, tuple(estimates)), estimates, workload_text(func)))
    return found
