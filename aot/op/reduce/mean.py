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

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import clamp_array, multiply_by_quantized_multiplier, tir_requantize, wrap_int32
from aot.op.common.check import Clamped
from aot.op.common.reduce import reduced_index, reduced_shape
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, reduce_axis, sum, tensor_fn
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

        total = sum(b, [reduce_axis(data.shape[a], name="r") for a in attrs.axes], term, init=-attrs.input_zp * count)
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
