"""Every byte that a kernel touches, in order: what the analysis of overlaps is compared with.

The kernel runs in the TIR interpreter on memory that notes each access. Nothing of the analysis is used here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aot.tir.buffer import Buffer
from aot.tir.function import PrimFunc
from aot.tir.interpreter import compiled

Array = np.ndarray[Any, Any]
Access = tuple[Buffer, int, int, bool]
"""Buffer, first byte, size, whether it is written."""


class Recorder:
    """A memoryview that writes down what is done with it."""

    def __init__(self, buffer: Buffer, view: memoryview, log: list[Access], start: int = 0) -> None:
        self.buffer, self.view, self.log, self.start = buffer, view, log, start

    def __len__(self) -> int:
        return len(self.view)

    def cast(self, code: str) -> Recorder:
        return Recorder(self.buffer, self.view.cast(code), self.log, self.start)  # type: ignore[call-overload]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Recorder(self.buffer, self.view[index], self.log, self.start + index.indices(len(self.view))[0])
        self._note(index, written=False)
        return self.view[index]

    def __setitem__(self, index: int, value: Any) -> None:
        self._note(index, written=True)
        self.view[index] = value

    def _note(self, index: int, *, written: bool) -> None:
        size = self.view.itemsize
        self.log.append((self.buffer, self.start + index * size, size, written))


def trace(func: PrimFunc, constants: Mapping[str, Array], scalars: tuple[int, ...] = ()) -> list[Access]:
    """The accesses of one run of a function, inputs being zero."""
    log: list[Access] = []
    operands: list[Any] = []
    for buffer in func.buffers:
        data = constants.get(buffer.name) if buffer in func.consts else None
        raw = bytearray(buffer.nbytes) if data is None else bytearray(np.ascontiguousarray(data).tobytes())
        operands.append(Recorder(buffer, memoryview(raw), log))
    compiled(func).call([*operands, *scalars], {}, None)
    return log


def distances(log: list[Access], a: Buffer, b: Buffer) -> tuple[int, int]:
    """The least safe start(a) - start(b) and start(b) - start(a), where b is written and a consumed; as small as can be
    where nothing conflicts.
    """
    up = down = -(a.nbytes + b.nbytes)
    low, high = -(1 << 30), 1 << 30
    end = first = None
    for buffer, start, size, written in log:
        if buffer is b and written:
            end = start + size if end is None else max(end, start + size)
            first = start if first is None else min(first, start)
        elif buffer is a and (not written or a.scope == "arena") and end is not None and first is not None:
            up, down = max(up, end - start), max(down, start + size - first)
    assert low < up < high
    return max(up, -a.nbytes), max(down, -b.nbytes)
