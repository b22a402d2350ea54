"""Weights and numbers of a layer in the order in which blocks of channels use them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.topi.arm_mve.requant import RequantForm

VECTOR = 16
"""Bytes of a vector."""


@dataclass(frozen=True, slots=True)
class Window:
    """The bytes that an output reads: `rows` runs of `length`, which is cut into vectors, the last one perhaps shorter."""

    rows: int
    length: int

    @property
    def whole(self) -> int:
        """Full vectors of a row."""
        return self.length // VECTOR

    @property
    def rest(self) -> int:
        """Bytes after them."""
        return self.length % VECTOR

    @property
    def size(self) -> int:
        return self.rows * self.length

    @property
    def pieces(self) -> list[int]:
        """Bytes of each vector of a row."""
        return [VECTOR] * self.whole + [self.rest] * bool(self.rest)


def block_bytes(window: Window, form: RequantForm, channels: int) -> int:
    """Of a block of that many channels in the stream, a multiple of four."""
    return channels * (window.size + form.field_bytes)


Numbers = Callable[[int], Array]
"""first channel of a block -> the bytes of its numbers"""


def pack(weights: Array, window: Window, numbers: Numbers, *, channels: int) -> Array:
    """The stream as int8: by blocks of `channels`, of each vector of the window the weights of one channel after the other.

    `weights` are [O, K], K in the order of the window.  The `numbers` of the block follow.
    """
    count = weights.shape[0]
    padded = np.pad(weights, ((0, -count % channels), (0, 0))).astype(np.int8)
    parts: list[Array] = []
    for first in range(0, count, channels):
        block = padded[first : first + channels].reshape(channels, window.rows, window.length)
        for row in range(window.rows):
            at = 0
            for size in window.pieces:
                parts.append(np.ascontiguousarray(block[:, row, at : at + size]).reshape(-1))
                at += size
        parts.append(numbers(first))
    return np.concatenate(parts)
