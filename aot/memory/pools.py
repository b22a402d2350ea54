"""Several memories: which buffer goes into which pool, and one plan over all of them.

The plan numbers the bytes of all pools one after the other: pool k begins at its `base`.  Buffers of different pools never share
bytes, so the verifier needs to know nothing of pools but that a buffer must not reach over the end of one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from aot.errors import InternalError, Problem, TargetError, UsageError
from aot.memory.plan import BufferInfo, Conflict, MemoryPlan, align_up
from aot.memory.planner import plan
from aot.memory.pool_choice import Limit, PoolChoice, best_of, cheapest, choose_pools, fits, within
from aot.memory.pooling import Pooling
from aot.support.dataclass import dataclass
from aot.support.near import did_you_mean
from aot.support.pool import Pool


@dataclass(frozen=True, slots=True)
class UsedPool:
    """What a plan uses of a pool: `used` bytes, which the plan numbers from `base` on."""

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
    """A plan over all pools, those pools that it uses, and how good their choice is; `accesses` are the bytes that each buffer
    loads and stores, `whole` is the plan of all buffers in one memory, if there is one already.

    With `fast`, less time is looked for where no more bytes are needed for it, up to `most` for what pins take apart.  Raises
    E2013 if a buffer fits nowhere, and E5019 for a pin that names no buffer.
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
    # the pools one after the other are a plan for one memory, so none needs less than that
    optimal = whole.optimal and end <= whole.size
    return MemoryPlan({b.name: offset[b.name] for b in buffers}, end, whole.lower_bound, optimal), tuple(used), choice


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


def with_known_pins(pooling: Pooling, names: Mapping[str, str], buffers: Collection[str]) -> Pooling:
    """The pins with buffers for tensors: `names` has those of tensors that lie in a buffer of another name.

    Raises E5019 for a pin that names no buffer, and for two tensors of one buffer that are pinned to different pools.
    """
    unknown = [t for t, _ in pooling.pins if t not in buffers and t not in names]
    if unknown:
        known = ", ".join(sorted(n for n in buffers if n)[:12])
        raise UsageError(
            *(
                Problem("E5019", f"--pin {t}: no such tensor in the workspace{did_you_mean(t, buffers)}; there are {known}, …")
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
    helps = "a larger pool or no --pin would help" if pooling.pins else "a larger pool would help"
    if fitting:
        helps = " or ".join(f"--pin {left_out.name}={name}" for name in fitting) + " has room"
    helps += "" if choice.optimal else STOPPED
    return Problem(
        "E2013", f"{message} ({'; '.join(room)}); the peak is at {where} with {need:,} bytes: {largest}; "
        f"in one memory all need {whole:,} bytes; {helps}"
    )  # fmt: skip
