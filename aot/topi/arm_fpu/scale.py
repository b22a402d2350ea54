"""Depthwise convolutions of float32 with windows of one tap: a product and a bias for each channel.

No scratch, and results may lie over the data.  Weights take four bytes each in flash, [channels / 8][weights, biases]; they stay
in FPU registers for all pixels.
"""

from __future__ import annotations

import numpy as np

from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_fpu.depthwise import OPERATOR
from aot.topi.arm_fpu.depthwise import plan as plan_depthwise
from aot.topi.arm_fpu.finish import Clamp
from aot.topi.arm_fpu.intrin import CHANNELS
from aot.topi.arm_fpu.intrin_scale import ScaleForm, price, scale
from aot.topi.arm_fpu.layer import Axis, FloatIo, FloatLayer
from aot.topi.intrin.asm_text import count_instructions
from aot.topi.layer.fused import describe
from aot.topi.strategy import Group, Lowered, register_planned

UNROLL = 4
AROUND = np.array([14, 22])
"""Instructions and cycles around a block of channels."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A layer of `pixels`."""

    layer: FloatLayer
    pixels: int

    def blocks(self, count: int) -> list[tuple[ScaleForm, int, int]]:
        """Of `count` channels: forms, the first pixel of each, its turns."""
        apart, clamp = count < self.layer.depth, Clamp(self.layer.lo, self.layer.hi)
        form, single = (ScaleForm(count, apart, n, clamp) for n in (UNROLL, 1))
        trips, rest = divmod(self.pixels, form.pixels)
        return [(form, 0, trips)] * (trips > 0) + [(single, trips * form.pixels, rest)] * (rest > 0)

    @property
    def counts(self) -> list[int]:
        """Channels of each block."""
        whole, rest = divmod(self.layer.depth, CHANNELS)
        return [CHANNELS] * whole + [rest] * (rest > 0)

    @property
    def price(self) -> tuple[int, int]:
        """Instructions and cycles."""
        total = np.array([20, 30])
        for count in self.counts:
            total += sum(np.array(price(form, trips)) + AROUND for form, _, trips in self.blocks(count))
        found, cycles = map(int, total)
        return found, cycles


def plan(group: Group, target: Target) -> Plan | None:
    """One tap inside the image for each result, without a tail."""
    layer = plan_depthwise(group, target)
    if layer is None or layer.tail or layer.rows != Axis(1, 1):
        return None
    pixels = layer.columns.out
    return Plan(layer, pixels) if layer.columns == Axis(pixels, pixels) and layer.batch == 1 else None


def lower(group: Group, _target: Target, name: str, found: Plan) -> Lowered:
    layer, b = found.layer, IRBuilder(name)
    io = FloatIo(b, group, layer, run=CHANNELS)
    depth = layer.depth
    numbers = (layer.weight.reshape(-1), layer.bias)
    starts = range(0, depth, CHANNELS)
    params = io.stream(np.concatenate([a[n : n + CHANNELS] for n in starts for a in numbers]))
    code = 0
    for count in dict.fromkeys(found.counts):
        first = imm(0) if count == CHANNELS else imm(depth - count)
        with b.for_("c", found.counts.count(count)) as c:
            channel = b.let("channel", c * CHANNELS + first)
            for form, pixel, trips in found.blocks(count):
                at = channel + pixel * depth
                step = [imm(depth)] * form.apart
                b.block(scale(form), region(io.data, at), region(params, channel * 2), region(io.out, at), imm(trips), *step)
                code += 60 + 4 * count_instructions(form.text())
    func = b.finish(FuncAttrs(kernel=describe("arm_fpu.scale", channels=min(CHANNELS, depth)), span=layer.span, macs=layer.macs))
    instructions, cycles = found.price
    return Lowered(func, io.constants, instructions, 40 + code, cycles)


register_planned("arm_fpu.scale", OPERATOR, plan, lower, plevel=31)
