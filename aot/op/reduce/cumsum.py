"""cumsum and qnn.cumsum: CUMSUM of TFLite: running sums along one constant axis, integers wrapping.

Oracle: `reference_ops::CumSum`: inclusive or exclusive (the sum of what lies before), from either end.  For int8 values that of
TFLM, as TensorFlow Lite does not have it: every sum is rescaled as that of ADD_N is (`add_n.py`) and begins with the value 0 too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.op.qnn.add_n import AddNAttrs, sum_codes
from aot.support.dataclass import dataclass

DTYPES = ("int32", "int64", "float32")


@dataclass(frozen=True, slots=True)
class CumSumAttrs:
    """The axis; whether an element counts in its own sum; the end to begin at."""

    axis: int
    exclusive: bool
    reverse: bool
    codes: AddNAttrs | None = None
    """How a sum of quantised values becomes a code; None for numbers."""


def infer_type(types: Sequence[Type], attrs: CumSumAttrs) -> Type:
    """int32, int64 or float32 -> the same type."""
    (data,) = tensors_of(types, 1)
    if data.dtype not in DTYPES or not 0 <= attrs.axis < len(data.shape):
        raise TypeRuleError(f"running sums of {data} along axis {attrs.axis}")
    return data


def infer_codes(types: Sequence[Type], attrs: CumSumAttrs) -> Type:
    """int8 -> int8."""
    (data,) = tensors_of(types, 1)
    if data.dtype != "int8" or attrs.codes is None or not 0 <= attrs.axis < len(data.shape):
        raise TypeRuleError(f"running sums of {data} along axis {attrs.axis}")
    return data.with_dtype("int8", attrs.codes.quant)


def evaluate_codes(data: Array, *, attrs: CumSumAttrs, out_type: TensorType) -> Array:
    assert attrs.codes is not None
    centred = data.astype(np.int64) - attrs.codes.input_zp
    sums = evaluate(centred, attrs=attrs, out_type=out_type)
    return sum_codes(sums - attrs.codes.input_zp, attrs.codes)


def evaluate(data: Array, *, attrs: CumSumAttrs, out_type: TensorType) -> Array:
    rows = np.moveaxis(data, attrs.axis, -1)
    rows = rows[..., ::-1] if attrs.reverse else rows
    with np.errstate(all="ignore"):
        sums = np.add.accumulate(np.concatenate([np.zeros_like(rows[..., :1]), rows], axis=-1), axis=-1, dtype=data.dtype)
    sums = sums[..., :-1] if attrs.exclusive else sums[..., 1:]
    sums = sums[..., ::-1] if attrs.reverse else sums
    return np.ascontiguousarray(np.moveaxis(sums, -1, attrs.axis))


register_op(
    "cumsum",
    1,
    arguments=[("data", "numbers", "the operand")],
    attrs_type=CumSumAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="CUMSUM; one constant axis",
)
register_op(
    "qnn.cumsum",
    1,
    arguments=[("data", "int8", "the operand")],
    attrs_type=CumSumAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_codes,
    evaluate=evaluate_codes,
    doc="CUMSUM; int8, one constant axis",
)
