"""mean: MEAN of TFLite on int8 over any axes.

out = clamp(zp + rescale(sum(x) - count * zp_in)) where the multiplier already holds 1/count: it is shifted left by
floor(log2(count)) bits (at most 32, and no more than keeps the shift above -31), then divided by count.
Oracle: `reference_ops::QuantizedMeanOrSum` with the parameters of `reduce.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.op._check import narrowed, require_dtype, require_quant
from aot.op._fixed_point import multiply_by_quantized_multiplier, quantize_multiplier, tir_requantize, wrap_int32
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call
from aot.te.tensor import Tensor, compute, reduce_axis
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast


@dataclass(frozen=True, slots=True)
class MeanAttrs:
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

    def clipped(self, lo: int, hi: int) -> MeanAttrs:
        """The same followed by a clamp to [lo, hi]."""
        new_lo, new_hi = narrowed(lo, hi, inner=(self.lo, self.hi))
        return replace(self, lo=new_lo, hi=new_hi)


def infer_type(types: Sequence[Type], attrs: MeanAttrs) -> Type:
    """int8 -> int8 without the axes, or with extent 1 in their place."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "int8":
        raise TypeRuleError(f"mean takes an int8 tensor, not {data}")
    if any(not 0 <= a < len(data.shape) for a in attrs.axes):
        raise TypeRuleError(f"axes {attrs.axes} of {data}")
    shape = [1 if i in attrs.axes else n for i, n in enumerate(data.shape) if attrs.keepdims or i not in attrs.axes]
    return TensorType(tuple(shape), "int8", attrs.quant)


def evaluate(data: Array, *, attrs: MeanAttrs, out_type: TensorType) -> Array:
    count = prod(data.shape[a] for a in attrs.axes)
    total = data.astype(np.int64).sum(axis=attrs.axes) if attrs.axes else data.astype(np.int64)
    scaled = multiply_by_quantized_multiplier(wrap_int32(total - attrs.input_zp * count), attrs.multiplier, attrs.shift)
    return np.clip(scaled + attrs.zero_point, attrs.lo, attrs.hi).astype(np.int8).reshape(out_type.shape)


def te_rule(_ctx: TeContext, args: Sequence[Tensor], attrs: MeanAttrs, out_type: TensorType) -> Tensor:
    (data,) = args
    count = prod(data.shape[a] for a in attrs.axes)

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        def term(*reduced: Expr) -> Expr:
            inner, outer = iter(reduced), iter(i)
            index = []
            for axis in range(len(data.shape)):
                if axis in attrs.axes:
                    index.append(next(inner))
                    if attrs.keepdims:
                        next(outer)
                else:
                    index.append(next(outer))
            return cast("int32", data.at(b, tuple(index)))

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
        return cast("int8", value)

    return compute(out_type.shape, out_type.dtype, rule)


def mean_multiplier(real: float, count: int) -> tuple[int, int]:
    """Multiplier and shift of a mean of `count` elements whose scales have the ratio `real` (input / output)."""
    multiplier, shift = quantize_multiplier(real)
    extra = min(count.bit_length() - 1, 32, 31 + shift)
    return (multiplier << extra) // count, shift - extra


def normalized_axes(axes: Array, rank: int) -> tuple[int, ...]:
    """Distinct axes in order; negative ones count from the end. ValueError for one that does not exist."""
    found = {int(a) + rank if a < 0 else int(a) for a in np.atleast_1d(axes).ravel()}
    if any(not 0 <= a < rank for a in found):
        raise ValueError(f"axes {sorted(found)} of {rank} dimensions")
    return tuple(sorted(found))


@from_tflite("MEAN")
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """mean; the axes have to be constant."""
    data, out = ctx.input_type(op, 0), ctx.output_type(op)
    require_dtype(ctx, op, data, {"int8"})
    require_dtype(ctx, op, out, {"int8"}, what="a result")
    scale_in, zp_in = require_quant(ctx, op, data)
    scale, zp = require_quant(ctx, op, out, what="the result")
    try:
        axes = normalized_axes(ctx.constant(op, 1), len(data.shape))
    except ValueError as error:
        unsupported(ctx, op, str(error), code="E1122")
    count = prod(data.shape[a] for a in axes)
    if count == 0 or count >= 1 << 23:
        unsupported(ctx, op, f"a mean of {count} elements is not supported")
    multiplier, shift = mean_multiplier(scale_in / scale, count)
    attrs = MeanAttrs(axes, bool(op.option("keep_dims")), zp_in, multiplier, shift, zp, quant=out.quant)
    return call("mean", [operand(ctx, op, 0)], attrs, span=ctx.span(op))


register_op("mean", pattern=OpPattern.COMM_REDUCE, infer_type=infer_type, evaluate=evaluate, doc="MEAN; int8, any axes")
F_TE.set("mean", te_rule)
