"""Where every tensor of a lowered module lives: workspace, caller's memory or flash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from aot.errors import AotError, TargetError, UsageError
from aot.executor.lowered import CallLowered, LoweredModule, TensorRef
from aot.executor.plan.accesses import count_accesses
from aot.executor.plan.distances import Operand, call_distances
from aot.executor.plan.in_place import in_place_results, merge_alignments
from aot.executor.plan.state_plan import WriteBack, in_place_states, state_offsets, without_state, write_backs
from aot.executor.plan.storage_info import StorageInfo
from aot.executor.select.config import Io
from aot.memory.liveness import Step, Storage, StorageTrace, liveness, program_conflicts
from aot.memory.plan import BufferInfo, Conflict, Kind, MemoryPlan
from aot.memory.planner import plan
from aot.memory.pool_choice import PoolChoice
from aot.memory.pools import UsedPool, plan_pools, verify_pools, with_known_pins
from aot.memory.rings import Rings
from aot.memory.verify import verify_plan
from aot.support.dataclass import dataclass
from aot.support.dtype import itemsize
from aot.support.names import NameSupply
from aot.support.pool import Pool
from aot.support.text import printable
from aot.system.facts import recall


@dataclass(frozen=True, slots=True)
class StorageMap:
    """`places` by root tensor; `scratch` names of each call's scratch storages; `output_slots` the place of each result.

    `copies`: results that the layers do not leave in their slot, as (place, output index), done after the last layer.  Persistent
    tensors lie in an array of `state_size` bytes, each at its offset in `states`; `write_backs` are done after the copies.
    `conditions`: the place of what decides each branch and loop.  `rings`: the windows of the state that move on.
    `pool_choice` and `constant_choice`: how good the choice of pools is, where there are several.  `unfit`: why the pools cannot
    hold the plan, which then is one for a single memory.  `whole`: bytes that a single memory needs.
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
        """Of two layouts, the one of lower rank is better: one that the pools hold, then one of fewer bytes in one memory.

        So the choice is that without pools, wherever they hold it.
        """
        return self.unfit is not None, self.whole

    def offset(self, place: StorageInfo) -> int:
        """The byte of the plan, or of the array of persistent tensors."""
        return self.plan.offset.get(place.key, 0) + place.offset


class _Builder:
    """Collects storages while deciding the place of each tensor."""

    def __init__(self, lowered: LoweredModule, io: Io, over: Mapping[TensorRef, TensorRef]) -> None:
        self.lowered = lowered
        self.io = io
        self.names = NameSupply()
        self.storages: list[Storage] = []
        self.places: dict[TensorRef, StorageInfo] = {}
        self.over = over
        self.states: tuple[int, ...] = ()
        self.renewed = in_place_states(lowered)
        self.state_size = 0
        self.aligns = merge_alignments(alignments(lowered), {**over, **self.renewed})

    def reserve(self, name: str, size: int, *, align: int, kind: Kind) -> str:
        key = self.names.fresh(printable(name) or kind)
        self.storages.append(Storage(key, size, align, kind))
        return key

    def planned(self, tensor: TensorRef, kind: Kind) -> StorageInfo:
        key = self.reserve(tensor.name, tensor.type.nbytes, align=self.aligns[tensor], kind=kind)
        return StorageInfo("workspace", key)

    def place_of(self, tensor: TensorRef) -> StorageInfo:
        """Where a tensor, or the part of another that it shows, has been put."""
        root, start = self.lowered.place_in_root(tensor)
        place = self.places[root]
        return replace(place, offset=place.offset + start)

    def inputs(self) -> None:
        fed = {call.inputs[0] for call in self.lowered.calls if call.feed}
        for i, tensor in enumerate(self.lowered.inputs):
            outside = self.io == "user" or tensor in fed
            self.places[tensor] = StorageInfo("input", index=i) if outside else self.planned(tensor, "input")
        for i, tensor in enumerate(self.lowered.values):
            self.places[tensor] = StorageInfo("const", index=i)
        slots, self.state_size = state_offsets(self.lowered, self.aligns)
        self.places |= {root: StorageInfo("state", offset=offset) for root, offset in slots.items()}
        found = map(self.lowered.place_in_root, (s.old for s in self.lowered.states))
        self.states = tuple(slots[root] + offset for root, offset in found)

    def direct_outputs(self) -> dict[TensorRef, int]:
        """Tensors that layers can write where the result is wanted: each for the first output that asks for it."""
        first: dict[TensorRef, int] = {}
        for k, output in enumerate(self.lowered.outputs):
            root = self.lowered.root(output)
            if root not in self.places:
                first.setdefault(root, k)
        return first

    def results(self, direct: Mapping[TensorRef, int]) -> None:
        for call in self.lowered.calls:
            for tensor in map(self.lowered.root, call.outputs):
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
            # inputs that are results as they are, and results that are wanted twice, stay where they lie in the workspace
            if direct.get(root) == k or (self.io == "arena" and there.where == "workspace"):
                slots.append(there)
                continue
            slot = StorageInfo("output", index=k)
            if self.io == "arena":
                align = itemsize(output.type.dtype)
                slot = StorageInfo(
                    "workspace", self.reserve(f"{output.name}:copy", output.type.nbytes, align=align, kind="output")
                )
            slots.append(slot)
            copies.append((there, k))
        return slots, copies

    def write_backs(self) -> tuple[WriteBack, ...]:
        """How new values of persistent tensors get to where the next run finds them."""

        def keep(size: int) -> StorageInfo:
            return StorageInfo("workspace", self.reserve("state:copy", size, align=1, kind="scratch"))

        wanted = []
        for state, offset in zip(self.lowered.states, self.states, strict=True):
            wanted.append(WriteBack(self.place_of(state.new), StorageInfo("state", offset=offset), state.old.type.nbytes))
        return write_backs(wanted, keep)

    def scratch(self) -> tuple[tuple[str, ...], ...]:
        return tuple(
            tuple(
                self.reserve(f"layer {i} {b.name}", b.nbytes, align=max(b.align, itemsize(b.dtype)), kind="scratch")
                for b in self.lowered.kernel(call).scratch
            )
            for i, call in enumerate(self.lowered.calls)
        )


def alignments(lowered: LoweredModule) -> dict[TensorRef, int]:
    """What each root tensor's users need, at least its element's size; in bytes."""
    tensors = [*lowered.inputs, *lowered.values, *lowered.outputs, *(t for c in lowered.calls for t in c.outputs)]
    tensors += [t for s in lowered.states for t in (s.old, s.new)]
    tensors += lowered.views.values()
    table: dict[TensorRef, int] = {}
    for tensor in tensors:
        root = lowered.root(tensor)
        table[root] = max(table.get(root, 1), itemsize(tensor.type.dtype))
    for call in lowered.calls:
        func = lowered.kernel(call)
        for buffer, tensor in zip(func.inputs + func.outputs, call.inputs + call.outputs, strict=True):
            root = lowered.root(tensor)
            table[root] = max(table[root], buffer.align, itemsize(buffer.dtype))
    return table


def make_layout(lowered: LoweredModule, io: Io, *, spread: bool = False) -> StorageMap:
    """Decide all places, plan the workspace and have the plan checked (E9005).

    Where kernels may write exactly over an operand, the plan with these tensors in one place is tried first, and without where
    that is not proven to be the smallest.  With `spread`, buffers lie in faster pools where no more bytes are needed for it.
    """
    over = in_place_results(lowered)
    layout = _lay_out(lowered, io, over)
    if over and not (layout.plan.optimal and layout.unfit is None):
        apart = _lay_out(lowered, io, {})
        if apart.rank < layout.rank:
            layout, over = apart, {}
    return _lay_out(lowered, io, over, spread=True) if spread else layout


def _lay_out(lowered: LoweredModule, io: Io, over: Mapping[TensorRef, TensorRef], *, spread: bool = False) -> StorageMap:
    builder = _Builder(lowered, io, over)
    builder.inputs()
    direct = builder.direct_outputs()
    builder.results(direct)
    slots, copies = builder.copies(direct)
    backs = builder.write_backs()
    scratch = builder.scratch()
    program = _program(builder, slots=slots, copies=copies, backs=backs, scratch=scratch)
    buffers = liveness(program)
    clashes = tuple(program_conflicts(program, buffers))
    memory_plan = _plan(buffers, clashes)
    layout = StorageMap(
        io, builder.places, scratch, tuple(slots), tuple(copies), builder.aligns, buffers, memory_plan, (),
        builder.states, builder.state_size, backs, conditions=tuple(map(builder.place_of, lowered.conditions)),
        whole=memory_plan.size,
    )  # fmt: skip
    if lowered.planning.pooling.pools:
        layout = _in_pools(lowered, layout, clashes, spread=spread)
    verify_plan(program, layout.plan)
    verify_pools(buffers, layout.plan, layout.pools)
    return layout


def _in_pools(lowered: LoweredModule, layout: StorageMap, clashes: Iterable[Conflict], *, spread: bool) -> StorageMap:
    """The layout with its buffers in the pools; as it is where these cannot hold it, with the reason."""
    keys = {t: place.key for t, place in layout.places.items() if place.where == "workspace"}
    accesses = count_accesses(lowered, keys, layout.scratch)
    names = {t.name: layout.places[lowered.root(t)] for t in (*lowered.views, *layout.places) if lowered.root(t) in keys}
    try:
        pooling, state_pool = without_state(lowered.planning.pooling, layout.state_size)
        pooling = with_known_pins(pooling, {printable(name): place.key for name, place in names.items()}, layout.plan.offset)
        found, pools, choice = plan_pools(
            layout.buffers, clashes, pooling, accesses=accesses, whole=layout.plan, most=lowered.planning.most_spread, fast=spread
        )  # fmt: skip
    except (TargetError, UsageError) as error:
        return replace(layout, unfit=error)
    return replace(layout, plan=found, pools=pools, state_pool=state_pool, pool_choice=choice)


def _plan(buffers: tuple[BufferInfo, ...], pairs: tuple[Conflict, ...]) -> MemoryPlan:
    """`plan`, or what it found before; whoever asks verifies it."""

    def made(data: Any) -> MemoryPlan | None:
        offsets, size, bound, optimal = data
        fits = len(offsets) == len(buffers) and all(isinstance(n, int) for n in (*offsets, size, bound))
        return (
            MemoryPlan({b.name: n for b, n in zip(buffers, offsets, strict=True)}, size, bound, optimal is True) if fits else None
        )

    return recall(
        "plan", lambda: repr((buffers, pairs)).encode(), lambda: _solved(buffers, pairs), unpack=made,
        pack=lambda p: [[p.offset[b.name] for b in buffers], p.size, p.lower_bound, p.optimal],
    )  # fmt: skip


@lru_cache(maxsize=8)
def _solved(buffers: tuple[BufferInfo, ...], pairs: tuple[Conflict, ...]) -> MemoryPlan:
    """Cached, because attempts with other limits often end in the same kernels."""
    return plan(buffers, pairs)


def _program(
    builder: _Builder,
    *,
    slots: list[StorageInfo],
    copies: list[tuple[StorageInfo, int]],
    backs: Sequence[WriteBack],
    scratch: tuple[tuple[str, ...], ...],
) -> StorageTrace:
    """The lowered module as the planner sees it: only what lies in the workspace."""
    lowered, places = builder.lowered, builder.places

    def keys(tensors: tuple[TensorRef, ...]) -> tuple[str, ...]:
        return tuple(p.key for p in (places[lowered.root(t)] for t in tensors) if p.where == "workspace")

    begun: set[str] = set()
    rewritten = {places[t].key for t in lowered.variables if t in places}
    funcs = lowered.prim_funcs

    def step(call: CallLowered, scratch: tuple[str, ...]) -> Step:
        # a tensor of which other parts are there already is read too, as it must survive; and nothing may lie over it
        reads, writes = keys(call.inputs), keys(call.outputs)
        there = tuple(begun.intersection(writes) - rewritten)
        begun.update(writes)
        operands = []
        for tensor in (*call.inputs, *call.outputs):
            root, offset = lowered.place_in_root(tensor)
            key = "" if tensor in call.outputs and places[root].key in there else places[root].key
            operands.append(Operand(key, offset, root.type.nbytes))
        operands += [Operand(name) for name in scratch]
        return Step(reads + there, writes + scratch, call_distances(lowered.kernel(call), operands, funcs))

    steps = tuple(map(step, lowered.calls, scratch))
    moves = [(place.key, slots[k].key) for place, k in copies if slots[k].where == "workspace"]
    moves += [(back.source.key, back.target.key) for back in backs if back.target.where == "workspace"]
    leaving = [place.key for place, k in copies if slots[k].where != "workspace" and place.key]
    leaving += [back.source.key for back in backs if back.source.key]
    outputs = tuple(dict.fromkeys(s.key for s in slots if s.where == "workspace"))
    conditions = tuple("".join(keys((c,))) for c in lowered.conditions)
    return StorageTrace(
        tuple(builder.storages), steps, keys(lowered.inputs), (*outputs, *leaving), {}, tuple(moves),
        lowered.controls, conditions,
    )  # fmt: skip
