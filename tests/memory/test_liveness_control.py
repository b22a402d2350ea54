"""Branches and loops over steps: the tree, lives that a loop extends, and plans that the check must refuse."""

from __future__ import annotations

import pytest

from aot.errors import InternalError
from aot.memory.liveness import (
    Control,
    Nested,
    Step,
    Storage,
    StorageTrace,
    liveness,
    loops_around,
    nested,
    program_conflicts,
    runs,
    with_steps,
    without_step,
)
from aot.memory.plan import MemoryPlan
from aot.memory.planner import plan
from aot.memory.verify import verify_plan

LOOP = Control("while", 1, 2, 4, 3)
BRANCH = Control("if", 1, 2, 3)


def looped() -> StorageTrace:
    """x -> v; while test(v): t = f(v), v = g(t, k); v is the result; k comes from outside."""
    names = ("x", "k", "v", "c", "t")
    steps = (Step(("x",), ("v",)), Step(("v",), ("c",)), Step(("v",), ("t",)), Step(("t", "k"), ("v",)))
    return StorageTrace(
        tuple(Storage(n, 4) for n in names), steps, ("x", "k"), ("v",), controls=(LOOP,), conditions=("c",)
    )  # fmt: skip


def branched() -> StorageTrace:
    """c from x; where it holds y = f(x), else y = g(x)."""
    steps = (Step(("x",), ("c",)), Step(("x",), ("y",)), Step(("x",), ("y",)), Step(("y",), ("z",)))
    names = ("x", "c", "y", "z")
    return StorageTrace(
        tuple(Storage(n, 4) for n in names), steps, ("x",), ("z",), controls=(BRANCH,), conditions=("c",)
    )  # fmt: skip


def test_tree() -> None:
    outer, inner = Control("while", 1, 3, 6), Control("if", 3, 4, 5)
    before, loop, after = nested((outer, inner), 7)
    assert (before, after) == (0, 6)
    assert isinstance(loop, Nested)
    assert loop.first == (1, 2)
    assert [i if isinstance(i, int) else (i.first, i.second) for i in loop.second] == [((3,), (4,)), 5]
    assert loops_around((outer, inner), 3) == (0,)


def test_steps_that_go() -> None:
    assert without_step((BRANCH,), 0) == (Control("if", 0, 1, 2),)
    assert without_step((BRANCH,), 1) == (Control("if", 1, 1, 2),)
    assert without_step((Control("if", 1, 1, 2),), 1) is None


def test_steps_that_come() -> None:
    outer, inner = Control("while", 1, 3, 6, 2), Control("if", 3, 4, 5)
    assert with_steps((outer, inner), 0, 2) == (Control("while", 3, 5, 8, 2), Control("if", 5, 6, 7))
    assert with_steps((outer, inner), 6, 2) == (outer, inner)


def test_how_often_a_step_runs() -> None:
    assert [runs((LOOP,), i) for i in range(5)] == [1, 4, 3, 3, 1]


def test_what_crosses_a_loop_lives_through_it() -> None:
    lives = {b.name: (b.first, b.last) for b in liveness(looped())}
    assert lives == {"x": (-1, 0), "k": (-1, 3), "v": (0, 4), "c": (1, 2), "t": (2, 3)}


@pytest.mark.parametrize("program", [looped(), branched()])
def test_plans_pass(program: StorageTrace) -> None:
    buffers = liveness(program)
    verify_plan(program, plan(buffers, program_conflicts(program, buffers)))


@pytest.mark.parametrize(
    ("program", "offsets", "message"),
    [
        (looped(), {"x": 0, "k": 4, "v": 8, "c": 4, "t": 12}, "reads k, but part of it was overwritten by"),
        (looped(), {"x": 0, "k": 4, "v": 8, "c": 0, "t": 4}, "reads k"),
        (looped(), {"x": 0, "k": 4, "v": 8, "c": 8, "t": 12}, "reads v"),
        (branched(), {"x": 0, "c": 0, "y": 4, "z": 0}, "reads x"),
        (branched(), {"x": 0, "c": 4, "y": 0, "z": 4}, "step 1 reads x"),
    ],
)
def test_plans_that_destroy_are_refused(program: StorageTrace, offsets: dict[str, int], message: str) -> None:
    with pytest.raises(InternalError, match=message):
        verify_plan(program, MemoryPlan(offsets, 16, 16))


def test_a_value_of_one_branch_only() -> None:
    program = branched()
    steps = (program.steps[0], Step(("x",), ("w",)), *program.steps[2:])
    bad = StorageTrace((*program.storages, Storage("w", 4)), steps, ("x",), ("z",), controls=(BRANCH,), conditions=("c",))
    with pytest.raises(InternalError, match="step 3 reads y, which nothing has written"):
        verify_plan(bad, MemoryPlan({"x": 0, "c": 4, "y": 8, "z": 12, "w": 16}, 20, 20))
