"""Deterministic C identifiers from arbitrary text."""

from __future__ import annotations

import re

_RESERVED = frozenset(
    [
        "auto",
        "break",
        "case",
        "char",
        "const",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "register",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "typedef",
        "union",
        "unsigned",
        "void",
        "volatile",
        "while",
        "bool",
        "true",
        "false",
        "asm",
        "class",
        "new",
        "delete",
        "this",
        "template",
        "typename",
        "namespace",
        "operator",
        "public",
        "private",
        "protected",
        "virtual",
        "friend",
        "using",
        "try",
        "catch",
        "throw",
        "export",
        "and",
        "or",
        "not",
        "xor",
        "main",
        "errno",
        "NULL",
        "memcpy",
        "memset",
        "memmove",
        "in",
        "out",
    ]
)


def c_identifier(text: str, *, default: str = "x") -> str:
    """`text` as a lower-case C identifier that is also none of C++'s key words; `default` where nothing is left of it."""
    name = re.sub(r"[^0-9a-zA-Z]+", "_", text).strip("_").lower()
    if not name:
        name = default
    if name[0].isdigit():
        name = f"{default}_{name}"
    return f"{name}_" if name in _RESERVED else name


class NameSupply:
    """Hands out identifiers, each once: the second `acc` becomes `acc_1`."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def fresh(self, base: str) -> str:
        name, n = base, 0
        while name in self._used:
            n += 1
            name = f"{base}_{n}"
        self._used.add(name)
        return name
