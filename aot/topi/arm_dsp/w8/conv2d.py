"""Convolution with one byte a weight: three output pixels by two channels, any window, see w8/intrin.py.

Scratch: the packed windows of three pixels, 6 bytes a tap (each row of the window rounded up to four bytes); with padding also
one row of the window.  Weights take one byte each in flash (and the same rounding).
"""

from __future__ import annotations

from functools import partial
from math import prod

from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm
from aot.tir.function import FuncAttrs
from aot.tir.stmt import Region
from aot.topi.arm_dsp.w8.intrin import TAPS, matmul_w8
from aot.topi.arm_dsp.w8.stream import QuadPlan, W8Stream, arrange, best_requant, plan_quads, plan_w8
from aot.topi.arm_dsp.w8.window import WindowQuads, WindowRuns, first_pixel, is_rows, pack_run, pack_unroll, run_instructions
from aot.topi.layer.fused import FusedLayer, describe, match_layer, tail_accepts, tail_instructions
from aot.topi.layer.io import LayerIo, open_io
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

PIXELS, CHANNELS = 3, 2


def accepts(group: Group, target: Target) -> bool:
    """Layers of at least three output pixels, accumulators provably below 2^23, requantised in the short form."""
    layer = match_layer(group)
    if layer is None or not target.has("dsp") or not tail_accepts(layer):
        return False
    return prod(layer.out_type.shape[:-1]) >= PIXELS and plan_w8(layer, target) is not None


def lower(group: Group, target: Target, name: str, *, common: bool) -> Lowered:
    layer = match_layer(group)
    assert layer is not None
    requant = best_requant(layer, target, common=common)
    runs = WindowRuns(layer)
    plan = plan_quads(runs.count * runs.quads, cost=18, common=common)
    matrix = arrange(layer.weight.reshape(layer.channels, -1), runs.count, plan)
    rows = prod(layer.out_type.shape[:-1])
    lead = (rows - PIXELS,) if common else ()
    stream = W8Stream(matrix, layer.bias, requant, block=CHANNELS, whole=True, common=common, lead=lead)
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(prod(layer.data_type.shape),), out_shape=(rows * layer.channels,))
    kernel = PixelTriples(b, io, layer, stream, plan)
    kernel.tiles(rows)
    described = describe("arm_dsp.conv2d_w8" + "_common" * common, unroll=plan.unroll)
    func = b.finish(FuncAttrs(kernel=described, span=layer.span, macs=layer.macs))
    instructions = kernel.instructions(rows) + tail_instructions(layer)
    return Lowered(func, io.constants, instructions=instructions, code=kernel.code())


class PixelTriples:
    """Emits the loops: groups of three pixels, packing, pairs of channels.

    Other forms of weights have their own packing of data and their own block of assembly.
    """

    quads_a_word = 1
    each, each_code = 18, 72
    """Instructions and bytes of code of a word of weights."""
    block_more, tile_more = 0, 0
    """Further instructions of a block, and of three pixels."""
    row_more, window_more = 2.0, 7.7
    """Of a pixel, besides packing its runs: where these are rows of the data, and of a window."""

    def __init__(self, b: IRBuilder, io: LayerIo, layer: FusedLayer, stream: W8Stream, plan: QuadPlan) -> None:
        self._b, self._io, self._layer, self._stream, self._plan = b, io, layer, stream, plan
        self._common = bool(plan.rest)
        self._pack_unroll = 1 if self._common else 4
        self._params = io.constant("params", stream.data(), "int32")
        self._quads = stream.quads * self.quads_a_word
        self._words = b.scratch("words", (TAPS * PIXELS * self._quads,), "int16", align=4)
        self._runs = WindowRuns(layer)
        self._window = None
        if not is_rows(layer):
            self._window = WindowQuads(b, layer, io.data, pixels=PIXELS, pack=self._pack_run)

    def tiles(self, rows: int) -> None:
        b, stream = self._b, self._stream
        used = self._runs.count * self._runs.quads
        if used < self._quads:
            with b.for_("z", TAPS * PIXELS * self._quads, start=TAPS * PIXELS * used) as z:
                b.store(self._words, z, 0)
        # Of the common form a number of the stream, so that one text serves all sizes.
        last: Expr = b.let("last", self._params[0]) if self._common else imm(rows - PIXELS)
        even = rows % PIXELS == 0 and not self._common
        with b.for_("t", -(-rows // PIXELS)) as t:
            first = first_pixel(b, self._layer, t * PIXELS, last=last, even=even)
            self._pack(first)
            if stream.blocks:
                with b.for_("n", stream.blocks) as n:
                    self._block(first, n, CHANNELS)
            if stream.tail:
                self._block(first, imm(stream.blocks), stream.tail)

    def _pack(self, first: Expr) -> None:
        if self._window is not None:
            self._window.pack(first)
            return
        with self._b.for_("p", PIXELS) as p:
            self._pack_run(p, imm(0), (self._io.data, (first + p) * self._runs.length))

    def _pack_run(self, p: Expr, n: Expr, source: tuple[Buffer, Expr]) -> None:
        """Run number `n` of pixel `p` from (buffer, start)."""
        at = p * TAPS + n * (self._runs.quads * TAPS * PIXELS)
        pack_run(self._b, self._words, source, self._runs.length, at=at, pixels=PIXELS, unroll=self._pack_unroll)

    def _run_instructions(self) -> int:
        return run_instructions(self._runs.length, unroll=self._pack_unroll)

    def _start(self, bias: Expr, p: int) -> Expr:
        """The start value of an accumulator of pixel `p`."""
        return bias

    def _multiply(self, weights: Region, acc: Buffer) -> None:
        self._b.block(matmul_w8(self._plan.unroll, self._plan.rest), weights, self._words, acc, imm(self._stream.quads))

    def _block(self, first: Expr, n: Expr, count: int) -> None:
        """Two channels, `count` of them stored."""
        b, stream = self._b, self._stream
        start = b.let("block", stream.start(n))
        acc = b.local("acc", (CHANNELS * PIXELS,), "int32")
        for j in range(CHANNELS):
            bias = b.let("bias", stream.bias(self._params, start, j))
            for p in range(PIXELS):
                b.store(acc, PIXELS * j + p, self._start(bias, p))
        self._multiply(stream.weights(self._params, start, CHANNELS), acc)
        at = b.let("at", first * stream.channels + n * CHANNELS)
        fields = stream.fields(b, self._params, start, count=CHANNELS)
        for j in range(count):
            named = fields(j)
            for p in range(PIXELS):
                self._io.store((at + (p * stream.channels + j),), stream.requant.emit_scaled(b, acc[PIXELS * j + p], named))

    def instructions(self, rows: int) -> int:
        """Of one call (from counts under QEMU)."""
        stream, runs = self._stream, self._runs
        packed = -(-rows // PIXELS) * PIXELS
        if self._window is None:
            pack = int(packed * (self._run_instructions() + self.row_more))
        else:
            pack = runs.instructions(packed / rows, run=self._run_instructions(), pixel=self.window_more)
        plain = stream.shift_is_immediate
        outputs = PIXELS * (4 - plain + 2 * stream.requant.signed) + stream.fields_loaded
        block = self._plan.instructions(self.each) + CHANNELS * outputs + 17 + self.block_more
        return pack + -(-rows // PIXELS) * ((stream.blocks + bool(stream.tail)) * block + self.tile_more)

    def code(self) -> int:
        """Bytes."""
        pack = 50 + 24 * (min(self._pack_unroll, pack_unroll(self._runs.quads)) + bool(self._runs.length % TAPS))
        window = 0 if self._window is None else 60 + (90 + pack) * any(self._layer.attrs.padding)
        stores = 28 * CHANNELS * PIXELS * len(self._layer.tail)
        stores += 68 + 44 * self._stream.requant.signed if self._common else 0
        return 70 + pack + window + (self._plan.code(self.each_code) + 230 + stores) * (1 + bool(self._stream.tail))


register_impl(OpImplementation("arm_dsp.conv2d_w8", "nn.conv2d", accepts, partial(lower, common=False), plevel=11))
register_impl(OpImplementation("arm_dsp.conv2d_w8_common", "nn.conv2d", accepts, partial(lower, common=True), plevel=10))
