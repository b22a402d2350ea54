"""How often the layers touch each buffer of the workspace and each constant, as estimates that rank them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from aot.executor.lowered import LoweredModule, TensorRef
from aot.memory.pool_choice import PoolChoice
from aot.memory.pooling import Pooling
from aot.memory.pools import fill_pools
from aot.target.source_module import Param

REUSE = 4
"""Multiply-accumulates for one load of an input: kernels keep blocks of two by two and more in registers."""


def count_accesses(lowered: LoweredModule, keys: Mapping[TensorRef, str], scratch: Sequence[Sequence[str]]) -> dict[str, int]:
    """Loads and stores in bytes by the buffer's name; `keys` names root tensors, `scratch` each call's scratch buffers.

    A layer reads its first input once for every `REUSE` multiply-accumulates, and at least once; what else it reads or writes
    counts once, scratch memory twice, as it is written and read.
    """
    count: dict[str, int] = {}
    for call, names in zip(lowered.calls, scratch, strict=True):
        func = lowered.kernel(call)
        for k, tensor in enumerate((*call.inputs, *call.outputs)):
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
    """The arrays with their sections, and how good their choice is, where constants are spread over pools (E2013).

    `used`: each call's arrays by number.  The multiply-accumulates of a layer are spread over its constants by their bytes.
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
