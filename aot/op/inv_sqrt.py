"""The fixed-point inverse square root of TFLite: used by RSQRT and L2_NORMALIZATION.

Five Newton steps from 1 in Q3.28.  Source: `GetInvSqrtQuantizedMultiplierExp` of `kernels/internal/common.h`.
"""

from __future__ import annotations

_HALF_SQRT_2 = 1518500250
"""sqrt(2) / 2 in Q0.31."""


def _mul(a: int, b: int) -> int:
    """SaturatingRoundingDoublingHighMul."""
    return min((a * b + (1 << 30)) >> 31, (1 << 31) - 1)


def _shift_left(x: int, amount: int) -> int:
    """Saturating."""
    return max(-(1 << 31), min((1 << 31) - 1, x << amount))


def inverse_sqrt(value: int) -> tuple[int, int]:
    """(multiplier, shift): 1 / sqrt(value) = multiplier * 2^(shift - 31) for value >= 1; 0 counts as 1."""
    if value <= 1:
        return (1 << 31) - 1, 0
    right = 11
    while value >= 1 << 29:
        value //= 4
        right += 1
    pairs = (31 - value.bit_length()) // 2 - 1
    right -= pairs
    value <<= 2 * pairs
    number = value >> 1  # Q3.28
    half = (number + 1) >> 1
    x = 1 << 28
    for _ in range(5):
        cube = _shift_left(_mul(_mul(x, x), x), 6)
        x = _shift_left(_mul((1 << 28) + (1 << 27), x) - _mul(half, cube), 3)
    x = _mul(x, _HALF_SQRT_2)
    if right < 0:
        x, right = x << -right, 0
    return x, -right
