"""Sigmoid and tanh of 16-bit fixed-point numbers as gemmlowp computes them: exp by a barrel shifter, reciprocals by Newton steps.

Arguments have 15 - integer_bits fractional bits, results 15.  Source of the method and its constants: gemmlowp, `fixedpoint.h`
(`exp_on_negative_values`, `one_over_one_plus_x_for_x_in_0_1`).  `crt/include/aot/fixed16.h` is the same in C.
"""

from __future__ import annotations

import numpy as np

from aot.ir.op import Array
from aot.tir.intrin import Intrin

_EXP_EIGHTH, _THIRD = 28918, 10923
_EXP = (25520, 19875, 12055, 4435, 600, 11, 0)
"""e^-(2^k) for k from -2 on, as fractions of 2^15."""
_LOW, _HIGH = -(1 << 15), (1 << 15) - 1


def _mul(a: Array, b: Array | int) -> Array:
    """Half of the product's upper part, halves rounded up."""
    product: Array = a * b
    return np.asarray((product + (1 << 14)) >> 15)


def _saturated(x: Array) -> Array:
    return np.clip(x, _LOW, _HIGH)


def _halved(x: Array, exponent: int) -> Array:
    """x / 2^exponent, halves away from zero."""
    value: Array = (x + (1 << (exponent - 1)) - (x < 0)) >> exponent
    return value


def _exp(a: Array, integer_bits: int) -> Array:
    """e^a for a <= 0."""
    fraction_bits = 15 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    last = (a & (quarter - 1)) - quarter
    x = _saturated(last << integer_bits) + (1 << 12)
    x2 = _mul(x, x)
    x3, x4 = _mul(x2, x), _mul(x2, x2)
    series = _halved(_mul(_halved(x4, 2) + x3, _THIRD) + x2, 1)
    value = _saturated(_EXP_EIGHTH + _mul(x + series, _EXP_EIGHTH))
    rest = last - a
    for exponent, factor in enumerate(_EXP, -2):
        if integer_bits > exponent:
            value = np.where(rest & (1 << (fraction_bits + exponent)), _mul(value, factor), value)
    if integer_bits > 5:
        value = np.where(a < -(1 << (20 - integer_bits)), 0, value)
    return np.where(a == 0, _HIGH, value)


def _reciprocal(a: Array) -> Array:
    """2 / (1 + a) for a in [0, 1], with 13 fractional bits."""
    half = (a + (1 << 15)) >> 1
    x = 23130 + _mul(half, -15420)
    for _ in range(3):
        x = x + _saturated(_mul(x, (1 << 13) - _mul(half, x)) * 4)
    return x


def _as_int16(x: Array) -> Array:
    return np.asarray(x).astype(np.int16).astype(np.int64)


def sigmoid16(x: Array) -> Array:
    """1 / (1 + e^-x) of int16 with three integer bits, int16."""
    a = x.astype(np.int64)
    size = np.where(a > 0, a, _as_int16(-a))
    value = _saturated(2 * _reciprocal(_exp(_as_int16(-size), 3)))
    return np.where(a == 0, 1 << 14, np.where(a > 0, value, _HIGH - value)).astype(np.int16)


def tanh16(x: Array, integer_bits: int) -> Array:
    """tanh of int16 with 0 to 6 integer bits, int16."""
    a = x.astype(np.int64)
    below = np.where(a < 0, a, -a)
    value = _saturated(4 * (_reciprocal(_exp(below, integer_bits + 1)) - (1 << 13)))
    return np.where(a == 0, 0, np.where(a < 0, -value, value)).astype(np.int16)


SIGMOID16 = Intrin(
    "aot_sigmoid16",
    ("int32",),
    "int32",
    "aot_sigmoid16({0})",
    lambda x: int(sigmoid16(np.array([x], np.int16))[0]),
    header="aot/fixed16.h",
)
TANH16 = Intrin(
    "aot_tanh16",
    ("int32", "int32"),
    "int32",
    "aot_tanh16({0}, {1})",
    lambda x, bits: int(tanh16(np.array([x], np.int16), bits)[0]),
    header="aot/fixed16.h",
)
"""Of int32 expressions within int16; the second argument is the number of integer bits, a constant."""
