"""Transposed convolution as sub-pixel convolutions: blocks of three pixels x four channels by SMLAL, once per phase.

A phase is one pair of remainders of the stride, one for rows and one for columns.  The results of a phase are an ordinary
convolution of stride 1 with part of the weights (aot/topi/layer/fused.py); its results are `stride` rows and columns apart in
the output.  This is fast because no product with an inserted zero is computed.

The three pixels of a tile have the same coordinates in all phases.  The data that any phase reads are packed once, and each phase
uses its part of the packed words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.op.nn.conv import Conv2DTransposeAttrs
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm, logical_and, minimum
from aot.tir.stmt import ForKind
from aot.topi.arm_dsp.smlal import (
    CHANNELS,
    CONFIG,
    LANE_LIMIT,
    MAX_UNROLL,
    PIXELS,
    TRIPLE,
    ChainStream,
    Segments,
    add_lanes,
    chain_end,
    chain_start,
    chain_sums,
    columns,
    scaled_sum,
    short_form,
    smlal_chain,
)
from aot.topi.layer.fused import TRANSPOSE, FusedLayer, LayerIo, SubPixelLayer, SubPixels, lowered, open_io, sub_pixels
from aot.topi.layer.im2col import TapLoop, TapSource, border_groups
from aot.topi.layer.requant import channel_params
from aot.topi.strategy import Group, Lowered, register_planned


@dataclass(frozen=True, slots=True)
class Runs:
    """`count` runs of `length` taps: the first is at tap `start` of the packed words, each next one `stride` taps further."""

    start: int
    count: int
    length: int
    stride: int


def _tap_loop(taps: int) -> TapLoop:
    """Return straight code for up to MAX_UNROLL taps, else the fastest loop, or one with less code if it is about as fast."""
    if taps <= MAX_UNROLL:
        return TapLoop(0, taps)
    loops = (TapLoop(unroll, taps % unroll) for unroll in range(MAX_UNROLL // 2, MAX_UNROLL + 1))
    return min(loops, key=lambda loop: (loop.instructions(taps) + (loop.unroll + loop.rest) // 4, loop.unroll))


MOST_UNROLLED = 3
"""Most segments that are written one after another; more than this run in a loop."""


class PhaseStream(ChainStream):
    """As ChainStream, with each run padded with zero weights to whole segments; the taps there belong to other runs and do not
    count.

    `each`: segments per run.  `joined`: the lanes can hold the sum of all runs, so that they are separated only once.
    """

    def __init__(self, layer: FusedLayer, target: Target, runs: Runs) -> None:
        self.runs = runs
        super().__init__(layer, target, CONFIG)

    def cut(self, layer: FusedLayer) -> tuple[Array, Segments, int]:
        runs, weights = self.runs, columns(layer)
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
        segments = Segments(1, len(padded)) if self.joined else Segments(runs.count * each, length)
        return padded, segments, segments.count

    def each_block(self, b: IRBuilder) -> Iterator[tuple[Expr, int]]:
        return super().each_block(b) if self.blocks else iter([(imm(0), self.remainder)])

    @property
    def end(self) -> int:
        """One past the last tap that is read."""
        return self.runs.start + (self.runs.count - 1) * self.runs.stride + self.each * self.length

    def sums(self, b: IRBuilder, params: Buffer, words: Buffer, n: Expr) -> list[tuple[Expr, ...]]:
        """Return the sums of block `n`: four channels x three pixels."""
        runs, base, loop = self.runs, self.base(n), _tap_loop(self.length)
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
            add_lanes(b, total, chain_sums(b, loop, region(params, base + start), at, taps=self.length))
        return [tuple(total[j, p] for p in range(PIXELS)) for j in range(CHANNELS)]

    def instructions(self) -> int:
        """Return the instructions of one block of channels (from counts under QEMU)."""
        iterations = self.runs.count * self.each
        products = iterations * (_tap_loop(self.length).instructions(self.length) + 10 * (iterations > 1))
        count = self.segments.count
        lanes = count * (30 if count == 1 else 45 if count <= MOST_UNROLLED else 62)
        return products + lanes + 12 * (6 + self.requant.signed) + 41 - 22 * self.requant.params[-1].uniform

    def code(self) -> int:
        """Return the bytes of code (from sizes under GCC 12 at -O2)."""
        loop, count = _tap_loop(self.length), self.segments.count
        products = 24 * (loop.unroll + loop.rest)
        block = 350 + products + 50 * self.requant.signed + (120 if count > 1 else 0)
        block += (count - 1) * products if count <= MOST_UNROLLED and not self.joined else 0
        return 60 + block * (1 + bool(self.remainder))


def plan(group: Group, target: Target) -> SubPixelLayer | None:
    """Accept int8, one image, sums within int32, at most a table as epilogue, and the short requantisation in every phase."""
    whole = sub_pixels(group) if target.has("thumb2") else None
    if whole is None or whole.rows.out * whole.columns.out < PIXELS:
        return None
    return whole if all(short_form(phase.layer, target) is not None for phase in whole.phases) else None


def _runs(whole: SubPixelLayer, phase: SubPixels) -> Runs:
    """Return where the taps of a phase are among the taps of the whole window."""
    depth, width = whole.layer.data_type.shape[3], len(whole.columns.taps)
    start = ((whole.rows.before - phase.rows.before) * width + whole.columns.before - phase.columns.before) * depth
    lines, length = len(phase.rows.taps), len(phase.columns.taps)
    if length == width:
        lines, length = 1, lines * length
    return Runs(start, lines, length * depth, width * depth)


def lower(group: Group, target: Target, name: str, plan: SubPixelLayer) -> Lowered:
    """Emit the loops: tiles of three pixels, phases, blocks of channels."""
    whole, window = plan.layer, plan.window
    b = IRBuilder(name)
    io = open_io(b, group, whole, data_shape=(whole.data_type.size,), out_shape=(whole.out_type.size,))
    streams = [PhaseStream(phase.layer, target, _runs(plan, phase)) for phase in plan.phases]
    params = [io.constant("params", stream.data(), "int32") for stream in streams]
    taps = max(window.weight[0].size, *(stream.end for stream in streams))
    source = TapSource(b, window, io, taps, TRIPLE, split=True)
    rows = prod(window.out_type.shape[:-1])
    tiles = -(-rows // PIXELS)
    with b.for_("t", tiles) as t:
        first = t * PIXELS if rows % PIXELS == 0 else b.let("pixel", minimum(t * PIXELS, rows - PIXELS))
        source.pack(first)
        pixels = [_Pixel.of(b, whole, window, first + p) for p in range(PIXELS)]
        for phase, stream, numbers in zip(plan.phases, streams, params, strict=True):
            _emit_phase(io, plan, phase, stream, (numbers, source.words), pixels)
    epilogue = 2 * whole.out_type.size * bool(whole.epilogue)
    partial = sum(2 * PIXELS * whole.channels for p in plan.phases if not _covers(plan, p))
    blocks = sum((s.blocks + bool(s.remainder)) * s.instructions() for s in streams) + partial
    each = blocks + 8 * taps + 80 + 20 * window.weight.shape[1]
    instructions = tiles * each + 7 * taps * border_groups(window, PIXELS) + epilogue
    code = 690 + sum(stream.code() for stream in streams)
    return lowered(io, whole, "arm_dsp.conv2d_transpose_chain", instructions, code, phases=len(plan.phases))


@dataclass(frozen=True, slots=True)
class _Pixel:
    """One pixel of a tile: its row and column, and the output element of its first phase's first channel."""

    line: Expr
    column: Expr
    at: Expr

    @classmethod
    def of(cls, b: IRBuilder, whole: FusedLayer, window: FusedLayer, number: Expr) -> _Pixel:
        index = b.let("index", number)
        line = b.let("line", index // window.out_type.shape[2])
        column = b.let("column", index - line * window.out_type.shape[2])
        attrs: Conv2DTransposeAttrs = whole.attrs
        at = (line * (attrs.strides[0] * attrs.size[1]) + column * attrs.strides[1]) * whole.channels
        return cls(line, column, b.let("at", at))


def _covers(plan: SubPixelLayer, phase: SubPixels) -> bool:
    """Whether every pixel of every tile has a result in the phase."""
    return (phase.rows.out, phase.columns.out) == (plan.rows.out, plan.columns.out)


def _emit_phase(
    io: LayerIo,
    plan: SubPixelLayer,
    phase: SubPixels,
    stream: PhaseStream,
    buffers: tuple[Buffer, Buffer],
    pixels: Sequence[_Pixel],
) -> None:
    """Emit the channels of one phase of a tile; `buffers`: constants and packed words."""
    b, (params, words), ((y, x), shape) = io.ctx.builder, buffers, (phase.remainder, plan.layer.out_type.shape)
    rows, columns, whole = phase.rows.out, phase.columns.out, _covers(plan, phase)
    inside = [] if whole else [b.let("inside", logical_and(p.line < rows, p.column < columns)) for p in pixels]
    with nullcontext() if whole else b.if_(pixels[0].line < rows):  # not below the last row
        for n, count in stream.each_block(b):
            lanes = stream.sums(b, params, words, n)
            for j in range(count):
                bias = b.let("bias", stream.number(params, stream.base(n), 0, j))
                numbers = channel_params(stream.requant, stream.requant_loads(params, stream.base(n), j))
                sums = [scaled_sum(lanes[j][p], stream.scale, bias) for p in range(PIXELS)]
                values = [stream.requant.emit_scaled(b, s, numbers) for s in sums]
                places = [(pixel.at + (n * CHANNELS + j) + (y * shape[2] + x) * shape[3],) for pixel in pixels]
                if whole:
                    io.store_all(places, values)
                    continue
                for place, value, here in zip(places, io.finished(places, values), inside, strict=True):
                    value = b.let("value", value)
                    with b.if_(here):
                        b.store(io.out, place, value)


register_planned("arm_dsp.conv2d_transpose_chain", TRANSPOSE, plan, lower, plevel=20)
