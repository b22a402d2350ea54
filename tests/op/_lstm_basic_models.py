"""LSTM models with the basic kernel, from a few numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.testing import ModelBuilder


@dataclass(frozen=True, slots=True)
class Basic:
    """`weight_scale` of integers; what a step of the sum is worth follows from it."""

    dtype: str
    batch: int = 1
    depth: int = 5
    cells: int = 4
    weight_scale: float = 0.01
    cell_power: int = -11
    spread: float = 1.0
    seed: int = 0


def basic_model(basic: Basic) -> bytes:
    """The layer, of which all results are outputs."""
    b, rng = ModelBuilder(), np.random.default_rng(basic.seed)
    batch, cells, joined = basic.batch, basic.cells, basic.depth + basic.cells
    integers = basic.dtype == "uint8"
    one: dict[str, Any] = {"scale": 1 / 128, "zero_point": 128} if integers else {}
    state: dict[str, Any] = {"scale": 2.0**basic.cell_power, "zero_point": 0} if integers else {}
    gate: dict[str, Any] = {"scale": 2.0**-12, "zero_point": 0} if integers else {}
    wide = "int16" if integers else "float32"
    x, h = (
        b.tensor("x", (batch, basic.depth), basic.dtype, **one),
        b.tensor("h", (batch, cells), basic.dtype, is_variable=True, **one),
    )
    c = b.tensor("c", (batch, cells), wide, is_variable=True, **state)
    if integers:
        matrix, vector = (
            rng.integers(0, 256, (4 * cells, joined), np.uint8),
            rng.integers(-4000, 4000, 4 * cells).astype(np.int32),
        )
        scale, zp = basic.weight_scale, int(rng.integers(0, 256))
        w = b.tensor("w", matrix.shape, "uint8", data=matrix, scale=scale, zero_point=zp)
        bias = b.tensor("b", vector.shape, "int32", data=vector, scale=float(np.float32(scale) / 128), zero_point=0)
    else:
        w, bias = (
            b.tensor(name, shape, "float32", data=rng.normal(0, basic.spread, shape).astype(np.float32))
            for name, shape in (("w", (4 * cells, joined)), ("b", (4 * cells,)))
        )
    results = [
        b.tensor("y", (batch, cells), basic.dtype, **one),
        b.tensor("cell", (batch, cells), wide, **state),
        b.tensor("joined", (batch, joined), basic.dtype, **one),
        b.tensor("gates", (batch, 4 * cells), wide, **gate),
    ]
    b.op("LSTM", [x, h, w, bias, c], results, version=2, kernel_type=1, fused_activation_function="TANH")
    return b.build([x], results)
