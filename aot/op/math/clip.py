"""clip: clamp every element to [lo, hi] in units of the data's own type (a fused or standalone RELU on quantised values).

Oracle: the clamp at the end of TFLite's kernels (`ActivationFunctionWithMinMax`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_int
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, clamp


@dataclass(frozen=True, slots=True)
class ClipAttrs:
    """Bounds, both inclusive."""

    lo: int
    hi: int


def infer_type(types: Sequence[Type], attrs: ClipAttrs) -> Type:
    """An integer tensor -> the same type."""
    (data,) = types
    if not isinstance(data, TensorType) or not is_int(data.dtype):
        raise TypeRuleError(f"clip takes an integer tensor, not {data}")
    low, high = int_range(data.dtype)
    if not low <= attrs.lo <= attrs.hi <= high:
        raise TypeRuleError(f"clip range [{attrs.lo}, {attrs.hi}] outside {data.dtype}")
    return data


def evaluate(data: Array, *, attrs: ClipAttrs, out_type: TensorType) -> Array:
    return np.clip(data, attrs.lo, attrs.hi).astype(out_type.dtype)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: ClipAttrs, out_type: TensorType) -> TensorFn:
    def rule(b: IRBuilder, *i: Expr) -> Expr:
        return clamp(args[0].at(b, i), attrs.lo, attrs.hi)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "clip",
    1,
    arguments=[("data", "integers", "the operand")],
    attrs_type=ClipAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="clamp of a fused activation",
)
F_TE.set("clip", te_rule)
