"""Branches and loops over steps that are numbered in the order of the program's text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Control:
    """Steps `first` to `last` - 1, of which `middle` is the first of the second part; not empty.

    if: the first part runs where the condition holds, the second where it does not.  while: the first part computes the
    condition; while it holds the second runs, then the first again.  `trips`: iterations, where they are known.
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
    """A branch or loop (`index` among all) with what its parts hold: step numbers, and further ones inside."""

    index: int
    control: Control
    first: tuple[int | Nested, ...]
    second: tuple[int | Nested, ...]


def nested(controls: Sequence[Control], steps: int) -> tuple[int | Nested, ...]:
    """The steps 0 to `steps` - 1 as a tree; `controls` are those outside before those inside, else in the order of the text."""
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
    """First and last step between which a storage is in use, given the steps that touch it.

    What is used both inside and outside of a loop holds its value through all of it.
    """
    low, high = min(touched), max(touched)
    for c in reversed(controls):  # those inside first
        if c.kind == "while" and any(t in c for t in (low, high)) and not (low in c and high in c):
            low, high = min(low, c.first), max(high, c.last - 1)
    return low, high


def loops_around(controls: Sequence[Control], step: int) -> tuple[int, ...]:
    """The loops that a step is in, outermost first, by their indices."""
    return tuple(k for k, c in enumerate(controls) if c.kind == "while" and step in c)


def without_step(controls: Sequence[Control], step: int) -> tuple[Control, ...] | None:
    """The controls over the steps without one of them; None if one would be left empty."""
    moved = [
        replace(c, first=c.first - (step < c.first), middle=c.middle - (step < c.middle), last=c.last - (step < c.last))
        for c in controls
    ]
    return tuple(moved) if all(c.first < c.last for c in moved) else None


def with_steps(controls: Sequence[Control], at: int, count: int) -> tuple[Control, ...]:
    """The controls over the steps with `count` more in front of step `at`, which is in none of them."""
    shifted = (count * (c.first > at) for c in controls)
    return tuple(
        replace(c, first=c.first + n, middle=c.middle + n, last=c.last + n) for c, n in zip(controls, shifted, strict=True)
    )


def runs(controls: Sequence[Control], step: int) -> int:
    """How often a step runs in one run of the program; a loop whose iterations are not known counts as one."""
    times = 1
    for c in controls:
        if c.kind == "while" and c.trips is not None and step in c:
            times *= c.trips + (step < c.middle)
    return times


def all_steps(items: Sequence[int | Nested]) -> Iterator[int]:
    """The steps of a tree, in order."""
    for item in items:
        if isinstance(item, int):
            yield item
        else:
            yield from all_steps(item.first)
            yield from all_steps(item.second)
