"""signal.log: SignalFilterBankLog of TFLM: natural logarithm in fixed point of each channel, as int16.

log2 has 16 bits of fraction, from a table of 128 steps of log2(1 + x) - x and straight lines between them.
Oracle: TFLM's `signal/src/log.cc` and `filter_bank_log.cc`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.support.dataclass import dataclass

ONE = 1 << 16
STEP = ONE // 128
LN_2 = 45426
"""ln 2 in 16 bits, rounded."""


def log_table() -> tuple[int, ...]:
    """log2(1 + i / 128) - i / 128 in 16 bits, for i from 0 to 128, and a 0 beyond."""
    return (*(round(ONE * (math.log2(1 + i / 128) - i / 128)) for i in range(129)), 0)


@dataclass(frozen=True, slots=True)
class LogAttrs:
    """What 1.0 of the logarithm is in the result, in 32 bits; bits that the data are shifted left by."""

    scale: int
    correction_bits: int


def infer_type(types: Sequence[Type], attrs: LogAttrs) -> Type:
    """uint32 [n] -> int16 [n]."""
    (data,) = tensors_of(types, 1)
    if data.dtype != "uint32" or not 0 <= attrs.correction_bits < 32 or not 0 <= attrs.scale < 1 << 32:
        raise TypeRuleError(f"log of {data}")
    return TensorType(data.shape, "int16")


def scaled_log(x: int, scale: int, table: Sequence[int]) -> int:
    """scale * ln x, with the reference's roundings; x is at least 2."""
    whole = x.bit_length() - 1
    fraction = (x - (1 << whole)) << (16 - whole) if whole < 16 else (x - (1 << whole)) >> (whole - 16)
    step = fraction // STEP
    log2 = (whole << 16) + fraction + table[step] + (((table[step + 1] - table[step]) * (fraction - STEP * step)) >> 16)
    return ((scale * ((LN_2 * log2 + ONE // 2) >> 16) + ONE // 2) & 0xFFFFFFFF) >> 16


def evaluate(data: Array, *, attrs: LogAttrs, out_type: TensorType) -> Array:
    table = log_table()
    scaled = ((x << attrs.correction_bits) & 0xFFFFFFFF for x in data.ravel().tolist())
    found = [min(scaled_log(x, attrs.scale, table), 32767) if x > 1 else 0 for x in scaled]
    return np.array(found, np.int16).reshape(data.shape)


register_op(
    "signal.log",
    1,
    arguments=[("data", "uint32", "channels")],
    attrs_type=LogAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="SignalFilterBankLog of TFLM; uint32 to int16",
)
