"""The converter of TEMPLATE_NEGATE to template.negate of `aot/op/_template.py`: copy it into the file of its family."""

from __future__ import annotations

from aot.frontend.tflite.convert import ConvertContext, from_tflite, operand, require_dtype, require_quant
from aot.frontend.view import OperatorView
from aot.op._template import NegateAttrs
from aot.relay.expr import Expr, call


@from_tflite("TEMPLATE_NEGATE", "int8", "template.negate")
def convert(ctx: ConvertContext, op: OperatorView) -> Expr:
    """Check what this version supports, compute the attributes in double precision as the reference does, build the calls."""
    data, out = ctx.input_type(op, 0), ctx.output_type(op)
    require_dtype(ctx, op, data, {"int8"})
    (_, zp_in), (_, zp) = require_quant(ctx, op, data), require_quant(ctx, op, out, what="the result")
    return call("template.negate", [operand(ctx, op, 0)], NegateAttrs(zp_in, zp, out.quant), span=ctx.span(op))
