"""ADD_N: the sum of several tensors of one shape: a chain of `add` of numbers, qnn.add_n of int8 values.

Oracle: `reference_ops::AddN`, for numbers (float32, int32) in the order of the operands.  For quantised values
that of TFLM, as TensorFlow Lite does not have it: out = clamp(zp + rescale(sum << 19)) in 32 bits that wrap, where the sum begins
with the quantised value 0, not with the zero point, as it does there: x = code - zp_in, sum = -zp_in + x0 + x1 + ...
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import VARIABLE, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import Int64, quantize_multiplier, requantize, tir_requantize, wrap_int32
from aot.numerics.multipliers import real_multiplier
from aot.op.common.check import require_dtype, require_quant, require_same_quant
from aot.op.common.float_layer import FLOAT_ACTIVATIONS
from aot.op.common.move import tensors_of
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.math.arithmetic import BinaryAttrs
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call
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


def sum_attrs(ctx: ConvertContext, op: OperatorView) -> AddNAttrs:
    """The parameters of a sum of quantised values like operand 0, in double precision as TFLM computes them."""
    out = ctx.output_type(op)
    require_dtype(ctx, op, out, {"int8"}, what="a result")
    (scale_in, zp_in), (scale, zp) = require_quant(ctx, op, ctx.input_type(op, 0)), require_quant(ctx, op, out, what="the result")
    multiplier, shift = quantize_multiplier(
        real_multiplier("ADD_N", "int8", (2.0, scale_in), (2.0 ** (SUM_SHIFT + 1), scale), oracle="tflm")
    )
    if shift > 0:
        unsupported(ctx, op, "the output's scale is too small for the inputs' scale", code="E1226")
    return AddNAttrs(zp_in, multiplier, shift, zp, out.quant)


@from_tflite("ADD_N", "int8 int32 float32", "add qnn.add_n", oracle="LiteRT; TFLM for int8")
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """add of add of ... of numbers, qnn.add_n of quantised values."""
    types = [ctx.input_type(op, i) for i in range(len(op.inputs))]
    operands, span = [operand(ctx, op, i) for i in range(len(types))], ctx.span(op)
    for type_ in types:
        require_dtype(ctx, op, type_, ("float32", "int32", "int8"))
        if (type_.shape, type_.dtype) != (types[0].shape, types[0].dtype):
            raise TypeRuleError(f"a sum of {types[0]} and {type_}")
        require_same_quant(ctx, op, types[0], type_)
    if types[0].dtype == "int8":
        return call("qnn.add_n", operands, sum_attrs(ctx, op), span=span)
    attrs = BinaryAttrs(*FLOAT_ACTIVATIONS["NONE"]) if types[0].dtype == "float32" else BinaryAttrs()
    return reduce(lambda total, x: call("add", [total, x], attrs, span=span), operands)


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
