"""Which kernel for which layer: the fewest instructions under a flash and a RAM budget, exactly.

Each layer has candidates {instructions, constants, code, scratch}.  Layers whose candidates have the same code share it, so the choice
is made for such a group at once: for every subset of its kernels the code is paid once and each layer takes the best of the subset.
A group thus yields a set of (flash, instructions) points; points of all groups are added up and only the undominated ones are kept.
That set holds an optimal choice for every budget.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations

from aot.op.impl import Lowered

MAX_SUBSET = 3
"""Kernels that one group of equal layers may mix; more would only ever pay for code again."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One kernel for one layer; `key` is equal for candidates that share their code; sizes in bytes."""

    kernel: str
    lowered: Lowered
    key: Hashable
    instructions: int
    constants: int
    code: int
    scratch: int


@dataclass(frozen=True, slots=True)
class Budget:
    """`flash`: constants and kernel code together; `scratch`: of each layer, given by its place in the schedule. None: no limit."""

    flash: int | None = None
    scratch: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The index of the chosen candidate of each layer, and what they add up to."""

    chosen: tuple[int, ...]
    instructions: int
    flash: int


@dataclass(frozen=True, slots=True)
class _Point:
    flash: int
    instructions: int
    chosen: tuple[tuple[int, int], ...]
    """(layer, candidate) pairs"""


def choose(layers: Sequence[Sequence[Candidate]], budget: Budget) -> Choice:
    """The best choice within the budget; where none fits, the one with the least flash.

    A layer none of whose candidates respects its scratch limit keeps the one with the least scratch.
    """
    allowed = [_allowed(c, None if budget.scratch is None else budget.scratch[i]) for i, c in enumerate(layers)]
    front = [_Point(0, 0, ())]
    for group in _groups(layers, allowed):
        front = _undominated([_sum(a, b) for a in front for b in _group_points(layers, allowed, group)])
    fitting = [p for p in front if budget.flash is None or p.flash <= budget.flash]
    best = min(fitting, key=lambda p: (p.instructions, p.flash)) if fitting else min(front, key=lambda p: p.flash)
    chosen = dict(best.chosen)
    return Choice(tuple(chosen[i] for i in range(len(layers))), best.instructions, best.flash)


def _allowed(candidates: Sequence[Candidate], limit: int | None) -> tuple[int, ...]:
    fitting = tuple(k for k, c in enumerate(candidates) if limit is None or c.scratch <= limit)
    if fitting:
        return fitting
    return (min(range(len(candidates)), key=lambda k: (candidates[k].scratch, candidates[k].instructions)),)


def _groups(layers: Sequence[Sequence[Candidate]], allowed: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Layers with the same code for each of their candidates."""
    table: dict[Hashable, list[int]] = {}
    for i, candidates in enumerate(layers):
        table.setdefault(tuple(candidates[k].key for k in allowed[i]), []).append(i)
    return list(table.values())


def _group_points(
    layers: Sequence[Sequence[Candidate]], allowed: Sequence[tuple[int, ...]], group: Sequence[int]
) -> list[_Point]:
    """The undominated (flash, instructions) points of a group of layers with equal candidates."""
    first = group[0]
    slots = range(len(allowed[first]))
    points: list[_Point] = []
    for size in range(1, min(MAX_SUBSET, len(slots), len(group)) + 1):
        for subset in combinations(slots, size):
            code = sum(layers[first][allowed[first][s]].code for s in subset)
            partial = [_Point(code, 0, ())]
            for i in group:
                options = [(allowed[i][s], layers[i][allowed[i][s]]) for s in subset]
                here = [_Point(c.constants, c.instructions, ((i, k),)) for k, c in options]
                partial = _undominated([_sum(a, b) for a in partial for b in here])
            points += partial
    return _undominated(points)


def _sum(a: _Point, b: _Point) -> _Point:
    return _Point(a.flash + b.flash, a.instructions + b.instructions, a.chosen + b.chosen)


def _undominated(points: Sequence[_Point]) -> list[_Point]:
    """The points that no other beats in both flash and instructions, by rising flash."""
    kept: list[_Point] = []
    for p in sorted(points, key=lambda p: (p.flash, p.instructions, p.chosen)):
        if not kept or p.instructions < kept[-1].instructions:
            kept.append(p)
    return kept
