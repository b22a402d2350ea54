"""Fully connected layers of one row of data: all channels in one block of assembly or two.

No scratch.  Weights take four bytes each in flash, [channels / n][inputs][n] with the bias of each n channels behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_fpu.conv2d import weights_of
from aot.topi.arm_fpu.finish import Clamp
from aot.topi.arm_fpu.layer import FloatIo, FloatLayer, match_float_layer
from aot.topi.arm_fpu.row.intrin import RowDotForm, bounded, row_dot
from aot.topi.layer.fused import describe
from aot.topi.strategy import Group, Lowered, register_planned

OPERATOR = "nn.dense_float"
MOST_CHANNELS = 16
LEAST_CHANNELS = 5
"""Of a block where there are more."""
TURN = 80
"""Products of a turn of the loop over taps, at most; up to twice as many are done without a loop."""
HARDLY_MORE = 1.01
"""Times the least."""
AROUND = 12
"""Instructions and half the cycles around a block of assembly."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """`count` blocks of a form, each with `trips` turns."""

    form: RowDotForm
    count: int
    trips: int

    @property
    def price(self) -> tuple[int, int]:
        return self.form.price(blocks=self.count, trips=self.trips)


def plan(group: Group, target: Target) -> FloatLayer | None:
    """One row of data, no tail, and a clamp that finite results need little or nothing for."""
    layer = match_float_layer(group, OPERATOR) if target.has("vfp") else None
    if layer is None or layer.tail or layer.columns.out > 1:
        return None
    clamp = Clamp(layer.lo, layer.hi)
    plain = (layer.lo, layer.hi) == (None, None)
    return layer if plain or clamp.keeps or (clamp.rectifies and clamp.hi != 6.0) else None


@dataclass(frozen=True, slots=True)
class RowLayer:
    """What a schedule depends on; `small`: the weights are `bounded`."""

    depth: int
    channels: int
    clamp: Clamp
    fused: bool
    small: bool
    biased: bool

    def schedule(self) -> tuple[Blocks, ...]:
        """Blocks of all channels."""
        most = min(self.channels, MOST_CHANNELS)
        return self._best([self._split(each) for each in range(min(LEAST_CHANNELS, most), most + 1)])

    def _split(self, each: int) -> tuple[Blocks, ...]:
        count, rest = divmod(self.channels, each)
        blocks = self._blocks(each, count, TURN)
        return (*blocks, *self._blocks(rest, 1, 8 * rest)) if rest else blocks

    def _blocks(self, channels: int, count: int, most: int) -> tuple[Blocks, ...]:
        """Blocks of one size, with at most so many products a turn."""
        found, once = [], self.depth * channels <= 2 * most
        screens = (False, True) if self.small and once and count > 1 and self.clamp.lo is not None else (False,)
        for together in range(1, 1 + min(16, self.depth if once else max(4, most // channels))):
            unroll = together * max(1, most // (together * channels))
            trips, first = (0, self.depth) if once else divmod(self.depth, unroll)
            for screened in screens:
                several = count > 1
                form = RowDotForm(
                    channels, self.fused, first, unroll, not once, together, several, screened, self.biased, self.clamp
                )
                found.append((Blocks(form, count, trips),))
        return self._best(found)

    def _best(self, found: Sequence[tuple[Blocks, ...]]) -> tuple[Blocks, ...]:
        """The least code of those that take hardly more instructions, or cycles, than the best one."""
        cost = {blocks: sum(b.price[not self.fused] + AROUND for b in blocks) for blocks in found}
        most = HARDLY_MORE * min(cost.values())
        good = [blocks for blocks in found if cost[blocks] <= most]
        return min(good, key=lambda blocks: (sum(b.form.code for b in blocks), cost[blocks]))


@cache
def schedule(layer: RowLayer) -> tuple[Blocks, ...]:
    """Its blocks."""
    return layer.schedule()


def pack(matrix: Array, bias: Array, blocks: tuple[Blocks, ...]) -> Array:
    """The weights of each block [taps][n], its bias behind them, if any."""
    sizes = [b.form.channels for b in blocks for _ in range(b.count)]
    ends = np.cumsum(sizes)
    rows = np.concatenate([matrix, bias[None]]) if blocks[0].form.biased else matrix
    return np.concatenate([rows[:, end - n : end].reshape(-1) for end, n in zip(ends, sizes, strict=True)])


def lower(group: Group, _target: Target, name: str, layer: FloatLayer, *, form: str) -> Lowered:
    b, fused = IRBuilder(name), form == "vmla"
    weights, clamp = weights_of(layer), Clamp(layer.lo, layer.hi)
    small, biased = bounded(weights, layer.bias), bool(layer.bias.any())
    blocks = schedule(RowLayer(layer.depth, layer.channels, clamp, fused, small, biased))
    io = FloatIo(b, group, layer, run=0)
    params = io.stream(pack(weights, layer.bias, blocks))
    done = 0
    for part in blocks:
        numbers = [imm(part.trips)] * part.form.loop + [imm(part.count)] * part.form.several
        b.block(
            row_dot(part.form), region(io.data), region(params, done * (layer.depth + biased)), region(io.out, done), *numbers
        )
        done += part.count * part.form.channels
    kernel = describe(f"arm_fpu.dense_row_{form}", channels=blocks[0].form.channels)
    func = b.finish(FuncAttrs(kernel=kernel, span=layer.span, macs=layer.macs))
    instructions = sum(p.price[0] + AROUND for p in blocks)
    cycles = sum(p.price[1] + 2 * AROUND for p in blocks)
    return Lowered(func, io.constants, instructions, 16 + sum(p.form.code for p in blocks), cycles)


for _form, _plevel in (("vmla", 32), ("vmul", 31)):
    register_planned(f"arm_fpu.dense_row_{_form}", OPERATOR, plan, partial(lower, form=_form), plevel=_plevel)
