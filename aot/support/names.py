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
"""Names in the headers that generated code includes.  A member with the name of another member's type is an error in C++."""
_OTHERS = "main in out linux unix"
"""The entry point, parameters of the interface, and macros of host compilers in GNU mode."""
_RESERVED = frozenset(f"{_C} {_CPP} {_HEADERS} {_OTHERS}".split())
_RUNTIME = "aot"


def c_identifier(text: str, *, default: str = "x") -> str:
    """`text` as a lower-case C identifier that is not a C or C++ keyword; `default` if nothing remains."""
    name = re.sub(r"[^0-9a-zA-Z]+", "_", text).strip("_").lower()
    if not name:
        name = default
    if name[0].isdigit():
        name = f"{default}_{name}"
    return f"{name}_" if name in _RESERVED else name


def is_keyword(name: str) -> bool:
    """Whether a name is reserved in C, in C++ or by the headers that generated code includes."""
    return name in _RESERVED


def model_identifier(text: str) -> str:
    """The prefix of a model's C symbols.  `aot` and `aot_...` belong to the runtime: `aot_x` becomes `model_aot_x`."""
    name = c_identifier(text, default="model")
    if len(name) > MAX_NAME - len("model_"):
        name = name[: MAX_NAME - len("model_")].rstrip("_")
    return f"model_{name}" if name.split("_")[0] == _RUNTIME else name


MAX_NAME = 128
"""Maximum length of a name: it becomes part of file names, which may have 255 characters."""
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


def name_fault(text: str, *, symbol: bool) -> str:
    """The problem with the name of a board, a region, a pool or a model; "" if it is valid.

    Names appear in C, linker scripts, Makefiles, CMake and shells, so they must consist of ASCII letters, digits and _, and begin
    with a letter.  A name that is not part of a C symbol (`symbol` is false: a board's) may begin with a digit and contain - . +
    """
    if len(text) > MAX_NAME:
        return f"is longer than {MAX_NAME} characters"
    if (_WORD if symbol else _LABEL).fullmatch(text):
        return ""
    return "must be ASCII letters, digits and _, a letter first" if symbol else "must be ASCII letters, digits and _ - . +"


SIGNIFICANT = 63
"""Significant characters of identifiers: C99 5.2.4.1 guarantees 63 for internal ones; compilers for Cortex-M use all."""
_LEFT_OUT = "_etc_"
_SHORTEST, _FIRST = 12, 4
"""Minimum length of a shortened name, and of its beginning."""


def shortened(name: str, room: int) -> str:
    """`name` shortened to `room` characters (at least 12) by keeping whole words at its beginning and end.

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
    """The first words that fit into `room` when joined; the first word may be cut."""
    fitting = [words[0][:room]]
    for word in words[1:]:
        if len("_".join([*fitting, word])) > room:
            break
        fitting.append(word)
    return fitting


class NameSupply:
    """Hands out unique identifiers: the second `acc` becomes `acc_1`.  Names in `used` are not handed out."""

    def __init__(self, used: Iterable[str] = ()) -> None:
        self._used = set(used)
        self._next: dict[str, int] = {}  # lower numbers are in use; a long network has thousands per base

    def fresh(self, base: str) -> str:
        number = self._next.get(base, 0)
        while (name := f"{base}_{number}" if number else base) in self._used:
            number += 1
        self._next[base] = number + 1
        self._used.add(name)
        return name

    def first(self, names: Iterable[str]) -> str:
        """The first unused name; marks it as used."""
        name = next(name for name in names if name not in self._used)
        self._used.add(name)
        return name
