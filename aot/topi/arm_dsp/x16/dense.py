"""Fully connected layers of 16-bit data, row by row, straight from the data.

A tail runs over a row of results in scratch memory, two bytes each: the block of assembly leaves it no registers.
"""

from __future__ import annotations

from math import prod

from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import cast
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.w8.window import is_rows
from aot.topi.arm_dsp.x16.intrin import CHANNELS, smlad_1x4, unroll_of
from aot.topi.arm_dsp.x16.layer import PairStream, match_16x8
from aot.topi.arm_dsp.x16.requant import AnyRequant
from aot.topi.layer.fused import FusedLayer, describe, tail_instructions
from aot.topi.layer.io import open_io
from aot.topi.strategy import Group, Lowered, register_planned


def plan(group: Group, target: Target) -> tuple[FusedLayer, AnyRequant] | None:
    """Rows of an even number of data, so that each begins with a word."""
    found = match_16x8(group, target)
    return found if found is not None and is_rows(found[0]) and found[0].weight[0].size % 2 == 0 else None


def lower(group: Group, _target: Target, name: str, found: tuple[FusedLayer, AnyRequant]) -> Lowered:
    layer, requant = found
    rows, depth = prod(layer.out_type.shape[:-1]), int(layer.weight[0].size)
    stream = PairStream(layer, requant)
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(rows * depth,), out_shape=(rows * layer.channels,), data_align=4)
    params = io.constant("params", stream.data(), "int32")
    results = b.scratch("results", (layer.channels,), "int16") if layer.tail else None
    with b.for_("m", rows) as m:
        for n, count in stream.blocks(b):
            acc = b.local("acc", (CHANNELS,), "int32")
            for j in range(CHANNELS):
                b.store(acc, j, stream.number(params, n, 0, j))
            b.block(smlad_1x4(stream.pairs), region(io.data, m * depth), stream.weights(params, n), acc)
            for j in range(count):
                value = stream.result(b, acc[j], stream.fields(b, params, n, j))
                if results is None:
                    io.store((m * layer.channels + n * CHANNELS + j,), value)
                else:
                    b.store(results, n * CHANNELS + j, value)
        if results is not None:
            with b.for_("c", layer.channels) as c:
                io.store((m * layer.channels + c,), cast("int32", results[c]))
    func = b.finish(FuncAttrs(kernel=describe("arm_dsp.dense_16x8", channels=CHANNELS), span=layer.span, macs=layer.macs))
    steps, rest = divmod(stream.pairs, 2)
    unroll = unroll_of(stream.pairs)
    loops = 2 * (steps // unroll) if unroll and steps > unroll else 0
    block = 11 * steps + 6 * rest + loops + CHANNELS * (5 + stream.numbers + stream.long_products) + 12
    blocks = -(-layer.channels // CHANNELS)
    code = (60 + 4 * (11 * unroll + 6) + 80) * (1 + (layer.channels % CHANNELS > 0 and blocks > 1))
    return Lowered(func, io.constants, instructions=rows * (blocks * block + 8) + tail_instructions(layer), code=code)


for _anchor in ("nn.dense", "nn.conv2d"):
    register_planned("arm_dsp.dense_16x8", _anchor, plan, lower, plevel=30)
