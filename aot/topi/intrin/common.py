"""Intrinsics that every core has: fixed-point arithmetic, as static inline C of `aot/kernel.h`."""

from __future__ import annotations

from aot.tir.arith import wrap
from aot.tir.intrin import Intrin

_INT32 = ("int32", "int32")


def srdhm(a: int, m: int) -> int:
    """gemmlowp's SaturatingRoundingDoublingHighMul: a * m / 2^31 rounded half up, INT32_MIN squared saturated.

    gemmlowp divides ab + (ab >= 0 ? 2^30 : 1 - 2^30) by 2^31 towards zero, which is floor((ab + 2^30) / 2^31) for either sign.
    """
    return min((a * m + (1 << 30)) >> 31, (1 << 31) - 1)


def rdbpot(x: int, n: int) -> int:
    """gemmlowp's RoundingDivideByPOT: x / 2^n, ties away from zero."""
    mask = (1 << n) - 1
    return (x >> n) + int((x & mask) > (mask >> 1) + int(x < 0))


def requantize_double(x: int, m: int, shift: int) -> int:
    """TFLite's MultiplyByQuantizedMultiplier as its reference kernels of convolutions do it; x * 2^shift wraps like C's."""
    return rdbpot(srdhm(wrap(x << max(shift, 0), "int32"), m), max(-shift, 0))


def requantize_single(x: int, m: int, shift: int) -> int:
    """TFLite's MultiplyByQuantizedMultiplier under TFLITE_SINGLE_ROUNDING."""
    total = 31 - shift
    return wrap((x * m + (1 << (total - 1))) >> total, "int32")


def _mulhi(a: int, m: int) -> int:
    return (a * m) >> 32


def _mulhi_round(a: int, m: int) -> int:
    return wrap((a * m + (1 << 31)) >> 32, "int32")


MULHI = Intrin("mulhi", _INT32, "int32", "aot_mulhi({0}, {1})", _mulhi)
MULHI_ROUND = Intrin("mulhi_round", _INT32, "int32", "aot_mulhi_round({0}, {1})", _mulhi_round)
SRDHM = Intrin("srdhm", _INT32, "int32", "aot_srdhm({0}, {1})", srdhm)
RDBPOT = Intrin("rdbpot", _INT32, "int32", "aot_rdbpot({0}, {1})", rdbpot)
REQUANTIZE_DOUBLE = Intrin(
    "requantize_double", ("int32",) * 3, "int32", "aot_requantize_double({0}, {1}, {2})", requantize_double
)
REQUANTIZE_SINGLE = Intrin(
    "requantize_single", ("int32",) * 3, "int32", "aot_requantize_single({0}, {1}, {2})", requantize_single
)
