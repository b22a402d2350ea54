"""Exact requantisation in one high multiply, chosen by proof.

Let s = -shift, m the multiplier, and a = acc * 2^p the accumulator pre-scaled by p bits (for p = 1 that is one doubling).  With
hi(x) = floor(x / 2^32), TFLite's results are, before clamping,

  double rounding, s = 0, p = 1:        hi(a*m + 2^31)
  double rounding, s <= 0, s + p >= 2:  (hi(a*m) + 2^(s+p-2)) >> (s+p-1)
  single rounding, s + p >= 2, p >= 0:  (hi(a*m) + 2^(s+p-2)) >> (s+p-1)     (s < 0 too)
  double rounding, s >= 1, p = 1:       (hi(a*m + 2^31) + 2^(s-1) + (acc >> 31)) >> s
  double rounding, s >= 1, p >= 2:      (hi(a*m) + 2^(s+p-2) + 2^(p-2) + ((acc >> 31) << (p-1))) >> (s+p-1)

as long as a fits an int32.  The term with acc >> 31 only decides ties of negative values, so it is left out where
those are clamped to the zero point anyway (every ReLU whose zero point is its lower bound).  The zero point joins the
constant, shifted left by s+p-1.  Everything is exact integer arithmetic; tests/topi/layer/test_requant.py compares with the
reference functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Protocol

import numpy as np

from aot.ir.op import Array
from aot.numerics.fixed_point import is_reduced, tir_multiply_by_quantized_multiplier, tir_multiply_long, tir_multiply_wide
from aot.op.qnn.quantize import RequantizeAttrs
from aot.support.dataclass import dataclass
from aot.support.dtype import bits, int_range
from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Imm, cast, clamp, imm
from aot.topi.intrin.scalar import MULHI, MULHI_ROUND, SMMLA, SMMLAR, saturate

MAX_CONSTANT_BITS = 22
"""Largest final shift of the short form: zero point << 22 plus a rounded half product stays within an int32."""


@dataclass(frozen=True, slots=True)
class Field:
    """A number that the kernel needs for each output channel: an array of int32, or one value for all."""

    name: str
    values: Array

    @property
    def uniform(self) -> bool:
        return bool((self.values == self.values[0]).all())


class HasFields(Protocol):
    """A form of requantisation with numbers for each channel."""

    @property
    def fields(self) -> tuple[Field, ...]: ...


def loaded_fields(b: IRBuilder, requant: HasFields, loads: Iterator[Expr]) -> tuple[Expr, ...]:
    """The numbers of a channel: immediate where they are uniform, else the next one of `loads`."""
    return tuple(imm(int(f.values[0])) if f.uniform else b.let("field", next(loads)) for f in requant.fields)


@dataclass(frozen=True, slots=True)
class HighMultiply:
    """The short forms above; fields: multiplier, constant, shift. `prescale` is p of each channel."""

    fields: tuple[Field, ...]
    prescale: Array
    rounded: bool
    signed: bool
    lo: int
    hi: int
    dtype: str
    dsp: bool

    def emit(self, b: IRBuilder, acc: Expr, fields: tuple[Expr, ...]) -> Expr:
        """The clamped int32 result, from the plain accumulator (only for a uniform prescale)."""
        # a sum of 64 bits whose bounds allow this form fits 32
        return self.emit_scaled(b, cast("int32", acc) * (1 << int(self.prescale[0])), fields)

    def emit_scaled(self, b: IRBuilder, scaled: Expr, fields: tuple[Expr, ...]) -> Expr:
        """The clamped int32 result, from the accumulator times 2^p."""
        return self._saturated(self._total(b, scaled, fields), fields[-1])

    def emit_wide(self, b: IRBuilder, scaled: Expr, fields: tuple[Expr, ...]) -> Expr:
        """As emit_scaled, but not clamped: what lies beyond the limits stays beyond them."""
        return self._total(b, scaled, fields) >> fields[-1]

    def _total(self, b: IRBuilder, scaled: Expr, fields: tuple[Expr, ...]) -> Expr:
        multiplier, constant, _ = fields
        if self.signed:
            scaled = b.let("acc", scaled)
            constant = constant + sign_term(scaled, int(self.prescale[0]))
        if self.dsp:
            return (SMMLAR if self.rounded else SMMLA)(scaled, multiplier, constant)
        return (MULHI_ROUND if self.rounded else MULHI)(scaled, multiplier) + constant

    def _saturated(self, total: Expr, shift: Expr) -> Expr:
        if self.dsp and (self.lo, self.hi) == int_range(self.dtype):
            width = bits(self.dtype)
            if isinstance(shift, Imm):
                return saturate("ssat", width, int(shift.value))(total)
            return saturate("ssat", width, 0)(total >> shift)
        return clamp(total >> shift, self.lo, self.hi)


def sign_term(scaled: Expr, prescale: int) -> Expr:
    """(acc >> 31) << (p-1), or acc >> 31 for p = 1; a negative number times a power of two, so no shift of a negative value."""
    return (scaled >> 31) * (1 << (prescale - 1))


@dataclass(frozen=True, slots=True)
class General:
    """TFLite's own steps, for shifts and ranges that the short form does not cover; fields: multiplier, shift and perhaps
    31 further bits of the multiplier.
    """

    fields: tuple[Field, ...]
    attrs: RequantizeAttrs

    def emit(self, b: IRBuilder, acc: Expr, fields: tuple[Expr, ...]) -> Expr:
        if self.attrs.fraction:
            scaled = tir_multiply_long(b, acc, _number(fields[0]), fraction=_number(fields[2]), shift=_number(fields[1]))
        elif acc.dtype == "int64":
            number, shift = (_number(f) for f in fields)
            reduced = is_reduced(self.attrs.multiplier)
            scaled = tir_multiply_wide(b, acc, number, shift, reduced=reduced, rounding=self.attrs.rounding)
        else:
            scaled = tir_multiply_by_quantized_multiplier(b, acc, fields[0], fields[1], rounding=self.attrs.rounding)
        return clamp(scaled + self.attrs.zero_point, self.attrs.lo, self.attrs.hi)


def _number(field: Expr) -> Expr | int:
    return int(field.value) if isinstance(field, Imm) else field


Requant = HighMultiply | General


def plan_requantize(attrs: RequantizeAttrs, low: Array, high: Array, target: Target) -> Requant:
    """The cheapest exact form for accumulators of channel c in [low[c], high[c]] (int64 arrays)."""
    for prescale in (1, 0):
        short = plan_high_multiply(attrs, low, high, target=target, prescale=prescale)
        if short is not None:
            return short
    numbers = {"multiplier": attrs.multiplier, "shift": attrs.shift}
    if attrs.fraction:
        numbers["fraction"] = attrs.fraction
    return General(tuple(Field(n, np.broadcast_to(np.asarray(v), low.shape)) for n, v in numbers.items()), attrs)


def plan_high_multiply(
    attrs: RequantizeAttrs, low: Array, high: Array, *, target: Target, prescale: int | Array = 1
) -> HighMultiply | None:
    """The short form for accumulators that come pre-scaled by 2^prescale (one p, or one for each channel); None where
    it is not exact.

    Channels of different p need the sign term to be unnecessary.  Halves away from zero are left to `General`: rare, as
    `aot.numerics.ties` says.
    """
    numbers = (np.asarray(n, np.int64).tobytes() for n in (low, high, prescale))
    return _plan_high_multiply(attrs, *numbers, dsp=target.has("dsp"))


@lru_cache(maxsize=64)  # every kernel that competes for a layer asks
def _plan_high_multiply(
    attrs: RequantizeAttrs, low_bytes: bytes, high_bytes: bytes, scale_bytes: bytes, *, dsp: bool
) -> HighMultiply | None:  # fmt: skip
    if attrs.rounding == "away":
        return None
    low, high, prescale = (np.frombuffer(b, np.int64) for b in (low_bytes, high_bytes, scale_bytes))
    multiplier = np.broadcast_to(np.asarray(attrs.multiplier, np.int64), low.shape)
    right = -np.broadcast_to(np.asarray(attrs.shift, np.int64), low.shape)
    p = np.broadcast_to(prescale, low.shape)
    shift = right + p - 1
    magnitude = np.maximum(np.abs(low), np.abs(high)).astype(np.int64)
    fits = (magnitude << p) < (1 << 31)
    double = attrs.rounding == "double"
    shifts_left = (p >= 2) if double else np.asarray(attrs.rounding == "single")
    left = shifts_left & (shift >= 1) & (magnitude << np.clip(-right, 0, 31) < 1 << 31)
    if not (fits & ((right >= 0) | left) & (p >= int(double)) & (shift >= 1 - double) & (shift <= MAX_CONSTANT_BITS)).all():
        return None
    signed = double and attrs.lo < attrs.zero_point and bool((low < 0).any())
    if signed and (right <= 0).any():
        return None
    if signed and not (p == p[0]).all():
        return None
    rounded = double and bool((p == 1).any())
    if rounded and not (p == 1).all():
        return None
    constant = np.where(shift >= 1, 1 << np.clip(shift - 1, 0, 40), 0) + (attrs.zero_point << shift)
    if double:
        constant = constant + np.where((p >= 2) & (right >= 1), 1 << np.clip(p - 2, 0, 40), 0)
    fields = (Field("multiplier", multiplier), Field("constant", constant), Field("shift", shift))
    return HighMultiply(fields, p, rounded, signed, attrs.lo, attrs.hi, attrs.dtype, dsp)
