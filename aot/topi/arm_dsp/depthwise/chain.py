"""Depthwise convolution by channel planes for cores with SMLAL but without DSP instructions (Cortex-M3): kernels up to 3 x 3.

A plane's word holds two pixels 2^21 apart, see intrin_chain.py: neighbours, or for stride 2 those of columns two apart.
Stride 1 or 2 along the strips, any across; the axis that strips run along is chosen by cost.  Weights take eight bytes a kernel
row.  Scratch: 2 * (rows of a band) * (columns + 6) bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm, logical_and
from aot.tir.function import FuncAttrs
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
    rounding_of,
    strip_loop,
    without_vanishing,
)
from aot.topi.arm_dsp.smlal.conv2d import LANE_BITS, LANE_OFFSET
from aot.topi.layer.fused import FusedLayer, describe, match_layer
from aot.topi.layer.io import open_flat
from aot.topi.layer.threshold import plan_folded
from aot.topi.strategy import Group, Lowered, register_planned

MAX_COLUMNS = 3
MAX_STRIP = 12
SCALES = (8, 7, 6, 4)
"""Bits by which sums are scaled, tried in this order: more make a common shift likelier, fewer allow larger shifts."""
FOLDED_SCALES = (12, 11, 10, 9, 8, 7, 6, 5, 4)
"""Where nothing is added behind the product."""
FOLDED_SHIFTS = (15, 17, 22)
UNROLLED_WORDS = 6
"""Of two pixels, stored in a straight line."""


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
        """Columns of a line before the image: one or, for stride 2, two of them belong to no window."""
        return self.columns.before + self.columns.stride

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
        turns = self.copied // (2 * UNROLLED_WORDS)
        loop = turns * (1 if self.columns.stride == 1 else 4) if turns > 1 else 0
        return bands * (strips + lines * (2 * self.copied + 3 + loop + 10 * (bands > 1))) + 20


def _oriented(layer: FusedLayer, scaled: tuple[Numbers, int], rows: Axis, columns: Axis, *, swapped: bool) -> _Plan | None:
    if columns.taps > MAX_COLUMNS or rows.taps > MAX_ROWS or columns.stride > 2 or (columns.taps > 1 and columns.dilation > 1):
        return None
    columns, rows = replace(columns, dilation=1), replace(rows, dilation=rows.dilation if rows.taps > 1 else 1)
    steps = (columns.out + 1) // 2
    pitch = steps + 2 if columns.stride == 1 else 2 * (steps + 1)
    count = -(-columns.out // MAX_STRIP)
    width = columns.out if count == 1 else columns.out // count // 2 * 2
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
    numbers, scale = _numbers(layer, target)
    if numbers is None:
        return None
    y, x = axes(layer)
    plans = [_oriented(layer, (numbers, scale), *pair, swapped=swapped) for pair, swapped in (((y, x), False), ((x, y), True))]
    return min((p for p in plans if p is not None), key=lambda p: p.cost, default=None)


def _numbers(layer: FusedLayer, target: Target) -> tuple[Numbers | None, int]:
    """The numbers and by how many bits they are scaled; with the constant in the bias where that is exact."""
    attrs, used = without_vanishing(layer)
    weight, bias = layer.weight * used, layer.bias * used
    for scale, limit in product(FOLDED_SCALES, FOLDED_SHIFTS):
        folded = plan_folded(attrs, layer.acc_low * used, layer.acc_high * used, target=target, prescale=scale, limit=limit)
        if folded is not None:
            requant, added = folded
            return Numbers(weight << scale, (bias << scale) + added, requant, rounding_of(requant, layer, folded=True)), scale
    options = ((plan_numbers(layer, target, packed=True, scale=s), s) for s in SCALES)
    return next(((n, s) for n, s in options if n is not None), (None, 0))


def stream(plan: _Plan) -> Array:
    """int32 [channels, words], see ChainStrip.stream_words."""
    weight = plan.numbers.weight >> plan.scale
    weight = weight.transpose(1, 0, 2) if plan.swapped else weight
    taps = np.pad(weight, ((0, 0), (0, MAX_COLUMNS - weight.shape[1]), (0, 0)))
    with_first, alone = (1, 2) if plan.columns.stride == 1 else (2, 1)
    words = [w for row in taps for w in (row[with_first] + (row[0] << LANE_BITS), row[alone] << LANE_BITS)]
    numbers = {f.name: f.values for f in plan.numbers.requant.fields} | {"bias": plan.numbers.bias - (LANE_OFFSET << plan.scale)}
    return np.stack([*words, *(numbers[n] for n in plan.strip(1).numbers)], axis=1).astype(np.int32)


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
                            at = region(plane, x >> 1 if plan.columns.stride == 1 else x)
                            result = region(io.out, start + x * plan.columns.out_step)
                            b.block(dw_chain(plan.strip(outputs)), at, weights, result)
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
    """The words that hold pixels, whole groups of columns; a group at either end may hold some of the border too."""
    count, before, stride = plan.copied, plan.before, plan.columns.stride
    size = 2 * stride  # of a group: `stride` words of columns that far apart

    def group(at: Expr, first: Expr, columns: range) -> None:
        """The group at word `at`, whose columns `columns` are pixels from number `first` - columns.start on."""
        for i in range(stride):
            low, high = (
                pixel(first + (c - columns.start)) if c in columns else imm(plan.layer.attrs.pad_value) for c in (i, i + stride)
            )
            b.store(plane, at + i, _word(low, high))

    if not count:
        return
    at, head = before // size * stride, min(-before % size, count)
    if head:
        group(target + at, imm(0), range(before % size, before % size + head))
        at += stride
    groups, rest = divmod(count - head, size)
    turns = -(-groups * stride // UNROLLED_WORDS)
    unroll = groups // max(turns, 1)
    for t in counted(b, turns, "p") if turns else ():
        for u in range(unroll):
            group(target + (t * (unroll * stride) + (at + u * stride)), t * (unroll * size) + (head + u * size), range(size))
    for u in range(turns * unroll, groups):
        group(target + (at + u * stride), imm(head + u * size), range(size))
    if rest:
        group(target + (at + groups * stride), imm(count - rest), range(rest))


register_planned("arm_dsp.depthwise_chain", "nn.depthwise_conv2d", _plan, _lower, plevel=30)
