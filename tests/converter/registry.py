"""The networks by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Builder = Callable[[], Any]

NETWORKS: dict[str, Builder] = {}
"""Feed-forward: each makes (inputs, outputs) of a Keras model with the default, dynamic batch."""

OVER_TIME: dict[str, Builder] = {}
"""Recurrent, with state, control flow, signals: each makes a Keras model of Keras 3 or tf_keras, or a tf.Module."""


FULL_SIZE: dict[str, Builder] = {}
"""Of the size that firmware has, as NETWORKS."""

FLEX: dict[str, Builder] = {}
"""Recurrent, to be converted with TensorFlow's own operators (SELECT_TF_OPS): each makes a Keras model."""


def network(build: Builder) -> Builder:
    NETWORKS[build.__name__] = build
    return build


def over_time(build: Builder) -> Builder:
    """Under its name, that of a class in small letters: StreamingGru is streaming_gru."""
    OVER_TIME[re.sub(r"(?<=[a-z])(?=[A-Z0-9])", "_", build.__name__).lower()] = build
    return build


def full_size(build: Builder) -> Builder:
    FULL_SIZE[build.__name__] = build
    return build
