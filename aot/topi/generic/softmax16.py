"""qnn.softmax16 row by row: the exponentials are looked up twice, so that no scratch is needed.  Integers only."""

from __future__ import annotations

import numpy as np

from aot.ir.type import TensorType
from aot.numerics.fixed_point import tir_multiply_by_quantized_multiplier
from aot.op.qnn.lut16 import tir_look_up
from aot.op.qnn.softmax16 import exp_table, reciprocal_table
from aot.op.te_rule import TeContext
from aot.relay.expr import Var
from aot.target.target import Target
from aot.te.tensor import TensorFn
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, imm, maximum
from aot.tir.function import FuncAttrs
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


def accepts(group: Group, _target: Target) -> bool:
    return not group.followers and isinstance(group.anchor.args[0], Var) and len(group.params) == 1


def lower(group: Group, _target: Target, name: str) -> Lowered:
    type_ = group.anchor.type
    assert isinstance(type_, TensorType)
    depth = type_.shape[-1]
    b = IRBuilder(name)
    ctx = TeContext(b)
    data, out = b.input("data", (type_.size,), "int16"), b.output("out", (type_.size,), "int16")
    row = _Row(b, data, depth, group.anchor.attrs.multiplier, group.anchor.attrs.shift)
    exps = ctx.constant("exps", np.asarray(exp_table(group.anchor.attrs.tables), np.int16))
    reciprocals = ctx.constant("reciprocals", np.asarray(reciprocal_table(group.anchor.attrs.tables), np.int16))
    with b.for_("m", type_.size // depth) as m:
        base = b.let("base", m * depth)
        top = row.largest(base)
        total = b.local("total", (1,), "int32", init=0)
        with b.for_("c", depth) as c:
            b.store(total, 0, total[0] + row.exp(base + c, top, exps))
        scale, right = row.reciprocal(total[0], reciprocals)
        half = b.let("half", imm(1) << (right - 1))
        with b.for_("c", depth) as c:
            value = (row.exp(base + c, top, exps) * scale + half) >> right
            b.store(out, base + c, clamp(value, 0, 32767))
    func = b.finish(FuncAttrs(kernel="generic.softmax16", span=group.anchor.span))
    return Lowered(func, dict(ctx.constants))


class _Row:
    """The steps of one row."""

    def __init__(self, b: IRBuilder, data: Buffer, depth: int, multiplier: int, shift: int) -> None:
        self.b, self.data, self.depth = b, data, depth
        self.multiplier, self.shift = multiplier, shift

    def largest(self, base: Expr) -> Expr:
        best = self.b.local("largest", (1,), "int32", init=-32768)
        with self.b.for_("c", self.depth) as c:
            self.b.store(best, 0, maximum(best[0], cast("int32", self.data[base + c])))
        return self.b.let("top", best[0])

    def exp(self, index: Expr, top: Expr, table: TensorFn) -> Expr:
        b = self.b
        difference = b.let("difference", cast("int32", self.data[index]) - top)
        scaled = tir_multiply_by_quantized_multiplier(b, difference, self.multiplier, self.shift)
        return b.let("exp", tir_look_up(b, clamp(scaled + 32767, -32768, 32767), table))

    def reciprocal(self, total: Expr, table: TensorFn) -> tuple[Expr, Expr]:
        """Q0.15 reciprocal of the sum's mantissa, and the final right shift, in [14, 30] for a sum in [2^14, 2^31)."""
        b = self.b
        x = b.local("mantissa", (1,), "uint32")
        zeros = b.local("zeros", (1,), "int32", init=0)
        b.store(x, 0, cast("uint32", total))
        for step in (16, 8, 4, 2, 1):
            with b.if_(x[0] < imm(1 << (32 - step), "uint32")):
                b.store(x, 0, x[0] << step)
                b.store(zeros, 0, zeros[0] + step)
        mantissa = cast("int32", ((x[0] >> 1) + (1 << 13)) >> 14)
        centred = b.let("centred", clamp(mantissa - ((1 << 15) + (1 << 16)), -32768, 32767))
        scale = b.let("scale", tir_look_up(b, centred, table))
        return scale, b.let("right", imm(31) - zeros[0])


register_impl(OpImplementation("generic.softmax16", "qnn.softmax16", accepts, lower))
