"""expm1f, tanhf, atanf, atan2f and erfcf step by step in float32, like fdlibm.

TensorFlow Lite builds its tables of GELU, TANH and ELU with the C library's float functions.  expm1f and tanhf are not correctly
rounded in fdlibm, which newlib and glibc before 2.41 use, so a table can differ by one step from a table of exact functions.
Method and coefficients: fdlibm, `s_expm1.c` and `s_tanh.c`, in the float versions of Ian Lance Taylor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array
from aot.numerics.glibc import expf

_F = np.float32
_LN2_HIGH, _LN2_LOW, _INVERSE_LN2 = _F(6.9313812256e-01), _F(9.0580006145e-06), _F(1.4426950216e00)
_COEFFICIENTS = tuple(map(_F, (-2.0109921195e-07, 4.0082177293e-06, -7.9365076090e-05, 1.5873016091e-03, -3.3333335072e-02)))
"""Coefficients of z^5, ..., z^1 in r(z) = x/2 * (e^x + 1) / (e^x - 1), z = x^2 / 2."""

_TINY_EXPM1, _TINY_TANH = _F(2.0**-25), _F(2.0**-55)
_OVERFLOW_EXPM1, _LARGEST_TANH = _F(128 * np.log(2)), _F(22)


def expm1f(x: Array) -> Array:
    """e^x - 1 of float32 values, as float32.

    x = k ln 2 + r with |r| <= ln 2 / 2; e^r - 1 from a rational function of r, then scaled by 2^k.
    """
    x = np.asarray(x, _F)
    with np.errstate(all="ignore"):
        k = _halvings(x)
        high, low = x - k * _LN2_HIGH, k * _LN2_LOW
        r = np.where(k == 0, x, high - low)
        error = np.where(k == 0, _F(0), (high - r) - low)
        result = _scaled(r, error, k)
        result = np.where(np.abs(x) < _TINY_EXPM1, x, result)
        result = np.where(x <= _F(-27 * np.log(2)), _F(-1), result)
        result = np.where(x >= _OVERFLOW_EXPM1, _F(np.inf), result)
        return np.asarray(np.where(np.isnan(x), x, result), _F)


def _halvings(x: Array) -> Array:
    """k as float32: 0 up to ln 2 / 2, 1 up to 3/2 ln 2, then the whole number nearest to x / ln 2; with x's sign."""
    size = np.abs(x)
    nearest = np.trunc(_INVERSE_LN2 * x + np.copysign(_F(0.5), x))
    k = np.where(size < _F(1.5 * np.log(2)), np.copysign(_F(1), x), nearest)
    return np.asarray(np.where(size > _F(0.5 * np.log(2)), np.nan_to_num(np.clip(k, -60, 130)), _F(0)), _F)


def _scaled(r: Array, error: Array, k: Array) -> Array:
    """(e^(r + error)) * 2^k - 1, with the formula that rounds least for each k."""
    half = _F(0.5) * r
    z = r * half
    q = np.zeros_like(z)
    for c in _COEFFICIENTS:
        q = (q + c) * z
    q = _F(1) + q
    t = _F(3) - q * half
    e = z * ((q - t) / (_F(6) - r * t))
    small = r - (r * e - z)
    e = (r * (e - error) - error) - z
    exponent = k.astype(np.int32)
    below = np.ldexp(_F(1), -exponent)
    whole = np.ldexp(_F(1) - (e - r), exponent) - _F(1)
    middle = np.ldexp((_F(1) - below) - (e - r), exponent)
    large = np.ldexp((r - (e + below)) + _F(1), exponent)
    one = np.where(r < _F(-0.25), _F(-2) * (e - (r + _F(0.5))), _F(1) + _F(2) * (r - e))
    choices = [k == 0, k == -1, k == 1, (k <= -2) | (k > 56), k < 23]
    return np.asarray(np.select(choices, [small, _F(0.5) * (r - e) - _F(0.5), one, whole, middle], large), _F)


def tanhf(x: Array) -> Array:
    """tanh of float32 values, as float32: from expm1f(2|x|) or, below 1, expm1f(-2|x|)."""
    x = np.asarray(x, _F)
    size: Array = np.abs(x)
    with np.errstate(all="ignore"):
        t = expm1f(np.where(size >= _F(1), _F(2) * size, _F(-2) * size))
        result = np.where(size >= _F(1), _F(1) - _F(2) / (t + _F(2)), -t / (t + _F(2)))
        result = np.where(size >= _LARGEST_TANH, _F(1), result)
        result = np.where(size < _TINY_TANH, size, result)
        return np.asarray(np.where(np.isnan(x), x, np.copysign(result, x)), _F)


# atanf, atan2f: fdlibm, `s_atan.c` and `e_atan2.c`, in the float versions of Ian Lance Taylor.


_LIMITS = np.array([0x3EE00000, 0x3F300000, 0x3F980000, 0x401C0000], np.uint32).view(_F)
"""7/16, 11/16, 19/16, 39/16: limits between the expansions around 0, 1/2, 1, 3/2 and infinity."""
_HIGH = np.array([0, 4.6364760399e-01, 7.8539812565e-01, 9.8279368877e-01, 1.5707962513e00], _F)
_LOW = np.array([0, 5.0121582440e-09, 3.7748947079e-08, 3.4473217170e-08, 7.5497894159e-08], _F)
_EVEN = (1.6285819933e-02, 4.9768779427e-02, 6.6610731184e-02, 9.0908870101e-02, 1.4285714924e-01, 3.3333334327e-01)
_ODD = (-3.6531571299e-02, -5.8335702866e-02, -7.6918758452e-02, -1.1111110449e-01, -2.0000000298e-01)
_PI, _HALF_PI, _REST = _F(3.1415927410e00), _F(1.5707963705e00), _F(-8.7422776573e-08)


def atanf(x: Array) -> Array:
    """atan of float32 values, as float32: atan of the nearest centre c plus atan((x - c) / (1 + c x))."""
    x = np.asarray(x, _F)
    size = np.abs(x)
    with np.errstate(all="ignore"):
        centre = sum((size >= limit).astype(np.int32) for limit in _LIMITS)
        near_half = (_F(2) * size - _F(1)) / (_F(2) + size)
        near_one = (size - _F(1)) / (size + _F(1))
        near_more = (size - _F(1.5)) / (_F(1) + _F(1.5) * size)
        r = np.select([centre == i for i in range(4)], [size, near_half, near_one, near_more], _F(-1) / size)
        z = r * r
        w = z * z
        even, odd = z * _horner(_EVEN, w), w * _horner(_ODD, w)
        correction = r * (even + odd)
        y = np.where(centre == 0, r - correction, _HIGH[centre] - ((correction - _LOW[centre]) - r))
        y = np.where(size >= _F(2.0**25), _HIGH[4] + _LOW[4], np.where(size < _F(2.0**-29), size, y))
        return np.asarray(np.where(np.isnan(x), x, np.copysign(y, x)), _F)


def _horner(coefficients: tuple[float, ...], x: Array) -> Array:
    value = np.full_like(x, _F(coefficients[0]))
    for c in coefficients[1:]:
        value = _F(c) + x * value
    return value


def atan2f(y: Array, x: Array) -> Array:
    """The angle of points (x, y), as float32: atan |y / x| and the quadrant."""
    y, x = np.broadcast_arrays(np.asarray(y, _F), np.asarray(x, _F))
    with np.errstate(all="ignore"):
        height, width, left = np.abs(y), np.abs(x), np.signbit(x)
        apart = (_bits(height) - _bits(width)) >> 23
        z = np.where(apart > 60, _HALF_PI + _F(0.5) * _REST, np.where(left & (apart < -60), _F(0), atanf(np.abs(y / x))))
        z = np.where(left, _PI - (z - _REST), z)
        corner = np.where(left, _F(3) * _F(7.8539818525e-01), _F(7.8539818525e-01))
        flat = np.where(left, _PI, _F(0))
        z = np.where(np.isinf(height) | (width == 0), _HALF_PI, z)
        z = np.where(np.isinf(width), np.where(np.isinf(height), corner, flat), z)
        z = np.where(height == 0, flat, z)
        z = np.where(x == 1, atanf(height), z)
        return np.asarray(np.where(np.isnan(x) | np.isnan(y), _F(np.nan), np.copysign(z, y)), _F)


def _bits(x: Array) -> Array:
    return np.ascontiguousarray(x).view(np.int32).reshape(x.shape)


# erfcf: fdlibm, `s_erf.c`, in the float version of Ian Lance Taylor.  Its two exponentials come from the GNU C library.


_ERF_1 = _F(8.4506291151e-01)
"""The constant to which the expansion about 1 is relative."""

_SMALL = (
    (1.2837916613e-01, -3.2504209876e-01, -2.8481749818e-02, -5.7702702470e-03, -2.3763017452e-05),
    (1, 3.9791721106e-01, 6.5022252500e-02, 5.0813062117e-03, 1.3249473704e-04, -3.9602282413e-06),
)
_ABOUT_1 = (
    (
        *(-2.3621185683e-03, 4.1485610604e-01, -3.7220788002e-01, 3.1834661961e-01),
        *(-1.1089469492e-01, 3.5478305072e-02, -2.1663755178e-03),
    ),
    (
        *(1, 1.0642088205e-01, 5.4039794207e-01, 7.1828655899e-02),
        *(1.2617121637e-01, 1.3637083583e-02, 1.1984500103e-02),
    ),
)
_LARGE = (
    (
        *(-9.8649440333e-03, -6.9385856390e-01, -1.0558626175e01, -6.2375331879e01),
        *(-1.6239666748e02, -1.8460508728e02, -8.1287437439e01, -9.8143291473e00),
    ),
    (
        *(1, 1.9651271820e01, 1.3765776062e02, 4.3456588745e02, 6.4538726807e02),
        *(4.2900814819e02, 1.0863500214e02, 6.5702495575e00, -6.0424413532e-02),
    ),
)
_LARGER = (
    (
        *(-9.8649431020e-03, -7.9928326607e-01, -1.7757955551e01, -1.6063638306e02),
        *(-6.3756646729e02, -1.0250950928e03, -4.8351919556e02),
    ),
    (
        *(1, 3.0338060379e01, 3.2579251099e02, 1.5367296143e03),
        *(3.1998581543e03, 2.5530502930e03, 4.7452853394e02, -2.2440952301e01),
    ),
)
"""Numerator and denominator, constant term first."""

_LEAST_LARGER = np.array(0x4036DB6D, np.uint32).view(_F)
"""About 1 / 0.35."""


def erfcf(x: Array) -> Array:
    """1 - erf(x) of float32 values, as float32."""
    x = np.asarray(x, _F)
    size = np.abs(x)
    with np.errstate(all="ignore"):
        y = x * _ratio(_SMALL, x * x)
        small = np.where(x < _F(0.25), _F(1) - (x + y), _F(0.5) - (y + (x - _F(0.5))))
        ratio = _ratio(_ABOUT_1, size - _F(1))
        about_1 = np.where(x >= 0, (_F(1) - _ERF_1) - ratio, _F(1) + (_ERF_1 + ratio))
        tail = _tail(size)
        large = np.where(x > 0, tail, _F(2) - tail)
        far = np.where(x > 0, _F(0), _F(2))
        choices = [np.isnan(x), size < _F(0.84375), size < _F(1.25), (size >= _F(28)) | (x < -6)]
        return np.asarray(np.select(choices, [x, small, about_1, far], large), _F)


def _tail(size: Array) -> Array:
    """erfc from 1.25 on: e^(-x^2 - 0.5625 + R/S) / x, with x^2 split so that the argument of e is exact."""
    s = _F(1) / (size * size)
    ratio = np.where(size < _LEAST_LARGER, _ratio(_LARGE, s), _ratio(_LARGER, s))
    high = (np.ascontiguousarray(size).view(np.uint32) & np.uint32(0xFFFFE000)).view(_F)
    return expf(-high * high - _F(0.5625)) * expf((high - size) * (high + size) + ratio) / size


def _ratio(of: tuple[Sequence[float], Sequence[float]], x: Array) -> Array:
    """A quotient of polynomials, by Horner's rule."""
    value = [np.zeros_like(x)] * 2
    for i, coefficients in enumerate(of):
        for c in reversed(coefficients):
            value[i] = _F(c) + x * value[i]
    return np.asarray(value[0] / value[1])
