"""STABLEHLO_ADD, _MULTIPLY, _MAXIMUM, _MINIMUM, _AND and _SHIFT_LEFT of TFLite: plain numbers of one shape.

Integers wrap.  A distance that is shifted by is from 0 to 31, whatever the width of the type; what lies outside counts as the
nearest inside (the reference is undefined there).  Of a NaN and a number, maximum and minimum are the first operand, unlike
those of MAXIMUM and MINIMUM. Oracles: `kernels/stablehlo_elementwise.h`, `stablehlo_shift_left.cc`; the last two operators are
in LiteRT's full set of kernels alone.
"""

from __future__ import annotations

from aot.frontend.view import OperatorView
from aot.op.common.check import require_dtype
from aot.op.common.half import widens_halves
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.math.arithmetic import BINARY, BinaryAttrs
from aot.op.math.compare import CompareAttrs
from aot.op.math.select import SelectAttrs
from aot.relay.expr import Expr, call

DTYPES = ("int32", "int64", "float32")


@from_tflite("STABLEHLO_ADD", "int32 int64 float16 float32", "add cast")
@from_tflite("STABLEHLO_MULTIPLY", "int32 int64 float16 float32", "cast multiply")
@from_tflite("STABLEHLO_MAXIMUM", "int32 int64 float16 float32", "cast less select")
@from_tflite("STABLEHLO_MINIMUM", "int32 int64 float16 float32", "cast less select")
@widens_halves
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


@from_tflite("STABLEHLO_AND", "bool int8 uint8 int16 uint16 int32 uint32 int64", "bitwise_and logical_and")
@from_tflite("STABLEHLO_SHIFT_LEFT", "int8 int16 int32", "left_shift")
def convert_bits(ctx: ConvertContext, op: OperatorView) -> Expr:
    """Bit by bit."""
    a, b = ctx.input_type(op, 0), ctx.input_type(op, 1)
    name = "left_shift" if op.opcode == "STABLEHLO_SHIFT_LEFT" else "logical_and" if a.dtype == "bool" else "bitwise_and"
    require_dtype(ctx, op, a, ("bool",) if name == "logical_and" else BINARY[name].dtypes)
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        unsupported(ctx, op, f"{a} and {b} are not alike", code="E1207")
    return call(name, [operand(ctx, op, 0), operand(ctx, op, 1)], BinaryAttrs(), span=ctx.span(op))
