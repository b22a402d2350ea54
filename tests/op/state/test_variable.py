"""Variables: relay, the TIR interpreter, C and the reference agree over time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.errors import AotError
from aot.frontend.tflite import check_model, from_tflite
from aot.relay.expr import Function
from aot.relay.interpreter import StatefulFunction
from aot.relay.state import state_of
from aot.runtime.graph import GraphModule
from aot.runtime.module import load
from aot.testing import ModelBuilder
from aot.testing.builder import assign, handle, initialize, read
from aot.testing.reference import reference_sets

Array = np.ndarray[Any, Any]
Sets = list[list[Array]]


def accumulator(initial: Array) -> bytes:
    """y = v, then v = v + x."""
    b = ModelBuilder()
    initialize(b, {"v": initial})
    x = b.tensor("x", initial.shape, "float32")
    v = handle(b.subgraphs[0], "v")
    before = read(b.subgraphs[0], v, initial.shape, "float32")
    after = b.tensor("after", initial.shape, "float32")
    b.op("ADD", [before, x], [after], fused_activation_function="NONE")
    assign(b.subgraphs[0], v, after)
    return b.build([x], [before])


def swap(shape: tuple[int, ...] = (3,)) -> bytes:
    """Two variables change places; one becomes the input of the step before the last."""
    b = ModelBuilder()
    main = b.subgraphs[0]
    initialize(b, {"a": np.arange(3, dtype=np.float32), "b": np.zeros(3, np.float32)})
    x = b.tensor("x", shape, "float32")
    a, c = handle(main, "a"), handle(main, "b")
    old_a, old_b = read(main, a, shape, "float32"), read(main, c, shape, "float32")
    assign(main, a, old_b)
    assign(main, c, old_a)
    y = b.tensor("y", shape, "float32")
    b.op("ADD", [read(main, a, shape, "float32"), x], [y], fused_activation_function="NONE")
    return b.build([x], [y, old_a])


def sets(shape: tuple[int, ...], count: int = 6) -> Sets:
    rng = np.random.default_rng(5)
    return [[rng.standard_normal(shape).astype(np.float32)] for _ in range(count)]


def same(found: Sets, expected: Sets) -> bool:
    return all(a.tobytes() == b.tobytes() for f, e in zip(found, expected, strict=True) for a, b in zip(f, e, strict=True))


def check(model: bytes, steps: Sets, *, io: Any = "arena", opt: str = "balanced") -> None:
    """All ways of running the model over time, and once more after a reset."""
    expected = reference_sets(model, steps)
    main = from_tflite(model)["main"]
    assert isinstance(main, Function)
    relay = StatefulFunction(main)
    assert same([relay.run(s) for s in steps], expected)
    relay.reset()
    assert same([relay.run(s) for s in steps], expected)
    output = compile_model(model, options=Options(io=io, opt=opt))
    state = output.initial_state()
    assert same([output.interpret(s, state=state) for s in steps], expected)
    host, graph = load(output.artifact), GraphModule(output.artifact)
    for _ in range(2):
        assert same([host.run(s) for s in steps], expected)
        host.reset()
        for s, e in zip(steps, expected, strict=True):
            for i, array in enumerate(s):
                graph.set_input(i, array)
            graph.run()
            assert same([[graph.get_output(i) for i in range(len(e))]], [e])
        graph.reset()


@pytest.mark.parametrize("io", ["arena", "user"])
@pytest.mark.parametrize("start", [0.0, 2.5])
def test_accumulator(io: str, start: float) -> None:
    check(accumulator(np.full((2, 3), start, np.float32)), sets((2, 3)), io=io)


def test_initial_values_from_flash() -> None:
    model = accumulator(np.arange(6, dtype=np.float32).reshape(2, 3))
    check(model, sets((2, 3)))
    text = compile_model(model).artifact.files["model_params.c"]
    assert "initial value of the state v" in text


@pytest.mark.parametrize("io", ["arena", "user"])
def test_two_variables_change_places(io: str) -> None:
    check(swap(), sets((3,)), io=io)


def test_a_variable_that_nothing_assigns_is_a_constant() -> None:
    b = ModelBuilder()
    initialize(b, {"v": np.arange(3, dtype=np.float32)})
    x, y = b.tensor("x", (3,), "float32"), b.tensor("y", (3,), "float32")
    b.op("ADD", [read(b.subgraphs[0], handle(b.subgraphs[0], "v"), (3,), "float32"), x], [y], fused_activation_function="NONE")
    model = b.build([x], [y])
    main = from_tflite(model)["main"]
    assert isinstance(main, Function)
    assert state_of(main) == ()
    assert same([load(compile_model(model).artifact).run(sets((3,), 1)[0])], reference_sets(model, sets((3,), 1)))


def test_size_is_in_header_and_metadata() -> None:
    artifact = compile_model(accumulator(np.zeros((2, 3), np.float32))).artifact
    assert artifact.metadata["state"]["size"] == 24
    assert "#define MODEL_STATE_SIZE 24u" in artifact.files["model.h"]


def test_messages() -> None:
    b = ModelBuilder()
    main = b.subgraphs[0]
    x, y = b.tensor("x", (3,), "float32"), b.tensor("y", (3,), "float32")
    z = b.tensor("z", (1, 3), "float32", data=np.zeros((1, 3), np.float32))
    v = handle(main, "v")
    assign(main, v, x)
    assign(main, v, z)
    initialize(b, {"v": np.zeros(3, np.float32)})
    h = b.tensor("h", (), "int32")
    b.op("READ_VARIABLE", [h], [y])
    found = check_model(b.build([x, h], [y]))
    assert [p.code for p in found] == ["E1151", "E1153", "E1150"]


def test_a_handle_cannot_be_an_input() -> None:
    b = ModelBuilder()
    h, y = b.tensor("h", (), "resource"), b.tensor("y", (3,), "float32")
    b.op("READ_VARIABLE", [h], [y])
    with pytest.raises(AotError, match="E1218"):
        from_tflite(b.build([h], [y]))
