"""The taps of a group of output pixels, packed into words: several pixels share a word, so that one product serves them all.

`Packing` says which pixels share a word.  `TapSource` fills the words of one group of pixels from the int8 data; taps in the
padding get the zero point.  `TapLoop` says how a block of assembly loops over the words.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

import numpy as np

from aot.support.dataclass import dataclass
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, logical_and, select
from aot.topi.layer.fused import FusedLayer, LayerIo
from aot.topi.layer.im2col import Origin, is_rows, window_at

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
