"""Depthwise convolutions of float32: two neighbouring pixels by eight channels, straight from the image.

Any window, stride and dilation.  No scratch but that of a tail.  Weights take four bytes each in flash, [channels / 8][taps][8],
with the block's bias in front; or they stay as the file has them and are widened into scratch memory, 32 bytes a tap.
"""

from __future__ import annotations

from functools import partial
from typing import cast

from aot.ir.op import Array
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm
from aot.tir.function import FuncAttrs
from aot.tir.intrin import TensorIntrin
from aot.tir.stmt import Region
from aot.topi.arm_fpu.intrin import DotForm
from aot.topi.arm_fpu.intrin_depthwise import DepthwiseForm, depthwise_dot
from aot.topi.arm_fpu.layer import FloatLayer, match_float_layer
from aot.topi.arm_fpu.window import WindowKernel, stored_form
from aot.topi.layer.fused import describe
from aot.topi.strategy import Group, Lowered, register_planned

OPERATOR = "nn.depthwise_conv2d_float"
MOST_UNROLLED = 7
"""Columns of a window whose taps stand one after the other; more are in a loop."""


def plan(group: Group, target: Target) -> FloatLayer | None:
    """One filter for each channel."""
    layer = match_float_layer(group, OPERATOR) if target.has("vfp") else None
    return layer if layer is not None and layer.depth == layer.channels else None


def plan_stored(group: Group, target: Target) -> FloatLayer | None:
    """Also weights that the file has in fewer bytes."""
    layer = plan(group, target)
    return None if layer is None or stored_form(layer, _matrix(layer)) is None else layer


def lower(group: Group, _target: Target, name: str, layer: FloatLayer, *, form: str, small: bool = False) -> Lowered:
    b = IRBuilder(name)
    kernel = DepthwiseKernel(b, group, layer, inner=1, fused=form == "vmla", small=small)
    kernel.emit()
    word = "depthwise" if kernel.stored is None else f"depthwise_{kernel.stored.kind}"
    func = b.finish(FuncAttrs(kernel=describe(f"arm_fpu.{word}_{form}", channels=8), span=layer.span, macs=layer.macs))
    instructions, cycles = kernel.instructions()
    return Lowered(func, kernel.io.constants, instructions, kernel.code(), cycles)


class DepthwiseKernel(WindowKernel):
    """Every channel of a result reads its own channel of the data."""

    def matrix(self) -> Array:
        return _matrix(self.layer)

    def form(self, pixels: int, count: int) -> DotForm:
        columns = self.layer.columns
        shared = self.fused and pixels == 2 and columns.stride == columns.dilation
        loop = (pixels == 1 and self.run_varies) or self.run > MOST_UNROLLED
        unroll = (1 if pixels == 1 else 4) if loop else self.run
        rest = self.run % unroll if loop else 0
        return DepthwiseForm(pixels, count, self.fused, unroll, rest, loop, self.runs > 1, self.clamp, shared)

    def intrin(self, form: DotForm) -> TensorIntrin:
        return depthwise_dot(cast("DepthwiseForm", form))

    def data(self, start: Expr, channel: Expr, form: DotForm) -> list[Region]:
        return [
            region(self.io.data, start + channel + p * self.layer.columns.stride * self.layer.depth) for p in range(form.sources)
        ]

    def gap(self, taps: Expr) -> Expr:
        rows, columns, depth = self.layer.rows, self.layer.columns, self.layer.depth
        return (rows.dilation * columns.size - taps * columns.dilation) * depth

    def more(self) -> list[Expr]:
        return [imm(self.layer.columns.dilation * self.layer.depth)]


def _matrix(layer: FloatLayer) -> Array:
    found: Array = layer.weight.reshape(-1, layer.channels)
    return found


for _form, _plevel in (("vmla", 30), ("vmul", 29)):
    register_planned(f"arm_fpu.depthwise_{_form}", OPERATOR, plan, partial(lower, form=_form), plevel=_plevel)
    _lower = partial(lower, form=_form, small=True)
    register_planned(f"arm_fpu.depthwise_stored_{_form}", OPERATOR, plan_stored, _lower, plevel=_plevel - 2, keeps=True)
