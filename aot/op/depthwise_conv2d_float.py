"""nn.depthwise_conv2d_float: DEPTHWISE_CONV_2D of TFLite on float32.

out[n, y, x, o] = clamp(sum over ky, kx of data[n, .., .., o / M] * w[0, ky, kx, o] + bias[o]), in this order, in float32.
Oracle: `reference_ops::DepthwiseConv` of float.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op._float_layer import (
    FloatWindowAttrs,
    layer_operands,
    layer_types,
    np_finish,
    np_taps,
    output_extents,
    tap,
    tap_axis,
    tir_finish,
    window_attrs,
)
from aot.op.convert import ConvertContext, unsupported
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call
from aot.te.tensor import Tensor, compute
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm

NAME = "nn.depthwise_conv2d_float"


def infer_type(types: Sequence[Type], attrs: FloatWindowAttrs) -> Type:
    """data [N, H, W, C], weight [1, KH, KW, C*M], bias [C*M] -> float32 [N, H', W', C*M]."""
    data, weight, *_ = layer_types(types, NAME, rank=4, channels=lambda w: w.shape[3])
    if weight.shape[0] != 1 or weight.shape[3] % data.shape[3]:
        raise TypeRuleError(f"weights {weight} do not match {data.shape[3]} channels")
    return TensorType((data.shape[0], *output_extents(data, weight.shape[1:3], attrs), weight.shape[3]), "float32")


def evaluate(data: Array, weight: Array, *bias: Array, attrs: FloatWindowAttrs, out_type: TensorType) -> Array:
    multiplier = weight.shape[3] // data.shape[3]
    acc = np.zeros(out_type.shape, np.float32)
    extents = (out_type.shape[1], out_type.shape[2])
    with np.errstate(all="ignore"):
        for ky, row in enumerate(np_taps(data, weight.shape[1:3], attrs, extents)):
            for kx, taps in enumerate(row):
                acc = acc + np.repeat(taps, multiplier, axis=3) * weight[0, ky, kx, :]
        return np_finish(acc, bias, attrs)


def te_rule(_ctx: TeContext, args: Sequence[Tensor], attrs: FloatWindowAttrs, out_type: TensorType) -> Tensor:
    data, weight, *bias = args
    _, kh, kw, channels = weight.shape
    multiplier = channels // data.shape[3]

    def rule(b: IRBuilder, n: Expr, y: Expr, x: Expr, o: Expr) -> Expr:
        def term(ky: Expr, kx: Expr) -> Expr:
            value = tap(b, data, (n, y, x, o // multiplier), at=(ky, kx), attrs=attrs)
            return value * weight.at(b, (imm(0), ky, kx, o))

        axes = [
            tap_axis(b, y, axis=0, size=data.shape[1], kernel=kh, attrs=attrs),
            tap_axis(b, x, axis=1, size=data.shape[2], kernel=kw, attrs=attrs),
        ]
        acc = te_sum(b, axes, term, init=imm(0.0, "float32"), dtype="float32")
        return tir_finish(b, acc, bias[0].at(b, (o,)) if bias else None, attrs)

    return compute(out_type.shape, out_type.dtype, rule)


def convert_float(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """DEPTHWISE_CONV_2D whose data, weights and result are float32."""
    shape, weight = ctx.input_type(op, 0).shape, ctx.input_type(op, 1).shape
    if len(shape) != 4 or len(weight) != 4:
        unsupported(ctx, op, "data and weights must have four dimensions")
    return call(NAME, layer_operands(ctx, op), window_attrs(ctx, op, weight[1:3]), span=ctx.span(op))


register_op(
    NAME,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="DEPTHWISE_CONV_2D; float32, any channel multiplier",
)
F_TE.set(NAME, te_rule)
