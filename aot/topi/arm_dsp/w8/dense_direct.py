"""Fully connected layers with one byte a weight that read the data in place: no scratch memory, see w8/intrin.py.

Where dense_w8 packs a row once for all channels, each block of four channels unpacks the data again: two instructions a quad
more, at most a seventh.  Where channels are few that is no loss, but neither is the scratch memory; those layers are left to
dense. Weights take one byte each in flash.
"""

from __future__ import annotations

from math import prod

from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.w8 import dense
from aot.topi.arm_dsp.w8.intrin import TAPS, dot_w8_direct, swapped
from aot.topi.arm_dsp.w8.stream import COMMON_UNROLL, DIRECT_BYTES, MAX_UNROLL, QuadPlan, W8Stream, arrange, best_requant
from aot.topi.layer.fused import FusedLayer, describe, match_layer, tail_instructions
from aot.topi.layer.io import LayerIo, open_io
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

CHANNELS = dense.CHANNELS

LEAST_CHANNELS = 3 * CHANNELS + 1
"""With fewer, packing costs as much as it saves."""


def accepts(group: Group, target: Target) -> bool:
    """The layers of dense_w8, at least four inputs wide, whose data are worth packing where there is room."""
    if not dense.accepts(group, target):
        return False
    layer = match_layer(group)
    return layer is not None and layer.weight[0].size >= TAPS and layer.channels >= LEAST_CHANNELS


def lower(group: Group, target: Target, name: str) -> Lowered:
    layer = match_layer(group)
    assert layer is not None
    rows, depth = prod(layer.out_type.shape[:-1]), layer.weight[0].size
    stream = direct_stream(layer, target)
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(rows * depth,), out_shape=(rows, layer.channels))
    kernel = DirectKernel(b, io, stream, depth)
    if rows == 1:
        kernel.row(imm(0), (io.data, imm(0)))
    else:
        with b.for_("m", rows) as m:
            kernel.row(m, (io.data, m * depth))
    described = describe("arm_dsp.dense_w8_direct", channels=stream.block, unroll=kernel.plan.unroll)
    func = b.finish(FuncAttrs(kernel=described, span=layer.span, macs=layer.macs))
    return Lowered(func, io.constants, instructions=rows * kernel.instructions() + tail_instructions(layer), code=kernel.code())


def direct_stream(layer: FusedLayer, target: Target) -> W8Stream:
    """The layer's constants, all taps of a result as one run."""
    depth = layer.weight[0].size
    matrix = swapped(arrange(layer.weight.reshape(layer.channels, depth), 1, QuadPlan(-(-depth // TAPS), 1)))
    requant = best_requant(layer, target, common=False)
    return W8Stream(matrix, layer.bias, requant, block=CHANNELS, form=DIRECT_BYTES)


def plan_whole(quads: int) -> QuadPlan:
    """The quads unchanged, as nothing beyond a row is read: with a second loop where they have no good divisor."""
    unroll = max(u for u in range(1, MAX_UNROLL + 1) if quads % u == 0)
    return QuadPlan(quads, unroll) if unroll >= min(quads, COMMON_UNROLL) else QuadPlan(quads, COMMON_UNROLL, rest=1)


class DirectKernel:
    """Emits the loop over the blocks of channels, for rows of `depth` bytes."""

    def __init__(self, b: IRBuilder, io: LayerIo, stream: W8Stream, depth: int) -> None:
        self._b, self._io, self._stream, self._depth = b, io, stream, depth
        self.plan = plan_whole(depth // TAPS)
        self._params = io.constant("params", stream.data(), "int32")

    def row(self, m: Expr, source: tuple[Buffer, Expr]) -> None:
        """All channels of result row `m` from the bytes at (buffer, start)."""
        b, stream = self._b, self._stream
        with b.for_("n", stream.blocks) as n:
            self._block(m, n, stream.block, source)
        if stream.tail:
            self._block(m, imm(stream.blocks), stream.tail, source)

    def _block(self, m: Expr, n: Expr, count: int, source: tuple[Buffer, Expr]) -> None:
        b, stream = self._b, self._stream
        start = stream.start(n)
        acc = b.local("acc", (count,), "int32")
        for j in range(count):
            b.store(acc, j, stream.bias(self._params, start, j))
        self._dot(acc, (start, count), source)
        fields = stream.fields(b, self._params, start, count=count)
        for j in range(count):
            self._io.store((m, n * stream.block + j), stream.requant.emit_scaled(b, acc[j], fields(j)))

    def _dot(self, acc: Buffer, block: tuple[Expr, int], source: tuple[Buffer, Expr]) -> None:
        """The whole quads, then the last four bytes of the row (see run_taps) where a rest is left."""
        b, (start, count), plan, (data, row) = self._b, block, self.plan, source
        weights = self._stream.weights(self._params, start, count)
        b.block(dot_w8_direct(count, plan.unroll, plan.rest), weights, region(data, row), acc, imm(plan.quads))
        if self._depth % TAPS:
            weights = self._stream.weights(self._params, start + plan.quads * count, count)
            b.block(dot_w8_direct(count, 1), weights, region(data, row + (self._depth - TAPS)), acc, imm(1))

    def instructions(self) -> int:
        """Of one row (from counts under QEMU)."""
        stream = self._stream
        each = 4 - stream.shift_is_immediate + 1 + stream.fields_loaded + 2 * stream.requant.signed
        blocks = [stream.block] * stream.blocks + [stream.tail] * bool(stream.tail)
        fixed = 8 if self.plan.quads == self.plan.unroll else 12
        rest = bool(self._depth % TAPS)
        total = sum(self.plan.instructions(4 + 3 * n) + rest * (6 + 3 * n) + n * each + fixed for n in blocks)
        return total + (6 if len(blocks) > 1 else -1)  # without a loop over blocks

    def code(self) -> int:
        """Bytes."""
        blocks = [self._stream.block, *([self._stream.tail] if self._stream.tail else [])]
        rest = bool(self._depth % TAPS)
        return 20 + sum(self.plan.code(16 + 12 * n) + rest * (24 + 12 * n) + 40 + 24 * n for n in blocks)


for _anchor in ("nn.dense", "nn.conv2d"):
    register_impl(OpImplementation("arm_dsp.dense_w8_direct", _anchor, accepts, lower, plevel=28))
