"""qnn.squared_difference: SQUARED_DIFFERENCE of TFLite on int8 and int16 with broadcasting (plain numbers: `arithmetic.py`).

d = rescale_a((a - zp_a) << n) - rescale_b((b - zp_b) << n); out = clamp(zp + rescale(d * d)), double rounding; n is 7 for
int8 and 0 for int16.  Oracle: `SquaredDifference` of `squared_difference.cc`, that of TFLM for int16, which TensorFlow Lite
does not have.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import (
    multiply_by_quantized_multiplier,
    named,
    quantize_multiplier,
    requantize,
    tir_multiply_by_quantized_multiplier,
    tir_requantize,
)
from aot.numerics.multipliers import precision, quotient
from aot.op.common.binary import broadcast_at, broadcast_type, two_of_one_type
from aot.op.common.check import require_alike
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.math.arithmetic import convert_plain, is_plain
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call
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


@from_tflite(
    "SQUARED_DIFFERENCE",
    "int8 int16 int32 float32",
    "qnn.squared_difference squared_difference",
    oracle="LiteRT; TFLM for int16",
)
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """squared_difference of numbers, qnn.squared_difference of quantised values."""
    types = (ctx.input_type(op, 0), ctx.input_type(op, 1), ctx.output_type(op))
    if is_plain(*types[:2]):
        return convert_plain(ctx, op, "squared_difference")
    (scale_a, zp_a), (scale_b, zp_b), (scale, zp) = require_alike(ctx, op, types, LEFT_SHIFT)
    twice_max = 2.0 * max(scale_a, scale_b)
    if types[0].dtype == "int16" and (zp_a or zp_b or zp):
        unsupported(ctx, op, "int16 with a non-zero zero point is not supported (TFLM rejects it too)", code="E1224")
    how = precision(op.opcode, types[0].dtype, oracle=ctx.oracle)
    m, s = quantize_multiplier(quotient((twice_max, twice_max), (4.0 ** LEFT_SHIFT[types[0].dtype], scale), how))
    if s > (0 if types[0].dtype == "int8" and ctx.oracle == "litert" else 30):
        unsupported(ctx, op, "the output's scale is too small for the inputs' scales", code="E1226")
    (m_a, s_a), (m_b, s_b) = (quantize_multiplier(quotient((x,), (twice_max,), how)) for x in (scale_a, scale_b))
    attrs = SquaredDifferenceAttrs((zp_a, zp_b), (m_a, m_b), (s_a, s_b), m, s, zp, types[2].quant)
    return call("qnn.squared_difference", [operand(ctx, op, 0), operand(ctx, op, 1)], attrs, span=ctx.span(op))


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
