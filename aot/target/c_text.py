"""Small pieces of C text: comments, literals, wrapped argument lists."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

LINE = 110
"""Longest line of generated C that we wrap for, in columns."""


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
    """`head` + arguments + `tail`, broken between arguments where the line would be too long."""
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
