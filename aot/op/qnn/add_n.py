"""ADD_N: the sum of several tensors of one shape: a chain of `add` of numbers, qnn.add_n of int8 values.

Oracle: `reference_ops::AddN`, for numbers (float32, int32) in the order of the operands.  For quantised values
that of TFLM, as TensorFlow Lite does not have it: out = clamp(zp + rescale(sum << 19)) in 32 bits that wrap, where the sum begins
with the quantised value 0, not with the zero point, as it does there: x = code - zp_in, sum = -zp_in + x0 + x1 + ...
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from aot.ir.op import VARIABLE, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import Int64, requantize, tir_requantize, wrap_int32
from aot.op.common.move import tensors_of
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast

SUM_SHIFT = 19
"""Bits by which a sum of quantised values is scaled up before it is rescaled: 20, less the factor 1/2 of the operands."""


@dataclass(frozen=True, slots=True)
class AddNAttrs:
    """The operands' zero point; multiplier, shift and zero point of the result."""

    input_zp: int
    multiplier: int
    shift: int
    zero_point: int
    quant: QuantParams | None = None


def infer_type(types: Sequence[Type], attrs: AddNAttrs) -> Type:
    """int8 tensors of one shape -> int8."""
    first, *rest = tensors_of(types, len(types))
    if first.dtype != "int8" or any((t.dtype, t.shape) != (first.dtype, first.shape) for t in rest):
        raise TypeRuleError(f"add_n takes int8 tensors of one shape, not {', '.join(map(str, types))}")
    return first.with_dtype("int8", attrs.quant)


def evaluate(*tensors: Array, attrs: AddNAttrs, out_type: TensorType) -> Array:
    total = reduce(np.add, [t.astype(np.int64) for t in tensors])
    return sum_codes(total - attrs.input_zp * (len(tensors) + 1), attrs)


def sum_codes(total: Int64, attrs: AddNAttrs) -> Array:
    """The int8 values of sums of centred quantised values."""
    scaled = wrap_int32(total << SUM_SHIFT)
    return requantize(scaled, attrs.multiplier, attrs.shift, zero_point=attrs.zero_point, lo=-128, hi=127).astype(np.int8)


def tir_sum_code(b: IRBuilder, total: Expr, attrs: AddNAttrs) -> Expr:
    """The int8 code of an int32 sum of centred quantised values."""
    scaled = b.let("scaled", cast("int32", cast("uint32", total) << SUM_SHIFT))
    multiplier, shift, zp = attrs.multiplier, attrs.shift, attrs.zero_point
    return cast("int8", tir_requantize(b, scaled, multiplier=multiplier, shift=shift, zero_point=zp, lo=-128, hi=127))


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: AddNAttrs, out_type: TensorType) -> TensorFn:
    def rule(b: IRBuilder, *i: Expr) -> Expr:
        codes = reduce(lambda x, y: x + y, [cast("int32", t.at(b, i)) for t in args])
        return tir_sum_code(b, codes - attrs.input_zp * (len(args) + 1), attrs)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "qnn.add_n",
    VARIABLE,
    arguments=[("*tensors", "int8", "two or more operands of one shape")],
    attrs_type=AddNAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="ADD_N; int8",
)
F_TE.set("qnn.add_n", te_rule)
