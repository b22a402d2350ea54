"""The five network shapes of MLPerf Tiny with random weights: same layers and sizes, our own numbers."""

from __future__ import annotations

import numpy as np

from aot.testing.builder import Quant, float32
from aot.testing.net import Layer, Net
from tests.models.catalogue import Case

CALIBRATION_SEED = 20


def _noise(shape: tuple[int, ...], *, count: int, quant: Quant, seed: int) -> np.ndarray:
    """Calibration inputs: half of them noise over the whole range, half smooth, as real values."""
    rng = np.random.default_rng([CALIBRATION_SEED, seed])
    codes = rng.integers(-128, 127, (count, *shape), endpoint=True).astype(np.float64)
    for image in codes[: count // 2]:
        if image.ndim == 3:
            h, w, c = image.shape
            low = rng.integers(-128, 127, (-(-h // 8), -(-w // 8), c), endpoint=True)
            image[:] = np.kron(low, np.ones((8, 8, 1)))[:h, :w]
    return quant.scale * (codes - quant.zero_point)


def _classifier(net: Net, x: Layer, classes: int) -> bytes:
    x = net.flatten(x)
    x = net.random("dense", x, (classes, x.values.shape[1]), spread=1.0)
    net.softmax(x)
    return net.build()


def ds_cnn() -> bytes:
    """Keyword spotting: DS-CNN on 49 frames x 10 coefficients, 12 words."""
    quant = Quant(float32(0.5847), 83)
    net = Net(_noise((49, 10, 1), count=12, quant=quant, seed=1), input_quant=quant, seed=1)
    x = net.random("conv2d", net.input, (64, 10, 4, 1), strides=(2, 2), activation="RELU")
    for _ in range(4):
        x = net.random("depthwise", x, (1, 3, 3, 64), activation="RELU")
        x = net.random("conv2d", x, (64, 1, 1, 64), activation="RELU")
    x = net.pool("AVERAGE_POOL_2D", x, kernel=(25, 5), strides=(25, 5))
    return _classifier(net, x, 12)


def mobilenet(widest: int = 256) -> bytes:
    """Visual wake words: MobileNetV1, width 0.25, on 96 x 96 x 3, two classes; no layer with more channels than `widest`."""
    quant = Quant(float32(1 / 255), -128)
    net = Net(_noise((96, 96, 3), count=6, quant=quant, seed=2), input_quant=quant, seed=2)
    x = net.random("conv2d", net.input, (8, 3, 3, 3), strides=(2, 2), activation="RELU")
    channels = 8
    for stride, filters in (
        *((1, 16), (2, 32), (1, 32), (2, 64), (1, 64), (2, 128)),
        *[(1, 128)] * 5,
        *((2, 256), (1, 256)),
    ):
        filters = min(filters, widest)
        shape = (1, 3, 3, channels)
        x = net.random("depthwise", x, shape, strides=(stride, stride), activation="RELU")
        x = net.random("conv2d", x, (filters, 1, 1, channels), activation="RELU")
        channels = filters
    x = net.pool("AVERAGE_POOL_2D", x, kernel=(3, 3), strides=(3, 3))
    return _classifier(net, x, 2)


def resnet() -> bytes:
    """Image classification: ResNet-8 on 32 x 32 x 3, ten classes."""
    quant = Quant(1.0, -128)
    net = Net(_noise((32, 32, 3), count=8, quant=quant, seed=3), input_quant=quant, seed=3)
    x = net.random("conv2d", net.input, (16, 3, 3, 3), activation="RELU")
    channels = 16
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        strides = (stride, stride)
        y = net.random("conv2d", x, (filters, 3, 3, channels), strides=strides, activation="RELU")
        y = net.random("conv2d", y, (filters, 3, 3, filters))
        if stride > 1:
            x = net.random("conv2d", x, (filters, 1, 1, channels), strides=strides)
        x = net.add(x, y, activation="RELU")
        channels = filters
    x = net.pool("AVERAGE_POOL_2D", x, kernel=(8, 8), strides=(8, 8))
    return _classifier(net, x, 10)


def autoencoder() -> bytes:
    """Anomaly detection: ten dense layers, 640 numbers in and out, eight in the middle."""
    quant = Quant(float32(0.391), 89)
    net = Net(_noise((640,), count=64, quant=quant, seed=4), input_quant=quant, seed=4)
    x, depth = net.input, 640
    for units in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        x = net.random("dense", x, (units, depth), activation="RELU")
        depth = units
    net.random("dense", x, (640, depth), spread=8.0)
    return net.build()


def streaming_wakeword() -> bytes:
    """Streaming wake word: depthwise separable convolutions along time, 30 x 1 x 40, three classes."""
    quant = Quant(float32(0.0037), -128)
    net = Net(_noise((30, 1, 40), count=24, quant=quant, seed=5), input_quant=quant, seed=5)
    x, channels = net.input, 40
    for kernel, filters in ((3, 128), (5, 128), (10, 128), (15, 32)):
        x = net.random("depthwise", x, (1, kernel, 1, channels), padding="VALID")
        x = net.random("conv2d", x, (filters, 1, 1, channels), activation="RELU")
        channels = filters
    return _classifier(net, x, 3)


def networks() -> list[Case]:
    """All network shapes."""
    return [
        Case("net_kws_dscnn", "MLPerf Tiny keyword spotting, DS-CNN", ds_cnn),
        Case("net_vww_mobilenet", "MLPerf Tiny visual wake words, MobileNetV1 0.25", mobilenet, sets=2),
        Case("net_ic_resnet", "MLPerf Tiny image classification, ResNet-8", resnet),
        Case("net_ad_autoencoder", "MLPerf Tiny anomaly detection, dense autoencoder", autoencoder),
        Case("net_sww", "MLPerf Tiny streaming wake word", streaming_wakeword),
    ]
