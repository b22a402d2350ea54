"""Writes audio for `aot run`: the twelve seconds that no network has learned from, or recordings.

python -m examples.wakeword.audio OUT.npz [RECORDINGS.npz]

The recordings are arrays of int16, 16,000 samples a second; they come one after the other.  OUT.npz has `x`, the steps of 20 ms,
and for our own sounds `y`, the right answers; OUT.wav has the sound alone.
"""

from __future__ import annotations

import sys
import wave
from pathlib import Path

import numpy as np

from examples.wakeword.sounds import RATE, STEP, Array, unheard


def recorded(path: Path) -> Array:
    """All recordings of an archive, cut to whole steps."""
    with np.load(path) as archive:
        sounds = np.concatenate([archive[name].astype(np.int16) for name in archive.files])
    return sounds[: len(sounds) // STEP * STEP]


def write_audio(path: Path, recordings: Path | None = None) -> None:
    """The file at `path`, .npz or .wav."""
    samples, answers = unheard() if recordings is None else (recorded(recordings), None)
    if path.suffix == ".wav":
        with wave.open(str(path), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes(samples.astype("<i2").tobytes())
    else:
        np.savez_compressed(path, x=samples.reshape(-1, 1, STEP), **({} if answers is None else {"y": answers}))


if __name__ == "__main__":
    write_audio(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
