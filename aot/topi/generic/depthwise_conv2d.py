"""Depthwise convolution: up to four channels of one output pixel at a time, the taps inside the image only (see conv2d)."""

from __future__ import annotations

from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast
from aot.topi.generic.conv2d import remove_padding_value
from aot.topi.generic.estimate import channel_instructions, taps_inside
from aot.topi.generic.layer import (
    Cost,
    accepts_layer,
    accumulators,
    block_sizes,
    channel_blocks,
    finish,
    make_stream,
    open_layer,
    product,
)
from aot.topi.generic.window import tap_range
from aot.topi.layer.fused import EVERY_KIND, describe, match_layer
from aot.topi.layer.stream import ChannelBlock
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


def block_size(multiplier: int) -> int:
    """Output channels of a block: all of different data channels, or all of the same one."""
    return 4 if multiplier == 1 else max(d for d in (1, 2, 3, 4) if multiplier % d == 0)


def lower(group: Group, target: Target, name: str) -> Lowered:
    matched = match_layer(group, EVERY_KIND)
    assert matched is not None
    layer, offset = remove_padding_value(matched)
    multiplier = layer.attrs.multiplier
    stream = make_stream(layer, target, block=block_size(multiplier))
    batch, out_height, out_width, _ = layer.out_type.shape
    _, height, width, depth = layer.data_type.shape
    kh, kw, _ = layer.weight.shape
    (sy, sx), (dy, dx), (top, left, bottom, right) = layer.attrs.strides, layer.attrs.dilation, layer.attrs.padding
    b = IRBuilder(name)
    buffers = open_layer(b, group, layer, stream, data_shape=layer.data_type.shape, out_shape=layer.out_type.shape)
    with b.for_("i", batch) as i, b.for_("y", out_height) as y:
        rows = tap_range(b, y, size=height, taps=kh, stride=sy, dilation=dy, before=top, after=bottom)
        with b.for_("x", out_width) as x:
            columns = tap_range(b, x, size=width, taps=kw, stride=sx, dilation=dx, before=left, after=right)

            def body(block: ChannelBlock) -> None:
                acc = accumulators(b, layer, (block.count,))
                for j in range(block.count):
                    b.store(acc, j, stream.bias(buffers.params, block, j))
                channel = block.first // multiplier
                with b.for_("ky", rows.last, start=rows.first) as ky:
                    line = b.let("line", (i * height + rows.at(ky, dy)) * width + columns.origin)
                    with b.for_("kx", columns.last, start=columns.first) as kx:
                        pixel = b.let("pixel", (line + kx * dx) * depth + channel)
                        values: list[Expr] = []
                        for j in range(block.count):
                            if j == 0 or multiplier == 1:
                                value = buffers.data.load(buffers.data.dtype, pixel + (j if multiplier == 1 else 0))
                                values.append(b.let("x", cast("int32", value) - offset))
                            w = stream.weight(buffers.params, block, ky * kw + kx, j)
                            b.store(acc, j, acc[j] + product(acc, values[-1], w))
                for j in range(block.count):
                    buffers.store((i, y, x, block.first + j), acc[j], stream.fields(buffers.params, block, j))

            channel_blocks(b, stream, body)
    kernel = describe("generic.depthwise_conv2d", channels=stream.block)
    lines = batch * taps_inside(out_height, size=height, taps=kh, stride=sy, dilation=dy, before=top)
    taps = lines * taps_inside(out_width, size=width, taps=kw, stride=sx, dilation=dx, before=left)
    pixels = batch * out_height * out_width
    cost = Cost(channel_instructions(taps, pixels, block_sizes(stream), offset=bool(offset)), v6m=15.0)
    return finish(b, buffers, layer, target, kernel=kernel, cost=cost, code=560 + 200 * bool(stream.tail))


register_impl(OpImplementation("generic.depthwise_conv2d", "nn.depthwise_conv2d", accepts_layer, lower, plevel=0))
