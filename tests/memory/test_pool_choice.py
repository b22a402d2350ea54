"""The choice of pools against all choices."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from aot.errors import TargetError
from aot.memory import pool_choice
from aot.memory.plan import BufferInfo, Conflict, conflicts
from aot.memory.pool_choice import choose_pools, fill_pools, fits
from aot.support.memory_pool import Pool


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 30))])
def test_against_all_choices(seed: int) -> None:
    """Small sets with overlap: no choice that the planner can place takes less time."""
    rng = random.Random(seed)
    buffers = []
    for i in range(5):
        first = rng.randint(0, 3)
        buffers.append(BufferInfo(f"b{i}", rng.randint(5, 40), rng.choice([1, 4]), first, first + rng.randint(0, 2)))
    pairs = [replace(c, min_distance=rng.choice([None, 0, 7])) for c in conflicts(tuple(buffers))]
    pools = [Pool("a", 45, speed=3), Pool("b", 60, speed=2), Pool("c", 500)]
    accesses = {b.name: rng.randrange(1, 500) for b in buffers}

    @functools.cache
    def room(pool: Pool, inside: tuple[BufferInfo, ...]) -> bool:
        return fits(inside, pairs, pool)

    def time(choice: Sequence[Pool]) -> float:
        possible = all(room(p, tuple(b for b, q in zip(buffers, choice, strict=True) if p is q)) for p in pools)
        return sum(accesses[b.name] / p.speed for b, p in zip(buffers, choice, strict=True)) if possible else math.inf

    chosen = choose_pools(buffers, pairs, pools, pins={}, accesses=accesses)
    by_name = {p.name: p for p in pools}
    best = min(map(time, itertools.product(pools, repeat=len(buffers))))
    assert time([by_name[chosen.pool[b.name]] for b in buffers]) == pytest.approx(best)
    assert chosen.optimal
    assert chosen.total == chosen.lower_bound == pytest.approx(best)


@pytest.mark.parametrize("limit", [0, 5, 9, 14, 30])
def test_constants_against_all_choices(limit: int) -> None:
    """Three constants in two pools: the faster one holds `limit` bytes, the other one not all of them."""
    sizes, reads = {"x": 5, "y": 9, "z": 6}, {"x": 10, "y": 27, "z": 30}
    pools = [Pool("fast", limit, speed=3), Pool("slow", 14)]
    rooms = {p.name: p.size for p in pools}
    speeds = {p.name: p.speed for p in pools}
    possible = [
        choice
        for choice in itertools.product(rooms, repeat=3)
        if all(sum(n for n, p in zip(sizes.values(), choice, strict=True) if p == name) <= most for name, most in rooms.items())
    ]

    def cost(choice: Sequence[str]) -> float:
        return sum(n / speeds[p] for n, p in zip(reads.values(), choice, strict=True))

    if not possible:
        with pytest.raises(TargetError, match="E2013"):
            fill_pools(sizes, pools, reads=reads)
        return
    found = fill_pools(sizes, pools, reads=reads)
    assert tuple(found.pool.values()) == min(possible, key=cost)
    assert found.optimal
    assert found.total == found.lower_bound == pytest.approx(cost(min(possible, key=cost)))


def many(count: int) -> tuple[list[BufferInfo], list[Conflict], dict[str, int]]:
    """Buffers that are alive together, with about as many accesses a byte: a long search."""
    rng = random.Random(1)
    buffers = [BufferInfo(f"b{i}", rng.randint(1000, 2000), 1, 0, 0) for i in range(count)]
    return buffers, list(conflicts(tuple(buffers))), {b.name: 3 * b.size + b.size % 7 for b in buffers}


def test_a_search_that_stops_says_how_far_it_is_from_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    buffers, pairs, accesses = many(12)
    pools = [Pool("fast", 9001, speed=2), Pool("slow", 1 << 20)]
    best = choose_pools(buffers, pairs, pools, pins={}, accesses=accesses)
    assert best.optimal
    assert best.total == best.lower_bound == sum(accesses[n] / (2 if p == "fast" else 1) for n, p in best.pool.items())
    monkeypatch.setattr(pool_choice, "NODE_LIMIT", 1)
    stopped = choose_pools(buffers, pairs, pools, pins={}, accesses=accesses)
    assert not stopped.optimal
    assert len(stopped.pool) == len(buffers)
    assert sum(b.size for b in buffers if stopped.pool[b.name] == "fast") <= 9001
    assert stopped.total == sum(accesses[n] / (2 if p == "fast" else 1) for n, p in stopped.pool.items())
    assert 0.9 * best.total < stopped.lower_bound <= best.total <= stopped.total
    monkeypatch.setattr(pool_choice, "ROUNDS", 0)
    untried = choose_pools(buffers, pairs, pools, pins={}, accesses=accesses)
    assert not untried.optimal
    assert untried.lower_bound == sum(accesses.values()) / 2 < untried.total


def test_a_buffer_pinned_to_a_pool_that_is_not_there_is_left_out() -> None:
    buffers = [BufferInfo("a", 8, 1, 0, 0), BufferInfo("b", 8, 1, 0, 0)]
    found = choose_pools(buffers, (), [Pool("x", 100)], pins={"b": "gone"}, accesses={"a": 1, "b": 1})
    assert (found.pool, found.optimal) == ({"a": "x"}, True)
