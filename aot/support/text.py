"""Building indented text, and formatting of names and numbers for messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any


class TextBuilder:
    """Collects lines at the current indentation; `with text.indented():` increases it."""

    def __init__(self, indent: str = "  ") -> None:
        self._indent = indent
        self._depth = 0
        self._lines: list[str] = []

    def line(self, text: str = "") -> None:
        self._lines.append(self._indent * self._depth + text if text else "")

    def line_at_margin(self, text: str) -> None:
        """A preprocessor directive, which starts in the first column."""
        self._lines.append(text)

    def lines(self, block: str) -> None:
        for text in block.splitlines():
            self.line(text)

    @contextmanager
    def indented(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def commas(number: int) -> str:
    """1234567 -> '1,234,567'."""
    return f"{number:,}"


MOST_OPERATORS = 3
"""Maximum number of operators to name per layer; a cascade can contain dozens."""


def operators_text(names: Sequence[str]) -> str:
    """The operators of a layer, in order: `CONV_2D + ADD`, `2 x CONV_2D`, `PAD + CONV_2D + MUL + 4 more`."""
    groups = [(name, sum(1 for _ in same)) for name, same in groupby(names)]
    shown = [name if count == 1 else f"{count} x {name}" for name, count in groups[:MOST_OPERATORS]]
    omitted = sum(count for _, count in groups[MOST_OPERATORS:])
    return " + ".join([*shown, *([f"{omitted} more"] if omitted else [])])


def does_of(row: Mapping[str, Any]) -> str:
    """The operators of a layer in our JSON (`does`); in files of older versions only the operator of its result (`op`)."""
    return str(row.get("does") or row.get("op") or "")


def printable(name: str, *, limit: int = 80) -> str:
    """A name from an untrusted file, safe to print: control characters escaped, truncated to `limit` characters."""
    clean = escaped(name[: limit + 1])
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def escaped(text: str) -> str:
    """`text` with all unprintable characters escaped: `\\x1b`, `\\n`, `\\udce9` for a byte that is not UTF-8."""
    return text if text.isprintable() else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def escaped_lines(text: str) -> str:
    """Like `escaped`, but keeps line breaks and indents all but the first line, so that no name can look like a message."""
    return "\n    ".join(escaped(line) for line in text.split("\n"))
