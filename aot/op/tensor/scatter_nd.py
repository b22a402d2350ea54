"""scatter_nd: SCATTER_ND of TFLite: updates added into a tensor of zeros at positions that may come at run time.

out[indices[i, 0], ..., indices[i, n-1], q] += updates[i, q], integers wrapping, for bool "or".  An update whose position lies
outside is left out (the reference reports an error at run time).  The shape has to be constant.
Oracle: `reference_ops::ScatterNd`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aot.ir.op import F_DOMAIN, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ScatterNdAttrs:
    """The result's shape."""

    shape: tuple[int, ...]


def infer_type(types: Sequence[Type], attrs: ScatterNdAttrs) -> Type:
    """int32 or int64 indices [i, n], updates [i, q] -> the updates' type in `shape`, whose last dimensions are q."""
    indices, updates = tensors_of(types, 2)
    depth = indices.shape[-1] if indices.shape else 0
    if indices.dtype not in ("int32", "int64") or not 1 <= depth <= len(attrs.shape) or min(attrs.shape) < 1:
        raise TypeRuleError(f"scatter_nd by {indices} into {list(attrs.shape)}")
    if updates.shape != (*indices.shape[:-1], *attrs.shape[depth:]):
        raise TypeRuleError(f"scatter_nd of {updates} by {indices} into {list(attrs.shape)}")
    return TensorType(attrs.shape, updates.dtype, updates.quant)


def evaluate(indices: Array, updates: Array, *, attrs: ScatterNdAttrs, out_type: TensorType) -> Array:
    depth = indices.shape[-1]
    outer, inner = attrs.shape[:depth], prod(attrs.shape[depth:])
    positions = indices.reshape(-1, depth).astype(np.int64)
    inside = ((positions >= 0) & (positions < np.array(outer))).all(axis=1)
    rows = np.ravel_multi_index(tuple(positions[inside].T), outer)
    out = np.zeros((prod(outer), inner), updates.dtype)
    with np.errstate(all="ignore"):
        np.add.at(out, rows, updates.reshape(-1, inner)[inside])
    return out.reshape(attrs.shape)


register_op(
    "scatter_nd",
    2,
    arguments=[("indices", "int32 [..., K]", "positions in the result"), ("updates", "any", "what is added there")],
    attrs_type=ScatterNdAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="SCATTER_ND; constant shape, indices at run time",
)


def domain(types: Sequence[Type], attrs: ScatterNdAttrs) -> dict[int, tuple[float, float]]:
    """Indices lie in the smallest of the dimensions."""
    indices, _ = tensors_of(types, 2)
    return {0: (0, min(attrs.shape[: indices.shape[-1]]) - 1)}


F_DOMAIN.set("scatter_nd", domain)
