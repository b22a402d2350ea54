"""topk: TOPK_V2 of TFLite: positions of the k largest elements of each row, equal ones in order, a NaN
after all numbers; their values are a `take`.

Oracle: `kernels/topk_v2.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.support.dataclass import dataclass
from aot.support.dtype import is_float, numpy_dtype


@dataclass(frozen=True, slots=True)
class TopKAttrs:
    """How many; the type of positions."""

    k: int
    dtype: str = "int32"


def infer_type(types: Sequence[Type], attrs: TopKAttrs) -> Type:
    """[..., n] -> positions [..., k]."""
    (data,) = tensors_of(types, 1)
    if not data.shape or not 1 <= attrs.k <= data.shape[-1]:
        raise TypeRuleError(f"the {attrs.k} largest of {data}")
    return TensorType((*data.shape[:-1], attrs.k), attrs.dtype)


def evaluate(data: Array, *, attrs: TopKAttrs, out_type: TensorType) -> Array:
    # a stable sort of the reversed row, read backwards, has equal elements in order
    n = data.shape[-1]
    row = data[..., ::-1]
    order = np.argsort(row, axis=-1, kind="stable")[..., ::-1]
    if is_float(str(data.dtype)):  # numpy has sorted a NaN after all numbers, so it comes first here
        behind = np.take_along_axis(np.isnan(row), order, -1)
        order = np.take_along_axis(order, np.argsort(behind, axis=-1, kind="stable"), -1)
    order = n - 1 - order
    return np.ascontiguousarray(order[..., : attrs.k]).astype(numpy_dtype(attrs.dtype))


register_op(
    "topk",
    1,
    arguments=[("data", "numbers [..., C]", "the operand")],
    attrs_type=TopKAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="TOPK_V2; constant k; a NaN sorts after all numbers",
)
