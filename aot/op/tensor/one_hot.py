"""one_hot: ONE_HOT of TFLite: out = on where the position along `axis` equals the index, off elsewhere.

`depth` has to be constant; on and off may come at run time.  Oracle: `kernels/one_hot.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import F_DOMAIN, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, equal, imm, select


@dataclass(frozen=True, slots=True)
class OneHotAttrs:
    """Extent and place of the new dimension."""

    depth: int
    axis: int


def infer_type(types: Sequence[Type], attrs: OneHotAttrs) -> Type:
    """int32 or int64 indices, on[1], off[1] -> on's type in the indices' shape with `depth` inserted."""
    indices, on, off = tensors_of(types, 3)
    fits = indices.dtype in ("int32", "int64") and on.shape == off.shape == (1,) and on.dtype == off.dtype
    if not fits or not 0 <= attrs.axis <= len(indices.shape) or attrs.depth < 0:
        raise TypeRuleError(f"one_hot of {indices}, {on}, {off} with {attrs}")
    return TensorType((*indices.shape[: attrs.axis], attrs.depth, *indices.shape[attrs.axis :]), on.dtype, on.quant)


def evaluate(indices: Array, on: Array, off: Array, *, attrs: OneHotAttrs, out_type: TensorType) -> Array:
    positions = np.arange(attrs.depth).reshape(-1, *[1] * (indices.ndim - attrs.axis))
    return np.asarray(np.where(np.expand_dims(indices, attrs.axis) == positions, on[0], off[0]))


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: OneHotAttrs, out_type: TensorType) -> TensorFn:
    indices, on, off = args
    axis = attrs.axis

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        index = indices.at(b, (*i[:axis], *i[axis + 1 :]))
        values = (t.at(b, (imm(0),)) for t in (on, off))
        return select(equal(index, cast(indices.dtype, i[axis])), *values)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


# an anchor: what computes the indices must not be computed once for each position
register_op(
    "one_hot",
    3,
    arguments=[
        ("indices", "int32, int64", "the positions that are on"),
        ("on", "any, one element", "the value there"),
        ("off", "as on", "the value elsewhere"),
    ],
    attrs_type=OneHotAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="ONE_HOT; constant depth",
)
F_TE.set("one_hot", te_rule)


def domain(_types: Sequence[Type], attrs: OneHotAttrs) -> dict[int, tuple[float, float]]:
    """Any index is taken; those in the new dimension set an element."""
    return {0: (0, max(attrs.depth - 1, 0))}


F_DOMAIN.set("one_hot", domain)
