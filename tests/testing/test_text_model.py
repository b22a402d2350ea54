"""Models as text."""

from __future__ import annotations

import pytest

from aot.frontend.problems import Problems
from aot.frontend.tflite.flatbuffer import read_map
from aot.frontend.tflite.view import parse
from aot.testing.text_model import text_model

TEXT = """
in x int8[1,8] scale=0.05 zero_point=3 shape_signature=-1,8

const w int8[4,8] data=1 scale=0.1,0.2,0.3,0.4
out y int8[1,4] scale=0.2
FULLY_CONNECTED x w - -> y version=4 fused_activation_function=RELU keep_num_dims=true
"""


def test_a_model() -> None:
    view = parse(text_model(TEXT), Problems())
    assert view is not None
    graph = view.subgraphs[0]
    x, w, _ = graph.tensors
    assert (x.shape, x.shape_signature, x.dtype) == ((1, 8), (-1, 8), "int8")
    assert x.quant is not None
    assert (x.quant.scales.tolist(), x.quant.zero_points.tolist()) == ([pytest.approx(0.05)], [3])
    assert w.data is not None
    assert (w.data == 1).all()
    assert (tuple(graph.inputs), tuple(graph.outputs)) == ((0,), (2,))
    (op,) = graph.operators
    assert (op.opcode, tuple(op.inputs), tuple(op.outputs)) == ("FULLY_CONNECTED", (0, 1, -1), (2,))
    assert (op.option("fused_activation_function"), op.option("keep_num_dims")) == ("RELU", True)


def test_further_graphs_and_custom_options() -> None:
    text = """
    in x float32[1]
    out y float32[1]
    IF x x -> y then_subgraph_index=1 else_subgraph_index=1
    graph part
    in a float32[1]
    out a
    CUSTOM:Mine a -> a size=3
    """
    view = parse(text_model(text), Problems())
    assert view is not None
    main, part = view.subgraphs
    assert (main.name, tuple(main.inputs), tuple(main.outputs)) == ("main", (0,), (1,))
    assert (part.name, tuple(part.inputs), tuple(part.outputs)) == ("part", (0,), (0,))
    assert read_map(part.operators[0].custom_options) == {"size": 3}


@pytest.mark.parametrize("line", ["what is this", "in x int8", "in x int8[a]", "RELU x ->y"])
def test_lines_that_are_none(line: str) -> None:
    with pytest.raises(ValueError, match=r"neither a tensor|no type"):
        text_model(line)
