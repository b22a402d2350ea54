"""One model for each thing that can be wrong, and the right code, place and words for it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from aot.errors import EXIT_MODEL, ModelError, Problem, UnsupportedError
from aot.errors.explanations import codes
from aot.frontend.problems import MAX_PROBLEMS
from aot.frontend.tflite.check import check_structure, load
from aot.testing import ModelBuilder, conv2d_model, dense_model

Made = tuple[ModelBuilder, list[int], list[int]]


def quantised(b: ModelBuilder, name: str, shape: tuple[int, ...] = (1, 8), data: object = None, **more: object) -> int:
    return b.tensor(name, shape, "int8", **{"scale": 0.05, "zero_point": 0, "data": data, **more})  # type: ignore[arg-type]


def unary(op: str = "RELU", **tensor: object) -> bytes:
    """x -> op -> y, where y has the given properties."""
    b = ModelBuilder()
    x, y = quantised(b, "x"), quantised(b, "y", **tensor)  # type: ignore[arg-type]
    b.op(op, [x], [y])
    return b.build([x], [y])


def open_input(*, shape: tuple[int, ...] = (1, -1), signature: tuple[int, ...] | None = None) -> bytes:
    """x -> RELU -> y, of which the shape of x is open."""
    b = ModelBuilder()
    x, y = quantised(b, "x", shape, shape_signature=signature), quantised(b, "y")
    b.op("RELU", [x], [y])
    return b.build([x], [y])


def constant(shape: tuple[int, ...], dtype: str, data: object, **more: object) -> bytes:
    """x + c -> y with the given constant."""
    b = ModelBuilder()
    x, y = quantised(b, "x"), quantised(b, "y")
    c = b.tensor("c", shape, dtype, data=data, **more)  # type: ignore[arg-type]
    b.op("ADD", [x, c], [y])
    return b.build([x], [y])


def no_subgraph() -> bytes:
    b = ModelBuilder()
    b.subgraphs.clear()
    return b.serialize()


def empty_subgraph() -> bytes:
    return ModelBuilder().build([], [])


def indices(inputs: list[int], outputs: list[int]) -> bytes:
    b = ModelBuilder()
    x, y = quantised(b, "x"), quantised(b, "y")
    b.op("ADD", [x, x], [y])
    b.op("ADD", inputs, outputs)
    return b.build([x], [y])


def graph_output(index: int) -> bytes:
    b = ModelBuilder()
    x, y = quantised(b, "x"), quantised(b, "y")
    quantised(b, "never")
    b.op("RELU", [x], [y])
    return b.build([x], [index])


def written_twice() -> bytes:
    b = ModelBuilder()
    x, y = quantised(b, "x"), quantised(b, "y")
    b.op("RELU", [x], [y])
    b.op("RELU6", [x], [y])
    return b.build([x], [y])


def writes_input() -> bytes:
    b = ModelBuilder()
    x = quantised(b, "x")
    b.op("RELU", [x], [x])
    return b.build([x], [x])


def writes_constant() -> bytes:
    return unary(data=np.zeros((1, 8), np.int8))


def wrong_order() -> bytes:
    b = ModelBuilder()
    x, m, y = quantised(b, "x"), quantised(b, "m"), quantised(b, "y")
    b.op("RELU", [m], [y])
    b.op("RELU", [x], [m])
    return b.build([x], [y])


def input_twice() -> bytes:
    b = ModelBuilder()
    x, y = quantised(b, "x"), quantised(b, "y")
    b.op("ADD", [x, x], [y])
    return b.build([x, x], [y])


def squeeze(dims: list[int]) -> bytes:
    b = ModelBuilder()
    x, y = quantised(b, "x", (1, 8, 1)), quantised(b, "y")
    b.op("SQUEEZE", [x], [y], squeeze_dims=dims)
    return b.build([x], [y])


def svdf(state: tuple[int, ...]) -> bytes:
    b = ModelBuilder()
    x, y = quantised(b, "x", (1, 4)), quantised(b, "y", (1, 6))
    feature = quantised(b, "feature", (6, 4), np.ones((6, 4), np.int8))
    time = quantised(b, "time", (6, 7), np.ones((6, 7), np.int8))
    memory = b.tensor("state", state, "int16", scale=0.1, zero_point=0, is_variable=True)
    b.op("SVDF", [x, feature, time, -1, memory], [y], rank=1)
    return b.build([x], [y])


def wrong_options() -> bytes:
    b = ModelBuilder()
    x, y = quantised(b, "x"), quantised(b, "y")
    b.op("SOFTMAX", [x], [y], table="ReshapeOptions", new_shape=[8])
    return b.build([x], [y])


def recursion() -> bytes:
    b = ModelBuilder()
    x, y = b.tensor("x", (1,), "bool"), b.tensor("y", (1,), "bool")
    b.op("IF", [x], [y], then_subgraph_index=1, else_subgraph_index=0)
    inner = b.subgraph("inner")
    p, q = inner.tensor("p", (1,), "bool"), inner.tensor("q", (1,), "bool")
    inner.op("IF", [p], [q], then_subgraph_index=1, else_subgraph_index=1)
    inner.inputs, inner.outputs = (p,), (q,)
    return b.build([x], [y])


def missing_subgraph() -> bytes:
    b = ModelBuilder()
    b.op("CALL_ONCE", [], [], init_subgraph_index=7)
    x = quantised(b, "x")
    return b.build([x], [x])


def custom(name: str) -> bytes:
    b = ModelBuilder()
    x, y = quantised(b, "x"), quantised(b, "y")
    b.custom_op(name, [x], [y])
    return b.build([x], [y])


def run_time_shape() -> bytes:
    b = ModelBuilder()
    x, shape, y = quantised(b, "x"), b.tensor("new_shape", (2,), "int32"), quantised(b, "y", (8, 1))
    b.op("RESHAPE", [x, shape], [y])
    return b.build([x, shape], [y])


def where() -> bytes:
    b = ModelBuilder()
    x, y = b.tensor("x", (1, 8), "bool"), b.tensor("y", (8, 2), "int64")
    b.op("WHERE", [x], [y])
    return b.build([x], [y])


def typed(dtype: str, shape: tuple[int, ...] = (1, 8)) -> bytes:
    b = ModelBuilder()
    x, y = b.tensor("x", shape, dtype), b.tensor("y", shape, dtype)
    b.op("RELU", [x], [y])
    return b.build([x], [y])


def many_large_tensors() -> bytes:
    b = ModelBuilder()
    tensors = [quantised(b, f"t{i}", (1, 1 << 28)) for i in range(6)]
    for source, target in pairwise(tensors):
        b.op("RELU", [source], [target])
    return b.build([tensors[0]], [tensors[-1]])


def strided(stride: int) -> bytes:
    b = ModelBuilder()
    x, y = quantised(b, "x", (1, 4, 4, 1)), quantised(b, "y", (1, 4, 4, 1))
    w = quantised(b, "w", (1, 1, 1, 1), np.ones((1, 1, 1, 1), np.int8))
    b.op("CONV_2D", [x, w], [y], stride_h=stride, stride_w=1)
    return b.build([x], [y])


def reshape_by(shape: np.ndarray) -> bytes:
    b = ModelBuilder()
    x, y = quantised(b, "x"), quantised(b, "y", (8, 1))
    b.op("RESHAPE", [x, b.tensor("new_shape", shape.shape, str(shape.dtype), data=shape)], [y])
    return b.build([x], [y])


def huge_window() -> bytes:
    b = ModelBuilder()
    x, y = quantised(b, "x", (1, 4, 4, 1)), quantised(b, "y", (1, 4, 4, 1))
    b.op("AVERAGE_POOL_2D", [x], [y], stride_h=1, stride_w=1, filter_width=1 << 16, filter_height=1 << 16)
    return b.build([x], [y])


SCALES4 = [0.1, 0.2, 0.3, 0.4]
CHANNELS = {"data": np.zeros((4, 2), np.int8), "scale": SCALES4}

CASES: list[tuple[str, str, str, Callable[[], bytes]]] = [
    ("E1101", "", "no subgraph", no_subgraph),
    ("E1102", 'subgraph 0 "main"', "nothing to compute", empty_subgraph),
    ("E1103", "op 1 ADD", "input 1 is tensor 99", lambda: indices([0, 99], [1])),
    ("E1103", "op 1 ADD", "input 0 is tensor -2", lambda: indices([-2, 0], [1])),
    ("E1103", "op 1 ADD", "output 0 is tensor -1", lambda: indices([0, 0], [-1])),
    ("E1103", "subgraph 0", "graph output 0 is tensor 5", lambda: graph_output(5)),
    ("E1103", "op 0 CALL_ONCE", "subgraph 7", missing_subgraph),
    ("E1104", 'tensor 1 "y"', "written by op 0 and by op 1", written_twice),
    ("E1104", 'tensor 0 "x"', "graph input", writes_input),
    ("E1104", 'tensor 1 "y"', "constant data", writes_constant),
    ("E1105", 'op 0 RELU "y"', 'tensor 1 "m", is used before op 1', wrong_order),
    ("E1106", 'op 0 ADD "y"', 'tensor 2 "c", has no data', lambda: constant((1, 8), "int8", None)),
    ("E1107", 'tensor 2 "never"', "never produced", lambda: graph_output(2)),
    ("E1108", 'tensor 2 "c"', "holds 3 bytes, int8[1, 8] needs 8", lambda: constant((1, 8), "int8", b"abc")),
    ("E1108", 'tensor 2 "c"', "holds 5 bytes, int4[8] needs 4", lambda: constant((8,), "int4", b"abcde")),
    ("E1109", 'tensor 1 "y"', "[1, -8]", lambda: unary(shape=(1, -8))),
    ("E1110", 'tensor 2 "c"', "4 scales for 2 slices of dimension 1", lambda: constant((4, 2), "int8", axis=1, **CHANNELS)),
    (
        "E1110",
        'tensor 2 "c"',
        "4 scales but 3 zero points",
        lambda: constant((4, 2), "int8", zero_point=[0, 0, 0], **CHANNELS),
    ),
    ("E1111", 'tensor 1 "y"', "scale 0 ", lambda: unary(scale=0.0)),
    ("E1111", 'tensor 1 "y"', "scale -0.5 ", lambda: unary(scale=-0.5)),
    ("E1111", 'tensor 1 "y"', "scale nan ", lambda: unary(scale=float("nan"))),
    ("E1111", 'tensor 1 "y"', "scale inf ", lambda: unary(scale=float("inf"))),
    ("E1112", 'tensor 1 "y"', "zero point 128 is outside int8", lambda: unary(zero_point=128)),
    ("E1113", 'tensor 2 "c"', "quantised dimension 2", lambda: constant((4, 2), "int8", axis=2, **CHANNELS)),
    ("E1114", 'op 0 SVDF "y"', "the state is [1, 9], the weights need [1, 42]", lambda: svdf((1, 9))),
    ("E1115", 'op 0 SQUEEZE "y"', "dimension 1 of shape [1, 8, 1]", lambda: squeeze([0, 1])),
    ("E1115", 'op 0 SQUEEZE "y"', "does not exist", lambda: squeeze([3])),
    ("E1116", 'op 0 SOFTMAX "y"', "ReshapeOptions, expected SoftmaxOptions", wrong_options),
    ("E1117", 'op 1 ADD "y"', "1 inputs, expected 2", lambda: indices([0], [1])),
    ("E1117", 'op 1 ADD "y"', "input 1 is left out", lambda: indices([0, -1], [1])),
    ("E1118", 'subgraph 1 "inner"', "calls itself", recursion),
    ("E1119", 'tensor 0 "x"', "more than once", input_twice),
    ("E1121", 'op 0 SOFTMAX "y"', 'tensor 1 "y" has no elements', lambda: unary("SOFTMAX", shape=(1, 0))),
    ("E1121", 'op 0 RESHAPE "y"', "must hold integers, not float32", lambda: reshape_by(np.array([8, 1], np.float32))),
    ("E1123", 'op 0 CONV_2D "y"', "stride_h is 0,", lambda: strided(0)),
    ("E1123", 'op 0 CONV_2D "y"', "stride_h is -2,", lambda: strided(-2)),
    ("E1123", 'op 0 AVERAGE_POOL_2D "y"', "4294967296 elements", huge_window),
    ("E1210", 'op 0 CUSTOM:Mine "y"', '"Mine" is not known', lambda: custom("Mine")),
    ("E1210", 'op 0 CUSTOM:ethos-u "y"', "Vela", lambda: custom("ethos-u")),
    ("E1211", 'op 0 CUSTOM:FlexErf "y"', "FlexErf", lambda: custom("FlexErf")),
    ("E1212", 'tensor 0 "x"', "string", lambda: typed("string")),
    ("E1213", 'op 0 RESHAPE "y"', 'value of tensor 1 "new_shape"', run_time_shape),
    ("E1213", 'op 0 WHERE "y"', 'data of tensor 0 "x"', where),
    ("E1214", 'input tensor 0 "x"', "dimension 1 of [1, -1] can have any size: choose one, such as --shape x=1,96", open_input),
    ("E1214", 'input tensor 0 "x"', "dimension 1 of [-1, -1]", lambda: open_input(shape=(1, 1), signature=(-1, -1))),
    ("E1216", 'tensor 1 "y"', "more than 268435456", lambda: unary(shape=(2, 1 << 30))),
    ("E1216", 'tensor 1 "y"', "268435456", lambda: unary(shape=(2**31 - 1,) * 8)),
    ("E1217", 'subgraph 0 "main"', "in total", many_large_tensors),
    ("E1218", 'tensor 0 "x"', "bfloat16", lambda: typed("bfloat16")),
    ("E1221", 'tensor 0 "x"', "9 dimensions", lambda: typed("float32", (1,) * 9)),
]


@pytest.mark.parametrize(("code", "place", "words", "make"), CASES, ids=[f"{c[0]}-{c[2][:24]}" for c in CASES])
def test_code_place_and_words(code: str, place: str, words: str, make: Callable[[], bytes]) -> None:
    found = [p for p in check_structure(make()) if p.code == code]
    assert found, f"{code} is missing: {check_structure(make())}"
    assert any(p.where.startswith(place) and words in p.message for p in found), [str(p) for p in found]


def test_every_code_is_explained() -> None:
    assert {case[0] for case in CASES} <= set(codes())


def test_valid_models_have_no_problems() -> None:
    for model in (conv2d_model(), dense_model(), svdf((1, 42)), squeeze([0, -1]), squeeze([])):
        assert check_structure(model) == []


def test_all_problems_at_once() -> None:
    b = ModelBuilder()
    x, y = quantised(b, "x", zero_point=300), quantised(b, "y", (1, -4), scale=0.0)
    b.op("ADD", [x], [y])
    b.custom_op("Mine", [x], [quantised(b, "z")])
    assert {p.code for p in check_structure(b.build([x], [y]))} == {"E1112", "E1109", "E1111", "E1117", "E1210"}


def test_error_class_and_exit_code() -> None:
    with pytest.raises(ModelError) as broken:
        load(written_twice())
    with pytest.raises(UnsupportedError) as unsupported:
        load(custom("Mine"))
    assert broken.value.exit_code == unsupported.value.exit_code == EXIT_MODEL


def test_number_of_listed_problems_is_limited() -> None:
    b = ModelBuilder()
    x = quantised(b, "x")
    for i in range(3 * MAX_PROBLEMS):
        quantised(b, f"t{i}", (1, -8 - i))
    problems = check_structure(b.build([x], [x]))
    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1] == Problem("E1008", f"{2 * MAX_PROBLEMS} more problems are not listed")


@pytest.mark.parametrize("name", ["a\nb\x1b[31m", "\u202egnp", "n" * 10_000, ""])
def test_hostile_names_do_not_reach_the_message(name: str) -> None:
    b = ModelBuilder()
    x, y = quantised(b, "x"), quantised(b, name.ljust(1) if name else "", scale=0.0)
    b.op("RELU", [x], [y])
    (problem,) = check_structure(b.build([x], [y]))
    assert str(problem).isprintable()
    assert len(str(problem)) < 250


def test_shape_computed_from_shapes_is_static() -> None:
    """SHAPE -> STRIDED_SLICE -> PACK -> RESHAPE, as Keras' converter writes Flatten of a dynamic batch."""
    b = ModelBuilder()
    x, y = quantised(b, "x", (1, 4, 2), shape_signature=(-1, 4, 2)), quantised(b, "y", (1, 8))
    shape, batch, packed = (b.tensor(n, s, "int32") for n, s in (("shape", (3,)), ("batch", ()), ("packed", (2,))))
    zero, one = (b.tensor(n, (1,), "int32", data=np.array([v], np.int32)) for n, v in (("zero", 0), ("one", 1)))
    rest = b.tensor("rest", (), "int32", data=np.array(8, np.int32))
    b.op("SHAPE", [x], [shape])
    b.op("STRIDED_SLICE", [shape, zero, one, one], [batch], shrink_axis_mask=1)
    b.op("PACK", [batch, rest], [packed], values_count=2)
    b.op("RESHAPE", [x, packed], [y])
    assert check_structure(b.build([x], [y])) == []


def test_negative_scales_of_weights_are_accepted() -> None:
    """MCUNet's published model has them in per-channel weights."""
    scales = [0.1, -0.2, 0.3, -0.4]
    data = np.zeros((4, 2), np.int8)
    assert check_structure(constant((4, 2), "int8", data, scale=scales, axis=0)) == []


def test_quantised_dimension_of_one_dimensional_bias() -> None:
    """Converters before 2020 wrote the weights' dimension 3 to biases; it is read as 0."""
    data = constant((4,), "int32", np.zeros(4, np.int32), scale=SCALES4, axis=3)
    assert check_structure(data) == []
    quant = load(data).subgraphs[0].tensors[2].quant
    assert quant is not None
    assert quant.axis == 0
