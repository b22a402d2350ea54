"""One operator that moves data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aot.testing import ModelBuilder

DTYPES = ["int8", "uint8", "int32", "float32"]


def moving(
    name: str, dtype: str, shape: Sequence[int], result: Sequence[int], *, constant: Any = None, value: Any = None, **options: Any
) -> bytes:
    """One operator on `dtype` with a constant second operand, and a third one of the data's type."""
    quant: dict[str, Any] = {"scale": 0.5, "zero_point": 7} if dtype in ("int8", "uint8") else {}
    b = ModelBuilder()
    x, y = b.tensor("x", shape, dtype, **quant), b.tensor("y", result, dtype, **quant)
    inputs = [x]
    if constant is not None:
        array = np.asarray(constant, np.int32)
        inputs.append(b.tensor("c", array.shape, "int32", data=array))
    if value is not None:
        inputs.append(b.tensor("v", (1,), dtype, data=np.array([value], dtype), **quant))
    b.op(name, inputs, [y], version=2 if name in ("PADV2", "PAD", "TRANSPOSE") else 1, **options)
    return b.build([x], [y])
