"""Which operands of a layer may overlap, and how far apart they then have to start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aot.memory.plan import Conflict
from aot.support.dataclass import dataclass
from aot.tir.analysis.overlap import Distance, safe_distances
from aot.tir.function import PrimFunc


@dataclass(frozen=True, slots=True)
class Operand:
    """Where an operand lies: `offset` bytes from the start of a storage of `size` bytes (0: the operand is all of it).

    `key` "" is one that is not in the workspace, or that nothing may overlap.
    """

    key: str
    offset: int = 0
    size: int = 0


def call_distances(
    func: PrimFunc, operands: Sequence[Operand], funcs: Mapping[str, PrimFunc] | None = None
) -> tuple[Conflict, ...]:
    """The pairs of storages that a layer's kernel allows to overlap, from the accesses of its loop nest.

    `operands` are those of the function's inputs, outputs and scratch buffers in this order.  Where a storage is several
    operands, the distance is safe for all of them.
    """
    place = dict(zip((*func.inputs, *func.outputs, *func.scratch), operands, strict=True))
    proven = func.attrs.distances
    if proven is not None:  # who made the function knows them: (name of a, name of b) -> start(b) - start(a)
        named = {b.name: p for b, p in place.items()}
        pairs = ((named[a], named[b], d) for (a, b), d in proven.items())
        return tuple(Conflict(a.key, b.key, d + a.offset - b.offset) for a, b, d in pairs if a.key and b.key)
    known = safe_distances(func, funcs)
    found: dict[tuple[str, str], tuple[int, int, Distance | None]] = {}
    buffers = [(a, b) for a in func.inputs for b in (*func.outputs, *func.scratch)]
    buffers += [(a, b) for a in func.scratch for b in func.outputs]
    for first, second in buffers:
        a, b = place[first], place[second]
        names = a.key, b.key
        if not all(names) or names[0] == names[1]:
            continue
        new = _moved(known.get((first, second)), a.offset - b.offset)
        if names in found:
            new = _both(found[names][2], new)
        found[names] = a.size or first.nbytes, b.size or second.nbytes, new
    return tuple(c for (a, b), (size_a, size_b, d) in found.items() if d for c in _conflict(a, b, d, sizes=(size_a, size_b)))


def _moved(distance: Distance | None, offset: int) -> Distance | None:
    """The distance between storages in which the operands start at offsets that differ by `offset`."""
    return Distance(distance.up - offset, distance.down + offset) if distance else None


def _both(one: Distance | None, other: Distance | None) -> Distance | None:
    return Distance(max(one.up, other.up), max(one.down, other.down)) if one and other else None


def _conflict(a: str, b: str, distance: Distance, *, sizes: tuple[int, int]) -> list[Conflict]:
    """The direction in which the two together need less, if any saves something."""
    up = max(sizes[1], distance.up + sizes[0])
    down = max(sizes[0], distance.down + sizes[1])
    if min(up, down) >= sum(sizes):
        return []
    return [Conflict(b, a, distance.up) if up <= down else Conflict(a, b, distance.down)]
