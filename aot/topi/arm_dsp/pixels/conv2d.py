"""Pointwise convolution of few input channels: two pixels stay in registers, weights and numbers of all channels pass by.

No scratch.  Weights take two bytes each in flash (four taps a word pair), pre-scaled so that all channels have one shift.
"""

from __future__ import annotations

from math import prod

import numpy as np

from aot.ir.op import Array
from aot.support.dtype import int_range
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import minimum
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.pixels.intrin import DEPTHS, channel_unroll, pixels_2, records
from aot.topi.arm_dsp.w8.window import is_rows
from aot.topi.layer.fused import FusedLayer, describe, match_layer
from aot.topi.layer.io import open_io
from aot.topi.layer.requant import HighMultiply, plan_high_multiply
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

PIXELS = 2
MAX_CHANNELS = 1024
"""STRB's offset to the second pixel has 12 bits."""


def accepts(group: Group, target: Target) -> bool:
    """Rows of 5 to 8 bytes, at least two of them, no tail, results of the whole int8 range, the short requantisation unsigned."""
    layer = match_layer(group, wide=True)
    if layer is None or not target.has("dsp") or layer.tail or not is_rows(layer):
        return False
    if prod(layer.out_type.shape[:-1]) < PIXELS or layer.weight[0].size not in DEPTHS or layer.channels > MAX_CHANNELS:
        return False
    return _plan(layer, target) is not None


def _plan(layer: FusedLayer, target: Target) -> HighMultiply | None:
    """Accumulators of channel c come times 2^p[c] with p[c] >= 2, so that the shift is the same for all; weights stay int16."""
    right = -np.broadcast_to(np.asarray(layer.requant.shift, np.int64), (layer.channels,))
    prescale = int(right.max()) + 2 - right
    if (layer.requant.lo, layer.requant.hi) != int_range("int8") or int(prescale.max()) > 24:
        return None
    if int(np.abs(layer.weight.reshape(layer.channels, -1) << prescale.reshape(-1, 1)).max()) > int_range("int16")[1]:
        return None
    requant = plan_high_multiply(layer.requant, layer.acc_low, layer.acc_high, target=target, prescale=prescale)
    return None if requant is None or requant.signed or not requant.fields[-1].uniform else requant


def lower(group: Group, target: Target, name: str) -> Lowered:
    layer = match_layer(group, wide=True)
    assert layer is not None
    requant = _plan(layer, target)
    assert requant is not None
    rows, depth, channels = prod(layer.out_type.shape[:-1]), int(layer.weight[0].size), layer.channels
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(rows * depth,), out_shape=(rows * channels,))
    params = io.constant("params", _stream(layer, requant), "int32")
    block = pixels_2(depth, channels, int(requant.fields[-1].values[0]))
    with b.for_("t", -(-rows // PIXELS)) as t:
        # The last pair starts early enough to be whole; of an odd number of pixels one is computed twice.
        first = b.let("pixel", minimum(t * PIXELS, rows - PIXELS)) if rows % PIXELS else t * PIXELS
        b.block(block, region(io.data, first * depth), params, region(io.out, first * channels))
    func = b.finish(FuncAttrs(kernel=describe("arm_dsp.conv2d_smlad", pixels=PIXELS), span=layer.span, macs=layer.macs))
    unroll = channel_unroll(channels)
    each = 18 * channels + (3 * channels // unroll if unroll != channels else 0) + 26
    return Lowered(func, io.constants, instructions=-(-rows // PIXELS) * each, code=100 + 72 * unroll)


def _stream(layer: FusedLayer, requant: HighMultiply) -> Array:
    scale = requant.prescale
    weights = layer.weight.reshape(layer.channels, -1) << scale.reshape(-1, 1)
    multiplier, constant, _ = (f.values for f in requant.fields)
    return records(weights, layer.bias << scale, multiplier, constant)


register_impl(OpImplementation("arm_dsp.conv2d_smlad", "nn.conv2d", accepts, lower, plevel=25))
