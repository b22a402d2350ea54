"""MATRIX_DIAG and MATRIX_SET_DIAG of TFLite, from `select` by a constant mask: rows on the diagonals of matrices.

Elements beside the diagonal are 0 (of quantised values too, whatever the zero point) or those of another matrix.
Oracles: `kernels/matrix_diag.cc`, `kernels/matrix_set_diag.cc`.
"""

from __future__ import annotations

import numpy as np

from aot.frontend.view import OperatorView
from aot.op.common.check import require_dtype
from aot.op.common.move import reshaped
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.math.select import SelectAttrs
from aot.relay.expr import Expr, call, const
from aot.support.dtype import numpy_dtype

DTYPES = ("int8", "uint8", "int16", "int32", "int64", "float32")


@from_tflite("MATRIX_DIAG", "int8 uint8 int16 int32 int64 float32", "reshape select")
def convert_matrix_diag(ctx: ConvertContext, op: OperatorView) -> Expr:
    """[..., n] -> [..., n, n]."""
    data, span = ctx.input_type(op, 0), ctx.span(op)
    require_dtype(ctx, op, data, DTYPES)
    if not data.shape or not data.size:
        unsupported(ctx, op, f"{data} has no rows", code="E1207")
    n = data.shape[-1]
    rows = reshaped(operand(ctx, op, 0), (*data.shape[:-1], 1, n), span)
    mask = const(np.eye(n, dtype=np.bool_))
    zeros = const(np.zeros((), numpy_dtype(data.dtype)), quant=data.quant, dtype=data.dtype)
    return call("select", [mask, rows, zeros], SelectAttrs(data.quant), span=span)


@from_tflite("MATRIX_SET_DIAG", "int8 uint8 int16 int32 int64 float32", "reshape select")
def convert_matrix_set_diag(ctx: ConvertContext, op: OperatorView) -> Expr:
    """[..., r, c] with [..., min(r, c)] on its diagonals."""
    data, diagonal, span = ctx.input_type(op, 0), ctx.input_type(op, 1), ctx.span(op)
    require_dtype(ctx, op, data, DTYPES)
    require_dtype(ctx, op, diagonal, {data.dtype}, what="a diagonal")
    if len(data.shape) < 2 or diagonal.shape != (*data.shape[:-2], min(data.shape[-2:])) or not data.size:
        unsupported(ctx, op, f"{diagonal} is not the diagonal of {data}", code="E1207")
    height, width = data.shape[-2:]
    along = (height, 1) if height <= width else (1, width)
    rows = reshaped(operand(ctx, op, 1), (*data.shape[:-2], *along), span)
    mask = const(np.eye(height, width, dtype=np.bool_))
    return call("select", [mask, rows, operand(ctx, op, 0)], SelectAttrs(data.quant), span=span)
