"""bitcast: BITCAST of TFLite: the same bytes as elements of another type, which costs nothing at run time.

Where the sizes differ the last dimension is split or joined: int16[3] is int8[3, 2].
Oracle: `bitcast.cc`, which copies the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import MOVABLE
from aot.support.dataclass import dataclass
from aot.support.dtype import itemsize, numpy_dtype

DTYPES = tuple(d for d in MOVABLE if d != "bool")
BETWEEN = (*DTYPES, "uint64")
"""Types that the graph's operator takes: other operators are made with it."""


@dataclass(frozen=True, slots=True)
class BitcastAttrs:
    """Type and dimensions of the result."""

    shape: tuple[int, ...]
    dtype: str


def bitcast_shape(data: TensorType, dtype: str) -> tuple[int, ...]:
    """Larger elements take the last dimension, which must hold one; smaller ones make one more.  TypeRuleError else."""
    before, after = itemsize(data.dtype), itemsize(dtype)
    if before == after:
        return data.shape
    if before > after:
        return (*data.shape, before // after)
    if data.shape[-1:] != (after // before,):
        raise TypeRuleError(f"bitcast of {data} to {dtype}")
    return data.shape[:-1]


def infer_type(types: Sequence[Type], attrs: BitcastAttrs) -> Type:
    """A tensor -> as many bytes of another type."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype not in BETWEEN or attrs.dtype not in BETWEEN:
        raise TypeRuleError(f"bitcast of {data} to {attrs.dtype}")
    if attrs.shape != bitcast_shape(data, attrs.dtype):
        raise TypeRuleError(f"bitcast of {data} to {attrs.dtype}{list(attrs.shape)}")
    return TensorType(attrs.shape, attrs.dtype)


def evaluate(data: Array, *, attrs: BitcastAttrs, out_type: TensorType) -> Array:
    return np.frombuffer(np.ascontiguousarray(data).tobytes(), numpy_dtype(attrs.dtype)).reshape(attrs.shape)


register_op(
    "bitcast",
    1,
    arguments=[("data", "any", "the operand")],
    attrs_type=BitcastAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="BITCAST; no instruction at run time",
    is_view=True,
)
