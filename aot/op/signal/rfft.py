"""signal.rfft and signal.irfft: SignalRfft and SignalIrfft of TFLM, between real signals and their spectra.

A spectrum of n samples has n / 2 + 1 bins, real and imaginary part in turn along the last axis.  Shorter signals are filled up
with zeros.  In fixed point the spectrum is divided by n on the way; in float32 the inverse divides by n.
Oracle: TFLM's `signal/micro/kernels/rfft.cc` and `irfft.cc`, which run KISS FFT (`aot.numerics.kissfft`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.numerics.kissfft import inverse_real_transform, is_supported, real_transform
from aot.op.common.move import tensors_of
from aot.support.dataclass import dataclass

DTYPES = ("int16", "int32", "float32")
LONGEST = 1 << 14
"""Samples; positions are kept in 16 bits."""


@dataclass(frozen=True, slots=True)
class RfftAttrs:
    """Samples of the transform."""

    length: int


def _checked(types: Sequence[Type], attrs: RfftAttrs) -> TensorType:
    (data,) = tensors_of(types, 1)
    n = attrs.length
    if data.dtype not in DTYPES or not data.shape or n % 2 or not 4 <= n <= LONGEST or not is_supported(n // 2):
        raise TypeRuleError(f"a transform of {n} samples of {data}")
    return data


def infer_rfft(types: Sequence[Type], attrs: RfftAttrs) -> Type:
    """[..., samples] -> [..., length + 2]: bins as pairs of the same type."""
    data = _checked(types, attrs)
    if data.shape[-1] > attrs.length:
        raise TypeRuleError(f"rfft of {data.shape[-1]} samples in {attrs.length}")
    return TensorType((*data.shape[:-1], attrs.length + 2), data.dtype)


def evaluate_rfft(data: Array, *, attrs: RfftAttrs, out_type: TensorType) -> Array:
    rows = data.reshape(-1, data.shape[-1])
    filled = np.zeros((len(rows), attrs.length), data.dtype)
    filled[:, : rows.shape[1]] = rows
    with np.errstate(all="ignore"):
        return real_transform(filled, str(data.dtype)).reshape(out_type.shape)


def infer_irfft(types: Sequence[Type], attrs: RfftAttrs) -> Type:
    """[..., length + 2]: bins as pairs -> [..., length]."""
    data = _checked(types, attrs)
    if data.shape[-1] != attrs.length + 2:
        raise TypeRuleError(f"irfft of {data.shape[-1]} numbers to {attrs.length} samples")
    return TensorType((*data.shape[:-1], attrs.length), data.dtype)


def evaluate_irfft(data: Array, *, attrs: RfftAttrs, out_type: TensorType) -> Array:
    with np.errstate(all="ignore"):
        found = inverse_real_transform(data.reshape(-1, attrs.length // 2 + 1, 2), str(data.dtype)).reshape(out_type.shape)
        return found / np.float32(attrs.length) if data.dtype == np.float32 else found


register_op(
    "signal.rfft",
    1,
    arguments=[("data", "int16, int32, float32 [..., samples]", "the signal")],
    attrs_type=RfftAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_rfft,
    evaluate=evaluate_rfft,
    doc="SignalRfft of TFLM: bins of a real signal",
)
register_op(
    "signal.irfft",
    1,
    arguments=[("data", "int16, int32, float32 [..., bins]", "pairs of real and imaginary part")],
    attrs_type=RfftAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_irfft,
    evaluate=evaluate_irfft,
    doc="SignalIrfft of TFLM: a real signal from its bins",
)
