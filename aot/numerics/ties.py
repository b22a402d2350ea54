"""The rounding of fully connected layers: the reference multiplies the accumulator by a double and rounds once.

The result is round(acc * real), halves away from zero.  Integers give the same result unless some possible accumulator ends up on
the other side of a half.  A 31-bit multiplier errs by one part in 2^32, which matters if a half is closer than that; and ties,
which are common if scales are powers of two, must go to the right side.  So the multiplier and its neighbours are tried, with
halves upwards ("single"): each must switch to every result at the same accumulator as the reference.  Nearly every int8 layer
passes with the first one.  If none passes (int16 results have 65535 limits between them), the multiplier gets 31 more bits, all
that a double has, and halves go away from zero ("away").  The reference rounds its product to a double, which turns a value just
below a half into a half (15000 * 0.0003), so a little is added if necessary.  One case remains: a single real number may be
rounded both ways (45000 * 0.0003 stays below its half).  That takes data and weight scales of a few bits, a result scale of 24
bits, and an accumulator of 2^24.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from aot.ir.op import Array
from aot.numerics.fixed_point import INT32_MAX, multiply_by_long_multiplier, quantize_multiplier
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range

NEIGHBOURS = (0, 1, -1, 2, -2, 3, -3)
MOST_LIMITS = 1 << 10
"""Most limits between results for which it is worth trying further neighbours."""
LARGEST_SHIFT, LARGEST_SUM = 14, (1 << 47) - 1
"""Limits for multipliers with more bits: their shift, and the sum that they multiply."""
MORE = (0, 1 << 8, 1 << 9, 1 << 7, 1 << 10, 1 << 6)
"""Values to try adding to the 62 bits: half a unit in the last place of a double is between 2^8 and 2^9."""


@dataclass(frozen=True, slots=True)
class Rescaling:
    """Multiplier and shift of each channel or of all, as in `quantize_multiplier`.

    `fraction` holds 31 more bits of each multiplier, or nothing.
    """

    multipliers: tuple[int, ...]
    shifts: tuple[int, ...]
    rounding: str
    fraction: tuple[int, ...] = ()


def rounded_once(reals: Sequence[float], largest: Sequence[int], results: tuple[int, int]) -> Rescaling:
    """The rescaling that gives round(acc * real), within `results`, for |acc| <= largest, per channel or for all."""
    return _rounded_once(tuple(reals), tuple(largest), results)


@lru_cache(64)  # a layer is converted several times: for shape inference, for checks and to compile
def _rounded_once(reals: tuple[float, ...], largest: tuple[int, ...], results: tuple[int, int]) -> Rescaling:
    pairs = [quantize_multiplier(real) for real in reals]
    multipliers = []
    for i, ((multiplier, shift), real) in enumerate(zip(pairs, reals, strict=True)):
        bound = max(largest) if len(pairs) == 1 else largest[i]
        better = _in_31_bits(real, multiplier, shift, bound=bound, results=results)
        if better is None:
            break
        multipliers.append(better)
    shifts = tuple(s for _, s in pairs)
    if len(multipliers) == len(pairs):
        return Rescaling(tuple(multipliers), shifts, "single")
    if max(shifts) > LARGEST_SHIFT:
        return Rescaling(tuple(m for m, _ in pairs), shifts, "away")
    bounds = largest if len(largest) == len(reals) else [max(largest)] * len(reals)
    halves = [_in_62_bits(real, bound=bound, results=results) for real, bound in zip(reals, bounds, strict=True)]
    return Rescaling(tuple(m for m, _ in halves), shifts, "away", tuple(f for _, f in halves))


def _in_62_bits(real: float, *, bound: int, results: tuple[int, int]) -> tuple[int, int]:
    """The high and low 31 bits of a double's fraction, slightly increased if needed; 0 if `quantize_multiplier` gives 0."""
    multiplier, shift = quantize_multiplier(real)
    if multiplier == 0:
        return 0, 0
    fraction, exponent = math.frexp(real)
    whole = int(math.ldexp(fraction, 62)) >> (shift - exponent)  # 1 if the multiplier was rounded up to a power of two
    at, codes = _limits_within(real, min(bound, LARGEST_SUM), close_codes(real, results))
    wrong: dict[tuple[int, int], int] = {}
    for more in MORE:
        pair = divmod(min(whole + more, (1 << 62) - 1), 1 << 31)
        below, reached = (multiply_by_long_multiplier(at - d, *pair, shift) for d in (1, 0))
        wrong[pair] = int(((below >= codes) | (codes > reached)).sum())
        if not wrong[pair]:
            break
    return min(wrong, key=lambda pair: wrong[pair])


@lru_cache(16)
def _codes(results: tuple[int, int]) -> tuple[Array, Array]:
    """int64: the quantised values that have a limit below them; float64: the halves there."""
    codes = np.arange(results[0] + 1, results[1] + 1, dtype=np.int64)
    return codes, codes - 0.5


def close_codes(real: float, results: tuple[int, int]) -> Array:
    """int64: the quantised values whose limit 62 bits may miss, since (code - 0.5) / real is nearly an integer.

    All numbers here are accurate to one part in 2^50, so the others are safe.
    """
    codes, halves = _codes(results)
    if not codes.size:
        return codes
    off = halves * (1 / real)
    off -= np.rint(off)
    near = max(-halves[0], halves[-1]) / real * 2.0**-47
    return codes[np.flatnonzero((off <= near) & (off >= -near))]


def _limits_within(real: float, bound: int, codes: Array) -> tuple[Array, Array]:
    """int64: `limits` of the codes with |acc| <= bound, and their codes."""
    at = limits(real, codes)
    inside = (at > -bound) & (at <= bound)
    return at[inside].astype(np.int64), codes[inside]


def _in_31_bits(real: float, multiplier: int, shift: int, *, bound: int, results: tuple[int, int]) -> int | None:
    """The first neighbour of `multiplier` whose product, with halves upwards, has the limits of the reference."""
    if multiplier == 0:
        return 0
    if bound >= 1 << 31 or shift > 30:
        return None
    at, codes = _limits_within(real, bound, _codes(results)[0])
    half = 1 << (30 - shift)
    for step in NEIGHBOURS if len(codes) <= MOST_LIMITS else NEIGHBOURS[:2]:
        m = multiplier + step
        reached = (at * m + half) >> (31 - shift) >= codes
        if m <= INT32_MAX and bool((reached & (((at - 1) * m + half) >> (31 - shift) < codes)).all()):
            return m
    return None


def limits(real: float, codes: Array) -> Array:
    """float64: the smallest integer acc with round(acc * real) >= code, halves away from zero, with a double as product."""
    at: Array = np.ceil((codes - 0.5) / real) - 2
    for _ in range(4):  # the quotient is off by at most two
        product = at * real
        at = np.where(np.where(codes > 0, product < codes - 0.5, product <= codes - 0.5), at + 1, at)
    return at


# What becomes of a sum whose product does not fit an int32, or is not a number, when the reference casts it to int32.
#
# FULLY_CONNECTED of TFLite multiplies the sum by a double and casts the rounded product to int32.  In C the cast is undefined for
# NaN and for values that do not fit; processors differ (Arm saturates and turns NaN into 0).  The reference that counts here, the
# ai-edge-litert wheel that produced all golden files, runs on x86-64, whose conversion instruction (CVTTSD2SI) answers all of
# these with "integer indefinite", INT32_MIN.  Then the zero point is added modulo 2^32, and the result is clamped.  So a product
# above INT32_MAX, infinite or NaN becomes the lowest quantised value if the zero point is not negative; otherwise INT32_MIN wraps
# to the other end, and products below INT32_MIN - zero_point become the highest.
#
# Such multipliers do occur: TensorFlow's converter writes weights with infinite scales for unrolled recurrent layers in 16x8 (aot
# explain E1111).  The other layers pass them to QuantizeMultiplier, which casts to int64 with the same instruction and keeps the
# lowest 32 bits of INT64_MIN: a multiplier of 0 (`as_fixed_point`).


SATURATING = 2.0**16
"""A multiplier with which a sum of 1 exceeds every result type: larger multipliers change nothing."""
LARGEST_PRODUCT = 1 << 30
"""Beyond every result type, yet small enough for an int32 with any zero point."""


@dataclass(frozen=True, slots=True)
class CastSums:
    """Sums to be replaced before they are multiplied by `reals`, of each channel or of all.

    A sum beyond `limit` (above it for sign 1, below it for -1) becomes -sign * bound; the others are clamped to [-bound, bound].
    Then all products fit.
    """

    reals: tuple[float, ...]
    limit: tuple[int, ...]
    bound: tuple[int, ...]
    sign: int


def as_fixed_point(real: float) -> float:
    """The real number whose multiplier QuantizeMultiplier computes for `real` on x86-64: 0 for infinity and NaN."""
    return real if math.isfinite(real) else 0.0


def cast_sums(reals: Sequence[float], largest: Sequence[int], *, zero_point: int, dtype: str) -> CastSums | None:
    """The replacements for sums |s| <= largest of integer type `dtype`; None if every product fits, as in any useful network."""
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
    """The largest sum whose rounded product stays below `beyond`; -1 if there is none, None if every sum up to `bound` does."""
    if not math.isfinite(real):
        return -1
    if real * bound < beyond - 1:
        return None
    within = int(limits(real, np.array([beyond]))[0]) - 1
    return within if within < bound else None
