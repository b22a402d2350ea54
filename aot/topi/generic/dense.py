"""Fully connected layers and pointwise convolutions: a matrix product [M, K] x [K, O], a few rows by a few channels at a time."""

from __future__ import annotations

from math import prod

from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, minimum
from aot.topi.generic.estimate import TapLoops, total
from aot.topi.generic.layer import (
    Cost,
    LayerBuffers,
    accepts_layer,
    accumulators,
    block_sizes,
    channel_blocks,
    finish,
    make_stream,
    open_layer,
    product,
    unroll_factor,
)
from aot.topi.layer.fused import EVERY_KIND, FusedLayer, describe, match_layer, tail_accepts
from aot.topi.layer.stream import ChannelBlock, ChannelStream
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

TAIL_CODE = 360
"""Bytes of an element-wise call of the tail, at each of a block's results."""


def accepts_pointwise(group: Group, _target: Target) -> bool:
    """1x1 kernels at stride 1 without padding: pixels are rows."""
    layer = match_layer(group, EVERY_KIND)
    if layer is None or not tail_accepts(layer) or layer.weight.shape[1:3] != (1, 1):
        return False
    return layer.attrs.strides == (1, 1) and not any(layer.attrs.padding)


def lower(group: Group, target: Target, name: str) -> Lowered:
    layer = match_layer(group, EVERY_KIND)
    assert layer is not None
    rows, depth = prod(layer.data_type.shape[:-1]), layer.data_type.shape[-1]
    pixels = min(2, rows)
    stream = make_stream(layer, target, block=4)
    b = IRBuilder(name)
    buffers = open_layer(b, group, layer, stream, data_shape=(rows, depth), out_shape=(rows, layer.channels))
    with b.for_("m", (rows + pixels - 1) // pixels) as tile:
        # The last tile starts early enough to be whole; the rows that it shares with the one before are computed twice.
        first = b.let("row", minimum(tile * pixels, rows - pixels)) if rows % pixels else tile * pixels
        tile_of = _Tile(layer, buffers, stream, first, pixels)
        channel_blocks(b, stream, lambda block: matrix_tile(b, tile_of, block))
    kernel = "generic.dense" if layer.weight.ndim == 2 else "generic.pointwise"
    described = describe(kernel, rows=pixels, channels=stream.block)
    code = (520 if layer.weight.ndim == 2 else 640) + 220 * bool(stream.tail) + TAIL_CODE * len(layer.tail)
    tiles, unroll = -(-rows // pixels), unroll_factor(depth)
    straight = depth == unroll
    loops = TapLoops(
        tiles, pixels, runs=tiles if straight else 0, taps=tiles * depth, unroll=unroll, straight=straight, near=True
    )
    cost = Cost(total(loops, block_sizes(stream)), v6m=8.2 if pixels == 2 else 5.6)
    return finish(b, buffers, layer, target, kernel=described, cost=cost, code=code)


@dataclass(frozen=True, slots=True)
class _Tile:
    """`pixels` rows from `first` on."""

    layer: FusedLayer
    buffers: LayerBuffers
    stream: ChannelStream
    first: Expr
    pixels: int


def matrix_tile(b: IRBuilder, tile: _Tile, block: ChannelBlock) -> None:
    """The rows of a tile by one block of channels."""
    buffers, stream, first, pixels = tile.buffers, tile.stream, tile.first, tile.pixels
    acc = accumulators(b, tile.layer, (pixels, block.count))
    for p in range(pixels):
        for j in range(block.count):
            b.store(acc, (p, j), stream.bias(buffers.params, block, j))
    step = unroll_factor(stream.depth)
    with b.for_("k", stream.depth, step=step) as k:
        for u in range(step):
            xs = [b.let("x", cast("int32", buffers.data[first + p, k + u])) for p in range(pixels)]
            for j in range(block.count):
                w = b.let("w", stream.weight(buffers.params, block, k + u, j))
                for p, x in enumerate(xs):
                    b.store(acc, (p, j), acc[p, j] + product(acc, x, w))
    for p in range(pixels):
        for j in range(block.count):
            buffers.store((first + p, block.first + j), acc[p, j], stream.fields(buffers.params, block, j))


register_impl(OpImplementation("generic.dense", "nn.dense", accepts_layer, lower, plevel=0))
register_impl(OpImplementation("generic.pointwise", "nn.conv2d", accepts_pointwise, lower, plevel=1))
