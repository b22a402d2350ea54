"""Which operands of a layer may overlap: how far apart they then start, and results that lie exactly over an operand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aot.executor.lowered import KernelCall, LoweredModule, TensorRef
from aot.memory.liveness import loops_around
from aot.memory.plan import Conflict
from aot.support.dataclass import dataclass
from aot.tir.analysis.in_place import in_place_pairs
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


# ---- results in the storage of an operand: layers whose kernels may write exactly over what they read


SMALL = 8
"""If a distance below this fraction of the tensor is safe, the planner has more freedom with the distance."""


def in_place_results(lowered: LoweredModule) -> dict[TensorRef, TensorRef]:
    """Result -> operand whose storage it takes, in the order of the calls; both whole tensors of one size, by root.

    The operand is used for the last time by that call and is neither a constant nor a result of the model.
    """
    last = {lowered.root(t): i for i, call in enumerate(lowered.calls) for t in call.inputs}
    lasting = (t for s in lowered.states for t in (s.old, s.new))
    kept = {lowered.root(t) for t in (*lowered.outputs, *lowered.values, *lasting, *lowered.conditions)} | lowered.variables
    made = {lowered.root(t): loops_around(lowered.controls, i) for i, call in enumerate(lowered.calls) for t in call.outputs}
    found: dict[TensorRef, TensorRef] = {}
    functions = lowered.prim_funcs
    for i, call in enumerate(lowered.calls):
        free = {lowered.root(t) for t in call.inputs if last[lowered.root(t)] == i} - kept
        if lowered.controls:  # what was made before a loop is read again in the next iteration
            free = {t for t in free if made.get(t, ()) == loops_around(lowered.controls, i)}
            free = set() if {lowered.root(t) for t in call.outputs} & lowered.variables else free
        pair = _pair(lowered, call, free, functions=functions)
        if pair is not None:
            found[pair[0]] = pair[1]
    return found


def _pair(
    lowered: LoweredModule, call: KernelCall, free: set[TensorRef], *, functions: Mapping[str, PrimFunc]
) -> tuple[TensorRef, TensorRef] | None:
    """(result, operand) of a call; one with a single result."""
    func = lowered.kernel(call)
    if len(call.outputs) != 1 or func.attrs.distances is not None:
        return None
    result = lowered.root(call.outputs[0])
    (out,) = func.outputs
    if result.type.nbytes != out.nbytes:
        return None
    roots = [lowered.root(t) for t in call.inputs]
    fitting = [
        (a, root)
        for a, root in zip(func.inputs, roots, strict=True)
        if root in free and roots.count(root) == 1 and a.nbytes == out.nbytes == root.type.nbytes
    ]
    if not fitting:
        return None
    known = safe_distances(func, functions)
    poor = [
        (a, root) for a, root in fitting if (a, out) in known and min(known[a, out].up, known[a, out].down) > out.nbytes // SMALL
    ]
    if not poor or len(poor) < len(fitting):
        return None  # nothing to gain over the distances
    proven = in_place_pairs(func)
    return next(((result, root) for a, root in poor if (a, out) in proven), None)


def merge_alignments(aligns: Mapping[TensorRef, int], over: Mapping[TensorRef, TensorRef]) -> dict[TensorRef, int]:
    """`aligns` with what the tensors need that take another one's storage, along whole chains of them."""
    merged = dict(aligns)
    for result, operand in reversed(list(over.items())):
        merged[operand] = max(merged[operand], merged[result])
    return merged
