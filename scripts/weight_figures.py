"""Float networks for scripts/doc_figures.py whose weights are stored in several types: their cost on a board."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

TYPES = ("float32", "float16", "int8", "int4")


class _Writer:
    """A network of float32 data; weights of another type go through DEQUANTIZE."""

    def __init__(self, dtype: str) -> None:
        from aot.testing.builder import ModelBuilder

        self.b, self.dtype, self.rng = ModelBuilder("weights"), dtype, np.random.default_rng(1)
        self.macs, self.count = 0, 0

    def weights(self, shape: Sequence[int], axis: int) -> int:
        self.count += 1
        name = f"w{self.count}"
        if self.dtype.startswith("float"):
            data = self.rng.normal(0, 0.1, shape).astype(self.dtype)
            stored = self.b.tensor(name, shape, self.dtype, data=data)
            if self.dtype == "float32":
                return stored
        else:
            low, high = (-127, 127) if self.dtype == "int8" else (-7, 7)
            data = self.rng.integers(low, high, shape, np.int8, endpoint=True)
            scale = [float(np.float32(s)) for s in self.rng.uniform(0.01, 0.02, shape[axis])]
            stored = self.b.tensor(name, shape, self.dtype, scale=scale, axis=axis, data=data)
        wide = self.b.tensor(f"{name}_float32", shape, "float32")
        self.b.op("DEQUANTIZE", [stored], [wide])
        return wide

    def layer(self, op: str, x: int, weight: tuple[int, ...], result: tuple[int, ...], axis: int = 0, **options: Any) -> int:
        w = self.weights(weight, axis)
        bias = self.b.tensor(f"b{self.count}", (result[-1],), "float32", data=self.rng.normal(size=result[-1]).astype(np.float32))
        y = self.b.tensor(f"y{self.count}", result, "float32")
        self.b.op(op, [x, w, bias], [y], **options)
        self.macs += int(np.prod(result)) * int(np.prod(weight)) // weight[axis]
        return y


def windows(dtype: str) -> tuple[bytes, int]:
    """Convolutions and a depthwise one, and the multiply-accumulates."""
    net = _Writer(dtype)
    same: dict[str, Any] = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}
    first = x = net.b.tensor("x", (1, 24, 24, 16), "float32")
    x = net.layer("CONV_2D", x, (64, 3, 3, 16), (1, 24, 24, 64), **same)
    x = net.layer("DEPTHWISE_CONV_2D", x, (1, 3, 3, 64), (1, 24, 24, 64), 3, depth_multiplier=1, **same)
    x = net.layer("CONV_2D", x, (64, 1, 1, 64), (1, 24, 24, 64), **same)
    return net.b.build([first], [x]), net.macs


def matrices(dtype: str) -> tuple[bytes, int]:
    """Fully connected layers of one row."""
    net = _Writer(dtype)
    first = x = net.b.tensor("x", (1, 640), "float32")
    for depth, channels in ((640, 128), (128, 128), (128, 10)):
        x = net.layer("FULLY_CONNECTED", x, (channels, depth), (1, channels))
    return net.b.build([first], [x]), net.macs


NETS = {
    "24x24 pixels: 3x3 from 16 to 64 channels, depthwise 3x3, 1x1 from 64 to 64": windows,
    "fully connected 640-128-128-10, one row": matrices,
}


def stored_weights(board: str) -> list[tuple[str, ...]]:
    """Rows: a network; instructions per multiply-accumulate and bytes of constants for each type."""
    import aot

    rows = []
    for text, network in NETS.items():
        cells = []
        for dtype in TYPES:
            data, macs = network(dtype)
            verification = aot.verify(data, name="weights", board=board, random=1)
            if not verification.exact or verification.instructions is None:
                raise SystemExit(f"{text} with {dtype} is not exact")
            cells.append(f"{verification.instructions / macs:.2f}, {verification.constant_bytes:,}")
        rows.append((text, *cells))
    return rows
