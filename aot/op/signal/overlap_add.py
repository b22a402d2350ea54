"""signal.overlap_add: SignalOverlapAdd of TFLM: overlapping frames become a signal again; sums are clamped to int16.

Each frame is added to what the frames before have left; `step` samples are finished then.  The others are a state.
Oracle: TFLM's `signal/src/overlap_add.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.support.dataclass import dataclass

DTYPES = ("int16", "float32")


@dataclass(frozen=True, slots=True)
class OverlapAddAttrs:
    """Samples from frame to frame."""

    step: int


def infer_type(types: Sequence[Type], attrs: OverlapAddAttrs) -> Type:
    """[rows, frames, size] and what is left [rows, size - step] -> [rows, frames * step + size - step]."""
    data, left = tensors_of(types, 2)
    if data.dtype not in DTYPES or left.dtype != data.dtype or len(data.shape) != 3 or not 1 <= attrs.step < data.shape[2]:
        raise TypeRuleError(f"overlap_add of {data} and {left} by {attrs.step}")
    rows, frames, size = data.shape
    if left.shape != (rows, size - attrs.step):
        raise TypeRuleError(f"overlap_add of {data} and {left}")
    return TensorType((rows, frames * attrs.step + size - attrs.step), data.dtype)


def evaluate(data: Array, left: Array, *, attrs: OverlapAddAttrs, out_type: TensorType) -> Array:
    out = np.zeros(out_type.shape, data.dtype)
    out[:, : left.shape[1]] = left
    size = data.shape[2]
    for frame in range(data.shape[1]):
        part = out[:, frame * attrs.step : frame * attrs.step + size]
        with np.errstate(all="ignore"):
            if data.dtype == np.float32:
                part += data[:, frame]
            else:
                part[...] = np.clip(part.astype(np.int32) + data[:, frame], -32768, 32767)
    return out


register_op(
    "signal.overlap_add",
    2,
    arguments=[
        ("data", "int16, float32 [rows, frames, size]", "frames"),
        ("left", "as data [rows, size - step]", "what earlier frames have left"),
    ],
    attrs_type=OverlapAddAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="SignalOverlapAdd of TFLM; int16, float32",
)
