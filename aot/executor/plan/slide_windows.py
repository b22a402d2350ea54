"""The state laid out anew for windows that move on (aot/memory/rings.py)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from aot.errors import InternalError, Problem, internal
from aot.executor.lowered import TensorRef
from aot.executor.plan.planned import Planned
from aot.executor.plan.shifted_states import shifted_states, without_shifts
from aot.executor.plan.state_plan import STATE_ALIGN, fresh_bytes
from aot.executor.plan.storage_info import StorageInfo
from aot.executor.plan.storage_map import StorageMap
from aot.ir.module import IRModule, of_phase
from aot.ir.transform import PassContext, module_pass
from aot.memory.plan import align_up
from aot.memory.pools import UsedPool
from aot.memory.rings import COUNTER, Ring, Rings, choose_rings
from aot.support.dtype import itemsize


@module_pass(required=True)
def slide_windows(module: IRModule, _context: PassContext) -> IRModule:
    """Windows of the state move on where `planning.rings` says so and the RAM allows it.

    In: a Planned.  Out: a Planned with the same workspace and, where windows move on, another layout of the state (E9005 where
    two would ever meet).
    """
    planned = of_phase(module, Planned, "slide_windows")
    fed = any(call.feed for call in planned.calls)
    if fed or planned.planning.rings == "copy":
        return planned
    shifted, share = shifted_states(planned), planned.planning.ring_share
    windows = [*_windows(planned).values(), *(s.ring for s in shifted)]
    rings = choose_rings(windows, sum(w.size for w in windows) // share if share else None)
    if rings is None:
        return planned
    whole, planned = planned, without_shifts(planned, [s for s in shifted if s.ring in rings.windows])
    layout = _laid_out(planned, rings)
    limit = planned.planning.ram_limit
    if (limit is not None and layout.plan.size + layout.state_size > limit) or not _fits_pool(layout):
        return whole
    _verify(layout)
    return replace(planned, layout=layout)


def _windows(planned: Planned) -> dict[TensorRef, Ring]:
    """The windows by the tensor that owns their bytes: the old value in front, the new one behind the rows that are left."""
    found: dict[TensorRef, Ring] = {}
    roots = [planned.root(s.old) for s in planned.states]
    for state, root, start in zip(planned.states, roots, planned.layout.states, strict=True):
        new, hop = planned.place_in_root(state.new)
        if new is root and hop and roots.count(root) == 1 and planned.place_in_root(state.old)[1] == 0:
            kept = state.old.type.nbytes
            found[root] = Ring(
                start, root.type.nbytes, hop, kept, fresh_bytes(planned, state), planned.layout.aligns[root]
            )  # fmt: skip
    return found


def _laid_out(planned: Planned, rings: Rings) -> StorageMap:
    """The state with what stays in its place in front, then the counter, and the windows behind it."""
    layout = planned.layout
    own = {w.start: w for w in rings.windows}
    places = {p.offset: t for t, p in layout.places.items() if p.where == "state" and planned.root(t) is t}
    roots = [(start, tensor) for start, tensor in sorted(places.items()) if tensor.type.nbytes]
    end, table = 0, dict[int, tuple[int, int, int]]()  # first byte: bytes, where they go, hop
    for start, tensor in roots:
        if start not in own:
            to = align_up(end, layout.aligns[tensor])
            table[start] = tensor.type.nbytes, to, 0
            end = to + tensor.type.nbytes
    counter = align_up(end, itemsize(COUNTER))
    end = counter + itemsize(COUNTER)
    windows = []
    for w in rings.windows:
        to = align_up(end, w.align)
        table[w.start] = w.size, to, w.hop
        windows.append(replace(w, start=to))
        end = to + w.size

    def moved(place: StorageInfo) -> StorageInfo:
        if place.where != "state":
            return place
        first = max((s for s in table if s <= place.offset), default=-1)
        if first < 0 or place.offset >= first + table[first][0]:
            raise internal(f"byte {place.offset} of the state belongs to no tensor", where=planned.name)
        return replace(place, offset=place.offset - first + table[first][1], hop=table[first][2])

    backs = [b for b in layout.write_backs if b.target.where != "state" or b.target.offset not in own]
    return replace(
        layout,
        places={t: moved(p) if t.type.nbytes else p for t, p in layout.places.items()},
        output_slots=tuple(map(moved, layout.output_slots)),
        copies=tuple((moved(p), k) for p, k in layout.copies),
        conditions=tuple(map(moved, layout.conditions)),
        write_backs=tuple(replace(b, source=moved(b.source), target=moved(b.target)) for b in backs),
        states=tuple(
            moved(StorageInfo("state", offset=start)).offset if state.old.type.nbytes else 0
            for start, state in zip(layout.states, planned.states, strict=True)
        ),
        state_size=end + rings.room,
        rings=replace(rings, windows=tuple(windows), counter=counter),
        pools=_pools(layout, end + rings.room),
    )  # fmt: skip


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


def _verify(layout: StorageMap) -> None:
    """Replays where everything lies in each run, and what the last one moves back (E9005)."""
    rings = layout.rings
    assert rings is not None
    faults = []
    owned = {p.offset: t.type.nbytes for t, p in layout.places.items() if p.where == "state" and not p.hop}
    owned[rings.counter] = itemsize(COUNTER)
    fixed = sorted((start, start + size) for start, size in owned.items())
    for turn in range(rings.turns):
        spans = fixed + [(w.start + turn * w.hop, w.start + turn * w.hop + w.size) for w in rings.windows]
        if any(a[1] > b[0] for a, b in pairwise(spans)) or spans[-1][1] > layout.state_size:
            faults.append(Problem("E9005", f"windows of the state meet in run {turn}"))
        if any((w.start + turn * w.hop) % w.align for w in rings.windows):
            faults.append(Problem("E9005", f"a window of the state is not aligned in run {turn}"))
    for a, b in pairwise(rings.windows):
        if a.start + a.kept > b.start + rings.turns * b.hop:
            faults.append(Problem("E9005", "a window of the state is moved back over another"))
    if faults:
        raise InternalError(*faults)
