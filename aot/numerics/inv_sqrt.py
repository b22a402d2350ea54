"""The fixed-point inverse square root of TFLite: used by RSQRT and L2_NORMALIZATION.

Five Newton steps from 1 in Q3.28.  Source: `GetInvSqrtQuantizedMultiplierExp` of `kernels/internal/common.h`.
"""

from __future__ import annotations

from aot.numerics.fixed_point import INT32_MAX, named, tir_saturating_rounding_doubling_high_mul
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm, maximum, select

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


def tir_inverse_sqrt(b: IRBuilder, value: Expr) -> tuple[Expr, Expr]:
    """`inverse_sqrt` of an int32 expression >= 0: int32 expressions.  Nothing saturates: x stays below 2 until the last step."""
    mul = tir_saturating_rounding_doubling_high_mul
    value = named(b, "value", value)
    number, right = b.local("number", (1,), "int32"), b.local("right", (1,), "int32", init=11)
    b.store(number, 0, maximum(value, 2))
    with b.if_(number[0] >= 1 << 29):
        b.store(number, 0, number[0] >> 2)
        b.store(right, 0, 12)
    for step in (8, 4, 2, 1):
        with b.if_(number[0] < 1 << (29 - 2 * step)):
            b.store(number, 0, number[0] * (1 << (2 * step)))
            b.store(right, 0, right[0] - step)
    half = b.let("half", ((number[0] >> 1) + 1) >> 1)
    x = b.local("x", (1,), "int32", init=1 << 28)
    with b.for_("newton", 5):
        cube = mul(mul(x[0], x[0]), x[0]) * (1 << 6)
        b.store(x, 0, (mul(x[0], imm((1 << 28) + (1 << 27))) - mul(half, cube)) * (1 << 3))
    b.store(x, 0, mul(x[0], imm(_HALF_SQRT_2)))
    with b.if_(right[0] < 0):
        b.store(x, 0, x[0] << (imm(0) - right[0]))
        b.store(right, 0, 0)
    is_tiny = value <= 1
    multiplier = b.let("multiplier", select(is_tiny, imm(INT32_MAX), x[0]))
    return multiplier, b.let("exponent", select(is_tiny, imm(0), imm(0) - right[0]))
