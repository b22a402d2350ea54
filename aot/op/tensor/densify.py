"""DENSIFY: the zeros of a sparse constant are put in where the constant is read, so nothing is left to do.

Oracle: `kernels/densify.cc`.
"""

from __future__ import annotations

from aot.frontend.view import OperatorView
from aot.op.common.check import require_dtype
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.relay.expr import Constant

DTYPES = ("int8", "float16", "float32")


@from_tflite("DENSIFY", "int8 float16 float32", "")
def convert(ctx: ConvertContext, op: OperatorView) -> Constant:
    """The constant itself."""
    require_dtype(ctx, op, ctx.input_type(op, 0), DTYPES)
    value = operand(ctx, op, 0)
    if not isinstance(value, Constant):
        unsupported(ctx, op, "only constants can be sparse", code="E1204")
    return value
