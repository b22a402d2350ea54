"""One graph of a model, with the shapes that are asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot.errors import AotError, UsageError
from aot.frontend.formats import Choice
from aot.frontend.problems import Problems
from aot.frontend.tflite import check_model
from aot.frontend.tflite.specialize import specialize
from aot.frontend.tflite.view import parse
from aot.testing import ModelBuilder
from tests.corpus.test_corpus import difference
from tests.op._differential import check, main_of

SHARED = Path(__file__).parents[4] / "shared" / "models"


def picture(*, signature: tuple[int, ...] | None = (-1, -1, -1, 3), shape: tuple[int, ...] = (1, 4, 4, 3)) -> bytes:
    """CONV_2D, MEAN over the image, FULLY_CONNECTED, RESHAPE: all of a picture of any size, as a converter writes it."""
    b = ModelBuilder()
    rng = np.random.default_rng(3)
    x = b.tensor("image", shape, "float32", shape_signature=signature)
    w = b.tensor("w", (4, 3, 3, 3), "float32", data=rng.normal(size=(4, 3, 3, 3)).astype(np.float32))
    c = b.tensor("c", (4,), "float32", data=np.zeros(4, np.float32))
    y = b.tensor("y", (*shape[:3], 4), "float32", shape_signature=None if signature is None else (-1, -1, -1, 4))
    b.op("CONV_2D", [x, w, c], [y], version=1, padding="SAME", stride_h=1, stride_w=1, fused_activation_function="RELU")
    axes = b.tensor("axes", (2,), "int32", data=np.array([1, 2], np.int32))
    m = b.tensor("m", (1, 4), "float32", shape_signature=(-1, 4))
    b.op("MEAN", [y, axes], [m], keep_dims=False)
    v = b.tensor("v", (5, 4), "float32", data=rng.normal(size=(5, 4)).astype(np.float32))
    d = b.tensor("d", (1, 5), "float32", shape_signature=(-1, 5))
    b.op("FULLY_CONNECTED", [m, v, -1], [d], version=1, fused_activation_function="NONE")
    new = b.tensor("new", (3,), "int32", data=np.array([-1, 5, 1], np.int32))
    z = b.tensor("scores", (1, 5, 1), "float32", shape_signature=(-1, 5, 1))
    b.op("RESHAPE", [d, new], [z])
    b.signature("classify", inputs={"picture": x}, outputs={"scores": z})
    return b.build([x], [z])


def shapes_of(model: bytes) -> tuple[tuple[int, ...], ...]:
    main = main_of(model)
    return (*(v.type.shape for v in main.params), main.body.type.shape)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["image", "picture"])
def test_shapes_follow(name: str) -> None:
    """By the tensor's name or the signature's; the batch on top."""
    model = specialize(picture(), Choice(shapes=((name, (3, 6, 5, 3)),)))
    assert shapes_of(model) == ((3, 6, 5, 3), (3, 5, 1))
    check(model)
    assert shapes_of(specialize(picture(), Choice(batch=2))) == ((2, 4, 4, 3), (2, 5, 1))


def test_unknown_dimensions_become_known() -> None:
    """A file that has -1 in the shape itself."""
    model = picture(shape=(1, -1, -1, 3), signature=None)
    assert {p.code for p in check_model(model)} == {"E1214"}
    check(specialize(model, Choice(shapes=(("image", (1, 6, 5, 3)),))))


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice(shapes=(("photo", (1, 4, 4, 3)),)), "the model's inputs are: image, picture"),
        (Choice(shapes=(("image", (1, 4, 4, 1)),)), "dimension 3 is fixed to 3 in the model"),
        (Choice(shapes=(("image", (4, 4, 3)),)), "3 dimensions, but the input has 4"),
        (Choice(shapes=(("image", (1, 0, 4, 3)),)), "below 1"),
        (Choice(batch=0), "at least 1"),
        (Choice(signature="train"), "the model's signatures are: classify"),
        (Choice(signature="classify", subgraph=1), "contradicts"),
        (Choice(subgraph=1), "the model has 1"),
    ],
)
def test_refused(choice: Choice, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        specialize(picture(), choice)


def test_shapes_that_do_not_go_through_are_refused() -> None:
    """With the problem of the operator, not a traceback."""
    b = ModelBuilder()
    x = b.tensor("x", (1, 4), "float32", shape_signature=(-1, 4))
    new = b.tensor("new", (2,), "int32", data=np.array([2, 2], np.int32))
    y = b.tensor("y", (2, 2), "float32")
    b.op("RESHAPE", [x, new], [y])
    with pytest.raises(AotError, match="E1121"):
        specialize(b.build([x], [y]), Choice(batch=3))


def two_graphs() -> bytes:
    """x + y; and a composite of it under a signature, with its first operand twice."""
    b = ModelBuilder()

    def graph(g: Any, op: str, **options: Any) -> None:
        x, y, z = (g.tensor(n, (1, 3), "float32", shape_signature=(-1, 3)) for n in "xyz")
        g.op(op, [x, y] if op == "SUB" else [y, x], [z], **options)
        g.inputs, g.outputs = (x, y), (z,)

    graph(b.subgraphs[0], "SUB", fused_activation_function="NONE")
    attributes = {"name": "part", "composite_attributes": [0, 0, 1, 0, 0, 0x24, 1]}
    graph(b.subgraph("turned"), "STABLEHLO_COMPOSITE", decomposition_subgraph_index=0, **attributes)
    b.signature("turned", inputs={"x": 0, "y": 1}, outputs={"z": 2}, subgraph=1)
    return b.serialize()


@pytest.mark.parametrize("choice", [Choice(subgraph=1), Choice(signature="turned")])
def test_another_graph(choice: Choice) -> None:
    """It comes first, and what it runs is found under its new number."""
    model = specialize(two_graphs(), choice)
    (found,) = check(model, [np.array([[1, 2, 3]], np.float32), np.array([[5, 5, 5]], np.float32)])
    assert found[0].tolist() == [[4, 3, 2]]


def test_nothing_chosen_changes_nothing() -> None:
    model = picture()
    assert specialize(model, Choice()) is model
    assert specialize(b"no model", Choice(batch=2)) == b"no model"
    view = parse(specialize(model, Choice(batch=1)), Problems())
    assert view is not None
    assert [t.shape for t in view.subgraphs[0].tensors] == [t.shape for t in parse(model, Problems()).subgraphs[0].tensors]  # type: ignore[union-attr]


def within_the_contract(found: Sequence[Any], wanted: Sequence[Any], message: str) -> None:
    faults = [difference(a, b) for a, b in zip(found, wanted, strict=True)]
    assert not any(faults), f"{message}: {faults}"


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not there")
def test_batches_of_the_shared_models() -> None:
    """Every small model with a dynamic batch runs in a batch of 2, with the reference's integers and close to its floats."""
    entries = json.loads((SHARED / "MANIFEST.json").read_text())["models"]
    refused_by_the_reference = {"broadcast_to_float", "rsqrt_a16w8"}
    ran = 0
    for entry in entries:
        wanted = entry["dynamic_shape_signature"] and entry["expected"] == "runs" and not entry["stateful"]
        if "WHILE" in entry["operators"]:
            continue  # a loop's own graph keeps the shapes that it declares
        if not wanted or entry["macs"] > 1_000_000 or entry["name"] in refused_by_the_reference:
            continue
        data = (SHARED / entry["file"]).read_bytes()
        if not check_model(data):
            check(specialize(data, Choice(batch=2)), agree=within_the_contract)
            ran += 1
    assert ran > 20


def test_a_shape_that_is_in_the_graph() -> None:
    """Of a constant operand or a loop's graph: not of the operator where it shows."""
    b = ModelBuilder()
    x = b.tensor("x", (1, 8), "float32", shape_signature=(-1, 8))
    y = b.tensor("y", (1, 2, 4), "float32")
    b.op("RESHAPE", [x, b.tensor("shape", (3,), "int32", data=np.array([1, 2, 4], np.int32))], [y])
    model = b.build([x], [y])
    specialize(model, Choice(batch=1))
    with pytest.raises(AotError) as found:
        specialize(model, Choice(batch=2))
    (problem,) = found.value.problems
    assert (problem.code, problem.where) == ("E1240", 'op 0 RESHAPE "y"')
    assert "not [2, 8] for x, which has [1, 8]: reshape of float32[2, 8] to [1, 2, 4]" in problem.message
