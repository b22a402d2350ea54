"""A phase of a transposed convolution: weights and sums for taps that lie in several runs of the packed words of all phases."""

from __future__ import annotations

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr
from aot.tir.stmt import ForKind
from aot.topi.arm_dsp.chain.conv2d import (
    CHANNELS,
    LANE_LIMIT,
    PIXELS,
    ChainConfig,
    ChainStream,
    Segments,
    chain_end,
    chain_start,
    chain_sums,
)
from aot.topi.arm_dsp.chain.intrin import MAX_UNROLL, TapLoop, smlal_chain
from aot.topi.layer.fused import FusedLayer

CONFIG = ChainConfig(common=False)
MOST_UNROLLED = 3
"""Segments that stand one after the other; more are in a loop."""


@dataclass(frozen=True, slots=True)
class Runs:
    """`count` runs of `length` taps, the first at tap `start` of the packed words, `stride` taps from one to the next."""

    start: int
    count: int
    length: int
    stride: int


def _tap_loop(taps: int) -> TapLoop:
    """No loop up to MAX_UNROLL taps, else the one of the fewest instructions, a few more for less code."""
    if taps <= MAX_UNROLL:
        return TapLoop(0, taps)
    loops = (TapLoop(unroll, taps % unroll) for unroll in range(MAX_UNROLL // 2, MAX_UNROLL + 1))
    return min(loops, key=lambda loop: (loop.instructions(taps) + (loop.unroll + loop.rest) // 4, loop.unroll))


class PhaseStream(ChainStream):
    """As ChainStream, a run filled up with zero weights to whole segments, beyond which others' data are read and do not count.

    `each`: segments of a run; `joined`: the lanes hold all runs, so that they are taken apart once.
    """

    def __init__(self, layer: FusedLayer, target: Target, runs: Runs) -> None:
        self.runs = runs
        super().__init__(layer, target, CONFIG)

    def cut(self, weights: Array) -> tuple[Array, Segments]:
        runs = self.runs
        pairs = np.abs(weights.astype(np.int64)).reshape(runs.count, runs.length, -1, 2).sum(axis=3)
        for each in range(1, runs.length + 1):
            length = -(-runs.length // each)
            filled = ((0, 0), (0, each * length - runs.length), (0, 0))
            sums = np.pad(pairs, filled).reshape(runs.count * each, length, -1).sum(axis=1)
            if 128 * int(sums.max()) <= LANE_LIMIT:
                break
        self.each, self.length = each, length
        self.joined = each == 1 and 128 * int(sums.sum(axis=0).max()) <= LANE_LIMIT
        padded = np.pad(weights.reshape(runs.count, runs.length, -1), filled).reshape(-1, weights.shape[1])
        return padded, Segments(1, len(padded)) if self.joined else Segments(runs.count * each, length)

    @property
    def end(self) -> int:
        """The tap behind the last one that is read."""
        return self.runs.start + (self.runs.count - 1) * self.runs.stride + self.each * self.length

    def sums(self, b: IRBuilder, params: Buffer, words: Buffer, n: Expr) -> list[tuple[Expr, ...]]:
        """The sums of products of block `n` of four channels, each for three pixels."""
        runs, base, loop = self.runs, n * self.block_words, _tap_loop(self.length)
        if runs.count == self.each == 1:
            return chain_sums(b, loop, region(params, base), region(words, 2 * runs.start), taps=self.length)
        if self.joined:
            acc = chain_start(b)
            with b.for_("r", runs.count) as r:
                at = region(words, 2 * (r * runs.stride + runs.start))
                b.block(smlal_chain(loop), region(params, base + r * (2 * self.length)), at, acc, self.length)
            return chain_end(b, acc)
        total = b.local("sum", (CHANNELS, PIXELS), "int32", init=0)
        kind: ForKind = "unroll" if self.segments.count <= MOST_UNROLLED else "serial"
        with b.for_("r", runs.count, kind=kind) as r, b.for_("segment", self.each, kind=kind) as s:
            start = (r * self.each + s) * (2 * self.length)
            at = region(words, 2 * (r * runs.stride + s * self.length + runs.start))
            for j, channel in enumerate(chain_sums(b, loop, region(params, base + start), at, taps=self.length)):
                for p, value in enumerate(channel):
                    b.store(total, (j, p), total[j, p] + value)
        return [tuple(total[j, p] for p in range(PIXELS)) for j in range(CHANNELS)]

    def instructions(self) -> int:
        """Of a block of channels (from counts under QEMU)."""
        turns = self.runs.count * self.each
        products = turns * (_tap_loop(self.length).instructions(self.length) + 10 * (turns > 1))
        count = self.segments.count
        lanes = count * (30 if count == 1 else 45 if count <= MOST_UNROLLED else 62)
        return products + lanes + 12 * (6 + self.requant.signed) + 41 - 22 * self.requant.fields[-1].uniform

    def code(self) -> int:
        """Bytes (from sizes under GCC 12 at -O2)."""
        loop, count = _tap_loop(self.length), self.segments.count
        products = 24 * (loop.unroll + loop.rest)
        block = 350 + products + 50 * self.requant.signed + (120 if count > 1 else 0)
        block += (count - 1) * products if count <= MOST_UNROLLED and not self.joined else 0
        return 60 + block * (1 + bool(self.tail))
