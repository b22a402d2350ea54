"""Where the persistent tensors of a model lie, and how they get their new values.

They have an array beside the workspace, as they live from run to run.  A new value is written where the old one
lies as soon as nothing reads that any more, or else copied there after the last layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from aot.errors import Problem, TargetError
from aot.executor.lowered import CallLowered, LoweredModule, State, TensorRef
from aot.executor.plan.storage_info import StorageInfo
from aot.memory.plan import align_up
from aot.memory.pooling import Pooling
from aot.support.dataclass import dataclass
from aot.support.pool import Pool
from aot.tir.analysis.in_place import in_place_pairs
from aot.tir.analysis.overlap import safe_distances

STATE_ALIGN = 16
"""Of the array, in bytes."""

STATE_PIN = "state"
"""What `--pin` calls the array."""


def has_fixed_layout(lowered: LoweredModule) -> bool:
    """Whether the state may be that of a model made of another signature: the caller's memory, in the order of the file."""
    return lowered.planning.io == "user" and any(s.shared for s in lowered.states)


def in_place_states(lowered: LoweredModule) -> dict[TensorRef, TensorRef]:
    """New value -> old value whose memory it takes at once: nothing reads the old value afterwards.

    Both are whole tensors.  The layer that writes the new one may read the old one where its kernel is proven to be done with
    each byte before it writes there.
    """
    found: dict[TensorRef, TensorRef] = {}
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
        if writes[0] not in reads or (len(writes) == 1 and _is_proven(lowered, lowered.calls[writes[0]], old=old, new=root)):
            found[root] = old
    return found


def fresh_bytes(lowered: LoweredModule, state: State) -> int:
    """What a run adds to a window, or all of a value that is not one."""
    if state.new is state.old:
        return 0
    if state.fresh is not None:
        return state.fresh
    root, hop = lowered.place_in_root(state.new)
    return hop if hop and root is lowered.root(state.old) else state.old.type.nbytes - state.kept


def is_written_by_copy(lowered: LoweredModule, state: State) -> bool:
    """Whether no layer could write the new value to its place: an input, a constant, or a part of something else."""
    root = lowered.root(state.new)
    olds = {lowered.root(s.old) for s in lowered.states}
    return root in (*lowered.inputs, *lowered.values) or (root not in olds and not lowered.is_whole(state.new))


def _is_proven(lowered: LoweredModule, call: CallLowered, *, old: TensorRef, new: TensorRef) -> bool:
    """Whether a call is done with each byte of `old` before it writes that byte of `new`, where the two lie in one place."""
    func = lowered.kernel(call)
    places = [lowered.place_in_root(t) for t in call.outputs]
    outs = [b for b, (root, _) in zip(func.outputs, places, strict=True) if root is new]
    if func.attrs.distances is not None or len(outs) != 1 or outs[0].nbytes != new.type.nbytes:
        return False
    known, pairs = safe_distances(func, lowered.prim_funcs), in_place_pairs(func)
    for buffer, tensor in zip(func.inputs, call.inputs, strict=True):
        root, offset = lowered.place_in_root(tensor)
        if root is not old or (offset == 0 and (buffer, outs[0]) in pairs):
            continue
        distance = known.get((buffer, outs[0]))
        if distance is None or (offset < distance.up and -offset < distance.down):
            return False
    return True


def without_state(pooling: Pooling, size: int) -> tuple[Pooling, Pool | None]:
    """The pools as the workspace may use them, and the one that `--pin state=POOL` gives the state, if any.

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
    """`size` bytes that are copied after the last layer; a `target` in the workspace keeps what another copy overwrites."""

    source: StorageInfo
    target: StorageInfo
    size: int


def state_offsets(lowered: LoweredModule, aligns: Mapping[TensorRef, int]) -> tuple[dict[TensorRef, int], int]:
    """Where each tensor that owns bytes of the state begins, and the bytes of all.

    Those of the largest alignment come first, unless the layout must be that of other models (`has_fixed_layout`).
    """
    roots = list(dict.fromkeys(lowered.root(s.old) for s in lowered.states))
    fixed = has_fixed_layout(lowered)
    offsets, end = dict[TensorRef, int](), 0
    for root in roots if fixed else sorted(roots, key=lambda r: -aligns[r]):
        offsets[root] = align_up(end, STATE_ALIGN if fixed else aligns[root])
        end = offsets[root] + root.type.nbytes
    return offsets, end


def write_backs(wanted: Sequence[WriteBack], reserve: Callable[[int], StorageInfo]) -> tuple[WriteBack, ...]:
    """The copies in an order in which none overwrites what a later one reads; `reserve` gives memory where values go round."""
    left = [w for w in wanted if w.source != w.target]
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
    """Whether the target of one lies over the source of the other."""
    a, b = write.target, read.source
    return a.where == b.where == "state" and a.offset < b.offset + read.size and b.offset < a.offset + write.size
