"""Convolution by the SMLAL chain: three output pixels by four channels, packed from the int8 data, any window.

Scratch: the packed words of one pixel triple, 8 bytes a tap; for small padded images also a padded copy, so that no tap needs a
test.
Weights take two bytes each in flash.  See intrin.py for the arithmetic, notes on the config in docs/kernels.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Protocol

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Load, cast, imm, logical_and, select
from aot.tir.function import FuncAttrs
from aot.tir.stmt import Region
from aot.topi.arm_dsp.chain.intrin import (
    INIT_HIGH,
    INIT_LOW,
    LANE_BITS,
    LANE_OFFSET,
    TapLoop,
    best_tap_loop,
    chain_lanes,
    common_tap_loop,
    smlal_chain,
)
from aot.topi.arm_dsp.tail import TailRun, run_instructions, tail_run
from aot.topi.arm_dsp.w8.window import Origin, first_pixel, window_at
from aot.topi.layer.fused import FusedLayer, describe, match_layer, tail_accepts
from aot.topi.layer.io import LayerIo, open_io
from aot.topi.layer.requant import HighMultiply, plan_high_multiply
from aot.topi.layer.threshold import is_folded, plan_folded, plan_uniform
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

LANE_LIMIT = (1 << 20) - 1
PIXELS, CHANNELS = 3, 4
WRAPPING_SCALES = range(12, 8, -1)
"""Bits by which sums may be scaled where nothing is added behind their product; lanes with their offsets leave an int32 then."""
MAX_PADDED_COPY = 2048
"""Bytes up to which a padded copy of the image is made."""


@dataclass(frozen=True, slots=True)
class Packing:
    """How the data of a group of pixels lie in words: word i of a tap is pixel `firsts[i]` + the pixel behind it * 2^bits.

    `unroll`: the most taps in the body of the packing loop.  `in_line`: the windows of pixels that lie in one line of the output
    are found together.
    """

    pixels: int
    bits: int
    firsts: tuple[int, ...]
    unroll: int = 4
    in_line: bool = False

    @property
    def words(self) -> int:
        """Of a tap."""
        return len(self.firsts)

    def put(self, b: IRBuilder, words: Buffer, tap: Expr, values: Sequence[Expr]) -> None:
        """The words of a tap from the data of each pixel."""
        for i, first in enumerate(self.firsts):
            at = tap * self.words + i if i else tap * self.words
            b.store(words, at, values[first] + values[first + 1] * (1 << self.bits))


TRIPLE = Packing(PIXELS, LANE_BITS, (0, 1))
TRIPLE_LONG = replace(TRIPLE, unroll=12, in_line=True)
"""For cores where the chain takes nearly all layers, in functions that are not shared: less around the products."""


@dataclass(frozen=True, slots=True)
class Segments:
    """The reduction cut into `count` runs of `length` taps, each short enough for the lanes; taps beyond the real
    ones are zero.
    """

    count: int
    length: int

    @property
    def taps(self) -> int:
        return self.count * self.length


@dataclass(frozen=True, slots=True)
class ChainConfig:
    """`common`: loops of a form that layers of other sizes have too, so that they can share code; else the fastest
    for this one.
    """

    common: bool

    def tap_loop(self, taps: int) -> TapLoop:
        return common_tap_loop(taps) if self.common else best_tap_loop(taps)

    def segment_length(self, taps: int) -> int:
        """`taps`, rounded up: to a multiple of 4, or to where the body of the loop becomes longer."""
        if self.common:
            return (taps + 3) // 4 * 4
        return min(range(taps, taps + 8), key=lambda n: (best_tap_loop(n).instructions(n) + 2 * n, n))


def plan_segments(weights: Array, config: ChainConfig) -> Segments:
    """The fewest segments for weights [K, O] (O a multiple of 4): 128 * (sum |wa| + sum |wb|) < 2^20 in each, for
    channel pairs.
    """
    depth = weights.shape[0]
    pairs = np.abs(weights.astype(np.int64)).reshape(depth, -1, 2).sum(axis=2)
    for count in range(1, depth + 1):
        length = config.segment_length(-(-depth // count))
        padded = np.pad(pairs, ((0, max(0, count * length - depth)), (0, 0)))[: count * length]
        if 128 * int(padded.reshape(count, length, -1).sum(axis=1).max()) <= LANE_LIMIT:
            return Segments(count, length)
    raise AssertionError("one tap always fits")


def accepts(group: Group, target: Target) -> bool:
    """Layers of at least three output pixels whose requantisation has the short form."""
    layer = match_layer(group, wide=True)
    if layer is None or not target.has("thumb2") or not tail_accepts(layer):
        return False
    return prod(layer.out_type.shape[:-1]) >= PIXELS and _requant(layer, target) is not None


def has_short_form(layer: FusedLayer, target: Target) -> bool:
    """Whether the kernels' requantisation is exact for a layer."""
    return _requant(layer, target) is not None


def _requant(layer: FusedLayer, target: Target) -> HighMultiply | None:
    return plan_high_multiply(layer.requant, layer.acc_low, layer.acc_high, target=target, prescale=1)


def best_requant(layer: FusedLayer, target: Target, seg: Segments, *, common: bool) -> tuple[HighMultiply, Array]:
    """For layers that `accepts` takes: with one shift for all channels where that is exact, unless code is shared; and what
    is added to the scaled bias of each channel.

    The prescale costs nothing, as lanes are added to the bias by an instruction with a shift; they and the offsets have to fit.
    """
    requant = _requant(layer, target)
    assert requant is not None
    largest = max(2 * seg.count * LANE_OFFSET, int(np.abs(layer.bias).max()) + seg.count * LANE_OFFSET)
    scales = () if common else range(min(8, 30 - largest.bit_length()), 3, -1)
    spans, nothing = (layer.acc_low, layer.acc_high), np.zeros_like(layer.bias)
    for prescale in () if common or target.has("dsp") else (*WRAPPING_SCALES, *scales):  # SMMLA adds a constant as it multiplies
        folded = plan_folded(layer.requant, *spans, target=target, prescale=prescale)
        if folded is not None and (prescale in WRAPPING_SCALES or int(np.abs(folded[1]).max()) < 1 << 30):
            return folded
    if (
        requant.rounded and not target.has("dsp") and largest.bit_length() <= 28
    ):  # without SMMLAR, rounding takes two instructions
        scaled = plan_high_multiply(layer.requant, *spans, target=target, prescale=2)
        requant = requant if scaled is None else scaled
    for prescale in () if requant.fields[-1].uniform else scales:
        shared = plan_uniform(layer.requant, *spans, target=target, prescale=prescale)
        if shared is not None:
            return shared, nothing
    return requant, nothing


def lower(group: Group, target: Target, name: str, *, config: ChainConfig) -> Lowered:
    layer = match_layer(group, wide=True)
    assert layer is not None
    stream = ChainStream(layer, target, config)
    b = IRBuilder(name)
    rows = prod(layer.out_type.shape[:-1])
    io = open_io(b, group, layer, data_shape=(prod(layer.data_type.shape),), out_shape=(rows * layer.channels,))
    source = TapSource(b, layer, io, stream.segments.taps, stream.packing)
    params = io.constant("params", stream.data(), "int32")
    run = tail_run(b, io, layer, target=target, size=PIXELS * layer.channels)
    place = Place(io, params, source.words, run)
    with b.for_("t", (rows + PIXELS - 1) // PIXELS) as tile:
        first = first_pixel(b, layer, tile * PIXELS, last=imm(rows - PIXELS), even=rows % PIXELS == 0)
        source.pack(first)
        with b.for_("n", stream.blocks) as n:
            _block(b, stream, place, first=first, n=n, count=CHANNELS)
        if stream.tail:
            _block(b, stream, place, first=first, n=imm(stream.blocks), count=stream.tail)
        if run is not None:
            run.finish(first * layer.channels)
    unroll = stream.config.tap_loop(stream.segments.length).unroll
    kernel = describe("arm_dsp.conv2d_chain", segments=stream.segments.count, unroll=unroll)
    func = b.finish(FuncAttrs(kernel=kernel, span=layer.span, macs=layer.macs))
    tail = int(-(-rows // PIXELS) * run_instructions(layer, run, size=PIXELS * layer.channels))
    return Lowered(func, io.constants, instructions=estimate(layer, stream, rows) + tail, code=code_bytes(layer, stream, run))


class ChainStream:
    """Packs a layer: for each block of 4 channels the words {wa + wb z, wc + wd z} of all taps, then biases and
    requantisation.
    """

    def __init__(self, layer: FusedLayer, target: Target, config: ChainConfig) -> None:
        self.layer, self.config = layer, config
        self.multiplies_high = target.has("dsp")
        self.channels = layer.channels
        self.blocks, self.tail = divmod(self.channels, CHANNELS)
        matrix = layer.weight.reshape(self.channels, -1).T
        self._weights, self.segments = self.cut(np.pad(matrix, ((0, 0), (0, -self.channels % CHANNELS))))
        offsets = np.where(np.arange(self.channels) % 2 == 0, LANE_OFFSET * self.segments.count, 0)
        self.requant, added = best_requant(layer, target, self.segments, common=config.common)
        self.scale = 1 << int(self.requant.prescale[0])
        self.packing = TRIPLE if config.common or target.has("dsp") else TRIPLE_LONG
        bias = self.scale * (layer.bias - offsets) + added
        self._arrays = [bias] + [f.values for f in self.requant.fields if not f.uniform]

    def cut(self, weights: Array) -> tuple[Array, Segments]:
        """The weights [K, O] in the order of the taps, and how they are cut into segments."""
        return weights, plan_segments(weights, self.config)

    @property
    def block_words(self) -> int:
        return 2 * self.segments.taps + CHANNELS * len(self._arrays)

    def data(self) -> Array:
        """The stream as int32."""
        taps = self.segments.taps
        weights = np.pad(self._weights, ((0, taps - self._weights.shape[0]), (0, 0)))
        words = weights[:, 0::2] + (weights[:, 1::2] << 21)
        out = np.zeros(((self.channels + 3) // CHANNELS, self.block_words), np.int64)
        out[:, : 2 * taps] = words.reshape(taps, -1, 2).transpose(1, 0, 2).reshape(out.shape[0], -1)
        rows = len(self._arrays)
        for i, values in enumerate(self._arrays):
            out[:, 2 * taps + i :: rows] = np.pad(values, (0, -self.channels % CHANNELS)).reshape(-1, CHANNELS)
        return out.reshape(-1).astype(np.int32)

    def number(self, params: Buffer, block: Expr, row: int, j: int) -> Load:
        """int32 `row` (0: bias) of channel j of a block."""
        return params[block * self.block_words + (2 * self.segments.taps + len(self._arrays) * j + row)]

    def fields(self, params: Buffer, block: Expr, j: int) -> tuple[Expr, ...]:
        rows = iter(range(1, len(self._arrays)))
        return tuple(
            imm(int(f.values[0])) if f.uniform else self.number(params, block, next(rows), j) for f in self.requant.fields
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a block finds its numbers and the packed pixels, and where its results go."""

    io: LayerIo
    params: Buffer
    words: Buffer
    run: TailRun | None


class Finish(Protocol):
    """What the end of a block needs of a stream of constants."""

    @property
    def channels(self) -> int: ...
    @property
    def scale(self) -> int: ...
    @property
    def requant(self) -> HighMultiply: ...
    def number(self, params: Buffer, block: Expr, row: int, j: int) -> Load: ...
    def fields(self, params: Buffer, block: Expr, j: int) -> tuple[Expr, ...]: ...


def chain_sums(b: IRBuilder, loop: TapLoop, weights: Region, words: Region, *, taps: int) -> list[tuple[Expr, ...]]:
    """The sums of products of four channels, each for three pixels; those of even channels with LANE_OFFSET."""
    acc = chain_start(b)
    b.block(smlal_chain(loop), weights, words, acc, taps)
    return chain_end(b, acc)


def chain_start(b: IRBuilder) -> Buffer:
    """Accumulators of no products yet."""
    acc = b.local("acc", (8,), "uint32")
    for i in range(4):
        b.store(acc, 2 * i, imm(INIT_LOW, "uint32"))
        b.store(acc, 2 * i + 1, imm(INIT_HIGH, "uint32"))
    return acc


def chain_end(b: IRBuilder, acc: Buffer) -> list[tuple[Expr, ...]]:
    """What the accumulators hold, as `chain_sums` gives it."""
    lanes: list[tuple[Expr, ...]] = []
    for pair in range(2):
        lanes += chain_lanes(b, (acc[4 * pair], acc[4 * pair + 1], acc[4 * pair + 2], acc[4 * pair + 3]))
    return lanes


def _block(b: IRBuilder, stream: ChainStream, place: Place, *, first: Expr, n: Expr, count: int) -> None:
    """Four channels of one pixel triple (`count` of them stored)."""
    lanes = block_sums(b, stream, place.params, place.words, n)
    store_block(b, stream, place, lanes, first=first, n=n, count=count)


def block_sums(b: IRBuilder, stream: ChainStream, params: Buffer, words: Buffer, n: Expr) -> list[tuple[Expr, ...]]:
    """The sums of products of block `n` of four channels, each for three pixels."""
    seg = stream.segments
    base = n * stream.block_words
    sums = b.local("sum", (CHANNELS, PIXELS), "int32", init=0) if seg.count > 1 else None

    def accumulate(start: Expr) -> list[tuple[Expr, ...]]:
        loop = stream.config.tap_loop(seg.length)
        return chain_sums(b, loop, region(params, base + start), region(words, start), taps=seg.length)

    if sums is None:
        return accumulate(imm(0))
    with b.for_("segment", seg.count) as s:
        for j, channel in enumerate(accumulate(s * (2 * seg.length))):
            for p, value in enumerate(channel):
                b.store(sums, (j, p), sums[j, p] + value)
    return [tuple(sums[j, p] for p in range(PIXELS)) for j in range(CHANNELS)]


def store_block(
    b: IRBuilder, stream: Finish, place: Place, lanes: Sequence[Sequence[Expr]], *, first: Expr, n: Expr, count: int
) -> None:
    """Requantise and store `count` channels of block `n` for the pixel triple from `first` on."""
    io, params = place.io, place.params
    at = b.let("at", n * CHANNELS if place.run else first * stream.channels + n * CHANNELS)
    for j in range(count):
        bias = b.let("bias", stream.number(params, n, 0, j))
        fields = tuple(f if not isinstance(f, Load) else b.let("field", f) for f in stream.fields(params, n, j))
        values = (stream.requant.emit_scaled(b, scaled_sum(lanes[j][p], stream.scale, bias), fields) for p in range(PIXELS))
        places = [at + (p * stream.channels + j) for p in range(PIXELS)]
        if place.run is None:
            io.store_all([(index,) for index in places], values)
        else:
            for index, value in zip(places, values, strict=True):
                place.run.store(index, value)


def scaled_sum(lane: Expr, scale: int, bias: Expr) -> Expr:
    """The accumulator of a lane; one that wraps around comes back with the bias."""
    if scale < 1 << min(WRAPPING_SCALES):
        return bias + lane * scale
    return cast("int32", cast("uint32", bias) + cast("uint32", lane) * imm(scale, "uint32"))


class TapSource:
    """Where the taps of a group of pixels come from; `pack(first)` writes their words to `words`, zeros behind the last tap.

    `apart`: where some taps of a window are outside the image, those inside are packed as others are (more code).
    """

    def __init__(
        self, b: IRBuilder, layer: FusedLayer, io: LayerIo, taps: int, packing: Packing = TRIPLE, *, apart: bool = False
    ) -> None:
        self._b, self._layer, self._data, self._packing = b, layer, io.data, packing
        self.words = words = b.scratch("words", (packing.words * taps,), "int32")
        self._depth = int(layer.weight[0].size)
        if self._depth < taps:
            with b.for_("z", packing.words * taps, start=packing.words * self._depth) as z:
                b.store(words, z, 0)
        self._window = None if _is_rows(layer) else Window(b, layer, io.data, words, packing, apart=apart)

    def pack(self, first: Expr) -> None:
        """The pixels from number `first` on."""
        if self._window is not None:
            self._window.pack(first)
            return
        depth = self._layer.data_type.shape[-1]
        runs = [(self._data, (first + p) * depth) for p in range(self._packing.pixels)]
        pack_runs(self._b, self.words, runs, self._depth, packing=self._packing)


def _is_rows(layer: FusedLayer) -> bool:
    """Whether output pixel i reads data row i: fully connected layers and pointwise convolutions."""
    if layer.weight.ndim == 2:
        return True
    return layer.weight.shape[1:3] == (1, 1) and layer.attrs.strides == (1, 1) and not any(layer.attrs.padding)


def pack_runs(
    b: IRBuilder,
    words: Buffer,
    runs: Sequence[tuple[Buffer, Expr]],
    length: int,
    *,
    tap: Expr | None = None,
    packing: Packing = TRIPLE,
) -> None:
    """Pack `length` consecutive bytes of the run of each pixel, from tap number `tap` on."""
    step = max(u for u in range(1, packing.unroll + 1) if length % u == 0)
    with b.for_("k", length, step=step) as k:
        for u in range(step):
            values: list[Expr] = [b.let("v", cast("int32", data.load("int8", start + k + u))) for data, start in runs]
            packing.put(b, words, (k + u) if tap is None else tap + k + u, values)


Pixels = Sequence[Origin]
"""The windows of each of a group of pixels."""


def one_line(layer: FusedLayer, packing: Packing) -> bool:
    """Whether each group's pixels lie in one line of the output, and are treated so."""
    return packing.in_line and layer.out_type.shape[2] % packing.pixels == 0


def window_pixels(b: IRBuilder, layer: FusedLayer, first: Expr, *, origin: tuple[int, int], packing: Packing = TRIPLE) -> Pixels:
    """Where the windows of a group of pixels from number `first` of the output on begin; `origin`: padding above, left."""
    if one_line(layer, packing):
        image, y, x = window_at(b, layer, first, origin=origin)
        return [(image, y, x + p * layer.attrs.strides[1]) for p in range(packing.pixels)]
    return [window_at(b, layer, first + p, origin=origin) for p in range(packing.pixels)]


class Window:
    """Taps of a k x k window: the pixels may lie in different rows."""

    def __init__(
        self, b: IRBuilder, layer: FusedLayer, data: Buffer, words: Buffer, packing: Packing, *, apart: bool = False
    ) -> None:
        self._b, self._layer, self._data, self._words, self._packing, self._apart = b, layer, data, words, packing, apart
        self._shape = layer.data_type.shape
        self._origin = layer.attrs.padding[:2]
        self._padded = any(layer.attrs.padding)
        top, left, bottom, right = layer.attrs.padding
        n, height, width, depth = self._shape
        copy = (n, height + top + bottom, width + left + right, depth)
        if self._padded and prod(copy) <= MAX_PADDED_COPY:
            self._copy_padded(copy)

    def _copy_padded(self, shape: tuple[int, int, int, int]) -> None:
        """Copy the image into scratch with its border; then there are no taps outside any more."""
        b, (n, height, width, depth) = self._b, self._shape
        top, left, _, _ = self._layer.attrs.padding
        image = b.scratch("image", (prod(shape),), "int8")
        with b.for_("f", prod(shape)) as f:
            b.store(image, f, self._layer.attrs.pad_value)
        with b.for_("i", n * height) as i:
            target = ((i // height) * shape[1] + i % height + top) * shape[2] + left if n > 1 else (i + top) * shape[2] + left
            with b.for_("c", width * depth) as c:
                b.store(image, target * depth + c, self._data.load("int8", i * (width * depth) + c))
        self._data, self._shape, self._origin, self._padded = image, shape, (0, 0), False

    def pack(self, first: Expr) -> None:
        b = self._b
        pixels = window_pixels(b, self._layer, first, origin=self._origin, packing=self._packing)
        if not self._padded:
            self._pack_inside(pixels)
            return
        if not self._has_inside():
            self._pack_border(pixels)
            return
        inside: Expr | None = None
        for _, y, x in pixels:
            here = self._is_inside(y, x)
            inside = here if inside is None else logical_and(inside, here)
        assert inside is not None
        with b.if_(inside):
            self._pack_inside(pixels)
        with b.else_():
            self._pack_border(pixels)

    def _has_inside(self) -> bool:
        """Whether the window fits into the image at all."""
        _, kh, kw, _ = self._layer.weight.shape
        _, height, width, _ = self._shape
        dy, dx = self._layer.attrs.dilation
        return bool((kh - 1) * dy < height and (kw - 1) * dx < width)

    def _is_inside(self, y: Expr, x: Expr) -> Expr:
        _, kh, kw, _ = self._layer.weight.shape
        _, height, width, _ = self._shape
        dy, dx = self._layer.attrs.dilation
        rows = logical_and(y >= 0, y <= height - ((kh - 1) * dy + 1))
        return logical_and(rows, logical_and(x >= 0, x <= width - ((kw - 1) * dx + 1)))

    def _flat(self, pixel: tuple[Expr, Expr, Expr], ky: Expr, kx: Expr) -> Expr:
        image, y, x = pixel
        _, height, width, depth = self._shape
        dy, dx = self._layer.attrs.dilation
        return ((image * int(height) + y + ky * int(dy)) * int(width) + x + kx * int(dx)) * int(depth)

    def _pack_inside(self, pixels: Pixels) -> None:
        b = self._b
        _, kh, kw, depth = self._layer.weight.shape
        joined = self._layer.attrs.dilation[1] == 1
        with b.for_("ky", kh) as ky, b.for_("kx", 1 if joined else kw) as kx:
            starts: list[tuple[Buffer, Expr]] = [(self._data, b.let("s", self._flat(p, ky, kx))) for p in pixels]
            tap = (ky * kw + kx) * depth
            pack_runs(b, self._words, starts, kw * depth if joined else depth, tap=tap, packing=self._packing)

    def _pack_border(self, pixels: Pixels) -> None:
        b = self._b
        _, kh, kw, depth = self._layer.weight.shape
        _, height, width, _ = self._shape
        dy, dx = self._layer.attrs.dilation
        with b.for_("ky", kh) as ky, b.for_("kx", kw) as kx:
            known = []
            for pixel in pixels:
                y, x = pixel[1] + ky * dy, pixel[2] + kx * dx
                rows = logical_and(y >= 0, y < height)
                known.append(
                    (b.let("ok", logical_and(rows, logical_and(x >= 0, x < width))), b.let("s", self._flat(pixel, ky, kx)))
                )
            tap = (ky * kw + kx) * depth
            if self._apart:
                inside: Expr = known[0][0]
                for ok, _ in known[1:]:
                    inside = logical_and(inside, ok)
                with b.if_(inside):
                    pack_runs(b, self._words, [(self._data, s) for _, s in known], depth, tap=tap, packing=self._packing)
                with b.else_():
                    self._pack_selected(known, tap)
            else:
                self._pack_selected(known, tap)

    def _pack_selected(self, known: Sequence[tuple[Expr, Expr]], tap: Expr) -> None:
        """One tap of each pixel, where it is outside the image the zero point: (whether it is inside, where it is)."""
        b = self._b
        with b.for_("c", self._shape[3]) as c:
            pad = imm(self._layer.attrs.pad_value)
            values: list[Expr] = [b.let("v", select(ok, cast("int32", self._data.load("int8", s + c)), pad)) for ok, s in known]
            self._packing.put(b, self._words, tap + c, values)


def code_bytes(layer: FusedLayer, stream: ChainStream, run: TailRun | None) -> int:
    """Bytes of code (from sizes under GCC 12 at -O2)."""
    loop = stream.config.tap_loop(stream.segments.length)
    block = 350 + 24 * (loop.unroll + loop.rest) + 50 * stream.requant.signed + 120 * (stream.segments.count > 1)
    window = 0 if _is_rows(layer) else 450 if any(layer.attrs.padding) else 200
    return 240 + block * (1 + bool(stream.tail)) + window + (0 if run is None else run.code * len(layer.tail))


def estimate(layer: FusedLayer, stream: ChainStream, rows: int) -> int:
    """Instructions of one call without its tail: packing, products, lanes, requantisation (from counts under QEMU)."""
    tiles, seg = -(-rows // PIXELS), stream.segments
    loop = stream.config.tap_loop(seg.length).instructions(seg.length)
    sums = (loop + (68 if seg.count > 1 else 13)) * seg.count
    if is_folded(stream.requant):
        high = -0.9 if seg.count == 1 else 0.5
    else:
        high = 0 if stream.multiplies_high else 5 if stream.requant.rounded else 1.5
    each = 7.6 + 2.1 * stream.requant.signed + high
    result = PIXELS * each + (0 if stream.requant.fields[-1].uniform else 1.8)
    blocks = (stream.blocks + bool(stream.tail)) * sums + stream.channels * result
    return int(tiles * (blocks + 18)) + _pack_instructions(layer, stream.packing, tiles)


def _pack_instructions(layer: FusedLayer, packing: Packing, tiles: int) -> int:
    """Of packing the data of all groups of pixels, with the copy of a small image that has a border."""
    taps, runs = int(layer.weight[0].size), 1
    border = copy = 0.0
    groups = border_groups(layer, PIXELS)
    if not _is_rows(layer):
        n, height, width, depth = layer.data_type.shape
        _, kh, kw, _ = layer.weight.shape
        runs = kh if layer.attrs.dilation[1] == 1 else kh * kw
        border = groups * (17.4 * taps + 59 * kh * kw)
        if any(layer.attrs.padding) and not groups:
            copy = n * height * (5.1 * width * depth + 5.3)
    step = max(u for u in range(1, packing.unroll + 1) if taps // runs % u == 0)
    turns = 8.8 * taps / step if taps // runs > step else 0
    inside = 6.3 * taps + turns + (14.5 * runs if runs > 1 else 0)
    return int((tiles - groups) * inside + border + copy)


def border_groups(layer: FusedLayer, pixels: int) -> int:
    """Groups of `pixels` whose windows do not all lie in the image; 0 where a padded copy is made."""
    if _is_rows(layer) or not any(layer.attrs.padding):
        return 0
    n, height, width, depth = layer.data_type.shape
    top, left, bottom, right = layer.attrs.padding
    if n * (height + top + bottom) * (width + left + right) * depth <= MAX_PADDED_COPY:
        return 0
    lines, columns = (
        (at >= 0) & (at + (layer.weight.shape[1 + axis] - 1) * layer.attrs.dilation[axis] < (height, width)[axis])
        for axis in range(2)
        for at in [np.arange(layer.out_type.shape[1 + axis]) * layer.attrs.strides[axis] - layer.attrs.padding[axis]]
    )
    inside = np.tile(np.outer(lines, columns).reshape(-1), n)
    whole = inside[: inside.size // pixels * pixels].reshape(-1, pixels).all(axis=1)
    return int((~whole).sum()) + int(inside.size % pixels > 0)


def _register(name: str, config: ChainConfig, plevel: int) -> None:
    register_impl(OpImplementation(name, "nn.conv2d", accepts, partial(lower, config=config), plevel))


_register("arm_dsp.conv2d_chain", ChainConfig(common=False), 21)
_register("arm_dsp.conv2d_chain_common", ChainConfig(common=True), 20)
