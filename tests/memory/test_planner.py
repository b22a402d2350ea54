"""Plans against the verifier, the lower bound and an exhaustive search."""

from __future__ import annotations

import itertools
import random

import pytest

from aot.memory import planner
from aot.memory.liveness import Step, Storage, StorageTrace, liveness
from aot.memory.plan import BufferInfo, Conflict, align_up, lower_bound
from aot.memory.planner import CLIMB_WORK, plan
from aot.memory.verify import verify_plan
from tests.memory.programs import chain, overlap_in_time, random_program
from tests.scale import cases


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((640, 128, 128, 128, 128, 8, 128, 128, 128, 128, 640), 768),
        ((490, 8000, 8000, 8000, 8000, 8000, 64, 12, 12), 16000),
        ((27648, 18432, 18432, 36864, 18432, 9216, 4608, 2), 55296),
    ],
)
def test_chains_need_the_lower_bound(sizes: tuple[int, ...], expected: int) -> None:
    buffers = liveness(chain(*sizes))
    result = plan(buffers)
    assert result.size == result.lower_bound == expected


def test_residual_network_needs_the_lower_bound() -> None:
    big, storages, steps = 16384, [Storage("x", 3072)], []
    storages += [Storage(f"t{i}", big) for i in range(4)]
    steps = [Step(("x",), ("t0",)), Step(("t0",), ("t1",)), Step(("t1",), ("t2",)), Step(("t2", "t0"), ("t3",))]
    result = plan(liveness(StorageTrace(tuple(storages), tuple(steps), ("x",), ("t3",))))
    assert result.size == result.lower_bound == 49152


def check_random(seed: int, *, effort: int, nodes: int) -> None:
    program = random_program(seed)
    buffers = liveness(program)
    result = plan(buffers, effort=effort, nodes=nodes)
    verify_plan(program, result)
    assert result.size >= result.lower_bound
    for a, b in itertools.combinations(buffers, 2):
        if a.size and b.size and overlap_in_time(a, b):
            low, high = sorted((a, b), key=lambda x: result.offset[x.name])
            assert result.offset[low.name] + low.size <= result.offset[high.name]


@pytest.mark.parametrize("block", range(4))
def test_random_programs(block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        check_random(seed, effort=10_000, nodes=20)


@pytest.mark.slow
def test_many_random_programs() -> None:
    for seed in range(1000, 1000 + cases(1000)):
        check_random(seed, effort=50_000, nodes=100)


def optimum(buffers: tuple[BufferInfo, ...]) -> int:
    """The smallest workspace, by trying all orders of first-fit placement: one of them is optimal."""
    best = sum(align_up(b.size, 8) for b in buffers)
    for order in itertools.permutations(buffers):
        placed: list[tuple[BufferInfo, int]] = []
        for b in order:
            at = 0
            for other, start in sorted(((o, s) for o, s in placed if overlap_in_time(o, b)), key=lambda p: p[1]):
                if start < at + b.size and at < start + other.size:
                    at = align_up(start + other.size, b.align)
            placed.append((b, at))
        best = min(best, max(start + b.size for b, start in placed))
    return best


@pytest.mark.parametrize("seed", range(15))
def test_small_sets_reach_the_optimum(seed: int) -> None:
    rng = random.Random(seed)
    buffers = []
    for i in range(rng.randint(2, 6)):
        first = rng.randint(0, 5)
        buffers.append(BufferInfo(f"b{i}", rng.randint(1, 40), rng.choice([1, 4, 8]), first, first + rng.randint(0, 3)))
    result = plan(buffers)
    assert lower_bound(buffers) <= optimum(tuple(buffers)) == result.size


def test_same_input_same_plan() -> None:
    buffers = liveness(random_program(7))
    assert plan(buffers) == plan(buffers)


def test_partial_overlap_is_used() -> None:
    buffers = [BufferInfo("x", 100, 1, 0, 0), BufferInfo("y", 90, 1, 0, 0)]
    in_place = plan(buffers, clashes=[Conflict("x", "y", min_distance=-10)])
    assert in_place.size <= 110
    assert in_place.offset["y"] - in_place.offset["x"] >= -10
    same = plan(buffers, clashes=[Conflict("x", "y", min_distance=0)])
    assert same.size == 100


def test_many_buffers_take_limited_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Placements times buffers and neighbours are what the climb may spend, however many buffers there are."""
    work: list[int] = []
    place = planner.Problem.place

    def counted(problem: planner.Problem, order: list[int]) -> tuple[planner.Offsets, int]:
        work.append(len(order) + sum(map(len, problem.neighbours)))
        return place(problem, order)

    monkeypatch.setattr(planner.Problem, "place", counted)
    rng = random.Random(1)
    buffers = [BufferInfo(f"b{i}", rng.randint(1, 5000), 4, max(0, i - rng.randint(1, 6)), i) for i in range(300)]
    plan(buffers)
    assert len(set(work)) == 1
    assert CLIMB_WORK / 2 < sum(work) <= CLIMB_WORK + len(planner._ORDERS) * work[0]


def test_thousands_of_layers_are_no_deep_recursion() -> None:
    rng = random.Random(1)
    sizes = [4 * rng.randrange(1000, 1100) for _ in range(1100)]
    buffers = [BufferInfo(f"b{i}", size, 4, i, i + rng.randrange(2, 5)) for i, size in enumerate(sizes)]
    assert plan([*buffers, BufferInfo("io", 4, 4, 0, 1110)], effort=2000).size < 8 * 4400


def test_nothing_to_place() -> None:
    assert plan([]).size == 0
    assert plan([BufferInfo("empty", 0, 1, 0, 0)]).size == 0
