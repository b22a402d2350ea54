"""STABLEHLO_GATHER and STABLEHLO_SCATTER in full generality."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.op.common.operator import Index, operator
from aot.op.common.tensors import clamped_index
from aot.te.tensor import TensorFn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm


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
    for name, dims, limit in (
        ("offset_dims", attrs.offset_dims, result_rank),
        ("collapsed_slice_dims", collapsed, rank),
        ("start_index_map", attrs.start_index_map, rank),
    ):
        if len(set(dims)) != len(dims) or any(not 0 <= d < limit for d in dims):
            return f"{name} {list(dims)} for {limit} dimensions"
    if any(sizes[d] != 1 for d in collapsed) or rank - len(collapsed) != len(attrs.offset_dims):
        return f"slices {list(sizes)} without dimensions {list(collapsed)} as dimensions {list(attrs.offset_dims)}"
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
        join = _JOIN[self.kind]
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
    for name, dims, limit in (
        ("update_window_dims", attrs.window_dims, len(updates.shape)),
        ("inserted_window_dims", attrs.inserted_dims, rank),
        ("scatter_dims_to_operand_dims", attrs.index_map, rank),
    ):
        if len(set(dims)) != len(dims) or any(not 0 <= d < limit for d in dims):
            return f"{name} {list(dims)} for {limit} dimensions"
    batch = [n for d, n in enumerate(updates.shape) if d not in attrs.window_dims]
    fits = batch == [n for d, n in enumerate(indices.shape) if d != vector]
    if not fits or rank != len(attrs.window_dims) + len(attrs.inserted_dims) or not data.size:
        return f"updates {updates} of {data} by {indices}"
    return ""


_JOIN: dict[str, Callable[[Array, Array], Array]] = {
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
