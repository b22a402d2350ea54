"""A kernel under construction for an operator that is not fused with others: flat buffers for its operands."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from aot.ir.op import Array
from aot.ir.type import TensorType, TupleType
from aot.relay.expr import Call, Constant, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import numpy_dtype, stored
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.function import FuncAttrs
from aot.topi.strategy import Accepts, Group, Lowered, OpImplementation, register_impl


@dataclass(frozen=True, slots=True)
class FlatKernel:
    """One flat buffer per operand of the anchor (constants in flash) and per result."""

    b: IRBuilder
    args: tuple[Buffer, ...]
    outs: tuple[Buffer, ...]
    constants: dict[str, Array]
    group: Group

    @property
    def out(self) -> Buffer:
        """The first result; most kernels have only one."""
        return self.outs[0]

    @property
    def anchor(self) -> Call:
        return self.group.anchor

    @property
    def attrs(self) -> Any:
        return self.group.anchor.attrs

    def shape(self, number: int) -> tuple[int, ...]:
        """Shape of an operand."""
        return tensor_type(self.group.anchor.args[number]).shape

    def table(self, name: str, data: Array) -> Buffer:
        """Declare a further constant."""
        buffer = self.b.const(name, (data.size,), str(data.dtype), align=max(4, data.dtype.itemsize))
        self.constants[buffer.name] = data
        return buffer

    def finish(self, kernel: str, *, macs: int = 0) -> Lowered:
        """The finished kernel, with its name."""
        attrs = FuncAttrs(kernel=f"generic.{kernel}", span=self.group.anchor.span, macs=macs)
        return Lowered(self.b.finish(attrs), dict(self.constants))


def flat_kernel(group: Group, name: str, *, constant: str = "table") -> FlatKernel:
    """Declare the buffers of a group that is one call; `constant`: the name of constants' buffers."""
    b = IRBuilder(name)
    buffers = {id(v): b.input("data", *_flat(v.type)) for v in group.params}
    type_ = group.anchor.type
    results = type_.fields if isinstance(type_, TupleType) else (tensor_type(group.anchor),)
    outs = tuple(b.output("out", *_flat(t)) for t in results)
    constants: dict[str, Array] = {}
    for arg in group.anchor.args:
        if isinstance(arg, Constant) and id(arg) not in buffers:
            buffer = buffers[id(arg)] = b.const(constant, *_flat(arg.type))
            constants[buffer.name] = arg.data.reshape(-1).view(numpy_dtype(buffer.dtype))
    return FlatKernel(b, tuple(buffers[id(a)] for a in group.anchor.args), outs, constants, group)


def _flat(type_: TensorType) -> tuple[tuple[int], str]:
    """Numbers in a tensor (a complex element has two), and their type."""
    shape, dtype = stored(type_.shape, type_.dtype)
    return (prod(shape),), dtype


def accepts_alone(group: Group, _target: Target) -> bool:
    """Whether the group is one call with one result."""
    return not group.followers and isinstance(group.result.type, TensorType)


Body = Callable[[FlatKernel], None]


def register_flat(*operators: str, name: str = "", accepts: Accepts = accepts_alone) -> Callable[[Body], Body]:
    """Register a function that emits a flat kernel, under the operator's name unless it has its own."""

    def register(body: Body) -> Body:
        for operator in operators:
            title = name or operator.rpartition(".")[2]

            def lower(group: Group, _target: Target, func: str, title: str = title) -> Lowered:
                kernel = flat_kernel(group, func)
                body(kernel)
                return kernel.finish(title)

            register_impl(OpImplementation(f"generic.{title}", operator, accepts, lower, source=body.__module__))
        return body

    return register
