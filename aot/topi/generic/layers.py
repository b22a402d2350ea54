"""Convolutions and fully connected layers in plain C: a few pixels by a block of channels at a time.

This is the portable path.  Accumulators of a tile stay in registers, so each loaded weight serves all pixels and each loaded
datum all channels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.relay.expr import tensor_type
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Imm, binop, cast, imm, minimum
from aot.topi.generic.flat import FlatKernel, register_flat
from aot.topi.layer.fused import EVERY_KIND, FusedLayer, epilogue_instructions, lowered, match_layer, open_io, supports_epilogue
from aot.topi.layer.im2col import TapRange, axes, is_rows
from aot.topi.layer.planes import block_sizes, channel_blocks
from aot.topi.layer.requant import Requant, plan_requantize
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

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


def total(loops: TapLoops, blocks: Iterable[int]) -> float:
    """Instructions for all blocks of channels, given the number of channels of each."""
    return sum(loops.instructions(n) for n in blocks)


# Tiles: accumulators of some pixels by a block of channels, from the biases to the stored results.


def accepts_layer(group: Group, _target: Target) -> bool:
    """Any layer whose epilogue can be read at the output's index."""
    layer = match_layer(group, EVERY_KIND)
    return layer is not None and supports_epilogue(layer)


def view(group: Group) -> FusedLayer:
    """The layer of an accepted group."""
    layer = match_layer(group, EVERY_KIND)
    assert layer is not None
    return layer


class Tiles:
    """A layer's function under construction: its buffers, and the stream of its constants."""

    def __init__(
        self, group: Group, name: str, layer: FusedLayer, target: Target, *, block: int, rows: tuple[int, int] | None = None
    ) -> None:
        """`block`: channels of a block; `rows`: the shape of the data if they are rows, also of the result."""
        self.b, self.layer, self._target, self.stream = IRBuilder(name), layer, target, make_stream(layer, target, block=block)
        out_shape = layer.out_type.shape if rows is None else (rows[0], layer.channels)
        self._io = open_io(self.b, group, layer, data_shape=rows or layer.data_type.shape, out_shape=out_shape)
        self._params = self._io.constant("params", self.stream.data(), "int8")
        self.data = self._io.data

    def blocks(self) -> Iterator[ChannelBlock]:
        """One loop over the full blocks, then the smaller last one."""
        stream, size = self.stream, self.stream.block_bytes(self.stream.block)
        for n, count in channel_blocks(self.b, stream.channels, stream.block, one=True):
            yield ChannelBlock(n * stream.block, count, n * size)

    @contextmanager
    def sums(self, block: ChannelBlock, *pixels: tuple[Expr, ...], flat: bool = False) -> Iterator[Buffer]:
        """Accumulators [pixel, channel] (`flat`: [channel] of one pixel), 64 bits wide only if a sum may exceed 32; afterwards
        requantise, run the epilogue and store at the pixels' indices.
        """
        b, n = self.b, block.count
        shape = (n,) if flat else (len(pixels), n)
        acc = b.local("acc", shape, tensor_type(self.layer.anchor).dtype)
        places = [(p, j, (j,) if flat else (p, j)) for p in range(len(pixels)) for j in range(n)]
        for _, j, at in places:
            b.store(acc, at, self.stream.bias(self._params, block, j))
        yield acc
        for p, j, at in places:
            requant_params = self.stream.requant_params(self._params, block, j)
            self._io.store((*pixels[p], block.first + j), self.stream.requant.emit(b, acc[at], requant_params))

    def weight(self, block: ChannelBlock, tap: Expr, j: int) -> Expr:
        return self.stream.weight(self._params, block, tap, j)

    def add(self, acc: Buffer, block: ChannelBlock, tap: Expr, values: Sequence[Expr]) -> None:
        """Add the products of a tap: one value per pixel."""
        for j in range(block.count):
            w = self.b.let("w", self.weight(block, tap, j))
            for p, x in enumerate(values):
                self.b.store(acc, (p, j), acc[p, j] + product(acc, x, w))

    @property
    def block_sizes(self) -> list[int]:
        return block_sizes(self.stream.channels, self.stream.block)

    def finish(self, kernel: str, instructions: float, code: int, *, v6m: float, **schedule: int) -> Lowered:
        """End the function. `instructions`: total without the epilogue; on Armv6-M it is `v6m` per multiply-accumulate."""
        layer = self.layer
        more = NOT_INT8 * (layer.data_type.dtype != "int8" or layer.weight_dtype != "int8")
        if self._target.has("v6m"):
            price = int((v6m + more) * layer.macs + REQUANTISE_V6M * layer.out_type.size)
        else:
            price = int(instructions + more * layer.macs)
        return lowered(self._io, layer, kernel, price + epilogue_instructions(layer), code, **schedule)


def make_stream(layer: FusedLayer, target: Target, *, block: int) -> ChannelStream:
    """The stream of a layer whose weights are [O, ...] or, for depthwise, [KH, KW, O]."""
    requant = plan_requantize(layer.requant, layer.acc_low, layer.acc_high, target)
    weights = layer.weight
    matrix = weights.reshape(-1, layer.channels) if weights.ndim == 3 else weights.reshape(layer.channels, -1).T
    zp = layer.anchor.attrs.weight_zp
    stored = WeightFormat(layer.weight_dtype, 0 if matrix.min() >= -128 and matrix.max() <= 127 else zp)
    return ChannelStream(matrix, layer.bias, requant, block=block, stored=stored)


def product(acc: Buffer, x: Expr, w: Expr) -> Expr:
    """x*w in the accumulators' type."""
    return cast(acc.dtype, x) * cast(acc.dtype, w)


NOT_INT8 = 0.75
"""Further instructions per multiply-accumulate for 16-bit data or packed weights."""

REQUANTISE_V6M = 55
"""Instructions per result on Armv6-M, including its store, with 64-bit products in software."""


def unroll_factor(depth: int) -> int:
    """The largest power of two up to 4 that divides `depth`."""
    return next(u for u in (4, 2, 1) if depth % u == 0)


# Direct convolution: one or two output pixels by four channels; only the taps inside the image are computed.
#
# With padding, data are read as x - pad_value, so that taps outside of the image contribute nothing and can be left out; the bias
# is corrected by pad_value * sum(w).  Without horizontal dilation, the taps of a kernel row are one run of bytes.


def remove_padding_value(layer: FusedLayer) -> tuple[FusedLayer, int]:
    """The layer with its bias for data read as x - offset, and that offset (0 without padding)."""
    offset = layer.attrs.pad_value if any(layer.attrs.padding) else 0
    sums = layer.weight.sum(axis=(0, 1) if layer.weight.ndim == 3 else (1, 2, 3))
    return replace(layer, bias=layer.bias + offset * sums), offset


def lower_conv2d(group: Group, target: Target, name: str) -> Lowered:
    layer, offset = remove_padding_value(view(group))
    batch, out_height, out_width, _ = layer.out_type.shape
    _, left, bottom, right = layer.attrs.padding
    pixels = 1 if left or right or layer.attrs.dilation[1] > 1 else min(2, out_width)
    tiles = Tiles(group, name, layer, target, block=4)
    b, (down, along) = tiles.b, axes(layer)
    with b.for_("i", batch) as i, b.for_("y", out_height) as y:
        rows = down.taps_at(b, y, after=bottom)
        with b.for_("x", (out_width + pixels - 1) // pixels) as tile:
            x = b.let("column", minimum(tile * pixels, out_width - pixels)) if out_width % pixels else tile * pixels
            columns = along.taps_at(b, x, after=right)
            for block in tiles.blocks():
                with tiles.sums(block, *((i, y, x + p) for p in range(pixels))) as acc:
                    _accumulate(tiles, acc, block, rows, columns, image=i, offset=offset)
    code = 620 + 240 * bool(tiles.stream.remainder)
    instructions = total(_loops(layer, pixels), tiles.block_sizes)
    return tiles.finish("generic.conv2d", instructions, code, v6m=5.4, pixels=pixels, channels=tiles.stream.block)


def _accumulate(
    tiles: Tiles, acc: Buffer, block: ChannelBlock, rows: TapRange, columns: TapRange, *, image: Expr, offset: int
) -> None:
    """The loops over the taps of a tile."""
    b, data, (dy, dx) = tiles.b, tiles.data, tiles.layer.attrs.dilation
    _, _, kw, depth = tiles.layer.weight.shape
    _, height, width, _ = tiles.layer.data_type.shape
    stride = tiles.layer.attrs.strides[1] * depth

    def run(position: Expr, tap: Expr, length: Expr) -> None:
        """`length` data values, from flat `position` on, with the weights from `tap` on."""
        step = unroll_factor(int(length.value) if isinstance(length, Imm) else depth)
        with b.for_("k", length, step=step) as k:
            for u in range(step):
                loads = (data.load(data.dtype, position + (p * stride) + k + u) for p in range(acc.shape[0]))
                tiles.add(acc, block, tap + k + u, [b.let("x", cast("int32", value) - offset) for value in loads])

    with b.for_("ky", rows.last, start=rows.first) as ky:
        line = b.let("line", (image * height + rows.at(ky, dy)) * width + columns.origin)
        if dx == 1:
            first = columns.first
            run((line + first) * depth, (ky * kw + first) * depth, (columns.last - first) * depth)
        else:
            with b.for_("kx", columns.last, start=columns.first) as kx:
                run((line + kx * dx) * depth, (ky * kw + kx) * depth, imm(depth))


def _loops(layer: FusedLayer, pixels: int) -> TapLoops:
    """How often the loops of a block of channels run."""
    attrs, depth, (down, along) = layer.attrs, layer.data_type.shape[-1], axes(layer)
    batch, out_height, out_width, _ = layer.out_type.shape
    kw, sx, dx = along.taps, along.stride, along.dilation
    columns = -(-out_width // pixels)
    lines, places = batch * down.taps_inside, along.taps_inside if pixels == 1 else columns * kw
    run = kw * depth if dx == 1 else depth
    ranged = bool(attrs.padding[1] or attrs.padding[3])
    unroll = unroll_factor(depth if ranged else run)
    return TapLoops(
        tiles=batch * out_height * columns, pixels=pixels, runs=lines * (columns if dx == 1 else places),
        taps=lines * places * depth, unroll=unroll, offset=bool(any(attrs.padding) and attrs.pad_value), ranged=ranged,
        straight=not ranged and run == unroll, apart=sx * depth if pixels == 2 and sx < kw else 0,
    )  # fmt: skip


register_impl(OpImplementation("generic.conv2d", "nn.conv2d", accepts_layer, lower_conv2d, plevel=0))


# Depthwise convolution: up to four channels of one output pixel at a time; only the taps inside the image (see above).


def block_size(multiplier: int) -> int:
    """Output channels of a block: either all from different data channels, or all from the same one."""
    return 4 if multiplier == 1 else max(d for d in (1, 2, 3, 4) if multiplier % d == 0)


def lower_depthwise(group: Group, target: Target, name: str) -> Lowered:
    layer, offset = remove_padding_value(view(group))
    multiplier = layer.attrs.multiplier
    tiles = Tiles(group, name, layer, target, block=block_size(multiplier))
    batch, out_height, out_width, _ = layer.out_type.shape
    b, data, (down, along) = tiles.b, tiles.data, axes(layer)
    height, width, depth, (_, _, bottom, right) = down.size, along.size, layer.data_type.shape[-1], layer.attrs.padding
    with b.for_("i", batch) as i, b.for_("y", out_height) as y:
        rows = down.taps_at(b, y, after=bottom)
        with b.for_("x", out_width) as x:
            columns = along.taps_at(b, x, after=right)
            for block in tiles.blocks():
                with tiles.sums(block, (i, y, x), flat=True) as acc, b.for_("ky", rows.last, start=rows.first) as ky:
                    line = b.let("line", (i * height + rows.at(ky, down.dilation)) * width + columns.origin)
                    with b.for_("kx", columns.last, start=columns.first) as kx:
                        pixel = b.let("pixel", (line + kx * along.dilation) * depth + block.first // multiplier)
                        for j in range(block.count):
                            if j == 0 or multiplier == 1:
                                value = b.let("x", cast("int32", data.load(data.dtype, pixel + j)) - offset)
                            w = tiles.weight(block, ky * along.taps + kx, j)
                            b.store(acc, j, acc[j] + product(acc, value, w))
    taps, pixels = batch * down.taps_inside * along.taps_inside, batch * out_height * out_width
    instructions = channel_instructions(taps, pixels, tiles.block_sizes, offset=bool(offset))
    code = 560 + 200 * bool(tiles.stream.remainder)
    return tiles.finish("generic.depthwise_conv2d", instructions, code, v6m=15.0, channels=tiles.stream.block)


register_impl(OpImplementation("generic.depthwise_conv2d", "nn.depthwise_conv2d", accepts_layer, lower_depthwise, plevel=0))


# Fully connected layers and pointwise convolutions: a matrix product [M, K] x [K, O], a few rows by a few channels at a time.


EPILOGUE_CODE = 360
"""Bytes of code of an element-wise call of the epilogue, inlined for each result of a block."""


def accepts_pointwise(group: Group, target: Target) -> bool:
    """1x1 kernels with stride 1 and without padding: pixels are rows."""
    return accepts_layer(group, target) and is_rows(view(group))


def lower_dense(group: Group, target: Target, name: str) -> Lowered:
    layer = view(group)
    rows, depth = prod(layer.data_type.shape[:-1]), layer.data_type.shape[-1]
    pixels, step = min(2, rows), unroll_factor(depth)
    tiles = Tiles(group, name, layer, target, block=4, rows=(rows, depth))
    b, count = tiles.b, -(-rows // pixels)
    with b.for_("m", count) as tile:
        # The last tile starts early enough to be whole; rows that it shares with the tile before are computed twice.
        first = b.let("row", minimum(tile * pixels, rows - pixels)) if rows % pixels else tile * pixels
        for block in tiles.blocks():
            with tiles.sums(block, *((first + p,) for p in range(pixels))) as acc, b.for_("k", depth, step=step) as k:
                for u in range(step):
                    loads = (tiles.data[first + p, k + u] for p in range(pixels))
                    tiles.add(acc, block, k + u, [b.let("x", cast("int32", value)) for value in loads])
    alone = layer.weight.ndim == 2
    code = (520 if alone else 640) + 220 * bool(tiles.stream.remainder) + EPILOGUE_CODE * len(layer.epilogue)
    straight = depth == step
    loops = TapLoops(count, pixels, count if straight else 0, count * depth, step, straight=straight, near=True)
    kernel, v6m = "generic.dense" if alone else "generic.pointwise", 8.2 if pixels == 2 else 5.6
    instructions = total(loops, tiles.block_sizes)
    return tiles.finish(kernel, instructions, code, v6m=v6m, rows=pixels, channels=tiles.stream.block)


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
