"""Depthwise convolution by 32-bit sums, a channel's plane at a time, six outputs of a row or three of two rows: see lanes.py.

The kernel of Armv6-M; another core may have it with a block of its own (aot/topi/arm_dsp/depthwise/lanes.py).  A word of the
plane holds a pixel and the one that a neighbouring output reads in its place.  The axis that rows run along and the form of
the six are chosen by cost.  Weights take one byte each.  Scratch: four bytes a pixel of the band of rows that is in work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm, logical_and, minimum
from aot.tir.function import FuncAttrs
from aot.tir.intrin import TensorIntrin
from aot.topi.arm_dsp.depthwise.planes import Axis, axes, band_height, band_starts, counted
from aot.topi.arm_v6m.intrin_depthwise import MAX_OFFSET, Taps, mul_instructions, mul_plane
from aot.topi.arm_v6m.lanes import BITS, LIMIT, WORDS, three_sums
from aot.topi.arm_v6m.numbers import Numbers
from aot.topi.arm_v6m.requant import Requant, instructions, plan
from aot.topi.layer.fused import FusedLayer, describe, match_layer, tail_accepts, tail_each
from aot.topi.layer.io import LayerIo, open_flat
from aot.topi.strategy import Group, Lowered, register_planned

MAX_TAPS = 49
MAX_LINE = 4096
"""Bytes of the rows that one output row reads."""
GROUPS = ((1, 6), (2, 3))
"""Rows and columns of the six outputs."""
UNROLL = 6
"""Words of a row copied in a straight line."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a core's form of the kernel consists of.

    `block` does the taps of six outputs in `taps_cost` instructions, its loads reaching `reach` words; `requantise` chooses how
    results are made, in `result_cost` instructions; `group_cost` is what a group of six takes beside.
    """

    kernel: str
    block: Callable[[Taps], TensorIntrin]
    taps_cost: Callable[[Taps], int]
    reach: int
    requantise: Callable[[FusedLayer, Target], Requant]
    result_cost: Callable[[Requant], int]
    group_cost: int


@dataclass(frozen=True, slots=True)
class PlanePlan:
    """`band` rows of results at a time, in groups of `shape`; `words`: those of a row of the plane."""

    machine: Machine
    layer: FusedLayer
    requant: Requant
    rows: Axis
    columns: Axis
    swapped: bool
    shape: tuple[int, int]
    band: int
    words: int

    @property
    def taps(self) -> Taps:
        return Taps(self.rows.taps, self.columns.taps, self.columns.stride, self.columns.dilation)

    @property
    def lines(self) -> int:
        """Rows of the plane."""
        return (max(self.band, self.shape[0]) - 1) * self.rows.stride + self.rows.reach

    @property
    def second(self) -> int:
        """Words between the windows of the first and the fourth output."""
        return 3 * self.columns.stride if self.shape[0] == 1 else self.rows.stride * self.words

    @property
    def groups(self) -> int:
        """Of one channel in a band."""
        return -(-self.band // self.shape[0]) * -(-self.columns.out // self.shape[1])

    @property
    def cost(self) -> int:
        """Instructions of one channel without requantisation and what comes behind it (from counts under QEMU)."""
        bands = -(-self.rows.out // self.band)
        lines = self.lines if bands > 1 else min(self.rows.size, self.lines)
        copy = lines * (20 + 8 * min(self.words, self.columns.size))
        each = 6 * (self.machine.result_cost(self.requant) + tail_each(self.layer))
        return bands * (copy + self.groups * (self.machine.taps_cost(self.taps) + self.machine.group_cost + each) + 20)


def plan_planes(group: Group, target: Target, machine: Machine) -> PlanePlan | None:
    """Windows of a few taps whose sums stay within the lanes."""
    layer = match_layer(group)
    if layer is None or not tail_accepts(layer) or 0 in layer.out_type.shape or prod(layer.weight.shape[:2]) > MAX_TAPS:
        return None
    requant = machine.requantise(layer, target)
    low, high = layer.acc_low - requant.base, layer.acc_high - requant.base
    if (low < -LIMIT).any() or (high >= LIMIT).any():
        return None
    y, x = axes(layer)
    orders = ((y, x, False), (x, y, True))
    plans = [_oriented(_Start(machine, layer, requant), order, shape) for order, shape in product(orders, GROUPS)]
    return min((p for p in plans if p is not None), key=lambda p: p.cost, default=None)


@dataclass(frozen=True, slots=True)
class _Start:
    """What is the same in every orientation."""

    machine: Machine
    layer: FusedLayer
    requant: Requant


def _oriented(start: _Start, order: tuple[Axis, Axis, bool], shape: tuple[int, int]) -> PlanePlan | None:
    rows, columns = (replace(a, dilation=a.dilation if a.taps > 1 else 1) for a in order[:2])
    words = (max(columns.out, shape[1]) - 1) * columns.stride + columns.reach - columns.stride
    if 4 * words * (rows.reach + (shape[0] - 1) * rows.stride) > MAX_LINE:
        return None
    band = band_height(rows, line_bytes=4 * words)
    if shape[0] > 1 and band < shape[0] <= rows.out:
        band = shape[0]
    found = PlanePlan(start.machine, start.layer, start.requant, rows, columns, order[2], shape, band, words)
    return found if found.taps.reach <= start.machine.reach else None


def lower_planes(group: Group, _target: Target, name: str, plan: PlanePlan) -> Lowered:
    """The kernel of a plan."""
    layer, rows = plan.layer, plan.rows
    shape, multiplier = layer.data_type.shape, layer.attrs.multiplier
    b = IRBuilder(name)
    io = open_flat(b, group, layer)
    weight = layer.weight.transpose(1, 0, 2) if plan.swapped else layer.weight
    weights = io.constant(
        "weights", np.ascontiguousarray(weight.reshape(-1, layer.channels).T).reshape(-1).astype(np.int8), "int8"
    )
    start: Array = (layer.bias - plan.requant.base) * (1 + (1 << BITS))
    numbers = Numbers(b, io, start, plan.requant)
    plane = b.scratch("plane", (plan.lines * plan.words,), "int32")
    pad = imm(layer.attrs.pad_value)
    with b.for_("i", plane.size) as i:
        b.store(plane, i, _word(pad, pad))
    for image in counted(b, shape[0], "n"):
        with b.for_("c", shape[-1]) as c:
            for first in band_starts(b, rows, plan.band):
                _copy(b, plan, io.data, plane, source=image * prod(shape[1:]) + c, first=first)
                for m in counted(b, multiplier, "m"):
                    channel = c if multiplier == 1 else b.let("channel", c * multiplier + m)
                    at = b.let("o", image * prod(layer.out_type.shape[1:]) + channel + first * rows.out_step)
                    _band(b, plan, io, plane, region_of=(weights, numbers, channel), at=at)
    form = {"rows": plan.shape[0], "columns": plan.shape[1], "band": plan.band}
    func = b.finish(FuncAttrs(kernel=describe(plan.machine.kernel, **form), span=layer.span, macs=layer.macs))
    cost = shape[0] * layer.channels * plan.cost + 4 * plane.size
    code = 900 + 2 * plan.machine.taps_cost(plan.taps) + 400 * len(layer.tail)
    return Lowered(func, io.constants, instructions=cost, code=code)


def _band(
    b: IRBuilder, plan: PlanePlan, io: LayerIo, plane: Buffer, *, region_of: tuple[Buffer, Numbers, Expr], at: Expr
) -> None:
    """The results of one channel in a band, whose first one is element `at` of the output."""
    weights, numbers, channel = region_of
    rows, columns = plan.rows, plan.columns
    fields = numbers.fields(channel)
    start = b.let("start", cast("uint32", numbers.start(channel)))
    w = region(weights, channel * (rows.taps * columns.taps))
    for y in _starts(b, plan.band, plan.shape[0], "y"):
        for x in _starts(b, columns.out, plan.shape[1], "x"):
            acc = b.local("acc", (WORDS,), "uint32")
            for i in range(WORDS):
                b.store(acc, i, start)
            word = y * (rows.stride * plan.words) + x * columns.stride
            block = plan.machine.block(plan.taps)
            b.block(block, w, region(plane, word), acc, imm(plan.second), imm(plan.words * rows.dilation))
            sums = [*three_sums(b, acc, 0), *three_sums(b, acc, 2)]
            here = b.let("here", at + y * rows.out_step + x * columns.out_step)
            for p, (row, column) in enumerate(product(range(plan.shape[0]), range(plan.shape[1]))):
                if row < plan.band and column < columns.out:
                    place = here + (row * rows.out_step + column * columns.out_step)
                    io.store((place,), plan.requant.emit(b, sums[p], fields))


def _starts(b: IRBuilder, count: int, size: int, name: str) -> Iterator[Expr]:
    """The first of each group of `size`; the last group reaches back where they do not divide evenly."""
    if count <= size:
        yield imm(0)
        return
    with b.for_(name, -(-count // size)) as i:
        yield i if size == 1 else i * size if count % size == 0 else b.let(name, minimum(i * size, count - size))


def _word(low: Expr, high: Expr) -> Expr:
    return low + high * (1 << BITS)


def _copy(b: IRBuilder, plan: PlanePlan, data: Buffer, plane: Buffer, *, source: Expr, first: Expr) -> None:
    """One band's pixels into the plane; with several bands the border rows change place, so they are written too."""
    rows = plan.rows

    def row(at: Expr, line: Expr) -> None:
        start = b.let("s", source + line * rows.data_step)
        target = b.let("d", at * plan.words)
        _copy_row(b, plan, plane, target, lambda x: cast("int32", data.load("int8", start + x * plan.columns.data_step)))

    if plan.band >= rows.out:
        with b.for_("y", max(0, min(rows.size, plan.lines - rows.before))) as y:
            row(y + rows.before, y)
        return
    with b.for_("y", plan.lines) as y:
        line = b.let("line", first * rows.stride + y - rows.before)
        with b.if_(logical_and(line >= 0, line < rows.size)):
            row(y, line)
        with b.else_():
            _copy_row(b, plan, plane, b.let("d", y * plan.words), lambda x: imm(plan.layer.attrs.pad_value))


def _copy_row(b: IRBuilder, plan: PlanePlan, plane: Buffer, target: Expr, pixel: Callable[[Expr], Expr]) -> None:
    """The words that hold pixels of the image; those at either end may hold one of the border too."""
    columns, pad = plan.columns, imm(plan.layer.attrs.pad_value)
    stride, before, end = columns.stride, columns.before, columns.before + columns.size
    low, high = min(before, plan.words), min(max(end - stride, before), plan.words)

    def one(i: int) -> None:
        pair = [pixel(imm(at - before)) if before <= at < end else pad for at in (i, i + stride)]
        b.store(plane, target + i, _word(*pair))

    for i in range(max(0, before - stride), low):
        one(i)
    count = high - low
    unroll = next(u for u in range(min(UNROLL, count), 0, -1) if count % u == 0) if count > 0 else 1
    for p in counted(b, count // unroll, "p") if count > 0 else ():
        values = [b.let("v", pixel(p * unroll + (low - before + u))) for u in range(unroll + stride)]
        for u in range(unroll):
            b.store(plane, target + (p * unroll + (low + u)), _word(values[u], values[u + stride]))
    for i in range(max(low, high), min(end, plan.words)):
        one(i)


def _two_products(layer: FusedLayer, target: Target) -> Requant:
    return plan(layer.requant, layer.acc_low, layer.acc_high, target)


V6M = Machine("arm_v6m.depthwise", mul_plane, mul_instructions, MAX_OFFSET, _two_products, instructions, 50)


def _plan(group: Group, target: Target) -> PlanePlan | None:
    return plan_planes(group, target, V6M) if target.has("v6m") else None


register_planned(V6M.kernel, "nn.depthwise_conv2d", _plan, lower_planes, plevel=20)
