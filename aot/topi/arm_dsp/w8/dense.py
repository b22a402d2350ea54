"""Fully connected layers with one byte a weight: one row by four channels, see w8/intrin.py.

Scratch: two bytes an input of one row, rounded up to four inputs; layers of at most four channels take at most `CHUNK` inputs
at a time.
Weights take one byte each in flash.  Where several layers have one matrix, as the steps of an unrolled recurrent network do, it
can be an array of its own (`apart`), which they share whatever their biases and zero points are.
"""

from __future__ import annotations

from functools import partial
from math import prod

from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm, minimum
from aot.tir.function import FuncAttrs
from aot.tir.stmt import Region
from aot.topi.arm_dsp.w8.intrin import TAPS, dot_w8, pack_w8
from aot.topi.arm_dsp.w8.stream import QuadPlan, W8Stream, arrange, best_requant, plan_quads, plan_w8, run_taps
from aot.topi.arm_dsp.w8.window import is_rows, pack_run, pack_unroll, run_instructions
from aot.topi.layer.fused import describe, match_layer, tail_accepts, tail_instructions
from aot.topi.layer.io import LayerIo, open_io
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

CHANNELS = 4
CHUNK = 512
"""Inputs packed at a time where one block of channels takes them all."""

MAX_ROWS = 2
"""Pointwise convolutions of more pixels belong to conv2d_w8."""


def accepts(group: Group, target: Target) -> bool:
    """Rows of bytes whose accumulators provably stay below 2^23 and requantise in the short form."""
    layer = match_layer(group)
    if layer is None or not target.has("dsp") or not tail_accepts(layer) or not is_rows(layer):
        return False
    if layer.weight.ndim > 2 and prod(layer.out_type.shape[:-1]) > MAX_ROWS:
        return False
    return plan_w8(layer, target) is not None


def lower(group: Group, target: Target, name: str, *, common: bool, apart: bool = False) -> Lowered:
    layer = match_layer(group)
    assert layer is not None
    requant = best_requant(layer, target, common=common)
    rows, depth = prod(layer.out_type.shape[:-1]), layer.weight[0].size
    plan = plan_quads(len(run_taps(depth)) // TAPS, cost=14, common=common)
    matrix = arrange(layer.weight.reshape(layer.channels, depth), 1, plan)
    stream = W8Stream(matrix, layer.bias, requant, block=CHANNELS, common=common, apart=apart)
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(rows * depth,), out_shape=(rows, layer.channels))
    kernel = _Kernel(b, io, stream, plan, depth)
    kernel.rows(rows)
    described = describe("arm_dsp.dense_w8" + "_common" * common + "_apart" * apart, channels=stream.block, unroll=plan.unroll)
    func = b.finish(FuncAttrs(kernel=described, span=layer.span, macs=layer.macs))
    return Lowered(func, io.constants, instructions=rows * kernel.instructions() + tail_instructions(layer), code=kernel.code())


ONE_BLOCK = 12
"""Instructions that are saved where there is no loop over blocks."""


class _Kernel:
    """Emits the loops: rows, packing, blocks of channels."""

    def __init__(self, b: IRBuilder, io: LayerIo, stream: W8Stream, plan: QuadPlan, depth: int) -> None:
        self._b, self._io, self._stream, self._plan, self._depth = b, io, stream, plan, depth
        self._pack = 1 if plan.rest else 4
        self._params = io.constant("params", stream.data(), "int32")
        self._matrix = io.constant("matrix", stream.weights_data(), "int32") if stream.apart else None
        single = stream.blocks == 1 and not stream.tail
        self._chunk = plan.quads
        if single and depth == TAPS * plan.quads and depth > CHUNK:
            self._chunk = CHUNK // TAPS // plan.unroll * plan.unroll
        self._words = b.scratch("words", (TAPS * self._chunk,), "int16", align=4)

    def rows(self, count: int) -> None:
        if count == 1:
            self._row(imm(0))
            return
        with self._b.for_("m", count) as m:
            self._row(m)

    def _row(self, m: Expr) -> None:
        b, stream = self._b, self._stream
        if self._chunk < self._plan.quads:
            self._one_block(m)
            return
        pack_run(b, self._words, (self._io.data, m * self._depth), self._depth, total=self._plan.quads, unroll=self._pack)
        if stream.blocks == 1:
            self._block(m, imm(0), stream.block)
        else:
            with b.for_("n", stream.blocks) as n:
                self._block(m, n, stream.block)
        if stream.tail:
            self._block(m, imm(stream.blocks), stream.tail)

    def _block(self, m: Expr, n: Expr, count: int) -> None:
        start = self._stream.start(n)
        acc = self._accumulators(start, count)
        self._dot(self._weights(n, count, imm(0)), count, acc, imm(self._plan.quads))
        self._finish(m, n, acc, count)

    def _one_block(self, m: Expr) -> None:
        """All channels at once, the data in pieces."""
        b, count, total = self._b, self._stream.block, self._plan.quads
        acc = self._accumulators(self._stream.start(imm(0)), count)
        with b.for_("first", total, step=self._chunk) as first:
            quads = b.let("quads", minimum(total - first, self._chunk)) if total % self._chunk else imm(self._chunk)
            source = region(self._io.data, m * self._depth + first * TAPS)
            b.block(pack_w8(1, min(self._pack, pack_unroll(self._plan.unroll))), source, self._words, quads)
            self._dot(self._weights(imm(0), count, first * count), count, acc, quads)
        self._finish(m, imm(0), acc, count)

    def _accumulators(self, start: Expr, count: int) -> Buffer:
        acc = self._b.local("acc", (count,), "int32")
        for j in range(count):
            self._b.store(acc, j, self._stream.bias(self._params, start, j))
        return acc

    def _weights(self, n: Expr, count: int, skipped: Expr) -> Region:
        """Those of block `n` of `count` channels from word `skipped` on."""
        if self._matrix is not None:
            return self._stream.weights_apart(self._matrix, n, skipped)
        return self._stream.weights(self._params, self._stream.start(n) + skipped, count)

    def _dot(self, weights: Region, count: int, acc: Buffer, quads: Expr) -> None:
        self._b.block(dot_w8(count, self._plan.unroll, self._plan.rest), weights, self._words, acc, quads)

    def _finish(self, m: Expr, n: Expr, acc: Buffer, count: int) -> None:
        b, stream = self._b, self._stream
        fields = stream.fields(b, self._params, stream.start(n), count=count)
        for j in range(count):
            self._io.store((m, n * stream.block + j), stream.requant.emit_scaled(b, acc[j], fields(j)))

    def instructions(self) -> int:
        """Of one row (from counts under QEMU)."""
        stream = self._stream
        each = 4 - stream.shift_is_immediate + 1 + stream.fields_loaded + 2 * stream.requant.signed
        blocks = [stream.block] * stream.blocks + [stream.tail] * bool(stream.tail)
        fixed = 8 if self._plan.quads == self._plan.unroll else 12
        total = sum(self._plan.instructions(2 + 3 * n) + n * each + fixed for n in blocks) - ONE_BLOCK * (len(blocks) == 1)
        apart = 2 * len(blocks) * (self._matrix is not None)
        return total + apart + run_instructions(self._depth, unroll=self._pack) + 6

    def code(self) -> int:
        """Bytes."""
        blocks = [self._stream.block, *([self._stream.tail] if self._stream.tail else [])]
        pack = 24 * min(self._pack, pack_unroll(self._depth // TAPS or 1))
        return 20 + pack + sum(self._plan.code(8 + 12 * n) + 40 + 24 * n for n in blocks)


_APART = partial(lower, common=False, apart=True)

for _anchor in ("nn.dense", "nn.conv2d"):
    register_impl(OpImplementation("arm_dsp.dense_w8", _anchor, accepts, partial(lower, common=False), plevel=30))
    register_impl(OpImplementation("arm_dsp.dense_w8_common", _anchor, accepts, partial(lower, common=True), plevel=29))
    register_impl(OpImplementation("arm_dsp.dense_w8_apart", _anchor, accepts, _APART, plevel=27, for_repeated=True))
