"""Fully connected layers, and pointwise convolutions of few pixels, for Armv6-M: one row by six channels, see intrin_dense.py.

Three channels share two words, so weights take 2.7 bytes each; at most three that are left are a block of their own.  Scratch:
a byte an input, the row with 128 added.  Sums of a segment of the row start where their range has its middle, so that they stay
within the lanes.
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
from aot.topi.arm_v6m.requant import instructions, plan
from aot.topi.layer.fused import FusedLayer, LayerIo, describe, epilogue_each, match_layer, open_io, supports_epilogue
from aot.topi.layer.im2col import is_rows
from aot.topi.layer.lanes import BITS, LIMIT, WORDS, Numbers, Requant, three_sums
from aot.topi.strategy import Group, Lowered, register_planned

CHANNELS = SIX.pixels
MAX_ROWS = 5
"""Pointwise convolutions of more pixels belong to conv2d."""
OFFSET = 128
HIGHEST = 255
"""Of the data with OFFSET added."""


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
        """That the channels of each block share: half of them where three are enough."""
        rest = self.layer.channels - CHANNELS * (self.blocks - 1)
        return [WORDS] * (self.blocks - 1) + [WORDS if rest > CHANNELS // 2 else WORDS // 2]

    @property
    def block_words(self) -> int:
        """Of six channels in the stream: in front of each segment's words those that its sums start with."""
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
            return _Plan(layer, plan(layer.requant, layer.acc_low, layer.acc_high, target), segments, length)
    return None


def _stream(found: _Plan) -> tuple[Array, Array]:
    """(words of the stream, what is left of each channel's bias for the end)."""
    layer = found.layer
    matrix = layer.weight.reshape(layer.channels, -1)
    matrix = np.pad(matrix, ((0, found.blocks * CHANNELS - layer.channels), (0, 0)))
    bias = np.pad(layer.bias - found.requant.base, (0, len(matrix) - layer.channels)) - OFFSET * matrix.sum(axis=1)
    parts = []
    for s in range(found.segments):
        run = matrix[:, s * found.length : (s + 1) * found.length]
        middle = -(HIGHEST * run.sum(axis=1)) // 2
        bias = bias - middle
        parts += [_words(middle.reshape(-1, 1)), _words(run)]
    blocks = np.concatenate(parts, axis=1)
    words = np.concatenate([block[:, :count].reshape(-1) for block, count in zip(blocks, found.words, strict=True)])
    return words.astype(np.uint32).view(np.int32), bias[: layer.channels]


def _words(values: Array) -> Array:
    """[O, K], O a multiple of six, as [blocks, K, WORDS] modulo 2^32."""
    firsts = np.array(SIX.firsts)
    six = values.reshape(-1, CHANNELS, values.shape[1]).transpose(0, 2, 1)
    packed: Array = (six[:, :, firsts] + (six[:, :, firsts + 1] << BITS)) & 0xFFFFFFFF
    return packed


def _lower(group: Group, _target: Target, name: str, found: _Plan) -> Lowered:
    layer, depth = found.layer, found.depth
    rows = prod(layer.out_type.shape[:-1])
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(rows * depth,), out_shape=(rows * layer.channels,))
    words, bias = _stream(found)
    numbers = Numbers(b, io, bias, found.requant)
    weights = io.constant("weights", words, "int32")
    row = b.scratch("row", (depth,), "uint8")
    step = max(u for u in (4, 3, 2, 1) if depth % u == 0)
    with b.for_("m", rows) as m:
        number = m if layer.out_type.dtype == "int8" else rows - 1 - m
        with b.for_("k", depth, step=step) as k:
            for u in range(step):
                b.store(row, k + u, cast("int32", io.data.load("int8", number * depth + k + u)) + OFFSET)
        whole, rest = divmod(layer.channels, CHANNELS)
        with b.for_("n", whole) as n:
            _block(b, found, io, (numbers, weights, row), n=n, m=number, count=CHANNELS)
        if rest:
            _block(b, found, io, (numbers, weights, row), n=imm(whole), m=number, count=rest)
    func = b.finish(FuncAttrs(kernel=describe("arm_v6m.dense", segments=found.segments), span=layer.span, macs=layer.macs))
    loop = tap_loop(found.length)
    loops = (3 * (found.length // loop.unroll) if loop.unroll else 0) * found.segments + 14 * found.segments
    each = loops + CHANNELS * (instructions(found.requant) + 6) + 20
    taps = depth * sum(map(tap_cost, found.words))
    cost = rows * (6 * depth + taps + found.blocks * each + layer.channels * epilogue_each(layer) + 12)
    code = 150 + (500 + 200 * len(layer.epilogue) + 22 * (loop.unroll + loop.rest) * found.segments) * (bool(whole) + bool(rest))
    return Lowered(func, io.constants, instructions=cost, code=code)


def _block(
    b: IRBuilder, found: _Plan, io: LayerIo, place: tuple[Numbers, Buffer, Buffer], *, n: Expr, m: Expr, count: int
) -> None:
    """Block `n` for row `m`; `count` of its channels are stored."""
    numbers, weights, row = place
    channels = found.layer.channels
    words = WORDS if count == CHANNELS else found.words[-1]
    sums = _sums(b, found, (weights, row), at=n * found.block_words, words=words)
    for j in range(count):
        channel = n * CHANNELS + j
        acc = b.let("acc", sums[j] + numbers.start(channel))
        value = found.requant.emit(b, acc, numbers.requant_params(channel))
        io.store((m * channels + channel,), value)


def _sums(b: IRBuilder, found: _Plan, place: tuple[Buffer, Buffer], *, at: Expr, words: int) -> list[Expr]:
    """The sums of a block's channels, three in two of its `words`, which begin at `at`."""
    weights, row = place
    totals: list[Expr] = []
    for s, length in enumerate(found.lengths):
        acc = b.local("acc", (words,), "uint32")
        first = at + s * words * (found.length + 1)
        for i in range(words):
            b.store(acc, i, cast("uint32", weights[first + i]))
        block = dot_words(tap_loop(length), words)
        b.block(block, region(weights, first + words), region(row, s * found.length), acc, imm(length))
        sums = [total for i in range(0, words, 2) for total in three_sums(b, acc, i)]
        totals = [b.let("total", a + v) for a, v in zip(totals, sums, strict=True)] if totals else sums
    return totals


for _anchor in ("nn.dense", "nn.conv2d"):
    register_planned("arm_v6m.dense", _anchor, _plan, _lower, plevel=22)
