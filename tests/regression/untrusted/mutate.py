"""Mutations of texts, bytes and values, the same ones for the same seed."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator
from typing import Any

_WORDS = (
    b"", b"0", b"-1", b"1e999", b"nan", b"-Infinity", b"9" * 5000, b"null", b"true", b'"', b"\\ud800", b"\xff", b"\0", b"\n",
    b"[" * 3000, b"(" * 3000, b"{", b"}", b"]", b")", b",", b"../", b"/", b"%", b"'", b"=", b"a.b.c", b"\r", b"//", b"2147483648",
)  # fmt: skip
"""What is put in: numbers without end, nesting, halves of characters, ends of strings and of files."""


def mutants(data: bytes, *, count: int, seed: int) -> Iterator[bytes]:
    """`count` mutations: one to four changes each, or a truncation."""
    rng = random.Random(seed)
    for _ in range(count):
        changed = bytearray(data)
        if rng.random() < 0.1:
            yield bytes(changed[: rng.randrange(len(changed) + 1)])
            continue
        for _ in range(rng.choice((1, 1, 2, 4))):
            _change(changed, rng)
        yield bytes(changed)


def _change(data: bytearray, rng: random.Random) -> None:
    at, size = rng.randrange(len(data) + 1), rng.choice((0, 1, 1, 2, 8, 40))
    match rng.randrange(6):
        case 0 | 1:
            data[at : at + size] = rng.choice(_WORDS)
        case 2:
            data[at : at + 1] = bytes([rng.randrange(256)])
        case 3:
            del data[at : at + size]
        case 4:
            to = rng.randrange(len(data) + 1)
            data[to:to] = data[at : at + size]
        case _:
            for i in range(at, min(at + 1, len(data))):
                data[i] ^= 1 << rng.randrange(8)


_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 1.5, math.nan, math.inf, 10**30, "", "x", "\n::error::", "\ud800", [], [1], {}, {"a": 1}, [[]],
    "9" * 5000, "../../x",
)  # fmt: skip


def values(data: Any, *, count: int, seed: int) -> Iterator[Any]:
    """`count` copies of a JSON value in which one or two parts are missing, or something else."""
    rng = random.Random(seed)
    for _ in range(count):
        changed = [copy.deepcopy(data)]
        for _ in range(rng.choice((1, 1, 2))):
            places = list(_places(changed))
            whole, key = rng.choice(places)
            if rng.random() < 0.2 and whole is not changed:
                del whole[key]
            else:
                whole[key] = copy.deepcopy(rng.choice(_VALUES))
        yield changed[0]


def _places(whole: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(whole) if isinstance(whole, dict) else range(len(whole)) if isinstance(whole, list) else ()
    for key in keys:
        yield whole, key
        yield from _places(whole[key])
