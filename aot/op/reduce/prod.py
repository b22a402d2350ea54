"""qnn.prod: REDUCE_PROD of TFLite on int8 and int16 values over any constant axes (plain numbers: `reduce.py`).

p = x0; p = rescale(p * x1); ... in the order of memory; out = clamp(zp + rescale(p)), x = code - zp_in.  Every rescale is
MultiplyByQuantizedMultiplier of 64 bits, with a multiplier of 16, by scale_in / scale^(1/n).  Oracle: `QuantizedReduceProd`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from math import prod

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import Int64, clamp_array, tir_multiply_wide, wrap_int32
from aot.op.common.move import tensors_of
from aot.op.common.reduce import reduced_index, reduced_shape
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, equal, logical_and

CODES = ("int8", "int16")


@dataclass(frozen=True, slots=True)
class ProdAttrs:
    """Sorted axes; zero point of the data; multiplier (16 bits, in place), shift and zero point of the result."""

    axes: tuple[int, ...]
    keepdims: bool
    input_zp: int
    multiplier: int
    shift: int
    zero_point: int
    quant: QuantParams | None = None


def infer_type(types: Sequence[Type], attrs: ProdAttrs) -> Type:
    """int8 or int16 -> the same type without the axes, or with extent 1 in their place."""
    (data,) = tensors_of(types, 1)
    if data.dtype not in CODES:
        raise TypeRuleError(f"the product of {data}")
    return TensorType(reduced_shape(data.shape, attrs.axes, keepdims=attrs.keepdims), data.dtype, attrs.quant)


def _rescaled(x: Int64, attrs: ProdAttrs) -> Int64:
    total = 15 - attrs.shift
    return wrap_int32((x * (attrs.multiplier >> 16) + (1 << (total - 1))) >> total)


def evaluate(data: Array, *, attrs: ProdAttrs, out_type: TensorType) -> Array:
    kept = [a for a in range(data.ndim) if a not in attrs.axes]
    rows = np.transpose(data, (*kept, *attrs.axes)).reshape(out_type.size, prod(data.shape[a] for a in attrs.axes))
    centred = rows.astype(np.int64) - attrs.input_zp
    product = centred[:, 0]
    for i in range(1, centred.shape[1]):
        product = _rescaled(product * centred[:, i], attrs)
    result = _rescaled(product, attrs) + attrs.zero_point
    return clamp_array(result, *int_range(out_type.dtype), out_type.dtype).reshape(out_type.shape)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: ProdAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args

    def rescaled(b: IRBuilder, x: Expr) -> Expr:
        return tir_multiply_wide(b, x, attrs.multiplier, attrs.shift, reduced=True)

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        product = b.local("product", (1,), "int32", init=0)
        with ExitStack() as loops:
            inner = [loops.enter_context(b.for_("r", data.shape[a])) for a in attrs.axes]
            index = reduced_index(i, inner, axes=attrs.axes, keepdims=attrs.keepdims)
            value = b.let("value", cast("int32", data.at(b, index)) - attrs.input_zp)
            first = equal(inner[0], 0)
            for position in inner[1:]:
                first = logical_and(first, equal(position, 0))
            with b.if_(first):
                b.store(product, 0, value)
            with b.else_():
                b.store(product, 0, rescaled(b, cast("int64", product[0]) * cast("int64", value)))
        result = rescaled(b, cast("int64", product[0])) + attrs.zero_point
        return cast(out_type.dtype, clamp(result, *int_range(out_type.dtype)))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "qnn.prod",
    1,
    arguments=[("data", "int8, int16", "the operand")],
    attrs_type=ProdAttrs,
    pattern=OpPattern.COMM_REDUCE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="REDUCE_PROD; int8, int16, any axes",
)
F_TE.set("qnn.prod", te_rule)
