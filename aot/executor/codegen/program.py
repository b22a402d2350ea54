"""A compiled model as the writers of its files see it: what there is, and where its memory lies in C."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aot.executor.codegen.c_names import Names
from aot.executor.codegen.lower_main import TURN, Main
from aot.executor.codegen.state_init import StateInit
from aot.executor.lowered import LoweredModule
from aot.executor.plan.storage_info import StorageInfo
from aot.executor.plan.storage_map import StorageMap
from aot.support.dataclass import dataclass
from aot.support.dtype import ctype, itemsize
from aot.target.source_module import NamedFunc, Param
from aot.tir.expr import BinOp, Expr, Imm
from aot.tir.stmt import Region

if TYPE_CHECKING:
    from aot.executor.codegen.layer import Layer


@dataclass(frozen=True, slots=True)
class Program:
    """Everything the C files need: the lowered module, where its tensors lie, and its calls, functions and arrays by name."""

    lowered: LoweredModule
    layout: StorageMap
    layers: Sequence[Layer]
    functions: Sequence[NamedFunc]
    arrays: Sequence[Param]
    names: Names
    main: Main
    init: StateInit
    shared: bool = False
    steps: bool = False

    def address(self, region: Region) -> str:
        """The C expression of a region's first byte; void * in the workspace."""
        buffers, base = self.main.buffers, region.buffer
        offset, hop = (n * itemsize(region.dtype) for n in _place(region.index))
        if hop:
            assert base is buffers.state
            return f"STATE({offset} + {TURN.name} * {hop})"
        if base is buffers.workspace:
            return self._at(offset)
        if base is buffers.state:
            return f"STATE({offset})"
        text, const = base.name, "const "
        if base in buffers.inputs:
            text = self._field("in", self.names.inputs[buffers.inputs.index(base)])
        elif base in buffers.outputs:
            text, const = self._field("out", self.names.outputs[buffers.outputs.index(base)]), ""
        return f"(({const}char *){text} + {offset})" if offset else text

    def pointer(self, region: Region) -> str:
        """The same as an argument of the region's type."""
        buffers, base, text = self.main.buffers, region.buffer, self.address(region)
        if " ? " in text:
            return text  # of a copy, which takes pointers to anything
        plain = ctype(region.dtype) == ctype(base.dtype) and not text.startswith("(")
        if base is buffers.workspace or base is buffers.state or plain:
            return text
        return f"(void *){text}" if base in buffers.outputs else f"(const void *){text}"

    def _field(self, struct: str, field: str) -> str:
        """The caller's pointer; where slots stand for those that are NULL, the struct may be NULL too."""
        return f"{struct}->{field}" if self.layout.io == "user" else f"{struct} != NULL ? {struct}->{field} : NULL"

    def at(self, place: StorageInfo) -> str:
        """The address of a place in the workspace."""
        return self._at(self.layout.offset(place))

    def _at(self, offset: int) -> str:
        """A byte of the plan in C: the first pool is the workspace, the others have arrays of their own."""
        pools = self.layout.pools
        pool = max((k for k, u in enumerate(pools) if u.base <= offset), default=0)
        return f"AT_{pools[pool].pool.name}({offset - pools[pool].base})" if pool else f"AT({offset})"


def _place(index: Expr) -> tuple[int, int]:
    """`a + b * TURN` as (a, b)."""
    match index:
        case Imm(value):
            return int(value), 0
        case BinOp("+", a, b):
            (offset, hop), (more, faster) = _place(a), _place(b)
            return offset + more, hop + faster
        case BinOp("*", a, Imm(value)):
            return _place(a)[0] * int(value), _place(a)[1] * int(value)
        case _:
            assert index is TURN
            return 0, 1
