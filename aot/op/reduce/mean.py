"""mean and qnn.sum: MEAN and SUM of TFLite on int8, uint8 and int16 values over any axes (plain numbers: `reduce.py`).

out = clamp(zp + rescale(sum(x) - count * zp_in)) where the multiplier already holds 1/count: it is shifted left by
floor(log2(count)) bits (at most 32, and no more than keeps the shift above -31), then divided by count.
A sum is the same without the count.
Oracle: `reference_ops::QuantizedMeanOrSum` with the parameters of `reduce.cc`; for SUM of int8 and int16, which TFLite's
reference leaves uncomputed, TFLM's `reduce_common.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import (
    clamp_array,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    tir_requantize,
    wrap_int32,
)
from aot.numerics.multipliers import real_multiplier
from aot.op.common.check import Clamped, require_dtype, require_quant
from aot.op.common.reduce import constant_axes, reduced_index, reduced_shape
from aot.op.convert import ConvertContext, operand, unsupported
from aot.op.te_rule import F_TE, TeContext
from aot.op.tensor.bitcast import BitcastAttrs
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import bits, int_range
from aot.te.tensor import TensorFn, reduce_axis, tensor_fn
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast

CODES = ("int8", "uint8", "int16")


@dataclass(frozen=True, slots=True)
class MeanAttrs(Clamped):
    """`axes` sorted and non-negative; multiplier and shift hold input scale / (output scale * count)."""

    axes: tuple[int, ...]
    keepdims: bool
    input_zp: int
    multiplier: int
    shift: int
    zero_point: int
    lo: int = -128
    hi: int = 127
    quant: QuantParams | None = None


def infer_type(types: Sequence[Type], attrs: MeanAttrs) -> Type:
    """int8, uint8 or int16 -> the same without the axes, or with extent 1 in their place."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype not in CODES:
        raise TypeRuleError(f"mean takes a tensor of {', '.join(CODES)}, not {data}")
    return TensorType(reduced_shape(data.shape, attrs.axes, keepdims=attrs.keepdims), data.dtype, attrs.quant)


def evaluate(data: Array, *, attrs: MeanAttrs, out_type: TensorType) -> Array:
    count = prod(data.shape[a] for a in attrs.axes)
    total = data.astype(np.int64).sum(axis=attrs.axes) if attrs.axes else data.astype(np.int64)
    scaled = multiply_by_quantized_multiplier(wrap_int32(total - attrs.input_zp * count), attrs.multiplier, attrs.shift)
    return clamp_array(scaled + attrs.zero_point, attrs.lo, attrs.hi, out_type.dtype).reshape(out_type.shape)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: MeanAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args
    count = prod(data.shape[a] for a in attrs.axes)

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        def term(*reduced: Expr) -> Expr:
            index = reduced_index(i, reduced, axes=attrs.axes, keepdims=attrs.keepdims)
            return cast("int32", data.at(b, index))

        total = te_sum(b, [reduce_axis(data.shape[a], name="r") for a in attrs.axes], term, init=-attrs.input_zp * count)
        value = tir_requantize(
            b,
            total,
            multiplier=attrs.multiplier,
            shift=attrs.shift,
            zero_point=attrs.zero_point,
            lo=attrs.lo,
            hi=attrs.hi,
        )
        return cast(out_type.dtype, value)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


def mean_multiplier(real: float, count: int) -> tuple[int, int]:
    """Multiplier and shift of a mean of `count` elements whose scales have the ratio `real` (input / output)."""
    multiplier, shift = quantize_multiplier(real)
    extra = min(count.bit_length() - 1, 32, 31 + shift)
    return (multiplier << extra) // count, shift - extra


def convert_quantized(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """mean or qnn.sum of quantised values, by the operator's name."""
    data, out = ctx.input_type(op, 0), ctx.output_type(op)
    require_dtype(ctx, op, data, CODES)
    require_dtype(ctx, op, out, (data.dtype,), what="a result")
    scale_in, zp_in = require_quant(ctx, op, data, may_be_zero=True)
    scale, zp = require_quant(ctx, op, out, what="the result")
    axes = constant_axes(ctx, op, 1, len(data.shape))
    count = prod(data.shape[a] for a in axes)
    if count == 0 or count >= 1 << (31 - bits(data.dtype)):
        unsupported(ctx, op, f"a reduction of {count} elements of {data.dtype} is not supported")
    is_mean = op.opcode == "MEAN"
    real = real_multiplier(op.opcode, data.dtype, (scale_in,), (scale,), oracle=ctx.oracle)
    multiplier, shift = mean_multiplier(real, count) if is_mean else quantize_multiplier(real)
    as_bytes = ctx.to_the_letter and not is_mean and data.dtype != "uint8"
    if as_bytes and data.dtype == "int16":
        unsupported(ctx, op, "the reference kernel leaves half of a SUM of int16 unwritten; --oracle litert does what is meant")
    low, high = int_range("uint8" if as_bytes else out.dtype)
    keepdims = bool(op.option("keep_dims"))
    attrs = MeanAttrs(axes, keepdims, zp_in, multiplier, shift, zp, low, high, out.quant)
    values = _shown_as(operand(ctx, op, 0), "uint8") if as_bytes else operand(ctx, op, 0)
    result = call("mean" if is_mean else "qnn.sum", [values], attrs, span=ctx.span(op))
    return _shown_as(result, "int8") if as_bytes else result


def _shown_as(value: RelayExpr, dtype: str) -> RelayExpr:
    """The same bytes as another type."""
    return call("bitcast", [value], BitcastAttrs(tensor_type(value).shape, dtype), span=value.span)


for _name, _doc in (("mean", "MEAN; int8, uint8, int16, any axes"), ("qnn.sum", "SUM; int8, uint8, int16, any axes")):
    register_op(
        _name,
        1,
        arguments=[("data", "int8, int16", "the operand")],
        attrs_type=MeanAttrs,
        pattern=OpPattern.COMM_REDUCE,
        infer_type=infer_type,
        evaluate=evaluate,
        doc=_doc,
    )
    F_TE.set(_name, te_rule)
