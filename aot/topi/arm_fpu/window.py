"""The loops of a float32 layer: images, rows, neighbouring pixels together, single pixels, blocks of channels.

Windows that reach beyond the image, and the last of an odd number of pixels, are done alone, with the columns that are inside.
Weights that flash has in a small form are widened for one block of channels at a time, which then runs over all pixels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from aot.ir.op import Array
from aot.relay.expr import Constant
from aot.support.dataclass import dataclass
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm, select
from aot.tir.intrin import TensorIntrin
from aot.tir.stmt import Region
from aot.topi.arm_fpu.finish import Clamp
from aot.topi.arm_fpu.intrin import CHANNELS, DotForm, instructions
from aot.topi.arm_fpu.intrin_unfold import unfold, unfold_code, unfold_instructions
from aot.topi.arm_fpu.layer import Axis, FloatIo, FloatLayer, residual_bounds
from aot.topi.arm_fpu.rows import StoredMatrix, stored_matrix
from aot.topi.generic.window import TapRange, tap_range
from aot.topi.intrin.asm_text import count_instructions
from aot.topi.layer.fused import TAIL_INSTRUCTIONS
from aot.topi.strategy import Group

UNROLL = 8
"""Taps that a loop does at a time where their number allows it."""


MANY = 4
"""Neighbouring pixels of a layer of one channel that are done together."""

ENOUGH = 32
"""Pixels for which weights are widened at once: more would take less time, and keep the result from overlapping the data."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Some neighbouring pixels: the first one's column, the start of its data, taps left out before it, its runs, their taps."""

    x: Expr
    pixels: int
    data: Expr
    skipped: Expr
    runs: Expr
    taps: Expr


@dataclass(frozen=True, slots=True)
class Spread:
    """Results that lie `strides` rows and columns apart in an image of (rows, columns) `size`, the first one at `first`."""

    strides: tuple[int, int]
    first: tuple[int, int]
    size: tuple[int, int]

    def row(self, i: Expr, y: Expr) -> Expr:
        """The pixel of the first result in row y of image i."""
        return (i * self.size[0] + y * self.strides[0] + self.first[0]) * self.size[1] + self.first[1]

    def pixel(self, row: Expr, x: Expr) -> Expr:
        return row + x * self.strides[1]


class WindowKernel(ABC):
    """Emits the loops and counts what they take.

    A run is the taps of a row of the window, `inner` for each column, or where those are apart (`dilated`) of one column of its
    only row.
    """

    def __init__(
        self,
        b: IRBuilder,
        group: Group,
        layer: FloatLayer,
        *,
        inner: int,
        fused: bool,
        dilated: bool = False,
        small: bool = False,
        within: tuple[FloatIo, Spread] | None = None,
    ) -> None:
        """`small`: with the weights as the file has them, in `stored`.  `within`: the parameters of a larger layer, without a
        tail, and where in its result those of this one are.
        """
        self.b, self.layer, self.fused, self._inner, self._dilated = b, layer, fused, inner, dilated
        self.io = FloatIo(b, group, layer, run=2 * CHANNELS) if within is None else within[0]
        self._matrix = self.matrix()
        self.stored = stored_form(layer, self._matrix) if small else None
        if self.stored is not None:
            self._params = self.io.stream(self.stored.pack(layer.bias, self.block), "uint32")
        else:
            self._params = self.io.stream(pack(self._matrix, layer.bias, self.block))
        if self.stored is not None and self.unfolds:
            self.layer = layer = in_rows(layer)
        lines = layer.rows.out
        self._together = next((n for n in range(1, lines) if lines % n == 0 and n * layer.columns.out >= ENOUGH), lines)
        widened = min(self.block, layer.channels) * len(self._matrix)
        self._scratch = b.scratch("widened", (widened,), "float32") if self.stored is not None and self.unfolds else None
        self._forms: dict[tuple[int, int], DotForm] = {}
        size = (layer.rows.out, layer.columns.out)
        self._spread = Spread((1, 1), (0, 0), size) if within is None else within[1]
        first, _ = layer.columns.whole
        self._first, self._many = first, self.many
        self._pairs = self.pairs - MANY // 2 * self._many
        self._singles = layer.columns.out - self._inside

    @abstractmethod
    def matrix(self) -> Array:
        """The weights as [taps, channels], in the order in which they are added."""

    @abstractmethod
    def form(self, pixels: int, count: int) -> DotForm:
        """The block for `pixels` pixels by `count` channels."""

    @abstractmethod
    def intrin(self, form: DotForm) -> TensorIntrin: ...

    @abstractmethod
    def data(self, start: Expr, channel: Expr, form: DotForm) -> list[Region]:
        """Where the data of a tile's pixels starts."""

    @abstractmethod
    def gap(self, taps: Expr) -> Expr:
        """Elements between the data of a run of `taps` and that of the next."""

    @property
    def pairs(self) -> int:
        """Of neighbouring pixels in a row that are done together."""
        first, last = self.layer.columns.whole
        return (last - first) // 2

    @property
    def many(self) -> int:
        """Of the pairs, blocks of MANY pixels."""
        return 0

    @property
    def _inside(self) -> int:
        """Pixels that are not done alone."""
        return MANY * self._many + 2 * self._pairs

    @property
    def block(self) -> int:
        """Channels that are done together."""
        return CHANNELS

    @property
    def unfolds(self) -> bool:
        """Whether stored weights are widened into scratch memory."""
        return True

    def more(self) -> list[Expr]:
        """The block's last numbers."""
        return []

    @property
    def run(self) -> int:
        """Taps of a whole run."""
        return self._inner * (1 if self._dilated else self.layer.columns.taps)

    @property
    def runs(self) -> int:
        """Of a whole window."""
        return self.layer.columns.taps if self._dilated else self.layer.rows.taps

    @property
    def run_varies(self) -> bool:
        """Whether single pixels have runs of several lengths."""
        return self.layer.columns.whole != (0, self.layer.columns.out) and not self._dilated

    def emit(self) -> None:
        b, rows = self.b, self.layer.rows.out
        with b.for_("i", self.layer.batch) as i:
            if self._scratch is None:
                with b.for_("y", rows) as y:
                    self._row(i, y, self._channels)
            else:
                with b.for_("g", rows // self._together) as g:
                    self._blocks(partial(self._unfolded, i, g * self._together))

    def _unfolded(self, i: Expr, first: Expr, channel: Expr, offset: Expr, count: int) -> None:
        """A block of channels for some rows of an image, after its weights are widened."""
        assert self.stored is not None
        assert self._scratch is not None
        row = self.stored.row(count)
        codes = offset + (count + row.parameters)
        operands = [region(self._params, codes * row.per_word, dtype=row.dtype)]
        operands += [region(self._params, offset + count, dtype="float32")] * bool(row.parameters)
        self.b.block(unfold(row), *operands, self._scratch, imm(len(self._matrix)))
        with self.b.for_("y", self._together) as y:
            self._row(i, first + y, lambda tile, pixel: self._block(tile, pixel, channel, offset, count))

    def _row(self, i: Expr, y: Expr, body: Callable[[Tile, Expr], None]) -> None:
        """Run `body` for each tile of a row; its second argument is the row's first pixel in the result."""
        b, layer = self.b, self.layer

        def named(tile: Tile) -> Tile:
            runs, taps, skipped = b.let("runs", tile.runs), b.let("taps", tile.taps), b.let("skipped", tile.skipped)
            return replace(tile, runs=runs, taps=taps, skipped=skipped)

        rows = _range(b, layer.rows, y)
        line = b.let("line", (i * layer.rows.size + rows.at(rows.first, layer.rows.dilation)) * layer.columns.size)
        pixel = b.let("pixel", self._spread.row(i, y))
        for pixels, tiles, start in ((MANY, self._many, 0), (2, self._pairs, MANY * self._many)):
            if tiles:
                with b.for_("t", tiles) as t:
                    body(named(self._whole(t * pixels + (self._first + start), rows, line, pixels)), pixel)
        if self._singles:
            with b.for_("s", self._singles) as s:
                behind = s + self._inside
                x = select(s < self._first, s, behind) if self._first and self._inside else behind
                body(named(self._single(b.let("x", x), rows, line)), pixel)

    def _whole(self, x: Expr, rows: TapRange, line: Expr, pixels: int) -> Tile:
        columns = self.layer.columns
        start = self.b.let("start", (line + x * columns.stride - columns.before) * self.layer.depth)
        runs = imm(columns.taps) if self._dilated else rows.last - rows.first
        skipped = imm(0) if self._dilated else rows.first * self.run
        return Tile(x, pixels, start, skipped, runs, imm(self.run))

    def _single(self, x: Expr, rows: TapRange, line: Expr) -> Tile:
        columns, inner, b = self.layer.columns, self._inner, self.b
        inside = _range(b, columns, x)
        start = b.let("start", (line + inside.at(inside.first, columns.dilation)) * self.layer.depth)
        count = inside.last - inside.first
        if self._dilated:
            return Tile(x, 1, start, inside.first * inner, count, imm(inner))
        skipped = (rows.first * columns.taps + inside.first) * inner
        return Tile(x, 1, start, skipped, rows.last - rows.first, count * inner)

    def _channels(self, tile: Tile, pixel: Expr) -> None:
        self._blocks(lambda channel, offset, count: self._block(tile, pixel, channel, offset, count))

    def _blocks(self, body: Callable[[Expr, Expr, int], None]) -> None:
        """Run `body` for each block of channels: its first one, its place in the constants, its size."""
        each = self.block
        blocks, rest = divmod(self.layer.channels, each)
        size = each * (1 + len(self._matrix)) if self.stored is None else self.stored.words(each)
        if blocks == 1:
            body(imm(0), imm(0), each)
        elif blocks:
            with self.b.for_("n", blocks) as n:
                body(n * each, n * size, each)
        if rest:
            body(imm(blocks * each), imm(blocks * size), rest)

    def _block(self, tile: Tile, pixel: Expr, channel: Expr, offset: Expr, count: int) -> None:
        form = self._forms[tile.pixels, count] = self.form(tile.pixels, count)
        at = self._spread.pixel(pixel, tile.x)
        to, step = self.io.target(at, channel, count)
        numbers: list[Expr] = [imm(step * self._spread.strides[1])] if tile.pixels == 2 else []
        numbers += [(tile.taps - form.rest) // form.unroll] if form.loop else []
        if form.runs:
            numbers += [tile.runs, self.gap(tile.taps)]
            whole = self._inner if self._dilated else self.run
            numbers += [(whole - tile.taps) * count] if tile.pixels == 1 else []
        weights = self._weights(offset, tile.skipped, count)
        bias = region(self._params, offset, dtype="float32")
        data = self.data(tile.data, channel, form)
        self.b.block(self.intrin(form), *data, *weights, bias, to, *numbers, *self.more())
        self.io.finish(at, channel, pixels=tile.pixels, count=count)

    def _weights(self, offset: Expr, skipped: Expr, count: int) -> list[Region]:
        """Where a block reads its weights, and how they are scaled, from a tap on."""
        if self._scratch is not None:
            return [region(self._scratch, skipped * count)]
        if self.stored is None:
            return [region(self._params, offset + count + skipped * count)]
        row = self.stored.row(count)
        codes = offset + (count + row.parameters) + skipped * row.words
        scales = [region(self._params, offset + count, dtype="float32")] * bool(row.parameters)
        return [region(self._params, codes * row.per_word, dtype=row.dtype), *scales]

    @property
    def clamp(self) -> Clamp:
        return Clamp(self.layer.lo, self.layer.hi)

    def instructions(self) -> tuple[int, int]:
        """Estimates of one call: instructions, and cycles of a Cortex-M4, on which a load of N numbers takes 1 + N."""
        layer = self.layer
        total = np.zeros(2)
        lines = layer.batch * layer.rows.out
        rows = sum(len(layer.rows.inside(y)) for y in range(layer.rows.out)) / layer.rows.out
        runs = float(self.runs) if self._dilated else rows
        whole, rest = divmod(layer.channels, self.block)
        blocks = [self.block] * whole + [rest] * (rest > 0)
        for pixels, tiles in ((MANY, self._many), (2, self._pairs), (1, self._singles)):
            for count in blocks if tiles else ():
                form = self.form(pixels, count)
                trips = (self.run * self._share(pixels) - form.rest) / form.unroll if form.loop else 1.0
                once, twice = (np.array(self.price(form, runs=r, trips=trips)) for r in (1, 2))
                around = np.array([14, 22]) * (len(blocks) > 1)
                total += lines * tiles * (once + (runs - 1) * (twice - once) + around)
        total += self._unfolding()
        total += (
            (5 if residual_bounds(layer) is not None else TAIL_INSTRUCTIONS * len(layer.tail)) * layer.out_type.size
            + 14 * lines * (self._many + self._pairs + self._singles)
            + 20
        )
        found, cycles = map(int, total)
        return found, cycles

    def price(self, form: DotForm, *, runs: int, trips: float) -> tuple[float, float]:
        """Instructions of a block, and cycles."""
        return instructions(form, runs=runs, trips=trips)

    def _share(self, pixels: int) -> float:
        """What of a row's taps is inside the image, on average."""
        columns = self.layer.columns
        if pixels > 1 or not self.run_varies:
            return 1.0
        first, last = self._first, self._first + self._inside
        singles = [x for x in range(columns.out) if not first <= x < last]
        return sum(len(columns.inside(x)) for x in singles) / (len(singles) * columns.taps)

    def _unfolding(self) -> int:
        """Instructions that widen stored weights."""
        if self.stored is None or self._scratch is None:
            return 0
        rows, (blocks, rest) = len(self._matrix), divmod(self.layer.channels, CHANNELS)
        each = {n: unfold_instructions(self.stored.row(n), rows) for n in (CHANNELS, rest) if n}
        turns = self.layer.batch * self.layer.rows.out // self._together
        return turns * (blocks * each[CHANNELS] + each.get(rest, 0) * bool(rest))

    def code(self) -> int:
        """Bytes."""
        counts = {f.channels for f in self._forms.values()} if self.stored is not None and self._scratch is not None else ()
        widening = sum(unfold_code(self.stored.row(n)) for n in counts if self.stored is not None)
        return 120 + widening + sum(4 * count_instructions(f.text()) + 80 for f in self._forms.values())


def in_rows(layer: FloatLayer) -> FloatLayer:
    """A pointwise layer, which has one row of pixels, as one of several rows: weights are widened for some pixels each."""
    pixels = layer.columns.out
    if layer.rows != Axis(1, 1) or layer.columns != Axis(pixels, pixels):
        return layer
    width = next((n for n in range(ENOUGH, pixels) if pixels % n == 0 and n % 2 == 0), pixels)
    return replace(layer, rows=Axis(pixels // width, pixels // width), columns=Axis(width, width))


def stored_form(layer: FloatLayer, matrix: Array) -> StoredMatrix | None:
    """The weights of a layer, as [taps, channels], in the form in which the file has them; None where there is none."""
    constant = layer.anchor.args[1]
    assert isinstance(constant, Constant)
    axis = -1 if str(layer.anchor.op) == "nn.depthwise_conv2d_float" else 0
    return stored_matrix(constant, matrix, channel_axis=axis)


def pack(matrix: Array, bias: Array, block: int) -> Array:
    """Blocks of up to `block` channels: bias [n], weights [taps][n]."""
    blocks = [slice(n, n + block) for n in range(0, bias.size, block)]
    return np.concatenate([a.reshape(-1) for n in blocks for a in (bias[n], matrix[:, n])])


def unroll_of(run: int) -> int:
    """Taps at a time: all of a short run, else a divisor of it near UNROLL, else UNROLL."""
    if run <= UNROLL:
        return run
    return next((u for u in (8, 7, 6, 5, 9, 10, 4) if run % u == 0), UNROLL)


def _range(b: IRBuilder, axis: Axis, position: Expr) -> TapRange:
    return tap_range(
        b,
        position,
        size=axis.size,
        taps=axis.taps,
        stride=axis.stride,
        dilation=axis.dilation,
        before=axis.before,
        after=axis.after,
    )
