"""The graph walk: structure of the module, all problems at once, and exact results on the committed golden files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aot.errors import ModelError, UnsupportedError
from aot.frontend.tflite import check_model, from_tflite
from aot.frontend.tflite.check import load
from aot.frontend.tflite.convert import CONVERTERS
from aot.ir.op import F_EVALUATE, Op
from aot.ir.type import TensorType
from aot.relay.expr import Call, Constant, Function, Tuple, TupleGetItem, Var, post_order
from aot.testing import HAVE_LITERT, ModelBuilder, conv2d_model, reference
from tests.models.golden import load_golden, manifest, sets_of

MODELS = Path(__file__).parents[2] / "models"


def main_of(data: bytes, **options: str) -> Function:
    function = from_tflite(data, **options)["main"]  # type: ignore[arg-type]
    assert isinstance(function, Function)
    return function


def run(function: Function, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Evaluate every node by its operator's `evaluate`."""
    values: dict[int, object] = {id(p): x for p, x in zip(function.params, inputs, strict=True)}
    for node in post_order(function.body):
        match node:
            case Constant():
                values[id(node)] = node.data
            case Call(op=Op(name=name)):
                args = [values[id(a)] for a in node.args]
                values[id(node)] = F_EVALUATE.get(name)(*args, attrs=node.attrs, out_type=node.type)
            case Tuple():
                values[id(node)] = [values[id(f)] for f in node.fields]
            case TupleGetItem():
                values[id(node)] = values[id(node.value)][node.index]  # type: ignore[index]
    result = values[id(function.body)]
    return result if isinstance(result, list) else [result]  # type: ignore[list-item]


def quantised(b: ModelBuilder, name: str, shape: tuple[int, ...] = (1, 8), data: object = None) -> int:
    return b.tensor(name, shape, "int8", scale=0.05, zero_point=0, data=data)  # type: ignore[arg-type]


def test_parameters_outputs_and_spans() -> None:
    data = (MODELS / "graph_two_inputs_two_outputs.tflite").read_bytes()
    graph = load(data).subgraphs[0]
    function = main_of(data)
    assert [p.name for p in function.params] == [graph.tensors[i].name for i in graph.inputs]
    assert [p.span.tensor for p in function.params] == list(graph.inputs)
    assert [s.tensor for s in function.attrs["outputs"]] == list(graph.outputs)
    assert isinstance(function.body, Tuple)
    for type_, index in zip(function.attrs["output_types"], graph.outputs, strict=True):
        assert type_.shape == graph.tensors[index].shape
        assert type_.quant is not None
        assert type_.quant.scale == tuple(graph.tensors[index].quant.scales.tolist())
    for node in post_order(function.body):
        if isinstance(node, Call):
            op = graph.operators[node.span.op_index]
            assert (node.span.opcode, node.span.tensor) == (op.opcode, op.outputs[0])


def test_types_of_results_are_those_of_the_file() -> None:
    data = (MODELS / "net_kws_dscnn.tflite").read_bytes()
    tensors = load(data).subgraphs[0].tensors
    last = {n.span.tensor: n for n in post_order(main_of(data).body) if isinstance(n, Call)}
    for index, node in last.items():
        assert isinstance(node.type, TensorType)
        assert (node.type.shape, node.type.dtype) == (tensors[index].shape, tensors[index].dtype)


@pytest.mark.parametrize("entry", [e for e in manifest() if e["expected"] == "runs"], ids=lambda e: e["name"])
def test_golden(entry: dict[str, str]) -> None:
    """Set 0 of each model through the operators' `evaluate`, against TFLite's reference kernels."""
    data = (MODELS / entry["file"]).read_bytes()
    problems = check_model(data)
    if problems and all(p.code == "E1201" for p in problems):
        pytest.skip(f"not registered: {problems[0].where}")
    function = main_of(data)
    arrays = load_golden(entry["name"])
    inputs, outputs = sets_of(arrays, "in")[0], sets_of(arrays, "out")[0]
    for found, wanted in zip(run(function, list(inputs)), outputs, strict=True):
        assert found.dtype == wanted.dtype
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.skipif(not HAVE_LITERT, reason="ai-edge-litert is not installed")
@pytest.mark.parametrize("op", ["CONV_2D", "DEPTHWISE_CONV_2D"])
def test_negative_weight_scales(op: str) -> None:
    """MCUNet has them; the reference multiplies by a negative multiplier."""
    rng = np.random.default_rng(7)
    depthwise = op == "DEPTHWISE_CONV_2D"
    shape, axis = ((1, 3, 3, 4), 3) if depthwise else ((4, 3, 3, 4), 0)
    scales = np.array([0.02, -0.03, 0.004, -0.0007], np.float32)
    b = ModelBuilder()
    x = b.tensor("x", (1, 6, 5, 4), "int8", scale=0.5, zero_point=-7)
    w = b.tensor("w", shape, "int8", scale=scales, axis=axis, data=rng.integers(-127, 127, shape, np.int8, endpoint=True))
    c = b.tensor("b", (4,), "int32", scale=scales * 0.5, axis=0, data=rng.integers(-900, 900, 4, np.int32))
    y = b.tensor("y", (1, 6, 5, 4), "int8", scale=0.7, zero_point=3)
    b.op(op, [x, w, c], [y], padding="SAME", stride_h=1, stride_w=1, **({"depth_multiplier": 1} if depthwise else {}))
    data = b.build([x], [y])
    inputs = [rng.integers(-128, 127, (1, 6, 5, 4), np.int8, endpoint=True)]
    (found,), (wanted,) = run(main_of(data), inputs), reference(data, inputs)
    assert len(np.unique(wanted)) > 20
    np.testing.assert_array_equal(found, wanted)


def test_oracle_reaches_the_converters() -> None:
    data = (MODELS / "dense.tflite").read_bytes()

    def roundings(oracle: str) -> set[str]:
        nodes = post_order(main_of(data, oracle=oracle).body)
        return {n.attrs.rounding for n in nodes if isinstance(n, Call) and str(n.op) == "qnn.requantize"}

    assert roundings("litert") == {"single"}
    assert roundings("tflm") == {"double"}


def test_problems_of_all_operators_at_once() -> None:
    """What follows a refused operator is still judged."""
    b = ModelBuilder()
    x, m, n, y = (quantised(b, name, (1, 4, 4, 2)) for name in "xmny")
    b.op("SKIP_GRAM", [x], [m])
    b.op("CONV_2D", [m, quantised(b, "w", (2, 1, 1, 3), np.ones((2, 1, 1, 3), np.int8))], [n], stride_h=1, stride_w=1)
    b.op("SKIP_GRAM", [n], [y])
    problems = check_model(b.build([x], [y]))
    assert [(p.code, p.where) for p in problems] == [
        ("E1201", 'op 0 SKIP_GRAM "m"'),
        ("E1207", 'op 1 CONV_2D "n"'),
    ]
    assert problems[0].message.endswith("; the same at 1 more: op 2")
    with pytest.raises(UnsupportedError) as caught:
        from_tflite(b.build([x], [y]))
    assert list(caught.value.problems) == problems


def test_structural_and_operator_problems_together() -> None:
    b = ModelBuilder()
    x, y, z = (quantised(b, name) for name in "xyz")
    b.op("SKIP_GRAM", [x], [y])
    b.custom_op("Mine", [y], [z])
    assert {p.code for p in check_model(b.build([x], [z]))} == {"E1201", "E1210"}


def test_declared_shape_must_follow_from_the_operands() -> None:
    b = ModelBuilder()
    x, y = quantised(b, "x"), quantised(b, "y", (1, 9))
    b.op("ADD", [x, x], [y])
    (problem,) = check_model(b.build([x], [y]))
    assert problem.code == "E1120"
    assert "[1, 9] is declared, but [1, 8] follows" in problem.message


def test_constant_computed_in_the_graph() -> None:
    """A shape operand that is itself reshaped is still a constant."""
    b = ModelBuilder()
    x, y = quantised(b, "x", (2, 4)), quantised(b, "y", (4, 2))
    raw = b.tensor("raw", (1, 2), "int32", data=np.array([[4, 2]], np.int32))
    two = b.tensor("two", (1,), "int32", data=np.array([2], np.int32))
    shape = b.tensor("shape", (2,), "int32")
    b.op("RESHAPE", [raw, two], [shape])
    b.op("RESHAPE", [x, shape], [y])
    values = np.arange(8, dtype=np.int8).reshape(2, 4)
    (result,) = run(main_of(b.build([x], [y])), [values])
    np.testing.assert_array_equal(result, values.reshape(4, 2))


def test_output_that_is_an_input_or_a_constant() -> None:
    b = ModelBuilder()
    x, c = quantised(b, "x", (4,)), quantised(b, "c", (4,), np.array([1, 2, 3, 4], np.int8))
    function = main_of(b.build([x], [c, x]))
    assert isinstance(function.body, Tuple)
    assert isinstance(function.body.fields[0], Constant)
    assert isinstance(function.body.fields[1], Var)


def test_state_is_refused_where_it_is_not_expected() -> None:
    b = ModelBuilder()
    x, y = quantised(b, "x"), quantised(b, "y")
    s = b.tensor("s", (1, 8), "int8", scale=0.05, zero_point=0, is_variable=True)
    b.op("ADD", [x, s], [y])
    assert [p.code for p in check_model(b.build([x], [y]))] == ["E1208"]


def test_other_subgraph() -> None:
    b = ModelBuilder()
    x, y = quantised(b, "x"), quantised(b, "y")
    b.op("ADD", [x, x], [y])
    other = b.subgraph("other")
    p = other.tensor("p", (3,), "int8", scale=0.5, zero_point=1)
    other.inputs = other.outputs = (p,)
    data = b.build([x], [y])
    module = from_tflite(data, subgraph=1)
    function = module["main"]
    assert isinstance(function, Function)
    assert isinstance(function.body, Var)
    with pytest.raises(ModelError):
        from_tflite(data, subgraph=2)


def test_unnamed_tensors() -> None:
    b = ModelBuilder()
    x, y = quantised(b, ""), quantised(b, "")
    b.op("ADD", [x, x], [y])
    assert main_of(b.build([x], [y])).params[0].name == "input_0"


def test_a_converter_s_own_fault_becomes_a_coded_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    data = conv2d_model()
    check_model(data)
    monkeypatch.setitem(CONVERTERS, "CONV_2D", broken)  # type: ignore[arg-type]
    (problem,) = check_model(data)
    assert problem.code == "E1124"
    assert "ZeroDivisionError" in problem.message
