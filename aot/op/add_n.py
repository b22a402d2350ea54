"""ADD_N: the sum of several tensors of one shape, as a chain of `add` in the order of the operands.

Oracle: `reference_ops::AddN` (float32, int32).
"""

from __future__ import annotations

from aot.frontend.view import OperatorView
from aot.ir.op import TypeRuleError
from aot.op._check import require_dtype
from aot.op.arithmetic import BinaryAttrs
from aot.op.convert import ConvertContext, from_tflite, operand
from aot.relay.expr import Expr, call


@from_tflite("ADD_N", "int32 float32", "add")
def convert(ctx: ConvertContext, op: OperatorView) -> Expr:
    """add of add of ..."""
    types = [ctx.input_type(op, i) for i in range(len(op.inputs))]
    for type_ in types:
        require_dtype(ctx, op, type_, ("float32", "int32"))
        if type_.shape != types[0].shape:
            raise TypeRuleError(f"a sum of {types[0]} and {type_}")
    total = operand(ctx, op, 0)
    for i in range(1, len(types)):
        total = call("add", [total, operand(ctx, op, i)], BinaryAttrs(), span=ctx.span(op))
    return total
