"""powf as the GNU C library has it from 2.28 on (see `glibc`): 2^(y * log2 x), both in double precision.

Method and coefficients: Arm's optimized-routines, `powf.c`, `powf_log2_data.c`.
"""

from __future__ import annotations

import numpy as np

from aot.ir.op import Array
from aot.numerics.glibc import INVERSES, OFFSET, ROOTS, doubles

_F, _D, _U = np.float32, np.float64, np.uint64
_LOGS = doubles(
    *("-0x1.efec65b963019p-2", "-0x1.b0b6832d4fca4p-2", "-0x1.7418b0a1fb77bp-2", "-0x1.39de91a6dcf7bp-2"),
    *("-0x1.01d9bf3f2b631p-2", "-0x1.97c1d1b3b7afp-3", "-0x1.2f9e393af3c9fp-3", "-0x1.960cbbf788d5cp-4"),
    *("-0x1.a6f9db6475fcep-5", "0x0p+0", "0x1.338ca9f24f53dp-4", "0x1.476a9543891bap-3"),
    *("0x1.e840b4ac4e4d2p-3", "0x1.40645f0c6651cp-2", "0x1.88e9c2c1b9ff8p-2", "0x1.ce0a44eb17bccp-2"),
)
_LOG = doubles(
    *("0x1.27616c9496e0bp-2", "-0x1.71969a075c67ap-2", "0x1.ec70a6ca7baddp-2", "-0x1.7154748bef6c8p-1"),
    "0x1.71547652ab82bp0",
)
_EXP = doubles("0x1.c6af84b912394p-5", "0x1.ebfce50fac4f3p-3", "0x1.62e42ff0c52d6p-1")
_SHIFT, _LARGEST = map(float.fromhex, ("0x1.8p+47", "0x1.fffffffd1d571p+6"))


def powf(x: Array, y: Array) -> Array:
    """x^y of float32 values, float32."""
    x, y = np.broadcast_arrays(np.asarray(x, _F), np.asarray(y, _F))
    with np.errstate(all="ignore"):
        size, wide = np.abs(x), y.astype(_D)
        whole = np.isfinite(y) & (np.floor(wide) == wide)
        sign = np.where(np.signbit(x) & whole & (np.abs(np.fmod(wide, 2)) == 1), _F(-1), _F(1))
        power = wide * _log2(size)
        found = np.where(power > _LARGEST, _F(np.inf), np.where(power <= -150, _F(0), _exp2(power))) * sign
        found = np.where(np.signbit(x) & ~whole, _F(np.nan), found)
        edge = (size == 0) | np.isinf(size)
        found = np.where(edge, np.where((size == 0) == (y > 0), _F(0), _F(np.inf)) * sign, found)
        endless = np.where(size == 1, _F(1), np.where((size < 1) == (y > 0), _F(0), _F(np.inf)))
        found = np.where(np.isinf(y), endless, found)
        found = np.where(np.isnan(x) | np.isnan(y), _F(np.nan), found)
        return np.asarray(np.where((y == 0) | (x == 1), _F(1), found), _F)


def _log2(size: Array) -> Array:
    """Of positive values, float64."""
    tiny = size < _F(2.0**-126)
    bits = np.where(tiny, size * _F(2.0**23), size).astype(_F).view(np.int32) - np.where(tiny, 23 << 23, 0).astype(np.int32)
    offset = bits - np.int32(0x3F330000)
    k, entry = offset >> 23, (offset >> 19) & 15
    z = (bits - (k << 23)).astype(np.int32).view(_F).astype(_D)
    inverse = INVERSES[entry]
    high = (inverse.view(_U) & ~_U(0xFFFFFF)).view(_D)
    r = (z * high - 1) + z * (inverse - high)  # z / c - 1, rounded once
    r2 = r * r
    low = (_LOG[2] * r + _LOG[3]) * r2 + (_LOG[4] * r + (_LOGS[entry] + k))
    return np.asarray((_LOG[0] * r + _LOG[1]) * (r2 * r2) + low)


def _exp2(power: Array) -> Array:
    """2^power of values above -150, float32."""
    v = np.clip(np.nan_to_num(power), -150, 129)
    k = (v + _SHIFT) - _SHIFT
    r, places = v - k, (k * 32).astype(np.int64)
    scale = np.ldexp((ROOTS[places & 31] - OFFSET).astype(_D), ((places >> 5) - 62).astype(np.int32))
    p = _EXP[0] * r + _EXP[1]
    return np.asarray(((p * (r * r) + (_EXP[2] * r + 1)) * scale).astype(_F))
