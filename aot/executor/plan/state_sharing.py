"""Windows of the state that lie over one another: what a run adds to one, in the bytes that another has no more use for.

At the end of a run the oldest rows of a window are no longer needed, and before that only by the layers that read the window.
So the new rows of a later layer's window may take their place.  Two things show it: the order of the calls, with the distances of
kernels that do both (`may_share`), and afterwards, for the layout as it is, a replay of who owns each byte (`replay`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from aot.executor.lowered import CallLowered, TensorRef
from aot.executor.plan.planned import Planned
from aot.executor.plan.storage_map import StorageMap
from aot.ir.op import Array
from aot.memory.rings import Ring
from aot.tir.analysis.overlap import safe_distances


def first_write(planned: Planned, root: TensorRef) -> int:
    """The number of the first call that writes to a window; -1 if the caller does."""
    if any(planned.root(t) is root for t in planned.inputs):
        return -1
    return next((i for i, c in enumerate(planned.calls) if any(planned.root(t) is root for t in c.outputs)), len(planned.calls))


def may_share(planned: Planned, below: TensorRef, above: TensorRef, *, gap: int) -> bool:
    """Whether `below` may get its new bytes where the oldest of `above` are, which starts `gap` bytes behind it."""
    lasting = [*planned.outputs, *planned.conditions, *(s.new for s in planned.states if planned.root(s.old) is not above)]
    if any(planned.root(t) is above for t in lasting):
        return False
    write = first_write(planned, below)
    for i, call in enumerate(planned.calls):
        reads = any(planned.root(t) is above for t in call.inputs)
        if reads and (i > write or (i == write and not _is_proven(planned, call, below=below, above=above, gap=gap))):
            return False
    return True


def _is_proven(planned: Planned, call: CallLowered, *, below: TensorRef, above: TensorRef, gap: int) -> bool:
    """Whether a call is done with each byte of `above` before it writes over it."""
    func = planned.kernel(call)
    if func.attrs.distances is not None:
        return False
    known = safe_distances(func, planned.prim_funcs)
    for source, given in zip(func.inputs, call.inputs, strict=True):
        for target, made in zip(func.outputs, call.outputs, strict=True):
            (one, start), (other, at) = planned.place_in_root(given), planned.place_in_root(made)
            if one is above and other is below:
                distance = known.get((source, target))
                if distance is None or gap + start - at < distance.up:
                    return False
    return True


def replay(planned: Planned, layout: StorageMap, windows: Mapping[TensorRef, Ring], turns: int) -> list[str]:
    """What goes wrong in `turns` runs and the first one after them, if each byte of the state holds what was written there last.

    `windows` are laid out as in `layout`.
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
