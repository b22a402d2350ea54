"""Convolutions of 16-bit data: two pixels by four channels, windows packed as pairs of both pixels.

Scratch: eight bytes a pair of taps of the window; with a tail also the results of two pixels, two bytes each, as the block of
assembly leaves it no registers.
"""

from __future__ import annotations

from functools import partial
from math import prod

from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, logical_and, minimum
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.w8.window import window_at
from aot.topi.arm_dsp.x16.intrin import CHANNELS
from aot.topi.arm_dsp.x16.layer import PairStream, match_16x8
from aot.topi.arm_dsp.x16.requant import AnyRequant
from aot.topi.intrin.scalar import smlad_2x4, smlad_2x4_instructions
from aot.topi.layer.fused import FusedLayer, describe, tail_instructions
from aot.topi.layer.io import LayerIo, open_io
from aot.topi.strategy import Group, Lowered, register_planned

PIXELS = 2


def plan(group: Group, target: Target) -> tuple[FusedLayer, AnyRequant] | None:
    """Convolutions of at least two pixels."""
    found = match_16x8(group, target)
    if found is None or found[0].weight.ndim != 4 or prod(found[0].out_type.shape[:-1]) < PIXELS:
        return None
    return found


def lower(group: Group, _target: Target, name: str, found: tuple[FusedLayer, AnyRequant]) -> Lowered:
    layer, requant = found
    rows = prod(layer.out_type.shape[:-1])
    stream = PairStream(layer, requant)
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(layer.data_type.size,), out_shape=(rows * layer.channels,), data_align=4)
    params = io.constant("params", stream.data(), "int32")
    words = b.scratch("words", (stream.pairs, PIXELS, 2), "int16", align=4)
    results = b.scratch("results", (PIXELS * layer.channels,), "int16") if layer.tail else None
    if layer.weight[0].size % 2:
        for p in range(PIXELS):
            b.store(words, (stream.pairs - 1, p, 1), 0)
    with b.for_("t", -(-rows // PIXELS)) as t:
        first = t * PIXELS if rows % PIXELS == 0 else b.let("pixel", minimum(t * PIXELS, rows - PIXELS))
        for p in range(PIXELS):
            _pack(b, layer, io, words, index=first + p, p=p)
        for n, count in stream.blocks(b):
            _block(b, stream, io, (params, words, results), first=first, n=n, count=count)
        if results is not None:
            with b.for_("c", PIXELS * layer.channels) as c:
                io.store((first * layer.channels + c,), cast("int32", results[c]))
    func = b.finish(FuncAttrs(kernel=describe("arm_dsp.conv2d_16x8", pixels=PIXELS), span=layer.span, macs=layer.macs))
    taps, (whole, rest) = layer.weight.shape[1] * layer.weight.shape[2], divmod(layer.channels, CHANNELS)
    pack = PIXELS * (taps * (14 + layer.weight.shape[3] * (2 if layer.weight.shape[3] % 2 == 0 else 6)) + 20)
    each = PIXELS * (4 + stream.long_products) + stream.numbers + 2
    counts = [CHANNELS] * whole + [rest] * (rest > 0)
    blocks = sum(smlad_2x4_instructions(c) * stream.pairs + stream.pairs // 2 + c * each + 24 for c in counts)
    instructions = -(-rows // PIXELS) * (pack + blocks + 8) + tail_instructions(layer)
    return Lowered(func, io.constants, instructions=instructions, code=900 + 200 * len(layer.tail))


Buffers = tuple[Buffer, Buffer, Buffer | None]
"""Parameters, packed windows, results before the tail."""


def _block(b: IRBuilder, stream: PairStream, io: LayerIo, buffers: Buffers, *, first: Expr, n: Expr, count: int) -> None:
    """`count` channels of two pixels, of a block of four in the stream."""
    params, words, results = buffers
    acc = b.local("acc", (PIXELS, count), "int32")
    for j in range(count):
        b.store(acc, (0, j), stream.number(params, n, 0, j))
    b.block(smlad_2x4(stream.pairs, count), words, stream.weights(params, n), acc)
    for j in range(count):
        fields = stream.fields(b, params, n, j)
        for p in range(PIXELS):
            value = stream.result(b, acc[p, j], fields)
            if results is None:
                io.store(((first + p) * stream.channels + n * CHANNELS + j,), value)
            else:
                b.store(results, n * CHANNELS + (p * stream.channels + j), value)


def _pack(b: IRBuilder, layer: FusedLayer, io: LayerIo, words: Buffer, *, index: Expr, p: int) -> None:
    """The window of a pixel, zeros outside the image."""
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
    """A run to the places of a pixel, zeros where there is no data; by words where runs begin with one."""
    if by_words:
        with b.for_("k", length // 2) as k:
            value = imm(0, "uint32") if data is None else data.load("uint32", start // 2 + k)
            b.store_as(words, "uint32", (tap // 2 + k) * PIXELS + p, value)
        return
    with b.for_("k", length) as k:
        at = b.let("at", tap + k)
        value = imm(0) if data is None else data[start + k]
        b.store_as(words, "int16", (at >> 1) * (2 * PIXELS) + (at & 1) + 2 * p, value)


register_planned("arm_dsp.conv2d_16x8", "nn.conv2d", plan, lower, plevel=29)
