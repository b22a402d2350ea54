"""FTe: the te rule of each operator, from which every group can be lowered and epilogues are composed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aot.ir.attr_map import AttrMap
from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.te.tensor import TensorFn, elements_of
from aot.tir.builder import IRBuilder


class TeContext:
    """Given to te rules: the builder of the kernel, and a place for constant tables."""

    def __init__(self, builder: IRBuilder) -> None:
        self.builder = builder
        self.constants: dict[str, Array] = {}

    def constant(self, name: str, data: Array) -> TensorFn:
        """A table in flash, as a tensor."""
        buffer = self.builder.const(name, tuple(map(int, data.shape)), str(data.dtype), align=4)
        self.constants[buffer.name] = data
        return elements_of(buffer)


TeRule = Callable[[TeContext, Sequence[TensorFn], Any, TensorType], TensorFn]
"""(context, argument tensors, attrs, result type) -> result tensor"""

F_TE: AttrMap[TeRule] = AttrMap("FTe")
