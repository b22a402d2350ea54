"""Depthwise convolution by planes: one channel's image, or a band of its rows, is copied with its border and then convolved.

NHWC data interleaves channels, so neighbouring pixels of a channel are `depth` bytes apart.  Copying a channel to a plane makes
them adjacent, and the inner loops need no test for the border.

Kernels of all instruction sets share what is here: the two axes of the image, the bands that its rows are split into, the strips
that a row of results is split into, and the loops over planes.  The rows of a plane are the rows of the image or, if `swapped`,
its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product
from math import prod
from typing import Protocol

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, cast, imm, logical_and, minimum
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.intrin.asm_text import Operands, asm, count_instructions
from aot.topi.layer.fused import FusedLayer, LayerIo, epilogue_each, lowered, match_for, open_flat
from aot.topi.layer.im2col import Axis, axes
from aot.topi.layer.requant import RequantParam, load_params
from aot.topi.strategy import Group, Lowered, register_planned

BAND_BYTES = 4096
"""Largest plane of a band, unless a single row needs more."""


def orientations(layer: FusedLayer) -> tuple[tuple[Axis, Axis, bool], ...]:
    """(rows, columns, swapped) for both orientations of the planes; the dilation of a single tap is ignored."""
    y, x = (replace(a, dilation=a.dilation if a.taps > 1 else 1) for a in axes(layer))
    return (y, x, False), (x, y, True)


def band_height(rows: Axis, *, line_bytes: int) -> int:
    """Result rows per band: the fewest equal bands whose plane fits BAND_BYTES; 1 if none does."""
    heights = (-(-rows.out // n) for n in range(1, rows.out + 1))
    return next((h for h in heights if line_bytes * ((h - 1) * rows.stride + rows.reach) <= BAND_BYTES), 1)


CopyRow = Callable[[Expr, Expr | None], None]
"""(row of the plane, first datum of the image's row, or None for padding): emits the copying of a row."""


@dataclass(frozen=True, slots=True)
class Planes:
    """Planes of `band` result rows each; their rows are `pitch` elements apart."""

    layer: FusedLayer
    rows: Axis
    columns: Axis
    swapped: bool
    band: int
    pitch: int

    @property
    def lines(self) -> int:
        """Rows of the plane."""
        return (self.band - 1) * self.rows.stride + self.rows.reach

    @property
    def bands(self) -> int:
        return -(-self.rows.out // self.band)

    def results(
        self, b: IRBuilder, row: CopyRow, *, bands_first: bool = False, name_channel: bool = False
    ) -> Iterator[tuple[Expr, Expr]]:
        """Loop over planes and filters: copy a band's rows with `row`, then yield channel and first result.

        `bands_first`: finish a band for all channels before the next band, so that the result may overwrite the data.
        """
        shape, out_shape, multiplier = self.layer.data_type.shape, self.layer.out_type.shape, self.layer.attrs.multiplier
        for image in counted(b, shape[0], "n"):
            for c, first in self._each(b, shape[-1], bands_first=bands_first):
                self._copy(b, image * prod(shape[1:]) + c, first, row)
                for m in counted(b, multiplier, "m"):
                    channel = c * multiplier + m
                    if name_channel and multiplier > 1:
                        channel = b.let("channel", channel)
                    yield channel, image * prod(out_shape[1:]) + channel + first * self.rows.out_step

    def _each(self, b: IRBuilder, channels: int, *, bands_first: bool) -> Iterator[tuple[Expr, Expr]]:
        if bands_first:
            for first in starts(b, self.rows.out, self.band, "band", "first"):
                with b.for_("c", channels) as c:
                    yield c, first
            return
        with b.for_("c", channels) as c:
            for first in starts(b, self.rows.out, self.band, "band", "first"):
                yield c, first

    def _copy(self, b: IRBuilder, source: Expr, first: Expr, row: CopyRow) -> None:
        """Copy one band of the image that begins at datum `source`; `first`: its first result row.

        With several bands, border rows are at a different place in each band, so they are written too.
        """
        rows = self.rows
        if self.bands == 1:
            with b.for_("y", max(0, min(rows.size, self.lines - rows.before))) as y:
                row(y + rows.before, b.let("s", source + y * rows.data_step))
            return
        with b.for_("y", self.lines) as y:
            line = b.let("line", first * rows.stride + y - rows.before)
            with b.if_(logical_and(line >= 0, line < rows.size)):
                row(y, b.let("s", source + line * rows.data_step))
            with b.else_():
                row(y, None)

    def pixels(self, data: Buffer, start: Expr | None) -> Callable[[Expr], Expr]:
        """Pixel number x of the row of the image that begins at datum `start`; of a padding row if `start` is None."""
        if start is None:
            return lambda _x: imm(self.layer.attrs.pad_value)
        return lambda x: cast("int32", data.load("int8", start + x * self.columns.data_step))


def word(low: Expr, high: Expr, bits: int) -> Expr:
    """A word of two pixels, 2^bits apart."""
    return low + high * (1 << bits)


def word_rows(
    b: IRBuilder, plan: Planes, data: Buffer, bits: int, copy: Callable[[Buffer, Expr, Callable[[Expr], Expr]], None]
) -> tuple[Buffer, CopyRow]:
    """A plane of words of two pixels, filled with padding, and what copies a row.

    `copy(plane, first word of the row, pixel by its number)` emits the copying of pixels.
    """
    plane, pad = b.scratch("plane", (plan.lines * plan.pitch,), "int32"), imm(plan.layer.attrs.pad_value)
    with b.for_("i", plane.size) as i:
        b.store(plane, i, word(pad, pad, bits))

    def row(at: Expr, start: Expr | None) -> None:
        copy(plane, b.let("d", at * plan.pitch), plan.pixels(data, start))

    return plane, row


def counted(b: IRBuilder, count: int, name: str) -> Iterator[Expr]:
    """The variable of a loop; 0 without a loop if the count is 1."""
    if count == 1:
        yield imm(0)
        return
    with b.for_(name, count) as n:
        yield n


def channel_blocks(
    b: IRBuilder, channels: int, size: int, *, loop: bool = False, one: bool = False
) -> Iterator[tuple[Expr, int]]:
    """Blocks of `size` channels as (number, channels): a loop over whole ones if there are any or `loop`, then the remainder.

    `one`: no loop for a single block.
    """
    whole, remainder = divmod(channels, size)
    if one and whole == 1:
        yield imm(0), size
    elif whole or loop:
        with b.for_("n", whole) as n:
            yield n, size
    if remainder:
        yield imm(whole), remainder


def block_sizes(channels: int, size: int) -> list[int]:
    """The channels of each block."""
    return [min(size, channels - first) for first in range(0, channels, size)]


def starts(b: IRBuilder, count: int, size: int, loop: str, name: str) -> Iterator[Expr]:
    """The first index of each run of `size` among `count`; if they do not divide evenly, the last run overlaps the one before."""
    if count <= size:
        yield imm(0)
        return
    with b.for_(loop, -(-count // size)) as i:
        yield b.let(name, minimum(i * size, count - size)) if count % size else i * size


Strips = tuple[tuple[int, int], ...]
"""(first output, number of outputs) for each part of a row of results."""


def cut(outputs: int, width: int, *, join: bool) -> Strips:
    """Strips of `width` and a remainder; `join`: a remainder of one output is added to the last strip."""
    firsts = list(range(0, outputs, width))
    if join and len(firsts) > 1 and outputs - firsts[-1] == 1:
        firsts.pop()
    return tuple((f, end - f) for f, end in zip(firsts, [*firsts[1:], outputs], strict=True))


def equal_strips(outputs: int, most: int) -> Strips:
    """The fewest strips of about `most` outputs at most; every strip starts at an even column."""
    count = -(-outputs // most)
    return cut(outputs, outputs // count // 2 * 2 if count > 1 else outputs, join=True)


def each_strip(b: IRBuilder, strips: Sequence[tuple[int, int]]) -> Iterator[tuple[Expr, int]]:
    """First output and number of outputs of each strip; strips of equal width run in a loop."""
    runs: list[tuple[int, int, int]] = []
    for first, outputs in strips:
        if runs and runs[-1][1] == outputs:
            runs[-1] = (*runs[-1][:2], runs[-1][2] + 1)
        else:
            runs.append((first, outputs, 1))
    for first, outputs, count in runs:
        if count == 1:
            yield imm(first), outputs
            continue
        with b.for_("x", first + count * outputs, start=first, step=outputs) as x:
            yield x, outputs


# Depthwise convolution with two sums per 32-bit product, for Armv6-M and Cortex-M3.
#
# Armv6-M has 32-bit products only, and longer ones are slow on a Cortex-M3; but sums of int8 products need far fewer bits.
# So two pixels share a word, z = 2^11 apart.  With the words p + q z and q + r z, the sums of products with a channel's
# weights are first = A + B z and second = B + C z, modulo 2^32.  The low bits of `second` are the low bits of B, which
# determines A modulo 2^22; A determines B, and B determines C. So four products and four additions replace six multiply-
# accumulates, provided that all sums fit 21 bits.
#
# The kernel computes six outputs at a time, six of a row or three of two rows, one channel's plane after the other.  Each
# instruction set has its own block for the products.  A word of the plane holds a pixel and the pixel that the next output
# reads in its place.  The orientation of the plane and the shape of the six outputs are chosen by cost.  Weights stay one
# byte each.  Scratch memory: four bytes per pixel of the current band of rows.


BITS = 11
LIMIT = 1 << (31 - BITS)
"""Sums are in [-LIMIT, LIMIT)."""
WORDS = 4
"""Accumulator words for six pixels."""
WORD_SHIFT = 32 - 2 * BITS
MAX_TAPS = 49
MAX_LINE = 4096
"""Bytes of the rows that one output row reads, at most."""
GROUPS = ((1, 6), (2, 3))
"""Rows and columns of the six outputs."""
UNROLL = 6
"""Words of a row that are copied without a loop."""


def three_sums(b: IRBuilder, acc: Buffer, at: int) -> tuple[Expr, Expr, Expr]:
    """The sums of the three pixels in words `at` and `at` + 1."""
    first, second = acc[at], acc[at + 1]
    low = (first - (second << imm(BITS, "uint32"))) << imm(WORD_SHIFT, "uint32")
    p = b.let("p", cast("int32", low) >> WORD_SHIFT)
    q = b.let("q", cast("int32", first - cast("uint32", p)) >> BITS)
    r = b.let("r", cast("int32", second - cast("uint32", q)) >> BITS)
    return p, q, r


class Form(Protocol):
    """A form of requantisation."""

    @property
    def params(self) -> tuple[RequantParam, ...]: ...
    def emit(self, b: IRBuilder, acc: Expr, requant_params: tuple[Expr, ...]) -> Expr: ...


@dataclass(frozen=True, slots=True)
class LaneRequant:
    """Requantisation of accumulators; `base` is subtracted from each channel's initial accumulator."""

    form: Form
    base: Array


class Numbers:
    """A constant array with `start` [O] (32 bits) and the non-uniform parameters of `requant`."""

    def __init__(self, b: IRBuilder, io: LayerIo, start: Array, requant: Form) -> None:
        self._b, self._requant = b, requant
        arrays = [start & 0xFFFFFFFF] + [f.values & 0xFFFFFFFF for f in requant.params if not f.uniform]
        self._count = len(arrays)
        words = np.stack(arrays, axis=1).astype(np.uint32).view(np.int32)
        self._buffer = io.constant("numbers", np.ascontiguousarray(words).reshape(-1), "int32")

    def start(self, channel: Expr) -> Expr:
        return self._buffer[channel * self._count]

    def requant_params(self, channel: Expr) -> tuple[Expr, ...]:
        """Load the parameters of a channel."""
        loads = (self._buffer[channel * self._count + row] for row in range(1, self._count))
        return load_params(self._b, self._requant, loads)


@dataclass(frozen=True, slots=True)
class Taps:
    """`rows` by `columns` taps, `dilation` columns apart; `stride`: columns between neighbouring outputs."""

    rows: int
    columns: int
    stride: int
    dilation: int

    @property
    def reach(self) -> int:
        """Words from the first to the last one that a row of taps reads."""
        return (self.columns - 1) * self.dilation + self.stride


@dataclass(frozen=True, slots=True)
class Machine:
    """The parts of the kernel that depend on the core.

    `row`: the instructions for the taps of row ky of the window.  They find the words in x and y, the weights in w (these are in
    registers of the first of `kinds`), and the sums in a0 to a3 (in registers of the second); they may change `temporaries` and
    `clobbers`.  Their loads can reach `reach` words.  `requantise` chooses the requantisation, which costs `result_cost`
    instructions per result.  `group_cost`: other instructions per six outputs.
    """

    kernel: str
    block: str
    needs: str
    kinds: str
    row: Callable[[Taps, int], list[str]]
    reach: int
    requantise: Callable[[FusedLayer, Target], LaneRequant]
    result_cost: Callable[[LaneRequant], int]
    group_cost: int
    head: tuple[str, ...] = ()
    temporaries: tuple[str, ...] = ()
    clobbers: tuple[str, ...] = ()

    def text(self, taps: Taps) -> list[str]:
        """The assembly for all taps of six outputs."""
        text = [*self.head, *self.row(taps, 0)]
        for ky in range(1, taps.rows):
            text += ["add %[x], %[pitch]", "add %[y], %[pitch]", *self.row(taps, ky)]
        return text


@cache
def plane_sums(machine: Machine, taps: Taps) -> TensorIntrin:
    """acc[4] += sums over the window of weights times words of the plane.

    Operands: w int8[taps]; x int32, the words of the plane from the first output's window on (word i is pixel i + 2^11 * pixel (i
    + stride)); acc uint32[4]; `second`: words between the windows of the first and the fourth output; `pitch`: words between rows
    of the window.
    """
    second, pitch = Var("second"), Var("pitch")
    b = IRBuilder(f"plane_{taps.rows}x{taps.columns}_s{taps.stride}_d{taps.dilation}")
    w = b.input("w", (taps.rows * taps.columns,), "int8")
    x = b.input("x", (UNKNOWN_EXTENT,), "int32", align=4)
    acc = b.output("acc", (WORDS,), "uint32")
    with b.for_("ky", taps.rows) as ky, b.for_("kx", taps.columns) as kx:
        weight = b.let("weight", cast("uint32", cast("int32", w[ky * taps.columns + kx])))
        at = b.let("at", ky * pitch + kx * taps.dilation)
        for i in range(WORDS):
            place = at + (i % 2) * taps.stride
            b.store(acc, i, acc[i] + weight * cast("uint32", x[place + second if i >= 2 else place]))
    desc, several = replace(b.finish(), scalars=(second, pitch)), taps.rows > 1

    def emit(operands: Operands) -> BlockText:
        pointers = {**operands, "y": COperand(f"(const int32_t *)aot_x + {operands['second'].value}")}
        before = [f"const int32_t aot_pitch = 4 * {operands['pitch'].value};"] if several else []
        low, high = machine.kinds[0], machine.kinds[1]
        return asm(
            pointers, machine.text(taps), "x y *w", {f"pitch:{high}": "aot_pitch"} if several else {}, kind="+",
            low="x y w" if low == "l" else "", before=before, temporaries=machine.temporaries, clobbers=machine.clobbers,
            acc=f"a:{high}",
        )  # fmt: skip

    return TensorIntrin(f"{machine.block}_{desc.name}", desc, emit, requires=machine.needs)


@dataclass(frozen=True, slots=True)
class LanePlanes(Planes):
    """Planes of words with `band` result rows each; `shape`: rows and columns of the six outputs."""

    machine: Machine
    requant: LaneRequant
    shape: tuple[int, int]

    @property
    def taps(self) -> Taps:
        return Taps(self.rows.taps, self.columns.taps, self.columns.stride, self.columns.dilation)

    @property
    def lines(self) -> int:
        return (max(self.band, self.shape[0]) - 1) * self.rows.stride + self.rows.reach

    @property
    def second(self) -> int:
        """Words between the windows of the first and the fourth output."""
        return 3 * self.columns.stride if self.shape[0] == 1 else self.rows.stride * self.pitch

    @property
    def products(self) -> int:
        """Instructions for the taps of six outputs."""
        return count_instructions(self.machine.text(self.taps))

    @property
    def cost(self) -> int:
        """Instructions per channel (from counts under QEMU)."""
        lines = self.lines if self.bands > 1 else min(self.rows.size, self.lines)
        copy = lines * (20 + 8 * min(self.pitch, self.columns.size))
        groups = -(-self.band // self.shape[0]) * -(-self.columns.out // self.shape[1])
        each = 6 * (self.machine.result_cost(self.requant) + epilogue_each(self.layer))
        return self.bands * (copy + groups * (self.products + self.machine.group_cost + each) + 20)


def _plan(group: Group, target: Target, machine: Machine, lacks: str) -> LanePlanes | None:
    """The cheapest plan for a window of a few taps; None if sums may exceed the lanes."""
    layer = match_for(group, target, machine.needs)
    if layer is None or target.has(lacks) or 0 in layer.out_type.shape or prod(layer.weight.shape[:2]) > MAX_TAPS:
        return None
    requant = machine.requantise(layer, target)
    low, high = layer.acc_low - requant.base, layer.acc_high - requant.base
    if (low < -LIMIT).any() or (high >= LIMIT).any():
        return None
    plans = []
    for (rows, columns, swapped), shape in product(orientations(layer), GROUPS):
        words = (max(columns.out, shape[1]) - 1) * columns.stride + columns.reach - columns.stride
        band = band_height(rows, line_bytes=4 * words)
        if shape[0] > 1 and band < shape[0] <= rows.out:
            band = shape[0]
        plan = LanePlanes(layer, rows, columns, swapped, band, words, machine, requant, shape)
        if 4 * words * (rows.reach + (shape[0] - 1) * rows.stride) <= MAX_LINE and plan.taps.reach <= machine.reach:
            plans.append(plan)
    return min(plans, key=lambda p: p.cost, default=None)


def _lower(group: Group, _target: Target, name: str, plan: LanePlanes) -> Lowered:
    """Build the kernel of a plan."""
    layer = plan.layer
    b = IRBuilder(name)
    io = open_flat(b, group, layer)
    weight = layer.weight.transpose(1, 0, 2) if plan.swapped else layer.weight
    packed = np.ascontiguousarray(weight.reshape(-1, layer.channels).T).reshape(-1).astype(np.int8)
    weights = io.constant("weights", packed, "int8")
    start: Array = (layer.bias - plan.requant.base) * (1 + (1 << BITS))
    numbers = Numbers(b, io, start, plan.requant.form)
    plane, row = word_rows(b, plan, io.data, BITS, partial(_copy_row, b, plan))
    for channel, out in plan.results(b, row, name_channel=True):
        _band(b, plan, io, plane, weights=weights, numbers=numbers, channel=channel, at=b.let("o", out))
    form = {"rows": plan.shape[0], "columns": plan.shape[1], "band": plan.band}
    cost = layer.data_type.shape[0] * layer.channels * plan.cost + 4 * plane.size
    code = 900 + 2 * plan.products + 400 * len(layer.epilogue)
    return lowered(io, layer, plan.machine.kernel, cost, code, **form)


def _band(
    b: IRBuilder, plan: LanePlanes, io: LayerIo, plane: Buffer, *, weights: Buffer, numbers: Numbers, channel: Expr, at: Expr
) -> None:
    """Compute one channel's results in a band; the first one is element `at` of the output."""
    rows, columns = plan.rows, plan.columns
    requant_params = numbers.requant_params(channel)
    start = b.let("start", cast("uint32", numbers.start(channel)))
    w = region(weights, channel * (rows.taps * columns.taps))
    for y in starts(b, plan.band, plan.shape[0], "y", "y"):
        for x in starts(b, columns.out, plan.shape[1], "x", "x"):
            acc = b.local("acc", (WORDS,), "uint32")
            for i in range(WORDS):
                b.store(acc, i, start)
            word = y * (rows.stride * plan.pitch) + x * columns.stride
            b.block(
                plane_sums(plan.machine, plan.taps),
                w,
                region(plane, word),
                acc,
                imm(plan.second),
                imm(plan.pitch * rows.dilation),
            )
            sums = [*three_sums(b, acc, 0), *three_sums(b, acc, 2)]
            here = b.let("here", at + y * rows.out_step + x * columns.out_step)
            for p, (row, column) in enumerate(product(range(plan.shape[0]), range(plan.shape[1]))):
                if row < plan.band and column < columns.out:
                    place = here + (row * rows.out_step + column * columns.out_step)
                    io.store((place,), plan.requant.form.emit(b, sums[p], requant_params))


def _copy_row(b: IRBuilder, plan: LanePlanes, plane: Buffer, target: Expr, pixel: Callable[[Expr], Expr]) -> None:
    """Store the words of a row that hold pixels of the image; the first and last ones may also hold a border pixel."""
    columns, pad = plan.columns, imm(plan.layer.attrs.pad_value)
    stride, before, end = columns.stride, columns.before, columns.before + columns.size
    low, high = min(before, plan.pitch), min(max(end - stride, before), plan.pitch)

    def one(i: int) -> None:
        low_pixel, high_pixel = (pixel(imm(at - before)) if before <= at < end else pad for at in (i, i + stride))
        b.store(plane, target + i, word(low_pixel, high_pixel, BITS))

    for i in range(max(0, before - stride), low):
        one(i)
    count = high - low
    unroll = next(u for u in range(min(UNROLL, count), 0, -1) if count % u == 0) if count > 0 else 1
    for p in counted(b, count // unroll, "p") if count > 0 else ():
        values = [b.let("v", pixel(p * unroll + (low - before + u))) for u in range(unroll + stride)]
        for u in range(unroll):
            b.store(plane, target + (p * unroll + (low + u)), word(values[u], values[u + stride], BITS))
    for i in range(max(low, high), min(end, plan.pitch)):
        one(i)


def register_lanes(machine: Machine, *, lacks: str = "", plevel: int) -> None:
    """Register the kernel of a machine, for cores without the feature `lacks`."""
    plan = partial(_plan, machine=machine, lacks=lacks)
    register_planned(machine.kernel, "nn.depthwise_conv2d", plan, _lower, plevel=plevel)
