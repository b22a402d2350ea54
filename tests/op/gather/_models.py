"""Models of StableHLO's operators: those with a subgraph that says what is computed, and STABLEHLO_CASE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aot.frontend.problems import Problems
from aot.frontend.tflite import schema
from aot.frontend.tflite.flatbuffer import Reader
from aot.frontend.tflite.records import decode_model, encode_model
from aot.testing import ModelBuilder
from tests.op._one_op import Spec, same_quant

ATTRIBUTES = np.int64
SCATTERS = {"update": ""} | {
    how: f"STABLEHLO_{name}" for how, name in (("add", "ADD"), ("multiply", "MULTIPLY"), ("max", "MAXIMUM"), ("min", "MINIMUM"))
}


def numbers(values: Sequence[int]) -> np.ndarray[Any, Any]:
    """An attribute of StableHLO."""
    return np.array(values, ATTRIBUTES)


def _tensor(b: ModelBuilder, name: str, spec: Spec) -> int:
    quant = {} if spec.quant is None else {"scale": spec.quant.scale, "zero_point": spec.quant.zero_point}
    return b.tensor(name, spec.shape, spec.dtype, data=spec.data, **quant)


def with_body(name: str, inputs: Sequence[Spec], output: Spec, body: str, field: str, **options: Any) -> bytes:
    """One operator whose subgraph is the operator `body` on two scalars; without a name it hands the second on."""
    b = ModelBuilder()
    sources = [_tensor(b, f"x{i}", s) for i, s in enumerate(inputs)]
    result = _tensor(b, "y", output)
    graph = b.subgraph("body")
    x, y, z = (graph.tensor(n, (), output.dtype) for n in "xyz")
    if body:
        graph.op(body, [x, y], [z])
    graph.inputs, graph.outputs = (x, y), (z if body else y,)
    b.op(name, sources, [result], **{field: 1}, **options)
    return b.build([t for t, s in zip(sources, inputs, strict=True) if s.data is None], [result])


def scatter(data: Spec, indices: Spec, updates: Spec, *, kind: str, **dims: Any) -> bytes:
    """STABLEHLO_SCATTER; `dims` are its attributes."""
    return with_body(
        "STABLEHLO_SCATTER",
        [data, indices, updates],
        data,
        SCATTERS[kind],
        "update_computation_subgraph_index",
        indices_are_sorted=False,
        unique_indices=False,
        **dims,
    )


def reduce_window(data: Spec, first: Spec, output: Spec, body: str, **dims: Any) -> bytes:
    """STABLEHLO_REDUCE_WINDOW; `dims` are its attributes."""
    return with_body("STABLEHLO_REDUCE_WINDOW", [data, first], output, body, "body_subgraph_index", **dims)


def case(count: int, shape: tuple[int, ...] = (3,), *, scalar: bool = False) -> bytes:
    """Of an int32 k and x: x + 1, x * 2, x + 3 ... by k, in `count` branches."""
    b = ModelBuilder()
    k = b.tensor("k", () if scalar else (1,), "int32")
    x, y = b.tensor("x", shape, "float32"), b.tensor("y", shape, "float32")
    for i in range(count):
        graph = b.subgraph(f"branch{i}")
        given, made = graph.tensor("x", shape, "float32"), graph.tensor("y", shape, "float32")
        other = graph.tensor("c", (1,), "float32", data=np.array([i + 1], np.float32))
        graph.op("MUL" if i % 2 else "ADD", [given, other], [made], fused_activation_function="NONE")
        graph.inputs, graph.outputs = (given,), (made,)
    b.op("IF", [k, x], [y], then_subgraph_index=1, else_subgraph_index=1)
    return _if_as_case(b.build([k, x], [y]), range(1, count + 1))


def _if_as_case(model: bytes, branches: Sequence[int]) -> bytes:
    """The model with its IF turned into STABLEHLO_CASE, which the package that writes models does not know."""
    record = decode_model(Reader(model), Problems())
    assert record is not None
    enums = schema.enums()
    number = enums["BuiltinOperator"].index("IF"), enums["BuiltinOperator"].index("STABLEHLO_CASE")
    codes = tuple(
        {**c, "builtin_code": number[1], "deprecated_builtin_code": 127} if c["builtin_code"] == number[0] else c
        for c in record["operator_codes"]
    )
    options = ("StablehloCaseOptions", {"branch_subgraph_indices": np.array(branches, np.int32)})
    changed = {
        "builtin_options_type": 0,
        "builtin_options": None,
        "builtin_options2_type": enums["BuiltinOptions2"].index(options[0]),
        "builtin_options2": options,
    }
    main, *others = record["subgraphs"]
    main = {**main, "operators": tuple({**op, **changed} for op in main["operators"])}
    return encode_model({**record, "operator_codes": codes, "subgraphs": (main, *others)})


def codes(shape: Sequence[int], dtype: str) -> Spec:
    """A tensor, quantised where its type is."""
    return Spec(tuple(shape), dtype, same_quant(dtype))
