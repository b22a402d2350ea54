"""nn.avg_of_sums: what nn.avg_pool2d makes of the sums of its windows.

For windows that move, whose sums are kept from run to run (relay/transform/slide_window.py).
Oracle: the end of `reference_integer_ops::AveragePool`: halves away from zero, then the clamp.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import clamp_array
from aot.op.common.check import Clamped
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, select


@dataclass(frozen=True, slots=True)
class AvgOfSumsAttrs(Clamped):
    """Each sum is of `count` numbers of type `dtype`; the result lies in [lo, hi]."""

    count: int
    lo: int
    hi: int
    dtype: str = "int8"
    quant: QuantParams | None = None


def infer_type(types: Sequence[Type], attrs: AvgOfSumsAttrs) -> Type:
    """int32 sums -> means of the type of what was added."""
    (sums,) = types
    if not isinstance(sums, TensorType) or sums.dtype != "int32" or attrs.count < 1:
        raise TypeRuleError(f"avg_of_sums takes int32 sums of one number or more, not {sums} of {attrs.count}")
    return TensorType(sums.shape, attrs.dtype, attrs.quant)


def evaluate(sums: Array, *, attrs: AvgOfSumsAttrs, out_type: TensorType) -> Array:
    wide = sums.astype(np.int64)
    mean = np.sign(wide) * ((np.abs(wide) + attrs.count // 2) // attrs.count)
    return clamp_array(mean, attrs.lo, attrs.hi, out_type.dtype)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: AvgOfSumsAttrs, out_type: TensorType) -> TensorFn:
    (sums,) = args
    half = attrs.count // 2

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        total = b.let("total", sums.at(b, i))
        mean = select(total > 0, total + half, total - half) / attrs.count
        return cast(out_type.dtype, clamp(mean, attrs.lo, attrs.hi))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "nn.avg_of_sums",
    1,
    arguments=[("sums", "int32", "sums of `count` numbers each")],
    attrs_type=AvgOfSumsAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="AVERAGE_POOL_2D over a window that moves",
)
F_TE.set("nn.avg_of_sums", te_rule)
