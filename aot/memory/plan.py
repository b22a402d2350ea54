"""A memory plan, and bytes that none can go below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from aot.support.dataclass import dataclass

Kind = Literal["tensor", "input", "output", "scratch"]


@dataclass(frozen=True, slots=True)
class BufferInfo:
    """`size` bytes that hold something from step `first` to step `last`, both included.

    Step i is layer i; inputs live from step -1, outputs until the step after the last layer.  `align`: a power of two, in bytes.
    """

    name: str
    size: int
    align: int
    first: int
    last: int
    kind: Kind = "tensor"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Buffers `a` and `b` share a step.

    With `min_distance` None they may not overlap.  With a number, b may also lie over a as long as it starts at least that many
    bytes after the start of a (a negative number: it may start before it): the kernel that reads one while it writes the other
    stays ahead.  A kernel that runs upward and writes `out` after its reads of `in` says Conflict(out, in, d).
    """

    a: str
    b: str
    min_distance: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """`offset` of each buffer in the workspace; `size` is what the workspace needs.

    `lower_bound` is what no plan can go below under the conflicts that the planner was given.  `optimal`: it is proven that no
    plan is smaller, by the bound or by exhaustive search.
    """

    offset: Mapping[str, int]
    size: int
    lower_bound: int
    optimal: bool = False

    @property
    def gap(self) -> float:
        """How far the plan may be above the optimum, as a part of the bound: 0.0 where it is proven optimal."""
        return 0.0 if self.optimal or not self.lower_bound else (self.size - self.lower_bound) / self.lower_bound


def overlap_in_time(a: BufferInfo, b: BufferInfo) -> bool:
    return a.first <= b.last and b.first <= a.last


def live_together(buffers: Sequence[BufferInfo]) -> Iterator[tuple[BufferInfo, BufferInfo]]:
    """All pairs that are live at one step, each in the order of `buffers`, in as many steps as there are pairs."""
    later: list[list[int]] = [[] for _ in buffers]
    active: list[int] = []
    for i in sorted(range(len(buffers)), key=lambda i: buffers[i].first):
        if buffers[i].last < buffers[i].first:
            continue
        active = [k for k in active if buffers[k].last >= buffers[i].first]
        for k in active:
            later[min(i, k)].append(max(i, k))
        active.append(i)
    for i, found in enumerate(later):
        for k in sorted(found):
            yield buffers[i], buffers[k]


def conflicts(buffers: tuple[BufferInfo, ...]) -> tuple[Conflict, ...]:
    """All pairs that are live at one step, as conflicts without any overlap."""
    return tuple(Conflict(a.name, b.name) for a, b in live_together(buffers))


def forbidden_starts(conflict: Conflict, a: BufferInfo, b: BufferInfo) -> tuple[int, int]:
    """(low, high): b.offset - a.offset must not lie strictly between them.

    From `high` on b starts far enough after a's start, up to `low` = -b.size it ends before a starts.
    """
    distance = a.size if conflict.min_distance is None else min(conflict.min_distance, a.size)
    return -b.size, max(distance, -b.size)


def align_up(value: int, align: int) -> int:
    return -(-value // align) * align


# ---- bytes that no plan can go below


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
