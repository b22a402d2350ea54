"""Windows that slide over an image: positions, padding, what a tap reads; pooling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from aot.ir.op import Array, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.op.common.tensors import Clamped
from aot.support.dataclass import dataclass
from aot.te.tensor import IterVar, TensorFn, reduce_axis
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, logical_and, maximum, minimum, select

# Sliding windows: TFLite's SAME and VALID padding, and the part of a window inside the image.


Padding = tuple[int, int, int, int]
"""(top, left, bottom, right)"""


def output_size(size: int, kernel: int, *, stride: int, dilation: int, before: int, after: int) -> int:
    """Positions of a window of `kernel` taps along one axis, given its padding; 0 or less if none fits."""
    return (size + before + after - ((kernel - 1) * dilation + 1)) // stride + 1


def inside(position: Expr, *, stride: int, before: int, kernel: int, size: int) -> tuple[Expr, Expr]:
    """[start, stop) of the image rows (or columns) that the window at output `position` covers, without the padding."""
    origin = position * stride - before
    return maximum(origin, 0), minimum(origin + kernel, size)


@dataclass(frozen=True, slots=True)
class TransposedTaps:
    """Taps rest + stride*t, t from first to last, of one output coordinate; tap t reads coordinate quotient - t."""

    quotient: Expr
    rest: Expr
    first: Expr
    last: Expr


@dataclass(frozen=True, slots=True)
class TransposedWindow:
    """A transposed convolution's geometry, each (vertical, horizontal); `cut` is removed at the top and the left."""

    image: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, int]
    cut: tuple[int, int]

    def taps(self, b: IRBuilder, *position: Expr) -> list[TransposedTaps]:
        """The taps along both axes that contribute to the output at `position`."""
        axes = zip(position, self.image, self.kernel, self.strides, self.cut, strict=True)
        return [_transposed_taps(b, at, size=n, taps=k, stride=s, before=cut) for at, n, k, s, cut in axes]


def _transposed_taps(b: IRBuilder, position: Expr, *, size: int, taps: int, stride: int, before: int) -> TransposedTaps:
    shifted = b.let("shifted", position + before)
    quotient, rest = b.let("quotient", shifted // stride), b.let("rest", shifted % stride)
    count = (rest * -1 + (taps + stride - 1)) // stride  # of taps from rest on, none where rest is beyond the window
    first = b.let("first", maximum(quotient - (size - 1), 0))
    return TransposedTaps(quotient, rest, first, b.let("last", minimum(quotient + 1, count)))


# Shared by nn.conv2d and nn.depthwise_conv2d: window positions, and what is read there.


def output_extent(size: int, kernel: int, *, stride: int, dilation: int, pad: int) -> int:
    """Number of window positions along one axis; `pad` is the sum of both sides."""
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


# Shared by AVERAGE_POOL_2D and MAX_POOL_2D.


@dataclass(frozen=True, slots=True)
class PoolAttrs(Clamped):
    """(vertical, horizontal) window and strides, padding (top, left, bottom, right), clamp [lo, hi] in quantised values."""

    pool_size: tuple[int, int]
    strides: tuple[int, int]
    padding: Padding
    lo: int
    hi: int


def infer_pool(types: Sequence[Type], attrs: PoolAttrs) -> Type:
    """NHWC -> NHWC of the same element type; every window must touch the image."""
    (data,) = types
    if not isinstance(data, TensorType) or len(data.shape) != 4:
        raise TypeRuleError(f"pooling needs one 4-D tensor, not {data}")
    extents = []
    for axis in range(2):
        size, kernel, before, after = data.shape[axis + 1], attrs.pool_size[axis], attrs.padding[axis], attrs.padding[axis + 2]
        if kernel < 1 or attrs.strides[axis] < 1:
            raise TypeRuleError(f"window {attrs.pool_size} with strides {attrs.strides}")
        extent = output_size(size, kernel, stride=attrs.strides[axis], dilation=1, before=before, after=after)
        if extent < 1 or before >= kernel or (extent - 1) * attrs.strides[axis] - before >= size:
            raise TypeRuleError(f"a window {attrs.pool_size} does not fit {data} with padding {attrs.padding}")
        extents.append(extent)
    return TensorType((data.shape[0], *extents, data.shape[3]), data.dtype, data.quant)


def taps(padded: Array, attrs: PoolAttrs, out_type: TensorType) -> Iterator[Array]:
    """For each tap of the window, the elements under it, [N, H', W', C], from the padded image."""
    (sy, sx), (_, height, width, _) = attrs.strides, out_type.shape
    for ky in range(attrs.pool_size[0]):
        for kx in range(attrs.pool_size[1]):
            yield padded[:, ky : ky + (height - 1) * sy + 1 : sy, kx : kx + (width - 1) * sx + 1 : sx, :]


def pad_widths(attrs: PoolAttrs) -> tuple[tuple[int, int], ...]:
    """numpy.pad widths of the four dimensions."""
    top, left, bottom, right = attrs.padding
    return (0, 0), (top, bottom), (left, right), (0, 0)


def window_axes(b: IRBuilder, y: Expr, x: Expr, *, image: Sequence[int], attrs: PoolAttrs) -> tuple[IterVar, IterVar]:
    """Rows and columns of the window at output position (y, x), those inside the image of height and width `image`."""
    (kh, kw), (sy, sx), (top, left, _, _) = attrs.pool_size, attrs.strides, attrs.padding
    if not any(attrs.padding):
        return reduce_axis(y * sy + kh, start=y * sy, name="ry"), reduce_axis(x * sx + kw, start=x * sx, name="rx")
    y0, y1 = (b.let("row", e) for e in inside(y, stride=sy, before=top, kernel=kh, size=image[0]))
    x0, x1 = (b.let("col", e) for e in inside(x, stride=sx, before=left, kernel=kw, size=image[1]))
    return reduce_axis(y1, start=y0, name="ry"), reduce_axis(x1, start=x0, name="rx")
