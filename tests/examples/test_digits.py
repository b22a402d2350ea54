"""The digits example: the committed model is accurate, its files agree, and the hand-written gradient is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aot.testing import input_details, reference_sets
from examples.digits import train

FOLDER = Path(train.__file__).parent


def _images() -> tuple[np.ndarray, np.ndarray]:
    with np.load(FOLDER / "test_images.npz") as archive:
        return archive["x"], archive["y"]


def test_committed_model_reads_the_committed_images() -> None:
    x, y = _images()
    model = (FOLDER / "digits.tflite").read_bytes()
    assert input_details(model) == [((1, 8, 8, 1), np.dtype(np.int8))]
    codes = (x.astype(np.int16) - 128).astype(np.int8)
    answers = [outputs[0].argmax() for outputs in reference_sets(model, [[image[None]] for image in codes])]
    assert len(y) == 100
    assert (np.array(answers) == y).mean() > 0.95


def test_every_class_is_among_the_images_and_has_a_label() -> None:
    _, y = _images()
    assert set(y) == set(range(10))
    assert (FOLDER / "labels.txt").read_text().split() == [str(d) for d in range(10)]


@pytest.mark.parametrize("digit", range(10))
def test_pictures_are_read_as_their_digit(digit: int) -> None:
    image_module = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    pixels = np.asarray(image_module.open(FOLDER / f"digit_{digit}.png"))
    assert pixels.shape == (8, 8)
    assert pixels.dtype == np.uint8
    codes = (pixels.astype(np.int16) - 128).astype(np.int8)[None, ..., None]
    model = (FOLDER / "digits.tflite").read_bytes()
    assert reference_sets(model, [[codes]])[0][0].argmax() == digit


@pytest.mark.slow
def test_test_images_are_not_among_the_training_images() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    training, test = train.load()
    x, y = _images()
    np.testing.assert_array_equal(x, test.x[: len(x)])
    np.testing.assert_array_equal(y, test.y[: len(y)])
    assert len(training.x) + len(test.x) == 1797


def _loss(p: train.Params, x: np.ndarray, y: np.ndarray) -> float:
    logits = train.forward(p, x)["logits"]
    logits = logits - logits.max(axis=1, keepdims=True)
    log_probability = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return float(-log_probability[np.arange(len(y)), y].mean())


@pytest.mark.parametrize("name", list(train.initial(np.random.default_rng(0))))
def test_gradient_equals_finite_difference(name: str) -> None:
    rng = np.random.default_rng(3)
    # away from zero biases: there a dead neuron sits exactly on the kink of its ReLU
    p = {k: v + 0.1 * rng.standard_normal(v.shape) for k, v in train.initial(rng).items()}
    x, y = rng.random((4, 8, 8, 1)), rng.integers(0, 10, 4)
    gradient = train.backward(p, train.forward(p, x), y)[name]
    direction = rng.standard_normal(gradient.shape)
    step = 1e-6
    ahead = _loss({**p, name: p[name] + step * direction}, x, y)
    behind = _loss({**p, name: p[name] - step * direction}, x, y)
    assert (ahead - behind) / (2 * step) == pytest.approx(float((gradient * direction).sum()), rel=1e-4, abs=1e-7)


@pytest.mark.slow
def test_training_again_gives_an_accurate_model() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    training, test = train.load()
    model = train.quantise(train.train(training), training.x[:500])
    assert train.accuracy(model, test) > 0.95
