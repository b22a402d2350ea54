"""Convolutions of float32 whose windows have several rows, and columns that are apart: packed first, then multiplied as one run.

Scratch: the windows of the pixels that are done together, 4 bytes a tap, with zeros for what is outside the image, which change
no sum (see layer.py).  Packing takes some instructions a tap, which all channels share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm
from aot.tir.function import FuncAttrs
from aot.tir.stmt import Region
from aot.topi.arm_fpu.conv2d import DenseKernel
from aot.topi.arm_fpu.intrin import DotForm
from aot.topi.arm_fpu.layer import Axis, FloatLayer, match_float_layer
from aot.topi.arm_fpu.window import MANY, UNROLL, Tile
from aot.topi.generic.window import TapRange
from aot.topi.layer.fused import describe
from aot.topi.strategy import Group, Lowered, register_planned

OPERATOR = "nn.conv2d_float"
TURNS = {4: 13, 2: 9, 1: 5}
"""Channels of a pixel that a turn copies, the most that divide their number, and the instructions that it takes under QEMU."""

AROUND = 11
"""Instructions of a tap's pixel besides."""


def plan(group: Group, target: Target) -> FloatLayer | None:
    """One group of channels, several rows of taps, columns of taps that are apart."""
    layer = match_float_layer(group, OPERATOR) if target.has("vfp") else None
    if layer is None or layer.weight.shape[3] != layer.depth:
        return None
    return layer if layer.columns.dilation > 1 and layer.columns.taps > 1 and layer.rows.taps > 1 else None


def lower(group: Group, _target: Target, name: str, layer: FloatLayer, *, form: str) -> Lowered:
    b = IRBuilder(name)
    kernel = PackedKernel(b, group, layer, fused=form == "vmla")
    kernel.emit()
    func = b.finish(FuncAttrs(kernel=describe(f"arm_fpu.conv2d_packed_{form}", unroll=UNROLL), span=layer.span, macs=layer.macs))
    instructions, cycles = kernel.instructions()
    packing = kernel.packing()
    return Lowered(func, kernel.io.constants, instructions + packing, kernel.code() + 160, cycles + packing)


class PackedKernel(DenseKernel):
    """A pointwise layer on packed windows."""

    def __init__(self, b: IRBuilder, group: Group, layer: FloatLayer, *, fused: bool) -> None:
        taps = layer.weight[0].size
        rows, columns = (Axis(a.out, a.out) for a in (layer.rows, layer.columns))
        weight = layer.weight.reshape(layer.channels, 1, 1, taps)
        pointwise = replace(layer, weight=weight, depth=taps, rows=rows, columns=columns)
        super().__init__(b, group, pointwise, inner=taps, fused=fused)
        self._window, self._taps = layer, taps
        most = MANY if self.many else min(2, columns.out)
        self._packed = b.scratch("windows", (most * taps,), "float32")
        self._at: tuple[Expr, Expr] = imm(0), imm(0)

    def data(self, start: Expr, channel: Expr, form: DotForm) -> list[Region]:
        return [region(self._packed, p * self._taps) for p in range(form.pixels)]

    def _row(self, i: Expr, y: Expr, body: Callable[[Tile, Expr], None]) -> None:
        self._at = i, y
        super()._row(i, y, body)

    def _whole(self, x: Expr, rows: TapRange, line: Expr, pixels: int) -> Tile:
        self._pack(x, pixels)
        return Tile(x, pixels, imm(0), imm(0), imm(1), imm(self._taps))

    def _single(self, x: Expr, rows: TapRange, line: Expr) -> Tile:
        return self._whole(x, rows, line, 1)

    def _pack(self, x: Expr, pixels: int) -> None:
        """The windows of some neighbouring pixels, one behind the other."""
        b, layer, (i, y) = self.b, self._window, self._at
        rows, columns, depth = layer.rows, layer.columns, layer.depth
        with b.for_("p", pixels) as p, b.for_("ky", rows.taps) as ky:
            row = b.let("row", y * rows.stride + (ky * rows.dilation - rows.before))
            to_row = b.let("to_row", (p * rows.taps + ky) * (columns.taps * depth))
            first = b.let("first", (x + p) * columns.stride - columns.before)
            with b.for_("kx", columns.taps) as kx:
                column = b.let("column", first + kx * columns.dilation)
                to = b.let("to", to_row + kx * depth)
                inside = (row >= 0) & (row < rows.size) & (column >= 0) & (column < columns.size)
                with b.if_(inside):
                    start = b.let("start", ((i * rows.size + row) * columns.size + column) * depth)
                    self._fill(to, lambda k: self.io.data[start + k])
                with b.else_():
                    self._fill(to, lambda _: imm(0.0, "float32"))

    def _fill(self, to: Expr, value: Callable[[Expr], Expr]) -> None:
        depth = self._window.depth
        each = next(n for n in TURNS if depth % n == 0)
        with self.b.for_("k", depth, step=each) as k:
            for n in range(each):
                self.b.store(self._packed, to + (k + n), value(k + n))

    def packing(self) -> int:
        """Instructions."""
        layer = self._window
        each = next(n for n in TURNS if layer.depth % n == 0)
        pixels = layer.batch * layer.rows.out * layer.columns.out
        return pixels * layer.rows.taps * layer.columns.taps * (AROUND + layer.depth // each * TURNS[each])


for _form, _plevel in (("vmla", 28), ("vmul", 27)):
    register_planned(f"arm_fpu.conv2d_packed_{_form}", OPERATOR, plan, partial(lower, form=_form), plevel=_plevel)
