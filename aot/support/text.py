"""Text: building it with indentation, names and numbers in messages, suggestions, and quoting for other languages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher
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


# ---- suggestions for a misspelt word


_CLOSE, _LOOSE = 0.7, 0.6
"""Similarity ratios from which on a word is suggested."""


def nearest(word: str, candidates: Iterable[str], *, limit: int = 3) -> list[str]:
    """At most `limit` candidates that `word` may mean, best first, ignoring case.

    Near misses come first, then candidates that contain the word or are contained in it.
    """
    words = {c.lower(): c for c in candidates}
    typed = word.lower()
    if not typed:
        return []
    ratio = {w: SequenceMatcher(None, w, typed).ratio() for w in words}
    parts = [w for w in words if (len(typed) >= 3 and typed in w) or (len(w) >= 3 and w in typed)]
    in_order = sorted(words, key=lambda w: -ratio[w])  # stable: equal ratios keep the order of the candidates
    matches = [*(w for w in in_order if ratio[w] >= _CLOSE), *parts, *(w for w in in_order if ratio[w] >= _LOOSE)]
    return [words[w] for w in dict.fromkeys(matches)][:limit]


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """` (did you mean a or b?)`, to follow the word in a message; empty without suggestions."""
    words = [printable(w) for w in nearest(word, candidates)]
    if not words:
        return ""
    return f" (did you mean {', '.join(words[:-1]) + ' or ' if words[1:] else ''}{words[-1]}?)"


# ---- quoting of arbitrary text for other languages


_PLAIN_CMAKE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


def shell(text: object) -> str:
    """`text` as one word of a POSIX shell."""
    return shlex.quote(str(text))


def make(text: object) -> str:
    """`text` as one shell word in a Makefile: with $ doubled and # escaped."""
    return shell(text).replace("$", "$$").replace("#", "\\#")


def cmake(text: object) -> str:
    """`text` as one argument of a CMake command."""
    word = str(text)
    if _PLAIN_CMAKE.fullmatch(word):
        return word
    return '"' + re.sub(r'([\\"$;])', r"\\\1", word) + '"'


def comment(text: object) -> str:
    """`text` for a one-line comment in C, Make, CMake, a shell or a linker script; it cannot end or continue the comment."""
    line = escaped(str(text)).replace("*/", "* /").replace("/*", "/ *").replace("??/", "?? /")
    return f"{line} " if line.endswith("\\") else line


FILTERS: Mapping[str, Callable[[object], str]] = {"sh": shell, "mk": make, "cmake": cmake, "comment": comment}
"""Filters for templates: {{ title | sh }}."""
