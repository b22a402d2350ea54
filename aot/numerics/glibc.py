"""expf, logf, sinf, cosf and powf, bit-exact with the GNU C library from 2.28 on, on any machine.

Methods, tables and coefficients: Arm's optimized-routines, `expf.c`, `logf.c`, `sincosf.h`.  `crt/include/aot/math.h` is the C
equivalent and explains where both differ from the original: exp by integers, fused products in exact parts.
"""

from __future__ import annotations

import numpy as np

from aot.ir.op import Array

_F, _D, _U = np.float32, np.float64, np.uint64


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
    bits = np.ascontiguousarray(x).view(np.uint32).reshape(x.shape)
    usual = (x <= _LARGEST) & (x >= _SMALLEST) & (np.abs(x) >= _F(2.0**-27))
    with np.errstate(all="ignore"):
        result = _exp_fixed(np.where(usual, bits, np.uint32(0x3F800000)))
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
        tiny = x < _F(2.0**-126)
        bits = np.where(tiny, x * _F(2.0**23), x).astype(_F).view(np.int32) - np.where(tiny, 23 << 23, 0).astype(np.int32)
        offset = bits - np.int32(0x3F330000)
        k, entry = offset >> 23, (offset >> 19) & 15
        z = (bits - (k << 23)).astype(np.int32).view(_F).astype(_D)
        r = z * INVERSES[entry] - 1
        p = _LOG[1] * r + _LOG[2]
        p = _LOG[0] * (r * r) + p
        result = (p * (r * r) + ((_LOGS[entry] + k * _LN2) + r)).astype(_F)
        result = np.where(x == 0, _F(-np.inf), np.where(x < 0, _F(np.nan), result))
        return np.asarray(np.where(np.isnan(x) | np.isposinf(x), x, result), _F)


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
    bits = np.ascontiguousarray(x).view(np.uint32).reshape(x.shape)
    place = ((bits >> 26) & 15).astype(np.int64)
    mantissa = (((bits & 0x7FFFFF) | 0x800000) << ((bits >> 23) & 7)).astype(_U)
    first, second, third = (_FOUR_OVER_PI[np.minimum(place + i, 23)] for i in (0, 4, 8))
    product = ((mantissa * third >> _U(32)) | (mantissa * first << _U(32))) + mantissa * second
    n = (product + _U(1 << 61)) >> _U(62)
    r = (product - (n << _U(62))).view(np.int64).astype(_D) * _PI_63
    negative = bits >> 31 != 0
    turns = n.astype(np.int64)
    return np.where(negative, -turns, turns), np.where(negative, -r, r)


# --- pow: 2^(y * log2 x), both in double precision (Arm's optimized-routines, `powf.c`, `powf_log2_data.c`)


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
    tiny = size < _F(2.0**-126)
    bits = np.where(tiny, size * _F(2.0**23), size).astype(_F).view(np.int32) - np.where(tiny, 23 << 23, 0).astype(np.int32)
    offset = bits - np.int32(0x3F330000)
    k, entry = offset >> 23, (offset >> 19) & 15
    z = (bits - (k << 23)).astype(np.int32).view(_F).astype(_D)
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
