"""Results of the reference engines: TensorFlow Lite's reference kernels and TensorFlow Lite Micro.

Every function skips the running test, with the reason, if the engine is not installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, NoReturn

import numpy as np

from aot.report.measure.reference import FULL, Litert, interpreter_of

HAVE_LITERT = find_spec("ai_edge_litert") is not None
HAVE_TFLM = find_spec("tflite_micro") is not None


def _skip(reason: str) -> NoReturn:
    import pytest  # writing models needs no test runner

    pytest.skip(reason)


def _engine(model: bytes) -> Litert:
    if not HAVE_LITERT:
        _skip("ai-edge-litert is not installed: no reference to compare with")
    return Litert(model)


def reference_sets(model: bytes, sets: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """Outputs of subgraph 0 for each set of inputs, without a reset in between."""
    return _engine(model).outputs(sets)


def reference(model: bytes, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Outputs of subgraph 0 for one set of inputs (TensorFlow Lite's reference kernels, as in `aot verify`)."""
    return reference_sets(model, [inputs])[0]


def reference_tensors(model: bytes, inputs: Sequence[np.ndarray]) -> dict[int, np.ndarray]:
    """Every tensor of subgraph 0 after one run, by tensor index, except those that were never computed."""
    return _engine(model).tensors(inputs)


def input_details(model: bytes) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shape and numpy dtype of each input, as the reference interpreter sees them."""
    if not HAVE_LITERT:
        _skip("ai-edge-litert is not installed: no reference to compare with")
    details = interpreter_of(model, FULL).get_input_details()
    return [(tuple(int(n) for n in d["shape"]), np.dtype(d["dtype"])) for d in details]


def tflm_reference(model: bytes, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Outputs of TensorFlow Lite Micro's interpreter (for `--oracle tflm`)."""
    return tflm_sets(model, [inputs])[0]


def tflm_sets(model: bytes, sets: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """Outputs of TensorFlow Lite Micro for each set of inputs, in one interpreter without a reset in between."""
    if not HAVE_TFLM:
        _skip("tflite-micro is not installed: no TFLM reference to compare with")
    import tflite
    from tflite_micro.python.tflite_micro import runtime

    interpreter = runtime.Interpreter.from_bytes(model, arena_size=4 << 20)  # the default is an estimate, sometimes too small
    count = tflite.Model.GetRootAs(model, 0).Subgraphs(0).OutputsLength()
    results = []
    for inputs in sets:
        for index, value in enumerate(inputs):
            interpreter.set_input(value, index)
        interpreter.invoke()
        results.append([interpreter.get_output(index) for index in range(count)])
    return results
