"""How loops come from axes: splits and fusions, their extents, and the axes' values in terms of the loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aot.support.dataclass import dataclass
from aot.te.operation import IterVar
from aot.tir.expr import Expr, imm


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """`parent` = outer * factor + inner; factor or nparts is given, the other follows from the extent."""

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: int | None
    nparts: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Fuse:
    """`fused` = outer * extent of inner + inner."""

    outer: IterVar
    inner: IterVar
    fused: IterVar


Relation = Split | Fuse


def canonical_order(roots: Sequence[IterVar], relations: Sequence[Relation]) -> list[IterVar]:
    """The reduction loops in the order in which they visit the elements as the axes do."""
    order = list(roots)
    for relation in relations:
        match relation:
            case Split(parent, outer, inner) if parent in order:
                at = order.index(parent)
                order[at : at + 1] = [outer, inner]
            case Fuse(outer, inner, fused) if outer in order:
                order.remove(inner)
                order[order.index(outer)] = fused
            case _:
                pass
    return order


def loop_extents(relations: Sequence[Relation], roots: Mapping[IterVar, int]) -> dict[IterVar, int]:
    """The extents of all axes and loops of a stage whose axes have the extents `roots`."""
    extents = dict(roots)
    for relation in relations:
        match relation:
            case Split(parent, outer, inner, factor, nparts):
                total = extents[parent]
                extents[inner] = factor if factor is not None else -(-total // (nparts or 1))
                extents[outer] = nparts if nparts is not None else -(-total // (factor or 1))
            case Fuse(outer, inner, fused):
                extents[fused] = extents[outer] * extents[inner]
    return extents


def axis_values(
    relations: Sequence[Relation], extents: Mapping[IterVar, int], leaves: Mapping[IterVar, Expr]
) -> tuple[dict[IterVar, Expr], list[tuple[IterVar, Expr, int]]]:
    """The value of every axis and loop, and what has to be guarded: (axis, its value, its extent).

    `leaves` gives the values of the loops.  A guard is needed where the rounds of a split cover more than its parent.
    """
    values = dict(leaves)
    guards: list[tuple[IterVar, Expr, int]] = []
    for relation in reversed(relations):
        match relation:
            case Split(parent, outer, inner):
                values[parent] = values[outer] * extents[inner] + values[inner]
                if extents[outer] * extents[inner] != extents[parent]:
                    guards.append((parent, values[parent], extents[parent]))
            case Fuse(outer, inner, fused):
                size = imm(extents[inner])
                values[outer], values[inner] = values[fused] / size, values[fused] % size
    return values, guards
