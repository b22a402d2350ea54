"""How often the layers touch each buffer of the workspace, as an estimate that ranks buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aot.executor.schedule import Schedule, TensorRef

REUSE = 4
"""Multiply-accumulates for one load of an input: kernels keep blocks of two by two and more in registers."""


def count_accesses(schedule: Schedule, keys: Mapping[TensorRef, str], scratch: Sequence[Sequence[str]]) -> dict[str, int]:
    """Loads and stores in bytes by the buffer's name; `keys` names root tensors, `scratch` each call's scratch buffers.

    A layer reads its first input once for every `REUSE` multiply-accumulates, and at least once; what else it reads or writes
    counts once, scratch memory twice, as it is written and read.
    """
    count: dict[str, int] = {}
    for call, names in zip(schedule.calls, scratch, strict=True):
        for k, tensor in enumerate((*call.inputs, *call.outputs)):
            key = keys.get(schedule.root(tensor))
            if key:
                work = call.func.attrs.macs // REUSE if k == 0 and call.inputs else 0
                count[key] = count.get(key, 0) + max(tensor.type.nbytes, work)
        for buffer, name in zip(call.func.scratch, names, strict=True):
            count[name] = count.get(name, 0) + 2 * buffer.nbytes
    return count
