"""Fully connected layers with half a byte a weight: one row by four channels, see w4/intrin.py.

Scratch: two bytes an input of one row, rounded up to eight inputs, and a word.  Weights stay packed: half a byte each in flash.
"""

from __future__ import annotations

from functools import partial
from math import prod

from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.w4.intrin import dot_w4
from aot.topi.arm_dsp.w4.stream import (
    NIBBLES,
    QUADS,
    arrange_nibbles,
    best_requant_w4,
    pack_run_w4,
    plan_nibbles,
    plan_w4,
    run_instructions_w4,
)
from aot.topi.arm_dsp.w8.dense import CHANNELS, MAX_ROWS
from aot.topi.arm_dsp.w8.intrin import TAPS
from aot.topi.arm_dsp.w8.stream import QuadPlan, W8Stream
from aot.topi.arm_dsp.w8.window import is_rows, pack_unroll, run_quads
from aot.topi.layer.fused import describe, match_layer, tail_accepts, tail_instructions
from aot.topi.layer.io import LayerIo, open_io
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


def accepts(group: Group, target: Target) -> bool:
    """Rows of bytes by 4-bit weights, requantised in the short form; pointwise convolutions of a few pixels."""
    layer = match_layer(group)
    if layer is None or not target.has("dsp") or not tail_accepts(layer) or not is_rows(layer):
        return False
    if layer.weight.ndim > 2 and prod(layer.out_type.shape[:-1]) > MAX_ROWS:
        return False
    return plan_w4(layer, target) is not None


def lower(group: Group, target: Target, name: str, *, common: bool) -> Lowered:
    layer = match_layer(group)
    assert layer is not None
    rows, depth = prod(layer.out_type.shape[:-1]), int(layer.weight[0].size)
    plan = plan_nibbles(run_quads(depth), cost=3 + 8 * CHANNELS, common=common)
    matrix = arrange_nibbles(layer.weight.reshape(layer.channels, depth), 1, plan)
    requant = best_requant_w4(layer, target, common=common)
    stream = W8Stream(matrix, layer.bias, requant, block=CHANNELS, common=common, form=NIBBLES)
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(rows * depth,), out_shape=(rows, layer.channels))
    kernel = _Kernel(b, io, stream, plan, depth)
    kernel.rows(rows)
    described = describe("arm_dsp.dense_w4" + "_common" * common, channels=stream.block, unroll=plan.unroll)
    func = b.finish(FuncAttrs(kernel=described, span=layer.span, macs=layer.macs))
    return Lowered(func, io.constants, instructions=rows * kernel.instructions() + tail_instructions(layer), code=kernel.code())


class _Kernel:
    """Emits the loops: rows, packing, blocks of channels."""

    def __init__(self, b: IRBuilder, io: LayerIo, stream: W8Stream, plan: QuadPlan, depth: int) -> None:
        self._b, self._io, self._stream, self._plan, self._depth = b, io, stream, plan, depth
        self._unroll = 1 if plan.rest else 4
        self._params = io.constant("params", stream.data(), "int32")
        self._words = b.scratch("words", (TAPS * QUADS * plan.quads,), "int16", align=4)
        self._sum = b.scratch("sum", (1,), "int32")

    def rows(self, count: int) -> None:
        b, used = self._b, TAPS * run_quads(self._depth)
        if used < self._words.shape[0]:
            with b.for_("z", self._words.shape[0], start=used) as z:
                b.store(self._words, z, 0)
        if count == 1:
            self._row(imm(0))
            return
        with b.for_("m", count) as m:
            self._row(m)

    def _row(self, m: Expr) -> None:
        b, stream = self._b, self._stream
        b.store(self._sum, 0, 0)
        source, words, sums = (self._io.data, m * self._depth), region(self._words), region(self._sum)
        pack_run_w4(b, source, self._depth, words=words, sums=sums, pixels=1, unroll=self._unroll)
        if stream.blocks == 1:
            self._block(m, imm(0), stream.block)
        else:
            with b.for_("n", stream.blocks) as n:
                self._block(m, n, stream.block)
        if stream.tail:
            self._block(m, imm(stream.blocks), stream.tail)

    def _block(self, m: Expr, n: Expr, count: int) -> None:
        b, stream, plan = self._b, self._stream, self._plan
        start = stream.start(n)
        acc = b.local("acc", (count,), "int32")
        for j in range(count):
            bias = cast("uint32", stream.bias(self._params, start, j))
            b.store(acc, j, cast("int32", bias + cast("uint32", self._sum[0])))
        weights = stream.weights(self._params, start, count)
        b.block(dot_w4(count, plan.unroll, plan.rest), weights, self._words, acc, imm(plan.quads))
        fields = stream.fields(b, self._params, start, count=count)
        for j in range(count):
            self._io.store((m, n * stream.block + j), stream.requant.emit_scaled(b, acc[j], fields(j)))

    def instructions(self) -> int:
        """Of one row (from counts under QEMU)."""
        stream = self._stream
        each = 5 - stream.shift_is_immediate + 1 + stream.fields_loaded + 2 * stream.requant.signed
        blocks = [stream.block] * stream.blocks + [stream.tail] * bool(stream.tail)
        fixed = 9 if self._plan.quads == self._plan.unroll else 13
        total = sum(self._plan.instructions(3 + 8 * n) + n * each + fixed for n in blocks)
        return total + run_instructions_w4(self._depth, unroll=self._unroll) + 8

    def code(self) -> int:
        """Bytes."""
        blocks = [self._stream.block, *([self._stream.tail] if self._stream.tail else [])]
        pack = 36 * min(self._unroll, pack_unroll(self._depth // TAPS or 1)) + 40 * bool(self._depth % TAPS)
        return 50 + pack + sum(self._plan.code(12 + 32 * n) + 40 + 28 * n for n in blocks)


for _anchor in ("nn.dense", "nn.conv2d"):
    register_impl(OpImplementation("arm_dsp.dense_w4", _anchor, accepts, partial(lower, common=False), plevel=24))
    register_impl(OpImplementation("arm_dsp.dense_w4_common", _anchor, accepts, partial(lower, common=True), plevel=23))
