"""Shared by float32 layers: sums in the reference's order, also in Eigen's lanes, bias, activation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from aot.ir.op import Array, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.op.common.window import Padding, inside, output_size
from aot.support.dataclass import dataclass
from aot.te.tensor import IterVar, TensorFn, reduce_axis, tensor_fn
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm, logical_and, select

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


@dataclass(frozen=True, slots=True)
class FloatWindowAttrs:
    """(vertical, horizontal) strides and dilation, padding (top, left, bottom, right), bounds of the activation (None: none)."""

    strides: tuple[int, int]
    padding: Padding
    dilation: tuple[int, int] = (1, 1)
    lo: float | None = None
    hi: float | None = None


def layer_types(types: Sequence[Type], name: str, *, rank: int, channels: Callable[[TensorType], int]) -> list[TensorType]:
    """Float32 data and weights of `rank` dimensions, and a bias with one value per output channel."""
    tensors = [t for t in types if isinstance(t, TensorType) and t.dtype == "float32"]
    if len(tensors) != len(types) or len(tensors) not in (2, 3) or any(len(t.shape) != rank for t in tensors[:2]):
        raise TypeRuleError(f"{name} needs float32 data and weights of {rank} dimensions, not {', '.join(map(str, types))}")
    if len(tensors) == 3 and tensors[2].size != channels(tensors[1]):
        raise TypeRuleError(f"a bias of {tensors[2].size} values for {channels(tensors[1])} channels")
    return tensors


def window_types(
    types: Sequence[Type], attrs: FloatWindowAttrs, name: str, *, channels: Callable[[TensorType], int]
) -> tuple[TensorType, TensorType, TensorType]:
    """Data [N, H, W, ?], weights [?, KH, KW, ?] and result [N, H', W', channels]; TypeRuleError if they do not match."""
    data, weight, *_ = layer_types(types, name, rank=4, channels=channels)
    height, width = _output_extents(data, weight.shape[1:3], attrs)
    return data, weight, TensorType((data.shape[0], height, width, channels(weight)), "float32")


def _output_extents(data: TensorType, kernel: tuple[int, ...], attrs: FloatWindowAttrs) -> tuple[int, int]:
    """Height and width of the result; TypeRuleError if the window does not fit."""
    top, left, bottom, right = attrs.padding
    extents = []
    for axis, before, after in ((0, top, bottom), (1, left, right)):
        step = {"stride": attrs.strides[axis], "dilation": attrs.dilation[axis]}
        extents.append(output_size(data.shape[1 + axis], kernel[axis], before=before, after=after, **step))
    if min(extents) < 1:
        raise TypeRuleError(f"the window {kernel} is larger than the padded image")
    return extents[0], extents[1]


def np_taps(
    data: Array, kernel: tuple[int, ...], attrs: FloatWindowAttrs, out_type: TensorType
) -> Iterator[tuple[int, int, Array]]:  # fmt: skip
    """ky, kx and the data under that tap for all output positions, [N, H', W', C]; 0 outside the image."""
    top, left, bottom, right = attrs.padding
    padded = np.pad(data, ((0, 0), (top, bottom), (left, right), (0, 0)))
    (sy, sx), (dy, dx), (height, width) = attrs.strides, attrs.dilation, out_type.shape[1:3]
    for ky in range(kernel[0]):
        lines = padded[:, ky * dy : ky * dy + (height - 1) * sy + 1 : sy]
        for kx in range(kernel[1]):
            yield ky, kx, lines[:, :, kx * dx : kx * dx + (width - 1) * sx + 1 : sx]


def np_layer(
    products: Iterable[Array],
    bias: Sequence[Array],
    *,
    attrs: FloatWindowAttrs | Bounds,
    out_type: TensorType,
    first: Sequence[Array] = (),
) -> Array:
    """The sum of `products` in order, then bias and activation; `first`: a bias with which the sum starts."""
    acc = np.zeros(out_type.shape, np.float32)
    acc = acc + first[0].reshape(-1) if first else acc
    with np.errstate(all="ignore"):
        for product in products:
            acc = acc + product
        return _np_finish(acc, bias, attrs)


def _np_finish(acc: Array, bias: Sequence[Array], attrs: FloatWindowAttrs | Bounds) -> Array:
    if bias:
        acc = acc + bias[0].reshape(-1)
    acc = acc if attrs.lo is None else np.where(acc < np.float32(attrs.lo), np.float32(attrs.lo), acc)
    acc = acc if attrs.hi is None else np.where(acc > np.float32(attrs.hi), np.float32(attrs.hi), acc)
    return acc.astype(np.float32)


def tir_layer(
    b: IRBuilder,
    axes: Sequence[IterVar],
    product: Callable[..., Expr],
    *,
    bias: Sequence[TensorFn],
    channel: Expr,
    attrs: FloatWindowAttrs | Bounds,
    first: Sequence[TensorFn] = (),
) -> Expr:
    """One element of channel `channel`: the sum of product(*axes), the last axis running fastest, then bias and activation.

    `first`: a bias with which the sum starts.
    """
    init = first[0].at(b, (channel,)) if first else imm(0.0, "float32")
    value = te_sum(b, axes, product, init=init, dtype="float32")
    value = value + bias[0].at(b, (channel,)) if bias else value
    for bound, below in ((attrs.lo, True), (attrs.hi, False)):
        if bound is not None:
            value = b.let("value", value)
            limit = imm(float(np.float32(bound)), "float32")
            value = select(value < limit if below else value > limit, limit, value)
    return value


Product = Callable[..., Expr]
"""(builder, (n, y, x, o), ky, kx, *reduced channels) -> one product of a result."""


def te_window(
    args: Sequence[TensorFn], product: Product, *, attrs: FloatWindowAttrs, out_type: TensorType, depth: int | None = None
) -> TensorFn:  # fmt: skip
    """A convolution of (data, weight [?, KH, KW, ?], bias) over the taps and, with `depth`, that many channels per group."""
    data, weight, *bias = args

    def rule(b: IRBuilder, n: Expr, y: Expr, x: Expr, o: Expr) -> Expr:
        axes = [
            _tap_axis(b, y, axis=0, size=data.shape[1], kernel=weight.shape[1], attrs=attrs),
            _tap_axis(b, x, axis=1, size=data.shape[2], kernel=weight.shape[2], attrs=attrs),
        ]
        if depth is not None:
            axes.append(reduce_axis(depth, name="i"))
        return tir_layer(b, axes, partial(product, b, (n, y, x, o)), bias=bias, channel=o, attrs=attrs)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


def _tap_axis(b: IRBuilder, position: Expr, *, axis: int, size: int, kernel: int, attrs: FloatWindowAttrs) -> IterVar:
    """The reduction axis over the taps of one dimension: only taps inside the image, unless the window is dilated."""
    before, name = attrs.padding[axis], "yx"[axis]
    if not any(attrs.padding[axis::2]) or attrs.dilation[axis] > 1:
        return reduce_axis(kernel, name=f"k{name}")
    origin = position * attrs.strides[axis] - before
    start, stop = inside(position, stride=attrs.strides[axis], before=before, kernel=kernel, size=size)
    return reduce_axis(b.let("stop", stop - origin), start=b.let("start", start - origin), name=f"k{name}")


def tap(
    b: IRBuilder, data: TensorFn, position: tuple[Expr, Expr, Expr, Expr], *, at: tuple[Expr, Expr], attrs: FloatWindowAttrs
) -> Expr:  # fmt: skip
    """The data at output position (n, y, x, channel) under tap `at`; 0 outside the image."""
    n, y, x, channel = position
    row = y * attrs.strides[0] + at[0] * attrs.dilation[0] - attrs.padding[0]
    column = x * attrs.strides[1] + at[1] * attrs.dilation[1] - attrs.padding[1]
    value = data.at(b, (n, row, column, channel))
    zero = imm(0.0, "float32")
    if attrs.dilation[0] > 1 and any(attrs.padding[::2]):
        value = select(logical_and(row >= 0, row < data.shape[1]), value, zero)
    if attrs.dilation[1] > 1 and any(attrs.padding[1::2]):
        value = select(logical_and(column >= 0, column < data.shape[2]), value, zero)
    return value
