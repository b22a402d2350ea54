"""im2col: the window of an output pixel in the data, as runs of consecutive bytes that are packed or copied, padding included."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from aot.support.dtype import itemsize
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, logical_and, maximum, minimum
from aot.topi.layer.fused import FusedLayer, match_for
from aot.topi.strategy import Group

WORD = 4


def is_rows(layer: FusedLayer) -> bool:
    """Whether output pixel i reads exactly data row i: true of fully connected layers and pointwise convolutions."""
    if layer.weight.ndim == 2:
        return True
    return layer.weight.shape[1:3] == (1, 1) and layer.attrs.strides == (1, 1) and not any(layer.attrs.padding)


def match_rows(group: Group, target: Target, feature: str, *, pixels: int) -> FusedLayer | None:
    """A layer of rows that `match_for` accepts; pointwise convolutions have at most `pixels`, as larger ones belong to conv2d."""
    layer = match_for(group, target, feature)
    if layer is None or not is_rows(layer):
        return None
    return None if layer.weight.ndim > 2 and prod(layer.out_type.shape[:-1]) > pixels else layer


Origin = tuple[Expr, Expr, Expr]
"""Image, row and column of a window's first pixel; row and column are outside of the image if that pixel is padding."""


def window_at(b: IRBuilder, layer: FusedLayer, index: Expr, *, origin: tuple[int, int]) -> Origin:
    """Where the window of output pixel number `index` begins; `origin`: rows and columns of padding."""
    _, out_height, out_width, _ = layer.out_type.shape
    sy, sx = layer.attrs.strides
    line = b.let("line", index // out_width)
    image = b.let("image", line // out_height) if layer.data_type.shape[0] > 1 else imm(0)
    y = b.let("y", (line - image * out_height) * sy - origin[0])
    x = b.let("x", (index - line * out_width) * sx - origin[1])
    return image, y, x


def first_pixel(b: IRBuilder, layer: FusedLayer, passed: Expr, *, last: Expr, even: bool) -> Expr:
    """The first of the next group of output pixels, after `passed` pixels; `last`: the largest possible first pixel.

    If the pixels do not divide into whole groups (not `even`), the last group is still whole: it overlaps the one before, and the
    shared pixels are computed twice.  Results with wider elements than the data (dequantised ones) are computed from the last
    pixel to the first, so that they may overwrite data that start at the same address; so may a requantising layer.
    """
    if itemsize(layer.out_type.dtype) > itemsize(layer.data_type.dtype):
        return last - passed if even else b.let("pixel", maximum(last - passed, 0))
    return passed if even else b.let("pixel", minimum(passed, last))


PackRun = Callable[[Expr, Expr, tuple[Buffer, Expr]], None]
"""(pixel p of a group, index of the run in its window, (buffer, start) of the run's bytes): emits the packing of one run."""


class RunPacker:
    """Packs the k x k windows of a group of `pixels` pixels, run by run.

    A window is cut into runs of consecutive bytes: a row of it or, if it is dilated, a pixel.  A run that crosses the border of
    the image is first assembled in `line` (scratch for one run).
    """

    def __init__(self, b: IRBuilder, layer: FusedLayer, data: Buffer, *, pixels: int, pack: PackRun) -> None:
        self._b, self._layer, self._data, self._pixels, self._run = b, layer, data, pixels, pack
        shape = WindowRuns(layer)
        self._shape = shape
        self._line = b.scratch("line", (shape.length,), "int8") if any(layer.attrs.padding) else None

    def pack(self, first: Expr) -> None:
        """Pack the windows of the output pixels from number `first` on."""
        with self._b.for_("p", self._pixels) as p:
            self._pixel(first + p, p)

    def _pixel(self, index: Expr, p: Expr) -> None:
        b, attrs, shape = self._b, self._layer.attrs, self._shape
        _, height, width, depth = self._layer.data_type.shape
        image, y, x = window_at(b, self._layer, index, origin=attrs.padding[:2])
        with b.for_("ky", shape.rows) as ky, b.for_("kx", shape.columns) as kx:
            row = b.let("row", y + ky * attrs.dilation[0])
            column = x + kx * attrs.dilation[1]
            n = ky * shape.columns + kx
            start = b.let("start", ((image * height + row) * width + column) * depth)
            if self._line is None:
                self._run(p, n, (self._data, start))
            else:
                on_row = b.let("on_row", logical_and(row >= 0, row < height))
                self._guarded(self._line, (p, n), start=start, column=column, on_row=on_row)

    def _guarded(self, line: Buffer, place: tuple[Expr, Expr], *, start: Expr, column: Expr, on_row: Expr) -> None:
        """Pack a run straight from the image if it is inside, else via `line`."""
        b, width = self._b, self._layer.data_type.shape[2]
        with b.if_(logical_and(on_row, logical_and(column >= 0, column <= width - self._shape.width))):
            self._run(*place, (self._data, start))
        with b.else_():
            self._copy(line, start, column=column, on_row=on_row)
            self._run(*place, (line, imm(0)))

    def _copy(self, line: Buffer, start: Expr, *, column: Expr, on_row: Expr) -> None:
        """Assemble in `line` a run that is partly or wholly outside of the image."""
        b, width, depth = self._b, self._layer.data_type.shape[2], self._layer.data_type.shape[3]
        with b.for_("i", self._shape.length) as i:
            b.store(line, i, self._layer.attrs.pad_value)
        with b.if_(on_row):
            low = b.let("low", maximum(imm(0) - column, 0) * depth)
            high = b.let("high", minimum(width - column, self._shape.width) * depth)
            with b.for_("i", high, start=low) as i:
                b.store(line, i, self._data.load("int8", start + i))


def data_align(layer: FusedLayer) -> int:
    """Alignment for RunBytes: 4 if all runs of a window are whole words of the image, which are then copied by words; else 1."""
    return WORD if layer.weight.ndim == 4 and layer.weight.shape[3] % WORD == 0 else 1


def copy_instructions(layer: FusedLayer, length: int) -> int:
    """Instructions for copying a run of `length` bytes (from counts under QEMU)."""
    return 35 + length * (1 if data_align(layer) == WORD else 4)


class RunBytes:
    """Copies runs of windows to `target` unchanged, padding included; `data` has the alignment that `data_align` returns."""

    def __init__(self, b: IRBuilder, layer: FusedLayer, data: Buffer, target: Buffer) -> None:
        self._b, self._data, self._layer, self._target, self._runs = b, data, layer, target, WindowRuns(layer)
        self._words = data_align(layer) == WORD

    def copy(self, at: Expr, place: tuple[Expr, Expr, Expr]) -> None:
        """Copy the run whose first pixel is (image, row, column) to byte `at` of the target."""
        b, (image, row, column) = self._b, place
        _, height, width, depth = self._layer.data_type.shape
        start = b.let("start", ((image * height + row) * width + column) * depth)
        length = imm(self._runs.length)
        if not any(self._layer.attrs.padding):
            self._move(at, start, low=imm(0), high=length)
            return
        inside_image = logical_and(row >= 0, row < height)
        if self._runs.width == 1:
            with b.if_(logical_and(inside_image, logical_and(column >= 0, column < width))):
                self._move(at, start, low=imm(0), high=length)
            with b.else_():
                self._pad(at, imm(0), length)
            return
        with b.if_(inside_image):
            low = b.let("low", minimum(maximum(imm(0) - column, 0), self._runs.width) * depth)
            high = b.let("high", maximum(minimum(width - column, self._runs.width) * depth, low))
            self._pad(at, imm(0), low)
            self._move(at, start, low=low, high=high)
            self._pad(at, high, length)
        with b.else_():
            self._pad(at, imm(0), length)

    def _pad(self, at: Expr, low: Expr, high: Expr) -> None:
        b, pad = self._b, self._layer.attrs.pad_value
        if self._words:
            with b.for_("i", high / WORD, start=low / WORD) as i:
                b.store_as(self._target, "uint32", at / WORD + i, imm((pad & 0xFF) * 0x01010101, "uint32"))
        else:
            with b.for_("i", high, start=low) as i:
                b.store(self._target, at + i, pad)

    def _move(self, at: Expr, start: Expr, *, low: Expr, high: Expr) -> None:
        b = self._b
        if self._words:
            with b.for_("i", high / WORD, start=low / WORD) as i:
                b.store_as(self._target, "uint32", at / WORD + i, self._data.load("uint32", start / WORD + i))
        else:
            with b.for_("i", high, start=low) as i:
                b.store(self._target, at + i, cast("int32", self._data.load("int8", start + i)))


class WindowRuns:
    """The runs of a layer's window: rows x columns runs, each of `width` pixels or `length` bytes."""

    def __init__(self, layer: FusedLayer) -> None:
        self._layer = layer
        if is_rows(layer):
            self.rows, self.columns, self.width, self.length = 1, 1, 1, int(layer.weight[0].size)
        else:
            _, height, width, depth = layer.weight.shape
            joined = width if layer.attrs.dilation[1] == 1 else 1
            self.rows, self.columns, self.width, self.length = height, width // joined, joined, joined * depth

    @property
    def count(self) -> int:
        return self.rows * self.columns

    def copying(self, unit: int) -> int:
        """Instructions for copying the windows of all output pixels, `unit` bytes at a time (from counts under QEMU)."""
        attrs, (_, height, width, depth) = self._layer.attrs, self._layer.data_type.shape
        images, rows, columns, _ = self._layer.out_type.shape
        pixels, units = images * rows * columns, self.length // unit
        if not any(attrs.padding):
            return int(pixels * (12 + self.count * (4.2 + 4.1 * units)))
        lines = images * inside(rows, self.rows, 1, height, axis=(attrs.strides[0], attrs.dilation[0], attrs.padding[0]))
        steps = self.columns * self.width
        row = inside(columns, steps, 1, width, axis=(attrs.strides[1], attrs.dilation[1], attrs.padding[1]))
        moved, started = lines * row * depth // unit, lines * columns * self.columns
        outside = pixels * self.count - started
        return int(pixels * (8 + 2.4 * self.count * units) + 18.4 * started + 39.4 * outside + 2.6 * moved)

    def instructions(self, share: float, *, run: int, pixel: float) -> int:
        """Instructions for packing `share` of the windows of all output pixels (from counts under QEMU).

        `run`: instructions per run inside the image; `pixel`: further instructions per pixel.
        """
        attrs, (_, height, width, depth) = self._layer.attrs, self._layer.data_type.shape
        images, rows, columns, _ = self._layer.out_type.shape
        runs = images * rows * columns * self.count
        total = runs * run + images * rows * columns * pixel
        if not any(attrs.padding):
            return int(share * total)
        axis = (attrs.strides[1], attrs.dilation[1], attrs.padding[1])
        lines = images * inside(rows, self.rows, 1, height, axis=(attrs.strides[0], attrs.dilation[0], attrs.padding[0]))
        whole = lines * inside(columns, self.columns, self.width, width, axis=axis)
        bytes_inside = lines * inside(columns, self.columns * self.width, 1, width, axis=axis) * depth
        part = lines * columns * self.columns - whole
        copied = 24 * part + 6.4 * (bytes_inside - whole * self.length) + 0.5 * (runs - whole) * self.length
        return int(share * (total + 5 * runs + copied))


def inside(count: int, steps: int, extent: int, size: int, *, axis: tuple[int, int, int]) -> int:
    """How many of `count` * `steps` runs of `extent` positions are within `size`; axis: (stride, dilation, padding before)."""
    stride, dilation, before = axis
    starts = [i * stride + k * dilation - before for i in range(count) for k in range(steps)]
    return sum(s >= 0 and s + extent <= size for s in starts)
