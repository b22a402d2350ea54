"""bucketize: BUCKETIZE of TFLite: in which interval between sorted boundaries a number lies.

out = how many boundaries are not above x, compared in float32; NaN lies after all.  Oracle: `kernels/bucketize.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, reduce_axis, sum, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, select

DTYPES = ("int32", "int64", "float32")


@dataclass(frozen=True, slots=True)
class BucketizeAttrs:
    """float32 numbers, sorted."""

    boundaries: tuple[float, ...]


def infer_type(types: Sequence[Type], attrs: BucketizeAttrs) -> Type:
    """Numbers -> int32 of the same shape."""
    (data,) = tensors_of(types, 1)
    if data.dtype not in DTYPES or not attrs.boundaries or list(attrs.boundaries) != sorted(attrs.boundaries):
        raise TypeRuleError(f"bucketize of {data} by {attrs.boundaries}")
    return TensorType(data.shape, "int32")


def evaluate(data: Array, *, attrs: BucketizeAttrs, out_type: TensorType) -> Array:
    below = data.astype(np.float32)[..., None] < np.array(attrs.boundaries, np.float32)
    return np.asarray((~below).sum(axis=-1), np.int32)


def te_rule(ctx: TeContext, args: Sequence[TensorFn], attrs: BucketizeAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args
    table = ctx.constant("boundaries", np.array(attrs.boundaries, np.float32))

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        x = b.let("x", cast("float32", data.at(b, i)))
        axis = reduce_axis(len(attrs.boundaries), name="k")
        return sum(b, [axis], lambda k: select(x < table.at(b, (k,)), imm(0), imm(1)))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "bucketize",
    1,
    arguments=[("data", "int32, int64, float32", "numbers")],
    attrs_type=BucketizeAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="BUCKETIZE; int32, int64, float32",
)
F_TE.set("bucketize", te_rule)
