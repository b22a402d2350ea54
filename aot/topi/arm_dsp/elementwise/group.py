"""Groups of element-wise operators on int8 tensors, such as the cells of GRU and LSTM that converters unroll (cores with DSP).

Operators are ADD, SUB and MUL of two tensors, and functions of one byte, which become tables; operands are tensors, contiguous
parts of tensors, and constants.  Three forms differ in how many elements a turn of the loop takes: more are faster, fewer less
code.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field, replace
from functools import lru_cache, partial
from math import prod
from typing import Literal

import numpy as np

from aot.ir.op import T_OP_PATTERN, Array, Op, OpPattern
from aot.ir.type import TensorType
from aot.op.common.binary import RescaledAttrs
from aot.op.qnn.add import linear_form
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Call, Constant, Expr, Var, call, const, is_call, post_order, tensor_type
from aot.relay.interpreter import call_op
from aot.relay.one_tensor import BY_CHANNEL
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.te.tensor import TensorFn, elements_of, tensor_fn
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr as TirExpr
from aot.tir.expr import imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.elementwise.intrin_group import (
    MOST_OFFSET,
    Add,
    Keep,
    Load,
    Multiply,
    Program,
    Source,
    Step,
    Table,
    elementwise,
    instructions,
)
from aot.topi.arm_dsp.elementwise.multiply import short_requant
from aot.topi.strategy import Group, Lowered, register_planned

LEAST = 16
"""Elements from which on the loop pays."""

MOST_SLOTS, MOST_OPERANDS = 8, 12
"""Values that are kept, and tensors: so many that the frame stays within reach."""

ANCHORS = ("qnn.add", "qnn.multiply", "qnn.lut", "qnn.requantize8", "clip", "strided_slice")

OF_TWO = frozenset({"qnn.add", "qnn.multiply"})


@dataclass(frozen=True, slots=True)
class Plan:
    """A program with the numbers and tables that it takes; `constants`: operands that are no parameters, one behind the other."""

    program: Program
    numbers: tuple[int, ...]
    tables: tuple[bytes, ...]
    constants: bytes


def plan(group: Group, target: Target, *, lanes: int) -> Plan | None:
    """The plan of so many elements at a time; None where there is none."""
    found = _plan(group, target)
    return None if found is None else replace(found, program=replace(found.program, lanes=lanes))


@lru_cache(16)  # each form of the loop asks
def _plan(group: Group, target: Target) -> Plan | None:
    """None for other cores and operators, for one operator alone (there are better kernels), and for more than fits the frame."""
    result = group.result
    if not target.has("dsp") or not isinstance(result, Call) or not _is_bytes(result, prod(tensor_type(result).shape)):
        return None
    calls = [e for e in post_order(result) if isinstance(e, Call)]
    binary = sum(_is_of_two(c) for c in calls)
    if len(calls) < 2 or not binary or prod(tensor_type(result).shape) < LEAST:
        return None
    try:
        return _Planner(group, target).plan()
    except _NoFormError:
        return None


class _NoFormError(Exception):
    """Something in the group has no place in a program."""


def _is_bytes(expr: Expr, size: int) -> bool:
    return isinstance(expr.type, TensorType) and expr.type.dtype == "int8" and prod(expr.type.shape) == size


def _is_of_two(expr: Call) -> bool:
    return isinstance(expr.op, Op) and expr.op.name in OF_TWO and not any(_is_number(a) for a in expr.args)


def _is_number(expr: Expr) -> bool:
    return isinstance(expr, Constant) and expr.data.size == 1


@dataclass(slots=True)
class _Planner:
    """Steps are appended in the order in which values are needed: of two operands that both have to be computed, the first is
    kept while the second is."""

    group: Group
    target: Target
    steps: list[Step] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    tables: list[bytes] = field(default_factory=list)
    constants: bytearray = field(default_factory=bytearray)
    slots: dict[int, int] = field(default_factory=dict)
    placed: dict[int, Source] = field(default_factory=dict)

    def plan(self) -> Plan:
        result = self.group.result
        size = prod(tensor_type(result).shape)
        uses = Counter(id(a) for e in post_order(result) if isinstance(e, Call) for a in e.args)
        for expr in post_order(result):
            self._place(expr, size)
        self._make_current(result, uses)
        operands = len(self.group.params) + bool(self.constants)
        if len(self.slots) > MOST_SLOTS or operands > MOST_OPERANDS:
            raise _NoFormError
        program = Program(tuple(self.steps), operands, len(self.tables), len(self.slots))
        return Plan(program, tuple(self.numbers), tuple(self.tables), bytes(self.constants))

    def _place(self, expr: Expr, size: int) -> None:
        """Where an operand's elements are."""
        params = {id(v): i for i, v in enumerate(self.group.params)}
        if isinstance(expr, Call) and is_call(expr, "strided_slice"):
            offset = contiguous_from(expr)
            if offset is None or id(expr.args[0]) not in params or not _is_bytes(expr, size):
                raise _NoFormError
            self.placed[id(expr)] = Source(params[id(expr.args[0])], offset)
        elif isinstance(expr, Var) and _is_bytes(expr, size):
            self.placed[id(expr)] = Source(params[id(expr)])
        elif isinstance(expr, Constant) and not _is_number(expr):
            if not _is_bytes(expr, size):
                raise _NoFormError
            self.placed[id(expr)] = Source(len(params), len(self.constants))
            self.constants += expr.data.astype(np.int8).tobytes()
        if id(expr) in self.placed and self.placed[id(expr)].offset > MOST_OFFSET:
            raise _NoFormError

    def _source(self, expr: Expr) -> Source | None:
        """Where a value is in memory, if it is there."""
        if id(expr) in self.slots:
            return Source(None, self.slots[id(expr)])
        return self.placed.get(id(expr))

    def _make_current(self, expr: Expr, uses: Counter[int]) -> None:
        source = self._source(expr)
        if source is not None:
            self.steps.append(Load(source))
            return
        if not isinstance(expr, Call) or not isinstance(expr.op, Op) or not isinstance(expr.type, TensorType):
            raise _NoFormError
        if _is_of_two(expr):
            self._of_two(expr, uses)
        else:
            self._of_one(expr, uses)
        if uses[id(expr)] > 1:
            self._keep(expr)

    def _keep(self, expr: Expr) -> None:
        self.slots[id(expr)] = len(self.slots)
        self.steps.append(Keep(self.slots[id(expr)]))

    def _of_one(self, expr: Call, uses: Counter[int]) -> None:
        """A function of one byte: a table of what its own `evaluate` makes of all codes."""
        data = [a for a in expr.args if not _is_number(a)]
        if len(data) != 1 or not _is_elementwise(expr) or tensor_type(data[0]).dtype != "int8":
            raise _NoFormError
        self._make_current(data[0], uses)
        self._look_up(table_of_codes(expr, data[0]))

    def _look_up(self, table: Array) -> None:
        codes = table.astype(np.int8).tobytes()
        if codes not in self.tables:
            self.tables.append(codes)
        self.steps.append(Table(self.tables.index(codes)))

    def _of_two(self, expr: Call, uses: Counter[int]) -> None:
        """ADD, SUB or MUL; a clamp within the range of bytes is a table."""
        first, second = expr.args
        swapped = self._source(second) is None and self._source(first) is not None
        if swapped:
            first, second = second, first
        elif self._source(second) is None:
            self._make_current(first, uses)
            if id(first) not in self.slots:
                self._keep(first)
            first, second, swapped = second, first, True
        self._make_current(first, uses)
        other = self._source(second)
        if other is None:
            raise _NoFormError
        attrs = replace(expr.attrs, lo=-128, hi=127)
        if is_call(expr, "qnn.add"):
            form = linear_form(attrs)
            if form is None:
                raise _NoFormError
            factors = (form.a_factor, form.b_factor)
            self.numbers += [*(factors[::-1] if swapped else factors), form.bias]
            self.steps.append(Add(other, form.shift))
        else:
            self._product(replace(expr, attrs=attrs), other, swapped=swapped)
        if (expr.attrs.lo, expr.attrs.hi) != (-128, 127):
            self._look_up(np.clip(np.arange(-128, 128), expr.attrs.lo, expr.attrs.hi))

    def _product(self, expr: Call, other: Source, *, swapped: bool) -> None:
        requant = short_requant(expr.attrs, self.target)
        if requant is None or not int(requant.fields[-1].values[0]):
            raise _NoFormError
        zp, other_zp = expr.attrs.input_zp[::-1] if swapped else expr.attrs.input_zp
        doubled: Literal["value", "other"] = "value" if other_zp == 0 else "other"
        twice, once = (zp, other_zp) if doubled == "value" else (other_zp, zp)
        multiplier, constant, shift = (int(f.values[0]) for f in requant.fields)
        signed = requant.signed and _needs_sign(expr.attrs, (multiplier, constant, shift))
        self.numbers += [multiplier, constant, -2 * twice]
        self.steps.append(Multiply(other, shift, signed, doubled, once))


def _is_elementwise(expr: Call) -> bool:
    assert isinstance(expr.op, Op)
    name = expr.op.name
    return tensor_type(expr).dtype == "int8" and T_OP_PATTERN.get(name) <= OpPattern.BROADCAST and name not in BY_CHANNEL


def contiguous_from(expr: Call) -> int | None:
    """The first element of a slice that is one piece of its data; None of others."""
    attrs, shape = expr.attrs, tensor_type(expr.args[0]).shape
    cut = [axis for axis, extent in enumerate(attrs.extents) if extent != shape[axis]]
    outer = attrs.extents[: cut[-1]] if cut else ()
    if any(s != 1 for s in attrs.strides) or any(n != 1 for n in outer):
        return None
    return int(np.ravel_multi_index(attrs.begin, shape))


def table_of_codes(expr: Call, data: Expr) -> Array:
    """What a function of one byte makes of the codes from -128 on."""
    assert isinstance(expr.op, Op)
    codes = const(np.arange(-128, 128).astype(np.int8), quant=tensor_type(data).quant)
    numbers = {
        id(a): const(a.data.reshape(()), quant=a.type.quant) for a in expr.args if isinstance(a, Constant) and _is_number(a)
    }
    alone = call(expr.op, [numbers.get(id(a), codes) for a in expr.args], expr.attrs, span=expr.span)
    return np.asarray(call_op(alone, [a.data for a in alone.args if isinstance(a, Constant)])).reshape(-1)


@lru_cache(256)  # each form of a loop asks
def _needs_sign(attrs: RescaledAttrs, requant: tuple[int, int, int]) -> bool:
    """Whether some product of two bytes is rounded wrongly without the term for negative ones.

    `requant`: multiplier, constant, and shift of the short form.
    """
    codes = np.arange(-128, 128, dtype=np.int64)
    zps = attrs.input_zp
    products = np.multiply.outer(codes - zps[0], codes - zps[1])
    multiplier, constant, shift = requant
    found = np.clip((((2 * products * multiplier + (1 << 31)) >> 32) + constant) >> shift, -128, 127)
    pair = [codes.astype(np.int8)[:, None], codes.astype(np.int8)[None, :]]
    call_ = call("qnn.multiply", [const(p) for p in pair], attrs)
    return bool((found != np.asarray(call_op(call_, pair))).any())


def lower(group: Group, _target: Target, name: str, found: Plan) -> Lowered:
    b = IRBuilder(name)
    ctx = TeContext(b)
    result = tensor_type(group.result)
    size, lanes = prod(result.shape), found.program.lanes
    whole = size - size % lanes
    data = [b.input("data", (prod(v.type.shape),), "int8") for v in group.params]
    out = b.output("out", (size,), "int8")
    numbers = _constant(ctx, "numbers", np.array(found.numbers, np.int32))
    tables = [_constant(ctx, "table", np.frombuffer(t, np.int8)) for t in found.tables]
    operands = list(data)
    if found.constants:
        operands.append(_constant(ctx, "operands", np.frombuffer(found.constants, np.int8)))
    b.block(elementwise(found.program), numbers, *tables, *(region(x, 0) for x in operands), region(out, 0), imm(whole))
    if whole < size:
        rest = _rest(ctx, group, data, size)
        with b.for_("i", size, start=whole) as i:
            b.store(out, i, rest.at(b, (i,)))
    func = b.finish(FuncAttrs(kernel=f"arm_dsp.elementwise(lanes={lanes})", span=group.anchor.span))
    turn, operators = instructions(found.program), len(found.program.steps)
    entry = 4 * (len(tables) + len(operands)) + 30
    count = whole // lanes * turn + entry + (size - whole) * 15 * operators
    return Lowered(func, dict(ctx.constants), count, 4 * (turn + entry) + bool(size - whole) * 45 * operators)


def _constant(ctx: TeContext, name: str, data: Array) -> Buffer:
    buffer: Buffer = ctx.builder.const(name, (data.size,), str(data.dtype), align=4)
    ctx.constants[buffer.name] = data
    return buffer


def _rest(ctx: TeContext, group: Group, data: list[Buffer], size: int) -> TensorFn:
    """The group by its operators' own rules, on flat tensors."""
    tensors: dict[int, TensorFn] = {id(v): elements_of(x) for v, x in zip(group.params, data, strict=True)}
    for expr in post_order(group.result):
        if isinstance(expr, Constant):
            flat = expr.data.reshape(-1)
            tensors[id(expr)] = elements_of(_constant(ctx, "table", flat))
        elif isinstance(expr, Call) and is_call(expr, "strided_slice"):
            tensors[id(expr)] = _part(tensors[id(expr.args[0])], contiguous_from(expr) or 0, size)
        elif isinstance(expr, Call):
            type_ = tensor_type(expr)
            rule = F_TE.get(str(expr.op))
            tensors[id(expr)] = rule(
                ctx, [tensors[id(a)] for a in expr.args], expr.attrs, TensorType((size,), "int8", type_.quant)
            )
    return tensors[id(group.result)]


def _part(whole: TensorFn, offset: int, size: int) -> TensorFn:
    def rule(b: IRBuilder, i: TirExpr) -> TirExpr:
        return whole.at(b, (i + offset,))

    return tensor_fn((size,), "int8", rule)


for _lanes in (4, 2, 1):
    for _anchor in ANCHORS:
        register_planned(
            f"arm_dsp.elementwise_{_lanes}", _anchor, partial(plan, lanes=_lanes), lower, plevel=20 + _lanes, several=True
        )
