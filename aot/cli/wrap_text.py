"""Text within the width of a terminal: nothing is cut, what is too long goes on below.

Only for terminals: what goes into a file or a pipe stays one line, for the programs that read it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from typing import TextIO

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_LEAST = 40
_TEXT = 24
"""Columns that the last column of a table must have to be worth folding."""


def width_of(stream: TextIO) -> int | None:
    """The columns of a terminal; None for anything else."""
    return max(_LEAST, shutil.get_terminal_size().columns) if stream.isatty() else None


def shown(text: str) -> int:
    """The columns that a text takes; colours take none."""
    return len(_ESCAPE.sub("", text))


def fold(text: str, width: int | None, *, hang: int) -> str:
    """One line as several of at most `width` columns, broken at spaces; the second and later ones begin with `hang` spaces.

    A word that is longer than a line stays whole: paths are there to be copied.
    """
    if width is None or shown(text) <= width:
        return text
    lead = len(text) - len(text.lstrip(" "))
    lines, here = [], text[:lead]
    empty = True
    for word in re.split(r"(?<=\S) ", text[lead:]):
        if empty:
            here, empty = here + word, False
        elif shown(here) + 1 + shown(word) <= width:
            here += " " + word
        else:
            lines.append(here.rstrip())
            here = " " * hang + word.lstrip(" ")
    return "\n".join([*lines, here])


def fold_prose(text: str, width: int | None) -> str:
    """Paragraphs folded anew; lines that are indented, lists and tables line by line."""
    if width is None:
        return text
    parts: list[str] = []
    for line in text.split("\n"):
        plain = bool(line) and line[0] not in " |*-#"
        if plain and parts and parts[-1] and parts[-1][0] not in " |#":
            parts[-1] += " " + line
        else:
            parts.append(line)
    return "\n".join(p if p.startswith("    ") else fold(p, width, hang=2 if p[:1] in "*-" else 0) for p in parts)


def fold_table(headers: Sequence[str], cells: Sequence[Sequence[str]], lines: Sequence[str], width: int | None) -> list[str]:
    """A table whose `lines` are too wide: the last column folded where it is text and has room, else a paragraph a row."""
    if width is None or max(map(shown, lines)) <= width:
        return list(lines)
    hang = 2 + sum(max(map(shown, column)) + 2 for column in list(zip(headers, *cells, strict=True))[:-1])
    words = any(" " in row[-1] for row in cells)
    if words and width - hang >= _TEXT:
        return [fold(line, width, hang=hang) for line in lines]
    found = [fold(f"  {' '.join(headers[:2])}{': ' if headers[2:] else ''}{' · '.join(headers[2:])}", width, hang=4)]
    for row in cells:
        rest = [f"{h} {c}" for h, c in zip(headers[2:], row[2:], strict=True) if c not in ("", "-")]
        found.append(fold(f"  {' '.join(row[:2])}{': ' if rest else ''}{' · '.join(rest)}", width, hang=4))
    return found
