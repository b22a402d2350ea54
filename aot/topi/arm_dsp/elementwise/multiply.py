"""MUL of int8 tensors, four bytes at a time (cores with DSP): whole ones, and gates of channels or of pixels.

A gate of channels (squeeze and excitation) is prepared once, in scratch memory: two bytes a factor.  Runs are joined until they
are long enough, and their length a multiple of four where the number of runs allows it.
"""

from __future__ import annotations

from math import prod

import numpy as np

from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.op.common.binary import RescaledAttrs
from aot.op.qnn.requantize import RequantizeAttrs
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Constant, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.target.target import Target
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm
from aot.tir.function import FuncAttrs
from aot.tir.stmt import Region
from aot.topi.arm_dsp.elementwise.intrin_multiply import LANES, ORDER, Form, Second, code_bytes, instructions, multiply_4
from aot.topi.layer.requant import HighMultiply, plan_high_multiply
from aot.topi.layer.runs import Kind, Runs, match_runs
from aot.topi.strategy import Group, Lowered, register_planned

LEAST = 16
"""Elements from which on the loop pays."""

LOWEST = -128
"""The zero point whose distances take fewer instructions, in the second operand."""

JOINED = 64
"""Elements of joined runs that are enough."""

_SECOND: dict[Kind, Second] = {"whole": "bytes", "inner": "halves", "outer": "one"}


@dataclass(frozen=True, slots=True)
class Plan:
    """`joined` runs of `runs` at a time; `first`: the number of the operand that is as large as the result and no gate.

    `numbers`: multiplier and constant of the requantisation.
    """

    runs: Runs
    joined: int
    first: int
    form: Form
    numbers: tuple[int, int]

    @property
    def length(self) -> int:
        return self.runs.length * self.joined


def plan(group: Group, target: Target) -> Plan | None:
    """None for other cores, operands, and numbers for which the short requantisation is not exact."""
    runs = match_runs(group, least=LANES) if target.has("dsp") else None
    if runs is None or runs.rows * runs.length < LEAST:
        return None
    zps = group.anchor.attrs.input_zp
    first = runs.kinds.index("whole")
    if runs.kinds == ("whole", "whole") and zps[0] == LOWEST:
        first = 1
    joined = _joined(runs) if runs.kinds[1 - first] == "inner" else 1
    requant = short_requant(group.anchor.attrs, target)
    if requant is None:
        return None
    multiplier, constant, shift = (int(f.values[0]) for f in requant.fields)
    second = _SECOND[runs.kinds[1 - first]]
    form = Form(shift, requant.signed, second, second == "bytes" and zps[1 - first] == LOWEST)
    return Plan(runs, joined, first, form, (multiplier, constant)) if shift else None


def _joined(runs: Runs) -> int:
    """How many runs are done at a time."""
    fits = [n for n in range(1, runs.rows + 1) if runs.rows % n == 0 and (n == 1 or runs.length * (n - 1) < JOINED)]
    even = [n for n in fits if runs.length * n % LANES == 0]
    return max(even or [1])


def short_requant(attrs: RescaledAttrs, target: Target) -> HighMultiply | None:
    """The short form for all products of two bytes."""
    ends = [(-128 - zp, 127 - zp) for zp in attrs.input_zp]
    corners = [a * b for a in ends[0] for b in ends[1]]
    if (attrs.lo, attrs.hi) != int_range("int8"):
        return None
    wanted = RequantizeAttrs((attrs.multiplier,), (attrs.shift,), attrs.zero_point, attrs.lo, attrs.hi, "double")
    return plan_high_multiply(wanted, np.array([min(corners)]), np.array([max(corners)]), target=target)


def lower(group: Group, _target: Target, name: str, found: Plan) -> Lowered:
    b = IRBuilder(name)
    runs, out_type, second = found.runs, tensor_type(group.anchor), found.form.second
    zp, other_zp = (group.anchor.attrs.input_zp[i] for i in (found.first, 1 - found.first))
    operands = _Operands(b, group)
    x, y = operands.pair[found.first], operands.pair[1 - found.first]
    out = b.output("out", (out_type.size,), "int8")
    if second == "halves":
        y = _prepared(b, y, found, zp=other_zp)
    whole = found.length - found.length % LANES
    numbers = [imm(n) for n in (*found.numbers, zp, *((other_zp,) if found.form.subtracted else ()), whole)]
    with b.for_("r", runs.rows // found.joined) as r:
        at = b.let("at", r * found.length) if runs.rows > found.joined else imm(0)
        tensors: list[Region | Expr] = [region(x, at), region(out, at)]
        if second == "one":
            tensors += [b.let("factor", (cast("int32", y[r]) - other_zp) * 2)]
        else:
            tensors.insert(1, region(y, at if second == "bytes" else 0))
        b.block(multiply_4(found.form), *tensors, *numbers)
        for i in range(whole, found.length):
            rest = operands.element(found, r, at=at, i=i)
            b.store(out, at + i, rest)
    func = b.finish(FuncAttrs(kernel="arm_dsp.multiply", span=group.anchor.span))
    left = found.length - whole
    turns = runs.rows // found.joined * (round(instructions(found.form) * whole) // LANES + 20 * left + 10)
    prepared = 9 * found.length + 10 if second == "halves" else 0
    return Lowered(func, operands.constants, turns + prepared + 20, 70 + code_bytes(found.form) + 40 * left + 70 * bool(prepared))


class _Operands:
    """Both operands as flat bytes, in the order of the call."""

    def __init__(self, b: IRBuilder, group: Group) -> None:
        self._b, self._group = b, group
        args = group.anchor.args
        sizes = [prod(tensor_type(a).shape) for a in args]
        data = {id(v): b.input("data", (prod(v.type.shape),), "int8") for v in group.params}
        self.constants: dict[str, Array] = {}
        for a, size in zip(args, sizes, strict=True):
            if isinstance(a, Constant):
                data[id(a)] = b.const("table", (size,), "int8", align=4)
                self.constants[data[id(a)].name] = a.data.reshape(-1)
        self.pair: list[Buffer] = [data[id(a)] for a in args]

    def element(self, found: Plan, row: Expr, *, at: Expr, i: int) -> Expr:
        """Element `i` of a group of runs that begins at `at`, by the operator's own rule."""
        places = {"whole": at + i, "inner": imm(i % found.runs.length), "outer": row}
        one = TensorType((1,), "int8")

        def fixed(buffer: Buffer, place: Expr) -> TensorFn:
            return tensor_fn((1,), "int8", lambda _b, *_i: buffer.load("int8", place))

        pair = [fixed(v, places[kind]) for v, kind in zip(self.pair, found.runs.kinds, strict=True)]
        rule = F_TE.get("qnn.multiply")(TeContext(self._b), pair, self._group.anchor.attrs, one)
        return rule.at(self._b, (imm(0),))


def _prepared(b: IRBuilder, gate: Buffer, found: Plan, *, zp: int) -> Buffer:
    """Twice the distances of a run's factors from their zero point, for all joined runs, each four in ORDER."""
    length = found.length - found.length % LANES
    halves = b.scratch("factors", (length,), "int16")
    period, lanes = found.runs.length, LANES if found.runs.length % LANES == 0 else 1
    with b.for_("k", found.joined) as k, b.for_("i", period if found.joined > 1 else length, step=lanes) as i:
        for lane in range(lanes):
            value = (cast("int32", gate[i + lane]) - zp) * 2
            first = k * period + i if found.joined > 1 else i
            if lanes == LANES:
                b.store(halves, first + ORDER.index(lane), value)
            else:
                at = b.let("at", first)
                b.store(halves, at - at % LANES + (at % 2) * 2 + at % LANES // 2, value)
    return halves


register_planned("arm_dsp.multiply", "qnn.multiply", plan, lower, plevel=25)
