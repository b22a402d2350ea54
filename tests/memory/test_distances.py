"""Conflicts with distances: the planner against all positions, the verifier against programs that break them."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from aot.errors import InternalError
from aot.memory.liveness import Step, Storage, StorageTrace, liveness, program_conflicts
from aot.memory.plan import Conflict
from aot.memory.planner import plan
from aot.memory.verify import verify_plan
from tests.memory.allowed import allowed
from tests.memory.programs import random_program
from tests.scale import cases


def with_distances(program: StorageTrace, seed: int) -> StorageTrace:
    """The program where some steps may overlap what they read with what they write, at random distances."""
    rng = random.Random(seed)
    size = {s.name: s.size for s in program.storages}
    steps = []
    for step in program.steps:
        pairs = []
        for a, b in itertools.product(step.writes, step.reads):
            if rng.random() < 0.6 and b in size:
                d = rng.choice([0, rng.randint(-10, size[a] + 5), rng.randint(0, size[a] + 1)])
                pairs.append(Conflict(*((a, b) if rng.random() < 0.7 else (b, a)), d))
        steps.append(replace(step, distances=tuple(pairs)))
    return replace(program, steps=tuple(steps))


def check_random(seed: int, *, nodes: int) -> tuple[int, int]:
    """Size and bound of a plan that keeps all its conflicts and satisfies the verifier."""
    program = with_distances(random_program(seed), seed)
    buffers = liveness(program)
    pairs = program_conflicts(program, buffers)
    result = plan(buffers, pairs, effort=20_000, nodes=nodes)
    verify_plan(program, result)
    size = {b.name: b.size for b in buffers}
    for c in pairs:
        assert allowed(c, (result.offset[c.a], size[c.a]), (result.offset[c.b], size[c.b])), c
    assert all(result.offset[b.name] % b.align == 0 for b in buffers)
    assert result.size >= result.lower_bound
    return result.size, result.lower_bound


@pytest.mark.parametrize("block", range(2))
def test_random_programs(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        check_random(seed, nodes=20)


@pytest.mark.slow
def test_a_thousand_programs_come_close_to_their_bound() -> None:
    found = [check_random(seed, nodes=100) for seed in range(5000, 5000 + cases(1000))]
    ratios = [size / bound for size, bound in found if bound]
    average = sum(ratios) / len(ratios)
    print(f"{len(ratios)} programs: plan / lower bound {average:.4f} on average, {max(ratios):.3f} at most")
    assert average <= 1.05


def element_wise(distance: int | None) -> StorageTrace:
    pairs = () if distance is None else (Conflict("y", "x", distance),)
    return StorageTrace((Storage("x", 100), Storage("y", 80)), (Step(("x",), ("y",), pairs),), ("x",), ("y",))


@pytest.mark.parametrize(("distance", "size"), [(None, 180), (0, 100), (30, 130), (100, 180)])
def test_output_behind_its_input(distance: int | None, size: int) -> None:
    program = element_wise(distance)
    buffers = liveness(program)
    result = plan(buffers, program_conflicts(program, buffers))
    assert (result.size, result.lower_bound, result.optimal) == (size, size, True)
    verify_plan(program, result)


def test_verifier_refuses_a_distance_that_is_too_short() -> None:
    program = element_wise(30)
    buffers = liveness(program)
    good = plan(buffers, program_conflicts(program, buffers))
    bad = replace(good, offset={"y": 0, "x": 10})
    with pytest.raises(InternalError, match="step 0 reads x, but part of it was overwritten by y"):
        verify_plan(program, bad)
    with pytest.raises(InternalError, match="E9005"):
        verify_plan(element_wise(None), good)


def test_what_is_read_again_is_never_overwritten() -> None:
    step = Step(("x",), ("y",), (Conflict("y", "x", 0),))
    program = StorageTrace(
        (Storage("x", 10), Storage("y", 10), Storage("z", 1)), (step, Step(("x", "y"), ("z",))), ("x",), ("z",)
    )
    buffers = liveness(program)
    assert all(c.min_distance is None for c in program_conflicts(program, buffers))
    with pytest.raises(InternalError, match="step 1 reads x"):
        verify_plan(program, replace(plan(buffers), offset={"x": 0, "y": 0, "z": 19}))


def test_both_directions_at_once_keep_apart() -> None:
    step = Step(("x",), ("y",), (Conflict("y", "x", 0), Conflict("x", "y", 0)))
    program = StorageTrace((Storage("x", 10), Storage("y", 10)), (step,), ("x",), ("y",))
    assert [c.min_distance for c in program_conflicts(program, liveness(program))] == [None]
