"""The converter of TEMPLATE_NEGATE to template.negate of `aot/op/_template.py`: copy it into the file of its family."""

from __future__ import annotations

from aot.frontend.tflite.convert import Operator, converter
from aot.op._template import NegateAttrs
from aot.relay.expr import Expr


@converter("TEMPLATE_NEGATE", "int8", "template.negate")
def convert(op: Operator) -> Expr:
    """Check what this version supports, compute the attributes in double precision as the reference does, build the calls."""
    data, out = op.type(0, {"int8"}), op.result_type()
    (_, zp_in), (_, zp) = op.quant(data), op.quant(out, what="the result")
    return op.call("template.negate", [op.operand(0)], NegateAttrs(zp_in, zp, out.quant))
