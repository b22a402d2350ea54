"""embedding_lookup_sparse: EMBEDDING_LOOKUP_SPARSE of TFLite: weighted sums of a table's rows, gathered in places of a result.

Entry i adds weights[i] * table[ids[i]] to the place that indices[i], without its last number, says.  mean and sqrtn divide a
place by the sum of its weights, or by the root of the sum of their squares, whenever the next entry goes elsewhere, and after
the last one. Entries whose id or place lies outside are left out (the reference reports an error, or is undefined). Oracle:
`kernels/embedding_lookup_sparse.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aot.ir.op import F_DOMAIN, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.support.dataclass import dataclass

COMBINERS = ("SUM", "MEAN", "SQRTN")


@dataclass(frozen=True, slots=True)
class EmbeddingLookupSparseAttrs:
    """How sums are divided, and the dimensions of the places."""

    combiner: str
    places: tuple[int, ...]


def infer_type(types: Sequence[Type], attrs: EmbeddingLookupSparseAttrs) -> Type:
    """int32 ids [n], int32 indices [n, k + 1], float32 weights [n], float32 table [m, ...] -> [places (k of them), ...]."""
    ids, indices, weights, table = tensors_of(types, 4)
    n, depth = ids.size, len(attrs.places) + 1
    if (ids.dtype, indices.dtype, weights.dtype, table.dtype) != ("int32", "int32", "float32", "float32"):
        raise TypeRuleError(f"rows of {table} by {ids}, {indices}, {weights}")
    if (ids.shape, indices.shape, weights.shape) != ((n,), (n, depth), (n,)) or len(table.shape) < 2 or not table.size or not n:
        raise TypeRuleError(f"rows of {table} by {ids}, {indices}, {weights}")
    if attrs.combiner not in COMBINERS or any(p < 1 for p in attrs.places):
        raise TypeRuleError(f"embedding_lookup_sparse by {attrs}")
    return TensorType((*attrs.places, *table.shape[1:]), "float32")


def evaluate(
    ids: Array, indices: Array, weights: Array, table: Array, *, attrs: EmbeddingLookupSparseAttrs, out_type: TensorType
) -> Array:
    rows = table.reshape(len(table), -1)
    out = np.zeros((prod(attrs.places), rows.shape[1]), np.float32)
    now, number = 0, 0
    total = squares = np.float32(0)

    def divide() -> None:
        if attrs.combiner != "SUM" and number:
            out[now] /= total if attrs.combiner == "MEAN" else np.sqrt(squares)

    with np.errstate(all="ignore"):
        for i, w, index in zip(ids.tolist(), weights, indices[:, :-1].tolist(), strict=True):
            if not 0 <= i < len(rows) or any(not 0 <= k < p for k, p in zip(index, attrs.places, strict=True)):
                continue
            place = 0
            for k, p in zip(index, attrs.places, strict=True):
                place = place * p + k
            if place != now:
                divide()
                now, number, total, squares = place, 0, np.float32(0), np.float32(0)
            number, total, squares = number + 1, total + w, squares + w * w
            out[now] += rows[i] * w
        divide()
    return out.reshape(out_type.shape)


register_op(
    "embedding_lookup_sparse",
    4,
    arguments=[
        ("ids", "int32 [n]", "rows of the table"),
        ("indices", "int32 [n, k + 1]", "the place of each entry; the last number means nothing"),
        ("weights", "float32 [n]", "of each entry"),
        ("table", "float32 [m, ...]", "rows"),
    ],
    attrs_type=EmbeddingLookupSparseAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="EMBEDDING_LOOKUP_SPARSE; sum, mean, sqrtn",
)


def domain(types: Sequence[Type], attrs: EmbeddingLookupSparseAttrs) -> dict[int, tuple[float, float]]:
    """Ids are rows of the table, indices lie in the smallest of the dimensions."""
    *_, table = tensors_of(types, 4)
    return {0: (0, table.shape[0] - 1), 1: (0, min(attrs.places, default=1) - 1)}


F_DOMAIN.set("embedding_lookup_sparse", domain)
