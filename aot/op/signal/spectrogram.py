"""signal.spectrogram: AudioSpectrogram of TFLite: power of each frequency in frames of a signal, in double precision.

Frames of `window` samples, one every `stride`, are weighted by a periodic Hann window and filled up to a power of two; the result
is the squared magnitude of each bin, or its root in float32.  Oracle: `kernels/audio_spectrogram.cc`, `internal/spectrogram.cc`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.numerics.split_radix import real_transform
from aot.op.common.move import tensors_of
from aot.support.dataclass import dataclass

LARGEST = 1 << 16


@dataclass(frozen=True, slots=True)
class SpectrogramAttrs:
    """Samples of a frame, samples from frame to frame, whether magnitudes stay squared."""

    window: int
    stride: int
    squared: bool

    @property
    def length(self) -> int:
        """Samples of the transform."""
        return 1 << (self.window - 1).bit_length()


def hann(length: int) -> Array:
    """The periodic Hann window in double precision."""
    pi = math.atan(1.0) * 4.0
    return np.array([0.5 - 0.5 * math.cos(2.0 * pi * i / length) for i in range(length)])


def infer_type(types: Sequence[Type], attrs: SpectrogramAttrs) -> Type:
    """float32 [samples, channels] -> float32 [channels, frames, bins]."""
    (data,) = tensors_of(types, 1)
    if (
        data.dtype != "float32"
        or len(data.shape) != 2
        or attrs.stride < 1
        or not 2 <= attrs.window <= min(LARGEST, data.shape[0])
    ):
        raise TypeRuleError(f"spectrogram of {data} in frames of {attrs.window} samples")
    frames = 1 + (data.shape[0] - attrs.window) // attrs.stride
    return TensorType((data.shape[1], frames, attrs.length // 2 + 1), "float32")


def evaluate(data: Array, *, attrs: SpectrogramAttrs, out_type: TensorType) -> Array:
    channels, frames, bins = out_type.shape
    starts = np.arange(frames) * attrs.stride
    rows = np.zeros((channels * frames, attrs.length))
    with np.errstate(all="ignore"):
        framed = data.T[:, starts[:, None] + np.arange(attrs.window)] * hann(attrs.window)
        rows[:, : attrs.window] = framed.reshape(-1, attrs.window)
        points = real_transform(rows).reshape(-1, bins - 1, 2)
        power = np.zeros((len(rows), bins))
        power[:, 1:-1] = points[:, 1:, 0] * points[:, 1:, 0] + points[:, 1:, 1] * points[:, 1:, 1]
        power[:, 0], power[:, -1] = points[:, 0, 0] * points[:, 0, 0], points[:, 0, 1] * points[:, 0, 1]
        single = power.astype(np.float32).reshape(out_type.shape)
        return single if attrs.squared else np.sqrt(single)


register_op(
    "signal.spectrogram",
    1,
    arguments=[("data", "float32 [samples, channels]", "the signal")],
    attrs_type=SpectrogramAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="AudioSpectrogram; float32",
)
