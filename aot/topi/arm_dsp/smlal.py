"""Convolutions and fully connected layers of int8 data with SMLAL as a packed multiplier.

Runs on every core with SMLAL (Armv7-M and later), with or without DSP instructions.

Convolutions: blocks of three output pixels x four channels, any window.  The trick: one 64-bit multiply-accumulate does three
useful products.  Two 8-bit numbers share a word, spaced z = 2^21 apart.  A weight word holds two output channels, a + b*z; the
data words hold three pixels, p + q*z and q + r*z.  Then (a + b z)(p + q z) = a p + (a q + b p) z + b q z^2, and the other data
word gives a q, a r + b q and b r in the same way.  So two SMLAL do six multiply-accumulates; the sums are separated once, after
all taps.

Each lane must stay below 2^20 in magnitude.  The low and the middle lane start at 2^20, so that they never borrow from the lane
above.  A reduction that is too long for the lanes is cut into segments.

Scratch: the packed words of three pixels (8 bytes per tap); for small padded images also a padded copy, so that no tap needs a
test.  Flash: two bytes per weight.  See docs/kernels.md for the configurations.

Fully connected layers: blocks of one row x four channels.  The weights of two channels share a word, 2^23 apart, so that one
SMLAL does two products; a block of two taps costs 6 instructions for eight.  Scratch: four bytes per input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial, reduce
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Load, Var, cast, imm, logical_and, minimum
from aot.tir.intrin import BlockText, Intrin, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.arm_dsp.elementwise import EpilogueRun, epilogue_run, run_instructions
from aot.topi.intrin.asm_text import Emit, Operands, Repeat, asm, block_of
from aot.topi.layer.fused import FusedLayer, LayerIo, epilogue_each, lowered, match_layer, open_io, supports_epilogue
from aot.topi.layer.im2col import (
    Packing,
    Pixels,
    RunBytes,
    TapLoop,
    TapSource,
    WindowRuns,
    border_groups,
    copy_instructions,
    data_align,
    first_pixel,
    inside,
    is_rows,
    pack_runs,
    window_pixels,
)
from aot.topi.layer.planes import channel_blocks
from aot.topi.layer.requant import (
    HighMultiply,
    channel_params,
    is_folded,
    load_params,
    plan_folded,
    plan_high_multiply,
    plan_uniform,
)
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl, register_planned

LANE_BITS = 21
LANE_OFFSET = 1 << 20
"""Start value of the low and the middle lane."""

INIT_LOW = LANE_OFFSET
INIT_HIGH = 1 << (20 + LANE_BITS - 32)


def _mid(lo: int, hi: int) -> int:
    return (lo >> LANE_BITS) | ((hi & 0x3FF) << 11)


CHAIN_MID = Intrin("chain_mid", ("uint32", "uint32"), "uint32", "aot_chain_mid({0}, {1})", _mid, header="aot/chain.h")


MAX_UNROLL = 16
"""Most taps in the body of the loop; a layer with no more taps than this needs no loop."""


def tap_loop(taps: int) -> TapLoop:
    """Return straight code for up to MAX_UNROLL taps, else a loop whose body is the largest divisor up to MAX_UNROLL."""
    if taps <= MAX_UNROLL:
        return TapLoop(0, taps)
    return TapLoop(max(u for u in range(1, MAX_UNROLL + 1) if taps % u == 0))


Sums = list[tuple[Expr, Expr]]
"""Two factors (int64) for each accumulator."""


def smlal_block(
    name: str, loop: TapLoop, accumulators: int, factors: Callable[[IRBuilder, Buffer, Buffer, Expr], Sums], emit: Emit
) -> TensorIntrin:
    """Build a block that adds products to 64-bit accumulators, each as low and high word, for as many taps as `loop` accepts.

    Operands: w int32, x int32, acc uint32[2 * accumulators], taps.  `factors(b, w, x, tap)`: what a tap adds.
    """
    taps = Var("taps")
    b = IRBuilder(f"{name}_{loop.unroll}_{loop.rest}")
    w = b.input("w", (UNKNOWN_EXTENT,), "int32", align=4)
    x = b.input("x", (UNKNOWN_EXTENT,), "int32", align=4)
    acc = b.output("acc", (2 * accumulators,), "uint32")
    wide = b.local("wide", (accumulators,), "int64")
    for i in range(accumulators):
        b.store(wide, i, (cast("uint64", acc[2 * i + 1]) << imm(32, "uint64")) | cast("uint64", acc[2 * i]))
    with b.for_("k", taps if loop.unroll else loop.rest) as k:
        for i, (weight, value) in enumerate(factors(b, w, x, k)):
            b.store(wide, i, wide[i] + weight * value)
    for i in range(accumulators):
        b.store(acc, 2 * i, cast("uint32", wide[i]))
        b.store(acc, 2 * i + 1, cast("uint32", wide[i] >> imm(32, "int64")))
    return block_of(b, "arm_dsp", emit, taps, requires="thumb2")


@cache
def smlal_chain(loop: TapLoop) -> TensorIntrin:
    """acc[4] += the products of `taps` taps: 4 channels (two words per tap) by 3 pixels (two words per tap).

    The accumulators are (a,pq) (a,qr) (b,pq) (b,qr).
    """
    names = [f"{c}{i}{h}" for c in "ab" for i in "01" for h in "lh"]
    step = ["ldrd %[w0], %[w1], [%[wp]], #8", "ldrd %[x0], %[x1], [%[xp]], #8"]
    step += [f"smlal %[{c}{i}l], %[{c}{i}h], %[w{j}], %[x{i}]" for j, c in enumerate("ab") for i in "01"]
    text: list[str | Repeat] = []
    if loop.unroll:
        text += ["1:", Repeat(loop.unroll, step), "ldr %[w0], %[end]", "cmp %[xp], %[w0]", "bne 1b"]
    if loop.rest:
        text.append(Repeat(loop.rest, step))

    def factors(_b: IRBuilder, w: Buffer, x: Buffer, k: Expr) -> Sums:
        return [(cast("int64", w[2 * k + i // 2]), cast("int64", x[2 * k + i % 2])) for i in range(4)]

    def emit(operands: Operands) -> BlockText:
        end = {"xp:m": f"8 * ({operands['taps'].value}{f' - {loop.rest}' if loop.rest else ''})"} if loop.unroll else {}
        outs = [f'[{n}] "+r"({s})' for n, s in zip(names, operands["acc"].scalars, strict=True)]
        spare = ("w0", "w1", "x0", "x1")
        return asm(operands, text, "wp=w xp=x", end=end, first=outs, temporaries=spare, temporaries_first=True, kind="+")

    return smlal_block("smlal_chain", loop, 4, factors, emit)


LANE_LIMIT = (1 << 20) - 1
PIXELS, CHANNELS = 3, 4
WRAPPING_SCALES = range(12, 8, -1)
"""Bits by which sums may be scaled if nothing is added after the product; the scaled lanes may then overflow an int32 and wrap.
"""


TRIPLE = Packing(PIXELS, LANE_BITS, (0, 1))
TRIPLE_LONG = replace(TRIPLE, unroll=12, in_line=True)
"""For cores on which this kernel runs nearly all layers, in functions that no layers share: cheaper packing."""


@dataclass(frozen=True, slots=True)
class Segments:
    """The reduction, cut into `count` segments of `length` taps, short enough for the lanes; the last taps may be padding."""

    count: int
    length: int

    @property
    def taps(self) -> int:
        return self.count * self.length


@dataclass(frozen=True, slots=True)
class ChainConfig:
    """How loops are chosen: `common` ones, which layers of other sizes share, or the fastest ones for this layer."""

    common: bool

    def tap_loop(self, taps: int) -> TapLoop:
        """The loop over so many taps; common: 8 taps and a remainder, so that a few blocks of code serve all layers."""
        if not self.common:
            return tap_loop(taps)
        return TapLoop(0, taps) if taps < 8 else TapLoop(8, taps % 8)

    def segment_length(self, taps: int) -> int:
        """Return `taps`, rounded up to a multiple of 4, or to a length that loops well."""
        if self.common:
            return (taps + 3) // 4 * 4
        return min(range(taps, taps + 8), key=lambda n: (tap_loop(n).instructions(n) + 2 * n, n))


CONFIG = ChainConfig(common=False)


def plan_segments(weights: Array, config: ChainConfig) -> Segments:
    """Return the fewest segments for weights [K, O], or for each row of [rows, K, O]; O is a multiple of 4.

    In each segment 128 * (sum |wa| + sum |wb|) < 2^20 for every channel pair.
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
    """Whether the layer has at least three output pixels and a requantisation with the short form."""
    layer = match_layer(group, wide=True)
    if layer is None or not target.has("thumb2") or not supports_epilogue(layer):
        return False
    return prod(layer.out_type.shape[:-1]) >= PIXELS and short_form(layer, target) is not None


def short_form(layer: FusedLayer, target: Target) -> HighMultiply | None:
    """Return the requantisation of these kernels if it is exact for a layer."""
    return plan_high_multiply(layer.requant, layer.acc_low, layer.acc_high, target=target, prescale=1)


def best_requant(layer: FusedLayer, target: Target, segments: int, *, common: bool) -> tuple[HighMultiply, Array]:
    """Return the cheapest requantisation of an accepted layer, and what to add to the scaled bias of each channel.

    A shift common to all channels is preferred where it is exact, unless code is shared.  The prescale costs nothing, because
    lanes are added to the bias by an instruction that can shift; the scaled lanes and their offsets must fit.
    """
    requant = short_form(layer, target)
    assert requant is not None
    largest = max(2 * segments * LANE_OFFSET, int(np.abs(layer.bias).max()) + segments * LANE_OFFSET)
    scales = () if common else range(min(8, 30 - largest.bit_length()), 3, -1)
    spans, nothing = (layer.acc_low, layer.acc_high), np.zeros_like(layer.bias)
    for prescale in () if common or target.has("dsp") else (*WRAPPING_SCALES, *scales):  # SMMLA adds a constant for free
        folded = plan_folded(layer.requant, *spans, target=target, prescale=prescale)
        if folded is not None and (prescale in WRAPPING_SCALES or int(np.abs(folded[1]).max()) < 1 << 30):
            return folded
    # without SMMLAR, rounding costs two instructions
    if requant.rounded and not target.has("dsp") and largest.bit_length() <= 28:
        scaled = plan_high_multiply(layer.requant, *spans, target=target, prescale=2)
        requant = requant if scaled is None else scaled
    for prescale in () if requant.params[-1].uniform else scales:
        shared = plan_uniform(layer.requant, *spans, target=target, prescale=prescale)
        if shared is not None:
            return shared, nothing
    return requant, nothing


def lower(group: Group, target: Target, name: str, *, config: ChainConfig) -> Lowered:
    """Lower a convolution: groups of three pixels; for each, pack the windows, then blocks of four channels."""
    layer = match_layer(group, wide=True)
    assert layer is not None
    stream = ChainStream(layer, target, config)
    b = IRBuilder(name)
    rows = prod(layer.out_type.shape[:-1])
    io = open_io(b, group, layer, data_shape=(prod(layer.data_type.shape),), out_shape=(rows * layer.channels,))
    source = TapSource(b, layer, io, stream.segments.taps, stream.packing)
    params = io.constant("params", stream.data(), "int32")
    run = epilogue_run(b, io, layer, target=target, size=PIXELS * layer.channels)
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
    epilogue = int(-(-rows // PIXELS) * run_instructions(layer, run, size=PIXELS * layer.channels))
    instructions, code = estimate(layer, stream, rows) + epilogue, code_bytes(layer, stream, run)
    return lowered(io, layer, "arm_dsp.conv2d_chain", instructions, code, segments=stream.segments.count, unroll=unroll)


def columns(layer: FusedLayer) -> Array:
    """Return the weights as [K, O], with O padded to whole blocks."""
    return np.pad(layer.weight.reshape(layer.channels, -1).T, ((0, 0), (0, -layer.channels % CHANNELS)))


class LaneStream:
    """The packed constants of a layer: per block of 4 channels the words {wa + wb z, wc + wd z} of all taps, then the header.

    The header has, for each channel, the start value and the requantisation parameters that vary.  `weights`: [K, O], O padded to
    whole blocks; `taps`: taps in the stream, at least K; z = 2^bits.
    """

    def __init__(self, weights: Array, start: Array, requant: HighMultiply, *, taps: int, bits: int) -> None:
        self.channels, self.requant, self.taps = start.size, requant, taps
        self._weights, self._bits = weights, bits
        self._arrays = [start, *(f.values for f in requant.params if not f.uniform)]

    @property
    def block_words(self) -> int:
        return 2 * self.taps + CHANNELS * len(self._arrays)

    def data(self) -> Array:
        """Return the stream as int32."""
        weights = np.pad(self._weights, ((0, self.taps - self._weights.shape[0]), (0, 0)))
        words = (weights[:, 0::2] + (weights[:, 1::2] << self._bits)).reshape(self.taps, -1, 2).transpose(1, 0, 2)
        blocks = len(words)
        return (
            np.concatenate([words.reshape(blocks, -1), self._numbers().reshape(blocks, -1)], axis=1).reshape(-1).astype(np.int32)
        )

    def _numbers(self) -> Array:
        """Return the headers, [channels, padded][numbers]."""
        return np.stack([np.pad(a, (0, -self.channels % CHANNELS)) for a in self._arrays], axis=1)

    def each_block(self, b: IRBuilder) -> Iterator[tuple[Expr, int]]:
        return channel_blocks(b, self.channels, CHANNELS, loop=True)

    def base(self, n: Expr) -> Expr:
        """Return the word where block `n` begins."""
        return n * self.block_words

    def number(self, params: Buffer, base: Expr, row: int, j: int) -> Load:
        """Return int32 `row` (0: the start value) of channel j of the block at `base`."""
        return params[base + (2 * self.taps + len(self._arrays) * j + row)]

    def requant_loads(self, params: Buffer, base: Expr, j: int) -> Iterator[Expr]:
        """Iterate over the requantisation parameters of channel j of a block that are in the stream."""
        return (self.number(params, base, row, j) for row in range(1, len(self._arrays)))


class ChainStream(LaneStream):
    """The constants of a convolution, whose reduction is cut into segments."""

    def __init__(self, layer: FusedLayer, target: Target, config: ChainConfig) -> None:
        self.layer, self.config = layer, config
        self.multiplies_high = target.has("dsp")
        weights, self.segments, count = self.cut(layer)
        offsets = np.where(np.arange(layer.channels) % 2 == 0, LANE_OFFSET * count, 0)
        requant, added = best_requant(layer, target, count, common=config.common)
        self.scale = 1 << int(requant.prescale[0])
        self.packing = TRIPLE if config.common or target.has("dsp") else TRIPLE_LONG
        bias = self.scale * (layer.bias - offsets) + added
        super().__init__(weights, bias, requant, taps=self.segments.taps, bits=LANE_BITS)
        self.blocks, self.remainder = divmod(self.channels, CHANNELS)

    def cut(self, layer: FusedLayer) -> tuple[Array, Segments, int]:
        """Return the weights [K, O] in the order of the taps, the segments, and how many segments make a sum."""
        weights = columns(layer)
        segments = plan_segments(weights, self.config)
        return weights, segments, segments.count


@dataclass(frozen=True, slots=True)
class Place:
    """The buffers of a block: its constants, the packed pixels, and where its results go."""

    io: LayerIo
    params: Buffer
    words: Buffer
    run: EpilogueRun | None


def chain_sums(b: IRBuilder, loop: TapLoop, weights: Region, words: Region, *, taps: int) -> list[tuple[Expr, ...]]:
    """Return the sums of four channels x three pixels; those of even channels include LANE_OFFSET."""
    acc = chain_start(b)
    b.block(smlal_chain(loop), weights, words, acc, taps)
    return chain_end(b, acc)


def chain_start(b: IRBuilder) -> Buffer:
    """Return accumulators with the lanes' start values."""
    acc = b.local("acc", (8,), "uint32")
    for i in range(4):
        b.store(acc, 2 * i, imm(INIT_LOW, "uint32"))
        b.store(acc, 2 * i + 1, imm(INIT_HIGH, "uint32"))
    return acc


def chain_end(b: IRBuilder, acc: Buffer) -> list[tuple[Expr, ...]]:
    """Return the sums of pixels p, q, r of each channel; those of the first channel a of a pair are too large by LANE_OFFSET, for
    which the bias compensates.
    """
    lanes: list[tuple[Expr, ...]] = []
    mask = imm((1 << LANE_BITS) - 1, "uint32")
    for pair in range(2):
        low0, high0, low1, high1 = (acc[4 * pair + i] for i in range(4))
        ap = b.let("ap", cast("int32", low0 & mask))
        aq = b.let("aq", cast("int32", low1 & mask))
        bq = b.let("bq", cast("int32", high0) >> 10)
        br = b.let("br", cast("int32", high1) >> 10)
        bp = b.let("bp", cast("int32", CHAIN_MID(low0, high0)) - aq)
        ar = b.let("ar", cast("int32", CHAIN_MID(low1, high1)) - bq)
        lanes += [(ap, aq, ar), (bp, bq, br)]
    return lanes


def block_sums(b: IRBuilder, stream: ChainStream, params: Buffer, words: Buffer, n: Expr) -> list[tuple[Expr, ...]]:
    """Return the sums of block `n`: four channels x three pixels."""
    seg, base, loop = stream.segments, stream.base(n), stream.config.tap_loop(stream.segments.length)
    if seg.count == 1:
        return chain_sums(b, loop, region(params, base), region(words), taps=seg.length)
    sums = b.local("sum", (CHANNELS, PIXELS), "int32", init=0)
    with b.for_("segment", seg.count) as s:
        start = s * (2 * seg.length)
        add_lanes(b, sums, chain_sums(b, loop, region(params, base + start), region(words, start), taps=seg.length))
    return [tuple(sums[j, p] for p in range(PIXELS)) for j in range(CHANNELS)]


def add_lanes(b: IRBuilder, sums: Buffer, lanes: Sequence[Sequence[Expr]]) -> None:
    """Add the sums of a segment to int32 sums [CHANNELS, PIXELS]."""
    for j, channel in enumerate(lanes):
        for p, value in enumerate(channel):
            b.store(sums, (j, p), sums[j, p] + value)


def store_block(
    b: IRBuilder, stream: ChainStream, place: Place, lanes: Sequence[Sequence[Expr]], *, first: Expr, n: Expr, count: int
) -> None:
    """Requantise and store `count` channels of block `n` for the three pixels from `first` on."""
    io, params = place.io, place.params
    at = b.let("at", n * CHANNELS if place.run else first * stream.channels + n * CHANNELS)
    for j in range(count):
        base = stream.base(n)
        bias = b.let("bias", stream.number(params, base, 0, j))
        numbers = load_params(b, stream.requant, stream.requant_loads(params, base, j))
        values = (stream.requant.emit_scaled(b, scaled_sum(lanes[j][p], stream.scale, bias), numbers) for p in range(PIXELS))
        places = [at + (p * stream.channels + j) for p in range(PIXELS)]
        if place.run is None:
            io.store_all([(index,) for index in places], values)
        else:
            for index, value in zip(places, values, strict=True):
                place.run.store(index, value)


def scaled_sum(lane: Expr, scale: int, bias: Expr) -> Expr:
    """Return the scaled accumulator of a lane; if the scaled lane wraps around, adding the bias wraps it back."""
    if scale < 1 << min(WRAPPING_SCALES):
        return bias + lane * scale
    return cast("int32", cast("uint32", bias) + cast("uint32", lane) * imm(scale, "uint32"))


def code_bytes(layer: FusedLayer, stream: ChainStream, run: EpilogueRun | None) -> int:
    """Return the bytes of code (from sizes under GCC 12 at -O2)."""
    loop = stream.config.tap_loop(stream.segments.length)
    block = 350 + 24 * (loop.unroll + loop.rest) + 50 * stream.requant.signed + 120 * (stream.segments.count > 1)
    window = 0 if is_rows(layer) else 450 if any(layer.attrs.padding) else 200
    return 240 + block * (1 + bool(stream.remainder)) + window + (0 if run is None else run.code * len(layer.epilogue))


def estimate(layer: FusedLayer, stream: ChainStream, rows: int) -> int:
    """Return the instructions of one call less its epilogue: packing, products, lanes, requantisation (counts under QEMU)."""
    tiles, seg = -(-rows // PIXELS), stream.segments
    loop = stream.config.tap_loop(seg.length).instructions(seg.length)
    sums = (loop + (68 if seg.count > 1 else 13)) * seg.count
    if is_folded(stream.requant):
        high = -0.9 if seg.count == 1 else 0.5
    else:
        high = 0 if stream.multiplies_high else 5 if stream.requant.rounded else 1.5
    each = 7.6 + 2.1 * stream.requant.signed + high
    result = PIXELS * each + (0 if stream.requant.params[-1].uniform else 1.8)
    blocks = (stream.blocks + bool(stream.remainder)) * sums + stream.channels * result
    return int(tiles * (blocks + 18)) + _pack_instructions(layer, stream.packing, tiles)


def _pack_instructions(layer: FusedLayer, packing: Packing, tiles: int) -> int:
    """Return the instructions for packing all groups of pixels, and for the padded copy of a small image."""
    taps, runs = int(layer.weight[0].size), 1
    border = copy = 0.0
    groups = border_groups(layer, PIXELS)
    if not is_rows(layer):
        n, height, width, depth = layer.data_type.shape
        _, kh, kw, _ = layer.weight.shape
        runs = kh if layer.attrs.dilation[1] == 1 else kh * kw
        border = groups * (17.4 * taps + 59 * kh * kw)
        if any(layer.attrs.padding) and not groups:
            copy = n * height * (5.1 * width * depth + 5.3)
    step = max(u for u in range(1, packing.unroll + 1) if taps // runs % u == 0)
    iterations = 8.8 * taps / step if taps // runs > step else 0
    inside = 6.3 * taps + iterations + (14.5 * runs if runs > 1 else 0)
    return int((tiles - groups) * inside + border + copy)


for _name, _config, _plevel in (("conv2d_chain", CONFIG, 21), ("conv2d_chain_common", ChainConfig(common=True), 20)):
    register_impl(OpImplementation(f"arm_dsp.{_name}", "nn.conv2d", accepts, partial(lower, config=_config), _plevel))


# Large windows with little scratch memory: the window's rows one after another.  One row of the three windows is packed at a time
# and used by all channels, whose sums stay in scratch memory until the last row is done.  Scratch: 8 bytes per tap of one row (11
# with padding), 12 bytes per channel.

SUMS = CHANNELS * PIXELS
MAX_SEGMENTS = 256
"""With this many segments the lanes' offsets, and the sums that include them, stay well within 32 bits."""


def accepts_rows(group: Group, target: Target) -> bool:
    """Whether conv2d_chain accepts the layer and its window has several rows."""
    layer = match_layer(group, wide=True)
    if layer is None or layer.weight.ndim != 4 or layer.weight.shape[1] < 2 or is_rows(layer):
        return False
    return accepts(group, target) and layer.weight.shape[1] * plan_segments(_matrix(layer), CONFIG).count <= MAX_SEGMENTS


def _matrix(layer: FusedLayer) -> Array:
    """Return the weights as [KH, taps of a row, O], with O padded to whole blocks."""
    channels, height = layer.channels, layer.weight.shape[1]
    rows = layer.weight.reshape(channels, height, -1).transpose(1, 2, 0)
    return np.pad(rows, ((0, 0), (0, 0), (0, -channels % CHANNELS)))


class RowStream(ChainStream):
    """The packed constants of a layer: per window row and block of 4 channels the words of conv2d_chain, then all headers."""

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
        return 2 * self.taps

    def data(self) -> Array:
        weights = np.pad(self._weights, ((0, 0), (0, self.taps - self.depth), (0, 0)))
        words = weights[:, :, 0::2] + (weights[:, :, 1::2].astype(np.int64) << LANE_BITS)
        blocks = words.reshape(self.height, self.taps, self.row_blocks, 2).transpose(0, 2, 1, 3)
        return np.concatenate([blocks.reshape(-1), self._numbers().reshape(-1)]).astype(np.int32)

    def base(self, n: Expr) -> Expr:
        return n * (CHANNELS * len(self._arrays))

    def number(self, params: Buffer, base: Expr, row: int, j: int) -> Load:
        return params[base + (self.height * self.row_blocks * self.block_words + len(self._arrays) * j + row)]


def lower_rows(group: Group, target: Target, name: str) -> Lowered:
    """Lower a convolution: groups of three pixels; for each, sum the rows of the window one after another, then requantise."""
    layer = match_layer(group, wide=True)
    assert layer is not None
    stream, rows = RowStream(layer, target), prod(layer.out_type.shape[:-1])
    seg, loop = stream.segments, CONFIG.tap_loop(stream.segments.length)
    b = IRBuilder(name)
    align = data_align(layer) if any(layer.attrs.padding) else 1
    shape = (prod(layer.data_type.shape),)
    io = open_io(b, group, layer, data_shape=shape, out_shape=(rows * layer.channels,), data_align=align)
    words = b.scratch("words", (stream.block_words,), "int32")
    sums = b.scratch("sums", (stream.row_blocks * SUMS,), "int32")
    params = io.constant("params", stream.data(), "int32")
    run = epilogue_run(b, io, layer, target=target, size=PIXELS * layer.channels)
    place = Place(io, params, words, run)
    window = _Rows(b, layer, io.data, words)
    if stream.depth < seg.taps:
        with b.for_("z", stream.block_words, start=2 * stream.depth) as z:
            b.store(words, z, 0)
    with b.for_("t", -(-rows // PIXELS)) as tile:
        first = b.let("pixel", minimum(tile * PIXELS, rows - PIXELS)) if rows % PIXELS else tile * PIXELS
        with b.for_("z", stream.row_blocks * SUMS, step=4) as z:
            for u in range(4):
                b.store(sums, z + u, 0)
        pixels = window_pixels(b, layer, first, origin=layer.attrs.padding[:2], packing=TRIPLE)
        with b.for_("row", stream.height) as row:
            window.pack(pixels, row)
            with b.for_("n", stream.row_blocks) as n, b.for_("segment", seg.count) as s:
                weights = region(params, (row * stream.row_blocks + n) * stream.block_words + s * (2 * seg.length))
                lanes = chain_sums(b, loop, weights, region(words, s * (2 * seg.length)), taps=seg.length)
                for i, lane in enumerate(lane for channel in lanes for lane in channel):
                    b.store(sums, n * SUMS + i, sums[n * SUMS + i] + lane)
        for block, count in stream.each_block(b):
            kept = [[sums[block * SUMS + (j * PIXELS + p)] for p in range(PIXELS)] for j in range(count)]
            store_block(b, stream, place, kept, first=first, n=block, count=count)
        if run is not None:
            run.finish(first * layer.channels)
    epilogue = int(-(-rows // PIXELS) * run_instructions(layer, run, size=PIXELS * layer.channels))
    instructions, code = _estimate(layer, stream) + epilogue, _code(layer, stream, run)
    return lowered(io, layer, "arm_dsp.conv2d_chain_rows", instructions, code, segments=seg.count)


class _Rows:
    """Packs one row of three windows; runs that are partly outside the image are first copied to `lines`, with their padding."""

    def __init__(self, b: IRBuilder, layer: FusedLayer, data: Buffer, words: Buffer) -> None:
        self._b, self._layer, self._data, self._words, self._runs = b, layer, data, words, WindowRuns(layer)
        if any(layer.attrs.padding):
            self._lines: Buffer = b.scratch("lines", (PIXELS * self._runs.length,), "int8", align=4)
            self._bytes = RunBytes(b, layer, data, self._lines)

    def pack(self, pixels: Pixels, ky: Expr) -> None:
        """Pack row `ky` of the windows at `pixels`."""
        b, attrs, runs = self._b, self._layer.attrs, self._runs
        _, height, width, _ = self._layer.data_type.shape
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
                pack_runs(b, self._words, sources, runs.length, tap=tap, packing=TRIPLE)

    def _straight(self, places: Pixels, tap: Expr) -> None:
        b, (_, height, width, depth) = self._b, self._layer.data_type.shape
        starts: list[tuple[Buffer, Expr]] = [
            (self._data, b.let("s", ((image * height + row) * width + column) * depth)) for image, row, column in places
        ]
        pack_runs(b, self._words, starts, self._runs.length, tap=tap, packing=TRIPLE)


def _estimate(layer: FusedLayer, stream: RowStream) -> int:
    """Return the instructions of one call without its epilogue (from counts under QEMU)."""
    seg, tiles = stream.segments, -(-prod(layer.out_type.shape[:-1]) // PIXELS)
    taps = stream.height * stream.depth
    chain = CONFIG.tap_loop(seg.length).instructions(seg.length) + 62
    block = stream.height * (seg.count * chain + 10) + 12 * (8 + stream.requant.signed) + 20
    runs = WindowRuns(layer)
    pack = 8 * taps + 60 + 50 * stream.height * runs.columns
    border = PIXELS * copy_instructions(layer, runs.length) * _border_runs(layer)
    return int(tiles * (pack + stream.row_blocks * block) + border)


def _border_runs(layer: FusedLayer) -> int:
    """Estimate the triples of runs in which some run leaves the image, assuming that neighbouring pixels leave it together."""
    if not any(layer.attrs.padding):
        return 0
    runs, attrs, (images, rows, columns, _) = WindowRuns(layer), layer.attrs, layer.out_type.shape
    _, height, width, _ = layer.data_type.shape
    whole = inside(rows, runs.rows, 1, height, axis=(attrs.strides[0], attrs.dilation[0], attrs.padding[0]))
    whole *= inside(columns, runs.columns, runs.width, width, axis=(attrs.strides[1], attrs.dilation[1], attrs.padding[1]))
    return min(2 * images * (rows * columns * runs.count - whole), images * rows * columns * runs.count) // PIXELS


def _code(layer: FusedLayer, stream: RowStream, run: EpilogueRun | None) -> int:
    """Return the bytes of code (from sizes under GCC 12 at -O2)."""
    loop = CONFIG.tap_loop(stream.segments.length)
    block = 250 + 24 * (loop.unroll + loop.rest)
    store = (200 + 50 * stream.requant.signed) * (1 + bool(stream.channels % CHANNELS))
    window = 700 if any(layer.attrs.padding) else 200
    return int(300 + block + store + window + (0 if run is None else run.code * len(layer.epilogue)))


register_impl(OpImplementation("arm_dsp.conv2d_chain_rows", "nn.conv2d", accepts_rows, lower_rows, plevel=9, small=True))


# ---- fully connected layers: the weights of two channels share a word ----

ROW_BITS = 23
ROW_OFFSET = 1 << (ROW_BITS - 1)
"""Start value of the low lane, whose sum must stay within [-ROW_OFFSET, ROW_OFFSET)."""
STEP = 2
"""Taps per iteration: four words of weights, two words of data."""
MAX_ROWS = 2
"""Pointwise convolutions of more pixels are left to conv2d."""


def row_loop(taps: int) -> TapLoop:
    """Return straight code for few taps, else a loop over 16; `taps` is a multiple of STEP."""
    return TapLoop(0, taps) if taps < 2 * MAX_UNROLL else TapLoop(MAX_UNROLL, taps % MAX_UNROLL)


@cache
def smlal_pairs(loop: TapLoop) -> TensorIntrin:
    """acc[2] += the products of `taps` taps: 4 channels (two words per tap) by one row (one word per tap)."""
    words = ["r4", "r5", "r6", "r8"]
    step = [f"ldmia %[wp]!, {{{', '.join(words)}}}", "ldrd %[x0], %[x1], [%[xp]], #8"]
    step += [f"smlal %[a{i}l], %[a{i}h], {words[2 * t + i]}, %[x{t}]" for t in range(2) for i in range(2)]
    text: list[str | Repeat] = []
    if loop.unroll:
        text += ["1:", Repeat(loop.unroll // STEP, step), "cmp %[xp], %[end]", "bne 1b"]
    text += [Repeat(loop.rest // STEP, step)] if loop.rest else []

    def factors(b: IRBuilder, w: Buffer, x: Buffer, k: Expr) -> Sums:
        value = b.let("value", cast("int64", x[k]))
        return [(cast("int64", w[2 * k + i]), value) for i in range(2)]

    def emit(operands: Operands) -> BlockText:
        outs = [f'[{n}] "+r"({s})' for n, s in zip(("a0l", "a0h", "a1l", "a1h"), operands["acc"].scalars, strict=True)]
        end = {"xp:r": f"4 * ({operands['taps'].value} - {loop.rest})"} if loop.unroll else {}
        return asm(
            operands, text, "wp=w xp=x", end=end, first=outs, temporaries=("x0", "x1"), temporaries_first=True, kind="+",
            clobbers=words,
        )  # fmt: skip

    return smlal_block("smlal_pairs", loop, 2, factors, emit)


def plan_dense(group: Group, target: Target) -> tuple[FusedLayer, LaneStream] | None:
    """Accept sums within a lane and the short requantisation; with DSP only nine-bit weights, as others have better kernels."""
    layer = match_layer(group, wide=True)
    if layer is None or not target.has("thumb2") or not supports_epilogue(layer) or not is_rows(layer):
        return None
    if target.has("dsp") and match_layer(group) is not None:
        return None
    if layer.weight.ndim > 2 and prod(layer.out_type.shape[:-1]) > MAX_ROWS:
        return None
    if 128 * int(np.abs(layer.weight.reshape(layer.channels, -1)).sum(axis=1).max()) >= ROW_OFFSET:
        return None
    requant = short_form(layer, target) if int(np.abs(layer.bias).max()) < 1 << 29 else None
    if requant is None:
        return None
    start, depth = 2 * (layer.bias - np.where(np.arange(layer.channels) % 2 == 0, ROW_OFFSET, 0)), int(layer.weight[0].size)
    return layer, LaneStream(columns(layer), start, requant, taps=depth + depth % STEP, bits=ROW_BITS)


def lower_dense(group: Group, _target: Target, name: str, plan: tuple[FusedLayer, LaneStream]) -> Lowered:
    """Lower rows: for each, widen the data to words, then blocks of four channels."""
    (layer, stream), depth, taps = plan, int(plan[0].weight[0].size), plan[1].taps
    rows, loop = prod(layer.out_type.shape[:-1]), row_loop(taps)
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(rows * depth,), out_shape=(rows * layer.channels,))
    params = io.constant("params", stream.data(), "int32")
    words = b.scratch("words", (taps,), "int32")
    if taps > depth:
        b.store(words, depth, 0)
    step = max(u for u in (4, 3, 2, 1) if depth % u == 0)
    with b.for_("m", rows) as m:
        number = m if layer.out_type.dtype == "int8" else rows - 1 - m
        with b.for_("k", depth, step=step) as k:
            for u in range(step):
                b.store(words, k + u, cast("int32", io.data.load("int8", number * depth + k + u)))
        for n, count in stream.each_block(b):
            base = b.let("base", stream.base(n))
            sums = _row_sums(b, loop, region(params, base), words, taps)
            for j in range(count):
                requant_params = channel_params(stream.requant, stream.requant_loads(params, base, j))
                value = stream.requant.emit_scaled(b, stream.number(params, base, 0, j) + sums[j] * 2, requant_params)
                io.store((number * layer.channels + n * CHANNELS + j,), value)
    (whole, remainder), blocks = divmod(layer.channels, CHANNELS), -(-layer.channels // CHANNELS)
    each = 6 * taps // STEP + (2 * (taps // loop.unroll) if loop.unroll else 0)
    each += CHANNELS * (10 + epilogue_each(layer)) + 18
    code = 80 + (180 + 40 * len(layer.epilogue) + 13 * (loop.unroll + loop.rest)) * (bool(whole) + bool(remainder))
    return lowered(io, layer, "arm_dsp.dense_chain", rows * (3 * depth + blocks * each + 20), code, unroll=loop.unroll)


def _row_sums(b: IRBuilder, loop: TapLoop, weights: Region, words: Buffer, taps: int) -> list[Expr]:
    """Return the sums of four channels; those of even ones are too large by ROW_OFFSET."""
    acc = b.local("acc", (4,), "uint32")
    for i in range(2):
        b.store(acc, 2 * i, imm(ROW_OFFSET, "uint32"))
        b.store(acc, 2 * i + 1, imm(0, "uint32"))
    b.block(smlal_pairs(loop), weights, words, acc, imm(taps))
    sums: list[Expr] = []
    for low, high in ((acc[0], acc[1]), (acc[2], acc[3])):
        sums.append(b.let("first", cast("int32", low & imm((1 << ROW_BITS) - 1, "uint32"))))
        both = (low >> imm(ROW_BITS, "uint32")) | (high << imm(32 - ROW_BITS, "uint32"))
        sums.append(b.let("second", cast("int32", both)))
    return sums


for _anchor in ("nn.dense", "nn.conv2d"):
    register_planned("arm_dsp.dense_chain", _anchor, plan_dense, lower_dense, plevel=31)
