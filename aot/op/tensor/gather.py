"""Operators that read or write at computed places: take, scatter, segments, one_hot."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.op.common.operator import Index, operator
from aot.op.common.tensors import INDEX_TYPES, clamped_index
from aot.te.tensor import TensorFn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Imm, cast, equal, imm, logical_and, select


# take and gather_nd: GATHER and GATHER_ND of TFLite: elements selected by indices that may be computed at run time.
#
# take: out[p, i, q] = data[p, indices[i], q] along `axis`, with the first `batch_dims` dimensions in common.  gather_nd: out[i,
# q] = data[indices[i, 0], ..., indices[i, n-1], q].  An index outside its dimension is clamped (the reference reports an error at
# run time), so that no data can make the device read elsewhere; constant indices are checked at compile
# time.  Both are anchors: consumers may be fused, but producers of data or indices must not be computed once per use.
# Oracles: `reference_ops::Gather`, `GatherNd`.
@operator(
    "take",
    "GATHER, EMBEDDING_LOOKUP; indices at run time",
    [("data", "any", "the table"), ("indices", "int32, int64, int16", "which entries, at run time")],
    OpPattern.OUT_ELEMWISE_FUSABLE,
)
class TakeAttrs:
    """The dimension that the indices replace, and how many leading dimensions data and indices share."""

    axis: int
    batch_dims: int = 0

    def infer_type(self, data: TensorType, indices: TensorType) -> Type:
        """data[batch, p, n, q], indices[batch, i] -> [batch, p, i, q]."""
        batch, axis = self.batch_dims, self.axis
        fits = 0 <= batch <= min(axis, len(indices.shape)) and axis < len(data.shape) and indices.dtype in INDEX_TYPES
        if not fits or data.shape[:batch] != indices.shape[:batch] or (not data.shape[axis] and indices.size):
            raise TypeRuleError(f"take of {data} by {indices} along {self}")
        return TensorType((*data.shape[:axis], *indices.shape[batch:], *data.shape[axis + 1 :]), data.dtype, data.quant)

    def evaluate(self, data: Array, indices: Array, *, out_type: TensorType) -> Array:
        batch, axis = self.batch_dims, self.axis
        if data.size == 0 or indices.size == 0:
            return np.zeros(out_type.shape, data.dtype)
        chosen = np.clip(indices, 0, data.shape[axis] - 1).astype(np.int64)
        lead = int(np.prod(data.shape[:batch]))
        parts = [
            np.take(d, i, axis=axis - batch)
            for d, i in zip(data.reshape(lead, *data.shape[batch:]), chosen.reshape(lead, *indices.shape[batch:]), strict=True)
        ]
        return np.stack(parts).reshape(out_type.shape)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, indices: TensorFn, *, out_type: TensorType) -> Expr:
        batch, axis = self.batch_dims, self.axis
        inner = len(indices.shape) - batch
        index = indices.at(b, (*i[:batch], *i[axis : axis + inner]))
        return data.at(b, (*i[:axis], clamped_index(b, index, data.shape[axis]), *i[axis + inner :]))

    def domain(self, data: TensorType, _: TensorType) -> dict[int, tuple[float, float]]:
        """Indices are within the dimension."""
        return {1: (0, data.shape[self.axis] - 1)}


@operator(
    "gather_nd",
    "GATHER_ND; indices at run time",
    [("data", "any", "the table"), ("indices", "int32, int64, int16 [..., K]", "which entries, at run time")],
    OpPattern.OUT_ELEMWISE_FUSABLE,
)
class GatherNdAttrs:
    """No attributes: the shapes determine everything."""

    def infer_type(self, data: TensorType, indices: TensorType) -> Type:
        """data[n.., q], indices[i, number of n] -> [i, q]."""
        if not indices.shape or indices.shape[-1] > len(data.shape) or indices.dtype not in INDEX_TYPES:
            raise TypeRuleError(f"gather_nd of {data} by {indices} is not valid")
        return TensorType((*indices.shape[:-1], *data.shape[indices.shape[-1] :]), data.dtype, data.quant)

    def evaluate(self, data: Array, indices: Array, *, out_type: TensorType) -> Array:
        if out_type.size == 0:
            return np.zeros(out_type.shape, data.dtype)
        positions = [np.clip(indices[..., k], 0, data.shape[k] - 1).astype(np.int64) for k in range(indices.shape[-1])]
        return np.ascontiguousarray(data[tuple(positions)]).reshape(out_type.shape)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, indices: TensorFn, *, out_type: TensorType) -> Expr:
        outer = len(indices.shape) - 1
        numbers = [indices.at(b, (*i[:outer], imm(k))) for k in range(indices.shape[-1])]
        position = [clamped_index(b, n, extent) for n, extent in zip(numbers, data.shape, strict=False)]
        return data.at(b, (*position, *i[outer:]))

    def domain(self, data: TensorType, indices: TensorType) -> dict[int, tuple[float, float]]:
        """Indices are within the smallest of the dimensions."""
        return {1: (0, min(data.shape[: indices.shape[-1]], default=1) - 1)}


# one_hot: ONE_HOT of TFLite: out = on where the position along `axis` equals the index, off elsewhere.
#
# `depth` must be constant; on and off may be computed at run time.  An anchor, as above.  Oracle: `kernels/one_hot.cc`.
@operator(
    "one_hot",
    "ONE_HOT; constant depth",
    [
        ("indices", "int32, int64", "the positions that are on"),
        ("on", "any, one element", "the value there"),
        ("off", "as on", "the value elsewhere"),
    ],
    OpPattern.OUT_ELEMWISE_FUSABLE,
)
class OneHotAttrs:
    """Extent and position of the new dimension."""

    depth: int
    axis: int

    def infer_type(self, indices: TensorType, on: TensorType, off: TensorType) -> Type:
        """int32 or int64 indices, on[1], off[1] -> on's type in the indices' shape with `depth` inserted."""
        fits = indices.dtype in ("int32", "int64") and on.shape == off.shape == (1,) and on.dtype == off.dtype
        if not fits or not 0 <= self.axis <= len(indices.shape) or self.depth < 0:
            raise TypeRuleError(f"one_hot of {indices}, {on}, {off} with {self} is not valid")
        return TensorType((*indices.shape[: self.axis], self.depth, *indices.shape[self.axis :]), on.dtype, on.quant)

    def evaluate(self, indices: Array, on: Array, off: Array, *, out_type: TensorType) -> Array:
        positions = np.arange(self.depth).reshape(-1, *[1] * (indices.ndim - self.axis))
        return np.asarray(np.where(np.expand_dims(indices, self.axis) == positions, on[0], off[0]))

    def element(self, b: IRBuilder, i: Index, indices: TensorFn, on: TensorFn, off: TensorFn, *, out_type: TensorType) -> Expr:
        axis = self.axis
        index = indices.at(b, (*i[:axis], *i[axis + 1 :]))
        values = (t.at(b, (imm(0),)) for t in (on, off))
        return select(equal(index, cast(indices.dtype, i[axis])), *values)

    def domain(self, *types: TensorType) -> dict[int, tuple[float, float]]:
        """Any index is accepted; those in the new dimension set an element."""
        return {0: (0, max(self.depth - 1, 0))}


# scatter_nd: SCATTER_ND of TFLite: updates added to a tensor of zeros at positions that may be computed at run time.
#
# out[indices[i, 0], ..., indices[i, n-1], q] += updates[i, q], integers wrapping, for bool "or".  An update outside the result
# is dropped (the reference reports an error at run time).  The shape must be constant.
# Oracle: `reference_ops::ScatterNd`.
@operator(
    "scatter_nd",
    "SCATTER_ND; constant shape, indices at run time",
    [("indices", "int32 [..., K]", "positions in the result"), ("updates", "any", "what is added there")],
)
class ScatterNdAttrs:
    """The result's shape."""

    shape: tuple[int, ...]

    def infer_type(self, indices: TensorType, updates: TensorType) -> Type:
        """int32 or int64 indices [i, n], updates [i, q] -> the updates' type in `shape`, whose last dimensions are q."""
        depth = indices.shape[-1] if indices.shape else 0
        if indices.dtype not in ("int32", "int64") or not 1 <= depth <= len(self.shape) or min(self.shape) < 1:
            raise TypeRuleError(f"scatter_nd by {indices} into {list(self.shape)} is not valid")
        if updates.shape != (*indices.shape[:-1], *self.shape[depth:]):
            raise TypeRuleError(f"scatter_nd of {updates} by {indices} into {list(self.shape)} is not valid")
        return TensorType(self.shape, updates.dtype, updates.quant)

    def evaluate(self, indices: Array, updates: Array, *, out_type: TensorType) -> Array:
        depth = indices.shape[-1]
        outer, inner = self.shape[:depth], prod(self.shape[depth:])
        positions = indices.reshape(-1, depth).astype(np.int64)
        inside = ((positions >= 0) & (positions < np.array(outer))).all(axis=1)
        rows = np.ravel_multi_index(tuple(positions[inside].T), outer)
        out = np.zeros((prod(outer), inner), updates.dtype)
        with np.errstate(all="ignore"):
            np.add.at(out, rows, updates.reshape(-1, inner)[inside])
        return out.reshape(self.shape)

    def domain(self, indices: TensorType, _: TensorType) -> dict[int, tuple[float, float]]:
        """Indices are within the smallest of the dimensions."""
        return {0: (0, min(self.shape[: indices.shape[-1]]) - 1)}


# unsorted_segment: UNSORTED_SEGMENT_SUM, _PROD, _MAX, _MIN, SEGMENT_SUM of TFLite: rows combined by segments.
#
# out[s] combines all rows with id s, in order; a segment without rows has the operation's neutral value.  Rows with negative ids
# are dropped, and rows with ids beyond the last segment too, for which the reference reports an error.  The number of segments
# must be constant; for SEGMENT_SUM it follows from the ids, which ascend from 0 without a gap and must be constant
# themselves.  Oracles: `reference_ops::UnsortedSegmentRef`, `reference_ops::SegmentSum`.


SEGMENT_TYPES = ("int32", "float32")


@operator(
    "unsorted_segment",
    "UNSORTED_SEGMENT_SUM, PROD, MAX, MIN; int32, float32",
    [("data", "int32, float32 [i..., q...]", "rows"), ("ids", "int32 [i...]", "the segment of each row")],
)
class SegmentAttrs:
    """How rows are combined (sum, prod, max, min), and the number of segments."""

    kind: str
    count: int

    def infer_type(self, data: TensorType, ids: TensorType) -> Type:
        """Data [i..., q...], int32 ids [i...] -> [count, q...]."""
        rank = len(ids.shape)
        if data.dtype not in SEGMENT_TYPES or ids.dtype != "int32" or data.shape[:rank] != ids.shape or self.count < 1:
            raise TypeRuleError(f"segments of {data} by {ids} are not valid")
        return TensorType((self.count, *data.shape[rank:]), data.dtype)

    def evaluate(self, data: Array, ids: Array, *, out_type: TensorType) -> Array:
        out = np.full((self.count, prod(out_type.shape[1:])), initial(self.kind, out_type.dtype), data.dtype)
        with np.errstate(all="ignore"):
            for row, segment in zip(data.reshape(ids.size, -1), ids.ravel().tolist(), strict=True):
                if 0 <= segment < self.count:
                    out[segment] = _JOIN[self.kind](out[segment], row)
        return out.reshape(out_type.shape)


def initial(kind: str, dtype: str) -> int | float:
    """The value of a segment without rows."""
    if kind in ("sum", "prod"):
        return int(kind == "prod") if dtype == "int32" else float(kind == "prod")
    if dtype == "int32":
        return -(1 << 31) if kind == "max" else (1 << 31) - 1
    largest = float(np.finfo(np.float32).max)
    return -largest if kind == "max" else largest


_JOIN: dict[str, Callable[[Array, Array], Array]] = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "max": lambda a, b: np.where(a < b, b, a),
    "min": lambda a, b: np.where(b < a, b, a),
}


# sparse_to_dense: SPARSE_TO_DENSE of TFLite: values at positions that may be computed at run time, a default value elsewhere.
#
# If several values have one position, the last one stays.  A position outside is skipped (the reference reports an error).  The
# shape must be constant.  Oracle: `reference_ops::SparseToDense`.
@operator(
    "sparse_to_dense",
    "SPARSE_TO_DENSE; int8, uint8, int32, int64, float32",
    [
        ("indices", "int32, int64 [n, rank]", "positions"),
        ("values", "[n] or [1]", "what is put there"),
        ("default", "[1]", "what is elsewhere"),
    ],
)
class SparseToDenseAttrs:
    """The result's shape."""

    shape: tuple[int, ...]

    def infer_type(self, indices: TensorType, values: TensorType, default: TensorType) -> Type:
        """Indices [n, rank], values [n] or [1], default [1] -> the values' type in `shape`."""
        if indices.dtype not in ("int32", "int64") or len(indices.shape) != 2 or indices.shape[1] != len(self.shape):
            raise TypeRuleError(f"sparse_to_dense by {indices} into {list(self.shape)} is not valid")
        if (
            values.shape not in ((indices.shape[0],), (1,))
            or default.size != 1
            or default.dtype != values.dtype
            or min(self.shape) < 1
        ):
            raise TypeRuleError(f"sparse_to_dense of {values} and {default} by {indices} into {list(self.shape)} is not valid")
        return TensorType(self.shape, values.dtype, values.quant)

    def evaluate(self, indices: Array, values: Array, default: Array, *, out_type: TensorType) -> Array:
        out = np.full(self.shape, default.ravel()[0], values.dtype)
        for i, position in enumerate(indices.tolist()):
            if all(0 <= p < n for p, n in zip(position, self.shape, strict=True)):
                out[tuple(position)] = values[i if len(values) > 1 else 0]
        return out


# dynamic_update_slice: DYNAMIC_UPDATE_SLICE of TFLite: the data with a part replaced at a position known at run time.
#
# The part is always inside: its first position is clamped to [0, extent - part] in each dimension.
# Oracle: `kernels/dynamic_update_slice.cc`.
@operator(
    "dynamic_update_slice",
    "DYNAMIC_UPDATE_SLICE; position at run time",
    [
        ("data", "any", "the tensor"),
        ("update", "as data", "what is put into it"),
        ("start", "int32, int64 [rank]", "where, at run time"),
    ],
    OpPattern.INJECTIVE,
)
class DynamicUpdateSliceAttrs:
    """No attributes: the shapes determine everything."""

    def infer_type(self, data: TensorType, update: TensorType, start: TensorType) -> Type:
        """data, a part of the same rank that is no larger, int32 or int64 start positions [rank] -> the data's type."""
        fits = update.dtype == data.dtype and len(update.shape) == len(data.shape) and start.shape == (len(data.shape),)
        if not fits or start.dtype not in ("int32", "int64") or any(u > n for u, n in zip(update.shape, data.shape, strict=True)):
            raise TypeRuleError(f"dynamic_update_slice of {data} by {update} at {start} is not valid")
        return data

    def evaluate(self, data: Array, update: Array, start: Array, *, out_type: TensorType) -> Array:
        out = data.copy()
        first = [int(np.clip(s, 0, n - u)) for s, n, u in zip(start, data.shape, update.shape, strict=True)]
        out[tuple(slice(f, f + u) for f, u in zip(first, update.shape, strict=True))] = update
        return out

    def element(self, b: IRBuilder, i: Index, data: TensorFn, update: TensorFn, start: TensorFn, *, out_type: TensorType) -> Expr:
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

    def domain(self, data: TensorType, update: TensorType, _: TensorType) -> dict[int, tuple[float, float]]:
        """Any position is accepted, and clamped; these are inside in every dimension that has room."""
        return {2: (0, max(n - u for n, u in zip((*data.shape, 0), (*update.shape, 0), strict=True)))}
