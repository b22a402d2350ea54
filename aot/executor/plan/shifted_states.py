"""States that a layer shifts by a place, such as the memory of an SVDF: the state moves on, and only what is new is written.

Filters lie one behind the other and each forgets its oldest value.  The whole is then the old state from one value on, in which
the newest value of a filter comes to where the oldest of the next one was: a window (aot/memory/rings.py) one value longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aot.executor.lowered import CallLowered, State, TensorRef
from aot.executor.plan.aliases import fits_offset
from aot.executor.plan.planned import Planned
from aot.ir.module import BaseFunc, of_phase
from aot.ir.type import TensorType
from aot.memory.rings import Ring
from aot.support.dtype import itemsize
from aot.support.names import NameSupply
from aot.tir.function import PrimFunc, Shift
from aot.tir.transform import merge_functions


@dataclass(frozen=True, slots=True)
class ShiftedState:
    """A state, the layer that shifts it in its place, and the window that it may become."""

    state: State
    call: CallLowered
    shift: Shift
    ring: Ring


def shifted_states(planned: Planned) -> list[ShiftedState]:
    """Those whose old value nothing reads once the new one is there: they have been given one place."""
    found = []
    olds = [planned.root(s.old) for s in planned.states]
    for state, start in zip(planned.states, planned.layout.states, strict=True):
        old, new, places = state.old, state.new, planned.layout.places
        maker = next((c for c in planned.calls if c.outputs == (new,)), None)
        shift = None if maker is None else planned.kernel(maker).attrs.shift
        if maker is None or shift is None or maker.inputs[0] is not old or {old, new} & planned.views.keys():
            continue
        if places.get(new) != places[old] or olds.count(old) > 1 or not fits_offset(planned, new, shift.by):
            continue
        size = old.type.nbytes
        ring = Ring(start, size + shift.by, shift.by, size, shift.fresh, planned.layout.aligns[old])
        found.append(ShiftedState(state, maker, shift, ring))
    return found


def without_shifts(planned: Planned, shifted: Sequence[ShiftedState]) -> Planned:
    """These states as windows, whose layers write only what is new; in the layout they begin where they were."""
    views, offsets = dict(planned.views), dict(planned.offsets)
    places, aligns = dict(planned.layout.places), dict(planned.layout.aligns)
    calls, states = list(planned.calls), list(planned.states)
    functions, names = dict(planned.functions), NameSupply(planned.functions)
    for one in shifted:
        old, new = one.state.old, one.state.new
        window = TensorRef(f"{old.name}_window", TensorType((one.ring.size // itemsize(old.type.dtype),), old.type.dtype))
        views |= {old: window, new: window}
        offsets[new] = one.shift.by
        places[window], aligns[window] = places[old], aligns[old]
        func = replace(one.shift.rest, name=names.fresh(one.shift.rest.name))
        functions[func.name] = func
        call = CallLowered(func.name, one.call.inputs[1:], one.call.outputs, span=one.call.span, ops=one.call.ops)
        calls[calls.index(one.call)] = call
        states[states.index(one.state)] = replace(one.state, fresh=one.shift.fresh)
    if planned.config.opt != "speed":
        made = [calls.index(c) for c in calls if c.outputs in {one.call.outputs for one in shifted}]
        _share(calls, made, functions=functions, names=names)
    layout = replace(planned.layout, places=places, aligns=aligns)
    found = replace(planned, functions=functions, views=views, offsets=offsets, states=tuple(states), layout=layout)
    return of_phase(found.with_calls(calls), Planned, "slide_windows")


def _share(calls: list[CallLowered], numbers: Sequence[int], *, functions: dict[str, BaseFunc], names: NameSupply) -> None:
    """One function for those of these calls that differ in numbers only, as `share_functions` does before memory is planned."""
    own = [functions[calls[i].func] for i in numbers]
    for members, merged in merge_functions([f for f in own if isinstance(f, PrimFunc)]):
        if len(members) > 1:
            shared = names.fresh(f"{calls[numbers[members[0]]].func}_shared")
            functions[shared] = merged.func
            for m, scalars in zip(members, merged.scalars, strict=True):
                calls[numbers[m]] = replace(calls[numbers[m]], shared=shared, scalars=scalars)
