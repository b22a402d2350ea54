"""What is left of a sum whose product is beyond an int32, or no number, when the reference casts it to one.

FULLY_CONNECTED of TFLite multiplies the sum by a double and casts the rounded product to int32.  C leaves the cast undefined for
NaN and for what does not fit; processors differ (Arm saturates and makes 0 of NaN).  The reference whose bytes count here, the
ai-edge-litert wheel that made all golden files, runs on x86-64, whose conversion instruction (CVTTSD2SI) answers all of these
with "integer indefinite", INT32_MIN.  Then the zero point is added, modulo 2^32, and the result clamped.  So a product above
INT32_MAX, infinite or NaN comes out as the lowest code where the zero point is not negative; where it is, INT32_MIN wraps to the
other end, and what is below INT32_MIN - zero_point comes out as the highest.

Multipliers without a value are no fancy: TensorFlow's converter writes weights with scales of infinity for unrolled recurrent
layers in 16x8 (aot explain E1111).  The other layers hand them to QuantizeMultiplier, which casts to int64 with the same
instruction and keeps the lowest 32 bits of INT64_MIN: a multiplier of 0 (`as_fixed_point`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from aot.numerics.ties import limits
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range

SATURATING = 2.0**16
"""By which a sum of 1 leaves every result's type: larger multipliers give nothing else."""
LARGEST_PRODUCT = 1 << 30
"""Beyond every result's type, and small enough for an int32 with any zero point."""


@dataclass(frozen=True, slots=True)
class CastSums:
    """Sums to be replaced before they are multiplied by `reals`, of each channel or of all.

    A sum on the far side of `limit`, above it for sign 1 and below it for -1, becomes -sign * bound; the others are clamped to
    [-bound, bound]: all products then fit.
    """

    reals: tuple[float, ...]
    limit: tuple[int, ...]
    bound: tuple[int, ...]
    sign: int


def as_fixed_point(real: float) -> float:
    """The real number whose multiplier QuantizeMultiplier makes of `real` on x86-64: 0 for infinity and NaN."""
    return real if math.isfinite(real) else 0.0


def cast_sums(reals: Sequence[float], largest: Sequence[int], *, zero_point: int, dtype: str) -> CastSums | None:
    """For sums |s| <= largest of integer type `dtype`; None if every product fits, as in any network worth its flash."""
    highest = int_range(dtype)[1]
    sign = 1 if zero_point >= 0 else -1
    beyond = (1 << 31) - zero_point if sign > 0 else (1 << 31) + 1 + zero_point
    bounds = largest if len(largest) == len(reals) else [max(largest)] * len(reals)
    within = [_largest_within(real, beyond, min(b, highest)) for real, b in zip(reals, bounds, strict=True)]
    if all(limit is None for limit in within):
        return None
    usable = tuple(min(real, SATURATING) if math.isfinite(real) else 1.0 for real in reals)
    return CastSums(
        usable,
        tuple(sign * (highest if limit is None else -highest if limit < 0 else limit) for limit in within),
        tuple(int(LARGEST_PRODUCT / max(real, LARGEST_PRODUCT / highest)) for real in usable),
        sign,
    )


def _largest_within(real: float, beyond: int, bound: int) -> int | None:
    """The largest sum whose rounded product stays below `beyond`, -1 for none; None if every sum up to `bound` does."""
    if not math.isfinite(real):
        return -1
    if real * bound < beyond - 1:
        return None
    within = int(limits(real, np.array([beyond]))[0]) - 1
    return within if within < bound else None
