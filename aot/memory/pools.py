"""Several memories: which buffer goes into which pool, and one plan over all of them.

The plan numbers the bytes of all pools one after the other: pool k begins at its `base`.  Buffers of different pools never share
bytes, so the verifier needs to know nothing of pools but that a buffer must not reach over the end of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from aot.errors import InternalError, Problem, TargetError, UsageError
from aot.memory.plan import BufferInfo, Conflict, MemoryPlan, align_up
from aot.memory.planner import plan
from aot.memory.pool_choice import Limit, PoolChoice, best_of, cheapest, choose_pools, fits, within
from aot.memory.pooling import Pooling
from aot.support.dataclass import dataclass
from aot.support.near import did_you_mean
from aot.support.pool import BASE_ALIGN, Pool


@dataclass(frozen=True, slots=True)
class UsedPool:
    """What a plan uses of a pool: `used` bytes, which the plan numbers from `base` on."""

    pool: Pool
    base: int
    used: int
    buffers: tuple[str, ...]


def plan_pools(
    buffers: Sequence[BufferInfo], clashes: Iterable[Conflict], pooling: Pooling, *, accesses: Mapping[str, int]
) -> tuple[MemoryPlan, tuple[UsedPool, ...], PoolChoice]:
    """A plan over all pools, those pools that it uses, and how good their choice is; `accesses` are the bytes that each buffer
    loads and stores.

    Raises E2013 if a buffer fits nowhere, and E5019 for a pin that names no buffer.
    """
    pairs = list(clashes)
    choice = choose_pools(buffers, pairs, pooling.pools, pins=_pins(buffers, pooling), accesses=accesses)
    chosen = choice.pool
    if len(chosen) < len(buffers):
        raise TargetError(_no_room(buffers, pairs, pooling, choice))
    offset: dict[str, int] = {}
    used: list[UsedPool] = []
    base, bound, optimal = 0, 0, True
    for pool in pooling.pools:
        mine = [b for b in buffers if chosen[b.name] == pool.name]
        if not mine:
            continue
        part = plan(mine, within(pairs, mine))
        offset |= {name: base + at for name, at in part.offset.items()}
        used.append(UsedPool(pool, base, part.size, tuple(b.name for b in mine)))
        base += align_up(part.size, BASE_ALIGN)
        bound, optimal = bound + part.lower_bound, optimal and part.optimal
    size = max((u.base + u.used for u in used), default=0)
    return MemoryPlan({b.name: offset[b.name] for b in buffers}, size, bound, optimal), tuple(used), choice


def fill_pools(sizes: Mapping[str, int], pools: Sequence[Pool], *, reads: Mapping[str, int]) -> PoolChoice:
    """The pool of each constant, so that all reads take the least time (E2013 if there is no room).

    `sizes` in bytes, with what alignment may cost; constants are never moved, so they fill a pool one after the other.
    """
    if not sizes:
        return PoolChoice({}, 0.0, 0.0)
    costs = [[reads.get(name, 0) / p.speed for p in pools] for name in sizes]
    numbered = dict(enumerate(sizes.values()))
    found = cheapest(costs, [Limit(k, numbered, p.size) for k, p in enumerate(pools)])
    if found.values is None:
        raise TargetError(_no_room_for_constants(sizes, pools, proven=found.proven))
    chosen = {name: pools[k].name for name, k in zip(sizes, found.values, strict=True)}
    total = sum(row[k] for row, k in zip(costs, found.values, strict=True))
    return best_of(chosen, found, total=total, least=sum(map(min, costs)))


STOPPED = "; the search for a choice stopped at its limit, so there may be one"
"""What a message adds where it is not proven that there is no room."""


def _no_room_for_constants(sizes: Mapping[str, int], pools: Sequence[Pool], *, proven: bool) -> Problem:
    """The largest constants, the pools, and what would help."""
    need, room = sum(sizes.values()), sum(p.size for p in pools)
    largest = ", ".join(f"{n} {sizes[n]:,}" for n in sorted(sizes, key=lambda n: (-sizes[n], n))[:3])
    there = ", ".join(f"{p.name} {p.size:,}" for p in pools)
    short = f"{need - room:,} more than there are" if need > room else "too large to be split across the pools"
    return Problem(
        "E2013",
        f"all constants need {need:,} bytes, {short} ({there}); the largest are {largest}; "
        "--opt size, a larger pool, or another one (--const-pool NAME=SIZE@ADDRESS, such as flash outside) would help"
        + ("" if proven or need > room else STOPPED),
    )


def verify_pools(buffers: Sequence[BufferInfo], memory_plan: MemoryPlan, pools: Sequence[UsedPool]) -> None:
    """Raise E9005 if a buffer reaches over the end of its pool, or a pool is larger than the user said."""
    faults = [f"pool {u.pool.name} needs {u.used} of {u.pool.size} bytes" for u in pools if u.used > u.pool.size]
    size = {b.name: b.size for b in buffers}
    for used in pools:
        for name in used.buffers:
            at = memory_plan.offset[name] - used.base
            if at < 0 or at + size[name] > used.used:
                faults.append(f"{name} lies outside of pool {used.pool.name}")
    ends = [(u.base, u.base + u.used) for u in pools]
    faults += ["two pools share bytes" for (_, end), (start, _) in pairwise(ends) if start < end]
    if faults:
        raise InternalError(*(Problem("E9005", f) for f in faults))


def _pins(buffers: Sequence[BufferInfo], pooling: Pooling) -> dict[str, str]:
    names = {b.name for b in buffers}
    unknown = [t for t, _ in pooling.pins if t not in names]
    if unknown:
        known = ", ".join(sorted(n for n in names if n)[:12])
        raise UsageError(
            *(
                Problem("E5019", f"--pin {t}: no such tensor in the workspace{did_you_mean(t, names)}; there are {known}, …")
                for t in unknown
            )
        )
    return dict(pooling.pins)


def _no_room(buffers: Sequence[BufferInfo], pairs: Sequence[Conflict], pooling: Pooling, choice: PoolChoice) -> Problem:
    """What does not fit, what is alive at the busiest step, and what would help."""
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
    helps = "a larger pool, --opt ram or no --pin would help" if pooling.pins else "a larger pool or --opt ram would help"
    if fitting:
        helps = " or ".join(f"--pin {left_out.name}={name}" for name in fitting) + " has room"
    helps += "" if choice.optimal else STOPPED
    return Problem(
        "E2013", f"{message} ({'; '.join(room)}); the peak is at {where} with {need:,} bytes: {largest}; {helps}"
    )  # fmt: skip
