"""What a Winograd kernel needs to know of a layer: that it is exact, its requantisation and its packed constants."""

from __future__ import annotations

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.tir.buffer import Buffer
from aot.tir.expr import Expr, imm
from aot.topi.arm_dsp.winograd.intrin import CHANNELS, PAIRS, Product, Winograd
from aot.topi.arm_dsp.winograd.requant import INT32_MAX, ScaledRequant, plan_gain, plan_scaled
from aot.topi.layer.fused import FusedLayer

INT16_MAX = (1 << 15) - 1
MIN_INPUTS, MAX_WORDS = 8, 508
"""Input channels: below, the transforms cost more than they save; words of a channel: above, the offset of the inner loop's end
does not fit its instruction.
"""
BYTE_OFFSET = 128
"""Without DSP instructions data are taken apart as unsigned bytes, that much larger than they are."""


@dataclass(frozen=True, slots=True)
class WinogradPlan:
    """Weights in the transform domain and numbers of the requantisation.

    `weights` is U, int16 values [O][positions][I], channels padded to multiples of 4, position x * n + y.  `bias` belongs to
    position (1, 1).  The output transform gives acc * gain / f, f = row_factor[y] * row_factor[x], modulo 2^32.  Where `factor`
    is 1 the requantisation takes that with its multiplier times f, else times factor * f it is acc * 64.
    """

    form: Winograd
    product: Product
    requant: ScaledRequant
    weights: Array
    bias: Array
    factor: int


def is_winograd_shape(layer: FusedLayer, product: Product) -> bool:
    """3 x 3, stride 1, dilation 1, enough input channels."""
    if layer.weight.ndim != 4 or layer.weight.shape[1:3] != (3, 3):
        return False
    if not MIN_INPUTS <= layer.weight.shape[3] <= MAX_WORDS * product.inputs:
        return False
    return bool(layer.attrs.strides == (1, 1) and layer.attrs.dilation == (1, 1))


def plan_winograd(layer: FusedLayer, form: Winograd, product: Product = PAIRS) -> WinogradPlan | None:
    """The cheapest plan that is provably exact for all data, or None.

    Needs |U| and |V| in int16 and the scaled accumulator in int32: acc * 4 for m = 2; acc * 576 for m = 4, or if that does not
    fit or has no exact requantisation, acc * 64 with one multiplication more an output.
    """
    if (128 * form.input_gain if product.pair else 255 * form.offset_gain) > INT16_MAX:
        return None
    g = np.asarray(form.g, np.int64)
    domain = np.einsum("xi,yj,ojik->oxyk", g, g, layer.weight.astype(np.int64))
    largest = int(np.abs(domain).max())
    if largest > INT16_MAX:
        return None
    room = (INT16_MAX if product.pair else INT32_MAX) // np.abs(domain).reshape(domain.shape[0], -1).max(axis=1, initial=1)
    found = _requantise(layer, form, room=room)
    if found is None:
        return None
    requant, extra, factor = found
    outputs, inputs = domain.shape[0], domain.shape[3]
    weights = domain.reshape(outputs, form.positions, inputs) << extra[:, None, None]
    weights = np.pad(weights, ((0, -outputs % CHANNELS), (0, 0), (0, -inputs % 4)))
    bias = (
        layer.bias if product.pair else layer.bias - BYTE_OFFSET * layer.weight.reshape(outputs, -1).sum(axis=1, dtype=np.int64)
    )
    scaled = bias * (form.denominator**2 // form.bias_gain**2) << extra
    return WinogradPlan(form, product, requant, weights, scaled, factor)


def _requantise(layer: FusedLayer, form: Winograd, *, room: Array) -> tuple[ScaledRequant, Array, int] | None:
    """(requantisation, bits by which the weights of each channel are scaled up, factor) of the cheapest exact way, or None.

    The weights of a channel have `room` for a factor of 2^bits.  These make the last shift the same for all channels.
    """
    gain = form.denominator**2
    odd = gain // (gain & -gain)
    none = np.zeros_like(layer.bias)
    if odd != 1:
        requant = plan_gain(layer, gain, limit=INT32_MAX // max(form.row_factor) ** 2)
        if requant is not None:
            return requant, none, 1
    least = (gain // odd).bit_length() - 1
    right = -np.broadcast_to(np.asarray(layer.requant.shift, np.int64), layer.bias.shape)
    extra = np.minimum(right.max() - right, 15)
    for bits in (extra, none):
        requant = plan_scaled(layer, least + bits) if ((1 << bits) <= room).all() else None
        if requant is not None:
            return requant, bits, pow(odd, -1, 1 << 32)
    return None


class WinogradStream:
    """Packs a plan, int32: for each block of 4 channels U [positions][words][4], then rows of numbers [4 channels].

    A word of U holds the weight of an input; with pairs, those of inputs k and k + 2 (k even or odd within 4), as SXTB16 finds
    them in a word of data.
    """

    def __init__(self, plan: WinogradPlan) -> None:
        self.plan = plan
        self.words = plan.weights.shape[2] // plan.product.inputs
        self.blocks = plan.weights.shape[0] // CHANNELS
        self._rows = [plan.bias, *(f.values for f in plan.requant.fields if not f.uniform)]

    @property
    def block_words(self) -> int:
        return int(CHANNELS * (self.plan.form.positions * self.words + len(self._rows)))

    @property
    def numbers(self) -> int:
        """Words read for each channel."""
        return len(self._rows)

    def data(self) -> Array:
        words = self.plan.weights
        if self.plan.product.pair:
            u = words.reshape(self.blocks, CHANNELS, self.plan.form.positions, -1, 2, 2)  # ... [quad][half][even or odd]
            words = (u[..., 0, :] & 0xFFFF) | (u[..., 1, :] << 16)
        words = words.reshape(self.blocks, CHANNELS, self.plan.form.positions, self.words).transpose(0, 2, 3, 1)
        padded = [np.pad(r, (0, self.blocks * CHANNELS - len(r))).reshape(self.blocks, CHANNELS) for r in self._rows]
        out = np.concatenate([words.reshape(self.blocks, -1), *padded], axis=1)
        return (out & 0xFFFFFFFF).astype(np.uint32).view(np.int32).reshape(-1)

    def _number(self, params: Buffer, start: Expr, row: int) -> Expr:
        return params[start + CHANNELS * (self.plan.form.positions * self.words + row)]

    def bias(self, params: Buffer, start: Expr) -> Expr:
        """Of the channel whose numbers begin at word `start` (block * block_words + channel in the block)."""
        return self._number(params, start, 0)

    def fields(self, params: Buffer, start: Expr) -> tuple[Expr, ...]:
        rows = iter(range(1, len(self._rows)))
        return tuple(
            imm(int(f.values[0])) if f.uniform else self._number(params, start, next(rows)) for f in self.plan.requant.fields
        )
