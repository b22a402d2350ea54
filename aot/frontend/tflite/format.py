"""TensorFlow Lite as an input format."""

from __future__ import annotations

from aot.frontend.formats import Format
from aot.frontend.tflite.graph import check_model, from_tflite
from aot.frontend.tflite.specialize import specialize
from aot.frontend.tflite.view import input_restrictions, nominal_macs, nominal_shapes, operator_count

FORMAT = Format(
    "TensorFlow Lite", ".tflite", reads=lambda model: True,
    module=lambda model, oracle, name: from_tflite(model, oracle=oracle, name=name),
    problems=lambda model, oracle: check_model(model, oracle=oracle), specialize=specialize, macs=nominal_macs,
    operators=operator_count, has_references=True, shapes=nominal_shapes, input_values=input_restrictions,
)  # fmt: skip
