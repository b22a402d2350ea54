"""Memory planning: windows that advance in the state, bounds for a graph, and the passes that plan and spread its memory.

A sliding window is in the state, with its new rows behind the kept ones (`copy_elision`).  The state is therefore longer than the
rows that must survive from run to run: it also has the new rows of one window, as far as no other window has room for them.
If these are many compared to the kept rows, and the workspace has room when they are computed, the window is assembled in the
workspace instead, and its kept rows are copied in and out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from aot.errors import InternalError, Problem, UsageError, internal
from aot.executor.cascade_nest import row_form
from aot.executor.config import SLIDE_SHARE
from aot.executor.copy_elision import L, fits_offset, moves_of, reads_before_writes, with_copies, without_call
from aot.executor.lower_te import execution_order
from aot.executor.lowered import KernelCall, LoweredModule, State, TensorRef
from aot.executor.storage_map import (
    STATE_ALIGN,
    Planned,
    StorageInfo,
    StorageMap,
    WriteBack,
    fresh_bytes,
    make_layout,
    plan_lowered,
)
from aot.ir.op import F_IS_VIEW, Array, Op
from aot.ir.transform import PassContext, module_pass
from aot.ir.type import TensorType, TupleType, Type
from aot.memory.circular_state import COUNTER, Ring, Rings, choose_rings, packed, tight_rings
from aot.memory.plan import align_up
from aot.memory.pool_choice import UsedPool
from aot.memory.streaming import Read, RowBound, RowGraph, RowOp, RowTensor, fed_by_rows, streaming_bound, whole_tensor_bound
from aot.relay.expr import Call, Constant, Expr, Function, If, Tuple, TupleGetItem, While, inner_functions, operands
from aot.relay.state import input_vars, state_vars
from aot.support.dataclass import dataclass
from aot.support.dtype import itemsize
from aot.support.names import NameSupply
from aot.tir.expr import Imm
from aot.tir.function import Move, Shift
from aot.tir.functor import Callees, has_calls, with_callees
from aot.tir.transform import merge_functions

# ---- the state laid out again, so that windows can advance in it (aot/memory/circular_state.py)


@module_pass(required=True, phase=Planned)
def slide_windows(module: Planned, _context: PassContext) -> Planned:
    """Let windows of the state advance from run to run, if `planning.rings` asks for it and the RAM allows it.

    In: a Planned.  Out: a Planned with the same workspace and, if windows advance, another layout of the state (E9005 if two
    windows would ever collide).
    """
    return _with_windows(module, slide=module.planning.rings == "slide")


def least_state(planned: Planned) -> int:
    """Bytes of the state with its windows packed, without room to advance."""
    return _with_windows(planned, slide=False).layout.state_size


def _with_windows(planned: Planned, *, slide: bool) -> Planned:
    if any(call.feed for call in planned.calls):
        return planned
    shifted = shifted_states(planned) if slide else None
    most = _most_state(planned)
    for rings in _choices(planned, shifted, most):
        chosen = [s for s in shifted or () if s.ring in rings.windows]
        slid = without_shifts(planned, chosen) if chosen else planned
        layout = _laid_out(slid, rings)
        if _fits(planned, layout, most):
            _verify(slid, layout)
            return replace(slid, layout=layout)
    return planned


def _most_state(planned: Planned) -> int | None:
    """The most bytes for a state with room to advance: 1 / `planning.ring_share` more than the kept bytes; None: no limit."""
    share, kept = planned.planning.ring_share, planned.layout.state_size
    kept -= sum(w.size - w.kept for w in _windows(planned).values())
    return kept + kept // share if share else None


def _choices(planned: Planned, shifted: Sequence[ShiftedState] | None, most: int | None) -> Iterator[Rings]:
    """Choices to try, the best first: windows that advance, within `most` bytes if given; then windows without room for it.

    `shifted`: the states that layers shift; None if no window is to advance.
    """
    if shifted is not None:
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
    """Whether the layout fits RAM budget, pool and, with room to advance, `most` bytes; without, it must shrink the state."""
    rings, limit = layout.rings, planned.planning.ram_budget
    if limit is not None and layout.plan.size + layout.state_size > limit:
        return False
    if rings is None:
        return layout.state_size < planned.layout.state_size and _fits_pool(layout)
    return (most is None or layout.state_size <= most) and _fits_pool(layout)


def _windows(planned: Planned) -> dict[TensorRef, Ring]:
    """The windows by the tensor that owns their bytes: the old value at the front, the new one `hop` bytes further on.

    Windows that are written last come first: their new bytes may overlap the bytes that leave the others.
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
    """The state as a layout: first the tensors that stay in place, then the counter, then the windows.

    Without room to advance there is no counter: copies move the windows back at the end of each run.
    """
    layout, slides = planned.layout, rings.turns > 1
    own, roots = {w.start: w for w in rings.windows}, {w.start: root for root, w in _windows(planned).items()}
    places = {p.offset: t for t, p in layout.places.items() if p.where == "state" and planned.root(t) is t}
    end, table = 0, dict[int, tuple[int, int, int]]()  # first byte: size, new offset, hop
    for start, tensor in sorted(places.items()):
        if start not in own and tensor.type.nbytes:
            to = align_up(end, layout.aligns[tensor])
            table[start] = tensor.type.nbytes, to, 0
            end = to + tensor.type.nbytes
    counter = align_up(end, itemsize(COUNTER))

    shifted = {planned.root(s.old) for s in planned.states if s.fresh is not None}  # read and written in full

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
    """The pools; the state's own pool is reduced to what a state of `size` bytes leaves free."""
    state = layout.state_pool
    if state is None:
        return layout.pools
    left = max(0, state.size - align_up(size, STATE_ALIGN))
    return tuple(replace(u, pool=replace(u.pool, size=left)) if u.pool.name == state.name else u for u in layout.pools)


def _fits_pool(layout: StorageMap) -> bool:
    """Whether the pool that the state is pinned to, if any, has room for it besides its part of the workspace."""
    state = layout.state_pool
    used = 0 if state is None else sum(u.used for u in layout.pools if u.pool.name == state.name)
    return state is None or align_up(layout.state_size, STATE_ALIGN) + used <= state.size


def _verify(planned: Planned, layout: StorageMap) -> None:
    """Replay what each run does to the bytes of the state, and what the last one moves back (E9005 if that fails)."""
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
    """Windows that leave the state, are misaligned, or overlap tensors that stay in place."""
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


# ---- states that a layer shifts, such as the memory of an SVDF: the state advances, and only the new values are written
#
# The filters' values are stored one filter after another, and each filter drops its oldest value.  The new state is thus the old
# state without its first value: a filter's newest value goes where the next filter's oldest value was.  This is a window
# (circular_state.py) that is one value longer than the state.
#
# A state whose remaining rows are moved to the front in place, with new rows copied behind them, works the same way.


@dataclass(frozen=True, slots=True)
class ShiftedState:
    """A state, the layer that shifts it in place, and the window that it may become.

    `shift`: the copy of the new rows, if the layer copies the remaining and the new rows, else the kernel's own description.
    """

    state: State
    call: KernelCall
    shift: Shift | Move
    ring: Ring


def shifted_states(planned: Planned) -> list[ShiftedState]:
    """The states whose old value nothing reads once the new one exists: the plan gives both the same place."""
    found = []
    olds = [planned.root(s.old) for s in planned.states]
    for state, start in zip(planned.states, planned.layout.states, strict=True):
        old, new, places = state.old, state.new, planned.layout.places
        maker = planned.maker(new)
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
    """The copy by which a pure copy layer puts the new rows behind the remaining old ones; None if no layer does so."""
    maker = lowered.maker(state.new)
    return None if maker is None else _copied(lowered, maker, state)


def _copied(lowered: LoweredModule, maker: KernelCall, state: State) -> Move | None:
    moves, size = moves_of(lowered.kernel(maker)), state.old.type.nbytes
    if len(moves) != 2 or maker.inputs[moves[0].operand] is not state.old or maker.inputs[moves[1].operand] is state.old:
        return None
    left, new = moves
    whole = left.target == 0 and left.size == new.target == size - new.size and left.source == new.size
    return new if whole else None


def without_shifts(planned: Planned, shifted: Sequence[ShiftedState]) -> Planned:
    """The module with these states as windows whose layers write only new values; the windows start where the states did."""
    places, aligns = dict(planned.layout.places), dict(planned.layout.aligns)
    for one in shifted:
        old, new = one.state.old, one.state.new
        window = TensorRef(f"{old.name}_window", TensorType((one.ring.size // itemsize(old.type.dtype),), old.type.dtype))
        planned = planned.with_views({old: (window, 0), new: (window, one.ring.hop)})
        places[window], aligns[window] = places[old], aligns[old]
    planned = _with_rests(planned, [one for one in shifted if isinstance(one.shift, Shift)])
    for one in shifted:
        if isinstance(one.shift, Move):
            parts = [(one.call.inputs[one.shift.operand], one.shift)]
            planned = without_call(with_copies(planned, one.call, parts, one.state.new), one.call, {})
    return replace(planned, layout=replace(planned.layout, places=places, aligns=aligns))


def _with_rests(planned: Planned, shifted: Sequence[ShiftedState]) -> Planned:
    """Replace the layers that shift a state by the work that remains: computing the new values."""
    calls, states = list(planned.calls), list(planned.states)
    functions, names = dict(planned.functions), NameSupply(planned.functions)
    for one in shifted:
        assert isinstance(one.shift, Shift)
        func = replace(one.shift.rest, name=names.fresh(one.shift.rest.name))
        functions[func.name] = func
        call = KernelCall(func.name, one.call.inputs[1:], one.call.outputs, span=one.call.span, operators=one.call.operators)
        calls[calls.index(one.call)] = call
        states[states.index(one.state)] = replace(one.state, fresh=one.shift.fresh)
    planned = replace(planned, functions=functions, states=tuple(states), calls=tuple(calls))
    if planned.config.mode.shares_functions:
        rests = {one.call.outputs for one in shifted}
        planned = with_shared_functions(planned, [(i, "") for i, c in enumerate(calls) if c.outputs in rests])
    return planned.with_calls(planned.calls)


def with_shared_functions(lowered: L, places: Sequence[tuple[int, str]]) -> L:
    """Let functions that differ only in numbers be one.

    `places`: the number of the call that each function belongs to, and its name if the call only leads to it (`callees`).
    """
    calls, functions = list(lowered.calls), lowered.prim_funcs
    supply = NameSupply(functions)
    callees: Callees = {}
    for members, merged in merge_functions([functions[name or calls[i].func] for i, name in places]):
        if len(members) == 1:
            continue
        i, name = places[members[0]]
        shared = supply.fresh(f"{name or calls[i].func}_shared")
        functions[shared] = merged.func
        for (i, name), scalars in zip((places[m] for m in members), merged.scalars, strict=True):
            if name:
                added = merged.func.scalars[len(functions[name].scalars) :]  # its own scalars are operands already
                callees[name] = shared, tuple(Imm(v, var.dtype) for v, var in zip(scalars, added, strict=True))
            else:
                calls[i] = replace(calls[i], shared=shared, scalars=calls[i].scalars + scalars)
    for i, call in enumerate(calls):  # a cascade calls the shared functions
        for name in (*call.callees, call.func) if call.callees else ():
            if has_calls(functions[name]):
                functions[name] = with_callees(functions[name], callees)
        names = dict.fromkeys(callees[n][0] if n in callees else n for n in call.callees)
        calls[i] = replace(call, callees=tuple(names)) if call.callees else call
    return replace(lowered, functions=functions).with_calls(calls)


# ---- windows of the state that overlap: the new rows of one use bytes that another no longer needs
#
# Only the layers that read a window need its oldest rows; after the run nothing does.  So the new rows of a later layer's window
# may replace them.  Two checks prove it: the order of the calls, with the safe distances of kernels that read one window and
# write the other (`may_share`); and, for the finished layout, a replay of who owns each byte (`replay`).


def first_write(planned: Planned, root: TensorRef) -> int:
    """The number of the first call that writes to a window; -1 if the model's caller writes it."""
    if any(planned.root(t) is root for t in planned.inputs):
        return -1
    return next((i for i, c in enumerate(planned.calls) if any(planned.root(t) is root for t in c.outputs)), len(planned.calls))


def may_share(planned: Planned, below: TensorRef, above: TensorRef, *, gap: int) -> bool:
    """Whether the new bytes of `below` may replace the oldest bytes of `above`, which starts `gap` bytes after `below`."""
    lasting = [*planned.outputs, *planned.conditions, *(s.new for s in planned.states if planned.root(s.old) is not above)]
    if any(planned.root(t) is above for t in lasting):
        return False
    write = first_write(planned, below)
    for i, call in enumerate(planned.calls):
        reads = any(planned.root(t) is above for t in call.inputs)
        if reads and (i > write or (i == write and not reads_before_writes(planned, call, read=above, written=below, gap=gap))):
            return False
    return True


def replay(planned: Planned, layout: StorageMap, windows: Mapping[TensorRef, Ring], turns: int) -> list[str]:
    """The faults in `turns` runs and the one after them, found by tracking which window last wrote each byte of the state.

    `windows` have the places of `layout`.
    """
    owner, faults = np.full(layout.state_size, -1), list[str]()
    ids = {root: k for k, root in enumerate(windows)}
    for root, w in windows.items():
        owner[w.start : w.start + w.kept] = ids[root]

    def part(tensor: TensorRef, turn: int) -> Array:
        root, offset = planned.place_in_root(tensor)
        place = layout.places[root]
        start = place.offset + offset + turn * place.hop
        return owner[start : start + tensor.type.nbytes] if place.where == "state" else owner[:0]

    def write(tensors: Sequence[TensorRef], turn: int) -> None:
        for t in tensors:
            part(t, turn)[:] = ids.get(planned.root(t), -1)

    for turn in (*range(turns), 0):
        write(planned.inputs, turn)
        for call in planned.calls:
            for t in call.inputs:
                if planned.root(t) in ids and (part(t, turn) != ids[planned.root(t)]).any():
                    faults.append(f"{call.func} finds other bytes in {t.name} in run {turn}")
            write(call.outputs, turn)
        for root, w in windows.items():
            stays = w.start + (turn + 1) * w.hop
            if (owner[stays : stays + w.kept] != ids[root]).any():
                faults.append(f"bytes of {root.name} are lost in run {turn}")
        if turn == turns - 1:
            for w in sorted(windows.values(), key=lambda w: w.start):
                owner[w.start : w.start + w.kept] = owner[w.start + turns * w.hop :][: w.kept].copy()
    return faults


# ---- bounds for a graph


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bytes of the workspace, without scratch memory (aot/memory/streaming.py).

    `liveness`: whole tensors that never overlap.  `streaming`: rows on demand, inputs resident.  `fed`: like `streaming`, with
    inputs that arrive row by row.
    """

    liveness: int
    streaming: RowBound
    fed: RowBound


def memory_bounds(main: Function, shapes: Mapping[int, tuple[int, ...]], *, io: str = "arena") -> Bounds:
    """The bounds of the fused main function.

    `shapes` are the shapes of the file's tensors by index.  A tensor with removed channels counts in full, so that the bounds
    describe the model and not its optimised form.  With `io` "user", inputs and outputs belong to the caller and count as 0.
    """
    graph = row_graph(main, shapes, io=io)
    return Bounds(whole_tensor_bound(graph), streaming_bound(graph), streaming_bound(fed_by_rows(graph)))


def row_graph(main: Function, shapes: Mapping[int, tuple[int, ...]], *, io: str = "arena") -> RowGraph:
    """The fused main function as a graph for the bounds; `shapes` and `io` as in `memory_bounds`."""
    return _Graph(main, shapes).graph(io)


class _Graph:
    """Converts the main function to tensors with rows."""

    def __init__(self, main: Function, shapes: Mapping[int, tuple[int, ...]]) -> None:
        self.main = main
        self.shapes = shapes
        self.removed = main.attrs.get("channels", {})
        self.tensors: list[RowTensor] = []
        self.ops: list[RowOp] = []
        self.refs: dict[int, tuple[int | None, ...]] = {}
        self.images: list[tuple[int, ...]] = []

    def graph(self, io: str) -> RowGraph:
        for var in self.main.params:
            self.refs[id(var)] = (self.tensor(var, var.type),)
        inputs = tuple(t for v in input_vars(self.main) for t in self.refs[id(v)] if t is not None)
        states = {t: None for v in state_vars(self.main) for t in self.refs[id(v)] if t is not None}
        for expr in execution_order(self.main):
            if id(expr) not in self.refs:
                self.refs[id(expr)] = self.visit(expr)
        outputs = tuple(dict.fromkeys(t for t in self.refs[id(self.main.body)] if t is not None))
        outside = {*inputs, *outputs, *states} if io == "user" else set(states)
        tensors = tuple(replace(t, row_bytes=0) if i in outside else t for i, t in enumerate(self.tensors))
        return RowGraph(tensors, tuple(self.ops), (*inputs, *states), outputs)

    def tensor(self, expr: Expr, type_: TensorType) -> int:
        shape = type_.shape
        if expr.span.tensor in self.removed and len(self.shapes.get(expr.span.tensor, ())) == len(shape):
            shape = self.shapes[expr.span.tensor]
        full = replace(type_, shape=shape, quant=None)
        rows = shape[1] if len(shape) == 4 and shape[0] == 1 and shape[1] else 1
        self.tensors.append(RowTensor(rows, full.nbytes // rows))
        self.images.append(shape)
        return len(self.tensors) - 1

    def visit(self, expr: Expr) -> tuple[int | None, ...]:
        """The tensors that a node denotes; None for a constant, which is not in the workspace."""
        match expr:
            case Constant():
                return (None,)
            case Call(op=Function()):
                return self.layer(expr)
            case Call(op=Op(name=op)) if F_IS_VIEW.find(op):
                return self.refs[id(expr.args[0])]
            case Tuple():
                return tuple(t for f in expr.fields for t in self.refs[id(f)])
            case TupleGetItem():
                return (self.refs[id(expr.value)][expr.index],)
            case If() | While():
                return self.control(expr)
        return ()

    def control(self, expr: If | While) -> tuple[int, ...]:
        """A branch or loop as one operator on whole tensors, which also needs the peak memory of its functions."""
        types: tuple[Type, ...] = expr.type.fields if isinstance(expr.type, TupleType) else (expr.type,)
        outputs = tuple(self.tensor(expr, t) for t in types if isinstance(t, TensorType))
        inside = max(whole_tensor_bound(_Graph(f, {}).graph("user")) for f in inner_functions(expr))
        self.tensors.append(RowTensor(1, inside))
        self.images.append(())
        reads = [Read(t) for o in operands(expr) for t in self.refs[id(o)] if t is not None]
        self.ops.append(RowOp(tuple(reads), (*outputs, len(self.tensors) - 1), row_local=False))
        return outputs

    def layer(self, call: Call) -> tuple[int, ...]:
        func = call.op
        assert isinstance(func, Function)
        types: tuple[Type, ...] = call.type.fields if isinstance(call.type, TupleType) else (call.type,)
        outputs = tuple(self.tensor(call, t) for t in types if isinstance(t, TensorType))
        form = row_form(func) if len(outputs) == 1 else None
        reads = []
        for k, arg in enumerate(call.args):
            t = self.refs[id(arg)][0]
            if t is None:
                continue
            rows = form[k] if form else None
            # a view may divide the bytes into other rows, so its reader needs the whole tensor
            same = isinstance(arg.type, TensorType) and arg.type.shape[1:2] == self.images[t][1:2] and len(self.images[t]) == 4
            if rows is None or not same:
                form = None
                reads.append(Read(t))
            else:
                reads.append(Read(t, rows.extent, rows.stride, rows.before, rows.repeat))
        self.ops.append(RowOp(tuple(reads), outputs, row_local=form is not None))
        return outputs


# ---- the passes that plan the memory of a module, and spread the chosen plan over the pools


@module_pass(required=True, phase=LoweredModule)
def plan_memory(module: LoweredModule, _context: PassContext) -> Planned:
    """Give every tensor a place, by liveness and safe distances; copies become views.

    In: a LoweredModule.  Out: a Planned, whose plan the verifier accepts (E9005 otherwise).
    """
    planning = module.planning
    planned = plan_lowered(module)
    if module.config.slides and (planning.rings == "copy" or planning.ring_share):
        return _with_visitors(module, planned)
    return planned


def _with_visitors(lowered: LoweredModule, planned: Planned) -> Planned:
    """Move windows into the workspace one at a time, while the state is too long and each move reduces total memory."""
    kept, visiting = sum(s.old.type.nbytes for s in lowered.states), set[int]()

    def total(plan: Planned) -> tuple[bool, int]:
        return not plan.fits, plan.whole + least_state(plan)

    while least_state(planned) > kept + kept // SLIDE_SHARE:
        trials = []
        for i in {i for i, s in enumerate(planned.states) if planned.root(s.new) is planned.root(s.old)} - visiting:
            trial = plan_lowered(lowered, {i, *visiting})
            trials.append((total(trial), i, trial))
        least, best, trial = min(trials, key=lambda t: t[:2], default=(total(planned), -1, planned))
        if best < 0 or least >= total(planned):
            break
        planned, visiting = trial, {best, *visiting}
    return planned


@module_pass(required=True, phase=Planned)
def spread_pools(planned: Planned, _context: PassContext) -> Planned:
    """Put each buffer into the pool that minimises the time of all accesses, without exceeding the plan's bytes.

    In: a Planned.  Out: a Planned of the same calls, unchanged if there are no pools, or if one pool holds everything and none is
    faster.  Raises E2013 if the pools cannot hold the plan, and E5019 for a pin that matches nothing in it.
    """
    if not planned.planning.pooling.pools:
        return planned
    if isinstance(planned.layout.unfit, UsageError):
        raise planned.layout.unfit
    layout = make_layout(planned, spread=True)
    if layout.unfit is not None:
        raise layout.unfit
    return replace(planned, layout=layout)
