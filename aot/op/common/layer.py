"""Shared by layers: windows that slide over an image, and float32 sums in the reference's order, with bias and activation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product

import numpy as np

from aot.ir.op import Array, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.op.common.operator import Index
from aot.op.common.tensors import Clamped, np_bounded, tensors_of, tir_bounded
from aot.support.dataclass import dataclass
from aot.te.tensor import IterVar, TensorFn, reduce_axis
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm, logical_and, maximum, minimum, select

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


# Sums of float32 products in the order of the reference's vector code: four partial sums, then the left-over products.
#
#   sum = ((s0 + s1) + s2) + s3,  s_l = x[l] y[l] + x[l + 4] y[l + 4] + ...;  the last size % 4 products follow one by one.
#
# Products are rounded before they are added.  Source: `neon_tensor_utils.cc`, which x86 also runs, through SSE.

LANES = 4


def np_lane_sum(terms: Array, start: Array | np.float32 | None = None) -> Array:
    """The sum of float32 `terms` along the last axis; the lanes' sum is added to `start`."""
    whole = terms.shape[-1] - terms.shape[-1] % LANES
    lanes = np.zeros((*terms.shape[:-1], LANES), np.float32)
    with np.errstate(all="ignore"):
        for k in range(0, whole, LANES):
            lanes = lanes + terms[..., k : k + LANES]
        total = ((lanes[..., 0] + lanes[..., 1]) + lanes[..., 2]) + lanes[..., 3]
        total = total if start is None else start + total
        for k in range(whole, terms.shape[-1]):
            total = total + terms[..., k]
    return np.asarray(total, np.float32)


def tir_lane_sum(b: IRBuilder, size: int, term: Callable[[Expr], Expr], start: Expr | None = None) -> Expr:
    """The same as statements: the sum of `term(k)` for k < size."""
    whole = size - size % LANES
    total = b.local("total", (1,), "float32", init=0.0)
    if whole:
        lanes = b.local("lane", (LANES,), "float32", init=0.0)
        with b.for_("k", whole, step=LANES) as k:
            for lane in range(LANES):
                b.store(lanes, lane, lanes[lane] + term(k + lane))
        b.store(total, 0, ((lanes[0] + lanes[1]) + lanes[2]) + lanes[3])
    if start is not None:
        b.store(total, 0, start + total[0])
    if size > whole:
        with b.for_("k", size, start=whole) as k:
            b.store(total, 0, total[0] + term(k))
    return total[0]


# ---- Eigen's order of a matrix times a vector

_QUAD = 4
"""Vectors in which a matrix of one row is summed."""


def _quads(size: int, *, single: bool) -> int:
    """The number of vectors of partial sums."""
    return min(_QUAD, size // LANES) if single else min(1, size // LANES)


def np_eigen_sum(terms: Array, *, single: bool) -> Array:
    """The sum along the last axis in the order of Eigen's matrix-vector product: (s0 + s2) + (s1 + s3), then the left-over terms.

    `single`: the matrix has one row, which is summed in up to four such vectors.
    """
    size = terms.shape[-1]
    whole, count = size - size % LANES, _quads(size, single=single)
    with np.errstate(all="ignore"):
        vectors = [np.zeros((*terms.shape[:-1], LANES), np.float32) for _ in range(max(count, 1))]
        for k in range(0, whole, LANES):
            place = k // LANES % count
            vectors[place] = vectors[place] + terms[..., k : k + LANES]
        for place in range(count - 1, 0, -1):
            vectors[place - 1] = vectors[place - 1] + vectors[place]
        s = vectors[0]
        total = (s[..., 0] + s[..., 2]) + (s[..., 1] + s[..., 3])
        for k in range(whole, size):
            total = total + terms[..., k]
    return np.asarray(total, np.float32)


def tir_eigen_sum(b: IRBuilder, size: int, term: Callable[[Expr], Expr], *, single: bool) -> Expr:
    """The same as statements."""
    whole, count = size - size % LANES, _quads(size, single=single)
    total = b.local("total", (1,), "float32", init=0.0)
    if count:
        lanes = b.local("lane", (count * LANES,), "float32", init=0.0)
        step = count * LANES
        even = whole - whole % step
        with b.for_("k", even, step=step) as k:
            for lane in range(step):
                b.store(lanes, lane, lanes[lane] + term(k + lane))
        for rest in range(whole - even):
            b.store(lanes, rest, lanes[rest] + term(imm(even + rest)))
        for lane in range((count - 1) * LANES - 1, -1, -1):
            b.store(lanes, lane, lanes[lane] + lanes[lane + LANES])
        b.store(total, 0, (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]))
    if size > whole:
        with b.for_("k", size, start=whole) as k:
            b.store(total, 0, total[0] + term(k))
    return total[0]


# Shared by CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED on float32: sums in the reference's order, bias, activation.
#
# The products of one result are added one after the other in float32, rows before columns before channels, then the bias; so the
# results equal the reference's bit by bit, which matters if they are quantised next.

_LARGEST = float(np.finfo(np.float32).max)
FLOAT_ACTIVATIONS: dict[str, tuple[float, float]] = {
    "NONE": (-_LARGEST, _LARGEST),
    "RELU": (0.0, _LARGEST),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
}
"""CalculateActivationRange for float32's fused activations: without one, an overflow becomes the largest number."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of the activation, None for no bound."""

    lo: float | None = None
    hi: float | None = None


def check_layer(types: Sequence[TensorType], name: str, *, rank: int, channel_axis: int) -> None:
    """TypeRuleError unless these are float32 data and weights of `rank` dimensions, and perhaps a bias, one value per channel."""
    if any(t.dtype != "float32" for t in types) or len(types) not in (2, 3) or any(len(t.shape) != rank for t in types[:2]):
        raise TypeRuleError(f"{name} needs float32 data and weights of {rank} dimensions, not {', '.join(map(str, types))}")
    if len(types) == 3 and types[2].size != types[1].shape[channel_axis]:
        raise TypeRuleError(f"a bias of {types[2].size} values for {types[1].shape[channel_axis]} channels")


def np_layer(
    products: Iterable[Array],
    bias: Sequence[Array],
    *,
    attrs: FloatWindow | Bounds,
    out_type: TensorType,
    first: Sequence[Array] = (),
) -> Array:
    """The sum of `products` in order, then bias and activation; `first`: a bias with which the sum starts."""
    acc = np.zeros(out_type.shape, np.float32)
    acc = acc + first[0].reshape(-1) if first else acc
    with np.errstate(all="ignore"):
        for product in products:
            acc = acc + product
        acc = acc + bias[0].reshape(-1) if bias else acc
        return np_bounded(acc, attrs.lo, attrs.hi).astype(np.float32)


def tir_layer(
    b: IRBuilder,
    axes: Sequence[IterVar],
    product: Callable[..., Expr],
    *,
    bias: Sequence[TensorFn],
    channel: Expr,
    attrs: FloatWindow | Bounds,
    first: Sequence[TensorFn] = (),
) -> Expr:
    """One element of channel `channel`: the sum of product(*axes), the last axis running fastest, then bias and activation.

    `first`: a bias with which the sum starts.
    """
    init = first[0].at(b, (channel,)) if first else imm(0.0, "float32")
    value = te_sum(b, axes, product, init=init, dtype="float32")
    return tir_bounded(b, value + bias[0].at(b, (channel,)) if bias else value, attrs.lo, attrs.hi)


@dataclass(frozen=True, slots=True)
class FloatWindow(Windowed):
    """(vertical, horizontal) strides and dilation, padding (top, left, bottom, right), bounds of the activation (None: none)."""

    strides: tuple[int, int]
    padding: Padding
    dilation: tuple[int, int] = (1, 1)
    lo: float | None = None
    hi: float | None = None

    def result_type(self, data: TensorType, weight: TensorType, channels: int) -> TensorType:
        """[N, H', W', channels] from data [N, H, W, ?] and weights [?, KH, KW, ?]; TypeRuleError if the window does not fit."""
        return TensorType((data.shape[0], *self.extents(data.shape[1:3], weight.shape[1:3]), channels), "float32")

    def tap_axes(self, b: IRBuilder, position: Sequence[Expr], image: Sequence[int], kernel: Sequence[int]) -> list[IterVar]:
        """The reduction axes over the taps at output position (y, x): those inside the image, unless the window is dilated."""
        axes = []
        for axis, (at, name) in enumerate(zip(position, ("ky", "kx"), strict=True)):
            stride, before = self.strides[axis], self.padding[axis]
            if not any(self.padding[axis::2]) or self.dilation[axis] > 1:
                axes.append(reduce_axis(kernel[axis], name=name))
                continue
            origin = at * stride - before
            start, stop = inside(at, stride=stride, before=before, kernel=kernel[axis], size=image[axis])
            stop = b.let("stop", stop - origin)
            axes.append(reduce_axis(stop, start=b.let("start", start - origin), name=name))
        return axes

    def tap(self, b: IRBuilder, data: TensorFn, index: Index, channel: Expr, at: Sequence[Expr]) -> Expr:
        """The data at output position (n, y, x, ?) under tap `at`, in a channel; 0 outside the image."""
        places = self.source(index[1:3], at)
        value = data.at(b, (index[0], *places, channel))
        for axis, place in enumerate(places):
            if self.dilation[axis] > 1 and any(self.padding[axis::2]):
                within = logical_and(place >= 0, place < data.shape[1 + axis])
                value = select(within, value, imm(0.0, "float32"))
        return value
