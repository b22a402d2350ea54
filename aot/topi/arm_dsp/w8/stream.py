"""The constants of a layer with int8 weights in quads (see w8/intrin.py): blocks of output channels in order of use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm
from aot.tir.stmt import Region
from aot.topi.arm_dsp.w8.intrin import PRESCALE, TAPS, bias_words, direct_bias_words, weight_words
from aot.topi.layer.fused import FusedLayer
from aot.topi.layer.requant import HighMultiply, plan_high_multiply
from aot.topi.layer.threshold import plan_uniform

MAX_UNROLL = 8
"""Quads in the body of a loop."""


@dataclass(frozen=True, slots=True)
class QuadPlan:
    """`quads` in all, `unroll` of them in the body of the loop; those beyond the layer's own have zero weights.

    `rest`: 1 where a second loop takes a remainder.
    """

    quads: int
    unroll: int
    rest: int = 0

    def instructions(self, each: int) -> int:
        """Of the loops, for `each` instructions a quad."""
        if self.rest:
            return each * self.quads + 3 * (2 + self.quads // self.unroll + self.quads % self.unroll) + 2
        return each * self.quads + (3 * (self.quads // self.unroll) if self.quads > self.unroll else 0)

    def code(self, each: int) -> int:
        """Bytes of the loops, for `each` bytes a quad."""
        return each * (self.unroll + self.rest) + 24 * self.rest


MAX_WEIGHT = 127

COMMON_UNROLL = 4
"""Of kernels that layers of different size share."""


def plan_quads(quads: int, *, cost: int, common: bool, most: int = MAX_UNROLL) -> QuadPlan:
    """Round `quads` up (by a sixteenth at most) where they have no good divisor; `cost`: instructions of a quad.

    `common`: one unrolling for any number.  `most`: quads in the body of the loop.
    """
    if common:
        return QuadPlan(quads, min(most, COMMON_UNROLL), rest=1)
    if quads <= most:
        return QuadPlan(quads, quads)
    plans = [_divided(n, most) for n in range(quads, quads + max(1, quads // 16) + 1)]
    return min(plans, key=lambda p: (p.instructions(cost), p.quads))


def _divided(quads: int, most: int) -> QuadPlan:
    return QuadPlan(quads, max(u for u in range(1, most + 1) if quads % u == 0))


def plan_w8(layer: FusedLayer, target: Target) -> HighMultiply | None:
    """Requantisation of accumulators times 256, which have to fit 32 bits: |acc| < 2^23 for all data.

    Weights lie in [-127, 127], so that 256 * b1 + b0 fits 16 bits; -128 (and what a weight's zero point makes) is not taken.
    """
    if int(np.abs(layer.weight).max()) > MAX_WEIGHT:
        return None
    return plan_high_multiply(layer.requant, layer.acc_low, layer.acc_high, target=target, prescale=PRESCALE)


def best_requant(layer: FusedLayer, target: Target, *, common: bool) -> HighMultiply:
    """For a layer that plan_w8 takes: with one shift for all channels where that is exact, unless code is shared."""
    requant = plan_w8(layer, target)
    assert requant is not None
    if common or requant.fields[-1].uniform:
        return requant
    return plan_uniform(layer.requant, layer.acc_low, layer.acc_high, target=target, prescale=PRESCALE) or requant


def run_taps(length: int) -> list[int]:
    """The tap at each place of the quads that hold a run of `length` bytes; -1: none.

    The last quad of an odd length holds the last four bytes, so that nothing beyond the run is read.
    """
    whole = length // TAPS * TAPS
    taps = list(range(whole))
    if length == whole:
        return taps
    last = range(length - TAPS, length) if length >= TAPS else range(TAPS)
    return taps + [t if whole <= t < length else -1 for t in last]


def arrange(weights: Array, runs: int, plan: QuadPlan) -> Array:
    """Weights [O, K], K being `runs` runs of equal length, as [O, 4 * plan.quads] in the order of their quads."""
    channels = weights.shape[0]
    by_run = weights.reshape(channels, runs, -1)
    taps = np.asarray(run_taps(by_run.shape[2]))
    placed = np.where(taps >= 0, by_run[:, :, np.maximum(taps, 0)], 0).reshape(channels, -1)
    return np.pad(placed, ((0, 0), (0, TAPS * plan.quads - placed.shape[1])))


@dataclass(frozen=True, slots=True)
class WordForm:
    """How weights lie in words: `taps` in each.

    `words` makes int16 numbers of values [..., K], two a word; `start` makes the start values of the accumulators from biases [O]
    and weights [O, K].
    """

    taps: int
    words: Callable[[Array], Array]
    start: Callable[[Array, Array], Array]


BYTES = WordForm(TAPS, weight_words, bias_words)
DIRECT_BYTES = WordForm(TAPS, weight_words, direct_bias_words)


class W8Stream:
    """Packs arranged weights [O, form.taps * quads] in blocks of `block` channels, with a smaller last block if need be.

    Layout of a block of n channels, in words: bias[n], non-uniform fields of the requantisation [n][fields], weights [quads][n].
    `whole`: the last block is filled up with channels of zero weights; only `tail` of its channels mean something.  `common`: no
    number becomes an immediate; where the fields are uniform they are the first words of the stream, after `lead`.  `apart`:
    the weights are an array of their own, so that layers of one matrix with other biases (for another zero point of the data)
    can share it.
    """

    def __init__(
        self,
        weights: Array,
        bias: Array,
        requant: HighMultiply,
        *,
        block: int,
        whole: bool = False,
        common: bool = False,
        lead: Sequence[int] = (),
        form: WordForm = BYTES,
        apart: bool = False,
    ) -> None:
        self.channels, taps = (int(n) for n in weights.shape)
        self.quads, self._form = taps // form.taps, form
        self.block = block if whole else min(block, self.channels)
        self.blocks, self.tail = divmod(self.channels, self.block)
        self.requant = requant
        uniform = all(f.uniform for f in requant.fields)
        self._head = [int(f.values[0]) for f in requant.fields] if common and uniform else []
        self._lead = list(lead)
        self.apart = apart
        self._loaded = [not f.uniform or (common and not uniform) for f in requant.fields]
        pairs = zip(requant.fields, self._loaded, strict=True)
        arrays = [form.start(bias, weights)] + [f.values for f, loaded in pairs if loaded]
        self._packed = self.channels + (-self.channels % self.block if whole else 0)
        more = self._packed - self.channels
        self._weights = np.pad(weights, ((0, more), (0, 0)))
        self._arrays = [np.pad(a, (0, more)) for a in arrays]

    @property
    def fields_loaded(self) -> int:
        return len(self._arrays) - 1

    @property
    def shift_is_immediate(self) -> bool:
        return not self._head and not self._loaded[-1]

    def block_words(self, count: int) -> int:
        return count * (len(self._arrays) + (0 if self.apart else self.quads))

    def data(self) -> Array:
        """The stream as int32."""
        parts: list[Array] = [np.asarray(self._lead + self._head, np.int32)]
        weights = iter(self._weights_of_blocks())
        for first in range(0, self._packed, self.block):
            last = min(first + self.block, self._packed)
            parts.append(self._arrays[0][first:last].astype(np.int32))
            if self.fields_loaded:
                parts.append(np.stack([v[first:last] for v in self._arrays[1:]], axis=1).reshape(-1).astype(np.int32))
            if not self.apart:
                parts.append(next(weights))
        return np.concatenate(parts)

    def weights_data(self) -> Array:
        """The weights alone as int32: [quads][n] of each block in turn."""
        return np.concatenate(self._weights_of_blocks())

    def _weights_of_blocks(self) -> list[Array]:
        words = self._form.words(self._weights).reshape(self._packed, self.quads, 2)
        blocks = [words[first : first + self.block] for first in range(0, self._packed, self.block)]
        return [np.ascontiguousarray(block.transpose(1, 0, 2)).reshape(-1).view(np.int32) for block in blocks]

    def start(self, n: Expr) -> Expr:
        """Index in words of block `n`, which may be the last one."""
        return n * self.block_words(self.block) + (len(self._lead) + len(self._head))

    def bias(self, params: Buffer, start: Expr, j: int) -> Expr:
        return params[start + j]

    def weights(self, params: Buffer, start: Expr, count: int) -> Region:
        """The weights of the block of `count` channels at `start`."""
        return Region(params, (start + count * len(self._arrays)) * 2, "int16")

    def weights_apart(self, weights: Buffer, n: Expr, skipped: Expr) -> Region:
        """The weights of block `n` in their own array, from word `skipped` of the block on."""
        return Region(weights, (n * (self.block * self.quads) + skipped) * 2, "int16")

    def fields(self, b: IRBuilder, params: Buffer, start: Expr, *, count: int) -> Callable[[int], tuple[Expr, ...]]:
        """The requantisation numbers of channel j of the block of `count` channels at `start`; emits their loads."""
        if self._head:
            shared = tuple(b.let("field", params[len(self._lead) + i]) for i in range(len(self._head)))
            return lambda _j: shared

        def own(j: int) -> tuple[Expr, ...]:
            loads = iter([params[start + (count + j * self.fields_loaded + i)] for i in range(self.fields_loaded)])
            pairs = zip(self.requant.fields, self._loaded, strict=True)
            return tuple(b.let("field", next(loads)) if loaded else imm(int(f.values[0])) for f, loaded in pairs)

        return own
