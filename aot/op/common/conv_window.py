"""Shared by nn.conv2d and nn.depthwise_conv2d: the positions of their windows, and what they read there."""

from __future__ import annotations

from typing import Any

import numpy as np

from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.te.tensor import TensorFn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, logical_and, select


def output_extent(size: int, kernel: int, *, stride: int, dilation: int, pad: int) -> int:
    """Number of window positions along one axis, `pad` being the sum of both sides."""
    return (size + pad - (kernel - 1) * dilation - 1) // stride + 1


def spatial_shape(data: TensorType, kernel: tuple[int, int], attrs: Any) -> tuple[int, int]:
    """Output height and width of a windowed operator over NHWC data."""
    top, left, bottom, right = attrs.padding
    return (
        output_extent(data.shape[1], kernel[0], stride=attrs.strides[0], dilation=attrs.dilation[0], pad=top + bottom),
        output_extent(data.shape[2], kernel[1], stride=attrs.strides[1], dilation=attrs.dilation[1], pad=left + right),
    )


def padded(data: Array, attrs: Any) -> Array:
    """data - input_zp with the border added, as int64-exact float64 for BLAS."""
    top, left, bottom, right = attrs.padding
    wide = np.pad(data.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=attrs.pad_value)
    result: Array = wide - attrs.input_zp
    return result


def window(x: Array, ky: int, kx: int, *, attrs: Any, height: int, width: int) -> Array:
    """The input of tap (ky, kx) for all output positions: [N, H', W', I]."""
    (sy, sx), (dy, dx) = attrs.strides, attrs.dilation
    return x[:, ky * dy : ky * dy + (height - 1) * sy + 1 : sy, kx * dx : kx * dx + (width - 1) * sx + 1 : sx, :]


def tap_value(
    b: IRBuilder,
    data: TensorFn,
    position: tuple[Expr, Expr, Expr, Expr],
    *,
    tap: tuple[Expr, Expr],
    attrs: Any,
) -> Expr:
    """data - input_zp at output position (n, y, x, channel) and window tap (ky, kx), int32; the pad value outside the image."""
    n, y, x, channel = position
    (sy, sx), (dy, dx), (top, left, bottom, right) = attrs.strides, attrs.dilation, attrs.padding
    row = y * sy + tap[0] * dy - top
    column = x * sx + tap[1] * dx - left
    inside = cast("int32", data.at(b, (n, row, column, channel)))
    if top or left or bottom or right:
        rows = logical_and(row >= 0, row < data.shape[1])
        columns = logical_and(column >= 0, column < data.shape[2])
        inside = select(logical_and(rows, columns), inside, imm(attrs.pad_value))
    return inside - int(attrs.input_zp)
