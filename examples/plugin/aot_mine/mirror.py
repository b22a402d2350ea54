"""mine.mirror: the custom operator Mine of our models, out = -1 - x on int8, which maps -128 to 127 and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.frontend.tflite.convert import ConvertContext, from_tflite, operand, require_dtype
from aot.frontend.tflite.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.te_rule import F_TE, TeContext
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm


def infer_type(types: Sequence[Type], _attrs: None) -> Type:
    """int8 -> int8 of the same shape."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "int8":
        raise TypeRuleError(f"mine.mirror takes an int8 tensor, not {data}")
    return data


def evaluate(data: Array, *, attrs: None, out_type: TensorType) -> Array:
    """The meaning in numpy."""
    return (-1 - data.astype(np.int32)).astype(np.int8)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: None, out_type: TensorType) -> TensorFn:
    """One element, for fusing with others and for any core."""

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        return cast("int8", imm(-1) - cast("int32", args[0].at(b, i)))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


@from_tflite("CUSTOM:Mine", "int8", "mine.mirror")
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """From the operator in the file."""
    require_dtype(ctx, op, ctx.input_type(op, 0), {"int8"})
    return call("mine.mirror", [operand(ctx, op, 0)], span=ctx.span(op))


register_op(
    "mine.mirror",
    1,
    arguments=[("data", "int8", "the operand")],
    attrs_type=None,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="CUSTOM:Mine; int8",
)
F_TE.set("mine.mirror", te_rule)
