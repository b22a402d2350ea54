"""signal.square_root: SignalFilterBankSquareRoot of TFLM: the nearest root of each channel, shifted right.

A root that rounds up to 2^16 from 32 bits stays 2^16 - 1.  Shifts count modulo 32, as on the machine of the reference.
Oracle: TFLM's `signal/src/square_root_64.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of


def infer_type(types: Sequence[Type], _attrs: None) -> Type:
    """uint64 [n], int32 [] shift -> uint32 [n]."""
    data, shift = tensors_of(types, 2)
    if data.dtype != "uint64" or shift.dtype != "int32" or shift.size != 1:
        raise TypeRuleError(f"square_root of {data} shifted by {shift}")
    return TensorType(data.shape, "uint32")


def rounded_root(x: int) -> int:
    """The nearest root; 65535 and 2^32 - 1 do not grow."""
    root = isqrt(x)
    return root + (x - root * root > root and root not in (0xFFFF, 0xFFFFFFFF))


def evaluate(data: Array, shift: Array, *, attrs: None, out_type: TensorType) -> Array:
    roots = [rounded_root(x) >> (int(shift.ravel()[0]) & 31) for x in data.ravel().tolist()]
    return np.array(roots, np.uint32).reshape(data.shape)


register_op(
    "signal.square_root",
    2,
    arguments=[("data", "uint64", "energies"), ("shift", "int32 []", "bits that the roots are shifted right by")],
    attrs_type=None,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="SignalFilterBankSquareRoot of TFLM; uint64 to uint32",
)
