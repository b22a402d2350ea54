"""nn.pad: PAD and PADV2 of TFLite with constant amounts; pure movement of data.

Oracle: `reference_ops::Pad`: PAD fills with the zero point of the output (0 where it has none), PADV2 with its third operand.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, logical_and


@dataclass(frozen=True, slots=True)
class PadAttrs:
    """(before, after) for each dimension; `pad_value` in the data's own type."""

    pad_width: tuple[tuple[int, int], ...]
    pad_value: int | float = 0


def infer_type(types: Sequence[Type], attrs: PadAttrs) -> Type:
    """A tensor -> the same type, each extent grown by its pair."""
    (data,) = types
    if not isinstance(data, TensorType) or len(data.shape) != len(attrs.pad_width):
        raise TypeRuleError(f"pad by {attrs.pad_width} of {data}")
    if any(before < 0 or after < 0 for before, after in attrs.pad_width):
        raise TypeRuleError(f"negative padding {attrs.pad_width}")
    shape = tuple(n + before + after for n, (before, after) in zip(data.shape, attrs.pad_width, strict=True))
    return TensorType(shape, data.dtype, data.quant)


def evaluate(data: Array, *, attrs: PadAttrs, out_type: TensorType) -> Array:
    return np.pad(data, attrs.pad_width, constant_values=attrs.pad_value)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: PadAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        source, conditions = [], []
        for index, (before, after), extent in zip(i, attrs.pad_width, data.shape, strict=True):
            source.append(index - before)
            if before:
                conditions.append(index >= before)
            if after:
                conditions.append(index < before + extent)
        if not conditions:
            return data.at(b, i)
        condition = conditions[0]
        for other in conditions[1:]:
            condition = logical_and(condition, other)
        # a branch and not a select: what `data.at` appends must not run outside the image
        value = b.local("value", (1,), out_type.dtype, init=attrs.pad_value)
        with b.if_(condition):
            b.store(value, 0, data.at(b, tuple(source)))
        return value[0]

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "nn.pad",
    1,
    arguments=[("data", "any", "the operand")],
    attrs_type=PadAttrs,
    pattern=OpPattern.INJECTIVE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="PAD, PADV2; constant amounts",
)
F_TE.set("nn.pad", te_rule)
