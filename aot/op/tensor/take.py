"""take and gather_nd: GATHER and GATHER_ND of TFLite: elements chosen by indices that may come at run time.

take: out[p, i, q] = data[p, indices[i], q] along `axis`, the first `batch_dims` dimensions running together.
gather_nd: out[i, q] = data[indices[i, 0], ..., indices[i, n-1], q].
An index outside its dimension counts as the nearest inside (the reference reports an error at run time), so that no data can make
the device read elsewhere; constant indices are checked at compile time.  Oracles: `reference_ops::Gather`, `GatherNd`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import F_DOMAIN, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import INDEX_TYPES, clamped_index, tensors_of
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm


@dataclass(frozen=True, slots=True)
class TakeAttrs:
    """The dimension that the indices replace, and how many leading dimensions data and indices share."""

    axis: int
    batch_dims: int = 0


@dataclass(frozen=True, slots=True)
class GatherNdAttrs:
    """No attributes: the shapes determine everything."""


def infer_take(types: Sequence[Type], attrs: TakeAttrs) -> Type:
    """data[batch, p, n, q], indices[batch, i] -> [batch, p, i, q]."""
    data, indices = tensors_of(types, 2)
    batch, axis = attrs.batch_dims, attrs.axis
    fits = 0 <= batch <= min(axis, len(indices.shape)) and axis < len(data.shape) and indices.dtype in INDEX_TYPES
    if not fits or data.shape[:batch] != indices.shape[:batch] or (not data.shape[axis] and indices.size):
        raise TypeRuleError(f"take of {data} by {indices} along {attrs}")
    return TensorType((*data.shape[:axis], *indices.shape[batch:], *data.shape[axis + 1 :]), data.dtype, data.quant)


def evaluate_take(data: Array, indices: Array, *, attrs: TakeAttrs, out_type: TensorType) -> Array:
    batch, axis = attrs.batch_dims, attrs.axis
    if data.size == 0 or indices.size == 0:
        return np.zeros(out_type.shape, data.dtype)
    chosen = np.clip(indices, 0, data.shape[axis] - 1).astype(np.int64)
    lead = int(np.prod(data.shape[:batch]))
    parts = [
        np.take(d, i, axis=axis - batch)
        for d, i in zip(data.reshape(lead, *data.shape[batch:]), chosen.reshape(lead, *indices.shape[batch:]), strict=True)
    ]
    return np.stack(parts).reshape(out_type.shape)


def te_take(_ctx: TeContext, args: Sequence[TensorFn], attrs: TakeAttrs, out_type: TensorType) -> TensorFn:
    data, indices = args
    batch, axis = attrs.batch_dims, attrs.axis
    inner = len(indices.shape) - batch

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        index = indices.at(b, (*i[:batch], *i[axis : axis + inner]))
        return data.at(b, (*i[:axis], clamped_index(b, index, data.shape[axis]), *i[axis + inner :]))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


def infer_gather_nd(types: Sequence[Type], attrs: GatherNdAttrs) -> Type:
    """data[n.., q], indices[i, number of n] -> [i, q]."""
    data, indices = tensors_of(types, 2)
    if not indices.shape or indices.shape[-1] > len(data.shape) or indices.dtype not in INDEX_TYPES:
        raise TypeRuleError(f"gather_nd of {data} by {indices}")
    return TensorType((*indices.shape[:-1], *data.shape[indices.shape[-1] :]), data.dtype, data.quant)


def evaluate_gather_nd(data: Array, indices: Array, *, attrs: GatherNdAttrs, out_type: TensorType) -> Array:
    if out_type.size == 0:
        return np.zeros(out_type.shape, data.dtype)
    positions = [np.clip(indices[..., k], 0, data.shape[k] - 1).astype(np.int64) for k in range(indices.shape[-1])]
    return np.ascontiguousarray(data[tuple(positions)]).reshape(out_type.shape)


def te_gather_nd(_ctx: TeContext, args: Sequence[TensorFn], attrs: GatherNdAttrs, out_type: TensorType) -> TensorFn:
    data, indices = args
    outer = len(indices.shape) - 1

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        numbers = [indices.at(b, (*i[:outer], imm(k))) for k in range(indices.shape[-1])]
        position = [clamped_index(b, n, extent) for n, extent in zip(numbers, data.shape, strict=False)]
        return data.at(b, (*position, *i[outer:]))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


# anchors: what follows may be fused, but what computes data or indices must not be computed once for each use
register_op(
    "take",
    2,
    arguments=[("data", "any", "the table"), ("indices", "int32, int64, int16", "which entries, at run time")],
    attrs_type=TakeAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_take,
    evaluate=evaluate_take,
    doc="GATHER, EMBEDDING_LOOKUP; indices at run time",
)
register_op(
    "gather_nd",
    2,
    arguments=[("data", "any", "the table"), ("indices", "int32, int64, int16 [..., K]", "which entries, at run time")],
    attrs_type=GatherNdAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_gather_nd,
    evaluate=evaluate_gather_nd,
    doc="GATHER_ND; indices at run time",
)
F_TE.set("take", te_take)
F_TE.set("gather_nd", te_gather_nd)


def domain_take(types: Sequence[Type], attrs: TakeAttrs) -> dict[int, tuple[float, float]]:
    """Indices lie in the dimension."""
    data, _ = tensors_of(types, 2)
    return {1: (0, data.shape[attrs.axis] - 1)}


F_DOMAIN.set("take", domain_take)


def domain_gather_nd(types: Sequence[Type], _attrs: GatherNdAttrs) -> dict[int, tuple[float, float]]:
    """Indices lie in the smallest of the dimensions."""
    data, indices = tensors_of(types, 2)
    return {1: (0, min(data.shape[: indices.shape[-1]], default=1) - 1)}


F_DOMAIN.set("gather_nd", domain_gather_nd)
