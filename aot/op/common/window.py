"""Windows that slide over an image: positions, padding, what a tap reads; pooling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from aot.ir.op import Array, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.op.common.tensors import Clamped, tensors_of
from aot.support.dataclass import dataclass
from aot.te.tensor import IterVar, reduce_axis
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, maximum, minimum

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


class Windowed:
    """Attributes (a frozen dataclass) of a window that slides over an image [N, H, W, C].

    Strides and dilation are (vertical, horizontal), padding is (top, left, bottom, right).
    """

    __slots__ = ()

    strides: tuple[int, int]
    padding: Padding
    dilation: tuple[int, int]

    def extents(self, image: Sequence[int], kernel: Sequence[int]) -> tuple[int, int]:
        """Height and width of the result; TypeRuleError if the window is larger than the padded image."""
        sizes = []
        for axis in range(2):
            before, after = self.padding[axis::2]
            step = {"stride": self.strides[axis], "dilation": self.dilation[axis]}
            sizes.append(output_size(image[axis], kernel[axis], before=before, after=after, **step))
        if min(sizes) < 1:
            raise TypeRuleError(f"the window {tuple(kernel)} is larger than the padded image")
        return sizes[0], sizes[1]

    def padded(self, data: Array, value: float = 0) -> Array:
        """The image with its border."""
        top, left, bottom, right = self.padding
        return np.pad(data, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=value)

    def taps(self, padded: Array, kernel: Sequence[int], out_type: TensorType) -> Iterator[tuple[int, int, Array]]:
        """ky, kx and what is under that tap for all output positions, [N, H', W', C]."""
        (sy, sx), (dy, dx), (height, width) = self.strides, self.dilation, out_type.shape[1:3]
        for ky, kx in product(range(kernel[0]), range(kernel[1])):
            rows = slice(ky * dy, ky * dy + (height - 1) * sy + 1, sy)
            yield ky, kx, padded[:, rows, kx * dx : kx * dx + (width - 1) * sx + 1 : sx]

    def source(self, position: Sequence[Expr], tap: Sequence[Expr]) -> tuple[Expr, Expr]:
        """Row and column of the image that tap (ky, kx) of the window at output position (y, x) reads."""
        (sy, sx), (dy, dx), (top, left, _, _) = self.strides, self.dilation, self.padding
        return position[0] * sy + tap[0] * dy - top, position[1] * sx + tap[1] * dx - left


# Shared by AVERAGE_POOL_2D and MAX_POOL_2D.


@dataclass(frozen=True, slots=True)
class PoolAttrs(Clamped, Windowed):
    """(vertical, horizontal) window and strides, padding (top, left, bottom, right), clamp [lo, hi] in quantised values."""

    pool_size: tuple[int, int]
    strides: tuple[int, int]
    padding: Padding
    lo: int
    hi: int
    dilation = (1, 1)


def infer_pool(types: Sequence[Type], attrs: PoolAttrs) -> Type:
    """NHWC -> NHWC of the same element type; every window must touch the image."""
    (data,) = tensors_of(types, 1)
    if len(data.shape) != 4:
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


def window_axes(b: IRBuilder, y: Expr, x: Expr, *, image: Sequence[int], attrs: PoolAttrs) -> tuple[IterVar, IterVar]:
    """Rows and columns of the window at output position (y, x), those inside the image of height and width `image`."""
    (kh, kw), (sy, sx), (top, left, _, _) = attrs.pool_size, attrs.strides, attrs.padding
    if not any(attrs.padding):
        return reduce_axis(y * sy + kh, start=y * sy, name="ry"), reduce_axis(x * sx + kw, start=x * sx, name="rx")
    y0, y1 = (b.let("row", e) for e in inside(y, stride=sy, before=top, kernel=kh, size=image[0]))
    x0, x1 = (b.let("col", e) for e in inside(x, stride=sx, before=left, kernel=kw, size=image[1]))
    return reduce_axis(y1, start=y0, name="ry"), reduce_axis(x1, start=x0, name="rx")
