"""ModelBuilder: what it writes is what the schema's reader and the reference interpreter read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tflite

from aot import testing as writer
from aot.testing import ModelBuilder, conv2d_model, depthwise_model, reference, reference_tensors
from aot.testing.builder import options_name, pack_data


def _graph(data: bytes) -> tflite.SubGraph:
    return tflite.Model.GetRootAs(data, 0).Subgraphs(0)


def test_tensor_fields_are_kept() -> None:
    b = ModelBuilder()
    values = np.arange(12, dtype=np.int8).reshape(2, 2, 3)
    t = b.tensor("w", (2, 2, 3), "int8", scale=[0.5, 0.25, 0.125], zero_point=[1, 2, 3], axis=2, data=values)
    data = b.build([], [t])
    tensor = _graph(data).Tensors(t)
    assert tensor.Name() == b"w"
    assert list(tensor.ShapeAsNumpy()) == [2, 2, 3]
    assert tensor.Type() == tflite.TensorType.INT8
    q = tensor.Quantization()
    assert list(q.ScaleAsNumpy()) == [0.5, 0.25, 0.125]
    assert list(q.ZeroPointAsNumpy()) == [1, 2, 3]
    assert q.QuantizedDimension() == 2
    stored = tflite.Model.GetRootAs(data, 0).Buffers(tensor.Buffer()).DataAsNumpy()
    np.testing.assert_array_equal(stored.view(np.int8), values.ravel())


@pytest.mark.parametrize("size", [1, 3, 16, 17, 100])
def test_constants_lie_on_16_bytes(size: int) -> None:
    b = ModelBuilder("x" * size)
    for i in range(3):
        b.tensor(f"c{i}", (size,), "uint8", data=np.full(size, 0xA0 + i, np.uint8))
    data = b.build([], [0])
    for i in range(3):
        assert data.index(bytes([0xA0 + i]) * size) % 16 == 0


def test_int4_is_packed_low_half_first() -> None:
    assert pack_data(np.array([1, -1, 7, -8, 3]), "int4") == bytes([0xF1, 0x87, 0x03])


def test_floats_and_wide_integers_are_little_endian() -> None:
    assert pack_data(np.array([1.0]), "float32") == b"\x00\x00\x80\x3f"
    assert pack_data(np.array([258]), "int64") == bytes([2, 1, 0, 0, 0, 0, 0, 0])


def test_options_reach_the_table() -> None:
    data = depthwise_model(input_shape=(1, 9, 9, 2), multiplier=3, strides=(2, 2), padding="VALID", activation="RELU6")
    op = _graph(data).Operators(0)
    assert op.BuiltinOptionsType() == tflite.BuiltinOptions.DepthwiseConv2DOptions
    options = tflite.DepthwiseConv2DOptions()
    table = op.BuiltinOptions()
    options.Init(table.Bytes, table.Pos)
    assert (options.StrideH(), options.StrideW(), options.DepthMultiplier()) == (2, 2, 3)
    assert options.Padding() == tflite.Padding.VALID
    assert options.FusedActivationFunction() == tflite.ActivationFunctionType.RELU6


def test_wrong_option_or_operator_is_refused() -> None:
    b = ModelBuilder()
    x = b.tensor("x", (1,), "float32")
    with pytest.raises(KeyError):
        b.op("NO_SUCH_OPERATOR", [x], [x])
    with pytest.raises(TypeError, match="LOGISTIC has no options"):
        b.op("LOGISTIC", [x], [x], beta=1.0)
    b.op("SOFTMAX", [x], [x], alpha=1.0)
    with pytest.raises(TypeError, match="no field 'alpha'"):
        b.build([x], [x])


def test_option_table_names_are_in_the_schema() -> None:
    operators = [k for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)]
    tables = {k for o in (tflite.BuiltinOptions, tflite.BuiltinOptions2) for k, v in vars(o).items() if isinstance(v, int)}
    assert {options_name(op) for op in operators} - {None} <= tables
    assert options_name("TRANSPOSE_CONV") == "TransposeConvOptions"
    assert options_name("UNIDIRECTIONAL_SEQUENCE_LSTM") == "UnidirectionalSequenceLSTMOptions"


def test_codes_above_127_use_both_fields() -> None:
    b = ModelBuilder()
    x = b.tensor("x", (1,), "float32")
    b.op("GELU", [x], [x])
    code = tflite.Model.GetRootAs(b.build([x], [x]), 0).OperatorCodes(0)
    assert code.DeprecatedBuiltinCode() == 127
    assert code.BuiltinCode() == tflite.BuiltinOperator.GELU


def test_custom_operator_keeps_name_and_options() -> None:
    b = ModelBuilder()
    x = b.tensor("x", (1,), "float32")
    b.custom_op("Mine", [x], [x], custom_options=b"abc")
    data = b.build([x], [x])
    assert tflite.Model.GetRootAs(data, 0).OperatorCodes(0).CustomCode() == b"Mine"
    assert _graph(data).Operators(0).CustomOptionsAsNumpy().tobytes() == b"abc"


def test_building_twice_gives_the_same_bytes_with_metadata() -> None:
    b = ModelBuilder()
    x = b.tensor("x", (1,), "float32")
    b.op("LOGISTIC", [x], [x])
    b.metadata.append(("note", b"hello"))
    assert b.build([x], [x]) == b.build([x], [x])


def test_while_loop_over_two_further_subgraphs() -> None:
    """x is doubled while it is below 100: a WHILE with condition and body graphs, run through a signature."""
    b = ModelBuilder()
    x, y = b.tensor("x", (1,), "float32"), b.tensor("y", (1,), "float32")
    cond, body = b.subgraph("cond"), b.subgraph("body")
    limit = cond.tensor("limit", (1,), "float32", data=np.array([100], np.float32))
    value, below = cond.tensor("v", (1,), "float32"), cond.tensor("below", (1,), "bool")
    cond.op("LESS", [value, limit], [below])
    cond.inputs, cond.outputs = (value,), (below,)
    before, after = body.tensor("v", (1,), "float32"), body.tensor("twice", (1,), "float32")
    body.op("ADD", [before, before], [after])
    body.inputs, body.outputs = (before,), (after,)
    b.op("WHILE", [x], [y], cond_subgraph_index=1, body_subgraph_index=2)
    b.signature("serving_default", inputs={"x": x}, outputs={"y": y})
    data = b.build([x], [y])
    np.testing.assert_array_equal(reference(data, [np.array([3], np.float32)])[0], [192])


def test_int16_activations_run() -> None:
    b = ModelBuilder()
    x, y = b.tensor("x", (1, 4), "int16", scale=0.01), b.tensor("y", (1, 4), "int16", scale=0.02)
    b.op("ADD", [x, x], [y], version=2, pot_scale_int16=False)
    values = np.array([[100, -200, 3000, 32767]], np.int16)
    np.testing.assert_array_equal(reference(b.build([x], [y]), [values])[0], values)


def test_reference_tensors_has_every_tensor_of_the_graph() -> None:
    data = conv2d_model()
    x = np.ones((1, 7, 6, 3), np.int8)
    tensors = reference_tensors(data, [x])
    assert sorted(tensors) == [0, 1, 2, 3]
    np.testing.assert_array_equal(tensors[0], x)
    np.testing.assert_array_equal(tensors[3], reference(data, [x])[0])


@pytest.mark.parametrize("name", [n for n in writer.__all__ if n.endswith("_model")])
def test_model_functions_run_in_the_reference(name: str) -> None:
    model = getattr(writer, name)()
    inputs = [np.ones(shape, dtype) for shape, dtype in writer.input_details(model)]
    graph = _graph(model)
    for value, index in zip(reference(model, inputs), graph.OutputsAsNumpy(), strict=True):
        assert value.shape == tuple(graph.Tensors(index).ShapeAsNumpy())


def test_bytes_do_not_depend_on_the_hash_seed() -> None:
    code = "import hashlib, aot.testing as w; print(hashlib.sha256(w.conv2d_model() + w.mean_model()).hexdigest())"
    root = Path(__file__).parents[2]
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
