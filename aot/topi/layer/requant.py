"""Exact requantisation with one high multiply, used only when it is proven to give TFLite's results.

TFLite's reference needs a rounding doubling multiply and a rounding shift: many instructions per result.  A Cortex-M4 has
SMMLAR (high word of a product, plus an accumulator), which does most of that at once if the constants are folded properly.

Let s = -shift, m the multiplier, and a = acc * 2^p the accumulator pre-scaled by p bits (p = 1: one doubling).  With
hi(x) = floor(x / 2^32), TFLite's results before clamping are

  double rounding, s = 0, p = 1:        hi(a*m + 2^31)
  double rounding, s <= 0, s + p >= 2:  (hi(a*m) + 2^(s+p-2)) >> (s+p-1)
  single rounding, s + p >= 2, p >= 0:  (hi(a*m) + 2^(s+p-2)) >> (s+p-1)     (s < 0 too)
  double rounding, s >= 1, p = 1:       (hi(a*m + 2^31) + 2^(s-1) + (acc >> 31)) >> s
  double rounding, s >= 1, p >= 2:      (hi(a*m) + 2^(s+p-2) + 2^(p-2) + ((acc >> 31) << (p-1))) >> (s+p-1)

provided that a fits an int32.  The term with acc >> 31 decides ties of negative values only.  It is left out if these are
clamped to the zero point anyway (every ReLU whose zero point is its lower bound).  The zero point, shifted left by s+p-1,
becomes part of the constant.  All of this is exact integer arithmetic; tests/topi/layer/test_requant.py compares it with the
reference functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Protocol

import numpy as np

from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.numerics.fixed_point import is_reduced, tir_multiply_by_quantized_multiplier, tir_multiply_long, tir_multiply_wide
from aot.op.qnn.quantize import RequantizeAttrs
from aot.support.dataclass import dataclass
from aot.support.dtype import bits, int_range
from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Imm, cast, clamp, imm
from aot.topi.intrin.scalar import MULHI, MULHI_ROUND, SMMLA, SMMLAR, saturate

MAX_CONSTANT_BITS = 22
"""Largest final shift of the short form: zero point << 22 plus half a product, rounded, fits an int32."""


@dataclass(frozen=True, slots=True)
class RequantParam:
    """A number that the kernel needs per output channel (int32); `uniform` if it is the same for all channels."""

    name: str
    values: Array

    @property
    def uniform(self) -> bool:
        return bool((self.values == self.values[0]).all())


class HasParams(Protocol):
    """A form of requantisation with per-channel parameters."""

    @property
    def params(self) -> tuple[RequantParam, ...]: ...


def channel_params(requant: HasParams, loads: Iterator[Expr]) -> tuple[Expr, ...]:
    """The parameters of a channel: uniform ones as immediates, the others from `loads` in order."""
    return tuple(imm(int(f.values[0])) if f.uniform else next(loads) for f in requant.params)


def load_params(b: IRBuilder, requant: HasParams, loads: Iterator[Expr]) -> tuple[Expr, ...]:
    """As `channel_params`, with each load in a variable of the parameter's name, for parameters that are used more than once."""
    return tuple(imm(int(p.values[0])) if p.uniform else b.let(p.name, next(loads)) for p in requant.params)


@dataclass(frozen=True, slots=True)
class HighMultiply:
    """The short forms above, with the parameters multiplier, constant and shift; `prescale` is p per channel.

    If the term with acc >> 31 differs between channels, it is a fourth parameter, for accumulators below zero.
    """

    params: tuple[RequantParam, ...]
    prescale: Array
    rounded: bool
    signed: bool
    lo: int
    hi: int
    dtype: str
    dsp: bool

    def emit(self, b: IRBuilder, acc: Expr, requant_params: tuple[Expr, ...]) -> Expr:
        """The clamped int32 result, from the plain accumulator (only for a uniform prescale)."""
        # a sum of 64 bits whose bounds allow this form fits 32
        return self.emit_scaled(b, cast("int32", acc) * (1 << int(self.prescale[0])), requant_params)

    def emit_scaled(self, b: IRBuilder, scaled: Expr, requant_params: tuple[Expr, ...]) -> Expr:
        """The clamped int32 result, from the accumulator times 2^p."""
        return self._saturated(self._total(b, scaled, requant_params), requant_params[2])

    def emit_wide(self, b: IRBuilder, scaled: Expr, requant_params: tuple[Expr, ...]) -> Expr:
        """As emit_scaled without the clamp: a value beyond the limits stays beyond them."""
        return self._total(b, scaled, requant_params) >> requant_params[2]

    def _total(self, b: IRBuilder, scaled: Expr, requant_params: tuple[Expr, ...]) -> Expr:
        multiplier, constant, _, *negative = requant_params
        if self.signed:
            scaled = b.let("acc", scaled)
            constant = constant + ((scaled >> 31) & negative[0] if negative else sign_term(scaled, int(self.prescale[0])))
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
    """(acc >> 31) << (p-1), written as a product because C leaves left shifts of negative values undefined."""
    return (scaled >> 31) * (1 << (prescale - 1))


@dataclass(frozen=True, slots=True)
class General:
    """TFLite's own steps, for shifts and ranges that the short form does not cover.

    Parameters: multiplier, shift, and for some layers 31 further bits of the multiplier.
    """

    params: tuple[RequantParam, ...]
    attrs: RequantizeAttrs

    def emit(self, b: IRBuilder, acc: Expr, requant_params: tuple[Expr, ...]) -> Expr:
        rounding = self.attrs.rounding
        if self.attrs.fraction:
            multiplier, shift, fraction = map(_number, requant_params)
            scaled = tir_multiply_long(b, acc, multiplier, fraction=fraction, shift=shift)
        elif acc.dtype == "int64":
            multiplier, shift = map(_number, requant_params)
            scaled = tir_multiply_wide(b, acc, multiplier, shift, reduced=is_reduced(self.attrs.multiplier), rounding=rounding)
        else:
            scaled = tir_multiply_by_quantized_multiplier(b, acc, *requant_params, rounding=rounding)
        return clamp(scaled + self.attrs.zero_point, self.attrs.lo, self.attrs.hi)


def _number(param: Expr) -> Expr | int:
    return int(param.value) if isinstance(param, Imm) else param


Requant = HighMultiply | General


def plan_requantize(attrs: RequantizeAttrs, low: Array, high: Array, target: Target) -> Requant:
    """The cheapest exact form for accumulators in [low[c], high[c]] for each channel c (int64 arrays)."""
    for prescale in (1, 0):
        short = plan_high_multiply(attrs, low, high, target=target, prescale=prescale)
        if short is not None:
            return short
    numbers = {"multiplier": attrs.multiplier, "shift": attrs.shift}
    if attrs.fraction:
        numbers["fraction"] = attrs.fraction
    return General(tuple(RequantParam(n, np.broadcast_to(np.asarray(v), low.shape)) for n, v in numbers.items()), attrs)


def plan_high_multiply(
    attrs: RequantizeAttrs, low: Array, high: Array, *, target: Target, prescale: int | Array = 1
) -> HighMultiply | None:
    """The short form for accumulators pre-scaled by 2^prescale (one p, or one per channel); None if it is not exact.

    Channels may differ in p only if none needs the sign term.  Rounding halves away from zero is left to `General`; it is rare
    (see `aot.numerics.ties`).
    """
    numbers = (np.asarray(n, np.int64).tobytes() for n in (low, high, prescale))
    return _plan_high_multiply(attrs, *numbers, dsp=target.has("dsp"))


def plan_smmla(attrs: RequantizeAttrs, low: Array, high: Array, prescale: Array) -> HighMultiply | None:
    """As plan_high_multiply, with SMMLA whatever the core is, and p may differ between channels even if the sign matters."""
    numbers = (np.asarray(n, np.int64).tobytes() for n in (low, high, prescale))
    return _plan_high_multiply(attrs, *numbers, dsp=True, sign_param=True)


@lru_cache(maxsize=64)  # every kernel that competes for a layer asks
def _plan_high_multiply(
    attrs: RequantizeAttrs, low_bytes: bytes, high_bytes: bytes, scale_bytes: bytes, *, dsp: bool, sign_param: bool = False
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
    varying = signed and not (p == p[0]).all()
    if varying and not sign_param:
        return None
    rounded = double and bool((p == 1).any())
    if rounded and not (p == 1).all():
        return None
    constant = np.where(shift >= 1, 1 << np.clip(shift - 1, 0, 40), 0) + (attrs.zero_point << shift)
    if double:
        constant = constant + np.where((p >= 2) & (right >= 1), 1 << np.clip(p - 2, 0, 40), 0)
    params: tuple[RequantParam, ...] = (
        RequantParam("multiplier", multiplier), RequantParam("constant", constant), RequantParam("shift", shift)
    )  # fmt: skip
    params += (RequantParam("negative", -(1 << (p - 1))),) if varying else ()
    return HighMultiply(params, p, rounded, signed, attrs.lo, attrs.hi, attrs.dtype, dsp)


# Requantisation with one shift for all channels, proven by thresholds.
#
# A uniform shift is an immediate: it needs no load and no register.  Requantisation f is monotone, so its thresholds determine
# it: for each result k > lo, the smallest accumulator t_k with f(t_k) >= k.  The short form g(acc) = (hi(acc * 2^p * M) + C) >> S
# with hi(x) = floor(x / 2^32) is monotone as well.  After the clamp to [lo, hi] it equals f on [low, high] if and only if, for
# every k,
#
#     hi(t_k 2^p M) + C >= k 2^S   (if t_k <= high)       and       hi((t_k - 1) 2^p M) + C < k 2^S   (if t_k > low).
#
# For a given M and S, the valid C form an interval.  So M may be any multiplier near the true ratio, and S may be the same for
# all channels: a channel whose own shift is larger gets its multiplier rounded to fewer bits.  With a few bits of prescale, the
# interval is almost never empty, unless double rounding moves halves away from zero on both sides of it.
#
# If adding C costs an instruction, it is moved before the product and into the bias: hi((acc * 2^p + D) M) >> S equals f if
#
#     (t_k 2^p + D) M >= k 2^(S+32)                       and       ((t_k - 1) 2^p + D) M < k 2^(S+32).
#
# This is an interval of D; changing M slightly may make it longer.


SEARCH = 3
"""Largest distance, in accumulators, of a threshold from its real-valued estimate."""
FAR = np.int64(1) << 40
"""Larger than any parameter of a form."""
TILTS, TILT_BITS = 8, 10
"""Multipliers tried on either side of a channel's own, and the distance between two of them as a power of two."""

USUAL = 1 - SEARCH
"""The search for a threshold starts here: most are at the estimate or one below."""


def plan_uniform(
    attrs: RequantizeAttrs, low: Array, high: Array, *, target: Target, prescale: int, limit: int = MAX_CONSTANT_BITS
) -> HighMultiply | None:
    """The form above for accumulators in [low[c], high[c]] (int64) that are pre-scaled by 2^prescale; None if there is none.

    The shift is as large as the channels allow, at most `limit`.
    """
    spans = (low.astype(np.int64).tobytes(), high.astype(np.int64).tobytes())
    return _plan_uniform(attrs, *spans, dsp=target.has("dsp"), prescale=prescale, limit=limit)


@lru_cache(maxsize=64)
def _plan_uniform(
    attrs: RequantizeAttrs, low_bytes: bytes, high_bytes: bytes, *, dsp: bool, prescale: int, limit: int
) -> HighMultiply | None:  # fmt: skip
    low, high = np.frombuffer(low_bytes, np.int64), np.frombuffer(high_bytes, np.int64)
    ratios = _ratios(attrs, low, high, prescale=prescale, limit=limit)
    if ratios is None:
        return None
    at, ratio, common = ratios

    def product(acc: Array) -> Array:
        return (acc * (1 << prescale) * ratio) >> 32

    results = np.arange(attrs.lo + 1, attrs.hi + 1).reshape(-1, 1) << common
    least = np.where(at <= high, results - product(at), -FAR).max(axis=0, initial=-FAR)
    most = np.where(at > low, results - 1 - product(at - 1), FAR).min(axis=0, initial=FAR)
    constant = _between(least, most)
    if least.max() <= most.min():
        constant = np.full_like(constant, least.max() if least.max() > -FAR else constant.min())
    if (least > most).any() or (np.abs(constant) + np.abs(product(low)) + np.abs(product(high)) >= 1 << 31).any():
        return None
    return _form(attrs, ratio, constant, dsp=dsp, prescale=prescale, shift=common)


def plan_folded(
    attrs: RequantizeAttrs, low: Array, high: Array, *, target: Target, prescale: int, limit: int = MAX_CONSTANT_BITS
) -> tuple[HighMultiply, Array] | None:
    """As plan_uniform with the constant 0: (the form for accumulators times 2^prescale plus D, D per channel)."""
    low, high = low.astype(np.int64), high.astype(np.int64)
    ratios = _ratios(attrs, low, high, prescale=prescale, limit=limit)
    if ratios is None:
        return None
    at, ratio, common = ratios
    added = np.zeros_like(low)
    left = np.arange(low.size)
    for tilt in sorted(range(-TILTS, TILTS + 1), key=abs):
        tried = _tilted(ratio[left], at[:, left], low[left], high[left], tilt=tilt)
        least, most = _added_range(attrs, at[:, left], (low[left], high[left]), tried, scale=(prescale, common))
        done = least <= most
        ratio[left[done]], added[left[done]] = tried[done], _between(least, most)[done]
        left = left[~done]
        if not left.size:
            break
    largest = np.maximum(np.abs((low << prescale) + added), np.abs((high << prescale) + added))
    if left.size or (largest >= 1 << 31).any() or (np.abs(added) >= 1 << 31).any():
        return None
    return _form(attrs, ratio, np.zeros_like(added), dsp=target.has("dsp"), prescale=prescale, shift=common), added


def is_folded(requant: HighMultiply) -> bool:
    """Whether a form adds nothing after the product."""
    return not requant.signed and not requant.params[1].values.any()


def _added_range(
    attrs: RequantizeAttrs, at: Array, span: tuple[Array, Array], ratio: Array, *, scale: tuple[int, int]
) -> tuple[Array, Array]:
    """The smallest and the largest D of each channel; `scale`: p and S."""
    (low, high), (prescale, shift) = span, scale
    results = np.arange(attrs.lo + 1, attrs.hi + 1, dtype=np.int64).reshape(-1, 1) << (shift + 32)
    least = np.where(at <= high, -(-results // ratio) - (at << prescale), -FAR).max(axis=0, initial=-FAR)
    most = np.where(at > low, (results - 1) // ratio - ((at - 1) << prescale), FAR).min(axis=0, initial=FAR)
    return least, most


def _tilted(ratio: Array, at: Array, low: Array, high: Array, *, tilt: int) -> Array:
    """M changed so that, over the span of all thresholds, a product changes by `tilt` steps of 2^-TILT_BITS accumulators."""
    reached = np.clip(at, low, high)
    unit = np.maximum(ratio // (np.maximum(reached[-1] - reached[0], 1) << TILT_BITS), 1)
    tilted: Array = np.clip(ratio + tilt * unit, 1, (1 << 31) - 1)
    return tilted


def _between(least: Array, most: Array) -> Array:
    """A number inside each interval; an end at FAR means that the interval is open on that side."""
    middle: Array = np.where(least == -FAR, most, np.where(most == FAR, least, (least + most) >> 1))
    return middle


def _form(attrs: RequantizeAttrs, ratio: Array, constant: Array, *, dsp: bool, prescale: int, shift: int) -> HighMultiply:
    shifts = np.full_like(ratio, shift)
    params = (RequantParam("multiplier", ratio), RequantParam("constant", constant), RequantParam("shift", shifts))
    return HighMultiply(params, np.full_like(ratio, prescale), False, False, attrs.lo, attrs.hi, attrs.dtype, dsp)


def _ratios(attrs: RequantizeAttrs, low: Array, high: Array, *, prescale: int, limit: int) -> tuple[Array, Array, int] | None:
    """(thresholds, M of each channel, S) as defined above; None if they do not exist."""
    multiplier = np.broadcast_to(np.asarray(attrs.multiplier, np.int64), low.shape)
    shift = prescale - 1 - np.broadcast_to(np.asarray(attrs.shift, np.int64), low.shape)
    at = thresholds(attrs, low, high)
    if at is None:
        return None
    fixed = ((at <= low) | (at > high)).all(axis=0)  # channels with a single result: any multiplier will do
    common = min(int(np.where(fixed, MAX_CONSTANT_BITS, shift).min()), limit)
    dropped = np.where(fixed, 0, shift - common)
    if common < 0 or int(dropped.max()) > 30 or int(np.maximum(np.abs(low), np.abs(high) + 1).max()) << prescale >= 1 << 31:
        return None
    ratio = np.where(dropped > 0, (multiplier + ((1 << dropped) >> 1)) >> dropped, multiplier)
    ratio = np.where(fixed, ratio.max(), ratio)
    return None if (ratio < 1).any() else (at, ratio, common)


def thresholds(attrs: RequantizeAttrs, low: Array, high: Array) -> Array | None:
    """int64[hi - lo, C]: the smallest accumulator in [low, high] whose result is at least lo + 1 + i; high + 1 if there is none.

    None if a threshold is not found near its estimate (multipliers far below 2^30).
    """
    return _thresholds(attrs, low.astype(np.int64).tobytes(), high.astype(np.int64).tobytes())


@lru_cache(maxsize=16)
def _thresholds(attrs: RequantizeAttrs, low_bytes: bytes, high_bytes: bytes) -> Array | None:
    """`thresholds`, cached because every kernel that competes for a layer asks for them."""
    low, high = np.frombuffer(low_bytes, np.int64), np.frombuffer(high_bytes, np.int64)
    multiplier = np.broadcast_to(np.asarray(attrs.multiplier, np.float64), low.shape)
    scale = np.ldexp(np.maximum(multiplier, 1.0), np.asarray(attrs.shift, np.int64) - 31)
    expected = np.arange(attrs.lo + 1, attrs.hi + 1).reshape(-1, 1)
    real = (expected - 0.5 - attrs.zero_point) / scale
    estimate = np.clip(np.ceil(real), low - SEARCH, high + SEARCH + 1).astype(np.int64)
    out = TensorType(estimate.shape, "int8")

    def short(d: int) -> Array:
        """Whether the accumulator d above the estimate gives too small a result."""
        acc = estimate + d
        results = attrs.evaluate(np.clip(acc, low, high).astype(np.int32), out_type=out)
        below: Array = (acc < low) | (acc <= high) & (results < expected)
        return below

    below = short(USUAL).astype(np.int64)
    if below.all():  # then so are all smaller ones
        below += USUAL + SEARCH
    else:
        acc, lowest = estimate - SEARCH, short(-SEARCH)
        if not (lowest | (acc <= low) | (acc > high)).all():
            return None
        below += lowest
    for d in range(USUAL + 1, SEARCH + 1):
        more = short(d)
        if not more.any():  # nor is any larger one
            break
        below += more
    else:
        return None
    smallest: Array = np.clip(estimate - SEARCH + below, low, high + 1)
    smallest.setflags(write=False)
    return smallest
