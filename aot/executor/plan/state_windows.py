"""Sliding windows: a state, with what is new after it, lies in one place, and moves on at the end of a run.

A streaming layer joins the rows that it kept with those that came in (CONCATENATION), reads the whole, and keeps the last rows of
it (a slice).  As three tensors the kept rows are copied twice a run.  Here the state's memory is as long as the whole: the kept
rows are where the last run left them, new rows are written after them by the layer that makes them, and after the last layer
the rows that stay are moved to the front, or the window moves on instead (`slide_windows`).

Some models keep the whole window and leave its oldest rows out when they join it with new ones.  Such a state is taken as the
rows that are left of it, as the others are never read.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from aot.executor.lowered import CallLowered, LoweredModule, State, TensorRef
from aot.executor.plan.aliases import fits_offset, is_output, moves_of, without_call
from aot.executor.plan.part_copies import Parts, rows_of, with_copies
from aot.support.dtype import itemsize
from aot.tir.function import Move


def with_windows(lowered: LoweredModule, visiting: Collection[int] = ()) -> LoweredModule:
    """The module where states are the front of the tensor that they are joined into, as far as its layers allow it.

    Those whose numbers are in `visiting` are copied into it, in the workspace, and back.
    """
    for i, state in enumerate(lowered.states):
        trial = _sliced(lowered, state)
        if i in visiting:
            hop = trial.place_in_root(state.new)[1]
            states = [replace(s, fresh=min(hop, s.old.type.nbytes) or None) if s is state else s for s in lowered.states]
            lowered = replace(lowered, states=tuple(states))
            continue
        makers = [c for c in trial.calls if c.outputs == (trial.root(state.new),) and _always_runs(trial, c)]
        if len(makers) == 1 and len(moves_of(trial.kernel(makers[0]))) > 1:
            lowered = _joined(trial, makers[0], state) or lowered
    return lowered


def _always_runs(lowered: LoweredModule, call: CallLowered) -> bool:
    """Whether a call is in no branch or loop, and nothing else writes its results."""
    at = lowered.calls.index(call)
    return not any(at in c for c in lowered.controls) and not lowered.variables.intersection(map(lowered.root, call.outputs))


def _sliced(lowered: LoweredModule, state: State) -> LoweredModule:
    """The new value as a view of what it is a slice of."""
    maker = next((c for c in lowered.calls if c.outputs == (state.new,)), None)
    moves = () if maker is None else moves_of(lowered.kernel(maker))
    if maker is None or len(moves) != 1 or moves[0].size != state.new.type.nbytes or not _always_runs(lowered, maker):
        return lowered
    if is_output(lowered, state.new) or state.new in lowered.views:
        return lowered
    source = maker.inputs[moves[0].operand]
    _, start = lowered.place_in_root(source)
    if not fits_offset(lowered, state.new, start + moves[0].source):
        return lowered
    return without_call(lowered, maker, {state.new: (source, moves[0].source)})


def _joined(lowered: LoweredModule, call: CallLowered, state: State) -> LoweredModule | None:
    """Without the call that joins the state with other tensors: those become parts of the result, or are copied there."""
    (result,) = call.outputs
    if is_output(lowered, result) or state.old in lowered.views:
        return None
    alias: dict[TensorRef, tuple[TensorRef, int]] = {}
    copies: list[tuple[TensorRef, Move]] = []
    end = 0
    parts = [(call.inputs[move.operand], move) for move in moves_of(lowered.kernel(call))]
    kept, parts = _cut(lowered, state, parts)
    for operand, move in parts:
        if move.target != end:
            return None
        end += move.size
        whole = move.size == operand.type.nbytes
        part = _part(lowered, operand, kept, alias, move) if whole else None
        if part is None:
            copies.append((operand, move))
        else:
            alias[part] = (result, move.target)
    if end != result.type.nbytes or alias.get(kept.old) != (result, 0):
        return None
    lowered = without_call(with_copies(lowered, call, copies, result), call, alias)
    if kept is not state:
        first = state.old.type.nbytes - kept.old.type.nbytes
        states = tuple(kept if s is state else s for s in lowered.states)
        views, offsets = {**lowered.views, kept.new: state.new}, {**lowered.offsets, kept.new: first}
        lowered = replace(lowered, states=states, views=views, offsets=offsets)
    return lowered


def _cut(lowered: LoweredModule, state: State, parts: Parts) -> tuple[State, Parts]:
    """The state as its last rows, and the parts with these, where its only reader joins them with what is new."""
    readers = [t for c in lowered.calls for t in c.inputs if lowered.root(t) is state.old]
    lasting = [*lowered.outputs, *lowered.conditions, *(s.new for s in lowered.states)]
    operand, move = parts[0]
    old, (root, _) = state.old, lowered.place_in_root(operand)
    whole = operand.type.nbytes == old.type.nbytes == move.source + move.size
    if root is not old or len(readers) != 1 or not whole or not move.source or any(lowered.root(t) is old for t in lasting):
        return state, parts
    type_, unit = replace(old.type, shape=rows_of(old.type, move.size)), itemsize(old.type.dtype)
    tail = TensorRef(old.name, type_, old.tensor)
    initial = state.initial.reshape(-1)[move.source // unit :].reshape(type_.shape)
    kept = replace(state, initial=initial, old=tail, new=TensorRef(f"{state.new.name}_kept", type_, state.new.tensor))
    return kept, [(tail, replace(move, source=0)), *parts[1:]]


def _part(
    lowered: LoweredModule, operand: TensorRef, state: State, alias: dict[TensorRef, tuple[TensorRef, int]], move: Move
) -> TensorRef | None:
    """The tensor that can lie inside of the result: the state itself in front, or all of what a layer makes."""
    root = lowered.root(operand)
    if root in alias or root.type.nbytes != move.size or is_output(lowered, root) or root in lowered.variables:
        return None
    if root is state.old:
        return root if move.target == 0 else None
    made = any(root in c.outputs for c in lowered.calls)
    kept = any(lowered.root(t) is root for s in lowered.states for t in (s.old, s.new))
    return root if made and not kept and fits_offset(lowered, root, move.target) else None
