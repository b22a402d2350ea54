"""Which operands of a layer may overlap, and how far apart they then have to start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aot.executor.schedule import LayerCall
from aot.memory.plan import Conflict
from aot.tir.analysis.overlap import Distance, safe_distances
from aot.tir.function import PrimFunc


def call_distances(call: LayerCall, keys: Sequence[str], funcs: Mapping[str, PrimFunc] | None = None) -> tuple[Conflict, ...]:
    """The pairs of storages that a layer's kernel allows to overlap, from the accesses of its loop nest.

    `keys` names the storage of each of the function's inputs, outputs and scratch buffers in this order; "" for one that is not
    in the workspace.  Where a storage is several operands, the distance is safe for all of them.
    """
    func = call.func
    key = dict(zip((*func.inputs, *func.outputs, *func.scratch), keys, strict=True))
    proven = func.attrs.extra.get("distances")
    if proven is not None:  # whoever made the function knows them: (name of a, name of b) -> start(b) - start(a)
        place = {b.name: k for b, k in key.items()}
        return tuple(Conflict(place[a], place[b], d) for (a, b), d in proven.items() if place[a] and place[b])
    known = safe_distances(func, funcs)
    found: dict[tuple[str, str], tuple[int, int, Distance | None]] = {}
    pairs = [(a, b) for a in func.inputs for b in (*func.outputs, *func.scratch)]
    pairs += [(a, b) for a in func.scratch for b in func.outputs]
    for a, b in pairs:
        names = key[a], key[b]
        if not all(names) or names[0] == names[1]:
            continue
        new = known.get((a, b))
        if names in found:
            new = _both(found[names][2], new)
        found[names] = a.nbytes, b.nbytes, new
    return tuple(c for (a, b), (size_a, size_b, d) in found.items() if d for c in _conflict(a, b, d, sizes=(size_a, size_b)))


def _both(one: Distance | None, other: Distance | None) -> Distance | None:
    return Distance(max(one.up, other.up), max(one.down, other.down)) if one and other else None


def _conflict(a: str, b: str, distance: Distance, *, sizes: tuple[int, int]) -> list[Conflict]:
    """The direction in which the two together need less, if any saves something."""
    up = max(sizes[1], distance.up + sizes[0])
    down = max(sizes[0], distance.down + sizes[1])
    if min(up, down) >= sum(sizes):
        return []
    return [Conflict(b, a, distance.up) if up <= down else Conflict(a, b, distance.down)]
