"""Layers of int8 for Armv6-M, which multiplies 32 by 32 bits to 32 bits: three sums in two words (aot/topi/layer/planes.py).

Six multiply-accumulates cost four MULS and four ADD.

`conv2d`: six output pixels share words.  They are packed once and then used for all channels.  Scratch memory: 16 bytes per tap;
for small padded images also a padded copy.  Weights stay one byte each, channels are filled up to a multiple of 16.

`dense`: one row, so six channels share words instead of pixels: weights take 2.7 bytes each.  Three or fewer remaining channels
form a block of half the width.  Scratch memory: one byte per input, the row with 128 added to make it unsigned.  The sums of a
segment of the row start at the middle of their range, negated, so that they fit the lanes.

`depthwise`: a window's taps for six pixels of a plane.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.op.qnn.quantize import RequantizeAttrs
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, cast, imm, select
from aot.tir.intrin import BlockText, TensorIntrin
from aot.topi.intrin.asm_text import Operands, Repeat, asm, block_of
from aot.topi.layer.fused import FusedLayer, LayerIo, epilogue_each, lowered, match_for, open_flat
from aot.topi.layer.im2col import Packing, TapLoop, TapSource, border_groups, first_pixel, is_rows, match_rows
from aot.topi.layer.planes import BITS, LIMIT, WORDS, LaneRequant, Machine, Numbers, Taps, register_lanes, three_sums
from aot.topi.layer.requant import RequantParam, plan_requantize, thresholds
from aot.topi.strategy import Group, Lowered, register_planned

SIX = Packing(6, BITS, (0, 1, 3, 4))
PIXELS = CHANNELS = SIX.pixels
UNIFIED = ".syntax unified"


def _products(words: int = WORDS) -> list[str]:
    """The products of r4 with the words in r0 and up, added to the sums."""
    return [line for i in range(words) for line in (f"muls r{i}, r4, r{i}", f"add %[a{i}], r{i}")]


# ---- requantisation with two 32-bit products, proven by thresholds ----
#
# TFLite's requantisation needs a 64-bit product, about 95 instructions in software on these cores; two 32-bit products take 14.
# Requantisation is monotone (aot/topi/layer/requant.py), so its thresholds determine it.  Let
# u = acc - (first threshold) + 1.  A result is lo for u <= 0, hi for u >= span, and otherwise
#
#     lo + ((u * high + (u * low >> split) + constant) >> shift),
#
# where high * 2^split + low is the channel's multiplier scaled to 64 - 2U bits, and U is the number of bits of the largest u <
# span.  Then both products fit 32 bits.  The constant is chosen such that every threshold is right.  If no constant does this,
# because halves of negative values are rounded away from zero, negative accumulators (u < zero) get a constant of their own.  If
# that fails too, the layer uses another form.  The subtraction of the first threshold is part of the bias.

WORD = 32
CODE_BITS = 8
LEAST_SPLIT = 8
"""Fewest bits of each half of the multiplier for which a constant is likely to exist."""


@dataclass(frozen=True, slots=True)
class TwoProducts:
    """The form above; parameters: high, low, constant, span, shift, and if needed zero and the constant below it."""

    params: tuple[RequantParam, ...]
    split: int
    lo: int
    hi: int

    def emit(self, _b: IRBuilder, acc: Expr, requant_params: tuple[Expr, ...]) -> Expr:
        """The int32 result for u."""
        high, low, constant, span, shift, *negative = requant_params
        if negative:
            constant = select(acc < negative[0], negative[1], constant)
        u = cast("uint32", acc)
        product = u * cast("uint32", high) + ((u * cast("uint32", low)) >> imm(self.split, "uint32"))
        code = (product + cast("uint32", constant)) >> cast("uint32", shift)
        inner = cast("int32", code) + self.lo
        return select(acc <= 0, imm(self.lo), select(acc >= span, imm(self.hi), inner))


INSTRUCTIONS = 14
"""Instructions per result with two products, including its store."""
SIGNED = 9
"""Further instructions if negative accumulators have a constant of their own."""
UNSIGNED_FIELDS = 5
SLOW = 95
"""Instructions per result with 64-bit products in software."""


def instructions(requant: LaneRequant) -> int:
    """Instructions per result, including its store (from counts under QEMU)."""
    if not isinstance(requant.form, TwoProducts):
        return SLOW
    return INSTRUCTIONS + SIGNED * (len(requant.form.params) > UNSIGNED_FIELDS)


def choose_requant(layer: FusedLayer, target: Target) -> LaneRequant:
    """The best form for a layer's accumulators."""
    attrs, low, high = layer.requant, layer.acc_low, layer.acc_high
    two_products = plan_two_products(attrs, low, high)
    return two_products or LaneRequant(plan_requantize(attrs, low, high, target), np.zeros_like(low))


def plan_two_products(attrs: RequantizeAttrs, low: Array, high: Array) -> LaneRequant | None:
    """The form with two products; None if it is not exact for some channel."""
    at = thresholds(attrs, low, high) if attrs.dtype == "int8" and not attrs.fraction and attrs.hi > attrs.lo else None
    if at is None:
        return None
    reached = (at > low) & (at <= high)
    below = (at <= low).sum(axis=0)  # thresholds at or below the lowest accumulator
    base = np.where(below > 0, low, at[0]) - 1
    span = np.where(reached[-1] | (at[-1] <= low), at[-1], high + 1) - base
    bits = max(int(span.max() - 1).bit_length(), 1)
    split = WORD - bits
    if split < LEAST_SPLIT or (span < 1).any():
        return None
    multiplier = np.broadcast_to(np.asarray(attrs.multiplier, np.float64), low.shape)
    scale = np.ldexp(multiplier, np.broadcast_to(np.asarray(attrs.shift, np.int64), low.shape) - 31)
    shift = np.minimum(WORD - CODE_BITS - 1, 2 * split - 1 - np.ceil(np.log2(scale) + split).astype(np.int64))
    number = np.rint(np.ldexp(scale, (shift + split).astype(np.int64))).astype(np.int64)
    if (shift < 1).any() or (number < 1).any() or (number >= 1 << (2 * split)).any():
        return None
    values = {"high": number >> split, "low": number & ((1 << split) - 1), "constant": shift, "span": span, "shift": shift}
    constant = partial(_constant, at - base, lambda u: (u * number) >> split, shift)
    everywhere = constant(np.ones_like(span), span)
    if everywhere is not None:
        values["constant"] = everywhere
    else:
        zero = np.clip(-base, 1, span)
        below, above = constant(np.ones_like(span), zero), constant(zero, span)
        if below is None or above is None:
            return None
        values |= {"constant": above, "zero": zero, "below": below}
    form = TwoProducts(tuple(RequantParam(n, v) for n, v in values.items()), split, attrs.lo, attrs.hi)
    return LaneRequant(form, base)


def _constant(at: Array, product: Callable[[Array], Array], shift: Array, start: Array, stop: Array) -> Array | None:
    """The constants with which products step at the thresholds `at` (given as u), for start <= u < stop; None if there are none.

    Each threshold is checked on both sides, provided that the side is in this range.
    """
    codes = np.arange(1, at.shape[0] + 1).reshape(-1, 1) << shift
    far = np.int64(1) << 40
    least = np.where((at >= start) & (at < stop), codes - product(at), -far).max(axis=0)
    most = np.where((at > start) & (at <= stop), codes - 1 - product(at - 1), far).min(axis=0)
    passed = (at <= start).sum(axis=0)  # thresholds below the whole range; the first one above it
    reached = (at < stop).sum(axis=0) + 1
    used = start < stop
    least = np.maximum(least, np.where(used, (passed << shift) - product(start), -far))
    most = np.minimum(most, np.where(used, (reached << shift) - 1 - product(stop - 1), far))
    most = np.minimum(most, np.where(used, (np.int64(1) << WORD) - 1 - product(stop), far))
    constant = np.where(used, np.where(most == far, least, (least + most) >> 1), 0)
    if (least > most).any() or (np.abs(constant) >= 1 << 31).any():
        return None
    return constant if (~used | (constant + product(start) >= 0)).all() else None


# ---- runs of inputs ----


@dataclass(frozen=True, slots=True)
class _Plan:
    """`segments` runs of at most `length` inputs, each short enough that its sums fit the lanes."""

    layer: FusedLayer
    requant: LaneRequant
    segments: int
    length: int

    @property
    def rows(self) -> int:
        return prod(self.layer.out_type.shape[:-1])

    @property
    def matrix(self) -> Array:
        """The weights [O, K]."""
        return self.layer.weight.reshape(self.layer.channels, -1)

    @property
    def bias(self) -> Array:
        return self.layer.bias - self.requant.base


def _planned(layer: FusedLayer | None, target: Target, *, largest: int, limit: int) -> _Plan | None:
    """The fewest segments in which `largest` * (sum of |w|) stays below `limit`; one tap always does."""
    if layer is None:
        return None
    matrix = np.abs(layer.weight.reshape(layer.channels, -1))
    depth = matrix.shape[1]
    for segments in range(1, depth + 1):
        length = -(-depth // segments)
        sums = np.pad(matrix, ((0, 0), (0, segments * length - depth))).reshape(-1, segments, length).sum(axis=2)
        if largest * int(sums.max()) < limit:
            return _Plan(layer, choose_requant(layer, target), segments, length)
    raise AssertionError("one tap always fits")


# ---- conv2d ----

STRIDE = 4 * WORDS
"""Bytes between a channel's weights; equal to the bytes of data per tap, so that one register addresses both."""
TAP = 2 + 2 * WORDS
"""Instructions per tap."""
_UNROLL = 8


def tap_loop(taps: int, unroll: int = _UNROLL, straight: int = 2 * _UNROLL) -> TapLoop:
    """Straight-line code for up to `straight` taps, else loop bodies of `unroll`."""
    return TapLoop(0, taps) if taps <= straight else TapLoop(unroll, taps % unroll)


@cache
def mul_lanes(loop: TapLoop) -> TensorIntrin:
    """acc[4] += the words of `taps` taps times a channel's weights.

    Operands: w int8, one every `STRIDE` bytes; x int32[4 * taps]; acc uint32[4]; taps, which must suit `loop`.  10 instructions
    per tap: LDRSB, LDMIA, four MULS in place, four ADD to high registers.  The weights' pointer is kept as its distance from x,
    so LDMIA advances both.
    """
    taps = Var("taps")
    b = IRBuilder(f"mul_lanes_{loop.unroll}_{loop.rest}")
    w = b.input("w", (UNKNOWN_EXTENT,), "int8")
    x = b.input("x", (UNKNOWN_EXTENT,), "int32", align=4)
    acc = b.output("acc", (WORDS,), "uint32")
    with b.for_("k", taps if loop.unroll else loop.rest) as k:
        weight = b.let("weight", cast("uint32", cast("int32", w[k * STRIDE])))
        for i in range(WORDS):
            b.store(acc, i, acc[i] + weight * cast("uint32", x[k * WORDS + i]))
    return block_of(b, "arm_v6m", lambda ops: _emit_lanes(ops, loop), taps)


def _emit_lanes(operands: Operands, loop: TapLoop) -> BlockText:
    step = ["ldrsb r4, [%[w], %[x]]", "ldmia %[x]!, {r0, r1, r2, r3}", *_products()]
    text: list[str | Repeat] = [UNIFIED]
    text += ["1:", Repeat(loop.unroll, step), "cmp %[x], %[end]", "bne 1b"] if loop.unroll else []
    text += [Repeat(loop.rest, step)] if loop.rest else []
    looped = operands["taps"].value + (f" - {loop.rest}" if loop.rest else "")
    distance = f"const uintptr_t aot_w = (uintptr_t){operands['w'].pointer} - (uintptr_t)aot_x;"
    end = f"const void *const aot_end = (const uint8_t *)aot_x + {STRIDE} * ({looped});"
    ins = {"w:l": "aot_w", **({"end:h": "aot_end"} if loop.unroll else {})}
    before = [distance, *([end] if loop.unroll else [])]
    clobbers = [f"r{i}" for i in range(5)]
    return asm(operands, text, "x", ins, low="x", kind="+", acc="a:h", before=before, clobbers=clobbers)


def _plan_conv2d(group: Group, target: Target) -> _Plan | None:
    plan = _planned(match_for(group, target, "v6m"), target, largest=128, limit=LIMIT)
    return plan if plan is not None and plan.rows >= PIXELS else None


def _fits(plan: _Plan) -> bool:
    """Whether sums may start with the bias and still fit the lanes."""
    low, high = (a - plan.requant.base for a in (plan.layer.acc_low, plan.layer.acc_high))
    return plan.segments == 1 and bool((low >= -LIMIT).all()) and bool((high < LIMIT).all())


def pack_weights(matrix: Array, taps: int) -> Array:
    """[O, K] as int8 [blocks of STRIDE channels][taps][STRIDE]."""
    padded = np.pad(matrix, ((0, -matrix.shape[0] % STRIDE), (0, taps - matrix.shape[1])))
    return np.ascontiguousarray(padded.reshape(-1, STRIDE, taps).transpose(0, 2, 1)).reshape(-1).astype(np.int8)


def _lower_conv2d(group: Group, _target: Target, name: str, plan: _Plan) -> Lowered:
    layer, rows, taps = plan.layer, plan.rows, plan.segments * plan.length
    b = IRBuilder(name)
    io = open_flat(b, group, layer)
    source = TapSource(b, layer, io, taps, SIX)
    numbers = Numbers(b, io, plan.bias * (1 + (1 << BITS)) if _fits(plan) else plan.bias, plan.requant.form)
    weights = io.constant("weights", pack_weights(plan.matrix, taps), "int8")
    with b.for_("t", -(-rows // PIXELS)) as tile:
        first = first_pixel(b, layer, tile * PIXELS, last=imm(rows - PIXELS), even=rows % PIXELS == 0)
        source.pack(first)
        at = b.let("at", first * layer.channels)
        with b.for_("c", layer.channels) as c:
            w = b.let("w", (c >> 4) * (STRIDE * taps) + (c & (STRIDE - 1)))
            sums = _pixel_sums(b, plan, source.words, weights, w=w, start=numbers.start(c))
            requant_params = numbers.requant_params(c)
            for p, value in enumerate(sums):
                io.store((at + c + p * layer.channels,), plan.requant.form.emit(b, value, requant_params))
    # instructions from counts under QEMU
    loop = tap_loop(plan.length)
    block = TAP * plan.length + (2 * (plan.length // loop.unroll) if loop.unroll else 0) + 30
    each = plan.segments * block + PIXELS * (instructions(plan.requant) + epilogue_each(layer)) + 24
    pack = 26 * taps + 40 + (0 if is_rows(layer) else 80 + 40 * layer.weight.shape[1])
    total = -(-rows // PIXELS) * (pack + layer.channels * each) + 50 * taps * border_groups(layer, PIXELS)
    window = 0 if is_rows(layer) else 900 if any(layer.attrs.padding) else 300
    code = 700 + 2 * TAP * (loop.unroll + loop.rest) + window + 400 * len(layer.epilogue)
    return lowered(io, layer, "arm_v6m.conv2d", total, code, segments=plan.segments)


def _pixel_sums(b: IRBuilder, plan: _Plan, words: Buffer, weights: Buffer, *, w: Expr, start: Expr) -> list[Expr]:
    """A channel's sum for each pixel, bias included."""
    loop = tap_loop(plan.length)

    def segment(init: Expr, skipped: Expr) -> list[Expr]:
        acc = b.local("acc", (WORDS,), "uint32", init=init)
        b.block(mul_lanes(loop), region(weights, w + skipped * STRIDE), region(words, skipped * WORDS), acc, plan.length)
        return [*three_sums(b, acc, 0), *three_sums(b, acc, 2)]

    if _fits(plan):
        return segment(b.let("start", cast("uint32", start)), imm(0))
    total = b.local("total", (PIXELS,), "int32", init=0)
    for p in range(PIXELS):
        b.store(total, p, start)
    if plan.segments == 1:
        return [total[p] + value for p, value in enumerate(segment(imm(0, "uint32"), imm(0)))]
    with b.for_("segment", plan.segments) as s:
        for p, value in enumerate(segment(imm(0, "uint32"), s * plan.length)):
            b.store(total, p, total[p] + value)
    return [total[p] for p in range(PIXELS)]


register_planned("arm_v6m.conv2d", "nn.conv2d", _plan_conv2d, _lower_conv2d, plevel=20)

# ---- dense, and pointwise convolutions of a few pixels ----

MAX_ROWS = 5
"""Pointwise convolutions with more pixels belong to conv2d."""
OFFSET = 128
HIGHEST = 255
"""Largest value of the data after OFFSET is added."""
UNROLL = 12
"""Taps in the body of the loop: as many as a conditional branch can jump over."""


word_loop = partial(tap_loop, unroll=UNROLL, straight=2 * UNROLL - 1)


@cache
def dot_words(loop: TapLoop, words: int) -> TensorIntrin:
    """acc[words] += words of weights times a row: six channels in four words, or three in two.

    Operands: w int32[words * taps]; x uint8[taps]; acc uint32[words]; taps, which must suit `loop`.  2 + 2 * words instructions
    per tap.
    """
    taps = Var("taps")
    b = IRBuilder(f"dot_{'words' if words == 4 else 'pair'}_{loop.unroll}_{loop.rest}")
    w = b.input("w", (UNKNOWN_EXTENT,), "int32", align=4)
    x = b.input("x", (UNKNOWN_EXTENT,), "uint8")
    acc = b.output("acc", (words,), "uint32")
    with b.for_("k", taps if loop.unroll else loop.rest) as k:
        value = b.let("value", cast("uint32", x[k]))
        for i in range(words):
            b.store(acc, i, acc[i] + cast("uint32", w[k * words + i]) * value)
    return block_of(b, "arm_v6m", lambda ops: _emit_words(ops, loop), taps)


def _emit_words(operands: Operands, loop: TapLoop) -> BlockText:
    words = [f"r{i}" for i in range(len(operands["acc"].scalars))]

    def taps(count: int) -> list[str]:
        load = f"ldmia %[w]!, {{{', '.join(words)}}}"
        return [line for k in range(count) for line in (load, f"ldrb r4, [%[x], #{k}]", *_products(len(words)))]

    text = ["1:", *taps(loop.unroll), f"adds %[x], #{loop.unroll}", "cmp %[x], %[end]", "bne 1b"] if loop.unroll else []
    end = {"x:h": f"({operands['taps'].value} - {loop.rest})"} if loop.unroll else {}
    text = [UNIFIED, *text, *taps(loop.rest)]
    return asm(operands, text, "w x", low="w x", kind="+", acc="a:h", end=end, clobbers=[*words, "r4"])


def _plan_dense(group: Group, target: Target) -> _Plan | None:
    layer = match_rows(group, target, "v6m", pixels=MAX_ROWS)
    return _planned(layer, target, largest=HIGHEST, limit=2 * LIMIT - 2)


def _shared_words(channels: int) -> list[int]:
    """Words that the channels of each block share; half as many if the last block has three channels or fewer."""
    blocks = -(-channels // CHANNELS)
    return [WORDS] * (blocks - 1) + [WORDS if channels - CHANNELS * (blocks - 1) > CHANNELS // 2 else WORDS // 2]


def _stream(plan: _Plan) -> tuple[Array, Array]:
    """(words of the stream, remaining bias of each channel, added at the end).

    In each block, each segment's words follow the initial values of its sums.
    """
    channels = plan.layer.channels
    matrix = np.pad(plan.matrix, ((0, -channels % CHANNELS), (0, 0)))
    bias = np.pad(plan.bias, (0, -channels % CHANNELS)) - OFFSET * matrix.sum(axis=1)
    parts = []
    for s in range(plan.segments):
        run = matrix[:, s * plan.length : (s + 1) * plan.length]
        middle = -(HIGHEST * run.sum(axis=1)) // 2
        bias = bias - middle
        parts += [_words(middle.reshape(-1, 1)), _words(run)]
    blocks = np.concatenate(parts, axis=1)
    words = np.concatenate([block[:, :count].reshape(-1) for block, count in zip(blocks, _shared_words(channels), strict=True)])
    return words.astype(np.uint32).view(np.int32), bias[:channels]


def _words(values: Array) -> Array:
    """Pack [O, K] (O a multiple of six) into [blocks, K, WORDS] modulo 2^32."""
    firsts = np.array(SIX.firsts)
    six = values.reshape(-1, CHANNELS, values.shape[1]).transpose(0, 2, 1)
    packed: Array = (six[:, :, firsts] + (six[:, :, firsts + 1] << BITS)) & 0xFFFFFFFF
    return packed


def _lower_dense(group: Group, _target: Target, name: str, plan: _Plan) -> Lowered:
    layer, rows, depth = plan.layer, plan.rows, plan.matrix.shape[1]
    b = IRBuilder(name)
    io = open_flat(b, group, layer)
    words, bias = _stream(plan)
    numbers = Numbers(b, io, bias, plan.requant.form)
    weights = io.constant("weights", words, "int32")
    row = b.scratch("row", (depth,), "uint8")
    step = max(u for u in (4, 3, 2, 1) if depth % u == 0)
    blocks, remainder = divmod(layer.channels, CHANNELS)
    with b.for_("m", rows) as m:
        number = m if layer.out_type.dtype == "int8" else rows - 1 - m
        with b.for_("k", depth, step=step) as k:
            for u in range(step):
                b.store(row, k + u, cast("int32", io.data.load("int8", number * depth + k + u)) + OFFSET)
        with b.for_("n", blocks) as n:
            _block(b, plan, io, (numbers, weights, row), n=n, m=number, count=CHANNELS)
        if remainder:
            _block(b, plan, io, (numbers, weights, row), n=imm(blocks), m=number, count=remainder)
    shared, loop = _shared_words(layer.channels), word_loop(plan.length)
    loops = (3 * (plan.length // loop.unroll) if loop.unroll else 0) * plan.segments + 14 * plan.segments
    each = loops + CHANNELS * (instructions(plan.requant) + 6) + 20
    taps = depth * sum(2 + 2 * n for n in shared)
    cost = rows * (6 * depth + taps + len(shared) * each + layer.channels * epilogue_each(layer) + 12)
    block = 500 + 200 * len(layer.epilogue) + 22 * (loop.unroll + loop.rest) * plan.segments
    return lowered(io, layer, "arm_v6m.dense", cost, 150 + block * (bool(blocks) + bool(remainder)), segments=plan.segments)


def _block(
    b: IRBuilder, plan: _Plan, io: LayerIo, place: tuple[Numbers, Buffer, Buffer], *, n: Expr, m: Expr, count: int
) -> None:
    """Compute block `n` for row `m` and store `count` of its channels."""
    numbers, weights, row = place
    channels, depth = plan.layer.channels, plan.matrix.shape[1]
    words = WORDS if count > CHANNELS // 2 else WORDS // 2
    at = n * (WORDS * (depth + plan.segments))
    totals: list[Expr] = []
    for s in range(plan.segments):
        length = min(plan.length, depth - s * plan.length)
        acc = b.local("acc", (words,), "uint32")
        first = at + s * words * (plan.length + 1)
        for i in range(words):
            b.store(acc, i, cast("uint32", weights[first + i]))
        b.block(dot_words(word_loop(length), words), region(weights, first + words), region(row, s * plan.length), acc, length)
        sums = [total for i in range(0, words, 2) for total in three_sums(b, acc, i)]
        totals = [b.let("total", a + v) for a, v in zip(totals, sums, strict=True)] if totals else sums
    for j in range(count):
        channel = n * CHANNELS + j
        acc_j = b.let("acc", totals[j] + numbers.start(channel))
        io.store((m * channels + channel,), plan.requant.form.emit(b, acc_j, numbers.requant_params(channel)))


for _anchor in ("nn.dense", "nn.conv2d"):
    register_planned("arm_v6m.dense", _anchor, _plan_dense, _lower_dense, plevel=22)

# ---- depthwise ----


def _row(taps: Taps, ky: int) -> list[str]:
    """The taps of a row of the window: LDR, MULS in place and ADD."""
    text = []
    for kx in range(taps.columns):
        places = [f"[%[{'xy'[i // 2]}], #{4 * (kx * taps.dilation + (i % 2) * taps.stride)}]" for i in range(WORDS)]
        text += [f"movs r4, #{ky * taps.columns + kx}", "ldrsb r4, [%[w], r4]"]
        text += [*(f"ldr r{i}, {place}" for i, place in enumerate(places)), *_products()]
    return text


V6M = Machine(
    "arm_v6m.depthwise", "arm_v6m.mul", "v6m", "lh", row=_row,
    head=(UNIFIED,), clobbers=("r0", "r1", "r2", "r3", "r4"), reach=31, requantise=choose_requant, result_cost=instructions,
    group_cost=50,
)  # fmt: skip
register_lanes(V6M, plevel=20)
