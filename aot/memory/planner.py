"""Offsets in one workspace: several greedy orders, a seeded hill climb over orders, then branch and bound."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from aot.memory.bounds import lower_bound
from aot.memory.plan import BufferInfo, Conflict, MemoryPlan, align_up, conflicts, forbidden_starts
from aot.memory.planner_exact import improve

CLIMB_WORK = 400_000
"""Placements times neighbours that the hill climb may look at by default: well below a second."""

EXACT_NODES = 20_000
"""Nodes that branch and bound may visit by default, with TRIALS less than a second; none where the bound is met."""

FIRST_NODES = 1_000
"""Nodes of them that may be visited before the climb: small sets are proven at once, and nothing is left to climb for."""

Forbidden = dict[str, list[tuple[str, int, int]]]
"""For each buffer its neighbours as (name, low, high): starts strictly between, relative to the neighbour's, are not allowed."""

Order = list[BufferInfo]


def plan(
    buffers: Sequence[BufferInfo],
    clashes: Iterable[Conflict] | None = None,
    *,
    effort: int = CLIMB_WORK,
    nodes: int = EXACT_NODES,
) -> MemoryPlan:
    """Place all buffers; the same buffers in the same order always give the same plan.

    `clashes` are all pairs that must keep apart, or keep a distance (`program_conflicts`); without them, every two buffers that
    are live at one step keep apart.  The plan says whether it is proven optimal.
    """
    pairs = list(conflicts(tuple(buffers)) if clashes is None else clashes)
    forbidden = _forbidden(buffers, pairs)
    bound = lower_bound(buffers, pairs)
    best_order, best, height = list(buffers), dict[str, int](), -1
    for key in _ORDERS:
        order = sorted(buffers, key=lambda b, key=key: (key(b), b.name))  # type: ignore[misc]
        offsets, top = _place(order, forbidden)
        if height < 0 or top < height:
            best_order, best, height = order, offsets, top
        if height <= bound:
            break
    floor = _floor(buffers, pairs, known=height, bound=bound, nodes=min(nodes, FIRST_NODES)) if height > bound else bound
    if height > floor:
        best, height = _climb(best_order, forbidden, best, height=height, bound=floor, effort=effort)
    optimal = height <= floor
    if not optimal and nodes:
        found = improve(buffers, pairs, known=height, bound=bound, nodes=nodes)
        optimal = found.proven
        if found.offsets is not None:
            best = found.offsets
            height = max(best[b.name] + b.size for b in buffers)
    return MemoryPlan({b.name: best[b.name] for b in buffers}, max(height, 0), bound, optimal)


def _floor(buffers: Sequence[BufferInfo], pairs: Sequence[Conflict], *, known: int, bound: int, nodes: int) -> int:
    """No plan has fewer bytes than this, at most `known`: the optimum where `nodes` are enough to prove it, else `bound`."""
    found = improve(buffers, pairs, known=known, bound=bound, nodes=nodes)
    if not found.proven:
        return bound
    return known if found.offsets is None else max(found.offsets[b.name] + b.size for b in buffers)


_ORDERS: tuple[Callable[[BufferInfo], tuple[int, ...]], ...] = (
    lambda b: (-b.size, b.first),
    lambda b: (b.first - b.last, -b.size),
    lambda b: (-b.size * (b.last - b.first + 1), b.first),
    lambda b: (b.first, -b.size),
    lambda b: (-b.last, -b.size),
)


def _forbidden(buffers: Sequence[BufferInfo], clashes: Iterable[Conflict]) -> Forbidden:
    by_name = {b.name: b for b in buffers}
    table: Forbidden = {b.name: [] for b in buffers}
    for c in clashes:
        a, b = by_name[c.a], by_name[c.b]
        if a.size and b.size:
            low, high = forbidden_starts(c, a, b)
            table[b.name].append((a.name, low, high))
            table[a.name].append((b.name, -high, -low))
    return table


def _place(order: Order, forbidden: Forbidden) -> tuple[dict[str, int], int]:
    """Put each buffer, in order, at the lowest offset that its placed neighbours allow."""
    offsets: dict[str, int] = {}
    top = 0
    for b in order:
        gaps = sorted((offsets[n] + low, offsets[n] + high) for n, low, high in forbidden[b.name] if n in offsets)
        start = 0
        for low, high in gaps:
            if start > low and start < high:
                start = align_up(high, b.align)
        offsets[b.name] = start
        top = max(top, start + b.size)
    return offsets, top


def _climb(
    order: Order, forbidden: Forbidden, best: dict[str, int], *, height: int, bound: int, effort: int
) -> tuple[dict[str, int], int]:  # fmt: skip
    """Exchange and move buffers in the order of placement, keep what is not worse; those at the top and near them first."""
    rng = random.Random(len(order))
    work = effort // max(1, sum(map(len, forbidden.values())) + len(order))
    current, offsets, level = order, best, height
    for _ in range(work):
        if height <= bound:
            break
        candidate = _neighbour(current, offsets, forbidden, rng, level=level)
        new_offsets, top = _place(candidate, forbidden)
        if top <= level or rng.random() < 0.02:
            current, offsets, level = candidate, new_offsets, top
        if top < height:
            best, height = new_offsets, top
    return best, height


def _neighbour(order: Order, offsets: dict[str, int], forbidden: Forbidden, rng: random.Random, *, level: int) -> Order:
    """An order in which a buffer that reaches the top, or one of its neighbours, is placed at another time."""
    peak = [i for i, b in enumerate(order) if offsets[b.name] + b.size == level]
    i = rng.choice(peak)
    near = {n for n, _, _ in forbidden[order[i].name]}
    others = [k for k, b in enumerate(order) if b.name in near] or [i]
    if rng.random() < 0.5:
        i = rng.choice(others)
    k = rng.choice(others) if rng.random() < 0.7 else rng.randrange(len(order))
    new = list(order)
    if rng.random() < 0.5:
        new[i], new[k] = new[k], new[i]
    else:
        new.insert(k, new.pop(i))
    return new
