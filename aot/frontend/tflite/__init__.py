"""TensorFlow Lite: the walk over the graph of a file, and the converters of its operators."""

from aot.frontend.tflite.graph import check_model, from_tflite

__all__ = ["check_model", "from_tflite"]
