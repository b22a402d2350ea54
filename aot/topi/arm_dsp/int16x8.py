"""Layers of 16-bit data and 8-bit weights whose sums provably fit 32 bits: weights in pairs for SMLAD, two bytes each in flash.

The reference sums in 64 bits.  The sum of a channel is below 32768 * sum |w| + |bias|; if that is below 2^31 for every channel,
32 bits are exact, and SMLAD does two products per instruction where 64 bits would need an SMLAL for each.

`conv2d_16x8`: blocks of two pixels x four channels; the windows of both pixels are packed as pairs (scratch: eight bytes per pair
of taps).  `dense_16x8`: blocks of one row x four channels, straight from the data.  With an epilogue, both keep results in
scratch memory, two bytes each, as the block of assembly leaves no registers for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from itertools import count
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.op.qnn.quantize import RequantizeAttrs
from aot.relay.expr import tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, clamp, imm, logical_and, minimum
from aot.tir.intrin import BlockText, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.intrin.asm_text import Operands, Repeat, asm, block_of
from aot.topi.intrin.scalar import saturate, smlad_2x4, smlad_2x4_instructions
from aot.topi.layer.fused import FusedLayer, LayerIo, epilogue_instructions, lowered, match_layer, open_io, supports_epilogue
from aot.topi.layer.im2col import is_rows, window_at
from aot.topi.layer.requant import General, Requant, RequantParam, load_params, plan_requantize
from aot.topi.strategy import Group, Lowered, register_planned

PIXELS = 2


def plan_conv2d(group: Group, target: Target) -> tuple[FusedLayer, AnyRequant] | None:
    """Accept convolutions of at least two pixels."""
    match = match_16x8(group, target)
    if match is None or match[0].weight.ndim != 4 or prod(match[0].out_type.shape[:-1]) < PIXELS:
        return None
    return match


def lower_conv2d(group: Group, _target: Target, name: str, plan: tuple[FusedLayer, AnyRequant]) -> Lowered:
    """Lower a convolution: pairs of pixels; for each, pack both windows, then blocks of four channels."""
    layer, requant = plan
    rows = prod(layer.out_type.shape[:-1])
    stream = PairStream(layer, requant)
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(layer.data_type.size,), out_shape=(rows * layer.channels,), data_align=4)
    params = io.constant("params", stream.data(), "int32")
    words = b.scratch("words", (stream.pairs, PIXELS, 2), "int16", align=4)
    results = b.scratch("results", (PIXELS * layer.channels,), "int16") if layer.epilogue else None
    if layer.weight[0].size % 2:
        for p in range(PIXELS):
            b.store(words, (stream.pairs - 1, p, 1), 0)
    with b.for_("t", -(-rows // PIXELS)) as t:
        first = t * PIXELS if rows % PIXELS == 0 else b.let("pixel", minimum(t * PIXELS, rows - PIXELS))
        for p in range(PIXELS):
            _pack(b, layer, io, words, index=first + p, p=p)
        for n, count in stream.blocks(b):
            _conv2d_block(b, stream, io, (params, words, results), first=first, n=n, count=count)
        if results is not None:
            with b.for_("c", PIXELS * layer.channels) as c:
                io.store((first * layer.channels + c,), cast("int32", results[c]))
    taps, (whole, remainder) = layer.weight.shape[1] * layer.weight.shape[2], divmod(layer.channels, CHANNELS)
    pack = PIXELS * (taps * (14 + layer.weight.shape[3] * (2 if layer.weight.shape[3] % 2 == 0 else 6)) + 20)
    each = PIXELS * (4 + stream.long_products) + stream.numbers + 2
    counts = [CHANNELS] * whole + [remainder] * (remainder > 0)
    blocks = sum(smlad_2x4_instructions(c) * stream.pairs + stream.pairs // 2 + c * each + 24 for c in counts)
    instructions = -(-rows // PIXELS) * (pack + blocks + 8) + epilogue_instructions(layer)
    return lowered(io, layer, "arm_dsp.conv2d_16x8", instructions, 900 + 200 * len(layer.epilogue), pixels=PIXELS)


Buffers = tuple[Buffer, Buffer, Buffer | None]
"""Parameters, packed windows, results before the epilogue."""


def _conv2d_block(b: IRBuilder, stream: PairStream, io: LayerIo, buffers: Buffers, *, first: Expr, n: Expr, count: int) -> None:
    """Compute `count` channels of two pixels, of a block of four in the stream."""
    params, words, results = buffers
    acc = b.local("acc", (PIXELS, count), "int32")
    for j in range(count):
        b.store(acc, (0, j), stream.number(params, n, 0, j))
    b.block(smlad_2x4(stream.pairs, count), words, stream.weights(params, n), acc)
    for j in range(count):
        requant_params = stream.requant_params(b, params, n, j)
        for p in range(PIXELS):
            value = stream.result(b, acc[p, j], requant_params)
            if results is None:
                io.store(((first + p) * stream.channels + n * CHANNELS + j,), value)
            else:
                b.store(results, n * CHANNELS + (p * stream.channels + j), value)


def _pack(b: IRBuilder, layer: FusedLayer, io: LayerIo, words: Buffer, *, index: Expr, p: int) -> None:
    """Pack the window of a pixel, with zeros outside the image."""
    attrs, (_, height, width, depth) = layer.attrs, layer.data_type.shape
    _, kh, kw, _ = layer.weight.shape
    image, y, x = window_at(b, layer, index, origin=attrs.padding[:2])
    joined = attrs.dilation[1] == 1 and not any(attrs.padding)
    length = kw * depth if joined else depth
    with b.for_("ky", kh) as ky, b.for_("kx", 1 if joined else kw) as kx:
        row, column = b.let("row", y + ky * attrs.dilation[0]), b.let("column", x + kx * attrs.dilation[1])
        start = b.let("start", ((image * height + row) * width + column) * depth)
        tap = b.let("tap", (ky * kw + kx) * depth)
        copy = partial(_copy, b, words, start=start, tap=tap, length=length, p=p, by_words=depth % 2 == 0)
        if not any(attrs.padding):
            copy(io.data)
        else:
            inside = logical_and(logical_and(row >= 0, row < height), logical_and(column >= 0, column < width))
            with b.if_(inside):
                copy(io.data)
            with b.else_():
                copy(None)


def _copy(
    b: IRBuilder, words: Buffer, data: Buffer | None, *, start: Expr, tap: Expr, length: int, p: int, by_words: bool
) -> None:
    """Pack a run into the places of a pixel, with zeros if there is no data; by words if runs begin at words."""
    if by_words:
        with b.for_("k", length // 2) as k:
            value = imm(0, "uint32") if data is None else data.load("uint32", start // 2 + k)
            b.store_as(words, "uint32", (tap // 2 + k) * PIXELS + p, value)
        return
    with b.for_("k", length) as k:
        at = b.let("at", tap + k)
        value = imm(0) if data is None else data[start + k]
        b.store_as(words, "int16", (at >> 1) * (2 * PIXELS) + (at & 1) + 2 * p, value)


register_planned("arm_dsp.conv2d_16x8", "nn.conv2d", plan_conv2d, lower_conv2d, plevel=29)


def plan_dense(group: Group, target: Target) -> tuple[FusedLayer, AnyRequant] | None:
    """Accept rows of an even number of data, so that each begins at a word."""
    match = match_16x8(group, target)
    return match if match is not None and is_rows(match[0]) and match[0].weight[0].size % 2 == 0 else None


def lower_dense(group: Group, _target: Target, name: str, plan: tuple[FusedLayer, AnyRequant]) -> Lowered:
    """Lower rows: for each, blocks of four channels straight from the data."""
    layer, requant = plan
    rows, depth = prod(layer.out_type.shape[:-1]), int(layer.weight[0].size)
    stream = PairStream(layer, requant)
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(rows * depth,), out_shape=(rows * layer.channels,), data_align=4)
    params = io.constant("params", stream.data(), "int32")
    results = b.scratch("results", (layer.channels,), "int16") if layer.epilogue else None
    with b.for_("m", rows) as m:
        for n, count in stream.blocks(b):
            acc = b.local("acc", (CHANNELS,), "int32")
            for j in range(CHANNELS):
                b.store(acc, j, stream.number(params, n, 0, j))
            b.block(smlad_1x4(stream.pairs), region(io.data, m * depth), stream.weights(params, n), acc)
            for j in range(count):
                value = stream.result(b, acc[j], stream.requant_params(b, params, n, j))
                if results is None:
                    io.store((m * layer.channels + n * CHANNELS + j,), value)
                else:
                    b.store(results, n * CHANNELS + j, value)
        if results is not None:
            with b.for_("c", layer.channels) as c:
                io.store((m * layer.channels + c,), cast("int32", results[c]))
    steps, remainder = divmod(stream.pairs, 2)
    unroll = unroll_of(stream.pairs)
    loops = 2 * (steps // unroll) if unroll and steps > unroll else 0
    block = 11 * steps + 6 * remainder + loops + CHANNELS * (5 + stream.numbers + stream.long_products) + 12
    blocks = -(-layer.channels // CHANNELS)
    code = (60 + 4 * (11 * unroll + 6) + 80) * (1 + (layer.channels % CHANNELS > 0 and blocks > 1))
    instructions = rows * (blocks * block + 8) + epilogue_instructions(layer)
    return lowered(io, layer, "arm_dsp.dense_16x8", instructions, code, channels=CHANNELS)


for _anchor in ("nn.dense", "nn.conv2d"):
    register_planned("arm_dsp.dense_16x8", _anchor, plan_dense, lower_dense, plevel=30)


KINDS = frozenset({("int16", "int8")})


def match_16x8(group: Group, target: Target) -> tuple[FusedLayer, AnyRequant] | None:
    """Return a layer whose sums fit 32 bits, with an epilogue whose operands have the result's shape, and its requantisation."""
    layer = match_layer(group, KINDS) if target.has("dsp") else None
    if layer is None or not supports_epilogue(layer) or layer.weight.ndim == 3 or layer.attrs.weight_zp:
        return None
    matrix = np.abs(layer.weight.reshape(layer.channels, -1)).sum(axis=1)
    if (matrix * 32768 + np.abs(layer.bias) >= 1 << 31).any():
        return None
    return layer, with_short_products(plan_requantize(layer.requant, layer.acc_low, layer.acc_high, target))


class PairStream:
    """The constants in blocks of four channels: int16 weights [pairs][4][2], then int32 bias [4] and parameters that vary [4]."""

    def __init__(self, layer: FusedLayer, requant: AnyRequant) -> None:
        matrix = layer.weight.reshape(layer.channels, -1)
        more = -layer.channels % CHANNELS
        self.channels, self.requant = layer.channels, requant
        self._acc_dtype = tensor_type(layer.anchor).dtype
        self.pairs = (matrix.shape[1] + 1) // 2
        self._weights = np.pad(matrix, ((0, more), (0, 2 * self.pairs - matrix.shape[1])))
        self._arrays = [np.pad(a, (0, more)) for a in [layer.bias, *(f.values for f in requant.params if not f.uniform)]]

    @property
    def block_words(self) -> int:
        return CHANNELS * (self.pairs + len(self._arrays))

    @property
    def numbers(self) -> int:
        """Words loaded per channel for bias and requantisation."""
        return len(self._arrays)

    @property
    def long_products(self) -> int:
        """Instructions per result beyond those of the short requantisation."""
        return 8 if isinstance(self.requant, LongMultiply) else 0

    def data(self) -> Array:
        """Return the stream as int32."""
        parts: list[Array] = []
        for first in range(0, len(self._weights), CHANNELS):
            block = self._weights[first : first + CHANNELS].reshape(CHANNELS, self.pairs, 2).transpose(1, 0, 2)
            parts.append(np.ascontiguousarray(block.astype(np.int16)).reshape(-1).view(np.int32))
            parts += [a[first : first + CHANNELS].astype(np.int32) for a in self._arrays]
        return np.concatenate(parts)

    def blocks(self, b: IRBuilder) -> Iterator[tuple[Expr, int]]:
        """Iterate over the blocks, as (number, channels)."""
        whole, remainder = divmod(self.channels, CHANNELS)
        if whole:
            with b.for_("n", whole) as n:
                yield n, CHANNELS
        if remainder:
            yield imm(whole), remainder

    def weights(self, params: Buffer, n: Expr) -> Region:
        return Region(params, n * (2 * self.block_words), "int16")

    def number(self, params: Buffer, n: Expr, row: int, j: int) -> Expr:
        """Return number j of row `row` (0: bias) of a block."""
        return params[n * self.block_words + (CHANNELS * (self.pairs + row) + j)]

    def result(self, b: IRBuilder, acc: Expr, requant_params: tuple[Expr, ...]) -> Expr:
        """Return the requantised sum, which has type `acc_dtype` in the model."""
        return self.requant.emit(b, acc if isinstance(self.requant, LongMultiply) else cast(self._acc_dtype, acc), requant_params)

    def requant_params(self, b: IRBuilder, params: Buffer, n: Expr, j: int) -> tuple[Expr, ...]:
        """Return the requantisation parameters of channel j of a block, loaded or immediate."""
        return load_params(b, self.requant, (self.number(params, n, i, j) for i in count(1)))


CHANNELS = 4
MAX_UNROLL = 8

_WEIGHTS = ("r8", "r9", "r10", "r11")
_DATA = ("r12", "lr")


@cache
def smlad_1x4(pairs: int) -> TensorIntrin:
    """acc[c] += sum over k < pairs, j < 2 of x[2 k + j] * w[k, c, j], for four channels.

    acc: int32[4] in registers; x: int16[2 pairs] and w: int16[pairs, 4, 2], both aligned to 4 bytes.  Sums must fit.  8 SMLAD, 2
    LDM and LDRD for 16 multiply-accumulates.
    """
    b = IRBuilder(f"smlad_1x4_k{2 * pairs}")
    x = b.input("x", (UNKNOWN_EXTENT,), "int16", align=4)
    w = b.input("w", (UNKNOWN_EXTENT,), "int16", align=4)
    acc = b.output("acc", (CHANNELS,), "int32")
    with b.for_("k", pairs) as k:
        values = [b.let("x", cast("int32", x[k * 2 + j])) for j in range(2)]
        for c in range(CHANNELS):
            products = [values[j] * cast("int32", w[(k * CHANNELS + c) * 2 + j]) for j in range(2)]
            b.store(acc, c, acc[c] + (products[0] + products[1]))
    return block_of(b, "arm_dsp", lambda ops: _emit(ops, pairs))


def unroll_of(pairs: int) -> int:
    """Return the steps of two pairs per iteration."""
    return max(u for u in range(1, MAX_UNROLL + 1) if (pairs // 2) % u == 0) if pairs > 1 else 0


def _emit(operands: Operands, pairs: int) -> BlockText:
    load = f"ldmia %[w]!, {{{', '.join(_WEIGHTS)}}}"

    def products(x: str) -> list[str]:
        return [load, *(f"smlad %[a{c}], {w}, {x}, %[a{c}]" for c, w in enumerate(_WEIGHTS))]

    step = [f"ldrd {_DATA[0]}, {_DATA[1]}, [%[x]], #8", *products(_DATA[0]), *products(_DATA[1])]
    last = [f"ldr {_DATA[0]}, [%[x]], #4", *products(_DATA[0])] if pairs % 2 else []
    unroll = unroll_of(pairs)
    loops = pairs // 2 // unroll if unroll else 0
    text: list[str | Repeat] = []
    if loops > 1:
        text += [f"mov %[n], #{loops}", "1:", Repeat(unroll, step), "subs %[n], %[n], #1", "bne 1b"]
    elif unroll:
        text.append(Repeat(unroll, step))
    return asm(operands, [*text, *last], "w x", acc="a", temporaries="n", clobbers=[*_WEIGHTS, *_DATA])


# Requantisation by multipliers of 62 bits with two long products, for sums of 32 bits.  `multiply_by_long_multiplier` adds half
# of 2^right and shifts by right = 31 - shift.  From right = 33 on the half has no bits in the lower word, so nothing carries out
# of it, and only the upper word of the product is needed.


LEAST_RIGHT, MOST_RIGHT = 33, 61


@dataclass(frozen=True, slots=True)
class LongMultiply:
    """Parameters: multiplier, its 31 further bits, half of a result, shift of the upper word."""

    params: tuple[RequantParam, ...]
    lo: int
    hi: int

    def emit(self, b: IRBuilder, acc: Expr, requant_params: tuple[Expr, ...]) -> Expr:
        """Return the clamped int32 result of an accumulator that fits int32."""
        multiplier, fraction, half, shift = requant_params
        x = b.let("x", cast("int32", acc))
        wide = cast("int64", x)
        low = b.let("low", cast("int32", (wide * cast("int64", fraction) + cast("int64", x >> 31)) >> imm(31, "int64")))
        high = cast("int32", (wide * cast("int64", multiplier) + cast("int64", low)) >> imm(32, "int64"))
        result = (high + half) >> shift
        return saturate("ssat", 16, 0)(result) if (self.lo, self.hi) == int_range("int16") else clamp(result, self.lo, self.hi)


AnyRequant = Requant | LongMultiply


def with_short_products(requant: Requant) -> AnyRequant:
    """Return the form above if it is exact, else `requant`; sums must fit int32, and the core must have DSP instructions."""
    if not isinstance(requant, General) or not requant.attrs.fraction or requant.attrs.zero_point:
        return requant
    attrs: RequantizeAttrs = requant.attrs
    numbers = {f.name: f.values.astype(np.int64) for f in requant.params}
    right = 31 - numbers["shift"]
    if (right < LEAST_RIGHT).any() or (right > MOST_RIGHT).any():
        return requant
    params = (
        RequantParam("multiplier", numbers["multiplier"]),
        RequantParam("fraction", numbers["fraction"]),
        RequantParam("half", 1 << (right - LEAST_RIGHT)),
        RequantParam("shift", right - 32),
    )
    return LongMultiply(params, attrs.lo, attrs.hi)
