"""nn.conv2d_float: CONV_2D of TFLite on float32, also grouped.

out[n, y, x, o] = clamp(sum over ky, kx, i of data[n, .., .., group*I + i] * w[o, ky, kx, i] + bias[o]), in this order.
Oracle: `reference_ops::Conv` of float.
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
from aot.tir.expr import Expr

NAME = "nn.conv2d_float"


def infer_type(types: Sequence[Type], attrs: FloatWindowAttrs) -> Type:
    """data [N, H, W, G*I], weight [O, KH, KW, I], bias [O] -> float32 [N, H', W', O]; O is a multiple of the groups G."""
    data, weight, result = window_types(types, attrs, NAME, channels=lambda w: w.shape[0])
    groups, rest = divmod(data.shape[3], weight.shape[3])
    if rest or not groups or weight.shape[0] % groups:
        raise TypeRuleError(f"weights {weight} do not match {data.shape[3]} channels")
    return result


def evaluate(data: Array, weight: Array, *bias: Array, attrs: FloatWindowAttrs, out_type: TensorType) -> Array:
    depth = weight.shape[3]
    groups = data.shape[3] // depth
    first = np.repeat(np.arange(groups) * depth, weight.shape[0] // groups)  # of each output channel's inputs
    taps = np_taps(data, weight.shape[1:3], attrs, out_type)
    products = (under[..., first + i] * weight[:, ky, kx, i] for ky, kx, under in taps for i in range(depth))
    return np_layer(products, bias, attrs=attrs, out_type=out_type)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: FloatWindowAttrs, out_type: TensorType) -> TensorFn:
    data, weight, *_ = args
    channels, _, _, depth = weight.shape
    each = channels * depth // data.shape[3]  # output channels of a group

    def product(b: IRBuilder, position: tuple[Expr, Expr, Expr, Expr], ky: Expr, kx: Expr, i: Expr) -> Expr:
        n, y, x, o = position
        channel = i if each == channels else o // each * depth + i
        return tap(b, data, (n, y, x, channel), at=(ky, kx), attrs=attrs) * weight.at(b, (o, ky, kx, i))

    return te_window(args, product, attrs=attrs, out_type=out_type, depth=depth)


register_op(
    NAME,
    VARIABLE,
    arguments=[
        ("data", "float32 [N, H, W, I]", "the image"),
        ("weight", "float32 [O, KH, KW, I]", "one filter for each output channel"),
        ("bias?", "float32 [O]", "what is added to each output channel"),
    ],
    attrs_type=FloatWindowAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="CONV_2D; float32, also in groups",
)
F_TE.set(NAME, te_rule)
