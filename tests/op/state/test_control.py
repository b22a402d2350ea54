"""Variables inside of IF and WHILE: branches and loops take them as operands and return what they assign."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.errors import InternalError
from aot.frontend.tflite import check_model, from_tflite
from aot.relay.expr import Function
from aot.relay.interpreter import StatefulFunction
from aot.relay.verify import verify
from aot.runtime.module import load
from aot.testing import ModelBuilder
from aot.testing.builder import Subgraph, assign, handle, initialize, read
from aot.testing.reference import reference_sets
from tests.op.state.test_variable import same

Array = np.ndarray[Any, Any]
SHAPE = (3,)


def binary(graph: Subgraph, name: str, a: int, c: int) -> int:
    result = graph.tensor(f"{name}_{len(graph.tensors)}", SHAPE, "float32")
    graph.op(name, [a, c], [result], fused_activation_function="NONE")
    return result


def branches(*, results: bool = True) -> bytes:
    """Where the flag is set v = v + x, else w = v * x (and v stays); both are shown after it."""
    b = ModelBuilder()
    main = b.subgraphs[0]
    initialize(b, {"v": np.ones(SHAPE, np.float32), "w": np.zeros(SHAPE, np.float32)})
    flag, x = b.tensor("flag", (1,), "bool"), b.tensor("x", SHAPE, "float32")
    for name, op in (("then", "ADD"), ("else", "MUL")):
        graph = b.subgraph(name)
        y = graph.tensor("y", SHAPE, "float32")
        value = binary(graph, op, read(graph, handle(graph, "v"), SHAPE, "float32"), y)
        assign(graph, handle(graph, "v" if op == "ADD" else "w"), value)
        graph.inputs, graph.outputs = (y,), (value,) if results else ()
    made = [b.tensor("z", SHAPE, "float32")] if results else []
    b.op("IF", [flag, x], made, then_subgraph_index=2, else_subgraph_index=3)
    shown = [read(main, handle(main, n), SHAPE, "float32") for n in ("v", "w")]
    return b.build([flag, x], [*made, *shown])


def loop(*, counted: bool = True) -> bytes:
    """From 0, or what an input says, to 4: v = v + x, with x passed on; v is shown."""
    b = ModelBuilder()
    main = b.subgraphs[0]
    initialize(b, {"v": np.zeros(SHAPE, np.float32)})
    x = b.tensor("x", SHAPE, "float32")
    start = b.tensor("start", (1,), "int32", data=np.zeros(1, np.int32) if counted else None)
    cond, body = b.subgraph("cond"), b.subgraph("body")
    i, _ = cond.inputs = (cond.tensor("i", (1,), "int32"), cond.tensor("x", SHAPE, "float32"))
    cond.outputs = (cond.tensor("go", (1,), "bool"),)
    most = cond.tensor("four", (1,), "int32", data=np.array([4], np.int32))
    cond.op("LESS", [i, most], [*cond.outputs])
    i, y = body.inputs = (body.tensor("i", (1,), "int32"), body.tensor("x", SHAPE, "float32"))
    v, following = handle(body, "v"), body.tensor("next", (1,), "int32")
    one = body.tensor("one", (1,), "int32", data=np.ones(1, np.int32))
    body.op("ADD", [i, one], [following], fused_activation_function="NONE")
    assign(body, v, binary(body, "ADD", read(body, v, SHAPE, "float32"), y))
    body.outputs = (following, y)
    results = [b.tensor("n", (1,), "int32"), b.tensor("same", SHAPE, "float32")]
    b.op("WHILE", [start, x], results, cond_subgraph_index=2, body_subgraph_index=3)
    inputs = [x] if counted else [start, x]
    return b.build(inputs, [results[0], read(main, handle(main, "v"), SHAPE, "float32")])


def handed_in() -> bytes:
    """As converters write it: the handle is an operand of IF. Where the flag is set v = v + x, else it stays; v is shown."""
    b = ModelBuilder()
    main = b.subgraphs[0]
    initialize(b, {"v": np.ones(SHAPE, np.float32)})
    flag, x, v = b.tensor("flag", (1,), "bool"), b.tensor("x", SHAPE, "float32"), handle(main, "v")
    for name in ("then", "else"):
        graph = b.subgraph(name)
        h, y = graph.inputs = (graph.tensor("h", (), "resource"), graph.tensor("y", SHAPE, "float32"))
        value = binary(graph, "ADD", read(graph, h, SHAPE, "float32"), y)
        if name == "then":
            assign(graph, h, value)
        graph.outputs = (value,)
    z = b.tensor("z", SHAPE, "float32")
    b.op("IF", [flag, v, x], [z], then_subgraph_index=2, else_subgraph_index=3)
    return b.build([flag, x], [z, read(main, v, SHAPE, "float32")])


def check(model: bytes, steps: list[list[Array]]) -> None:
    """The graph, C and the reference agree over time and after a reset."""
    main = from_tflite(model)["main"]
    assert isinstance(main, Function)
    verify(main)
    relay, expected = StatefulFunction(main), reference_sets(model, steps)
    assert same([relay.run(s) for s in steps], expected)
    for io in ("arena", "user"):
        output = compile_model(model, target="host", options=Options(io=io))
        state, host = output.initial_state(), load(output.artifact)
        assert same([output.interpret(s, state=state) for s in steps], expected)
        for _ in range(2):
            assert same([host.run(s) for s in steps], expected)
            host.reset()


@pytest.mark.parametrize("results", [True, False])
def test_branches(*, results: bool) -> None:
    rng = np.random.default_rng(2)
    flags = [True, True, False, True, False, False]
    steps: list[list[Array]] = [[np.array([f]), rng.standard_normal(SHAPE).astype(np.float32)] for f in flags]
    check(branches(results=results), steps)


def test_a_handle_that_is_handed_in() -> None:
    rng = np.random.default_rng(2)
    steps: list[list[Array]] = [[np.array([f]), rng.standard_normal(SHAPE).astype(np.float32)] for f in (True, False, True)]
    check(handed_in(), steps)


def test_loop() -> None:
    rng = np.random.default_rng(2)
    check(loop(), [[rng.standard_normal(SHAPE).astype(np.float32)] for _ in range(4)])


@pytest.mark.parametrize("make", [lambda: loop(counted=False), lambda: counted_before()], ids=["inside", "before"])
def test_after_a_run_that_is_given_up_the_state_is_at_its_start(make: Callable[[], bytes]) -> None:
    model, rng = make(), np.random.default_rng(2)
    steps: list[list[Array]] = [[np.array([n], np.int32), rng.standard_normal(SHAPE).astype(np.float32)] for n in (2, -1, 3)]
    expected = [reference_sets(model, [s])[0] for s in steps]
    for io in ("arena", "user"):
        host = load(compile_model(model, target="host", options=Options(io=io, max_iterations=10)).artifact)
        for s, e in zip(steps, expected, strict=True):
            with pytest.raises(InternalError, match="returned -"):
                host.run([np.array([-100], np.int32), s[1]])
            assert same([host.run(s)], [e])


def counted_before() -> bytes:
    """v = v + x, and then a loop from `start` to 4 that has nothing to do with it."""
    b = ModelBuilder()
    main = b.subgraphs[0]
    initialize(b, {"v": np.ones(SHAPE, np.float32)})
    start, x = b.tensor("start", (1,), "int32"), b.tensor("x", SHAPE, "float32")
    v = handle(main, "v")
    total = binary(main, "ADD", read(main, v, SHAPE, "float32"), x)
    assign(main, v, total)
    cond, body = b.subgraph("cond"), b.subgraph("body")
    (i,) = cond.inputs = (cond.tensor("i", (1,), "int32"),)
    cond.outputs = (cond.tensor("go", (1,), "bool"),)
    cond.op("LESS", [i, cond.tensor("four", (1,), "int32", data=np.array([4], np.int32))], [*cond.outputs])
    (i,) = body.inputs = (body.tensor("i", (1,), "int32"),)
    body.outputs = (body.tensor("next", (1,), "int32"),)
    body.op(
        "ADD",
        [i, body.tensor("one", (1,), "int32", data=np.ones(1, np.int32))],
        [*body.outputs],
        fused_activation_function="NONE",
    )
    n = b.tensor("n", (1,), "int32")
    b.op("WHILE", [start], [n], cond_subgraph_index=2, body_subgraph_index=3)
    return b.build([start, x], [n, binary(main, "ADD", total, x)])


def test_a_branch_without_effect() -> None:
    b = ModelBuilder()
    flag, x, y = b.tensor("flag", (1,), "bool"), b.tensor("x", SHAPE, "float32"), b.tensor("y", SHAPE, "float32")
    for name in ("then", "else"):
        graph = b.subgraph(name)
        graph.inputs, graph.outputs = (graph.tensor("y", SHAPE, "float32"),), ()
    b.op("IF", [flag, x], [], then_subgraph_index=1, else_subgraph_index=2)
    b.op("NEG", [x], [y])
    assert [p.code for p in check_model(b.build([flag, x], [y]))] == ["E1163"]
