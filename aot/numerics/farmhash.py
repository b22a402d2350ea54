"""FarmHash's Fingerprint64 of byte strings of one length, written once for numpy and for the loop nests of kernels.

`Words` says how 64-bit words are made and combined: `ARRAYS` for uint64 arrays with one element per string; kernels have their
own.
Source: farmhash.cc of Google's FarmHash (`farmhashna::Hash64`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass

K0, K1, K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
SEED = 81
BLOCK = 64
_MASK = (1 << 64) - 1

Word = Any
"""A 64-bit word, or an object that acts like one: + and * wrap; >>, <<, | and & accept a word."""
Fetch = Callable[[Any], Word]
"""Loads the eight bytes at a position as a little-endian word."""


@dataclass(frozen=True, slots=True)
class Words:
    """`constant(n)` makes a word, `xor` is exclusive or, `name(word)` is the same word, computed once."""

    constant: Callable[[int], Word]
    xor: Callable[[Word, Word], Word]
    name: Callable[[Word], Word]


ARRAYS = Words(lambda n: np.array(n & _MASK, np.uint64), np.bitwise_xor, lambda word: word)


def _rotated(w: Words, x: Word, bits: int) -> Word:
    """Rotate to the right."""
    x = w.name(x)
    return (x >> w.constant(bits)) | (x << w.constant(64 - bits))


def _mixed(w: Words, x: Word) -> Word:
    x = w.name(x)
    return w.xor(x, x >> w.constant(47))


def _joined(w: Words, u: Word, v: Word, mul: Word) -> Word:
    """Combine two words into one (HashLen16)."""
    v = w.name(v)
    a = _mixed(w, w.xor(u, v) * mul)
    return w.name(_mixed(w, w.xor(v, a) * mul) * mul)


def _up_to_16(w: Words, fetch: Fetch, fetch32: Fetch, length: int) -> Word:
    mul = w.constant(K2 + length * 2)
    if length >= 8:
        a, b = w.name(fetch(0) + w.constant(K2)), w.name(fetch(length - 8))
        return _joined(w, _rotated(w, b, 37) * mul + a, (_rotated(w, a, 25) + b) * mul, mul)
    return _joined(w, w.constant(length) + (fetch32(0) << w.constant(3)), fetch32(length - 4), mul)


def _halves(w: Words, fetch: Fetch, length: int) -> tuple[Word, Word, Word]:
    """For strings of 17 to 64 bytes: the two words that are combined first, and the first of their inputs."""
    mul = w.constant(K2 + length * 2)
    first = w.constant(K1 if length <= 32 else K2)
    a, b = w.name(fetch(0) * first), w.name(fetch(8))
    c, d = w.name(fetch(length - 8) * mul), fetch(length - 16) * w.constant(K2)
    u = w.name(_rotated(w, a + b, 43) + _rotated(w, c, 30) + d)
    return u, a + _rotated(w, b + w.constant(K2), 18) + c, a


def _up_to_64(w: Words, fetch: Fetch, length: int) -> Word:
    mul = w.constant(K2 + length * 2)
    y, v, a = _halves(w, fetch, length)
    z = _joined(w, y, v, mul)
    if length <= 32:
        return z
    e, f = w.name(fetch(16) * mul), w.name(fetch(24))
    g, h = w.name((y + fetch(length - 32)) * mul), (z + fetch(length - 24)) * mul
    return _joined(w, _rotated(w, e + f, 43) + _rotated(w, g, 30) + h, e + _rotated(w, f + a, 18) + g, mul)


def _weak(w: Words, fetch: Fetch, at: Any, a: Word, b: Word) -> tuple[Word, Word]:
    """Combine the 32 bytes from `at` on and two words into two words."""
    last = w.name(fetch(at + 24))
    a = w.name(a + fetch(at))
    b = _rotated(w, b + a + last, 21)
    whole = w.name(a + fetch(at + 8) + fetch(at + 16))
    return w.name(whole + last), w.name(b + _rotated(w, whole, 44) + a)


State = tuple[Word, Word, Word, Word, Word, Word, Word]
"""x, y, z, v, v', w, w' of farmhash.cc."""


def start(w: Words, fetch: Fetch) -> State:
    """The state before the first block of a string of more than 64 bytes."""
    y = SEED * K1 + 113 & _MASK
    z = y * K2 + 113 & _MASK
    z = (z ^ z >> 47) * K2 & _MASK
    nothing = w.constant(0)
    return w.constant(SEED * K2) + fetch(0), w.constant(y), w.constant(z), nothing, nothing, nothing, nothing


def block(w: Words, fetch: Fetch, at: Any, state: State, *, mul: Word | None = None) -> State:
    """The state after the 64 bytes from `at` on; `mul` is given for the last 64 bytes, which are mixed differently."""
    x, y, z, v0, v1, w0, w1 = state
    factor, nine = (w.constant(K1), w.constant(1)) if mul is None else (mul, w.constant(9))
    x = _rotated(w, x + y + v0 + fetch(at + 8), 37) * factor
    y = _rotated(w, y + v1 + fetch(at + 48), 42) * factor
    x = w.name(w.xor(x, w1 * nine))
    y = w.name(y + v0 * nine + fetch(at + 40))
    z = w.name(_rotated(w, z + w0, 33) * factor)
    v0, v1 = _weak(w, fetch, at, v1 * factor, x + w0)
    w0, w1 = _weak(w, fetch, at + 32, z + w1, y + fetch(at + 16))
    return z, y, x, v0, v1, w0, w1


def finish(w: Words, fetch: Fetch, length: int, state: State) -> Word:
    """The hash, from the state after all whole blocks before the last byte."""
    x, y, z, v0, v1, w0, w1 = state
    mul = w.name(w.constant(K1) + ((z & w.constant(0xFF)) << w.constant(1)))
    w0 = w0 + w.constant((length - 1) & 63)
    v0 = w.name(v0 + w0)
    w0 = w.name(w0 + v0)
    x, y, z, v0, v1, w0, w1 = block(w, fetch, length - BLOCK, (x, y, z, v0, v1, w0, w1), mul=mul)
    first = _joined(w, v0, w0, mul) + _mixed(w, y) * w.constant(K0) + z
    return _joined(w, first, _joined(w, v1, w1, mul) + x, mul)


def blocks_of(length: int) -> int:
    """How many blocks of a string of more than 64 bytes are mixed before the last 64 bytes."""
    return (length - 1) // BLOCK


def short_hash(w: Words, fetch: Fetch, fetch32: Fetch, length: int) -> Word:
    """The hash of strings of 4 to 64 bytes."""
    return _up_to_16(w, fetch, fetch32, length) if length <= 16 else _up_to_64(w, fetch, length)


def fingerprint64(strings: Array) -> Array:
    """uint8 [n, length], length from 4 on -> uint64 [n]."""
    length = strings.shape[1]

    def fetched(at: int, size: int) -> Array:
        part = np.zeros((len(strings), 8), np.uint8)
        part[:, :size] = strings[:, at : at + size]
        return part.view("<u8").reshape(-1).astype(np.uint64)

    def fetch(at: int) -> Array:
        return fetched(at, 8)

    with np.errstate(over="ignore"):
        if length <= BLOCK:
            return np.asarray(short_hash(ARRAYS, fetch, lambda at: fetched(at, 4), length))
        state = start(ARRAYS, fetch)
        for i in range(blocks_of(length)):
            state = block(ARRAYS, fetch, i * BLOCK, state)
        return np.asarray(finish(ARRAYS, fetch, length, state))
