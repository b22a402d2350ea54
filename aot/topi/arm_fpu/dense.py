"""Fully connected layers of a few rows, and pointwise convolutions of a few pixels, with the weights as the file has them.

No scratch.  Weights take two, one or half a byte each in flash, [channels / 8][inputs][8] in whole words, behind the block's bias
and scales; they are widened where they are used.
"""

from __future__ import annotations

from functools import partial

from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.function import FuncAttrs
from aot.tir.intrin import TensorIntrin
from aot.topi.arm_fpu.conv2d import DenseKernel, Plan, is_pointwise, plan, weights_of
from aot.topi.arm_fpu.intrin import DotForm
from aot.topi.arm_fpu.intrin_stored import StoredForm, stored_dot
from aot.topi.arm_fpu.window import stored_form
from aot.topi.layer.fused import describe
from aot.topi.strategy import Group, Lowered, register_planned

MOST_PIXELS = 8
UNROLL = 4


def plan_direct(group: Group, target: Target, operator: str) -> Plan | None:
    """Few pixels of one tap each, and weights that the file has in fewer bytes."""
    found = plan(group, target, operator)
    if found is None or not is_pointwise(found.layer):
        return None
    pixels = found.layer.batch * found.layer.rows.out * found.layer.columns.out
    return found if pixels <= MOST_PIXELS and stored_form(found.layer, weights_of(found.layer)) is not None else None


def lower(group: Group, _target: Target, name: str, found: Plan, *, form: str) -> Lowered:
    b, layer = IRBuilder(name), found.layer
    kernel = _Kernel(b, group, layer, inner=layer.depth, fused=form == "vmla", small=True)
    kernel.emit()
    assert kernel.stored is not None
    word = f"arm_fpu.dense_{kernel.stored.kind}_{form}"
    func = b.finish(FuncAttrs(kernel=describe(word, unroll=UNROLL), span=layer.span, macs=layer.macs))
    instructions, cycles = kernel.instructions()
    return Lowered(func, kernel.io.constants, instructions, kernel.code(), cycles)


class _Kernel(DenseKernel):
    """All pixels one by one."""

    @property
    def unfolds(self) -> bool:
        return False

    @property
    def pairs(self) -> int:
        return 0

    def form(self, pixels: int, count: int) -> DotForm:
        assert self.stored is not None
        loop = self.run > 2 * UNROLL
        unroll, rest = (UNROLL, self.run % UNROLL) if loop else (self.run, 0)
        kind, zero = self.stored.kind, self.stored.zero is not None
        return StoredForm(pixels, count, self.fused, unroll, rest, loop, False, self.clamp, kind, zero)

    def intrin(self, form: DotForm) -> TensorIntrin:
        assert isinstance(form, StoredForm)
        return stored_dot(form)


for _operator in ("nn.conv2d_float", "nn.dense_float"):
    _name = _operator.removeprefix("nn.").removesuffix("_float")
    for _form, _plevel in (("vmla", 27), ("vmul", 26)):
        _plan, _lower = partial(plan_direct, operator=_operator), partial(lower, form=_form)
        register_planned(f"arm_fpu.{_name}_direct_{_form}", _operator, _plan, _lower, plevel=_plevel, keeps=True)
