"""Inline assembly as C text: the one place that prints an asm statement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from aot.tir.intrin import BlockText

_SEMICOLONS = "/* GCC takes the size of a block from its lines: a semicolon for each that .irp adds */"
_PIECE = 80
"""Of a line of semicolons, as it stands in C."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """Lines that stand `count` times.

    They are repeated by a C macro, not by the assembler's .rept: GCC takes the size of a template from the number of
    its lines, and would place constants out of the reach of its loads if it thought a block smaller than it is.
    """

    count: int
    lines: Sequence[str]


def asm_template(text: Sequence[str | Repeat], *, indent: str = "      ") -> list[str]:
    """The C lines of a template."""
    out: list[str] = []
    for part in text:
        if isinstance(part, str):
            if set(part) == {";"}:
                out.append(f"{indent}{_SEMICOLONS}")
                out += [f'{indent}"{";" * _PIECE}"'] * ((len(part) - 1) // _PIECE)
                part = part[: (len(part) - 1) % _PIECE + 1]
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
    """

    declarations: Sequence[str]
    text: Sequence[str | Repeat]
    outs: Sequence[str]
    ins: Sequence[str] = ()
    clobbers: Sequence[str] = ()

    @property
    def registers(self) -> int:
        """Core registers that the block occupies at once."""
        return sum(kind == "r" for kind in self._constraints()) + sum(bool(_CORE.match(c)) for c in self.clobbers)

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
