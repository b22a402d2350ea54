"""Where every tensor of a lowered module is: workspace, state, caller's memory or flash."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

from aot.errors import AotError, Problem, TargetError, UsageError
from aot.executor import copy_elision
from aot.executor.config import Io
from aot.executor.lowered import KernelCall, LoweredModule, State, TensorRef, check_lowered
from aot.ir.module import in_phase
from aot.memory.circular_state import Rings
from aot.memory.liveness import Step, Storage, StorageTrace, liveness, program_conflicts
from aot.memory.memory_pools import Pooling
from aot.memory.plan import BufferInfo, Conflict, Kind, MemoryPlan, align_up, liveness_bound
from aot.memory.planner import plan
from aot.memory.pool_choice import PoolChoice, UsedPool, fill_pools, plan_pools, verify_pools, with_known_pins
from aot.memory.verify import verify_plan
from aot.support.dataclass import dataclass
from aot.support.dtype import itemsize
from aot.support.memory_pool import Pool
from aot.support.names import NameSupply
from aot.support.text import printable
from aot.system.disk_memo import recall
from aot.target.source_module import Param


@dataclass(frozen=True, slots=True)
class StorageInfo:
    """`workspace`: `key` names a planned storage; `input`, `output`: the caller's tensor `index`; `const`: constant `index`;
    `state`: the array of persistent tensors.

    `offset` is in bytes from its start; each run since the windows of the state started adds `hop` (memory/circular_state.py).
    """

    where: Literal["workspace", "input", "output", "const", "state"]
    key: str = ""
    index: int = 0
    offset: int = 0
    hop: int = 0


# ---- the state: where persistent tensors are, and how they get their new values
#
# They have an array besides the workspace, since they survive from run to run.  A new value is written to the place of the old
# one as soon as nothing reads that any more; otherwise it is copied there after the last layer.


STATE_ALIGN = 16
"""Alignment of the array, in bytes."""

STATE_PIN = "state"
"""The name of the array for `--pin`."""


def has_fixed_layout(lowered: LoweredModule) -> bool:
    """Whether the state may come from a model built from another signature: the caller's memory, in the order of the file."""
    return lowered.planning.io == "user" and any(s.shared for s in lowered.states)


def in_place_states(lowered: LoweredModule) -> dict[TensorRef, TensorRef]:
    """New value -> old value whose memory it takes over at once: nothing reads the old value afterwards.

    Both are whole tensors.  The layer that writes the new one may read the old one if its kernel is proven to be done with each
    byte before it writes there.
    """
    old_of: dict[TensorRef, TensorRef] = {}
    lasting = [lowered.root(t) for t in (*lowered.outputs, *lowered.conditions, *(s.new for s in lowered.states))]
    for state in lowered.states:
        old, new = state.old, state.new
        whole = lowered.root(old) is old and lowered.is_whole(new) and lowered.root(new).type.nbytes == old.type.nbytes
        root = lowered.root(new)
        if root in lowered.variables or not whole or root is old or old in lasting or lasting.count(root) > 1:
            continue
        writes = [i for i, c in enumerate(lowered.calls) if root in map(lowered.root, c.outputs)]
        reads = [i for i, c in enumerate(lowered.calls) if old in map(lowered.root, c.inputs)]
        if not writes or any(i > writes[0] for i in reads):
            continue
        if writes[0] not in reads or (
            len(writes) == 1 and copy_elision.reads_before_writes(lowered, lowered.calls[writes[0]], read=old, written=root)
        ):
            old_of[root] = old
    return old_of


def fresh_bytes(lowered: LoweredModule, state: State) -> int:
    """The bytes that a run adds to a window; for other states all bytes."""
    if state.new is state.old:
        return 0
    if state.fresh is not None:
        return state.fresh
    root, hop = lowered.place_in_root(state.new)
    return hop if hop and root is lowered.root(state.old) else state.old.type.nbytes - state.kept


def is_written_by_copy(lowered: LoweredModule, state: State) -> bool:
    """Whether no layer could write the new value in place: it is an input, a constant, or a part of another tensor."""
    root = lowered.root(state.new)
    olds = {lowered.root(s.old) for s in lowered.states}
    return root in (*lowered.inputs, *lowered.values) or (root not in olds and not lowered.is_whole(state.new))


def without_state(pooling: Pooling, size: int) -> tuple[Pooling, Pool | None]:
    """The pools that remain for the workspace, and the pool that `--pin state=POOL` gives the state, if any.

    E2013 if the pool has no room for `size` bytes.
    """
    name = dict(pooling.pins).get(STATE_PIN) if size else None
    pool = next((p for p in pooling.pools if p.name == name), None)
    if pool is None:
        return pooling, None
    left = pool.size - align_up(size, STATE_ALIGN)
    if left < 0:
        raise TargetError(Problem("E2013", f"the state of {size:,} bytes does not fit into pool {pool.name} of {pool.size:,}"))
    pools = tuple(replace(p, size=left) if p is pool else p for p in pooling.pools)
    pins = tuple(pin for pin in pooling.pins if pin[0] != STATE_PIN)
    return replace(pooling, pools=tuple(p for p in pools if p.size), pins=pins), pool


@dataclass(frozen=True, slots=True)
class WriteBack:
    """`size` bytes that are copied after the last layer; a `target` in the workspace saves what another copy overwrites."""

    source: StorageInfo
    target: StorageInfo
    size: int


def state_offsets(lowered: LoweredModule, aligns: Mapping[TensorRef, int]) -> tuple[dict[TensorRef, int], int]:
    """The offset of each tensor that owns bytes of the state, and the size of all of them.

    Tensors with the largest alignment come first, unless the order must match other models (`has_fixed_layout`).
    """
    roots = list(dict.fromkeys(lowered.root(s.old) for s in lowered.states))
    fixed = has_fixed_layout(lowered)
    offsets, end = dict[TensorRef, int](), 0
    for root in roots if fixed else sorted(roots, key=lambda r: -aligns[r]):
        offsets[root] = align_up(end, STATE_ALIGN if fixed else aligns[root])
        end = offsets[root] + root.type.nbytes
    return offsets, end


def write_backs(copies: Sequence[WriteBack], reserve: Callable[[int], StorageInfo]) -> tuple[WriteBack, ...]:
    """The copies in an order in which none overwrites what a later one reads; `reserve` allocates memory for cycles."""
    left = [w for w in copies if w.source != w.target]
    done: list[WriteBack] = []
    while left:
        free = next((w for w in left if not any(o is not w and _meets(w, o) for o in left)), None)
        if free is not None:
            left.remove(free)
            done.append(free)
            continue
        first = next(w for w in left if any(o is not w and _meets(o, w) for o in left))
        kept = reserve(first.size)
        done.append(WriteBack(first.source, kept, first.size))
        left[left.index(first)] = replace(first, source=kept)
    return tuple(done)


def _meets(write: WriteBack, read: WriteBack) -> bool:
    """Whether the target of one overlaps the source of the other."""
    a, b = write.target, read.source
    return a.where == b.where == "state" and a.offset < b.offset + read.size and b.offset < a.offset + write.size


# ---- how often the layers access each buffer of the workspace and each constant: estimates to rank them


REUSE = 4
"""Multiply-accumulates per load of an input: kernels keep blocks of two by two and more in registers."""


def count_accesses(lowered: LoweredModule, keys: Mapping[TensorRef, str], scratch: Sequence[Sequence[str]]) -> dict[str, int]:
    """Bytes loaded and stored per buffer name; `keys` names root tensors, `scratch` the scratch buffers of each call.

    A layer reads its first input once per `REUSE` multiply-accumulates, and at least once; everything else that it reads or
    writes counts once, scratch memory twice, since it is written and read.
    """
    count: dict[str, int] = {}
    for call, names in zip(lowered.calls, scratch, strict=True):
        func = lowered.kernel(call)
        for k, tensor in enumerate(call.tensors):
            key = keys.get(lowered.root(tensor))
            if key:
                work = func.attrs.macs // REUSE if k == 0 and call.inputs else 0
                count[key] = count.get(key, 0) + max(tensor.type.nbytes, work)
        for buffer, name in zip(func.scratch, names, strict=True):
            count[name] = count.get(name, 0) + 2 * buffer.nbytes
    return count


def place_constants(
    arrays: Sequence[Param], lowered: LoweredModule, used: Sequence[Sequence[int]], pooling: Pooling
) -> tuple[tuple[Param, ...], PoolChoice | None]:  # fmt: skip
    """The arrays with their sections, and how good their choice is if constants are spread over pools (E2013).

    `used`: the array numbers of each call.  A layer's multiply-accumulates are spread over its constants in proportion to their
    bytes.
    """
    if not pooling.constants:
        return tuple(arrays), None
    reads: dict[str, int] = {}
    for call, numbers in zip(lowered.calls, used, strict=True):
        total = max(1, sum(arrays[k].data.nbytes for k in numbers))
        for k in numbers:
            share = max(1, lowered.kernel(call).attrs.macs // REUSE * arrays[k].data.nbytes // total)
            reads[arrays[k].name] = reads.get(arrays[k].name, 0) + share
    sizes = {a.name: a.data.nbytes + a.align - 1 for a in arrays}
    choice = fill_pools(sizes, pooling.constants, reads=reads)
    return tuple(replace(a, section=f".rodata.aot_pool_{choice.pool[a.name]}") for a in arrays), choice


# ---- the places of all tensors


@dataclass(frozen=True, slots=True)
class StorageMap:
    """`places` by root tensor; `scratch`: names of the scratch storages of each call; `output_slots`: the place of each result.

    `copies`: results that the layers do not leave in their slot, as (place, output index), copied after the last layer.
    Persistent tensors are in an array of `state_size` bytes, each at its offset in `states`; `write_backs` follow the copies.
    `conditions`: the place of the condition of each branch and loop.  `rings`: the windows of the state that advance.
    `pool_choice` and `constant_choice`: how good the choice of pools is, if there are several.  `unfit`: why the pools cannot
    hold the plan, which is then for a single memory.  `whole`: bytes needed in a single memory.
    """

    io: Io
    places: Mapping[TensorRef, StorageInfo]
    scratch: tuple[tuple[str, ...], ...]
    output_slots: tuple[StorageInfo, ...]
    copies: tuple[tuple[StorageInfo, int], ...]
    aligns: Mapping[TensorRef, int]
    buffers: tuple[BufferInfo, ...]
    plan: MemoryPlan
    pools: tuple[UsedPool, ...] = ()
    states: tuple[int, ...] = ()
    state_size: int = 0
    write_backs: tuple[WriteBack, ...] = ()
    state_pool: Pool | None = None
    conditions: tuple[StorageInfo, ...] = ()
    rings: Rings | None = None
    pool_choice: PoolChoice | None = None
    constant_choice: PoolChoice | None = None
    unfit: AotError | None = None
    whole: int = 0

    @property
    def rank(self) -> tuple[bool, int]:
        """Key for comparing plans, lower is better: first whether the pools hold it, then its bytes in a single memory.

        So the choice is the same as without pools, provided that they hold it.
        """
        return self.unfit is not None, self.whole

    def offset(self, place: StorageInfo) -> int:
        """The byte of the plan, or of the array of persistent tensors."""
        return self.plan.offset.get(place.key, 0) + place.offset


class _Builder:
    """Collects storages while deciding the place of each tensor; `over`: results that take over the storage of an operand."""

    def __init__(self, lowered: LoweredModule, over: Mapping[TensorRef, TensorRef]) -> None:
        self.lowered, self.io, self.over = lowered, lowered.planning.io, over
        self.names = NameSupply()
        self.storages: list[Storage] = []
        self.places: dict[TensorRef, StorageInfo] = {}
        self.renewed = in_place_states(lowered)
        self.aligns = copy_elision.merge_alignments(alignments(lowered), {**over, **self.renewed})

    def layout(self, *, spread: bool) -> StorageMap:
        """Decide all places, plan the workspace, and verify the plan (E9005)."""
        lowered = self.lowered
        starts, state_size = state_offsets(lowered, self.aligns)
        self.inputs(starts)
        states = tuple(self.place_of(s.old).offset for s in lowered.states)
        direct: dict[TensorRef, int] = {}  # tensors that layers can write directly to the first output that asks for them
        for k, root in enumerate(map(lowered.root, lowered.outputs)):
            if root not in self.places:
                direct.setdefault(root, k)
        self.results(direct)
        slots, copies = self.copies(direct)
        backs = write_backs([self.write_back(s, at) for s, at in zip(lowered.states, states, strict=True)], self.kept)
        scratch = tuple(self.scratch(i, call) for i, call in enumerate(lowered.calls))
        program = self.program(slots, copies, backs, scratch)
        buffers = liveness(program)
        clashes = tuple(program_conflicts(program, buffers))
        memory_plan = _plan(buffers, clashes)
        layout = StorageMap(
            self.io, self.places, scratch, tuple(slots), tuple(copies), self.aligns, buffers, memory_plan, (), states, state_size,
            backs, conditions=tuple(map(self.place_of, lowered.conditions)), whole=memory_plan.size,
        )  # fmt: skip
        if lowered.planning.pooling.pools:
            layout = _in_pools(lowered, layout, clashes, spread=spread)
        verify_plan(program, layout.plan)
        verify_pools(buffers, layout.plan, layout.pools)
        return layout

    def reserve(self, name: str, size: int, *, align: int, kind: Kind) -> StorageInfo:
        key = self.names.fresh(printable(name) or kind)
        self.storages.append(Storage(key, size, align, kind))
        return StorageInfo("workspace", key)

    def planned(self, tensor: TensorRef, kind: Kind) -> StorageInfo:
        return self.reserve(tensor.name, tensor.type.nbytes, align=self.aligns[tensor], kind=kind)

    def place_of(self, tensor: TensorRef) -> StorageInfo:
        """The place of a tensor, or of the part of another one that it shows."""
        root, start = self.lowered.place_in_root(tensor)
        place = self.places[root]
        return replace(place, offset=place.offset + start)

    def inputs(self, starts: Mapping[TensorRef, int]) -> None:
        """Place what holds values before the first layer; `starts`: offsets of tensors in the state."""
        fed = {call.inputs[0] for call in self.lowered.calls if call.feed}
        for i, tensor in enumerate(self.lowered.inputs):
            outside = self.io == "user" or tensor in fed
            self.places[tensor] = StorageInfo("input", index=i) if outside else self.planned(tensor, "input")
        self.places |= {tensor: StorageInfo("const", index=i) for i, tensor in enumerate(self.lowered.values)}
        self.places |= {root: StorageInfo("state", offset=offset) for root, offset in starts.items()}

    def results(self, direct: Mapping[TensorRef, int]) -> None:
        for tensor in (self.lowered.root(t) for call in self.lowered.calls for t in call.outputs):
            if tensor in self.places:
                continue  # parts of one tensor
            if tensor in self.renewed:
                self.places[tensor] = self.places[self.renewed[tensor]]
            elif tensor in direct and self.io == "user":
                self.places[tensor] = StorageInfo("output", index=direct[tensor])
            elif tensor in self.over and self.places[self.over[tensor]].where == "workspace":
                self.places[tensor] = self.places[self.over[tensor]]
            else:
                self.places[tensor] = self.planned(tensor, "output" if tensor in direct else "tensor")

    def copies(self, direct: Mapping[TensorRef, int]) -> tuple[list[StorageInfo], list[tuple[StorageInfo, int]]]:
        slots, copies = [], []
        for k, output in enumerate(self.lowered.outputs):
            root = self.lowered.root(output)
            there = self.places[root]
            # inputs returned as results, and results returned twice, stay in their place in the workspace
            if direct.get(root) == k or (self.io == "arena" and there.where == "workspace"):
                slots.append(there)
                continue
            slot = StorageInfo("output", index=k)
            if self.io == "arena":
                align = itemsize(output.type.dtype)
                slot = self.reserve(f"{output.name}:copy", output.type.nbytes, align=align, kind="output")
            slots.append(slot)
            copies.append((there, k))
        return slots, copies

    def write_back(self, state: State, start: int) -> WriteBack:
        """The copy of a new value to where the next run expects it."""
        return WriteBack(self.place_of(state.new), StorageInfo("state", offset=start), state.old.type.nbytes)

    def kept(self, size: int) -> StorageInfo:
        return self.reserve("state:copy", size, align=1, kind="scratch")

    def scratch(self, i: int, call: KernelCall) -> tuple[str, ...]:
        buffers = self.lowered.kernel(call).scratch
        aligns = [max(b.align, itemsize(b.dtype)) for b in buffers]
        return tuple(
            self.reserve(f"layer {i} {b.name}", b.nbytes, align=align, kind="scratch").key
            for b, align in zip(buffers, aligns, strict=True)
        )

    def program(
        self,
        slots: Sequence[StorageInfo],
        copies: Sequence[tuple[StorageInfo, int]],
        backs: Sequence[WriteBack],
        scratch: Sequence[tuple[str, ...]],
    ) -> StorageTrace:
        """The lowered module as the planner sees it: only what is in the workspace."""
        lowered, places = self.lowered, self.places

        def keys(tensors: tuple[TensorRef, ...]) -> tuple[str, ...]:
            return tuple(p.key for p in (places[lowered.root(t)] for t in tensors) if p.where == "workspace")

        begun: set[str] = set()
        rewritten = {places[t].key for t in lowered.variables if t in places}
        funcs = lowered.prim_funcs

        def step(call: KernelCall, scratch: tuple[str, ...]) -> Step:
            # a tensor that already has other parts counts as read too, since it must survive; and nothing may overlap it
            reads, writes = keys(call.inputs), keys(call.outputs)
            there = tuple(begun.intersection(writes) - rewritten)
            begun.update(writes)
            operands = []
            for tensor in call.tensors:
                root, offset = lowered.place_in_root(tensor)
                key = "" if tensor in call.outputs and places[root].key in there else places[root].key
                operands.append(copy_elision.Operand(key, offset, root.type.nbytes))
            operands += [copy_elision.Operand(name) for name in scratch]
            return Step(reads + there, writes + scratch, copy_elision.call_distances(lowered.kernel(call), operands, funcs))

        steps = tuple(map(step, lowered.calls, scratch))
        moves = [(place.key, slots[k].key) for place, k in copies if slots[k].where == "workspace"]
        moves += [(back.source.key, back.target.key) for back in backs if back.target.where == "workspace"]
        leaving = [place.key for place, k in copies if slots[k].where != "workspace" and place.key]
        leaving += [back.source.key for back in backs if back.source.key]
        outputs = tuple(dict.fromkeys(s.key for s in slots if s.where == "workspace"))
        conditions = tuple("".join(keys((c,))) for c in lowered.conditions)
        return StorageTrace(
            tuple(self.storages), steps, keys(lowered.inputs), (*outputs, *leaving), tuple(moves),
            lowered.controls, conditions,
        )  # fmt: skip


def alignments(lowered: LoweredModule) -> dict[TensorRef, int]:
    """The alignment that each root tensor's users need, at least the size of its elements; in bytes."""
    tensors = [*lowered.inputs, *lowered.values, *lowered.outputs, *(t for c in lowered.calls for t in c.outputs)]
    tensors += [t for s in lowered.states for t in (s.old, s.new)]
    tensors += lowered.views.values()
    table: dict[TensorRef, int] = {}
    for tensor in tensors:
        root = lowered.root(tensor)
        table[root] = max(table.get(root, 1), itemsize(tensor.type.dtype))
    for call in lowered.calls:
        func = lowered.kernel(call)
        for buffer, tensor in zip(func.inputs + func.outputs, call.tensors, strict=True):
            root = lowered.root(tensor)
            table[root] = max(table[root], buffer.align, itemsize(buffer.dtype))
    return table


def make_layout(lowered: LoweredModule, *, spread: bool = False) -> StorageMap:
    """Decide all places, plan the workspace and verify the plan (E9005).

    If kernels may write exactly over an operand, a plan with these tensors in one place is tried first, and one without if that
    is not proven to be the smallest.  With `spread`, buffers are in faster pools if that needs no more bytes.
    """
    over = copy_elision.in_place_results(lowered)
    layout = _Builder(lowered, over).layout(spread=False)
    if over and not (layout.plan.optimal and layout.unfit is None):
        apart = _Builder(lowered, {}).layout(spread=False)
        if apart.rank < layout.rank:
            layout, over = apart, {}
    return _Builder(lowered, over).layout(spread=True) if spread else layout


def _in_pools(lowered: LoweredModule, layout: StorageMap, clashes: Iterable[Conflict], *, spread: bool) -> StorageMap:
    """The plan with its buffers in the pools; unchanged, with the reason, if the pools cannot hold it."""
    keys = {t: place.key for t, place in layout.places.items() if place.where == "workspace"}
    accesses = count_accesses(lowered, keys, layout.scratch)
    names = {t.name: layout.places[lowered.root(t)] for t in (*lowered.views, *layout.places) if lowered.root(t) in keys}
    try:
        pooling, state_pool = without_state(lowered.planning.pooling, layout.state_size)
        pooling = with_known_pins(pooling, {printable(name): place.key for name, place in names.items()}, layout.plan.offset)
        pool_plan, pools, choice = plan_pools(
            layout.buffers, clashes, pooling, accesses=accesses, whole=layout.plan, most=lowered.planning.most_spread, fast=spread
        )  # fmt: skip
    except (TargetError, UsageError) as error:
        return replace(layout, unfit=error)
    return replace(layout, plan=pool_plan, pools=pools, state_pool=state_pool, pool_choice=choice)


def _plan(buffers: tuple[BufferInfo, ...], pairs: tuple[Conflict, ...]) -> MemoryPlan:
    """`plan`, or its cached result; callers verify it."""

    def unpacked(data: Any) -> MemoryPlan | None:
        offsets, size, bound, optimal = data
        fits = len(offsets) == len(buffers) and all(isinstance(n, int) for n in (*offsets, size, bound))
        return (
            MemoryPlan({b.name: n for b, n in zip(buffers, offsets, strict=True)}, size, bound, optimal is True) if fits else None
        )

    return recall(
        "plan", lambda: repr((buffers, pairs)).encode(), lambda: _solved(buffers, pairs), unpack=unpacked,
        pack=lambda p: [[p.offset[b.name] for b in buffers], p.size, p.lower_bound, p.optimal],
    )  # fmt: skip


@lru_cache(maxsize=8)
def _solved(buffers: tuple[BufferInfo, ...], pairs: tuple[Conflict, ...]) -> MemoryPlan:
    """Cached, because attempts with other limits often end with the same kernels."""
    return plan(buffers, pairs)


# ---- a model with its memory plan, with views instead of copies if that needs no more memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(LoweredModule):
    """A lowered module with the memory plan that was made for it."""

    layout: StorageMap

    @property
    def size(self) -> int:
        """Bytes of the workspace, all pools together."""
        return self.layout.plan.size

    @property
    def whole(self) -> int:
        """Bytes of the workspace in a single memory, by which plans are compared with or without pools."""
        return self.layout.whole

    @property
    def fits(self) -> bool:
        """Whether the pools hold it, if there are any."""
        return self.layout.unfit is None


def plan_lowered(lowered: LoweredModule, visiting: Collection[int] = ()) -> Planned:
    """Replace copies by views, within the memory of whole tensors side by side; with `config.tight`, within that of the plan with
    the copies.

    A tensor that is computed part by part is live earlier.  `visiting`: numbers of states whose windows are in the workspace.
    """
    check_lowered(lowered)
    lowered = copy_elision.without_copies(lowered)
    if lowered.states and not has_fixed_layout(lowered):
        lowered = copy_elision.with_windows(lowered, visiting)
        check_lowered(lowered)
    best, layout = _with_gathers(lowered) if lowered.states else (lowered, make_layout(lowered))
    lowered = best
    limit = layout.whole if lowered.config.tight else max(layout.whole, liveness_bound(layout.buffers))
    for kind in ({"slices": True, "parts": True}, {"slices": True, "parts": False}, {"slices": False, "parts": True}):
        trial = copy_elision.with_aliases(lowered, **kind)
        if len(trial.calls) >= len(best.calls):
            continue
        check_lowered(trial)
        planned = make_layout(trial)
        if planned.rank <= max((layout.unfit is not None, limit), layout.rank):
            best, layout = trial, planned
    return in_phase(best, Planned, layout=layout)


def _with_gathers(lowered: LoweredModule) -> tuple[LoweredModule, StorageMap]:
    """Copy rows of a state into what layers write beside them, for all or only for short ones, if the plan does not grow."""
    layout = make_layout(lowered)
    if not lowered.controls:
        for most in (layout.whole, layout.whole // 2):
            trial = copy_elision.with_gathered_rows(lowered, most)
            if trial.calls == lowered.calls:
                break
            check_lowered(trial)
            planned = make_layout(trial)
            if planned.rank <= layout.rank:
                return trial, planned
    return lowered, layout
