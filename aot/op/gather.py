"""Operators that read or write at computed places: take, gather, scatter, segments, one_hot, tables with a search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import prod

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.numerics.farmhash import fingerprint64
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


# stablehlo.gather: STABLEHLO_GATHER of TFLite: slices of one size, each starting where a vector of indices says.
#
# The result's dimensions in `offset_dims` run through a slice (without its `collapsed_dims`), the others through the
# indices, whose dimension `index_vector_dim` holds one vector each; its entry k is the start along dimension
# `start_index_map[k]`.  A start is moved so that the whole slice is inside.  Oracle: `kernels/stablehlo_gather.cc`.
@operator(
    "stablehlo.gather",
    "STABLEHLO_GATHER; indices at run time",
    [("data", "any", "what slices are taken of"), ("indices", "int32, int64", "where they begin")],
    OpPattern.OUT_ELEMWISE_FUSABLE,
)
class GatherAttrs:
    """The fields of StableHLO's gather."""

    offset_dims: tuple[int, ...]
    collapsed_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    index_vector_dim: int
    slice_sizes: tuple[int, ...]

    @property
    def kept(self) -> list[int]:
        """The data's dimensions that the result keeps."""
        return [i for i in range(len(self.slice_sizes)) if i not in self.collapsed_dims]

    def infer_type(self, data: TensorType, indices: TensorType) -> Type:
        """Data, int32 or int64 indices -> slices in the place of the index vectors."""
        problem = gather_misfit(data, indices, self)
        if problem or indices.dtype not in ("int32", "int64"):
            raise TypeRuleError(problem or f"gather by {indices}")
        offsets = iter([self.slice_sizes[d] for d in self.kept])
        batch = iter([n for d, n in enumerate(indices.shape) if d != self.index_vector_dim])
        rank = len(self.offset_dims) + len(indices.shape) - 1
        return TensorType(tuple(next(offsets if d in self.offset_dims else batch) for d in range(rank)), data.dtype, data.quant)

    def evaluate(self, data: Array, indices: Array, *, out_type: TensorType) -> Array:
        vectors = np.moveaxis(indices, self.index_vector_dim, -1)
        places = np.indices(out_type.shape)
        batch = tuple(places[d] for d in range(len(out_type.shape)) if d not in self.offset_dims)
        offsets = dict(zip(self.kept, (places[d] for d in sorted(self.offset_dims)), strict=True))
        position = []
        for dim, (extent, size) in enumerate(zip(data.shape, self.slice_sizes, strict=True)):
            start: Array = np.zeros(out_type.shape, np.int64)
            if dim in self.start_index_map:
                start = np.clip(vectors[(*batch, self.start_index_map.index(dim))], 0, extent - size).astype(np.int64)
            position.append(start + offsets.get(dim, 0))
        return np.asarray(data[tuple(position)]).reshape(out_type.shape)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, indices: TensorFn, *, out_type: TensorType) -> Expr:
        rank = len(out_type.shape)
        batch = [i[d] for d in range(rank) if d not in self.offset_dims]
        offsets = dict(zip(self.kept, (i[d] for d in sorted(self.offset_dims)), strict=True))
        position = []
        for dim, (extent, size) in enumerate(zip(data.shape, self.slice_sizes, strict=True)):
            at: Expr = offsets.get(dim, imm(0))
            if dim in self.start_index_map and size < extent:
                entry = list(batch)
                entry.insert(self.index_vector_dim, imm(self.start_index_map.index(dim)))
                start = clamped_index(b, indices.at(b, tuple(entry)), extent - size + 1)
                at = start + at if dim in offsets else start
            position.append(at)
        return data.at(b, tuple(position))


def gather_misfit(data: TensorType, indices: TensorType, attrs: GatherAttrs) -> str:
    """Why these types and attributes do not match; empty if they do."""
    rank, sizes, vector = len(data.shape), attrs.slice_sizes, attrs.index_vector_dim
    if len(sizes) != rank or any(not 1 <= s <= n for s, n in zip(sizes, data.shape, strict=True)):
        return f"slices {list(sizes)} of {data}"
    if not 0 <= vector < len(indices.shape) or indices.shape[vector] != len(attrs.start_index_map):
        return f"vectors of {len(attrs.start_index_map)} indices along dimension {vector} of {indices}"
    result_rank = len(attrs.offset_dims) + len(indices.shape) - 1
    collapsed = attrs.collapsed_dims
    dims = {"offset_dims": (attrs.offset_dims, result_rank), "collapsed_slice_dims": (collapsed, rank)}
    if wrong := _dims_misfit(dims | {"start_index_map": (attrs.start_index_map, rank)}):
        return wrong
    if any(sizes[d] != 1 for d in collapsed) or rank - len(collapsed) != len(attrs.offset_dims):
        return f"slices {list(sizes)} without dimensions {list(collapsed)} as dimensions {list(attrs.offset_dims)}"
    return ""


def _dims_misfit(fields: dict[str, tuple[tuple[int, ...], int]]) -> str:
    """Which field does not name different dimensions below its limit; empty if all do."""
    for name, (dims, limit) in fields.items():
        if len(set(dims)) != len(dims) or any(not 0 <= d < limit for d in dims):
            return f"{name} {list(dims)} for {limit} dimensions"
    return ""


# stablehlo.scatter: STABLEHLO_SCATTER of TFLite: a copy of a tensor with slices combined into it at index vectors.
#
# The updates' dimensions in `window_dims` run through a slice, the others through the indices, whose dimension
# `index_vector_dim` holds one vector each; its entry k is the start along the data's dimension `index_map[k]`, and a slice has
# one element along `inserted_dims`.  Elements outside are dropped.  A subgraph of at most one operator says how elements are
# combined; the reference looks only at that operator's name.  Oracle: `kernels/stablehlo_scatter.cc`.

KINDS = {
    (): "update",
    ("STABLEHLO_ADD",): "add",
    ("STABLEHLO_MULTIPLY",): "multiply",
    ("STABLEHLO_MAXIMUM",): "maximum",
    ("STABLEHLO_MINIMUM",): "minimum",
}
"""Operators of the subgraph -> how an element is combined."""


@operator(
    "stablehlo.scatter",
    "STABLEHLO_SCATTER; indices at run time",
    [("data", "any", "what is copied"), ("indices", "int32, int64", "where slices go"), ("updates", "as data", "the slices")],
)
class ScatterAttrs:
    """How elements are combined, and the fields of StableHLO's scatter."""

    kind: str
    window_dims: tuple[int, ...]
    inserted_dims: tuple[int, ...]
    index_map: tuple[int, ...]
    index_vector_dim: int

    def window_of(self, rank: int) -> list[int]:
        """The data's dimensions of the window dimensions, in order."""
        return [d for d in range(rank) if d not in self.inserted_dims]

    def infer_type(self, data: TensorType, indices: TensorType, updates: TensorType) -> Type:
        """Data, int32 or int64 indices, updates of the data's type -> the data's type."""
        problem = scatter_misfit(data, indices, updates, self)
        if problem or indices.dtype not in ("int32", "int64") or updates.dtype != data.dtype or self.kind not in KINDS.values():
            raise TypeRuleError(problem or f"scatter of {updates} into {data} by {indices}")
        return data

    def evaluate(self, data: Array, indices: Array, updates: Array, *, out_type: TensorType) -> Array:
        out = np.array(data)
        join = _COMBINED[self.kind]
        with np.errstate(all="ignore"):
            for at, place in _places(data, indices, updates, self):
                out[place] = join(out[place], updates[at])
        return out.reshape(out_type.shape)

    def domain(self, data: TensorType, _indices: TensorType, _updates: TensorType) -> dict[int, tuple[float, float]]:
        """Indices are within the smallest of the dimensions."""
        return {1: (0, min((data.shape[d] for d in self.index_map), default=1) - 1)}


def scatter_misfit(data: TensorType, indices: TensorType, updates: TensorType, attrs: ScatterAttrs) -> str:
    """Why these types and attributes do not match; empty if they do."""
    rank, vector = len(data.shape), attrs.index_vector_dim
    if not 0 <= vector < len(indices.shape) or indices.shape[vector] != len(attrs.index_map):
        return f"vectors of {len(attrs.index_map)} indices along dimension {vector} of {indices}"
    dims = {"update_window_dims": (attrs.window_dims, len(updates.shape)), "inserted_window_dims": (attrs.inserted_dims, rank)}
    if wrong := _dims_misfit(dims | {"scatter_dims_to_operand_dims": (attrs.index_map, rank)}):
        return wrong
    batch = [n for d, n in enumerate(updates.shape) if d not in attrs.window_dims]
    fits = batch == [n for d, n in enumerate(indices.shape) if d != vector]
    if not fits or rank != len(attrs.window_dims) + len(attrs.inserted_dims) or not data.size:
        return f"updates {updates} of {data} by {indices}"
    return ""


_COMBINED: dict[str, Callable[[Array, Array], Array]] = {
    "update": lambda _a, b: b,
    "add": lambda a, b: np.asarray(a + b, a.dtype),
    "multiply": lambda a, b: np.asarray(a * b, a.dtype),
    "maximum": lambda a, b: np.where(a < b, b, a),
    "minimum": lambda a, b: np.where(b < a, b, a),
}


def _places(
    data: Array, indices: Array, updates: Array, attrs: ScatterAttrs
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(element of the updates, element of the data) if that exists, in the updates' order."""
    vectors = np.moveaxis(indices, attrs.index_vector_dim, -1)
    windows = sorted(attrs.window_dims)
    through = attrs.window_of(data.ndim)
    for at in product(*map(range, updates.shape)):
        position = [0] * data.ndim
        start = vectors[tuple(at[d] for d in range(updates.ndim) if d not in attrs.window_dims)]
        for dim, number in zip(attrs.index_map, start.tolist(), strict=True):
            position[dim] = number
        for dim, d in zip(through, windows, strict=True):
            position[dim] += at[d]
        if all(0 <= p < n for p, n in zip(position, data.shape, strict=True)):
            yield at, tuple(position)


# binary_search: HASHTABLE_LOOKUP of TFLite: rows of a table by int32 keys in ascending order.
#
# The result's row is zeros, and its hit 0, if no key matches.  The search halves the range like glibc's bsearch, so that
# among equal keys the same one is found; keys are compared without the overflow of the reference's
# difference.  Oracle: `kernels/hashtable_lookup.cc`.
@operator(
    "binary_search",
    "HASHTABLE_LOOKUP; int32 keys",
    [("sought", "int32 [n]", "what is looked up"), ("keys", "int32 [k]", "in ascending order")],
)
class BinarySearchAttrs:
    """No attributes: the shapes determine everything."""

    def infer_type(self, sought: TensorType, keys: TensorType) -> Type:
        """int32 [n] sought, int32 [k] keys in ascending order -> int32 [n]: the position of each, -1 if it is missing."""
        if (sought.dtype, keys.dtype) != ("int32", "int32") or len(sought.shape) != 1 or len(keys.shape) != 1 or not keys.size:
            raise TypeRuleError(f"binary search of {sought} in {keys} is not valid")
        return TensorType(sought.shape, "int32")

    def evaluate(self, sought: Array, keys: Array, *, out_type: TensorType) -> Array:
        table = keys.tolist()
        return np.array([_found(key, table) for key in sought.tolist()], np.int32).reshape(out_type.shape)

    def element(self, b: IRBuilder, index: Index, sought: TensorFn, keys: TensorFn, *, out_type: TensorType) -> Expr:
        (i,) = index
        size = keys.shape[0]
        key = b.let("key", sought.at(b, (i,)))
        low, high = b.local("low", (1,), "int32", init=0), b.local("high", (1,), "int32", init=size)
        found = b.local("found", (1,), "int32", init=-1)
        with b.for_("step", size.bit_length()), b.if_(logical_and(found[0] < 0, low[0] < high[0])):
            middle = b.let("middle", (low[0] + high[0]) / 2)
            other = b.let("other", keys.at(b, (middle,)))
            with b.if_(equal(key, other)):
                b.store(found, 0, middle)
            with b.else_():
                with b.if_(key < other):
                    b.store(high, 0, middle)
                with b.else_():
                    b.store(low, 0, middle + 1)
        return found[0]


def _found(key: int, keys: list[int]) -> int:
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle] == key:
            return middle
        low, high = (low, middle) if key < keys[middle] else (middle + 1, high)
    return -1


# embedding_lookup_sparse: EMBEDDING_LOOKUP_SPARSE of TFLite: weighted sums of a table's rows, collected in places of a result. #
# Entry i adds weights[i] * table[ids[i]] to the place given by indices[i] without its last number.  mean and sqrtn divide a place
# by the sum of its weights, or by the root of the sum of their squares, whenever the next entry has another place, and after the
# last entry.  Entries with an invalid id or place are dropped (the reference reports an error, or is undefined).  Oracle:
# `kernels/embedding_lookup_sparse.cc`.

COMBINERS = ("SUM", "MEAN", "SQRTN")


@operator(
    "embedding_lookup_sparse",
    "EMBEDDING_LOOKUP_SPARSE; sum, mean, sqrtn",
    [
        ("ids", "int32 [n]", "rows of the table"),
        ("indices", "int32 [n, k + 1]", "the place of each entry; the last number means nothing"),
        ("weights", "float32 [n]", "of each entry"),
        ("table", "float32 [m, ...]", "rows"),
    ],
)
class EmbeddingLookupSparseAttrs:
    """How sums are divided, and the dimensions of the places."""

    combiner: str
    places: tuple[int, ...]

    def infer_type(self, ids: TensorType, indices: TensorType, weights: TensorType, table: TensorType) -> Type:
        """int32 ids [n], int32 indices [n, k + 1], float32 weights [n], float32 table [m, ...] -> [places (k of them), ...]."""
        n, depth = ids.size, len(self.places) + 1
        if (ids.dtype, indices.dtype, weights.dtype, table.dtype) != ("int32", "int32", "float32", "float32"):
            raise TypeRuleError(f"rows of {table} by {ids}, {indices}, {weights} are not valid")
        fits = (ids.shape, indices.shape, weights.shape) == ((n,), (n, depth), (n,))
        if not fits or len(table.shape) < 2 or not table.size or not n:
            raise TypeRuleError(f"rows of {table} by {ids}, {indices}, {weights} are not valid")
        if self.combiner not in COMBINERS or any(p < 1 for p in self.places):
            raise TypeRuleError(f"embedding_lookup_sparse by {self} is not valid")
        return TensorType((*self.places, *table.shape[1:]), "float32")

    def evaluate(self, ids: Array, indices: Array, weights: Array, table: Array, *, out_type: TensorType) -> Array:
        rows = table.reshape(len(table), -1)
        out = np.zeros((prod(self.places), rows.shape[1]), np.float32)
        now, number = 0, 0
        total = squares = np.float32(0)

        def divide() -> None:
            if self.combiner != "SUM" and number:
                out[now] /= total if self.combiner == "MEAN" else np.sqrt(squares)

        with np.errstate(all="ignore"):
            for i, w, index in zip(ids.tolist(), weights, indices[:, :-1].tolist(), strict=True):
                if not 0 <= i < len(rows) or any(not 0 <= k < p for k, p in zip(index, self.places, strict=True)):
                    continue
                place = 0
                for k, p in zip(index, self.places, strict=True):
                    place = place * p + k
                if place != now:
                    divide()
                    now, number, total, squares = place, 0, np.float32(0), np.float32(0)
                number, total, squares = number + 1, total + w, squares + w * w
                out[now] += rows[i] * w
            divide()
        return out.reshape(out_type.shape)

    def domain(
        self, _ids: TensorType, _indices: TensorType, _weights: TensorType, table: TensorType
    ) -> dict[int, tuple[float, float]]:
        """Ids are rows of the table, indices are within the smallest of the dimensions."""
        return {0: (0, table.shape[0] - 1), 1: (0, min(self.places, default=1) - 1)}


# lsh_projection: LSH_PROJECTION of TFLite: bits that say on which side of random planes a set of items is.
#
# An item is a row of any type, as bytes.  For each seed, a bit says whether the sum over items of weight * hash(seed, item) is
# positive, in double precision; the hash is FarmHash of the seed's four bytes and the item's, as a signed number.  Dense:
# one number per bit; sparse: the bits of a row of seeds as one number, plus row * 2^bits.  Oracle:
# `kernels/lsh_projection.cc`.
@operator(
    "lsh_projection",
    "LSH_PROJECTION; sparse and dense",
    [
        ("seeds", "float32 [rows, bits]", "of the hashes"),
        ("items", "any [n, ...]", "what is hashed"),
        ("weights?", "float32 [n]", "of the items"),
    ],
)
class LshProjectionAttrs:
    """Whether each bit is a separate number."""

    dense: bool

    def infer_type(self, *types: TensorType) -> Type:
        """float32 seeds [rows, bits], items [n, ...], perhaps float32 weights [n] -> int32 [rows], dense [rows * bits]."""
        problem = misfit(types[0], types[1], types[2] if len(types) > 2 else None, dense=self.dense)
        if problem:
            raise TypeRuleError(problem)
        rows, bits = types[0].shape
        return TensorType((rows * bits if self.dense else rows,), "int32")

    def evaluate(self, seeds: Array, items: Array, *weights: Array, out_type: TensorType) -> Array:
        count = items.shape[0]
        contents = np.ascontiguousarray(items).view(np.uint8).reshape(count, -1)
        keys = np.ascontiguousarray(seeds).view(np.uint8).reshape(-1, 4)
        score = np.zeros(len(keys))
        with np.errstate(all="ignore"):
            for i in range(count):  # the order matters: sums round
                row = np.broadcast_to(contents[i], (len(keys), contents.shape[1]))
                value = fingerprint64(np.concatenate([keys, row], axis=1)).view(np.int64).astype(np.float64)
                score += np.float64(weights[0][i]) * value if weights else value
        bits = (score > 0).astype(np.int32)
        if self.dense:
            return bits
        rows, width = seeds.shape
        signs = (bits.reshape(rows, width).astype(np.int64) << np.arange(width - 1, -1, -1)).sum(axis=1)
        return np.asarray((signs + (np.arange(rows, dtype=np.int64) << width)).astype(np.uint32).view(np.int32))


def misfit(seeds: TensorType, items: TensorType, weights: TensorType | None, *, dense: bool) -> str:
    """Why these operands do not match; empty if they do."""
    most = 32 if dense else 31
    if seeds.dtype != "float32" or len(seeds.shape) != 2 or not seeds.size or seeds.shape[1] > most:
        return f"seeds {seeds}, at most {most} a row"
    if not items.shape or not items.size:
        return f"items {items}"
    if weights is not None and (weights.dtype, weights.shape) != ("float32", items.shape[:1]):
        return f"weights {weights} of {items}"
    return ""
