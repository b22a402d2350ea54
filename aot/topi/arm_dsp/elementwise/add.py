"""ADD of two int8 tensors of one shape, of which one may be constant, four bytes at a time (cores with DSP)."""

from __future__ import annotations

from math import prod

from aot.ir.type import TensorType
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Constant, Var, tensor_type
from aot.target.target import Target
from aot.te.tensor import elements_of
from aot.tir.builder import IRBuilder
from aot.tir.expr import imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.elementwise.intrin_add import LANES, add_4
from aot.topi.arm_dsp.tail import factors_of
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

LEAST = 16
"""Elements from which on the loop pays."""


def accepts(group: Group, target: Target) -> bool:
    """One ADD of tensors as large as the result (so their shapes differ in ones at most) that has the short form."""
    anchor = group.anchor
    if group.followers or anchor is not group.result or not target.has("dsp"):
        return False
    out = tensor_type(anchor)
    types = [a.type for a in anchor.args if isinstance(a, (Var, Constant))]
    whole = len(types) == 2 and all(t.dtype == "int8" and prod(t.shape) == prod(out.shape) for t in types)
    return whole and out.dtype == "int8" and prod(out.shape) >= LEAST and factors_of(anchor.attrs) is not None


def lower(group: Group, _target: Target, name: str) -> Lowered:
    anchor = group.anchor
    factors = factors_of(anchor.attrs)
    assert factors is not None
    result = tensor_type(anchor)
    size = prod(result.shape)
    whole = size - size % LANES
    b = IRBuilder(name)
    data = {id(v): b.input("data", (size,), "int8") for v in group.params}
    out = b.output("out", (size,), "int8")
    ctx = TeContext(b)
    for a in anchor.args:
        if isinstance(a, Constant):
            data[id(a)] = b.const("table", (size,), "int8", align=4)
            ctx.constants[data[id(a)].name] = a.data.reshape(-1)
    x, y = (data[id(a)] for a in anchor.args)
    block = add_4(factors.shift, factors.lo, factors.hi)
    b.block(block, x, y, out, imm(factors.a), imm(factors.b), imm(factors.bias), imm(whole))
    flat = TensorType((size,), "int8", result.quant)
    rest = F_TE.get("qnn.add")(ctx, [elements_of(x), elements_of(y)], anchor.attrs, flat)
    for i in range(whole, size):
        b.store(out, i, rest.at(b, (imm(i),)))
    func = b.finish(FuncAttrs(kernel="arm_dsp.add", span=anchor.span))
    more = 3 * factors.clamped
    instructions = (24 + more) * whole // LANES + (8 + more) * (size - whole) + 24
    return Lowered(func, dict(ctx.constants), instructions, 150 + 4 * more + (30 + 2 * more) * (size - whole))


register_impl(OpImplementation("arm_dsp.add", "qnn.add", accepts, lower, plevel=25))
