"""signal.pcan: SignalPCAN of TFLM: gain control by the noise of each channel, then a curve that is a parabola near 0.

The gain is interpolated by parabolas between powers of two of the noise, from a table of 4 numbers for each (3 are used).
Oracle: TFLM's `signal/src/pcan_argc_fixed.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.support.dataclass import dataclass

TABLE = 4 * 32 - 6 + 3
"""Entries of the gain's table: what noise of 32 bits reaches."""

SNR_BITS = 12
OUTPUT_BITS = 6


@dataclass(frozen=True, slots=True)
class PcanAttrs:
    """Bits that signal times gain is shifted right by."""

    snr_shift: int


def infer_type(types: Sequence[Type], _attrs: PcanAttrs) -> Type:
    """uint32 [n] signal and noise, int16 [125 or more] -> uint32 [n]."""
    data, noise, table = tensors_of(types, 3)
    if data.dtype != "uint32" or noise != data or len(data.shape) != 1 or table.dtype != "int16" or table.size < TABLE:
        raise TypeRuleError(f"pcan of {data} with noise {noise} and table {table}")
    return TensorType(data.shape, "uint32")


def gain_of(x: int, table: Sequence[int]) -> int:
    """The gain at noise x, as 32 bits of an int16."""
    if x <= 2:
        return table[x] & 0xFFFFFFFF
    interval = x.bit_length()
    at = 4 * interval - 6
    fraction = (x << (11 - interval) if interval < 11 else x >> (interval - 11)) & 0x3FF
    result = ((table[at + 2] * fraction) >> 5) + (table[at + 1] << 5)
    result = ((result * fraction + (1 << 14)) >> 15) + table[at]
    return (((result + 32768) & 0xFFFF) - 32768) & 0xFFFFFFFF


def shrink(x: int) -> int:
    """x^2 / 2^20 below 2^13, above it the line that continues it."""
    if x < 2 << SNR_BITS:
        return (x * x) >> (2 + 2 * SNR_BITS - OUTPUT_BITS)
    return (x >> (SNR_BITS - OUTPUT_BITS)) - (1 << OUTPUT_BITS)


def evaluate(data: Array, noise: Array, table: Array, *, attrs: PcanAttrs, out_type: TensorType) -> Array:
    entries = table.ravel().tolist()
    gains = (gain_of(x, entries) for x in noise.tolist())
    scaled = [((x * g & 0xFFFFFFFFFFFFFFFF) >> attrs.snr_shift) & 0xFFFFFFFF for x, g in zip(data.tolist(), gains, strict=True)]
    return np.array([shrink(x) for x in scaled], np.uint32)


register_op(
    "signal.pcan",
    3,
    arguments=[
        ("data", "uint32 [n]", "the signal in each channel"),
        ("noise", "uint32 [n]", "the noise in each channel"),
        ("table", "int16 [125]", "gains"),
    ],
    attrs_type=PcanAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="SignalPCAN of TFLM; uint32",
)
