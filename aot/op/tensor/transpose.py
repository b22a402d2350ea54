"""transpose: TRANSPOSE of TFLite with a constant permutation; pure movement of data.

Oracle: `reference_ops::Transpose`: dimension i of the result is dimension axes[i] of the data.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.check import require_dtype
from aot.op.common.move import MOVABLE
from aot.op.convert import EVERY, ConvertContext, from_tflite, operand, unsupported
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr

DTYPES = MOVABLE


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


@from_tflite("TRANSPOSE", EVERY, "transpose")
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """transpose; negative axes count from the end."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, DTYPES)
    rank = len(data.shape)
    axes = tuple(int(a) + rank if a < 0 else int(a) for a in ctx.constant(op, 1).ravel())
    if sorted(axes) != list(range(rank)):
        unsupported(ctx, op, f"{list(axes)} is not a permutation of {rank} dimensions", code="E1126")
    return call("transpose", [operand(ctx, op, 0)], TransposeAttrs(axes), span=ctx.span(op))


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
