"""sparse_to_dense: SPARSE_TO_DENSE of TFLite: values at positions that may come at run time, a default value elsewhere.

Of values for one position the last one stays.  A position outside is left out, where the reference reports an error.  The shape
has to be constant.  Oracle: `reference_ops::SparseToDense`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.check import require_dtype
from aot.op.common.move import constant_ints, reshaped, tensors_of
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.tensor.full import FullAttrs
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call
from aot.support.dataclass import dataclass

DTYPES = ("int8", "uint8", "int32", "int64", "float32")


@dataclass(frozen=True, slots=True)
class SparseToDenseAttrs:
    """The result's shape."""

    shape: tuple[int, ...]


def infer_type(types: Sequence[Type], attrs: SparseToDenseAttrs) -> Type:
    """Indices [n, rank], values [n] or [1], default [1] -> the values' type in `shape`."""
    indices, values, default = tensors_of(types, 3)
    if indices.dtype not in ("int32", "int64") or len(indices.shape) != 2 or indices.shape[1] != len(attrs.shape):
        raise TypeRuleError(f"sparse_to_dense by {indices} into {list(attrs.shape)}")
    if (
        values.shape not in ((indices.shape[0],), (1,))
        or default.size != 1
        or default.dtype != values.dtype
        or min(attrs.shape) < 1
    ):
        raise TypeRuleError(f"sparse_to_dense of {values} and {default} by {indices} into {list(attrs.shape)}")
    return TensorType(attrs.shape, values.dtype, values.quant)


def evaluate(indices: Array, values: Array, default: Array, *, attrs: SparseToDenseAttrs, out_type: TensorType) -> Array:
    out = np.full(attrs.shape, default.ravel()[0], values.dtype)
    for i, position in enumerate(indices.tolist()):
        if all(0 <= p < n for p, n in zip(position, attrs.shape, strict=True)):
            out[tuple(position)] = values[i if len(values) > 1 else 0]
    return out


@from_tflite("SPARSE_TO_DENSE", "int8 uint8 int32 int64 float32", "full sparse_to_dense")
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """sparse_to_dense."""
    indices, values, default, span = ctx.input_type(op, 0), ctx.input_type(op, 2), ctx.input_type(op, 3), ctx.span(op)
    require_dtype(ctx, op, indices, ("int32", "int64"), what="an index")
    require_dtype(ctx, op, values, DTYPES)
    require_dtype(ctx, op, default, {values.dtype}, what="the default value")
    shape = tuple(constant_ints(ctx, op, 1))
    rank = len(indices.shape)
    count = indices.shape[0] if rank else 1
    depth = indices.shape[1] if rank == 2 else 1
    fits = rank <= 2 and depth == len(shape) <= 4 and values.shape in ((), (1,), (count,)) and default.size == 1
    if not fits or not shape or min(shape) < 1:
        unsupported(ctx, op, f"{values} at {indices} do not fit into {list(shape)}", code="E1207")
    if not count:
        return call("full", [reshaped(operand(ctx, op, 3), (1,), span)], FullAttrs(shape), span=span)
    places = reshaped(operand(ctx, op, 0), (count, depth), span)
    given = reshaped(operand(ctx, op, 2), (values.size,), span)
    args = [places, given, reshaped(operand(ctx, op, 3), (1,), span)]
    return call("sparse_to_dense", args, SparseToDenseAttrs(shape), span=span)


register_op(
    "sparse_to_dense",
    3,
    arguments=[
        ("indices", "int32, int64 [n, rank]", "positions"),
        ("values", "[n] or [1]", "what is put there"),
        ("default", "[1]", "what is elsewhere"),
    ],
    attrs_type=SparseToDenseAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="SPARSE_TO_DENSE; int8, uint8, int32, int64, float32",
)
