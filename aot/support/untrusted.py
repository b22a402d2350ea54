"""Parsers for untrusted JSON and TOML, which raise only ValueError and limit the nesting."""

from __future__ import annotations

import json
import re
from typing import Any

MOST_DEPTH = 64
"""Maximum nesting of lists and objects: far more than our files need, but safe for recursive functions."""

_LONG_KEY = re.compile(rb"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){%d}""" % MOST_DEPTH)
"""`a.b.c` is a nested table, too, and tomllib needs quadratic time for it."""


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; ValueError with the reason if it is not valid."""
    try:
        return _shallow(json.loads(text))
    except RecursionError:
        raise _too_deep() from None


def parse_toml(data: bytes) -> dict[str, Any]:
    """The table of a TOML file; ValueError with the reason if it is not valid."""
    import tomllib  # most compilations read no such file

    if _LONG_KEY.search(data) is not None:
        raise _too_deep()
    try:
        table: dict[str, Any] = _shallow(tomllib.loads(data.decode("utf-8")))
    except RecursionError:
        raise _too_deep() from None
    return table


def is_text(value: Any) -> bool:
    """Whether `value` is a string that can be encoded: JSON escapes may contain lone surrogates."""
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)


def _shallow(value: Any) -> Any:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MOST_DEPTH):
        if not level:
            return value
        parts = (part for whole in level for part in (whole.values() if isinstance(whole, dict) else whole))
        level = [part for part in parts if isinstance(part, dict | list)]
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"it is nested more than {MOST_DEPTH} deep")
