"""im2col: the window of an output pixel in the data, as runs of consecutive bytes that are packed or copied, padding included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod

import numpy as np

from aot.support.dataclass import dataclass
from aot.support.dtype import itemsize
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, logical_and, maximum, minimum, select
from aot.topi.layer.fused import FusedLayer, LayerIo, match_for
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


@dataclass(frozen=True, slots=True)
class TapRange:
    """Taps [first, last) of one axis; tap t reads coordinate origin + t * dilation."""

    origin: Expr
    first: Expr
    last: Expr

    def at(self, tap: Expr, dilation: int) -> Expr:
        return self.origin + tap * dilation


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of a sliding window: `out` positions; tap t of position p is at p*stride - before + t*dilation.

    `data_step` and `out_step`: the distance between neighbours of data and results in bytes.
    """

    size: int
    out: int
    taps: int = 1
    stride: int = 1
    dilation: int = 1
    before: int = 0
    data_step: int = 0
    out_step: int = 0

    @property
    def reach(self) -> int:
        """Positions that a window covers."""
        return (self.taps - 1) * self.dilation + 1

    @property
    def used(self) -> int:
        """Positions of the padded image that results depend on."""
        return (self.out - 1) * self.stride + self.reach

    @property
    def copied(self) -> int:
        """Positions of the image that results depend on, counted from its first position."""
        return max(0, min(self.size, self.used - self.before))

    @property
    def after(self) -> int:
        """How far the last window reaches beyond the image."""
        return max(0, self.used - self.before - self.size)

    def inside(self, position: int) -> list[int]:
        """The taps that are inside the image at an output position."""
        origin = position * self.stride - self.before
        return [t for t in range(self.taps) if 0 <= origin + t * self.dilation < self.size]

    @property
    def never_empty(self) -> bool:
        return all(self.inside(p) for p in range(self.out))

    @property
    def whole(self) -> tuple[int, int]:
        """[first, last) of the positions whose taps are all inside the image."""
        positions = [p for p in range(self.out) if len(self.inside(p)) == self.taps]
        return (positions[0], positions[-1] + 1) if positions else (0, 0)

    @property
    def taps_inside(self) -> int:
        """Number of taps inside the image, summed over all positions."""
        return sum(len(self.inside(p)) for p in range(self.out))

    def taps_at(self, b: IRBuilder, position: Expr, *, after: int | None = None) -> TapRange:
        """The taps inside the image at a position; `after`: positions of padding behind it, if not just those that are used."""
        origin = position * self.stride - self.before
        first: Expr = imm(0)
        last: Expr = imm(self.taps)
        more, up = self.after if after is None else after, self.dilation - 1
        if self.before or more:
            origin = b.let("origin", origin)
        if self.before:
            first = b.let("first", (maximum(0 - origin, 0) + up) // self.dilation)
        if more:
            last = b.let("last", minimum((self.size - origin + up) // self.dilation, self.taps))
        return TapRange(origin, first, last)


def axes(layer: FusedLayer) -> tuple[Axis, Axis]:
    """Height and width of a depthwise layer's image, or of a convolution's."""
    _, height, width, depth = layer.data_type.shape
    _, out_height, out_width, channels = layer.out_type.shape
    kh, kw = layer.weight.shape[:2] if layer.weight.ndim == 3 else layer.weight.shape[1:3]
    (sy, sx), (dy, dx), (top, left, _, _) = layer.attrs.strides, layer.attrs.dilation, layer.attrs.padding
    y = Axis(height, out_height, kh, sy, dy, top, width * depth, out_width * channels)
    return y, Axis(width, out_width, kw, sx, dx, left, depth, channels)


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


# The taps of a group of output pixels, packed into words: several pixels share a word, so that one product serves them all.
#
# `Packing` says which pixels share a word.  `TapSource` fills the words of one group of pixels from the int8 data; taps in the
# padding get the zero point.  `TapLoop` says how a block of assembly loops over the words.


MAX_PADDED_COPY = 2048
"""Largest padded copy of an image, in bytes."""


@dataclass(frozen=True, slots=True)
class TapLoop:
    """How a block of assembly covers its taps: a loop with `unroll` taps in its body (0: no loop), then `rest` taps."""

    unroll: int
    rest: int = 0

    def accepts(self, taps: int) -> bool:
        """Whether `taps` can be covered (the loop runs at least once)."""
        looped = taps - self.rest
        return looped == 0 if self.unroll == 0 else looped > 0 and looped % self.unroll == 0

    def instructions(self, taps: int) -> int:
        """Instructions that the block executes."""
        return 6 * taps + (3 * ((taps - self.rest) // self.unroll) + 3 if self.unroll else 0)


@dataclass(frozen=True, slots=True)
class Packing:
    """How a group of `pixels` shares words: word i of a tap is pixel `firsts[i]` + the next pixel * 2^bits.

    `unroll`: the most taps in the body of the packing loop.  `in_line`: compute one window address per group if all its pixels
    are in one row of the output.
    """

    pixels: int
    bits: int
    firsts: tuple[int, ...]
    unroll: int = 4
    in_line: bool = False

    @property
    def words(self) -> int:
        """Words per tap."""
        return len(self.firsts)

    def put(self, b: IRBuilder, words: Buffer, tap: Expr, values: Sequence[Expr]) -> None:
        """Store the words of a tap, given the value of each pixel."""
        for i, first in enumerate(self.firsts):
            at = tap * self.words + i if i else tap * self.words
            b.store(words, at, values[first] + values[first + 1] * (1 << self.bits))


class TapSource:
    """Packs a group of pixels into the scratch buffer `words`, which has room for `taps` taps; taps beyond the window are zero.

    `split`: at the border, taps that are inside the image for all pixels use the fast loop (faster, more code).
    """

    def __init__(self, b: IRBuilder, layer: FusedLayer, io: LayerIo, taps: int, packing: Packing, *, split: bool = False) -> None:
        self._b, self._layer, self._data, self._packing = b, layer, io.data, packing
        self.words = words = b.scratch("words", (packing.words * taps,), "int32")
        self._depth = int(layer.weight[0].size)
        if self._depth < taps:
            with b.for_("z", packing.words * taps, start=packing.words * self._depth) as z:
                b.store(words, z, 0)
        self._window = None if is_rows(layer) else Window(b, layer, io.data, words, packing, split=split)

    def pack(self, first: Expr) -> None:
        """Pack the pixels from number `first` on."""
        if self._window is not None:
            self._window.pack(first)
            return
        depth = self._layer.data_type.shape[-1]
        runs = [(self._data, (first + p) * depth) for p in range(self._packing.pixels)]
        pack_runs(self._b, self.words, runs, self._depth, packing=self._packing)


def pack_runs(
    b: IRBuilder,
    words: Buffer,
    runs: Sequence[tuple[Buffer, Expr]],
    length: int,
    *,
    tap: Expr | None = None,
    packing: Packing,
) -> None:
    """Pack `length` consecutive bytes of each pixel, which begin at `runs`, as the taps from number `tap` on."""
    step = max(u for u in range(1, packing.unroll + 1) if length % u == 0)
    with b.for_("k", length, step=step) as k:
        for u in range(step):
            values: list[Expr] = [b.let("v", cast("int32", data.load("int8", start + k + u))) for data, start in runs]
            packing.put(b, words, (k + u) if tap is None else tap + k + u, values)


Pixels = Sequence[Origin]
"""Where the window of each pixel of a group begins."""


def one_line(layer: FusedLayer, packing: Packing) -> bool:
    """Whether the packing uses one address per group, and every group is within one row of the output."""
    return packing.in_line and layer.out_type.shape[2] % packing.pixels == 0


def window_pixels(b: IRBuilder, layer: FusedLayer, first: Expr, *, origin: tuple[int, int], packing: Packing) -> Pixels:
    """Where the windows of the output pixels from number `first` on begin; `origin`: padding above and left."""
    if one_line(layer, packing):
        image, y, x = window_at(b, layer, first, origin=origin)
        return [(image, y, x + p * layer.attrs.strides[1]) for p in range(packing.pixels)]
    return [window_at(b, layer, first + p, origin=origin) for p in range(packing.pixels)]


class Window:
    """Packs the taps of k x k windows; the pixels of a group may be in different rows."""

    def __init__(
        self, b: IRBuilder, layer: FusedLayer, data: Buffer, words: Buffer, packing: Packing, *, split: bool = False
    ) -> None:
        self._b, self._layer, self._data, self._words, self._packing, self._split = b, layer, data, words, packing, split
        self._shape = layer.data_type.shape
        self._origin = layer.attrs.padding[:2]
        self._padded = any(layer.attrs.padding)
        top, left, bottom, right = layer.attrs.padding
        n, height, width, depth = self._shape
        copy = (n, height + top + bottom, width + left + right, depth)
        if self._padded and prod(copy) <= MAX_PADDED_COPY:
            self._copy_padded(copy)

    def _copy_padded(self, shape: tuple[int, int, int, int]) -> None:
        """Copy the image and its border into scratch memory, so that every tap is inside and needs no test."""
        b, (n, height, width, depth) = self._b, self._shape
        top, left, _, _ = self._layer.attrs.padding
        image = b.scratch("image", (prod(shape),), "int8")
        with b.for_("f", prod(shape)) as f:
            b.store(image, f, self._layer.attrs.pad_value)
        with b.for_("i", n * height) as i:
            target = ((i // height) * shape[1] + i % height + top) * shape[2] + left if n > 1 else (i + top) * shape[2] + left
            with b.for_("c", width * depth) as c:
                b.store(image, target * depth + c, self._data.load("int8", i * (width * depth) + c))
        self._data, self._shape, self._origin, self._padded = image, shape, (0, 0), False

    def pack(self, first: Expr) -> None:
        b = self._b
        pixels = window_pixels(b, self._layer, first, origin=self._origin, packing=self._packing)
        if not self._padded:
            self._pack_inside(pixels)
            return
        if not self._has_inside():
            self._pack_border(pixels)
            return
        with b.if_(reduce(logical_and, [self._is_inside(y, x) for _, y, x in pixels])):
            self._pack_inside(pixels)
        with b.else_():
            self._pack_border(pixels)

    def _has_inside(self) -> bool:
        """Whether the window fits into the image at all."""
        _, kh, kw, _ = self._layer.weight.shape
        _, height, width, _ = self._shape
        dy, dx = self._layer.attrs.dilation
        return bool((kh - 1) * dy < height and (kw - 1) * dx < width)

    def _is_inside(self, y: Expr, x: Expr) -> Expr:
        _, kh, kw, _ = self._layer.weight.shape
        _, height, width, _ = self._shape
        dy, dx = self._layer.attrs.dilation
        rows = logical_and(y >= 0, y <= height - ((kh - 1) * dy + 1))
        return logical_and(rows, logical_and(x >= 0, x <= width - ((kw - 1) * dx + 1)))

    def _flat(self, pixel: tuple[Expr, Expr, Expr], ky: Expr, kx: Expr) -> Expr:
        image, y, x = pixel
        _, height, width, depth = self._shape
        dy, dx = self._layer.attrs.dilation
        return ((image * int(height) + y + ky * int(dy)) * int(width) + x + kx * int(dx)) * int(depth)

    def _pack_inside(self, pixels: Pixels) -> None:
        b = self._b
        _, kh, kw, depth = self._layer.weight.shape
        joined = self._layer.attrs.dilation[1] == 1
        with b.for_("ky", kh) as ky, b.for_("kx", 1 if joined else kw) as kx:
            starts: list[tuple[Buffer, Expr]] = [(self._data, b.let("s", self._flat(p, ky, kx))) for p in pixels]
            tap = (ky * kw + kx) * depth
            pack_runs(b, self._words, starts, kw * depth if joined else depth, tap=tap, packing=self._packing)

    def _pack_border(self, pixels: Pixels) -> None:
        b = self._b
        _, kh, kw, depth = self._layer.weight.shape
        _, height, width, _ = self._shape
        dy, dx = self._layer.attrs.dilation
        with b.for_("ky", kh) as ky, b.for_("kx", kw) as kx:
            taps: list[tuple[Expr, Expr]] = []
            for pixel in pixels:
                y, x = pixel[1] + ky * dy, pixel[2] + kx * dx
                rows = logical_and(y >= 0, y < height)
                taps.append(
                    (b.let("ok", logical_and(rows, logical_and(x >= 0, x < width))), b.let("s", self._flat(pixel, ky, kx)))
                )
            tap = (ky * kw + kx) * depth
            if self._split:
                with b.if_(reduce(logical_and, [ok for ok, _ in taps])):
                    pack_runs(b, self._words, [(self._data, s) for _, s in taps], depth, tap=tap, packing=self._packing)
                with b.else_():
                    self._pack_selected(taps, tap)
            else:
                self._pack_selected(taps, tap)

    def _pack_selected(self, taps: Sequence[tuple[Expr, Expr]], tap: Expr) -> None:
        """Pack one tap, given (inside the image?, address) for each pixel; the zero point if outside."""
        b = self._b
        with b.for_("c", self._shape[3]) as c:
            pad = imm(self._layer.attrs.pad_value)
            values: list[Expr] = [b.let("v", select(ok, cast("int32", self._data.load("int8", s + c)), pad)) for ok, s in taps]
            self._packing.put(b, self._words, tap + c, values)


def border_groups(layer: FusedLayer, pixels: int) -> int:
    """Number of groups of `pixels` in which some window leaves the image; 0 if a padded copy is made."""
    if is_rows(layer) or not any(layer.attrs.padding):
        return 0
    n, height, width, depth = layer.data_type.shape
    top, left, bottom, right = layer.attrs.padding
    if n * (height + top + bottom) * (width + left + right) * depth <= MAX_PADDED_COPY:
        return 0
    lines, columns = (
        (at >= 0) & (at + (layer.weight.shape[1 + axis] - 1) * layer.attrs.dilation[axis] < (height, width)[axis])
        for axis in range(2)
        for at in [np.arange(layer.out_type.shape[1 + axis]) * layer.attrs.strides[axis] - layer.attrs.padding[axis]]
    )
    inside = np.tile(np.outer(lines, columns).reshape(-1), n)
    whole = inside[: inside.size // pixels * pixels].reshape(-1, pixels).all(axis=1)
    return int((~whole).sum()) + int(inside.size % pixels > 0)
