"""Layers of 16-bit data and 8-bit weights whose sums provably fit 32 bits: weights in pairs for SMLAD.

The reference sums in 64 bits.  A channel's sum is below 32768 * sum |w| + |bias|; where that is below 2^31 for every channel, 32
bits are exact.  Weights take two bytes each in flash.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aot.ir.op import Array
from aot.relay.expr import tensor_type
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm
from aot.tir.stmt import Region
from aot.topi.arm_dsp.x16.intrin import CHANNELS
from aot.topi.arm_dsp.x16.requant import AnyRequant, LongMultiply, with_short_products
from aot.topi.layer.fused import FusedLayer, match_layer, tail_accepts
from aot.topi.layer.requant import plan_requantize
from aot.topi.strategy import Group

KINDS = frozenset({("int16", "int8")})


def match_16x8(group: Group, target: Target) -> tuple[FusedLayer, AnyRequant] | None:
    """A layer whose sums fit 32 bits, with a tail that reads tensors of the result's shape, and its requantisation."""
    layer = match_layer(group, KINDS) if target.has("dsp") else None
    if layer is None or not tail_accepts(layer) or layer.weight.ndim == 3 or layer.attrs.weight_zp:
        return None
    matrix = np.abs(layer.weight.reshape(layer.channels, -1)).sum(axis=1)
    if (matrix * 32768 + np.abs(layer.bias) >= 1 << 31).any():
        return None
    return layer, with_short_products(plan_requantize(layer.requant, layer.acc_low, layer.acc_high, target))


class PairStream:
    """Blocks of four channels: weights [pairs][4][2] as int16, then bias [4] and the fields that vary [4] as int32."""

    def __init__(self, layer: FusedLayer, requant: AnyRequant) -> None:
        matrix = layer.weight.reshape(layer.channels, -1)
        more = -layer.channels % CHANNELS
        self.channels, self.requant = layer.channels, requant
        self._acc_dtype = tensor_type(layer.anchor).dtype
        self.pairs = (matrix.shape[1] + 1) // 2
        self._weights = np.pad(matrix, ((0, more), (0, 2 * self.pairs - matrix.shape[1])))
        self._arrays = [np.pad(a, (0, more)) for a in [layer.bias, *(f.values for f in requant.fields if not f.uniform)]]

    @property
    def block_words(self) -> int:
        return CHANNELS * (self.pairs + len(self._arrays))

    @property
    def numbers(self) -> int:
        """That are loaded for each channel."""
        return len(self._arrays)

    @property
    def long_products(self) -> int:
        """Instructions of a result beyond those of the short requantisation."""
        return 8 if isinstance(self.requant, LongMultiply) else 0

    def data(self) -> Array:
        """The stream as int32."""
        parts: list[Array] = []
        for first in range(0, len(self._weights), CHANNELS):
            block = self._weights[first : first + CHANNELS].reshape(CHANNELS, self.pairs, 2).transpose(1, 0, 2)
            parts.append(np.ascontiguousarray(block.astype(np.int16)).reshape(-1).view(np.int32))
            parts += [a[first : first + CHANNELS].astype(np.int32) for a in self._arrays]
        return np.concatenate(parts)

    def blocks(self, b: IRBuilder) -> Iterator[tuple[Expr, int]]:
        """Number of each block, and how many of its channels there are."""
        whole, rest = divmod(self.channels, CHANNELS)
        if whole:
            with b.for_("n", whole) as n:
                yield n, CHANNELS
        if rest:
            yield imm(whole), rest

    def weights(self, params: Buffer, n: Expr) -> Region:
        return Region(params, n * (2 * self.block_words), "int16")

    def number(self, params: Buffer, n: Expr, row: int, j: int) -> Expr:
        """Number j of row `row` (0: bias) of a block."""
        return params[n * self.block_words + (CHANNELS * (self.pairs + row) + j)]

    def result(self, b: IRBuilder, acc: Expr, fields: tuple[Expr, ...]) -> Expr:
        """The requantised sum, which the model has in `acc_dtype`."""
        return self.requant.emit(b, acc if isinstance(self.requant, LongMultiply) else cast(self._acc_dtype, acc), fields)

    def fields(self, b: IRBuilder, params: Buffer, n: Expr, j: int) -> tuple[Expr, ...]:
        """The requantisation numbers of channel j of a block, loaded or immediate."""
        rows = iter(range(1, len(self._arrays)))
        return tuple(
            imm(int(f.values[0])) if f.uniform else b.let("field", self.number(params, n, next(rows), j))
            for f in self.requant.fields
        )
