"""expm1f and tanhf step by step in float32, as fdlibm has them.

TensorFlow Lite makes its tables of GELU, TANH and ELU with the C library's float functions.  These two are not correctly rounded
in fdlibm, from which newlib and glibc before 2.41 have them, so that a table can differ by one code from that of exact functions.
Method and coefficients: fdlibm, `s_expm1.c` and `s_tanh.c`, in the float versions of Ian Lance Taylor.
"""

from __future__ import annotations

import numpy as np

from aot.ir.op import Array

_F = np.float32
_LN2_HIGH, _LN2_LOW, _INVERSE_LN2 = _F(6.9313812256e-01), _F(9.0580006145e-06), _F(1.4426950216e00)
_COEFFICIENTS = tuple(map(_F, (-2.0109921195e-07, 4.0082177293e-06, -7.9365076090e-05, 1.5873016091e-03, -3.3333335072e-02)))
"""Of z^5, ..., z^1 in r(z) = x/2 * (e^x + 1) / (e^x - 1), z = x^2 / 2."""

_TINY_EXPM1, _TINY_TANH = _F(2.0**-25), _F(2.0**-55)
_OVERFLOW_EXPM1, _LARGEST_TANH = _F(128 * np.log(2)), _F(22)


def expm1f(x: Array) -> Array:
    """e^x - 1 of float32 values, float32.

    x = k ln 2 + r with |r| <= ln 2 / 2; e^r - 1 from a rational function of r, then scaled by 2^k.
    """
    x = np.asarray(x, _F)
    with np.errstate(all="ignore"):
        k = _halvings(x)
        high, low = x - k * _LN2_HIGH, k * _LN2_LOW
        r = np.where(k == 0, x, high - low)
        rest = np.where(k == 0, _F(0), (high - r) - low)
        result = _scaled(r, rest, k)
        result = np.where(np.abs(x) < _TINY_EXPM1, x, result)
        result = np.where(x <= _F(-27 * np.log(2)), _F(-1), result)
        result = np.where(x >= _OVERFLOW_EXPM1, _F(np.inf), result)
        return np.asarray(np.where(np.isnan(x), x, result), _F)


def _halvings(x: Array) -> Array:
    """k as float32: 0 up to ln 2 / 2, 1 up to 3/2 ln 2, then the nearest whole number of x / ln 2; with x's sign."""
    size = np.abs(x)
    nearest = np.trunc(_INVERSE_LN2 * x + np.copysign(_F(0.5), x))
    k = np.where(size < _F(1.5 * np.log(2)), np.copysign(_F(1), x), nearest)
    return np.asarray(np.where(size > _F(0.5 * np.log(2)), np.nan_to_num(np.clip(k, -60, 130)), _F(0)), _F)


def _scaled(r: Array, rest: Array, k: Array) -> Array:
    """(e^(r + rest)) * 2^k - 1, with the formula that rounds least for each k."""
    half = _F(0.5) * r
    z = r * half
    q = np.zeros_like(z)
    for c in _COEFFICIENTS:
        q = (q + c) * z
    q = _F(1) + q
    t = _F(3) - q * half
    e = z * ((q - t) / (_F(6) - r * t))
    small = r - (r * e - z)
    e = (r * (e - rest) - rest) - z
    exponent = k.astype(np.int32)
    below = np.ldexp(_F(1), -exponent)
    whole = np.ldexp(_F(1) - (e - r), exponent) - _F(1)
    middle = np.ldexp((_F(1) - below) - (e - r), exponent)
    large = np.ldexp((r - (e + below)) + _F(1), exponent)
    one = np.where(r < _F(-0.25), _F(-2) * (e - (r + _F(0.5))), _F(1) + _F(2) * (r - e))
    choices = [k == 0, k == -1, k == 1, (k <= -2) | (k > 56), k < 23]
    return np.asarray(np.select(choices, [small, _F(0.5) * (r - e) - _F(0.5), one, whole, middle], large), _F)


def tanhf(x: Array) -> Array:
    """tanh of float32 values, float32, from expm1f(2|x|) or, below 1, expm1f(-2|x|)."""
    x = np.asarray(x, _F)
    size: Array = np.abs(x)
    with np.errstate(all="ignore"):
        t = expm1f(np.where(size >= _F(1), _F(2) * size, _F(-2) * size))
        result = np.where(size >= _F(1), _F(1) - _F(2) / (t + _F(2)), -t / (t + _F(2)))
        result = np.where(size >= _LARGEST_TANH, _F(1), result)
        result = np.where(size < _TINY_TANH, size, result)
        return np.asarray(np.where(np.isnan(x), x, np.copysign(result, x)), _F)
