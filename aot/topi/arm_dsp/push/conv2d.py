"""Convolutions of few pixels with large windows: two pixels by three channels, the rows of the window one after another.

One row of two windows is unpacked at a time and taken by all channels, whose sums lie in scratch memory until the last row is
done.  Where few pixels are left no larger block comes out even.  Scratch: four bytes a tap of one row, eight bytes a channel.
Weights take two bytes each in flash.
"""

from __future__ import annotations

from math import prod

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm, minimum
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.push.intrin import ORDER, pair_instructions, pair_products, scaled, start_values, unpack_pairs
from aot.topi.arm_dsp.w8.intrin import TAPS
from aot.topi.arm_dsp.w8.stream import best_requant, plan_w8
from aot.topi.arm_dsp.w8.window import WindowRuns, is_rows, window_at
from aot.topi.layer.fused import FusedLayer, describe, match_layer, tail_accepts, tail_instructions
from aot.topi.layer.io import LayerIo, open_io
from aot.topi.layer.requant import HighMultiply
from aot.topi.strategy import Group, Lowered, register_planned

PIXELS, CHANNELS = 2, 3
MAX_STEPS = 28
"""Steps of a block in a row; more are several blocks."""


@dataclass(frozen=True, slots=True)
class _Plan:
    layer: FusedLayer
    requant: HighMultiply
    runs: WindowRuns

    @property
    def blocks(self) -> int:
        """Of channels, the last filled up."""
        return -(-self.layer.channels // CHANNELS)

    @property
    def steps(self) -> int:
        """Pairs of taps that a block of code takes: as many as divide those of a run."""
        return max(n for n in range(1, MAX_STEPS + 1) if (self.runs.length // 2) % n == 0)

    @property
    def pixels(self) -> int:
        return prod(self.layer.out_type.shape[:-1])

    @property
    def arrays(self) -> list[Array]:
        """Numbers of each channel: the start value, and the fields of the requantisation that vary."""
        bias = start_values(self.layer.bias, self.layer.weight)
        return [bias, *(f.values for f in self.requant.fields if not f.uniform)]

    def stream(self) -> Array:
        """int32: of each run and block of channels the weights, int16[pairs][3][2] in ORDER, then numbers [channels][numbers]."""
        layer, length = self.layer, self.runs.length
        matrix = layer.weight.reshape(layer.channels, self.runs.count, length // TAPS, TAPS)[..., ORDER]
        matrix = np.pad(matrix, ((0, -layer.channels % CHANNELS), (0, 0), (0, 0), (0, 0)))
        blocks = scaled(matrix).reshape(self.blocks, CHANNELS, self.runs.count, length // 2, 2).transpose(2, 0, 3, 1, 4)
        numbers = np.stack(self.arrays, axis=1).astype(np.int32)
        return np.concatenate([np.ascontiguousarray(blocks).reshape(-1).view(np.int32), numbers.reshape(-1)])


def plan(group: Group, target: Target) -> _Plan | None:
    """At least two pixels, no padding, and runs of whole quads; the requantisation has the short form with 256 times the sums."""
    layer = match_layer(group)
    if layer is None or not target.has("dsp") or not tail_accepts(layer) or layer.weight.ndim != 4 or is_rows(layer):
        return None
    runs = WindowRuns(layer)
    if any(layer.attrs.padding) or runs.length % TAPS or prod(layer.out_type.shape[:-1]) < PIXELS:
        return None
    return _Plan(layer, best_requant(layer, target, common=False), runs) if plan_w8(layer, target) is not None else None


def lower(group: Group, _target: Target, name: str, found: _Plan) -> Lowered:
    layer, length = found.layer, found.runs.length
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(prod(layer.data_type.shape),), out_shape=(found.pixels * layer.channels,))
    words = b.scratch("words", (2 * length,), "int16", align=4)
    sums = b.scratch("sums", (found.blocks * CHANNELS * PIXELS,), "int32")
    params = io.constant("params", found.stream(), "int32")
    with b.for_("t", -(-found.pixels // PIXELS)) as tile:
        first = b.let("pixel", minimum(tile * PIXELS, found.pixels - PIXELS)) if found.pixels % PIXELS else tile * PIXELS
        for z in range(layer.channels * PIXELS, found.blocks * CHANNELS * PIXELS):
            b.store(sums, z, 0)
        with b.for_("n", layer.channels) as n:
            bias = b.let("bias", params[_number(found, n)])
            for p in range(PIXELS):
                b.store(sums, n * PIXELS + p, bias)
        _sum_rows(b, found, io, (params, words, sums), first=first)
        with b.for_("n", layer.channels) as n:
            _store(b, found, io, (params, sums), first=first, n=n)
    kernel = describe("arm_dsp.conv2d_pairs", pixels=PIXELS, channels=CHANNELS)
    func = b.finish(FuncAttrs(kernel=kernel, span=layer.span, macs=layer.macs))
    tail = tail_instructions(layer) * -(-found.pixels // PIXELS) * PIXELS // found.pixels
    return Lowered(func, io.constants, instructions=_instructions(found) + tail, code=_code(found))


def _sum_rows(b: IRBuilder, found: _Plan, io: LayerIo, place: tuple[Buffer, Buffer, Buffer], *, first: Expr) -> None:
    """The products of all runs of two windows with all channels."""
    (params, words, sums), layer, runs = place, found.layer, found.runs
    _, height, width, depth = layer.data_type.shape
    origins = [window_at(b, layer, first + p, origin=(0, 0)) for p in range(PIXELS)]
    with b.for_("row", runs.rows) as ky, b.for_("column", runs.columns) as kx:
        starts = []
        for image, y, x in origins:
            row, column = y + ky * layer.attrs.dilation[0], x + kx * layer.attrs.dilation[1]
            starts.append(b.let("start", ((image * height + row) * width + column) * depth))
        b.block(unpack_pairs(), *(region(io.data, s) for s in starts), words, imm(runs.length // TAPS))
        with b.for_("n", found.blocks) as n:
            acc = b.local("acc", (CHANNELS * PIXELS,), "int32")
            for i in range(CHANNELS * PIXELS):
                b.store(acc, i, sums[n * (CHANNELS * PIXELS) + i])
            block = ((ky * runs.columns + kx) * found.blocks + n) * (CHANNELS * runs.length)
            with b.for_("s", runs.length // 2 // found.steps) as s:
                weights = region(params, block + s * (2 * CHANNELS * found.steps), dtype="int16")
                b.block(pair_products(found.steps), region(words, s * (2 * PIXELS * found.steps)), weights, acc)
            for i in range(CHANNELS * PIXELS):
                b.store(sums, n * (CHANNELS * PIXELS) + i, acc[i])


def _number(found: _Plan, channel: Expr) -> Expr:
    """Where the numbers of a channel begin."""
    return channel * len(found.arrays) + found.runs.count * found.blocks * CHANNELS * found.runs.length // 2


def _store(b: IRBuilder, found: _Plan, io: LayerIo, place: tuple[Buffer, Buffer], *, first: Expr, n: Expr) -> None:
    """The results of channel n of two pixels."""
    params, sums = place
    start, rows = _number(found, n), iter(range(1, len(found.arrays)))
    fields = tuple(
        imm(int(f.values[0])) if f.uniform else b.let("field", params[start + next(rows)]) for f in found.requant.fields
    )
    for p in range(PIXELS):
        value = found.requant.emit_scaled(b, sums[n * PIXELS + p], fields)
        io.store(((first + p) * found.layer.channels + n,), value)


def _instructions(found: _Plan) -> int:
    """From counts under QEMU."""
    tiles, runs, pairs = -(-found.pixels // PIXELS), found.runs, found.runs.length // 2
    turns = pairs // found.steps
    products = pair_instructions() * pairs + (10 * turns if turns > 1 else 0)
    run = 9 * (runs.length // TAPS) + 21 + found.blocks * (products + 13)
    return int(tiles * (runs.count * run + 40 + 6.9 * len(found.arrays) * found.layer.channels))


def _code(found: _Plan) -> int:
    """Bytes."""
    return 400 + 4 * pair_instructions() * found.steps


register_planned("arm_dsp.conv2d_pairs", "nn.conv2d", plan, lower, plevel=8, for_pushes=True)
