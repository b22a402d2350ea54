"""What is alive after each call of branches and loops; whole networks: tests/executor/test_control_flow.py."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.errors import InternalError, UsageError
from aot.executor.copy_elision import live_after, without_copies
from aot.executor.lowered import KernelCall, LoweredModule
from aot.frontend.tflite import from_tflite
from aot.memory.liveness import Control
from aot.relay import interpreter
from aot.relay.expr import Function
from aot.relay.interpreter import EndlessLoopError, StatefulFunction, evaluate
from aot.runtime.graph import GraphModule
from aot.runtime.module import load
from aot.testing.reference import reference_sets
from aot.testing.text_model import text_model
from aot.tir.interpreter import InterpreterError
from tests.executor.nets import add, tensor
from tests.executor.variable_texts import on_a_variable
from tests.op.state.test_variable import check, same

X, K, C, A, B, Y = (tensor(n, 8) for n in "xkcaby")


def net(control: Control) -> LoweredModule:
    """c = x + x; under `control` a = b + k, b = a + k; y = b + b."""
    calls = (
        KernelCall("add", (X, X), (C,)),
        KernelCall("add", (B, K), (A,)),
        KernelCall("add", (A, K), (B,)),
        KernelCall("add", (B, B), (Y,)),
    )
    return LoweredModule(
        {"add": add(8)}, "net", inputs=(X, K, B), outputs=(Y,), calls=calls, controls=(control,), conditions=(C,),
        variables=frozenset({B}),
    )  # fmt: skip


def test_branches_join_what_both_sides_need() -> None:
    after = live_after(net(Control("if", 1, 2, 3)))
    assert after[3] == {Y}
    assert after[2] == {B}, "of the second part"
    assert after[1] == {B}, "b is not made there and is read behind the branch"
    assert after[0] == {C, B, K, A}, "either part may run next"


def test_a_loop_needs_again_what_it_reads() -> None:
    after = live_after(net(Control("while", 1, 2, 3)))
    assert after[2] == {B, K, C}, "the next iteration reads b and k, and c decides"
    assert {A, B, K} <= after[1]
    assert after[0] == {B, K, C}


def test_without_branches_nothing_is_done() -> None:
    straight = replace(net(Control("if", 1, 2, 3)), controls=(), conditions=())
    assert without_copies(straight) is straight


def controlled(*, loop: bool = True, first: str = "zero", source: str = "old", factor: str = "x") -> bytes:
    """A loop or a branch on a variable and x, and what comes out times `factor`."""
    front = "\n    in x float32[1,4]\n    in k int32[]\n"
    back = f"    out y float32[1,4]\n    MUL sum {factor} -> y\n"
    return text_model(on_a_variable(front, width=4, other="x", loop=loop, first=first, source=source, back=back))


def steps(count: int) -> list[list[np.ndarray[Any, Any]]]:
    rng = np.random.default_rng(5)
    return [[rng.standard_normal((1, 4)).astype(np.float32), np.array(rng.integers(-2, 3), np.int32)] for _ in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "moved"),
    [
        (controlled(), 0),
        (controlled(source="start"), 0),
        (controlled(factor="old"), 16),  # the old value is read after the loop
        (controlled(first="k"), 0),  # a run that is given up begins anew
        (controlled(loop=False), 0),
    ],
    ids=["old", "start", "read later", "given up", "branch"],
)
def test_a_loop_goes_on_in_the_state(model: bytes, moved: int) -> None:
    check(model, steps(8))
    found = compile_model(model).artifact.metadata["state"]
    assert (found["bytes_new"], found["bytes_moved"]) == (16, moved)
    host = load(compile_model(model, target="host").artifact)
    for seed in range(2):
        inputs = steps(200)[seed * 50 :]
        assert same([host.run(s) for s in inputs], reference_sets(model, inputs))
        host.reset()


@pytest.mark.slow
@pytest.mark.parametrize("given", [{}, {"io": "user"}, {"in_steps": True}, {"in_steps": True, "io": "user"}])
@pytest.mark.parametrize("factor", ["x", "old"])
def test_a_run_that_is_given_up_begins_anew(factor: str, given: dict[str, Any]) -> None:
    """Its loop works on the state itself, so that has its first values again: in C, in the interpreter and layer by layer."""
    model = controlled(first="k", factor=factor)
    made = compile_model(model, target="host", options=Options(max_iterations=7, **given))
    runs = steps(3)
    wanted = reference_sets(model, runs)
    endless = [runs[0][0], np.array(-100, np.int32)]
    host, graph, state = load(made.artifact), GraphModule(made.artifact), made.initial_state()
    for _ in range(2):
        assert same([host.run(s) for s in runs], wanted)
        assert same([made.interpret(s, state=state) for s in runs], wanted)
        for s, w in zip(runs, wanted, strict=True):
            graph.run(x=s[0], k=s[1])
            assert graph.get_output(0).tobytes() == w[0].tobytes()
        with pytest.raises(InternalError, match="-5"):
            host.run(endless)
        with pytest.raises(InterpreterError):
            made.interpret(endless, state=state)
        with pytest.raises(UsageError, match="7 iterations"):
            graph.run(x=endless[0], k=endless[1])


def test_so_does_the_interpreter_of_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    main = from_tflite(controlled(first="k"))["main"]
    assert isinstance(main, Function)
    model, (one, *_) = StatefulFunction(main), steps(1)
    (first,) = model.run(one)
    monkeypatch.setattr(interpreter, "evaluate", partial(evaluate, limit=7))
    with pytest.raises(EndlessLoopError):
        model.run([one[0], np.array(-100, np.int32)])
    assert same([model.run(one)], [[first]])
