"""Mutations of texts and bytes, the same ones for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

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
