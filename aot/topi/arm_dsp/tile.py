"""Convolutions and fully connected layers with packed weights (weights.py), tile by tile, on cores with DSP instructions.

A tile is a few pixels (rows of results) by a few channels: the data of its pixels are packed once, as 16-bit numbers, and used by
all blocks of channels; weights stay packed in flash and are unpacked in registers.

`conv2d_w8`, `conv2d_w4`: three pixels x two channels, any window.  A block uses all 14 registers, so that each loaded word serves
several products.  Scratch: 6 bytes per tap of the window, with each of its rows rounded up to four bytes and the whole window to
a word of weights; with padding also one row of the window; with int4 weights three more words.

`dense_w8`, `dense_w4`: one row x four channels.  Scratch: two bytes per input of one row, rounded up to a word of weights; layers
with at most four channels and whole words of bytes pack at most `CHUNK` inputs at a time.  If several layers have the same
matrix, as the steps of an unrolled recurrent network do, it can be an array of its own (`split_weights`) that they share whatever
their biases and zero points are.

`dense_w8_direct`: one row x four channels, and the data are read in place: no scratch memory, but each block of four channels
unpacks the data again, which costs two instructions more per quad, at most a seventh.  With few channels that costs nothing, but
scratch memory is no loss either, so such layers are left to dense_w8.  `conv2d_w8_direct`: the same for any window, whose bytes
are copied first (scratch: one byte per tap).

`dense_w8_segments` is for sums beyond 2^23: the reduction is cut into segments whose sums do fit, so shifting the factor 256 away
is exact; the sums of segments are then added.  Each block of four channels runs through all segments.

`dense_hybrid` is for float32 data that were quantised to bytes at run time: the sums are converted to float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from math import prod

import numpy as np

from aot.ir.op import Array, Op
from aot.ir.type import TensorType
from aot.op.common.te_rule import F_TE, TeContext
from aot.op.qnn.quantize import HYBRID as HYBRID_OUTPUT
from aot.relay.expr import Call, Constant, is_call, tensor_type
from aot.relay.expr import Var as RelayVar
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.te.tensor import TensorFn
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm, minimum
from aot.tir.function import FuncAttrs
from aot.tir.stmt import Region
from aot.topi.arm_dsp.weights import (
    BYTES,
    COMMON_UNROLL,
    DIRECT_BYTES,
    MAX_UNROLL,
    MAX_WEIGHT,
    PRESCALE,
    TAPS,
    W4,
    W8,
    PackedWeights,
    QuadPlan,
    Weights,
    arrange,
    bias_words,
    dot_w8,
    dot_w8_direct,
    fits_bytes,
    pack_unroll,
    plan_quads,
    run_quads,
    swapped,
)
from aot.topi.layer.fused import FusedLayer, LayerIo, describe, epilogue_instructions, lowered, match_for, match_layer, open_io
from aot.topi.layer.im2col import RunBytes, RunPacker, WindowRuns, data_align, first_pixel, is_rows, match_rows, window_at
from aot.topi.layer.planes import channel_blocks, counted
from aot.topi.layer.requant import HighMultiply, plan_requantize
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl, register_planned

MAX_ROWS, CHUNK = 2, 512
"""Most pixels of dense kernels, as pointwise convolutions of more are for conv2d_w8; inputs packed at once for a single block."""

ONE_BLOCK = 12
"""Instructions saved if there is no loop over blocks."""

CHANNELS = 4
"""Channels of a block of a row."""

LEAST_CHANNELS = 3 * CHANNELS + 1
"""With fewer channels, packing costs as much as it saves."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The size of a tile and its costs.

    `word`: instructions of the block per word, and per word and channel.  The others are from counts under QEMU.  `more`: further
    instructions per block or, with one pixel, per result.  One pixel: instructions per block without and with a loop; bytes of
    code per result.  Three pixels: further instructions per other tensor of the epilogue, per tile, and, besides packing,
    per pixel of rows and of windows.
    """

    pixels: int
    channels: int
    word: tuple[int, int]
    more: int
    fixed: tuple[int, int] = (0, 0)
    store_code: int = 0
    operand: int = 0
    tile: int = 0
    row: float = 0
    window: float = 0

    def each(self, count: int) -> int:
        """Instructions of the block per word for `count` channels."""
        return self.word[0] + self.word[1] * count


TILES = {
    ("conv2d", "w8"): Tile(3, 2, (4, 7), 0, row=2.0, window=7.7),
    ("conv2d", "w4"): Tile(3, 2, (9, 16), 8, operand=16, tile=12, row=16.0, window=16.0),
    ("dense", "w8"): Tile(1, CHANNELS, (2, 3), 0, fixed=(8, 12), store_code=24),
    ("dense", "w4"): Tile(1, CHANNELS, (3, 8), 1, fixed=(9, 13), store_code=28),
}
"""By the kind of layer and the form of its weights."""

few_rows = partial(match_rows, feature="dsp", pixels=MAX_ROWS)


def accepts(group: Group, target: Target, *, kind: str, weights: Weights) -> bool:
    """Whether accumulators provably fit 32 bits and have the short requantisation; at least three pixels, or rows."""
    layer = match_for(group, target, "dsp") if kind == "conv2d" else few_rows(group, target)
    if layer is None or prod(layer.out_type.shape[:-1]) < TILES[kind, weights.name].pixels:
        return False
    return weights.form.requant(layer, target) is not None


def lower(
    group: Group, target: Target, name: str, *, kind: str, weights: Weights, common: bool = False, split_weights: bool = False
) -> Lowered:
    """Lower a layer: groups of pixels; for each, pack the data, then blocks of channels."""
    layer = match_layer(group)
    assert layer is not None
    tile, runs, rows = TILES[kind, weights.name], WindowRuns(layer), prod(layer.out_type.shape[:-1])
    plan = weights.plan(runs.count * run_quads(runs.length), cost=tile.each(tile.channels), common=common)
    stream = PackedWeights(
        weights.arrange(layer.weight.reshape(layer.channels, -1), runs.count, plan),
        layer.bias,
        weights.form.best_requant(layer, target, common=common),
        block=tile.channels,
        whole=tile.pixels > 1,
        common=common,
        lead=(rows - tile.pixels,) if common and tile.pixels > 1 else (),
        form=weights.form,
        split_weights=split_weights,
    )
    b = IRBuilder(name)
    shape = (rows * layer.channels,) if tile.pixels > 1 else (rows, layer.channels)
    io = open_io(b, group, layer, data_shape=(prod(layer.data_type.shape),), out_shape=shape)
    kernel = (_Windows if tile.pixels > 1 else _Rows)(io, layer, stream, plan, weights, tile)
    kernel.emit(rows)
    instructions = kernel.instructions(rows) + epilogue_instructions(layer)
    described = f"arm_dsp.{kind}_{weights.name}" + "_common" * common + "_apart" * split_weights
    schedule = {"channels": stream.block} if tile.pixels == 1 else {}
    return lowered(io, layer, described, instructions, kernel.code(), **schedule, unroll=plan.unroll)


class _Kernel:
    """The buffers of a kernel: its constants, and the packed data of a tile's pixels; emits the packing."""

    def __init__(
        self, io: LayerIo, layer: FusedLayer, stream: PackedWeights, plan: QuadPlan, weights: Weights, tile: Tile
    ) -> None:
        self._b, self._io, self._layer, self._stream, self._plan, self._w, self._tile = (
            io.ctx.builder, io, layer, stream, plan, weights, tile
        )  # fmt: skip
        b, pixels, self._runs = self._b, tile.pixels, WindowRuns(layer)
        self._unroll = 1 if plan.rest else 4
        self._params = io.constant("params", stream.data(), "int32")
        self._matrix = io.constant("matrix", stream.weights_data(), "int32") if stream.split_weights else None
        self._chunk = plan.quads
        whole = pixels == 1 and not weights.sums and self._runs.length == TAPS * plan.quads
        if whole and len(stream.counts) == 1 and self._runs.length > CHUNK:
            self._chunk = CHUNK // TAPS // plan.unroll * plan.unroll
        self._words = b.scratch("words", (weights.form.taps * pixels * self._chunk,), "int16", align=4)
        self._run_words = run_quads(self._runs.length) * TAPS * pixels
        self._window = None if is_rows(layer) else RunPacker(b, layer, io.data, pixels=pixels, pack=self._pack_run)
        self._sums = b.scratch("sums" if pixels > 1 else "sum", (pixels,), "int32") if weights.sums else None
        used = self._runs.count * self._run_words
        if used < self._words.shape[0] and not self._fills:
            with b.for_("z", self._words.shape[0], start=used) as z:
                b.store(self._words, z, 0)

    @property
    def _fills(self) -> bool:
        """Whether packing a run also fills up the words behind it."""
        return self._tile.pixels == 1 and self._sums is None

    def _pack(self, first: Expr) -> None:
        """Pack the pixels from number `first` on."""
        b, pixels = self._b, self._tile.pixels
        if self._sums is not None:
            for i in range(pixels):
                b.store(self._sums, i, 0)
        if self._window is not None:
            self._window.pack(first)
            return
        for p in counted(b, pixels, "p"):
            self._pack_run(p, imm(0), (self._io.data, (first + p) * self._runs.length))

    def _pack_run(self, p: Expr, n: Expr, source: tuple[Buffer, Expr]) -> None:
        """Pack run number `n` of pixel `p` from (buffer, start) on."""
        words = region(self._words, p * self._w.pixel_step + n * self._run_words)
        sums, total = None if self._sums is None else region(self._sums, p), self._plan.quads * self._fills
        pixels, unroll = self._tile.pixels, self._unroll
        self._w.pack_run(self._b, source, self._runs.length, words=words, sums=sums, pixels=pixels, total=total, unroll=unroll)

    def _start(self, bias: Expr, p: int) -> Expr:
        """Return the start value of an accumulator of pixel `p`."""
        return bias if self._sums is None else cast("int32", cast("uint32", bias) + cast("uint32", self._sums[p]))


class _Windows(_Kernel):
    """Emits groups of three pixels by pairs of channels."""

    def emit(self, rows: int) -> None:
        b, pixels, shared = self._b, self._tile.pixels, bool(self._plan.rest)
        # The common form reads this number from the stream, so that one function serves layers of all sizes.
        last: Expr = b.let("last", self._params[0]) if shared else imm(rows - pixels)
        with b.for_("t", -(-rows // pixels)) as t:
            first = first_pixel(b, self._layer, t * pixels, last=last, even=rows % pixels == 0 and not shared)
            self._pack(first)
            for n, count in self._stream.each_block(b):
                self._block(first, n, count)

    def _block(self, first: Expr, n: Expr, count: int) -> None:
        """Compute three pixels x two channels and store `count` of the channels."""
        b, stream, plan, pixels, channels = self._b, self._stream, self._plan, self._tile.pixels, self._tile.channels
        start = b.let("block", stream.start(n))
        acc = b.local("acc", (channels * pixels,), "int32")
        for j in range(channels):
            bias = b.let("bias", self._params[start + j])
            for p in range(pixels):
                b.store(acc, pixels * j + p, self._start(bias, p))
        weights = stream.weights(self._params, start, channels)
        b.block(self._w.matmul(plan.unroll, plan.rest), weights, self._words, acc, imm(stream.quads))
        at = b.let("at", first * stream.channels + n * channels)
        params_of = stream.requant_params(b, self._params, start, count=channels)
        for j in range(count):
            requant_params = params_of(j)
            for p in range(pixels):
                value = stream.requantized(b, acc[pixels * j + p], requant_params)
                self._io.store((at + (p * stream.channels + j),), value)

    def instructions(self, rows: int) -> int:
        """Return the instructions of one call."""
        stream, tile = self._stream, self._tile
        run = self._w.run_instructions(self._runs.length, unroll=self._unroll)
        groups = -(-rows // tile.pixels)
        packed = groups * tile.pixels
        if self._window is None:
            pack = int(packed * (run + tile.row))
        else:
            pack = self._runs.instructions(packed / rows, run=run, pixel=tile.window)
        outputs = tile.pixels * (stream.each - stream.fields_loaded - 1) + stream.fields_loaded
        block = self._plan.instructions(tile.each(tile.channels)) + tile.channels * outputs + 17
        block += tile.more + tile.operand * len(self._io.operands)  # the sums, and fewer registers are left
        return pack + groups * (len(stream.counts) * block + tile.tile)

    def code(self) -> int:
        """Return the bytes of code."""
        tile, stream = self._tile, self._stream
        quads = run_quads(self._runs.length)
        pack = 50 + 24 * (min(self._unroll, pack_unroll(quads)) + bool(self._runs.length % TAPS))
        window = 0 if self._window is None else 60 + (90 + pack) * any(self._layer.attrs.padding)
        stores = 28 * tile.channels * tile.pixels * len(self._layer.epilogue)
        stores += 68 + 44 * stream.signed if self._plan.rest else 0
        return 70 + pack + window + (self._plan.code(tile.each(tile.channels)) + 230 + stores) * (1 + bool(stream.remainder))


class _Rows(_Kernel):
    """Emits rows by blocks of four channels."""

    def emit(self, rows: int) -> None:
        b, stream = self._b, self._stream
        for m in counted(b, rows, "m"):
            if self._chunk < self._plan.quads:
                self._one_block(m)
                continue
            self._pack(m)
            for n, count in stream.each_block(b, looped=stream.blocks > 1):
                acc = self._accumulators(stream.start(n), count)
                self._dot(self._weights(n, count, imm(0)), acc, imm(self._plan.quads))
                self._finish(m, n, acc)

    def _one_block(self, m: Expr) -> None:
        """Compute all channels at once, the data in pieces."""
        b, count, total = self._b, self._stream.block, self._plan.quads
        acc = self._accumulators(self._stream.start(imm(0)), count)
        with b.for_("first", total, step=self._chunk) as first:
            quads = b.let("quads", minimum(total - first, self._chunk)) if total % self._chunk else imm(self._chunk)
            source = region(self._io.data, m * self._runs.length + first * TAPS)
            b.block(self._w.pack(1, min(self._unroll, pack_unroll(self._plan.unroll))), source, self._words, quads)
            self._dot(self._weights(imm(0), count, first * count), acc, quads)
        self._finish(m, imm(0), acc)

    def _accumulators(self, start: Expr, count: int) -> Buffer:
        acc = self._b.local("acc", (count,), "int32")
        for j in range(count):
            self._b.store(acc, j, self._start(self._params[start + j], 0))
        return acc

    def _weights(self, n: Expr, count: int, skipped: Expr) -> Region:
        """Return the weights of block `n` of `count` channels, from word `skipped` on."""
        if self._matrix is not None:
            return self._stream.weights_in_array(self._matrix, n, skipped)
        return self._stream.weights(self._params, self._stream.start(n) + skipped, count)

    def _dot(self, weights: Region, acc: Buffer, quads: Expr) -> None:
        self._b.block(self._w.dot(acc.size, self._plan.unroll, self._plan.rest), weights, self._words, acc, quads)

    def _finish(self, m: Expr, n: Expr, acc: Buffer) -> None:
        for j, value in self._stream.results(self._b, self._params, self._stream.start(n), acc):
            self._io.store((m, n * self._stream.block + j), value)

    def instructions(self, rows: int) -> int:
        """Return the instructions of one call."""
        counts, each = self._stream.counts, self._stream.each + self._tile.more
        fixed = self._tile.fixed[self._plan.quads != self._plan.unroll]
        total = sum(self._plan.instructions(self._tile.each(n)) + n * each + fixed for n in counts)
        total += 8 if self._w.sums else 6 + 2 * len(counts) * (self._matrix is not None) - ONE_BLOCK * (len(counts) == 1)
        return rows * (total + self._w.run_instructions(self._runs.length, unroll=self._unroll))

    def code(self) -> int:
        """Return the bytes of code."""
        tile, depth = self._tile, self._runs.length
        unroll = min(self._unroll, pack_unroll(depth // TAPS or 1))
        pack = 50 + 36 * unroll + 40 * bool(depth % TAPS) if self._w.sums else 20 + 24 * unroll
        return pack + sum(self._plan.code(tile.each(n)) + 40 + tile.store_code * n for n in self._stream.sizes)


def _register(kind: str, anchor: str, weights: Weights, plevel: int) -> None:
    name = f"arm_dsp.{kind}_{weights.name}"
    of_kind = partial(accepts, kind=kind, weights=weights)
    made = partial(lower, kind=kind, weights=weights)
    register_impl(OpImplementation(name, anchor, of_kind, made, plevel))
    register_impl(OpImplementation(f"{name}_common", anchor, of_kind, partial(made, common=True), plevel - 1))
    if (kind, weights) == ("dense", W8):
        apart = partial(made, split_weights=True)
        register_impl(OpImplementation(f"{name}_apart", anchor, of_kind, apart, plevel=27, for_repeated=True))


for _weights, _windows_level, _rows_level in ((W8, 11, 30), (W4, 7, 24)):
    _register("conv2d", "nn.conv2d", _weights, _windows_level)
    for _anchor in ("nn.dense", "nn.conv2d"):
        _register("dense", _anchor, _weights, _rows_level)


# ---- rows or windows in place ----


def accepts_direct(group: Group, target: Target) -> bool:
    """Whether the layer has at least four taps, accumulators provably below 2^23, and the short requantisation."""
    layer = match_for(group, target, "dsp")
    return layer is not None and layer.weight[0].size >= TAPS and BYTES.requant(layer, target) is not None


def accepts_direct_narrow(group: Group, target: Target) -> bool:
    """Whether the layer is fully connected, with fewer channels than dense_w8_direct accepts."""
    layer = match_layer(group)
    return layer is not None and layer.channels < LEAST_CHANNELS and accepts_direct(group, target)


def accepts_direct_rows(group: Group, target: Target) -> bool:
    """Whether dense_w8 accepts the layer, it has at least four inputs, and packing its data pays if there is room."""
    layer = few_rows(group, target)
    return layer is not None and layer.channels >= LEAST_CHANNELS and accepts_direct(group, target)


def plan_direct(quads: int) -> QuadPlan:
    """Return the quads of a row, not rounded up, as nothing beyond may be read; a second loop if they have no good divisor."""
    unroll = max(u for u in range(1, MAX_UNROLL + 1) if quads % u == 0)
    return QuadPlan(quads, unroll) if unroll >= min(quads, COMMON_UNROLL) else QuadPlan(quads, COMMON_UNROLL, rest=1)


def lower_direct(group: Group, target: Target, name: str, *, kernel: str) -> Lowered:
    """Lower rows or windows: for each, blocks of four channels from the data in place, or from a copy of the window."""
    layer = match_layer(group)
    assert layer is not None
    rows, depth = prod(layer.out_type.shape[:-1]), int(layer.weight[0].size)
    matrix = swapped(arrange(layer.weight.reshape(layer.channels, depth), 1, QuadPlan(run_quads(depth), 1)))
    requant, plan = BYTES.best_requant(layer, target), plan_direct(depth // TAPS)
    stream = PackedWeights(matrix, layer.bias, requant, block=CHANNELS, form=DIRECT_BYTES)
    b = IRBuilder(name)
    in_place = is_rows(layer)
    shape, align = (prod(layer.data_type.shape),), 1 if in_place else data_align(layer)
    io = open_io(b, group, layer, data_shape=shape, out_shape=(rows, layer.channels), data_align=align)
    params = io.constant("params", stream.data(), "int32")
    window = None if in_place else b.scratch("window", (depth,), "int8", align=TAPS)
    with nullcontext(imm(0)) if rows == 1 and kernel == "dense_w8_direct" else b.for_("m", rows) as m:
        data, row = (io.data, m * depth) if window is None else (window, imm(0))
        if window is not None:
            _copy_window(b, layer, io.data, window, m)
        for n, count in stream.each_block(b):
            start = stream.start(n)
            acc = stream.accumulators(b, params, start, count)
            weights = stream.weights(params, start, count)
            b.block(dot_w8_direct(count, plan.unroll, plan.rest), weights, region(data, row), acc, imm(plan.quads))
            if depth % TAPS:  # the last four bytes, some of them again; see run_taps
                weights = stream.weights(params, start + plan.quads * count, count)
                b.block(dot_w8_direct(count, 1), weights, region(data, row + (depth - TAPS)), acc, imm(1))
            for j, value in stream.results(b, params, start, acc):
                io.store((m, n * stream.block + j), value)
    total, code = _direct_costs(stream, plan, remainder=bool(depth % TAPS))
    copy, copy_code = (0, 0) if window is None else (WindowRuns(layer).copying(data_align(layer)), 200)
    instructions, code = rows * total + copy + epilogue_instructions(layer), code + copy_code
    return lowered(io, layer, f"arm_dsp.{kernel}", instructions, code, channels=stream.block, unroll=plan.unroll)


def _direct_costs(stream: PackedWeights, plan: QuadPlan, *, remainder: bool) -> tuple[int, int]:
    """Return the instructions of one row (from counts under QEMU), and the bytes of code."""
    fixed = 8 if plan.quads == plan.unroll else 12
    total = sum(plan.instructions(4 + 3 * n) + remainder * (6 + 3 * n) + n * stream.each + fixed for n in stream.counts)
    code = sum(plan.code(4 + 3 * n) + remainder * (24 + 12 * n) + 40 + 24 * n for n in stream.sizes)
    return total + (6 if len(stream.counts) > 1 else -1), 20 + code  # -1: without a loop over blocks


def _copy_window(b: IRBuilder, layer: FusedLayer, data: Buffer, window: Buffer, index: Expr) -> None:
    """Copy the bytes of output pixel number `index`'s window, padding included, one run of consecutive bytes after another."""
    attrs, runs, copier = layer.attrs, WindowRuns(layer), RunBytes(b, layer, data, window)
    image, y, x = window_at(b, layer, index, origin=attrs.padding[:2])
    with b.for_("ky", runs.rows) as ky, b.for_("kx", runs.columns) as kx:
        row = b.let("row", y + ky * attrs.dilation[0])
        column = b.let("column", x + kx * attrs.dilation[1])
        copier.copy(b.let("at", (ky * runs.columns + kx) * runs.length), (image, row, column))


_lower_rows, _lower_windows = partial(lower_direct, kernel="dense_w8_direct"), partial(lower_direct, kernel="conv2d_w8_direct")
for _anchor in ("nn.dense", "nn.conv2d"):
    register_impl(OpImplementation("arm_dsp.dense_w8_direct", _anchor, accepts_direct_rows, _lower_rows, plevel=28))
register_impl(OpImplementation("arm_dsp.conv2d_w8_direct", "nn.conv2d", accepts_direct, _lower_windows, plevel=8, small=True))
register_impl(OpImplementation("arm_dsp.dense_w8_direct_few", "nn.dense", accepts_direct_narrow, _lower_windows, plevel=8))


# ---- rows with large sums ----


@dataclass(frozen=True, slots=True)
class _Segments:
    """A layer whose reduction is cut into segments of `quads` quads."""

    layer: FusedLayer
    stream: PackedWeights
    segments: int
    quads: int


LIMIT = 1 << 16
"""Most that the weights' magnitudes of a segment may sum up to, so that the sum of products with bytes is below 2^23."""


def plan_segments(group: Group, target: Target) -> _Segments | None:
    """Accept rows of bytes without weights of -128, if dense_w8 refuses them because of their sums."""
    layer = few_rows(group, target)
    if layer is None:
        return None
    largest = max(int(np.abs(layer.acc_low).max()), int(np.abs(layer.acc_high).max()))
    if not fits_bytes(layer) or largest < 128 * LIMIT:
        return None
    weights = layer.weight.reshape(layer.channels, -1)
    least = run_quads(weights.shape[1])
    for segments in range(2, least // MAX_UNROLL + 1):
        quads = -(-least // (segments * MAX_UNROLL)) * MAX_UNROLL
        matrix = arrange(weights, 1, QuadPlan(segments * quads, MAX_UNROLL))
        if int(np.abs(matrix).reshape(layer.channels, segments, -1).sum(axis=2).max()) < LIMIT:
            requant = plan_requantize(layer.requant, layer.acc_low, layer.acc_high, target)
            stream = PackedWeights(matrix, layer.bias, requant, block=CHANNELS, segments=segments)
            return _Segments(layer, stream, segments, quads)
    return None


def lower_segments(group: Group, _target: Target, name: str, plan: _Segments) -> Lowered:
    """Lower rows: for each, pack the data, then blocks of four channels, each over all segments."""
    layer, stream = plan.layer, plan.stream
    rows, depth = prod(layer.out_type.shape[:-1]), int(layer.weight[0].size)
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(rows * depth,), out_shape=(rows, layer.channels))
    params = io.constant("params", stream.data(), "int32")
    words = b.scratch("words", (TAPS * plan.segments * plan.quads,), "int16", align=4)
    with b.for_("m", rows) as m:
        W8.pack_run(b, (io.data, m * depth), depth, words=region(words), total=plan.segments * plan.quads)
        for n, count in stream.each_block(b, looped=layer.channels >= CHANNELS):
            _segments_block(io, plan, (params, words), (m, n), count=count)
    instructions, code = (
        rows * _instructions(plan, depth) + epilogue_instructions(layer),
        600 + 300 * bool(layer.channels % CHANNELS),
    )
    return lowered(io, layer, "arm_dsp.dense_w8_segments", instructions, code, channels=stream.block, segments=plan.segments)


def _segments_block(
    io: LayerIo, plan: _Segments, buffers: tuple[Buffer, Buffer], place: tuple[Expr, Expr], *, count: int
) -> None:
    """Compute `count` channels of block n of row m."""
    b, (params, words), (m, n), stream = io.ctx.builder, buffers, place, plan.stream
    start = b.let("start", stream.start(n))
    total = b.local("total", (count,), "int32")
    for j in range(count):
        b.store(total, j, params[start + j])
    with b.for_("s", plan.segments) as s:
        segment = b.let("segment", start + count * (1 + stream.fields_loaded) + s * (count * (1 + plan.quads)))
        acc = stream.accumulators(b, params, segment, count)
        weights, data = region(params, (segment + count) * 2, dtype="int16"), region(words, s * (TAPS * plan.quads))
        b.block(dot_w8(count, MAX_UNROLL), weights, data, acc, imm(plan.quads))
        for j in range(count):
            b.store(total, j, total[j] + (acc[j] >> PRESCALE))
    for j, value in stream.results(b, params, start, total):
        io.store((m, n * CHANNELS + j), value)


_SHORT, _GENERAL = 6, 22
"""Approximate instructions of a requantisation."""


def _instructions(plan: _Segments, depth: int) -> int:
    """Return the instructions of one row (from counts under QEMU)."""
    each = (_SHORT if isinstance(plan.stream.requant, HighMultiply) else _GENERAL) + plan.stream.fields_loaded + 2
    total = W8.run_instructions(depth) + 6
    for count in plan.stream.counts:
        segment = (2 + 3 * count) * plan.quads + 3 * (plan.quads // MAX_UNROLL) + 6 * count + 10
        total += plan.segments * segment + count * each + 12
    return total


for _anchor in ("nn.dense", "nn.conv2d"):
    register_planned("arm_dsp.dense_w8_segments", _anchor, plan_segments, lower_segments, plevel=26)


# ---- rows of float32 data that were quantised at run time: sums of bytes as in dense_w8, then converted to float32 ----


SUM_LIMIT = 1 << (31 - PRESCALE)
"""Limit of sums, as accumulators are scaled by 256."""


@dataclass(frozen=True, slots=True)
class Hybrid:
    """A fully connected layer of float32 data that were quantised to bytes at run time.

    `weight` int [O, K]; `scales` float32 [1] or [O]; `bias` float32 [O] or None; `parameters`: scale, factor, zero point.
    """

    anchor: Call
    output: Call
    data: RelayVar
    parameters: RelayVar
    weight: Array
    scales: Array
    bias: Array | None


def plan_hybrid(group: Group, target: Target) -> Hybrid | None:
    """Accept data of bytes (symmetric quantisation), sums below 2^23, and nothing after the layer's own output."""
    anchor, (output, *others) = group.anchor, (group.followers or (None,))
    if output is None or others or not is_call(output, HYBRID_OUTPUT) or not isinstance(anchor.op, Op) or not target.has("dsp"):
        return None
    data, weight = anchor.args
    _, parameters, scales, *bias = output.args
    constants = [c for c in (weight, scales, *bias) if isinstance(c, Constant)]
    if len(constants) < 2 + len(bias) or not isinstance(data, RelayVar) or not isinstance(parameters, RelayVar):
        return None
    if data.type.dtype != "int8" or anchor.attrs.input_zp or anchor.attrs.weight_zp or tensor_type(anchor).dtype != "int32":
        return None
    matrix = constants[0].data.astype(np.int64)
    if int(np.abs(matrix).max()) > MAX_WEIGHT or int(np.abs(matrix).sum(axis=1).max()) * 128 >= SUM_LIMIT:
        return None
    return Hybrid(
        anchor, output, data, parameters, matrix, constants[1].data.reshape(-1), constants[2].data.reshape(-1) if bias else None
    )


def lower_hybrid(group: Group, _target: Target, name: str, plan: Hybrid) -> Lowered:
    """Lower rows: for each, pack the data, then blocks of four channels.

    Constants per block of n channels: start values, scales if they vary, biases if there are any, weights [quads][n].
    """
    rows, (channels, depth) = prod(plan.data.type.shape[:-1]), plan.weight.shape
    quads = plan_quads(run_quads(depth), cost=14, common=False)
    weights = arrange(plan.weight, 1, quads)
    floats = [a for a in (plan.scales if plan.scales.size > 1 else None, plan.bias) if a is not None]
    numbers = [bias_words(np.zeros(channels, np.int64), weights), *(a.astype(np.float32).view(np.int32) for a in floats)]
    blocks = [slice(first, first + CHANNELS) for first in range(0, channels, CHANNELS)]
    stream = np.concatenate([part for k in blocks for part in (*(a[k] for a in numbers), BYTES.block(weights[k]))])
    b = IRBuilder(name)
    buffers = {
        id(var): b.input("data" if var is plan.data else "parameters", (prod(var.type.shape),), var.type.dtype)
        for var in group.params
    }
    out = b.output("out", (rows * channels,), "float32")
    params = b.const("params", (stream.size,), "int32", align=4)
    words = b.scratch("words", (TAPS * quads.quads,), "int16", align=4)
    with b.for_("m", rows) as m:
        W8.pack_run(b, (buffers[id(plan.data)], m * depth), depth, words=region(words), total=quads.quads)
        scale = b.let("scale", buffers[id(plan.parameters)][m * 3])
        for n, count in channel_blocks(b, channels, CHANNELS):
            start = b.let("start", n * (CHANNELS * (len(numbers) + quads.quads)))
            acc = b.local("acc", (count,), "int32")
            for j in range(count):
                b.store(acc, j, params[start + j])
            block = dot_w8(count, quads.unroll, quads.rest)
            b.block(block, Region(params, (start + count * len(numbers)) * 2, "int16"), words, acc, imm(quads.quads))
            for j in range(count):
                loads = [params.load("float32", start + (i * count + j)) for i in range(1, len(numbers))]
                b.store(out, m * channels + n * CHANNELS + j, _value(b, plan, acc[j] >> PRESCALE, scale, loads, j=j))
    schedule = describe("arm_dsp.dense_hybrid", channels=CHANNELS, unroll=quads.unroll)
    each = 10 + len(numbers) + 4 * sum(v is not None for v in (plan.output.attrs.lo, plan.output.attrs.hi))
    sizes = [min(CHANNELS, channels - k.start) for k in blocks]
    row = sum(quads.instructions(2 + 3 * n) + n * each + 12 for n in sizes) + W8.run_instructions(depth) + 10
    code = 140 + sum(quads.code(2 + 3 * n) + 60 + 56 * n for n in set(sizes))
    func = b.finish(FuncAttrs(kernel=schedule, span=plan.anchor.span, macs=rows * plan.weight.size))
    return Lowered(func, {"params": stream}, rows * row + 12, code)


def _value(b: IRBuilder, plan: Hybrid, total: Expr, scale: Expr, loads: Sequence[Expr], *, j: int) -> Expr:
    """Return the value of channel j as the operator defines it, from its sum and its numbers in the stream."""

    def number(dtype: str, value: Expr) -> TensorFn:
        return TensorFn((2, 3), dtype, lambda _b, _i: value)

    one_scale = [imm(float(plan.scales[0]), "float32")] if plan.scales.size == 1 else []
    floats = [number("float32", value) for value in (*one_scale, *loads)]
    shape = (prod(plan.data.type.shape[:-1]), len(plan.weight))
    args = [number("int32", total), number("float32", scale), *floats]
    value = F_TE.get(HYBRID_OUTPUT)(TeContext(b), args, plan.output.attrs, TensorType(shape, "float32"))
    return value.at(b, (imm(0), imm(j)))


# A layer with followers would have float32 results, four bytes each, between them.
register_planned("arm_dsp.dense_hybrid", "nn.dense", plan_hybrid, lower_hybrid, plevel=30, cuts=False)
