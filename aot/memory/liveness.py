"""Branches and loops over numbered steps, and the lifetime of each buffer in an order of execution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from aot.memory.plan import BufferInfo, Conflict, Kind, live_together
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Control:
    """Steps `first` to `last` - 1 in two parts, not both empty; the second part begins at `middle`.

    if: the first part runs if the condition holds, otherwise the second.  while: the first part computes the condition; while it
    holds, the second part runs, then the first again.  `trips`: the number of iterations, if known.
    """

    kind: Literal["if", "while"]
    first: int
    middle: int
    last: int
    trips: int | None = None

    def __contains__(self, step: object) -> bool:
        return isinstance(step, int) and self.first <= step < self.last


@dataclass(frozen=True, slots=True)
class Nested:
    """A branch or loop, number `index` of all, with the contents of its parts: step numbers and nested branches or loops."""

    index: int
    control: Control
    first: tuple[int | Nested, ...]
    second: tuple[int | Nested, ...]


def nested(controls: Sequence[Control], steps: int) -> tuple[int | Nested, ...]:
    """Return the steps 0 to `steps` - 1 as a tree; `controls` are sorted: outer before inner, else in program order."""
    return _items(controls, list(range(len(controls))), 0, steps)


def _items(controls: Sequence[Control], inside: list[int], start: int, stop: int) -> tuple[int | Nested, ...]:
    items: list[int | Nested] = []
    at = start
    while inside:
        k, *inside = inside
        c = controls[k]
        within = [i for i in inside if c.first <= controls[i].first and controls[i].last <= c.last]
        inside = [i for i in inside if i not in within]
        items += range(at, c.first)
        one = [i for i in within if controls[i].last <= c.middle]
        two = [i for i in within if i not in one]
        items.append(Nested(k, c, _items(controls, one, c.first, c.middle), _items(controls, two, c.middle, c.last)))
        at = c.last
    return (*items, *range(at, stop))


def spread_over_loops(touched: set[int], controls: Sequence[Control]) -> tuple[int, int]:
    """Return the first and last step between which a storage is in use, given the steps that touch it.

    A storage that is used both inside and outside a loop keeps its value through the whole loop.
    """
    low, high = min(touched), max(touched)
    for c in reversed(controls):  # inner loops first
        if c.kind == "while" and any(t in c for t in (low, high)) and not (low in c and high in c):
            low, high = min(low, c.first), max(high, c.last - 1)
    return low, high


def loops_around(controls: Sequence[Control], step: int) -> tuple[int, ...]:
    """Indices of the loops around a step, outermost first."""
    return tuple(k for k, c in enumerate(controls) if c.kind == "while" and step in c)


def without_step(controls: Sequence[Control], step: int) -> tuple[Control, ...] | None:
    """The controls with one step removed; None if that leaves one of them empty."""
    moved = [
        replace(c, first=c.first - (step < c.first), middle=c.middle - (step < c.middle), last=c.last - (step < c.last))
        for c in controls
    ]
    return tuple(moved) if all(c.first < c.last for c in moved) else None


def with_steps(controls: Sequence[Control], at: int, count: int) -> tuple[Control, ...]:
    """The controls with `count` steps inserted before step `at`, which is in none of them."""
    shifted = (count * (c.first > at) for c in controls)
    return tuple(
        replace(c, first=c.first + n, middle=c.middle + n, last=c.last + n) for c, n in zip(controls, shifted, strict=True)
    )


def runs(controls: Sequence[Control], step: int) -> int:
    """How often a step runs in one run of the program; a loop with an unknown number of iterations counts once."""
    times = 1
    for c in controls:
        if c.kind == "while" and c.trips is not None and step in c:
            times *= c.trips + (step < c.middle)
    return times


# ---- from the order of execution to the lifetime of each buffer


@dataclass(frozen=True, slots=True)
class Storage:
    """Memory that the plan must place; `align` in bytes."""

    name: str
    size: int
    align: int = 1
    kind: Kind = "tensor"


@dataclass(frozen=True, slots=True)
class Step:
    """One layer: the names that it reads and the names that it writes, including scratch memory.

    `distances` lists pairs of these names that may overlap while the layer runs, with the distance that was proven safe for its
    kernel (`Conflict.min_distance`); all other pairs keep apart.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    distances: tuple[Conflict, ...] = ()


@dataclass(frozen=True, slots=True)
class StorageTrace:
    """An order of execution over named memory.

    `inputs` hold values before the first step; `outputs` must still hold theirs after the last one.  `copies` happen after the
    last step, in order: (from, to), where an empty `from` is memory outside the plan.  `controls` are branches and loops over the
    steps; `conditions` names the storage of the condition for each of them ("": outside the plan).
    """

    storages: tuple[Storage, ...]
    steps: tuple[Step, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    copies: tuple[tuple[str, str], ...] = ()
    controls: tuple[Control, ...] = ()
    conditions: tuple[str, ...] = ()


def liveness(program: StorageTrace) -> tuple[BufferInfo, ...]:
    """Return the lifetime of each storage, in the order of the program; storages that nothing touches are left out."""
    end = len(program.steps)
    touched: dict[str, list[int]] = {}

    def touch(name: str, step: int) -> None:
        touched.setdefault(name, []).append(step)

    for name in program.inputs:
        touch(name, -1)
    for i, step in enumerate(program.steps):
        for name in step.reads + step.writes:
            touch(name, i)
    for c, name in zip(program.controls, program.conditions, strict=True):
        if name:
            touch(name, c.first if c.kind == "if" else min(c.middle, c.last - 1))  # tested before this step, or after it
            if c.kind == "while" and not any(name in program.steps[i].writes for i in range(c.first, c.middle)):
                touch(name, c.first)  # computed before, and read again after each iteration
                touch(name, c.last - 1)
    for source, target in program.copies:
        if source:
            touch(source, end)
        touch(target, end)
    for name in program.outputs:
        touch(name, end)
    spans = {name: spread_over_loops(set(steps), program.controls) for name, steps in touched.items()}
    return tuple(BufferInfo(s.name, s.size, s.align, *spans[s.name], s.kind) for s in program.storages if s.name in spans)


def program_conflicts(program: StorageTrace, buffers: Sequence[BufferInfo]) -> tuple[Conflict, ...]:
    """Return all pairs of buffers that are live at the same step, with the distances that the steps allow.

    A distance applies only if that step is the only one that both lifetimes share and the value read is not needed later: it may
    be destroyed while the step runs.
    """
    allowed = _allowed(program, {b.name: b for b in buffers})
    pairs = []
    for a, b in live_together(buffers):
        up, down = allowed.get((a.name, b.name)), allowed.get((b.name, a.name))
        # one conflict cannot allow both directions, so such a pair keeps apart
        pairs.append((up or down or Conflict(a.name, b.name)) if up is None or down is None else Conflict(a.name, b.name))
    return tuple(pairs)


def _allowed(program: StorageTrace, by_name: Mapping[str, BufferInfo]) -> dict[tuple[str, str], Conflict]:
    """Allowed distances of all steps per pair of storages; the largest one if a storage is several operands of a step."""
    allowed: dict[tuple[str, str], int] = {}
    for i, step in enumerate(program.steps):
        for c in step.distances:
            a, b = by_name.get(c.a), by_name.get(c.b)
            if a is None or b is None or a is b or c.min_distance is None:
                continue
            shared = (max(a.first, b.first), min(a.last, b.last))
            if shared == (i, i) and all(x.last == i for x in (a, b) if x.name in step.reads):
                allowed[a.name, b.name] = max(c.min_distance, allowed.get((a.name, b.name), c.min_distance))
    return {(a, b): Conflict(a, b, distance) for (a, b), distance in allowed.items()}
