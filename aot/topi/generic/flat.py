"""A kernel under construction for an operator that is fused with nothing: flat buffers for its operands."""

from __future__ import annotations

from math import prod

from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.relay.expr import Constant, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import numpy_dtype, stored
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.function import FuncAttrs
from aot.topi.strategy import Group, Lowered


@dataclass(frozen=True, slots=True)
class FlatKernel:
    """One flat buffer for each of the anchor's operands (constants in flash) and for the result."""

    b: IRBuilder
    args: tuple[Buffer, ...]
    out: Buffer
    constants: dict[str, Array]
    group: Group

    def table(self, name: str, data: Array) -> Buffer:
        """A further constant."""
        buffer = self.b.const(name, (data.size,), str(data.dtype), align=max(4, data.dtype.itemsize))
        self.constants[buffer.name] = data
        return buffer

    def finish(self, kernel: str) -> Lowered:
        attrs = FuncAttrs(kernel=f"generic.{kernel}", span=self.group.anchor.span)
        return Lowered(self.b.finish(attrs), dict(self.constants))


def flat_kernel(group: Group, name: str) -> FlatKernel:
    """Declare the buffers of a group that is one call."""
    b = IRBuilder(name)
    buffers = {id(v): b.input("data", *_flat(v.type)) for v in group.params}
    result = b.output("out", *_flat(tensor_type(group.result)))
    constants: dict[str, Array] = {}
    for arg in group.anchor.args:
        if isinstance(arg, Constant) and id(arg) not in buffers:
            buffer = buffers[id(arg)] = b.const("table", *_flat(arg.type))
            constants[buffer.name] = arg.data.reshape(-1).view(numpy_dtype(buffer.dtype))
    return FlatKernel(b, tuple(buffers[id(a)] for a in group.anchor.args), result, constants, group)


def _flat(type_: TensorType) -> tuple[tuple[int], str]:
    """Numbers of a tensor, a complex one being two, and their type."""
    shape, dtype = stored(type_.shape, type_.dtype)
    return (prod(shape),), dtype


def accepts_alone(group: Group, _target: Target) -> bool:
    """Whether the group is one call with one result."""
    return not group.followers and isinstance(group.result.type, TensorType)
