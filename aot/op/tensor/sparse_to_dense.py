"""sparse_to_dense: SPARSE_TO_DENSE of TFLite: values at positions that may come at run time, a default value elsewhere.

Of values for one position the last one stays.  A position outside is left out, where the reference reports an error.  The shape
has to be constant.  Oracle: `reference_ops::SparseToDense`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SparseToDenseAttrs:
    """The result's shape."""

    shape: tuple[int, ...]


def infer_type(types: Sequence[Type], attrs: SparseToDenseAttrs) -> Type:
    """Indices [n, rank], values [n] or [1], default [1] -> the values' type in `shape`."""
    indices, values, default = tensors_of(types, 3)
    if indices.dtype not in ("int32", "int64") or len(indices.shape) != 2 or indices.shape[1] != len(attrs.shape):
        raise TypeRuleError(f"sparse_to_dense by {indices} into {list(attrs.shape)}")
    if (
        values.shape not in ((indices.shape[0],), (1,))
        or default.size != 1
        or default.dtype != values.dtype
        or min(attrs.shape) < 1
    ):
        raise TypeRuleError(f"sparse_to_dense of {values} and {default} by {indices} into {list(attrs.shape)}")
    return TensorType(attrs.shape, values.dtype, values.quant)


def evaluate(indices: Array, values: Array, default: Array, *, attrs: SparseToDenseAttrs, out_type: TensorType) -> Array:
    out = np.full(attrs.shape, default.ravel()[0], values.dtype)
    for i, position in enumerate(indices.tolist()):
        if all(0 <= p < n for p, n in zip(position, attrs.shape, strict=True)):
            out[tuple(position)] = values[i if len(values) > 1 else 0]
    return out


register_op(
    "sparse_to_dense",
    3,
    arguments=[
        ("indices", "int32, int64 [n, rank]", "positions"),
        ("values", "[n] or [1]", "what is put there"),
        ("default", "[1]", "what is elsewhere"),
    ],
    attrs_type=SparseToDenseAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="SPARSE_TO_DENSE; int8, uint8, int32, int64, float32",
)
