"""Building indented text line by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any


class TextBuilder:
    """Collects lines at a current depth; `with text.indented():` deepens it."""

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
"""That are named of a layer; a cascade can hold dozens."""


def operators_text(names: Sequence[str]) -> str:
    """What a layer of several operators does, in their order: `CONV_2D + ADD`, `2 x CONV_2D`, `PAD + CONV_2D + MUL + 4 more`."""
    groups = [(name, sum(1 for _ in same)) for name, same in groupby(names)]
    shown = [name if count == 1 else f"{count} x {name}" for name, count in groups[:MOST_OPERATORS]]
    rest = sum(count for _, count in groups[MOST_OPERATORS:])
    return " + ".join([*shown, *([f"{rest} more"] if rest else [])])


def does_of(row: Mapping[str, Any]) -> str:
    """What the layer of a row of our JSON does; `op`, the operator of its result, in files of a version that did not say more."""
    return str(row.get("does") or row.get("op") or "")


def printable(name: str, *, limit: int = 80) -> str:
    """A name from an untrusted file, safe to show: control characters escaped, cut at `limit` characters."""
    clean = escaped(name[: limit + 1])
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def escaped(text: str) -> str:
    """`text` with every character that is not printable as its escape: `\\x1b`, `\\n`, `\\udce9` for a byte that is no UTF-8."""
    return text if text.isprintable() else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def escaped_lines(text: str) -> str:
    """As `escaped`, but line ends stay; what follows one is indented, so that no name can pass for a message of its own."""
    return "\n    ".join(escaped(line) for line in text.split("\n"))
