"""Depthwise convolutions of float32 by vectors: two neighbouring pixels by all channels, straight from the image.

The loops and the weights are those of `arm_fpu.depthwise`; only with --fast-float.  Loads move the pointers themselves where taps
are near enough; layers of several depths share code (`common`) where they do not, an eighth more instructions.
"""

from __future__ import annotations

from functools import partial
from itertools import product

from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_fpu.depthwise import OPERATOR, DepthwiseKernel, plan, plan_stored
from aot.topi.arm_fpu.intrin import CHANNELS, DotForm
from aot.topi.arm_fpu.layer import FloatLayer
from aot.topi.arm_fpu.window import Tile
from aot.topi.arm_mve.float32.intrin_depthwise import NEAREST, DepthwiseVectors, depthwise_vectors
from aot.topi.layer.fused import describe
from aot.topi.strategy import Group, Lowered, register_planned


def _plan(group: Group, target: Target, *, small: bool, common: bool) -> FloatLayer | None:
    if not (target.has("mve") and target.has("ftz")):
        return None
    layer = (plan_stored if small else plan)(group, target)
    return None if layer is None or (common and _tap_bytes(layer) > NEAREST) else layer


def _tap_bytes(layer: FloatLayer) -> int:
    """From the data of a tap to that of the next one in its row."""
    return 4 * layer.columns.dilation * layer.depth


def _lower(group: Group, _target: Target, name: str, layer: FloatLayer, *, small: bool, common: bool) -> Lowered:
    b = IRBuilder(name)
    kernel = (_Common if common else _Kernel)(b, group, layer, inner=1, fused=True, small=small)
    kernel.emit()
    word = "depthwise_float" + "_common" * common
    word = word if kernel.stored is None else f"{word}_{kernel.stored.kind}"
    func = b.finish(FuncAttrs(kernel=describe(f"arm_mve.{word}", channels=8), span=layer.span, macs=layer.macs))
    instructions, _ = kernel.instructions()
    return Lowered(func, kernel.io.constants, instructions, kernel.code())


class _Kernel(DepthwiseKernel):
    """Channels in vectors; without a tail all whole blocks of them by one block of assembly."""

    def form(self, pixels: int, count: int) -> DotForm:
        f = super().form(pixels, count)
        return DepthwiseVectors(f.pixels, f.channels, f.fused, f.unroll, f.rest, f.loop, f.runs, f.clamp, self._near)

    @property
    def _near(self) -> int:
        """Bytes by which loads move the pointers."""
        tap = _tap_bytes(self.layer)
        return tap if tap <= NEAREST else 0

    @property
    def _joined(self) -> bool:
        return self.io.results is None and self.stored is None

    def _channels(self, tile: Tile, pixel: Expr) -> None:
        if not self._joined:
            super()._channels(tile, pixel)
            return
        blocks, rest = divmod(self.layer.channels, CHANNELS)
        size = CHANNELS * (1 + len(self._matrix))
        if blocks:
            self._vectors(tile, pixel, imm(0), imm(0), count=CHANNELS, blocks=blocks)
        if rest:
            self._vectors(tile, pixel, imm(blocks * CHANNELS), imm(blocks * size), count=rest, blocks=1)

    def _block(self, tile: Tile, pixel: Expr, channel: Expr, offset: Expr, count: int) -> None:
        self._vectors(tile, pixel, channel, offset, count=count, blocks=1)

    def _vectors(self, tile: Tile, pixel: Expr, channel: Expr, offset: Expr, *, count: int, blocks: int) -> None:
        form = self._forms[tile.pixels, count] = self.form(tile.pixels, count)
        assert isinstance(form, DepthwiseVectors)
        at = self._spread.pixel(pixel, tile.x)
        to, step = self.io.target(at, channel, count)
        numbers: list[Expr] = [imm(step * self._spread.strides[1])] if tile.pixels == 2 else []
        numbers += [(tile.taps - form.rest) // form.unroll] if form.loop else []
        if form.runs:
            numbers += [tile.runs, self.gap(tile.taps)]
            numbers += [(self.run - tile.taps) * count] if tile.pixels == 1 else []
        numbers += [*self.more(), imm(blocks), imm(count * (1 + len(self._matrix)))]
        bias = region(self._params, offset, dtype="float32")
        data, weights = self.data(tile.data, channel, form), self._weights(offset, tile.skipped, count)
        self.b.block(depthwise_vectors(form), *data, *weights, bias, to, *numbers)
        self.io.finish(at, channel, pixels=tile.pixels, count=count)

    def price(self, form: DotForm, *, runs: int, trips: float) -> tuple[float, float]:
        assert isinstance(form, DepthwiseVectors)
        return form.price(runs=runs, trips=trips, blocks=1) - (14 if self._joined else 0), 0.0


class _Common(_Kernel):
    """Pointers are moved by a register, so that no instruction depends on the depth."""

    @property
    def _near(self) -> int:
        return 0


for _small, _common in product((False, True), repeat=2):
    register_planned(
        "arm_mve.depthwise_float" + "_stored" * _small + "_common" * _common,
        OPERATOR,
        partial(_plan, small=_small, common=_common),
        partial(_lower, small=_small, common=_common),
        plevel=38 - 2 * _small - _common,
        keeps=_small,
    )
