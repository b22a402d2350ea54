"""Convolution with one byte a weight, one output pixel at a time: the bytes of its window, unpacked for each block of channels.

As dense_w8_direct, with all taps of a window as its row.  Rows of data, as pointwise convolutions and fully connected layers have
them, are taken as they are.  Scratch: one byte a tap of one window.
Weights take one byte each in flash.
"""

from __future__ import annotations

from math import prod

from aot.op.impl import Group, Impl, Lowered, register_impl
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, logical_and, maximum, minimum
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.dense_w8_direct import LEAST_CHANNELS, DirectKernel, direct_stream
from aot.topi.arm_dsp.intrin_w8 import TAPS
from aot.topi.arm_dsp.stream_w8 import plan_w8
from aot.topi.arm_dsp.window import WindowRuns, is_rows
from aot.topi.fused import FusedLayer, describe, match_layer, tail_accepts, tail_instructions
from aot.topi.layer_io import LayerIo, open_io

WORD = 4


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
    io = open_io(b, group, layer, data_shape=shape, out_shape=(rows, layer.channels), data_align=_data_align(layer))
    kernel = DirectKernel(b, io, stream, depth)
    window = None if is_rows(layer) else _Window(b, io, layer)
    with b.for_("m", rows) as m:
        kernel.row(m, (io.data, m * depth) if window is None else (window.fill(m), imm(0)))
    described = describe("arm_dsp.conv2d_w8_direct", channels=stream.block, unroll=kernel.plan.unroll)
    func = b.finish(FuncAttrs(kernel=described, span=layer.span, macs=layer.macs))
    copy = 0 if is_rows(layer) else _copy_instructions(layer)
    instructions = rows * (kernel.instructions() + copy) + tail_instructions(layer)
    return Lowered(func, io.constants, instructions=instructions, code=kernel.code() + (0 if window is None else 200))


def _by_words(layer: FusedLayer) -> bool:
    """Whether all runs of a window are whole words of the image."""
    return bool(layer.weight.ndim == 4 and layer.weight.shape[3] % WORD == 0)


def _data_align(layer: FusedLayer) -> int:
    return WORD if not is_rows(layer) and _by_words(layer) else 1


def _copy_instructions(layer: FusedLayer) -> int:
    """Of one window (from counts under QEMU)."""
    runs = WindowRuns(layer)
    return 30 + runs.count * (35 + runs.length * (1 if _by_words(layer) else 4))


class _Window:
    """The bytes of a pixel's window, padding included, one run of consecutive bytes after the other."""

    def __init__(self, b: IRBuilder, io: LayerIo, layer: FusedLayer) -> None:
        self._b, self._data, self._layer, self._runs = b, io.data, layer, WindowRuns(layer)
        self._words = _by_words(layer)
        self._window: Buffer = b.scratch("window", (int(layer.weight[0].size),), "int8", align=WORD)

    def fill(self, index: Expr) -> Buffer:
        """Copy the window of output pixel number `index`."""
        b, attrs, runs = self._b, self._layer.attrs, self._runs
        images, height, width, depth = self._layer.data_type.shape
        _, out_height, out_width, _ = self._layer.out_type.shape
        line = b.let("line", index // out_width)
        image = b.let("image", line // out_height) if images > 1 else imm(0)
        y = b.let("y", (line - image * out_height) * attrs.strides[0] - attrs.padding[0])
        x = b.let("x", (index - line * out_width) * attrs.strides[1] - attrs.padding[1])
        with b.for_("ky", runs.rows) as ky, b.for_("kx", runs.columns) as kx:
            row = b.let("row", y + ky * attrs.dilation[0])
            column = b.let("column", x + kx * attrs.dilation[1])
            start = b.let("start", ((image * height + row) * width + column) * depth)
            at = b.let("at", (ky * runs.columns + kx) * runs.length)
            if not any(attrs.padding):
                self._copy(at, start, low=imm(0), high=imm(runs.length))
            else:
                self._guarded(at, start, column=column, on_row=logical_and(row >= 0, row < height))
        return self._window

    def _guarded(self, at: Expr, start: Expr, *, column: Expr, on_row: Expr) -> None:
        """A run of which some or all bytes may lie outside."""
        b, (_, _, width, depth) = self._b, self._layer.data_type.shape
        length = imm(self._runs.length)
        with b.if_(on_row):
            low = b.let("low", minimum(maximum(imm(0) - column, 0), self._runs.width) * depth)
            high = b.let("high", maximum(minimum(width - column, self._runs.width) * depth, low))
            self._fill(at, imm(0), low)
            self._copy(at, start, low=low, high=high)
            self._fill(at, high, length)
        with b.else_():
            self._fill(at, imm(0), length)

    def _fill(self, at: Expr, low: Expr, high: Expr) -> None:
        b, pad = self._b, self._layer.attrs.pad_value
        if self._words:
            with b.for_("i", high / WORD, start=low / WORD) as i:
                b.store_as(self._window, "uint32", at / WORD + i, imm((pad & 0xFF) * 0x01010101, "uint32"))
        else:
            with b.for_("i", high, start=low) as i:
                b.store(self._window, at + i, pad)

    def _copy(self, at: Expr, start: Expr, *, low: Expr, high: Expr) -> None:
        b = self._b
        if self._words:
            with b.for_("i", high / WORD, start=low / WORD) as i:
                b.store_as(self._window, "uint32", at / WORD + i, self._data.load("uint32", start / WORD + i))
        else:
            with b.for_("i", high, start=low) as i:
                b.store(self._window, at + i, cast("int32", self._data.load("int8", start + i)))


register_impl(Impl("arm_dsp.conv2d_w8_direct", "nn.conv2d", accepts, lower, plevel=8, small=True))
register_impl(Impl("arm_dsp.dense_w8_direct_few", "nn.dense", accepts_few, lower, plevel=8, small=True))
