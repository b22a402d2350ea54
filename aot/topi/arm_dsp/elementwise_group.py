"""Groups of element-wise operators on int8 tensors, such as the GRU and LSTM cells that converters unroll (DSP cores).

The operators are ADD, SUB and MUL of two tensors, and functions of one byte, which become tables; operands are tensors,
contiguous parts of tensors, and constants.  All operators run in one loop, so no intermediate tensor is needed.  There are three
forms, with 1, 2 or 4 elements per iteration: more are faster, fewer need less code.

A program is a list of steps for a machine with one value, the current value, of as many elements as an iteration has.  The other
operand of ADD and MUL comes from memory; a value that is needed again later is kept in words on the stack.  The numbers of a step
are loaded once per iteration, in the order of the steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cache, lru_cache, partial
from hashlib import sha256
from math import prod
from typing import Literal

import numpy as np

from aot.ir.op import T_OP_PATTERN, Array, Op, OpPattern
from aot.ir.type import TensorType
from aot.op.common.te_rule import F_TE, TeContext
from aot.op.qnn.arithmetic import MultiplyAttrs, linear_form
from aot.relay.analysis import BY_CHANNEL
from aot.relay.expr import Call, Constant, Expr, Var, call, const, is_call, post_order, tensor_type
from aot.relay.interpreter import call_op
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.te.tensor import TensorFn, elements_of, tensor_fn
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr as TirExpr
from aot.tir.expr import Var as TirVar
from aot.tir.expr import cast, clamp, imm
from aot.tir.function import FuncAttrs
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_dsp.elementwise import doubled_product, short_requant
from aot.topi.intrin.asm_text import AsmBlock, block_of, count_instructions
from aot.topi.strategy import Group, Lowered, register_planned

MOST_OFFSET = 4088
"""Largest offset of an operand's element from the loop's current place in the operand."""

REGISTERS = 14

_NUMBERS = ("r8", "r9", "r10")


@dataclass(frozen=True, slots=True)
class Source:
    """Elements of an operand from `offset` on or, if there is no operand number, a value that was kept."""

    operand: int | None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """The current value becomes the value of `source`."""

    source: Source


@dataclass(frozen=True, slots=True)
class Keep:
    """The current value is kept in a slot."""

    slot: int


@dataclass(frozen=True, slots=True)
class Table:
    """table[value + 128]."""

    number: int


@dataclass(frozen=True, slots=True)
class Add:
    """sat8((value * a + other * b + bias) >> shift); numbers: a, b, bias."""

    other: Source
    shift: int


@dataclass(frozen=True, slots=True)
class Multiply:
    """sat8(requantised((value - zp) * (other - zp'))), with one distance doubled.

    Numbers: multiplier, constant, -2 * the zero point of the doubled one.  `zp` is the zero point of the other one.
    """

    other: Source
    shift: int
    signed: bool
    doubled: Literal["value", "other"]
    zp: int


Step = Load | Keep | Table | Add | Multiply


@dataclass(frozen=True, slots=True)
class Program:
    """`operands`, `tables` and `slots`: how many there are; `lanes`: elements per iteration, 1, 2 or 4."""

    steps: tuple[Step, ...]
    operands: int
    tables: int
    slots: int
    lanes: int = 1

    @property
    def numbers(self) -> int:
        return 3 * sum(isinstance(s, (Add, Multiply)) for s in self.steps)

    @property
    def name(self) -> str:
        return f"elementwise_{self.lanes}_{sha256(repr(self).encode()).hexdigest()[:12]}"


@cache
def elementwise(program: Program) -> TensorIntrin:
    """out[i] = the program's result for element i of its operands, for `count` elements, a multiple of its lanes.

    Operands: numbers int32, aligned; each table int8[256] from value -128 on; each operand and out int8 at any address (out may
    be an operand); count.
    """
    count = TirVar("count")
    b = IRBuilder(program.name)
    numbers = b.input("numbers", (max(1, program.numbers),), "int32", align=4)
    tables = [b.input(f"table{i}", (256,), "int8") for i in range(program.tables)]
    operands = [b.input(f"x{i}", (UNKNOWN_EXTENT,), "int8") for i in range(program.operands)]
    out = b.output("out", (UNKNOWN_EXTENT,), "int8")
    with b.for_("i", count, step=program.lanes) as i:
        results = [_element(b, program, (numbers, tables, operands), i + lane) for lane in range(program.lanes)]
        for lane, value in enumerate(results):
            b.store(out, i + lane, cast("int8", value))
    return block_of(b, "arm_dsp", lambda ops: _Text(program).emit(ops), count, ordered=True)


def _element(b: IRBuilder, program: Program, memory: tuple[Buffer, Sequence[Buffer], Sequence[Buffer]], i: TirExpr) -> TirExpr:
    """Return the program's meaning for one element."""
    numbers, tables, operands = memory
    kept: dict[int, TirExpr] = {}
    value: TirExpr = imm(0)
    at = 0

    def read(source: Source) -> TirExpr:
        if source.operand is None:
            return kept[source.offset]
        return cast("int32", operands[source.operand][i + source.offset])

    for step in program.steps:
        match step:
            case Load(source):
                value = b.let("value", read(source))
            case Keep(slot):
                kept[slot] = value
            case Table(number):
                value = b.let("value", cast("int32", tables[number][value + 128]))
            case Add(other, shift):
                total = value * numbers[at] + numbers[at + 2] + read(other) * numbers[at + 1]
                value = b.let("value", clamp(total >> shift, -128, 127))
                at += 3
            case Multiply(other):
                twice, once = (value, read(other)) if step.doubled == "value" else (read(other), value)
                requant_params = (numbers[at], numbers[at + 1], imm(step.shift))
                product = b.let("product", (once - step.zp) * (twice * 2 + numbers[at + 2]))
                value = b.let("value", doubled_product(signed=step.signed).emit_scaled(b, product, requant_params))
                at += 3
    return value


def instructions(program: Program) -> int:
    """Return the instructions per iteration."""
    return count_instructions(_Text(program).lines())


class _Text:
    """The block's assembly.

    Registers: v0 .. for the current value, t0 and t1, three for numbers, n that walks through the numbers, f for the frame on the
    stack, and pointers to as many operands as registers are left, the most used first.  The frame has the slots, the addresses of
    tables, the other pointers, and the end of the first operand.
    """

    def __init__(self, program: Program) -> None:
        self._p = program
        self._value = [f"%[v{i}]" for i in range(program.lanes)]
        self._temporaries = ["%[t0]", "%[t1]"]
        self._tables = program.lanes * program.slots
        pointers = [f"x{i}" for i in range(program.operands)]
        sources = [s.source if isinstance(s, Load) else s.other for s in program.steps if isinstance(s, (Load, Add, Multiply))]
        uses = Counter(f"x{s.operand}" for s in sources if s.operand is not None)
        ordered = [*sorted(pointers, key=lambda x: -uses[x]), "out"]
        room = REGISTERS - program.lanes - len(self._temporaries) - len(_NUMBERS) - 2
        self._near, self._far = ordered[:room], ordered[room:]
        self._end = self._tables + program.tables + len(self._far)

    def lines(self) -> list[str]:
        p = self._p
        text = ["1:", *(line for step in p.steps for line in self._step(step)), *self._store()]
        text += [f"add %[{x}], %[{x}], #{p.lanes}" for x in self._near if x != "out"]
        for x in self._far:
            if x != "out":
                place = self._frame(self._place(x))
                text += [f"ldr %[t0], {place}", f"add %[t0], %[t0], #{p.lanes}", f"str %[t0], {place}"]
        if p.numbers:
            text.append(f"sub %[n], %[n], #{4 * p.numbers}")
        return [*text, f"ldr %[t0], {self._frame(self._end)}", f"cmp %[{self._near[0]}], %[t0]", "bne 1b"]

    def _frame(self, word: int) -> str:
        return f"[%[f], #{4 * word}]"

    def _place(self, pointer: str) -> int:
        return self._tables + self._p.tables + self._far.index(pointer)

    def _step(self, step: Step) -> list[str]:
        match step:
            case Load(source):
                return self._read(source, self._value)
            case Keep(slot):
                return self._words("str", self._value, slot * self._p.lanes)
            case Table(number):
                look = [f"ldrsb {v}, [%[t0], {v}]" for v in self._value]
                return [f"ldr %[t0], {self._frame(self._tables + number)}", *look]
            case Add(other, shift):
                return self._with_other(other, lambda v, t: _add(v, t, shift))
            case Multiply(other):
                return self._with_other(other, lambda v, t: _multiply(v, t, step))

    def _words(self, op: str, registers: Sequence[str], word: int) -> list[str]:
        """Return loads or stores of the frame, two registers at a time."""
        pairs = [(registers[i : i + 2], word + i) for i in range(0, len(registers), 2)]
        return [f"{op}{'d' if len(pair) == 2 else ''} {', '.join(pair)}, {self._frame(at)}" for pair, at in pairs]

    def _read(self, source: Source, registers: Sequence[str], *, first: int = 0, base: str = "") -> list[str]:
        """Return loads of elements from number `first` of an iteration on; `base`: a register that holds the pointer already."""
        if source.operand is None:
            return self._words("ldr", registers, source.offset * self._p.lanes + first)
        pointer = f"x{source.operand}"
        lines = []
        if pointer in self._near:
            base = f"%[{pointer}]"
        elif not base:  # the last register to be loaded may hold it until then
            base = registers[-1]
            lines.append(f"ldr {base}, {self._frame(self._place(pointer))}")
        return lines + [f"ldrsb {r}, [{base}, #{source.offset + first + i}]" for i, r in enumerate(registers)]

    def _with_other(self, source: Source, element: Callable[[str, str], list[str]]) -> list[str]:
        """Return the loads of an operator's numbers, then per two elements the other operand's loads and the operator."""
        text = [f"ldmia %[n]!, {{{', '.join(_NUMBERS)}}}"]
        for first in range(0, self._p.lanes, 2):
            values = self._value[first : first + 2]
            temporaries = self._temporaries[: len(values)]
            text += self._read(source, temporaries, first=first)
            text += [line for v, t in zip(values, temporaries, strict=True) for line in element(v, t)]
        return text

    def _store(self) -> list[str]:
        base, after = "%[out]", []
        text = [f"bfi %[v0], %[v{i}], #{8 * i}, #8" for i in range(1, self._p.lanes)]
        if "out" in self._far:
            base, place = "%[t0]", self._frame(self._place("out"))
            text.append(f"ldr %[t0], {place}")
            after = [f"str %[t0], {place}"]
        width = {1: "b", 2: "h", 4: ""}[self._p.lanes]
        return [*text, f"str{width} %[v0], [{base}], #{self._p.lanes}", *after]

    def emit(self, operands: Mapping[str, COperand]) -> BlockText:
        p = self._p
        pointer = {n: o.pointer for n, o in operands.items()}
        frame = [f"{pointer[f'table{i}']} + 128" for i in range(p.tables)] + [pointer[x] for x in self._far]
        frame.append(f"({pointer[self._near[0]]}) + {operands['count'].value}")
        temporaries = [*(f"v{i}" for i in range(p.lanes)), "t0", "t1"]
        return AsmBlock(
            [
                f"uint32_t aot_f[{self._end + 1}];",
                "const void *aot_n = " + pointer["numbers"] + ";",
                *(f"{'' if x == 'out' else 'const '}void *aot_{x} = {pointer[x]};" for x in self._near),
                f"uint32_t {', '.join(f'aot_{t}' for t in temporaries)};",
                *(f"aot_f[{self._tables + i}] = (uint32_t)(uintptr_t)({value});" for i, value in enumerate(frame)),
            ],
            self.lines(),
            outs=[f'[{n}] "+&r"(aot_{n})' for n in (*self._near, "n")] + [f'[{t}] "=&r"(aot_{t})' for t in temporaries],
            ins=['[f] "r"(aot_f)'],
            clobbers=_NUMBERS,
        ).emit()


def _add(v: str, t: str, shift: int) -> list[str]:
    a, b, bias = _NUMBERS
    return [f"mla {v}, {v}, {a}, {bias}", f"mla {v}, {t}, {b}, {v}", f"ssat {v}, #8, {v}, asr #{shift}"]


def _multiply(v: str, t: str, step: Multiply) -> list[str]:
    multiplier, constant, distance = _NUMBERS
    twice, once = (v, t) if step.doubled == "value" else (t, v)
    return [
        f"add {twice}, {distance}, {twice}, lsl #1",
        *([f"{'sub' if step.zp > 0 else 'add'} {once}, {once}, #{abs(step.zp)}"] if step.zp else []),
        f"mul {t}, {v}, {t}",
        f"smmlar {v}, {t}, {multiplier}, {constant}",
        *([f"add {v}, {v}, {t}, asr #31"] if step.signed else []),
        f"ssat {v}, #8, {v}, asr #{step.shift}",
    ]


# ---- the program of a group ----

LEAST = 16
"""Fewest elements for which the loop pays."""

MOST_SLOTS, MOST_OPERANDS = 8, 12
"""Most values that are kept, and most tensors: so few that the whole frame is within reach."""

ANCHORS = ("qnn.add", "qnn.multiply", "qnn.lut", "qnn.requantize8", "clip", "strided_slice")

OF_TWO = frozenset({"qnn.add", "qnn.multiply"})


@dataclass(frozen=True, slots=True)
class Plan:
    """A program with its numbers and tables; `constants`: operands that are not parameters, one after another."""

    program: Program
    numbers: tuple[int, ...]
    tables: tuple[bytes, ...]
    constants: bytes


def plan(group: Group, target: Target, *, lanes: int) -> Plan | None:
    """Return the plan for so many elements at a time, or None."""
    base = _plan(group, target)
    return None if base is None else replace(base, program=replace(base.program, lanes=lanes))


@lru_cache(16)  # every form of the loop asks
def _plan(group: Group, target: Target) -> Plan | None:
    """Return None for other cores and operators, for a single operator (it has better kernels), and for too large a frame."""
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
    """Something in the group cannot be expressed as a program."""


def _is_bytes(expr: Expr, size: int) -> bool:
    return isinstance(expr.type, TensorType) and expr.type.dtype == "int8" and prod(expr.type.shape) == size


def _is_of_two(expr: Call) -> bool:
    return isinstance(expr.op, Op) and expr.op.name in OF_TWO and not any(_is_number(a) for a in expr.args)


def _is_number(expr: Expr) -> bool:
    return isinstance(expr, Constant) and expr.data.size == 1


@dataclass(slots=True)
class _Planner:
    """Appends steps in the order in which values are needed; of two operands to be computed, the first is kept meanwhile."""

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
        """Record where an operand's elements are."""
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
        """Return where a value is in memory, if it is there."""
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
        """Append a function of one byte: a table of its own `evaluate` for all values."""
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
        """Append ADD, SUB or MUL; a clamp tighter than int8 is a table."""
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
        if requant is None or not int(requant.params[-1].values[0]):
            raise _NoFormError
        zp, other_zp = expr.attrs.input_zp[::-1] if swapped else expr.attrs.input_zp
        doubled: Literal["value", "other"] = "value" if other_zp == 0 else "other"
        twice, once = (zp, other_zp) if doubled == "value" else (other_zp, zp)
        multiplier, constant, shift = (int(f.values[0]) for f in requant.params)
        signed = requant.signed and _needs_sign(expr.attrs, (multiplier, constant, shift))
        self.numbers += [multiplier, constant, -2 * twice]
        self.steps.append(Multiply(other, shift, signed, doubled, once))


def _is_elementwise(expr: Call) -> bool:
    assert isinstance(expr.op, Op)
    name = expr.op.name
    return tensor_type(expr).dtype == "int8" and T_OP_PATTERN.get(name) <= OpPattern.BROADCAST and name not in BY_CHANNEL


def contiguous_from(expr: Call) -> int | None:
    """Return the first element of a slice that is one contiguous piece of its data; None for others."""
    attrs, shape = expr.attrs, tensor_type(expr.args[0]).shape
    cut = [axis for axis, extent in enumerate(attrs.extents) if extent != shape[axis]]
    outer = attrs.extents[: cut[-1]] if cut else ()
    if any(s != 1 for s in attrs.strides) or any(n != 1 for n in outer):
        return None
    return int(np.ravel_multi_index(attrs.begin, shape))


def table_of_codes(expr: Call, data: Expr) -> Array:
    """Return the results of a function of one byte for the values from -128 on."""
    assert isinstance(expr.op, Op)
    codes = const(np.arange(-128, 128).astype(np.int8), quant=tensor_type(data).quant)
    numbers = {
        id(a): const(a.data.reshape(()), quant=a.type.quant) for a in expr.args if isinstance(a, Constant) and _is_number(a)
    }
    alone = call(expr.op, [numbers.get(id(a), codes) for a in expr.args], expr.attrs, span=expr.span)
    return np.asarray(call_op(alone, [a.data for a in alone.args if isinstance(a, Constant)])).reshape(-1)


@lru_cache(256)  # every form of the loop asks
def _needs_sign(attrs: MultiplyAttrs, requant: tuple[int, int, int]) -> bool:
    """Whether some product of two bytes would round wrongly without the term for negative ones.

    `requant`: multiplier, constant, and shift of the short form.
    """
    codes = np.arange(-128, 128, dtype=np.int64)
    zps = attrs.input_zp
    products = np.multiply.outer(codes - zps[0], codes - zps[1])
    multiplier, constant, shift = requant
    results = np.clip((((2 * products * multiplier + (1 << 31)) >> 32) + constant) >> shift, -128, 127)
    pair = [codes.astype(np.int8)[:, None], codes.astype(np.int8)[None, :]]
    call_ = call("qnn.multiply", [const(p) for p in pair], attrs)
    return bool((results != np.asarray(call_op(call_, pair))).any())


def lower(group: Group, _target: Target, name: str, plan: Plan) -> Lowered:
    """Lower a group: one block for all whole iterations, then the remainder by the operators' own rules."""
    b = IRBuilder(name)
    ctx = TeContext(b)
    result = tensor_type(group.result)
    size, lanes = prod(result.shape), plan.program.lanes
    whole = size - size % lanes
    data = [b.input("data", (prod(v.type.shape),), "int8") for v in group.params]
    out = b.output("out", (size,), "int8")
    numbers = _constant(ctx, "numbers", np.array(plan.numbers, np.int32))
    tables = [_constant(ctx, "table", np.frombuffer(t, np.int8)) for t in plan.tables]
    operands = list(data)
    if plan.constants:
        operands.append(_constant(ctx, "operands", np.frombuffer(plan.constants, np.int8)))
    b.block(elementwise(plan.program), numbers, *tables, *(region(x, 0) for x in operands), region(out, 0), imm(whole))
    if whole < size:
        remainder = _remainder(ctx, group, data, size)
        with b.for_("i", size, start=whole) as i:
            b.store(out, i, remainder.at(b, (i,)))
    func = b.finish(FuncAttrs(kernel=f"arm_dsp.elementwise(lanes={lanes})", span=group.anchor.span))
    per_iteration, operators = instructions(plan.program), len(plan.program.steps)
    entry = 4 * (len(tables) + len(operands)) + 30
    count = whole // lanes * per_iteration + entry + (size - whole) * 15 * operators
    return Lowered(func, dict(ctx.constants), count, 4 * (per_iteration + entry) + bool(size - whole) * 45 * operators)


def _constant(ctx: TeContext, name: str, data: Array) -> Buffer:
    buffer: Buffer = ctx.builder.const(name, (data.size,), str(data.dtype), align=4)
    ctx.constants[buffer.name] = data
    return buffer


def _remainder(ctx: TeContext, group: Group, data: list[Buffer], size: int) -> TensorFn:
    """Return the group by its operators' own rules, on flat tensors."""
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
