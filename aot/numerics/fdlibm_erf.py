"""erfcf step by step in float32, as fdlibm has it; GELU's tables are made with it (see `fdlibm`).

Method and coefficients: fdlibm, `s_erf.c`, in the float version of Ian Lance Taylor.  Its two exponentials are
those of the GNU C library.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array
from aot.numerics.glibc import expf

_F = np.float32
_ERF_1 = _F(8.4506291151e-01)
"""The constant that the part about 1 is relative to."""

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
"""Numerator and denominator, the constant term first."""

_LEAST_LARGER = np.array(0x4036DB6D, np.uint32).view(_F)
"""About 1 / 0.35."""


def erfcf(x: Array) -> Array:
    """1 - erf(x) of float32 values, float32."""
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
    """erfc from 1.25 on: e^(-x^2 - 0.5625 + R/S) / x, with x^2 split so that e's argument is exact."""
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
