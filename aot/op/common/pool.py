"""Shared by AVERAGE_POOL_2D and MAX_POOL_2D."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aot.ir.op import Array, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.op.common.check import Clamped
from aot.op.common.window import Padding, inside, output_size
from aot.support.dataclass import dataclass
from aot.te.tensor import IterVar, reduce_axis
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr


@dataclass(frozen=True, slots=True)
class PoolAttrs(Clamped):
    """(vertical, horizontal) window and strides, padding (top, left, bottom, right), clamp [lo, hi] in quantised values."""

    pool_size: tuple[int, int]
    strides: tuple[int, int]
    padding: Padding
    lo: int
    hi: int


def infer_pool(types: Sequence[Type], attrs: PoolAttrs) -> Type:
    """NHWC -> NHWC of the same element type; every window has to touch the image."""
    (data,) = types
    if not isinstance(data, TensorType) or len(data.shape) != 4:
        raise TypeRuleError(f"pooling takes one 4-D tensor, not {data}")
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
    """For each tap of the window the elements under it, [N, H', W', C], from the padded image."""
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
