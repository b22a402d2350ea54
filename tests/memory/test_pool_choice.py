"""The choice of pools against all choices."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from aot.memory.plan import BufferInfo, conflicts
from aot.memory.pool_choice import Limit, cheapest, choose_pools, fits
from aot.support.pool import Pool


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
    assert time([by_name[chosen[b.name]] for b in buffers]) == pytest.approx(best)


@pytest.mark.parametrize("limit", [0, 5, 9, 14, 30])
def test_cheapest_against_all_choices(limit: int) -> None:
    """Three items in two pools, of which the first holds `limit` bytes; one item must not be in the second."""
    costs: list[list[float | None]] = [[1.0, 5.0], [2.0, 9.0], [3.0, None]]
    sizes = {0: 5, 1: 9, 2: 5}
    found = cheapest(costs, [Limit(0, sizes, limit)])
    possible = [
        choice
        for choice in itertools.product(range(2), repeat=3)
        if sum(sizes[i] for i, p in enumerate(choice) if p == 0) <= limit and choice[2] == 0
    ]

    def cost(choice: Sequence[int]) -> float:
        return sum(costs[i][p] or 0.0 for i, p in enumerate(choice))

    assert found == (min(possible, key=cost) if possible else None)
