"""Operators that read or write at computed places: take, scatter, segments, one_hot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from aot.ir.op import F_DOMAIN, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.te_rule import F_TE, TeContext
from aot.op.common.tensors import INDEX_TYPES, clamped_index, tensors_of
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Imm, cast, equal, imm, logical_and, select

# take and gather_nd: GATHER and GATHER_ND of TFLite: elements selected by indices that may be computed at run time.
#
# take: out[p, i, q] = data[p, indices[i], q] along `axis`, with the first `batch_dims` dimensions in common.  gather_nd: out[i,
# q] = data[indices[i, 0], ..., indices[i, n-1], q].  An index outside its dimension is clamped (the reference reports an error at
# run time), so that no data can make the device read elsewhere; constant indices are checked at compile
# time.  Oracles: `reference_ops::Gather`, `GatherNd`.


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
        raise TypeRuleError(f"gather_nd of {data} by {indices} is not valid")
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


# anchors: consumers may be fused, but producers of data or indices must not be computed once per use
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
    """Indices are within the dimension."""
    data, _ = tensors_of(types, 2)
    return {1: (0, data.shape[attrs.axis] - 1)}


F_DOMAIN.set("take", domain_take)


def domain_gather_nd(types: Sequence[Type], _attrs: GatherNdAttrs) -> dict[int, tuple[float, float]]:
    """Indices are within the smallest of the dimensions."""
    data, indices = tensors_of(types, 2)
    return {1: (0, min(data.shape[: indices.shape[-1]], default=1) - 1)}


F_DOMAIN.set("gather_nd", domain_gather_nd)


# one_hot: ONE_HOT of TFLite: out = on where the position along `axis` equals the index, off elsewhere.
#
# `depth` must be constant; on and off may be computed at run time.  Oracle: `kernels/one_hot.cc`.


@dataclass(frozen=True, slots=True)
class OneHotAttrs:
    """Extent and position of the new dimension."""

    depth: int
    axis: int


def infer_one_hot(types: Sequence[Type], attrs: OneHotAttrs) -> Type:
    """int32 or int64 indices, on[1], off[1] -> on's type in the indices' shape with `depth` inserted."""
    indices, on, off = tensors_of(types, 3)
    fits = indices.dtype in ("int32", "int64") and on.shape == off.shape == (1,) and on.dtype == off.dtype
    if not fits or not 0 <= attrs.axis <= len(indices.shape) or attrs.depth < 0:
        raise TypeRuleError(f"one_hot of {indices}, {on}, {off} with {attrs} is not valid")
    return TensorType((*indices.shape[: attrs.axis], attrs.depth, *indices.shape[attrs.axis :]), on.dtype, on.quant)


def evaluate_one_hot(indices: Array, on: Array, off: Array, *, attrs: OneHotAttrs, out_type: TensorType) -> Array:
    positions = np.arange(attrs.depth).reshape(-1, *[1] * (indices.ndim - attrs.axis))
    return np.asarray(np.where(np.expand_dims(indices, attrs.axis) == positions, on[0], off[0]))


def te_one_hot(_ctx: TeContext, args: Sequence[TensorFn], attrs: OneHotAttrs, out_type: TensorType) -> TensorFn:
    indices, on, off = args
    axis = attrs.axis

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        index = indices.at(b, (*i[:axis], *i[axis + 1 :]))
        values = (t.at(b, (imm(0),)) for t in (on, off))
        return select(equal(index, cast(indices.dtype, i[axis])), *values)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


# an anchor: the producer of the indices must not be computed once per position
register_op(
    "one_hot",
    3,
    arguments=[
        ("indices", "int32, int64", "the positions that are on"),
        ("on", "any, one element", "the value there"),
        ("off", "as on", "the value elsewhere"),
    ],
    attrs_type=OneHotAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_one_hot,
    evaluate=evaluate_one_hot,
    doc="ONE_HOT; constant depth",
)
F_TE.set("one_hot", te_one_hot)


def domain_one_hot(_types: Sequence[Type], attrs: OneHotAttrs) -> dict[int, tuple[float, float]]:
    """Any index is accepted; those in the new dimension set an element."""
    return {0: (0, max(attrs.depth - 1, 0))}


F_DOMAIN.set("one_hot", domain_one_hot)


# scatter_nd: SCATTER_ND of TFLite: updates added to a tensor of zeros at positions that may be computed at run time.
#
# out[indices[i, 0], ..., indices[i, n-1], q] += updates[i, q], integers wrapping, for bool "or".  An update outside the result
# is dropped (the reference reports an error at run time).  The shape must be constant.
# Oracle: `reference_ops::ScatterNd`.


@dataclass(frozen=True, slots=True)
class ScatterNdAttrs:
    """The result's shape."""

    shape: tuple[int, ...]


def infer_scatter_nd(types: Sequence[Type], attrs: ScatterNdAttrs) -> Type:
    """int32 or int64 indices [i, n], updates [i, q] -> the updates' type in `shape`, whose last dimensions are q."""
    indices, updates = tensors_of(types, 2)
    depth = indices.shape[-1] if indices.shape else 0
    if indices.dtype not in ("int32", "int64") or not 1 <= depth <= len(attrs.shape) or min(attrs.shape) < 1:
        raise TypeRuleError(f"scatter_nd by {indices} into {list(attrs.shape)} is not valid")
    if updates.shape != (*indices.shape[:-1], *attrs.shape[depth:]):
        raise TypeRuleError(f"scatter_nd of {updates} by {indices} into {list(attrs.shape)} is not valid")
    return TensorType(attrs.shape, updates.dtype, updates.quant)


def evaluate_scatter_nd(indices: Array, updates: Array, *, attrs: ScatterNdAttrs, out_type: TensorType) -> Array:
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
    infer_type=infer_scatter_nd,
    evaluate=evaluate_scatter_nd,
    doc="SCATTER_ND; constant shape, indices at run time",
)


def domain_scatter_nd(types: Sequence[Type], attrs: ScatterNdAttrs) -> dict[int, tuple[float, float]]:
    """Indices are within the smallest of the dimensions."""
    indices, _ = tensors_of(types, 2)
    return {0: (0, min(attrs.shape[: indices.shape[-1]]) - 1)}


F_DOMAIN.set("scatter_nd", domain_scatter_nd)


# unsorted_segment: UNSORTED_SEGMENT_SUM, _PROD, _MAX, _MIN, SEGMENT_SUM of TFLite: rows combined by segments.
#
# out[s] combines all rows with id s, in order; a segment without rows has the operation's neutral value.  Rows with negative ids
# are dropped, and rows with ids beyond the last segment too, for which the reference reports an error.  The number of segments
# must be constant; for SEGMENT_SUM it follows from the ids, which ascend from 0 without a gap and must be constant
# themselves.  Oracles: `reference_ops::UnsortedSegmentRef`, `reference_ops::SegmentSum`.


SEGMENT_TYPES = ("int32", "float32")


@dataclass(frozen=True, slots=True)
class SegmentAttrs:
    """How rows are combined (sum, prod, max, min), and the number of segments."""

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


def infer_segment(types: Sequence[Type], attrs: SegmentAttrs) -> Type:
    """Data [i..., q...], int32 ids [i...] -> [count, q...]."""
    data, ids = tensors_of(types, 2)
    rank = len(ids.shape)
    if data.dtype not in SEGMENT_TYPES or ids.dtype != "int32" or data.shape[:rank] != ids.shape or attrs.count < 1:
        raise TypeRuleError(f"segments of {data} by {ids} are not valid")
    return TensorType((attrs.count, *data.shape[rank:]), data.dtype)


_JOIN: dict[str, Callable[[Array, Array], Array]] = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "max": lambda a, b: np.where(a < b, b, a),
    "min": lambda a, b: np.where(b < a, b, a),
}


def evaluate_segment(data: Array, ids: Array, *, attrs: SegmentAttrs, out_type: TensorType) -> Array:
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
    infer_type=infer_segment,
    evaluate=evaluate_segment,
    doc="UNSORTED_SEGMENT_SUM, PROD, MAX, MIN; int32, float32",
)


# sparse_to_dense: SPARSE_TO_DENSE of TFLite: values at positions that may be computed at run time, a default value elsewhere.
#
# If several values have one position, the last one stays.  A position outside is skipped (the reference reports an error).  The
# shape must be constant.  Oracle: `reference_ops::SparseToDense`.


@dataclass(frozen=True, slots=True)
class SparseToDenseAttrs:
    """The result's shape."""

    shape: tuple[int, ...]


def infer_sparse_to_dense(types: Sequence[Type], attrs: SparseToDenseAttrs) -> Type:
    """Indices [n, rank], values [n] or [1], default [1] -> the values' type in `shape`."""
    indices, values, default = tensors_of(types, 3)
    if indices.dtype not in ("int32", "int64") or len(indices.shape) != 2 or indices.shape[1] != len(attrs.shape):
        raise TypeRuleError(f"sparse_to_dense by {indices} into {list(attrs.shape)} is not valid")
    if (
        values.shape not in ((indices.shape[0],), (1,))
        or default.size != 1
        or default.dtype != values.dtype
        or min(attrs.shape) < 1
    ):
        raise TypeRuleError(f"sparse_to_dense of {values} and {default} by {indices} into {list(attrs.shape)} is not valid")
    return TensorType(attrs.shape, values.dtype, values.quant)


def evaluate_sparse_to_dense(
    indices: Array, values: Array, default: Array, *, attrs: SparseToDenseAttrs, out_type: TensorType
) -> Array:
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
    infer_type=infer_sparse_to_dense,
    evaluate=evaluate_sparse_to_dense,
    doc="SPARSE_TO_DENSE; int8, uint8, int32, int64, float32",
)


# dynamic_update_slice: DYNAMIC_UPDATE_SLICE of TFLite: the data with a part replaced at a position known at run time.
#
# The part is always inside: its first position is clamped to [0, extent - part] in each dimension.
# Oracle: `kernels/dynamic_update_slice.cc`.


@dataclass(frozen=True, slots=True)
class DynamicUpdateSliceAttrs:
    """No attributes: the shapes determine everything."""


def infer_dynamic_update_slice(types: Sequence[Type], attrs: DynamicUpdateSliceAttrs) -> Type:
    """data, a part of the same rank that is no larger, int32 or int64 start positions [rank] -> the data's type."""
    data, update, start = tensors_of(types, 3)
    fits = update.dtype == data.dtype and len(update.shape) == len(data.shape) and start.shape == (len(data.shape),)
    if not fits or start.dtype not in ("int32", "int64") or any(u > n for u, n in zip(update.shape, data.shape, strict=True)):
        raise TypeRuleError(f"dynamic_update_slice of {data} by {update} at {start} is not valid")
    return data


def evaluate_dynamic_update_slice(
    data: Array, update: Array, start: Array, *, attrs: DynamicUpdateSliceAttrs, out_type: TensorType
) -> Array:
    out = data.copy()
    first = [int(np.clip(s, 0, n - u)) for s, n, u in zip(start, data.shape, update.shape, strict=True)]
    out[tuple(slice(f, f + u) for f, u in zip(first, update.shape, strict=True))] = update
    return out


def te_dynamic_update_slice(
    _ctx: TeContext, args: Sequence[TensorFn], attrs: DynamicUpdateSliceAttrs, out_type: TensorType
) -> TensorFn:
    data, update, start = args

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        inside: Expr = imm(1, "bool")
        source = []
        for axis, (n, u) in enumerate(zip(data.shape, update.shape, strict=True)):
            if n == u:
                source.append(i[axis])
                continue
            first = clamped_index(b, start.at(b, (imm(axis),)), n - u + 1)
            source.append(i[axis] - first)
            within = logical_and(i[axis] >= first, i[axis] < first + u)
            inside = within if isinstance(inside, Imm) else logical_and(inside, within)
        value = b.local("value", (1,), out_type.dtype)
        with b.if_(inside):
            b.store(value, 0, update.at(b, tuple(source)))
        with b.else_():
            b.store(value, 0, data.at(b, i))
        return value[0]

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "dynamic_update_slice",
    3,
    arguments=[
        ("data", "any", "the tensor"),
        ("update", "as data", "what is put into it"),
        ("start", "int32, int64 [rank]", "where, at run time"),
    ],
    attrs_type=DynamicUpdateSliceAttrs,
    pattern=OpPattern.INJECTIVE,
    infer_type=infer_dynamic_update_slice,
    evaluate=evaluate_dynamic_update_slice,
    doc="DYNAMIC_UPDATE_SLICE; position at run time",
)
F_TE.set("dynamic_update_slice", te_dynamic_update_slice)


def domain_dynamic_update_slice(types: Sequence[Type], _attrs: DynamicUpdateSliceAttrs) -> dict[int, tuple[float, float]]:
    """Any position is accepted, and clamped; these are inside in every dimension that has room."""
    data, update, _ = tensors_of(types, 3)
    return {2: (0, max(n - u for n, u in zip((*data.shape, 0), (*update.shape, 0), strict=True)))}


F_DOMAIN.set("dynamic_update_slice", domain_dynamic_update_slice)
