"""transpose: TRANSPOSE of TFLite with a constant permutation; pure movement of data.

Oracle: `reference_ops::Transpose`: dimension i of the result is dimension axes[i] of the data.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr


@dataclass(frozen=True, slots=True)
class TransposeAttrs:
    """A permutation of the dimensions."""

    axes: tuple[int, ...]


def infer_type(types: Sequence[Type], attrs: TransposeAttrs) -> Type:
    """A tensor -> the same elements with permuted dimensions."""
    (data,) = types
    if not isinstance(data, TensorType) or sorted(attrs.axes) != list(range(len(data.shape))):
        raise TypeRuleError(f"transpose of {data} by {attrs.axes}")
    return TensorType(tuple(data.shape[a] for a in attrs.axes), data.dtype, data.quant)


def evaluate(data: Array, *, attrs: TransposeAttrs, out_type: TensorType) -> Array:
    return np.ascontiguousarray(np.transpose(data, attrs.axes))


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: TransposeAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        return data.at(b, tuple(i[attrs.axes.index(axis)] for axis in range(len(data.shape))))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "transpose",
    1,
    arguments=[("data", "any", "the operand")],
    attrs_type=TransposeAttrs,
    pattern=OpPattern.INJECTIVE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="TRANSPOSE; constant permutation",
)
F_TE.set("transpose", te_rule)
