"""Deterministic C identifiers from arbitrary text."""

from __future__ import annotations

import re
from collections.abc import Iterable

_C = """
auto break case char const continue default do double else enum extern float for goto if inline int long register restrict return
short signed sizeof static struct switch typedef union unsigned void volatile while
"""
_CPP = """
alignas alignof and and_eq asm bitand bitor bool catch char8_t char16_t char32_t class co_await co_return co_yield compl concept
const_cast consteval constexpr constinit decltype delete dynamic_cast explicit export false friend mutable namespace new noexcept
not not_eq nullptr operator or or_eq private protected public reinterpret_cast requires static_assert static_cast template this
thread_local throw true try typeid typename typeof using virtual wchar_t xor xor_eq
"""
_HEADERS = """
NULL errno int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t ptrdiff_t size_t
memcpy memmove memset
"""
"""Names of the headers that generated code includes.  A member called like the type of another one is an error in C++."""
_OTHERS = "main in out linux unix"
"""The entry point; parameters of the interface; macros of compilers for hosts in GNU mode."""
_RESERVED = frozenset(f"{_C} {_CPP} {_HEADERS} {_OTHERS}".split())
_RUNTIME = "aot"


def c_identifier(text: str, *, default: str = "x") -> str:
    """`text` as a lower-case C identifier that is not a C++ keyword either; `default` if nothing is left of it."""
    name = re.sub(r"[^0-9a-zA-Z]+", "_", text).strip("_").lower()
    if not name:
        name = default
    if name[0].isdigit():
        name = f"{default}_{name}"
    return f"{name}_" if name in _RESERVED else name


def is_keyword(name: str) -> bool:
    """Whether C, C++ or the headers that generated code includes have the name already."""
    return name in _RESERVED


def model_identifier(text: str) -> str:
    """The prefix of a model's C symbols.  `aot` and what begins with `aot_` are the runtime's: `aot_x` becomes `model_aot_x`."""
    name = c_identifier(text, default="model")
    if len(name) > MAX_NAME - len("model_"):
        name = name[: MAX_NAME - len("model_")].rstrip("_")
    return f"model_{name}" if name.split("_")[0] == _RUNTIME else name


MAX_NAME = 128
"""Characters of a name: it becomes part of file names, which hold 255."""
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


def name_fault(text: str, *, symbol: bool) -> str:
    """What is wrong with the name of a board, a region, a pool or a model; "" where nothing is.  The one rule for all of them.

    Names reach C, linker scripts, Makefiles, CMake and shells, so they hold ASCII letters, digits and _, and begin with a letter.
    One that is no part of a C symbol (`symbol` is false: a board's) may begin with a digit and hold - . + as well.
    """
    if len(text) > MAX_NAME:
        return f"is longer than {MAX_NAME} characters"
    if (_WORD if symbol else _LABEL).fullmatch(text):
        return ""
    return "must be ASCII letters, digits and _, a letter first" if symbol else "must be ASCII letters, digits and _ - . +"


SIGNIFICANT = 63
"""Characters that tell identifiers apart: C99 5.2.4.1 promises so many for internal ones, and compilers for Cortex-M keep all."""
_LEFT_OUT = "_etc_"
_SHORTEST, _FIRST = 12, 4
"""Characters that a shortened name has at least, however little room there is, and of these the beginning."""


def shortened(name: str, room: int) -> str:
    """`name` in `room` characters (never less than 12): whole words of its beginning and of its end where it is longer.

    `strided_slice_sigmoid_strided_slice_tanh_multiply_add` in 40: `strided_slice_etc_tanh_multiply_add`.
    """
    room = max(room, _SHORTEST)
    if len(name) <= room:
        return name
    words, room = name.split("_"), room - len(_LEFT_OUT)
    last = min(len(words[-1]), room - _FIRST)
    end = "_".join(_fitting(words[::-1], max(last, room // 2))[::-1])
    return "_".join(_fitting(words, room - len(end))) + _LEFT_OUT + end


def _fitting(words: list[str], room: int) -> list[str]:
    """As many words as fit, joined, and of the first one at least a part."""
    found = [words[0][:room]]
    for word in words[1:]:
        if len("_".join([*found, word])) > room:
            break
        found.append(word)
    return found


class NameSupply:
    """Hands out identifiers, each once: the second `acc` becomes `acc_1`.  Those of `used` are taken."""

    def __init__(self, used: Iterable[str] = ()) -> None:
        self._used = set(used)
        self._next: dict[str, int] = {}  # the numbers below it are taken and stay so; a base has thousands in a long network

    def fresh(self, base: str) -> str:
        number = self._next.get(base, 0)
        while (name := f"{base}_{number}" if number else base) in self._used:
            number += 1
        self._next[base] = number + 1
        self._used.add(name)
        return name

    def first(self, names: Iterable[str]) -> str:
        """The first of some names that is not taken; it is now."""
        name = next(name for name in names if name not in self._used)
        self._used.add(name)
        return name
