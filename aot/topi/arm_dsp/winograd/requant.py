"""Requantisation of accumulators that come times a gain, in one high multiply and one saturation; see aot.topi.layer.requant.

g(a) = (hi(a * M) + C + (D where a < 0)) >> S with hi(x) = floor(x / 2^32), a = acc * gain.
"""

from __future__ import annotations

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Imm, clamp
from aot.topi.intrin.dsp import SMMLA, saturate
from aot.topi.layer.fused import FusedLayer
from aot.topi.layer.requant import MAX_CONSTANT_BITS, Field
from aot.topi.layer.threshold import thresholds

INT32_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class ScaledRequant:
    """The form above; fields: M, C, S and, where `signed`, D."""

    fields: tuple[Field, ...]
    lo: int
    hi: int

    @property
    def signed(self) -> bool:
        return len(self.fields) == 4

    @property
    def saturates(self) -> bool:
        """Whether the limits are those of SSAT."""
        return (self.lo, self.hi) == (-128, 127)

    def emit(self, b: IRBuilder, scaled: Expr, fields: tuple[Expr, ...]) -> Expr:
        """The clamped int32 result of acc * gain; `fields` are this channel's."""
        multiplier, constant, shift = fields[:3]
        if self.signed:
            scaled = b.let("acc", scaled)
            constant = constant + _where_negative(scaled, fields[3])
        total = SMMLA(scaled, multiplier, constant)
        if not self.saturates:
            return clamp(total >> shift, self.lo, self.hi)
        if isinstance(shift, Imm):
            return saturate("ssat", 8, int(shift.value))(total)
        return saturate("ssat", 8, 0)(total >> shift)


def _where_negative(scaled: Expr, number: Expr) -> Expr:
    """`number` if scaled < 0, else 0; for minus a power of two, ADD can shift it."""
    if isinstance(number, Imm):
        return (scaled >> 31) * -int(number.value)
    return (scaled >> 31) & number


def plan_scaled(layer: FusedLayer, prescale: Array) -> ScaledRequant | None:
    """For gain 2^prescale, at least 2, of each channel: TFLite's own steps with M = multiplier; None if a number does not fit.

    Double rounding adds 2^(p-2) for the first one and takes 2^(p-1) off where acc < 0 (ties go away from zero), which matters
    only where negative accumulators are not clamped to the zero point.
    """
    attrs, low = layer.requant, layer.acc_low.astype(np.int64)
    multiplier = np.broadcast_to(np.asarray(attrs.multiplier, np.int64), low.shape)
    right = -np.broadcast_to(np.asarray(attrs.shift, np.int64), low.shape)
    shift = right + prescale - 1
    magnitude = np.maximum(np.abs(low), np.abs(layer.acc_high)).astype(np.int64)
    double = attrs.rounding == "double"
    if not ((magnitude << prescale <= INT32_MAX) & (prescale >= 2) & (right >= int(double)) & (shift >= 1)).all():
        return None
    if shift.max() > MAX_CONSTANT_BITS:
        return None
    constant = (1 << (shift - 1)) + (attrs.zero_point << shift)
    fields = [Field("multiplier", multiplier), Field("constant", constant), Field("shift", shift)]
    if double:
        fields[1] = Field("constant", constant + (1 << (prescale - 2)))
        if attrs.lo < attrs.zero_point and bool((low < 0).any()):
            fields.append(Field("negative", -(1 << (prescale - 1))))
    return ScaledRequant(tuple(fields), attrs.lo, attrs.hi)


def plan_gain(layer: FusedLayer, gain: int, *, limit: int) -> ScaledRequant | None:
    """For any gain: one S for all channels, 0 < M <= limit, no D, by the proof of aot.topi.layer.threshold; None if not exact."""
    attrs, low, high = layer.requant, layer.acc_low.astype(np.int64), layer.acc_high.astype(np.int64)
    at = thresholds(attrs, low, high) if int(np.maximum(np.abs(low), np.abs(high) + 1).max()) * gain <= INT32_MAX else None
    if at is None:
        return None
    fixed = ((at <= low) | (at > high)).all(axis=0)  # channels with one result, for which any multiplier will do
    real = np.ldexp(np.asarray(attrs.multiplier, np.float64), np.asarray(attrs.shift, np.int64) - 31 + 32) / gain
    real = np.where(fixed, 0.0, np.broadcast_to(real, low.shape))
    shift = MAX_CONSTANT_BITS if fixed.all() else min(int(np.floor(np.log2(limit / real.max()))), MAX_CONSTANT_BITS)
    if shift < 0:
        return None
    multiplier = np.minimum(np.rint(np.ldexp(real, shift)), limit).astype(np.int64)
    constant = _constant(at, (low, high), multiplier * gain, codes=np.arange(attrs.lo + 1, attrs.hi + 1).reshape(-1, 1) << shift)
    if constant is None:
        return None
    fields = (Field("multiplier", multiplier), Field("constant", constant), Field("shift", np.full_like(low, shift)))
    return ScaledRequant(fields, attrs.lo, attrs.hi)


def _constant(at: Array, bounds: tuple[Array, Array], ratio: Array, *, codes: Array) -> Array | None:
    """C of each channel, one for all if possible, so that hi(acc * ratio) + C reaches codes[k] first at acc = at[k]."""
    low, high = bounds
    far = np.int64(1) << 40
    least = np.where(at <= high, codes - (at * ratio >> 32), -far).max(axis=0, initial=-far)
    most = np.where(at > low, codes - 1 - ((at - 1) * ratio >> 32), far).min(axis=0, initial=far)
    if (least > most).any():
        return None
    constant: Array = np.where(least == -far, most, np.where(most == far, least, (least + most) >> 1))
    if least.max() <= most.min():
        constant = np.full_like(constant, constant[least.argmax()] if least.max() == -far else least.max())
    largest = np.abs(constant) + (np.maximum(np.abs(low), np.abs(high)) * ratio >> 32) + 1
    return None if (largest > INT32_MAX).any() else constant
