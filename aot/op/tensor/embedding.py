"""EMBEDDING_LOOKUP of TFLite: rows of a table; float32 rows of an integer table are scaled where they are looked up.

out[i] = float(table[indices[i]]) * scale, the table's or the row's.  The table stays integers in flash.
Oracle: `EvalSimple` and `EvalHybrid` of kernels/embedding_lookup.cc.
"""

from __future__ import annotations

from math import prod

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.type import TensorType
from aot.op.common.check import require_dtype
from aot.op.common.move import MOVABLE
from aot.op.convert import EVERY, ConvertContext, from_tflite, operand, unsupported
from aot.op.math.arithmetic import BinaryAttrs
from aot.op.math.cast import CastAttrs
from aot.op.tensor.take import TakeAttrs, check_constant_indices
from aot.relay.expr import Constant, call, const
from aot.relay.expr import Expr as RelayExpr

HYBRID = ("int8", "int4")
FLOATS = ("float32", "float16")
"""Results of an integer table; float16 is a rounded float32."""


@from_tflite("EMBEDDING_LOOKUP", EVERY, "take cast multiply")
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """take of rows: operand 0 are the indices, operand 1 the table."""
    table, out = ctx.input_type(op, 1), ctx.output_type(op)
    check_constant_indices(ctx, op, 0, table.shape[:1])
    if out.dtype in FLOATS and table.dtype in HYBRID:
        return _scaled(ctx, op, table)
    require_dtype(ctx, op, table, MOVABLE)
    require_dtype(ctx, op, out, (table.dtype,), what="a result")
    return call("take", [operand(ctx, op, 1), operand(ctx, op, 0)], TakeAttrs(0), span=ctx.span(op))


def _scaled(ctx: ConvertContext, op: OperatorView, table: TensorType) -> RelayExpr:
    """Rows as float32, times one scale or the row's own, rounded where the result is float16."""
    span, indices, quant = ctx.span(op), operand(ctx, op, 0), table.quant
    if quant is None:
        unsupported(ctx, op, f"a table of {table.dtype} has no quantisation parameters", code="E1206")
    if any(quant.zero_point):
        unsupported(ctx, op, "a table with a zero point is not supported with a result of floats", code="E1224")
    if table.dtype == "int4" and prod(table.shape[1:]) % 2:  # the reference would begin rows half a byte too early
        unsupported(ctx, op, "rows of an odd number of int4 values are not supported")
    rows = operand(ctx, op, 1)
    if isinstance(rows, Constant):
        rows = const(rows.data, dtype="int8", span=span)  # int4 has been unpacked
    elif table.dtype != "int8":
        unsupported(ctx, op, f"a table of {table.dtype} that is computed at run time is not supported")
    scales = np.asarray(quant.scale, np.float32)
    factor: RelayExpr = const(scales[0], span=span)
    if len(scales) > 1:
        if quant.axis != 0 or len(scales) != table.shape[0]:
            unsupported(ctx, op, f"{len(scales)} scales along axis {quant.axis} do not match the rows", code="E1223")
        each = const(scales.reshape(-1, *(1 for _ in table.shape[1:])), span=span)
        factor = call("take", [each, indices], TakeAttrs(0), span=span)
    found = call("cast", [call("take", [rows, indices], TakeAttrs(0), span=span)], CastAttrs("float32"), span=span)
    scaled = call("multiply", [found, factor], BinaryAttrs(), span=span)
    return scaled if ctx.output_type(op).dtype == "float32" else call("cast", [scaled], CastAttrs("float16"), span=span)
