"""qnn.squared_difference: SQUARED_DIFFERENCE of TFLite on int8 and int16 with broadcasting (plain numbers: `arithmetic.py`).

d = rescale_a((a - zp_a) << n) - rescale_b((b - zp_b) << n); out = clamp(zp + rescale(d * d)), double rounding; n is 7 for
int8 and 0 for int16.  Oracle: `SquaredDifference` of `squared_difference.cc`, that of TFLM for int16, which TensorFlow Lite
does not have.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import (
    multiply_by_quantized_multiplier,
    named,
    requantize,
    tir_multiply_by_quantized_multiplier,
    tir_requantize,
)
from aot.op.common.binary import broadcast_at, broadcast_type, two_of_one_type
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast

LEFT_SHIFT = {"int8": 7, "int16": 0}
"""Bits by which the operands are scaled up before they are rescaled."""


@dataclass(frozen=True, slots=True)
class SquaredDifferenceAttrs:
    """Zero point, multiplier and shift of each operand and of the result."""

    input_zp: tuple[int, int]
    multiplier: tuple[int, int]
    shift: tuple[int, int]
    output_multiplier: int
    output_shift: int
    zero_point: int
    quant: QuantParams | None = None


def infer_type(types: Sequence[Type], attrs: SquaredDifferenceAttrs) -> Type:
    """Two int8 or int16 tensors whose shapes broadcast -> the same type."""
    a, b = two_of_one_type(list(types), "qnn.squared_difference", tuple(LEFT_SHIFT))
    return broadcast_type(a, b, a.dtype, attrs.quant)


def evaluate(a: Array, b: Array, *, attrs: SquaredDifferenceAttrs, out_type: TensorType) -> Array:
    sides = []
    for i, x in enumerate((a, b)):
        shifted = (x.astype(np.int64) - attrs.input_zp[i]) << LEFT_SHIFT[out_type.dtype]
        sides.append(multiply_by_quantized_multiplier(shifted, attrs.multiplier[i], attrs.shift[i]))
    square = (sides[0] - sides[1]) ** 2
    zp = attrs.zero_point
    lo, hi = int_range(out_type.dtype)
    scaled = requantize(square, attrs.output_multiplier, attrs.output_shift, zero_point=zp, lo=lo, hi=hi)
    return scaled.astype(out_type.dtype)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: SquaredDifferenceAttrs, out_type: TensorType) -> TensorFn:
    factor = 1 << LEFT_SHIFT[out_type.dtype]
    lo, hi = int_range(out_type.dtype)

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        sides = []
        for k, x in enumerate(args):
            shifted = named(b, "x", (cast("int32", broadcast_at(b, x, i)) - attrs.input_zp[k]) * factor)
            sides.append(tir_multiply_by_quantized_multiplier(b, shifted, attrs.multiplier[k], attrs.shift[k]))
        difference = named(b, "difference", sides[0] - sides[1])
        value = tir_requantize(
            b,
            named(b, "square", difference * difference),
            multiplier=attrs.output_multiplier,
            shift=attrs.output_shift,
            zero_point=attrs.zero_point,
            lo=lo,
            hi=hi,
        )
        return cast(out_type.dtype, value)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "qnn.squared_difference",
    2,
    arguments=[("a", "int8, int16", "the left operand"), ("b", "as a", "the right operand; shapes broadcast")],
    attrs_type=SquaredDifferenceAttrs,
    pattern=OpPattern.BROADCAST,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="SQUARED_DIFFERENCE; int8, int16, with broadcasting",
)
F_TE.set("qnn.squared_difference", te_rule)
