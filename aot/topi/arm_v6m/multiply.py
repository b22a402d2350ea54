"""MUL of int8 tensors by products of 32 bits, one element after another: whole ones, and gates of channels or of pixels."""

from __future__ import annotations

from math import prod

from aot.numerics.linear import LinearRescaling, Rescaling, rescaling_of_products
from aot.op.common.binary import RescaledAttrs
from aot.relay.expr import tensor_type
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm
from aot.tir.function import FuncAttrs
from aot.tir.stmt import Region
from aot.topi.arm_v6m.add import LEAST, unroll_of
from aot.topi.arm_v6m.intrin_elementwise import Product, Tail, multiply_bytes
from aot.topi.layer.flat import flat_operands
from aot.topi.layer.runs import Runs, match_runs
from aot.topi.strategy import Group, Lowered, register_planned


@dataclass(frozen=True, slots=True)
class Plan:
    """The view of the operands, the number of the one that is as large as the result and no gate, and the rescaling."""

    runs: Runs
    first: int
    form: LinearRescaling
    code: Product


def plan(group: Group, target: Target) -> Plan | None:
    """None for other cores and operands, and for numbers without a form of 32 bits."""
    runs = match_runs(group, least=LEAST) if target.has("v6m") else None
    if runs is None:
        return None
    attrs: RescaledAttrs = group.anchor.attrs
    numbers = Rescaling(attrs.multiplier, attrs.shift, attrs.zero_point, attrs.lo, attrs.hi)
    form = rescaling_of_products(attrs.input_zp, numbers)
    if form is None:
        return None
    first = runs.kinds.index("whole")
    one = runs.kinds[1 - first] == "outer"
    tail = Tail(form.shift, form.lo, form.hi, unroll_of(runs.length))
    if tail.clamped and not _fits_moved(form):
        return None
    centred = (attrs.input_zp[first] != 0, attrs.input_zp[1 - first] != 0 and not one)
    return Plan(runs, first, form, Product(tail, "one" if one else "bytes", bool(form.low), bool(form.below), centred))


def _fits_moved(form: LinearRescaling) -> bool:
    """Whether sums less lo << shift stay in 32 bits: they do where sums and that number have a bit to spare."""
    return form.most + (abs(form.lo) << form.shift) < 1 << 31


def lower(group: Group, _target: Target, name: str, found: Plan) -> Lowered:
    b = IRBuilder(name)
    runs, form, code = found.runs, found.form, found.code
    zps = [group.anchor.attrs.input_zp[i] for i in (found.first, 1 - found.first)]
    operands = flat_operands(b, group)
    x, y = operands.pair[found.first], operands.pair[1 - found.first]
    out = b.output("out", (prod(tensor_type(group.anchor).shape),), "int8")
    numbers = [form.high, *([form.low] if code.low else []), form.bias, *([form.below] if code.signed else [])]
    numbers += [zp for zp, has in zip(zps, code.centred, strict=True) if has]
    with b.for_("r", runs.rows) as r:
        at = b.let("at", r * runs.length) if runs.rows > 1 else imm(0)
        tensors: list[Region | Expr] = [region(x, at), region(out, at)]
        if code.second == "one":
            tensors += [b.let("factor", cast("int32", y[r]) - zps[1])]
        else:
            tensors.insert(1, region(y, at if runs.kinds[1 - found.first] == "whole" else 0))
        b.block(multiply_bytes(code), *tensors, *map(imm, numbers), imm(runs.length))
    func = b.finish(FuncAttrs(kernel="arm_v6m.multiply", span=group.anchor.span))
    turns = round(runs.rows * (runs.length * code.instructions + 20))
    return Lowered(func, operands.constants, turns + 24, 120 + 50 * code.tail.unroll)


register_planned("arm_v6m.multiply", "qnn.multiply", plan, lower, plevel=25)
