"""Transposed convolution to one or two channels, such as the last layer of an autoencoder: four windows at a time.

Each pair of remainders of the stride is a convolution of stride 1 (aot/topi/layer/phases.py).  What the windows of a row cover is
widened once for all of them, into the ring of aot/topi/arm_dsp/few/ring.py; each then takes its rows and columns of it.
"""

from __future__ import annotations

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm, minimum
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.few.conv2d import MOST_CHANNELS
from aot.topi.arm_dsp.few.intrin import MOST_STEP, PIXELS, Run, code_bytes, dot_4, instructions
from aot.topi.arm_dsp.few.ring import Ring
from aot.topi.layer.fused import describe, table_of
from aot.topi.layer.io import LayerIo, open_io
from aot.topi.layer.phases import ANCHOR, SubPixelLayer, SubPixels, sub_pixels
from aot.topi.layer.requant import Requant, plan_requantize
from aot.topi.strategy import Group, Lowered, register_planned


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """A pair of remainders: `row` and `column` of the ring's windows at which its own begin, its bias for data less the zero
    point, and the place of its weights.
    """

    part: SubPixels
    row: int
    column: int
    bias: Array
    requant: Requant
    run: Run
    weights: int

    @property
    def lines(self) -> int:
        return len(self.part.rows.taps)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The layer by phases, and the rows that all of them take their windows from."""

    whole: SubPixelLayer
    ring: Ring
    phases: tuple[Phase, ...]


def plan(group: Group, target: Target) -> Plan | None:
    """One or two channels, at most a table after them, rows that are not too long."""
    found = sub_pixels(group) if target.has("dsp") else None
    if found is None or found.layer.channels > MOST_CHANNELS or (found.layer.tail and table_of(found.layer) is None):
        return None
    zp, depth = found.layer.attrs.input_zp, found.layer.data_type.shape[3]
    ring = Ring.of(found.window, zp) if depth <= MOST_STEP else None
    if ring is None:
        return None
    phases, weights = [], 0
    for part in found.phases:
        layer = part.layer
        bias = layer.bias + zp * layer.weight.sum(axis=(1, 2, 3))
        if (np.abs(layer.weight).sum(axis=(1, 2, 3)) * 255 + np.abs(bias) >= 1 << 31).any():
            return None
        requant = plan_requantize(layer.requant, layer.acc_low, layer.acc_high, target)
        run = Run((len(part.columns.taps) * depth + 1) // 2, depth)
        row, column = found.rows.before - part.rows.before, found.columns.before - part.columns.before
        phases.append(Phase(part, row, column, bias, requant, run, weights))
        weights += layer.channels * len(part.rows.taps) * 2 * run.pairs
    return Plan(found, ring, tuple(phases))


def lower(group: Group, _target: Target, name: str, found: Plan) -> Lowered:
    """Rows of data, phases, four columns of data, channels."""
    whole, ring = found.whole.layer, found.ring
    b = IRBuilder(name)
    io = open_io(b, group, whole, data_shape=(whole.data_type.size,), out_shape=(whole.out_type.size,))
    weights = io.constant("weights", np.concatenate([_stream(phase) for phase in found.phases]), "int16")
    rows = ring.open(b)
    with b.for_("y", found.whole.rows.out) as y:
        ring.fill(b, io.data, rows, image=imm(0), y=y)
        first = b.let("first", y % ring.span)
        for phase in found.phases:
            if phase.part.rows.out == found.whole.rows.out:
                _row(b, found, io, phase, (weights, rows), first=first, y=y)
                continue
            with b.if_(y < phase.part.rows.out):
                _row(b, found, io, phase, (weights, rows), first=first, y=y)
    kernel = describe("arm_dsp.conv2d_transpose_few", phases=len(found.phases))
    func = b.finish(FuncAttrs(kernel=kernel, span=whole.span, macs=whole.macs))
    total = ring.open_instructions() + ring.fill_instructions() + sum(_instructions(phase) for phase in found.phases)
    total += 2 * whole.out_type.size * bool(whole.tail)
    code = 360 + sum(whole.channels * (code_bytes(phase.run) + 140) + 60 for phase in found.phases)
    return Lowered(func, io.constants, total, code)


def _stream(phase: Phase) -> Array:
    """int16 [channels, rows of the window, taps of a row, an even number]."""
    weight = phase.part.layer.weight
    channels, kh, kw, depth = weight.shape
    lines = weight.reshape(channels, kh, kw * depth)
    return np.pad(lines, ((0, 0), (0, 0), (0, 2 * phase.run.pairs - kw * depth))).astype(np.int16).reshape(-1)


def _instructions(phase: Phase) -> int:
    """Of all its tiles."""
    width, rows = phase.part.columns.out, phase.part.rows.out
    each = phase.lines * (instructions(phase.run) + 18 * (phase.lines > 1)) + 7 * min(PIXELS, width)
    each += 12 * (width > PIXELS and width % PIXELS > 0)  # places that are not known from the number of the tile
    return rows * (-(-width // PIXELS) * phase.part.layer.channels * each + 8)


def _row(b: IRBuilder, found: Plan, io: LayerIo, phase: Phase, buffers: tuple[Buffer, Buffer], *, first: Expr, y: Expr) -> None:
    """The results of a phase for row `y` of the data; `first`: where the row of the ring's windows is."""
    width = phase.part.columns.out
    _, _, columns, channels = found.whole.layer.out_type.shape
    (down, right), (from_y, from_x) = found.whole.layer.attrs.strides, phase.part.remainder
    with b.for_("t", -(-width // PIXELS)) as t:
        x = t * PIXELS if width % PIXELS == 0 or width < PIXELS else b.let("x", minimum(t * PIXELS, width - PIXELS))
        at = b.let("at", ((y * down + from_y) * columns + x * right + from_x) * channels)
        for c in range(channels):
            acc = _sums(b, found, phase, buffers, first=first, x=x, channel=c)
            fields = tuple(imm(int(f.values[c])) for f in phase.requant.fields)
            places = [(at + (p * right * channels + c),) for p in range(min(PIXELS, width))]
            io.store_all(places, (phase.requant.emit(b, acc[p], fields) for p in range(len(places))))


def _sums(
    b: IRBuilder, found: Plan, phase: Phase, buffers: tuple[Buffer, Buffer], *, first: Expr, x: Expr, channel: int
) -> Buffer:
    """Those of four windows."""
    (weights, rows), run = buffers, phase.run
    acc = b.local("acc", (PIXELS,), "int32", init=imm(int(phase.bias[channel])))
    with b.for_("ky", phase.lines) as ky:
        row = b.let("row", first + (ky + phase.row))
        at = found.ring.row(row) + (x + phase.column) * run.step
        w = region(weights, phase.weights + (channel * phase.lines + ky) * (2 * run.pairs))
        b.block(dot_4(run), region(rows, at), w, acc)
    return acc


register_planned("arm_dsp.conv2d_transpose_few", ANCHOR, plan, lower, plevel=19)
