"""Makes everything in this folder anew: sounds, front end, both networks, what is tested with, and prints the accuracies."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import numpy as np

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.runtime.module import HostModel, load
from examples.wakeword.frontend import frontend
from examples.wakeword.networks import real, recurrent_model, smooth_model, spotter_model
from examples.wakeword.sounds import STEP, WORDS, stream, unheard
from examples.wakeword.training import (
    CELLS,
    Array,
    lstm_step,
    spotter,
    train_lstm,
    train_spotter,
    windows,
)

FOLDER = Path(__file__).parent
TRAINING, WORDS_EACH = 8, 50
"""Streams to learn from, and the words in each."""


def host(model: bytes) -> HostModel:
    """A model compiled for this machine, with the rounding of TFLM, whose operators the front end uses."""
    return load(compile_model(model, target="host", options=Options(oracle="tflm")).artifact)


def run(model: HostModel, steps: Array) -> Array:
    """The outputs of a stream [steps, ...], from the beginning of the state on."""
    model.reset()
    return np.concatenate([model.run([s[None]])[0] for s in steps])


def features_of(audio: Array, model: HostModel) -> Array:
    """int8 [steps, 1, bands]."""
    return run(model, audio.reshape(-1, STEP))


def _lstm_logits(p: dict[str, Array], features: Array) -> Array:
    h = c = np.zeros((1, CELLS))
    found = []
    for x in features:
        h, c, _ = lstm_step(p, x[None], h, c)
        found.append(h @ p["w2"].T + p["b2"])
    return np.concatenate(found)


def _npz(path: Path, **arrays: Array) -> None:
    """An archive whose bytes depend on its arrays alone."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.save(content, array)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0)), content.getvalue(), zipfile.ZIP_DEFLATED)


def main() -> int:
    """Make, train, quantise, measure, write; 1 if a model is right in less than 90 % of the steps."""
    front = frontend()
    ears = host(front)
    streams = [stream(WORDS_EACH, seed) for seed in range(TRAINING)]
    features = [real(features_of(audio, ears)).reshape(-1, 24) for audio, _ in streams]
    answers = [y for _, y in streams]
    dense, lstm = train_spotter(features, answers), train_lstm(features, answers)
    hidden, logits = spotter(dense, np.concatenate([windows(f) for f in features]))
    models = {
        "spotter": spotter_model(dense, hidden, logits),
        "recurrent": recurrent_model(lstm, np.concatenate([_lstm_logits(lstm, f) for f in features[:2]])),
    }
    audio, y = unheard()
    x = features_of(audio, ears)
    worst = 1.0
    for name, model in models.items():
        right = float((run(host(model), x).argmax(axis=1) == y).mean())
        worst = min(worst, right)
        print(f"{name}: {right:.1%} of {len(y)} steps, {len(model)} bytes")
    if worst < 0.9:
        return 1
    for name, model in {"frontend": front, **models, "smooth": smooth_model(len(WORDS))}.items():
        (FOLDER / f"{name}.tflite").write_bytes(model)
    (FOLDER / "labels.txt").write_text("".join(f"{w}\n" for w in WORDS))
    _npz(FOLDER / "features.npz", x=x, y=y)
    return 0


if __name__ == "__main__":
    sys.exit(main())
