"""A kernel of our own for mine.mirror: four bytes at a time, as -1 - x is the complement of every bit."""

from __future__ import annotations

from aot.relay.expr import tensor_type
from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.expr import binop, imm
from aot.tir.function import FuncAttrs
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


def accepts(group: Group, _target: Target) -> bool:
    """The operator alone, on whole words."""
    return not group.followers and len(group.params) == 1 and tensor_type(group.result).size % 4 == 0


def lower(group: Group, _target: Target, name: str) -> Lowered:
    """One loop over words."""
    size = tensor_type(group.result).size
    b = IRBuilder(name)
    data, out = b.input("data", (size,), "int8"), b.output("out", (size,), "int8")
    with b.for_("i", size // 4) as i:
        b.store_as(out, "int32", i, binop("^", data.load("int32", i), imm(-1)))
    return Lowered(b.finish(FuncAttrs(kernel="mine.words", span=group.anchor.span)), instructions=size, code=24)


register_impl(OpImplementation("mine.words", "mine.mirror", accepts, lower, plevel=20))
