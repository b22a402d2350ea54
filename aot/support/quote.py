"""Quoting of arbitrary text for other languages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping

from aot.support.text import escaped

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
