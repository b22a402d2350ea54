"""Training in plain numpy: a network over a window of features, and an LSTM through time.  Real numbers only; Adam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Params = dict[str, Array]
HIDDEN, CELLS, CLASSES = 32, 32, 4
WINDOW = 25
"""Steps that the spotter looks at."""
UNROLLED = 50
"""Steps that errors of the LSTM are traced back."""


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def windows(features: Array) -> Array:
    """[steps, bands] -> [steps, WINDOW * bands]: those of each step and the ones before it, zeros before the first."""
    padded = np.concatenate([np.zeros((WINDOW - 1, features.shape[1])), features])
    return np.stack([padded[i : i + WINDOW].ravel() for i in range(len(features))])


def spotter_start(bands: int, rng: np.random.Generator) -> Params:
    """First values of the spotter's parameters."""
    inputs = WINDOW * bands
    return {
        "w1": rng.standard_normal((HIDDEN, inputs)) * np.sqrt(2 / inputs),
        "b1": np.zeros(HIDDEN),
        "w2": rng.standard_normal((CLASSES, HIDDEN)) * np.sqrt(2 / HIDDEN),
        "b2": np.zeros(CLASSES),
    }


def spotter(p: Params, x: Array) -> tuple[Array, Array]:
    """(hidden values, logits) of windows [n, inputs]."""
    hidden = np.maximum(x @ p["w1"].T + p["b1"], 0)
    return hidden, hidden @ p["w2"].T + p["b2"]


def spotter_gradient(p: Params, x: Array, y: Array) -> Params:
    """Of the mean cross entropy."""
    hidden, logits = spotter(p, x)
    error = softmax(logits)
    error[np.arange(len(y)), y] -= 1
    error /= len(y)
    back = (error @ p["w2"]) * (hidden > 0)
    return {"w1": back.T @ x, "b1": back.sum(axis=0), "w2": error.T @ hidden, "b2": error.sum(axis=0)}


def lstm_start(bands: int, rng: np.random.Generator) -> Params:
    """First values of the LSTM's parameters; gates in TFLite's order: input, forget, cell, output."""
    bias = np.zeros((4, CELLS))
    bias[1] = 1
    return {
        "w": rng.standard_normal((4, CELLS, bands)) * np.sqrt(1 / bands),
        "r": rng.standard_normal((4, CELLS, CELLS)) * np.sqrt(1 / CELLS),
        "b": bias,
        "w2": rng.standard_normal((CLASSES, CELLS)) * np.sqrt(1 / CELLS),
        "b2": np.zeros(CLASSES),
    }


def lstm_step(p: Params, x: Array, h: Array, c: Array) -> tuple[Array, Array, list[Array]]:
    """(h, c, [i, f, g, o]) after a step [n, bands]."""
    i, f, g, o = (x @ p["w"][k].T + h @ p["r"][k].T + p["b"][k] for k in range(4))
    i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
    c = f * c + i * g
    return o * np.tanh(c), c, [i, f, g, o]


def lstm_gradient(p: Params, x: Array, y: Array, h: Array, c: Array) -> tuple[Params, Array, Array]:
    """Of the mean cross entropy over [time, n, bands] with answers [time, n], and the states after it."""
    steps, kept = len(x), []
    for t in range(steps):
        before = (h, c)
        h, c, gates = lstm_step(p, x[t], h, c)
        kept.append((*before, h, c, gates))
    grad = {k: np.zeros_like(v) for k, v in p.items()}
    dh, dc = np.zeros_like(h), np.zeros_like(c)
    for t in reversed(range(steps)):
        h0, c0, h1, c1, (i, f, g, o) = kept[t]
        error = softmax(h1 @ p["w2"].T + p["b2"])
        error[np.arange(len(error)), y[t]] -= 1
        error /= y.size
        grad["w2"] += error.T @ h1
        grad["b2"] += error.sum(axis=0)
        dh = dh + error @ p["w2"]
        tanh = np.tanh(c1)
        dc = dc + dh * o * (1 - tanh**2)
        back = [dc * g * i * (1 - i), dc * c0 * f * (1 - f), dc * i * (1 - g**2), dh * tanh * o * (1 - o)]
        dh = np.zeros_like(dh)
        for k, d in enumerate(back):
            grad["w"][k] += d.T @ x[t]
            grad["r"][k] += d.T @ h0
            grad["b"][k] += d.sum(axis=0)
            dh += d @ p["r"][k]
        dc = dc * f
    return grad, h, c


def adam(p: Params, gradients: Callable[[Params, int], Params], steps: int, rate: float) -> Params:
    """Parameters after `steps` of Adam; `gradients(p, step)` are those of a batch, cut at a norm of 1."""
    first, second = ({k: np.zeros_like(v) for k, v in p.items()} for _ in range(2))
    p = dict(p)
    for step in range(1, steps + 1):
        grad = gradients(p, step)
        norm = np.sqrt(sum(float((g**2).sum()) for g in grad.values()))
        for k, g in grad.items():
            g = g / max(1.0, norm)
            first[k] = 0.9 * first[k] + 0.1 * g
            second[k] = 0.999 * second[k] + 0.001 * g**2
            now = rate * (1 + np.cos(np.pi * step / steps)) / 2
            p[k] = p[k] - now * (first[k] / (1 - 0.9**step)) / (np.sqrt(second[k] / (1 - 0.999**step)) + 1e-8)
    return p


def train_spotter(features: list[Array], answers: list[Array], *, steps: int = 1200, batch: int = 128) -> Params:
    """From streams of features [steps, bands] with an answer for each step; half of a batch are words."""
    rng = np.random.default_rng(1)
    x, y = np.concatenate([windows(f) for f in features]), np.concatenate(answers)
    words, others = np.flatnonzero(y), np.flatnonzero(y == 0)

    def gradients(p: Params, _step: int) -> Params:
        chosen = np.concatenate([rng.choice(words, batch // 2), rng.choice(others, batch // 2)])
        return spotter_gradient(p, x[chosen], y[chosen])

    return adam(spotter_start(features[0].shape[1], rng), gradients, steps, 0.002)


def train_lstm(features: list[Array], answers: list[Array], *, steps: int = 900, batch: int = 32) -> Params:
    """Pieces of the streams of `UNROLLED` steps and more, each from zeros, whose last `UNROLLED` are learned from."""
    rng = np.random.default_rng(2)

    def gradients(p: Params, _step: int) -> Params:
        pieces, wanted = [], []
        for _ in range(batch):
            s = int(rng.integers(len(features)))
            at = int(rng.integers(len(features[s]) - UNROLLED))
            pieces.append(features[s][at : at + UNROLLED])
            wanted.append(answers[s][at : at + UNROLLED])
        zeros = np.zeros((batch, CELLS))
        return lstm_gradient(p, np.stack(pieces, axis=1), np.stack(wanted, axis=1), zeros, zeros)[0]

    return adam(lstm_start(features[0].shape[1], rng), gradients, steps, 0.01)
