"""Depthwise convolution by windows of one row or one column without padding, on cores with Thumb-2 but without DSP (Cortex-M3).

One channel of one line at a time, straight from the data, see intrin_line.py: no plane of pixels is packed, no scratch memory.
Weights take four bytes each, scaled so that all channels may have one shift.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.depthwise.intrin_line import MAX_OUTPUTS, Line, mla_line
from aot.topi.arm_dsp.depthwise.planes import Axis, axes, counted
from aot.topi.layer.fused import FusedLayer, describe, match_layer, tail_accepts, tail_each
from aot.topi.layer.io import LayerIo, open_flat
from aot.topi.layer.requant import HighMultiply, plan_high_multiply
from aot.topi.layer.threshold import plan_uniform
from aot.topi.strategy import Group, Lowered, register_planned

MAX_TAPS = 32
LEAST_SCALE, MOST_SCALE = 4, 14
"""Bits by which sums are scaled for a common shift, most first."""
PLAIN_SCALE = 2
"""Bits by which they are scaled otherwise: no rounding of the product is needed from there on."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """`along` is the axis of the window, `across` the other; `outputs` of a block."""

    layer: FusedLayer
    requant: HighMultiply
    along: Axis
    across: Axis
    outputs: int

    def line(self, outputs: int) -> Line:
        return Line(self.along.taps, outputs, self.along.data_step)

    @property
    def rest(self) -> int:
        return self.along.out % self.outputs

    def block_cost(self, outputs: int) -> int:
        requant = self.requant
        each = 4 + 2 * requant.signed + (not requant.fields[2].uniform) + 2 * (requant.lo > -128 or requant.hi < 127)
        around = 17 if outputs > 1 else 4
        return self.line(outputs).instructions + outputs * (each + tail_each(self.layer)) + around

    @property
    def cost(self) -> int:
        """Instructions of one call (from counts under QEMU)."""
        line = self.along.out // self.outputs * self.block_cost(self.outputs) + 10
        line += self.block_cost(self.rest) if self.rest else 0
        return self.layer.out_type.shape[0] * self.layer.channels * (self.across.out * line + 14)


def _requantise(layer: FusedLayer, target: Target) -> HighMultiply | None:
    low, high = layer.acc_low, layer.acc_high
    most = min(30 - int(np.maximum(np.abs(low), np.abs(high) + 1).max()).bit_length(), MOST_SCALE)
    for scale in range(most, LEAST_SCALE - 1, -1):
        shared = plan_uniform(layer.requant, low, high, target=target, prescale=scale)
        if shared is not None:
            return shared
    return plan_high_multiply(layer.requant, low, high, target=target, prescale=PLAIN_SCALE)


def _plan(group: Group, target: Target) -> _Plan | None:
    """Cores with DSP instructions have kernels that take fewer."""
    layer = match_layer(group)
    if layer is None or target.has("dsp") or not target.has("thumb2") or not tail_accepts(layer):
        return None
    if layer.data_type.dtype != "int8" or 0 in layer.out_type.shape or any(layer.attrs.padding):
        return None
    requant = _requantise(layer, target)
    y, x = axes(layer)
    along, across = (y, x) if x.taps == 1 else (x, y)
    if requant is None or across.taps > 1 or along.taps > MAX_TAPS or along.stride > 1 or (along.taps > 1 and along.dilation > 1):
        return None
    plans = [_Plan(layer, requant, along, across, n) for n in range(1, min(along.out, MAX_OUTPUTS) + 1)]
    return min(plans, key=lambda p: p.cost)


def stream(plan: _Plan) -> Array:
    """int32 [channels, words]: weights and bias, scaled, then what of the requantisation differs by channel."""
    scale = 1 << int(plan.requant.prescale[0])
    taps = plan.layer.weight.reshape(plan.along.taps, -1)
    fields = [f.values for f in plan.requant.fields if not f.uniform]
    return np.stack([*(scale * taps), scale * plan.layer.bias, *fields], axis=1).astype(np.int32)


class _Kernel:
    def __init__(self, b: IRBuilder, plan: _Plan, io: LayerIo) -> None:
        self._b, self._plan, self._io = b, plan, io
        self.data = stream(plan)
        self._params: Buffer = io.constant("params", self.data.reshape(-1), "int32")

    def channel(self, data: Expr, out: Expr, channel: Expr) -> None:
        """All lines of one channel; `data` and `out` are the first elements of its image."""
        b, plan = self._b, self._plan
        words = b.let("words", channel * self.data.shape[1])
        at = iter(range(plan.along.taps, self.data.shape[1]))
        bias = b.let("bias", self._params[words + next(at)])
        fields = tuple(
            imm(int(f.values[0])) if f.uniform else b.let(f.name, self._params[words + next(at)]) for f in plan.requant.fields
        )
        for line in counted(b, plan.across.out, "line"):
            first = data + line * (plan.across.stride * plan.across.data_step)
            result = out + line * plan.across.out_step
            for start, outputs in self._blocks():
                sums = b.local("acc", (outputs,), "int32")
                for i in range(outputs):
                    b.store(sums, i, bias)
                source = region(self._io.data, b.let("x", first + start * plan.along.data_step))
                b.block(mla_line(plan.line(outputs)), region(self._params, words), source, sums)
                values = [plan.requant.emit_scaled(b, sums[i], fields) for i in range(outputs)]
                at_out = b.let("o", result + start * plan.along.out_step)
                self._io.store_all([(at_out + i * plan.along.out_step,) for i in range(outputs)], values)

    def _blocks(self) -> Iterator[tuple[Expr, int]]:
        """(first output, outputs) of each block; whole ones in a loop."""
        plan = self._plan
        for n in counted(self._b, plan.along.out // plan.outputs, "n"):
            yield n * plan.outputs, plan.outputs
        if plan.rest:
            yield imm(plan.along.out - plan.rest), plan.rest


def _lower(group: Group, _target: Target, name: str, plan: _Plan) -> Lowered:
    layer = plan.layer
    b = IRBuilder(name)
    io = open_flat(b, group, layer)
    kernel = _Kernel(b, plan, io)
    depth, multiplier = layer.data_type.shape[-1], layer.attrs.multiplier
    for image in counted(b, layer.data_type.shape[0], "n"):
        with b.for_("c", depth) as c:
            for m in counted(b, multiplier, "m"):
                channel = c * multiplier + m
                data = b.let("data", image * prod(layer.data_type.shape[1:]) + c)
                kernel.channel(data, b.let("out", image * prod(layer.out_type.shape[1:]) + channel), channel)
    text = describe("arm_dsp.depthwise_line", outputs=plan.outputs)
    func = b.finish(FuncAttrs(kernel=text, span=layer.span, macs=layer.macs))
    blocks = [plan.line(plan.outputs), *([plan.line(plan.rest)] if plan.rest else [])]
    code = 120 + sum(4 * line.instructions + 24 * line.outputs * (1 + len(layer.tail)) for line in blocks)
    return Lowered(func, io.constants, instructions=plan.cost, code=code)


register_planned("arm_dsp.depthwise_line", "nn.depthwise_conv2d", _plan, _lower, plevel=32)
