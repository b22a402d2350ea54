"""Which buffer goes into which pool: greedily, then exactly if there is something left to gain.

Several memories may need more bytes in total than one memory would, because buffers in different pools never share bytes.  So the
choice is first one of few bytes (no more than a single unlimited pool would need, if possible), then a fast one.  The exact
choice is an integer program; x[i, p] = 1 if item i is in pool p, h[p] are the bytes that pool p uses:

  minimise  sum cost[i, p] * x[i, p]   subject to   sum_p x[i, p] = 1,   sum_p h[p] <= most,   h[p] <= size[p],
            h[p] >= sum_i size[i] * x[i, p] for what is live at one step, less what the buffers there can share,

solved by HiGHS, like the choice of kernels (docs/adr/0005).  The cost is the time of all accesses.  If the planner needs more
than h[p] for a pool, the program gets a new constraint: leaving out some of these buffers saves at most their sizes.  If no
single pool is large enough, the least sum of h is searched for first, in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from aot.errors import InternalError, Problem, TargetError, UsageError
from aot.memory.memory_pools import Pooling
from aot.memory.plan import BufferInfo, Conflict, MemoryPlan, align_up, common_bytes, lower_bound, possible_savings
from aot.memory.planner import plan
from aot.support.dataclass import dataclass
from aot.support.memory_pool import Pool
from aot.support.milp import Row, Solution, minimise
from aot.support.text import did_you_mean

ROUNDS = 30
"""Choices of the integer program to try; each one that cannot be placed adds a constraint."""

NODE_LIMIT = 5_000
"""Branches until the search stops with the best choice so far; a count, so that results do not depend on the machine."""


@dataclass(frozen=True, slots=True)
class PoolChoice:
    """`pool` of each item by name; `total`: the time of all accesses, in bytes divided by the speed of their pool.

    No choice that fits in as few bytes is faster than `lower_bound`.  `optimal`: proven that this choice is the fastest;
    otherwise the search stopped at NODE_LIMIT or ROUNDS.
    """

    pool: Mapping[str, str]
    total: float
    lower_bound: float
    optimal: bool = True


def best_of(pool: Mapping[str, str], solution: Solution, *, total: float, least: float) -> PoolChoice:
    """Return the result of a search: proven optimal, or with the search's bound if that is above `least`."""
    bound = solution.bound if math.isfinite(solution.bound) else least
    return PoolChoice(pool, total, total if solution.proven else min(max(bound, least), total), solution.proven)


Costs = Mapping[str, Mapping[str, float]]
"""By buffer and pool; missing pools are not allowed."""

Choice = Mapping[str, str]
"""The pool of each buffer, by name."""


def choose_pools(
    buffers: Sequence[BufferInfo],
    pairs: Sequence[Conflict],
    pools: Sequence[Pool],
    *,
    pins: Mapping[str, str],
    accesses: Mapping[str, int],
    size: int | None = None,
    most: int | None = None,
    fast: bool = True,
) -> PoolChoice:
    """Return the pool of each buffer by name, obeying `pins`; buffers that do not fit are left out.

    `size` is what all of them need in one memory (None: bytes do not count).  The search starts from two choices: all buffers in
    the fastest pool of at least that size in which they are allowed; and each in turn in the fastest pool with room, buffers with
    many accesses per byte first.  The integer program then looks for fewer bytes if both need more than `size`, and with `fast`
    for less time in no more bytes.  With `fast`, buffers separated by pins may use what the pins alone require, up to `most`
    bytes.
    """
    if not pools:
        return PoolChoice({}, 0.0, 0.0)
    costs = {
        b.name: {p.name: accesses.get(b.name, 0) / p.speed for p in pools if pins.get(b.name, p.name) == p.name} for b in buffers
    }
    rooms = _Rooms(buffers, pairs, pools, costs)
    by_speed = sorted(pools, key=lambda p: -p.speed)
    large = (p.name for p in by_speed if size is not None and p.size >= size and all(p.name in row for row in costs.values()))
    whole: Choice | None = next(({b.name: name for b in buffers} for name in large), None)
    if whole is not None and (rooms.time(whole) <= rooms.least or not fast):
        return PoolChoice(whole, rooms.time(whole), rooms.time(whole))
    greedy = _in_order(buffers, pairs, by_speed, costs=costs, pins=pins, accesses=accesses)
    free = rooms.need({b.name: pins.get(b.name, by_speed[0].name) for b in buffers}) if pins and fast else 0
    free = free if most is None else min(free, most)

    def bytes_of(choice: Choice) -> int:
        return 0 if size is None else size if choice is whole else max(size, rooms.need(choice))

    first = [c for c in (whole, greedy) if c is not None and len(c) == len(buffers)]
    best = min(first, key=lambda c: (max(free, bytes_of(c)), rooms.time(c), bytes_of(c)), default=None)
    fewest = Solution(None, 0.0, proven=True)
    if size is not None and (best is None or (fast and bytes_of(best) > max(free, size))):
        fewest = rooms.search(None, best_known=None if best is None else bytes_of(best), room=None)
        best = best if fewest.values is None else fewest.values
        if best is None:
            return best_of(greedy, fewest, total=rooms.time(greedy), least=rooms.least)
    time = math.inf if best is None else rooms.time(best)
    if best is not None and (not fast or time <= rooms.least):
        return PoolChoice(best, time, time, fewest.proven)
    room = None if size is None or best is None else bytes_of(best)
    solution = rooms.search(costs, best_known=None if best is None else time, room=room)
    if solution.values is not None:
        best, time = solution.values, rooms.time(solution.values)
    if best is None:
        return best_of(greedy, solution, total=rooms.time(greedy), least=rooms.least)
    return best_of(best, replace(solution, proven=solution.proven and fewest.proven), total=time, least=rooms.least)


def _in_order(
    buffers: Sequence[BufferInfo],
    pairs: Sequence[Conflict],
    by_speed: Sequence[Pool],
    *,
    costs: Costs,
    pins: Mapping[str, str],
    accesses: Mapping[str, int],
) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for b in sorted(buffers, key=lambda b: (b.name not in pins, -accesses.get(b.name, 0) / max(b.size, 1), -b.size, b.name)):
        for pool in by_speed:
            together = [x for x in buffers if chosen.get(x.name) == pool.name]
            if pool.name in costs[b.name] and fits([*together, b], pairs, pool):
                chosen[b.name] = pool.name
                break
    return chosen


def fits(buffers: Sequence[BufferInfo], pairs: Sequence[Conflict], pool: Pool) -> bool:
    """Whether the planner fits the buffers into the pool, without its exact search."""
    return _height(buffers, pairs) <= pool.size


def _height(buffers: Sequence[BufferInfo], pairs: Sequence[Conflict]) -> int:
    return plan(buffers, within(pairs, buffers), effort=20_000, nodes=0).size


def within(pairs: Sequence[Conflict], buffers: Sequence[BufferInfo]) -> list[Conflict]:
    """The pairs of these buffers."""
    names = {b.name for b in buffers}
    return [c for c in pairs if c.a in names and c.b in names]


class _Rooms:
    """The integer program, with what the planner added to it; its columns are x[i, p] by item and pool, then h[p]."""

    def __init__(
        self, buffers: Sequence[BufferInfo], pairs: Sequence[Conflict], pools: Sequence[Pool], costs: Costs
    ) -> None:  # fmt: skip
        self.buffers, self.pairs, self.pools, self.costs = buffers, pairs, pools, costs
        self.least = sum(min(row.values(), default=0.0) for row in costs.values())
        self.heights: dict[tuple[int, ...], int] = {}
        self.rows: list[Row] = []

    def time(self, choice: Choice) -> float:
        """The time of all accesses."""
        return sum(self.costs[name][pool] for name, pool in choice.items())

    def need(self, choice: Choice) -> int:
        """Bytes of all pools in total, as the planner fills each."""
        return sum(self.height(self.inside(choice, p.name)) for p in self.pools)

    def inside(self, choice: Choice, pool: str) -> tuple[int, ...]:
        return tuple(i for i, b in enumerate(self.buffers) if choice.get(b.name) == pool)

    def height(self, items: tuple[int, ...]) -> int:
        """Bytes that the planner needs for these buffers alone."""
        if items not in self.heights:
            self.heights[items] = _height([self.buffers[i] for i in items], self.pairs)
        return self.heights[items]

    def row(self, inside: Mapping[int, float], pool: int, height: float) -> list[float]:
        """Coefficients of the items in the pool, and of the pool's bytes."""
        row = [0.0] * (len(self.buffers) + 1) * len(self.pools)
        for i, value in inside.items():
            row[i * len(self.pools) + pool] = value
        row[len(self.buffers) * len(self.pools) + pool] = height
        return row

    def search(self, costs: Costs | None, *, best_known: float | None, room: int | None) -> Solution:
        """Find a choice that costs less than `best_known`, within `room` bytes of all pools, and that the planner can place.

        The cost is time, or bytes if `costs` is None.  If there is none, the solution has no values, only the bound of the
        search.
        """
        items, many = len(self.buffers), len(self.pools)
        self.rows = self.rows or self._first_rows()
        objective = [costs[b.name].get(p.name, 0.0) if costs else 0.0 for b in self.buffers for p in self.pools]
        objective += [0.0 if costs else 1.0] * many
        upper = [float(p.name in self.costs[b.name]) for b in self.buffers for p in self.pools] + [p.size for p in self.pools]
        best: Choice | None = None
        for _ in range(ROUNDS):
            total: list[Row] = [] if room is None else [([0.0] * (items * many) + [1.0] * many, -np.inf, room)]
            solution = minimise(objective, self.rows + total, upper=upper, node_limit=NODE_LIMIT)
            if solution.values is None:  # no choice beats the known one
                return replace(solution, values=best)
            value = float(solution.values @ np.asarray(objective))
            if best_known is not None and value >= best_known:
                return replace(solution, values=best)
            places = solution.values[: items * many].reshape(items, many).argmax(axis=1)
            choice = {b.name: self.pools[p].name for b, p in zip(self.buffers, places, strict=True)}
            needs = [self.height(self.inside(choice, p.name)) for p in self.pools]
            fit = all(n <= p.size for n, p in zip(needs, self.pools, strict=True)) and (room is None or sum(needs) <= room)
            reached = self.time(choice) if costs else sum(needs)
            if fit and (best_known is None or reached < best_known):
                best, best_known = choice, reached
            if fit and reached <= value:
                return replace(solution, values=best)
            self._learn(choice, [round(h) for h in solution.values[items * many :]])
        return Solution(best, -math.inf, proven=False)

    def _first_rows(self) -> list[Row]:
        """One pool per item; per step, live bytes less what they can share; and the least bytes of all buffers together."""
        items, many = len(self.buffers), len(self.pools)
        each = np.hstack([np.kron(np.eye(items), np.ones(many)), np.zeros((items, many))])
        rows: list[Row] = [(each, 1, 1)]
        savings = possible_savings(self.buffers, self.pairs)
        for step in sorted({b.first for b in self.buffers}):
            alive = {i: b.size for i, b in enumerate(self.buffers) if b.first <= step <= b.last}
            live = [self.buffers[i] for i in alive]
            index = {b.name: k for k, b in enumerate(live)}
            common = common_bytes(live, [(index[x], index[y], n) for (x, y), n in savings.items() if x in index and y in index])
            rows.append(([self.row(alive, p, -1.0) for p in range(many)], -np.inf, common))
        least = lower_bound(self.buffers, self.pairs)
        return [*rows, ([0.0] * (items * many) + [1.0] * many, least, np.inf)]

    def _learn(self, choice: Choice, heights: Sequence[int]) -> None:
        """For each pool that needs more than its height in the program, add a constraint on the buffers that cause it."""
        for p, pool in enumerate(self.pools):
            kept = self.inside(choice, pool.name)
            if self.height(kept) <= heights[p]:
                continue
            for i in kept:
                others = tuple(k for k in kept if k != i)
                if self.height(others) > heights[p]:
                    kept = others
            # removing a buffer saves at most its own size, as it could be placed on top of the others
            sizes = {i: self.buffers[i].size + self.buffers[i].align - 1 for i in kept}
            least = self.height(kept) - sum(sizes.values())
            self.rows.append((self.row({i: -float(n) for i, n in sizes.items()}, p, 1.0), least, np.inf))


# ---- one plan over all pools
#
# The plan numbers the bytes of all pools consecutively: pool k begins at its `base`.  Buffers of different pools never share
# bytes, so all the verifier has to know about pools is that a buffer must not extend past the end of one.


@dataclass(frozen=True, slots=True)
class UsedPool:
    """What a plan uses of a pool: `used` bytes, numbered from `base` on."""

    pool: Pool
    base: int
    used: int
    buffers: tuple[str, ...]


def plan_pools(
    buffers: Sequence[BufferInfo],
    clashes: Iterable[Conflict],
    pooling: Pooling,
    *,
    accesses: Mapping[str, int],
    whole: MemoryPlan | None = None,
    most: int | None = None,
    fast: bool = True,
) -> tuple[MemoryPlan, tuple[UsedPool, ...], PoolChoice]:
    """Return a plan over all pools, the pools that it uses, and how good their choice is.

    `accesses` are the bytes that each buffer loads and stores; `whole` is the plan of all buffers in one memory, if there is one.
    With `fast`, look for less time in no more bytes, or up to `most` bytes for what pins separate.  Raises E2013 if a buffer fits
    nowhere, and E5019 for a pin that names no buffer.
    """
    pairs = list(clashes)
    pins = dict(with_known_pins(pooling, {}, {b.name for b in buffers}).pins)
    whole = plan(buffers, pairs) if whole is None else whole
    choice = choose_pools(buffers, pairs, pooling.pools, pins=pins, accesses=accesses, size=whole.size, most=most, fast=fast)
    chosen = choice.pool
    if len(chosen) < len(buffers):
        raise TargetError(_no_room(buffers, pairs, pooling, choice=choice, whole=whole.size))
    offset: dict[str, int] = {}
    used: list[UsedPool] = []
    end = 0
    for pool in pooling.pools:
        mine = [b for b in buffers if chosen[b.name] == pool.name]
        if not mine:
            continue
        part = whole if len(mine) == len(buffers) else plan(mine, within(pairs, mine))
        base = align_up(end, max(b.align for b in mine))
        offset |= {name: base + at for name, at in part.offset.items()}
        if not part.size:
            continue  # C has no arrays without elements
        used.append(UsedPool(pool, base, part.size, tuple(b.name for b in mine)))
        end = base + part.size
    # consecutive pools are also a plan for one memory, so none needs less
    optimal = whole.optimal and end <= whole.size
    return MemoryPlan({b.name: offset[b.name] for b in buffers}, end, whole.lower_bound, optimal), tuple(used), choice


def fill_pools(sizes: Mapping[str, int], pools: Sequence[Pool], *, reads: Mapping[str, int]) -> PoolChoice:
    """Return the pool of each constant so that all reads take the least time (E2013 if there is no room).

    `sizes` are in bytes and include what alignment may cost; constants never overlap, so they fill a pool one after the other.
    """
    if not sizes:
        return PoolChoice({}, 0.0, 0.0)
    costs = np.array([[reads.get(name, 0) / p.speed for p in pools] for name in sizes])
    one_each: Row = (np.kron(np.eye(len(sizes)), np.ones(len(pools))), 1, 1)
    fits_in: Row = (np.kron(list(sizes.values()), np.eye(len(pools))), -np.inf, [p.size for p in pools])
    solution = minimise(costs.ravel(), [one_each, fits_in], upper=np.ones(costs.size), node_limit=NODE_LIMIT)
    if solution.values is None:
        raise TargetError(_no_room_for_constants(sizes, pools, proven=solution.proven))
    places = solution.values.reshape(costs.shape).argmax(axis=1)
    chosen = {name: pools[k].name for name, k in zip(sizes, places, strict=True)}
    total = sum(float(row[k]) for row, k in zip(costs, places, strict=True))
    return best_of(chosen, solution, total=total, least=sum(map(float, costs.min(axis=1))))


STOPPED = "; the search for a choice stopped at its limit, so there may be one"
"""Added to a message if it is not proven that there is no room."""


def _no_room_for_constants(sizes: Mapping[str, int], pools: Sequence[Pool], *, proven: bool) -> Problem:
    """The largest constants, the pools, and what would help."""
    need, room = sum(sizes.values()), sum(p.size for p in pools)
    largest = ", ".join(f"{n} {sizes[n]:,}" for n in sorted(sizes, key=lambda n: (-sizes[n], n))[:3])
    there = ", ".join(f"{p.name} {p.size:,}" for p in pools)
    short = f"{need - room:,} more than the pools have" if need > room else "too large to be split across the pools"
    return Problem(
        "E2013",
        f"all constants need {need:,} bytes, {short} ({there}); the largest are {largest}; "
        "--opt size, a larger pool, or another one (--const-pool NAME=SIZE@ADDRESS, such as external flash) would help"
        + ("" if proven or need > room else STOPPED),
    )


def verify_pools(buffers: Sequence[BufferInfo], memory_plan: MemoryPlan, pools: Sequence[UsedPool]) -> None:
    """Raise E9005 if a buffer extends past the end of its pool, or a pool is larger than the user said."""
    faults = [f"pool {u.pool.name} needs {u.used} of {u.pool.size} bytes" for u in pools if u.used > u.pool.size]
    size = {b.name: b.size for b in buffers}
    for used in pools:
        for name in used.buffers:
            at = memory_plan.offset[name] - used.base
            if at < 0 or at + size[name] > used.used:
                faults.append(f"{name} is outside pool {used.pool.name}")
    ends = [(u.base, u.base + u.used) for u in pools]
    faults += ["two pools share bytes" for (_, end), (start, _) in pairwise(ends) if start < end]
    if faults:
        raise InternalError(*(Problem("E9005", f) for f in faults))


def with_known_pins(pooling: Pooling, names: Mapping[str, str], buffers: Collection[str]) -> Pooling:
    """Replace tensors in pins by their buffers: `names` maps a tensor to the buffer with another name that holds it.

    Raises E5019 for a pin that names no buffer, and for two tensors in one buffer that are pinned to different pools.
    """
    unknown = [t for t, _ in pooling.pins if t not in buffers and t not in names]
    if unknown:
        listed = ", ".join(sorted(n for n in buffers if n)[:12])
        raise UsageError(
            *(
                Problem(
                    "E5019", f"--pin {t}: no such tensor in the workspace{did_you_mean(t, buffers)}; the tensors are {listed}, …"
                )
                for t in unknown
            )
        )
    pins: dict[str, tuple[str, str]] = {}
    for tensor, pool in pooling.pins:
        key = tensor if tensor in buffers else names[tensor]
        other, there = pins.setdefault(key, (tensor, pool))
        if there != pool and other != tensor:
            fault = f"--pin {tensor}={pool}: it shares its memory with {other}, which is pinned to {there}"
            raise UsageError(Problem("E5019", fault))
        pins[key] = tensor, pool
    return replace(pooling, pins=tuple((key, pool) for key, (_, pool) in pins.items()))


def _no_room(
    buffers: Sequence[BufferInfo], pairs: Sequence[Conflict], pooling: Pooling, *, choice: PoolChoice, whole: int
) -> Problem:  # fmt: skip
    """The error if a buffer fits nowhere: what does not fit, what is live at the busiest step, and what would help."""
    chosen = choice.pool
    left_out = max((b for b in buffers if b.name not in chosen), key=lambda b: (b.size, b.name))
    steps = sorted({b.first for b in buffers})
    live = {s: [b for b in buffers if b.first <= s <= b.last] for s in steps}
    peak = max(steps, key=lambda s: (sum(b.size for b in live[s]), -s))
    largest = ", ".join(f"{b.name} {b.size:,}" for b in sorted(live[peak], key=lambda b: (-b.size, b.name))[:3])
    room, fitting = [], []
    for p in pooling.pools:
        inside = [b for b in buffers if chosen.get(b.name) == p.name]
        room.append(f"{p.name} {p.size:,}, {plan(inside, within(pairs, inside), nodes=0).size:,} used")
        if fits([*inside, left_out], pairs, p):
            fitting.append(p.name)
    pin = dict(pooling.pins).get(left_out.name)
    need = sum(b.size for b in live[peak])
    message = f"{left_out.name} of {left_out.size:,} bytes fits into no pool" if pin is None else (
        f"{left_out.name} of {left_out.size:,} bytes, pinned to {pin}, does not fit there"
    )  # fmt: skip
    where = "the inputs" if peak < 0 else f"layer {peak}"
    helps = "a larger pool or no --pin would help" if pooling.pins else "a larger pool would help"
    if fitting:
        helps = " or ".join(f"--pin {left_out.name}={name}" for name in fitting) + " has room"
    helps += "" if choice.optimal else STOPPED
    return Problem(
        "E2013", f"{message} ({'; '.join(room)}); the peak is at {where} with {need:,} bytes: {largest}; "
        f"all buffers in one memory need {whole:,} bytes; {helps}"
    )  # fmt: skip
