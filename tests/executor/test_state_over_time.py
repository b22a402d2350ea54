"""State over a long time: 200 steps, a reset, and two streams that take turns, against a reference for each stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot.driver.build import build, compile_model
from aot.driver.options import Options
from aot.errors import UsageError
from aot.frontend.tflite import from_tflite
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.micro.run.runner import run
from aot.relay.expr import Function
from aot.relay.interpreter import StatefulFunction
from aot.runtime.module import load
from aot.testing.reference import reference_sets
from tests.executor.copy_elision.test_state_windows import steps, stream
from tests.op.state.test_variable import accumulator, same

STEPS = 200
MODEL = stream(6, 1, twice=True)


def streams() -> list[list[list[Any]]]:
    both = steps(1, count=2 * STEPS)
    return [both[:STEPS], both[STEPS:]]


def test_two_streams_take_turns_on_one_model() -> None:
    both = streams()
    expected = [reference_sets(MODEL, s) for s in both]
    host = load(build(MODEL, target="host", options=Options(io="user")))
    states = [host.new_state(), host.new_state()]
    for n in range(STEPS):
        for k in (0, 1):
            assert same([host.run(both[k][n], state=states[k])], [expected[k][n]]), f"step {n} of stream {k}"


def test_two_hundred_steps_a_reset_and_the_other_stream() -> None:
    main = from_tflite(MODEL)["main"]
    assert isinstance(main, Function)
    relay, host = StatefulFunction(main), load(build(MODEL, target="host"))
    for inputs in streams():
        expected = reference_sets(MODEL, inputs)
        assert same([relay.run(s) for s in inputs], expected)
        assert same([host.run(s) for s in inputs], expected)
        relay.reset()
        host.reset()


def test_states_that_do_not_belong_to_the_model() -> None:
    inputs = steps(1, count=1)[0]
    with pytest.raises(UsageError, match="E5022"):
        load(build(MODEL, target="host")).run(inputs, state=np.zeros(28, np.uint8))
    with pytest.raises(UsageError, match="E5022"):
        load(build(MODEL, target="host", options=Options(io="user"))).run(inputs, state=np.zeros(3, np.uint8))


def test_the_budget_for_ram_counts_the_state() -> None:
    usual = compile_model(MODEL, options=Options(rings="copy")).artifact.metadata
    assert usual["state"]["size"] == 28
    from aot.executor.artifact import over_budget

    total = usual["workspace"]["size"] + 28
    for budget, codes in ((total, []), (total - 1, ["E2021"])):
        meta = compile_model(MODEL, options=Options(ram_budget=budget, rings="copy")).artifact.metadata
        assert [p.code for p in over_budget(meta)] == codes


@pytest.mark.qemu
@pytest.mark.parametrize("io", ["arena", "user"])
@pytest.mark.parametrize("which", ["stream", "sum"])
def test_on_a_board(which: str, io: Any, tmp_path: Path) -> None:
    board = load_board("mps2-an386")
    model = MODEL if which == "stream" else accumulator(np.arange(6, dtype=np.float32).reshape(2, 3))
    rng = np.random.default_rng(1)
    sets = steps(1, count=20) if which == "stream" else [[rng.standard_normal((2, 3)).astype(np.float32)] for _ in range(20)]
    project = prepare(build(model, target=board.cpu, options=Options(io=io)), board, folder=tmp_path)
    assert same(run(project, sets).outputs, reference_sets(model, sets))
    assert same(run(project, sets, mode="poison").outputs, reference_sets(model, sets))
