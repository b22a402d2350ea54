"""Elementary functions for float32 operators: their C text and their meaning.  Integer models never use them.

Functions that round differently from one C library to the next have their own C (`crt/include/aot/math.h`, `math_float.h`), bit
exact with the library that the reference uses, and the same in numpy here; see docs/adr/0013.  The others are exact in every C
library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from aot.ir.op import Array
from aot.tir.intrin import Intrin

_F, _D, _U = np.float32, np.float64, np.uint64


def _horner(coefficients: Sequence[float], x: Array) -> Array:
    """The polynomial with these coefficients, highest power first."""
    value = np.full_like(x, _F(coefficients[0]))
    for c in coefficients[1:]:
        value = value * x + _F(c)
    return value


def _bits(x: Array) -> Array:
    return np.ascontiguousarray(x).view(np.uint32).reshape(x.shape)


# expf, logf, sinf, cosf and powf, bit-exact with the GNU C library from 2.28 on.  Methods, tables and coefficients: Arm's
# optimized-routines, `expf.c`, `logf.c`, `sincosf.h`, `powf.c`, `powf_log2_data.c`.  `crt/include/aot/math.h` explains where we
# differ from the original: exp by integers, fused products in exact parts.


def doubles(*digits: str) -> Array:
    """Numbers from hexadecimal text."""
    return np.array([float.fromhex(d) for d in digits])


# --- exp

_INV_LN2_HIGH, _INV_LN2_LOW = _U(0x171547), _U(0x652B82FE)
"""32 / ln 2 * 2^47."""
_C0, _C1, _C2 = np.int64(0x71ABE12E), np.int64(0x7AFF3943EB13CC00), np.int64(0x58B90BFC314B5800)
_LARGEST, _SMALLEST = _F(float.fromhex("0x1.62e42ep6")), _F(float.fromhex("-0x1.9fe368p6"))
OFFSET = 0x140
ROOTS = np.array([
    0x10000000000000, 0x1059B0D3158574, 0x10B5586CF9890F, 0x111301D0125B51, 0x1172B83C7D517B, 0x11D4873168B9AA,
    0x12387A6E756238, 0x129E9DF51FDEE1, 0x1306FE0A31B715, 0x1371A7373AA9CB, 0x13DEA64C123422, 0x144E086061892D,
    0x14BFDAD5362A27, 0x15342B569D4F82, 0x15AB07DD485429, 0x16247EB03A5585, 0x16A09E667F3BCD, 0x171F75E8EC5F74,
    0x17A11473EB0187, 0x182589994CCE13, 0x18ACE5422AA0DB, 0x193737B0CDC5E5, 0x19C49182A3F090, 0x1A5503B23E255D,
    0x1AE89F995AD3AD, 0x1B7F76F2FB5E47, 0x1C199BDD85529C, 0x1CB720DCEF9069, 0x1D5818DCFBA487, 0x1DFC97337B9B5F,
    0x1EA4AFA2A490DA, 0x1F50765B6E4540,
], np.int64) * 1024 + OFFSET  # fmt: skip
"""2^(i/32) with 62 fractional bits, plus the offset that makes one rounding equal to the reference's two."""


def expf(x: Array) -> Array:
    """e^x of float32 values, as float32."""
    x = np.asarray(x, _F)
    usual = (x <= _LARGEST) & (x >= _SMALLEST) & (np.abs(x) >= _F(2.0**-27))
    with np.errstate(all="ignore"):
        result = _exp_fixed(np.where(usual, _bits(x), np.uint32(0x3F800000)))
        result = np.where(np.abs(x) < _F(2.0**-27), _F(1) + x, result)
        result = np.where(x > _LARGEST, _F(np.inf), np.where(x < _SMALLEST, _F(0), result))
        return np.asarray(np.where(np.isnan(x), x, result), _F)


def _exp_fixed(bits: Array) -> Array:
    """x * 32 / ln 2 = k + r, a polynomial of r, times 2^(k/32); the argument is the bits of float32 values."""
    mantissa = ((bits & 0x7FFFFF) | 0x800000).astype(_U)
    shift = _U(133) - ((bits >> 23) & 0xFF).astype(_U)
    low = mantissa * _INV_LN2_LOW
    high = mantissa * _INV_LN2_HIGH + (low >> _U(32))
    whole, part = high >> _U(32), high << _U(32) | low & _U(0xFFFFFFFF)
    far, near = np.maximum(shift, _U(32)) - _U(32), np.clip(shift, 1, 63).astype(_U)
    shifted = np.where(shift >= 32, (whole << _U(32) | part >> _U(32)) >> far, part >> near | whole << (_U(64) - near))
    part = np.where(shift > 0, shifted, part)
    whole = (whole >> np.minimum(shift, _U(32))).astype(np.int64)
    negative = bits >> 31 != 0
    whole = np.where(negative, -whole - (part != 0), whole)
    part = np.where(negative, _U(0) - part, part)
    k, r = whole + (part >> _U(63)).astype(np.int64), part.view(np.int64)
    p = _C0 * (r >> 32)
    p = _mulhi(r, _C1 + (p >> 7))
    p = _mulhi(r, _C2 + (p >> 7))
    root = ROOTS[k & 31]
    return _rounded(root + (_mulhi(p, root) >> 4), k >> 5)


def _mulhi(a: Array, b: Array) -> Array:
    """The high half of int64 products, ignoring the product of the low halves."""
    a_low, b_low = a & 0xFFFFFFFF, b & 0xFFFFFFFF
    low = (a_low.view(_U) * (b >> 32).view(_U) >> _U(32)).view(np.int64)
    return np.asarray((a >> 32) * (b >> 32) + ((a >> 32) * b_low >> 32) + low)


def _rounded(v: Array, exponent: Array) -> Array:
    """v * 2^(exponent - 62) as float32."""
    small = v >> 62 == 0
    v, field = np.where(small, v << 1, v).view(_U), exponent + 126 - small
    shift = 39 - np.minimum(field, 0)
    amount = np.minimum(shift, 63).astype(_U)
    mantissa = np.where(shift > 63, _U(0), (v + (_U(1) << (amount - _U(1)))) >> amount)
    bits: Array = mantissa.astype(np.uint32) + (np.maximum(field, 0).astype(np.uint32) << np.uint32(23))
    return bits.view(_F)


# --- log

_LN2 = float.fromhex("0x1.62e42fefa39efp-1")
_LOG = doubles("-0x1.00ea348b88334p-2", "0x1.5575b0be00b6ap-2", "-0x1.ffffef20a4123p-2")
INVERSES = doubles(
    *("0x1.661ec79f8f3bep+0", "0x1.571ed4aaf883dp+0", "0x1.49539f0f010bp+0", "0x1.3c995b0b80385p+0", "0x1.30d190c8864a5p+0"),
    *("0x1.25e227b0b8eap+0", "0x1.1bb4a4a1a343fp+0", "0x1.12358f08ae5bap+0", "0x1.0953f419900a7p+0", "0x1p+0"),
    *("0x1.e608cfd9a47acp-1", "0x1.ca4b31f026aap-1", "0x1.b2036576afce6p-1", "0x1.9c2d163a1aa2dp-1", "0x1.886e6037841edp-1"),
    "0x1.767dcf5534862p-1",
)
_LOGS = doubles(
    *("-0x1.57bf7808caadep-2", "-0x1.2bef0a7c06ddbp-2", "-0x1.01eae7f513a67p-2", "-0x1.b31d8a68224e9p-3"),
    *("-0x1.6574f0ac07758p-3", "-0x1.1aa2bc79c81p-3", "-0x1.a4e76ce8c0e5ep-4", "-0x1.1973c5a611cccp-4"),
    *("-0x1.252f438e10c1ep-5", "0x0p+0", "0x1.aa5aa5df25984p-5", "0x1.c5e53aa362eb4p-4", "0x1.526e57720db08p-3"),
    *("0x1.bc2860d22477p-3", "0x1.1058bc8a07ee1p-2", "0x1.4043057b6ee09p-2"),
)


def logf(x: Array) -> Array:
    """ln x of float32 values, as float32: x = 2^k z, and z by the nearest of 16 divisors."""
    x = np.asarray(x, _F)
    with np.errstate(all="ignore"):
        k, entry, z = _nearest_divisor(x)
        r = z * INVERSES[entry] - 1
        p = _LOG[1] * r + _LOG[2]
        p = _LOG[0] * (r * r) + p
        result = (p * (r * r) + ((_LOGS[entry] + k * _LN2) + r)).astype(_F)
        result = np.where(x == 0, _F(-np.inf), np.where(x < 0, _F(np.nan), result))
        return np.asarray(np.where(np.isnan(x) | np.isposinf(x), x, result), _F)


def _nearest_divisor(x: Array) -> tuple[Array, Array, Array]:
    """(k, i, z) with x = 2^k z and z nearest to divisor i."""
    tiny = x < _F(2.0**-126)
    bits = np.where(tiny, x * _F(2.0**23), x).astype(_F).view(np.int32) - np.where(tiny, 23 << 23, 0).astype(np.int32)
    offset = bits - np.int32(0x3F330000)
    k = offset >> 23
    return k, (offset >> 19) & 15, (bits - (k << 23)).astype(np.int32).view(_F).astype(_D)


# --- sin, cos

_TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p+23")
_HALF_PI_HIGH, _HALF_PI_LOW, _PI_63 = map(float.fromhex, ("0x1.921fb54442p0", "0x1.a3p-41", "0x1.921fb54442d18p-62"))
_SIN = doubles("-0x1.555545995a603p-3", "0x1.1107605230bc4p-7", "-0x1.994eb3774cf24p-13")
_COS = doubles("-0x1.ffffffd0c621cp-2", "0x1.55553e1068f19p-5", "-0x1.6c087e89a359dp-10", "0x1.99343027bf8c3p-16")
_DIGITS = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041
"""4 / pi * 2^191; the table holds the 32 bits from every eighth bit on."""
_FOUR_OVER_PI = np.array([(_DIGITS << 24 >> (208 - 8 * i)) & 0xFFFFFFFF for i in range(24)], _U)


def sinf(x: Array) -> Array:
    """sin x of float32 values, as float32."""
    return _sin_cos(np.asarray(x, _F), 0)


def cosf(x: Array) -> Array:
    """cos x of float32 values, as float32."""
    return _sin_cos(np.asarray(x, _F), 1)


def _sin_cos(x: Array, quadrant: int) -> Array:
    """x = n * pi / 2 + r with |r| <= pi / 4, then a polynomial of r; from 120 on, n and r come from an integer product."""
    size = np.abs(x)
    with np.errstate(all="ignore"):
        wide = x.astype(_D)
        middle = (size >= _F(0.75)) & (size < _F(120))
        n = (np.where(middle, wide * _TWO_OVER_PI, 0).astype(np.int32) + 0x800000) >> 24
        far_n, far_r = _reduced(x)
        far = size >= _F(120)
        n = np.where(far, far_n, n) + quadrant
        r = np.where(far, far_r, (wide - (n - quadrant) * _HALF_PI_HIGH) - (n - quadrant) * _HALF_PI_LOW)
        r2 = r * r
        sine = (r + (r * r2) * _SIN[0]) + ((r * r2) * r2) * (_SIN[1] + r2 * _SIN[2])
        r4 = r2 * r2
        cosine = ((1.0 + r2 * _COS[0]) + r4 * _COS[1]) + (r4 * r2) * (_COS[2] + r2 * _COS[3])
        y = np.where(n & 1 == 0, sine, cosine)
        result = np.where(n & 2 == 0, y, -y).astype(_F)
        result = np.where(size < _F(2.0**-12), x if quadrant == 0 else _F(1), result)
        return np.asarray(np.where(np.isfinite(x), result, _F(np.nan)), _F)


def _reduced(x: Array) -> tuple[Array, Array]:
    """(n, r) with x = n * pi / 2 + r, for values from 2 on."""
    bits = _bits(x)
    place = ((bits >> 26) & 15).astype(np.int64)
    mantissa = (((bits & 0x7FFFFF) | 0x800000) << ((bits >> 23) & 7)).astype(_U)
    first, second, third = (_FOUR_OVER_PI[np.minimum(place + i, 23)] for i in (0, 4, 8))
    product = ((mantissa * third >> _U(32)) | (mantissa * first << _U(32))) + mantissa * second
    n = (product + _U(1 << 61)) >> _U(62)
    r = (product - (n << _U(62))).view(np.int64).astype(_D) * _PI_63
    negative = bits >> 31 != 0
    turns = n.astype(np.int64)
    return np.where(negative, -turns, turns), np.where(negative, -r, r)


# --- pow: 2^(y * log2 x), both in double precision

_POW_LOGS = doubles(
    *("-0x1.efec65b963019p-2", "-0x1.b0b6832d4fca4p-2", "-0x1.7418b0a1fb77bp-2", "-0x1.39de91a6dcf7bp-2"),
    *("-0x1.01d9bf3f2b631p-2", "-0x1.97c1d1b3b7afp-3", "-0x1.2f9e393af3c9fp-3", "-0x1.960cbbf788d5cp-4"),
    *("-0x1.a6f9db6475fcep-5", "0x0p+0", "0x1.338ca9f24f53dp-4", "0x1.476a9543891bap-3"),
    *("0x1.e840b4ac4e4d2p-3", "0x1.40645f0c6651cp-2", "0x1.88e9c2c1b9ff8p-2", "0x1.ce0a44eb17bccp-2"),
)
_POW_LOG = doubles(
    *("0x1.27616c9496e0bp-2", "-0x1.71969a075c67ap-2", "0x1.ec70a6ca7baddp-2", "-0x1.7154748bef6c8p-1"),
    "0x1.71547652ab82bp0",
)
_EXP = doubles("0x1.c6af84b912394p-5", "0x1.ebfce50fac4f3p-3", "0x1.62e42ff0c52d6p-1")
_SHIFT, _POW_LARGEST = map(float.fromhex, ("0x1.8p+47", "0x1.fffffffd1d571p+6"))


def powf(x: Array, y: Array) -> Array:
    """x^y of float32 values, as float32."""
    x, y = np.broadcast_arrays(np.asarray(x, _F), np.asarray(y, _F))
    with np.errstate(all="ignore"):
        size, wide = np.abs(x), y.astype(_D)
        whole = np.isfinite(y) & (np.floor(wide) == wide)
        sign = np.where(np.signbit(x) & whole & (np.abs(np.fmod(wide, 2)) == 1), _F(-1), _F(1))
        power = wide * _log2(size)
        result = np.where(power > _POW_LARGEST, _F(np.inf), np.where(power <= -150, _F(0), _exp2(power))) * sign
        result = np.where(np.signbit(x) & ~whole, _F(np.nan), result)
        edge = (size == 0) | np.isinf(size)
        result = np.where(edge, np.where((size == 0) == (y > 0), _F(0), _F(np.inf)) * sign, result)
        endless = np.where(size == 1, _F(1), np.where((size < 1) == (y > 0), _F(0), _F(np.inf)))
        result = np.where(np.isinf(y), endless, result)
        result = np.where(np.isnan(x) | np.isnan(y), _F(np.nan), result)
        return np.asarray(np.where((y == 0) | (x == 1), _F(1), result), _F)


def _log2(size: Array) -> Array:
    """log2 of positive values, as float64."""
    k, entry, z = _nearest_divisor(size)
    inverse = INVERSES[entry]
    high = (inverse.view(_U) & ~_U(0xFFFFFF)).view(_D)
    r = (z * high - 1) + z * (inverse - high)  # z / c - 1, rounded once
    r2 = r * r
    low = (_POW_LOG[2] * r + _POW_LOG[3]) * r2 + (_POW_LOG[4] * r + (_POW_LOGS[entry] + k))
    return np.asarray((_POW_LOG[0] * r + _POW_LOG[1]) * (r2 * r2) + low)


def _exp2(power: Array) -> Array:
    """2^power for values above -150, as float32."""
    v = np.clip(np.nan_to_num(power), -150, 129)
    k = (v + _SHIFT) - _SHIFT
    r, places = v - k, (k * 32).astype(np.int64)
    scale = np.ldexp((ROOTS[places & 31] - OFFSET).astype(_D), ((places >> 5) - 62).astype(np.int32))
    p = _EXP[0] * r + _EXP[1]
    return np.asarray(((p * (r * r) + (_EXP[2] * r + 1)) * scale).astype(_F))


# expm1f, tanhf, atanf, atan2f and erfcf step by step in float32, like fdlibm, in the float versions of Ian Lance Taylor:
# `s_expm1.c`, `s_tanh.c`, `s_atan.c`, `e_atan2.c`, `s_erf.c`.
#
# TensorFlow Lite builds its tables of GELU, TANH and ELU with the C library's float functions.  expm1f and tanhf are not
# correctly rounded in fdlibm, which newlib and glibc before 2.41 use, so a table can differ by one step from a table of exact
# functions.

_LN2_HIGH, _LN2_LOW, _INVERSE_LN2 = _F(6.9313812256e-01), _F(9.0580006145e-06), _F(1.4426950216e00)
_EXPM1 = (-2.0109921195e-07, 4.0082177293e-06, -7.9365076090e-05, 1.5873016091e-03, -3.3333335072e-02)
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
    q = _F(1) + _horner(_EXPM1, z) * z
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


_ATAN_LIMITS = np.array([0x3EE00000, 0x3F300000, 0x3F980000, 0x401C0000], np.uint32).view(_F)
"""7/16, 11/16, 19/16, 39/16: limits between the expansions around 0, 1/2, 1, 3/2 and infinity."""
_ATAN_HIGH = np.array([0, 4.6364760399e-01, 7.8539812565e-01, 9.8279368877e-01, 1.5707962513e00], _F)
_ATAN_LOW = np.array([0, 5.0121582440e-09, 3.7748947079e-08, 3.4473217170e-08, 7.5497894159e-08], _F)
_ATAN_EVEN = (1.6285819933e-02, 4.9768779427e-02, 6.6610731184e-02, 9.0908870101e-02, 1.4285714924e-01, 3.3333334327e-01)
_ATAN_ODD = (-3.6531571299e-02, -5.8335702866e-02, -7.6918758452e-02, -1.1111110449e-01, -2.0000000298e-01)
_PI, _HALF_PI, _REST = _F(3.1415927410e00), _F(1.5707963705e00), _F(-8.7422776573e-08)


def atanf(x: Array) -> Array:
    """atan of float32 values, as float32: atan of the nearest centre c plus atan((x - c) / (1 + c x))."""
    x = np.asarray(x, _F)
    size = np.abs(x)
    with np.errstate(all="ignore"):
        centre = sum((size >= limit).astype(np.int32) for limit in _ATAN_LIMITS)
        near_half = (_F(2) * size - _F(1)) / (_F(2) + size)
        near_one = (size - _F(1)) / (size + _F(1))
        near_more = (size - _F(1.5)) / (_F(1) + _F(1.5) * size)
        r = np.select([centre == i for i in range(4)], [size, near_half, near_one, near_more], _F(-1) / size)
        z = r * r
        w = z * z
        even, odd = z * _horner(_ATAN_EVEN, w), w * _horner(_ATAN_ODD, w)
        correction = r * (even + odd)
        y = np.where(centre == 0, r - correction, _ATAN_HIGH[centre] - ((correction - _ATAN_LOW[centre]) - r))
        y = np.where(size >= _F(2.0**25), _ATAN_HIGH[4] + _ATAN_LOW[4], np.where(size < _F(2.0**-29), size, y))
        return np.asarray(np.where(np.isnan(x), x, np.copysign(y, x)), _F)


def atan2f(y: Array, x: Array) -> Array:
    """The angle of points (x, y), as float32: atan |y / x| and the quadrant."""
    y, x = np.broadcast_arrays(np.asarray(y, _F), np.asarray(x, _F))
    with np.errstate(all="ignore"):
        height, width, left = np.abs(y), np.abs(x), np.signbit(x)
        apart = (_bits(height).view(np.int32) - _bits(width).view(np.int32)) >> 23
        z = np.where(apart > 60, _HALF_PI + _F(0.5) * _REST, np.where(left & (apart < -60), _F(0), atanf(np.abs(y / x))))
        z = np.where(left, _PI - (z - _REST), z)
        corner = np.where(left, _F(3) * _F(7.8539818525e-01), _F(7.8539818525e-01))
        flat = np.where(left, _PI, _F(0))
        z = np.where(np.isinf(height) | (width == 0), _HALF_PI, z)
        z = np.where(np.isinf(width), np.where(np.isinf(height), corner, flat), z)
        z = np.where(height == 0, flat, z)
        z = np.where(x == 1, atanf(height), z)
        return np.asarray(np.where(np.isnan(x) | np.isnan(y), _F(np.nan), np.copysign(z, y)), _F)


# The two exponentials of erfcf come from the GNU C library.

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
    above, below = (_horner(coefficients[::-1], x) for coefficients in of)
    return np.asarray(above / below)


# erfc, tanh and logistic of float32 as Eigen computes them without fused multiplications, for the reference's GELU and LSTM.
#
# Eigen processes vectors of four elements, then the remaining elements one by one.  For single elements its erfc and logistic use
# the exponential of the C library instead of its own; tanh is the same.  Methods and coefficients: `SpecialFunctionsImpl.h`
# (`generic_fast_erfc`), `GenericPacketMathTrig.h` (`ptanh_float`), `GenericPacketMathFunctions.h` (`pexp_float`),
# `UnaryFunctors.h`.

_EXP_EVEN = (1.37449637986719608306884765625e-3, 4.166965186595916748046875e-2, 0.49999988079071044921875)
_EXP_ODD = (8.36894474923610687255859375e-3, 0.16666518151760101318359375)
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


def _eigen_exp(x: Array) -> Array:
    """e^x for values from -121 to 0: x = m ln 2 + r."""
    x = np.maximum(x, _F(-104))
    m = np.rint(x * _F(1.44269504088896341))
    r = m * _F(2.12194440e-4) + (m * _F(-0.693359375) + x)
    r2 = r * r
    y = r2 * (r * _horner(_EXP_ODD, r2) + _horner(_EXP_EVEN, r2)) + (r + _F(1))
    exponent = m.astype(np.int32)
    part = exponent >> 1
    return np.asarray(np.ldexp(np.ldexp(y, part), exponent - part), _F)


def eigen_erfcf(x: Array) -> Array:
    """1 - erf(x) of float32 values, as float32; like vectors of four."""
    return _erfc(x, _eigen_exp)


def eigen_scalar_erfcf(x: Array) -> Array:
    """1 - erf(x) of float32 values, as float32; like single elements."""
    return _erfc(x, expf)


def _erfc(x: Array, exp: Callable[[Array], Array]) -> Array:
    """A polynomial for |x| <= 1; beyond, e^(-x^2) / x times a quotient in 1 / x^2."""
    x = np.clip(np.asarray(x, _F), -_ERFC_RANGE, _ERFC_RANGE)
    with np.errstate(all="ignore"):
        x2 = x * x
        large = x2 > 1
        small = x * _horner(_ERFC_SMALL, x2) + _F(1)
        x, x2 = np.where(large, x, _F(2)), np.where(large, x2, _F(4))
        wide = _F(4097) * x
        upper = (x - wide) + wide
        lower = x - upper
        residual = lower * lower + (lower * upper + (upper * lower + (upper * upper - x2)))  # x * x - x2, exactly
        e, q = exp(-x2), _F(1) / x2
        ratio = _horner(_ERFC_LARGE, q) / (x * _horner(_ERFC_DIVISOR, q))
        tail = (e - e * residual) * ratio + np.where(x < 0, _F(2), _F(0))
        return np.asarray(np.where(large, tail, small), _F)


def eigen_tanhf(x: Array) -> Array:
    """tanh of float32 values, as float32: a quotient of polynomials."""
    x = np.clip(np.asarray(x, _F), -_TANH_RANGE, _TANH_RANGE)
    with np.errstate(all="ignore"):
        x2 = x * x
        return np.asarray(((x2 * x) * _horner(_TANH, x2) + x) / _horner(_TANH_DIVISOR, x2), _F)


_LOGISTIC_MOST = _F(16.6355324)
_LOGISTIC_EVEN = (4.1898667812347412109375e-2, 0.49999141693115234375)
_LOGISTIC_ODD = (8.33471305668354034423828125e-3, 0.16666877269744873046875)


def eigen_logisticf(x: Array) -> Array:
    """1 / (1 + e^-x) of float32 values, as float32; like vectors of four: e^(x / 2), squared."""
    x = np.asarray(x, _F)
    with np.errstate(all="ignore"):
        half = np.minimum(np.maximum(x, _F(-104)), _LOGISTIC_MOST) * _F(0.5)
        m = np.floor(half * _F(1.44269504088896341) + _F(0.5))
        r = m * _F(2.12194440e-4) + (m * _F(-0.693359375) + half)
        r2 = r * r
        p = r2 * (r * _horner(_LOGISTIC_ODD, r2) + _horner(_LOGISTIC_EVEN, r2)) + (r + _F(1))
        e = np.ldexp(p, m.astype(np.int32))
        e = e * e
        return np.asarray(np.where(x < -104, _F(0), e / (_F(1) + e)), _F)


def eigen_scalar_logisticf(x: Array) -> Array:
    """1 / (1 + e^-x) of float32 values, as float32; like single elements."""
    with np.errstate(all="ignore"):
        e = expf(np.minimum(np.asarray(x, _F), _LOGISTIC_MOST))
        return np.asarray(e / (_F(1) + e), _F)


# The functions by name.

Float = Callable[[float], float]


def _guarded(func: Float, x: float) -> float:
    """The result of C where Python raises."""
    try:
        return func(x)
    except OverflowError:
        return math.inf
    except ValueError:
        return -math.inf if x == 0 else math.nan


def round_half_even(x: float) -> float:
    """The nearest whole number, halves to even; a zero has the sign of x."""
    return math.copysign(round(x), x) if math.isfinite(x) else x


def _finite(func: Callable[[float], int]) -> Float:
    """Apply `func`; a zero has the sign of x, as in C."""
    return lambda x: math.copysign(func(x), x) if math.isfinite(x) else x


LIBRARY: dict[str, Float] = {
    "sqrt": math.sqrt,
    "floor": _finite(math.floor),
    "ceil": _finite(math.ceil),
    "rint": round_half_even,
}
"""Functions of the C library that are exact or correctly rounded everywhere: C name without the f -> meaning."""

IN_FLOAT32: dict[str, Callable[[Array], Array]] = {
    "exp": expf,
    "log": logf,
    "sin": sinf,
    "cos": cosf,
    "erfc": erfcf,
    "expm1": expm1f,
    "tanh": tanhf,
    "eigen_erfc": eigen_erfcf,
    "eigen_scalar_erfc": eigen_scalar_erfcf,
    "eigen_tanh": eigen_tanhf,
    "eigen_logistic": eigen_logisticf,
    "eigen_scalar_logistic": eigen_scalar_logisticf,
}
"""Functions with our own bit-exact implementation."""

_HEADERS = {
    "math.h": ("exp", "log", "sin", "cos"),
    "math_float.h": ("expm1", "tanh", "eigen_erfc", "eigen_scalar_erfc", "eigen_tanh", "eigen_logistic", "eigen_scalar_logistic"),
}
"""Header of crt -> the functions that it declares as aot_<name>f; erfc is used for tables only."""


def _intrin(c: str, meaning: Callable[..., float], *, of: str = "float32", header: str = "libm.h", args: int = 1) -> Intrin:
    text = f"{c}({', '.join(f'{{{i}}}' for i in range(args))})"
    return Intrin(c, (of,) * args, of, text, meaning, header=f"aot/{header}")


def _single(func: Callable[..., Array]) -> Callable[..., float]:
    """A function of arrays as one of numbers."""
    return lambda *x: float(func(*(np.array([v], np.float32) for v in x))[0])


def _rounded_float(func: Float) -> Float:
    return lambda x: float(np.float32(_guarded(func, x)))


def _double(func: Float) -> Float:
    return lambda x: _guarded(func, x)


MATH: dict[str, Intrin] = {name: _intrin(f"{name}f", _rounded_float(func)) for name, func in LIBRARY.items()}
for _header, _names in _HEADERS.items():
    MATH |= {name: _intrin(f"aot_{name}f", _single(IN_FLOAT32[name]), header=_header) for name in _names}
"""Intrinsics by name."""


def apply(name: str, x: Array) -> Array:
    """Apply one of these functions to an array, as float32."""
    if name in IN_FLOAT32:
        return IN_FLOAT32[name](x)
    func = LIBRARY[name]
    results = np.array([_guarded(func, float(v)) for v in x.astype(np.float64).ravel()], np.float64)
    return np.asarray(results.astype(np.float32).reshape(x.shape))


def pow_double(x: float, y: float) -> float:
    """C's pow."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf
    except ValueError:  # 0 to a negative power, a negative number to a fractional one
        return math.copysign(math.inf, x) if x == 0 and y % 2 == 1 else math.inf if x == 0 else math.nan


FMOD = _intrin("fmodf", lambda a, b: float(np.fmod(np.float32(a), np.float32(b))), args=2)
POW = _intrin("aot_powf", _single(powf), header="math.h", args=2)
ATAN2 = _intrin("aot_atan2f", _single(atan2f), header="math_float.h", args=2)
POW_DOUBLE = _intrin("pow", pow_double, of="float64", args=2)
SQRT_DOUBLE, EXP_DOUBLE, LOG1P_DOUBLE, LOG_DOUBLE = (
    _intrin(name, _double(getattr(math, name)), of="float64") for name in ("sqrt", "exp", "log1p", "log")
)
