"""ADD of int8 tensors by products of 32 bits, one element after another: whole ones, and those repeated along the outer axes."""

from __future__ import annotations

from math import prod

from aot.relay.expr import tensor_type
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.tail import Factors, factors_of
from aot.topi.arm_v6m.intrin_elementwise import MOST_UNROLLED, Tail, add_bytes
from aot.topi.layer.flat import flat_operands
from aot.topi.layer.runs import Runs, match_runs
from aot.topi.strategy import Group, Lowered, register_planned

LEAST = 8
"""Elements of a run from which on the loop pays."""

EACH = 13
"""Instructions of an element without those of the loop; some are beyond the limits."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The view of the operands, and the numbers."""

    runs: Runs
    factors: Factors


def unroll_of(length: int) -> int:
    """Elements a turn, so that none are left over."""
    return max(u for u in range(1, MOST_UNROLLED + 1) if length % u == 0)


def plan(group: Group, target: Target) -> Plan | None:
    """None for other cores and operands, and for numbers without the short form."""
    runs = match_runs(group, least=LEAST) if target.has("v6m") else None
    if runs is None or "outer" in runs.kinds:
        return None
    factors = factors_of(group.anchor.attrs)
    return None if factors is None else Plan(runs, factors)


def lower(group: Group, _target: Target, name: str, found: Plan) -> Lowered:
    b = IRBuilder(name)
    runs, f = found.runs, found.factors
    operands = flat_operands(b, group)
    out = b.output("out", (prod(tensor_type(group.anchor).shape),), "int8")
    tail = Tail(f.shift, f.lo, f.hi, unroll_of(runs.length))
    with b.for_("r", runs.rows) as r:
        at = b.let("at", r * runs.length) if runs.rows > 1 else imm(0)
        pair = [region(v, at if kind == "whole" else 0) for v, kind in zip(operands.pair, runs.kinds, strict=True)]
        b.block(add_bytes(tail), *pair, region(out, at), imm(f.a), imm(f.b), imm(f.bias), imm(runs.length))
    func = b.finish(FuncAttrs(kernel="arm_v6m.add", span=group.anchor.span))
    turns = runs.rows * (runs.length * EACH + runs.length // tail.unroll + 16)
    return Lowered(func, operands.constants, turns + 24, 110 + 34 * tail.unroll)


register_planned("arm_v6m.add", "qnn.add", plan, lower, plevel=25)
