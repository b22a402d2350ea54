"""Keras networks on sequences, vectors and words, tiny in width and whole in structure.  Needs Keras; see make.py."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers as kl
from keras import ops

from tests.converter.registry import network

Tensor = Any


def sequence(steps: int = 12, channels: int = 3) -> Tensor:
    return keras.Input((steps, channels))


def words(steps: int = 8) -> Tensor:
    return keras.Input((steps,), dtype="int32")


@network
def tcn() -> Tensor:
    """Causal convolutions with growing dilation, and what goes around them."""
    x = i = sequence()
    for rate in (1, 2, 4):
        y = kl.Conv1D(4, 3, dilation_rate=rate, padding="causal", activation="relu")(x)
        x = kl.Add()([kl.Conv1D(4, 1)(x), y])
    return i, kl.Dense(3)(x[:, -1, :])


@network
def tcn_weight_normalised() -> Tensor:
    x = i = sequence(9, 2)
    for rate in (1, 2):
        y = kl.BatchNormalization()(kl.Conv1D(4, 2, dilation_rate=rate, padding="causal")(x))
        x = kl.Concatenate()([kl.SpatialDropout1D(0.1)(kl.ReLU()(y)), x])
    return i, kl.Dense(2, activation="softmax")(kl.GlobalAveragePooling1D()(x))


@network
def wavenet() -> Tensor:
    x = i = sequence()
    x = kl.Conv1D(4, 2, padding="causal")(x)
    skips = []
    for rate in (1, 2):
        f, g = (kl.Conv1D(4, 2, dilation_rate=rate, padding="causal", activation=a)(x) for a in ("tanh", "sigmoid"))
        z = kl.Multiply()([f, g])
        skips.append(kl.Conv1D(3, 1)(z))
        x = kl.Add()([x, kl.Conv1D(4, 1)(z)])
    return i, kl.Conv1D(5, 1, activation="softmax")(kl.ReLU()(kl.Add()(skips)))


@network
def dilated_1d() -> Tensor:
    x = i = sequence(16, 2)
    x = kl.Conv1D(4, 3, dilation_rate=2, padding="same", activation="relu")(x)
    x = kl.Conv1D(4, 3, dilation_rate=3, padding="valid", activation="relu")(x)
    return i, kl.Dense(3)(kl.Flatten()(x))


@network
def conv_1d() -> Tensor:
    x = i = sequence(16, 2)
    x = kl.MaxPooling1D()(kl.Conv1D(4, 5, strides=2, padding="same", activation="relu")(x))
    x = kl.AveragePooling1D(2, 1, padding="same")(kl.SeparableConv1D(4, 3, activation="relu", padding="same")(x))
    return i, kl.Dense(3, activation="softmax")(kl.GlobalMaxPooling1D()(x))


@network
def depthwise_1d() -> Tensor:
    x = i = sequence()
    x = kl.DepthwiseConv1D(3, padding="same", depth_multiplier=2, activation="relu")(x)
    return i, kl.ZeroPadding1D((1, 2))(kl.Conv1D(3, 1)(x))


@network
def unet_1d() -> Tensor:
    x = i = sequence(8, 2)
    a = kl.Conv1D(4, 3, padding="same", activation="relu")(x)
    b = kl.Conv1D(6, 3, padding="same", activation="relu")(kl.MaxPooling1D()(a))
    up = kl.Concatenate()([kl.UpSampling1D()(b), a])
    return i, kl.Conv1D(1, 1, activation="sigmoid")(up)


@network
def transposed_1d() -> Tensor:
    x = i = sequence(6, 2)
    x = kl.Conv1DTranspose(3, 4, strides=2, padding="same", activation="relu")(x)
    return i, kl.Conv1DTranspose(1, 3, strides=3, padding="valid")(x)


@network
def keyword_spotter() -> Tensor:
    i = sequence(12, 6)
    x = kl.Reshape((12, 6, 1))(i)
    x = kl.ReLU()(kl.BatchNormalization()(kl.Conv2D(4, (6, 4), strides=(2, 2), padding="same")(x)))
    x = kl.ReLU()(kl.BatchNormalization()(kl.DepthwiseConv2D(3, padding="same")(x)))
    x = kl.ReLU()(kl.BatchNormalization()(kl.Conv2D(4, 1)(x)))
    return i, kl.Dense(4, activation="softmax")(kl.Flatten()(kl.AveragePooling2D((6, 3))(x)))


@network
def gru_unrolled() -> Tensor:
    i = sequence(4)
    return i, kl.Dense(2)(kl.GRU(4, unroll=True)(i))


@network
def gru_stacked() -> Tensor:
    i = sequence(4)
    x = kl.GRU(3, unroll=True, return_sequences=True)(i)
    x, state = kl.GRU(3, unroll=True, return_state=True, reset_after=False)(x)
    return i, [kl.Dense(2)(x), state]


@network
def lstm_unrolled() -> Tensor:
    i = sequence(4)
    return i, kl.Dense(2, activation="softmax")(kl.LSTM(4, unroll=True)(i))


@network
def lstm_sequences() -> Tensor:
    i = sequence(4)
    x = kl.TimeDistributed(kl.Dense(3, activation="relu"))(i)
    return i, kl.Dense(2)(kl.LSTM(3, unroll=True, return_sequences=True)(x))


@network
def lstm_bidirectional() -> Tensor:
    i = sequence(3)
    return i, kl.Dense(2)(kl.Bidirectional(kl.LSTM(3, unroll=True))(i))


@network
def rnn_unrolled() -> Tensor:
    i = sequence(5)
    return i, kl.Dense(2)(kl.SimpleRNN(4, unroll=True, go_backwards=True)(i))


@network
def recurrent_with_state() -> Tensor:
    """The state goes in and out, as streaming models have it."""
    i, state = sequence(1, 3), keras.Input((4,))
    x, new = kl.GRU(4, unroll=True, return_state=True)(i, initial_state=state)
    return [i, state], [kl.Dense(2)(x), new]


@network
def dense() -> Tensor:
    x = i = keras.Input((10,))
    for units in (12, 6, 12):
        x = kl.ReLU()(kl.BatchNormalization()(kl.Dense(units)(x)))
    return i, kl.Dense(10)(x)


@network
def dense_of_sequences() -> Tensor:
    x = i = sequence(6, 4)
    x = kl.Dense(5, activation="relu")(x)
    return i, kl.Dense(3, activation="sigmoid")(x)


@network
def dense_of_images() -> Tensor:
    x = i = keras.Input((4, 3, 5))
    return i, kl.Dense(3)(kl.Dense(6, activation="relu", use_bias=False)(x))


@network
def einsum_dense() -> Tensor:
    x = i = sequence(6, 4)
    x = kl.EinsumDense("abc,cde->abde", output_shape=(None, 2, 3), bias_axes="de")(x)
    return i, kl.EinsumDense("abde,def->abf", output_shape=(None, 4))(x)


@network
def layer_normalization() -> Tensor:
    x = i = sequence(5, 6)
    x = kl.LayerNormalization()(kl.Dense(6)(x))
    return i, kl.LayerNormalization(axis=[1, 2], center=False)(x)


@network
def rms_normalization() -> Tensor:
    x = i = sequence(5, 6)
    x = kl.Dense(4, activation="silu")(kl.RMSNormalization()(x))
    return i, kl.UnitNormalization()(x)


@network
def gelu_exact_and_tanh() -> Tensor:
    x = i = sequence(5, 6)
    x = ops.gelu(kl.Dense(4)(x), approximate=True)
    return i, ops.gelu(kl.Dense(4)(x), approximate=False)


def block(x: Tensor, *, activation: str = "gelu", causal: bool = False, first: bool = True) -> Tensor:
    """A transformer block, normalised before (`first`) or after each part."""
    y = kl.LayerNormalization()(x) if first else x
    x = kl.Add()([x, kl.MultiHeadAttention(2, 3)(y, y, use_causal_mask=causal)])
    y = x = x if first else kl.LayerNormalization()(x)
    y = kl.LayerNormalization()(y) if first else y
    y = kl.Dense(x.shape[-1])(kl.Dense(8, activation=activation)(y))
    x = kl.Add()([x, y])
    return x if first else kl.LayerNormalization()(x)


@network
def transformer() -> Tensor:
    x = i = sequence(6, 4)
    return i, kl.Dense(3)(kl.GlobalAveragePooling1D()(block(x)))


@network
def transformer_after() -> Tensor:
    x = i = sequence(6, 4)
    return i, kl.Dense(3, activation="softmax")(kl.Flatten()(block(x, activation="relu", first=False)))


@network
def transformer_causal() -> Tensor:
    x = i = sequence(5, 4)
    return i, kl.Dense(3)(block(x, causal=True))


@network
def transformer_of_words() -> Tensor:
    i = words(6)
    positions = kl.Embedding(6, 4)(ops.arange(6))
    return i, kl.Dense(9)(block(kl.Embedding(9, 4)(i) + positions))


@network
def cross_attention() -> Tensor:
    query, memory = sequence(4, 4), sequence(6, 4)
    x = kl.Add()([query, kl.MultiHeadAttention(2, 2)(query, memory)])
    return [query, memory], kl.Dense(2)(kl.LayerNormalization()(x))


@network
def grouped_query_attention() -> Tensor:
    x = i = sequence(5, 4)
    return i, kl.GroupQueryAttention(2, 4, 2)(x, x)


@network
def attention() -> Tensor:
    query, value = sequence(4, 4), sequence(5, 4)
    return [query, value], [kl.Attention(use_scale=True)([query, value]), kl.AdditiveAttention()([query, value])]


@network
def attention_pooling() -> Tensor:
    x = i = sequence(6, 4)
    weights = kl.Softmax(axis=1)(kl.Dense(1)(kl.Dense(3, activation="tanh")(x)))
    return i, kl.Dense(2)(ops.sum(x * weights, axis=1))


@network
def similarity() -> Tensor:
    a, b = sequence(4, 5), sequence(3, 5)
    return [a, b], [kl.Dot(axes=2)([a, b]), kl.Dot(axes=2, normalize=True)([a, b])]


@network
def text_convolution() -> Tensor:
    i = words()
    x = kl.Embedding(20, 4)(i)
    parts = [kl.GlobalMaxPooling1D()(kl.Conv1D(3, n, activation="relu")(x)) for n in (2, 3)]
    return i, kl.Dense(2, activation="softmax")(kl.Concatenate()(parts))


@network
def bag_of_words() -> Tensor:
    i = words()
    return i, kl.Dense(2)(kl.GlobalAveragePooling1D()(kl.Embedding(20, 6)(i)))


@network
def words_and_numbers() -> Tensor:
    """Categories by embedding and by one-hot, numbers normalised: a table's row."""
    kind, colour, numbers = keras.Input((1,), dtype="int32"), keras.Input((), dtype="int32"), keras.Input((4,))
    parts = [
        kl.Flatten()(kl.Embedding(6, 2)(kind)),
        ops.one_hot(colour, 5),
        kl.Normalization(mean=np.arange(4.0), variance=np.arange(1.0, 5.0))(numbers),
    ]
    return [kind, colour, numbers], kl.Dense(1)(kl.Dense(6, activation="relu")(kl.Concatenate()(parts)))


@network
def gathered() -> Tensor:
    """Indices that go through arithmetic before they are used."""
    i, which = sequence(6, 3), keras.Input((2,), dtype="int32")
    x = kl.Dense(4)(i)
    table = kl.Embedding(7, 3)(ops.minimum(ops.maximum(which + 1, 0), 6))
    return [i, which], [ops.take(x, [0, 3, 5], axis=1), kl.Dense(2)(table)]


@network
def squeeze_excitation_1d() -> Tensor:
    x = i = sequence(8, 4)
    x = kl.Conv1D(6, 3, padding="same", activation="swish")(x)
    s = kl.Dense(6, activation="sigmoid")(kl.Dense(3, activation="relu")(kl.GlobalAveragePooling1D()(x)))
    return i, kl.GlobalMaxPooling1D()(x * ops.expand_dims(s, 1))


@network
def sliced() -> Tensor:
    x = i = sequence(9, 4)
    x = kl.Dense(6)(x)
    a, b, c = ops.split(x, 3, axis=1)
    parts = [a, ops.flip(b, axis=1), ops.maximum(c, 0.1), x[:, ::3, :], x[:, -3:, ::-1]]
    return i, [kl.Concatenate()(parts), ops.stack([a, b], axis=1), ops.squeeze(x[:, :1, :], 1)]


@network
def framed() -> Tensor:
    """Overlapping windows of a signal, a projection of each: a small front end."""
    i = keras.Input((20,))
    x = ops.stack([i[:, n : n + 8] for n in range(0, 13, 4)], axis=1)
    x = ops.log(1 + ops.square(kl.Dense(5, use_bias=False)(x)))
    return i, kl.Dense(3)(kl.Flatten()(x))


@network
def chosen_by_condition() -> Tensor:
    x = i = sequence(5, 4)
    x = kl.Dense(4)(x)
    return i, [ops.where(x > 0, x, 0.5 * x), ops.cast(x > 0.1, "float32"), ops.clip(x, -0.5, 0.7)]


@network
def best_of_all() -> Tensor:
    x = i = keras.Input((8,))
    values, places = ops.top_k(kl.Dense(6)(x), 3)
    return i, [values, places]


@network
def residual_dense() -> Tensor:
    x = i = keras.Input((6,))
    for _ in range(2):
        x = kl.LayerNormalization()(x + kl.Dense(6)(kl.Dense(9, activation="softplus")(x)))
    return i, kl.Dense(2, activation="softmax")(x)


@network
def repeated() -> Tensor:
    x = i = keras.Input((4,))
    x = kl.RepeatVector(5)(kl.Dense(3, activation="relu")(x))
    return i, kl.TimeDistributed(kl.Dense(2))(kl.Concatenate()([x, ops.tile(i[:, None, :], (1, 5, 1))]))


@network
def images_in_time() -> Tensor:
    i = keras.Input((3, 6, 6, 1))
    x = kl.TimeDistributed(kl.Conv2D(3, 3, strides=2, activation="relu"))(i)
    x = kl.TimeDistributed(kl.GlobalAveragePooling2D())(x)
    return i, kl.Dense(2)(kl.GRU(3, unroll=True)(x))


@network
def autoencoder_dense() -> Tensor:
    x = i = keras.Input((16,))
    for units in (8, 3, 8):
        x = kl.Dense(units, activation="relu")(x)
    x = kl.Dense(16)(x)
    return i, [x, ops.mean(ops.square(x - i), axis=-1)]


@network
def batch_in_the_graph() -> Tensor:
    """Shapes that the graph computes from its batch."""
    x = i = sequence(6, 4)

    def grown(t: Tensor) -> Tensor:
        batch = tf.shape(t)[0]
        t = tf.concat([tf.zeros([batch, 1, 4]), t, tf.fill([batch, 1, 4], 0.5)], 1)
        token = tf.broadcast_to(tf.reshape(tf.range(4.0), (1, 1, 4)), tf.stack([batch, 2, 4]))
        return tf.reshape(tf.concat([t, token], 1), [batch, 5, 2, 4])

    return i, kl.Dense(3)(kl.Lambda(grown)(x))
