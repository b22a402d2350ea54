"""Convolutions and fully connected layers of float32: two neighbouring pixels by eight channels, straight from the image.

No scratch but that of a tail.  Weights take four bytes each in flash, [channels / 8][taps][8], with the block's bias in front;
or they stay as the file has them and are widened into scratch memory, 32 bytes a tap.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr
from aot.tir.function import FuncAttrs
from aot.tir.intrin import TensorIntrin
from aot.tir.stmt import Region
from aot.topi.arm_fpu.intrin import CHANNELS, DotForm, dot
from aot.topi.arm_fpu.intrin_wide import MOST_CHANNELS, ManyForm, NarrowForm, WideForm, unroll_many
from aot.topi.arm_fpu.layer import FloatLayer, match_float_layer
from aot.topi.arm_fpu.window import UNROLL, WindowKernel, stored_form, unroll_of
from aot.topi.layer.fused import describe
from aot.topi.strategy import Group, Lowered, register_planned


@dataclass(frozen=True, slots=True)
class Plan:
    """A layer with weights [O, KH, KW, I]; `dilated`: the columns of its windows are apart."""

    layer: FloatLayer
    dilated: bool


def plan(group: Group, target: Target, operator: str) -> Plan | None:
    """One group of channels; depthwise layers of one channel; windows that are dilated in one row only."""
    layer = match_float_layer(group, operator) if target.has("vfp") else None
    if layer is None:
        return None
    if operator == "nn.depthwise_conv2d_float":
        if layer.depth > 1:
            return None
        layer = replace(layer, weight=layer.weight[0].transpose(2, 0, 1)[..., None])
    if layer.weight.ndim == 2:
        layer = replace(layer, weight=layer.weight[:, None, None, :])
    dilated = layer.columns.dilation > 1 and layer.columns.taps > 1
    if layer.weight.shape[3] != layer.depth or (dilated and layer.rows.taps > 1):
        return None
    return Plan(layer, dilated)


def plan_stored(group: Group, target: Target, operator: str) -> Plan | None:
    """Weights that the file has in fewer bytes; of one pixel no single taps, which are widened where they are used."""
    found = plan(group, target, operator)
    if found is None:
        return None
    pixels = found.layer.batch * found.layer.rows.out * found.layer.columns.out
    if pixels == 1 and is_pointwise(found.layer):
        return None
    return None if stored_form(found.layer, weights_of(found.layer)) is None else found


def lower(group: Group, _target: Target, name: str, found: Plan, *, form: str, small: bool = False) -> Lowered:
    b, layer = IRBuilder(name), found.layer
    kernel = DenseKernel(b, group, layer, inner=layer.depth, fused=form == "vmla", dilated=found.dilated, small=small)
    kernel.emit()
    word = "dense" if layer.rows.out == layer.columns.out == 1 else "conv2d"
    word += "" if kernel.stored is None else f"_{kernel.stored.kind}"
    func = b.finish(FuncAttrs(kernel=describe(f"arm_fpu.{word}_{form}", unroll=UNROLL), span=layer.span, macs=layer.macs))
    instructions, cycles = kernel.instructions()
    return Lowered(func, kernel.io.constants, instructions, kernel.code(), cycles)


class DenseKernel(WindowKernel):
    """Every channel of a result reads all channels of the data."""

    def matrix(self) -> Array:
        return weights_of(self.layer)

    @property
    def wide(self) -> bool:
        """Whether all pixels are done one by one, and their products without VMLA."""
        return not self.fused and self.stored is None and self.pairs == 0

    @property
    def many(self) -> int:
        alone = self.layer.channels == 1 and not self.layer.tail and self._spread.strides[1] == 1
        return self.pairs // 2 if alone and not self.fused and self.stored is None else 0

    @property
    def block(self) -> int:
        return MOST_CHANNELS if self.wide else CHANNELS

    def form(self, pixels: int, count: int) -> DotForm:
        run, varies = self.run, pixels == 1 and self.run_varies
        unroll = max(u for u in range(1, UNROLL + 1) if self.layer.depth % u == 0) if varies else unroll_of(run)
        narrow = pixels == 2 and count == 1 and not self.fused and self.stored is None
        if narrow:
            unroll = next((u for u in (32, 24, 16) if run % u == 0), unroll)
        elif pixels > 2:
            unroll = unroll_many(run, unroll)
        loop = varies or run > unroll + UNROLL
        rest = 0 if varies else run % unroll if loop else run - unroll
        make = ManyForm if pixels > 2 else NarrowForm if narrow else WideForm if self.wide else DotForm
        return make(pixels, count, self.fused, unroll, rest, loop, self.runs > 1, self.clamp)

    def intrin(self, form: DotForm) -> TensorIntrin:
        return dot(form)

    def data(self, start: Expr, channel: Expr, form: DotForm) -> list[Region]:
        return [region(self.io.data, start + p * self.layer.columns.stride * self.layer.depth) for p in range(form.pixels)]

    def gap(self, taps: Expr) -> Expr:
        rows, columns, depth = self.layer.rows, self.layer.columns, self.layer.depth
        return (columns.dilation if self._dilated else rows.dilation * columns.size) * depth - taps


def is_pointwise(layer: FloatLayer) -> bool:
    """Whether each result reads one pixel, inside the image."""
    return all(a.taps == 1 and a.whole == (0, a.out) for a in (layer.rows, layer.columns))


def weights_of(layer: FloatLayer) -> Array:
    """[taps, channels]."""
    found: Array = layer.weight.reshape(layer.channels, -1).T
    return found


for _operator in ("nn.conv2d_float", "nn.dense_float", "nn.depthwise_conv2d_float"):
    _name = _operator.removeprefix("nn.").removesuffix("_float").removeprefix("depthwise_")
    for _form, _plevel in (("vmla", 30), ("vmul", 29)):
        _plan, _lower = partial(plan, operator=_operator), partial(lower, form=_form)
        register_planned(f"arm_fpu.{_name}_{_form}", _operator, _plan, _lower, plevel=_plevel)
        _plan, _lower = partial(plan_stored, operator=_operator), partial(lower, form=_form, small=True)
        register_planned(f"arm_fpu.{_name}_stored_{_form}", _operator, _plan, _lower, plevel=_plevel - 2, keeps=True)
