"""SHAPE, RANK, RANGE, BROADCAST_ARGS and ZEROS_LIKE of TFLite: values that are known at compile time.

Shapes are static here, so these yield constants, and all arithmetic on them is done by `fold_constant` or by the converters
that need a number.  Oracles: `kernels/shape.cc`, `rank.cc`, `range.cc`, `broadcast_args.cc`, `zeros_like.cc`.
"""

from __future__ import annotations

import numpy as np

from aot.frontend.view import OperatorView
from aot.op.common.check import require_dtype
from aot.op.common.move import INDEX_TYPES, MOVABLE, constant_ints
from aot.op.convert import EVERY, ConvertContext, from_tflite, unsupported
from aot.op.tensor.full import FullAttrs
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call, const
from aot.support.dtype import numpy_dtype


@from_tflite("SHAPE", EVERY, "")
def convert_shape(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """The extents of the operand."""
    out = ctx.output_type(op)
    require_dtype(ctx, op, out, INDEX_TYPES, what="a result")
    return const(np.array(ctx.input_type(op, 0).shape, numpy_dtype(out.dtype)), span=ctx.span(op))


@from_tflite("RANK", EVERY, "")
def convert_rank(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """The number of dimensions, a scalar."""
    out = ctx.output_type(op)
    require_dtype(ctx, op, out, INDEX_TYPES, what="a result")
    return const(np.array(len(ctx.input_type(op, 0).shape), numpy_dtype(out.dtype)), span=ctx.span(op))


MAX_RANGE = 1 << 20
"""Elements of a range, which is computed here one by one."""


@from_tflite("RANGE", "int32 int64 float32", "")
def convert_range(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """start, start + delta, ... up to limit (exclusive), all of them constants."""
    out = ctx.output_type(op)
    require_dtype(ctx, op, out, ("int32", "int64", "float32"), what="a result")
    dtype = numpy_dtype(out.dtype)
    start, limit, delta = (ctx.constant(op, i).astype(dtype).ravel()[:1] for i in range(3))
    if 0 in (start.size, limit.size, delta.size) or delta[0] == 0:
        unsupported(ctx, op, "start, limit and delta must be scalars, and delta not 0", code="E1130")
    # range.cc counts ceil(abs((limit - start) / delta)), in integers or in the data's type
    span = limit[0] - start[0] if out.dtype == "float32" else int(limit[0]) - int(start[0])
    step = delta[0] if out.dtype == "float32" else int(delta[0])
    count = int(np.ceil(np.abs(span / step))) if out.dtype == "float32" else -(-abs(span) // abs(step))
    if (span > 0) != (step > 0) and span != 0:
        unsupported(ctx, op, f"steps of {step} never cover a range of {span}", code="E1130")
    if count > MAX_RANGE:
        unsupported(ctx, op, f"a range of {count} numbers, more than {MAX_RANGE}", code="E1216")
    values = np.empty(count, dtype)
    value = start[0]
    for i in range(count):  # a running sum, as the reference computes it
        values[i] = value
        value = dtype.type(value + delta[0]) if i + 1 < count else value
    return const(values, span=ctx.span(op))


@from_tflite("BROADCAST_ARGS", "int32 int64", "")
def convert_broadcast_args(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """The shape that two shapes broadcast to; both and the result int32 or int64, as in the reference."""
    require_dtype(ctx, op, ctx.output_type(op), ("int32", "int64"), what="a result")
    a, b = constant_ints(ctx, op, 0), constant_ints(ctx, op, 1)
    try:
        shape = np.broadcast_shapes(tuple(a), tuple(b))
    except ValueError:
        unsupported(ctx, op, f"shapes {a} and {b} do not broadcast", code="E1132")
    return const(np.array(shape, numpy_dtype(ctx.output_type(op).dtype)), span=ctx.span(op))


@from_tflite("ZEROS_LIKE", EVERY, "full")
def convert_zeros_like(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """full of 0 (of the quantised value 0 where the type is quantised, as the reference does)."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, MOVABLE)
    zero = const(np.zeros((1,), numpy_dtype(data.dtype)), quant=data.quant, span=ctx.span(op))
    return call("full", [zero], FullAttrs(data.shape), span=ctx.span(op))
