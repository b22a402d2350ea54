"""Several element-wise operators of bytes in one loop (Armv7E-M's DSP extension): results stay in registers between them.

A program is a list of steps for a machine with one value, the current one, of as many elements as the loop takes at a time.
The other operand of ADD and MUL comes from memory; a value that is needed again later is kept in words on the stack.  Numbers
of a step are loaded for all elements of a turn, in the order of the steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from typing import Literal

import numpy as np

from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, cast, clamp, imm
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock, count_instructions
from aot.topi.layer.requant import HighMultiply

MOST_OFFSET = 4088
"""The largest offset of an operand's element from where the loop is in the operand."""

REGISTERS = 14

_NUMBERS = ("r8", "r9", "r10")


@dataclass(frozen=True, slots=True)
class Source:
    """Elements of an operand, from `offset` on; or, without an operand's number, a value that was kept."""

    operand: int | None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """The current value becomes that of `source`."""

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
    """sat8(requantised((value - zp) * (other - zp'))), one distance doubled; numbers: multiplier, constant, -2 * zp of that one.

    `zp` is the zero point of the one that is not doubled.
    """

    other: Source
    shift: int
    signed: bool
    doubled: Literal["value", "other"]
    zp: int

    @property
    def requant(self) -> HighMultiply:
        """The meaning of a product that comes doubled."""
        return HighMultiply((), np.array([1]), True, self.signed, -128, 127, "int8", True)


Step = Load | Keep | Table | Add | Multiply


@dataclass(frozen=True, slots=True)
class Program:
    """`operands`, `tables` and `slots` say how many there are; `lanes`: elements of one turn, 1, 2 or 4."""

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
    """out[i] = what the program makes of element i of its operands, for `count` elements, a multiple of its lanes.

    Operands: numbers int32, aligned; each table int8[256] from code -128 on; each operand and out int8 at any address (out may
    be an operand); count.
    """
    count = Var("count")
    b = IRBuilder(program.name)
    numbers = b.input("numbers", (max(1, program.numbers),), "int32", align=4)
    tables = [b.input(f"table{i}", (256,), "int8") for i in range(program.tables)]
    operands = [b.input(f"x{i}", (UNKNOWN_EXTENT,), "int8") for i in range(program.operands)]
    out = b.output("out", (UNKNOWN_EXTENT,), "int8")
    with b.for_("i", count, step=program.lanes) as i:
        results = [_element(b, program, (numbers, tables, operands), i + lane) for lane in range(program.lanes)]
        for lane, value in enumerate(results):
            b.store(out, i + lane, cast("int8", value))
    desc = replace(b.finish(), scalars=(count,))
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: _Text(program).emit(ops), ordered=True)


def _element(b: IRBuilder, program: Program, memory: tuple[Buffer, Sequence[Buffer], Sequence[Buffer]], i: Expr) -> Expr:
    """The meaning of the program for one element."""
    numbers, tables, operands = memory
    kept: dict[int, Expr] = {}
    value: Expr = imm(0)
    at = 0

    def read(source: Source) -> Expr:
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
                product = b.let("product", (once - step.zp) * (twice * 2 + numbers[at + 2]))
                value = b.let("value", step.requant.emit_scaled(b, product, (numbers[at], numbers[at + 1], imm(step.shift))))
                at += 3
    return value


def instructions(program: Program) -> int:
    """Of one turn of the loop."""
    return count_instructions(_Text(program).lines())


class _Text:
    """The block's assembly.

    Registers: v0 .. of the current value, t0 and t1, three of numbers, n that walks through these, f of the frame on the stack,
    and as many pointers to operands as are left, those used most often first.  The frame has the slots, the addresses of
    tables, the other pointers, and where the first operand ends.
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
        """Loads or stores of the frame, two registers at a time."""
        pairs = [(registers[i : i + 2], word + i) for i in range(0, len(registers), 2)]
        return [f"{op}{'d' if len(pair) == 2 else ''} {', '.join(pair)}, {self._frame(at)}" for pair, at in pairs]

    def _read(self, source: Source, registers: Sequence[str], *, first: int = 0, base: str = "") -> list[str]:
        """Elements from number `first` of a turn on; `base` is a register that holds the pointer already."""
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
        """An operator's numbers, then two elements at a time: the other operand's, and the operator on each."""
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
