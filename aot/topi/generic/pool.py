"""Pooling of bytes, four channels per word: nn.max_pool2d, nn.avg_pool2d, and mean over rows and columns.

Loops over a window have no tests: bounds inside the image are computed once per output pixel, and are constants without padding.
Maxima of four bytes are computed at once (SSUB8 and SEL, or portable C).  Sums are kept in 16-bit lanes, two words for four
channels: SXTAB16 adds two sign-extended bytes; cores without it add bytes offset by 128.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from aot.ir.op import Array, Op
from aot.ir.type import TensorType
from aot.numerics.fixed_point import tir_requantize
from aot.op.common.layer import inside
from aot.op.common.te_rule import F_TE, TeContext
from aot.op.math.unary import UnaryAttrs
from aot.relay.expr import Var, is_call, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, lowest
from aot.target.target import Target
from aot.te.tensor import tensor_fn
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, clamp, imm, select
from aot.tir.function import FuncAttrs
from aot.topi.intrin.scalar import LARGER, SMALLER, SXTAB16, SXTAB16_ROR8, splat
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl, register_planned

MAX_LANE_TAPS = 256
"""Bytes that a 16-bit lane can sum: 256 * -128 = -2^15, and 256 * 255 < 2^16."""

MAX_STRAIGHT = 9
"""Taps of the largest window without loops."""

UNROLL = 8

MAX_COUNTED = 64
"""Taps of the largest window with padding that gets a table of multipliers, one word per number of taps."""

SHIFTS = range(23, 7, -1)


Bounds = tuple[tuple[Expr, Expr], tuple[Expr, Expr]]
"""[start, stop) of rows and of columns."""


@dataclass(frozen=True, slots=True)
class PoolLayer:
    """Everything that the kernel needs, as (vertical, horizontal); `out` is [N, OH, OW, C]."""

    kind: str
    data: Var
    out: tuple[int, int, int, int]
    window: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    attrs: Any
    dtype: str

    @property
    def image(self) -> tuple[int, int]:
        return self.data.type.shape[1], self.data.type.shape[2]

    @property
    def taps(self) -> int:
        return prod(self.window)

    @property
    def full_rows(self) -> bool:
        """Whether a window is whole rows of the image, so that its taps are equidistant."""
        return self.window[1] == self.image[1] and not any(self.padding)

    def bounds(self, b: IRBuilder, position: Expr, axis: int) -> tuple[Expr, Expr]:
        """[start, stop) of a window's rows (axis 0) or columns (axis 1) inside the image."""
        stride, kernel = self.strides[axis], self.window[axis]
        if not any(self.padding):
            return position * stride, position * stride + kernel
        ends = inside(position, stride=stride, before=self.padding[axis], kernel=kernel, size=self.image[axis])
        return b.let("start", ends[0]), b.let("stop", ends[1])

    @contextmanager
    def pixels(self, b: IRBuilder) -> Iterator[tuple[Expr, Expr, Bounds]]:
        """Loop over the pixels of the result: the image, the number of the pixel's first channel, and its window."""
        n, height, width, depth = self.out
        with b.for_("n", n) as image, b.for_("y", height) as y, b.for_("x", width) as x:
            bounds = self.bounds(b, y, 0), self.bounds(b, x, 1)
            yield image, ((image * height + y) * width + x) * depth, bounds

    def taps_of(
        self,
        b: IRBuilder,
        bounds: Bounds,
        tap: Callable[[Expr], None],
        *,
        straight: bool,
        end_row: Callable[[], None] = lambda: None,
    ) -> None:
        """Emit all taps of a window, given each pixel's number in the image: without loops, or row by row."""
        (top, bottom), (left, right) = bounds
        width = self.image[1]
        if straight:
            for ky, kx in product(*map(range, self.window)):
                tap((top + ky) * width + (left + kx))
            return
        with b.for_("ry", bottom, start=top) as ry:
            line = b.let("line", ry * width)
            with b.for_("rx", right, start=left) as rx:
                tap(line + rx)
            end_row()

    def counts(self, axis: int) -> list[int]:
        """Taps inside the image along an axis, for each window."""
        stride, kernel, size = self.strides[axis], self.window[axis], self.image[axis]
        starts = [i * stride - self.padding[axis] for i in range(self.out[axis + 1])]
        return [min(s + kernel, size) - max(s, 0) for s in starts]

    def mean_count(self, axis: int) -> float:
        """Average number of taps inside the image along an axis."""
        counts = self.counts(axis)
        return sum(counts) / len(counts)


def pool_layer(group: Group) -> PoolLayer | None:
    """The view of a group that begins with one pooling operator on its only operand."""
    anchor = group.anchor
    if not isinstance(anchor.op, Op) or not isinstance(anchor.args[0], Var) or len(group.params) != 1:
        return None
    data, attrs, out = anchor.args[0], anchor.attrs, tensor_type(anchor)
    if len(data.type.shape) != 4 or data.type.dtype != out.dtype:
        return None
    n, height, width, depth = data.type.shape
    if anchor.op.name == "mean":
        whole = (height, width)
        return (
            PoolLayer("mean", data, (n, 1, 1, depth), whole, (1, 1), (0,) * 4, attrs, out.dtype) if attrs.axes == (1, 2) else None
        )
    kind, shape = anchor.op.name.removeprefix("nn.").removesuffix("_pool2d"), (n, out.shape[1], out.shape[2], depth)
    return PoolLayer(kind, data, shape, attrs.pool_size, attrs.strides, attrs.padding, attrs, out.dtype)


def match_pool(group: Group) -> PoolLayer | None:
    """The view of a group that is a single pooling operator on bytes."""
    layer = None if group.followers else pool_layer(group)
    dtypes = ("int8", "uint8") if layer is not None and layer.kind == "max" else ("int8",)
    return layer if layer is not None and layer.dtype in dtypes else None


def accepts(group: Group, _target: Target) -> bool:
    """Pooling with a multiple of four channels."""
    layer = match_pool(group)
    if layer is None or layer.out[3] % 4:
        return False
    return layer.kind == "max" or layer.taps <= MAX_LANE_TAPS or layer.window[1] <= MAX_LANE_TAPS


def lower(group: Group, target: Target, name: str) -> Lowered:
    layer = match_pool(group)
    assert layer is not None
    return _Pool(layer, target, name).lowered(group)


@dataclass(frozen=True, slots=True)
class ExactMean:
    """total / count, halves rounded away from zero, equals (total * multiplier + half) >> shift."""

    multiplier: int
    shift: int


def exact_mean(count: int) -> ExactMean | None:
    """The numbers for sums of `count` int8 values, checked for every such sum; None if 32 bits do not suffice."""
    means = exact_means([count])
    return None if means is None else ExactMean(means[0][count], means[1])


def exact_means(counts: Iterable[int]) -> tuple[dict[int, int], int] | None:
    """The multipliers for several counts with a common shift, and that shift; None if there is none."""
    for shift in SHIFTS:
        multipliers = {count: _exact_multiplier(count, shift) for count in counts}
        exact = {count: m for count, m in multipliers.items() if m is not None}
        if len(exact) == len(multipliers):
            return exact, shift
    return None


@cache
def _exact_multiplier(count: int, shift: int) -> int | None:
    """Slightly more than 2^shift / count, so that halves are rounded away from zero on both sides; None if a sum is wrong."""
    totals = np.arange(-128 * count, 127 * count + 1, dtype=np.int64)
    expected = np.sign(totals) * ((np.abs(totals) + count // 2) // count)
    multiplier = (1 << shift) // count + 1
    exact = (((totals * multiplier + (1 << (shift - 1))) >> shift) == expected).all()
    return multiplier if exact and 128 * count * multiplier + (1 << shift) < 1 << 31 else None


class _Pool:
    """Emits one pooling layer of bytes."""

    def __init__(self, layer: PoolLayer, target: Target, name: str) -> None:
        self._layer, self._dsp, self._b = layer, target.has("dsp"), IRBuilder(name)
        self._data = self._b.input("data", (layer.data.type.size,), layer.dtype, align=4)
        self._out = self._b.output("out", (prod(layer.out),), layer.dtype, align=4)
        words = layer.out[3] // 4
        self._words = max(k for k in ((4, 3, 2, 1) if layer.kind == "max" else (2, 1)) if words % k == 0)
        self._exact = exact_mean(layer.taps) if layer.kind == "avg" and not any(layer.padding) else None
        self._straight = not any(layer.padding) and layer.taps <= MAX_STRAIGHT
        self._constants: dict[str, Array] = {}
        counted = layer.kind == "avg" and any(layer.padding) and not target.has("div")
        self._multipliers, self._shift = self._table() if counted else (None, 0)

    def _table(self) -> tuple[Buffer | None, int]:
        """A table with the multiplier for each number of taps, and their shift; None for large windows.

        It replaces divisions, which are software on some cores.
        """
        numbers = {y * x for y, x in product(self._layer.counts(0), self._layer.counts(1))}
        means = exact_means(numbers) if self._layer.taps <= MAX_COUNTED else None
        if means is None:
            return None, 0
        table = self._b.const("multipliers", (max(numbers) + 1,), "int32", align=4)
        self._constants[table.name] = np.array([means[0].get(n, 0) for n in range(table.size)], np.int32)
        return table, means[1]

    def lowered(self, group: Group) -> Lowered:
        b, layer = self._b, self._layer
        _, height, width, depth = layer.out
        with layer.pixels(b) as (image, place, bounds), b.for_("c", depth // 4, step=self._words) as c:
            self._block(bounds, image * (prod(layer.image) * depth // 4) + c, place + c * 4)
        kernel = f"generic.{layer.kind}_pool(words={self._words})"
        each = 1 + (2 if self._dsp else 13 if layer.kind == "max" else 6)
        taps = prod(layer.out) // 4 * int(layer.mean_count(0) * layer.mean_count(1))
        finish = prod(layer.out) * (1 if layer.kind == "max" else 14 if layer.kind == "mean" else 6)
        loops = taps // self._words // (UNROLL if layer.full_rows else 1) * (0 if self._straight else 4)
        instructions = taps * each + finish + loops + prod(layer.out) // (4 * self._words) * 8 + height * width * 12
        code = 160 + (layer.taps if self._straight else 4) * self._words * each * 4
        return Lowered(b.finish(FuncAttrs(kernel=kernel, span=group.anchor.span)), self._constants, instructions, code)

    def _block(self, bounds: Bounds, first: Expr, place: Expr) -> None:
        """Compute `words` words of channels of one output pixel; `first` is the word index of their place in pixel (0, 0)."""
        b, layer, (rows, columns) = self._b, self._layer, bounds
        count: Expr = imm(layer.taps)
        if any(layer.padding) and layer.kind == "avg":
            count = b.let("count", (rows[1] - rows[0]) * (columns[1] - columns[0]))
        multiplier = None if self._multipliers is None else b.let("multiplier", self._multipliers[count])
        best = _Max(b, layer, self._words)
        if layer.kind == "max":
            self._taps(bounds, first, best)
            best.store(self._out, place)
            return
        sums = _Sum(b, words=self._words, dsp=self._dsp)
        if layer.taps > MAX_LANE_TAPS:
            totals = b.local("total", (4 * self._words,), "int32", init=0)
            self._taps(bounds, first, sums, totals)
            values: list[Expr] = [totals[k] for k in range(totals.size)]
        else:
            self._taps(bounds, first, sums)
            values = sums.totals(count)
        for k, total in enumerate(values):
            b.store(self._out, place + k, self._finish(b.let("total", total), count, multiplier))

    def _taps(self, bounds: Bounds, first: Expr, step: _Max | _Sum, totals: Buffer | None = None) -> None:
        """Accumulate all taps of a window; with `totals`, the sums of each row are added to these."""
        b, layer = self._b, self._layer
        words = layer.out[3] // 4

        def tap(index: Expr) -> None:
            step.tap([self._data.load("uint32", first + index * words + k) for k in range(self._words)])

        def end_row() -> None:
            if totals is not None and isinstance(step, _Sum):
                for k, value in enumerate(step.totals(imm(layer.window[1]))):
                    b.store(totals, k, totals[k] + value)
                step.clear()

        if self._straight or not layer.full_rows or totals is not None:
            layer.taps_of(b, bounds, tap, straight=self._straight, end_row=end_row)
            return
        unroll = max(k for k in range(1, UNROLL + 1) if layer.taps % k == 0)
        start = b.let("start", bounds[0][0] * layer.image[1])
        with b.for_("t", layer.taps, step=unroll) as t:
            for k in range(unroll):
                tap(start + t + k)

    def _finish(self, total: Expr, count: Expr, multiplier: Expr | None) -> Expr:
        layer, attrs = self._layer, self._layer.attrs
        if layer.kind == "mean":
            scale = {n: getattr(attrs, n) for n in ("multiplier", "shift", "zero_point", "lo", "hi")}
            return tir_requantize(self._b, total - attrs.input_zp * layer.taps, **scale)
        factor, shift = multiplier, self._shift
        if self._exact is not None:
            factor, shift = imm(self._exact.multiplier), self._exact.shift
        mean = _divided(total, count) if factor is None else (total * factor + (1 << (shift - 1))) >> shift
        return mean if (attrs.lo, attrs.hi) == int_range("int8") else clamp(mean, attrs.lo, attrs.hi)


def _divided(total: Expr, count: Expr) -> Expr:
    """total / count, halves rounded away from zero."""
    half = count / 2
    return select(total > 0, total + half, total - half) / count


class _Max:
    """The largest bytes so far, in `words` words."""

    def __init__(self, b: IRBuilder, layer: PoolLayer, words: int) -> None:
        self._b, self._layer = b, layer
        low = max(int_range(layer.dtype)[0], layer.attrs.lo)
        self._best = b.local("best", (words,), "uint32", init=imm(splat(low), "uint32"))

    def tap(self, words: Sequence[Expr]) -> None:
        for k, word in enumerate(words):
            self._b.store(self._best, k, LARGER[self._layer.dtype](word, self._best[k]))

    def store(self, out: Buffer, place: Expr) -> None:
        high = self._layer.attrs.hi
        for k in range(self._best.size):
            value: Expr = self._best[k]
            if high < int_range(self._layer.dtype)[1]:
                value = SMALLER[self._layer.dtype](value, imm(splat(high), "uint32"))
            self._b.store_as(out, "uint32", place / 4 + k, value)


class _Sum:
    """Sums of int8 bytes in 16-bit lanes: per word, one accumulator for bytes 0 and 2 and one for bytes 1 and 3."""

    def __init__(self, b: IRBuilder, *, words: int, dsp: bool) -> None:
        self._b, self._dsp, self._words = b, dsp, words
        self._sums = b.local("sum", (2 * words,), "uint32", init=imm(0, "uint32"))

    def clear(self) -> None:
        for k in range(2 * self._words):
            self._b.store(self._sums, k, imm(0, "uint32"))

    def tap(self, words: Sequence[Expr]) -> None:
        b, sums = self._b, self._sums
        for k, load in enumerate(words):
            word = b.let("word", load)
            if self._dsp:
                b.store(sums, 2 * k, SXTAB16(sums[2 * k], word))
                b.store(sums, 2 * k + 1, SXTAB16_ROR8(sums[2 * k + 1], word))
            else:
                mask = imm(0x00FF00FF, "uint32")
                offset = b.let("offset", binop("^", word, imm(0x80808080, "uint32")))
                b.store(sums, 2 * k, sums[2 * k] + (offset & mask))
                b.store(sums, 2 * k + 1, sums[2 * k + 1] + ((offset >> imm(8, "uint32")) & mask))

    def totals(self, count: Expr) -> list[Expr]:
        """The sums of `count` taps, channel by channel."""
        places = product(range(self._words), (False, True), (0, 1))
        return [self._lane(self._sums[2 * k + odd], count, high=high) for k, high, odd in places]

    def _lane(self, lanes: Expr, count: Expr, *, high: bool) -> Expr:
        if self._dsp:
            return cast("int32", lanes) >> 16 if high else cast("int32", cast("int16", lanes))
        return cast("int32", lanes >> imm(16, "uint32") if high else lanes & imm(0xFFFF, "uint32")) - count * 128


for _anchor in ("nn.max_pool2d", "nn.avg_pool2d", "mean"):
    register_impl(OpImplementation("generic.pool", _anchor, accepts, lower, plevel=12))


# Pooling of float32: nn.max_pool2d and nn.avg_pool2d with the clamp of an activation, some channels of a window at a time.
#
# Maxima and sums stay in registers and process the numbers in the reference's order, so that zeros of either sign, infinities and
# NaN give the same results.  Bounds inside the image are computed once per output pixel; small windows without padding need no
# loops.


MAX_CHANNELS = 8
"""Most channels whose maxima or sums are kept at once."""

MAX_STRAIGHT_FLOAT = 4
"""Taps of the largest window without loops."""


@dataclass(frozen=True, slots=True)
class FloatPlan:
    """`clamp`: the activation, None if it changes no result; `channels` at a time."""

    layer: PoolLayer
    clamp: UnaryAttrs | None
    channels: int

    @property
    def straight(self) -> bool:
        return not any(self.layer.padding) and self.layer.taps <= MAX_STRAIGHT_FLOAT


def plan_float(group: Group, _target: Target) -> FloatPlan | None:
    """The plan of a group; None for other types, and for followers other than an activation."""
    layer, followers = pool_layer(group), group.followers
    if layer is None or layer.dtype != "float32" or len(followers) > 1 or any(not is_call(f, "relu") for f in followers):
        return None
    clamp: UnaryAttrs | None = followers[0].attrs if followers else None
    if layer.kind == "max" and clamp is not None and clamp.lo is not None and clamp.lo <= lowest("float32"):
        clamp = UnaryAttrs(hi=clamp.hi)  # the lower bound is the initial maximum
    return FloatPlan(layer, clamp, max(n for n in range(1, MAX_CHANNELS + 1) if layer.out[3] % n == 0))


def lower_float(group: Group, _target: Target, name: str, plan: FloatPlan) -> Lowered:
    b, layer, depth = IRBuilder(name), plan.layer, plan.layer.out[3]
    data = b.input("data", (layer.data.type.size,), "float32")
    out = b.output("out", (prod(layer.out),), "float32")
    with layer.pixels(b) as (n, place, bounds):
        count = _count(b, layer, bounds) if layer.kind == "avg" else None
        first = n * (layer.data.type.size // layer.out[0])
        with b.for_("c", depth, step=plan.channels) as c:
            values = b.local("value", (plan.channels,), "float32", init=lowest("float32") if count is None else 0.0)

            def tap(pixel: Expr) -> None:
                numbers = [b.let("number", data[first + c + pixel * depth + k]) for k in range(plan.channels)]
                for k, number in enumerate(numbers):
                    larger = select(values[k] < number, number, values[k])
                    b.store(values, k, larger if layer.kind == "max" else values[k] + number)

            layer.taps_of(b, bounds, tap, straight=plan.straight)
            for k in range(plan.channels):
                value = b.let("value", values[k] if count is None else values[k] / count)
                b.store(out, place + c + k, value if plan.clamp is None else _clamped(b, value, plan.clamp))
    func = b.finish(FuncAttrs(kernel=f"generic.{layer.kind}_pool_float(channels={plan.channels})", span=group.anchor.span))
    taps, channels, blocks = layer.taps, plan.channels, prod(layer.out) // plan.channels
    each = (5 if layer.kind == "max" else 2) * taps + 3 + 7 * (plan.clamp is not None)
    around = 12 if plan.straight else 12 + 4 * taps + 6 * layer.window[0]
    code = 120 + (18 * taps if plan.straight else 30) * channels + 40 * any(layer.padding)
    return Lowered(func, {}, blocks * (channels * each + around) + 12 * blocks, code)


def _count(b: IRBuilder, layer: PoolLayer, bounds: Bounds) -> Expr:
    """Taps inside the image."""
    if not any(layer.padding):
        return imm(float(layer.taps), "float32")
    (top, bottom), (left, right) = bounds
    return b.let("count", cast("float32", (bottom - top) * (right - left)))


def _clamped(b: IRBuilder, value: Expr, clamp: UnaryAttrs) -> Expr:
    """The activation, by its own te rule."""
    one = tensor_fn((1,), "float32", lambda _b, _i: value)
    return F_TE.get("relu")(TeContext(b), [one], clamp, TensorType((1,), "float32")).at(b, (imm(0),))


for _operator in ("nn.max_pool2d", "nn.avg_pool2d"):
    register_planned("generic.pool_float", _operator, plan_float, lower_float, plevel=12, larger=True, cuts=False)
