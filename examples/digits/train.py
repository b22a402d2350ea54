"""Train the digits classifier, quantise it to int8 and write all files of this folder.

Run from a checkout of the repository, in its root: `python -m examples.digits.train` (needs scikit-learn for the
images and ai-edge-litert to measure the int8 accuracy: `pip install '.[examples,test]'`).  It takes well under a minute.

The network is trained in plain numpy: forward and backward passes are written out below, nothing is hidden in a
framework.  The .tflite writer is the one of the project's tests (aot/testing).
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aot.testing import Quant, reference_sets
from aot.testing.net import Net, conv2d, depthwise, windows
from tests.models.golden import npz_bytes

FOLDER = Path(__file__).parent
SEED = 7
EPOCHS = 30
BATCH = 32
LEARNING_RATE = 4e-3
TEST_IMAGES = 397
COMMITTED_IMAGES = 100
FILTERS, CHANNELS, CLASSES = 8, 24, 10
PEAK = 255
"""Brightest pixel: images are 8-bit grey, white ink on black, as in the .png files."""

Params = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Digits:
    """Images (n, 8, 8, 1), uint8 0..255, and their labels 0..9."""

    x: np.ndarray
    y: np.ndarray


def load() -> tuple[Digits, Digits]:
    """The handwritten digits that ship with scikit-learn (1797 images, 17 grey levels): training and test part."""
    from sklearn.datasets import load_digits

    data = load_digits()
    x = np.rint(data.images * (PEAK / 16)).astype(np.uint8)[..., np.newaxis]
    order = np.random.default_rng(SEED).permutation(len(x))
    test, train = order[:TEST_IMAGES], order[TEST_IMAGES:]
    return Digits(x[train], data.target[train]), Digits(x[test], data.target[test])


def initial(rng: np.random.Generator) -> Params:
    """He initialisation: conv 3x3, depthwise 3x3, conv 1x1, dense."""

    def normal(*shape: int, depth: int) -> np.ndarray:
        return np.asarray(rng.standard_normal(shape) * np.sqrt(2 / depth))

    return {
        "conv": normal(FILTERS, 3, 3, 1, depth=9),
        "conv_bias": np.zeros(FILTERS),
        "depthwise": normal(1, 3, 3, FILTERS, depth=9),
        "depthwise_bias": np.zeros(FILTERS),
        "pointwise": normal(CHANNELS, 1, 1, FILTERS, depth=FILTERS),
        "pointwise_bias": np.zeros(CHANNELS),
        "dense": normal(CLASSES, 16 * CHANNELS, depth=16 * CHANNELS),
        "dense_bias": np.zeros(CLASSES),
    }


def forward(p: Params, x: np.ndarray) -> dict[str, np.ndarray]:
    """All activations for real-valued images x (n, 8, 8, 1) in 0..1; the logits are ["logits"]."""
    one = {"strides": (1, 1), "padding": "SAME"}
    a = {"x": x}
    a["conv"] = np.maximum(conv2d(x, p["conv"], **one) + p["conv_bias"], 0)  # type: ignore[arg-type]
    a["depthwise"] = np.maximum(depthwise(a["conv"], p["depthwise"], **one) + p["depthwise_bias"], 0)  # type: ignore[arg-type]
    a["pointwise"] = np.maximum(a["depthwise"] @ p["pointwise"][:, 0, 0].T + p["pointwise_bias"], 0)
    a["blocks"] = a["pointwise"].reshape(len(x), 4, 2, 4, 2, CHANNELS)
    a["pool"] = a["blocks"].max(axis=(2, 4))
    a["flat"] = a["pool"].reshape(len(x), -1)
    a["logits"] = a["flat"] @ p["dense"].T + p["dense_bias"]
    return a


def backward(p: Params, a: dict[str, np.ndarray], y: np.ndarray) -> Params:
    """Gradient of the mean cross-entropy with respect to every parameter."""
    g: Params = {}
    e = np.exp(a["logits"] - a["logits"].max(axis=1, keepdims=True))
    d = e / e.sum(axis=1, keepdims=True)
    d[np.arange(len(y)), y] -= 1
    d /= len(y)
    g["dense"], g["dense_bias"] = d.T @ a["flat"], d.sum(axis=0)

    d = (d @ p["dense"]).reshape(a["pool"].shape)[:, :, None, :, None]
    largest = a["blocks"] == a["pool"][:, :, None, :, None]
    d = (d * largest / largest.sum(axis=(2, 4), keepdims=True)).reshape(a["pointwise"].shape)

    d = d * (a["pointwise"] > 0)
    g["pointwise"] = np.tensordot(d, a["depthwise"], ((0, 1, 2), (0, 1, 2)))[:, None, None]
    g["pointwise_bias"] = d.sum(axis=(0, 1, 2))
    d = d @ p["pointwise"][:, 0, 0]

    d = d * (a["depthwise"] > 0)
    patches = windows(a["conv"], (3, 3), strides=(1, 1), padding="SAME")
    g["depthwise"] = np.einsum("nhwcij,nhwc->ijc", patches, d)[None]
    g["depthwise_bias"] = d.sum(axis=(0, 1, 2))
    d = depthwise(d, p["depthwise"][:, ::-1, ::-1], strides=(1, 1), padding="SAME")

    d = d * (a["conv"] > 0)
    patches = windows(a["x"], (3, 3), strides=(1, 1), padding="SAME")
    g["conv"] = np.tensordot(d, patches, ((0, 1, 2), (0, 1, 2))).transpose(0, 2, 3, 1)
    g["conv_bias"] = d.sum(axis=(0, 1, 2))
    return g


def shifted(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each image moved by at most one pixel: the only augmentation."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    offsets = rng.integers(0, 3, (len(x), 2))
    return np.stack([image[i : i + 8, j : j + 8] for image, (i, j) in zip(padded, offsets, strict=True)])


def train(data: Digits) -> Params:
    """Adam with a cosine schedule."""
    rng = np.random.default_rng(SEED)
    p = initial(rng)
    mean, square = {k: np.zeros_like(v) for k, v in p.items()}, {k: np.zeros_like(v) for k, v in p.items()}
    x = data.x / PEAK
    batches = len(x) // BATCH
    steps = EPOCHS * batches
    for step in range(steps):
        if step % batches == 0:
            order = rng.permutation(len(x))
        chosen = order[step % batches * BATCH :][:BATCH]
        gradient = backward(p, forward(p, shifted(x[chosen], rng)), data.y[chosen])
        rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * step / steps))
        for key, g in gradient.items():
            mean[key] += 0.1 * (g - mean[key])
            square[key] += 0.001 * (g * g - square[key])
            corrected = np.sqrt(square[key] / (1 - 0.999 ** (step + 1))) + 1e-8
            p[key] = p[key] - rate * mean[key] / (1 - 0.9 ** (step + 1)) / corrected
    return p


def quantise(p: Params, calibration: np.ndarray) -> bytes:
    """The int8 model; its input takes pixels 0..255 as scale 1, zero point -128 (code = pixel - 128)."""
    net = Net(calibration, input_quant=Quant(1.0, -128))
    x = net.conv2d(net.input, p["conv"] / PEAK, p["conv_bias"], activation="RELU")
    x = net.depthwise(x, p["depthwise"], p["depthwise_bias"], activation="RELU")
    x = net.conv2d(x, p["pointwise"], p["pointwise_bias"], activation="RELU")
    x = net.pool("MAX_POOL_2D", x, kernel=(2, 2), strides=(2, 2))
    x = net.dense(net.flatten(x), p["dense"], p["dense_bias"])
    net.softmax(x)
    return net.build()


def accuracy(model: bytes, data: Digits) -> float:
    """Share of right answers of the int8 model in TensorFlow Lite's reference kernels."""
    sets = [[(image.astype(np.int16) - 128).astype(np.int8)[None]] for image in data.x]
    answers = np.array([outputs[0].argmax() for outputs in reference_sets(model, sets)])
    return float((answers == data.y).mean())


def png(image: np.ndarray) -> bytes:
    """One image (8, 8, 1) as an 8-bit grey .png."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(image[..., 0]).save(stream, "PNG")
    return stream.getvalue()


def main() -> int:
    """Train, quantise, measure, write; 1 if the int8 accuracy is not above 95 %."""
    training, test = load()
    params = train(training)
    model = quantise(params, training.x[:500])
    answers = forward(params, test.x / PEAK)["logits"].argmax(axis=1)
    result = accuracy(model, test)
    print(f"float {(answers == test.y).mean():.1%}, int8 {result:.1%} of {len(test.y)} test images, {len(model)} bytes")
    if result <= 0.95:
        return 1
    (FOLDER / "digits.tflite").write_bytes(model)
    (FOLDER / "labels.txt").write_text("".join(f"{digit}\n" for digit in range(CLASSES)))
    arrays = {"x": test.x[:COMMITTED_IMAGES], "y": test.y[:COMMITTED_IMAGES].astype(np.int64)}
    (FOLDER / "test_images.npz").write_bytes(npz_bytes(arrays))
    for digit in range(CLASSES):
        first = int(np.flatnonzero(test.y == digit)[0])
        (FOLDER / f"digit_{digit}.png").write_bytes(png(test.x[first]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
