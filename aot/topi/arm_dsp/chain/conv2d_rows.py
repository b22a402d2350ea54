"""Convolution by the SMLAL chain, the rows of the window one after another: little scratch memory for large windows.

As conv2d_chain, but one row of the three windows is packed at a time and taken by all channels, whose sums lie in scratch memory
until the last row is done.  Scratch: 8 bytes a tap of one row (11 with padding), 12 bytes a channel.
Weights take two bytes each in flash.
"""

from __future__ import annotations

from math import prod

import numpy as np

from aot.ir.op import Array
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Load, imm, logical_and, minimum
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.chain.conv2d import (
    CHANNELS,
    LANE_LIMIT,
    accepts,
    PIXELS,
    ChainConfig,
    Pixels,
    Place,
    Segments,
    best_requant,
    chain_sums,
    pack_runs,
    store_block,
    window_pixels,
)
from aot.topi.arm_dsp.chain.intrin import LANE_OFFSET
from aot.topi.arm_dsp.tail import TailRun, run_instructions, tail_run
from aot.topi.arm_dsp.w8.window import RunBytes, WindowRuns, copy_instructions, data_align, inside, is_rows
from aot.topi.layer.fused import FusedLayer, describe, match_layer
from aot.topi.layer.io import open_io
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

SUMS = CHANNELS * PIXELS
MAX_SEGMENTS = 256
"""So many offsets of the lanes, and the sums with them, stay well within 32 bits."""

CONFIG = ChainConfig(common=False)


def accepts_rows(group: Group, target: Target) -> bool:
    """The layers of conv2d_chain whose window has several rows."""
    layer = match_layer(group, wide=True)
    if layer is None or layer.weight.ndim != 4 or layer.weight.shape[1] < 2 or is_rows(layer):
        return False
    return accepts(group, target) and layer.weight.shape[1] * segments_of_rows(_matrix(layer)).count <= MAX_SEGMENTS


def _matrix(layer: FusedLayer) -> Array:
    """Weights [KH, taps of a row, O], O filled up to whole blocks."""
    channels, height = layer.channels, layer.weight.shape[1]
    rows = layer.weight.reshape(channels, height, -1).transpose(1, 2, 0)
    return np.pad(rows, ((0, 0), (0, 0), (0, -channels % CHANNELS)))


def segments_of_rows(weights: Array) -> Segments:
    """The fewest segments of a row, alike for all rows [KH, K, O]: 128 * (sum |wa| + sum |wb|) < 2^20 in each."""
    rows, depth, channels = weights.shape
    pairs = np.abs(weights.astype(np.int64)).reshape(rows, depth, channels // 2, 2).sum(axis=3)
    for count in range(1, depth + 1):
        length = CONFIG.segment_length(-(-depth // count))
        padded = np.pad(pairs, ((0, 0), (0, max(0, count * length - depth)), (0, 0)))[:, : count * length]
        if 128 * int(padded.reshape(rows, count, length, -1).sum(axis=2).max()) <= LANE_LIMIT:
            return Segments(count, length)
    raise AssertionError("one tap always fits")


class RowStream:
    """Packs a layer: for each row of the window and block of 4 channels the words of conv2d_chain, then all biases and
    requantisations, block by block.
    """

    def __init__(self, layer: FusedLayer, target: Target) -> None:
        self._weights = _matrix(layer)
        self.segments = segments_of_rows(self._weights)
        self.height, self.depth, filled = self._weights.shape
        self.channels, self.blocks = layer.channels, filled // CHANNELS
        offsets = self.height * self.segments.count
        self.requant, added = best_requant(layer, target, Segments(offsets, self.segments.length), common=False)
        self.scale = 1 << int(self.requant.prescale[0])
        bias = layer.bias - np.where(np.arange(self.channels) % 2 == 0, LANE_OFFSET * offsets, 0)
        self._arrays = [self.scale * bias + added] + [f.values for f in self.requant.fields if not f.uniform]

    @property
    def block_words(self) -> int:
        """Words of one row for one block."""
        return 2 * self.segments.taps

    def data(self) -> Array:
        """The stream as int32."""
        weights = np.pad(self._weights, ((0, 0), (0, self.segments.taps - self.depth), (0, 0)))
        words = weights[:, :, 0::2] + (weights[:, :, 1::2].astype(np.int64) << 21)
        blocks = words.reshape(self.height, self.segments.taps, self.blocks, 2).transpose(0, 2, 1, 3)
        numbers = [np.pad(v, (0, -self.channels % CHANNELS)) for v in self._arrays]
        return np.concatenate([blocks.reshape(-1), np.stack(numbers, axis=1).reshape(-1)]).astype(np.int32)

    def number(self, params: Buffer, block: Expr, row: int, j: int) -> Load:
        """int32 `row` (0: bias) of channel j of a block."""
        rows, start = len(self._arrays), self.height * self.blocks * self.block_words
        return params[block * (CHANNELS * rows) + (start + rows * j + row)]

    def fields(self, params: Buffer, block: Expr, j: int) -> tuple[Expr, ...]:
        rows = iter(range(1, len(self._arrays)))
        return tuple(
            imm(int(f.values[0])) if f.uniform else self.number(params, block, next(rows), j) for f in self.requant.fields
        )


def lower_rows(group: Group, target: Target, name: str) -> Lowered:
    layer = match_layer(group, wide=True)
    assert layer is not None
    stream, rows = RowStream(layer, target), prod(layer.out_type.shape[:-1])
    b = IRBuilder(name)
    align = data_align(layer) if any(layer.attrs.padding) else 1
    shape = (prod(layer.data_type.shape),)
    io = open_io(b, group, layer, data_shape=shape, out_shape=(rows * layer.channels,), data_align=align)
    words = b.scratch("words", (stream.block_words,), "int32")
    sums = b.scratch("sums", (stream.blocks * SUMS,), "int32")
    params = io.constant("params", stream.data(), "int32")
    run = tail_run(b, io, layer, target=target, size=PIXELS * layer.channels)
    place = Place(io, params, words, run)
    window = _Rows(b, layer, io.data, words)
    if stream.depth < stream.segments.taps:
        with b.for_("z", stream.block_words, start=2 * stream.depth) as z:
            b.store(words, z, 0)
    with b.for_("t", -(-rows // PIXELS)) as tile:
        first = b.let("pixel", minimum(tile * PIXELS, rows - PIXELS)) if rows % PIXELS else tile * PIXELS
        _sum_rows(b, stream, place, sums, window=window, first=first)
        _store_blocks(b, stream, place, sums, first=first)
    kernel = describe("arm_dsp.conv2d_chain_rows", segments=stream.segments.count)
    func = b.finish(FuncAttrs(kernel=kernel, span=layer.span, macs=layer.macs))
    tail = int(-(-rows // PIXELS) * run_instructions(layer, run, size=PIXELS * layer.channels))
    return Lowered(func, io.constants, instructions=_estimate(layer, stream) + tail, code=_code(layer, stream, run))


class _Rows:
    """Packs one row of three windows; what lies partly outside of the image is copied to `lines` with the padding first."""

    def __init__(self, b: IRBuilder, layer: FusedLayer, data: Buffer, words: Buffer) -> None:
        self._b, self.layer, self._data, self._words, self._runs = b, layer, data, words, WindowRuns(layer)
        if any(layer.attrs.padding):
            self._lines: Buffer = b.scratch("lines", (PIXELS * self._runs.length,), "int8", align=4)
            self._bytes = RunBytes(b, layer, data, self._lines)

    def pack(self, pixels: Pixels, ky: Expr) -> None:
        """Row `ky` of the windows at `pixels`."""
        b, attrs, runs = self._b, self.layer.attrs, self._runs
        _, height, width, _ = self.layer.data_type.shape
        with b.for_("kx", runs.columns) as kx:
            tap = kx * runs.length
            places = []
            for image, y, x in pixels:
                row, column = b.let("row", y + ky * attrs.dilation[0]), b.let("column", x + kx * attrs.dilation[1])
                places.append((image, row, column))
            if not any(attrs.padding):
                self._straight(places, tap)
                return
            known: Expr | None = None
            for _, row, column in places:
                rows = logical_and(row >= 0, row < height)
                here = logical_and(rows, logical_and(column >= 0, column <= width - runs.width))
                known = here if known is None else logical_and(known, here)
            assert known is not None
            with b.if_(known):
                self._straight(places, tap)
            with b.else_():
                for p, place in enumerate(places):
                    self._bytes.copy(imm(p * runs.length), place)
                sources: list[tuple[Buffer, Expr]] = [(self._lines, imm(p * runs.length)) for p in range(PIXELS)]
                pack_runs(b, self._words, sources, runs.length, tap=tap)

    def _straight(self, places: Pixels, tap: Expr) -> None:
        b, (_, height, width, depth) = self._b, self.layer.data_type.shape
        starts: list[tuple[Buffer, Expr]] = [
            (self._data, b.let("s", ((image * height + row) * width + column) * depth)) for image, row, column in places
        ]
        pack_runs(b, self._words, starts, self._runs.length, tap=tap)


def _sum_rows(b: IRBuilder, stream: RowStream, place: Place, sums: Buffer, *, window: _Rows, first: Expr) -> None:
    """The products of all rows of three windows with all channels."""
    seg = stream.segments
    with b.for_("z", stream.blocks * SUMS, step=4) as z:
        for u in range(4):
            b.store(sums, z + u, 0)
    pixels = window_pixels(b, window.layer, first, origin=window.layer.attrs.padding[:2])
    with b.for_("row", stream.height) as row:
        window.pack(pixels, row)
        with b.for_("n", stream.blocks) as n, b.for_("segment", seg.count) as s:
            weights = region(place.params, (row * stream.blocks + n) * stream.block_words + s * (2 * seg.length))
            lanes = chain_sums(
                b, CONFIG.tap_loop(seg.length), weights, region(place.words, s * (2 * seg.length)), taps=seg.length
            )  # fmt: skip
            for j, channel in enumerate(lanes):
                for p, value in enumerate(channel):
                    at = n * SUMS + (j * PIXELS + p)
                    b.store(sums, at, sums[at] + value)


def _store_blocks(b: IRBuilder, stream: RowStream, place: Place, sums: Buffer, *, first: Expr) -> None:
    """Requantise and store the results of three pixels."""

    def block(n: Expr, count: int) -> None:
        lanes = [[sums[n * SUMS + (j * PIXELS + p)] for p in range(PIXELS)] for j in range(count)]
        store_block(b, stream, place, lanes, first=first, n=n, count=count)

    whole, rest = divmod(stream.channels, CHANNELS)
    with b.for_("n", whole) as n:
        block(n, CHANNELS)
    if rest:
        block(imm(whole), rest)
    if place.run is not None:
        place.run.finish(first * stream.channels)


def _estimate(layer: FusedLayer, stream: RowStream) -> int:
    """Instructions of one call without its tail (from counts under QEMU)."""
    seg, tiles = stream.segments, -(-prod(layer.out_type.shape[:-1]) // PIXELS)
    taps = stream.height * stream.depth
    chain = CONFIG.tap_loop(seg.length).instructions(seg.length) + 62
    block = stream.height * (seg.count * chain + 10) + 12 * (8 + stream.requant.signed) + 20
    runs = WindowRuns(layer)
    pack = 8 * taps + 60 + 50 * stream.height * runs.columns
    border = PIXELS * copy_instructions(layer, runs.length) * _border_runs(layer)
    return int(tiles * (pack + stream.blocks * block) + border)


def _border_runs(layer: FusedLayer) -> int:
    """Triples of runs that do not all lie in the image, about: those of single pixels, as neighbours mostly go together."""
    if not any(layer.attrs.padding):
        return 0
    runs, attrs, (images, rows, columns, _) = WindowRuns(layer), layer.attrs, layer.out_type.shape
    _, height, width, _ = layer.data_type.shape
    whole = inside(rows, runs.rows, 1, height, axis=(attrs.strides[0], attrs.dilation[0], attrs.padding[0]))
    whole *= inside(columns, runs.columns, runs.width, width, axis=(attrs.strides[1], attrs.dilation[1], attrs.padding[1]))
    return min(2 * images * (rows * columns * runs.count - whole), images * rows * columns * runs.count) // PIXELS


def _code(layer: FusedLayer, stream: RowStream, run: TailRun | None) -> int:
    """Bytes of code (from sizes under GCC 12 at -O2)."""
    loop = CONFIG.tap_loop(stream.segments.length)
    block = 250 + 24 * (loop.unroll + loop.rest)
    store = (200 + 50 * stream.requant.signed) * (1 + bool(stream.channels % CHANNELS))
    window = 700 if any(layer.attrs.padding) else 200
    return int(300 + block + store + window + (0 if run is None else run.code * len(layer.tail)))


register_impl(OpImplementation("arm_dsp.conv2d_chain_rows", "nn.conv2d", accepts_rows, lower_rows, plevel=9, small=True))
