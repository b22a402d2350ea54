"""Fully connected layers with int8 or int4 weights for cores with DSP instructions: blocks of one row x four channels.

See weights.py for how weights stay packed in flash and are unpacked in registers.

`dense_w8`, `dense_w4`: a row is packed once, as 16-bit numbers, and used by all blocks.  Scratch: two bytes per input of one row,
rounded up to a word of weights; layers with at most four channels and whole words of bytes pack at most `CHUNK` inputs at a time.
If several layers have the same matrix, as the steps of an unrolled recurrent network do, it can be an array of its own
(`split_weights`) that they share whatever their biases and zero points are.

`dense_w8_direct` reads the data in place: no scratch memory, but each block of four channels unpacks the data again, which costs
two instructions more per quad, at most a seventh.  With few channels that costs nothing, but scratch memory is no loss either, so
such layers are left to dense_w8.  `conv2d_w8_direct`: the same for any window, whose bytes are copied first (scratch: one byte
per tap).

`dense_w8_segments` is for sums beyond 2^23: the reduction is cut into segments whose sums do fit, so shifting the factor 256 away
is exact; the sums of segments are then added.  Each block of four channels runs through all segments.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm, minimum
from aot.tir.stmt import Region
from aot.topi.arm_dsp.weights import (
    BYTES,
    COMMON_UNROLL,
    DIRECT_BYTES,
    MAX_UNROLL,
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
    run_quads,
    swapped,
)
from aot.topi.layer.fused import FusedLayer, LayerIo, epilogue_instructions, lowered, match_for, match_layer, open_io
from aot.topi.layer.im2col import RunBytes, WindowRuns, data_align, is_rows, match_rows, window_at
from aot.topi.layer.requant import HighMultiply, Requant, plan_requantize
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl, register_planned

CHANNELS, MAX_ROWS, CHUNK = 4, 2, 512
"""Channels of a block; most pixels, as pointwise convolutions of more are for conv2d_w8; inputs packed at once for a single
block.
"""

ONE_BLOCK = 12
"""Instructions saved if there is no loop over blocks."""

LEAST_CHANNELS = 3 * CHANNELS + 1
"""With fewer channels, packing costs as much as it saves."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs from counts under QEMU.

    Per word: instructions and bytes of code, each with the increment per channel.  Instructions per result beyond the stream's
    own, and per block without and with a loop.  Bytes of code per channel's result.
    """

    word: tuple[int, int]
    code_word: tuple[int, int]
    more: int
    fixed: tuple[int, int]
    store_code: int


COSTS = {
    "w8": Costs(word=(2, 3), code_word=(8, 12), more=0, fixed=(8, 12), store_code=24),
    "w4": Costs(word=(3, 8), code_word=(12, 32), more=1, fixed=(9, 13), store_code=28),
}


few_rows = partial(match_rows, feature="dsp", pixels=MAX_ROWS)


def accepts(group: Group, target: Target, *, weights: Weights) -> bool:
    """Whether the layer is made of rows, with accumulators that provably fit 32 bits and the short requantisation."""
    layer = few_rows(group, target)
    return layer is not None and weights.form.requant(layer, target) is not None


def lower(
    group: Group, target: Target, name: str, *, weights: Weights, common: bool = False, split_weights: bool = False
) -> Lowered:
    """Lower rows: for each, pack the data, then blocks of four channels."""
    layer = match_layer(group)
    assert layer is not None
    rows, depth = prod(layer.out_type.shape[:-1]), int(layer.weight[0].size)
    (first, more) = COSTS[weights.name].word
    plan = weights.plan(run_quads(depth), cost=first + more * CHANNELS, common=common)
    matrix = weights.arrange(layer.weight.reshape(layer.channels, depth), 1, plan)
    requant = weights.form.best_requant(layer, target, common=common)
    stream = PackedWeights(
        matrix, layer.bias, requant, block=CHANNELS, common=common, form=weights.form, split_weights=split_weights
    )
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(rows * depth,), out_shape=(rows, layer.channels))
    kernel = _Kernel(b, io, stream, plan, depth, weights)
    kernel.rows(rows)
    instructions = rows * kernel.instructions() + epilogue_instructions(layer)
    described = f"arm_dsp.dense_{weights.name}" + "_common" * common + "_apart" * split_weights
    return lowered(io, layer, described, instructions, kernel.code(), channels=stream.block, unroll=plan.unroll)


class _Kernel:
    """Emits the loops: rows, packing, blocks of channels."""

    def __init__(self, b: IRBuilder, io: LayerIo, stream: PackedWeights, plan: QuadPlan, depth: int, weights: Weights) -> None:
        self._b, self._io, self._stream, self._plan, self._depth, self._w = b, io, stream, plan, depth, weights
        self._pack = 1 if plan.rest else 4
        self._params = io.constant("params", stream.data(), "int32")
        self._matrix = io.constant("matrix", stream.weights_data(), "int32") if stream.split_weights else None
        self._chunk = plan.quads
        if not weights.sums and len(stream.counts) == 1 and depth == TAPS * plan.quads and depth > CHUNK:
            self._chunk = CHUNK // TAPS // plan.unroll * plan.unroll
        self._words = b.scratch("words", (weights.form.taps * self._chunk,), "int16", align=4)
        self._sum = b.scratch("sum", (1,), "int32") if weights.sums else None

    def rows(self, count: int) -> None:
        b, used = self._b, TAPS * run_quads(self._depth)
        if self._sum is not None and used < self._words.shape[0]:
            with b.for_("z", self._words.shape[0], start=used) as z:
                b.store(self._words, z, 0)
        with nullcontext(imm(0)) if count == 1 else b.for_("m", count) as m:
            self._row(m)

    def _row(self, m: Expr) -> None:
        b, stream = self._b, self._stream
        if self._chunk < self._plan.quads:
            self._one_block(m)
            return
        if self._sum is not None:
            b.store(self._sum, 0, 0)
        sums, total = (None, self._plan.quads) if self._sum is None else (region(self._sum), 0)
        source = (self._io.data, m * self._depth)
        self._w.pack_run(b, source, self._depth, words=region(self._words), sums=sums, total=total, unroll=self._pack)
        with nullcontext(imm(0)) if stream.blocks == 1 else b.for_("n", stream.blocks) as n:
            self._block(m, n, stream.block)
        if stream.remainder:
            self._block(m, imm(stream.blocks), stream.remainder)

    def _block(self, m: Expr, n: Expr, count: int) -> None:
        acc = self._accumulators(self._stream.start(n), count)
        self._dot(self._weights(n, count, imm(0)), acc, imm(self._plan.quads))
        self._finish(m, n, acc)

    def _one_block(self, m: Expr) -> None:
        """Compute all channels at once, the data in pieces."""
        b, count, total = self._b, self._stream.block, self._plan.quads
        acc = self._accumulators(self._stream.start(imm(0)), count)
        with b.for_("first", total, step=self._chunk) as first:
            quads = b.let("quads", minimum(total - first, self._chunk)) if total % self._chunk else imm(self._chunk)
            source = region(self._io.data, m * self._depth + first * TAPS)
            b.block(self._w.pack(1, min(self._pack, pack_unroll(self._plan.unroll))), source, self._words, quads)
            self._dot(self._weights(imm(0), count, first * count), acc, quads)
        self._finish(m, imm(0), acc)

    def _accumulators(self, start: Expr, count: int) -> Buffer:
        if self._sum is None:
            return self._stream.accumulators(self._b, self._params, start, count)
        acc = self._b.local("acc", (count,), "int32")
        for j in range(count):
            self._b.store(acc, j, cast("int32", cast("uint32", self._params[start + j]) + cast("uint32", self._sum[0])))
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

    def instructions(self) -> int:
        """Return the instructions of one row."""
        costs, counts = COSTS[self._w.name], self._stream.counts
        fixed = costs.fixed[self._plan.quads != self._plan.unroll]
        (first, more), each = costs.word, self._stream.each + costs.more
        total = sum(self._plan.instructions(first + more * n) + n * each + fixed for n in counts)
        total += 8 if self._w.sums else 6 + 2 * len(counts) * (self._matrix is not None) - ONE_BLOCK * (len(counts) == 1)
        return total + self._w.run_instructions(self._depth, unroll=self._pack)

    def code(self) -> int:
        """Return the bytes of code."""
        costs, unroll = COSTS[self._w.name], min(self._pack, pack_unroll(self._depth // TAPS or 1))
        pack = 50 + 36 * unroll + 40 * bool(self._depth % TAPS) if self._w.sums else 20 + 24 * unroll
        first, more = costs.code_word
        return pack + sum(self._plan.code(first + more * n) + 40 + costs.store_code * n for n in self._stream.sizes)


for _weights, _level in ((W8, 30), (W4, 24)):
    for _anchor in ("nn.dense", "nn.conv2d"):
        _name, _accepts, _lower = (
            f"arm_dsp.dense_{_weights.name}",
            partial(accepts, weights=_weights),
            partial(lower, weights=_weights),
        )
        register_impl(OpImplementation(_name, _anchor, _accepts, _lower, plevel=_level))
        register_impl(OpImplementation(f"{_name}_common", _anchor, _accepts, partial(_lower, common=True), plevel=_level - 1))
        if _weights is W8:
            _split = partial(_lower, split_weights=True)
            register_impl(OpImplementation(f"{_name}_apart", _anchor, _accepts, _split, plevel=27, for_repeated=True))


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


def lower_direct(group: Group, target: Target, name: str, *, kernel: str) -> Lowered:
    """Lower rows or windows: for each, blocks of four channels from the data in place, or from a copy of the window."""
    layer = match_layer(group)
    assert layer is not None
    rows, depth = prod(layer.out_type.shape[:-1]), int(layer.weight[0].size)
    matrix = swapped(arrange(layer.weight.reshape(layer.channels, depth), 1, QuadPlan(run_quads(depth), 1)))
    requant = BYTES.best_requant(layer, target)
    stream = PackedWeights(matrix, layer.bias, requant, block=CHANNELS, form=DIRECT_BYTES)
    b = IRBuilder(name)
    shape, align = (prod(layer.data_type.shape),), 1 if is_rows(layer) else data_align(layer)
    io = open_io(b, group, layer, data_shape=shape, out_shape=(rows, layer.channels), data_align=align)
    direct = _DirectKernel(b, io, stream, depth)
    window = None if is_rows(layer) else _Window(b, io, layer)
    with nullcontext(imm(0)) if rows == 1 and kernel == "dense_w8_direct" else b.for_("m", rows) as m:
        direct.row(m, (io.data, m * depth) if window is None else (window.fill(m), imm(0)))
    copy, code = (0, 0) if window is None else (WindowRuns(layer).copying(data_align(layer)), 200)
    instructions, code = rows * direct.instructions() + copy + epilogue_instructions(layer), code + direct.code()
    return lowered(io, layer, f"arm_dsp.{kernel}", instructions, code, channels=stream.block, unroll=direct.plan.unroll)


class _DirectKernel:
    """Emits the loop over blocks of channels, for rows of `depth` bytes."""

    def __init__(self, b: IRBuilder, io: LayerIo, stream: PackedWeights, depth: int) -> None:
        self._b, self._io, self._stream, self._depth = b, io, stream, depth
        self._params = io.constant("params", stream.data(), "int32")

    @property
    def plan(self) -> QuadPlan:
        """The quads of a row, not rounded up, as nothing beyond may be read; a second loop if they have no good divisor."""
        quads = self._depth // TAPS
        unroll = max(u for u in range(1, MAX_UNROLL + 1) if quads % u == 0)
        return QuadPlan(quads, unroll) if unroll >= min(quads, COMMON_UNROLL) else QuadPlan(quads, COMMON_UNROLL, rest=1)

    def row(self, m: Expr, source: tuple[Buffer, Expr]) -> None:
        """Compute all channels of result row `m` from the bytes at (buffer, start)."""
        b, stream = self._b, self._stream
        with b.for_("n", stream.blocks) as n:
            self._block(m, n, stream.block, source)
        if stream.remainder:
            self._block(m, imm(stream.blocks), stream.remainder, source)

    def _block(self, m: Expr, n: Expr, count: int, source: tuple[Buffer, Expr]) -> None:
        b, stream, start = self._b, self._stream, self._stream.start(n)
        acc = stream.accumulators(b, self._params, start, count)
        self._dot(acc, start, source)
        for j, value in stream.results(b, self._params, start, acc):
            self._io.store((m, n * stream.block + j), value)

    def _dot(self, acc: Buffer, start: Expr, source: tuple[Buffer, Expr]) -> None:
        """Sum the whole quads, then the last four bytes of the row if some are left over (see run_taps)."""
        b, count, plan, (data, row) = self._b, acc.size, self.plan, source
        weights = self._stream.weights(self._params, start, count)
        b.block(dot_w8_direct(count, plan.unroll, plan.rest), weights, region(data, row), acc, imm(plan.quads))
        if self._depth % TAPS:
            weights = self._stream.weights(self._params, start + plan.quads * count, count)
            b.block(dot_w8_direct(count, 1), weights, region(data, row + (self._depth - TAPS)), acc, imm(1))

    def instructions(self) -> int:
        """Return the instructions of one row (from counts under QEMU)."""
        counts, remainder, plan = self._stream.counts, bool(self._depth % TAPS), self.plan
        fixed = 8 if plan.quads == plan.unroll else 12
        total = sum(plan.instructions(4 + 3 * n) + remainder * (6 + 3 * n) + n * self._stream.each + fixed for n in counts)
        return total + (6 if len(counts) > 1 else -1)  # without a loop over blocks

    def code(self) -> int:
        """Return the bytes of code."""
        remainder = bool(self._depth % TAPS)
        return 20 + sum(self.plan.code(16 + 12 * n) + remainder * (24 + 12 * n) + 40 + 24 * n for n in self._stream.sizes)


class _Window:
    """Copies the bytes of a pixel's window, padding included, one run of consecutive bytes after another."""

    def __init__(self, b: IRBuilder, io: LayerIo, layer: FusedLayer) -> None:
        self._b, self._layer, self._runs = b, layer, WindowRuns(layer)
        self._window: Buffer = b.scratch("window", (int(layer.weight[0].size),), "int8", align=TAPS)
        self._bytes = RunBytes(b, layer, io.data, self._window)

    def fill(self, index: Expr) -> Buffer:
        """Copy the window of output pixel number `index`."""
        b, attrs, runs = self._b, self._layer.attrs, self._runs
        image, y, x = window_at(b, self._layer, index, origin=attrs.padding[:2])
        with b.for_("ky", runs.rows) as ky, b.for_("kx", runs.columns) as kx:
            row = b.let("row", y + ky * attrs.dilation[0])
            column = b.let("column", x + kx * attrs.dilation[1])
            self._bytes.copy(b.let("at", (ky * runs.columns + kx) * runs.length), (image, row, column))
        return self._window


_lower_rows, _lower_windows = partial(lower_direct, kernel="dense_w8_direct"), partial(lower_direct, kernel="conv2d_w8_direct")
for _anchor in ("nn.dense", "nn.conv2d"):
    register_impl(OpImplementation("arm_dsp.dense_w8_direct", _anchor, accepts_direct_rows, _lower_rows, plevel=28))
register_impl(OpImplementation("arm_dsp.conv2d_w8_direct", "nn.conv2d", accepts_direct, _lower_windows, plevel=8, small=True))
register_impl(OpImplementation("arm_dsp.dense_w8_direct_few", "nn.dense", accepts_direct_narrow, _lower_windows, plevel=8))


LIMIT = 1 << 16
"""Most that the weights' magnitudes of a segment may sum up to, so that the sum of products with bytes is below 2^23."""

_SHORT, _GENERAL = 6, 22
"""Approximate instructions of a requantisation."""


@dataclass(frozen=True, slots=True)
class _Segments:
    """`segments` segments of `quads` quads; `matrix`: the weights [O, 4 * segments * quads] in the order of the quads."""

    layer: FusedLayer
    requant: Requant
    matrix: Array
    segments: int
    quads: int

    @property
    def loaded(self) -> list[int]:
        """The requantisation parameters that vary between channels."""
        return [i for i, f in enumerate(self.requant.params) if not f.uniform]

    def block_words(self, count: int) -> int:
        return count * (1 + len(self.loaded) + self.segments * (1 + self.quads))

    def data(self) -> Array:
        """Return the blocks, int32: biases, parameters [n][params], then for each segment start values and quads [quads][n]."""
        parts: list[Array] = []
        for first in range(0, self.layer.channels, CHANNELS):
            block = slice(first, min(first + CHANNELS, self.layer.channels))
            parts.append(self.layer.bias[block].astype(np.int32))
            requant_params = [self.requant.params[i].values[block] for i in self.loaded]
            parts += [np.stack(requant_params, axis=1).reshape(-1).astype(np.int32)] if requant_params else []
            for weights in np.split(self.matrix[block], self.segments, axis=1):
                parts += [bias_words(np.zeros(len(weights), np.int64), weights), BYTES.block(weights)]
        return np.concatenate(parts)


def plan_segments(group: Group, target: Target) -> _Segments | None:
    """Accept rows of bytes without weights of -128, if dense_w8 refuses them because of their sums."""
    layer = few_rows(group, target)
    if layer is None:
        return None
    largest = max(int(np.abs(layer.acc_low).max()), int(np.abs(layer.acc_high).max()))
    if not fits_bytes(layer) or largest < 128 * LIMIT:
        return None
    depth = int(layer.weight[0].size)
    weights = layer.weight.reshape(layer.channels, depth)
    least = run_quads(depth)
    for segments in range(2, least // MAX_UNROLL + 1):
        quads = -(-least // (segments * MAX_UNROLL)) * MAX_UNROLL
        matrix = arrange(weights, 1, QuadPlan(segments * quads, MAX_UNROLL))
        if int(np.abs(matrix).reshape(layer.channels, segments, -1).sum(axis=2).max()) < LIMIT:
            requant = plan_requantize(layer.requant, layer.acc_low, layer.acc_high, target)
            return _Segments(layer, requant, matrix, segments, quads)
    return None


def lower_segments(group: Group, _target: Target, name: str, plan: _Segments) -> Lowered:
    """Lower rows: for each, pack the data, then blocks of four channels, each over all segments."""
    layer = plan.layer
    rows, depth = prod(layer.out_type.shape[:-1]), int(layer.weight[0].size)
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(rows * depth,), out_shape=(rows, layer.channels))
    params = io.constant("params", plan.data(), "int32")
    words = b.scratch("words", (TAPS * plan.segments * plan.quads,), "int16", align=4)
    blocks, remainder = divmod(layer.channels, CHANNELS)
    with b.for_("m", rows) as m:
        W8.pack_run(b, (io.data, m * depth), depth, words=region(words), total=plan.segments * plan.quads)
        if blocks:
            with b.for_("n", blocks) as n:
                _block(io, plan, (params, words), (m, n), count=CHANNELS)
        if remainder:
            _block(io, plan, (params, words), (m, imm(blocks)), count=remainder)
    instructions, code = rows * _instructions(plan, depth) + epilogue_instructions(layer), 600 + 300 * bool(remainder)
    schedule = {"channels": min(CHANNELS, layer.channels), "segments": plan.segments}
    return lowered(io, layer, "arm_dsp.dense_w8_segments", instructions, code, **schedule)


def _block(io: LayerIo, plan: _Segments, buffers: tuple[Buffer, Buffer], place: tuple[Expr, Expr], *, count: int) -> None:
    """Compute `count` channels of block n of row m."""
    b, (params, words), (m, n), loaded = io.ctx.builder, buffers, place, plan.loaded
    start = b.let("start", n * plan.block_words(CHANNELS))
    total = b.local("total", (count,), "int32")
    for j in range(count):
        b.store(total, j, params[start + j])
    with b.for_("s", plan.segments) as s:
        segment = b.let("segment", start + count * (1 + len(loaded)) + s * (count * (1 + plan.quads)))
        acc = b.local("acc", (count,), "int32")
        for j in range(count):
            b.store(acc, j, params[segment + j])
        weights, data = region(params, (segment + count) * 2, dtype="int16"), region(words, s * (TAPS * plan.quads))
        b.block(dot_w8(count, MAX_UNROLL), weights, data, acc, imm(plan.quads))
        for j in range(count):
            b.store(total, j, total[j] + (acc[j] >> PRESCALE))
    for j in range(count):
        numbers = [imm(int(f.values[0])) for f in plan.requant.params]
        requant_params: list[Expr] = list(numbers)
        for at, i in enumerate(loaded):
            requant_params[i] = b.let("field", params[start + (count + j * len(loaded) + at)])
        io.store((m, n * CHANNELS + j), plan.requant.emit(b, total[j], tuple(requant_params)))


def _instructions(plan: _Segments, depth: int) -> int:
    """Return the instructions of one row (from counts under QEMU)."""
    each = (_SHORT if isinstance(plan.requant, HighMultiply) else _GENERAL) + len(plan.loaded) + 2
    blocks, remainder = divmod(plan.layer.channels, CHANNELS)
    total = W8.run_instructions(depth) + 6
    for count in [CHANNELS] * blocks + [remainder] * bool(remainder):
        segment = (2 + 3 * count) * plan.quads + 3 * (plan.quads // MAX_UNROLL) + 6 * count + 10
        total += plan.segments * segment + count * each + 12
    return total


for _anchor in ("nn.dense", "nn.conv2d"):
    register_planned("arm_dsp.dense_w8_segments", _anchor, plan_segments, lower_segments, plevel=26)
