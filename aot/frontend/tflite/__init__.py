"""TensorFlow Lite: the walk over the graph of a file, and the converters of its operators."""

from aot.frontend.formats import Format
from aot.frontend.macs import nominal_macs, operator_count
from aot.frontend.tflite.graph import check_model, from_tflite
from aot.frontend.tflite.specialize import specialize

FORMAT = Format(
    "TensorFlow Lite",
    ".tflite",
    reads=lambda model: True,
    module=lambda model, oracle, name: from_tflite(model, oracle=oracle, name=name),
    problems=lambda model, oracle: check_model(model, oracle=oracle),
    specialize=specialize,
    macs=nominal_macs,
    operators=operator_count,
    has_references=True,
)

__all__ = ["FORMAT", "check_model", "from_tflite", "specialize"]
