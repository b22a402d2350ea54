"""Convolutions and fully connected layers of float32: two neighbouring pixels by eight channels, straight from the image.

The loops and the weights are those of `arm_fpu.conv2d`; only with --fast-float.
"""

from __future__ import annotations

from functools import partial

from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.function import FuncAttrs
from aot.tir.intrin import TensorIntrin
from aot.topi.arm_fpu.conv2d import DenseKernel, Plan, plan, plan_stored
from aot.topi.arm_fpu.intrin import DotForm
from aot.topi.arm_fpu.window import UNROLL
from aot.topi.arm_mve.float32.intrin import VectorForm, vector_dot
from aot.topi.layer.fused import describe
from aot.topi.strategy import Group, Lowered, register_planned


def _plan(group: Group, target: Target, operator: str, *, small: bool) -> Plan | None:
    if not (target.has("mve") and target.has("ftz")):
        return None
    return (plan_stored if small else plan)(group, target, operator)


def _lower(group: Group, _target: Target, name: str, found: Plan, *, small: bool) -> Lowered:
    b, layer = IRBuilder(name), found.layer
    kernel = _Kernel(b, group, layer, inner=layer.depth, fused=True, dilated=found.dilated, small=small)
    kernel.emit()
    word = "dense_float" if layer.rows.out == layer.columns.out == 1 else "conv2d_float"
    word += "" if kernel.stored is None else f"_{kernel.stored.kind}"
    func = b.finish(FuncAttrs(kernel=describe(f"arm_mve.{word}", unroll=UNROLL), span=layer.span, macs=layer.macs))
    instructions, _ = kernel.instructions()
    return Lowered(func, kernel.io.constants, instructions, kernel.code())


class _Kernel(DenseKernel):
    """Channels in vectors."""

    def form(self, pixels: int, count: int) -> DotForm:
        f = super().form(pixels, count)
        return VectorForm(f.pixels, f.channels, f.fused, f.unroll, f.rest, f.loop, f.runs, f.clamp)

    def intrin(self, form: DotForm) -> TensorIntrin:
        assert isinstance(form, VectorForm)
        return vector_dot(form)

    def price(self, form: DotForm, *, runs: int, trips: float) -> tuple[float, float]:
        assert isinstance(form, VectorForm)
        return form.cost(runs=runs, trips=trips), 0.0


for _operator in ("nn.conv2d_float", "nn.dense_float", "nn.depthwise_conv2d_float"):
    _name = _operator.removeprefix("nn.").removesuffix("_float").removeprefix("depthwise_")
    for _small in (False, True):
        register_planned(
            f"arm_mve.{_name}_float" + "_stored" * _small,
            _operator,
            partial(_plan, operator=_operator, small=_small),
            partial(_lower, small=_small),
            plevel=38 - 2 * _small,
            keeps=_small,
        )
