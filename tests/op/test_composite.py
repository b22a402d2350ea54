"""STABLEHLO_COMPOSITE: the subgraph stands in its place."""

from __future__ import annotations

import pytest

from aot.errors import AotError
from aot.frontend.tflite import check_model
from aot.frontend.tflite import graph as walk
from aot.relay.expr import Call, post_order
from aot.testing import ModelBuilder
from tests.op._differential import check, main_of

EMPTY_MAP = [0, 0, 1, 0, 0, 0x24, 1]
"""A flexbuffer; the reference insists on attributes."""


def composites(depth: int, *, times: int = 1, inner: str = "ADD", inputs: int = 2) -> bytes:
    """`depth` subgraphs, each running the next one `times` times in a row on (x, y); the innermost is one operator."""
    b = ModelBuilder()
    graphs = [b, *(b.subgraph(f"part{i}") for i in range(1, depth + 1))]
    for i, graph in enumerate(graphs):
        given = [graph.tensor(name, (2, 3), "float32") for name in ("x", "y")]
        value = given[0]
        for turn in range(times if i < depth else 1):
            result = graph.tensor(f"z{turn}", (2, 3), "float32")
            if i == depth:
                options = {} if inner == "EQUAL" else {"fused_activation_function": "NONE"}
                graph.op(inner, [value, given[1]], [result], **options)
            else:
                operands = [value, given[1]][: inputs if i == 0 else 2]
                attributes = {"name": "part", "composite_attributes": EMPTY_MAP}
                graph.op("STABLEHLO_COMPOSITE", operands, [result], decomposition_subgraph_index=i + 1, **attributes)
            value = result
        if graph is not b:
            graph.inputs, graph.outputs = given, [value]
        else:
            outer = given, [value]
    return b.build(*outer)


def test_inlined() -> None:
    model = composites(2, times=3)
    check(model, host=True)
    calls = [e for e in post_order(main_of(model).body) if isinstance(e, Call)]
    assert [str(c.op) for c in calls] == ["add"] * 9
    assert {c.span.opcode for c in calls} == {"STABLEHLO_COMPOSITE"}
    assert [c.span.op_index for c in calls] == [0, 0, 0, 1, 1, 1, 2, 2, 2], "operators of the graph that is compiled"


def test_refused() -> None:
    """Once, not for every operator that an unsupported one inside keeps from being known."""
    (problem,) = check_model(composites(2, times=2, inner="EQUAL"))
    assert problem.code == "E1120"
    assert "of subgraph 2" in problem.where
    with pytest.raises(AotError, match="E1117"):
        main_of(composites(1, inputs=1))


def test_growth_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "MAX_INLINED", 4 + 8 + 16 + 32 + 32)
    assert check_model(composites(5, times=2)) == []
    assert {p.code for p in check_model(composites(6, times=2))} == {"E1222"}
