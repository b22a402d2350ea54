"""nn.conv2d_float: CONV_2D of TFLite on float32, also grouped.

out[n, y, x, o] = clamp(sum over ky, kx, i of data[n, .., .., group*I + i] * w[o, ky, kx, i] + bias[o]), in this order.
Oracle: `reference_ops::Conv` of float.
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
from aot.te.tensor import Tensor, compute, reduce_axis
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm

NAME = "nn.conv2d_float"


def infer_type(types: Sequence[Type], attrs: FloatWindowAttrs) -> Type:
    """data [N, H, W, G*I], weight [O, KH, KW, I], bias [O] -> float32 [N, H', W', O]; O is a multiple of the groups G."""
    data, weight, *_ = layer_types(types, NAME, rank=4, channels=lambda w: w.shape[0])
    groups, rest = divmod(data.shape[3], weight.shape[3])
    if rest or not groups or weight.shape[0] % groups:
        raise TypeRuleError(f"weights {weight} do not match {data.shape[3]} channels")
    return TensorType((data.shape[0], *output_extents(data, weight.shape[1:3], attrs), weight.shape[0]), "float32")


def evaluate(data: Array, weight: Array, *bias: Array, attrs: FloatWindowAttrs, out_type: TensorType) -> Array:
    depth = weight.shape[3]
    groups = data.shape[3] // depth
    acc = np.zeros(out_type.shape, np.float32)
    first = np.repeat(np.arange(groups) * depth, weight.shape[0] // groups)  # of each output channel's inputs
    with np.errstate(all="ignore"):
        for ky, row in enumerate(np_taps(data, weight.shape[1:3], attrs, (out_type.shape[1], out_type.shape[2]))):
            for kx, taps in enumerate(row):
                for i in range(depth):
                    acc = acc + taps[..., first + i] * weight[:, ky, kx, i]
        return np_finish(acc, bias, attrs)


def te_rule(_ctx: TeContext, args: Sequence[Tensor], attrs: FloatWindowAttrs, out_type: TensorType) -> Tensor:
    data, weight, *bias = args
    channels, kh, kw, depth = weight.shape
    each = channels * depth // data.shape[3]  # output channels of a group

    def rule(b: IRBuilder, n: Expr, y: Expr, x: Expr, o: Expr) -> Expr:
        def term(ky: Expr, kx: Expr, i: Expr) -> Expr:
            channel = i if each == channels else o // each * depth + i
            return tap(b, data, (n, y, x, channel), at=(ky, kx), attrs=attrs) * weight.at(b, (o, ky, kx, i))

        axes = [
            tap_axis(b, y, axis=0, size=data.shape[1], kernel=kh, attrs=attrs),
            tap_axis(b, x, axis=1, size=data.shape[2], kernel=kw, attrs=attrs),
            reduce_axis(depth, name="i"),
        ]
        acc = te_sum(b, axes, term, init=imm(0.0, "float32"), dtype="float32")
        return tir_finish(b, acc, bias[0].at(b, (o,)) if bias else None, attrs)

    return compute(out_type.shape, out_type.dtype, rule)


def convert_float(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """CONV_2D whose data, weights and result are float32."""
    shape, weight = ctx.input_type(op, 0).shape, ctx.input_type(op, 1).shape
    if len(shape) != 4 or len(weight) != 4:
        unsupported(ctx, op, "data and weights must have four dimensions")
    return call(NAME, layer_operands(ctx, op), window_attrs(ctx, op, weight[1:3]), span=ctx.span(op))


register_op(
    NAME,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="CONV_2D; float32, also in groups",
)
F_TE.set(NAME, te_rule)
