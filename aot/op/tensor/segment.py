"""unsorted_segment: UNSORTED_SEGMENT_SUM, _PROD, _MAX, _MIN, SEGMENT_SUM of TFLite: rows joined by segments.

out[s] joins all rows whose id is s, in their order; a segment without rows has the operation's neutral value.  Rows of negative
ids are left out, and those of ids beyond the last segment too, where the reference reports an error.  The number of segments has
to be constant; of SEGMENT_SUM it follows from the ids, which ascend from 0 without a gap and have to be constant themselves.
Oracles: `reference_ops::UnsortedSegmentRef`, `reference_ops::SegmentSum`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.check import require_dtype
from aot.op.common.move import one_int, tensors_of
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call
from aot.support.dataclass import dataclass

DTYPES = ("int32", "float32")


@dataclass(frozen=True, slots=True)
class SegmentAttrs:
    """How rows are joined (sum, prod, max, min), and the number of segments."""

    kind: str
    count: int


def initial(kind: str, dtype: str) -> int | float:
    """The value of a segment without rows."""
    if kind in ("sum", "prod"):
        return int(kind == "prod") if dtype == "int32" else float(kind == "prod")
    if dtype == "int32":
        return -(1 << 31) if kind == "max" else (1 << 31) - 1
    largest = float(np.finfo(np.float32).max)
    return -largest if kind == "max" else largest


def infer_type(types: Sequence[Type], attrs: SegmentAttrs) -> Type:
    """Data [i..., q...], int32 ids [i...] -> [count, q...]."""
    data, ids = tensors_of(types, 2)
    rank = len(ids.shape)
    if data.dtype not in DTYPES or ids.dtype != "int32" or data.shape[:rank] != ids.shape or attrs.count < 1:
        raise TypeRuleError(f"segments of {data} by {ids}")
    return TensorType((attrs.count, *data.shape[rank:]), data.dtype)


_JOIN: dict[str, Callable[[Array, Array], Array]] = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "max": lambda a, b: np.where(a < b, b, a),
    "min": lambda a, b: np.where(b < a, b, a),
}


def evaluate(data: Array, ids: Array, *, attrs: SegmentAttrs, out_type: TensorType) -> Array:
    out = np.full((attrs.count, prod(out_type.shape[1:])), initial(attrs.kind, out_type.dtype), data.dtype)
    with np.errstate(all="ignore"):
        for row, segment in zip(data.reshape(ids.size, -1), ids.ravel().tolist(), strict=True):
            if 0 <= segment < attrs.count:
                out[segment] = _JOIN[attrs.kind](out[segment], row)
    return out.reshape(out_type.shape)


@from_tflite("UNSORTED_SEGMENT_SUM", "int32 float32", "unsorted_segment")
@from_tflite("UNSORTED_SEGMENT_PROD", "int32 float32", "unsorted_segment")
@from_tflite("UNSORTED_SEGMENT_MAX", "int32 float32", "unsorted_segment")
@from_tflite("UNSORTED_SEGMENT_MIN", "int32 float32", "unsorted_segment")
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """unsorted_segment."""
    data, ids = ctx.input_type(op, 0), ctx.input_type(op, 1)
    require_dtype(ctx, op, data, DTYPES)
    require_dtype(ctx, op, ids, {"int32"}, what="an id")
    count = one_int(ctx, op, 2)
    if count < 1 or data.shape[: len(ids.shape)] != ids.shape or not data.size:
        unsupported(ctx, op, f"{count} segments of {data} by {ids}", code="E1207")
    attrs = SegmentAttrs(op.opcode.rpartition("_")[2].lower(), count)
    return call("unsorted_segment", [operand(ctx, op, 0), operand(ctx, op, 1)], attrs, span=ctx.span(op))


@from_tflite("SEGMENT_SUM", "int32 float32", "unsorted_segment")
def convert_sorted(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """unsorted_segment of as many segments as the constant ids name."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, DTYPES)
    require_dtype(ctx, op, ctx.input_type(op, 1), {"int32"}, what="an id")
    ids = ctx.constant(op, 1)
    steps = np.diff(ids.astype(np.int64).ravel(), prepend=-1)
    if data.shape[:1] != ids.shape or not data.size or steps[0] != 1 or ((steps != 0) & (steps != 1)).any():
        unsupported(ctx, op, f"{data} in segments {ids.ravel().tolist()}, which do not ascend from 0 by steps of 1", code="E1207")
    attrs = SegmentAttrs("sum", int(ids[-1]) + 1)
    return call("unsorted_segment", [operand(ctx, op, 0), operand(ctx, op, 1)], attrs, span=ctx.span(op))


register_op(
    "unsorted_segment",
    2,
    arguments=[("data", "int32, float32 [i..., q...]", "rows"), ("ids", "int32 [i...]", "the segment of each row")],
    attrs_type=SegmentAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="UNSORTED_SEGMENT_SUM, PROD, MAX, MIN; int32, float32",
)
