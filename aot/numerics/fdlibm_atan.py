"""atanf and atan2f step by step in float32, as fdlibm has them.

Method and coefficients: fdlibm, `s_atan.c` and `e_atan2.c`, in the float versions of Ian Lance Taylor.
"""

from __future__ import annotations

import numpy as np

from aot.ir.op import Array

_F = np.float32
_LIMITS = np.array([0x3EE00000, 0x3F300000, 0x3F980000, 0x401C0000], np.uint32).view(_F)
"""7/16, 11/16, 19/16, 39/16: up to the first around 0, then around 1/2, 1, 3/2 and infinity."""
_HIGH = np.array([0, 4.6364760399e-01, 7.8539812565e-01, 9.8279368877e-01, 1.5707962513e00], _F)
_LOW = np.array([0, 5.0121582440e-09, 3.7748947079e-08, 3.4473217170e-08, 7.5497894159e-08], _F)
_EVEN = (1.6285819933e-02, 4.9768779427e-02, 6.6610731184e-02, 9.0908870101e-02, 1.4285714924e-01, 3.3333334327e-01)
_ODD = (-3.6531571299e-02, -5.8335702866e-02, -7.6918758452e-02, -1.1111110449e-01, -2.0000000298e-01)
_PI, _HALF_PI, _REST = _F(3.1415927410e00), _F(1.5707963705e00), _F(-8.7422776573e-08)


def atanf(x: Array) -> Array:
    """Of float32 values, float32: atan of the nearest centre c plus that of (x - c) / (1 + c x)."""
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
        rest = r * (even + odd)
        y = np.where(centre == 0, r - rest, _HIGH[centre] - ((rest - _LOW[centre]) - r))
        y = np.where(size >= _F(2.0**25), _HIGH[4] + _LOW[4], np.where(size < _F(2.0**-29), size, y))
        return np.asarray(np.where(np.isnan(x), x, np.copysign(y, x)), _F)


def _horner(coefficients: tuple[float, ...], x: Array) -> Array:
    value = np.full_like(x, _F(coefficients[0]))
    for c in coefficients[1:]:
        value = _F(c) + x * value
    return value


def atan2f(y: Array, x: Array) -> Array:
    """The angle of points (x, y), float32: atan |y / x| and the quadrant."""
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
