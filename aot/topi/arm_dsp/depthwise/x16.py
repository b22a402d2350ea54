"""Depthwise convolution of 16-bit data and 8-bit weights whose sums provably fit 32 bits, by the planes of `planes.py`.

Weights take two bytes each in flash.
"""

from __future__ import annotations

import numpy as np

from aot.ir.op import Array
from aot.support.dtype import int_range
from aot.target.target import Target
from aot.topi.arm_dsp.depthwise.plan import RequantForm
from aot.topi.arm_dsp.depthwise.planes import MAX_TAPS, Numbers, StripPlan, lower_strips, plan_strips, without_vanishing
from aot.topi.layer.fused import FusedLayer, match_layer
from aot.topi.layer.requant import HighMultiply, plan_high_multiply
from aot.topi.strategy import Group, register_planned

KINDS = frozenset({("int16", "int8")})
LOWEST = (int_range("int16")[0], 0)
"""Lower bounds of results that a saturation keeps to."""


def _plan(group: Group, target: Target) -> tuple[FusedLayer, Numbers, StripPlan] | None:
    """Layers without a tail and without zero points, results from the least number or from 0 on."""
    layer = match_layer(group, KINDS) if target.has("dsp") else None
    if layer is None or layer.tail or layer.attrs.weight_zp or 0 in layer.out_type.shape or layer.out_type.dtype != "int16":
        return None
    if layer.weight.shape[0] * layer.weight.shape[1] > MAX_TAPS or layer.requant.lo not in LOWEST or layer.requant.hi < 0:
        return None
    numbers = _numbers(layer, target)
    tiling = plan_strips(layer, numbers, target, packed=False) if numbers is not None else None
    return None if numbers is None or tiling is None else (layer, numbers, tiling)


def _numbers(layer: FusedLayer, target: Target) -> Numbers | None:
    """One shift for all channels where sums times a power of two of each channel still fit, else a shift of each."""
    attrs, used = without_vanishing(layer)
    weight, bias = layer.weight * used, layer.bias * used
    magnitude = np.abs(weight).sum(axis=(0, 1)) * 32768 + np.abs(bias)
    largest = np.abs(weight).max(axis=(0, 1))
    right = -np.asarray(attrs.shift, np.int64)
    least = 0 if attrs.rounding == "single" else 1
    common: list[Array] = [shift + 1 - right for shift in range(int(right.max()) + 2, int(right.max()) + least - 2, -1)]
    for prescale in (*common, np.ones_like(right), np.zeros_like(right)):
        p = np.clip(prescale, 0, 16)
        if (p != prescale).any() or (magnitude << p >= 1 << 31).any() or (largest << p > int_range("int16")[1]).any():
            continue
        requant = plan_high_multiply(attrs, -magnitude, magnitude, target=target, prescale=p)
        if requant is not None:
            return Numbers(weight << p, bias << p, requant, _rounding(requant))
    return None


def _rounding(requant: HighMultiply) -> RequantForm:
    shift = requant.fields[2]
    common = int(shift.values[0]) if shift.uniform else -1
    scale = int(requant.prescale[0]) if requant.signed else 1
    return RequantForm(common, requant.rounded, requant.signed, requant.lo, requant.hi, scale, halves=True)


register_planned("arm_dsp.depthwise_16x8", "nn.depthwise_conv2d", _plan, lower_strips, plevel=30)
