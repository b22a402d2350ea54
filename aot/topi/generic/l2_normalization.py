"""qnn.l2_normalize row by row: one inverse square root a row, no scratch.  Integers only."""

from __future__ import annotations

from aot.ir.type import TensorType
from aot.numerics.fixed_point import tir_multiply_by_quantized_multiplier
from aot.numerics.inv_sqrt import tir_inverse_sqrt
from aot.op.qnn.l2_normalization import OUTPUT_BITS
from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.expr import cast, clamp
from aot.tir.function import FuncAttrs
from aot.topi.generic.softmax import accepts
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


def lower(group: Group, _target: Target, name: str) -> Lowered:
    type_, attrs = group.anchor.type, group.anchor.attrs
    assert isinstance(type_, TensorType)
    depth = type_.shape[-1]
    b = IRBuilder(name)
    data, out = b.input("data", (type_.size,), "int8"), b.output("out", (type_.size,), "int8")
    with b.for_("m", type_.size // depth) as m:
        base = b.let("base", m * depth)
        total = b.local("total", (1,), "int32", init=0)
        with b.for_("c", depth) as c:
            x = b.let("x", cast("int32", data[base + c]) - attrs.input_zp)
            b.store(total, 0, total[0] + x * x)
        multiplier, shift = tir_inverse_sqrt(b, total[0])
        left = b.let("left", shift + (OUTPUT_BITS - attrs.left_shift))
        with b.for_("c", depth) as c:
            x = (cast("int32", data[base + c]) - attrs.input_zp) * (1 << attrs.left_shift)
            scaled = tir_multiply_by_quantized_multiplier(b, x, multiplier, left)
            b.store(out, base + c, clamp(scaled, -128, 127))
    return Lowered(b.finish(FuncAttrs(kernel="generic.l2_normalization", span=group.anchor.span)))


register_impl(OpImplementation("generic.l2_normalization", "qnn.l2_normalize", accepts, lower))
