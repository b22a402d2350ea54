"""cast: CAST of TFLite between element types.

Integers keep their low bits, a float is cut towards zero and saturates (NaN gives the upper bound), anything but 0 is true.
What comes from or goes to float16 passes through float32.
Oracle: `kernels/cast.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.numerics.fixed_point import named
from aot.op.common.move import MOVABLE, tensors_of
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_float, numpy_dtype
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, imm, select

DTYPES = MOVABLE


@dataclass(frozen=True, slots=True)
class CastAttrs:
    """The result's type."""

    dtype: str


def infer_type(types: Sequence[Type], attrs: CastAttrs) -> Type:
    """A tensor -> the same shape in another type."""
    (data,) = tensors_of(types, 1)
    if data.dtype not in DTYPES or attrs.dtype not in DTYPES:
        raise TypeRuleError(f"cast of {data} to {attrs.dtype}")
    return data.with_dtype(attrs.dtype)


def _float_limits(dtype: str) -> tuple[float, float]:
    """(low, high): a float below high and not below low is in range once it is cut; both are powers of two."""
    low, high = int_range(dtype)
    return float(low), float(high + 1)


def evaluate(data: Array, *, attrs: CastAttrs, out_type: TensorType) -> Array:
    if "float16" in (attrs.dtype, str(data.dtype)):
        data = data.astype(np.float32)
    if attrs.dtype == "float16":
        with np.errstate(all="ignore"):
            return data.astype(np.float16)
    dtype = numpy_dtype(attrs.dtype)
    if not is_float(str(data.dtype)) or is_float(attrs.dtype) or attrs.dtype == "bool":
        return data.astype(dtype)
    (low, high), (smallest, largest) = _float_limits(attrs.dtype), int_range(attrs.dtype)
    inside = (data > low - 1) & (data < high)
    whole = np.where(inside, np.trunc(data), 0).astype(np.float64)
    result = whole.astype(np.uint64 if low == 0 else np.int64).astype(dtype)
    result = np.where(data <= low, dtype.type(smallest), result)
    return np.where((data >= high) | np.isnan(data), dtype.type(largest), result).astype(dtype)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: CastAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        value = data.at(b, i)
        if attrs.dtype == "float16":
            return cast("float16", cast("float32", value))
        value = cast("float32", value) if data.dtype == "float16" else value
        if is_float(attrs.dtype) or not is_float(value.dtype):
            return cast(attrs.dtype, value)
        if attrs.dtype == "bool":
            return binop("!=", value, imm(0.0, value.dtype))
        value = named(b, "value", value)
        (low, high), (smallest, largest) = _float_limits(attrs.dtype), int_range(attrs.dtype)
        inside = select(value < imm(high, value.dtype), cast(attrs.dtype, value), imm(largest, attrs.dtype))
        return select(value <= imm(low, value.dtype), imm(smallest, attrs.dtype), inside)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "cast",
    1,
    arguments=[("data", "numbers", "the operand")],
    attrs_type=CastAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="CAST; all plain types and float16",
)
F_TE.set("cast", te_rule)
