"""TensorFlow Lite: the file and its view, checks, the walk over its graph, and the converters of its operators."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aot.frontend.tflite.graph import check_model, from_tflite

__all__ = ["check_model", "from_tflite"]


def __getattr__(name: str) -> Any:
    """Load the converters on first use: many readers of a file need only its view."""
    if name not in __all__:
        raise AttributeError(name)
    return getattr(import_module("aot.frontend.tflite.graph"), name)
