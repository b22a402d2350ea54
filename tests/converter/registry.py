"""The networks by name: each builder makes (inputs, outputs) of a Keras model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Builder = Callable[[], Any]

NETWORKS: dict[str, Builder] = {}
"""Committed in every kind that make.py lists."""

EXTRA: dict[str, Builder] = {}
"""Made on request only: loops and fused recurrent layers."""


def network(build: Builder) -> Builder:
    NETWORKS[build.__name__] = build
    return build


def extra(build: Builder) -> Builder:
    EXTRA[build.__name__] = build
    return build
