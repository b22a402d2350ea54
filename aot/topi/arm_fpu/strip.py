"""Depthwise convolutions of float32 in strips: a channel of a few columns of results, from the first row of an image to the last.

Windows of few taps that reach one column beyond the image at most, or further where a strip is as wide as the image: then
products with what is outside are left out.  No scratch.  Weights take four bytes each in flash, [channels][taps], with each
channel's bias behind.  Every number of the image is loaded once a strip, where kernels that go row by row (depthwise.py) load
it, and the weights, once a row of taps; results must not overlap the data.  Products and sums are instructions of their own,
which takes fewer cycles than VMLA.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import equal, imm, minimum, select
from aot.tir.function import FuncAttrs
from aot.topi.arm_fpu.depthwise import OPERATOR
from aot.topi.arm_fpu.finish import Clamp
from aot.topi.arm_fpu.intrin_strip import price, strip
from aot.topi.arm_fpu.layer import FloatIo, FloatLayer, match_float_layer
from aot.topi.arm_fpu.strip_form import StripForm
from aot.topi.layer.fused import describe
from aot.topi.strategy import Group, Lowered, register_planned

MOST_COLUMNS = 8
AROUND = np.array([26, 36])
"""Instructions and cycles around a strip of one channel."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A layer, the form of its strips, and the turns of their loop; the last strip ends with the row, over others' columns."""

    layer: FloatLayer
    form: StripForm
    trips: int

    @property
    def strips(self) -> int:
        return -(-self.layer.columns.out // self.form.columns)

    @property
    def price(self) -> tuple[int, int]:
        """Instructions and cycles of the layer."""
        each = np.array(price(self.form, self.trips)) + AROUND
        found, cycles = map(int, 30 + self.layer.batch * self.strips * (self.layer.channels * each + 12))
        return found, cycles


def plan(group: Group, target: Target) -> Plan | None:
    """Without a tail; of the strips that fit the fastest ones."""
    layer = match_float_layer(group, OPERATOR) if target.has("vfp") else None
    if layer is None or layer.tail:
        return None
    rows, columns = layer.rows, layer.columns
    if any((a.dilation > 1 and a.taps > 1) or a.stride > a.taps for a in (rows, columns)):
        return None
    if not 0 <= rows.taps - rows.stride - rows.before <= rows.size:
        return None
    found = [p for n in range(2, 1 + min(MOST_COLUMNS, columns.out)) if (p := _plan(layer, n)) is not None]
    return min(found, key=lambda p: p.price[1], default=None)


def _plan(layer: FloatLayer, count: int) -> Plan | None:
    """With strips of `count` columns; None where registers do not suffice, or windows of several strips reach too far."""
    rows, columns = layer.rows, layer.columns
    taps, strides = (rows.taps, columns.taps), (rows.stride, columns.stride)
    outside = (columns.before, columns.after)
    only = count == columns.out
    if not only and (max(outside) > 1 or columns.before > columns.taps - columns.stride):
        return None
    left, right = (n == 1 and not only for n in outside)
    sizes, beyond, clamp = (count, layer.depth, layer.channels), (rows.before, rows.after), Clamp(layer.lo, layer.hi)
    form = StripForm(taps, strides, *sizes, *beyond, 0, True, left, right, outside if only else (0, 0), clamp)
    whole = rows.out - form.tail
    if whole < 0 or not form.fits:
        return None
    form = replace(form, start=-whole % form.rows_open if whole else 0, loop=whole > 0)
    return Plan(layer, form, (whole + form.start) // form.rows_open)


def lower(group: Group, _target: Target, name: str, found: Plan) -> Lowered:
    layer, form = found.layer, found.form
    b = IRBuilder(name)
    io = FloatIo(b, group, layer, run=form.columns)
    rows, columns, depth, channels = layer.rows, layer.columns, layer.depth, layer.channels
    taps = rows.taps * columns.taps
    weights = layer.weight.reshape(taps, channels)
    params = io.stream(np.concatenate([weights, layer.bias.reshape(1, -1)]).T.reshape(-1))
    with b.for_("i", layer.batch) as i, b.for_("s", found.strips) as s:
        first = b.let("first", minimum(s * form.columns, columns.out - form.columns))
        left = select(equal(s, 0), imm(1), imm(0)) if form.left else imm(0)
        right = select(equal(s, found.strips - 1), imm(1), imm(0)) if form.right else imm(0)
        left, right = b.let("left", left), b.let("right", right)
        column = first * columns.stride + left - (0 if any(form.outside) else columns.before)
        data = b.let("data", (i * (rows.size * columns.size) + column) * depth)
        out = b.let("result", (i * (rows.out * columns.out) + first) * channels)
        with b.for_("d", depth) as d, b.for_("k", channels // depth) as k:
            numbers = (imm(columns.size * depth), imm(columns.out * channels), imm(found.trips), left, right)
            c = d * (channels // depth) + k
            b.block(strip(form), region(io.data, data + d), region(params, c * (taps + 1)), region(io.out, out + c), *numbers)
    word = describe("arm_fpu.strip", columns=form.columns)
    func = b.finish(FuncAttrs(kernel=word, span=layer.span, macs=layer.macs))
    instructions, cycles = found.price
    return Lowered(func, io.constants, instructions, 160 + 4 * len(form.text()), cycles)


register_planned("arm_fpu.strip", OPERATOR, plan, lower, plevel=26, for_speed=True)
