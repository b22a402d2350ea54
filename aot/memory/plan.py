"""What the planner is given and what it returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
