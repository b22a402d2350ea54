"""What the reference engines compute: TensorFlow Lite's reference kernels and TensorFlow Lite Micro.

Every function skips the running test, with the reason, where the engine is not installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, NoReturn

import numpy as np

from aot.frontend.view import kernels_of

HAVE_LITERT = find_spec("ai_edge_litert") is not None
HAVE_TFLM = find_spec("tflite_micro") is not None


def _skip(reason: str) -> NoReturn:
    import pytest  # whoever only writes models needs no test runner

    pytest.skip(reason)


def _interpreter(model: bytes, *, preserve: bool = False) -> Any:
    if not HAVE_LITERT:
        _skip("ai-edge-litert is not installed: no reference to compare with")
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=model,
        experimental_op_resolver_type=getattr(OpResolverType, kernels_of(model)),
        experimental_preserve_all_tensors=preserve,
        num_threads=1,
    )
    interpreter.allocate_tensors()
    return interpreter


def _feed(interpreter: Any, inputs: Sequence[np.ndarray]) -> None:
    details = interpreter.get_input_details()
    if len(details) != len(inputs):
        raise ValueError(f"the model has {len(details)} inputs, {len(inputs)} were given")
    for detail, value in zip(details, inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()


def reference_sets(model: bytes, sets: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """Outputs of subgraph 0 for each set of inputs, in one interpreter without a reset between."""
    interpreter = _interpreter(model)
    results = []
    for inputs in sets:
        _feed(interpreter, inputs)
        results.append([interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()])
    return results


def reference(model: bytes, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Outputs of subgraph 0 for one set of inputs (TensorFlow Lite, BUILTIN_REF, no delegate)."""
    return reference_sets(model, [inputs])[0]


def reference_tensors(model: bytes, inputs: Sequence[np.ndarray]) -> dict[int, np.ndarray]:
    """Every tensor of subgraph 0 after one run, by tensor index; kernels' temporary tensors are left out."""
    interpreter = _interpreter(model, preserve=True)
    _feed(interpreter, inputs)
    tensors = {}
    for detail in interpreter.get_tensor_details():
        try:
            tensors[detail["index"]] = interpreter.get_tensor(detail["index"])
        except ValueError:  # never computed (unused, or a dynamic temporary)
            continue
    count = _tensor_count(model)
    return {index: value for index, value in tensors.items() if index < count}


def _tensor_count(model: bytes) -> int:
    import tflite

    return int(tflite.Model.GetRootAs(model, 0).Subgraphs(0).TensorsLength())


def input_details(model: bytes) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shape and numpy dtype of each input, as the reference interpreter sees them."""
    details = _interpreter(model).get_input_details()
    return [(tuple(int(n) for n in d["shape"]), np.dtype(d["dtype"])) for d in details]


def tflm_reference(model: bytes, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Outputs of TensorFlow Lite Micro's interpreter (for `--oracle tflm`)."""
    return tflm_sets(model, [inputs])[0]


def tflm_sets(model: bytes, sets: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """Outputs of TensorFlow Lite Micro for each set of inputs, in one interpreter without a reset between."""
    if not HAVE_TFLM:
        _skip("tflite-micro is not installed: no TFLM reference to compare with")
    import tflite
    from tflite_micro.python.tflite_micro import runtime

    interpreter = runtime.Interpreter.from_bytes(model, arena_size=4 << 20)  # by default it estimates, at times too little
    count = tflite.Model.GetRootAs(model, 0).Subgraphs(0).OutputsLength()
    results = []
    for inputs in sets:
        for index, value in enumerate(inputs):
            interpreter.set_input(value, index)
        interpreter.invoke()
        results.append([interpreter.get_output(index) for index in range(count)])
    return results
