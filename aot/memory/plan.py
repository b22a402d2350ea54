"""A memory plan, and lower bounds on its size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from aot.support.dataclass import dataclass

Kind = Literal["tensor", "input", "output", "scratch"]


@dataclass(frozen=True, slots=True)
class BufferInfo:
    """`size` bytes that hold a value from step `first` to step `last`, both included.

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

    With `min_distance` None they may not overlap.  With a number, b may overlap a if it starts at least that many bytes after a
    (a negative number: it may start before a), because the kernel reads one and writes the other and stays ahead.  A kernel that
    runs upward and writes `out` after it reads `in` says Conflict(out, in, d).
    """

    a: str
    b: str
    min_distance: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """`offset` of each buffer in the workspace, and the `size` of the workspace.

    No plan that keeps the conflicts given to the planner is below `lower_bound`.  `optimal`: proven that no plan is smaller, by
    the bound or by exhaustive search.
    """

    offset: Mapping[str, int]
    size: int
    lower_bound: int
    optimal: bool = False


def live_together(buffers: Sequence[BufferInfo]) -> Iterator[tuple[BufferInfo, BufferInfo]]:
    """All pairs that are live at the same step, in the order of `buffers`; the time is linear in the number of pairs."""
    later: list[list[int]] = [[] for _ in buffers]
    active: list[int] = []
    for i in sorted(range(len(buffers)), key=lambda i: buffers[i].first):
        if buffers[i].last < buffers[i].first:
            continue
        active = [k for k in active if buffers[k].last >= buffers[i].first]
        for k in active:
            later[min(i, k)].append(max(i, k))
        active.append(i)
    for i, partners in enumerate(later):
        for k in sorted(partners):
            yield buffers[i], buffers[k]


def conflicts(buffers: tuple[BufferInfo, ...]) -> tuple[Conflict, ...]:
    """All pairs that are live at the same step, as conflicts that allow no overlap."""
    return tuple(Conflict(a.name, b.name) for a, b in live_together(buffers))


def forbidden_starts(conflict: Conflict, a: BufferInfo, b: BufferInfo) -> tuple[int, int]:
    """(low, high): b.offset - a.offset must not be strictly between them.

    At `high` or more, b starts far enough after a; at `low` = -b.size or less, it ends before a starts.
    """
    distance = a.size if conflict.min_distance is None else min(conflict.min_distance, a.size)
    return -b.size, max(distance, -b.size)


def align_up(value: int, align: int) -> int:
    return -(-value // align) * align


# ---- lower bounds on any plan


Pair = tuple[int, int, int]
"""Two indices of live buffers, and the bytes that they can share."""


def lower_bound(buffers: Sequence[BufferInfo], clashes: Iterable[Conflict] = ()) -> int:
    """Bytes that the busiest step needs, however the buffers are placed; `clashes` say which may overlap.

    Without overlap, all offsets at a step are multiples of the smallest alignment there, so every buffer but the topmost occupies
    a multiple of it.  With overlap, the union of the intervals is at least the sum of the sizes less what pairs can share
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
    """Bytes of the tensors that are live at the busiest step: whole tensors, no scratch, no overlap."""
    return lower_bound([b for b in buffers if b.kind != "scratch"])


def possible_savings(buffers: Sequence[BufferInfo], clashes: Iterable[Conflict]) -> dict[tuple[str, str], int]:
    """For each pair that may overlap, the most bytes that the two buffers can share.

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

    If all pairs have one buffer in common and the others keep apart, it is at most the size of that buffer.
    """
    total = sum(s for _, _, s in pairs)
    for center in {k for i, j, _ in pairs for k in (i, j)}:
        if all(center in (i, j) for i, j, _ in pairs):
            total = min(total, live[center].size)
    return total
