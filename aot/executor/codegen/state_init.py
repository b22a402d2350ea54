"""Initial values of persistent tensors: runs of one byte are filled, everything else is copied from flash, equal rows of one."""

from __future__ import annotations

from math import prod

import numpy as np

from aot.executor.lowered import LoweredModule
from aot.executor.plan.storage_map import StorageMap
from aot.ir.op import Array
from aot.memory.rings import COUNTER
from aot.support.dataclass import dataclass
from aot.support.dtype import itemsize
from aot.target.source_module import Param


@dataclass(frozen=True, slots=True)
class InitStep:
    """`times * size` bytes of the state from `offset` on: all `fill`, or those of the constant `array` again and again."""

    offset: int
    size: int
    fill: int = 0
    array: str = ""
    times: int = 1


@dataclass(frozen=True, slots=True)
class StateInit:
    """The steps of a reset, the constants that they copy, and the bytes that come out."""

    steps: tuple[InitStep, ...]
    arrays: tuple[Param, ...]
    image: Array

    @property
    def is_zero(self) -> bool:
        """Whether memory that the start-up code clears needs no reset."""
        return not self.image.any()


def state_init(lowered: LoweredModule, layout: StorageMap) -> StateInit:
    """How the array of persistent tensors gets its initial values; gaps between them belong to the fill before."""
    image = np.zeros(layout.state_size, np.uint8)
    steps: list[InitStep] = []
    arrays: list[Param] = []
    order = sorted((offset, k) for k, offset in enumerate(layout.states))
    if layout.rings is not None:
        order = sorted([*order, (layout.rings.counter, -1)])
    for offset, k in order:
        if k < 0:
            steps = _filled(steps, InitStep(offset, itemsize(COUNTER)))
            continue
        data = np.ascontiguousarray(lowered.states[k].initial).reshape(-1)
        raw = data.view(np.uint8)
        image[offset : offset + raw.size] = raw
        if not raw.size:
            continue
        if (raw == raw[0]).all():
            steps = _filled(steps, InitStep(offset, raw.size, int(raw[0])))
            continue
        times = raw.size // period(lowered.states[k].initial)
        name = f"{lowered.name}_state_{k}"
        note = f"initial value of the state {lowered.states[k].name}"
        one = data[: data.size // times]
        arrays.append(Param(name, lowered.states[k].old.type.dtype, one, max(4, data.itemsize), note))
        steps.append(InitStep(offset, raw.size // times, array=name, times=times))
    return StateInit(tuple(steps), tuple(arrays), image)


def period(initial: Array) -> int:
    """The bytes of the smallest part along the first axes that all of `initial` repeats, such as one row of a window of zeros."""
    raw = np.ascontiguousarray(initial).reshape(-1).view(np.uint8)
    for axis in range(initial.ndim - 1, 0, -1):
        size = prod(initial.shape[axis:]) * initial.itemsize
        if (raw.reshape(-1, size) == raw[:size]).all():
            return int(size)
    return raw.size


def _filled(steps: list[InitStep], new: InitStep) -> list[InitStep]:
    """The steps with one more fill, joined with the one before where both write the same byte."""
    last = steps[-1] if steps else None
    if last is None or last.array or last.fill != new.fill:
        return [*steps, new]
    return [*steps[:-1], InitStep(last.offset, new.offset + new.size - last.offset, last.fill)]
