"""ADD, SUB, MUL and RELU of float32 by vectors, alone or with RELUs after them; only with --fast-float.

An operand may be repeated along the outer axes, or be one number for each run of the others.
"""

from __future__ import annotations

from functools import partial
from math import prod

from aot.ir.op import Array
from aot.relay.expr import Constant, Var, tensor_type
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_fpu.finish import Clamp
from aot.topi.arm_fpu.layer import with_relu
from aot.topi.arm_mve.float32.intrin_elementwise import OPERATORS, ElementForm, elementwise
from aot.topi.layer.elementwise import Kind, view_of
from aot.topi.strategy import Group, Lowered, register_planned

LEAST = 8
"""Elements of a run from which on vectors pay."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """`rows` runs of `length` elements, what each operand is to them, and the block for a run."""

    rows: int
    length: int
    kinds: tuple[Kind, ...]
    form: ElementForm


def _plan(group: Group, target: Target, op: str) -> _Plan | None:
    anchor = group.anchor
    if not (target.has("mve") and target.has("ftz")) or len(anchor.args) != (2 if op in OPERATORS else 1):
        return None
    out = tensor_type(anchor)
    if not all(isinstance(a, (Var, Constant)) and a.type.dtype == "float32" for a in anchor.args) or out.size == 0:
        return None
    bounds, head, rest = with_relu((anchor.attrs.lo, anchor.attrs.hi), anchor, group.followers)
    lo, hi = bounds
    if rest or head is not group.result or (lo is not None and hi is not None and lo > hi):
        return None
    views = [view_of(a, out.shape) for a in anchor.args]
    kinds = tuple(v[0] for v in views if v is not None)
    length = min((v[1] for v in views if v is not None), default=0)
    if len(kinds) < len(views) or "whole" not in kinds or length < LEAST:
        return None
    return _Plan(out.size // length, length, kinds, ElementForm(op, tuple(k == "outer" for k in kinds), Clamp(lo, hi)))


def _lower(group: Group, _target: Target, name: str, plan: _Plan) -> Lowered:
    b, form = IRBuilder(name), plan.form
    constants: dict[str, Array] = {}
    data: dict[int, Buffer] = {id(v): b.input("data", (prod(v.type.shape),), "float32", align=4) for v in group.params}
    for a in group.anchor.args:
        if isinstance(a, Constant) and id(a) not in data:
            data[id(a)] = b.const("table", (a.data.size,), "float32", align=4)
            constants[data[id(a)].name] = a.data.reshape(-1)
    out = b.output("out", (plan.rows * plan.length,), "float32", align=4)
    with b.for_("r", plan.rows) as r:
        at = {"whole": r * plan.length, "inner": imm(0), "outer": r}
        operands = [region(data[id(a)], at[kind]) for a, kind in zip(group.anchor.args, plan.kinds, strict=True)]
        b.block(elementwise(form), *operands, region(out, at["whole"]), imm(plan.length))
    func = b.finish(FuncAttrs(kernel=f"arm_mve.{form.op}_float", span=group.anchor.span))
    return Lowered(func, constants, plan.rows * (form.instructions(plan.length) + 8) + 10, form.code + 60)


for _op in (*OPERATORS, "relu"):
    register_planned(f"arm_mve.{_op}_float", _op, partial(_plan, op=_op), _lower, plevel=38)
