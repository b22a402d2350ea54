"""Packing the bytes that an output pixel reads one after another, the padding's value where the window leaves the image."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm, logical_and, maximum, minimum
from aot.tir.stmt import Region
from aot.topi.arm_dsp.w8.window import Origin, WindowRuns, inside, window_at
from aot.topi.arm_mve.intrin_copy import (
    copy_rows,
    copy_rows_instructions,
    fill,
    fill_instructions,
    pack_rows,
    pack_rows_instructions,
    pack_rows_straight,
)
from aot.topi.arm_mve.stream import VECTOR
from aot.topi.layer.fused import FusedLayer


def stays_inside(layer: FusedLayer, origins: Sequence[Origin]) -> Expr | None:
    """Whether the windows that begin at `origins` read no padding; None where none does."""
    _, height, width, _ = layer.data_type.shape
    _, kh, kw, _ = layer.weight.shape
    dy, dx = layer.attrs.dilation
    tests = [
        test
        for _, y, x in origins
        for pad, test in zip(
            layer.attrs.padding,
            (y >= 0, x >= 0, y <= height - 1 - (kh - 1) * dy, x <= width - 1 - (kw - 1) * dx),
            strict=True,
        )
        if pad
    ]
    return reduce(logical_and, tests) if tests else None


class WindowPacker:
    """Scratch for `windows` windows of a convolution: rows of KW * C bytes, one after another."""

    def __init__(self, b: IRBuilder, layer: FusedLayer, data: Buffer, *, windows: int) -> None:
        self._b, self._layer, self._data = b, layer, data
        self._runs = WindowRuns(layer)
        self._size = layer.weight[0].size
        self._pitch = -(-self._size // VECTOR) * VECTOR
        self._buffer = b.scratch("windows", (windows * self._pitch,), "int8", align=8)

    def window(self, number: int) -> Region:
        return region(self._buffer, number * self._pitch)

    def pack(self, index: Expr, number: Expr) -> None:
        """That of output pixel `index` as window `number`."""
        b, layer = self._b, self._layer
        origin = window_at(b, layer, index, origin=layer.attrs.padding[:2])
        to = b.let("to", number * self._pitch)
        test = stays_inside(layer, [origin])
        if test is None:
            self._whole(origin, to)
            return
        with b.if_(test):
            self._whole(origin, to)
        with b.else_():
            self._clipped(origin, to)

    def _at(self, origin: Origin, row: Expr | int, column: Expr | int) -> Expr:
        """The byte of the image at a row and column of the window's own grid."""
        image, y, x = origin
        _, height, width, depth = self._layer.data_type.shape
        dy, dx = self._layer.attrs.dilation
        return ((image * height + y + imm(dy) * row) * width + x + imm(dx) * column) * depth

    def _whole(self, origin: Origin, to: Expr) -> None:
        b, runs = self._b, self._runs
        _, _, width, depth = self._layer.data_type.shape
        step = imm(self._layer.attrs.dilation[0] * width * depth)
        for column in range(runs.columns):
            source = region(self._data, b.let("start", self._at(origin, 0, column)))
            target = region(self._buffer, to + column * runs.length)
            if runs.columns == 1 and pack_rows_straight(runs.length):
                b.block(pack_rows(runs.length), source, target, imm(runs.rows), step)
            else:
                b.block(copy_rows(), source, target, imm(runs.rows), imm(runs.length), step, imm(runs.columns * runs.length))

    def _clipped(self, origin: Origin, to: Expr) -> None:
        """The padding's value, then the rows and columns that are inside the image."""
        b, layer, runs = self._b, self._layer, self._runs
        _, y, x = origin
        _, height, width, depth = layer.data_type.shape
        dy, dx = layer.attrs.dilation
        b.block(fill(), region(self._buffer, to), imm(layer.attrs.pad_value), imm(self._size))
        top = b.let("top", (maximum(imm(0) - y, 0) + (dy - 1)) // dy)
        rows = b.let("rows", minimum(runs.rows, (maximum(height - y, 0) + (dy - 1)) // dy) - top)
        sizes = (imm(dy * width * depth), imm(runs.columns * runs.length))
        for column in range(runs.columns):
            left: Expr = imm(column)
            count: Expr = imm(1)
            if runs.columns == 1:
                left = b.let("left", maximum(imm(0) - x, 0))
                count = b.let("count", minimum(runs.width, width - x) - left)
                test = logical_and(rows > 0, count > 0)
            else:
                at = b.let("at", x + column * dx)
                test = logical_and(rows > 0, logical_and(at >= 0, at < width))
            with b.if_(test):
                source = region(self._data, self._at(origin, top, left))
                target = region(self._buffer, to + (top * (runs.columns * runs.width) + left) * depth)
                b.block(copy_rows(), source, target, rows, count * depth, *sizes)


def pack_instructions(layer: FusedLayer) -> int:
    """Of packing the windows of all output pixels once (from counts under QEMU)."""
    runs = WindowRuns(layer)
    attrs, (_, height, width, _) = layer.attrs, layer.data_type.shape
    images, rows, columns, _ = layer.out_type.shape
    _, kh, kw, _ = layer.weight.shape
    (sy, sx), (dy, dx), (top, left, *_rest) = attrs.strides, attrs.dilation, attrs.padding
    whole = images * inside(rows, 1, (kh - 1) * dy + 1, height, axis=(sy, 0, top))
    whole *= inside(columns, 1, (kw - 1) * dx + 1, width, axis=(sx, 0, left))
    if runs.columns == 1 and pack_rows_straight(runs.length):
        plain = pack_rows_instructions(runs.rows, runs.length) + 20
    else:
        plain = runs.columns * (copy_rows_instructions(runs.rows, runs.length) + 4) + 20
    clipped = fill_instructions(layer.weight[0].size) + runs.columns * copy_rows_instructions(runs.rows, runs.length) + 60
    return int(whole * plain + (images * rows * columns - whole) * clipped) if prod(layer.out_type.shape) else 0
