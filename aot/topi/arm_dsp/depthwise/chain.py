"""Depthwise convolution by channel planes for cores with SMLAL but without DSP instructions (Cortex-M3): kernels up to 3 x 3.

A plane's word holds two pixels 2^21 apart, see intrin_chain.py.  Stride 1 or 2 along the strips, any across; the axis that
strips run along is chosen by cost.  Weights take eight bytes a kernel row.  Scratch: 2 * (rows of a band) * (columns + 3) bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm, logical_and
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.chain.intrin import LANE_BITS, LANE_OFFSET
from aot.topi.arm_dsp.depthwise.intrin_chain import MAX_ROWS, ChainStrip, code_bytes, dw_chain, instructions
from aot.topi.arm_dsp.depthwise.planes import (
    Axis,
    Numbers,
    axes,
    band_height,
    band_starts,
    counted,
    equal_runs,
    is_supported,
    plan_numbers,
    strip_loop,
)
from aot.topi.layer.fused import FusedLayer, describe, match_layer
from aot.topi.layer.io import open_flat
from aot.topi.strategy import Group, Lowered, register_planned

MAX_COLUMNS = 3
MAX_STRIP = 12
SCALES = (8, 7, 6, 4)
"""Bits by which sums are scaled, tried in this order: more make a common shift likelier, fewer allow larger shifts."""
UNROLLED_PAIRS = 6
"""Pairs of pixels copied in a straight line."""
DEAD = 1
"""Columns before the first window of a line of stride 1."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """`band` result rows at a time, `strips` of (first output, outputs); `pitch` in words."""

    layer: FusedLayer
    numbers: Numbers
    scale: int
    rows: Axis
    columns: Axis
    swapped: bool
    band: int
    pitch: int
    strips: tuple[tuple[int, int], ...]

    @property
    def before(self) -> int:
        """Columns of a line before the image."""
        return self.columns.before + (DEAD if self.columns.stride == 1 else 0)

    @property
    def band_rows(self) -> int:
        return (self.band - 1) * self.rows.stride + self.rows.reach

    @property
    def copied(self) -> int:
        return max(0, min(self.columns.size, 2 * self.pitch - self.before))

    def strip(self, outputs: int) -> ChainStrip:
        rows, columns = self.rows, self.columns
        steps = (columns.out_step, rows.out_step)
        return ChainStrip(
            rows.taps,
            columns.stride,
            self.scale,
            rows.stride,
            rows.dilation,
            self.pitch,
            self.band,
            outputs,
            *steps,
            self.numbers.rounding,
        )

    @property
    def cost(self) -> int:
        """Instructions of one channel (from counts under QEMU)."""
        bands = -(-self.rows.out // self.band)
        lines = self.band_rows if bands > 1 else min(self.rows.size, self.band_rows)
        strips = sum(instructions(self.strip(n)) + 16 for _, n in self.strips)
        return bands * (strips + lines * (2 * self.copied + 8)) + 20


def _oriented(layer: FusedLayer, scaled: tuple[Numbers, int], rows: Axis, columns: Axis, *, swapped: bool) -> _Plan | None:
    if columns.taps > MAX_COLUMNS or rows.taps > MAX_ROWS or columns.stride > 2 or (columns.taps > 1 and columns.dilation > 1):
        return None
    columns, rows = replace(columns, dilation=1), replace(rows, dilation=rows.dilation if rows.taps > 1 else 1)
    if columns.stride == 1:
        pitch = (columns.out + 1) // 2 + 2
        count = -(-columns.out // MAX_STRIP)
        width = columns.out if count == 1 else columns.out // count // 2 * 2
    else:
        pitch = columns.out + 1
        width = -(-columns.out // -(-columns.out // (MAX_STRIP // 2)))
    if 4 * (rows.reach - 1) * pitch > 3500:
        return None
    band = band_height(rows, line_bytes=4 * pitch)
    firsts = list(range(0, columns.out, width))
    if len(firsts) > 1 and columns.out - firsts[-1] == 1:
        firsts.pop()
    strips = tuple((f, end - f) for f, end in zip(firsts, [*firsts[1:], columns.out], strict=True))
    return _Plan(layer, *scaled, rows, columns, swapped, band, pitch, strips)


def _plan(group: Group, target: Target) -> _Plan | None:
    """Cores without DSP only: with it, strips by SMLAD take fewer instructions."""
    layer = match_layer(group)
    if layer is None or layer.tail or target.has("dsp") or not is_supported(layer, target, feature="thumb2"):
        return None
    options = ((plan_numbers(layer, target, packed=True, scale=s), s) for s in SCALES)
    numbers, scale = next(((n, s) for n, s in options if n is not None), (None, 0))
    if numbers is None:
        return None
    y, x = axes(layer)
    plans = [_oriented(layer, (numbers, scale), *pair, swapped=swapped) for pair, swapped in (((y, x), False), ((x, y), True))]
    return min((p for p in plans if p is not None), key=lambda p: p.cost, default=None)


def stream(plan: _Plan) -> Array:
    """int32 [channels, words], see ChainStrip.stream_words."""
    weight = plan.numbers.weight >> plan.scale
    weight = weight.transpose(1, 0, 2) if plan.swapped else weight
    taps = np.pad(weight, ((0, 0), (0, MAX_COLUMNS - weight.shape[1]), (0, 0)))
    words = [w for row in taps for w in (row[1] + (row[0] << LANE_BITS), row[2] << LANE_BITS)]
    multiplier, constant, shift = plan.numbers.requant.fields
    tail = [constant.values, multiplier.values] + ([shift.values] if plan.numbers.rounding.shift < 0 else [])
    bias = plan.numbers.bias - (LANE_OFFSET << plan.scale)
    return np.stack([*words, bias, *tail], axis=1).astype(np.int32)


def _lower(group: Group, _target: Target, name: str, plan: _Plan) -> Lowered:
    layer, rows = plan.layer, plan.rows
    shape, out_shape = layer.data_type.shape, layer.out_type.shape
    b = IRBuilder(name)
    io = open_flat(b, group, layer)
    data = stream(plan)
    params = io.constant("params", data.reshape(-1), "int32")
    plane = b.scratch("plane", (plan.band_rows * plan.pitch,), "int32")
    pad = layer.attrs.pad_value
    with b.for_("i", plane.size) as i:
        b.store(plane, i, _word(imm(pad), imm(pad)))
    for image in counted(b, shape[0], "n"):
        with b.for_("c", shape[-1]) as c:
            for first in band_starts(b, rows, plan.band):
                _copy(b, plan, io.data, plane, source=image * prod(shape[1:]) + c, first=first)
                for m in counted(b, layer.attrs.multiplier, "m"):
                    channel = c * layer.attrs.multiplier + m
                    start = b.let("o", image * prod(out_shape[1:]) + channel + first * rows.out_step)
                    weights = region(params, b.let("w", channel * data.shape[1]))
                    for begin, outputs, count in equal_runs(plan.strips):
                        with strip_loop(b, begin, count, step=outputs) as x:
                            at = x >> 1 if plan.columns.stride == 1 else x
                            result = region(io.out, start + x * plan.columns.out_step)
                            b.block(dw_chain(plan.strip(outputs)), region(plane, at), weights, result)
    kernel = describe("arm_dsp.depthwise_chain", band=plan.band, columns=max(n for _, n in plan.strips))
    func = b.finish(FuncAttrs(kernel=kernel, span=layer.span, macs=layer.macs))
    code = sum(code_bytes(plan.strip(n)) for n in {n for _, n in plan.strips}) + (320 if plan.band < rows.out else 160)
    cost = shape[0] * layer.channels * plan.cost + 3 * plane.size
    return Lowered(func, io.constants, instructions=cost, code=code)


def _word(low: Expr, high: Expr) -> Expr:
    return low + high * (1 << LANE_BITS)


def _copy(b: IRBuilder, plan: _Plan, data: Buffer, plane: Buffer, *, source: Expr, first: Expr) -> None:
    """One band's pixels into the plane; with several bands the border rows change place, so they are written too."""
    rows = plan.rows
    whole = plan.band >= rows.out

    def row(at: Expr, line: Expr) -> None:
        start = b.let("s", source + line * rows.data_step)
        target = b.let("d", at * plan.pitch)
        _copy_row(b, plan, plane, target, lambda x: cast("int32", data.load("int8", start + x * plan.columns.data_step)))

    if whole:
        with b.for_("y", max(0, min(rows.size, plan.band_rows - rows.before))) as y:
            row(y + rows.before, y)
        return
    with b.for_("y", plan.band_rows) as y:
        line = b.let("line", first * rows.stride + y - rows.before)
        with b.if_(logical_and(line >= 0, line < rows.size)):
            row(y, line)
        with b.else_():
            _copy_row(b, plan, plane, b.let("d", y * plan.pitch), lambda x: imm(plan.layer.attrs.pad_value))


def _copy_row(b: IRBuilder, plan: _Plan, plane: Buffer, target: Expr, pixel: Callable[[Expr], Expr]) -> None:
    """The words that hold pixels; a word at either end may hold one of the border too."""
    pad, count = imm(plan.layer.attrs.pad_value), plan.copied
    if not count:
        return
    odd = plan.before % 2
    first = plan.before // 2
    if odd:
        b.store(plane, target + first, _word(pad, pixel(imm(0))))
    pairs = (count - odd) // 2
    unroll = next(u for u in range(UNROLLED_PAIRS, 0, -1) if pairs % u == 0) if pairs else 1
    for p in counted(b, pairs // unroll, "p") if pairs else ():
        for u in range(unroll):
            x = p * (2 * unroll) + (2 * u + odd)
            b.store(plane, target + (p * unroll + (u + odd + first)), _word(pixel(x), pixel(x + 1)))
    if (count - odd) % 2:
        b.store(plane, target + (first + odd + pairs), _word(pixel(imm(count - 1)), pad))


register_planned("arm_dsp.depthwise_chain", "nn.depthwise_conv2d", _plan, _lower, plevel=30)
