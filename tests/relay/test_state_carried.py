"""carried: which layers copy rows of a state only to keep them, and how many of them a new value is."""

from __future__ import annotations

import pytest

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.frontend.tflite import from_tflite
from aot.ir.transform import PassContext
from aot.relay.expr import Call, Function, post_order
from aot.relay.state import carried
from aot.relay.transform import pipeline
from aot.testing.text_model import text_model

MODEL = """
    in x float32[1,1,4]
    tensor v resource[]
    CALL_ONCE -> init_subgraph_index=1
    VAR_HANDLE -> v shared_name=v
    tensor old float32[1,5,4]
    READ_VARIABLE v -> old
    {body}
    ASSIGN_VARIABLE v new ->
    graph initialize
    tensor v resource[]
    const first float32[1,5,4] data=0
    VAR_HANDLE -> v shared_name=v
    ASSIGN_VARIABLE v first ->
"""
JOINED = """
    tensor join float32[1,6,4]
    CONCATENATION old x -> join axis=1
    const begin int32[3] data=0,1,0
    const size int32[3] data=1,5,4
"""
BODIES = {
    "slice of an activation": JOINED
    + "out y float32[1,6,4]\nRELU join -> y\ntensor new float32[1,5,4]\nSLICE y begin size -> new",
    "activation of a slice": JOINED
    + "tensor tail float32[1,5,4]\nSLICE join begin size -> tail\nout new float32[1,5,4]\nRELU tail -> new",
    "only read": JOINED + "out y float32[1,6,4]\nNEG join -> y\ntensor new float32[1,5,4]\nADD old x -> new",
    "in its place": "out new float32[1,5,4]\nRELU old -> new",
}


def layers(body: str) -> tuple[tuple[int, ...], list[int]]:
    with PassContext():
        main = pipeline()(from_tflite(text_model(MODEL.format(body=BODIES[body]))))["main"]
    assert isinstance(main, Function)
    found = carried(main)
    calls = [e for e in post_order(main.body) if isinstance(e, Call) and id(e) in found.layers]
    return found.kept, [found.layers[id(c)] for c in calls]


@pytest.mark.parametrize(
    ("body", "kept", "moved"),
    [
        ("slice of an activation", 64, [80, 64]),  # all five rows are joined, four of them cut out again
        ("activation of a slice", 64, [64]),  # in one layer
        ("only read", 0, []),
        ("in its place", 0, []),
    ],
)
def test_rows_that_stay(body: str, kept: int, moved: list[int]) -> None:
    assert layers(body) == ((kept,), moved)


@pytest.mark.parametrize("body", list(BODIES))
def test_the_metadata_says_so(body: str) -> None:
    told = compile_model(text_model(MODEL.format(body=BODIES[body])), options=Options(rings="copy")).artifact.metadata["state"]
    kept, moved = layers(body)
    assert told["bytes_new"] == 80 - sum(kept)
    assert told["bytes_moved"] >= sum(moved)
