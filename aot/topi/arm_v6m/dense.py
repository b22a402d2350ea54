"""Fully connected layers and small pointwise convolutions for Armv6-M: one row by six channels, three channels in two 32-bit
sums.

There is only one row, so channels share words here instead of pixels (see intrin_dense.py): weights take 2.7 bytes each.  Three
or fewer remaining channels form a block of half the width.  Scratch memory: one byte per input, the row with 128 added to make it
unsigned.  The sums of a segment of the row start at the middle of their range, negated, so that they fit the lanes.
"""

from __future__ import annotations

from math import prod

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_v6m.intrin_dense import dot_words, tap_cost, tap_loop
from aot.topi.arm_v6m.lanes import SIX
from aot.topi.arm_v6m.requant import choose_requant, instructions
from aot.topi.layer.fused import FusedLayer, LayerIo, describe, epilogue_each, match_layer, open_io, supports_epilogue
from aot.topi.layer.im2col import is_rows
from aot.topi.layer.planes import BITS, LIMIT, WORDS, Numbers, Requant, three_sums
from aot.topi.strategy import Group, Lowered, register_planned

CHANNELS = SIX.pixels
MAX_ROWS = 5
"""Pointwise convolutions with more pixels belong to conv2d."""
OFFSET = 128
HIGHEST = 255
"""Largest value of the data after OFFSET is added."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """`segments` runs of at most `length` inputs."""

    layer: FusedLayer
    requant: Requant
    segments: int
    length: int

    @property
    def depth(self) -> int:
        return int(self.layer.weight[0].size)

    @property
    def lengths(self) -> list[int]:
        return [min(self.length, self.depth - s * self.length) for s in range(self.segments)]

    @property
    def blocks(self) -> int:
        return -(-self.layer.channels // CHANNELS)

    @property
    def words(self) -> list[int]:
        """Words that the channels of each block share; half as many if the last block has three channels or fewer."""
        last = self.layer.channels - CHANNELS * (self.blocks - 1)
        return [WORDS] * (self.blocks - 1) + [WORDS if last > CHANNELS // 2 else WORDS // 2]

    @property
    def block_words(self) -> int:
        """Words of a full block in the stream; each segment's words follow the initial values of its sums."""
        return WORDS * (self.depth + self.segments)


def _plan(group: Group, target: Target) -> _Plan | None:
    layer = match_layer(group)
    if layer is None or not target.has("v6m") or not supports_epilogue(layer) or not is_rows(layer):
        return None
    if layer.weight.ndim > 2 and prod(layer.out_type.shape[:-1]) > MAX_ROWS:
        return None
    sums = np.abs(layer.weight.reshape(layer.channels, -1))
    depth = sums.shape[1]
    for segments in range(1, depth + 1):
        length = -(-depth // segments)
        parts = np.pad(sums, ((0, 0), (0, segments * length - depth))).reshape(-1, segments, length).sum(axis=2)
        if HIGHEST * int(parts.max()) < 2 * LIMIT - 2 and (segments - 1) * length < depth:
            return _Plan(layer, choose_requant(layer.requant, layer.acc_low, layer.acc_high, target), segments, length)
    return None


def _stream(plan: _Plan) -> tuple[Array, Array]:
    """(words of the stream, remaining bias of each channel, added at the end)."""
    layer = plan.layer
    matrix = layer.weight.reshape(layer.channels, -1)
    matrix = np.pad(matrix, ((0, plan.blocks * CHANNELS - layer.channels), (0, 0)))
    bias = np.pad(layer.bias - plan.requant.base, (0, len(matrix) - layer.channels)) - OFFSET * matrix.sum(axis=1)
    parts = []
    for s in range(plan.segments):
        run = matrix[:, s * plan.length : (s + 1) * plan.length]
        middle = -(HIGHEST * run.sum(axis=1)) // 2
        bias = bias - middle
        parts += [_words(middle.reshape(-1, 1)), _words(run)]
    blocks = np.concatenate(parts, axis=1)
    words = np.concatenate([block[:, :count].reshape(-1) for block, count in zip(blocks, plan.words, strict=True)])
    return words.astype(np.uint32).view(np.int32), bias[: layer.channels]


def _words(values: Array) -> Array:
    """Pack [O, K] (O a multiple of six) into [blocks, K, WORDS] modulo 2^32."""
    firsts = np.array(SIX.firsts)
    six = values.reshape(-1, CHANNELS, values.shape[1]).transpose(0, 2, 1)
    packed: Array = (six[:, :, firsts] + (six[:, :, firsts + 1] << BITS)) & 0xFFFFFFFF
    return packed


def _lower(group: Group, _target: Target, name: str, plan: _Plan) -> Lowered:
    layer, depth = plan.layer, plan.depth
    rows = prod(layer.out_type.shape[:-1])
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(rows * depth,), out_shape=(rows * layer.channels,))
    words, bias = _stream(plan)
    numbers = Numbers(b, io, bias, plan.requant)
    weights = io.constant("weights", words, "int32")
    row = b.scratch("row", (depth,), "uint8")
    step = max(u for u in (4, 3, 2, 1) if depth % u == 0)
    with b.for_("m", rows) as m:
        number = m if layer.out_type.dtype == "int8" else rows - 1 - m
        with b.for_("k", depth, step=step) as k:
            for u in range(step):
                b.store(row, k + u, cast("int32", io.data.load("int8", number * depth + k + u)) + OFFSET)
        blocks, remainder = divmod(layer.channels, CHANNELS)
        with b.for_("n", blocks) as n:
            _block(b, plan, io, (numbers, weights, row), n=n, m=number, count=CHANNELS)
        if remainder:
            _block(b, plan, io, (numbers, weights, row), n=imm(blocks), m=number, count=remainder)
    func = b.finish(FuncAttrs(kernel=describe("arm_v6m.dense", segments=plan.segments), span=layer.span, macs=layer.macs))
    loop = tap_loop(plan.length)
    loops = (3 * (plan.length // loop.unroll) if loop.unroll else 0) * plan.segments + 14 * plan.segments
    each = loops + CHANNELS * (instructions(plan.requant) + 6) + 20
    taps = depth * sum(map(tap_cost, plan.words))
    cost = rows * (6 * depth + taps + plan.blocks * each + layer.channels * epilogue_each(layer) + 12)
    code = 150 + (500 + 200 * len(layer.epilogue) + 22 * (loop.unroll + loop.rest) * plan.segments) * (
        bool(blocks) + bool(remainder)
    )
    return Lowered(func, io.constants, instructions=cost, code=code)


def _block(
    b: IRBuilder, plan: _Plan, io: LayerIo, place: tuple[Numbers, Buffer, Buffer], *, n: Expr, m: Expr, count: int
) -> None:
    """Compute block `n` for row `m` and store `count` of its channels."""
    numbers, weights, row = place
    channels = plan.layer.channels
    words = WORDS if count == CHANNELS else plan.words[-1]
    sums = _sums(b, plan, (weights, row), at=n * plan.block_words, words=words)
    for j in range(count):
        channel = n * CHANNELS + j
        acc = b.let("acc", sums[j] + numbers.start(channel))
        value = plan.requant.emit(b, acc, numbers.requant_params(channel))
        io.store((m * channels + channel,), value)


def _sums(b: IRBuilder, plan: _Plan, place: tuple[Buffer, Buffer], *, at: Expr, words: int) -> list[Expr]:
    """The sums of a block's channels, three per two words; the block's words begin at `at`."""
    weights, row = place
    totals: list[Expr] = []
    for s, length in enumerate(plan.lengths):
        acc = b.local("acc", (words,), "uint32")
        first = at + s * words * (plan.length + 1)
        for i in range(words):
            b.store(acc, i, cast("uint32", weights[first + i]))
        block = dot_words(tap_loop(length), words)
        b.block(block, region(weights, first + words), region(row, s * plan.length), acc, imm(length))
        sums = [total for i in range(0, words, 2) for total in three_sums(b, acc, i)]
        totals = [b.let("total", a + v) for a, v in zip(totals, sums, strict=True)] if totals else sums
    return totals


for _anchor in ("nn.dense", "nn.conv2d"):
    register_planned("arm_v6m.dense", _anchor, _plan, _lower, plevel=22)
