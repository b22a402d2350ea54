"""Keras networks of the width and size that firmware has, to measure kernels with (`scripts/per_mac.py`).  Needs Keras.

They are not committed: `make.py --set full_size --kinds int8 -o FOLDER` writes them.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import layers as kl
from keras import ops

from tests.converter.registry import full_size
from tests.converter.vision import classes, conv, depthwise, excite, image

Tensor = Any


def mbconv(
    x: Tensor, filters: int, *, expand: int = 4, kernel: int = 3, stride: int = 1, activation: str = "silu", gate: str = ""
) -> Tensor:
    """Expansion, depthwise, squeeze and excitation (with a `gate`), projection; a sum where shapes agree."""
    y = conv(x, expand * x.shape[-1], 1, activation=activation)
    y = depthwise(y, kernel, strides=stride, activation=activation)
    y = conv(excite(y, ratio=4, gate=gate) if gate else y, filters, 1, activation=None)
    return kl.Add()([x, y]) if stride == 1 and x.shape[-1] == filters else y


def staged(activation: str, gate: str) -> Tensor:
    """A mobile network of 64x64 pixels, five inverted residuals."""
    x = i = image(64)
    x = conv(x, 16, strides=2, activation=activation)
    for filters, kernel, stride in ((16, 3, 1), (24, 3, 2), (24, 3, 1), (40, 5, 2), (40, 5, 1)):
        x = mbconv(x, filters, kernel=kernel, stride=stride, activation=activation, gate=gate)
    return i, classes(conv(x, 96, 1, activation=activation), 10)


@full_size
def mbconv_silu() -> Tensor:
    return staged("silu", "sigmoid")


@full_size
def se_hard_swish() -> Tensor:
    return staged("hard_swish", "hard_sigmoid")


@full_size
def mobilenet_v3() -> Tensor:
    """Small, at a quarter of its width."""
    x = i = image(96)
    x = conv(kl.Rescaling(1 / 127.5, -1)(x), 8, strides=2, activation="hard_swish")
    x = mbconv(x, 8, expand=2, stride=2, activation="relu", gate="hard_sigmoid")
    x = mbconv(x, 16, stride=2, activation="relu")
    x = mbconv(x, 16, activation="relu")
    for filters, stride in ((24, 2), (24, 1), (32, 1)):
        x = mbconv(x, filters, kernel=5, stride=stride, activation="hard_swish", gate="hard_sigmoid")
    x = kl.GlobalAveragePooling2D(keepdims=True)(conv(x, 144, 1, activation="hard_swish"))
    return i, kl.Flatten()(kl.Conv2D(10, 1)(kl.Conv2D(128, 1, activation="hard_swish")(x)))


def attended(x: Tensor) -> Tensor:
    """Convolutional block attention: a gate for each channel, then one for each pixel."""
    channels = x.shape[-1]
    hidden, back = kl.Dense(channels // 4, activation="relu"), kl.Dense(channels)
    pooled = [kl.GlobalAveragePooling2D(keepdims=True)(x), kl.GlobalMaxPooling2D(keepdims=True)(x)]
    x = kl.Multiply()([x, kl.Activation("sigmoid")(kl.Add()([back(hidden(p)) for p in pooled]))])
    planes = kl.Concatenate()([ops.mean(x, axis=-1, keepdims=True), ops.max(x, axis=-1, keepdims=True)])
    return kl.Multiply()([x, kl.Conv2D(1, 7, padding="same", activation="sigmoid")(planes)])


@full_size
def cbam() -> Tensor:
    x = i = image(48)
    for filters in (16, 32, 64):
        x = attended(conv(conv(x, filters, strides=2), filters))
    return i, classes(x, 10)


@full_size
def vae() -> Tensor:
    i, noise = image(32, 1), keras.Input((16,))
    x = i
    for filters in (16, 32):
        x = kl.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(x)
    x = kl.Flatten()(x)
    mean, spread = kl.Dense(16)(x), kl.Dense(16)(x)
    x = kl.Reshape((8, 8, 16))(kl.Dense(1024, activation="relu")(mean + ops.exp(0.5 * spread) * noise))
    for filters in (32, 16):
        x = kl.Conv2DTranspose(filters, 3, strides=2, padding="same", activation="relu")(x)
    return [i, noise], [kl.Conv2D(1, 3, padding="same", activation="sigmoid")(x), mean, spread]


@full_size
def centernet() -> Tensor:
    """Objects as points: maps of where, how large, how far from the pixel."""
    x = i = image(64)
    x = conv(x, 16, strides=2)
    for filters, stride in ((24, 2), (24, 1), (48, 2)):
        x = mbconv(x, filters, stride=stride, activation="relu6")
    x = kl.Conv2DTranspose(24, 4, strides=2, padding="same", activation="relu")(x)
    heads = [kl.Conv2D(n, 1, activation=a)(conv(x, 24)) for n, a in ((3, "sigmoid"), (2, None), (2, None))]
    peaks = kl.MaxPooling2D(3, strides=1, padding="same")(heads[0])
    return i, [heads[0], peaks, *heads[1:]]


@full_size
def unet_transposed() -> Tensor:
    x = i = image(48)
    a = conv(conv(x, 8), 8)
    b = conv(conv(kl.MaxPooling2D()(a), 16), 16)
    c = conv(conv(kl.MaxPooling2D()(b), 32), 32)
    for y, filters in ((b, 16), (a, 8)):
        up = kl.Conv2DTranspose(filters, 3, strides=2, padding="same", activation="relu")(c)
        c = conv(kl.Concatenate()([up, y]), filters)
    return i, kl.Conv2D(1, 1, activation="sigmoid")(c)


@full_size
def convolutional_autoencoder() -> Tensor:
    x = i = image(48, 1)
    for filters in (16, 24, 32):
        x = kl.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(x)
    for filters in (24, 16):
        x = kl.Conv2DTranspose(filters, 3, strides=2, padding="same", activation="relu")(x)
    return i, kl.Conv2DTranspose(1, 3, strides=2, padding="same", activation="sigmoid")(x)


def keywords(layer: type, **options: Any) -> Tensor:
    """Twenty-five steps of twenty features; unrolled, as the converter writes cells that it doesn't fuse."""
    i = keras.Input((25, 20))
    return i, kl.Dense(12, activation="softmax")(layer(48, unroll=True, **options)(i))


@full_size
def gru_unrolled() -> Tensor:
    return keywords(kl.GRU)


@full_size
def lstm_unrolled() -> Tensor:
    return keywords(kl.LSTM)
