"""Depthwise convolution by planes: one channel's image, or a band of its rows, is copied with its border and then convolved.

NHWC data interleaves channels, so neighbouring pixels of a channel are `depth` bytes apart.  Copying a channel to a plane makes
them adjacent, and the inner loops need no test for the border.

Kernels of all instruction sets share what is here: the two axes of the image, the bands that its rows are split into, the strips
that a row of results is split into, and the loops over planes.  The rows of a plane are the rows of the image or, if `swapped`,
its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod

from aot.support.dataclass import dataclass
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, logical_and, minimum
from aot.topi.layer.fused import FusedLayer

BAND_BYTES = 4096
"""Largest plane of a band, unless a single row needs more."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One image axis: sizes of data, result and kernel, and the distance between neighbours in bytes."""

    size: int
    out: int
    taps: int
    stride: int
    dilation: int
    before: int
    data_step: int
    out_step: int

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


def axes(layer: FusedLayer) -> tuple[Axis, Axis]:
    """Height and width."""
    _, height, width, depth = layer.data_type.shape
    _, out_height, out_width, channels = layer.out_type.shape
    kh, kw, _ = layer.weight.shape
    (sy, sx), (dy, dx), (top, left, _, _) = layer.attrs.strides, layer.attrs.dilation, layer.attrs.padding
    y = Axis(height, out_height, kh, sy, dy, top, width * depth, out_width * channels)
    return y, Axis(width, out_width, kw, sx, dx, left, depth, channels)


def orientations(layer: FusedLayer) -> tuple[tuple[Axis, Axis, bool], ...]:
    """(rows, columns, swapped) for both orientations of the planes; the dilation of a single tap is ignored."""
    y, x = (replace(a, dilation=a.dilation if a.taps > 1 else 1) for a in axes(layer))
    return (y, x, False), (x, y, True)


def band_height(rows: Axis, *, line_bytes: int) -> int:
    """Result rows per band: the fewest equal bands whose plane fits BAND_BYTES; 1 if none does."""
    heights = (-(-rows.out // n) for n in range(1, rows.out + 1))
    return next((h for h in heights if line_bytes * ((h - 1) * rows.stride + rows.reach) <= BAND_BYTES), 1)


@dataclass(frozen=True, slots=True)
class Planes:
    """Planes of `band` result rows each; their rows are `pitch` elements apart."""

    layer: FusedLayer
    rows: Axis
    columns: Axis
    swapped: bool
    band: int
    pitch: int

    @property
    def lines(self) -> int:
        """Rows of the plane."""
        return (self.band - 1) * self.rows.stride + self.rows.reach

    @property
    def bands(self) -> int:
        return -(-self.rows.out // self.band)

    def results(
        self,
        b: IRBuilder,
        copy: Callable[[Expr, Expr], None],
        *,
        bands_first: bool = False,
        name_channel: bool = False,
    ) -> Iterator[tuple[Expr, Expr]]:
        """Loop over planes and filters: call `copy(first datum of the channel, first result row)`, yield channel and first
        result.

        `bands_first`: finish a band for all channels before the next band, so that the result may overwrite the data.
        """
        shape, out_shape, multiplier = self.layer.data_type.shape, self.layer.out_type.shape, self.layer.attrs.multiplier
        for image in counted(b, shape[0], "n"):
            for c, first in self._each(b, shape[-1], bands_first=bands_first):
                copy(image * prod(shape[1:]) + c, first)
                for m in counted(b, multiplier, "m"):
                    channel = c * multiplier + m
                    if name_channel and multiplier > 1:
                        channel = b.let("channel", channel)
                    yield channel, image * prod(out_shape[1:]) + channel + first * self.rows.out_step

    def _each(self, b: IRBuilder, channels: int, *, bands_first: bool) -> Iterator[tuple[Expr, Expr]]:
        if bands_first:
            for first in starts(b, self.rows.out, self.band, "band", "first"):
                with b.for_("c", channels) as c:
                    yield c, first
            return
        with b.for_("c", channels) as c:
            for first in starts(b, self.rows.out, self.band, "band", "first"):
                yield c, first

    def copy(self, b: IRBuilder, source: Expr, first: Expr, row: Callable[[Expr, Expr | None], None]) -> None:
        """Copy one band: `row(row of the plane, first datum of the image's row, or None for padding)`.

        With several bands, border rows are at a different place in each band, so they are written too.
        """
        rows = self.rows
        if self.bands == 1:
            with b.for_("y", max(0, min(rows.size, self.lines - rows.before))) as y:
                row(y + rows.before, b.let("s", source + y * rows.data_step))
            return
        with b.for_("y", self.lines) as y:
            line = b.let("line", first * rows.stride + y - rows.before)
            with b.if_(logical_and(line >= 0, line < rows.size)):
                row(y, b.let("s", source + line * rows.data_step))
            with b.else_():
                row(y, None)

    def pixels(self, data: Buffer, start: Expr | None) -> Callable[[Expr], Expr]:
        """Pixel number x of the row of the image that begins at datum `start`; of a padding row if `start` is None."""
        if start is None:
            return lambda _x: imm(self.layer.attrs.pad_value)
        return lambda x: cast("int32", data.load("int8", start + x * self.columns.data_step))


def counted(b: IRBuilder, count: int, name: str) -> Iterator[Expr]:
    """The variable of a loop; 0 without a loop if the count is 1."""
    if count == 1:
        yield imm(0)
        return
    with b.for_(name, count) as n:
        yield n


def starts(b: IRBuilder, count: int, size: int, loop: str, name: str) -> Iterator[Expr]:
    """The first index of each run of `size` among `count`; if they do not divide evenly, the last run overlaps the one before."""
    if count <= size:
        yield imm(0)
        return
    with b.for_(loop, -(-count // size)) as i:
        yield b.let(name, minimum(i * size, count - size)) if count % size else i * size


Strips = tuple[tuple[int, int], ...]
"""(first output, number of outputs) for each part of a row of results."""


def cut(outputs: int, width: int, *, join: bool) -> Strips:
    """Strips of `width` and a remainder; `join`: a remainder of one output is added to the last strip."""
    firsts = list(range(0, outputs, width))
    if join and len(firsts) > 1 and outputs - firsts[-1] == 1:
        firsts.pop()
    return tuple((f, end - f) for f, end in zip(firsts, [*firsts[1:], outputs], strict=True))


def equal_strips(outputs: int, most: int) -> Strips:
    """The fewest strips of about `most` outputs at most; every strip starts at an even column."""
    count = -(-outputs // most)
    return cut(outputs, outputs // count // 2 * 2 if count > 1 else outputs, join=True)


def each_strip(b: IRBuilder, strips: Sequence[tuple[int, int]]) -> Iterator[tuple[Expr, int]]:
    """First output and number of outputs of each strip; strips of equal width run in a loop."""
    runs: list[tuple[int, int, int]] = []
    for first, outputs in strips:
        if runs and runs[-1][1] == outputs:
            runs[-1] = (*runs[-1][:2], runs[-1][2] + 1)
        else:
            runs.append((first, outputs, 1))
    for first, outputs, count in runs:
        if count == 1:
            yield imm(first), outputs
            continue
        with b.for_("x", first + count * outputs, start=first, step=outputs) as x:
            yield x, outputs
