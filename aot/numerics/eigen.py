"""erfc, tanh and logistic of float32 as Eigen computes them without fused multiplications, for the reference's GELU and LSTM.

Eigen processes vectors of four elements, then the remaining elements one by one.  For single elements its erfc and logistic use
the exponential of the C library instead of its own; tanh is the same.

Methods and coefficients: Eigen, `SpecialFunctionsImpl.h` (`generic_fast_erfc`), `GenericPacketMathTrig.h` (`ptanh_float`),
`GenericPacketMathFunctions.h` (`pexp_float`), `UnaryFunctors.h`.  `crt/include/aot/math_float.h` is the C equivalent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from aot.ir.op import Array
from aot.numerics.glibc import expf

_F = np.float32

_EVEN = (1.37449637986719608306884765625e-3, 4.166965186595916748046875e-2, 0.49999988079071044921875)
_ODD = (8.36894474923610687255859375e-3, 0.16666518151760101318359375)
_ERFC_SMALL = (
    *(5.61802298761904239654541015625e-04, -4.91381669417023658752441406250e-03, 2.67075151205062866210937500000e-02),
    *(-1.12800106406211853027343750000e-01, 3.76122951507568359375000000000e-01, -1.12837910652160644531250000000e00),
)
_ERFC_LARGE = (
    *(1.0208116471767425537109375e-01, 4.2920666933059692382812500e-01),
    *(3.2379078865051269531250000e-01, 5.3971976041793823242187500e-02),
)
_ERFC_DIVISOR = (
    *(1.7251677811145782470703125e-02, 3.9137163758277893066406250e-01, 1.0, 6.2173241376876831054687500e-01),
    9.5662862062454223632812500e-02,
)
_TANH = (1.394553628e-8, 2.102733560e-5, 3.520756727e-3, 1.340216100e-1)
_TANH_DIVISOR = (8.015776984e-7, 3.326951409e-4, 2.597254514e-2, 4.673548340e-1, 1.0)
"""Coefficients of polynomials, highest power first."""

_ERFC_RANGE, _TANH_RANGE = _F(11), _F(7.90738964080810547)


def _polynomial(coefficients: Sequence[float], x: Array) -> Array:
    value = np.full_like(x, _F(coefficients[0]))
    for c in coefficients[1:]:
        value = value * x + _F(c)
    return value


def _exp(x: Array) -> Array:
    """e^x for values from -121 to 0: x = m ln 2 + r."""
    x = np.maximum(x, _F(-104))
    m = np.rint(x * _F(1.44269504088896341))
    r = m * _F(2.12194440e-4) + (m * _F(-0.693359375) + x)
    r2 = r * r
    y = r2 * (r * _polynomial(_ODD, r2) + _polynomial(_EVEN, r2)) + (r + _F(1))
    exponent = m.astype(np.int32)
    part = exponent >> 1
    return np.asarray(np.ldexp(np.ldexp(y, part), exponent - part), _F)


def erfcf(x: Array) -> Array:
    """1 - erf(x) of float32 values, as float32; like vectors of four."""
    return _erfc(x, _exp)


def scalar_erfcf(x: Array) -> Array:
    """1 - erf(x) of float32 values, as float32; like single elements."""
    return _erfc(x, expf)


def _erfc(x: Array, exp: Callable[[Array], Array]) -> Array:
    """A polynomial for |x| <= 1; beyond, e^(-x^2) / x times a quotient in 1 / x^2."""
    x = np.clip(np.asarray(x, _F), -_ERFC_RANGE, _ERFC_RANGE)
    with np.errstate(all="ignore"):
        x2 = x * x
        large = x2 > 1
        small = x * _polynomial(_ERFC_SMALL, x2) + _F(1)
        x, x2 = np.where(large, x, _F(2)), np.where(large, x2, _F(4))
        wide = _F(4097) * x
        upper = (x - wide) + wide
        lower = x - upper
        residual = lower * lower + (lower * upper + (upper * lower + (upper * upper - x2)))  # x * x - x2, exactly
        e, q = exp(-x2), _F(1) / x2
        ratio = _polynomial(_ERFC_LARGE, q) / (x * _polynomial(_ERFC_DIVISOR, q))
        tail = (e - e * residual) * ratio + np.where(x < 0, _F(2), _F(0))
        return np.asarray(np.where(large, tail, small), _F)


def tanhf(x: Array) -> Array:
    """tanh of float32 values, as float32: a quotient of polynomials."""
    x = np.clip(np.asarray(x, _F), -_TANH_RANGE, _TANH_RANGE)
    with np.errstate(all="ignore"):
        x2 = x * x
        return np.asarray(((x2 * x) * _polynomial(_TANH, x2) + x) / _polynomial(_TANH_DIVISOR, x2), _F)


_LOGISTIC_MOST = _F(16.6355324)
_LOGISTIC_EVEN = (4.1898667812347412109375e-2, 0.49999141693115234375)
_LOGISTIC_ODD = (8.33471305668354034423828125e-3, 0.16666877269744873046875)


def logisticf(x: Array) -> Array:
    """1 / (1 + e^-x) of float32 values, as float32; like vectors of four: e^(x / 2), squared."""
    x = np.asarray(x, _F)
    with np.errstate(all="ignore"):
        half = np.minimum(np.maximum(x, _F(-104)), _LOGISTIC_MOST) * _F(0.5)
        m = np.floor(half * _F(1.44269504088896341) + _F(0.5))
        r = m * _F(2.12194440e-4) + (m * _F(-0.693359375) + half)
        r2 = r * r
        p = r2 * (r * _polynomial(_LOGISTIC_ODD, r2) + _polynomial(_LOGISTIC_EVEN, r2)) + (r + _F(1))
        e = np.ldexp(p, m.astype(np.int32))
        e = e * e
        return np.asarray(np.where(x < -104, _F(0), e / (_F(1) + e)), _F)


def scalar_logisticf(x: Array) -> Array:
    """1 / (1 + e^-x) of float32 values, as float32; like single elements."""
    with np.errstate(all="ignore"):
        e = expf(np.minimum(np.asarray(x, _F), _LOGISTIC_MOST))
        return np.asarray(e / (_F(1) + e), _F)
