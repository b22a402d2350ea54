"""Requantisation with one shift for all channels, proven by thresholds.

Requantisation f is monotone, so its thresholds determine it: for each result k > lo the smallest accumulator t_k with
f(t_k) >= k.  The short form g(acc) = (hi(acc * 2^p * M) + C) >> S, hi(x) = floor(x / 2^32), is monotone as well, and equals f
(after the clamp to [lo, hi]) on [low, high] exactly when for every k

    hi(t_k 2^p M) + C >= k 2^S   (where t_k <= high)       and       hi((t_k - 1) 2^p M) + C < k 2^S   (where t_k > low).

For given M and S that is an interval of C.  So M may be any multiplier near the true ratio, and S the same for all channels: M is
the layer's multiplier rounded to fewer bits where a channel's own shift is larger.  With a few bits of prescale the interval is
almost never empty, except where double rounding moves halves away from zero on both sides of it.

Where adding C costs an instruction, it moves before the product, into the bias: hi((acc * 2^p + D) M) >> S equals f when

    (t_k 2^p + D) M >= k 2^(S+32)                          and       ((t_k - 1) 2^p + D) M < k 2^(S+32),

an interval of D, which M moved by a little may make longer.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.op.qnn.quantize import RequantizeAttrs, evaluate_requantize
from aot.target.target import Target
from aot.topi.layer.requant import MAX_CONSTANT_BITS, Field, HighMultiply

SEARCH = 3
"""A threshold lies within this many accumulators of where the real-valued formula has it."""
FAR = np.int64(1) << 40
"""Beyond all numbers that a form may have."""
TILTS, TILT_BITS = 8, 10
"""Multipliers tried on either side of a channel's own, and the distance of two of them."""

USUAL = 1 - SEARCH
"""It is looked for from here on: most lie where the formula has them, or one below."""


def plan_uniform(
    attrs: RequantizeAttrs, low: Array, high: Array, *, target: Target, prescale: int, limit: int = MAX_CONSTANT_BITS
) -> HighMultiply | None:
    """The form above for accumulators of channel c in [low[c], high[c]] (int64) that come times 2^prescale, or None.

    The shift is as large as the channels allow, `limit` at most.
    """
    spans = (low.astype(np.int64).tobytes(), high.astype(np.int64).tobytes())
    return _plan_uniform(attrs, *spans, dsp=target.has("dsp"), prescale=prescale, limit=limit)


@lru_cache(maxsize=64)
def _plan_uniform(
    attrs: RequantizeAttrs, low_bytes: bytes, high_bytes: bytes, *, dsp: bool, prescale: int, limit: int
) -> HighMultiply | None:  # fmt: skip
    low, high = np.frombuffer(low_bytes, np.int64), np.frombuffer(high_bytes, np.int64)
    found = _ratios(attrs, low, high, prescale=prescale, limit=limit)
    if found is None:
        return None
    at, ratio, common = found

    def product(acc: Array) -> Array:
        return (acc * (1 << prescale) * ratio) >> 32

    codes = np.arange(attrs.lo + 1, attrs.hi + 1).reshape(-1, 1) << common
    least = np.where(at <= high, codes - product(at), -FAR).max(axis=0, initial=-FAR)
    most = np.where(at > low, codes - 1 - product(at - 1), FAR).min(axis=0, initial=FAR)
    constant = _between(least, most)
    if least.max() <= most.min():
        constant = np.full_like(constant, least.max() if least.max() > -FAR else constant.min())
    if (least > most).any() or (np.abs(constant) + np.abs(product(low)) + np.abs(product(high)) >= 1 << 31).any():
        return None
    return _form(attrs, ratio, constant, dsp=dsp, prescale=prescale, shift=common)


def plan_folded(
    attrs: RequantizeAttrs, low: Array, high: Array, *, target: Target, prescale: int, limit: int = MAX_CONSTANT_BITS
) -> tuple[HighMultiply, Array] | None:
    """As plan_uniform, with the constant 0: (the form of accumulators that come times 2^prescale plus D, D of each channel)."""
    low, high = low.astype(np.int64), high.astype(np.int64)
    found = _ratios(attrs, low, high, prescale=prescale, limit=limit)
    if found is None:
        return None
    at, ratio, common = found
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
    """Whether a form has nothing to add after the product."""
    return not requant.signed and not requant.fields[1].values.any()


def _added_range(
    attrs: RequantizeAttrs, at: Array, span: tuple[Array, Array], ratio: Array, *, scale: tuple[int, int]
) -> tuple[Array, Array]:
    """The least and the largest D of each channel; `scale`: p and S."""
    (low, high), (prescale, shift) = span, scale
    codes = np.arange(attrs.lo + 1, attrs.hi + 1, dtype=np.int64).reshape(-1, 1) << (shift + 32)
    least = np.where(at <= high, -(-codes // ratio) - (at << prescale), -FAR).max(axis=0, initial=-FAR)
    most = np.where(at > low, (codes - 1) // ratio - ((at - 1) << prescale), FAR).min(axis=0, initial=FAR)
    return least, most


def _tilted(ratio: Array, at: Array, low: Array, high: Array, *, tilt: int) -> Array:
    """M moved so that over all thresholds a product moves by `tilt` steps of 2^-TILT_BITS accumulators."""
    reached = np.clip(at, low, high)
    unit = np.maximum(ratio // (np.maximum(reached[-1] - reached[0], 1) << TILT_BITS), 1)
    moved: Array = np.clip(ratio + tilt * unit, 1, (1 << 31) - 1)
    return moved


def _between(least: Array, most: Array) -> Array:
    """A number of each interval; ends that are FAR away are none."""
    found: Array = np.where(least == -FAR, most, np.where(most == FAR, least, (least + most) >> 1))
    return found


def _form(attrs: RequantizeAttrs, ratio: Array, constant: Array, *, dsp: bool, prescale: int, shift: int) -> HighMultiply:
    fields = (Field("multiplier", ratio), Field("constant", constant), Field("shift", np.full_like(ratio, shift)))
    return HighMultiply(fields, np.full_like(ratio, prescale), False, False, attrs.lo, attrs.hi, attrs.dtype, dsp)


def _ratios(attrs: RequantizeAttrs, low: Array, high: Array, *, prescale: int, limit: int) -> tuple[Array, Array, int] | None:
    """(thresholds, M of each channel, S), see above; None if there are none."""
    multiplier = np.broadcast_to(np.asarray(attrs.multiplier, np.int64), low.shape)
    shift = prescale - 1 - np.broadcast_to(np.asarray(attrs.shift, np.int64), low.shape)
    at = thresholds(attrs, low, high)
    if at is None:
        return None
    fixed = ((at <= low) | (at > high)).all(axis=0)  # channels with one result, for which any multiplier will do
    common = min(int(np.where(fixed, MAX_CONSTANT_BITS, shift).min()), limit)
    dropped = np.where(fixed, 0, shift - common)
    if common < 0 or int(dropped.max()) > 30 or int(np.maximum(np.abs(low), np.abs(high) + 1).max()) << prescale >= 1 << 31:
        return None
    ratio = np.where(dropped > 0, (multiplier + ((1 << dropped) >> 1)) >> dropped, multiplier)
    ratio = np.where(fixed, ratio.max(), ratio)
    return None if (ratio < 1).any() else (at, ratio, common)


def thresholds(attrs: RequantizeAttrs, low: Array, high: Array) -> Array | None:
    """int64[hi - lo, C]: the smallest accumulator in [low, high] with a result of at least lo + 1 + i, high + 1 where none has.

    None if a threshold is not found near its estimate (multipliers far below 2^30).
    """
    return _thresholds(attrs, low.astype(np.int64).tobytes(), high.astype(np.int64).tobytes())


@lru_cache(maxsize=16)
def _thresholds(attrs: RequantizeAttrs, low_bytes: bytes, high_bytes: bytes) -> Array | None:
    """Cached, because every kernel that competes for a layer asks for it."""
    low, high = np.frombuffer(low_bytes, np.int64), np.frombuffer(high_bytes, np.int64)
    multiplier = np.broadcast_to(np.asarray(attrs.multiplier, np.float64), low.shape)
    scale = np.ldexp(np.maximum(multiplier, 1.0), np.asarray(attrs.shift, np.int64) - 31)
    codes = np.arange(attrs.lo + 1, attrs.hi + 1).reshape(-1, 1)
    estimate = np.clip(np.ceil((codes - 0.5 - attrs.zero_point) / scale), low - SEARCH, high + SEARCH + 1).astype(np.int64)
    out = TensorType(estimate.shape, "int8")

    def short(d: int) -> Array:
        """Where the result d accumulators above the estimate is below its code."""
        acc = estimate + d
        results = evaluate_requantize(np.clip(acc, low, high).astype(np.int32), attrs=attrs, out_type=out)
        below: Array = (acc < low) | (acc <= high) & (results < codes)
        return below

    below = short(USUAL).astype(np.int64)
    if below.all():  # so is all before
        below += USUAL + SEARCH
    else:
        acc, lowest = estimate - SEARCH, short(-SEARCH)
        if not (lowest | (acc <= low) | (acc > high)).all():
            return None
        below += lowest
    for d in range(USUAL + 1, SEARCH + 1):
        more = short(d)
        if not more.any():  # nor is any after it
            break
        below += more
    else:
        return None
    found: Array = np.clip(estimate - SEARCH + below, low, high + 1)
    found.setflags(write=False)
    return found
