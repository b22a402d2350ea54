"""signal.mfcc: Mfcc of TFLite: mel-frequency cepstral coefficients of a spectrogram of squared magnitudes, in double precision.

Magnitudes are summed in overlapping triangles that are equally wide on the mel scale, then follow the logarithm (of 1e-12 at
least) and a cosine transform.  Oracle: `kernels/mfcc.cc`, `internal/mfcc_mel_filterbank.cc`, `internal/mfcc_dct.cc`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.check import require_dtype
from aot.op.common.custom import CustomOptions
from aot.op.common.move import one_int, tensors_of
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call

FLOOR = 1e-12
MOST_CHANNELS = 1 << 14


@dataclass(frozen=True, slots=True)
class MfccAttrs:
    """Samples a second; limits of the frequencies that count in Hz; triangles; coefficients."""

    rate: int
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


def _mel(frequency: float) -> float:
    return 1127.0 * math.log1p(frequency / 700.0)


def mel_bank(bins: int, attrs: MfccAttrs) -> MelBank:
    """The triangles of a spectrogram of that many bins."""
    low, high = _mel(attrs.lower), _mel(attrs.upper)
    spacing = (high - low) / float(attrs.channels + 1)
    centres = [low + spacing * (i + 1) for i in range(attrs.channels + 1)]
    width = 0.5 * attrs.rate / float(bins - 1)
    first, last = int(1.5 + attrs.lower / width), int(attrs.upper / width)
    found: list[tuple[int, float]] = []
    channel = 0
    for i in range(first, min(last, bins - 1) + 1):
        mel = _mel(i * width)
        while channel < attrs.channels and centres[channel] < mel:
            channel += 1
        side = channel - 1
        above, below = (centres[side + 1], centres[side]) if side >= 0 else (centres[0], low)
        found.append((side, (above - mel) / (above - below)))
    return MelBank(first, last, tuple(c for c, _ in found), tuple(w for _, w in found))


def cosines(attrs: MfccAttrs) -> Array:
    """Factors of the cosine transform, [coefficients, channels]."""
    norm, step = math.sqrt(2.0 / attrs.channels), math.atan(1.0) * 4.0 / attrs.channels
    rows = range(attrs.coefficients)
    return np.array([[norm * math.cos(i * step * (j + 0.5)) for j in range(attrs.channels)] for i in rows])


def infer_type(types: Sequence[Type], attrs: MfccAttrs) -> Type:
    """float32 [channels, frames, bins] -> float32 [channels, frames, coefficients]."""
    (data,) = tensors_of(types, 1)
    sizes_fit = 1 <= attrs.coefficients <= attrs.channels <= MOST_CHANNELS and 0 <= attrs.lower < attrs.upper and attrs.rate > 0
    if data.dtype != "float32" or len(data.shape) != 3 or data.shape[2] < 2 or not sizes_fit:
        raise TypeRuleError(f"mfcc of {data} by {attrs}")
    if mel_bank(data.shape[2], attrs).last >= data.shape[2]:
        raise TypeRuleError(f"mfcc of {data} up to {attrs.upper} Hz")
    return TensorType((*data.shape[:2], attrs.coefficients), "float32")


def evaluate(data: Array, *, attrs: MfccAttrs, out_type: TensorType) -> Array:
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


@from_tflite("CUSTOM:Mfcc", "float32", "signal.mfcc")
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """signal.mfcc; the sample rate must be a constant."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, {"float32"})
    options = CustomOptions(ctx, op)
    rate = one_int(ctx, op, 1)
    channels = options.integer("filterbank_channel_count", 1, MOST_CHANNELS)
    lower = options.integer("lower_frequency_limit", 0, 1 << 30)
    upper = options.integer("upper_frequency_limit", lower + 1, 1 << 30)
    attrs = MfccAttrs(rate, lower, upper, channels, options.integer("dct_coefficient_count", 1, channels))
    if len(data.shape) != 3 or data.shape[2] < 2 or rate < 1 or mel_bank(data.shape[2], attrs).last >= data.shape[2]:
        unsupported(ctx, op, f"{data} at {rate} Hz has no frequencies up to {upper} Hz", code="E1122")
    return call("signal.mfcc", [operand(ctx, op, 0)], attrs, span=ctx.span(op))


register_op(
    "signal.mfcc",
    1,
    arguments=[("data", "float32 [channels, frames, bins]", "squared magnitudes")],
    attrs_type=MfccAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="Mfcc; float32",
)
