"""qnn.dequantize: DEQUANTIZE of TFLite, int8, uint8, int16 or float16 to float32; of constants also int4.

out = scale * (q - zero_point).  The reference multiplies in double and rounds to float32; a float32 product is the same number,
since a 24-bit scale times a 9-bit or 16-bit integer is exact before that one rounding.  Oracle: `reference_ops::Dequantize`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.check import require_dtype, require_quant
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.math.cast import CastAttrs
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Constant, call, const
from aot.relay.expr import Expr as RelayExpr
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm

DTYPES = ("int8", "uint8", "int16")


@dataclass(frozen=True, slots=True)
class DequantizeAttrs:
    """Parameters of the data."""

    scale: float
    zero_point: int


def infer_type(types: Sequence[Type], attrs: DequantizeAttrs) -> Type:
    """int8, uint8 or int16 -> float32 of the same shape."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype not in DTYPES:
        raise TypeRuleError(f"dequantize takes an int8, uint8 or int16 tensor, not {data}")
    return data.with_dtype("float32")


def evaluate(data: Array, *, attrs: DequantizeAttrs, out_type: TensorType) -> Array:
    return (attrs.scale * (data.astype(np.float64) - attrs.zero_point)).astype(np.float32)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: DequantizeAttrs, out_type: TensorType) -> TensorFn:
    def rule(b: IRBuilder, *i: Expr) -> Expr:
        centred = cast("int32", args[0].at(b, i)) - attrs.zero_point
        return cast("float32", centred) * imm(attrs.scale, "float32")

    return tensor_fn(out_type.shape, out_type.dtype, rule)


@from_tflite("DEQUANTIZE", "int4 int8 uint8 int16 float16", "qnn.dequantize cast")
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """qnn.dequantize, of float16 a cast; of constants (weights stored as float16 or integers, also with a scale a channel) their
    value, with a note of how they are stored."""
    data = ctx.input_type(op, 0)
    x = operand(ctx, op, 0)
    if isinstance(x, Constant):
        return _constant(ctx, op, x)
    require_dtype(ctx, op, data, (*DTYPES, "float16"))
    require_dtype(ctx, op, ctx.output_type(op), ("float32",), what="a result")
    if data.dtype == "float16":
        return call("cast", [x], CastAttrs("float32"), span=ctx.span(op))
    return call("qnn.dequantize", [x], DequantizeAttrs(*require_quant(ctx, op, data, may_be_zero=True)), span=ctx.span(op))


def _constant(ctx: ConvertContext, op: OperatorView, x: Constant) -> Constant:
    """The float32 values of float16 numbers, or of integers with one scale or one for each index of an axis."""
    value = _value(ctx, op, x)
    return replace(value, stored=x.type)


def _value(ctx: ConvertContext, op: OperatorView, x: Constant) -> Constant:
    require_dtype(ctx, op, x.type, (*DTYPES, "int4", "float16"))
    require_dtype(ctx, op, ctx.output_type(op), ("float32",), what="a result")
    if x.type.dtype == "float16":
        return const(x.data.astype(np.float32), span=ctx.span(op))
    quant, shape = x.type.quant, x.type.shape
    if quant is None or not quant.is_per_channel:
        attrs = DequantizeAttrs(*require_quant(ctx, op, x.type, may_be_zero=True))
        return const(evaluate(x.data, attrs=attrs, out_type=x.type.with_dtype("float32")), span=ctx.span(op))
    require_dtype(ctx, op, x.type, ("int4", "int8", "uint8"), what="data with a scale a channel")
    axis = quant.axis
    assert axis is not None
    if not 0 <= axis < len(shape) or len(quant.scale) != shape[axis]:
        unsupported(ctx, op, f"{len(quant.scale)} scales along axis {axis} do not match {list(shape)}", code="E1223")
    along = tuple(-1 if a == axis else 1 for a in range(len(shape)))
    scale = np.asarray(quant.scale, np.float32).reshape(along)
    centred = x.data.astype(np.int32) - np.asarray(quant.zero_point, np.int32).reshape(along)
    return const(scale * centred.astype(np.float32), span=ctx.span(op))


register_op(
    "qnn.dequantize",
    1,
    arguments=[("data", "int8, uint8, int16", "quantised values")],
    attrs_type=DequantizeAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="DEQUANTIZE; int8, uint8, int16 to float32",
)
F_TE.set("qnn.dequantize", te_rule)
