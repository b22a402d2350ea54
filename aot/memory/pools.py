"""Several memories: which buffer goes into which pool, and one plan over all of them.

The plan numbers the bytes of all pools one after the other: pool k begins at its `base`.  Buffers of different pools never share
bytes, so the verifier needs to know nothing of pools but that a buffer must not reach over the end of one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from aot.errors import InternalError, Problem, TargetError, UsageError
from aot.memory.plan import BufferInfo, Conflict, MemoryPlan, align_up
from aot.memory.planner import plan
from aot.support.pool import BASE_ALIGN, NAME, Pool


@dataclass(frozen=True, slots=True)
class Pooling:
    """The pools in the order of the user, and pairs (tensor, pool) that must lie together; `constants` are pools in flash."""

    pools: tuple[Pool, ...] = ()
    pins: tuple[tuple[str, str], ...] = ()
    constants: tuple[Pool, ...] = ()


ONE_POOL = Pooling()
"""No pools: one workspace, wherever it lies."""


@dataclass(frozen=True, slots=True)
class UsedPool:
    """What a plan uses of a pool: `used` bytes, which the plan numbers from `base` on."""

    pool: Pool
    base: int
    used: int
    buffers: tuple[str, ...]


def parse_pool(text: str) -> Pool:
    """`NAME=SIZE@ADDRESS:SPEED`, where @ADDRESS and :SPEED may be missing; SIZE such as 65536, 64K or 64KiB (E5009)."""
    match = re.fullmatch(rf"({NAME})=(\d+)(K|KiB|M|MiB)?(?:@(0x[0-9A-Fa-f]+|\d+))?(?::(\d+(?:\.\d+)?))?", text)
    if match is None:
        raise UsageError(Problem("E5009", f"pool {text}: give NAME=SIZE@ADDRESS:SPEED, such as DTCM=64K@0x20000000:2"))
    name, size, unit, address, speed = match.groups()
    return Pool(
        name,
        int(size) * {"": 1, "K": 1 << 10, "M": 1 << 20}[(unit or "")[:1]],
        None if address is None else int(address, 0),
        1.0 if speed is None else float(speed),
    )


def check_pooling(pooling: Pooling) -> None:
    """Raise E5009 where a pool has a fault, two have one name or share bytes, or a pin names no pool."""
    both = (*pooling.pools, *pooling.constants)
    names = [p.name for p in pooling.pools]
    every = [p.name for p in both]
    problems = [Problem("E5009", p.fault) for p in both if p.fault]
    problems += [Problem("E5009", f"there are two pools {n}") for n in sorted({n for n in every if every.count(n) > 1})]
    problems += [Problem("E5009", f"--pin {t}={p}: there is no such pool") for t, p in pooling.pins if p not in names]
    fixed = sorted((p.address, p.address + p.size, p.name) for p in both if p.address is not None)
    for (_, end, a), (start, _, b) in pairwise(fixed):
        if start < end:
            problems.append(Problem("E5009", f"the pools {a} and {b} share bytes"))
    if problems:
        raise UsageError(*problems)


def plan_pools(
    buffers: Sequence[BufferInfo], clashes: Iterable[Conflict], pooling: Pooling, *, accesses: Mapping[str, int]
) -> tuple[MemoryPlan, tuple[UsedPool, ...]]:
    """A plan over all pools, and those pools that it uses; `accesses` counts the loads and stores of each buffer.

    Buffers with many accesses for each byte that they keep busy choose first, each the fastest pool in which all that chose it
    before still fits.  Raises E2013 where one fits nowhere, and E5009 for a pin that names no buffer.
    """
    pairs = list(clashes)
    chosen = _choose(buffers, pairs, pooling, accesses)
    offset: dict[str, int] = {}
    used: list[UsedPool] = []
    base, bound, optimal = 0, 0, True
    for pool in pooling.pools:
        mine = [b for b in buffers if chosen[b.name] == pool.name]
        if not mine:
            continue
        part = plan(mine, _within(pairs, mine))
        if part.size > pool.size:
            raise TargetError(_no_room(mine[0], mine, pooling))
        offset |= {name: base + at for name, at in part.offset.items()}
        used.append(UsedPool(pool, base, part.size, tuple(b.name for b in mine)))
        base += align_up(part.size, BASE_ALIGN)
        bound, optimal = bound + part.lower_bound, optimal and part.optimal
    size = max((u.base + u.used for u in used), default=0)
    return MemoryPlan({b.name: offset[b.name] for b in buffers}, size, bound, optimal), tuple(used)


def fill_pools(sizes: Mapping[str, int], pools: Sequence[Pool], *, reads: Mapping[str, int]) -> dict[str, str]:
    """The pool of each constant: those with the most reads for each byte choose first, the fastest pool with room (E2013).

    `sizes` in bytes, with what alignment may cost; constants are never moved, so they fill a pool one after the other.
    """
    left = {p.name: p.size for p in pools}
    by_speed = sorted(pools, key=lambda p: -p.speed)
    chosen: dict[str, str] = {}
    for name in sorted(sizes, key=lambda n: (-reads.get(n, 0) / max(sizes[n], 1), -sizes[n], n)):
        fitting = [p.name for p in by_speed if sizes[name] <= left[p.name]]
        if not fitting:
            room = ", ".join(f"{p} {n:,}" for p, n in left.items())
            total = f"all constants need {sum(sizes.values()):,} bytes"
            message = (
                f"the constant {name} of {sizes[name]:,} bytes fits into no pool; left are {room}; {total}; "
                "a larger pool or --opt size would help"
            )
            raise TargetError(Problem("E2013", message))
        chosen[name] = fitting[0]
        left[fitting[0]] -= sizes[name]
    return chosen


def verify_pools(buffers: Sequence[BufferInfo], memory_plan: MemoryPlan, pools: Sequence[UsedPool]) -> None:
    """Raise E9005 where a buffer reaches over the end of its pool, or a pool is larger than the user said."""
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


def _choose(
    buffers: Sequence[BufferInfo], pairs: Sequence[Conflict], pooling: Pooling, accesses: Mapping[str, int]
) -> dict[str, str]:  # fmt: skip
    """The pool of each buffer."""
    pins = _pins(buffers, pooling)
    inside: dict[str, list[BufferInfo]] = {p.name: [] for p in pooling.pools}
    by_speed = sorted(pooling.pools, key=lambda p: -p.speed)
    order = sorted(buffers, key=lambda b: (b.name not in pins, -accesses.get(b.name, 0) / max(b.size, 1), -b.size, b.name))
    chosen: dict[str, str] = {}
    for b in order:
        for pool in by_speed:
            if pins.get(b.name, pool.name) != pool.name:
                continue
            together = [*inside[pool.name], b]
            if plan(together, _within(pairs, together), effort=20_000, nodes=0).size <= pool.size:
                inside[pool.name].append(b)
                chosen[b.name] = pool.name
                break
        else:
            raise TargetError(_no_room(b, buffers, pooling))
    return chosen


def _pins(buffers: Sequence[BufferInfo], pooling: Pooling) -> dict[str, str]:
    names = {b.name for b in buffers}
    unknown = [t for t, _ in pooling.pins if t not in names]
    if unknown:
        known = ", ".join(sorted(n for n in names if n)[:12])
        raise UsageError(
            *(Problem("E5009", f"--pin {t}: no such tensor in the workspace; there are {known}, …") for t in unknown)
        )
    return dict(pooling.pins)


def _within(pairs: Sequence[Conflict], buffers: Sequence[BufferInfo]) -> list[Conflict]:
    names = {b.name for b in buffers}
    return [c for c in pairs if c.a in names and c.b in names]


def _no_room(buffer: BufferInfo, buffers: Sequence[BufferInfo], pooling: Pooling) -> Problem:
    """What does not fit, what is alive at the busiest step, and what would help."""
    steps = sorted({b.first for b in buffers})
    live = {s: [b for b in buffers if b.first <= s <= b.last] for s in steps}
    peak = max(steps, key=lambda s: (sum(b.size for b in live[s]), -s))
    largest = ", ".join(f"{b.name} {b.size:,}" for b in sorted(live[peak], key=lambda b: (-b.size, b.name))[:3])
    room = ", ".join(f"{p.name} {p.size:,}" for p in pooling.pools)
    pin = dict(pooling.pins).get(buffer.name)
    need = sum(b.size for b in live[peak])
    message = f"{buffer.name} of {buffer.size:,} bytes fits into no pool ({room})" if pin is None else (
        f"{buffer.name} of {buffer.size:,} bytes, pinned to {pin}, does not fit there ({room})"
    )  # fmt: skip
    where = "the inputs" if peak < 0 else f"layer {peak}"
    return Problem(
        "E2013",
        f"{message}; the peak is at {where} with {need:,} bytes: {largest}; a larger pool, --opt ram or no --pin would help",
    )
