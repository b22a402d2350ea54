"""QUANTIZE and DEQUANTIZE as models."""

from __future__ import annotations

import numpy as np

from aot.testing import ModelBuilder, Quant
from tests.op._differential import EVERY_CODE

CODES = {"int8": EVERY_CODE, "uint8": np.arange(256, dtype=np.uint8).reshape(1, 256)}


def model(source: str, result: str, x: Quant | None, y: Quant | None, *, op: str = "QUANTIZE") -> bytes:
    def params(q: Quant | None) -> dict[str, float]:
        return {} if q is None else {"scale": q.scale, "zero_point": q.zero_point}

    b = ModelBuilder()
    a = b.tensor("x", (1, 256), source, **params(x))  # type: ignore[arg-type]
    c = b.tensor("y", (1, 256), result, **params(y))  # type: ignore[arg-type]
    b.op(op, [a], [c], version=2)
    return b.build([a], [c])
