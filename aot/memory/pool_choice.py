"""Which buffer goes into which pool: greedily, then exactly if there is something left to gain.

The exact choice is an integer program; x[i, p] = 1 where item i lies in pool p:

  minimise  sum cost[i, p] * x[i, p]   subject to   sum_p x[i, p] = 1,   sum_i size[i] * x[i, p] <= most   for each limit,

solved by HiGHS, as the choice of kernels is (docs/adr/0005).  The cost is the time of all accesses.  A
limit is what is alive at one step, or a set of buffers that the planner could not place together, found by trying its choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from aot.memory.bounds import common_bytes, possible_savings
from aot.memory.plan import BufferInfo, Conflict
from aot.memory.planner import plan
from aot.support.dataclass import dataclass
from aot.support.milp import Row, Solution, minimise
from aot.support.pool import Pool

ROUNDS = 30
"""Choices of the integer program that are tried; each that cannot be placed adds a limit."""

NODE_LIMIT = 5_000
"""Branches after which the best choice found so far is taken; a count, so that the result does not depend on the machine."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The items of `sizes` that lie in pool number `pool` have at most `most` in all."""

    pool: int
    sizes: Mapping[int, int]
    most: int


@dataclass(frozen=True, slots=True)
class PoolChoice:
    """`pool` of each item by name; `total`: the time of all accesses, bytes over the speed of their pool.

    No choice for which there is room takes less than `lower_bound`.  `optimal`: that is proven of this choice; else the search
    stopped at NODE_LIMIT or ROUNDS.
    """

    pool: Mapping[str, str]
    total: float
    lower_bound: float
    optimal: bool = True


def best_of(pool: Mapping[str, str], found: Solution, *, total: float, least: float) -> PoolChoice:
    """The choice that a search ended with: proven, or with the search's bound, where that says more than `least`."""
    bound = found.bound if math.isfinite(found.bound) else least
    return PoolChoice(pool, total, total if found.proven else min(max(bound, least), total), found.proven)


def cheapest(costs: Sequence[Sequence[float | None]], limits: Sequence[Limit]) -> Solution:
    """The pool of each item as `values`, None if none were found; `costs[i][p]` of item i in pool p, None: not allowed there."""
    items, pools = len(costs), len(costs[0])
    each = np.kron(np.eye(items), np.ones(pools))
    table = np.zeros((len(limits), items * pools))
    for row, limit in zip(table, limits, strict=True):
        for i, size in limit.sizes.items():
            row[i * pools + limit.pool] = size
    rows: list[Row] = [(each, 1, 1)]
    if limits:
        rows.append((table, -np.inf, [limit.most for limit in limits]))
    flat = [c for row in costs for c in row]
    upper = [0.0 if c is None else 1.0 for c in flat]
    found = minimise([c or 0.0 for c in flat], rows, upper=upper, node_limit=NODE_LIMIT)
    if found.values is None:
        return found
    return replace(found, values=tuple(int(p) for p in found.values.reshape(items, pools).argmax(axis=1)))


def choose_pools(
    buffers: Sequence[BufferInfo],
    pairs: Sequence[Conflict],
    pools: Sequence[Pool],
    *,
    pins: Mapping[str, str],
    accesses: Mapping[str, int],
) -> PoolChoice:
    """The pool of each buffer by name, `pins` obeyed; buffers for which there is no room are left out.

    Buffers with many accesses for each byte choose first, each the fastest pool in which all that chose it before still fits.
    Where not all have the fastest pool that they may lie in, the integer program looks for less time.
    """
    costs = {
        b.name: {p.name: accesses.get(b.name, 0) / p.speed for p in pools if pins.get(b.name, p.name) == p.name} for b in buffers
    }
    chosen = _in_order(buffers, pairs, pools, costs=costs, pins=pins, accesses=accesses)
    missing = len(chosen) < len(buffers)
    time = sum(costs[name][pool] for name, pool in chosen.items())
    least = sum(min(row.values(), default=0.0) for row in costs.values())
    if not missing and time <= least:
        return PoolChoice(chosen, time, time)
    found = _exact(buffers, pairs, pools, costs=costs, known=None if missing else time)
    if found.values is not None:
        chosen, time = found.values, sum(costs[name][pool] for name, pool in found.values.items())
    return best_of(chosen, found, total=time, least=least)


Costs = Mapping[str, Mapping[str, float]]
"""By buffer and pool; pools that are not there are not allowed."""


def _in_order(
    buffers: Sequence[BufferInfo],
    pairs: Sequence[Conflict],
    pools: Sequence[Pool],
    *,
    costs: Costs,
    pins: Mapping[str, str],
    accesses: Mapping[str, int],
) -> dict[str, str]:
    chosen: dict[str, str] = {}
    by_speed = sorted(pools, key=lambda p: -p.speed)
    for b in sorted(buffers, key=lambda b: (b.name not in pins, -accesses.get(b.name, 0) / max(b.size, 1), -b.size, b.name)):
        for pool in by_speed:
            together = [x for x in buffers if chosen.get(x.name) == pool.name]
            if pool.name in costs[b.name] and fits([*together, b], pairs, pool):
                chosen[b.name] = pool.name
                break
    return chosen


def fits(buffers: Sequence[BufferInfo], pairs: Sequence[Conflict], pool: Pool) -> bool:
    """Whether the planner finds room for them in the pool, without its last effort."""
    return plan(buffers, within(pairs, buffers), effort=20_000, nodes=0).size <= pool.size


def within(pairs: Sequence[Conflict], buffers: Sequence[BufferInfo]) -> list[Conflict]:
    """The pairs of these buffers."""
    names = {b.name for b in buffers}
    return [c for c in pairs if c.a in names and c.b in names]


def _exact(
    buffers: Sequence[BufferInfo], pairs: Sequence[Conflict], pools: Sequence[Pool], *, costs: Costs, known: float | None
) -> Solution:
    """A choice of less time than `known` for which the planner finds room, by name; without values if none is found."""
    table = [[costs[b.name].get(p.name) for p in pools] for b in buffers]
    limits = _alive(buffers, pairs, pools)
    found = Solution(None, -math.inf, proven=False)
    for _ in range(ROUNDS):
        found = cheapest(table, limits)
        chosen = found.values
        if chosen is None or (known is not None and sum(table[i][p] or 0.0 for i, p in enumerate(chosen)) >= known):
            return replace(found, values=None)
        cuts = []
        for p, pool in enumerate(pools):
            mine = [i for i, q in enumerate(chosen) if q == p]
            if not fits([buffers[i] for i in mine], pairs, pool):
                mine = _least_unfit(mine, buffers, pairs, pool)
                cuts.append(Limit(p, dict.fromkeys(mine, 1), len(mine) - 1))
        if not cuts:
            return replace(found, values={b.name: pools[p].name for b, p in zip(buffers, chosen, strict=True)})
        limits += cuts
    return Solution(None, found.bound, proven=False)


def _alive(buffers: Sequence[BufferInfo], pairs: Sequence[Conflict], pools: Sequence[Pool]) -> list[Limit]:
    """Shared by no choice may exceed: the bytes alive at a step, less those that they can."""
    savings = possible_savings(buffers, pairs)
    limits = []
    for step in sorted({b.first for b in buffers}):
        alive = {i: b.size for i, b in enumerate(buffers) if b.first <= step <= b.last}
        live = [buffers[i] for i in alive]
        index = {b.name: k for k, b in enumerate(live)}
        common = common_bytes(live, [(index[x], index[y], n) for (x, y), n in savings.items() if x in index and y in index])
        most = [(p, pool.size + common) for p, pool in enumerate(pools)]
        limits += [Limit(p, alive, n) for p, n in most if sum(alive.values()) > n]
    return limits


def _least_unfit(mine: Sequence[int], buffers: Sequence[BufferInfo], pairs: Sequence[Conflict], pool: Pool) -> list[int]:
    """Some of the buffers that do not fit together, and no longer do where one of them is left out."""
    kept = list(mine)
    for i in mine:
        rest = [k for k in kept if k != i]
        if not fits([buffers[k] for k in rest], pairs, pool):
            kept = rest
    return kept
