"""Depthwise convolutions whose window is their whole image, four channels at a time, see push/intrin.py."""

from __future__ import annotations

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import imm
from aot.tir.function import FuncAttrs
from aot.tir.stmt import Region
from aot.topi.arm_dsp.push.intrin import ORDER, scaled, start_values, window_instructions, window_sums
from aot.topi.arm_dsp.w8.intrin import TAPS
from aot.topi.arm_dsp.w8.stream import best_requant, plan_w8
from aot.topi.layer.fused import FusedLayer, describe, match_layer, tail_accepts, tail_instructions
from aot.topi.layer.io import open_io
from aot.topi.layer.requant import HighMultiply
from aot.topi.strategy import Group, Lowered, register_planned

MAX_TAPS = 32


@dataclass(frozen=True, slots=True)
class _Plan:
    layer: FusedLayer
    requant: HighMultiply

    @property
    def taps(self) -> int:
        return int(self.layer.weight[..., 0].size)

    @property
    def arrays(self) -> list[Array]:
        """Numbers of each channel: the start value, and the fields of the requantisation that vary."""
        bias = start_values(self.layer.bias, self.layer.weight)
        return [bias, *(f.values for f in self.requant.fields if not f.uniform)]

    @property
    def block_words(self) -> int:
        return TAPS * len(self.arrays) + 2 * self.taps

    def stream(self) -> Array:
        """int32: of each four channels [numbers][4], then the weights, int16[taps][4] in ORDER."""
        channels = self.layer.channels
        numbers = np.stack(self.arrays).astype(np.int64).reshape(-1, channels // TAPS, TAPS).transpose(1, 0, 2)
        weights = scaled(self.layer.weight.reshape(self.taps, channels // TAPS, TAPS)[..., ORDER]).transpose(1, 0, 2)
        words = np.ascontiguousarray(weights).reshape(channels // TAPS, -1).view(np.int32)
        joined = np.concatenate([numbers.reshape(channels // TAPS, -1).astype(np.int32), words], axis=1)
        return joined.reshape(-1)


def plan(group: Group, target: Target) -> _Plan | None:
    """One result a channel, of all that there is in its plane; whole fours of channels."""
    layer = match_layer(group)
    if layer is None or not target.has("dsp") or not tail_accepts(layer) or layer.channels % TAPS:
        return None
    if layer.data_type.shape != (1, *layer.weight.shape) or any(layer.attrs.padding) or layer.weight[..., 0].size > MAX_TAPS:
        return None
    return _Plan(layer, best_requant(layer, target, common=False)) if plan_w8(layer, target) is not None else None


def lower(group: Group, _target: Target, name: str, found: _Plan) -> Lowered:
    layer, channels = found.layer, found.layer.channels
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(found.taps * channels,), out_shape=(channels,))
    params = io.constant("params", found.stream(), "int32")
    with b.for_("n", channels // TAPS) as n:
        start = n * found.block_words
        acc = b.local("acc", (TAPS,), "int32")
        for j in range(TAPS):
            b.store(acc, j, params[start + j])
        weights = Region(params, (start + TAPS * len(found.arrays)) * 2, "int16")
        b.block(window_sums(found.taps, channels), region(io.data, n * TAPS), weights, acc)
        for j in range(TAPS):
            rows = iter(range(1, len(found.arrays)))
            fields = tuple(
                imm(int(f.values[0])) if f.uniform else b.let("field", params[start + (TAPS * next(rows) + j)])
                for f in found.requant.fields
            )
            io.store((n * TAPS + j,), found.requant.emit_scaled(b, acc[j], fields))
    func = b.finish(FuncAttrs(kernel=describe("arm_dsp.depthwise_window", channels=TAPS), span=layer.span, macs=layer.macs))
    varying = len(found.arrays) - 1
    each = 6 + varying + 2 * found.requant.signed
    block = window_instructions(found.taps, channels) + TAPS * each + 8
    code = 60 + 4 * window_instructions(found.taps, channels) + 24 * TAPS
    return Lowered(func, io.constants, instructions=channels // TAPS * block + tail_instructions(layer), code=code)


register_planned("arm_dsp.depthwise_window", "nn.depthwise_conv2d", plan, lower, plevel=6, for_pushes=True)
