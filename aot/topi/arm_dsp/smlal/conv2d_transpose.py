"""Transposed convolutions as sub-pixel convolutions: the results of one remainder of the stride are an ordinary convolution.

See aot/topi/layer/phases.py.  Each pair of remainders (one for rows, one for columns) is a convolution of stride 1 with its part
of the weights, whose results lie s rows and s columns apart.  No product with an inserted zero is computed.

The three pixels of a tile have the same Y, X in all phases.  What any phase reads of the data is packed once, and each phase
takes its rows of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.op.nn.conv2d_transpose import Conv2DTransposeAttrs
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm, logical_and, minimum
from aot.tir.function import FuncAttrs
from aot.tir.stmt import ForKind
from aot.topi.arm_dsp.smlal.conv2d import (
    CHANNELS,
    CONFIG,
    LANE_LIMIT,
    MAX_UNROLL,
    PIXELS,
    ChainStream,
    Segments,
    TapLoop,
    TapSource,
    add_lanes,
    border_groups,
    chain_end,
    chain_start,
    chain_sums,
    columns,
    has_short_form,
    scaled_sum,
    smlal_chain,
)
from aot.topi.layer.fused import FusedLayer, LayerIo, describe, open_io, table_of
from aot.topi.layer.phases import ANCHOR, PhaseAxis, sub_pixels
from aot.topi.strategy import Group, Lowered, register_planned

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
        return super().each_block(b) if self.blocks else iter([(imm(0), self.tail)])

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
            add_lanes(b, total, chain_sums(b, loop, region(params, base + start), at, taps=self.length))
        return [tuple(total[j, p] for p in range(PIXELS)) for j in range(CHANNELS)]

    def instructions(self) -> int:
        """Of a block of channels (from counts under QEMU)."""
        turns = self.runs.count * self.each
        products = turns * (_tap_loop(self.length).instructions(self.length) + 10 * (turns > 1))
        count = self.segments.count
        lanes = count * (30 if count == 1 else 45 if count <= MOST_UNROLLED else 62)
        return products + lanes + 12 * (6 + self.requant.signed) + 41 - 22 * self.requant.params[-1].uniform

    def code(self) -> int:
        """Bytes (from sizes under GCC 12 at -O2)."""
        loop, count = _tap_loop(self.length), self.segments.count
        products = 24 * (loop.unroll + loop.rest)
        block = 350 + products + 50 * self.requant.signed + (120 if count > 1 else 0)
        block += (count - 1) * products if count <= MOST_UNROLLED and not self.joined else 0
        return 60 + block * (1 + bool(self.tail))


@dataclass(frozen=True, slots=True)
class Phase:
    """One pair of remainders (rows, columns), the convolution that makes its results, and its taps among the packed ones."""

    remainder: tuple[int, int]
    layer: FusedLayer
    runs: Runs


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole layer as kernels see one, its phases, and the convolution that reads what any of them reads."""

    layer: FusedLayer
    phases: tuple[Phase, ...]
    window: FusedLayer


def plan(group: Group, target: Target) -> Plan | None:
    """int8, one image, sums that fit int32, at most a table after it, every phase with the short requantisation."""
    found = sub_pixels(group) if target.has("thumb2") else None
    if found is None or (found.layer.epilogue and table_of(found.layer) is None) or found.rows.out * found.columns.out < PIXELS:
        return None
    if not all(has_short_form(phase.layer, target) for phase in found.phases):
        return None
    depth = found.layer.data_type.shape[3]
    phases = (Phase(p.remainder, p.layer, _runs(p.rows, p.columns, found.rows, found.columns, depth)) for p in found.phases)
    return Plan(found.layer, tuple(phases), found.window)


def _runs(rows: PhaseAxis, columns: PhaseAxis, all_rows: PhaseAxis, all_columns: PhaseAxis, depth: int) -> Runs:
    """The taps of a phase among those of the whole window."""
    width = len(all_columns.taps)
    start = ((all_rows.before - rows.before) * width + all_columns.before - columns.before) * depth
    lines, length = len(rows.taps), len(columns.taps)
    if length == width:
        lines, length = 1, lines * length
    return Runs(start, lines, length * depth, width * depth)


def lower(group: Group, target: Target, name: str, found: Plan) -> Lowered:
    """Triples of pixels, phases, blocks of channels."""
    whole, window = found.layer, found.window
    b = IRBuilder(name)
    io = open_io(b, group, whole, data_shape=(whole.data_type.size,), out_shape=(whole.out_type.size,))
    streams = [PhaseStream(phase.layer, target, phase.runs) for phase in found.phases]
    params = [io.constant("params", stream.data(), "int32") for stream in streams]
    taps = max(window.weight[0].size, *(stream.end for stream in streams))
    source = TapSource(b, window, io, taps, apart=True)
    rows = prod(window.out_type.shape[:-1])
    tiles = -(-rows // PIXELS)
    with b.for_("t", tiles) as t:
        first = t * PIXELS if rows % PIXELS == 0 else b.let("pixel", minimum(t * PIXELS, rows - PIXELS))
        source.pack(first)
        pixels = [_Pixel.of(b, found, first + p) for p in range(PIXELS)]
        for phase, stream, numbers in zip(found.phases, streams, params, strict=True):
            _emit(b, io, _Results(found, phase, pixels), stream, numbers, source.words)
    kernel = describe("arm_dsp.conv2d_transpose_chain", phases=len(found.phases))
    func = b.finish(FuncAttrs(kernel=kernel, span=whole.span, macs=whole.macs))
    tail = 2 * whole.out_type.size * bool(whole.epilogue)
    partial = sum(2 * PIXELS * whole.channels for p in found.phases if p.layer.out_type.shape != window.out_type.shape)
    blocks = sum((s.blocks + bool(s.tail)) * s.instructions() for s in streams) + partial
    each = blocks + 8 * taps + 80 + 20 * window.weight.shape[1]
    instructions = tiles * each + 7 * taps * border_groups(window, PIXELS) + tail
    return Lowered(func, io.constants, instructions, code=690 + sum(s.code() for s in streams))


@dataclass(frozen=True, slots=True)
class _Pixel:
    """Of a tile: row and column, and the element of the result at which those of the first phase begin."""

    line: Expr
    column: Expr
    at: Expr

    @classmethod
    def of(cls, b: IRBuilder, found: Plan, number: Expr) -> _Pixel:
        index = b.let("index", number)
        line = b.let("line", index // found.window.out_type.shape[2])
        column = b.let("column", index - line * found.window.out_type.shape[2])
        attrs: Conv2DTransposeAttrs = found.layer.attrs
        at = (line * (attrs.strides[0] * attrs.size[1]) + column * attrs.strides[1]) * found.layer.channels
        return cls(line, column, b.let("at", at))


@dataclass(frozen=True, slots=True)
class _Results:
    """Where a phase's results for a tile go."""

    plan: Plan
    phase: Phase
    pixels: Sequence[_Pixel]

    def at(self, pixel: _Pixel, channel: Expr) -> Expr:
        (y, x), whole = self.phase.remainder, self.plan.layer.out_type.shape
        return pixel.at + channel + (y * whole[2] + x) * whole[3]

    @property
    def whole(self) -> bool:
        """Whether all tiles are inside the result."""
        return self.phase.layer.out_type.shape == self.plan.window.out_type.shape

    def inside(self, pixel: _Pixel) -> Expr:
        _, rows, columns, _ = self.phase.layer.out_type.shape
        return logical_and(pixel.line < rows, pixel.column < columns)


def _emit(b: IRBuilder, io: LayerIo, results: _Results, stream: PhaseStream, params: Buffer, words: Buffer) -> None:
    """The blocks of channels of one phase of a tile."""
    if results.whole:
        _channels(b, io, results, stream, params, words, [])
        return
    inside = [b.let("inside", results.inside(p)) for p in results.pixels]
    with b.if_(results.pixels[0].line < results.phase.layer.out_type.shape[1]):  # not beyond the last row
        _channels(b, io, results, stream, params, words, inside)


def _channels(
    b: IRBuilder, io: LayerIo, results: _Results, stream: PhaseStream, params: Buffer, words: Buffer, inside: Sequence[Expr]
) -> None:
    """Those of one phase of a tile; `inside`: which of its pixels have results, empty if all have."""
    for n, count in stream.each_block(b):
        lanes = stream.sums(b, params, words, n)
        for j in range(count):
            bias = b.let("bias", stream.number(params, n, 0, j))
            fields = stream.fields(params, n, j)
            sums = [scaled_sum(lanes[j][p], stream.scale, bias) for p in range(PIXELS)]
            values = [stream.requant.emit_scaled(b, s, fields) for s in sums]
            places = [(results.at(pixel, n * CHANNELS + j),) for pixel in results.pixels]
            if not inside:
                io.store_all(places, values)
                continue
            for place, value, here in zip(places, io.finished(places, values), inside, strict=True):
                value = b.let("value", value)
                with b.if_(here):
                    b.store(io.out, place, value)


register_planned("arm_dsp.conv2d_transpose_chain", ANCHOR, plan, lower, plevel=20)
