"""States that a layer shifts by a place, such as the memory of an SVDF: the state moves on, and only what is new is written.

Filters lie one behind the other and each forgets its oldest value.  The whole is then the old state from one value on, in which
the newest value of a filter comes to where the oldest of the next one was: a window (aot/memory/rings.py) one value longer.

Rows that are copied behind what is left of the old ones, in its place, are such a state too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aot.executor.lowered import CallLowered, LoweredModule, State, TensorRef
from aot.executor.plan.aliases import fits_offset, moves_of, without_call
from aot.executor.plan.part_copies import with_copies
from aot.executor.plan.planned import Planned
from aot.ir.module import BaseFunc, of_phase
from aot.ir.type import TensorType
from aot.memory.rings import Ring
from aot.support.dataclass import dataclass
from aot.support.dtype import itemsize
from aot.support.names import NameSupply
from aot.tir.function import Move, PrimFunc, Shift
from aot.tir.transform import merge_functions


@dataclass(frozen=True, slots=True)
class ShiftedState:
    """A state, the layer that shifts it in its place, and the window that it may become.

    `shift`: a copy, of what is left and of what is new, or what the kernel says of itself.
    """

    state: State
    call: CallLowered
    shift: Shift | Move
    ring: Ring


def shifted_states(planned: Planned) -> list[ShiftedState]:
    """Those whose old value nothing reads once the new one is there: they have been given one place."""
    found = []
    olds = [planned.root(s.old) for s in planned.states]
    for state, start in zip(planned.states, planned.layout.states, strict=True):
        old, new, places = state.old, state.new, planned.layout.places
        maker = next((c for c in planned.calls if c.outputs == (new,)), None)
        if maker is None or {old, new} & planned.views.keys():
            continue
        shift = planned.kernel(maker).attrs.shift or _copied(planned, maker, state)
        if shift is None or maker.inputs[0] is not old:
            continue
        size, by = old.type.nbytes, shift.by if isinstance(shift, Shift) else shift.size
        if places.get(new) != places[old] or olds.count(old) > 1 or not fits_offset(planned, new, by):
            continue
        fresh = shift.fresh if isinstance(shift, Shift) else by
        found.append(ShiftedState(state, maker, shift, Ring(start, size + by, by, size, fresh, planned.layout.aligns[old])))
    return found


def shifted_by_copy(lowered: LoweredModule, state: State) -> Move | None:
    """How a layer that is nothing but a copy puts what is new behind what is left of the old value, if one does."""
    maker = next((c for c in lowered.calls if c.outputs == (state.new,)), None)
    return None if maker is None else _copied(lowered, maker, state)


def _copied(lowered: LoweredModule, maker: CallLowered, state: State) -> Move | None:
    moves, size = moves_of(lowered.kernel(maker)), state.old.type.nbytes
    if len(moves) != 2 or maker.inputs[moves[0].operand] is not state.old or maker.inputs[moves[1].operand] is state.old:
        return None
    left, new = moves
    whole = left.target == 0 and left.size == new.target == size - new.size and left.source == new.size
    return new if whole else None


def without_shifts(planned: Planned, shifted: Sequence[ShiftedState]) -> Planned:
    """These states as windows, whose layers write only what is new; in the layout they begin where they were."""
    places, aligns = dict(planned.layout.places), dict(planned.layout.aligns)
    for one in shifted:
        old, new = one.state.old, one.state.new
        window = TensorRef(f"{old.name}_window", TensorType((one.ring.size // itemsize(old.type.dtype),), old.type.dtype))
        planned = replace(
            planned, views={**planned.views, old: window, new: window}, offsets={**planned.offsets, new: one.ring.hop}
        )
        places[window], aligns[window] = places[old], aligns[old]
    planned = _with_rests(planned, [one for one in shifted if isinstance(one.shift, Shift)])
    for one in shifted:
        if isinstance(one.shift, Move):
            parts = [(one.call.inputs[one.shift.operand], one.shift)]
            copied = without_call(with_copies(planned, one.call, parts, one.state.new), one.call, {})
            planned = of_phase(copied, Planned, "slide_windows")
    layout = replace(planned.layout, places=places, aligns=aligns)
    return of_phase(replace(planned, layout=layout), Planned, "slide_windows")


def _with_rests(planned: Planned, shifted: Sequence[ShiftedState]) -> Planned:
    """The layers that shift as what is left of them to do."""
    calls, states = list(planned.calls), list(planned.states)
    functions, names = dict(planned.functions), NameSupply(planned.functions)
    for one in shifted:
        assert isinstance(one.shift, Shift)
        func = replace(one.shift.rest, name=names.fresh(one.shift.rest.name))
        functions[func.name] = func
        call = CallLowered(func.name, one.call.inputs[1:], one.call.outputs, span=one.call.span, operators=one.call.operators)
        calls[calls.index(one.call)] = call
        states[states.index(one.state)] = replace(one.state, fresh=one.shift.fresh)
    if planned.config.opt != "speed":
        made = [calls.index(c) for c in calls if c.outputs in {one.call.outputs for one in shifted}]
        _share(calls, made, functions=functions, names=names)
    return of_phase(replace(planned, functions=functions, states=tuple(states)).with_calls(calls), Planned, "slide_windows")


def _share(calls: list[CallLowered], numbers: Sequence[int], *, functions: dict[str, BaseFunc], names: NameSupply) -> None:
    """One function for those of these calls that differ in numbers only, as `share_functions` does before memory is planned."""
    own = [functions[calls[i].func] for i in numbers]
    for members, merged in merge_functions([f for f in own if isinstance(f, PrimFunc)]):
        if len(members) > 1:
            shared = names.fresh(f"{calls[numbers[members[0]]].func}_shared")
            functions[shared] = merged.func
            for m, scalars in zip(members, merged.scalars, strict=True):
                calls[numbers[m]] = replace(calls[numbers[m]], shared=shared, scalars=scalars)
