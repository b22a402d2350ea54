"""Pooling four channels a word: nn.max_pool2d, nn.avg_pool2d, and mean over rows and columns.

A window's taps are loops without tests: bounds inside the image are computed once for an output pixel, and where there is no
padding they are constants.  Maxima are taken of four bytes at once (SSUB8 and SEL, or their portable form).  Sums are kept in
16-bit lanes, two words for four channels: SXTAB16 adds two sign-extended bytes, cores without it add bytes offset by 128.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from aot.ir.op import Array, Op
from aot.numerics.fixed_point import tir_requantize
from aot.op.common.window import inside
from aot.relay.expr import Var, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, clamp, imm, select
from aot.tir.function import FuncAttrs
from aot.topi.intrin.bytes import LARGER, SMALLER, splat
from aot.topi.intrin.dsp import SXTAB16, SXTAB16_ROR8
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

MAX_LANE_TAPS = 256
"""Bytes that a 16-bit lane can sum: 256 * -128 = -2^15, and 256 * 255 < 2^16."""

MAX_STRAIGHT = 9
"""Taps of the largest window that is written without loops."""

UNROLL = 8

MAX_COUNTED = 64
"""Taps of the largest window that leaves the image whose numbers of taps have multipliers, in a table of as many words."""

SHIFTS = range(23, 7, -1)


@dataclass(frozen=True, slots=True)
class PoolLayer:
    """What the kernel needs: everything (vertical, horizontal); `out` is [N, OH, OW, C]."""

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
        """Whether a window is whole rows of the image, so that its taps lie at equal distances."""
        return self.window[1] == self.image[1] and not any(self.padding)


def match_pool(group: Group) -> PoolLayer | None:
    """The view of a group that is one pooling operator on words of four channels."""
    anchor = group.anchor
    if group.followers or not isinstance(anchor.op, Op) or not isinstance(anchor.args[0], Var) or len(group.params) != 1:
        return None
    data, attrs, out = anchor.args[0], anchor.attrs, tensor_type(anchor)
    if len(data.type.shape) != 4 or data.type.shape[3] % 4 or data.type.dtype != out.dtype:
        return None
    n, height, width, depth = data.type.shape
    if anchor.op.name == "mean":
        if attrs.axes != (1, 2) or out.dtype != "int8":
            return None
        return PoolLayer("mean", data, (n, 1, 1, depth), (height, width), (1, 1), (0, 0, 0, 0), attrs, "int8")
    kind = anchor.op.name.removeprefix("nn.").removesuffix("_pool2d")
    if out.dtype not in (("int8", "uint8") if kind == "max" else ("int8",)):
        return None
    shape = (n, out.shape[1], out.shape[2], depth)
    return PoolLayer(kind, data, shape, attrs.pool_size, attrs.strides, attrs.padding, attrs, out.dtype)


def accepts(group: Group, _target: Target) -> bool:
    layer = match_pool(group)
    if layer is None:
        return False
    return layer.kind == "max" or layer.taps <= MAX_LANE_TAPS or layer.window[1] <= MAX_LANE_TAPS


def lower(group: Group, target: Target, name: str) -> Lowered:
    layer = match_pool(group)
    assert layer is not None
    return _Pool(layer, target, name).lowered(group)


@dataclass(frozen=True, slots=True)
class ExactMean:
    """total / count, rounded with halves away from zero, is (total * multiplier + half) >> shift."""

    multiplier: int
    shift: int

    def emit(self, total: Expr) -> Expr:
        return (total * self.multiplier + (1 << (self.shift - 1))) >> self.shift


def exact_mean(count: int) -> ExactMean | None:
    """The numbers for sums of `count` int8 values, checked on every such sum; None if 32 bits do not suffice."""
    return next((ExactMean(m, shift) for shift in SHIFTS if (m := _exact_multiplier(count, shift)) is not None), None)


def exact_means(counts: Iterable[int]) -> tuple[dict[int, int], int] | None:
    """The multipliers of several counts with one shift, and that; None if there is no such shift."""
    for shift in SHIFTS:
        found = {count: _exact_multiplier(count, shift) for count in counts}
        known = {count: m for count, m in found.items() if m is not None}
        if len(known) == len(found):
            return known, shift
    return None


@cache
def _exact_multiplier(count: int, shift: int) -> int | None:
    """A little more than 2^shift / count, so that ties go away from zero on both sides; None if it is wrong for a sum."""
    totals = np.arange(-128 * count, 127 * count + 1, dtype=np.int64)
    wanted = np.sign(totals) * ((np.abs(totals) + count // 2) // count)
    multiplier = (1 << shift) // count + 1
    exact = (((totals * multiplier + (1 << (shift - 1))) >> shift) == wanted).all()
    return multiplier if exact and 128 * count * multiplier + (1 << shift) < 1 << 31 else None


class _Pool:
    """Emits one pooling layer."""

    def __init__(self, layer: PoolLayer, target: Target, name: str) -> None:
        self._layer = layer
        self._dsp = target.has("dsp")
        self._b = IRBuilder(name)
        size = layer.data.type.size
        self._data = self._b.input("data", (size,), layer.dtype, align=4)
        self._out = self._b.output("out", (prod(layer.out),), layer.dtype, align=4)
        words = layer.out[3] // 4
        self._words = max(k for k in ((4, 3, 2, 1) if layer.kind == "max" else (2, 1)) if words % k == 0)
        self._exact = exact_mean(layer.taps) if layer.kind == "avg" and not any(layer.padding) else None
        self._constants: dict[str, Array] = {}
        counted = layer.kind == "avg" and any(layer.padding) and not target.has("div")
        self._multipliers, self._shift = self._table() if counted else (None, 0)

    def _table(self) -> tuple[Buffer | None, int]:
        """The multiplier of each number of taps that windows have, and the shift of all; none for large windows.

        In place of software for divisions.
        """
        counts = [set(axis) for axis in self._counts()]
        numbers = {y * x for y in counts[0] for x in counts[1]}
        found = exact_means(numbers) if self._layer.taps <= MAX_COUNTED else None
        if found is None:
            return None, 0
        table = self._b.const("multipliers", (max(numbers) + 1,), "int32", align=4)
        self._constants[table.name] = np.array([found[0].get(n, 0) for n in range(table.size)], np.int32)
        return table, found[1]

    def lowered(self, group: Group) -> Lowered:
        b, layer = self._b, self._layer
        n, height, width, depth = layer.out
        with b.for_("n", n) as image, b.for_("y", height) as y, b.for_("x", width) as x:
            bounds = self._bounds(y, x)
            origin = image * (prod(layer.image) * depth // 4)
            place = ((image * height + y) * width + x) * depth
            with b.for_("c", depth // 4, step=self._words) as c:
                self._block(bounds, origin + c, place + c * 4)
        kernel = f"generic.{layer.kind}_pool(words={self._words})"
        each = 1 + (2 if self._dsp else 13 if layer.kind == "max" else 6)
        taps = prod(layer.out) // 4 * self._mean_taps()
        finish = prod(layer.out) * (1 if layer.kind == "max" else 14 if layer.kind == "mean" else 6)
        loops = taps // self._words // (UNROLL if layer.full_rows else 1) * (0 if self._straight else 4)
        instructions = taps * each + finish + loops + prod(layer.out) // (4 * self._words) * 8 + height * width * 12
        code = 160 + (layer.taps if self._straight else 4) * self._words * each * 4
        return Lowered(b.finish(FuncAttrs(kernel=kernel, span=group.anchor.span)), self._constants, instructions, code)

    @property
    def _straight(self) -> bool:
        return not any(self._layer.padding) and self._layer.taps <= MAX_STRAIGHT

    def _mean_taps(self) -> int:
        """Taps inside the image, on average."""
        rows, columns = (sum(axis) / len(axis) for axis in self._counts())
        return int(rows * columns)

    def _counts(self) -> list[list[int]]:
        """Of each axis the taps inside the image, window by window."""
        counts = []
        for axis in range(2):
            stride, before = self._layer.strides[axis], self._layer.padding[axis]
            starts = [i * stride - before for i in range(self._layer.out[axis + 1])]
            size, kernel = self._layer.image[axis], self._layer.window[axis]
            counts.append([min(s + kernel, size) - max(s, 0) for s in starts])
        return counts

    def _bounds(self, y: Expr, x: Expr) -> tuple[tuple[Expr, Expr], tuple[Expr, Expr]]:
        """[start, stop) of the window's rows and columns inside the image."""
        layer = self._layer
        out: list[tuple[Expr, Expr]] = []
        for axis, position in enumerate((y, x)):
            stride, kernel, before = layer.strides[axis], layer.window[axis], layer.padding[axis]
            if any(layer.padding):
                ends = inside(position, stride=stride, before=before, kernel=kernel, size=layer.image[axis])
                out.append((self._b.let("start", ends[0]), self._b.let("stop", ends[1])))
            else:
                out.append((position * stride, position * stride + kernel))
        return out[0], out[1]

    def _block(self, bounds: tuple[tuple[Expr, Expr], tuple[Expr, Expr]], first: Expr, place: Expr) -> None:
        """`words` words of channels of one output pixel; `first` is the word index of their place in pixel (0, 0)."""
        rows, columns = bounds
        count: Expr = imm(self._layer.taps)
        if any(self._layer.padding) and self._layer.kind == "avg":
            count = self._b.let("count", (rows[1] - rows[0]) * (columns[1] - columns[0]))
        multiplier = None if self._multipliers is None else self._b.let("multiplier", self._multipliers[count])
        step: _Step = _Max(self._b, self._layer, self._words)
        if self._layer.kind != "max":
            step = _Sum(self._b, words=self._words, dsp=self._dsp)
        by_rows = self._layer.kind != "max" and self._layer.taps > MAX_LANE_TAPS
        totals = self._b.local("total", (4 * self._words,), "int32", init=0) if by_rows else None
        self._taps(bounds, first, step, totals)
        if isinstance(step, _Max):
            step.store(self._out, place)
            return
        assert isinstance(step, _Sum)
        values = [totals[k] for k in range(4 * self._words)] if totals is not None else step.totals(count)
        for k, total in enumerate(values):
            self._b.store(self._out, place + k, self._finish(self._b.let("total", total), count, multiplier))

    def _taps(self, bounds: tuple[tuple[Expr, Expr], tuple[Expr, Expr]], first: Expr, step: _Step, totals: Buffer | None) -> None:
        """All taps of a window."""
        b, layer = self._b, self._layer
        (top, bottom), (left, right) = bounds
        width, words = layer.image[1], layer.out[3] // 4

        def tap(index: Expr) -> None:
            step.tap([self._data.load("uint32", first + index * words + k) for k in range(self._words)])

        if self._straight:
            for ky in range(layer.window[0]):
                for kx in range(layer.window[1]):
                    tap((top + ky) * width + (left + kx))
        elif layer.full_rows and totals is None:
            unroll = max(k for k in range(1, UNROLL + 1) if layer.taps % k == 0)
            start = b.let("start", top * width)
            with b.for_("t", layer.taps, step=unroll) as t:
                for k in range(unroll):
                    tap(start + t + k)
        else:
            with b.for_("ry", bottom, start=top) as ry:
                line = b.let("line", ry * width)
                with b.for_("rx", right, start=left) as rx:
                    tap(line + rx)
                if totals is not None and isinstance(step, _Sum):
                    for k, value in enumerate(step.totals(imm(layer.window[1]))):
                        b.store(totals, k, totals[k] + value)
                    step.clear()

    def _finish(self, total: Expr, count: Expr, multiplier: Expr | None) -> Expr:
        layer, attrs = self._layer, self._layer.attrs
        if layer.kind == "mean":
            centred = total - attrs.input_zp * layer.taps
            return tir_requantize(
                self._b,
                centred,
                multiplier=attrs.multiplier,
                shift=attrs.shift,
                zero_point=attrs.zero_point,
                lo=attrs.lo,
                hi=attrs.hi,
            )
        if multiplier is not None:
            mean = (total * multiplier + (1 << (self._shift - 1))) >> self._shift
        else:
            mean = self._exact.emit(total) if self._exact is not None else _divided(total, count)
        return mean if (attrs.lo, attrs.hi) == int_range("int8") else clamp(mean, attrs.lo, attrs.hi)


def _divided(total: Expr, count: Expr) -> Expr:
    """total / count, rounded with halves away from zero."""
    half = count / 2
    return select(total > 0, total + half, total - half) / count


class _Max:
    """The largest bytes so far, `words` words of them."""

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
    """Sums of int8 bytes in 16-bit lanes: for each word one accumulator for bytes 0 and 2, one for bytes 1 and 3."""

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
        out: list[Expr] = []
        for k in range(self._words):
            even, odd = self._sums[2 * k], self._sums[2 * k + 1]
            out += [self._low(even, count), self._low(odd, count), self._high(even, count), self._high(odd, count)]
        return out

    def _low(self, lanes: Expr, count: Expr) -> Expr:
        if self._dsp:
            return cast("int32", cast("int16", lanes))
        return cast("int32", lanes & imm(0xFFFF, "uint32")) - count * 128

    def _high(self, lanes: Expr, count: Expr) -> Expr:
        if self._dsp:
            return cast("int32", lanes) >> 16
        return cast("int32", lanes >> imm(16, "uint32")) - count * 128


_Step = _Max | _Sum

for _anchor in ("nn.max_pool2d", "nn.avg_pool2d", "mean"):
    register_impl(OpImplementation("generic.pool", _anchor, accepts, lower, plevel=12))
