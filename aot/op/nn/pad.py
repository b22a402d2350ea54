"""nn.pad: PAD and PADV2 of TFLite with constant amounts; pure movement of data.

Oracle: `reference_ops::Pad`: PAD fills with the zero point of the output (0 where it has none), PADV2 with its third operand.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.check import require_dtype, require_same_quant
from aot.op.common.half import moves_halves
from aot.op.common.move import MOVABLE
from aot.op.convert import EVERY, ConvertContext, from_tflite, operand, unsupported
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call
from aot.support.dataclass import dataclass
from aot.support.dtype import is_float
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, logical_and

DTYPES = MOVABLE


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


def _convert(ctx: ConvertContext, op: OperatorView, value: int | float) -> RelayExpr:
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, DTYPES)
    amounts = ctx.constant(op, 1)
    if amounts.shape != (len(data.shape), 2) or (amounts < 0).any():
        unsupported(ctx, op, f"paddings {amounts.tolist()} do not fit {len(data.shape)} dimensions", code="E1127")
    width = tuple((int(before), int(after)) for before, after in amounts)
    return call("nn.pad", [operand(ctx, op, 0)], PadAttrs(width, value), span=ctx.span(op))


@from_tflite("PAD", EVERY, "bitcast nn.pad")
@moves_halves
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """nn.pad with the output's zero point."""
    out = ctx.output_type(op)
    zero = 0.0 if is_float(out.dtype) else out.quant.zero_point[0] if out.quant is not None else 0
    return _convert(ctx, op, zero)


@from_tflite("PADV2", EVERY, "bitcast nn.pad")
@moves_halves
def convert_v2(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """nn.pad with the value of operand 2."""
    value = ctx.constant(op, 2)
    if value.size != 1 or str(value.dtype) != ctx.input_type(op, 0).dtype:
        unsupported(ctx, op, "the padding value must be one number of the data's type", code="E1121")
    require_same_quant(ctx, op, ctx.input_type(op, 0), ctx.input_type(op, 2))
    return _convert(ctx, op, value.ravel()[0].item())


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
