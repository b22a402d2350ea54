"""The sounds of the example, made by formulas: three whistled words, and what else a microphone hears.

A word is a tone with overtones that rises, falls, or warbles, in another speed, pitch and loudness each time.  Nothing is
recorded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

RATE = 16000
"""Samples a second."""
STEP = 320
"""Samples of a step: 20 ms."""
WORDS = ("background", "rise", "fall", "warble")
AFTER = 8
"""Steps from the end of a word on in which its name is the right answer."""
WARM_UP = 10
"""Steps of noise at the beginning of a stream, in which the front end gets to know it."""


def _word(kind: str, rng: np.random.Generator) -> Array:
    """A tone of 0.3 to 0.45 s, at most 1."""
    length = int(RATE * rng.uniform(0.3, 0.45))
    t = np.arange(length) / length
    low = 500.0 * rng.uniform(0.85, 1.2)
    high = low * rng.uniform(2.6, 3.4)
    if kind == "warble":
        pitch = (low + high) / 2 * (1 + 0.25 * np.sign(np.sin(2 * np.pi * rng.uniform(4.5, 6.5) * t)))
    else:
        pitch = low + (high - low) * (t if kind == "rise" else 1 - t)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    tone = np.sin(phase) + 0.4 * np.sin(2 * phase) + 0.2 * np.sin(3 * phase)
    edge = np.minimum(1, np.minimum(t, 1 - t) * 12)
    return np.asarray(tone * edge / 1.6)


def _other(length: int, rng: np.random.Generator) -> Array:
    """A hum, clicks, a hiss, or nothing, at most 1."""
    t = np.arange(length) / RATE
    kind = rng.integers(4)
    if kind == 0:
        return np.asarray(np.sin(2 * np.pi * rng.uniform(100, 3000) * t))
    if kind == 1:
        return np.asarray((rng.random(length) < 0.002) * rng.uniform(-1, 1, length))
    if kind == 2:
        return np.asarray(np.convolve(rng.standard_normal(length), np.ones(8) / 8, "same").clip(-1, 1))
    return np.zeros(length)


def stream(count: int, seed: int) -> tuple[Array, Array]:
    """Samples int16 [steps * STEP] of `count` words between other sounds, and the right answer of each step, int64 [steps]."""
    rng = np.random.default_rng(seed)
    parts, ends, total = [np.zeros(WARM_UP * STEP)], [], WARM_UP * STEP
    for _ in range(count):
        pause = _other(int(RATE * rng.uniform(0.35, 0.8)), rng) * rng.uniform(0, 0.2)
        number = int(rng.integers(1, len(WORDS)))
        word = _word(WORDS[number], rng) * rng.uniform(0.15, 0.8)
        parts += [pause, word]
        total += len(pause) + len(word)
        ends.append((total, number))
    parts.append(np.zeros(AFTER * STEP))
    whole = np.concatenate(parts)
    whole = whole + rng.standard_normal(len(whole)) * rng.uniform(0.001, 0.01)
    steps = len(whole) // STEP
    answers = np.zeros(steps, np.int64)
    for end, number in ends:
        first = -(-end // STEP)
        answers[first : first + AFTER] = number
    return np.rint(whole[: steps * STEP].clip(-1, 1) * 30000).astype(np.int16), answers


def unheard() -> tuple[Array, Array]:
    """What no network has learned from: twelve words in as many seconds."""
    return stream(12, seed=99)
