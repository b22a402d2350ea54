"""Functions of one element as PyTorch's converter writes them, in operators, before a QUANTIZE or behind a DEQUANTIZE."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aot.testing import ModelBuilder

SIZE = 1024
SHAPE = (1, SIZE)
Step = Callable[[ModelBuilder, int], int]


def plain(b: ModelBuilder, opcode: str, *inputs: int, dtype: str = "float32") -> int:
    found = b.tensor(f"{opcode}{len(inputs)}", SHAPE, dtype)
    b.op(opcode, list(inputs), [found])
    return found


def scalar(b: ModelBuilder, value: float) -> int:
    return b.tensor(f"c{value}", (), "float32", data=np.asarray(value, np.float32))


def mish(b: ModelBuilder, x: int) -> int:
    soft = plain(b, "LOG", plain(b, "ADD", plain(b, "EXP", x), scalar(b, 1)))
    large = plain(b, "GREATER", x, scalar(b, 20), dtype="bool")
    return plain(b, "MUL", x, plain(b, "TANH", plain(b, "SELECT_V2", large, x, soft)))


def silu(b: ModelBuilder, x: int) -> int:
    return plain(b, "MUL", x, plain(b, "LOGISTIC", x))


def falling(b: ModelBuilder, x: int) -> int:
    return plain(b, "DIV", scalar(b, 1), plain(b, "ADD", plain(b, "EXP", x), scalar(b, 1)))


def one(opcode: str) -> Step:
    return lambda b, x: plain(b, opcode, x)


CHAINS: dict[str, Step] = {
    "mish": mish,
    "silu": silu,
    "falling": falling,
    **{name.lower(): one(name) for name in ("LOGISTIC", "TANH")},
}
