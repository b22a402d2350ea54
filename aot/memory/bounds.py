"""Bytes that no plan can go below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aot.memory.plan import BufferInfo, Conflict, align_up

Pair = tuple[int, int, int]
"""Two indices of live buffers, and the bytes that they can have in common."""


def lower_bound(buffers: Sequence[BufferInfo], clashes: Iterable[Conflict] = ()) -> int:
    """Bytes that the busiest step needs, however the buffers are placed; `clashes` say which may overlap.

    Without overlap, all offsets at a step are multiples of the smallest alignment there, so each buffer but the topmost takes a
    multiple of it.  With overlap, the union of intervals is at least the sum of their sizes less what the pairs have in common
    (Bonferroni's inequality).
    """
    savings: dict[str, list[tuple[str, int]]] = {}
    for (x, y), s in possible_savings(buffers, clashes).items():
        savings.setdefault(x, []).append((y, s))
    begun: dict[int, list[BufferInfo]] = {}
    for b in buffers:
        begun.setdefault(b.first, []).append(b)
    best, live = 0, list[BufferInfo]()
    for step in sorted(begun):
        live = [b for b in (*live, *begun[step]) if b.last >= step and b.size]
        if not live:
            continue
        index = {b.name: i for i, b in enumerate(live)}
        pairs = [(i, index[y], s) for x, i in index.items() for y, s in savings.get(x, ()) if y in index]
        align = 1 if pairs else min(b.align for b in live)
        rounded = [align_up(b.size, align) for b in live]
        slack = max(r - b.size for r, b in zip(rounded, live, strict=True))
        best = max(best, sum(rounded) - slack - common_bytes(live, pairs))
    return best


def liveness_bound(buffers: Sequence[BufferInfo]) -> int:
    """Bytes of the tensors that are alive at the busiest step: whole tensors, no scratch, nothing overlaps."""
    return lower_bound([b for b in buffers if b.kind != "scratch"])


def possible_savings(buffers: Sequence[BufferInfo], clashes: Iterable[Conflict]) -> dict[tuple[str, str], int]:
    """For each pair that may overlap, the most bytes that its two buffers can have in common.

    With b at least d after a, the two span at least max(a.size, b.size, d + b.size) bytes.
    """
    by_name = {b.name: b for b in buffers}
    savings: dict[tuple[str, str], int] = {}
    for c in clashes:
        a, b = by_name[c.a], by_name[c.b]
        if c.min_distance is not None:
            saved = a.size + b.size - max(a.size, b.size, c.min_distance + b.size)
            if saved > 0:
                savings[a.name, b.name] = saved
    return savings


def common_bytes(live: Sequence[BufferInfo], pairs: Sequence[Pair]) -> int:
    """The most bytes by which the union of the buffers can be smaller than the sum of their sizes.

    Where all pairs share one buffer and the others keep apart from each other, it can be no more than that buffer's size.
    """
    total = sum(s for _, _, s in pairs)
    for center in {k for i, j, _ in pairs for k in (i, j)}:
        if all(center in (i, j) for i, j, _ in pairs):
            total = min(total, live[center].size)
    return total
