"""full: FILL of TFLite: one value everywhere.  The shape has to be constant, the value need not be.

Oracle: `reference_ops::Fill`.
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
from aot.tir.expr import Expr, imm


@dataclass(frozen=True, slots=True)
class FullAttrs:
    """The result's shape."""

    shape: tuple[int, ...]


def infer_type(types: Sequence[Type], attrs: FullAttrs) -> Type:
    """One element -> that type in `shape`."""
    (value,) = tensors_of(types, 1)
    if value.shape != (1,) or any(n < 0 for n in attrs.shape):
        raise TypeRuleError(f"full of {value} in {list(attrs.shape)}")
    return TensorType(attrs.shape, value.dtype, value.quant)


def evaluate(value: Array, *, attrs: FullAttrs, out_type: TensorType) -> Array:
    return np.full(attrs.shape, value[0])


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: FullAttrs, out_type: TensorType) -> TensorFn:
    def rule(b: IRBuilder, *_: Expr) -> Expr:
        return args[0].at(b, (imm(0),))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "full",
    1,
    arguments=[("value", "any, one element", "what every element becomes")],
    attrs_type=FullAttrs,
    pattern=OpPattern.BROADCAST,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="FILL, ZEROS_LIKE; constant shape",
)
F_TE.set("full", te_rule)
