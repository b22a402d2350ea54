"""Convolution with half a byte a weight: three output pixels by two channels, any window, see w4/intrin.py.

Scratch as for conv2d_w8, and three words.  Weights stay packed: half a byte each in flash (each row of the window rounded up to
four, all of them to eight).
"""

from __future__ import annotations

from functools import partial
from math import prod

from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm
from aot.tir.function import FuncAttrs
from aot.tir.stmt import Region
from aot.topi.arm_dsp.w4.intrin import matmul_w4
from aot.topi.arm_dsp.w4.stream import (
    NIBBLES,
    arrange_nibbles,
    best_requant_w4,
    pack_run_w4,
    plan_nibbles,
    plan_w4,
    run_instructions_w4,
)
from aot.topi.arm_dsp.w8.conv2d import CHANNELS, PIXELS, PixelTriples
from aot.topi.arm_dsp.w8.intrin import TAPS
from aot.topi.arm_dsp.w8.stream import QuadPlan, W8Stream
from aot.topi.arm_dsp.w8.window import WindowRuns
from aot.topi.layer.fused import FusedLayer, describe, match_layer, tail_accepts, tail_instructions
from aot.topi.layer.io import LayerIo, open_io
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

EACH = 41
"""Instructions of a word of weights."""


def accepts(group: Group, target: Target) -> bool:
    """Layers of 4-bit weights, of at least three output pixels, requantised in the short form."""
    layer = match_layer(group)
    if layer is None or not target.has("dsp") or not tail_accepts(layer):
        return False
    return prod(layer.out_type.shape[:-1]) >= PIXELS and plan_w4(layer, target) is not None


def lower(group: Group, target: Target, name: str, *, common: bool) -> Lowered:
    layer = match_layer(group)
    assert layer is not None
    runs = WindowRuns(layer)
    plan = plan_nibbles(runs.count * runs.quads, cost=EACH, common=common)
    matrix = arrange_nibbles(layer.weight.reshape(layer.channels, -1), runs.count, plan)
    rows = prod(layer.out_type.shape[:-1])
    lead = (rows - PIXELS,) if common else ()
    requant = best_requant_w4(layer, target, common=common)
    stream = W8Stream(matrix, layer.bias, requant, block=CHANNELS, whole=True, common=common, lead=lead, form=NIBBLES)
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(prod(layer.data_type.shape),), out_shape=(rows * layer.channels,))
    kernel = _Kernel(b, io, layer, stream, plan)
    kernel.tiles(rows)
    func = b.finish(FuncAttrs(describe("arm_dsp.conv2d_w4" + "_common" * common, unroll=plan.unroll), layer.span, layer.macs))
    instructions = kernel.instructions(rows) + tail_instructions(layer)
    return Lowered(func, io.constants, instructions=instructions, code=kernel.code())


class _Kernel(PixelTriples):
    quads_a_word = 2
    each, each_code = EACH, 4 * EACH
    tile_more = 12
    row_more = window_more = 16.0

    def __init__(self, b: IRBuilder, io: LayerIo, layer: FusedLayer, stream: W8Stream, plan: QuadPlan) -> None:
        super().__init__(b, io, layer, stream, plan)
        self.block_more = 8 + 16 * len(io.operands)  # the sums, and that fewer registers are left (from counts under QEMU)
        self._sums = b.scratch("sums", (PIXELS,), "int32")

    def _pack(self, first: Expr) -> None:
        for p in range(PIXELS):
            self._b.store(self._sums, p, 0)
        super()._pack(first)

    def _pack_run(self, p: Expr, n: Expr, source: tuple[Buffer, Expr]) -> None:
        at = p * 2 + n * (self._runs.quads * TAPS * PIXELS)
        words, sums = region(self._words, at), region(self._sums, p)
        pack_run_w4(self._b, source, self._runs.length, words=words, sums=sums, pixels=PIXELS, unroll=self._pack_unroll)

    def _run_instructions(self) -> int:
        return run_instructions_w4(self._runs.length, unroll=self._pack_unroll)

    def _start(self, bias: Expr, p: int) -> Expr:
        return cast("int32", cast("uint32", bias) + cast("uint32", self._sums[p]))

    def _multiply(self, weights: Region, acc: Buffer) -> None:
        self._b.block(matmul_w4(self._plan.unroll, self._plan.rest), weights, self._words, acc, imm(self._stream.quads))


register_impl(OpImplementation("arm_dsp.conv2d_w4", "nn.conv2d", accepts, partial(lower, common=False), plevel=7))
register_impl(OpImplementation("arm_dsp.conv2d_w4_common", "nn.conv2d", accepts, partial(lower, common=True), plevel=6))
