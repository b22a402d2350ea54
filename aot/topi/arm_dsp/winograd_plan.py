"""What a Winograd kernel needs to know of a layer: that it is exact, its requantisation and its packed constants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aot.ir.op import Array
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.expr import Expr, imm
from aot.topi.arm_dsp.intrin_winograd import CHANNELS, Winograd
from aot.topi.fused import FusedLayer
from aot.topi.requant import MAX_CONSTANT_BITS, Field, HighMultiply, plan_high_multiply
from aot.topi.threshold import thresholds

INT16_MAX = (1 << 15) - 1
MIN_INPUTS, MAX_INPUTS = 8, 1016
"""Input channels: below, the transforms cost more than they save; above, the inner loop's offset does not fit its instruction."""

INT32_MAX = (1 << 31) - 1
MAX_EXTRA = 3
"""Bits by which weights are scaled up at most, for an accumulator of finer steps."""


@dataclass(frozen=True, slots=True)
class WinogradPlan:
    """Weights in the transform domain and numbers of the requantisation.

    `weights` is U, int16 values [O][positions][I], channels padded to multiples of 4, position x * n + y.  `bias` belongs to position
    (1, 1).  The output transform gives acc * gain / f, f = row_factor[y] * row_factor[x], modulo 2^32.  Where `factor` is 1 that is
    the value itself and the requantisation takes it with its multiplier times f, else times factor * f it is acc * 64.
    """

    form: Winograd
    requant: HighMultiply
    weights: Array
    bias: Array
    factor: int


def is_winograd_shape(layer: FusedLayer) -> bool:
    """3 x 3, stride 1, dilation 1, enough input channels."""
    if layer.weight.ndim != 4 or layer.weight.shape[1:3] != (3, 3) or not MIN_INPUTS <= layer.weight.shape[3] <= MAX_INPUTS:
        return False
    return bool(layer.attrs.strides == (1, 1) and layer.attrs.dilation == (1, 1))


def plan_winograd(layer: FusedLayer, form: Winograd, target: Target) -> WinogradPlan | None:
    """The cheapest plan that is provably exact for all data, or None.

    Needs |U| and |V| in int16 and the scaled accumulator in int32: acc * 4 for m = 2, more if U has room for it; acc * 576 for m = 4,
    or if that does not fit or has no exact requantisation, acc * 64 with one multiplication more an output.
    """
    if 128 * form.input_gain > INT16_MAX:
        return None
    g = np.asarray(form.g, np.int64)
    domain = np.einsum("xi,yj,ojik->oxyk", g, g, layer.weight.astype(np.int64))
    largest = int(np.abs(domain).max())
    if largest > INT16_MAX:
        return None
    found = _requantise(layer, form, target, room=INT16_MAX // max(largest, 1))
    if found is None:
        return None
    requant, extra, factor = found
    outputs, inputs = domain.shape[0], domain.shape[3]
    weights = np.pad(domain.reshape(outputs, form.positions, inputs) << extra, ((0, -outputs % CHANNELS), (0, 0), (0, -inputs % 4)))
    bias = layer.bias * (form.denominator**2 // form.bias_gain**2) << extra
    return WinogradPlan(form, requant, weights, bias, factor)


def _requantise(layer: FusedLayer, form: Winograd, target: Target, *, room: int) -> tuple[HighMultiply, int, int] | None:
    """(requantisation, bits by which the weights are scaled up, factor) of the cheapest exact way; `room` is left in the weights."""
    gain, factors = form.denominator**2, max(form.row_factor) ** 2
    for extra in range(min(MAX_EXTRA, room.bit_length() - 1), -1, -1):
        requant = plan_gain(layer, gain << extra, target=target, limit=INT32_MAX // factors)
        if requant is not None:
            return requant, extra, 1
    odd = gain // (gain & -gain)
    plain = gain // odd
    factor = pow(odd, -1, 1 << 32)
    requant = plan_gain(layer, plain, target=target, limit=INT32_MAX) or plan_high_multiply(
        layer.requant, layer.acc_low, layer.acc_high, target=target, prescale=plain.bit_length() - 1
    )
    return None if requant is None else (requant, 0, factor)


def plan_gain(layer: FusedLayer, gain: int, *, target: Target, limit: int) -> HighMultiply | None:
    """(hi(acc * gain * M) + C) >> S with one S for all channels and M <= limit, by the proof of `aot.topi.threshold`; None if not exact."""
    attrs, low, high = layer.requant, layer.acc_low.astype(np.int64), layer.acc_high.astype(np.int64)
    if (int(np.maximum(np.abs(low), np.abs(high) + 1).max()) * gain) > INT32_MAX:
        return None
    at = thresholds(attrs, low, high)
    if at is None:
        return None
    fixed = ((at <= low) | (at > high)).all(axis=0)  # channels with one result, for which any multiplier will do
    real = np.ldexp(np.asarray(attrs.multiplier, np.float64), np.asarray(attrs.shift, np.int64) - 31 + 32) / gain
    real = np.where(fixed, 0.0, np.broadcast_to(real, low.shape))
    shift = MAX_CONSTANT_BITS if fixed.all() else min(int(np.floor(np.log2(limit / real.max()))), MAX_CONSTANT_BITS)
    if shift < 0:
        return None
    multiplier = np.minimum(np.rint(np.ldexp(real, shift)), limit).astype(np.int64)
    codes = np.arange(attrs.lo + 1, attrs.hi + 1).reshape(-1, 1) << shift
    far = np.int64(1) << 40
    least = np.where(at <= high, codes - (at * gain * multiplier >> 32), -far).max(axis=0, initial=-far)
    most = np.where(at > low, codes - 1 - ((at - 1) * gain * multiplier >> 32), far).min(axis=0, initial=far)
    if (least > most).any():
        return None
    constant = np.where(least == -far, most, np.where(most == far, least, (least + most) >> 1))
    if least.max() <= most.min():
        constant = np.full_like(constant, constant[least.argmax()] if least.max() == -far else least.max())
    span = np.maximum(np.abs(low), np.abs(high)) * gain * multiplier >> 32
    if (np.abs(constant) + span + 1 >= 1 << 31).any():
        return None
    fields = (Field("multiplier", multiplier), Field("constant", constant), Field("shift", np.full_like(low, shift)))
    return HighMultiply(fields, np.ones_like(low), False, False, attrs.lo, attrs.hi, attrs.dtype, target.has("dsp"))


class WinogradStream:
    """Packs a plan, int32: for each block of 4 channels U [positions][pairs of inputs][4], then rows of numbers [4 channels].

    A word of U holds the weights of inputs k and k + 2 (k even or odd within 4), as SXTB16 finds them in a word of data.
    """

    def __init__(self, plan: WinogradPlan) -> None:
        self.plan = plan
        self.pairs = plan.weights.shape[2] // 2
        self.blocks = plan.weights.shape[0] // CHANNELS
        self._rows = [plan.bias, *(f.values for f in plan.requant.fields if not f.uniform)]

    @property
    def block_words(self) -> int:
        return CHANNELS * (self.plan.form.positions * self.pairs + len(self._rows))

    @property
    def numbers(self) -> int:
        """Words read for each channel."""
        return len(self._rows)

    def data(self) -> Array:
        u = self.plan.weights.reshape(self.blocks, CHANNELS, self.plan.form.positions, -1, 2, 2)  # ... [quad][half][even or odd]
        words = (u[..., 0, :] & 0xFFFF) | (u[..., 1, :] << 16)
        words = words.reshape(self.blocks, CHANNELS, self.plan.form.positions, self.pairs).transpose(0, 2, 3, 1)
        padded = [np.pad(r, (0, self.blocks * CHANNELS - len(r))).reshape(self.blocks, CHANNELS) for r in self._rows]
        out = np.concatenate([words.reshape(self.blocks, -1), *padded], axis=1)
        return (out & 0xFFFFFFFF).astype(np.uint32).view(np.int32).reshape(-1)

    def _number(self, params: Buffer, start: Expr, row: int) -> Expr:
        return params[start + CHANNELS * (self.plan.form.positions * self.pairs + row)]

    def bias(self, params: Buffer, start: Expr) -> Expr:
        """Of the channel whose numbers begin at word `start` (block * block_words + channel in the block)."""
        return self._number(params, start, 0)

    def fields(self, params: Buffer, start: Expr) -> tuple[Expr, ...]:
        rows = iter(range(1, len(self._rows)))
        return tuple(
            imm(int(f.values[0])) if f.uniform else self._number(params, start, next(rows)) for f in self.plan.requant.fields
        )
