"""Shapes follow from the inputs: what a file declares for a value that is computed, and leaves open, means nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from aot.frontend.formats import Choice
from aot.frontend.problems import Problems
from aot.frontend.tflite import check_model, from_tflite
from aot.frontend.tflite.flatbuffer import Reader
from aot.frontend.tflite.records import decode_model, encode_model
from aot.frontend.tflite.specialize import specialize
from aot.frontend.tflite.view import nominal_macs, nominal_shapes
from aot.relay.printer import print_module
from aot.testing import ModelBuilder
from tests.op._differential import check
from tests.scale import cases

OWN = sorted((Path(__file__).parents[2] / "models").glob("*.tflite"))
SHARED = Path(__file__).parents[4] / "shared" / "models"


def forgotten(model: bytes) -> bytes:
    """The model as a converter writes it that knows the inputs only: all computed dimensions are open, a 1 stands for each."""
    record = decode_model(Reader(model), Problems())
    assert record is not None
    graphs = []
    for graph in record["subgraphs"]:
        computed = {int(i) for op in graph["operators"] or () for i in (() if op["outputs"] is None else op["outputs"])}
        tensors = list(graph["tensors"])
        for i in computed:
            rank = 0 if tensors[i]["shape"] is None else len(tensors[i]["shape"])
            open_ = {"shape": np.ones(rank, np.int32), "shape_signature": np.full(rank, -1, np.int32), "has_rank": bool(rank)}
            tensors[i] = {**tensors[i], **open_}
        graphs.append({**graph, "tensors": tuple(tensors)})
    return encode_model({**record, "subgraphs": tuple(graphs)})


def relay(model: bytes) -> str:
    return print_module(from_tflite(model))


@pytest.mark.parametrize("path", OWN, ids=lambda p: p.stem)
def test_own_models(path: Path) -> None:
    same_without_declared_shapes(path.read_bytes())


def same_without_declared_shapes(data: bytes) -> None:
    """The relay module, and all else that looks at shapes, is the same as with them."""
    blank = forgotten(data)
    assert relay(blank) == relay(data)
    known = specialize(blank)
    assert (nominal_macs(known), nominal_shapes(known)) == (nominal_macs(data), nominal_shapes(data))
    assert specialize(known) is known


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not there")
def test_shared_models() -> None:
    entries = json.loads((SHARED / "MANIFEST.json").read_text())["models"]
    plain = [e for e in entries if not any(o.startswith("CUSTOM") for o in e["operators"])]
    faults, tried = {}, 0
    for entry in plain[:: len(plain) // cases(len(plain))]:
        data = (SHARED / entry["file"]).read_bytes()
        if check_model(data):
            continue
        tried += 1
        try:
            same_without_declared_shapes(data)
        except Exception as error:
            faults[entry["name"]] = str(error)[:200]
    assert not faults
    assert tried > cases(80)


def computed_shape() -> bytes:
    """Dense on 3-D data as the converter writes it: the new shapes are computed from the batch."""
    b = ModelBuilder()
    rng = np.random.default_rng(7)
    x = b.tensor("x", (1, 3, 4), "float32", shape_signature=(-1, 3, 4))
    numbers = {n: b.tensor(f"n{n}", (1,), "int32", data=np.array([n], np.int32)) for n in (0, 1)}
    size = {n: b.tensor(f"size{n}", (), "int32", data=np.array(n, np.int32)) for n in (2, 3, 5)}
    shape, batch = b.tensor("shape", (3,), "int32"), b.tensor("batch", (), "int32")
    b.op("SHAPE", [x], [shape], out_type="INT32")
    b.op("STRIDED_SLICE", [shape, numbers[0], numbers[1], numbers[1]], [batch], shrink_axis_mask=1)
    rows, flat = b.tensor("rows", (2,), "int32", data=np.array([-1, 4], np.int32)), open_tensor(b, "flat", 2)
    b.op("RESHAPE", [x, rows], [flat])
    w = b.tensor("w", (5, 4), "float32", data=rng.normal(size=(5, 4)).astype(np.float32))
    dense = open_tensor(b, "dense", 2)
    b.op("FULLY_CONNECTED", [flat, w, -1], [dense], fused_activation_function="NONE")
    packed, back = b.tensor("packed", (3,), "int32"), open_tensor(b, "back", 3)
    b.op("PACK", [batch, size[3], size[5]], [packed], values_count=3, axis=0)
    b.op("RESHAPE", [dense, packed], [back])
    half = b.tensor("half", (), "float32", data=np.array(0.5, np.float32))
    token, filled = b.tensor("token", (3,), "int32"), open_tensor(b, "filled", 3)
    b.op("PACK", [batch, size[2], size[5]], [token], values_count=3, axis=0)
    b.op("FILL", [token, half], [filled])
    y = open_tensor(b, "y", 3)
    b.op("CONCATENATION", [back, filled], [y], axis=1, fused_activation_function="NONE")
    return b.build([x], [y])


def open_tensor(b: ModelBuilder, name: str, rank: int) -> int:
    return b.tensor(name, (1,) * rank, "float32", shape_signature=(-1,) * rank)


def test_shapes_that_the_graph_computes() -> None:
    (outputs,) = {o[0].shape for o in check(computed_shape())}
    assert outputs == (1, 5, 5)
    (outputs,) = {o[0].shape for o in check(specialize(computed_shape(), Choice(batch=2)))}
    assert outputs == (2, 5, 5)


def test_a_static_signature_is_compared() -> None:
    b = ModelBuilder()
    x = b.tensor("x", (1, 4), "float32", shape_signature=(-1, 4))
    y = b.tensor("y", (1, 5), "float32")
    b.op("RELU", [x], [y])
    (problem,) = check_model(b.build([x], [y]))
    assert problem.code == "E1120"


@pytest.mark.parametrize("shape", [(1 << 14, 1 << 14, 2), (1,) * 9])
def test_a_computed_shape_has_limits(shape: tuple[int, ...]) -> None:
    """As declared ones have."""
    b = ModelBuilder()
    x = b.tensor("x", (1, 1), "float32")
    wanted = b.tensor("wanted", (len(shape),), "int32", data=np.array(shape, np.int32))
    y = open_tensor(b, "y", 2)
    b.op("BROADCAST_TO", [x, wanted], [y])
    assert {p.code for p in check_model(b.build([x], [y]))} <= {"E1216", "E1221", "E1121"}
    assert check_model(b.build([x], [y]))


def test_no_false_report_of_what_follows() -> None:
    """Behind an operator that is not supported and whose result is open nothing is known of the shapes."""
    b = ModelBuilder()
    x = b.tensor("x", (2, 6), "float32")
    wide, y = open_tensor(b, "wide", 2), open_tensor(b, "y", 2)
    b.op("SKIP_GRAM", [x], [wide])
    new = b.tensor("new", (2,), "int32", data=np.array([2, 7], np.int32))
    b.op("RESHAPE", [wide, new], [y])
    assert {p.code for p in check_model(b.build([x], [y]))} <= {"E1201", "E1218"}


def test_the_option_for_an_input_of_open_size() -> None:
    """The message names it, and with it the model compiles; a batch alone does not settle the size."""
    b = ModelBuilder()
    x = b.tensor("image", (1, 1, 1, 2), "float32", shape_signature=(-1, -1, -1, 2))
    y = open_tensor(b, "y", 4)
    b.op("MAX_POOL_2D", [x], [y], padding="VALID", filter_height=2, filter_width=2, stride_h=2, stride_w=2)
    model = b.build([x], [y])
    (problem,) = check_model(model)
    assert problem.code == "E1214"
    assert "--shape image=1,96,96,2" in problem.message
    found = specialize(model, Choice(shapes=(("image", (1, 6, 4, 2)),)))
    assert {o[0].shape for o in check(found)} == {(1, 3, 2, 2)}
    with pytest.raises(Exception, match="E1214"):
        specialize(model, Choice(batch=2))
    one = specialize(b.build([x], [y]), Choice(shapes=(("image", (1, 2, 2, 2)),)))
    assert not check_model(one)
