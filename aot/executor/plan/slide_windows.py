"""The state laid out anew for windows that move on (aot/memory/rings.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from aot.errors import InternalError, Problem, internal
from aot.executor.lowered import TensorRef
from aot.executor.plan.planned import Planned
from aot.executor.plan.shifted_states import ShiftedState, shifted_states, without_shifts
from aot.executor.plan.state_plan import STATE_ALIGN, WriteBack, fresh_bytes
from aot.executor.plan.state_sharing import first_write, may_share, replay
from aot.executor.plan.storage_info import StorageInfo
from aot.executor.plan.storage_map import StorageMap
from aot.ir.module import IRModule, of_phase
from aot.ir.transform import PassContext, module_pass
from aot.memory.plan import align_up
from aot.memory.pools import UsedPool
from aot.memory.rings import COUNTER, Ring, Rings, choose_rings, packed, tight_rings
from aot.support.dtype import itemsize


@module_pass(required=True)
def slide_windows(module: IRModule, _context: PassContext) -> IRModule:
    """Windows of the state move on where `planning.rings` says so and the RAM allows it.

    In: a Planned.  Out: a Planned with the same workspace and, where windows move on, another layout of the state (E9005 where
    two would ever meet).
    """
    return _with_windows(of_phase(module, Planned, "slide_windows"))


def least_state(planned: Planned) -> int:
    """Bytes of the state with its windows packed, without room to move on."""
    return _with_windows(replace(planned, planning=replace(planned.planning, rings="copy"))).layout.state_size


def _with_windows(planned: Planned) -> Planned:
    if any(call.feed for call in planned.calls):
        return planned
    shifted = shifted_states(planned) if planned.planning.rings == "slide" else []
    most = _most_state(planned)
    for rings in _choices(planned, shifted, most):
        chosen = [s for s in shifted if s.ring in rings.windows]
        slid = without_shifts(planned, chosen) if chosen else planned
        layout = _laid_out(slid, rings)
        if _fits(planned, layout, most):
            _verify(slid, layout)
            return replace(slid, layout=layout)
    return planned


def _most_state(planned: Planned) -> int | None:
    """Bytes of a state with room to move on, where `planning.ring_share` limits it: so many times what is kept."""
    share, kept = planned.planning.ring_share, planned.layout.state_size
    kept -= sum(w.size - w.kept for w in _windows(planned).values())
    return kept + kept // share if share else None


def _choices(planned: Planned, shifted: Sequence[ShiftedState], most: int | None) -> Iterator[Rings]:
    """What to try, the best first: windows that move on, in a state of `most` bytes if that is given; without room to do so."""
    if planned.planning.rings == "slide":
        slid = without_shifts(planned, shifted)
        windows = list(_windows(slid).values())
        least = tight_rings(windows)
        room = None if most is None or least is None else most - _laid_out(slid, least).state_size - 2 * itemsize(COUNTER)
        rings = choose_rings(windows, None if room is None else max(0, room))
        if rings is not None:
            yield rings
    tight = tight_rings(list(_windows(planned).values()))
    if tight is not None:
        yield tight


def _fits(planned: Planned, layout: StorageMap, most: int | None) -> bool:
    """Within the budget for RAM and the pool; with room to move on in `most` bytes, and without no larger than as it was."""
    rings, limit = layout.rings, planned.planning.ram_limit
    if limit is not None and layout.plan.size + layout.state_size > limit:
        return False
    if rings is None:
        return layout.state_size < planned.layout.state_size and _fits_pool(layout)
    return (most is None or layout.state_size <= most) and _fits_pool(layout)


def _windows(planned: Planned) -> dict[TensorRef, Ring]:
    """The windows by the tensor that owns their bytes: the old value in front, the new one behind the rows that are left.

    Those that are written last come first: what is new in them may lie over what leaves the others.
    """
    found: dict[TensorRef, Ring] = {}
    roots = [planned.root(s.old) for s in planned.states]
    for state, root, start in zip(planned.states, roots, planned.layout.states, strict=True):
        new, hop = planned.place_in_root(state.new)
        if new is root and hop and roots.count(root) == 1 and planned.place_in_root(state.old)[1] == 0:
            kept = state.old.type.nbytes
            found[root] = Ring(
                start, root.type.nbytes, hop, kept, fresh_bytes(planned, state), planned.layout.aligns[root]
            )  # fmt: skip
    return dict(sorted(found.items(), key=lambda item: -first_write(planned, item[0])))


def _laid_out(planned: Planned, rings: Rings) -> StorageMap:
    """The state with what stays in its place in front, then the counter, and the windows behind it.

    Without room to move on there is no counter: the windows are moved back by copies at the end of each run.
    """
    layout, slides = planned.layout, rings.turns > 1
    own, roots = {w.start: w for w in rings.windows}, {w.start: root for root, w in _windows(planned).items()}
    places = {p.offset: t for t, p in layout.places.items() if p.where == "state" and planned.root(t) is t}
    end, table = 0, dict[int, tuple[int, int, int]]()  # first byte: bytes, where they go, hop
    for start, tensor in sorted(places.items()):
        if start not in own and tensor.type.nbytes:
            to = align_up(end, layout.aligns[tensor])
            table[start] = tensor.type.nbytes, to, 0
            end = to + tensor.type.nbytes
    counter = align_up(end, itemsize(COUNTER))

    shifted = {planned.root(s.old) for s in planned.states if s.fresh is not None}  # read and written all over

    def share(below: Ring, above: Ring, gap: int) -> bool:
        one, other = roots[below.start], roots[above.start]
        return not {one, other} & shifted and may_share(planned, one, other, gap=gap)

    placed, end = packed(rings.windows, counter + itemsize(COUNTER) if slides else end, share)
    for before, w in zip(rings.windows, placed, strict=True):
        table[before.start] = w.size, w.start, w.hop if slides else 0

    def moved(place: StorageInfo) -> StorageInfo:
        if place.where != "state":
            return place
        first = max((s for s in table if s <= place.offset), default=-1)
        if first < 0 or place.offset >= first + table[first][0]:
            raise internal(f"byte {place.offset} of the state belongs to no tensor", where=planned.name)
        return replace(place, offset=place.offset - first + table[first][1], hop=table[first][2])

    backs = [b for b in layout.write_backs if b.target.where != "state" or b.target.offset not in own]
    backs = [replace(b, source=moved(b.source), target=moved(b.target)) for b in backs]
    if not slides:
        backs += [WriteBack(_in_state(w.start + w.hop), _in_state(w.start), w.kept) for w in placed]
    return replace(
        layout,
        places={t: moved(p) if t.type.nbytes else p for t, p in layout.places.items()},
        output_slots=tuple(map(moved, layout.output_slots)),
        copies=tuple((moved(p), k) for p, k in layout.copies),
        conditions=tuple(map(moved, layout.conditions)),
        write_backs=tuple(backs),
        states=tuple(
            moved(_in_state(start)).offset if state.old.type.nbytes else 0
            for start, state in zip(layout.states, planned.states, strict=True)
        ),
        state_size=end + rings.room,
        rings=replace(rings, windows=tuple(placed), counter=counter) if slides else None,
        pools=_pools(layout, end + rings.room),
    )  # fmt: skip


def _in_state(offset: int) -> StorageInfo:
    return StorageInfo("state", offset=offset)


def _pools(layout: StorageMap, size: int) -> tuple[UsedPool, ...]:
    """The pools with what a state of `size` bytes leaves of its own."""
    state = layout.state_pool
    if state is None:
        return layout.pools
    left = max(0, state.size - align_up(size, STATE_ALIGN))
    return tuple(replace(u, pool=replace(u.pool, size=left)) if u.pool.name == state.name else u for u in layout.pools)


def _fits_pool(layout: StorageMap) -> bool:
    """Whether the pool that the state is pinned to, if any, has room for it beside its part of the workspace."""
    state = layout.state_pool
    used = 0 if state is None else sum(u.used for u in layout.pools if u.pool.name == state.name)
    return state is None or align_up(layout.state_size, STATE_ALIGN) + used <= state.size


def _verify(planned: Planned, layout: StorageMap) -> None:
    """Replays what each run does with the bytes of the state, and what the last one moves back (E9005)."""
    laid = {root: replace(w, start=layout.places[root].offset) for root, w in _windows(planned).items()}
    rings = layout.rings
    if rings is None:
        faults = replay(planned, layout, laid, 1)
    else:
        laid = {root: w for root, w in laid.items() if w.start in {r.start for r in rings.windows}}
        faults = replay(planned, layout, laid, rings.turns)
        faults += _misplaced(layout, rings)
    if faults:
        raise InternalError(*(Problem("E9005", fault) for fault in faults))


def _misplaced(layout: StorageMap, rings: Rings) -> list[str]:
    """Windows that leave the state, are not aligned or meet what stays in its place."""
    owned = [(p.offset, t.type.nbytes) for t, p in layout.places.items() if p.where == "state" and not p.hop and t.type.nbytes]
    fixed = max((start + size for start, size in [*owned, (rings.counter, itemsize(COUNTER))]), default=0)
    faults = []
    for w in rings.windows:
        starts = range(w.start, w.start + rings.turns * w.hop, w.hop)
        if w.start < fixed or starts[-1] + w.size > layout.state_size:
            faults.append("a window of the state has no room to move on")
        if any(start % w.align for start in starts):
            faults.append("a window of the state is not aligned in each run")
    return faults
