"""stablehlo.scatter: STABLEHLO_SCATTER of TFLite: a copy of a tensor with slices joined into it where index vectors say.

The dimensions of the updates in `window_dims` run through a slice, the others through the indices, whose dimension
`index_vector_dim` holds one vector each; entry k of it is the start along the data's dimension `index_map[k]`, and a slice has
one element along `inserted_dims`.  Elements outside are left out.  The file says how an element is joined by a subgraph of one
operator at most; the reference looks at its name alone.  Oracle: `kernels/stablehlo_scatter.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np

from aot.ir.op import F_DOMAIN, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.support.dataclass import dataclass

KINDS = {
    (): "update",
    ("STABLEHLO_ADD",): "add",
    ("STABLEHLO_MULTIPLY",): "multiply",
    ("STABLEHLO_MAXIMUM",): "maximum",
    ("STABLEHLO_MINIMUM",): "minimum",
}
"""Operators of the subgraph -> how an element is joined."""


@dataclass(frozen=True, slots=True)
class ScatterAttrs:
    """How elements are joined, and the fields of StableHLO's scatter."""

    kind: str
    window_dims: tuple[int, ...]
    inserted_dims: tuple[int, ...]
    index_map: tuple[int, ...]
    index_vector_dim: int

    def window_of(self, rank: int) -> list[int]:
        """The data's dimensions that the window dimensions run through, in order."""
        return [d for d in range(rank) if d not in self.inserted_dims]


def misfit(data: TensorType, indices: TensorType, updates: TensorType, attrs: ScatterAttrs) -> str:
    """Why these types and attributes do not go together; empty where they do."""
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


def infer_type(types: Sequence[Type], attrs: ScatterAttrs) -> Type:
    """Data, int32 or int64 indices, updates of the data's type -> the data's type."""
    data, indices, updates = tensors_of(types, 3)
    problem = misfit(data, indices, updates, attrs)
    if problem or indices.dtype not in ("int32", "int64") or updates.dtype != data.dtype or attrs.kind not in KINDS.values():
        raise TypeRuleError(problem or f"scatter of {updates} into {data} by {indices}")
    return data


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
    """(element of the updates, element of the data), where that exists, in the updates' order."""
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


def evaluate(data: Array, indices: Array, updates: Array, *, attrs: ScatterAttrs, out_type: TensorType) -> Array:
    out = np.array(data)
    join = _JOIN[attrs.kind]
    with np.errstate(all="ignore"):
        for at, place in _places(data, indices, updates, attrs):
            out[place] = join(out[place], updates[at])
    return out.reshape(out_type.shape)


register_op(
    "stablehlo.scatter",
    3,
    arguments=[
        ("data", "any", "what is copied"),
        ("indices", "int32, int64", "where slices go"),
        ("updates", "as data", "the slices"),
    ],
    attrs_type=ScatterAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="STABLEHLO_SCATTER; indices at run time",
)


def domain(types: Sequence[Type], attrs: ScatterAttrs) -> dict[int, tuple[float, float]]:
    """Indices lie in the smallest of the dimensions."""
    data, _, _ = tensors_of(types, 3)
    return {1: (0, min((data.shape[d] for d in attrs.index_map), default=1) - 1)}


F_DOMAIN.set("stablehlo.scatter", domain)
