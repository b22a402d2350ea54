"""Rescaling of a small set of known values by 32-bit products, found by search and proven by trying every value.

A rescaled value p, shifted by the zero point and clamped to [lo, hi], equals, for all p of a set,

clamp((p * high + (p * low >> 15) + bias) >> shift, lo, hi),

possibly without `low`, and possibly with another bias for p < 0, since rounding moves halves of negative values away from zero.
For given factors, each value allows an interval of biases; a form exists if all intervals have a number in common.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from aot.ir.op import Array
from aot.numerics.fixed_point import named, requantize
from aot.support.dataclass import dataclass
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, clamp

SPLIT = 15
"""Bits in the lower part of a factor."""

MOST_SHIFT = 23

_TRIED = {0: (2, (0, 1, -1, 2, -2, 3, -3)), SPLIT: (3, (0, 8, -8, 64, -64, 512, -512))}
"""For factors without and with a lower part: shifts below the largest possible one, and distances from the true factor."""


@dataclass(frozen=True, slots=True)
class Rescaling:
    """Parameters and limits of a rescaling by `multiplier * 2^(shift - 31)` with double rounding."""

    multiplier: int
    shift: int
    zero_point: int
    lo: int
    hi: int

    def evaluate(self, values: Array) -> Array:
        """The results of int64 values that fit 32 bits."""
        result: Array = requantize(
            values.astype(np.int32), self.multiplier, self.shift, zero_point=self.zero_point, lo=self.lo, hi=self.hi
        ).astype(np.int64)
        return result


@dataclass(frozen=True, slots=True)
class LinearRescaling:
    """The form above; `below` is added to the bias for p < 0.

    No intermediate result leaves int32, and no sum exceeds `most` in magnitude.
    """

    high: int
    low: int
    bias: int
    below: int
    shift: int
    lo: int
    hi: int
    most: int

    def emit(self, b: IRBuilder, value: Expr) -> Expr:
        """The clamped int32 result of an int32 expression."""
        if self.low or self.below:
            value = named(b, "x", value)
        total = value * self.high
        if self.low:
            total = total + ((value * self.low) >> SPLIT)
        if self.below:
            total = total + ((value >> 31) & self.below)
        return clamp((total + self.bias) >> self.shift, self.lo, self.hi)

    def evaluate(self, values: Array) -> Array:
        """Like `emit`, for int64 values."""
        total = values * self.high + ((values * self.low) >> SPLIT) + np.where(values < 0, self.below, 0) + self.bias
        result: Array = np.clip(total >> self.shift, self.lo, self.hi)
        return result


@lru_cache(maxsize=256)
def rescaling_of_products(zero_points: tuple[int, int], by: Rescaling) -> LinearRescaling | None:
    """The form for products of two int8 values less their zero points; None if there is none."""
    codes = np.arange(-128, 128, dtype=np.int64)
    return _find(np.unique(np.outer(codes - zero_points[0], codes - zero_points[1])), by)


@lru_cache(maxsize=256)
def rescaling_of_range(first: int, last: int, by: Rescaling) -> LinearRescaling | None:
    """The form for the values from `first` to `last`; None if there is none."""
    return _find(np.arange(first, last + 1, dtype=np.int64), by)


def _find(values: Array, by: Rescaling) -> LinearRescaling | None:
    """The cheapest form for ascending int64 values below 2^17 in magnitude."""
    search = _Search(values, by)
    for split in (0, SPLIT):
        for signed in (False, True):
            form = search.form(split, signed=signed)
            if form is not None:
                return form
    return None


class _Search:
    """Forms for values whose results are known."""

    def __init__(self, values: Array, by: Rescaling) -> None:
        self._values, self._by, self._wanted = values, by, by.evaluate(values)
        negative = values < 0
        self._all = np.ones_like(negative)
        self._halves = (~negative, negative)
        self._above, self._below = self._wanted > by.lo, self._wanted < by.hi
        self._real = by.multiplier * 2.0 ** (by.shift - 31)
        self._largest = int(np.abs(values).max())

    def form(self, split: int, *, signed: bool) -> LinearRescaling | None:
        """A form, or None if no factor near the true one has a bias; `signed`: negative values have a bias of their own."""
        if self._real <= 0 or (signed and not self._halves[1].any()):
            return None
        top = min(math.floor(30.9 - math.log2(self._real * max(self._largest, 1))), MOST_SHIFT)
        steps, distances = _TRIED[split]
        for shift in range(top, max(top - steps, 7), -1):
            factor = round(self._real * 2.0 ** (shift + split))
            for distance in distances:
                if 0 < factor + distance < 1 << (31 + split - self._largest.bit_length()):
                    result = self._with(factor + distance, shift, split=split, signed=signed)
                    if result is not None:
                        return result
        return None

    def _with(self, factor: int, shift: int, *, split: int, signed: bool) -> LinearRescaling | None:
        high, low = factor >> split, factor & ((1 << split) - 1)
        products = self._values * high + ((self._values * low) >> SPLIT)
        bias = self._bias(products, shift, self._halves[0] if signed else self._all)
        below = self._bias(products, shift, self._halves[1]) if signed else bias
        if bias is None or below is None or max(abs(bias), abs(below), abs(below - bias)) >= 1 << 31:
            return None
        lowered = products + np.where(self._values < 0, below - bias, 0)
        most = max(int(np.abs(total).max()) for total in (products, lowered, products + bias, lowered + bias))
        if most >= 1 << 31:
            return None
        form = LinearRescaling(high, low, bias, below - bias, shift, self._by.lo, self._by.hi, most)
        return form if (form.evaluate(self._values) == self._wanted).all() else None

    def _bias(self, products: Array, shift: int, chosen: Array) -> int | None:
        """The middle of the interval that these values allow."""
        least = (self._wanted << shift) - products
        above, below = least[chosen & self._above], least[chosen & self._below]
        lowest = int(above.max()) if above.size else None
        highest = int(below.min()) + (1 << shift) - 1 if below.size else lowest
        if lowest is None:
            lowest = highest
        if lowest is None or highest is None:
            return 0
        return (lowest + highest) // 2 if lowest <= highest else None
