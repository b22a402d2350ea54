"""binary_search: HASHTABLE_LOOKUP of TFLite: rows of a table by int32 keys that stand in ascending order.

The result's row is zeros, and its hit 0, if no key matches.  The search halves the range as C's bsearch
does in glibc, so that of equal keys the same one is found; keys are compared without the overflow of the reference's
difference. Oracle: `kernels/hashtable_lookup.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, equal, logical_and


@dataclass(frozen=True, slots=True)
class BinarySearchAttrs:
    """No attributes: the shapes determine everything."""


def infer_type(types: Sequence[Type], _attrs: BinarySearchAttrs) -> Type:
    """int32 [n] sought, int32 [k] keys in ascending order -> int32 [n]: where each is, -1 for nowhere."""
    sought, keys = tensors_of(types, 2)
    if (sought.dtype, keys.dtype) != ("int32", "int32") or len(sought.shape) != 1 or len(keys.shape) != 1 or not keys.size:
        raise TypeRuleError(f"binary search of {sought} in {keys}")
    return TensorType(sought.shape, "int32")


def _found(key: int, keys: list[int]) -> int:
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle] == key:
            return middle
        low, high = (low, middle) if key < keys[middle] else (middle + 1, high)
    return -1


def evaluate(sought: Array, keys: Array, *, attrs: BinarySearchAttrs, out_type: TensorType) -> Array:
    table = keys.tolist()
    return np.array([_found(key, table) for key in sought.tolist()], np.int32).reshape(out_type.shape)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], _attrs: BinarySearchAttrs, out_type: TensorType) -> TensorFn:
    sought, keys = args
    size = keys.shape[0]

    def rule(b: IRBuilder, i: Expr) -> Expr:
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

    return tensor_fn(out_type.shape, "int32", rule)


register_op(
    "binary_search",
    2,
    arguments=[("sought", "int32 [n]", "what is looked up"), ("keys", "int32 [k]", "in ascending order")],
    attrs_type=BinarySearchAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="HASHTABLE_LOOKUP; int32 keys",
)
F_TE.set("binary_search", te_rule)
