"""nn.conv2d: CONV_2D of TFLite on int8 or int16 data.

acc[n, y, x, o] = sum over ky, kx, i of w[o, ky, kx, i] * (data[n, y*sy + ky*dy - top, x*sx + kx*dx - left, i] -
input_zp), where data outside the image is `pad_value`.  Oracle: TFLite's reference kernels `ConvPerChannel` (int8,
int16) and `Conv` (uint8, shifted to int8).
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
from aot.tir.expr import Expr, cast


@dataclass(frozen=True, slots=True)
class Conv2DAttrs:
    """padding is (top, left, bottom, right); everything else is (vertical, horizontal)."""

    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int] = (1, 1)
    input_zp: int = 0
    pad_value: int = 0
    weight_zp: int = 0
    acc_dtype: str = "int32"


def infer_type(types: Sequence[Type], attrs: Conv2DAttrs) -> Type:
    """data [N, H, W, I], weight [O, KH, KW, I] -> attrs.acc_dtype [N, H', W', O]."""
    data, weight = types
    if not isinstance(data, TensorType) or not isinstance(weight, TensorType) or len(data.shape) != 4 or len(weight.shape) != 4:
        raise TypeRuleError(f"conv2d takes 4-D data and weights, not {data} and {weight}")
    if data.shape[3] != weight.shape[3]:
        raise TypeRuleError(f"{data.shape[3]} input channels, but weights for {weight.shape[3]}")
    height, width = spatial_shape(data, weight.shape[1:3], attrs)
    if height <= 0 or width <= 0:
        raise TypeRuleError(f"the window {weight.shape[1:3]} is larger than the padded image")
    return TensorType((data.shape[0], height, width, weight.shape[0]), attrs.acc_dtype)


def evaluate(data: Array, weight: Array, *, attrs: Conv2DAttrs, out_type: TensorType) -> Array:
    x = padded(data, attrs)
    w = weight.astype(np.float64) - attrs.weight_zp
    n, height, width, channels = out_type.shape
    acc = np.zeros((n * height * width, channels), np.float64)
    for ky in range(weight.shape[1]):
        for kx in range(weight.shape[2]):
            acc += window(x, ky, kx, attrs=attrs, height=height, width=width).reshape(-1, x.shape[3]) @ w[:, ky, kx, :].T
    return acc.astype(np.int64).astype(out_type.dtype).reshape(out_type.shape)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: Conv2DAttrs, out_type: TensorType) -> TensorFn:
    data, weight = args
    wide = wrapping(attrs.acc_dtype)
    _, kh, kw, channels = weight.shape

    def rule(b: IRBuilder, n: Expr, y: Expr, x: Expr, o: Expr) -> Expr:
        def term(ky: Expr, kx: Expr, i: Expr) -> Expr:
            tap = tap_value(b, data, (n, y, x, i), tap=(ky, kx), attrs=attrs)
            w = cast("int32", weight.at(b, (o, ky, kx, i))) - attrs.weight_zp
            return cast(wide, w) * cast(wide, tap)

        axes = [reduce_axis(kh, name="ky"), reduce_axis(kw, name="kx"), reduce_axis(channels, name="i")]
        return cast(attrs.acc_dtype, sum(b, axes, term, dtype=wide))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "nn.conv2d",
    2,
    arguments=[
        ("data", "int8, int16 [N, H, W, I]", "the image"),
        ("weight", "int8, int4 [O, KH, KW, I]", "one filter for each output channel"),
    ],
    attrs_type=Conv2DAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="CONV_2D; int8, int16 x int8, int8 x int4, uint8; per-tensor and per-channel, also in groups",
)
F_TE.set("nn.conv2d", te_rule)
