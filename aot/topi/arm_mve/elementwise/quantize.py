"""QUANTIZE from float32 to bytes and 16 bits by vectors, where products give the codes of the reference's quotients."""

from __future__ import annotations

from math import prod

from aot.op.qnn.quantize import QuantizeAttrs
from aot.relay.expr import Var, tensor_type
from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.expr import imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_mve.elementwise.intrin_quantize import Codes, code_bytes, quantize, quantize_instructions
from aot.topi.arm_mve.elementwise.quotient import reciprocal
from aot.topi.strategy import Group, Lowered, register_planned

LEAST = 4
"""Numbers from which on vectors pay."""


def _plan(group: Group, target: Target) -> Codes | None:
    """One call on a tensor."""
    anchor = group.anchor
    if group.followers or anchor is not group.result or not isinstance(anchor.args[0], Var) or not target.has("mve"):
        return None
    attrs: QuantizeAttrs = anchor.attrs
    if prod(tensor_type(anchor).shape) < LEAST:
        return None
    zp = attrs.zero_point
    found = reciprocal(attrs.scale, max(attrs.hi - zp, zp - attrs.lo))
    return None if found is None else Codes(attrs.dtype, zp, attrs.lo, attrs.hi, attrs.scale, found)


def _lower(group: Group, _target: Target, name: str, codes: Codes) -> Lowered:
    size = prod(tensor_type(group.anchor).shape)
    b = IRBuilder(name)
    x = b.input("data", (size,), "float32", align=4)
    out = b.output("out", (size,), codes.dtype)
    b.block(quantize(codes), x, out, imm(size))
    func = b.finish(FuncAttrs(kernel="arm_mve.quantize", span=group.anchor.span))
    return Lowered(func, {}, quantize_instructions(codes, size), code_bytes(codes))


register_planned("arm_mve.quantize", "qnn.quantize", _plan, _lower, plevel=40)
