"""What the planner is given and what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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
    stays ahead.
    """

    a: str
    b: str
    min_distance: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """`offset` of each buffer in the workspace; `size` is what the workspace needs, `lower_bound` what no plan can go below."""

    offset: Mapping[str, int]
    size: int
    lower_bound: int


def overlap_in_time(a: BufferInfo, b: BufferInfo) -> bool:
    return a.first <= b.last and b.first <= a.last


def conflicts(buffers: tuple[BufferInfo, ...]) -> tuple[Conflict, ...]:
    """All pairs that are live at one step, as conflicts without any overlap."""
    return tuple(Conflict(a.name, b.name) for i, a in enumerate(buffers) for b in buffers[i + 1 :] if overlap_in_time(a, b))


def align_up(value: int, align: int) -> int:
    return -(-value // align) * align
