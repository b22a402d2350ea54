"""Fully connected layers whose sums leave 2^23, with one byte a weight: dense_w8 in segments of the inputs.

The sum of a segment's products fits, so it comes out whole when the factor 256 is shifted away; sums of segments are added as
they are.  Each block of four channels goes through all segments.
Scratch: two bytes an input of one row, rounded up to whole segments.
"""

from __future__ import annotations

from math import prod

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.w8.dense import CHANNELS, MAX_ROWS
from aot.topi.arm_dsp.w8.intrin import PRESCALE, TAPS, bias_words, dot_w8, weight_words
from aot.topi.arm_dsp.w8.stream import MAX_UNROLL, MAX_WEIGHT, QuadPlan, arrange, run_taps
from aot.topi.arm_dsp.w8.window import is_rows, pack_run, run_instructions
from aot.topi.layer.fused import FusedLayer, describe, match_layer, tail_accepts, tail_instructions
from aot.topi.layer.io import LayerIo, open_io
from aot.topi.layer.requant import HighMultiply, Requant, plan_requantize
from aot.topi.strategy import Group, Lowered, register_planned

LIMIT = 1 << 16
"""Of a segment's weights: the sum of their sizes, so that with bytes the sum of products is below 2^23."""

_SHORT, _GENERAL = 6, 22
"""Instructions of a requantisation, about."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """`segments` of `quads` each; `matrix` are the weights [O, 4 * segments * quads] in the order of the quads."""

    layer: FusedLayer
    requant: Requant
    matrix: Array
    segments: int
    quads: int

    @property
    def loaded(self) -> list[int]:
        """The fields of the requantisation that differ between channels."""
        return [i for i, f in enumerate(self.requant.fields) if not f.uniform]

    def block_words(self, count: int) -> int:
        return count * (1 + len(self.loaded) + self.segments * (1 + self.quads))

    def data(self) -> Array:
        """Blocks: biases, fields [n][fields], and of each segment start values and quads [quads][n]; int32."""
        parts: list[Array] = []
        for first in range(0, self.layer.channels, CHANNELS):
            block = slice(first, min(first + CHANNELS, self.layer.channels))
            parts.append(self.layer.bias[block].astype(np.int32))
            fields = [self.requant.fields[i].values[block] for i in self.loaded]
            parts += [np.stack(fields, axis=1).reshape(-1).astype(np.int32)] if fields else []
            for weights in np.split(self.matrix[block], self.segments, axis=1):
                words = weight_words(weights).reshape(len(weights), self.quads, 2).transpose(1, 0, 2)
                parts.append(bias_words(np.zeros(len(weights), np.int64), weights))
                parts.append(np.ascontiguousarray(words).reshape(-1).view(np.int32))
        return np.concatenate(parts)


def plan(group: Group, target: Target) -> _Plan | None:
    """Rows of bytes without weights of -128, where dense_w8 does not take them for their sums."""
    layer = match_layer(group)
    if layer is None or not target.has("dsp") or not tail_accepts(layer) or not is_rows(layer):
        return None
    if layer.weight.ndim > 2 and prod(layer.out_type.shape[:-1]) > MAX_ROWS:
        return None
    largest = max(int(np.abs(layer.acc_low).max()), int(np.abs(layer.acc_high).max()))
    if int(np.abs(layer.weight).max()) > MAX_WEIGHT or largest < 128 * LIMIT:
        return None
    depth = int(layer.weight[0].size)
    weights = layer.weight.reshape(layer.channels, depth)
    least = len(run_taps(depth)) // TAPS
    for segments in range(2, least // MAX_UNROLL + 1):
        quads = -(-least // (segments * MAX_UNROLL)) * MAX_UNROLL
        matrix = arrange(weights, 1, QuadPlan(segments * quads, MAX_UNROLL))
        if int(np.abs(matrix).reshape(layer.channels, segments, -1).sum(axis=2).max()) < LIMIT:
            requant = plan_requantize(layer.requant, layer.acc_low, layer.acc_high, target)
            return _Plan(layer, requant, matrix, segments, quads)
    return None


def lower(group: Group, _target: Target, name: str, found: _Plan) -> Lowered:
    layer = found.layer
    rows, depth = prod(layer.out_type.shape[:-1]), int(layer.weight[0].size)
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(rows * depth,), out_shape=(rows, layer.channels))
    params = io.constant("params", found.data(), "int32")
    words = b.scratch("words", (TAPS * found.segments * found.quads,), "int16", align=4)
    blocks, tail = divmod(layer.channels, CHANNELS)
    with b.for_("m", rows) as m:
        pack_run(b, words, (io.data, m * depth), depth, total=found.segments * found.quads)
        if blocks:
            with b.for_("n", blocks) as n:
                _block(io, found, (params, words), (m, n), count=CHANNELS)
        if tail:
            _block(io, found, (params, words), (m, imm(blocks)), count=tail)
    described = describe("arm_dsp.dense_w8_segments", channels=min(CHANNELS, layer.channels), segments=found.segments)
    func = b.finish(FuncAttrs(kernel=described, span=layer.span, macs=layer.macs))
    instructions = rows * _instructions(found, depth) + tail_instructions(layer)
    return Lowered(func, io.constants, instructions=instructions, code=600 + 300 * bool(tail))


def _block(io: LayerIo, found: _Plan, buffers: tuple[Buffer, Buffer], place: tuple[Expr, Expr], *, count: int) -> None:
    """`count` channels of block n of row m."""
    b, (params, words), (m, n), loaded = io.ctx.builder, buffers, place, found.loaded
    start = b.let("start", n * found.block_words(CHANNELS))
    total = b.local("total", (count,), "int32")
    for j in range(count):
        b.store(total, j, params[start + j])
    with b.for_("s", found.segments) as s:
        segment = b.let("segment", start + count * (1 + len(loaded)) + s * (count * (1 + found.quads)))
        acc = b.local("acc", (count,), "int32")
        for j in range(count):
            b.store(acc, j, params[segment + j])
        weights, data = region(params, (segment + count) * 2, dtype="int16"), region(words, s * (TAPS * found.quads))
        b.block(dot_w8(count, MAX_UNROLL), weights, data, acc, imm(found.quads))
        for j in range(count):
            b.store(total, j, total[j] + (acc[j] >> PRESCALE))
    for j in range(count):
        numbers = [imm(int(f.values[0])) for f in found.requant.fields]
        fields: list[Expr] = list(numbers)
        for at, i in enumerate(loaded):
            fields[i] = b.let("field", params[start + (count + j * len(loaded) + at)])
        io.store((m, n * CHANNELS + j), found.requant.emit(b, total[j], tuple(fields)))


def _instructions(found: _Plan, depth: int) -> int:
    """Of one row (from counts under QEMU)."""
    each = (_SHORT if isinstance(found.requant, HighMultiply) else _GENERAL) + len(found.loaded) + 2
    blocks, tail = divmod(found.layer.channels, CHANNELS)
    total = run_instructions(depth) + 6
    for count in [CHANNELS] * blocks + [tail] * bool(tail):
        segment = (2 + 3 * count) * found.quads + 3 * (found.quads // MAX_UNROLL) + 6 * count + 10
        total += found.segments * segment + count * each + 12
    return total


for _anchor in ("nn.dense", "nn.conv2d"):
    register_planned("arm_dsp.dense_w8_segments", _anchor, plan, lower, plevel=26)
