"""Inline assembly as C text: the one place that prints an asm statement."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aot.support.dataclass import dataclass
from aot.tir.intrin import BlockText

COUNTER = ".Laot_i"
"""The symbol that counts the repetitions of `counted`."""
_MOST = 32
"""AOT_REPEAT_n exists up to here."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """Lines repeated `count` times.

    They are repeated by a C macro, not by the assembler's .rept or .irp: GCC takes the size of a template from the number of its
    lines, and would place constants out of the reach of its loads if it thought a block smaller than it is (ADR 14).
    """

    count: int
    lines: Sequence[str | Repeat]


def counted(count: int, lines: Sequence[str]) -> list[str | Repeat]:
    """`lines` `count` times, with the number of the repetition, from 0 on, in offsets made by `counted_offset`."""
    body = [*lines, f".set {COUNTER}, {COUNTER}+1"]
    full, rest = divmod(count, _MOST)
    return [f".set {COUNTER}, 0", Repeat(full, [Repeat(_MOST, body)]), Repeat(rest, body)]


def counted_offset(index: int | None, unit: int, more: int) -> str:
    """unit * index + more; of the number of the repetition where the index is None."""
    return f"{unit}*{COUNTER}+{more}" if index is None else str(unit * index + more)


def add_immediate(register: str, value: int) -> list[str]:
    """ADD or SUB of any constant: one instruction for up to 12 bits or 8 bits anywhere, else one for each such part."""
    op, rest, lines = ("add" if value >= 0 else "sub"), abs(value), []
    while rest:
        shift = rest.bit_length() - 8
        part = rest >> shift << shift if rest > 4095 else rest
        lines.append(f"{op} {register}, {register}, #{part}")
        rest -= part
    return lines


def count_instructions(text: Sequence[str | Repeat]) -> int:
    """Instructions that a text executes once through, repetitions included."""
    total = 0
    for part in text:
        if isinstance(part, Repeat):
            total += part.count * count_instructions(part.lines)
        else:
            total += not part.endswith(":") and not part.startswith(".")
    return total


def asm_template(text: Sequence[str | Repeat], *, indent: str = "      ") -> list[str]:
    """The C lines of a template."""
    out: list[str] = []
    for part in text:
        if isinstance(part, str):
            out.append(f'{indent}"{part}\\n"')
        elif part.count == 1:
            out += asm_template(part.lines, indent=indent)
        elif part.count > 1:
            body = asm_template(part.lines, indent=indent + "  ")
            out += [f"{indent}AOT_REPEAT_{part.count}(", *body[:-1], body[-1] + ")"]
    return out


_CONSTRAINT = re.compile(r'^(?:\[\w+\] )?"[=+&]*(\w+)"')
_CORE = re.compile(r"(r\d+|lr)$")
_VECTOR = re.compile(r"s\d+$")


@dataclass(frozen=True, slots=True)
class AsmBlock:
    """One asm statement with its variables, in braces.

    `outs` and `ins` are operands as GNU C writes them, `[n] "+r"(aot_n)`; `clobbers` the registers that the text names itself
    (flags and memory are always understood).  What a build has to offer for it, registers and FPU, follows from these three.
    Where a register of `ins` may hold what a pointer or counter of `outs` begins with, that one is "+&r": GCC gives both one
    register else.
    """

    declarations: Sequence[str]
    text: Sequence[str | Repeat]
    outs: Sequence[str]
    ins: Sequence[str] = ()
    clobbers: Sequence[str] = ()

    @property
    def registers(self) -> int:
        """Core registers that the block occupies at once."""
        return sum(kind in ("r", "l", "h") for kind in self._constraints()) + sum(bool(_CORE.match(c)) for c in self.clobbers)

    @property
    def fpu(self) -> bool:
        return "t" in self._constraints() or any(_VECTOR.match(c) for c in self.clobbers)

    def _constraints(self) -> list[str]:
        return [found.group(1) for o in (*self.outs, *self.ins) if (found := _CONSTRAINT.match(o))]

    def emit(self) -> BlockText:
        """The C text, and what the build has to have."""
        quoted = ", ".join(f'"{c}"' for c in (*self.clobbers, "cc", "memory"))
        lines = ["{", *(f"  {d}" for d in self.declarations), "  __asm volatile(", *asm_template(self.text)]
        lines += [f"      : {', '.join(self.outs)}", f"      : {', '.join(self.ins)}".rstrip(), f"      : {quoted});", "}"]
        return BlockText("\n".join(lines), self.registers, self.fpu)
