"""The packed constant stream of a layer: by blocks of output channels, in order of use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aot.ir.op import Array
from aot.tir.buffer import Buffer
from aot.tir.expr import Expr, imm
from aot.topi.requant import Requant


@dataclass(frozen=True, slots=True)
class ChannelBlock:
    """`count` channels from `first` on, `index` blocks of equal size before it; offsets in bytes from the start of the stream."""

    first: Expr
    count: int
    offset: Expr


class ChannelStream:
    """Packs `weights` [K, O] int8 and per-channel int32 numbers in blocks of `block` channels, with a smaller last block if need be.

    Layout of a block of n channels: bias int32[n], each non-uniform requantisation field int32[n], weights int8[K][n], zeros up to
    a multiple of four bytes.  Uniform fields become immediates.
    """

    def __init__(self, weights: Array, bias: Array, requant: Requant, *, block: int) -> None:
        self.depth, self.channels = int(weights.shape[0]), int(weights.shape[1])
        self.block = min(block, self.channels)
        self.requant = requant
        self._arrays = [bias] + [f.values for f in requant.fields if not f.uniform]
        self._weights = weights

    @property
    def full_blocks(self) -> int:
        return self.channels // self.block

    @property
    def tail(self) -> int:
        """Channels of the smaller last block; 0 where there is none."""
        return self.channels % self.block

    def header_bytes(self, count: int) -> int:
        return 4 * count * len(self._arrays)

    def block_bytes(self, count: int) -> int:
        return self.header_bytes(count) + (self.depth * count + 3) // 4 * 4

    def data(self) -> Array:
        """The stream as int8."""
        parts: list[Array] = []
        for first in range(0, self.channels, self.block):
            last = min(first + self.block, self.channels)
            for values in self._arrays:
                parts.append(values[first:last].astype("<i4").view(np.int8))
            weights = self._weights[:, first:last].astype(np.int8).reshape(-1)
            parts.append(np.pad(weights, (0, -weights.size % 4)))
        return np.concatenate(parts)

    def bias(self, params: Buffer, block: ChannelBlock, j: int) -> Expr:
        return params.load("int32", block.offset // 4 + j)

    def fields(self, params: Buffer, block: ChannelBlock, j: int) -> tuple[Expr, ...]:
        """The requantisation numbers of channel j of a block, loaded or immediate."""
        out: list[Expr] = []
        row = 1
        for f in self.requant.fields:
            if f.uniform:
                out.append(imm(int(f.values[0])))
            else:
                out.append(params.load("int32", block.offset // 4 + (row * block.count + j)))
                row += 1
        return tuple(out)

    def weight(self, params: Buffer, block: ChannelBlock, k: Expr, j: int) -> Expr:
        """Weight [k][j] of a block, int8."""
        return params.load("int8", block.offset + (k * block.count + (self.header_bytes(block.count) + j)))
