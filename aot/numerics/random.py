"""Counter-based generators of random bits in numpy: Philox 4x32 with ten rounds, Threefry 2x32 with twenty.

Both encrypt a counter with a key.  Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from __future__ import annotations

import numpy as np

from aot.ir.op import Array

PHILOX_FACTORS = (0xD2511F53, 0xCD9E8D57)
PHILOX_STEPS = (0x9E3779B9, 0xBB67AE85)
"""Increments of the two halves of the key per round: the golden ratio and sqrt(3) - 1, as fractions of 2^32."""
PHILOX_ROUNDS = 10

THREEFRY_PARITY = 0x1BD11BDA
THREEFRY_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
THREEFRY_GROUPS = 5

WORDS = {"philox": 4, "threefry": 2}
"""Words per counter, and per block of random bits."""

_MASK = 0xFFFFFFFF


def philox(counters: Array, key: Array) -> Array:
    """uint32 [n, 4] counters and a key [2] -> uint32 [n, 4]."""
    c = [counters[:, i].astype(np.uint64) for i in range(4)]
    k = [int(key[0]), int(key[1])]
    for _ in range(PHILOX_ROUNDS):
        p, q = (c[2 * i] * np.uint64(f) for i, f in enumerate(PHILOX_FACTORS))
        low, high = np.uint64(_MASK), np.uint64(32)
        c = [(q >> high) ^ c[1] ^ np.uint64(k[0]), q & low, (p >> high) ^ c[3] ^ np.uint64(k[1]), p & low]
        k = [(x + step) & _MASK for x, step in zip(k, PHILOX_STEPS, strict=True)]
    return np.stack(c, axis=1).astype(np.uint32)


def threefry(counters: Array, key: Array) -> Array:
    """uint32 [n, 2] counters and a key [2] -> uint32 [n, 2]."""
    k = [np.uint32(key[0]), np.uint32(key[1])]
    k.append(np.uint32(int(k[0]) ^ int(k[1]) ^ THREEFRY_PARITY))
    with np.errstate(over="ignore"):
        a, b = counters[:, 0] + k[0], counters[:, 1] + k[1]
        for group in range(THREEFRY_GROUPS):
            for turn in THREEFRY_ROTATIONS[group % 2]:
                a = a + b
                b = ((b << np.uint32(turn)) | (b >> np.uint32(32 - turn))) ^ a
            a = a + k[(group + 1) % 3]
            b = b + k[(group + 2) % 3] + np.uint32(group + 1)
    return np.stack([a, b], axis=1).astype(np.uint32)


def advanced(counter: Array, steps: int, words: int) -> Array:
    """A counter after `steps` blocks; its first `words` words are one number, lowest word first."""
    value = sum(int(w) << 32 * i for i, w in enumerate(counter[:words])) + steps
    low = [value >> 32 * i & _MASK for i in range(words)]
    return np.array([*low, *counter[words:]], np.uint32)


def random_bits(algorithm: str, counter: Array, key: Array, count: int, words: int) -> Array:
    """The first `count` words of the blocks from `counter` on."""
    blocks = -(-count // WORDS[algorithm])
    counters = np.stack([advanced(counter, i, words) for i in range(blocks)])
    return (philox if algorithm == "philox" else threefry)(counters, key).reshape(-1)[:count]
