"""STABLEHLO_ADD, STABLEHLO_MULTIPLY, STABLEHLO_MAXIMUM and STABLEHLO_MINIMUM of TFLite: plain numbers of one shape.

Integers wrap.  Of a NaN and a number, maximum and minimum are the first operand, unlike those of MAXIMUM and MINIMUM.
Oracle: `kernels/stablehlo_elementwise.h`.
"""

from __future__ import annotations

from aot.frontend.view import OperatorView
from aot.op.common.check import require_dtype
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.math.arithmetic import BinaryAttrs
from aot.op.math.compare import CompareAttrs
from aot.op.math.select import SelectAttrs
from aot.relay.expr import Expr, call

DTYPES = ("int32", "int64", "float32")


@from_tflite("STABLEHLO_ADD", "int32 int64 float32", "add")
@from_tflite("STABLEHLO_MULTIPLY", "int32 int64 float32", "multiply")
@from_tflite("STABLEHLO_MAXIMUM", "int32 int64 float32", "less select")
@from_tflite("STABLEHLO_MINIMUM", "int32 int64 float32", "less select")
def convert(ctx: ConvertContext, op: OperatorView) -> Expr:
    """The arithmetic operator, or a choice by a comparison."""
    a, b, span = ctx.input_type(op, 0), ctx.input_type(op, 1), ctx.span(op)
    require_dtype(ctx, op, a, DTYPES)
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        unsupported(ctx, op, f"{a} and {b} are not alike", code="E1207")
    x, y = operand(ctx, op, 0), operand(ctx, op, 1)
    if op.opcode in ("STABLEHLO_ADD", "STABLEHLO_MULTIPLY"):
        return call("add" if op.opcode == "STABLEHLO_ADD" else "multiply", [x, y], BinaryAttrs(), span=span)
    first, second = (x, y) if op.opcode == "STABLEHLO_MAXIMUM" else (y, x)
    return call("select", [call("less", [first, second], CompareAttrs(), span=span), y, x], SelectAttrs(), span=span)
