"""Convolution with one byte a weight, one output pixel at a time: the bytes of its window, unpacked for each block of channels.

As dense_w8_direct, with all taps of a window as its row.  Rows of data, as pointwise convolutions and fully connected layers have
them, are taken as they are.  Scratch: one byte a tap of one window.
Weights take one byte each in flash.
"""

from __future__ import annotations

from math import prod

from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.w8.dense_direct import LEAST_CHANNELS, DirectKernel, direct_stream
from aot.topi.arm_dsp.w8.intrin import TAPS
from aot.topi.arm_dsp.w8.stream import plan_w8
from aot.topi.arm_dsp.w8.window import RunBytes, WindowRuns, data_align, is_rows, window_at
from aot.topi.layer.fused import FusedLayer, describe, match_layer, tail_accepts, tail_instructions
from aot.topi.layer.io import LayerIo, open_io
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


def accepts(group: Group, target: Target) -> bool:
    """Convolutions of at least four taps, accumulators provably below 2^23, requantised in the short form."""
    layer = match_layer(group)
    if layer is None or not target.has("dsp") or not tail_accepts(layer) or layer.weight[0].size < TAPS:
        return False
    return plan_w8(layer, target) is not None


def accepts_few(group: Group, target: Target) -> bool:
    """Fully connected layers of fewer channels than dense_w8_direct takes."""
    layer = match_layer(group)
    return layer is not None and layer.channels < LEAST_CHANNELS and accepts(group, target)


def lower(group: Group, target: Target, name: str) -> Lowered:
    layer = match_layer(group)
    assert layer is not None
    rows, depth = prod(layer.out_type.shape[:-1]), int(layer.weight[0].size)
    stream = direct_stream(layer, target)
    b = IRBuilder(name)
    shape = (prod(layer.data_type.shape),)
    io = open_io(
        b, group, layer, data_shape=shape, out_shape=(rows, layer.channels), data_align=1 if is_rows(layer) else data_align(layer)
    )
    kernel = DirectKernel(b, io, stream, depth)
    window = None if is_rows(layer) else _Window(b, io, layer)
    with b.for_("m", rows) as m:
        kernel.row(m, (io.data, m * depth) if window is None else (window.fill(m), imm(0)))
    described = describe("arm_dsp.conv2d_w8_direct", channels=stream.block, unroll=kernel.plan.unroll)
    func = b.finish(FuncAttrs(kernel=described, span=layer.span, macs=layer.macs))
    copy = 0 if is_rows(layer) else WindowRuns(layer).copying(data_align(layer))
    instructions = rows * kernel.instructions() + copy + tail_instructions(layer)
    return Lowered(func, io.constants, instructions=instructions, code=kernel.code() + (0 if window is None else 200))


class _Window:
    """The bytes of a pixel's window, padding included, one run of consecutive bytes after the other."""

    def __init__(self, b: IRBuilder, io: LayerIo, layer: FusedLayer) -> None:
        self._b, self._layer, self._runs = b, layer, WindowRuns(layer)
        self._window: Buffer = b.scratch("window", (int(layer.weight[0].size),), "int8", align=TAPS)
        self._bytes = RunBytes(b, layer, io.data, self._window)

    def fill(self, index: Expr) -> Buffer:
        """Copy the window of output pixel number `index`."""
        b, attrs, runs = self._b, self._layer.attrs, self._runs
        image, y, x = window_at(b, self._layer, index, origin=attrs.padding[:2])
        with b.for_("ky", runs.rows) as ky, b.for_("kx", runs.columns) as kx:
            row = b.let("row", y + ky * attrs.dilation[0])
            column = b.let("column", x + kx * attrs.dilation[1])
            self._bytes.copy(b.let("at", (ky * runs.columns + kx) * runs.length), (image, row, column))
        return self._window


register_impl(OpImplementation("arm_dsp.conv2d_w8_direct", "nn.conv2d", accepts, lower, plevel=8, small=True))
register_impl(OpImplementation("arm_dsp.dense_w8_direct_few", "nn.dense", accepts_few, lower, plevel=8))
