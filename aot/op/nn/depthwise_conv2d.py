"""nn.depthwise_conv2d: DEPTHWISE_CONV_2D of TFLite, any channel multiplier.

acc[n, y, x, c*M + m] = sum over ky, kx of w[0, ky, kx, c*M + m] * (data[n, .., .., c] - input_zp); see conv2d for the window.
Oracle: TFLite's reference kernels `DepthwiseConvPerChannel` (int8, int16) and `DepthwiseConv` (uint8, shifted to int8).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.conv_window import padded, spatial_shape, tap_value, window
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, reduce_axis, sum, tensor_fn, wrapping
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm


@dataclass(frozen=True, slots=True)
class DepthwiseConv2DAttrs:
    """As Conv2DAttrs; `multiplier` output channels for each input channel."""

    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int] = (1, 1)
    input_zp: int = 0
    pad_value: int = 0
    multiplier: int = 1
    weight_zp: int = 0
    acc_dtype: str = "int32"


def infer_type(types: Sequence[Type], attrs: DepthwiseConv2DAttrs) -> Type:
    """data [N, H, W, C], weight [1, KH, KW, C*M] -> attrs.acc_dtype [N, H', W', C*M]."""
    data, weight = types
    if not isinstance(data, TensorType) or not isinstance(weight, TensorType) or len(data.shape) != 4 or len(weight.shape) != 4:
        raise TypeRuleError(f"depthwise_conv2d takes 4-D data and weights, not {data} and {weight}")
    if weight.shape[0] != 1 or weight.shape[3] != data.shape[3] * attrs.multiplier:
        raise TypeRuleError(f"weights {weight} do not match {data.shape[3]} channels with multiplier {attrs.multiplier}")
    height, width = spatial_shape(data, weight.shape[1:3], attrs)
    if height <= 0 or width <= 0:
        raise TypeRuleError(f"the window {weight.shape[1:3]} is larger than the padded image")
    return TensorType((data.shape[0], height, width, weight.shape[3]), attrs.acc_dtype)


def evaluate(data: Array, weight: Array, *, attrs: DepthwiseConv2DAttrs, out_type: TensorType) -> Array:
    x = padded(data, attrs)
    _, height, width, _ = out_type.shape
    acc = np.zeros(out_type.shape, np.float64)
    for ky in range(weight.shape[1]):
        for kx in range(weight.shape[2]):
            taps = window(x, ky, kx, attrs=attrs, height=height, width=width)
            acc += np.repeat(taps, attrs.multiplier, axis=3) * (weight[0, ky, kx, :].astype(np.float64) - attrs.weight_zp)
    return acc.astype(np.int64).astype(out_type.dtype)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: DepthwiseConv2DAttrs, out_type: TensorType) -> TensorFn:
    data, weight = args
    wide = wrapping(attrs.acc_dtype)
    _, kh, kw, _ = weight.shape

    def rule(b: IRBuilder, n: Expr, y: Expr, x: Expr, o: Expr) -> Expr:
        def term(ky: Expr, kx: Expr) -> Expr:
            tap = tap_value(b, data, (n, y, x, o // attrs.multiplier), tap=(ky, kx), attrs=attrs)
            w = cast("int32", weight.at(b, (imm(0), ky, kx, o))) - attrs.weight_zp
            return cast(wide, w) * cast(wide, tap)

        return cast(attrs.acc_dtype, sum(b, [reduce_axis(kh, name="ky"), reduce_axis(kw, name="kx")], term, dtype=wide))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "nn.depthwise_conv2d",
    2,
    arguments=[
        ("data", "int8, int16 [N, H, W, C]", "the image"),
        ("weight", "int8, int4 [1, KH, KW, C*M]", "M filters for each channel"),
    ],
    attrs_type=DepthwiseConv2DAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="DEPTHWISE_CONV_2D; int8, int16 x int8, int8 x int4, uint8; any channel multiplier",
)
F_TE.set("nn.depthwise_conv2d", te_rule)
