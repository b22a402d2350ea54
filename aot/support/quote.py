"""Text that becomes part of another language: as a value, whatever it holds."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping

from aot.support.text import escaped

_PLAIN_CMAKE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


def shell(text: object) -> str:
    """One word of a POSIX shell."""
    return shlex.quote(str(text))


def make(text: object) -> str:
    """One word for the shell, in a Makefile: dollars doubled, and no comment begins."""
    return shell(text).replace("$", "$$").replace("#", "\\#")


def cmake(text: object) -> str:
    """One argument of a CMake command."""
    word = str(text)
    if _PLAIN_CMAKE.fullmatch(word):
        return word
    return '"' + re.sub(r'([\\"$;])', r"\\\1", word) + '"'


def comment(text: object) -> str:
    """A piece of a one-line comment, in C, Make, CMake, a shell or a linker script: it neither ends the comment nor goes on."""
    line = escaped(str(text)).replace("*/", "* /").replace("/*", "/ *").replace("??/", "?? /")
    return f"{line} " if line.endswith("\\") else line


FILTERS: Mapping[str, Callable[[object], str]] = {"sh": shell, "mk": make, "cmake": cmake, "comment": comment}
"""What templates use: {{ title | sh }}."""
