"""The packed constants of a layer as one stream: blocks of output channels in the order of use.

Bias, requantisation parameters and weights of a block are adjacent, so that one pointer reaches them all.
"""

from __future__ import annotations

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.tir.buffer import Buffer
from aot.tir.expr import Expr, cast, imm
from aot.topi.layer.requant import Requant


@dataclass(frozen=True, slots=True)
class ChannelBlock:
    """`count` channels starting with channel `first`; `offset`: bytes from the start of the stream."""

    first: Expr
    count: int
    offset: Expr


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How weights are stored in a stream: as int8, or as int4 (two per byte, the first in the low half), plus `zero_point`."""

    dtype: str = "int8"
    zero_point: int = 0

    def row_bytes(self, count: int) -> int:
        """Bytes of `count` adjacent weights."""
        return (count + 1) // 2 if self.dtype == "int4" else count

    def pack(self, weights: Array) -> Array:
        """Pack rows [K][n] into bytes."""
        stored = (weights + self.zero_point).astype(np.int8)
        if self.dtype == "int4":
            even = np.pad(stored, ((0, 0), (0, stored.shape[1] % 2))).view(np.uint8)
            stored = ((even[:, 0::2] & 15) | (even[:, 1::2] << 4)).astype(np.uint8).view(np.int8)
        return np.ascontiguousarray(stored).reshape(-1)


def _width(values: Array) -> int:
    """Bytes of the narrowest signed integer type that holds all values."""
    low, high = int(values.min()), int(values.max())
    return next((n for n in (1, 2) if -(1 << (8 * n - 1)) <= low and high < 1 << (8 * n - 1)), 4)


class ChannelStream:
    """Packs `weights` [K, O] and per-channel numbers in blocks of `block` channels; the last block is smaller if they do not
    divide.

    Layout of a block of n channels: bias [n] (low words, then high words if a bias exceeds 32 bits) and every non-uniform
    requantisation parameter [n], the widest types first; then weights [K][n] in the `stored` format; zeros up to a multiple of
    four bytes.  Every array has the narrowest of int32, int16 and int8 that holds all its numbers: loads sign-extend at no extra
    cost. Uniform parameters become immediates.
    """

    def __init__(self, weights: Array, bias: Array, requant: Requant, *, block: int, stored: WeightFormat | None = None) -> None:
        self.depth, self.channels = int(weights.shape[0]), int(weights.shape[1])
        self.block = min(block, self.channels)
        self.requant = requant
        self._stored = stored or WeightFormat()
        self._wide = bool((np.abs(bias) >= 1 << 31).any())
        biases = [(bias & 0xFFFFFFFF).astype(np.uint32).view(np.int32), bias >> 32] if self._wide else [bias]
        self._arrays = biases + [f.values for f in requant.params if not f.uniform]
        words = len(biases) if self._wide else 0  # halves of 64 bits stay words
        self._widths = [4 if i < words else _width(a) for i, a in enumerate(self._arrays)]
        self._order = sorted(range(len(self._arrays)), key=lambda i: -self._widths[i])
        self._weights = weights

    @property
    def full_blocks(self) -> int:
        return self.channels // self.block

    @property
    def remainder(self) -> int:
        """Channels of the smaller last block; 0 if there is none."""
        return self.channels % self.block

    def header_bytes(self, count: int) -> int:
        return count * sum(self._widths)

    def _column(self, params: Buffer, block: ChannelBlock, i: int, j: int) -> Expr:
        """Number j of array i of a block, as int32."""
        width = self._widths[i]
        before = block.count * sum(self._widths[k] for k in self._order[: self._order.index(i)])
        return cast("int32", params.load(f"int{8 * width}", block.offset // width + (before // width + j)))

    def block_bytes(self, count: int) -> int:
        return (self.header_bytes(count) + self.depth * self._stored.row_bytes(count) + 3) // 4 * 4

    def data(self) -> Array:
        """The stream as int8."""
        parts: list[Array] = []
        for first in range(0, self.channels, self.block):
            last = min(first + self.block, self.channels)
            for i in self._order:
                parts.append(self._arrays[i][first:last].astype(f"<i{self._widths[i]}").view(np.int8))
            weights = self._stored.pack(self._weights[:, first:last])
            parts.append(np.pad(weights, (0, -(self.header_bytes(last - first) + weights.size) % 4)))
        return np.concatenate(parts)

    def bias(self, params: Buffer, block: ChannelBlock, j: int) -> Expr:
        low = self._column(params, block, 0, j)
        if not self._wide:
            return low
        high = self._column(params, block, 1, j)
        return cast("int64", high) * (1 << 32) + cast("int64", cast("uint32", low))

    def requant_params(self, params: Buffer, block: ChannelBlock, j: int) -> tuple[Expr, ...]:
        """The requantisation parameters of channel j of a block, as loads or immediates."""
        out: list[Expr] = []
        row = 2 if self._wide else 1
        for f in self.requant.params:
            if f.uniform:
                out.append(imm(int(f.values[0])))
            else:
                out.append(self._column(params, block, row, j))
                row += 1
        return tuple(out)

    def weight(self, params: Buffer, block: ChannelBlock, k: Expr, j: int) -> Expr:
        """Weight [k][j] of a block, as int32."""
        row = self._stored.row_bytes(block.count)
        packed = self._stored.dtype == "int4"
        byte = params.load("int8", block.offset + (k * row + (self.header_bytes(block.count) + (j // 2 if packed else j))))
        value = cast("int32", byte)
        if packed:
            value = value >> 4 if j % 2 else cast("int32", cast("int8", value * 16)) >> 4
        return value - self._stored.zero_point
