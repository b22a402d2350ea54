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

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
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
