"""Results that take the storage of an operand: layers whose kernels may write exactly over what they read."""

from __future__ import annotations

from collections.abc import Mapping

from aot.executor.lowered import CallLowered, LoweredModule, TensorRef
from aot.memory.control import loops_around
from aot.tir.analysis.in_place import in_place_pairs
from aot.tir.analysis.overlap import safe_distances
from aot.tir.function import PrimFunc

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
    lowered: LoweredModule, call: CallLowered, free: set[TensorRef], *, functions: Mapping[str, PrimFunc]
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
