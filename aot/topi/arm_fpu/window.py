"""The loops of a float32 layer: images, rows, pairs of neighbouring pixels, single pixels, blocks of channels.

Windows that reach beyond the image, and the last of an odd number of pixels, are done alone, with the columns that are inside.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from aot.ir.op import Array
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm, select
from aot.tir.intrin import TensorIntrin
from aot.tir.stmt import Region
from aot.topi.arm_fpu.finish import Clamp
from aot.topi.arm_fpu.intrin import CHANNELS, DotForm, instructions
from aot.topi.arm_fpu.layer import Axis, FloatIo, FloatLayer, residual_bounds
from aot.topi.generic.window import TapRange, tap_range
from aot.topi.intrin.asm_text import count_instructions
from aot.topi.layer.fused import TAIL_INSTRUCTIONS
from aot.topi.strategy import Group

UNROLL = 8
"""Taps that a loop does at a time where their number allows it."""


@dataclass(frozen=True, slots=True)
class Tile:
    """One or two pixels: the first one's column, the start of its data, taps left out before it, its runs, their taps."""

    x: Expr
    pixels: int
    data: Expr
    skipped: Expr
    runs: Expr
    taps: Expr


class WindowKernel(ABC):
    """Emits the loops and counts what they take.

    A run is the taps of a row of the window, `inner` for each column, or where those are apart (`dilated`) of one column of its
    only row.
    """

    def __init__(self, b: IRBuilder, group: Group, layer: FloatLayer, *, inner: int, fused: bool, dilated: bool = False) -> None:
        self.b, self.layer, self.fused, self._inner, self._dilated = b, layer, fused, inner, dilated
        self.io = FloatIo(b, group, layer, run=2 * CHANNELS)
        self._matrix = self.matrix()
        self._params = self.io.stream(pack(self._matrix, layer.bias))
        self._forms: dict[tuple[int, int], DotForm] = {}
        first, last = layer.columns.whole
        self._first, self._pairs = first, (last - first) // 2
        self._singles = layer.columns.out - 2 * self._pairs

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
        b, layer = self.b, self.layer
        with b.for_("i", layer.batch) as i, b.for_("y", layer.rows.out) as y:
            rows = _range(b, layer.rows, y)
            line = b.let("line", (i * layer.rows.size + rows.at(rows.first, layer.rows.dilation)) * layer.columns.size)
            pixel = b.let("pixel", (i * layer.rows.out + y) * layer.columns.out)
            if self._pairs:
                with b.for_("t", self._pairs) as t:
                    self._pair(t * 2 + self._first, rows, line, pixel)
            if self._singles:
                with b.for_("s", self._singles) as s:
                    behind = s + 2 * self._pairs
                    x = select(s < self._first, s, behind) if self._first and self._pairs else behind
                    self._single(b.let("x", x), rows, line, pixel)

    def _pair(self, x: Expr, rows: TapRange, line: Expr, pixel: Expr) -> None:
        columns = self.layer.columns
        start = self.b.let("start", (line + x * columns.stride - columns.before) * self.layer.depth)
        runs = imm(columns.taps) if self._dilated else rows.last - rows.first
        skipped = imm(0) if self._dilated else rows.first * self.run
        self._channels(Tile(x, 2, start, skipped, runs, imm(self.run)), pixel)

    def _single(self, x: Expr, rows: TapRange, line: Expr, pixel: Expr) -> None:
        columns, inner, b = self.layer.columns, self._inner, self.b
        inside = _range(b, columns, x)
        start = b.let("start", (line + inside.at(inside.first, columns.dilation)) * self.layer.depth)
        count = inside.last - inside.first
        if self._dilated:
            tile = Tile(x, 1, start, inside.first * inner, count, imm(inner))
        else:
            skipped = (rows.first * columns.taps + inside.first) * inner
            tile = Tile(x, 1, start, skipped, rows.last - rows.first, count * inner)
        self._channels(tile, pixel)

    def _channels(self, tile: Tile, pixel: Expr) -> None:
        b = self.b
        tile = replace(tile, runs=b.let("runs", tile.runs), taps=b.let("taps", tile.taps), skipped=b.let("skipped", tile.skipped))
        blocks, rest = divmod(self.layer.channels, CHANNELS)
        size = CHANNELS * (1 + len(self._matrix))
        if blocks == 1:
            self._block(tile, pixel, imm(0), imm(0), CHANNELS)
        elif blocks:
            with b.for_("n", blocks) as n:
                self._block(tile, pixel, n * CHANNELS, n * size, CHANNELS)
        if rest:
            self._block(tile, pixel, imm(blocks * CHANNELS), imm(blocks * size), rest)

    def _block(self, tile: Tile, pixel: Expr, channel: Expr, offset: Expr, count: int) -> None:
        form = self._forms[tile.pixels, count] = self.form(tile.pixels, count)
        to, step = self.io.target(pixel + tile.x, channel, count)
        numbers: list[Expr] = [imm(step)] if tile.pixels == 2 else []
        numbers += [(tile.taps - form.rest) // form.unroll] if form.loop else []
        if form.runs:
            numbers += [tile.runs, self.gap(tile.taps)]
            whole = self._inner if self._dilated else self.run
            numbers += [(whole - tile.taps) * count] if tile.pixels == 1 else []
        weights = region(self._params, offset + count + tile.skipped * count)
        data = self.data(tile.data, channel, form)
        self.b.block(self.intrin(form), *data, weights, region(self._params, offset), to, *numbers, *self.more())
        self.io.finish(pixel + tile.x, channel, pixels=tile.pixels, count=count)

    @property
    def clamp(self) -> Clamp:
        return Clamp(self.layer.lo, self.layer.hi)

    def instructions(self) -> tuple[int, int]:
        """Estimates of one call: instructions, and cycles of a Cortex-M4, on which a load of N numbers takes 1 + N."""
        layer, total, macs = self.layer, 0.0, 0.0
        lines = layer.batch * layer.rows.out
        rows = sum(len(layer.rows.inside(y)) for y in range(layer.rows.out)) / layer.rows.out
        runs = float(self.runs) if self._dilated else rows
        blocks = [CHANNELS] * (layer.channels // CHANNELS) + [layer.channels % CHANNELS] * (layer.channels % CHANNELS > 0)
        for pixels, tiles in ((2, self._pairs), (1, self._singles)):
            for count in blocks if tiles else ():
                form = self.form(pixels, count)
                trips = (self.run - form.rest) // form.unroll if form.loop else 1
                once, twice = (instructions(form, runs=r, trips=trips) for r in (1, 2))
                total += lines * tiles * (once + (runs - 1) * (twice - once) + 14)
                macs += lines * tiles * pixels * count * runs * self.run
        total += (
            (5 if residual_bounds(layer) is not None else TAIL_INSTRUCTIONS * len(layer.tail)) * layer.out_type.size
            + 14 * lines * (self._pairs + self._singles)
            + 20
        )
        return int(total), int(total + (2.7 if self.fused else 0.7) * macs)

    def code(self) -> int:
        """Bytes."""
        return 120 + sum(4 * count_instructions(f.text()) + 80 for f in self._forms.values())


def pack(matrix: Array, bias: Array) -> Array:
    """Blocks of up to CHANNELS channels: bias [n], weights [taps][n]."""
    blocks = [slice(n, n + CHANNELS) for n in range(0, bias.size, CHANNELS)]
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
