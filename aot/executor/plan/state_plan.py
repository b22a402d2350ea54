"""Where the persistent tensors of a model lie, and how they get their new values.

They have an array of their own beside the workspace, as they live from run to run.  New values are written back after the last
layer, so that a run that ends before has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from aot.executor.lowered import LoweredModule, TensorRef
from aot.executor.plan.storage_info import StorageInfo
from aot.memory.plan import align_up

STATE_ALIGN = 16
"""Of the array, in bytes."""


@dataclass(frozen=True, slots=True)
class WriteBack:
    """`size` bytes that are copied after the last layer; a `target` in the workspace keeps what another copy overwrites."""

    source: StorageInfo
    target: StorageInfo
    size: int


def state_offsets(lowered: LoweredModule, aligns: Mapping[TensorRef, int]) -> tuple[tuple[int, ...], int]:
    """Where each persistent tensor begins, and the bytes of all; those of the largest alignment come first."""
    order = sorted(range(len(lowered.states)), key=lambda k: (-aligns[lowered.states[k].old], k))
    offsets, end = dict[int, int](), 0
    for k in order:
        tensor = lowered.states[k].old
        offsets[k] = align_up(end, aligns[tensor])
        end = offsets[k] + tensor.type.nbytes
    return tuple(offsets[k] for k in range(len(lowered.states))), end


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
