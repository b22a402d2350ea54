"""The view against what the writer wrote, and against the reference interpreter's reading of the same file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tflite

from aot.frontend.problems import Problems
from aot.frontend.tflite import schema
from aot.frontend.tflite.check import load
from aot.frontend.tflite.view import ModelView, parse
from aot.testing import HAVE_LITERT, ModelBuilder, conv2d_model

MODELS = Path(__file__).parents[2] / "models"


def view_of(data: bytes) -> ModelView:
    problems = Problems()
    view = parse(data, problems)
    assert view is not None
    assert not problems, problems.report()
    return view


def small() -> bytes:
    b = ModelBuilder("a description")
    x = b.tensor("x", (1, 4), "int8", scale=0.5, zero_point=-3, shape_signature=(-1, 4))
    w = b.tensor("w", (2, 3), "int4", data=np.array([[-8, 7, 0], [1, -1, 3]]), scale=[0.25, 2.0], axis=0)
    f = b.tensor("f", (2,), "float32", data=np.array([1.5, -2.5]), scale=0.5)
    y = b.tensor("y", (1, 4), "int8", scale=0.5, zero_point=0)
    b.custom_op("Mine", [x, -1, w, f], [y], custom_options=b"\1\2")
    b.signature("serve", inputs={"a": x}, outputs={"b": y})
    b.metadata.append(("note", b"hello"))
    return b.build([x], [y])


def test_model_fields() -> None:
    view = view_of(small())
    assert view.version == 3
    assert view.signatures[0].inputs == (("a", 0),)
    assert view.signatures[0].outputs == (("b", 3),)
    assert view.signatures[0].key == "serve"
    (graph,) = view.subgraphs
    assert (graph.name, graph.inputs, graph.outputs) == ("main", (0,), (3,))


def test_tensors() -> None:
    x, w, f, y = view_of(small()).subgraphs[0].tensors
    assert (x.name, x.shape, x.shape_signature, x.dtype, x.data) == ("x", (1, 4), (-1, 4), "int8", None)
    assert x.quant is not None
    assert (x.quant.scales.tolist(), x.quant.zero_points.tolist(), x.quant.axis) == ([0.5], [-3], None)
    assert w.dtype == "int4"
    assert w.data is not None
    assert w.data.dtype == np.int8
    assert w.data.tolist() == [[-8, 7, 0], [1, -1, 3]]
    assert w.quant is not None
    assert (w.quant.scales.tolist(), w.quant.axis) == ([0.25, 2.0], 0)
    assert f.quant is None, "a float tensor keeps no scale"
    assert f.data is not None
    assert f.data.tolist() == [1.5, -2.5]
    assert y.where == 'tensor 3 "y"'


def test_constants_cannot_be_written() -> None:
    for tensor in view_of(small()).subgraphs[0].tensors:
        assert tensor.data is None or not tensor.data.flags.writeable


def test_custom_operator() -> None:
    (op,) = view_of(small()).subgraphs[0].operators
    assert (op.opcode, op.kind, op.custom_name, op.custom_options) == ("CUSTOM", "CUSTOM:Mine", "Mine", b"\1\2")
    assert op.inputs == (0, -1, 1, 2)
    assert op.where == 'op 0 CUSTOM:Mine "y"'
    assert (op.input(1), op.input(9)) == (-1, -1)


def test_options_and_defaults() -> None:
    op = view_of(conv2d_model(strides=(2, 1), padding="VALID", activation="RELU6")).subgraphs[0].operators[0]
    assert op.opcode == "CONV_2D"
    assert (op.option("stride_h"), op.option("stride_w")) == (2, 1)
    assert (op.option("padding"), op.option("fused_activation_function")) == ("VALID", "RELU6")
    assert op.option("dilation_w_factor") == 1
    with pytest.raises(KeyError):
        op.option("beta")


def test_options_left_out_are_the_schema_s_defaults() -> None:
    b = ModelBuilder()
    x, y = b.tensor("x", (1, 4), "float32"), b.tensor("y", (1, 4), "float32")
    b.op("RESHAPE", [x], [y])
    b.op("SOFTMAX", [x], [y])
    reshape, softmax = view_of(b.build([x], [y])).subgraphs[0].operators
    assert reshape.option("new_shape") == ()
    assert softmax.option("beta") == 0.0


def test_old_and_new_operator_codes() -> None:
    """Codes above 127 are only in the new field, old files have only the 8-bit one; both give the operator."""
    b = ModelBuilder()
    x = b.tensor("x", (1,), "float32")
    y = b.tensor("y", (1,), "float32")
    b.op("STABLEHLO_CBRT", [x], [y])
    b.op("CONV_2D", [x, x], [y])
    data = bytearray(b.build([x], [y]))
    model = tflite.Model.GetRootAsModel(data, 0)
    code = model.OperatorCodes(1)
    table = code._tab
    data[table.Pos + table.Offset(4)] = 3  # deprecated_builtin_code
    new_slot = table.Offset(10)
    if new_slot:
        data[table.Pos + new_slot : table.Pos + new_slot + 4] = bytes(4)
    assert [op.opcode for op in view_of(bytes(data)).subgraphs[0].operators] == ["STABLEHLO_CBRT", "CONV_2D"]


def test_buffer_behind_the_tables() -> None:
    """Files above 2 GB keep constants outside the flatbuffer, at an offset of the file."""
    b = ModelBuilder()
    x = b.tensor("x", (4,), "int32")
    c = b.tensor("c", (4,), "int32", data=np.zeros(4, np.int32))
    y = b.tensor("y", (4,), "int32")
    b.op("ADD", [x, c], [y])
    inside = b.build([x], [y])
    values = np.array([1, -2, 3, -4], "<i4").tobytes()
    outside = _with_offset_buffer(inside, values)
    data = load(outside).subgraphs[0].tensors[1].data
    assert data is not None
    assert data.tolist() == [1, -2, 3, -4]
    problems = Problems()
    parse(outside[:-1], problems)
    assert [p.code for p in problems.report()] == ["E1009"]


def _with_offset_buffer(model: bytes, values: bytes) -> bytes:
    """The model with buffer 1 replaced by a reference to `values`, appended to the file."""
    import struct

    data = bytearray(model) + bytes(-len(model) % 8)
    buffers = tflite.Model.GetRootAsModel(data, 0)._tab
    vector = buffers.Vector(buffers.Offset(12))
    entry = vector + 4
    vtable = len(data)
    data += struct.pack("<HHHHHxx", 10, 24, 0, 8, 16)
    table = len(data)
    data += struct.pack("<iIQQ", table - vtable, 0, len(data) + 24, len(values)) + values
    struct.pack_into("<I", data, entry, table - entry)
    return bytes(data)


@pytest.mark.skipif(not HAVE_LITERT, reason="ai-edge-litert is not installed")
@pytest.mark.parametrize("name", ["net_kws_dscnn", "net_ic_resnet", "graph_two_inputs_two_outputs", "dense_per_channel"])
def test_agrees_with_the_reference_interpreter(name: str) -> None:
    from ai_edge_litert.interpreter import Interpreter

    data = (MODELS / f"{name}.tflite").read_bytes()
    graph = load(data).subgraphs[0]
    interpreter = Interpreter(model_content=data)
    details = {d["index"]: d for d in interpreter.get_tensor_details()}  # before allocation changes biases' parameters
    interpreter.allocate_tensors()
    assert tuple(d["index"] for d in interpreter.get_input_details()) == graph.inputs
    assert tuple(d["index"] for d in interpreter.get_output_details()) == graph.outputs
    for tensor in graph.tensors:
        other = details[tensor.index]
        assert tensor.shape == tuple(other["shape"])
        assert tensor.dtype == np.dtype(other["dtype"]).name
        parameters = other["quantization_parameters"]
        scales = [] if tensor.quant is None else tensor.quant.scales.tolist()
        assert scales == parameters["scales"].tolist()
        if tensor.data is not None:
            np.testing.assert_array_equal(tensor.data, interpreter.get_tensor(tensor.index))


def test_schema_agrees_with_the_tflite_package() -> None:
    """Our tables against the classes that flatc generated: every accessor is a field, with the same slot."""
    ours = schema.enums()["BuiltinOperator"]
    theirs = {k: v for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)}
    assert all(ours[number] == name for name, number in theirs.items() if number < 206)
    for name, fields in schema.tables().items():
        module = getattr(tflite, name, None)
        starter = getattr(tflite, f"{name}Start", None)
        if module is None or starter is None:
            continue
        counter = _SlotCounter()
        starter(counter)
        slots = max((f.slot for f in fields), default=-1) + 1
        assert slots >= counter.slots or name in ("ResizeNearestNeighborOptions",), name


class _SlotCounter:
    """Stands in for a flatbuffers Builder to learn how many slots a table has."""

    slots = 0

    def StartObject(self, count: int) -> None:  # noqa: N802 - flatbuffers' name
        self.slots = count


@pytest.mark.parametrize("table", sorted({*schema.options_tables().values(), "Tensor", "Operator", "Buffer"}))
def test_slots_agree_with_the_tflite_package(table: str) -> None:
    """Each generated accessor reads the slot that our table gives to the field of that name."""
    import inspect
    import re

    generated = getattr(tflite, table, None)
    if generated is None:
        pytest.skip(f"this version of the tflite package has no {table}")
    slots = {f.name.replace("_", ""): f.slot for f in schema.tables()[table]}
    found = 0
    for accessor, function in inspect.getmembers(generated, inspect.isfunction):
        offset = re.search(r"self\._tab\.Offset\((\d+)\)", inspect.getsource(function))
        if offset is None or accessor.endswith(("AsNumpy", "Length", "IsNone")):
            continue
        found += 1
        assert slots[accessor.lower()] == (int(offset[1]) - 4) // 2, accessor
    assert found
