"""Depthwise convolution by sums over neighbouring bytes, eight channels and a band of lines at a time.

The data of the band are taken apart by channels first, so that the taps of an output lie side by side (plan.py): two instructions
for eight bytes.  Then a load and a VMLADAV give up to four outputs.  Scratch: the taps of the band's lines of eight channels.

A convolution of data of one channel is a depthwise one with many outputs for that channel.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.op.nn.depthwise_conv2d import DepthwiseConv2DAttrs
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm, logical_and, minimum
from aot.tir.function import FuncAttrs
from aot.topi.arm_mve.depthwise.intrin import (
    Part,
    apart_instructions,
    code_bytes,
    convolve,
    convolve_instructions,
    take_apart,
)
from aot.topi.arm_mve.depthwise.plan import LANES, Axis, Lines, axes_of
from aot.topi.arm_mve.intrin_copy import fill, fill_instructions
from aot.topi.arm_mve.requant import VectorRequant, plan_vectors
from aot.topi.arm_mve.stream import VECTOR
from aot.topi.arm_mve.tail import Results
from aot.topi.layer.fused import FusedLayer, describe, match_layer, tail_accepts
from aot.topi.layer.io import LayerIo, open_flat
from aot.topi.strategy import Group, Lowered, register_planned

SCRATCH = 6144
"""Bytes that the taps of a band may take, where they are of more than one line."""


@dataclass(frozen=True, slots=True)
class _Plan:
    layer: FusedLayer
    requant: VectorRequant
    lines: Lines
    target: Target

    @property
    def groups(self) -> list[int]:
        """Channels of the data of each group."""
        whole, rest = divmod(self.layer.data_type.shape[3], LANES)
        return [LANES] * whole + [rest] * bool(rest)

    def part(self, taps: int, lanes: int) -> Part:
        across, along = self.lines.across, self.lines.along
        return Part(taps, across.dilation * across.step, along.copied, along.step, lanes, across.taps, self.lines.pitch)

    @property
    def crosses(self) -> bool:
        """Whether some taps across lie outside of the image."""
        return any(self.inside(line) < self.lines.across.taps for line in range(self.lines.across.out))

    def inside(self, line: int) -> int:
        """Taps of a line of outputs that lie inside the image."""
        across = self.lines.across
        first = line * across.stride - across.before
        return sum(0 <= first + r * across.dilation < across.size for r in range(across.taps))

    def cost(self) -> int:
        """Instructions of one call (from counts under QEMU)."""
        lines, layer = self.lines, self.layer
        total = 40.0
        bands = -(-lines.across.out // lines.band)
        computed = [min(i * lines.band, lines.across.out - lines.band) + y for i in range(bands) for y in range(lines.band)]
        for lanes in self.groups:
            total += 12 + bands * (lines.multiplier * (convolve_instructions(lines, lanes) + 6) + 10)
            for line in computed:
                inside = self.inside(line)
                if inside == lines.across.taps:
                    total += apart_instructions(self.part(lines.across.taps, lanes)) + 12
                else:
                    each = apart_instructions(self.part(1, lanes)) + 16
                    total += 12 + lines.across.taps * each
        whole = fill_instructions(max(self.groups) * lines.pitch) if any(layer.attrs.padding) else 0
        return int(layer.data_type.shape[0] * total) + whole


def _as_depthwise(layer: FusedLayer | None) -> FusedLayer | None:
    """The layer, or the depthwise one that a convolution of one channel is."""
    if layer is None or layer.weight.ndim == 3:
        return layer
    if layer.weight.ndim != 4 or layer.data_type.shape[3] != 1:
        return None
    a = layer.attrs
    attrs = DepthwiseConv2DAttrs(a.strides, a.padding, a.dilation, a.input_zp, a.pad_value, layer.channels)
    return replace(layer, weight=layer.weight[..., 0].transpose(1, 2, 0), attrs=attrs)


def _plan(group: Group, target: Target) -> _Plan | None:
    layer = _as_depthwise(match_layer(group))
    if layer is None or not target.has("mve") or not tail_accepts(layer) or layer.out_type.dtype != "int8":
        return None
    requant = plan_vectors(layer.requant, layer.acc_low, layer.acc_high)
    if requant is None:
        return None
    y, x = axes_of(layer)
    plans = []
    for across, along, swapped in ((y, x, False), (x, y, True)):
        if along.copied == 0 or along.dilation != 1:
            continue
        line = Lines(across, along, swapped, 1, requant.form, layer.attrs.multiplier)
        lanes = min(LANES, layer.data_type.shape[3])
        band = max(1, min(across.out, SCRATCH // (lanes * line.line)))
        band = -(-across.out // -(-across.out // band))
        lines = next((n for n in (replace(line, band=band), line) if n.fits), None)
        if lines is not None:
            plans.append(_Plan(layer, requant, lines, target))
    return min(plans, key=_Plan.cost, default=None)


def _lower(group: Group, _target: Target, name: str, plan: _Plan) -> Lowered:
    layer, lines = plan.layer, plan.lines
    b = IRBuilder(name)
    io = open_flat(b, group, layer)
    params = io.constant("params", _stream(plan), "int8", align=8)
    size = min(LANES, layer.data_type.shape[3]) * lines.pitch
    taps = b.scratch("taps", (size + VECTOR * lines.vectors,), "int8", align=8)
    padded = any(layer.attrs.padding)
    if padded:
        b.block(fill(), taps, imm(layer.attrs.pad_value), imm(size))
    kernel = _Groups(b, io, plan, params=params, taps=taps)
    whole, rest = divmod(layer.data_type.shape[3], LANES)
    with b.for_("i", layer.data_type.shape[0]) as image:
        if whole:
            with b.for_("g", whole) as g:
                kernel.group(image, g, LANES)
        if rest:
            kernel.group(image, imm(whole), rest)
    results = Results(b, io, layer, target=plan.target, size=prod(layer.out_type.shape), over=True)
    results.finish(imm(0))
    results.end()
    tail = results.instructions + results.instructions_at_end
    described = describe("arm_mve.depthwise", band=lines.band, swapped=int(lines.swapped))
    func = b.finish(FuncAttrs(kernel=described, span=layer.span, macs=layer.macs))
    code = 200 + code_bytes(lines, plan.part(lines.across.taps, LANES)) * (bool(whole) + bool(rest)) + 150 * padded
    return Lowered(func, io.constants, instructions=plan.cost() + tail, code=code + results.code)


def _stream(plan: _Plan) -> Array:
    """A record for each channel, as int8: by groups, in a group first those of each data channel's first output."""
    layer, lines, requant = plan.layer, plan.lines, plan.requant
    weight = layer.weight if lines.swapped else layer.weight.transpose(1, 0, 2)  # along, across, channel
    out = np.zeros((layer.channels, lines.record), np.int8)
    lead = (lines.shared - 1) * lines.shift
    out[:, lead : lead + lines.taps] = weight.reshape(lines.taps, -1).T
    numbers = [layer.bias, requant.multiplier, requant.right]
    numbers += [requant.left] if requant.form.left else []
    numbers += [(requant.right < 0).astype(np.int64)] if requant.form.ties == 3 else []
    out[:, lines.weights :] = np.stack(numbers, axis=1).astype("<i4").view(np.int8)
    order: list[int] = []
    for group, lanes in enumerate(plan.groups):
        first = group * LANES * lines.multiplier
        order += [first + lane * lines.multiplier + m for m in range(lines.multiplier) for lane in range(lanes)]
    return out[order].reshape(-1)


class _Groups:
    """Emits the loops over a group of channels: bands, lines of a band, taps across."""

    def __init__(self, b: IRBuilder, io: LayerIo, plan: _Plan, *, params: Buffer, taps: Buffer) -> None:
        self._b, self._io, self._plan, self._params, self._taps = b, io, plan, params, taps
        self._padding = None
        if plan.crosses:
            self._padding = b.scratch("padding", (LANES,), "int8", align=8)
            b.block(fill(), self._padding, imm(plan.layer.attrs.pad_value), imm(LANES))

    def group(self, image: Expr, number: Expr, lanes: int) -> None:
        """Channels LANES * number and following."""
        b, plan, lines = self._b, self._plan, self._plan.lines
        layer, across = plan.layer, lines.across
        data = b.let("data_at", image * prod(layer.data_type.shape[1:]) + number * LANES)
        out = b.let("out_at", image * prod(layer.out_type.shape[1:]) + number * (LANES * lines.multiplier))
        with b.for_("band", -(-across.out // lines.band)) as band:
            first = band * lines.band
            if across.out % lines.band:
                first = b.let("first", minimum(first, across.out - lines.band))
            with b.for_("y", lines.band) as y:
                self._line(data, first + y, y * lines.line, lanes)
            with b.for_("m", lines.multiplier) as m:
                records = region(self._params, number * (LANES * lines.multiplier * lines.record) + m * (lanes * lines.record))
                to = region(self._io.out, out + first * across.out_step + m)
                b.block(convolve(lines, lanes), region(self._taps), records, to)

    def _line(self, data: Expr, number: Expr, at: Expr, lanes: int) -> None:
        """The taps of line `number` of outputs, to byte `at` of each channel."""
        b, plan, lines = self._b, self._plan, self._plan.lines
        across = lines.across
        top = b.let("top", number * across.stride - across.before)
        inside = _within(across, top, (across.taps - 1) * across.dilation)
        if inside is None or self._padding is None:
            self._take(data, top, at, plan.part(across.taps, lanes))
            return
        with b.if_(inside):
            self._take(data, top, at, plan.part(across.taps, lanes))
        with b.else_(), b.for_("r", across.taps) as r:
            line = b.let("line", top + r * across.dilation)
            place = b.let("place", at + r)
            with b.if_(logical_and(line >= 0, line < across.size)):
                self._take(data, line, place, plan.part(1, lanes))
            with b.else_():
                self._pad(place, lanes)

    def _take(self, data: Expr, line: Expr, at: Expr, part: Part) -> None:
        along, taps = self._plan.lines.along, self._plan.lines.across.taps
        source = region(self._io.data, data + line * self._plan.lines.across.step)
        self._b.block(take_apart(part), source, region(self._taps, at + along.before * taps))

    def _pad(self, at: Expr, lanes: int) -> None:
        """Padding in place of a line: one vector of it for all positions."""
        assert self._padding is not None
        part = replace(self._plan.part(1, lanes), step=0)
        to = at + self._plan.lines.along.before * self._plan.lines.across.taps
        self._b.block(take_apart(part), region(self._padding), region(self._taps, to))


def _within(axis: Axis, first: Expr, reach: int) -> Expr | None:
    """Whether positions `first` to `first` + `reach` are inside the image; None if they always are."""
    tests = [first >= 0] if axis.before else []
    last = (axis.out - 1) * axis.stride - axis.before + reach
    tests += [first < axis.size - reach] if last >= axis.size else []
    if not tests:
        return None
    return tests[0] if len(tests) == 1 else logical_and(*tests)


register_planned("arm_mve.depthwise", "nn.depthwise_conv2d", _plan, _lower, plevel=41)
register_planned("arm_mve.conv2d_one", "nn.conv2d", _plan, _lower, plevel=44)
