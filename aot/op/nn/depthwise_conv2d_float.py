"""nn.depthwise_conv2d_float: DEPTHWISE_CONV_2D of TFLite on float32.

out[n, y, x, o] = clamp(sum over ky, kx of data[n, .., .., o / M] * w[0, ky, kx, o] + bias[o]), in this order, in float32.
Oracle: `reference_ops::DepthwiseConv` of float.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import VARIABLE, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.float_layer import FloatWindowAttrs, np_layer, np_taps, tap, te_window, window_types
from aot.op.te_rule import F_TE, TeContext
from aot.te.tensor import TensorFn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm

NAME = "nn.depthwise_conv2d_float"


def infer_type(types: Sequence[Type], attrs: FloatWindowAttrs) -> Type:
    """data [N, H, W, C], weight [1, KH, KW, C*M], bias [C*M] -> float32 [N, H', W', C*M]."""
    data, weight, result = window_types(types, attrs, NAME, channels=lambda w: w.shape[3])
    if weight.shape[0] != 1 or weight.shape[3] % data.shape[3]:
        raise TypeRuleError(f"weights {weight} do not match {data.shape[3]} channels")
    return result


def evaluate(data: Array, weight: Array, *bias: Array, attrs: FloatWindowAttrs, out_type: TensorType) -> Array:
    multiplier = weight.shape[3] // data.shape[3]
    taps = np_taps(data, weight.shape[1:3], attrs, out_type)
    products = (np.repeat(under, multiplier, axis=3) * weight[0, ky, kx] for ky, kx, under in taps)
    return np_layer(products, bias, attrs=attrs, out_type=out_type)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: FloatWindowAttrs, out_type: TensorType) -> TensorFn:
    data, weight, *_ = args
    multiplier = weight.shape[3] // data.shape[3]

    def product(b: IRBuilder, position: tuple[Expr, Expr, Expr, Expr], ky: Expr, kx: Expr) -> Expr:
        n, y, x, o = position
        value = tap(b, data, (n, y, x, o // multiplier), at=(ky, kx), attrs=attrs)
        return value * weight.at(b, (imm(0), ky, kx, o))

    return te_window(args, product, attrs=attrs, out_type=out_type)


register_op(
    NAME,
    VARIABLE,
    arguments=[
        ("data", "float32 [N, H, W, C]", "the image"),
        ("weight", "float32 [1, KH, KW, C*M]", "M filters for each channel"),
        ("bias?", "float32 [C*M]", "what is added to each output channel"),
    ],
    attrs_type=FloatWindowAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="DEPTHWISE_CONV_2D; float32, any channel multiplier",
)
F_TE.set(NAME, te_rule)
