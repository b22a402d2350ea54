"""Which operands of a layer may overlap: by the distance of their starts, and results placed exactly over an operand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aot.executor.lowered import KernelCall, LoweredModule, TensorRef
from aot.memory.liveness import loops_around
from aot.memory.plan import Conflict
from aot.support.dataclass import dataclass
from aot.tir.analysis import Distance, in_place_pairs, safe_distances
from aot.tir.function import PrimFunc


@dataclass(frozen=True, slots=True)
class Operand:
    """Where an operand is: `offset` bytes from the start of a storage of `size` bytes (0: the operand is the whole storage).

    `key` "" means not in the workspace, or that nothing may overlap it.
    """

    key: str
    offset: int = 0
    size: int = 0


def call_distances(
    func: PrimFunc, operands: Sequence[Operand], funcs: Mapping[str, PrimFunc] | None = None
) -> tuple[Conflict, ...]:
    """The pairs of storages that a layer's kernel allows to overlap, from the accesses of its loop nest.

    `operands` are for the function's inputs, outputs and scratch buffers in this order.  If a storage holds several operands, the
    distance is safe for all of them.
    """
    place = dict(zip((*func.inputs, *func.outputs, *func.scratch), operands, strict=True))
    proven = func.attrs.distances
    if proven is not None:  # the author of the function knows them: (name of a, name of b) -> start(b) - start(a)
        named = {b.name: p for b, p in place.items()}
        pairs = ((named[a], named[b], d) for (a, b), d in proven.items())
        return tuple(Conflict(a.key, b.key, d + a.offset - b.offset) for a, b, d in pairs if a.key and b.key)
    safe = safe_distances(func, funcs)
    merged: dict[tuple[str, str], tuple[int, int, Distance | None]] = {}
    buffers = [(a, b) for a in func.inputs for b in (*func.outputs, *func.scratch)]
    buffers += [(a, b) for a in func.scratch for b in func.outputs]
    for first, second in buffers:
        a, b = place[first], place[second]
        names = a.key, b.key
        if not all(names) or names[0] == names[1]:
            continue
        new = _moved(safe.get((first, second)), a.offset - b.offset)
        if names in merged:
            new = _both(merged[names][2], new)
        merged[names] = a.size or first.nbytes, b.size or second.nbytes, new
    return tuple(c for (a, b), (size_a, size_b, d) in merged.items() if d for c in _conflict(a, b, d, sizes=(size_a, size_b)))


def _moved(distance: Distance | None, offset: int) -> Distance | None:
    """The distance between storages if the operands' offsets in them differ by `offset`."""
    return Distance(distance.up - offset, distance.down + offset) if distance else None


def _both(one: Distance | None, other: Distance | None) -> Distance | None:
    return Distance(max(one.up, other.up), max(one.down, other.down)) if one and other else None


def _conflict(a: str, b: str, distance: Distance, *, sizes: tuple[int, int]) -> list[Conflict]:
    """The direction in which both storages together need less, if either direction saves anything."""
    up = max(sizes[1], distance.up + sizes[0])
    down = max(sizes[0], distance.down + sizes[1])
    if min(up, down) >= sum(sizes):
        return []
    return [Conflict(b, a, distance.up) if up <= down else Conflict(a, b, distance.down)]


def reads_before_writes(
    lowered: LoweredModule, call: KernelCall, *, read: TensorRef, written: TensorRef, gap: int = 0
) -> bool:  # fmt: skip
    """Whether a call is done with each byte of `read` before it writes a byte of `written` to the same place.

    Both own their bytes; `read` starts `gap` bytes after `written`.
    """
    func = lowered.kernel(call)
    sources = [(b, *lowered.place_in_root(t)) for b, t in zip(func.inputs, call.inputs, strict=True)]
    targets = [(b, *lowered.place_in_root(t)) for b, t in zip(func.outputs, call.outputs, strict=True)]
    pairs = [(a, b, start - at) for a, one, start in sources if one is read for b, other, at in targets if other is written]
    if not pairs or func.attrs.distances is not None:
        return not pairs
    safe, in_place = safe_distances(func, lowered.prim_funcs), in_place_pairs(func)
    for a, b, offset in pairs:
        distance, apart = safe.get((a, b)), gap + offset
        proven = distance is not None and (apart >= distance.up or -apart >= distance.down)
        if not proven and (apart or (a, b) not in in_place):
            return False
    return True


# ---- results in the storage of an operand: layers whose kernels may write exactly over what they read


SMALL = 8
"""If a distance below this fraction of the tensor is safe, the planner has more freedom with the distance."""


def in_place_results(lowered: LoweredModule) -> dict[TensorRef, TensorRef]:
    """Result -> operand whose storage it takes over, in the order of the calls; both are whole root tensors of the same size.

    That call is the last use of the operand, which is neither a constant nor a result of the model.
    """
    last = {lowered.root(t): i for i, call in enumerate(lowered.calls) for t in call.inputs}
    lasting = (t for s in lowered.states for t in (s.old, s.new))
    kept = {lowered.root(t) for t in (*lowered.outputs, *lowered.values, *lasting, *lowered.conditions)} | lowered.variables
    loops_of = {lowered.root(t): loops_around(lowered.controls, i) for i, call in enumerate(lowered.calls) for t in call.outputs}
    operand_of: dict[TensorRef, TensorRef] = {}
    functions = lowered.prim_funcs
    for i, call in enumerate(lowered.calls):
        free = {lowered.root(t) for t in call.inputs if last[lowered.root(t)] == i} - kept
        if lowered.controls:  # values from before a loop are read again in the next iteration
            free = {t for t in free if loops_of.get(t, ()) == loops_around(lowered.controls, i)}
            free = set() if {lowered.root(t) for t in call.outputs} & lowered.variables else free
        pair = _pair(lowered, call, free, functions=functions)
        if pair is not None:
            operand_of[pair[0]] = pair[1]
    return operand_of


def _pair(
    lowered: LoweredModule, call: KernelCall, free: set[TensorRef], *, functions: Mapping[str, PrimFunc]
) -> tuple[TensorRef, TensorRef] | None:
    """(result, operand) of a call with a single result."""
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
    safe = safe_distances(func, functions)
    poor = [
        (a, root) for a, root in fitting if (a, out) in safe and min(safe[a, out].up, safe[a, out].down) > out.nbytes // SMALL
    ]
    if not poor or len(poor) < len(fitting):
        return None  # no gain over the distances
    proven = in_place_pairs(func)
    return next(((result, root) for a, root in poor if (a, out) in proven), None)


def merge_alignments(aligns: Mapping[TensorRef, int], over: Mapping[TensorRef, TensorRef]) -> dict[TensorRef, int]:
    """`aligns` combined along chains of tensors that take over each other's storage."""
    merged = dict(aligns)
    for result, operand in reversed(list(over.items())):
        merged[operand] = max(merged[operand], merged[result])
    return merged
