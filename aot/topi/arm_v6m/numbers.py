"""The numbers of each output channel: a start value and the fields of the requantisation, side by side as words."""

from __future__ import annotations

import numpy as np

from aot.ir.op import Array
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm
from aot.topi.arm_v6m.requant import Requant
from aot.topi.layer.io import LayerIo


class Numbers:
    """`start` [O] as 32 bits and the non-uniform fields of `requant`, in a constant array of the layer."""

    def __init__(self, b: IRBuilder, io: LayerIo, start: Array, requant: Requant) -> None:
        self._b, self._requant = b, requant
        arrays = [start & 0xFFFFFFFF] + [f.values & 0xFFFFFFFF for f in requant.fields if not f.uniform]
        self._count = len(arrays)
        words = np.stack(arrays, axis=1).astype(np.uint32).view(np.int32)
        self._buffer = io.constant("numbers", np.ascontiguousarray(words).reshape(-1), "int32")

    def start(self, channel: Expr) -> Expr:
        return self._buffer[channel * self._count]

    def fields(self, channel: Expr) -> tuple[Expr, ...]:
        """Emits the loads."""
        rows = iter(range(1, self._count))
        return tuple(
            imm(int(f.values[0])) if f.uniform else self._b.let("field", self._buffer[channel * self._count + next(rows)])
            for f in self._requant.fields
        )
