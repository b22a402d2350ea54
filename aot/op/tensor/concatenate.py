"""concatenate: CONCATENATION of TFLite along one axis; pure movement of data.

Oracle: `reference_ops::Concatenation`; TFLite demands one quantisation of all int8 operands and the result.  Legacy uint8
operands of another quantisation pass a table of what `ConcatenationWithScaling` gives for each code.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import VARIABLE, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr


@dataclass(frozen=True, slots=True)
class ConcatenateAttrs:
    """The axis, not negative."""

    axis: int


def infer_type(types: Sequence[Type], attrs: ConcatenateAttrs) -> Type:
    """Tensors that differ in the extent of `axis` only -> their extents added."""
    first = types[0] if types else None
    if not isinstance(first, TensorType) or not 0 <= attrs.axis < len(first.shape):
        raise TypeRuleError(f"concatenate of {first} along axis {attrs.axis}")
    total = 0
    for t in types:
        if not isinstance(t, TensorType) or t.dtype != first.dtype or len(t.shape) != len(first.shape):
            raise TypeRuleError(f"concatenate of {first} and {t}")
        if any(a != b for i, (a, b) in enumerate(zip(t.shape, first.shape, strict=True)) if i != attrs.axis):
            raise TypeRuleError(f"concatenate of {first} and {t} along axis {attrs.axis}")
        total += t.shape[attrs.axis]
    shape = (*first.shape[: attrs.axis], total, *first.shape[attrs.axis + 1 :])
    return TensorType(shape, first.dtype, first.quant)


def evaluate(*tensors: Array, attrs: ConcatenateAttrs, out_type: TensorType) -> Array:
    return np.concatenate(tensors, axis=attrs.axis)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: ConcatenateAttrs, out_type: TensorType) -> TensorFn:
    axis = attrs.axis

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        # branches and not selects: what `at` appends must not run outside its tensor
        value = b.local("value", (1,), out_type.dtype)

        def choose(tensors: Sequence[TensorFn], begin: int) -> None:
            first, rest = tensors[0], tensors[1:]
            index = (*i[:axis], i[axis] - begin, *i[axis + 1 :])
            if not rest:
                b.store(value, 0, first.at(b, index))
                return
            end = begin + first.shape[axis]
            with b.if_(i[axis] < end):
                b.store(value, 0, first.at(b, index))
            with b.else_():
                choose(rest, end)

        choose([t for t in args if t.shape[axis]], 0)
        return value[0]

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "concatenate",
    VARIABLE,
    arguments=[("*tensors", "any", "the parts, of one type but for the extent of the axis")],
    attrs_type=ConcatenateAttrs,
    pattern=OpPattern.INJECTIVE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="CONCATENATION",
)
F_TE.set("concatenate", te_rule)
