"""WHERE and UNIQUE of TFLite on values that are known at compile time: only then is the shape of the result.

Oracles: `reference_ops::SelectTrueCoords`; `kernels/unique.cc`.
"""

from __future__ import annotations

import numpy as np

from aot.frontend.view import OperatorView
from aot.op.common.check import require_dtype
from aot.op.convert import ConvertContext, from_tflite, unsupported
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import const
from aot.support.dtype import numpy_dtype

WHERE_TYPES = "bool int8 uint8 int32 uint32 int64 float32"
UNIQUE_TYPES = "int8 uint8 int16 int32 int64 float32"
ORACLES = ("litert",)


@from_tflite("WHERE", WHERE_TYPES, "")
def convert_where(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """The places of elements that are not 0 (as stored: quantisation does not count), int64 [places, dimensions]."""
    type_, out = ctx.input_type(op, 0), ctx.output_type(op)
    require_dtype(ctx, op, type_, WHERE_TYPES.split())
    require_dtype(ctx, op, out, {"int64"}, what="a result")
    if not type_.shape:
        unsupported(ctx, op, "it takes a tensor with dimensions")
    return const(np.argwhere(ctx.constant(op, 0) != 0).astype(np.int64), span=ctx.span(op))


@from_tflite("UNIQUE", UNIQUE_TYPES, "")
def convert_unique(ctx: ConvertContext, op: OperatorView) -> list[RelayExpr]:
    """The different values in the order of their first places, and for each element which of them it is."""
    type_, index, span = ctx.input_type(op, 0), ctx.output_type(op, 1), ctx.span(op)
    require_dtype(ctx, op, type_, UNIQUE_TYPES.split())
    require_dtype(ctx, op, index, {"int32", "int64"}, what="a result")
    data = ctx.constant(op, 0)
    if data.ndim != 1 or not data.size or (data != data).any():  # in the reference's map NaN equals what it meets first
        unsupported(ctx, op, "it takes a vector of numbers")
    _, first, inverse = np.unique(data, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    values, found = data[np.sort(first)], rank[inverse.reshape(-1)].astype(numpy_dtype(index.dtype))
    return [const(values, quant=type_.quant, span=span), const(found, span=span)]
