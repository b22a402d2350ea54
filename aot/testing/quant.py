"""The arithmetic of TensorFlow Lite's int8 quantisation: real = scale * (q - zero_point)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

INT8_MIN, INT8_MAX = -128, 127


@dataclass(frozen=True, slots=True)
class Quant:
    """Per-tensor parameters."""

    scale: float
    zero_point: int = 0

    def quantize(self, x: np.ndarray) -> np.ndarray:
        """Real values to int8, rounded half to even and clamped."""
        q = np.rint(x / self.scale) + self.zero_point
        return np.asarray(np.clip(q, INT8_MIN, INT8_MAX), np.int8)

    def dequantize(self, q: np.ndarray) -> np.ndarray:
        """int8 to real values (float64)."""
        return self.scale * (q.astype(np.float64) - self.zero_point)


def float32(x: float) -> float:
    """`x` as the file will hold it (scales are 32-bit floats there)."""
    return float(np.float32(x))


def quant_of_range(low: float, high: float) -> Quant:
    """Parameters that spread [low, high] over all 256 codes; 0 is made a code, as TFLite demands."""
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    scale = float32((high - low) / (INT8_MAX - INT8_MIN)) if high > low else 1.0
    zero_point = round(INT8_MIN - low / scale)
    return Quant(scale, int(np.clip(zero_point, INT8_MIN, INT8_MAX)))


def quantize_weights(w: np.ndarray, axis: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric int8 weights in [-127, 127] and their scales: one per slice along `axis`, or one for all."""
    others = tuple(i for i in range(w.ndim) if i != axis) if axis is not None else None
    peak = np.abs(w).max(axis=others, keepdims=True)
    scale = (np.where(peak > 0, peak, 1.0) / INT8_MAX).astype(np.float32)
    q = np.clip(np.rint(w / scale), -INT8_MAX, INT8_MAX).astype(np.int8)
    return q, scale.ravel()


def quantize_bias(b: np.ndarray, input_scale: float, weight_scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int32 bias and its scale, which is the product of the input's and the weights' scales."""
    scale = (np.float32(input_scale) * weight_scale).astype(np.float32)
    return np.rint(b / scale.astype(np.float64)).astype(np.int32), scale
