"""Convolution by the SMLAL chain: three output pixels by four channels, packed from the int8 data, any window.

Three products in one 64-bit multiply-accumulate, on every core with SMLAL (Armv7-M and later, also without DSP).  Two 8-bit
numbers share a word, z = 2^21 apart.  With weight words a + b*z (two output channels) and data words p + q*z, q + r*z (three
pixels), (a + b z)(p + q z) = a p + (a q + b p) z + b q z^2, and likewise for the other word, so two SMLAL do six
multiply-accumulates.  Every lane has to stay below 2^20 in magnitude; the low and the middle lane start at 2^20, so that they
never borrow.

Scratch: the packed words of one pixel triple, 8 bytes a tap; for small padded images also a padded copy, so that no tap needs a
test.
Weights take two bytes each in flash.  Notes on the config are in docs/kernels.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial, reduce
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Load, Var, cast, imm, logical_and, minimum, select
from aot.tir.function import FuncAttrs
from aot.tir.intrin import BlockText, COperand, Intrin, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.arm_dsp.tail import TailRun, run_instructions, tail_run
from aot.topi.intrin.asm_text import AsmBlock, Repeat
from aot.topi.layer.fused import FusedLayer, LayerIo, describe, match_layer, open_io, supports_epilogue
from aot.topi.layer.im2col import (
    Origin,
    RunBytes,
    WindowRuns,
    copy_instructions,
    data_align,
    first_pixel,
    inside,
    is_rows,
    window_at,
)
from aot.topi.layer.requant import HighMultiply, is_folded, plan_folded, plan_high_multiply, plan_uniform
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

LANE_BITS = 21
LANE_OFFSET = 1 << 20
"""Start value of the low and middle lanes."""

INIT_LOW = LANE_OFFSET
INIT_HIGH = 1 << (20 + LANE_BITS - 32)


def _mid(lo: int, hi: int) -> int:
    return (lo >> LANE_BITS) | ((hi & 0x3FF) << 11)


CHAIN_MID = Intrin("chain_mid", ("uint32", "uint32"), "uint32", "aot_chain_mid({0}, {1})", _mid, header="aot/chain.h")


MAX_UNROLL = 16
"""Taps in the body of the loop at most; up to as many there is no loop."""


@dataclass(frozen=True, slots=True)
class TapLoop:
    """How the block runs over its taps: bodies of `unroll` taps in a loop (0: no loop), then `rest` taps."""

    unroll: int
    rest: int = 0

    def accepts(self, taps: int) -> bool:
        """Whether `taps` can be covered (the loop runs at least once)."""
        looped = taps - self.rest
        return looped == 0 if self.unroll == 0 else looped > 0 and looped % self.unroll == 0

    def instructions(self, taps: int) -> int:
        """Executed by the block."""
        return 6 * taps + (3 * ((taps - self.rest) // self.unroll) + 3 if self.unroll else 0)


def best_tap_loop(taps: int) -> TapLoop:
    """No loop up to MAX_UNROLL taps, else the largest divisor up to it as body."""
    if taps <= MAX_UNROLL:
        return TapLoop(0, taps)
    return TapLoop(max(u for u in range(1, MAX_UNROLL + 1) if taps % u == 0))


def common_tap_loop(taps: int) -> TapLoop:
    """Bodies of 8 taps and a rest of less than 8, so that few forms serve all layers."""
    return TapLoop(0, taps) if taps < 8 else TapLoop(8, taps % 8)


@cache
def smlal_chain(loop: TapLoop) -> TensorIntrin:
    """acc[4] += words of `taps` taps: 4 channels (two words a tap) by 3 pixels (two words a tap).

    Operands: w int32[2 * taps], x int32[2 * taps], acc uint32[8] (the accumulators (a,pq) (a,qr) (b,pq) (b,qr) as low
    and high words), and taps, which `loop` has to accept.
    """
    taps = Var("taps")
    b = IRBuilder(f"smlal_chain_{loop.unroll}_{loop.rest}")
    w = b.input("w", (UNKNOWN_EXTENT,), "int32", align=4)
    x = b.input("x", (UNKNOWN_EXTENT,), "int32", align=4)
    acc = b.output("acc", (8,), "uint32")
    wide = b.local("wide", (4,), "int64")
    for i in range(4):
        joined = (cast("uint64", acc[2 * i + 1]) << imm(32, "uint64")) | cast("uint64", acc[2 * i])
        b.store(wide, i, joined)
    with b.for_("k", taps if loop.unroll else loop.rest) as k:
        words = [cast("int64", w[2 * k + i]) for i in range(2)]
        pixels = [cast("int64", x[2 * k + i]) for i in range(2)]
        for i in range(4):
            b.store(wide, i, wide[i] + words[i // 2] * pixels[i % 2])
    for i in range(4):
        b.store(acc, 2 * i, cast("uint32", wide[i]))
        b.store(acc, 2 * i + 1, cast("uint32", wide[i] >> imm(32, "int64")))
    desc = replace(b.finish(), scalars=(taps,))
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: _emit_chain(ops, loop), requires="thumb2")


def _emit_chain(operands: Mapping[str, COperand], loop: TapLoop) -> BlockText:
    acc = operands["acc"].scalars
    names = [f"{c}{i}{h}" for c in "ab" for i in "01" for h in "lh"]
    step = ["ldrd %[w0], %[w1], [%[wp]], #8", "ldrd %[x0], %[x1], [%[xp]], #8"]
    step += [f"smlal %[{c}{i}l], %[{c}{i}h], %[w{j}], %[x{i}]" for j, c in enumerate("ab") for i in "01"]
    text: list[str | Repeat] = []
    if loop.unroll:
        text += ["1:", Repeat(loop.unroll, step), "ldr %[w0], %[end]", "cmp %[xp], %[w0]", "bne 1b"]
    if loop.rest:
        text.append(Repeat(loop.rest, step))
    outs = [f'[{n}] "+r"({s})' for n, s in zip(names, acc, strict=True)]
    outs += [f'[{n}] "=&r"(aot_{n})' for n in ("w0", "w1", "x0", "x1")] + [f'[{n}] "+r"(aot_{n})' for n in ("wp", "xp")]
    looped = operands["taps"].value + (f" - {loop.rest}" if loop.rest else "")
    return AsmBlock(
        [
            f"const void *aot_wp = {operands['w'].pointer};",
            f"const void *aot_xp = {operands['x'].pointer};",
            *([f"const void *const aot_end = (const uint8_t *)aot_xp + 8 * ({looped});"] if loop.unroll else []),
            "uint32_t aot_w0, aot_w1, aot_x0, aot_x1;",
        ],
        text,
        outs=outs,
        ins=['[end] "m"(aot_end)'] if loop.unroll else [],
    ).emit()


def chain_lanes(b: IRBuilder, acc: tuple[Expr, Expr, Expr, Expr]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The six sums of one channel pair from its two accumulators (low, high, low, high): pixels p, q, r of channel a and of b.

    Those of channel a are too large by LANE_OFFSET, which the bias takes back.
    """
    low0, high0, low1, high1 = acc
    mask = imm((1 << LANE_BITS) - 1, "uint32")
    ap = b.let("ap", cast("int32", low0 & mask))
    aq = b.let("aq", cast("int32", low1 & mask))
    bq = b.let("bq", cast("int32", high0) >> 10)
    br = b.let("br", cast("int32", high1) >> 10)
    bp = b.let("bp", cast("int32", CHAIN_MID(low0, high0)) - aq)
    ar = b.let("ar", cast("int32", CHAIN_MID(low1, high1)) - bq)
    return (ap, aq, ar), (bp, bq, br)


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


CONFIG = ChainConfig(common=False)


def plan_segments(weights: Array, config: ChainConfig) -> Segments:
    """The fewest segments for weights [K, O], or of each of the rows [rows, K, O]; O is a multiple of 4.

    In each segment 128 * (sum |wa| + sum |wb|) < 2^20 for channel pairs.
    """
    depth, channels = weights.shape[-2:]
    pairs = np.abs(weights.astype(np.int64)).reshape(-1, depth, channels // 2, 2).sum(axis=3)
    for count in range(1, depth + 1):
        length = config.segment_length(-(-depth // count))
        padded = np.pad(pairs, ((0, 0), (0, max(0, count * length - depth)), (0, 0)))[:, : count * length]
        if 128 * int(padded.reshape(len(pairs), count, length, -1).sum(axis=2).max()) <= LANE_LIMIT:
            return Segments(count, length)
    raise AssertionError("one tap always fits")


def accepts(group: Group, target: Target) -> bool:
    """Layers of at least three output pixels whose requantisation has the short form."""
    layer = match_layer(group, wide=True)
    if layer is None or not target.has("thumb2") or not supports_epilogue(layer):
        return False
    return prod(layer.out_type.shape[:-1]) >= PIXELS and _requant(layer, target) is not None


def has_short_form(layer: FusedLayer, target: Target) -> bool:
    """Whether the kernels' requantisation is exact for a layer."""
    return _requant(layer, target) is not None


def _requant(layer: FusedLayer, target: Target) -> HighMultiply | None:
    return plan_high_multiply(layer.requant, layer.acc_low, layer.acc_high, target=target, prescale=1)


def best_requant(layer: FusedLayer, target: Target, segments: int, *, common: bool) -> tuple[HighMultiply, Array]:
    """For layers that `accepts` takes: with one shift for all channels where that is exact, unless code is shared; and what
    is added to the scaled bias of each channel.

    The prescale costs nothing, as lanes are added to the bias by an instruction with a shift; they and the offsets have to fit.
    """
    requant = _requant(layer, target)
    assert requant is not None
    largest = max(2 * segments * LANE_OFFSET, int(np.abs(layer.bias).max()) + segments * LANE_OFFSET)
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
    for prescale in () if requant.params[-1].uniform else scales:
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
        for n, count in stream.each_block(b):
            lanes = block_sums(b, stream, params, source.words, n)
            store_block(b, stream, place, lanes, first=first, n=n, count=count)
        if run is not None:
            run.finish(first * layer.channels)
    unroll = stream.config.tap_loop(stream.segments.length).unroll
    kernel = describe("arm_dsp.conv2d_chain", segments=stream.segments.count, unroll=unroll)
    func = b.finish(FuncAttrs(kernel=kernel, span=layer.span, macs=layer.macs))
    tail = int(-(-rows // PIXELS) * run_instructions(layer, run, size=PIXELS * layer.channels))
    return Lowered(func, io.constants, instructions=estimate(layer, stream, rows) + tail, code=code_bytes(layer, stream, run))


def columns(layer: FusedLayer) -> Array:
    """Weights [K, O], O filled up to whole blocks."""
    return np.pad(layer.weight.reshape(layer.channels, -1).T, ((0, 0), (0, -layer.channels % CHANNELS)))


class ChainStream:
    """Packs a layer: for each block of 4 channels the words {wa + wb z, wc + wd z} of all taps, then biases and
    requantisation.
    """

    def __init__(self, layer: FusedLayer, target: Target, config: ChainConfig) -> None:
        self.layer, self.config = layer, config
        self.multiplies_high = target.has("dsp")
        self.channels = layer.channels
        self.blocks, self.tail = divmod(self.channels, CHANNELS)
        self._weights, self.segments, count = self.cut(layer)
        offsets = np.where(np.arange(self.channels) % 2 == 0, LANE_OFFSET * count, 0)
        self.requant, added = best_requant(layer, target, count, common=config.common)
        self.scale = 1 << int(self.requant.prescale[0])
        self.packing = TRIPLE if config.common or target.has("dsp") else TRIPLE_LONG
        bias = self.scale * (layer.bias - offsets) + added
        self._arrays = [bias] + [f.values for f in self.requant.params if not f.uniform]

    def cut(self, layer: FusedLayer) -> tuple[Array, Segments, int]:
        """The weights [K, O] in the order of the taps, how they are cut into segments, how many segments a sum has."""
        weights = columns(layer)
        segments = plan_segments(weights, self.config)
        return weights, segments, segments.count

    @property
    def block_words(self) -> int:
        return 2 * self.segments.taps + CHANNELS * len(self._arrays)

    def data(self) -> Array:
        """The stream as int32."""
        taps = self.segments.taps
        weights = np.pad(self._weights, ((0, taps - self._weights.shape[0]), (0, 0)))
        words = weights[:, 0::2] + (weights[:, 1::2] << LANE_BITS)
        out = np.zeros(((self.channels + 3) // CHANNELS, self.block_words), np.int64)
        out[:, : 2 * taps] = words.reshape(taps, -1, 2).transpose(1, 0, 2).reshape(out.shape[0], -1)
        rows = len(self._arrays)
        for i, values in enumerate(self._arrays):
            out[:, 2 * taps + i :: rows] = np.pad(values, (0, -self.channels % CHANNELS)).reshape(-1, CHANNELS)
        return out.reshape(-1).astype(np.int32)

    def each_block(self, b: IRBuilder) -> Iterator[tuple[Expr, int]]:
        """Number and channels of each block, whole ones in a loop."""
        with b.for_("n", self.blocks) as n:
            yield n, CHANNELS
        if self.tail:
            yield imm(self.blocks), self.tail

    def number(self, params: Buffer, block: Expr, row: int, j: int) -> Load:
        """int32 `row` (0: bias) of channel j of a block."""
        return params[block * self.block_words + (2 * self.segments.taps + len(self._arrays) * j + row)]

    def fields(self, params: Buffer, block: Expr, j: int) -> tuple[Expr, ...]:
        rows = iter(range(1, len(self._arrays)))
        return tuple(
            imm(int(f.values[0])) if f.uniform else self.number(params, block, next(rows), j) for f in self.requant.params
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a block finds its numbers and the packed pixels, and where its results go."""

    io: LayerIo
    params: Buffer
    words: Buffer
    run: TailRun | None


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
        add_lanes(b, sums, accumulate(s * (2 * seg.length)))
    return [tuple(sums[j, p] for p in range(PIXELS)) for j in range(CHANNELS)]


def add_lanes(b: IRBuilder, sums: Buffer, lanes: Sequence[Sequence[Expr]]) -> None:
    """Adds the sums of a segment to int32 sums [CHANNELS, PIXELS]."""
    for j, channel in enumerate(lanes):
        for p, value in enumerate(channel):
            b.store(sums, (j, p), sums[j, p] + value)


def store_block(
    b: IRBuilder, stream: ChainStream, place: Place, lanes: Sequence[Sequence[Expr]], *, first: Expr, n: Expr, count: int
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
        with b.if_(reduce(logical_and, [self._is_inside(y, x) for _, y, x in pixels])):
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
            known: list[tuple[Expr, Expr]] = []
            for pixel in pixels:
                y, x = pixel[1] + ky * dy, pixel[2] + kx * dx
                rows = logical_and(y >= 0, y < height)
                known.append(
                    (b.let("ok", logical_and(rows, logical_and(x >= 0, x < width))), b.let("s", self._flat(pixel, ky, kx)))
                )
            tap = (ky * kw + kx) * depth
            if self._apart:
                with b.if_(reduce(logical_and, [ok for ok, _ in known])):
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
    return 240 + block * (1 + bool(stream.tail)) + window + (0 if run is None else run.code * len(layer.epilogue))


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
    result = PIXELS * each + (0 if stream.requant.params[-1].uniform else 1.8)
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


_register("arm_dsp.conv2d_chain", CONFIG, 21)
_register("arm_dsp.conv2d_chain_common", ChainConfig(common=True), 20)


# The rows of the window one after another, for little scratch memory with large windows: one row of the three windows is packed
# at a time and taken by all channels, whose sums lie in scratch memory until the last row is done.  Scratch: 8 bytes a tap of one
# row (11 with padding), 12 bytes a channel.

SUMS = CHANNELS * PIXELS
MAX_SEGMENTS = 256
"""So many offsets of the lanes, and the sums with them, stay well within 32 bits."""


def accepts_rows(group: Group, target: Target) -> bool:
    """The layers of conv2d_chain whose window has several rows."""
    layer = match_layer(group, wide=True)
    if layer is None or layer.weight.ndim != 4 or layer.weight.shape[1] < 2 or is_rows(layer):
        return False
    return accepts(group, target) and layer.weight.shape[1] * plan_segments(_matrix(layer), CONFIG).count <= MAX_SEGMENTS


def _matrix(layer: FusedLayer) -> Array:
    """Weights [KH, taps of a row, O], O filled up to whole blocks."""
    channels, height = layer.channels, layer.weight.shape[1]
    rows = layer.weight.reshape(channels, height, -1).transpose(1, 2, 0)
    return np.pad(rows, ((0, 0), (0, 0), (0, -channels % CHANNELS)))


class RowStream(ChainStream):
    """Packs a layer: for each row of the window and block of 4 channels the words of conv2d_chain, then all biases and
    requantisations, block by block.
    """

    def __init__(self, layer: FusedLayer, target: Target) -> None:
        super().__init__(layer, target, CONFIG)
        self.height, self.depth, filled = self._weights.shape
        self.row_blocks = filled // CHANNELS

    def cut(self, layer: FusedLayer) -> tuple[Array, Segments, int]:
        weights = _matrix(layer)
        segments = plan_segments(weights, self.config)
        return weights, segments, len(weights) * segments.count

    @property
    def block_words(self) -> int:
        """Words of one row for one block."""
        return 2 * self.segments.taps

    def data(self) -> Array:
        weights = np.pad(self._weights, ((0, 0), (0, self.segments.taps - self.depth), (0, 0)))
        words = weights[:, :, 0::2] + (weights[:, :, 1::2].astype(np.int64) << LANE_BITS)
        blocks = words.reshape(self.height, self.segments.taps, self.row_blocks, 2).transpose(0, 2, 1, 3)
        numbers = [np.pad(v, (0, -self.channels % CHANNELS)) for v in self._arrays]
        return np.concatenate([blocks.reshape(-1), np.stack(numbers, axis=1).reshape(-1)]).astype(np.int32)

    def number(self, params: Buffer, block: Expr, row: int, j: int) -> Load:
        rows, start = len(self._arrays), self.height * self.row_blocks * self.block_words
        return params[block * (CHANNELS * rows) + (start + rows * j + row)]


def lower_rows(group: Group, target: Target, name: str) -> Lowered:
    layer = match_layer(group, wide=True)
    assert layer is not None
    stream, rows = RowStream(layer, target), prod(layer.out_type.shape[:-1])
    b = IRBuilder(name)
    align = data_align(layer) if any(layer.attrs.padding) else 1
    shape = (prod(layer.data_type.shape),)
    io = open_io(b, group, layer, data_shape=shape, out_shape=(rows * layer.channels,), data_align=align)
    words = b.scratch("words", (stream.block_words,), "int32")
    sums = b.scratch("sums", (stream.row_blocks * SUMS,), "int32")
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
            inside = [
                logical_and(logical_and(row >= 0, row < height), logical_and(column >= 0, column <= width - runs.width))
                for _, row, column in places
            ]
            with b.if_(reduce(logical_and, inside)):
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
    with b.for_("z", stream.row_blocks * SUMS, step=4) as z:
        for u in range(4):
            b.store(sums, z + u, 0)
    pixels = window_pixels(b, window.layer, first, origin=window.layer.attrs.padding[:2])
    with b.for_("row", stream.height) as row:
        window.pack(pixels, row)
        with b.for_("n", stream.row_blocks) as n, b.for_("segment", seg.count) as s:
            weights = region(place.params, (row * stream.row_blocks + n) * stream.block_words + s * (2 * seg.length))
            words = region(place.words, s * (2 * seg.length))
            lanes = chain_sums(b, CONFIG.tap_loop(seg.length), weights, words, taps=seg.length)
            for j, channel in enumerate(lanes):
                for p, value in enumerate(channel):
                    at = n * SUMS + (j * PIXELS + p)
                    b.store(sums, at, sums[at] + value)


def _store_blocks(b: IRBuilder, stream: RowStream, place: Place, sums: Buffer, *, first: Expr) -> None:
    """Requantise and store the results of three pixels."""
    for n, count in stream.each_block(b):
        lanes = [[sums[n * SUMS + (j * PIXELS + p)] for p in range(PIXELS)] for j in range(count)]
        store_block(b, stream, place, lanes, first=first, n=n, count=count)
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
    return int(tiles * (pack + stream.row_blocks * block) + border)


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
    return int(300 + block + store + window + (0 if run is None else run.code * len(layer.epilogue)))


register_impl(OpImplementation("arm_dsp.conv2d_chain_rows", "nn.conv2d", accepts_rows, lower_rows, plevel=9, small=True))
