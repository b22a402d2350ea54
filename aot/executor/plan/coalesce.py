"""Copies into loop variables and results of branches that need not be made: the layer writes its result where it is wanted.

By Chaitin's rule two tensors may share their bytes if neither is written while the other is still needed, apart from the copy
between them; a layer that reads one for the last time and writes the other must be proven to work in place.  A persistent tensor
that a loop or branch goes on from is shared so as well: the variable then lies in the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aot.executor.lowered import CallLowered, LoweredModule, State, TensorRef
from aot.executor.plan.aliases import moves_of, without_call
from aot.memory.control import Nested, nested
from aot.tir.analysis.in_place import in_place_pairs
from aot.tir.analysis.overlap import safe_distances

Live = frozenset[TensorRef]


def without_copies(lowered: LoweredModule) -> LoweredModule:
    """The lowered module in which what is copied into a variable, where that is proven, is a view of the variable."""
    if not lowered.controls:
        return lowered
    for call in lowered.calls:
        if len(call.inputs) != 1 or len(moves_of(lowered.kernel(call))) != 1:
            continue
        source, target = lowered.root(call.inputs[0]), lowered.root(call.outputs[0])
        if source is target and lowered.is_whole(call.inputs[0]) and lowered.is_whole(call.outputs[0]):
            lowered = without_call(lowered, call, {})
        elif _may_share(lowered, source=call.inputs[0], target=call.outputs[0], copy=call):
            lowered = without_call(lowered, call, {source: (target, 0)})
    for state in lowered.states:  # as if the new value were copied to the old one at the end
        if _may_share(lowered, source=state.old, target=state.new):
            lowered = replace(lowered, views={**lowered.views, lowered.root(state.old): lowered.root(state.new)})
        else:
            lowered = _kept_apart(lowered, state) or lowered
    return lowered


def _kept_apart(lowered: LoweredModule, state: State) -> LoweredModule | None:
    """With a loop that goes on from a state in its place, though the old value is read later: that is copied, and no variable."""
    old, target = state.old, lowered.root(state.new)
    copies = [
        c for c in lowered.calls if c.inputs == (old,) and moves_of(lowered.kernel(c)) and lowered.root(c.outputs[0]) is target
    ]
    at = lowered.calls.index(copies[0]) if len(copies) == 1 else -1
    if at < 0 or any(at in c for c in lowered.controls):
        return None
    kept = TensorRef(f"{old.name}_kept", old.type)

    def reading(call: CallLowered) -> CallLowered:
        return replace(call, inputs=tuple(kept if t is old else t for t in call.inputs)) if old in call.inputs else call

    calls = (*lowered.calls[:at], replace(copies[0], outputs=(kept,)), *map(reading, lowered.calls[at + 1 :]))
    trial = lowered.with_calls(calls)
    return replace(trial, views={**trial.views, old: target}) if _may_share(trial, source=old, target=target) else None


def _may_share(lowered: LoweredModule, *, source: TensorRef, target: TensorRef, copy: CallLowered | None = None) -> bool:
    """Whether a tensor may lie where a variable does; `copy` is the layer that copies the one to the other."""
    is_whole = lowered.is_whole(source) and lowered.is_whole(target)
    source, target = lowered.root(source), lowered.root(target)
    if target not in lowered.variables or source is target or {source, target} & {*lowered.inputs, *lowered.values}:
        return False
    kept = {source, target} & {lowered.root(s.old) for s in lowered.states}
    if len(kept) > 1:
        return False
    if not is_whole or source.type.nbytes != target.type.nbytes:
        return False
    if _parts_are_written(lowered, source) or (_is_output(lowered, source) and _is_output(lowered, target)):
        return False
    live = live_after(lowered)
    for i, call in enumerate(lowered.calls):
        if call is copy:
            continue
        for written, other in ((source, target), (target, source)):
            if any(lowered.root(t) is written for t in call.outputs):
                if other in live[i]:
                    return False
                if any(lowered.root(t) is other for t in call.inputs) and not _works_in_place(lowered, call, other):
                    return False
    return True


def _is_output(lowered: LoweredModule, root: TensorRef) -> bool:
    return any(lowered.root(t) is root for t in lowered.outputs)


def _parts_are_written(lowered: LoweredModule, root: TensorRef) -> bool:
    return any(lowered.root(t) is root and not lowered.is_whole(t) for call in lowered.calls for t in call.outputs)


def _works_in_place(lowered: LoweredModule, call: CallLowered, operand: TensorRef) -> bool:
    """Whether the layer may write its only result exactly over an operand."""
    func = lowered.kernel(call)
    if func.attrs.distances is not None or len(call.outputs) != 1 or not lowered.is_whole(call.outputs[0]):
        return False
    (out,) = func.outputs
    reads = [a for a, t in zip(func.inputs, call.inputs, strict=True) if lowered.root(t) is operand]
    whole = all(lowered.is_whole(t) for t in call.inputs if lowered.root(t) is operand)
    if len(reads) != 1 or not whole or reads[0].nbytes != out.nbytes:
        return False
    distance = safe_distances(func, lowered.prim_funcs).get((reads[0], out))
    return (distance is not None and min(distance.up, distance.down) <= 0) or (reads[0], out) in in_place_pairs(func)


def live_after(lowered: LoweredModule) -> list[Live]:
    """For each call the tensors, by root, that are read after it on some path before they are written again."""
    after: list[Live] = [frozenset()] * len(lowered.calls)
    end = frozenset(map(lowered.root, (*lowered.outputs, *(s.new for s in lowered.states))))
    _before(lowered, nested(lowered.controls, len(lowered.calls)), end, after)
    return after


def _before(lowered: LoweredModule, items: Sequence[int | Nested], live: Live, after: list[Live]) -> Live:
    """What is live before the items, if `live` is so after them; `after` is filled in."""
    for item in reversed(items):
        if isinstance(item, int):
            call = lowered.calls[item]
            after[item] = live
            live = live - {lowered.root(t) for t in call.outputs if lowered.is_whole(t)} | set(map(lowered.root, call.inputs))
            continue
        condition = {lowered.root(lowered.conditions[item.index])}
        if item.control.kind == "if":
            live = _before(lowered, item.first, live, after) | _before(lowered, item.second, live, after) | condition
            continue
        decided, head = live | condition, Live()
        while True:
            before = _before(lowered, item.first, decided | _before(lowered, item.second, head, after), after)
            if before == head:
                break
            head = before
        live = head
    return live
