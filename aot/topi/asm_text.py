"""Lines of an inline assembly template as C string literals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
