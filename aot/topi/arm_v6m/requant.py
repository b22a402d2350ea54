"""Requantisation with two 32-bit products for Armv6-M, proven by thresholds.

TFLite's requantisation needs a 64-bit product, about 95 instructions in software on these cores; two 32-bit products take 14.
Requantisation is monotone (aot/topi/layer/requant.py), so its thresholds determine it.  Let
u = acc - (first threshold) + 1.  A result is lo for u <= 0, hi for u >= span, and otherwise

    lo + ((u * high + (u * low >> split) + constant) >> shift),

where high * 2^split + low is the channel's multiplier scaled to 64 - 2U bits, and U is the number of bits of the largest
u < span.  Then both products fit 32 bits.  The constant is chosen such that every threshold is right.  If no constant does this,
because halves of negative values are rounded away from zero, negative accumulators (u < zero) get a constant of their own.  If
that fails too, the layer uses another form.  The subtraction of the first threshold is part of the bias.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from aot.ir.op import Array
from aot.op.qnn.quantize import RequantizeAttrs
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, select
from aot.topi.layer.fused import FusedLayer
from aot.topi.layer.planes import LaneRequant
from aot.topi.layer.requant import RequantParam, plan_requantize, thresholds

WORD = 32
CODE_BITS = 8
LEAST_SPLIT = 8
"""Fewest bits of each half of the multiplier for which a constant is likely to exist."""


@dataclass(frozen=True, slots=True)
class TwoProducts:
    """The form above; parameters: high, low, constant, span, shift, and if needed zero and the constant below it."""

    params: tuple[RequantParam, ...]
    split: int
    lo: int
    hi: int

    def emit(self, _b: IRBuilder, acc: Expr, requant_params: tuple[Expr, ...]) -> Expr:
        """The int32 result for u."""
        high, low, constant, span, shift, *negative = requant_params
        if negative:
            constant = select(acc < negative[0], negative[1], constant)
        u = cast("uint32", acc)
        product = u * cast("uint32", high) + ((u * cast("uint32", low)) >> imm(self.split, "uint32"))
        code = (product + cast("uint32", constant)) >> cast("uint32", shift)
        inner = cast("int32", code) + self.lo
        return select(acc <= 0, imm(self.lo), select(acc >= span, imm(self.hi), inner))


INSTRUCTIONS = 14
"""Instructions per result with two products, including its store."""
SIGNED = 9
"""Further instructions if negative accumulators have a constant of their own."""
UNSIGNED_FIELDS = 5
SLOW = 95
"""Instructions per result with 64-bit products in software."""


def instructions(requant: LaneRequant) -> int:
    """Instructions per result, including its store (from counts under QEMU)."""
    if not isinstance(requant.form, TwoProducts):
        return SLOW
    return INSTRUCTIONS + SIGNED * (len(requant.form.params) > UNSIGNED_FIELDS)


def choose_requant(layer: FusedLayer, target: Target) -> LaneRequant:
    """The best form for a layer's accumulators."""
    attrs, low, high = layer.requant, layer.acc_low, layer.acc_high
    two_products = plan_two_products(attrs, low, high)
    return two_products or LaneRequant(plan_requantize(attrs, low, high, target), np.zeros_like(low))


def plan_two_products(attrs: RequantizeAttrs, low: Array, high: Array) -> LaneRequant | None:
    """The form with two products; None if it is not exact for some channel."""
    at = thresholds(attrs, low, high) if attrs.dtype == "int8" and not attrs.fraction and attrs.hi > attrs.lo else None
    if at is None:
        return None
    reached = (at > low) & (at <= high)
    below = (at <= low).sum(axis=0)  # thresholds at or below the lowest accumulator
    base = np.where(below > 0, low, at[0]) - 1
    span = np.where(reached[-1] | (at[-1] <= low), at[-1], high + 1) - base
    bits = max(int(span.max() - 1).bit_length(), 1)
    split = WORD - bits
    if split < LEAST_SPLIT or (span < 1).any():
        return None
    multiplier = np.broadcast_to(np.asarray(attrs.multiplier, np.float64), low.shape)
    scale = np.ldexp(multiplier, np.broadcast_to(np.asarray(attrs.shift, np.int64), low.shape) - 31)
    shift = np.minimum(WORD - CODE_BITS - 1, 2 * split - 1 - np.ceil(np.log2(scale) + split).astype(np.int64))
    number = np.rint(np.ldexp(scale, (shift + split).astype(np.int64))).astype(np.int64)
    if (shift < 1).any() or (number < 1).any() or (number >= 1 << (2 * split)).any():
        return None
    values = {"high": number >> split, "low": number & ((1 << split) - 1), "constant": shift, "span": span, "shift": shift}
    constant = partial(_constant, at - base, lambda u: (u * number) >> split, shift)
    everywhere = constant(np.ones_like(span), span)
    if everywhere is not None:
        values["constant"] = everywhere
    else:
        zero = np.clip(-base, 1, span)
        below, above = constant(np.ones_like(span), zero), constant(zero, span)
        if below is None or above is None:
            return None
        values |= {"constant": above, "zero": zero, "below": below}
    form = TwoProducts(tuple(RequantParam(n, v) for n, v in values.items()), split, attrs.lo, attrs.hi)
    return LaneRequant(form, base)


def _constant(at: Array, product: Callable[[Array], Array], shift: Array, start: Array, stop: Array) -> Array | None:
    """The constants with which products step at the thresholds `at` (given as u), for start <= u < stop; None if there are none.

    Each threshold is checked on both sides, provided that the side is in this range.
    """
    codes = np.arange(1, at.shape[0] + 1).reshape(-1, 1) << shift
    far = np.int64(1) << 40
    least = np.where((at >= start) & (at < stop), codes - product(at), -far).max(axis=0)
    most = np.where((at > start) & (at <= stop), codes - 1 - product(at - 1), far).min(axis=0)
    passed = (at <= start).sum(axis=0)  # thresholds below the whole range; the first one above it
    reached = (at < stop).sum(axis=0) + 1
    used = start < stop
    least = np.maximum(least, np.where(used, (passed << shift) - product(start), -far))
    most = np.minimum(most, np.where(used, (reached << shift) - 1 - product(stop - 1), far))
    most = np.minimum(most, np.where(used, (np.int64(1) << WORD) - 1 - product(stop), far))
    constant = np.where(used, np.where(most == far, least, (least + most) >> 1), 0)
    if (least > most).any() or (np.abs(constant) >= 1 << 31).any():
        return None
    return constant if (~used | (constant + product(start) >= 0)).all() else None
