"""Functions of one byte on a whole tensor, as tables that vectors of bytes are the offsets into."""

from __future__ import annotations

from math import prod

import numpy as np

from aot.op.qnn.lut import LutAttrs
from aot.relay.expr import Var, tensor_type
from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.expr import imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_mve.elementwise.intrin_lut import CODES, lut, lut_instructions
from aot.topi.arm_mve.elementwise.kernels import LEAST
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


def accepts(group: Group, target: Target) -> bool:
    """One table on a tensor that is a vector at least."""
    anchor = group.anchor
    alone = not group.followers and anchor is group.result and isinstance(anchor.args[0], Var)
    return alone and target.has("mve") and prod(tensor_type(anchor).shape) >= LEAST


def lower(group: Group, _target: Target, name: str) -> Lowered:
    anchor = group.anchor
    attrs: LutAttrs = anchor.attrs
    size = prod(tensor_type(anchor).shape)
    b = IRBuilder(name)
    x = b.input("data", (size,), "int8")
    out = b.output("out", (size,), "int8")
    table = b.const("table", (CODES,), "int8")
    b.block(lut(), x, table, out, imm(size))
    func = b.finish(FuncAttrs(kernel="arm_mve.lut", span=anchor.span))
    codes = np.roll(np.asarray(attrs.table, np.int8), CODES // 2)
    return Lowered(func, {table.name: codes}, lut_instructions(size), 44)


register_impl(OpImplementation("arm_mve.lut", "qnn.lut", accepts, lower, plevel=40))
