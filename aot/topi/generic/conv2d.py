"""Direct convolution: one or two output pixels by four channels, the taps inside the image only.

Where there is padding, data is read as x - pad_value, so that a tap outside contributes nothing and can be left out; the bias is
corrected by pad_value * sum(w) for that.  With a horizontal dilation of 1 the taps of a kernel row are one run of bytes.
"""

from __future__ import annotations

from dataclasses import replace

from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Imm, cast, imm, minimum
from aot.topi.generic.estimate import TapLoops, taps_inside, total
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
from aot.topi.generic.window import TapRange, tap_range
from aot.topi.layer.fused import EVERY_KIND, FusedLayer, describe, match_layer
from aot.topi.layer.stream import ChannelBlock, ChannelStream
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


def remove_padding_value(layer: FusedLayer) -> tuple[FusedLayer, int]:
    """The layer with its bias for data read as x - offset, and that offset (0 without padding)."""
    offset = layer.attrs.pad_value if any(layer.attrs.padding) else 0
    axes = (0, 1) if layer.weight.ndim == 3 else (1, 2, 3)
    return replace(layer, bias=layer.bias + offset * layer.weight.sum(axis=axes)), offset


def lower(group: Group, target: Target, name: str) -> Lowered:
    matched = match_layer(group, EVERY_KIND)
    assert matched is not None
    layer, offset = remove_padding_value(matched)
    batch, out_height, out_width, _ = layer.out_type.shape
    top, left, bottom, right = layer.attrs.padding
    pixels = 1 if left or right or layer.attrs.dilation[1] > 1 else min(2, out_width)
    stream = make_stream(layer, target, block=4)
    b = IRBuilder(name)
    shape = layer.data_type.shape
    buffers = open_layer(b, group, layer, stream, data_shape=shape, out_shape=layer.out_type.shape)
    _, kh, kw, _ = layer.weight.shape
    (sy, sx), (dy, dx) = layer.attrs.strides, layer.attrs.dilation
    with b.for_("i", batch) as i, b.for_("y", out_height) as y:
        rows = tap_range(b, y, size=shape[1], taps=kh, stride=sy, dilation=dy, before=top, after=bottom)
        with b.for_("x", (out_width + pixels - 1) // pixels) as tile:
            x = b.let("column", minimum(tile * pixels, out_width - pixels)) if out_width % pixels else tile * pixels
            columns = tap_range(b, x, size=shape[2], taps=kw, stride=sx, dilation=dx, before=left, after=right)
            tap = _Taps(layer, i, rows, columns, offset=offset, pixels=pixels)
            channel_blocks(b, stream, lambda block: tap.block(b, buffers, stream, block, y=y, x=x))
    kernel = describe("generic.conv2d", pixels=pixels, channels=stream.block)
    code = 620 + 240 * bool(stream.tail)
    cost = Cost(total(_loops(layer, pixels), block_sizes(stream)), v6m=5.4)
    return finish(b, buffers, layer, target, kernel=kernel, cost=cost, code=code)


def _loops(layer: FusedLayer, pixels: int) -> TapLoops:
    """How often the loops of a block of channels run."""
    attrs, (_, height, width, depth) = layer.attrs, layer.data_type.shape
    batch, out_height, out_width, _ = layer.out_type.shape
    _, kh, kw, _ = layer.weight.shape
    (sy, sx), (dy, dx), (top, left, _, right) = attrs.strides, attrs.dilation, attrs.padding
    columns = -(-out_width // pixels)
    lines = batch * taps_inside(out_height, size=height, taps=kh, stride=sy, dilation=dy, before=top)
    places = taps_inside(out_width, size=width, taps=kw, stride=sx, dilation=dx, before=left) if pixels == 1 else columns * kw
    run = kw * depth if dx == 1 else depth
    ranged = bool(left or right)
    unroll = unroll_factor(depth if ranged else run)
    return TapLoops(
        tiles=batch * out_height * columns, pixels=pixels, runs=lines * (columns if dx == 1 else places),
        taps=lines * places * depth, unroll=unroll, offset=bool(any(attrs.padding) and attrs.pad_value), ranged=ranged,
        straight=not ranged and run == unroll, apart=sx * depth if pixels == 2 and sx < kw else 0,
    )  # fmt: skip


class _Taps:
    """The accumulation of one output tile: where its taps are, and the loops over them."""

    def __init__(self, layer: FusedLayer, image: Expr, rows: TapRange, columns: TapRange, *, offset: int, pixels: int) -> None:
        self.layer, self.image, self.rows, self.columns = layer, image, rows, columns
        self.offset, self.pixels = offset, pixels

    def block(self, b: IRBuilder, buffers: LayerBuffers, stream: ChannelStream, block: ChannelBlock, *, y: Expr, x: Expr) -> None:
        acc = accumulators(b, self.layer, (self.pixels, block.count))
        for p in range(self.pixels):
            for j in range(block.count):
                b.store(acc, (p, j), stream.bias(buffers.params, block, j))
        _, _, kw, depth = self.layer.weight.shape
        _, height, width, _ = self.layer.data_type.shape
        dy, dx = self.layer.attrs.dilation

        def mac(position: Expr, tap: Expr, run: Expr, step: int) -> None:
            """Accumulate `run` data values from flat `position` on with the weights from `tap` on."""
            stride = self.layer.attrs.strides[1] * depth
            with b.for_("k", run, step=step) as k:
                for u in range(step):
                    xs = []
                    for p in range(self.pixels):
                        value = buffers.data.load(buffers.data.dtype, position + (p * stride) + k + u)
                        xs.append(b.let("x", cast("int32", value) - self.offset))
                    for j in range(block.count):
                        w = b.let("w", stream.weight(buffers.params, block, tap + k + u, j))
                        for p, v in enumerate(xs):
                            b.store(acc, (p, j), acc[p, j] + product(acc, v, w))

        with b.for_("ky", self.rows.last, start=self.rows.first) as ky:
            line = b.let("line", (self.image * height + self.rows.at(ky, dy)) * width + self.columns.origin)
            if dx == 1:
                first = self.columns.first
                run = (self.columns.last - first) * depth
                mac((line + first) * depth, (ky * kw + first) * depth, run, unroll_factor(_run_unit(run, depth)))
            else:
                with b.for_("kx", self.columns.last, start=self.columns.first) as kx:
                    mac((line + kx * dx) * depth, (ky * kw + kx) * depth, imm(depth), unroll_factor(depth))
        for p in range(self.pixels):
            for j in range(block.count):
                fields = stream.fields(buffers.params, block, j)
                buffers.store((self.image, y, x + p, block.first + j), acc[p, j], fields)


def _run_unit(run: Expr, depth: int) -> int:
    """A number that divides every length that `run` can take."""
    return int(run.value) if isinstance(run, Imm) else depth


register_impl(OpImplementation("generic.conv2d", "nn.conv2d", accepts_layer, lower, plevel=0))
