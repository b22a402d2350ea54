"""SOFTMAX of bytes row by row: maximum, sum and results by vectors, the reciprocal between them as generic.softmax has it."""

from __future__ import annotations

import numpy as np

from aot.op.qnn.softmax import SoftmaxAttrs, exp_table
from aot.relay.expr import tensor_type
from aot.support.dtype import bits
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_mve.elementwise.intrin_softmax import CODES, row_instructions, row_results, row_sum
from aot.topi.generic.softmax import accepts as accepts_any
from aot.topi.generic.softmax import row_reciprocal
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

RECIPROCAL = 92
"""Instructions of a row's reciprocal, about."""


def accepts(group: Group, target: Target) -> bool:
    return target.has("mve") and accepts_any(group, target)


def lower(group: Group, _target: Target, name: str) -> Lowered:
    type_ = tensor_type(group.anchor)
    attrs: SoftmaxAttrs = group.anchor.attrs
    depth = type_.shape[-1]
    rows = type_.size // depth
    b = IRBuilder(name)
    data, out = b.input("data", (type_.size,), "int8"), b.output("out", (type_.size,), type_.dtype)
    exps = b.const("exps", (CODES,), "int32", align=4)
    with b.for_("m", rows) as m:
        base = b.let("base", m * depth) if rows > 1 else imm(0)
        top, total = b.local("top", (1,), "int32"), b.local("total", (1,), "uint32")
        b.block(row_sum(depth), region(data, base), exps, top, total)
        scale, less = row_reciprocal(b, total[0], bits(attrs.out_dtype))
        results = row_results(depth, attrs.out_dtype, attrs.zero_point)
        b.block(results, region(data, base), exps, region(out, base), top[0], scale, less)
    func = b.finish(FuncAttrs(kernel="arm_mve.softmax", span=group.anchor.span))
    instructions = rows * (row_instructions(depth, attrs.out_dtype) + RECIPROCAL) + 12
    return Lowered(func, {exps.name: exp_table(attrs)[::-1].astype(np.int32)}, instructions, 340)


register_impl(OpImplementation("arm_mve.softmax", "qnn.softmax", accepts, lower, plevel=40))
