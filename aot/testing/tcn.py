"""A temporal convolution network, over a window and as it is rewritten by hand to take one frame at a time.

int8 [1, frames, 1, features]: convolutions of three frames with dilations, without padding, then the mean over time and a fully
connected layer.  Both files have the same weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.testing.builder import ModelBuilder
from aot.testing.state import assign, handle, initialize, read

QUANT: dict[str, Any] = {"scale": 0.1, "zero_point": -128}
TAPS = 3


@dataclass(frozen=True, slots=True)
class Tcn:
    """The sizes of a network; `seed` gives its weights."""

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
        """Of a run on the whole window."""
        rows, depth, total = self.frames, self.features, 0
        for dilation in self.dilations:
            rows -= (TAPS - 1) * dilation
            total += rows * self.channels * TAPS * depth
            depth = self.channels
        return total + self.channels * self.classes


def tcn(net: Tcn) -> bytes:
    """The network over a window."""
    b = ModelBuilder()
    x = b.tensor("x", (1, net.frames, 1, net.features), "int8", **QUANT)
    value, rows = x, net.frames
    for k, dilation in enumerate(net.dilations):
        rows -= (TAPS - 1) * dilation
        value = _conv(b, net, value, k, rows=rows, dilation=dilation)
    return b.build([x], [_head(b, net, value)])


def tcn_by_hand(net: Tcn) -> bytes:
    """The network over one frame: each layer joins the frames that it kept with the new one."""
    b = ModelBuilder()
    x = b.tensor("x", (1, 1, 1, net.features), "int8", **QUANT)
    kept = [(TAPS - 1) * d for d in net.dilations] + [net.last - 1]
    depths = [net.features] + [net.channels] * len(net.dilations)
    names = [f"kept{k}" for k in range(len(kept))]
    initialize(
        b,
        {n: np.full((1, rows, 1, depth), -128, np.int8) for n, rows, depth in zip(names, kept, depths, strict=True)},
        **dict.fromkeys(names, QUANT),
    )
    value = x
    for k, dilation in enumerate(net.dilations):
        window = _joined(b, names[k], value, rows=kept[k], depth=depths[k])
        value = _conv(b, net, window, k, rows=1, dilation=dilation)
    return b.build([x], [_head(b, net, _joined(b, names[-1], value, rows=kept[-1], depth=net.channels))])


def _joined(b: ModelBuilder, name: str, value: int, *, rows: int, depth: int) -> int:
    """The window of a variable and a new frame; its last rows stay."""
    graph = b.subgraphs[0]
    to = handle(graph, name)
    old = read(graph, to, (1, rows, 1, depth), "int8", **QUANT)
    window = b.tensor(f"{name}_window", (1, rows + 1, 1, depth), "int8", **QUANT)
    b.op("CONCATENATION", [old, value], [window], axis=1, fused_activation_function="NONE")
    tail = b.tensor(f"{name}_tail", (1, rows, 1, depth), "int8", **QUANT)
    begin = b.tensor(f"{name}_begin", (4,), "int32", data=np.array([0, 1, 0, 0], np.int32))
    size = b.tensor(f"{name}_size", (4,), "int32", data=np.array([1, rows, 1, depth], np.int32))
    b.op("SLICE", [window, begin, size], [tail])
    assign(graph, to, tail)
    return window


def _conv(b: ModelBuilder, net: Tcn, x: int, k: int, *, rows: int, dilation: int) -> int:
    depth = net.features if k == 0 else net.channels
    rng = np.random.default_rng([net.seed, k])
    scale = np.full(net.channels, 1 / (60 * np.sqrt(TAPS * depth)), np.float32)
    w = b.tensor(
        f"w{k}", (net.channels, TAPS, 1, depth), "int8", scale=scale, axis=0,
        data=rng.integers(-127, 128, (net.channels, TAPS, 1, depth)).astype(np.int8),
    )  # fmt: skip
    bias_scale = np.float32(QUANT["scale"]) * scale
    data = rng.integers(-3000, 9000, net.channels).astype(np.int32)
    bias = b.tensor(f"b{k}", (net.channels,), "int32", scale=bias_scale, axis=0, data=data)
    y = b.tensor(f"y{k}", (1, rows, 1, net.channels), "int8", **QUANT)
    b.op(
        "CONV_2D", [x, w, bias], [y], padding="VALID", stride_h=1, stride_w=1, dilation_h_factor=dilation, dilation_w_factor=1,
        fused_activation_function="RELU",
    )  # fmt: skip
    return y


def _head(b: ModelBuilder, net: Tcn, x: int) -> int:
    """The mean over time, and a fully connected layer."""
    pooled = b.tensor("pooled", (1, 1, 1, net.channels), "int8", **QUANT)
    b.op(
        "AVERAGE_POOL_2D", [x], [pooled], padding="VALID", stride_h=net.last, stride_w=1, filter_height=net.last, filter_width=1,
        fused_activation_function="NONE",
    )  # fmt: skip
    flat = b.tensor("flat", (1, net.channels), "int8", **QUANT)
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
