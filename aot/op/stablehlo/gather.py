"""stablehlo.gather: STABLEHLO_GATHER of TFLite: slices of one size, each from where a vector of indices says.

The dimensions of the result in `offset_dims` run through a slice (without its `collapsed_dims`), the others through the indices,
whose dimension `index_vector_dim` holds one vector each; entry k of it is the start along dimension `start_index_map[k]`.
A start is brought to where the whole slice lies inside.  Oracle: `kernels/stablehlo_gather.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import clamped_index, tensors_of
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm


@dataclass(frozen=True, slots=True)
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


def misfit(data: TensorType, indices: TensorType, attrs: GatherAttrs) -> str:
    """Why these types and attributes do not go together; empty where they do."""
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


def infer_type(types: Sequence[Type], attrs: GatherAttrs) -> Type:
    """Data, int32 or int64 indices -> slices in the place of the index vectors."""
    data, indices = tensors_of(types, 2)
    problem = misfit(data, indices, attrs)
    if problem or indices.dtype not in ("int32", "int64"):
        raise TypeRuleError(problem or f"gather by {indices}")
    offsets = iter([attrs.slice_sizes[d] for d in attrs.kept])
    batch = iter([n for d, n in enumerate(indices.shape) if d != attrs.index_vector_dim])
    rank = len(attrs.offset_dims) + len(indices.shape) - 1
    return TensorType(tuple(next(offsets if d in attrs.offset_dims else batch) for d in range(rank)), data.dtype, data.quant)


def evaluate(data: Array, indices: Array, *, attrs: GatherAttrs, out_type: TensorType) -> Array:
    vectors = np.moveaxis(indices, attrs.index_vector_dim, -1)
    places = np.indices(out_type.shape)
    batch = tuple(places[d] for d in range(len(out_type.shape)) if d not in attrs.offset_dims)
    offsets = dict(zip(attrs.kept, (places[d] for d in sorted(attrs.offset_dims)), strict=True))
    position = []
    for dim, (extent, size) in enumerate(zip(data.shape, attrs.slice_sizes, strict=True)):
        start: Array = np.zeros(out_type.shape, np.int64)
        if dim in attrs.start_index_map:
            start = np.clip(vectors[(*batch, attrs.start_index_map.index(dim))], 0, extent - size).astype(np.int64)
        position.append(start + offsets.get(dim, 0))
    return np.asarray(data[tuple(position)]).reshape(out_type.shape)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: GatherAttrs, out_type: TensorType) -> TensorFn:
    data, indices = args
    rank = len(out_type.shape)

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        batch = [i[d] for d in range(rank) if d not in attrs.offset_dims]
        offsets = dict(zip(attrs.kept, (i[d] for d in sorted(attrs.offset_dims)), strict=True))
        position = []
        for dim, (extent, size) in enumerate(zip(data.shape, attrs.slice_sizes, strict=True)):
            at: Expr = offsets.get(dim, imm(0))
            if dim in attrs.start_index_map and size < extent:
                entry = list(batch)
                entry.insert(attrs.index_vector_dim, imm(attrs.start_index_map.index(dim)))
                start = clamped_index(b, indices.at(b, tuple(entry)), extent - size + 1)
                at = start + at if dim in offsets else start
            position.append(at)
        return data.at(b, tuple(position))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "stablehlo.gather",
    2,
    arguments=[("data", "any", "what slices are taken of"), ("indices", "int32, int64", "where they begin")],
    attrs_type=GatherAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="STABLEHLO_GATHER; indices at run time",
)
F_TE.set("stablehlo.gather", te_rule)
