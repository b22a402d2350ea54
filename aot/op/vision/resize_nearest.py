"""image.resize_nearest: RESIZE_NEAREST_NEIGHBOR of TFLite; pure movement of data.

Which row and column each output position takes is computed here, in float32 as the reference does it.
Oracle: `reference_ops::ResizeNearestNeighbor` (`GetNearestNeighbor`).
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
from aot.tir.expr import Expr, cast


@dataclass(frozen=True, slots=True)
class ResizeNearestAttrs:
    """The source row of each output row, the source column of each output column."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]


def infer_type(types: Sequence[Type], attrs: ResizeNearestAttrs) -> Type:
    """[N, H, W, C] -> [N, len(rows), len(columns), C]."""
    (data,) = types
    if not isinstance(data, TensorType) or len(data.shape) != 4:
        raise TypeRuleError(f"resize takes one 4-D tensor, not {data}")
    for indices, size in ((attrs.rows, data.shape[1]), (attrs.columns, data.shape[2])):
        if not indices or not 0 <= min(indices) <= max(indices) < size:
            raise TypeRuleError(f"resize takes positions {indices} of {size}")
    return TensorType((data.shape[0], len(attrs.rows), len(attrs.columns), data.shape[3]), data.dtype, data.quant)


def evaluate(data: Array, *, attrs: ResizeNearestAttrs, out_type: TensorType) -> Array:
    return np.ascontiguousarray(data[:, list(attrs.rows)][:, :, list(attrs.columns)])


def _position(ctx: TeContext, index: Expr, table: tuple[int, ...], size: int) -> Expr:
    """`table[index]`: by arithmetic where a quotient gives the same, else from a table."""
    n = len(table)
    if table == tuple(range(n)):
        return index
    if n % size == 0 and table == tuple(i // (n // size) for i in range(n)):
        return index / (n // size)
    if table == tuple(i * size // n for i in range(n)):
        return index * size / n
    return cast("int32", ctx.constant("positions", np.asarray(table, np.int16)).at(ctx.builder, (index,)))


def te_rule(ctx: TeContext, args: Sequence[TensorFn], attrs: ResizeNearestAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args

    def rule(b: IRBuilder, n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        row = _position(ctx, y, attrs.rows, data.shape[1])
        column = _position(ctx, x, attrs.columns, data.shape[2])
        return data.at(b, (n, row, column, c))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "image.resize_nearest",
    1,
    arguments=[("data", "any [N, H, W, C]", "the image")],
    attrs_type=ResizeNearestAttrs,
    pattern=OpPattern.INJECTIVE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="RESIZE_NEAREST_NEIGHBOR; align_corners, half_pixel_centers",
)
F_TE.set("image.resize_nearest", te_rule)
