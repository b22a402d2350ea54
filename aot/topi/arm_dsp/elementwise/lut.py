"""A function of one byte on a whole tensor: words of quantised values through a table of 256 bytes."""

from __future__ import annotations

from math import prod

import numpy as np

from aot.op.qnn.lut import LutAttrs
from aot.relay.expr import Var, tensor_type
from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.expr import cast, imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.elementwise.intrin_lut import LANES, lut_words
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


def accepts(group: Group, target: Target) -> bool:
    """One table on a tensor of at least LANES elements."""
    anchor = group.anchor
    alone = not group.followers and anchor is group.result and isinstance(anchor.args[0], Var)
    return alone and target.has("thumb2") and target.has("unaligned") and prod(tensor_type(anchor).shape) >= LANES


def lower(group: Group, _target: Target, name: str) -> Lowered:
    anchor = group.anchor
    attrs: LutAttrs = anchor.attrs
    size = prod(tensor_type(anchor).shape)
    whole = size - size % LANES
    b = IRBuilder(name)
    x = b.input("data", (size,), "int8", align=4)
    out = b.output("out", (size,), "int8", align=4)
    table = b.const("table", (256,), "int8")
    b.block(lut_words(), x, table, out, imm(whole))
    if whole < size:
        with b.for_("i", size, start=whole) as i:
            b.store(out, i, table[cast("int32", cast("uint8", x[i]))])
    func = b.finish(FuncAttrs(kernel="arm_dsp.lut", span=anchor.span))
    codes = np.roll(np.asarray(attrs.table, np.int8), 128)
    return Lowered(func, {table.name: codes}, whole // LANES * 94 + 7 * (size - whole) + 20, 4 * 94 + 60)


register_impl(OpImplementation("arm_dsp.lut", "qnn.lut", accepts, lower, plevel=25))
