"""Recurrent Keras networks: unrolled, as a loop, fused, stateful.  Needs Keras 3 and tf_keras; see make.py.

Keras 3 gives loops (WHILE); the older tf_keras marks its LSTM, which the converter then writes as one fused operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tf_keras

from tests.converter.registry import over_time

Tensor = Any
STEPS, CHANNELS, UNITS = 5, 3, 4


def sequence(steps: int = STEPS, channels: int = CHANNELS, *, of: Any = keras) -> Tensor:
    """A batch of one: the converter needs it known for the states of loops."""
    return of.Input((steps, channels), batch_size=1)


def classified(form: str, make: Callable[..., Any], *, of: Any = keras, stateful: bool = False) -> None:
    """Register a network of two recurrent layers of one kind and a classifier."""

    def build() -> Tensor:
        i = sequence(of=of)
        options = {"unroll": form.startswith("unrolled")} | ({"stateful": True} if stateful else {})
        x = make(UNITS, return_sequences=True, **options)(i)
        x = make(UNITS - 1, **options)(x)
        return of.Model(i, of.layers.Dense(2, activation="softmax")(x))

    build.__name__ = form
    over_time(build)


def bidirectional(of: Any, cell: Any) -> Callable[..., Any]:
    def make(units: int, **options: Any) -> Any:
        return of.layers.Bidirectional(cell(units, **options))

    return make


for _name in ("LSTM", "GRU", "SimpleRNN"):
    _short = _name.replace("Simple", "").lower()
    _new, _old = getattr(keras.layers, _name), getattr(tf_keras.layers, _name)
    classified(f"unrolled_{_short}", _new)
    classified(f"unrolled_stateful_{_short}", _new, stateful=True)
    classified(f"unrolled_bidirectional_{_short}", bidirectional(keras, _new))
    classified(f"while_{_short}", _new)
    classified(f"while_stateful_{_short}", _new, stateful=True)
    classified(f"while_bidirectional_{_short}", bidirectional(keras, _new))
    classified(f"fused_{_short}", _old, of=tf_keras)  # only the LSTM becomes one operator; the others are loops of another form
    classified(f"fused_bidirectional_{_short}", bidirectional(tf_keras, _old), of=tf_keras)
    classified(f"fused_stateful_{_short}", _old, of=tf_keras, stateful=True)


@over_time
def while_gru_reset_before() -> Tensor:
    i = sequence()
    return keras.Model(i, keras.layers.GRU(UNITS, reset_after=False, activation="relu", use_bias=False)(i))


@over_time
def while_lstm_backwards() -> Tensor:
    i = sequence()
    x = keras.layers.LSTM(UNITS, go_backwards=True, return_sequences=True, recurrent_activation="hard_sigmoid")(i)
    return keras.Model(i, x)


@over_time
def fused_lstm_time_major() -> Tensor:
    i = tf_keras.Input((1, CHANNELS), batch_size=STEPS)
    return tf_keras.Model(i, tf_keras.layers.LSTM(UNITS, time_major=True, return_sequences=True)(i))


@over_time
def fused_lstm_backwards() -> Tensor:
    i = sequence(of=tf_keras)
    return tf_keras.Model(i, tf_keras.layers.LSTM(UNITS, go_backwards=True)(i))


@over_time
def while_lstm_states_outside() -> Tensor:
    """The streaming form without variables: states are inputs and outputs."""
    i, h, c = sequence(1), keras.Input((UNITS,), batch_size=1), keras.Input((UNITS,), batch_size=1)
    x, new_h, new_c = keras.layers.LSTM(UNITS, return_state=True)(i, initial_state=[h, c])
    return keras.Model([i, h, c], [keras.layers.Dense(2)(x), new_h, new_c])


@over_time
def while_masked() -> Tensor:
    """Steps of zeros are left out."""
    i = sequence()
    return keras.Model(i, keras.layers.GRU(UNITS)(keras.layers.Masking()(i)))


@over_time
def words_lstm() -> Tensor:
    i = keras.Input((6,), batch_size=1, dtype="int32")
    x = keras.layers.Embedding(9, 4)(i)
    return keras.Model(i, keras.layers.Dense(1, activation="sigmoid")(keras.layers.LSTM(UNITS)(x)))


@over_time
def convolution_and_gru() -> Tensor:
    """A keyword spotter: convolution over the spectrogram, then time."""
    i = keras.Input((10, 6, 1), batch_size=1)
    x = keras.layers.Conv2D(4, 3, strides=2, padding="same", activation="relu")(i)
    x = keras.layers.GRU(UNITS)(keras.layers.Reshape((5, 12))(x))
    return keras.Model(i, keras.layers.Dense(3, activation="softmax")(x))


@over_time
def convolution_and_attention_of_lstm() -> Tensor:
    """att_rnn: bidirectional LSTM, the middle step asks for the others."""
    layers, i = keras.layers, sequence(6, 4)
    x = layers.Conv1D(4, 3, padding="same", activation="relu")(i)
    x = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(x)
    query = layers.Dense(6)(x[:, 3, :])
    scores = layers.Softmax()(layers.Dot(axes=(1, 2))([query, x]))
    return keras.Model(i, layers.Dense(2)(layers.Dot(axes=1)([scores, x])))


@over_time
def dual_path_mask() -> Tensor:
    """Noise suppression: a mask from two LSTM layers times the input."""
    i = sequence(3, 6)
    x = keras.layers.LSTM(UNITS, return_sequences=True, stateful=True)(i)
    x = keras.layers.LSTM(UNITS, return_sequences=True, stateful=True)(x)
    return keras.Model(i, keras.layers.Multiply()([i, keras.layers.Dense(6, activation="sigmoid")(x)]))


@over_time
def encoder_decoder() -> Tensor:
    layers, i = keras.layers, sequence()
    code, h, c = layers.LSTM(3, return_state=True)(i)
    x = layers.LSTM(3, return_sequences=True)(layers.RepeatVector(4)(code), initial_state=[h, c])
    return keras.Model(i, layers.TimeDistributed(layers.Dense(2))(x))


@over_time
def convolutional_lstm() -> Tensor:
    i = keras.Input((3, 5, 5, 1), batch_size=1)
    return keras.Model(i, keras.layers.ConvLSTM2D(2, 3, padding="same")(i))


@over_time
def stacked_cells() -> Tensor:
    """RNN over a stack of cells: both in one loop."""
    layers, i = keras.layers, sequence()
    return keras.Model(i, layers.RNN([layers.LSTMCell(3), layers.GRUCell(4)])(i))


@over_time
def convolution_3d() -> Tensor:
    i = keras.Input((4, 6, 6, 1), batch_size=1)
    x = keras.layers.Conv3D(2, 3, activation="relu")(i)
    return keras.Model(i, keras.layers.Dense(2)(keras.layers.Flatten()(x)))
