"""Folding of text to the width of a terminal; nothing is cut off.

Files and pipes get unfolded lines, for the programs that read them.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from typing import TextIO

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_LEAST = 40
_TEXT = 24
"""The last column of a table is folded only if it is at least this wide."""


def width_of(stream: TextIO) -> int | None:
    """The width of a terminal in columns; None if `stream` is not one."""
    return max(_LEAST, shutil.get_terminal_size().columns) if stream.isatty() else None


def shown(text: str) -> int:
    """The width of a text in columns; colours have no width."""
    return len(_ESCAPE.sub("", text))


def fold(text: str, width: int | None, *, hang: int) -> str:
    """One line broken at spaces into lines of at most `width` columns; all but the first begin with `hang` spaces.

    A word longer than a line stays whole, so that paths can be copied.
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
    """Paragraphs refolded to `width`; indented lines, lists and tables are folded line by line."""
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
    """A table whose `lines` may be too wide: folds the last column if it is text and wide enough, else one paragraph per row."""
    if width is None or max(map(shown, lines)) <= width:
        return list(lines)
    hang = 2 + sum(max(map(shown, column)) + 2 for column in list(zip(headers, *cells, strict=True))[:-1])
    is_text = any(" " in row[-1] for row in cells)
    if is_text and width - hang >= _TEXT:
        return [fold(line, width, hang=hang) for line in lines]
    paragraphs = [fold(f"  {' '.join(headers[:2])}{': ' if headers[2:] else ''}{' · '.join(headers[2:])}", width, hang=4)]
    for row in cells:
        details = [f"{h} {c}" for h, c in zip(headers[2:], row[2:], strict=True) if c not in ("", "-")]
        paragraphs.append(fold(f"  {' '.join(row[:2])}{': ' if details else ''}{' · '.join(details)}", width, hang=4))
    return paragraphs
