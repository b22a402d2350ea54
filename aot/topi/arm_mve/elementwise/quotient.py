"""Quotients by a constant as products, where these give the same codes: vectors have no division.

With 1 / s = high + low as the sum of two float32 numbers, high rounded down, RN(x * high + RN(x * low)) is a VMUL and a VFMA.
It and the quotient RN(x / s) never fall as x rises, and are odd in x; so codes are equal for all x if they change at the same
numbers, which the proof looks at one by one.  Infinities stay infinite (both factors are positive), NaN stays NaN.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from aot.support.dataclass import dataclass

LEAST_SCALE, LARGEST_SCALE = 2.0**-60, 2.0**60
"""Between them nothing that decides a code is below the 2^-126 that vector instructions take for zero, or beyond float32."""
_NEAR = 3
"""Numbers on each side of scale * threshold among which the quotient reaches the threshold."""

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reciprocal:
    """The factors; `low` is 0 where the product with `high` alone is the quotient."""

    high: float
    low: float

    @property
    def bits(self) -> tuple[int, int]:
        """Those of both as float32."""
        high, low = np.array([self.high, self.low], np.float32).view(np.uint32)
        return int(high), int(low)

    def product(self, x: Float32) -> Float32:
        """What the instructions make of numbers that are not too small or large."""
        high, low = np.float32(self.high), np.float32(self.low)
        return _fused(x, high, x * low) if self.low else x * high


@lru_cache(maxsize=64)
def reciprocal(scale: float, steps: int) -> Reciprocal | None:
    """The factors that give the nearest code of x / scale (halves away from zero) for all float32 x, if they are proven to.

    `steps`: codes on either side of zero, beyond which they are clamped.
    """
    divisor = np.float32(scale)
    if not LEAST_SCALE <= divisor <= LARGEST_SCALE:
        return None
    found = _factors(divisor)
    return found if is_proven(found, divisor, steps) else None


def is_proven(factors: Reciprocal, divisor: np.float32, steps: int) -> bool:
    """Whether codes change at the same numbers: each of `steps` thresholds is reached from the same float32 on."""
    thresholds = (np.arange(steps, dtype=np.float64) + 0.5)[:, None]
    middle = (thresholds * np.float64(divisor)).astype(np.float32).view(np.int32)
    near = (middle + np.arange(-_NEAR, _NEAR + 1, dtype=np.int32)).view(np.float32)
    reached = near / divisor >= thresholds
    if reached[:, 0].any() or not reached[:, -1].all():
        return False
    return bool(((factors.product(near) >= thresholds) == reached).all())


def _factors(divisor: np.float32) -> Reciprocal:
    high = np.float32(1 / np.float64(divisor))
    if np.float64(high) * np.float64(divisor) > 1:  # a product of 48 bits is exact
        high = np.nextafter(high, np.float32(0))
    left = 1 - np.float64(high) * np.float64(divisor)
    return Reciprocal(float(high), float(np.float32(left / np.float64(divisor))))


def _fused(x: Float32, factor: np.float32, more: Float32) -> Float32:
    """x * factor + more, rounded once.

    The product is exact in float64.  Their sum is rounded to odd there, so that rounding it again is rounding the exact one
    (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd").
    """
    a, b = x.astype(np.float64) * np.float64(factor), more.astype(np.float64)
    total = a + b
    shift = total - a
    error = (a - (total - shift)) + (b - shift)
    bits = np.array(total).view(np.int64)
    toward = np.where((error > 0) == (total > 0), 1, -1)
    odd = np.where((error != 0) & (bits % 2 == 0), bits + toward, bits)
    return odd.view(np.float64).astype(np.float32)
