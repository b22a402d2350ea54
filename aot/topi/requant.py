"""Exact requantisation, chosen by proof.

With p = 2 * acc * multiplier and s = -shift, TFLite's results are
  double rounding, s >= 1:  (((p + 2^31) >> 32) + 2^(s-1) + (acc >> 31)) >> s
  double or single, s = 0:   (p + 2^31) >> 32
  single rounding, s >= 1:  ((p >> 32) + 2^(s-1)) >> s
provided that 2 * acc fits an int32.  The sign term acc >> 31 only decides ties of negative values, so it may be left out where negative
values are clamped to the zero point anyway.  The zero point joins the constant, shifted by s.  All steps are exact integer arithmetic;
tests/topi/test_requant.py compares them with the reference functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from aot.ir.op import Array
from aot.op._fixed_point import tir_multiply_by_quantized_multiplier
from aot.op.requantize import RequantizeAttrs
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, imm


@dataclass(frozen=True, slots=True)
class Field:
    """A number that the kernel needs for each output channel: an array of int32, or one value for all."""

    name: str
    values: Array

    @property
    def uniform(self) -> bool:
        return bool((self.values == self.values[0]).all())


class Requant(Protocol):
    """A way to requantise: the fields that it reads for each channel, and the expression."""

    @property
    def fields(self) -> tuple[Field, ...]: ...

    def emit(self, b: IRBuilder, acc: Expr, fields: tuple[Expr, ...]) -> Expr:
        """The clamped result as int32, from the int32 accumulator."""


@dataclass(frozen=True, slots=True)
class HighMultiply:
    """One high multiply, one constant, one shift (the forms above)."""

    fields: tuple[Field, ...]
    rounded: bool
    signed: bool
    lo: int
    hi: int

    def emit(self, b: IRBuilder, acc: Expr, fields: tuple[Expr, ...]) -> Expr:
        multiplier, constant, shift = fields
        high = mulhi(acc * 2, multiplier, rounded=self.rounded)
        total = high + constant
        if self.signed:
            total = total + (acc >> 31)
        return clamp(total >> shift, self.lo, self.hi)


@dataclass(frozen=True, slots=True)
class General:
    """TFLite's own steps, for shifts and ranges that the short form does not cover."""

    fields: tuple[Field, ...]
    attrs: RequantizeAttrs

    def emit(self, b: IRBuilder, acc: Expr, fields: tuple[Expr, ...]) -> Expr:
        scaled = tir_multiply_by_quantized_multiplier(b, acc, fields[0], fields[1], rounding=self.attrs.rounding)
        return clamp(scaled + self.attrs.zero_point, self.attrs.lo, self.attrs.hi)


def mulhi(a: Expr, m: Expr, *, rounded: bool) -> Expr:
    """The upper word of the 64-bit product, rounded to nearest (ties up) on request."""
    product = cast("int64", a) * cast("int64", m)
    if rounded:
        product = product + imm(1 << 31, "int64")
    return cast("int32", product >> 32)


def plan_requantize(attrs: RequantizeAttrs, low: Array, high: Array) -> Requant:
    """The cheapest exact form for accumulators of channel c in [low[c], high[c]]."""
    channels = len(low)
    multiplier = np.broadcast_to(np.asarray(attrs.multiplier, np.int64), (channels,)).copy()
    right = -np.broadcast_to(np.asarray(attrs.shift, np.int64), (channels,))
    magnitude = np.maximum(np.abs(low), np.abs(high)).astype(np.int64)
    vanishing = (multiplier == 0) | ((right >= 1) & (magnitude < (1 << np.clip(right - 1, 0, 40))))
    multiplier[vanishing], right = 0, np.where(vanishing, 1, right)
    short = bool((magnitude < (1 << 30)).all() and (right >= 1).all() and (right <= 21).all())
    if not short:
        numbers = {"multiplier": attrs.multiplier, "shift": attrs.shift}
        return General(tuple(Field(n, np.broadcast_to(np.asarray(v), (channels,))) for n, v in numbers.items()), attrs)
    constant = (1 << (right - 1)) + (attrs.zero_point << right)
    double = attrs.rounding == "double"
    sign_matters = double and attrs.lo < attrs.zero_point and bool((low < 0).any())
    fields = (Field("multiplier", multiplier), Field("constant", constant), Field("shift", right))
    return HighMultiply(fields, double, sign_matters, attrs.lo, attrs.hi)
