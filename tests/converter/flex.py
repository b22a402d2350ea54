"""Recurrent Keras layers that are converted with SELECT_TF_OPS: loops over TensorFlow's lists of tensors, and the same unrolled.

Needs Keras 3; see make.py.  `NAME.loop` and `NAME.unrolled` have the same weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from tests.converter.registry import FLEX

Tensor = Any
Layers = Callable[[Tensor, bool], Tensor]
STEPS, CHANNELS, UNITS = 5, 3, 4
layers = keras.layers


def both(name: str, shape: tuple[int, ...], make: Layers, *, batch: int | None = 1) -> None:
    """Register a network as a loop, of this batch (None: open), and unrolled, of one."""

    def build(unroll: bool) -> Tensor:
        i = keras.Input(shape, batch_size=1 if unroll else batch)
        return keras.Model(i, make(i, unroll))

    FLEX[f"{name}.loop"] = lambda: build(False)
    FLEX[f"{name}.unrolled"] = lambda: build(True)


def over_steps(name: str, make: Layers, *, batch: int | None = 1) -> None:
    both(name, (STEPS, CHANNELS), make, batch=batch)


over_steps("rnn", lambda i, u: layers.SimpleRNN(UNITS, unroll=u)(i))
over_steps("gru", lambda i, u: layers.GRU(UNITS, return_sequences=True, unroll=u)(i), batch=None)
over_steps("gru_reset_before", lambda i, u: layers.GRU(UNITS, reset_after=False, go_backwards=True, unroll=u)(i))
over_steps("lstm", lambda i, u: layers.LSTM(UNITS, return_state=True, unroll=u)(i))
over_steps("lstm_masked", lambda i, u: layers.LSTM(UNITS, return_sequences=True, unroll=u)(layers.Masking()(i)), batch=None)
over_steps("bidirectional", lambda i, u: layers.Bidirectional(layers.GRU(UNITS, return_sequences=True, unroll=u))(i))
over_steps(
    "stacked", lambda i, u: layers.Dense(2)(layers.LSTM(3, unroll=u)(layers.LSTM(UNITS, return_sequences=True, unroll=u)(i)))
)
over_steps("cells", lambda i, u: layers.RNN([layers.LSTMCell(3), layers.GRUCell(4)], return_sequences=True, unroll=u)(i))
both("image_lstm", (3, 5, 5, 2), lambda i, u: layers.ConvLSTM2D(2, 3, return_sequences=True, unroll=u)(i))
