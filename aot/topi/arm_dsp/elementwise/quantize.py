"""QUANTIZE from and DEQUANTIZE to float32 by VCVT, four numbers in four FPU registers (cores with DSP and an FPU)."""

from __future__ import annotations

from math import frexp, prod
from typing import assert_never

from aot.ir.type import TensorType
from aot.op.qnn.dequantize import DequantizeAttrs
from aot.op.qnn.quantize import QuantizeAttrs
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Call, Var, tensor_type
from aot.support.dtype import int_range
from aot.target.target import Target
from aot.te.tensor import elements_of
from aot.tir.builder import IRBuilder
from aot.tir.expr import imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.elementwise.intrin_quantize import LANES, dequantize_8, quantize_8
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

CODES = ("int8", "uint8")


def accepts(group: Group, target: Target) -> bool:
    """One call on a tensor of at least LANES elements, bytes on the other side, no clamp tighter than the type."""
    anchor = group.anchor
    if group.followers or not target.has("vfp") or not isinstance(anchor.args[0], Var) or anchor is not group.result:
        return False
    data, out = tensor_type(anchor.args[0]), tensor_type(anchor)
    if prod(out.shape) < LANES:
        return False
    attrs = anchor.attrs
    if isinstance(attrs, QuantizeAttrs):
        return out.dtype in CODES and (attrs.lo, attrs.hi) == int_range(out.dtype)
    return data.dtype in CODES


def lower(group: Group, _target: Target, name: str) -> Lowered:
    anchor: Call = group.anchor
    attrs: QuantizeAttrs | DequantizeAttrs = anchor.attrs
    data, result = tensor_type(anchor.args[0]), tensor_type(anchor)
    size = prod(result.shape)
    whole = size - size % LANES
    b = IRBuilder(name)
    x = b.input("data", (size,), data.dtype, align=4 if data.dtype == "float32" else 1)
    out = b.output("out", (size,), result.dtype, align=4 if result.dtype == "float32" else 1)
    match attrs:
        case QuantizeAttrs():
            block = quantize_8(result.dtype, attrs.zero_point, reciprocal=is_power_of_two(attrs.scale))
            kernel, turn = "arm_dsp.quantize", 48
        case DequantizeAttrs():
            block, kernel, turn = dequantize_8(data.dtype, attrs.zero_point), "arm_dsp.dequantize", 32
        case _:
            assert_never(attrs)
    b.block(block, x, out, imm(attrs.scale, "float32"), imm(whole))
    flat = TensorType((size,), result.dtype, result.quant)
    rest = F_TE.get(str(anchor.op))(TeContext(b), [elements_of(x)], attrs, flat)
    for i in range(whole, size):
        b.store(out, i, rest.at(b, (imm(i),)))
    func = b.finish(FuncAttrs(kernel=kernel, span=anchor.span))
    return Lowered(func, {}, whole // LANES * (turn + 2) + 20 * (size - whole) + 16, 4 * turn + 40 + 60 * (size - whole))


def is_power_of_two(scale: float) -> bool:
    """Whether the scale and its reciprocal are powers of two that float32 has."""
    fraction, exponent = frexp(scale)
    return fraction == 0.5 and abs(exponent) <= 120


register_impl(OpImplementation("arm_dsp.quantize", "qnn.quantize", accepts, lower, plevel=25))
register_impl(OpImplementation("arm_dsp.dequantize", "qnn.dequantize", accepts, lower, plevel=25))
