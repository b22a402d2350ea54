"""What may share memory: views instead of copies, shared variables, windows of the state, and operands that may overlap.

A layer whose kernel only copies runs of bytes says so (`FuncAttrs.moves`).  If the result is one run of an operand, it becomes a
view of the operand, at an offset; if operands fill a result run by run, they become views of the result, and the layers that
compute them write into it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from aot.executor.lowered import Alias, KernelCall, LoweredModule, State, TensorRef
from aot.ir.type import TensorType
from aot.memory.liveness import Nested, loops_around, nested, with_steps, without_step
from aot.memory.plan import Conflict
from aot.support.dataclass import dataclass
from aot.support.dtype import itemsize
from aot.tir.analysis import Distance, in_place_pairs, safe_distances
from aot.tir.buffer import Buffer
from aot.tir.expr import Imm, Load, Var
from aot.tir.function import FuncAttrs, Move, PrimFunc
from aot.tir.stmt import For, Store


def moves_of(func: PrimFunc) -> tuple[Move, ...]:
    """What a pure copy moves, in the order of the result; empty for any other layer."""
    return tuple(sorted(func.attrs.moves, key=lambda m: m.target))


def with_aliases(lowered: LoweredModule, *, slices: bool = True, parts: bool = True) -> LoweredModule:
    """The lowered module without copies that views can replace: slices, parts of a concatenation, or both."""
    for call in lowered.calls:
        moves = moves_of(lowered.kernel(call))
        alias: Alias | None = None
        changing = {*map(lowered.root, call.tensors)} & lowered.variables  # bytes would change while the view is read
        if slices and len(moves) == 1 and not changing:
            alias = _slice(lowered, call, moves[0])
        if parts and len(moves) > 1 and not changing:
            alias = _parts(lowered, call, moves)
        if alias is not None:
            lowered = without_call(lowered, call, alias)
    return lowered


L = TypeVar("L", bound=LoweredModule)


def without_call(lowered: L, call: KernelCall, alias: Alias) -> L:
    """The module without a call that the views of `alias` replace; unchanged if a branch or loop contains nothing else."""
    controls = without_step(lowered.controls, lowered.calls.index(call))
    if controls is None:
        return lowered
    return replace(lowered.with_views(alias).with_calls([c for c in lowered.calls if c is not call]), controls=controls)


def _slice(lowered: LoweredModule, call: KernelCall, move: Move) -> Alias | None:
    """The result as a view of the operand; a result of the model stays a tensor of its own."""
    (result,) = call.outputs
    if move.size != result.type.nbytes or is_output(lowered, result) or result in lowered.views:
        return None  # a part of another tensor already has its place there
    _, start = lowered.place_in_root(call.inputs[move.operand])
    return {result: (call.inputs[move.operand], move.source)} if fits_offset(lowered, result, start + move.source) else None


def _parts(lowered: LoweredModule, call: KernelCall, moves: Sequence[Move]) -> Alias | None:
    """All operands as views of the result; each must be a whole tensor that a layer computes, and not part of another one."""
    (result,) = call.outputs
    alias: dict[TensorRef, tuple[TensorRef, int]] = {}
    end = 0
    for move in moves:
        part = _part(lowered, call.inputs[move.operand], move, alias)
        if part is None or move.target != end:
            return None
        alias[part] = (result, end)
        end += move.size
    return alias if end == result.type.nbytes else None


def _part(lowered: LoweredModule, operand: TensorRef, move: Move, alias: Alias) -> TensorRef | None:
    """The result of layers that can be inside another tensor, instead of being moved there as a whole; None if there is none."""
    root = lowered.root(operand)
    if root in alias or root.type.nbytes != move.size or is_output(lowered, root):
        return None
    if root in {lowered.root(s.old) for s in lowered.states}:  # states have places of their own
        return None
    computed = any(root in (t, lowered.root(t)) for c in lowered.calls for t in c.outputs)
    return root if computed and fits_offset(lowered, root, move.target) else None


def is_output(lowered: LoweredModule, root: TensorRef) -> bool:
    """Whether the model returns the tensor."""
    return any(lowered.root(t) is root for t in lowered.outputs)


def fits_offset(lowered: LoweredModule, tensor: TensorRef, offset: int) -> bool:
    """Whether an offset is aligned for every reader and writer of the tensor or a view of it."""
    needed = itemsize(tensor.type.dtype)
    for call in lowered.calls:
        func = lowered.kernel(call)
        for buffer, operand in zip(func.inputs + func.outputs, call.tensors, strict=True):
            if lowered.shows(operand, tensor):
                needed = max(needed, buffer.align, itemsize(buffer.dtype))
    return offset % needed == 0


# ---- copies into loop variables and results of branches: the layer writes its result directly into the variable
#
# By Chaitin's rule two tensors may share their bytes if neither is written while the other is still needed, apart from the copy
# between them; a layer that reads one for the last time and writes the other must be proven to work in place.  A state from which
# a loop or branch starts is shared in the same way: the variable is then in the state.


Live = frozenset[TensorRef]


def without_copies(lowered: LoweredModule) -> LoweredModule:
    """The lowered module in which what is copied into a variable becomes a view of it, if that is proven safe."""
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
            lowered = lowered.with_views({lowered.root(state.old): (lowered.root(state.new), 0)})
        else:
            lowered = _kept_apart(lowered, state) or lowered
    return lowered


def _kept_apart(lowered: LoweredModule, state: State) -> LoweredModule | None:
    """Let a loop start from a state in its place although the old value is read later: copy the old value instead."""
    old, target = state.old, lowered.root(state.new)
    copies = [
        c for c in lowered.calls if c.inputs == (old,) and moves_of(lowered.kernel(c)) and lowered.root(c.outputs[0]) is target
    ]
    at = lowered.calls.index(copies[0]) if len(copies) == 1 else -1
    if at < 0 or any(at in c for c in lowered.controls):
        return None
    kept = TensorRef(f"{old.name}_kept", old.type)

    def reading(call: KernelCall) -> KernelCall:
        return replace(call, inputs=tuple(kept if t is old else t for t in call.inputs)) if old in call.inputs else call

    calls = (*lowered.calls[:at], replace(copies[0], outputs=(kept,)), *map(reading, lowered.calls[at + 1 :]))
    trial = lowered.with_calls(calls)
    return trial.with_views({old: (target, 0)}) if _may_share(trial, source=old, target=target) else None


def _may_share(lowered: LoweredModule, *, source: TensorRef, target: TensorRef, copy: KernelCall | None = None) -> bool:
    """Whether a tensor may occupy the memory of a variable; `copy` is the layer that copies one to the other."""
    is_whole = lowered.is_whole(source) and lowered.is_whole(target)
    source, target = lowered.root(source), lowered.root(target)
    if target not in lowered.variables or source is target or {source, target} & {*lowered.inputs, *lowered.values}:
        return False
    kept = {source, target} & {lowered.root(s.old) for s in lowered.states}
    if len(kept) > 1:
        return False
    if not is_whole or source.type.nbytes != target.type.nbytes:
        return False
    if _parts_are_written(lowered, source) or (is_output(lowered, source) and is_output(lowered, target)):
        return False
    live = live_after(lowered)
    for i, call in enumerate(lowered.calls):
        if call is copy:
            continue
        for written, other in ((source, target), (target, source)):
            if any(lowered.root(t) is written for t in call.outputs):
                if other in live[i]:
                    return False
                if not reads_before_writes(lowered, call, read=other, written=written):
                    return False
    return True


def _parts_are_written(lowered: LoweredModule, root: TensorRef) -> bool:
    return any(lowered.root(t) is root and not lowered.is_whole(t) for call in lowered.calls for t in call.outputs)


def live_after(lowered: LoweredModule) -> list[Live]:
    """For each call, the tensors (by root) that are read after it on some path before they are written again."""
    after: list[Live] = [frozenset()] * len(lowered.calls)
    end = frozenset(map(lowered.root, (*lowered.outputs, *(s.new for s in lowered.states))))
    _before(lowered, nested(lowered.controls, len(lowered.calls)), end, after)
    return after


def _before(lowered: LoweredModule, items: Sequence[int | Nested], live: Live, after: list[Live]) -> Live:
    """What is live before the items if `live` is live after them; fills in `after`."""
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


# ---- operands copied, part by part, into the tensor that joins them


Parts = list[tuple[TensorRef, Move]]
"""What a call joins: operands, and the destination of their bytes."""


def with_gathered_rows(lowered: LoweredModule, most: int) -> LoweredModule:
    """Remove calls that join rows of a state with results of layers: the layers write there, and the rows are copied.

    Results of more than `most` bytes stay as they are, since they would be live from the first part on.
    """
    for call in lowered.calls:
        if len(moves_of(lowered.kernel(call))) > 1 and call.outputs[0].type.nbytes <= most:
            lowered = _gathered(lowered, call)
    return lowered


def _gathered(lowered: LoweredModule, call: KernelCall) -> LoweredModule:
    (result,), moves = call.outputs, moves_of(lowered.kernel(call))
    olds = {lowered.root(s.old) for s in lowered.states}
    if is_output(lowered, result) or result in lowered.views or not any(lowered.root(t) in olds for t in call.inputs):
        return lowered
    alias: dict[TensorRef, tuple[TensorRef, int]] = {}
    copies: Parts = []
    for move in moves:
        part = _part(lowered, call.inputs[move.operand], move, alias)
        if part is None:
            copies.append((call.inputs[move.operand], move))
        else:
            alias[part] = (result, move.target)
    if not alias or sum(m.size for m in moves) != result.type.nbytes:
        return lowered
    return without_call(with_copies(lowered, call, copies, result), call, alias)


def with_copies(lowered: L, call: KernelCall, copies: Parts, result: TensorRef) -> L:
    """Insert a call before `call` for each operand that has to be copied into its result."""
    functions, alias, copy_calls = dict(lowered.functions), dict[TensorRef, tuple[TensorRef, int]](), []
    for operand, move in copies:
        type_, start = operand.type, lowered.place_in_root(operand)[1] + move.source
        if move.size != type_.nbytes:
            type_ = replace(type_, shape=rows_of(type_, move.size))
            source = TensorRef(f"{operand.name}_part", type_)
            alias[source] = operand, move.source
            operand = source
        func = _copy(move, start)
        functions.setdefault(func.name, func)
        part = TensorRef(f"{operand.name}_kept", type_)
        alias[part] = result, move.target
        copy_calls.append(KernelCall(func.name, (operand,), (part,), span=call.span, operators=call.operators))
    at = lowered.calls.index(call)
    calls = (*lowered.calls[:at], *copy_calls, *lowered.calls[at:])
    controls = with_steps(lowered.controls, at, len(copy_calls))
    return replace(lowered.with_views(alias), functions=functions, calls=calls, controls=controls)


def rows_of(type_: TensorType, size: int) -> tuple[int, ...]:
    """The shape of the last `size` bytes: fewer rows along the first axis longer than one, or just elements."""
    axis = next((i for i, n in enumerate(type_.shape) if n > 1), 0)
    row = type_.nbytes // type_.shape[axis]
    if size % row:
        return (size // itemsize(type_.dtype),)
    return (*type_.shape[:axis], size // row, *type_.shape[axis + 1 :])


def _copy(move: Move, offset: int) -> PrimFunc:
    """A kernel that copies a move's bytes, which start `offset` bytes into their tensor; in words if they are aligned."""
    unit = 4 if not (move.size | move.target | offset) % 4 else 1
    word = "int32" if unit == 4 else "int8"
    source, target = (Buffer(name, (move.size,), "int8", align=unit) for name in ("data", "result"))
    i = Var("i")
    body = For(i, Imm(0), Imm(move.size // unit), (Store(target, (i,), Load(source, (i,), word), word),))
    return PrimFunc(
        f"keep_{move.size}_{word}",
        (source,),
        (target,),
        (body,),
        attrs=FuncAttrs("generic.copy", moves=(Move(0, 0, 0, move.size),)),
    )


# ---- sliding windows: a state, together with what is new after it, stays in one place and advances at the end of a run
#
# A streaming layer joins the rows that it kept with the new ones (CONCATENATION), reads the whole, and keeps its last rows (a
# slice). As three tensors, the kept rows are copied twice per run.  Here the state's memory is as long as the whole: the kept
# rows are where the last run left them, the layer that computes new rows writes them behind, and after the last layer the rows
# that stay are moved to the front, or the window advances instead (`slide_windows`).
#
# Some models keep the whole window and drop its oldest rows when they join it with new ones.  Such a state is treated as its
# remaining rows, since the others are never read.


def with_windows(lowered: LoweredModule, visiting: Collection[int] = ()) -> LoweredModule:
    """Make states the front of the tensor into which they are joined, as far as the layers allow it.

    States whose numbers are in `visiting` are copied there, in the workspace, and back.
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


def _always_runs(lowered: LoweredModule, call: KernelCall) -> bool:
    """Whether a call is outside all branches and loops, and nothing else writes its results."""
    at = lowered.calls.index(call)
    return not any(at in c for c in lowered.controls) and not lowered.variables.intersection(map(lowered.root, call.outputs))


def _sliced(lowered: LoweredModule, state: State) -> LoweredModule:
    """The new value as a view of the tensor that it is sliced from."""
    maker = lowered.maker(state.new)
    moves = () if maker is None else moves_of(lowered.kernel(maker))
    if maker is None or len(moves) != 1 or not _always_runs(lowered, maker):
        return lowered
    alias = _slice(lowered, maker, moves[0])
    return lowered if alias is None else without_call(lowered, maker, alias)


def _joined(lowered: LoweredModule, call: KernelCall, state: State) -> LoweredModule | None:
    """Remove the call that joins the state with other tensors: those become parts of the result, or are copied there."""
    (result,) = call.outputs
    if is_output(lowered, result) or state.old in lowered.views:
        return None
    alias: dict[TensorRef, tuple[TensorRef, int]] = {}
    copies: Parts = []
    end = 0
    parts = [(call.inputs[move.operand], move) for move in moves_of(lowered.kernel(call))]
    kept, parts = _cut(lowered, state, parts)
    for operand, move in parts:
        if move.target != end:
            return None
        end += move.size
        part = _inside(lowered, operand, kept, move, alias)
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
        lowered = replace(lowered.with_views({kept.new: (state.new, first)}), states=states)
    return lowered


def _cut(lowered: LoweredModule, state: State, parts: Parts) -> tuple[State, Parts]:
    """The state as its last rows, and the parts with these, if its only reader joins them with new rows."""
    readers = [t for c in lowered.calls for t in c.inputs if lowered.root(t) is state.old]
    lasting = [*lowered.outputs, *lowered.conditions, *(s.new for s in lowered.states)]
    operand, move = parts[0]
    old, (root, _) = state.old, lowered.place_in_root(operand)
    whole = operand.type.nbytes == old.type.nbytes == move.source + move.size
    if root is not old or len(readers) != 1 or not whole or not move.source or any(lowered.root(t) is old for t in lasting):
        return state, parts
    type_, unit = replace(old.type, shape=rows_of(old.type, move.size)), itemsize(old.type.dtype)
    remaining_rows = TensorRef(old.name, type_, old.tensor)
    initial = state.initial.reshape(-1)[move.source // unit :].reshape(type_.shape)
    kept = replace(state, initial=initial, old=remaining_rows, new=TensorRef(f"{state.new.name}_kept", type_, state.new.tensor))
    return kept, [(remaining_rows, replace(move, source=0)), *parts[1:]]


def _inside(lowered: LoweredModule, operand: TensorRef, state: State, move: Move, alias: Alias) -> TensorRef | None:
    """The tensor that can be inside the result: the state itself in front, or a whole result of a layer."""
    root = lowered.root(operand)
    if root is state.old:
        fits = move.target == 0 and move.size == operand.type.nbytes == root.type.nbytes
        return root if fits and root not in alias and not is_output(lowered, root) else None
    if root in lowered.variables or root in {lowered.root(s.new) for s in lowered.states}:
        return None
    return _part(lowered, operand, move, alias)


# ---- which operands of a layer may overlap


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
