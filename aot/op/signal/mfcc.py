"""signal.mfcc: Mfcc of TFLite: mel-frequency cepstral coefficients of a spectrogram of squared magnitudes, in double precision.

Magnitudes are summed in overlapping triangles that are equally wide on the mel scale, then follow the logarithm (of 1e-12 at
least) and a cosine transform.  The rate may come at run time; where the triangles then reach beyond the spectrogram the result
is 0, as in the reference, and also for a rate below 1, which the reference refuses.
Oracle: `kernels/mfcc.cc`, `internal/mfcc_mel_filterbank.cc`, `internal/mfcc_dct.cc`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aot.ir.op import VARIABLE, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.support.dataclass import dataclass

FLOOR = 1e-12
MOST_CHANNELS = 1 << 14


@dataclass(frozen=True, slots=True)
class MfccAttrs:
    """Samples a second (None: an operand); limits of the frequencies that count in Hz; triangles; coefficients."""

    rate: int | None
    lower: float
    upper: float
    channels: int
    coefficients: int


@dataclass(frozen=True, slots=True)
class MelBank:
    """Of bins `first` to `last`: the channel on whose falling side each lies (-1: none), and its weight there."""

    first: int
    last: int
    channel: tuple[int, ...]
    weight: tuple[float, ...]


MEL = 1127.0


def _mel(frequency: float) -> float:
    return MEL * math.log1p(frequency / 700.0)


def mel_edges(attrs: MfccAttrs) -> list[float]:
    """The lower limit on the mel scale, the centres of the triangles, and the end of the last one."""
    low, high = _mel(attrs.lower), _mel(attrs.upper)
    spacing = (high - low) / float(attrs.channels + 1)
    return [low, *(low + spacing * (i + 1) for i in range(attrs.channels + 1))]


def mel_bank(bins: int, attrs: MfccAttrs) -> MelBank:
    """The triangles of a spectrogram of that many bins, at a rate that is known."""
    assert attrs.rate is not None
    edges = mel_edges(attrs)
    width = 0.5 * attrs.rate / float(bins - 1)
    first, last = int(1.5 + attrs.lower / width), int(attrs.upper / width)
    found: list[tuple[int, float]] = []
    channel = 0
    for i in range(first, min(last, bins - 1) + 1):
        mel = _mel(i * width)
        while channel < attrs.channels and edges[channel + 1] < mel:
            channel += 1
        above, below = edges[channel + 1], edges[channel]
        found.append((channel - 1, (above - mel) / (above - below)))
    return MelBank(first, last, tuple(c for c, _ in found), tuple(w for _, w in found))


def cosines(attrs: MfccAttrs) -> Array:
    """Factors of the cosine transform, [coefficients, channels]."""
    norm, step = math.sqrt(2.0 / attrs.channels), math.atan(1.0) * 4.0 / attrs.channels
    rows = range(attrs.coefficients)
    return np.array([[norm * math.cos(i * step * (j + 0.5)) for j in range(attrs.channels)] for i in rows])


def reaches(bins: int, attrs: MfccAttrs) -> bool:
    """Whether a spectrogram of that many bins has the frequencies up to the limit."""
    return attrs.rate is not None and attrs.rate > 0 and mel_bank(bins, attrs).last < bins


def infer_type(types: Sequence[Type], attrs: MfccAttrs) -> Type:
    """float32 [channels, frames, bins], and the rate if it is no attribute -> float32 [channels, frames, coefficients]."""
    data, *rate = tensors_of(types, 1 if attrs.rate is not None else 2)
    if rate and (rate[0].dtype, rate[0].shape) != ("int32", (1,)):
        raise TypeRuleError(f"mfcc at the rate {rate[0]}")
    sizes_fit = 1 <= attrs.coefficients <= attrs.channels <= MOST_CHANNELS and 0 <= attrs.lower < attrs.upper
    if data.dtype != "float32" or len(data.shape) != 3 or data.shape[2] < 2 or not sizes_fit:
        raise TypeRuleError(f"mfcc of {data} by {attrs}")
    if attrs.rate is not None and not reaches(data.shape[2], attrs):
        raise TypeRuleError(f"mfcc of {data} up to {attrs.upper} Hz")
    return TensorType((*data.shape[:2], attrs.coefficients), "float32")


def evaluate(data: Array, rate: Array | None = None, *, attrs: MfccAttrs, out_type: TensorType) -> Array:
    if rate is not None:
        attrs = replace(attrs, rate=int(rate[0]))
        if not reaches(data.shape[2], attrs):
            return np.zeros(out_type.shape, np.float32)
    bank, table = mel_bank(data.shape[2], attrs), cosines(attrs)
    with np.errstate(all="ignore"):
        rows = np.sqrt(data.astype(np.float64)).reshape(-1, data.shape[2])
        mel = np.zeros((len(rows), attrs.channels))
        for i, (channel, weight) in enumerate(zip(bank.channel, bank.weight, strict=True), bank.first):
            weighted = rows[:, i] * weight
            if channel >= 0:
                mel[:, channel] += weighted
            if channel + 1 < attrs.channels:
                mel[:, channel + 1] += rows[:, i] - weighted
        logs = np.array([math.log(v) if 0 < v < math.inf else v for v in np.where(mel < FLOOR, FLOOR, mel).ravel().tolist()])
        out = np.zeros((len(rows), attrs.coefficients))
        for j in range(attrs.channels):
            out += table[:, j] * logs.reshape(mel.shape)[:, j : j + 1]
        return np.where(np.isnan(out), np.nan, out).astype(np.float32).reshape(out_type.shape)


register_op(
    "signal.mfcc",
    VARIABLE,
    arguments=[
        ("data", "float32 [channels, frames, bins]", "squared magnitudes"),
        ("rate?", "int32 [1]", "samples a second, where the attribute is None"),
    ],
    attrs_type=MfccAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="Mfcc; float32",
)
