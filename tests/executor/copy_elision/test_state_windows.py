"""Streaming states: rows that are kept are not copied but moved on once, and states that are replaced lie in one place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.testing import ModelBuilder
from aot.testing.builder import assign, handle, initialize, read
from aot.testing.text_model import text_model
from tests.op.state.test_variable import check

Array = np.ndarray[Any, Any]


def stream(kept: int, new: int, width: int = 4, *, twice: bool = False) -> bytes:
    """The rows of the last steps and this one's in one window, whose sum over rows comes out; `twice`: the kept rows as well."""
    b = ModelBuilder()
    main = b.subgraphs[0]
    quant = {"scale": 0.5, "zero_point": -3}
    initialize(b, {"rows": np.full((1, kept, width), -3, np.int8)}, rows=quant)
    x = b.tensor("x", (1, new, width), "int8", **quant)
    v = handle(main, "rows")
    old = read(main, v, (1, kept, width), "int8", **quant)
    window = b.tensor("window", (1, kept + new, width), "int8", **quant)
    b.op("CONCATENATION", [old, x], [window], axis=1, fused_activation_function="NONE")
    begin, size = (
        b.tensor(n, (3,), "int32", data=np.array(d, np.int32)) for n, d in (("b", (0, new, 0)), ("s", (1, kept, width)))
    )
    tail = b.tensor("tail", (1, kept, width), "int8", **quant)
    b.op("SLICE", [window, begin, size], [tail])
    assign(main, v, tail)
    axis = b.tensor("axis", (1,), "int32", data=np.array([1], np.int32))
    y = b.tensor("y", (1, width), "int8", **quant)
    b.op("REDUCE_MAX", [window, axis], [y], keep_dims=False)
    outputs = [y]
    if twice:
        outputs.append(b.tensor("old_max", (1, width), "int8", **quant))
        b.op("REDUCE_MAX", [old, axis], [outputs[-1]], keep_dims=False)
    return b.build([x], outputs)


def steps(new: int, width: int = 4, count: int = 12) -> list[list[Array]]:
    rng = np.random.default_rng(7)
    return [[rng.integers(-128, 128, (1, new, width)).astype(np.int8)] for _ in range(count)]


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize(("kept", "new", "width"), [(5, 1, 4), (2, 3, 4), (3, 1, 5), (1, 1, 1)])
@pytest.mark.parametrize("io", ["arena", pytest.param("user", marks=pytest.mark.slow)])
def test_a_window_moves_on(kept: int, new: int, width: int, io: str, *, twice: bool) -> None:
    check(stream(kept, new, width, twice=twice), steps(new, width), io=io)


def test_kept_rows_are_moved_once_and_no_more() -> None:
    meta = compile_model(stream(20, 1), options=Options(rings="copy")).artifact.metadata
    assert meta["state"]["size"] == 21 * 4, "one row more than the state: the window"
    assert meta["state"]["bytes_written"] == meta["state"]["bytes_moved"] == 20 * 4
    assert meta["workspace"]["size"] < 20 * 4, "the window is not in the workspace"


def test_a_state_that_is_replaced_is_written_where_it_lies() -> None:
    b = ModelBuilder()
    main = b.subgraphs[0]
    initialize(b, {"sum": np.zeros((1, 8), np.float32)})
    x, y = b.tensor("x", (1, 8), "float32"), b.tensor("y", (1, 8), "float32")
    v, total = handle(main, "sum"), b.tensor("total", (1, 8), "float32")
    b.op("ADD", [read(main, v, (1, 8), "float32"), x], [total], fused_activation_function="NONE")
    assign(main, v, total)
    b.op("NEG", [total], [y])
    model = b.build([x], [y])
    rng = np.random.default_rng(3)
    check(model, [[rng.standard_normal((1, 8)).astype(np.float32)] for _ in range(5)])
    assert compile_model(model).artifact.metadata["state"]["bytes_moved"] == 0


def test_an_old_value_that_is_read_later_stays() -> None:
    b = ModelBuilder()
    main = b.subgraphs[0]
    initialize(b, {"last": np.zeros((1, 8), np.float32)})
    x, y = b.tensor("x", (1, 8), "float32"), b.tensor("y", (1, 8), "float32")
    v, twice = handle(main, "last"), b.tensor("twice", (1, 8), "float32")
    old = read(main, v, (1, 8), "float32")
    b.op("ADD", [x, x], [twice], fused_activation_function="NONE")
    assign(main, v, twice)
    b.op("SUB", [twice, old], [y], fused_activation_function="NONE")
    rng = np.random.default_rng(3)
    model = b.build([x], [y])
    check(model, [[rng.standard_normal((1, 8)).astype(np.float32)] for _ in range(5)])


BESIDE = """
    in x float32[1,1,4]
    in k int32[]
    tensor v resource[]
    CALL_ONCE -> init_subgraph_index=3
    VAR_HANDLE -> v shared_name=v
    tensor old float32[1,12,4]
    READ_VARIABLE v -> old
    tensor window float32[1,13,4]
    const begin int32[3] data=0,1,0
    const size int32[3] data=1,12,4
    tensor tail float32[1,12,4]
    const axis int32[1] data=1
    tensor most float32[1,4]
    const zero int32[] data=0
    const like int32[3] data=1,1,4
    tensor go bool[]
    LESS k zero -> go
    {before}
    CONCATENATION old new -> window axis=1 fused_activation_function=NONE
    SLICE window begin size -> tail
    ASSIGN_VARIABLE v tail ->
    REDUCE_MAX window axis -> most keep_dims=0
    {after}
    graph then
    in a float32[{shape}]
    out twice float32[{shape}]
    ADD a a -> twice
    graph else
    in a float32[{shape}]
    out square float32[{shape}]
    MUL a a -> square
    graph initialize
    tensor v resource[]
    const zeros float32[1,12,4] data=0
    VAR_HANDLE -> v shared_name=v
    ASSIGN_VARIABLE v zeros ->
"""
IF = "IF go {} -> {} then_subgraph_index=1 else_subgraph_index=2"


@pytest.mark.parametrize(
    ("before", "after", "shape"),
    [
        ("tensor new float32[1,1,4]\nRESHAPE x like -> new", "out y float32[1,4]\n" + IF.format("most", "y"), "1,4"),
        ("tensor new float32[1,1,4]\n" + IF.format("x", "new"), "out y float32[1,4]\nADD most most -> y", "1,1,4"),
    ],
)
def test_a_window_beside_a_branch_slides(before: str, after: str, shape: str) -> None:
    model = text_model(BESIDE.format(before=before, after=after, shape=shape))
    rng = np.random.default_rng(3)
    inputs: list[list[Array]] = [
        [rng.standard_normal((1, 1, 4)).astype(np.float32), np.array(rng.integers(-2, 2), np.int32)] for _ in range(40)
    ]
    check(model, inputs)
    found = compile_model(model)
    told = found.artifact.metadata["state"]
    assert found.layout.rings is not None
    assert told["bytes_moved"] <= 1.2 * told["bytes_new"]
