"""Tables with a search: binary search, sparse embeddings, locality-sensitive hashing."""

from __future__ import annotations

from math import prod

import numpy as np

from aot.ir.op import Array, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.numerics.farmhash import fingerprint64
from aot.op.common.operator import Index, operator
from aot.te.tensor import TensorFn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, equal, logical_and


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
