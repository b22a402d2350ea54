"""Halves that go away from zero, where the reference rounds an accumulator once: its fully connected layers.

acc * m / 2^n is a half only where acc is an odd multiple of 2^(n-1-z), z being the number of zeros that end m.  Rounding halves
up ("single") therefore gives the same for layers whose sums are smaller than that, nearly every one; so it does with m + 1
in place of m where sums are smaller than 2^z: the product moves away from zero, over the half but not to the next multiple of
2^(z-n).  Scales that are powers of two have z = 30.  What is left is rounded as it says ("away").
"""

from __future__ import annotations

from collections.abc import Sequence

from aot.numerics.fixed_point import INT32_MAX

Pair = tuple[int, int]
"""Multiplier and shift, as in `quantize_multiplier`."""


def ties_away(pairs: Sequence[Pair], largest: Sequence[int]) -> tuple[list[Pair], str]:
    """Multipliers and the rounding that give what halves away from zero give for |acc| <= largest, of each channel or of all."""
    found: list[Pair] = []
    for multiplier, shift in pairs:
        bound = max(largest) if len(pairs) == 1 else largest[len(found)]
        zeros = (multiplier & -multiplier).bit_length() - 1
        if multiplier == 0 or bound < 1 << max(30 - shift - zeros, 0):
            found.append((multiplier, shift))
        elif bound < 1 << zeros and multiplier < INT32_MAX:
            found.append((multiplier + 1, shift))
        else:
            return list(pairs), "away"
    return found, "single"
