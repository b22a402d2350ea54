"""Both operands of an operator as flat arrays of bytes, tensors or constants, in the order of the call."""

from __future__ import annotations

from math import prod

from aot.ir.op import Array
from aot.relay.expr import Constant, tensor_type
from aot.support.dataclass import dataclass
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.topi.strategy import Group


@dataclass(frozen=True, slots=True)
class FlatOperands:
    """`pair`: the operands; `constants`: what those in flash hold, by name."""

    pair: tuple[Buffer, ...]
    constants: dict[str, Array]


def flat_operands(b: IRBuilder, group: Group) -> FlatOperands:
    """Declares inputs in the order of the group's parameters, then constants."""
    args = group.anchor.args
    data = {id(v): b.input("data", (prod(v.type.shape),), "int8") for v in group.params}
    constants: dict[str, Array] = {}
    for a in args:
        if isinstance(a, Constant) and id(a) not in data:
            data[id(a)] = b.const("table", (prod(tensor_type(a).shape),), "int8", align=4)
            constants[data[id(a)].name] = a.data.reshape(-1)
    return FlatOperands(tuple(data[id(a)] for a in args), constants)
