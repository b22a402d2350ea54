"""Convolutions and fully connected layers in plain C: a few pixels by a block of channels at a time.

This is the portable path; it also provides the parts that other generic kernels share.  Accumulators of a tile stay in registers,
so each loaded weight serves all pixels and each loaded datum all channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.op.common.te_rule import TeContext
from aot.relay.expr import tensor_type
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Imm, binop, cast, imm, maximum, minimum
from aot.tir.function import FuncAttrs
from aot.topi.generic.flat import FlatKernel, register_flat
from aot.topi.layer.fused import EVERY_KIND, FusedLayer, describe, epilogue_instructions, match_layer, open_io, supports_epilogue
from aot.topi.layer.requant import Requant, plan_requantize
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


@dataclass(frozen=True, slots=True)
class TapRange:
    """Taps [first, last) of one axis; tap t reads coordinate origin + t * dilation."""

    origin: Expr
    first: Expr
    last: Expr

    def at(self, tap: Expr, dilation: int) -> Expr:
        return self.origin + tap * dilation


def tap_range(
    b: IRBuilder, position: Expr, *, size: int, taps: int, stride: int, dilation: int, before: int, after: int
) -> TapRange:
    """The taps inside an axis of `size` at output `position`; all of them if there is no padding."""
    origin = position * stride - before
    first: Expr = imm(0)
    last: Expr = imm(taps)
    if before or after:
        origin = b.let("origin", origin)
    if before:
        first = b.let("first", (maximum(0 - origin, 0) + (dilation - 1)) // dilation)
    if after:
        last = b.let("last", minimum((size - origin + (dilation - 1)) // dilation, taps))
    return TapRange(origin, first, last)


# The cost of the generic kernels on larger cores: how often each loop runs, times the instructions of one iteration.
#
# The numbers are instructions counted under QEMU, for the code that GCC generates.


RESULT = 14.5
"""Per result: bias, requantisation and store."""

RUN = 11.0
"""Per run of taps: its start."""

RANGED = 8.0
"""Further instructions per run if its start and end depend on the pixel."""

NEAR = 6.0
"""Saved per run if runs are contiguous, so that there is no window to find."""

STEP = 4.0
"""Per step within a run."""

MANY = 8
"""Accumulators in a loop that leave too few registers for everything else."""

SPILLED = 3.8
"""Per tap, with that many accumulators."""

SHARED = 5.0
"""Per tap if GCC keeps data of one pixel for the next; in memory, as registers run out."""

LEAVES_FAR = 2
"""Most steps over which GCC keeps them."""

CHANNEL, CHANNEL_ALONE = 1.7, 1.5
"""Per load and product of one channel's tap in a depthwise convolution, including the loop over taps and spilled addresses; then
the same if all channels are one block.
"""


@dataclass(frozen=True, slots=True)
class TapLoops:
    """The loops of one block of channels over all `tiles` tiles of `pixels` pixels: `runs` runs with `taps` taps in total,
    `unroll` taps per step.

    `offset`: a number is subtracted from the data; `ranged`: start and end of a run depend on the pixel; `straight`: a run is one
    step; `near`: runs are contiguous; `apart`: distance, in taps, of neighbouring pixels' data within a run, 0 if they share
    none.
    """

    tiles: int
    pixels: int
    runs: int
    taps: int
    unroll: int
    offset: bool = False
    ranged: bool = False
    straight: bool = False
    near: bool = False
    apart: int = 0

    def instructions(self, channels: int) -> float:
        """Instructions for one block of `channels` channels."""
        results = self.pixels * channels
        each: float = self.pixels + channels + results + self.pixels * self.offset
        if not self.straight:
            shared = 0 < self.apart <= LEAVES_FAR * self.unroll
            each += STEP / self.unroll + SPILLED * (results >= MANY) + SHARED * shared
        return self.taps * each + self.runs * (RUN + RANGED * self.ranged - NEAR * self.near) + self.tiles * results * RESULT


def channel_instructions(taps: int, pixels: int, blocks: Sequence[int], *, offset: bool) -> float:
    """Instructions for all blocks of a depthwise convolution whose pixels have `taps` taps in total."""
    each = (CHANNEL if len(blocks) > 1 else CHANNEL_ALONE) * (3 + offset)
    return sum(blocks) * (each * taps + RESULT * pixels)


def taps_inside(count: int, *, size: int, taps: int, stride: int, dilation: int, before: int) -> int:
    """Number of taps inside an axis, summed over all `count` output positions."""
    return sum(0 <= i * stride - before + t * dilation < size for i in range(count) for t in range(taps))


def total(loops: TapLoops, blocks: Iterable[int]) -> float:
    """Instructions for all blocks of channels, given the number of channels of each."""
    return sum(loops.instructions(n) for n in blocks)


# Shared by the generic kernels of convolutions and fully connected layers: channel blocks, accumulators, epilogue.


def accepts_layer(group: Group, _target: Target) -> bool:
    """Any layer whose epilogue can be read at the output's index."""
    layer = match_layer(group, EVERY_KIND)
    return layer is not None and supports_epilogue(layer)


@dataclass(frozen=True, slots=True)
class LayerBuffers:
    """The parameters of a layer's PrimFunc, and how its results are finished and stored."""

    data: Buffer
    out: Buffer
    params: Buffer
    ctx: TeContext
    store: Callable[[tuple[Expr, ...], Expr, tuple[Expr, ...]], None]
    """(output indices, accumulator, requantisation parameters): requantise, run the epilogue, store."""


def open_layer(
    b: IRBuilder,
    group: Group,
    layer: FusedLayer,
    stream: ChannelStream,
    *,
    data_shape: tuple[int, ...],
    out_shape: tuple[int, ...],
) -> LayerBuffers:
    """Declare the buffers of a layer that reads its numbers from `stream`."""
    io = open_io(b, group, layer, data_shape=data_shape, out_shape=out_shape)
    params = io.constant("params", stream.data(), "int8")

    def store(indices: tuple[Expr, ...], acc: Expr, requant_params: tuple[Expr, ...]) -> None:
        io.store(indices, stream.requant.emit(b, acc, requant_params))

    return LayerBuffers(io.data, io.out, params, io.ctx, store)


def make_stream(layer: FusedLayer, target: Target, *, block: int) -> ChannelStream:
    """The stream of a layer whose weights are [O, ...] or, for depthwise, [KH, KW, O]."""
    requant = plan_requantize(layer.requant, layer.acc_low, layer.acc_high, target)
    weights = layer.weight
    depthwise = weights.shape[-1] == layer.channels and layer.anchor.op.name == "nn.depthwise_conv2d"  # type: ignore[union-attr]
    matrix = weights.reshape(-1, layer.channels) if depthwise else weights.reshape(layer.channels, -1).T
    zp = layer.anchor.attrs.weight_zp
    stored = WeightFormat(layer.weight_dtype, 0 if matrix.min() >= -128 and matrix.max() <= 127 else zp)
    return ChannelStream(matrix, layer.bias, requant, block=block, stored=stored)


def accumulators(b: IRBuilder, layer: FusedLayer, shape: tuple[int, ...]) -> Buffer:
    """Registers for sums; 64 bits wide only if a sum may exceed 32."""
    return b.local("acc", shape, tensor_type(layer.anchor).dtype)


def product(acc: Buffer, x: Expr, w: Expr) -> Expr:
    """x*w in the accumulators' type."""
    return cast(acc.dtype, x) * cast(acc.dtype, w)


def channel_blocks(b: IRBuilder, stream: ChannelStream, body: Callable[[ChannelBlock], None]) -> None:
    """Run `body` for each block: one loop over the full blocks, then the smaller last one."""
    size = stream.block_bytes(stream.block)
    if stream.full_blocks == 1:
        body(ChannelBlock(imm(0), stream.block, imm(0)))
    else:
        with b.for_("n", stream.full_blocks) as n:
            body(ChannelBlock(n * stream.block, stream.block, n * size))
    if stream.remainder:
        body(ChannelBlock(imm(stream.full_blocks * stream.block), stream.remainder, imm(stream.full_blocks * size)))


NOT_INT8 = 0.75
"""Further instructions per multiply-accumulate for 16-bit data or packed weights."""

REQUANTISE_V6M = 55
"""Instructions per result on Armv6-M, including its store, with 64-bit products in software."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Instructions without the epilogue: total on larger cores; per multiply-accumulate on Armv6-M."""

    thumb2: float
    v6m: float

    def on(self, target: Target, layer: FusedLayer) -> int:
        """Instructions of the layer on a target."""
        more = NOT_INT8 * (layer.data_type.dtype != "int8" or layer.weight_dtype != "int8")
        if target.has("v6m"):
            return int((self.v6m + more) * layer.macs + REQUANTISE_V6M * layer.out_type.size) + epilogue_instructions(layer)
        return int(self.thumb2 + more * layer.macs) + epilogue_instructions(layer)


def block_sizes(stream: ChannelStream) -> list[int]:
    """Channels of each block."""
    return [stream.block] * stream.full_blocks + [stream.remainder] * bool(stream.remainder)


def finish(
    b: IRBuilder, buffers: LayerBuffers, layer: FusedLayer, target: Target, *, kernel: str, cost: Cost, code: int
) -> Lowered:
    """The kernel that the builder holds, with its constants."""
    func = b.finish(FuncAttrs(kernel=kernel, span=layer.span, macs=layer.macs))
    return Lowered(func, dict(buffers.ctx.constants), cost.on(target, layer), code)


def unroll_factor(depth: int, *, limit: int = 4) -> int:
    """The largest power of two up to `limit` that divides `depth`."""
    factor = limit
    while depth % factor:
        factor //= 2
    return factor


# Direct convolution: one or two output pixels by four channels; only the taps inside the image are computed.
#
# With padding, data are read as x - pad_value, so that taps outside of the image contribute nothing and can be left out; the bias
# is corrected by pad_value * sum(w).  Without horizontal dilation, the taps of a kernel row are one run of bytes.


def remove_padding_value(layer: FusedLayer) -> tuple[FusedLayer, int]:
    """The layer with its bias for data read as x - offset, and that offset (0 without padding)."""
    offset = layer.attrs.pad_value if any(layer.attrs.padding) else 0
    axes = (0, 1) if layer.weight.ndim == 3 else (1, 2, 3)
    return replace(layer, bias=layer.bias + offset * layer.weight.sum(axis=axes)), offset


def lower_conv2d(group: Group, target: Target, name: str) -> Lowered:
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
    code = 620 + 240 * bool(stream.remainder)
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
            """Accumulate `run` data values, from flat `position` on, with the weights from `tap` on."""
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
                requant_params = stream.requant_params(buffers.params, block, j)
                buffers.store((self.image, y, x + p, block.first + j), acc[p, j], requant_params)


def _run_unit(run: Expr, depth: int) -> int:
    """A number that divides every possible value of `run`."""
    return int(run.value) if isinstance(run, Imm) else depth


register_impl(OpImplementation("generic.conv2d", "nn.conv2d", accepts_layer, lower_conv2d, plevel=0))


# Depthwise convolution: up to four channels of one output pixel at a time; only the taps inside the image (see above).


def block_size(multiplier: int) -> int:
    """Output channels of a block: either all from different data channels, or all from the same one."""
    return 4 if multiplier == 1 else max(d for d in (1, 2, 3, 4) if multiplier % d == 0)


def lower_depthwise(group: Group, target: Target, name: str) -> Lowered:
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
                    buffers.store((i, y, x, block.first + j), acc[j], stream.requant_params(buffers.params, block, j))

            channel_blocks(b, stream, body)
    kernel = describe("generic.depthwise_conv2d", channels=stream.block)
    lines = batch * taps_inside(out_height, size=height, taps=kh, stride=sy, dilation=dy, before=top)
    taps = lines * taps_inside(out_width, size=width, taps=kw, stride=sx, dilation=dx, before=left)
    pixels = batch * out_height * out_width
    cost = Cost(channel_instructions(taps, pixels, block_sizes(stream), offset=bool(offset)), v6m=15.0)
    return finish(b, buffers, layer, target, kernel=kernel, cost=cost, code=560 + 200 * bool(stream.remainder))


register_impl(OpImplementation("generic.depthwise_conv2d", "nn.depthwise_conv2d", accepts_layer, lower_depthwise, plevel=0))


# Fully connected layers and pointwise convolutions: a matrix product [M, K] x [K, O], a few rows by a few channels at a time.


EPILOGUE_CODE = 360
"""Bytes of code of an element-wise call of the epilogue, inlined for each result of a block."""


def accepts_pointwise(group: Group, _target: Target) -> bool:
    """1x1 kernels with stride 1 and without padding: pixels are rows."""
    layer = match_layer(group, EVERY_KIND)
    if layer is None or not supports_epilogue(layer) or layer.weight.shape[1:3] != (1, 1):
        return False
    return layer.attrs.strides == (1, 1) and not any(layer.attrs.padding)


def lower_dense(group: Group, target: Target, name: str) -> Lowered:
    layer = match_layer(group, EVERY_KIND)
    assert layer is not None
    rows, depth = prod(layer.data_type.shape[:-1]), layer.data_type.shape[-1]
    pixels = min(2, rows)
    stream = make_stream(layer, target, block=4)
    b = IRBuilder(name)
    buffers = open_layer(b, group, layer, stream, data_shape=(rows, depth), out_shape=(rows, layer.channels))
    with b.for_("m", (rows + pixels - 1) // pixels) as tile:
        # The last tile starts early enough to be whole; rows that it shares with the tile before are computed twice.
        first = b.let("row", minimum(tile * pixels, rows - pixels)) if rows % pixels else tile * pixels
        tile_of = _Tile(layer, buffers, stream, first, pixels)
        channel_blocks(b, stream, lambda block: matrix_tile(b, tile_of, block))
    kernel = "generic.dense" if layer.weight.ndim == 2 else "generic.pointwise"
    described = describe(kernel, rows=pixels, channels=stream.block)
    code = (520 if layer.weight.ndim == 2 else 640) + 220 * bool(stream.remainder) + EPILOGUE_CODE * len(layer.epilogue)
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
    """Compute the rows of a tile for one block of channels."""
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
            buffers.store((first + p, block.first + j), acc[p, j], stream.requant_params(buffers.params, block, j))


register_impl(OpImplementation("generic.dense", "nn.dense", accepts_layer, lower_dense, plevel=0))
register_impl(OpImplementation("generic.pointwise", "nn.conv2d", accepts_pointwise, lower_dense, plevel=1))


# qnn.dense_blockwise: the two weights of a byte at a time.


@register_flat("qnn.dense_blockwise")
def lower_blockwise(kernel: FlatKernel) -> None:
    b, (data, params, weight, scales, *bias), out = kernel.b, kernel.args, kernel.out
    size = kernel.attrs.size
    rows, width = kernel.shape(0)
    outputs, blocks = out.size // rows, width // size
    with b.for_("m", rows) as m:
        zero_point = b.let("zero_point", params[m * 3 + 2])
        offset = b.let("offset", cast("int32", zero_point))
        scale = b.let("scale", params[m * 3])
        with b.for_("o", outputs) as o:
            total, weights = (b.local(n, (1,), "float32", init=0.0) for n in ("total", "weights"))
            with b.for_("block", blocks) as block:
                acc, ones = b.local("acc", (1,), "int32", init=0), b.local("ones", (1,), "int32", init=0)
                first = b.let("first", (m * blocks + block) * size)
                place = b.let("place", (o * blocks + block) * (size // 2))
                with b.for_("k", size // 2) as k:
                    byte = b.let("byte", cast("int32", weight[place + k]))
                    low = b.let("low", binop("^", byte & 15, 8) - 8)
                    high = b.let("high", binop("^", byte >> 4, 8) - 8)
                    products = cast("int32", data[first + k * 2]) * low + cast("int32", data[first + k * 2 + 1]) * high
                    b.store(acc, 0, acc[0] + products)
                    b.store(ones, 0, ones[0] + (low + high))
                factor = b.let("factor", scales[o * blocks + block])
                b.store(total, 0, total[0] + cast("float32", acc[0] + offset * ones[0]) * factor)
                b.store(weights, 0, weights[0] + factor * cast("float32", ones[0]))
            value = (total[0] - zero_point * weights[0]) * scale
            b.store(out, m * outputs + o, value + bias[0][o] if bias else value)


# The packed constants of a layer as one stream: blocks of output channels in the order of use.
#
# Bias, requantisation parameters and weights of a block are adjacent, so that one pointer reaches them all.


@dataclass(frozen=True, slots=True)
class ChannelBlock:
    """`count` channels starting with channel `first`; `offset`: bytes from the start of the stream."""

    first: Expr
    count: int
    offset: Expr


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How weights are stored in a stream: as int8, or as int4 (two per byte, the first in the low half), plus `zero_point`."""

    dtype: str = "int8"
    zero_point: int = 0

    def row_bytes(self, count: int) -> int:
        """Bytes of `count` adjacent weights."""
        return (count + 1) // 2 if self.dtype == "int4" else count

    def pack(self, weights: Array) -> Array:
        """Pack rows [K][n] into bytes."""
        stored = (weights + self.zero_point).astype(np.int8)
        if self.dtype == "int4":
            even = np.pad(stored, ((0, 0), (0, stored.shape[1] % 2))).view(np.uint8)
            stored = ((even[:, 0::2] & 15) | (even[:, 1::2] << 4)).astype(np.uint8).view(np.int8)
        return np.ascontiguousarray(stored).reshape(-1)


def _width(values: Array) -> int:
    """Bytes of the narrowest signed integer type that holds all values."""
    low, high = int(values.min()), int(values.max())
    return next((n for n in (1, 2) if -(1 << (8 * n - 1)) <= low and high < 1 << (8 * n - 1)), 4)


class ChannelStream:
    """Packs `weights` [K, O] and per-channel numbers in blocks of `block` channels; the last block is smaller if they do not
    divide.

    Layout of a block of n channels: bias [n] (low words, then high words if a bias exceeds 32 bits) and every non-uniform
    requantisation parameter [n], the widest types first; then weights [K][n] in the `stored` format; zeros up to a multiple of
    four bytes.  Every array has the narrowest of int32, int16 and int8 that holds all its numbers: loads sign-extend at no extra
    cost. Uniform parameters become immediates.
    """

    def __init__(self, weights: Array, bias: Array, requant: Requant, *, block: int, stored: WeightFormat | None = None) -> None:
        self.depth, self.channels = int(weights.shape[0]), int(weights.shape[1])
        self.block = min(block, self.channels)
        self.requant = requant
        self._stored = stored or WeightFormat()
        self._wide = bool((np.abs(bias) >= 1 << 31).any())
        biases = [(bias & 0xFFFFFFFF).astype(np.uint32).view(np.int32), bias >> 32] if self._wide else [bias]
        self._arrays = biases + [f.values for f in requant.params if not f.uniform]
        words = len(biases) if self._wide else 0  # halves of 64 bits stay words
        self._widths = [4 if i < words else _width(a) for i, a in enumerate(self._arrays)]
        self._order = sorted(range(len(self._arrays)), key=lambda i: -self._widths[i])
        self._weights = weights

    @property
    def full_blocks(self) -> int:
        return self.channels // self.block

    @property
    def remainder(self) -> int:
        """Channels of the smaller last block; 0 if there is none."""
        return self.channels % self.block

    def header_bytes(self, count: int) -> int:
        return count * sum(self._widths)

    def _column(self, params: Buffer, block: ChannelBlock, i: int, j: int) -> Expr:
        """Number j of array i of a block, as int32."""
        width = self._widths[i]
        before = block.count * sum(self._widths[k] for k in self._order[: self._order.index(i)])
        return cast("int32", params.load(f"int{8 * width}", block.offset // width + (before // width + j)))

    def block_bytes(self, count: int) -> int:
        return (self.header_bytes(count) + self.depth * self._stored.row_bytes(count) + 3) // 4 * 4

    def data(self) -> Array:
        """The stream as int8."""
        parts: list[Array] = []
        for first in range(0, self.channels, self.block):
            last = min(first + self.block, self.channels)
            for i in self._order:
                parts.append(self._arrays[i][first:last].astype(f"<i{self._widths[i]}").view(np.int8))
            weights = self._stored.pack(self._weights[:, first:last])
            parts.append(np.pad(weights, (0, -(self.header_bytes(last - first) + weights.size) % 4)))
        return np.concatenate(parts)

    def bias(self, params: Buffer, block: ChannelBlock, j: int) -> Expr:
        low = self._column(params, block, 0, j)
        if not self._wide:
            return low
        high = self._column(params, block, 1, j)
        return cast("int64", high) * (1 << 32) + cast("int64", cast("uint32", low))

    def requant_params(self, params: Buffer, block: ChannelBlock, j: int) -> tuple[Expr, ...]:
        """The requantisation parameters of channel j of a block, as loads or immediates."""
        out: list[Expr] = []
        row = 2 if self._wide else 1
        for f in self.requant.params:
            if f.uniform:
                out.append(imm(int(f.values[0])))
            else:
                out.append(self._column(params, block, row, j))
                row += 1
        return tuple(out)

    def weight(self, params: Buffer, block: ChannelBlock, k: Expr, j: int) -> Expr:
        """Weight [k][j] of a block, as int32."""
        row = self._stored.row_bytes(block.count)
        packed = self._stored.dtype == "int4"
        byte = params.load("int8", block.offset + (k * row + (self.header_bytes(block.count) + (j // 2 if packed else j))))
        value = cast("int32", byte)
        if packed:
            value = value >> 4 if j % 2 else cast("int32", cast("int8", value * 16)) >> 4
        return value - self._stored.zero_point
