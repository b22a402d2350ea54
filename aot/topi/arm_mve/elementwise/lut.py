"""Functions of one byte on a whole tensor, as tables that vectors of bytes are the offsets into.

QUANTIZE from bytes to bytes is one too; between codes of one scale a saturating addition takes no table.
"""

from __future__ import annotations

from math import prod

import numpy as np

from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.op.qnn.lut import LutAttrs
from aot.op.qnn.quantize import Requantize8Attrs, evaluate_requantize8
from aot.relay.expr import Var, tensor_type
from aot.support.dtype import int_range, numpy_dtype
from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.expr import imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_mve.elementwise.intrin_lut import CODES, lut, lut_instructions
from aot.topi.arm_mve.elementwise.intrin_shift import Shift, shift, shift_instructions
from aot.topi.arm_mve.elementwise.kernels import LEAST
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

BYTES = ("int8", "uint8")
SAME_SCALE = (1 << 30, 1)
"""Multiplier and shift of one."""
CODE_BYTES = 44
"""Of the loop with its call."""


def accepts(group: Group, target: Target) -> bool:
    """One call on a tensor of bytes that is a vector at least, to bytes."""
    anchor = group.anchor
    if group.followers or anchor is not group.result or not isinstance(anchor.args[0], Var) or not target.has("mve"):
        return False
    data, out = tensor_type(anchor.args[0]), tensor_type(anchor)
    return data.dtype in BYTES and out.dtype in BYTES and prod(out.shape) >= LEAST


def lower(group: Group, _target: Target, name: str) -> Lowered:
    anchor = group.anchor
    data, result = tensor_type(anchor.args[0]), tensor_type(anchor)
    size = prod(result.shape)
    b = IRBuilder(name)
    x, out = b.input("data", (size,), data.dtype), b.output("out", (size,), result.dtype)
    numbers = _shift(anchor.attrs, data.dtype)
    if numbers is not None:
        b.block(shift(numbers), x, out, imm(size))
        func = b.finish(FuncAttrs(kernel="arm_mve.requantize8", span=anchor.span))
        return Lowered(func, {}, shift_instructions(numbers, size), CODE_BYTES + 4)
    table = b.const("table", (CODES,), result.dtype)
    b.block(lut(data.dtype, result.dtype), x, table, out, imm(size))
    kernel = "arm_mve.lut" if isinstance(anchor.attrs, LutAttrs) else "arm_mve.requantize8"
    func = b.finish(FuncAttrs(kernel=kernel, span=anchor.span))
    return Lowered(func, {table.name: _table(anchor.attrs, data.dtype, result)}, lut_instructions(size), CODE_BYTES)


def _shift(attrs: LutAttrs | Requantize8Attrs, dtype: str) -> Shift | None:
    """The addition that a change of the zero point is."""
    if isinstance(attrs, LutAttrs) or (attrs.multiplier, attrs.shift) != SAME_SCALE:
        return None
    found = Shift(dtype, attrs.dtype, attrs.zero_point - attrs.input_zp)
    return found if (attrs.lo, attrs.hi) == int_range(attrs.dtype) and found.fits else None


def _table(attrs: LutAttrs | Requantize8Attrs, dtype: str, result: TensorType) -> Array:
    """The results of all bytes, in the order of their bits."""
    if isinstance(attrs, LutAttrs):
        return np.roll(np.asarray(attrs.table, np.int8), CODES // 2)
    codes = np.arange(CODES, dtype=np.uint8).view(numpy_dtype(dtype))
    return evaluate_requantize8(codes, attrs=attrs, out_type=TensorType((CODES,), result.dtype))


register_impl(OpImplementation("arm_mve.lut", "qnn.lut", accepts, lower, plevel=40))
register_impl(OpImplementation("arm_mve.requantize8", "qnn.requantize8", accepts, lower, plevel=40))
