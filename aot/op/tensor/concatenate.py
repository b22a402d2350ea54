"""concatenate: CONCATENATION of TFLite along one axis; pure movement of data.

Oracle: `reference_ops::Concatenation`; TFLite demands one quantisation of all int8 operands and the result.  Legacy uint8
operands of another quantisation pass a table of what `ConcatenationWithScaling` gives for each code.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import VARIABLE, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type, per_tensor
from aot.numerics.fixed_point import round_half_away
from aot.op.common.check import require_dtype, require_quant, require_same_quant
from aot.op.common.move import MOVABLE
from aot.op.convert import EVERY, ConvertContext, from_tflite, operand, unsupported
from aot.op.qnn.lut import LutAttrs
from aot.op.qnn.quantize import Requantize8Attrs
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr

DTYPES = MOVABLE


@dataclass(frozen=True, slots=True)
class ConcatenateAttrs:
    """The axis, not negative."""

    axis: int


def infer_type(types: Sequence[Type], attrs: ConcatenateAttrs) -> Type:
    """Tensors that differ in the extent of `axis` only -> their extents added."""
    first = types[0] if types else None
    if not isinstance(first, TensorType) or not 0 <= attrs.axis < len(first.shape):
        raise TypeRuleError(f"concatenate of {first} along axis {attrs.axis}")
    total = 0
    for t in types:
        if not isinstance(t, TensorType) or t.dtype != first.dtype or len(t.shape) != len(first.shape):
            raise TypeRuleError(f"concatenate of {first} and {t}")
        if any(a != b for i, (a, b) in enumerate(zip(t.shape, first.shape, strict=True)) if i != attrs.axis):
            raise TypeRuleError(f"concatenate of {first} and {t} along axis {attrs.axis}")
        total += t.shape[attrs.axis]
    shape = (*first.shape[: attrs.axis], total, *first.shape[attrs.axis + 1 :])
    return TensorType(shape, first.dtype, first.quant)


def evaluate(*tensors: Array, attrs: ConcatenateAttrs, out_type: TensorType) -> Array:
    return np.concatenate(tensors, axis=attrs.axis)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: ConcatenateAttrs, out_type: TensorType) -> TensorFn:
    axis = attrs.axis

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        # branches and not selects: what `at` appends must not run outside its tensor
        value = b.local("value", (1,), out_type.dtype)

        def choose(tensors: Sequence[TensorFn], begin: int) -> None:
            first, rest = tensors[0], tensors[1:]
            index = (*i[:axis], i[axis] - begin, *i[axis + 1 :])
            if not rest:
                b.store(value, 0, first.at(b, index))
                return
            end = begin + first.shape[axis]
            with b.if_(i[axis] < end):
                b.store(value, 0, first.at(b, index))
            with b.else_():
                choose(rest, end)

        choose([t for t in args if t.shape[axis]], 0)
        return value[0]

    return tensor_fn(out_type.shape, out_type.dtype, rule)


def scaled_codes(data: tuple[float, int], out: tuple[float, int]) -> tuple[int, ...]:
    """The result of ConcatenationWithScaling for each of the 256 values, in float32 as it computes them, less 128."""
    scale = np.float32(data[0]) * (np.float32(1) / np.float32(out[0]))
    values = np.arange(256).astype(np.float32) * scale + np.float32(-data[1]) * scale
    return tuple(min(max(round_half_away(float(v)) + out[1], 0), 255) - 128 for v in values)


def _rescaled(ctx: ConvertContext, op: OperatorView, i: int, out: TensorType) -> RelayExpr:
    """Operand i in the result's quantised values: itself, or through a table, for which uint8 becomes int8 and back."""
    type_, expr = ctx.input_type(op, i), operand(ctx, op, i)
    legacy = out.dtype == type_.dtype == "uint8" and out.quant is not None and type_.quant is not None
    if not legacy or (require_quant(ctx, op, type_) == require_quant(ctx, op, out)):
        require_same_quant(ctx, op, type_, out)
        return expr
    (scale_in, zp_in), (scale, zp) = require_quant(ctx, op, type_), require_quant(ctx, op, out, what="the result")
    span, one = ctx.span(op), (1 << 30, 1)  # the multiplier 1/2 shifted left once
    signed = per_tensor(scale, zp - 128)
    down = Requantize8Attrs(zp_in, *one, zp_in - 128, -128, 127, "int8", per_tensor(scale_in, zp_in - 128))
    codes = call("qnn.requantize8", [expr], down, span=span)
    table = LutAttrs(scaled_codes((scale_in, zp_in), (scale, zp)), signed)
    back = Requantize8Attrs(zp - 128, *one, zp, 0, 255, "uint8", out.quant)
    return call("qnn.requantize8", [call("qnn.lut", [codes], table, span=span)], back, span=span)


@from_tflite("CONCATENATION", EVERY, "concatenate")
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """concatenate; a single operand is passed on."""
    out = ctx.output_type(op)
    require_dtype(ctx, op, out, DTYPES)
    if op.option("fused_activation_function") != "NONE":
        unsupported(ctx, op, "a fused activation is not supported(TFLite rejects it too)")
    axis = int(op.option("axis"))
    axis = axis + len(ctx.input_type(op, 0).shape) if axis < 0 else axis
    args = [_rescaled(ctx, op, i, out) for i in range(len(op.inputs))]
    return call("concatenate", args, ConcatenateAttrs(axis), span=ctx.span(op))


register_op(
    "concatenate",
    VARIABLE,
    arguments=[("*tensors", "any", "the parts, of one type but for the extent of the axis")],
    attrs_type=ConcatenateAttrs,
    pattern=OpPattern.INJECTIVE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="CONCATENATION",
)
F_TE.set("concatenate", te_rule)
