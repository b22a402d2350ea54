"""Inline assembly as C text: the only file that prints asm statements."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aot.support.dataclass import dataclass
from aot.tir.intrin import BlockText

COUNTER = ".Laot_i"
"""The symbol that counts the repetitions of `counted`."""
_MOST = 32
"""The largest n for which AOT_REPEAT_n exists."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """Lines repeated `count` times.

    A C macro repeats them, not the assembler's .rept or .irp: GCC estimates the size of a template from its number of lines.  If
    it took a block for smaller than it is, it would place constants out of reach of its loads (ADR 14).
    """

    count: int
    lines: Sequence[str | Repeat]


def counted(count: int, lines: Sequence[str]) -> list[str | Repeat]:
    """Repeat `lines` `count` times; offsets made by `counted_offset` contain the number of the repetition, from 0 on."""
    body = [*lines, f".set {COUNTER}, {COUNTER}+1"]
    full, remainder = divmod(count, _MOST)
    return [f".set {COUNTER}, 0", Repeat(full, [Repeat(_MOST, body)]), Repeat(remainder, body)]


def counted_offset(index: int | None, unit: int, more: int) -> str:
    """unit * index + more; None as index means the number of the repetition."""
    return f"{unit}*{COUNTER}+{more}" if index is None else str(unit * index + more)


def add_immediate(register: str, value: int) -> list[str]:
    """ADD or SUB of any constant: one instruction for up to 12 bits or any 8 adjacent bits, otherwise one per such part."""
    op, left, lines = ("add" if value >= 0 else "sub"), abs(value), []
    while left:
        shift = left.bit_length() - 8
        part = left >> shift << shift if left > 4095 else left
        lines.append(f"{op} {register}, {register}, #{part}")
        left -= part
    return lines


def count_instructions(text: Sequence[str | Repeat]) -> int:
    """Instructions that one pass through a text executes, including repetitions."""
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

    `outs` and `ins` are operands in GNU C syntax, `[n] "+r"(aot_n)`; `clobbers` are registers that the text names itself (flags
    and memory are always included).  The requirements on a build, registers and FPU, are derived from these three.  If an operand
    of `ins` may have the same value as the initial value of a pointer or counter in `outs`, the latter must be "+&r", because GCC
    would otherwise give both one register.
    """

    declarations: Sequence[str]
    text: Sequence[str | Repeat]
    outs: Sequence[str]
    ins: Sequence[str] = ()
    clobbers: Sequence[str] = ()

    @property
    def registers(self) -> int:
        """Core registers that the block occupies at the same time."""
        return sum(kind in ("r", "l", "h") for kind in self._constraints()) + sum(bool(_CORE.match(c)) for c in self.clobbers)

    @property
    def fpu(self) -> bool:
        return "t" in self._constraints() or any(_VECTOR.match(c) for c in self.clobbers)

    def _constraints(self) -> list[str]:
        return [match.group(1) for o in (*self.outs, *self.ins) if (match := _CONSTRAINT.match(o))]

    def emit(self) -> BlockText:
        """The C text, and what it requires of a build."""
        quoted = ", ".join(f'"{c}"' for c in (*self.clobbers, "cc", "memory"))
        lines = ["{", *(f"  {d}" for d in self.declarations), "  __asm volatile(", *asm_template(self.text)]
        lines += [f"      : {', '.join(self.outs)}", f"      : {', '.join(self.ins)}".rstrip(), f"      : {quoted});", "}"]
        return BlockText("\n".join(lines), self.registers, self.fpu)
