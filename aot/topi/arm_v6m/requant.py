"""Requantisation by two products of 32 bits, proven by thresholds.

Requantisation is monotone (aot/topi/layer/threshold.py), so everything between its first and its last threshold determines it:
with u = acc - (first threshold) + 1 a result is lo for u <= 0, hi for u >= span, and else

    lo + ((u * high + (u * low >> split) + constant) >> shift),

where high * 2^split + low is the channel's multiplier scaled to 64 - 2U bits, U bits being enough for every u < span.  Neither
product leaves 32 bits then.  The constant puts each threshold where it belongs; if there is none, the layer takes
another form.  The accumulator's shift by the first threshold goes into the bias.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aot.ir.op import Array
from aot.op.qnn.requantize import RequantizeAttrs
from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, select
from aot.topi.layer.requant import Field, General, HighMultiply, plan_requantize
from aot.topi.layer.threshold import thresholds

WORD = 32
CODE_BITS = 8
LEAST_SPLIT = 8
"""Bits of a part of the multiplier from which on a constant may be found."""


@dataclass(frozen=True, slots=True)
class TwoProducts:
    """The form above; fields: high, low, constant, span, shift.  `base` is what the accumulators of each channel start less."""

    fields: tuple[Field, ...]
    base: Array
    split: int
    lo: int
    hi: int

    def emit(self, _b: IRBuilder, acc: Expr, fields: tuple[Expr, ...]) -> Expr:
        """The int32 result of u."""
        high, low, constant, span, shift = fields
        u = cast("uint32", acc)
        product = u * cast("uint32", high) + ((u * cast("uint32", low)) >> imm(self.split, "uint32"))
        code = (product + cast("uint32", constant)) >> cast("uint32", shift)
        inner = cast("int32", code) + self.lo
        return select(acc <= 0, imm(self.lo), select(acc >= span, imm(self.hi), inner))


@dataclass(frozen=True, slots=True)
class OtherForm:
    """A form of aot/topi/layer/requant.py, with software for its 64-bit products."""

    form: HighMultiply | General
    base: Array

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.form.fields

    def emit(self, b: IRBuilder, acc: Expr, fields: tuple[Expr, ...]) -> Expr:
        return self.form.emit(b, acc, fields)


Requant = TwoProducts | OtherForm

INSTRUCTIONS = 14
"""Of a result by two products, its store included."""
SLOW = 95
"""Of a result by software for 64-bit products."""


def instructions(requant: Requant) -> int:
    """Of a result, its store included (from counts under QEMU)."""
    return INSTRUCTIONS if isinstance(requant, TwoProducts) else SLOW


def plan(attrs: RequantizeAttrs, low: Array, high: Array, target: Target) -> Requant:
    """The form for accumulators of channel c in [low[c], high[c]] (int64 arrays)."""
    found = plan_two_products(attrs, low, high)
    return found or OtherForm(plan_requantize(attrs, low, high, target), np.zeros_like(low))


def plan_two_products(attrs: RequantizeAttrs, low: Array, high: Array) -> TwoProducts | None:
    """None where it is not exact for a channel."""
    at = thresholds(attrs, low, high) if attrs.dtype == "int8" and not attrs.fraction and attrs.hi > attrs.lo else None
    if at is None:
        return None
    reached = (at > low) & (at <= high)
    below = (at <= low).sum(axis=0)  # thresholds that even the lowest accumulator has passed
    base = np.where(below > 0, low, at[0]) - 1
    span = np.where(reached[-1] | (at[-1] <= low), at[-1], high + 1) - base
    bits = max(int(span.max() - 1).bit_length(), 1)
    split = WORD - bits
    if split < LEAST_SPLIT or (span < 1).any():
        return None
    multiplier = np.broadcast_to(np.asarray(attrs.multiplier, np.float64), low.shape)
    scale = np.ldexp(multiplier, np.broadcast_to(np.asarray(attrs.shift, np.int64), low.shape) - 31)
    parts = _parts(at - base, scale, span, split=split)
    if parts is None:
        return None
    number, constant, shift = parts
    values = {"high": number >> split, "low": number & ((1 << split) - 1), "constant": constant, "span": span, "shift": shift}
    return TwoProducts(tuple(Field(n, v) for n, v in values.items()), base, split, attrs.lo, attrs.hi)


def _parts(at: Array, scale: Array, span: Array, *, split: int) -> tuple[Array, Array, Array] | None:
    """(multiplier, constant, shift) of each channel for thresholds `at` on u, or None."""
    shift = np.minimum(WORD - CODE_BITS - 1, 2 * split - 1 - np.ceil(np.log2(scale) + split).astype(np.int64))
    if (shift < 1).any():
        return None
    number = np.rint(np.ldexp(scale, (shift + split).astype(np.int64))).astype(np.int64)
    if (number < 1).any() or (number >= 1 << (2 * split)).any():
        return None

    def product(u: Array) -> Array:
        found: Array = (u * number) >> split
        return found

    codes = np.arange(1, at.shape[0] + 1).reshape(-1, 1) << shift
    far = np.int64(1) << 40
    inside = (at >= 1) & (at < span)  # the result before the last threshold is computed, that behind it is not
    last = (at >= 2) & (at <= span)
    least = np.where(inside, codes - product(at), -far).max(axis=0)
    most = np.where(last, codes - 1 - product(at - 1), far).min(axis=0)
    passed = ((at < 1).sum(axis=0)) << shift  # what every u has passed
    least, most = (
        np.maximum(least, passed - product(np.ones_like(span))),
        np.minimum(most, (np.int64(1) << WORD) - 1 - product(span)),
    )
    constant = np.where(most == far, least, (least + most) >> 1)
    if (least > most).any() or (np.abs(constant) >= 1 << 31).any() or (constant + product(np.ones_like(span)) < 0).any():
        return None
    return number, constant, shift
