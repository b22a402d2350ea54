"""What a Winograd kernel needs to know of a layer: that it is exact, its requantisation and its packed constants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aot.ir.op import Array
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.expr import Expr, imm
from aot.topi.arm_dsp.intrin_winograd import CHANNELS, F2, Winograd
from aot.topi.fused import FusedLayer
from aot.topi.requant import HighMultiply, plan_high_multiply

INT16_MAX = (1 << 15) - 1
MIN_INPUTS, MAX_INPUTS = 8, 1016
"""Input channels: below, the transforms cost more than they save; above, the inner loop's offset does not fit its instruction."""

INVERSE_OF_9 = 0x38E38E39
"""9 * INVERSE_OF_9 = 1 modulo 2^32."""


@dataclass(frozen=True, slots=True)
class WinogradPlan:
    """Weights in the transform domain and numbers of the requantisation.

    `weights` is U, int16 values [O][positions][I], channels padded to multiples of 4, position x * n + y.  The sums of M give
    acc * 2^p * f with f known for every output of a tile; `factor` (uint32 per channel, m = 4 only) takes it away modulo 2^32.
    `bias` belongs to position (1, 1).
    """

    form: Winograd
    requant: HighMultiply
    weights: Array
    bias: Array
    factor: Array | None


def is_winograd_shape(layer: FusedLayer) -> bool:
    """3 x 3, stride 1, dilation 1, enough input channels."""
    if layer.weight.ndim != 4 or layer.weight.shape[1:3] != (3, 3) or not MIN_INPUTS <= layer.weight.shape[3] <= MAX_INPUTS:
        return False
    return bool(layer.attrs.strides == (1, 1) and layer.attrs.dilation == (1, 1))


def plan_winograd(layer: FusedLayer, form: Winograd, target: Target) -> WinogradPlan | None:
    """The plan, or None where the arithmetic is not provably exact for all data.

    Needs |U| and |V| in int16 and acc * 2^p in int32, where p is at least 2 for m = 2 (the result is 4 * acc) and 6 for m = 4
    (576 * acc modulo 2^32, divided by 9).  More scaling per channel comes for free: in U for m = 2, in the factor for m = 4.
    It is used to give all channels the same last shift.
    """
    if 128 * form.input_gain > INT16_MAX:
        return None
    g = np.asarray(form.g, np.int64)
    domain = np.einsum("xi,yj,ojik->oxyk", g, g, layer.weight.astype(np.int64))
    largest = np.abs(domain).reshape(domain.shape[0], -1).max(axis=1)
    if largest.max() > INT16_MAX:
        return None
    least = 2 if form is F2 else 6
    requant = None
    prescale = _equal_shifts(layer, largest if form is F2 else None, least=least)
    for p in (prescale, np.full(layer.channels, least)):
        if p is not None and requant is None:
            requant = plan_high_multiply(layer.requant, layer.acc_low, layer.acc_high, target=target, prescale=p)
    if requant is None:
        return None
    extra = requant.prescale - least
    outputs, inputs = domain.shape[0], domain.shape[3]
    domain = domain.reshape(outputs, form.positions, inputs) * (1 << (extra if form is F2 else 0 * extra))[:, None, None]
    domain = np.pad(domain, ((0, -outputs % CHANNELS), (0, 0), (0, -inputs % 4)))
    share = form.denominator**2 // form.bias_gain**2
    if form is F2:
        return WinogradPlan(form, requant, domain, share * layer.bias << extra, None)
    factor = (INVERSE_OF_9 << extra) & 0xFFFFFFFF
    return WinogradPlan(form, requant, domain, share * layer.bias, factor)


def _equal_shifts(layer: FusedLayer, weights: Array | None, *, least: int) -> Array | None:
    """The smallest pre-scaling of each channel, at least `least`, that makes shift + p equal; None where a bound forbids it."""
    right = -np.broadcast_to(np.asarray(layer.requant.shift, np.int64), layer.acc_low.shape)
    p = right.max() + least - right
    if p.max() > 30:
        return None
    magnitude = np.maximum(np.abs(layer.acc_low), np.abs(layer.acc_high)).astype(np.int64)
    fits = (magnitude << p) < (1 << 31)
    if weights is not None:
        fits &= (weights << (p - least)) <= INT16_MAX
    return p if fits.all() else None


class WinogradStream:
    """Packs a plan, int32: for each block of 4 channels U [positions][pairs of inputs][4], then rows of numbers [4 channels].

    A word of U holds the weights of inputs k and k + 2 (k even or odd within 4), as SXTB16 finds them in a word of data.
    """

    def __init__(self, plan: WinogradPlan) -> None:
        self.plan = plan
        self.pairs = plan.weights.shape[2] // 2
        self.blocks = plan.weights.shape[0] // CHANNELS
        rows = [plan.bias, *([] if plan.factor is None else [plan.factor])]
        self._rows = rows + [f.values for f in plan.requant.fields if not f.uniform]
        self._first_field = len(rows)

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

    def factor(self, params: Buffer, start: Expr) -> Expr:
        return self._number(params, start, 1)

    def fields(self, params: Buffer, start: Expr) -> tuple[Expr, ...]:
        rows = iter(range(self._first_field, len(self._rows)))
        return tuple(
            imm(int(f.values[0])) if f.uniform else self._number(params, start, next(rows)) for f in self.plan.requant.fields
        )
