"""Small pieces of C text: comments, literals, wrapped argument lists, licence lines."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

LINE = 110
"""Line length at which generated C is wrapped."""

_BETWEEN = re.compile(r", |. (?:[-+*/%&|^?:<>]|&&|\|\||<<|>>|[<>=!]=) ")
"""A place to break a line: after a comma, or before a binary operator; the match starts one column before the space."""


def comment(text: str) -> str:
    """`text` from an untrusted file, safe inside a C comment: plain ASCII, no comment marks, no trigraphs, no line splices."""
    clean = "".join(c if " " <= c <= "~" and c != "\\" else "_" for c in text)
    for mark in ("*/", "/*", "??", "//"):
        while mark in clean:
            clean = clean.replace(mark, f"{mark[0]} {mark[1]}")
    return clean


def float_literal(value: float, dtype: str) -> str:
    """A C constant that is exactly `value` rounded to `dtype`."""
    if math.isnan(value) or math.isinf(value):
        f = "f" if dtype == "float32" else ""
        text = f'__builtin_nan{f}("")' if math.isnan(value) else f"__builtin_inf{f}()"
        return f"-{text}" if value < 0 else text
    text = f"{np.float32(value):.9g}" if dtype == "float32" else repr(float(value))
    if not any(c in text for c in ".e"):
        text += ".0"
    return text + ("f" if dtype == "float32" else "")


def wrap_call(head: str, args: Sequence[str], tail: str, *, indent: str = "    ") -> str:
    """`head` + arguments + `tail`, broken between arguments if the line is too long."""
    lines, line = [], head
    for i, arg in enumerate(args):
        piece = arg + (", " if i + 1 < len(args) else tail)
        if len(line) + len(piece.rstrip()) > LINE and line.strip():
            lines.append(line.rstrip())
            line = indent
        line += piece
    if not args:
        line += tail
    return "\n".join([*lines, line])


def fold_lines(text: str) -> str:
    """C text with long lines broken between operands; comments, directives and string literals are not changed."""
    return "\n".join(part for line in text.split("\n") for part in _fold(line))


def _fold(line: str) -> list[str]:
    indent = len(line) - len(line.lstrip())
    if len(line) <= LINE or line.lstrip().startswith(('"', "#", "/*", "*/")) or "/*" in line:
        return [line]
    lines: list[str] = []
    while len(line) > LINE:
        at = _break(line, indent + (LINE - indent) // 3)
        if at is None:
            break
        lines.append(line[:at].rstrip())
        line = " " * (indent + 4) + line[at:].lstrip()
    return [*lines, line]


def _break(line: str, first: int) -> int | None:
    """Where to break a line, at `first` or later: outside of literals, at the lowest bracket depth, as far right as possible."""
    best: tuple[int, int] | None = None
    depth, quoted = 0, False
    for at, c in enumerate(line[:LINE]):
        if c == '"' and line[at - 1] != "\\":
            quoted = not quoted
        elif quoted:
            continue
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == " " and at >= first and _BETWEEN.match(line, at - 1) and (best is None or depth <= best[0]):
            best = depth, at
    return None if best is None else best[1]


GENERATED = "0BSD"
PARAMETERS = "LicenseRef-model"
"""Licences of generated files: generated code belongs to the user, and 0BSD requires nothing, not even a notice; the model's
numbers are under the model's own licence.  The files of crt, copied or included, keep Apache-2.0."""


def spdx_line(licence: str = GENERATED) -> str:
    """The SPDX comment for the first line of a C file, without a line break."""
    return f"/* SPDX-License-Identifier: {licence} */"
