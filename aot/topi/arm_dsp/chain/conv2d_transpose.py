"""Transposed convolutions as sub-pixel convolutions: the results of one remainder of the stride are an ordinary convolution.

See aot/topi/layer/phases.py.  Each pair of remainders (one for rows, one for columns) is a convolution of stride 1 with its part
of the weights, whose results lie s rows and s columns apart.  No product with an inserted zero is computed.

The three pixels of a tile have the same Y, X in all phases.  What any phase reads of the data is packed once, and each phase
takes its rows of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from aot.op.nn.conv2d_transpose import Conv2DTransposeAttrs
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm, logical_and, minimum
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.chain.conv2d import (
    CHANNELS,
    PIXELS,
    TapSource,
    border_groups,
    has_short_form,
    scaled_sum,
)
from aot.topi.arm_dsp.chain.phase import PhaseStream, Runs
from aot.topi.layer.fused import FusedLayer, describe, table_of
from aot.topi.layer.io import LayerIo, open_io
from aot.topi.layer.phases import ANCHOR, PhaseAxis, sub_pixels
from aot.topi.strategy import Group, Lowered, register_planned


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
    if found is None or (found.layer.tail and table_of(found.layer) is None) or found.rows.out * found.columns.out < PIXELS:
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
    tail = 2 * whole.out_type.size * bool(whole.tail)
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
    for n, count in _blocks(b, stream):
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


def _blocks(b: IRBuilder, stream: PhaseStream) -> Iterator[tuple[Expr, int]]:
    """Number and channels of each block."""
    if stream.blocks:
        with b.for_("n", stream.blocks) as n:
            yield n, CHANNELS
    if stream.tail:
        yield imm(stream.blocks), stream.tail


register_planned("arm_dsp.conv2d_transpose_chain", ANCHOR, plan, lower, plevel=20)
