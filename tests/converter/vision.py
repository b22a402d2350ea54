"""Keras networks on images, tiny in width and whole in structure.  Needs Keras; see make.py."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import layers as kl
from keras import ops

from tests.converter.registry import network

Tensor = Any


def image(size: int = 12, channels: int = 3, *, width: int | None = None) -> Tensor:
    return keras.Input((size, width or size, channels))


def conv(x: Tensor, filters: int, kernel: int = 3, **options: Any) -> Tensor:
    """Convolution, batch normalisation and an activation (default: ReLU)."""
    activation = options.pop("activation", "relu")
    x = kl.Conv2D(filters, kernel, **{"padding": "same", "use_bias": False, **options})(x)
    x = kl.BatchNormalization()(x)
    return kl.Activation(activation)(x) if activation else x


def depthwise(x: Tensor, kernel: int = 3, **options: Any) -> Tensor:
    activation = options.pop("activation", "relu6")
    x = kl.DepthwiseConv2D(kernel, **{"padding": "same", "use_bias": False, **options})(x)
    x = kl.BatchNormalization()(x)
    return kl.Activation(activation)(x) if activation else x


def classes(x: Tensor, count: int = 5) -> Tensor:
    return kl.Dense(count, activation="softmax")(kl.GlobalAveragePooling2D()(x))


def highest(x: Tensor, axis: int) -> Tensor:
    """Where the largest value is; Keras's own argmax looks at the bits of floats, which no converter takes."""
    return kl.Lambda(lambda t: tf.argmax(t, axis, output_type=tf.int32))(x)


def excite(x: Tensor, *, ratio: int = 2, gate: str = "sigmoid") -> Tensor:
    """Squeeze and excitation."""
    channels = x.shape[-1]
    s = kl.GlobalAveragePooling2D(keepdims=True)(x)
    s = kl.Conv2D(max(channels // ratio, 1), 1, activation="relu")(s)
    return kl.Multiply()([x, kl.Conv2D(channels, 1, activation=gate)(s)])


@network
def cnn() -> Tensor:
    x = i = image()
    for filters in (4, 6):
        x = kl.MaxPooling2D()(kl.Conv2D(filters, 3, activation="relu")(x))
    return i, kl.Dense(5, activation="softmax")(kl.Flatten()(x))


@network
def cnn_logits() -> Tensor:
    x = i = image(11, 1)
    x = kl.Conv2D(5, (5, 3), strides=(2, 1), padding="same", activation="relu6")(x)
    x = kl.AveragePooling2D(3, 2, padding="same")(x)
    return i, kl.Dense(4)(kl.Dropout(0.3)(kl.Flatten()(x)))


@network
def lenet() -> Tensor:
    x = i = image(16, 1)
    x = kl.AveragePooling2D(2)(kl.Conv2D(3, 5, activation="tanh")(x))
    x = kl.AveragePooling2D(2)(kl.Conv2D(6, 3, activation="tanh")(x))
    x = kl.Dense(10, activation="sigmoid")(kl.Flatten()(x))
    return i, kl.Dense(4, activation="softmax")(x)


@network
def all_convolutional() -> Tensor:
    x = i = image()
    x = conv(conv(x, 4), 4, strides=2)
    x = kl.Conv2D(5, 1)(conv(x, 6, padding="valid"))
    return i, kl.Softmax()(kl.GlobalAveragePooling2D()(x))


@network
def mobilenet_v1() -> Tensor:
    x = i = image(16)
    x = conv(x, 4, strides=2, activation="relu6")
    for filters, stride in ((6, 1), (8, 2), (8, 1)):
        x = conv(depthwise(x, strides=stride), filters, 1, activation="relu6")
    return i, classes(x)


@network
def mobilenet_v1_padded() -> Tensor:
    """As keras.applications has it: strides with padding of their own, the top as a convolution."""
    x = i = image(16)
    x = conv(kl.ZeroPadding2D(((0, 1), (0, 1)))(x), 4, strides=2, padding="valid", activation="relu6")
    x = depthwise(kl.ZeroPadding2D(((0, 1), (0, 1)))(x), strides=2, padding="valid")
    x = kl.GlobalAveragePooling2D(keepdims=True)(conv(x, 8, 1, activation="relu6"))
    x = kl.Reshape((5,))(kl.Conv2D(5, 1, padding="same")(kl.Dropout(0.1)(x)))
    return i, kl.Activation("softmax")(x)


def inverted_residual(x: Tensor, filters: int, *, stride: int = 1, activation: str = "relu6", gate: str = "") -> Tensor:
    y = conv(x, 2 * x.shape[-1], 1, activation=activation)
    y = depthwise(y, strides=stride, activation=activation)
    y = conv(excite(y, gate=gate) if gate else y, filters, 1, activation=None)
    return kl.Add()([x, y]) if stride == 1 and x.shape[-1] == filters else y


@network
def mobilenet_v2() -> Tensor:
    x = i = image(16)
    x = conv(x, 4, strides=2, activation="relu6")
    for filters, stride in ((4, 1), (6, 2), (6, 1)):
        x = inverted_residual(x, filters, stride=stride)
    return i, classes(conv(x, 12, 1, activation="relu6"))


@network
def mobilenet_v3() -> Tensor:
    x = i = image(16)
    x = conv(kl.Rescaling(1 / 127.5, -1)(x), 4, strides=2, activation="hard_swish")
    x = inverted_residual(x, 4, activation="relu", gate="hard_sigmoid")
    x = inverted_residual(x, 6, stride=2, activation="hard_swish")
    x = inverted_residual(x, 6, activation="hard_swish", gate="hard_sigmoid")
    x = kl.GlobalAveragePooling2D(keepdims=True)(conv(x, 12, 1, activation="hard_swish"))
    return i, kl.Flatten()(kl.Conv2D(5, 1)(kl.Conv2D(8, 1, activation="hard_swish")(x)))


@network
def efficientnet() -> Tensor:
    x = i = image(16)
    x = conv(kl.Normalization(mean=[0.1, 0.2, 0.3], variance=[0.5, 0.6, 0.7])(x), 4, strides=2, activation="silu")
    for filters, stride in ((4, 1), (6, 2)):
        x = inverted_residual(x, filters, stride=stride, activation="silu", gate="sigmoid")
    return i, classes(conv(x, 8, 1, activation="silu"))


@network
def fused_mbconv() -> Tensor:
    x = i = image()
    x = conv(x, 4, strides=2, activation="silu")
    y = conv(conv(x, 8, activation="silu"), 4, 1, activation=None)
    return i, classes(kl.Add()([x, y]))


@network
def squeeze_excitation() -> Tensor:
    x = i = image()
    s = kl.GlobalAveragePooling2D()(conv(x, 6))
    s = kl.Dense(6, activation="sigmoid")(kl.Dense(3, activation="relu")(s))
    x = kl.Multiply()([conv(x, 6), kl.Reshape((1, 1, 6))(s)])
    return i, classes(x)


def basic_block(x: Tensor, filters: int, stride: int = 1) -> Tensor:
    y = conv(conv(x, filters, strides=stride), filters, activation=None)
    if stride != 1 or x.shape[-1] != filters:
        x = conv(x, filters, 1, strides=stride, activation=None)
    return kl.ReLU()(kl.Add()([x, y]))


@network
def resnet() -> Tensor:
    x = i = image()
    x = basic_block(basic_block(conv(x, 4), 4), 6, 2)
    return i, classes(x)


@network
def resnet_v2() -> Tensor:
    """Normalisation and activation before each convolution: nothing to fold them into."""
    x = i = image()
    x = kl.Conv2D(4, 3, strides=2, padding="same")(x)
    for _ in range(2):
        y = kl.ReLU()(kl.BatchNormalization()(x))
        y = kl.Conv2D(4, 3, padding="same")(kl.ReLU()(kl.BatchNormalization()(kl.Conv2D(2, 1)(y))))
        x = kl.Add()([x, y])
    return i, classes(kl.ReLU()(kl.BatchNormalization()(x)))


@network
def resnext() -> Tensor:
    x = i = image(8, 4)
    y = conv(conv(conv(x, 8, 1), 8, groups=4), 4, 1, activation=None)
    return i, classes(kl.ReLU()(kl.Add()([x, y])))


@network
def densenet() -> Tensor:
    x = i = image(8)
    x = conv(x, 4)
    for _ in range(3):
        y = kl.Conv2D(2, 3, padding="same")(kl.ReLU()(kl.BatchNormalization()(x)))
        x = kl.Concatenate()([x, y])
    x = kl.AveragePooling2D(2)(conv(x, 4, 1))
    return i, classes(x)


@network
def inception() -> Tensor:
    x = i = image(8)
    branches = [
        conv(x, 2, 1),
        conv(conv(x, 2, 1), 3, (1, 3)),
        conv(conv(conv(x, 2, 1), 2, (3, 1)), 2, 5),
        conv(kl.MaxPooling2D(3, 1, padding="same")(x), 2, 1),
        conv(kl.AveragePooling2D(3, 1, padding="same")(x), 2, 1),
    ]
    return i, classes(kl.Concatenate()(branches))


@network
def squeezenet() -> Tensor:
    x = i = image()
    x = kl.MaxPooling2D(3, 2)(kl.Conv2D(4, 3, strides=2, activation="relu", padding="same")(x))
    s = kl.Conv2D(2, 1, activation="relu")(x)
    parts = [kl.Conv2D(3, n, padding="same", activation="relu")(s) for n in (1, 3)]
    return i, kl.GlobalAveragePooling2D()(kl.Conv2D(5, 1, activation="relu")(kl.Concatenate()(parts)))


@network
def shufflenet() -> Tensor:
    x = i = image(8, 4)
    y = conv(x, 8, 1, groups=2)
    y = kl.Reshape((8, 8, 2, 4))(y)
    y = kl.Reshape((8, 8, 8))(kl.Permute((1, 2, 4, 3))(y))
    y = conv(depthwise(y, strides=2, activation=None), 4, 1, groups=2)
    return i, classes(kl.Concatenate()([kl.AveragePooling2D(3, 2, padding="same")(x), y]))


@network
def shufflenet_v2() -> Tensor:
    x = i = image(8, 6)
    left, right = ops.split(x, 2, axis=-1)
    right = conv(depthwise(conv(right, 3, 1), activation=None), 3, 1)
    x = kl.Reshape((8, 8, 2, 3))(kl.Concatenate()([left, right]))
    return i, classes(kl.Reshape((8, 8, 6))(ops.transpose(x, (0, 1, 2, 4, 3))))


@network
def xception() -> Tensor:
    x = i = image()
    x = conv(x, 4, strides=2)
    y = kl.BatchNormalization()(kl.SeparableConv2D(6, 3, padding="same", use_bias=False)(x))
    y = kl.MaxPooling2D(3, 2, padding="same")(kl.SeparableConv2D(6, 3, padding="same", depth_multiplier=2)(kl.ReLU()(y)))
    return i, classes(kl.Add()([y, conv(x, 6, 1, strides=2, activation=None)]))


@network
def convnext() -> Tensor:
    x = i = image()
    x = kl.LayerNormalization(epsilon=1e-6)(kl.Conv2D(4, 4, strides=4)(x))
    y = kl.LayerNormalization(epsilon=1e-6)(kl.DepthwiseConv2D(7, padding="same")(x))
    y = kl.Dense(4)(kl.Dense(8, activation="gelu")(y))
    x = kl.Add()([x, y])
    return i, kl.Dense(5)(kl.LayerNormalization(epsilon=1e-6)(kl.GlobalAveragePooling2D()(x)))


@network
def cbam() -> Tensor:
    x = i = image(8)
    x = conv(x, 6)
    hidden, back = kl.Dense(3, activation="relu"), kl.Dense(6)
    pooled = [kl.GlobalAveragePooling2D(keepdims=True)(x), kl.GlobalMaxPooling2D(keepdims=True)(x)]
    x = kl.Multiply()([x, kl.Activation("sigmoid")(kl.Add()([back(hidden(p)) for p in pooled]))])
    planes = kl.Concatenate()([ops.mean(x, axis=-1, keepdims=True), ops.max(x, axis=-1, keepdims=True)])
    x = kl.Multiply()([x, kl.Conv2D(1, 7, padding="same", activation="sigmoid")(planes)])
    return i, classes(x)


@network
def efficient_channel_attention() -> Tensor:
    x = i = image(8)
    x = conv(x, 6)
    s = kl.Reshape((6, 1))(kl.GlobalAveragePooling2D()(x))
    s = kl.Conv1D(1, 3, padding="same", activation="sigmoid")(s)
    return i, classes(kl.Multiply()([x, kl.Reshape((1, 1, 6))(s)]))


def unet(up: Any) -> Tensor:
    x = i = image(8, 2)
    a = conv(x, 4)
    b = conv(kl.MaxPooling2D()(a), 6)
    c = conv(kl.MaxPooling2D()(b), 8)
    b = conv(kl.Concatenate()([up(c, 6), b]), 6)
    a = conv(kl.Concatenate()([up(b, 4), a]), 4)
    return i, kl.Conv2D(1, 1, activation="sigmoid")(a)


@network
def unet_transposed() -> Tensor:
    return unet(lambda x, n: kl.Conv2DTranspose(n, 3, strides=2, padding="same", activation="relu")(x))


@network
def unet_transposed_2x2() -> Tensor:
    return unet(lambda x, n: kl.Conv2DTranspose(n, 2, strides=2, padding="valid")(x))


@network
def unet_nearest() -> Tensor:
    return unet(lambda x, n: conv(kl.UpSampling2D()(x), n))


@network
def unet_bilinear() -> Tensor:
    return unet(lambda x, n: conv(kl.UpSampling2D(interpolation="bilinear")(x), n, 1))


@network
def attention_unet() -> Tensor:
    x = i = image(8, 2)
    a = conv(x, 4)
    b = conv(kl.MaxPooling2D()(a), 6)
    up = kl.Conv2DTranspose(4, 2, strides=2)(b)
    gate = kl.ReLU()(kl.Add()([kl.Conv2D(3, 1)(a), kl.Conv2D(3, 1)(up)]))
    gate = kl.Conv2D(1, 1, activation="sigmoid")(gate)
    return i, kl.Conv2D(2, 1, activation="softmax")(kl.Concatenate()([kl.Multiply()([a, gate]), up]))


@network
def autoencoder() -> Tensor:
    x = i = image(8, 1)
    x = kl.Conv2D(4, 3, strides=2, padding="same", activation="relu")(x)
    x = kl.Conv2D(6, 3, strides=2, padding="same", activation="relu")(x)
    x = kl.Conv2DTranspose(4, 3, strides=2, padding="same", activation="relu")(x)
    return i, kl.Conv2DTranspose(1, 4, strides=2, padding="same", activation="sigmoid")(x)


@network
def variational_autoencoder() -> Tensor:
    i, noise = image(8, 1), keras.Input((3,))
    x = kl.Flatten()(kl.Conv2D(3, 3, strides=2, activation="relu")(i))
    mean, spread = kl.Dense(3)(x), kl.Dense(3)(x)
    z = mean + ops.exp(0.5 * spread) * noise
    x = kl.Reshape((4, 4, 2))(kl.Dense(32, activation="relu")(z))
    return [i, noise], [kl.Conv2DTranspose(1, 3, strides=2, padding="same")(x), mean, spread]


@network
def generator() -> Tensor:
    i = keras.Input((6,))
    x = kl.LeakyReLU()(kl.BatchNormalization()(kl.Dense(32, use_bias=False)(i)))
    x = kl.Conv2DTranspose(4, 5, strides=1, padding="same", use_bias=False)(kl.Reshape((4, 4, 2))(x))
    x = kl.LeakyReLU(0.3)(kl.BatchNormalization()(x))
    return i, kl.Conv2DTranspose(1, 5, strides=2, padding="same", activation="tanh")(x)


@network
def dilated_2d() -> Tensor:
    x = i = image(10)
    x = kl.Conv2D(4, 3, dilation_rate=2, padding="same", activation="relu")(x)
    x = kl.Conv2D(4, 3, dilation_rate=(3, 2), padding="valid", activation="relu")(x)
    return i, classes(kl.DepthwiseConv2D(3, dilation_rate=2, padding="same")(x))


@network
def deeplab() -> Tensor:
    x = i = image(16)
    low = x = conv(x, 4, strides=2)
    x = conv(x, 6, strides=2)
    pooled = conv(kl.GlobalAveragePooling2D(keepdims=True)(x), 3, 1)
    pooled = kl.UpSampling2D(4, interpolation="bilinear")(pooled)
    x = kl.Concatenate()([pooled, conv(x, 3, 1), *(conv(x, 3, dilation_rate=n) for n in (2, 3))])
    x = kl.UpSampling2D(interpolation="bilinear")(conv(x, 4, 1))
    x = kl.Conv2D(3, 1)(conv(kl.Concatenate()([x, conv(low, 2, 1)]), 4))
    return i, highest(kl.UpSampling2D(interpolation="bilinear")(x), -1)


@network
def ssd() -> Tensor:
    x = i = image(16)
    maps = [conv(conv(x, 4, strides=2), 6, strides=2)]
    maps.append(conv(maps[0], 6, strides=2))
    boxes = [kl.Reshape((-1, 4))(kl.Conv2D(8, 3, padding="same")(m)) for m in maps]
    scores = [kl.Reshape((-1, 3))(kl.Conv2D(6, 3, padding="same")(m)) for m in maps]
    return i, [kl.Concatenate(axis=1)(boxes), kl.Activation("sigmoid")(kl.Concatenate(axis=1)(scores))]


@network
def yolo() -> Tensor:
    x = i = image(16)
    x = conv(conv(conv(x, 4, strides=2, activation="leaky_relu"), 6, strides=2, activation="leaky_relu"), 6)
    x = kl.Reshape((4, 4, 2, 7))(kl.Conv2D(14, 1)(x))
    place, size, rest = x[..., :2], x[..., 2:4], x[..., 4:]
    parts = [ops.sigmoid(place), ops.exp(size), ops.sigmoid(rest)]
    return i, kl.Reshape((-1, 7))(kl.Concatenate()(parts))


@network
def feature_pyramid() -> Tensor:
    x = i = image(16)
    a = conv(x, 4, strides=2)
    b = conv(a, 6, strides=2)
    top = kl.Conv2D(4, 1)(b)
    low = kl.Add()([kl.UpSampling2D()(top), kl.Conv2D(4, 1)(a)])
    head = kl.Conv2D(3, 3, padding="same", activation="relu")
    return i, [head(low), head(top)]


@network
def heatmap() -> Tensor:
    """Key points: a map for each, and where it is highest."""
    x = i = image(8)
    x = kl.Conv2D(3, 1)(conv(x, 4))
    flat = kl.Reshape((64, 3))(x)
    return i, [highest(flat, 1), ops.max(flat, axis=1)]


@network
def super_resolution() -> Tensor:
    x = i = image(6, 1)
    x = kl.Conv2D(4, 3, padding="same", activation="relu")(kl.Conv2D(4, 5, padding="same", activation="relu")(x))
    x = kl.Conv2D(9, 3, padding="same")(x)
    return i, kl.Lambda(lambda t: tf.nn.depth_to_space(t, 3))(x)


@network
def space_to_depth() -> Tensor:
    x = i = image(8, 2)
    x = conv(kl.Lambda(lambda t: tf.nn.space_to_depth(t, 2))(x), 4)
    return i, classes(x)


@network
def padding_variants() -> Tensor:
    x = i = image(9, 2, width=7)
    x = kl.ZeroPadding2D(((1, 2), (0, 3)))(x)
    x = kl.Conv2D(3, 3, strides=(2, 3), padding="same", activation="relu")(x)
    x = kl.Cropping2D(((1, 0), (0, 1)))(x)
    x = kl.DepthwiseConv2D((3, 1), depth_multiplier=2, padding="valid")(x)
    return i, kl.MaxPooling2D((2, 1), padding="same")(x)


@network
def mirror_padding() -> Tensor:
    x = i = image(6, 2)
    x = kl.Conv2D(3, 3, activation="relu")(ops.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="reflect"))
    return i, ops.pad(x, ((0, 0), (1, 1), (2, 0), (0, 0)), mode="symmetric")


@network
def group_normalization() -> Tensor:
    x = i = image(8)
    x = kl.ReLU()(kl.GroupNormalization(groups=2)(kl.Conv2D(4, 3, padding="same")(x)))
    return i, classes(kl.GroupNormalization(groups=-1)(kl.Conv2D(4, 3, strides=2)(x)))


@network
def mlp_mixer() -> Tensor:
    x = i = image(8)
    x = kl.Reshape((16, 4))(kl.Conv2D(4, 2, strides=2)(x))
    y = kl.Permute((2, 1))(kl.LayerNormalization()(x))
    y = kl.Permute((2, 1))(kl.Dense(16)(kl.Dense(8, activation="gelu")(y)))
    x = kl.Add()([x, y])
    x = kl.Add()([x, kl.Dense(4)(kl.Dense(8, activation="gelu")(kl.LayerNormalization()(x)))])
    return i, kl.Dense(5)(kl.GlobalAveragePooling1D()(x))


@network
def vision_transformer() -> Tensor:
    x = i = image(8)
    x = kl.Reshape((16, 4))(kl.Conv2D(4, 2, strides=2)(x))
    x = x + kl.Embedding(16, 4)(ops.arange(16))
    y = kl.LayerNormalization()(x)
    x = kl.Add()([x, kl.MultiHeadAttention(2, 2)(y, y)])
    x = kl.Add()([x, kl.Dense(4)(kl.Dense(8, activation="gelu")(kl.LayerNormalization()(x)))])
    return i, kl.Dense(5)(kl.Flatten()(kl.LayerNormalization()(x)))


@network
def siamese() -> Tensor:
    a, b = image(8, 1), image(8, 1)
    shared = [kl.Conv2D(3, 3, activation="relu"), kl.GlobalMaxPooling2D(), kl.Dense(4)]

    def embed(x: Tensor) -> Tensor:
        for layer in shared:
            x = layer(x)
        return x

    return [a, b], kl.Dense(1, activation="sigmoid")(ops.abs(embed(a) - embed(b)))


@network
def image_and_vector() -> Tensor:
    picture, vector = image(8), keras.Input((5,))
    x = kl.Concatenate()([kl.GlobalAveragePooling2D()(conv(picture, 4)), kl.Dense(4, activation="relu")(vector)])
    return [picture, vector], [kl.Dense(3, activation="softmax")(x), kl.Dense(1)(x)]


@network
def activations() -> Tensor:
    x = i = image(6)
    names = ("tanh", "sigmoid", "softplus", "softsign", "exponential", "mish", "hard_sigmoid", "relu6")
    return i, kl.Concatenate()([kl.Conv2D(2, 1, activation=n)(x) for n in names])


@network
def leaky_and_parametric() -> Tensor:
    x = i = image(6)
    x = kl.PReLU(shared_axes=[1, 2], alpha_initializer="glorot_uniform")(kl.Conv2D(4, 3)(x))
    x = kl.LeakyReLU(0.1)(kl.Conv2D(4, 3, padding="same")(x))
    x = kl.PReLU(alpha_initializer="glorot_uniform")(x)
    return i, kl.ReLU(max_value=1.5, negative_slope=0.1, threshold=0.2)(x)


@network
def reductions() -> Tensor:
    x = i = image(6)
    x = kl.Conv2D(4, 3)(x)
    found = [f(x, axis=(1, 2)) for f in (ops.mean, ops.sum, ops.max, ops.min, ops.std, ops.var)]
    return i, [kl.Concatenate()(found), ops.sum(x, axis=-1)]


@network
def resized() -> Tensor:
    x = i = image(7)
    x = kl.Resizing(10, 5)(x)
    x = kl.Resizing(6, 6, interpolation="nearest")(kl.Conv2D(3, 3, padding="same", activation="relu")(x))
    return i, kl.CenterCrop(4, 4)(x)


@network
def arithmetic() -> Tensor:
    a, b = image(5, 2), image(5, 2)
    x, y = kl.Conv2D(3, 1)(a), kl.Conv2D(3, 1)(b)
    found = [kl.Subtract()([x, y]), kl.Multiply()([x, y]), kl.Maximum()([x, y]), kl.Minimum()([x, y]), kl.Average()([x, y])]
    found.append(x / (1.5 + ops.sigmoid(y)))
    found.append(ops.square(x - y) + ops.sqrt(1 + ops.abs(x)))
    return [a, b], kl.Concatenate()(found)
