"""lsh_projection: LSH_PROJECTION of TFLite: bits that say on which side of random planes a set of items lies.

An item is a row of any type, taken as bytes.  Of each seed a bit is whether the sum over items of weight * hash(seed, item) is
above 0, in double precision, the hash being FarmHash's, of the seed's four bytes and the item's, as a signed number.  Dense:
one number a bit; sparse: the bits of a row of seeds as one number, with row * 2^bits added.  Oracle:
`kernels/lsh_projection.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import VARIABLE, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.numerics.farmhash import fingerprint64
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LshProjectionAttrs:
    """Whether each bit is a number of its own."""

    dense: bool


def misfit(seeds: TensorType, items: TensorType, weights: TensorType | None, *, dense: bool) -> str:
    """Why these operands do not go together; empty where they do."""
    most = 32 if dense else 31
    if seeds.dtype != "float32" or len(seeds.shape) != 2 or not seeds.size or seeds.shape[1] > most:
        return f"seeds {seeds}, at most {most} a row"
    if not items.shape or not items.size:
        return f"items {items}"
    if weights is not None and (weights.dtype, weights.shape) != ("float32", items.shape[:1]):
        return f"weights {weights} of {items}"
    return ""


def infer_type(types: Sequence[Type], attrs: LshProjectionAttrs) -> Type:
    """float32 seeds [rows, bits], items [n, ...], perhaps float32 weights [n] -> int32 [rows], dense [rows * bits]."""
    found = [t for t in types if isinstance(t, TensorType)]
    problem = misfit(found[0], found[1], found[2] if len(found) > 2 else None, dense=attrs.dense)
    if problem or len(found) != len(types):
        raise TypeRuleError(problem or "an operand is no tensor")
    rows, bits = found[0].shape
    return TensorType((rows * bits if attrs.dense else rows,), "int32")


def evaluate(seeds: Array, items: Array, *weights: Array, attrs: LshProjectionAttrs, out_type: TensorType) -> Array:
    count = items.shape[0]
    contents = np.ascontiguousarray(items).view(np.uint8).reshape(count, -1)
    keys = np.ascontiguousarray(seeds).view(np.uint8).reshape(-1, 4)
    score = np.zeros(len(keys))
    with np.errstate(all="ignore"):
        for i in range(count):  # in this order: sums round
            row = np.broadcast_to(contents[i], (len(keys), contents.shape[1]))
            value = fingerprint64(np.concatenate([keys, row], axis=1)).view(np.int64).astype(np.float64)
            score += np.float64(weights[0][i]) * value if weights else value
    bits = (score > 0).astype(np.int32)
    if attrs.dense:
        return bits
    rows, width = seeds.shape
    signs = (bits.reshape(rows, width).astype(np.int64) << np.arange(width - 1, -1, -1)).sum(axis=1)
    return np.asarray((signs + (np.arange(rows, dtype=np.int64) << width)).astype(np.uint32).view(np.int32))


register_op(
    "lsh_projection",
    VARIABLE,
    arguments=[
        ("seeds", "float32 [rows, bits]", "of the hashes"),
        ("items", "any [n, ...]", "what is hashed"),
        ("weights?", "float32 [n]", "of the items"),
    ],
    attrs_type=LshProjectionAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="LSH_PROJECTION; sparse and dense",
)
