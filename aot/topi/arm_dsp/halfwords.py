"""Weights of two bytes each in flash, which SMLAD uses as they are: layers of one position, and layers of 16-bit data.

Layers of one position run once per new row of a sliding window (--slide).  Such a layer runs often and does little, so packing
the data and unpacking weights would be a large part of it.  Here the 16-bit numbers are 256 times the model's weights, so that
sums requantise as in dense_w8. `dense_pairs`: fully connected layers, one row x four channels. `conv2d_pairs`: convolutions of a
few pixels with large windows, two pixels x three channels.  `depthwise_window`: depthwise convolutions whose window is the whole
image, four channels.

Layers of 16-bit data and 8-bit weights whose sums provably fit 32 bits: the reference sums in 64 bits.  The sum of a channel is
below 32768 * sum |w| + |bias|; if that is below 2^31 for every channel, 32 bits are exact, and SMLAD does two products per
instruction where 64 bits would need an SMLAL for each.  `conv2d_16x8`: two pixels x four channels; the windows of both pixels are
packed as pairs (scratch: eight bytes per pair of taps).  `dense_16x8`: one row x four channels, straight from the data.  With an
epilogue, both keep results in scratch memory, two bytes each, as the block of assembly leaves no registers for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import count
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.relay.expr import tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, cast, clamp, imm, logical_and, minimum
from aot.tir.intrin import BlockText, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.arm_dsp.tile import CHANNELS, ONE_BLOCK
from aot.topi.arm_dsp.weights import (
    BYTES,
    PRESCALE,
    TAPS,
    PackedWeights,
    QuadLoop,
    QuadPlan,
    WordForm,
    add_modulo,
    arrange,
    fits_bytes,
    pack_unroll,
    words32,
)
from aot.topi.intrin.asm_text import Operands, Repeat, asm, block_of
from aot.topi.intrin.scalar import saturate, smlad_2x4, smlad_2x4_instructions
from aot.topi.layer.fused import (
    FusedLayer,
    LayerIo,
    epilogue_instructions,
    lowered,
    match_for,
    match_layer,
    open_io,
    supports_epilogue,
)
from aot.topi.layer.im2col import WindowRuns, is_rows, match_rows, window_at
from aot.topi.layer.planes import channel_blocks
from aot.topi.layer.requant import General, HighMultiply, Requant, RequantParam, load_params, plan_requantize
from aot.topi.strategy import Group, Lowered, register_planned

ORDER = (0, 2, 1, 3)
"""The order in which SXTB16 extracts the bytes of a quad."""

MAX_UNROLL = 16

STRAIGHT = 32
"""Most steps without a loop."""

_DATA = ("r5", "r6", "r8")
_WEIGHTS = ("r9", "r10", "r11", "r12")
"""These leave low registers for the six operands; if they left r12 in place of r4, GCC would often find no room."""
_UNSIZED = (UNKNOWN_EXTENT,)

PIXELS, TRIPLE = 2, 3
"""Pixels of a block of a convolution; channels of a block of conv2d_pairs."""

# ---- blocks for layers of one position ----


def scaled(values: Array) -> Array:
    """Return int8 values times 256, as int16."""
    result: Array = (values.astype(np.int64) << PRESCALE).astype(np.int16)
    return result


def start_values(bias: Array, _weights: Array) -> Array:
    """Return biases times 256, modulo 2^32."""
    return words32(bias.astype(np.int64) << PRESCALE)


def _memory(name: str) -> tuple[IRBuilder, Buffer, Buffer]:
    """Return a builder with the inputs of a block of products: data x and weights w, both aligned to words."""
    b = IRBuilder(name)
    return b, b.input("x", _UNSIZED, "int16", align=4), b.input("w", _UNSIZED, "int16", align=4)


@cache
def unpack_quads(unroll: int) -> TensorIntrin:
    """words[4 q + i] = x[4 q + ORDER[i]], q < quads, a multiple of `unroll`: int8 at any address to int16."""
    b = IRBuilder(f"unpack_quads_u{unroll}")
    quads = Var("quads")
    x = b.input("x", _UNSIZED, "int8")
    words = b.output("words", _UNSIZED, "int16", align=4)
    with b.for_("q", quads) as q:
        values = [b.let("v", cast("int32", x[q * TAPS + i])) for i in ORDER]
        for i, value in enumerate(values):
            b.store(words, q * TAPS + i, value)
    step = ["ldr %[v], [%[s]], #4", "sxtb16 %[w], %[v]", "sxtb16 %[v], %[v], ror #8", "strd %[w], %[v], [%[d]], #8"]
    return block_of(
        b, "arm_dsp", lambda ops: QuadLoop(ops, unroll).asm(step, "s=x >d=words", TAPS, temporaries="vw"), quads, ordered=True
    )


@dataclass(frozen=True, slots=True)
class Steps:
    """How `dot_quads` loops: steps of `words` words of data, `unroll` of them `loops` times, then `rest` words.

    With three words per step no register is left to count with, so they are used only without a loop.
    """

    words: int
    unroll: int
    loops: int
    rest: int


def dot_steps(quads: int) -> Steps:
    """Return straight code if repetition in C can express it, else a loop over up to 16 quads."""
    if 2 * quads // 3 <= STRAIGHT:
        return Steps(3, 2 * quads // 3, 1, 2 * quads % 3)
    unroll = max(u for u in range(1, MAX_UNROLL + 1) if quads % u == 0)
    if unroll >= 4:
        return Steps(2, unroll, quads // unroll, 0)
    return Steps(2, MAX_UNROLL, quads // MAX_UNROLL, 2 * (quads % MAX_UNROLL))


@cache
def dot_quads(channels: int, quads: int) -> TensorIntrin:
    """acc[c] += sum over k < 2 quads, j < 2 of x[2 k + j] * w[k, c, j], modulo 2^32; one row x up to four channels.

    acc: int32[channels]; x: int16[4 quads] and w: int16[2 quads, channels, 2], both aligned to 4 bytes.  Four channels: 12 SMLAD
    and 4 LDM for 24 multiply-accumulates; in a loop, 8 SMLAD, 2 LDM and an LDRD for 16.
    """
    b, x, w = _memory(f"dot_quads_c{channels}_q{quads}")
    acc = b.output("acc", (channels,), "int32")
    with b.for_("k", 2 * quads) as k:
        values = [b.let("x", cast("int32", x[k * 2 + j])) for j in range(2)]
        for c in range(channels):
            first, second = (values[j] * cast("int32", w[(k * channels + c) * 2 + j]) for j in range(2))
            add_modulo(b, acc, c, first + second)
    steps, text = dot_steps(quads), _dot_text(channels, quads)
    clobbers, counter = [*_DATA[: steps.words], *_WEIGHTS[:channels]], "n" if steps.loops > 1 else ""
    return block_of(b, "arm_dsp", lambda ops: asm(ops, text, "w x", acc="a", temporaries=counter, clobbers=clobbers, kind="+"))


def _dot_text(channels: int, quads: int) -> list[str | Repeat]:
    words = _WEIGHTS[:channels]
    load = f"ldmia %[w]!, {{{', '.join(words)}}}" if channels > 1 else f"ldr {words[0]}, [%[w]], #4"

    def step(count: int) -> list[str]:
        take = (f"ldr {_DATA[0]}, [%[x]], #4", f"ldrd {_DATA[0]}, {_DATA[1]}, [%[x]], #8", f"ldmia %[x]!, {{{', '.join(_DATA)}}}")
        products = [(load, *(f"smlad %[a{c}], {w}, {x}, %[a{c}]" for c, w in enumerate(words))) for x in _DATA[:count]]
        return [take[count - 1], *(line for lines in products for line in lines)]

    steps = dot_steps(quads)
    text: list[str | Repeat] = [Repeat(steps.unroll, step(steps.words))] if steps.unroll else []
    if steps.loops > 1:
        text = [f"mov %[n], #{steps.loops}", "1:", *text, "subs %[n], %[n], #1", "bne 1b"]
    pairs, last = divmod(steps.rest, 2)
    return text + [Repeat(pairs, step(2))] * (pairs > 0) + step(1) * last


def dot_instructions(channels: int, quads: int) -> int:
    """Return the instructions of `dot_quads`."""
    steps = dot_steps(quads)
    looping = 2 * steps.loops + 1 if steps.loops > 1 else 0
    return 2 * quads * (1 + channels) + steps.loops * steps.unroll + -(-steps.rest // 2) + looping


@cache
def window_sums(taps: int, pitch: int) -> TensorIntrin:
    """acc[c] += sum over k < taps of x[k * pitch + c] * w[k, ORDER.index(c)], modulo 2^32, for four channels.

    acc: int32[4]; x: int8 at any address; w: int16[taps, 4], aligned to 4 bytes.  8 instructions for 4 multiply-accumulates.
    """
    b = IRBuilder(f"window_sums_t{taps}_p{pitch}")
    x = b.input("x", _UNSIZED, "int8")
    w = b.input("w", _UNSIZED, "int16", align=4)
    acc = b.output("acc", (TAPS,), "int32")
    with b.for_("k", taps) as k:
        for i, c in enumerate(ORDER):
            add_modulo(b, acc, c, cast("int32", x[k * pitch + c]) * cast("int32", w[k * TAPS + i]))
    ins, text, clobbers = {"pitch": str(pitch)} if pitch >= 256 else {}, [Repeat(taps, _tap(pitch))], ["r8", "r9", "r10", "r11"]
    return block_of(b, "arm_dsp", lambda ops: asm(ops, text, "w x", ins, acc="a", clobbers=clobbers, kind="+"))


def _tap(pitch: int) -> list[str]:
    load = [f"ldr r8, [%[x]], #{pitch}"] if pitch < 256 else ["ldr r8, [%[x]]", "add %[x], %[x], %[pitch]"]
    lanes = ((0, "bb", "r9", "r10"), (2, "tt", "r9", "r10"), (1, "bb", "r8", "r11"), (3, "tt", "r8", "r11"))
    products = [f"smla{half} %[a{c}], {x}, {w}, %[a{c}]" for c, half, x, w in lanes]
    return [*load, "ldrd r10, r11, [%[w]], #8", "sxtb16 r9, r8", "sxtb16 r8, r8, ror #8", *products]


@cache
def unpack_pairs() -> TensorIntrin:
    """words[q, i // 2, p, i % 2] = x_p[4 q + ORDER[i]], q < quads: two runs of int8 at any address, interleaved word by word."""
    b = IRBuilder("unpack_pairs")
    quads = Var("quads")
    runs = [b.input(f"x{p}", _UNSIZED, "int8") for p in range(2)]
    words = b.output("words", _UNSIZED, "int16", align=4)
    with b.for_("q", quads) as q:
        values = [[b.let("v", cast("int32", x[q * TAPS + i])) for i in ORDER] for x in runs]
        for p, of_run in enumerate(values):
            for i, value in enumerate(of_run):
                b.store(words, q * (2 * TAPS) + (i // 2 * 4 + p * 2 + i % 2), value)
    text = [
        *("1:", "ldr r5, [%[s]], #4", "ldr r6, [%[t]], #4"),
        *("sxtb16 r8, r5", "sxtb16 r9, r6", "sxtb16 r10, r5, ror #8", "sxtb16 r11, r6, ror #8"),
        *("stmia %[d]!, {r8, r9, r10, r11}", "subs %[n], %[n], #1", "bne 1b"),
    ]

    def emit(operands: Operands) -> BlockText:
        count, clobbers = f"uint32_t aot_n = {operands['quads'].value};", ["r5", "r6", "r8", "r9", "r10", "r11"]
        return asm(operands, text, "s=x0 t=x1 >d=words", before=[count], last=['[n] "+r"(aot_n)'], clobbers=clobbers, kind="+")

    return block_of(b, "arm_dsp", emit, quads, ordered=True)


@cache
def pair_products(steps: int) -> TensorIntrin:
    """acc[c, p] += sum over k < steps, j < 2 of x[k, p, j] * w[k, c, j], modulo 2^32, for three channels c and two runs p.

    acc: int32[6]; x: int16[steps, 2, 2] and w: int16[steps, 3, 2], both aligned to 4 bytes.  6 SMLAD, an LDRD and an LDM for 12
    multiply-accumulates.
    """
    b, x, w = _memory(f"pair_products_{steps}")
    acc = b.output("acc", (6,), "int32")
    with b.for_("k", steps) as k:
        values = [[b.let("x", cast("int32", x[k * 4 + p * 2 + j])) for j in range(2)] for p in range(2)]
        for c in range(3):
            weights = [b.let("w", cast("int32", w[k * 6 + c * 2 + j])) for j in range(2)]
            for p, pair in enumerate(values):
                add_modulo(b, acc, c * 2 + p, pair[0] * weights[0] + pair[1] * weights[1])
    text, clobbers = [Repeat(steps, _PAIR_STEP)], ["r8", "r9", "r10", "r11", "r12"]
    return block_of(b, "arm_dsp", lambda ops: asm(ops, text, "w x", acc="a", clobbers=clobbers, kind="+"))


_PAIR_STEP = ["ldrd r8, r9, [%[x]], #8", "ldmia %[w]!, {r10, r11, r12}"]
_PAIR_STEP += [
    f"smlad %[a{2 * c + p}], {w}, {x}, %[a{2 * c + p}]"
    for c, w in enumerate(("r10", "r11", "r12"))
    for p, x in enumerate(("r8", "r9"))
]


# Convolutions of a few pixels with large windows: one row of two windows is unpacked at a time and used by all channels, whose
# sums stay in scratch memory until the last row is done.  With so few pixels, larger blocks would not divide them evenly.
# Scratch: four bytes per tap of one row, eight bytes per channel.


MAX_STEPS = 28
"""Most steps in a block; longer runs use several blocks."""


def channel_numbers(layer: FusedLayer, requant: HighMultiply) -> list[Array]:
    """Return the header of each channel: the start value, and the requantisation parameters that vary."""
    return [start_values(layer.bias, layer.weight), *(f.values for f in requant.params if not f.uniform)]


@dataclass(frozen=True, slots=True)
class _Windows:
    """A convolution of a few pixels, the runs of its windows, and blocks of channels, the last one padded."""

    layer: FusedLayer
    requant: HighMultiply
    runs: WindowRuns
    arrays: list[Array]
    blocks: int
    pixels: int

    @property
    def steps(self) -> int:
        """Pairs of taps per block of code: the most that divide the pairs of a run."""
        return max(n for n in range(1, MAX_STEPS + 1) if (self.runs.length // 2) % n == 0)

    def stream(self) -> Array:
        """Return int32: per run and block the weights, int16[pairs][3][2] in ORDER; then the headers [channels][numbers]."""
        layer, length = self.layer, self.runs.length
        matrix = layer.weight.reshape(layer.channels, self.runs.count, length // TAPS, TAPS)[..., ORDER]
        matrix = np.pad(matrix, ((0, -layer.channels % TRIPLE), (0, 0), (0, 0), (0, 0)))
        blocks = scaled(matrix).reshape(self.blocks, TRIPLE, self.runs.count, length // 2, 2).transpose(2, 0, 3, 1, 4)
        numbers = np.stack(self.arrays, axis=1).astype(np.int32)
        return np.concatenate([np.ascontiguousarray(blocks).reshape(-1).view(np.int32), numbers.reshape(-1)])

    def number(self, channel: Expr) -> Expr:
        """Return where the header of a channel begins."""
        return channel * len(self.arrays) + self.runs.count * self.blocks * TRIPLE * self.runs.length // 2

    def instructions(self) -> int:
        """Return the instructions of one call without its epilogue (from counts under QEMU)."""
        tiles, runs, pairs = -(-self.pixels // PIXELS), self.runs, self.runs.length // 2
        iterations = pairs // self.steps
        products = len(_PAIR_STEP) * pairs + (10 * iterations if iterations > 1 else 0)
        run = 9 * (runs.length // TAPS) + 21 + self.blocks * (products + 13)
        return int(tiles * (runs.count * run + 40 + 6.9 * len(self.arrays) * self.layer.channels))


def plan_windows(group: Group, target: Target) -> _Windows | None:
    """Accept at least two pixels, no padding, runs of whole quads, and the short requantisation with sums scaled by 256."""
    layer = match_for(group, target, "dsp")
    if layer is None or layer.weight.ndim != 4 or is_rows(layer):
        return None
    runs, pixels = WindowRuns(layer), prod(layer.out_type.shape[:-1])
    if any(layer.attrs.padding) or runs.length % TAPS or pixels < PIXELS or BYTES.requant(layer, target) is None:
        return None
    requant = BYTES.best_requant(layer, target)
    return _Windows(layer, requant, runs, channel_numbers(layer, requant), -(-layer.channels // TRIPLE), pixels)


def lower_windows(group: Group, _target: Target, name: str, plan: _Windows) -> Lowered:
    """Lower a convolution: groups of two pixels; for each, rows of the window, each with all channels; then requantise."""
    layer, length = plan.layer, plan.runs.length
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(prod(layer.data_type.shape),), out_shape=(plan.pixels * layer.channels,))
    words = b.scratch("words", (2 * length,), "int16", align=4)
    sums = b.scratch("sums", (plan.blocks * TRIPLE * PIXELS,), "int32")
    params = io.constant("params", plan.stream(), "int32")
    with b.for_("t", -(-plan.pixels // PIXELS)) as tile:
        first = b.let("pixel", minimum(tile * PIXELS, plan.pixels - PIXELS)) if plan.pixels % PIXELS else tile * PIXELS
        for z in range(layer.channels * PIXELS, plan.blocks * TRIPLE * PIXELS):
            b.store(sums, z, 0)
        with b.for_("n", layer.channels) as n:
            bias = b.let("bias", params[plan.number(n)])
            for p in range(PIXELS):
                b.store(sums, n * PIXELS + p, bias)
        _sum_rows(b, plan, io, (params, words, sums), first=first)
        with b.for_("n", layer.channels) as n:
            start = plan.number(n)
            requant_params = load_params(b, plan.requant, (params[start + i] for i in count(1)))
            for p in range(PIXELS):
                value = plan.requant.emit_scaled(b, sums[n * PIXELS + p], requant_params)
                io.store(((first + p) * layer.channels + n,), value)
    total = plan.instructions() + epilogue_instructions(layer) * -(-plan.pixels // PIXELS) * PIXELS // plan.pixels
    code = 400 + 4 * len(_PAIR_STEP) * plan.steps
    return lowered(io, layer, "arm_dsp.conv2d_pairs", total, code, pixels=PIXELS, channels=TRIPLE)


def _sum_rows(b: IRBuilder, plan: _Windows, io: LayerIo, place: tuple[Buffer, Buffer, Buffer], *, first: Expr) -> None:
    """Sum the products of all runs of two windows with all channels."""
    (params, words, sums), layer, runs = place, plan.layer, plan.runs
    _, height, width, depth = layer.data_type.shape
    origins = [window_at(b, layer, first + p, origin=(0, 0)) for p in range(PIXELS)]
    with b.for_("row", runs.rows) as ky, b.for_("column", runs.columns) as kx:
        starts = []
        for image, y, x in origins:
            row, column = y + ky * layer.attrs.dilation[0], x + kx * layer.attrs.dilation[1]
            starts.append(b.let("start", ((image * height + row) * width + column) * depth))
        b.block(unpack_pairs(), *(region(io.data, s) for s in starts), words, imm(runs.length // TAPS))
        with b.for_("n", plan.blocks) as n:
            acc = b.local("acc", (TRIPLE * PIXELS,), "int32")
            for i in range(TRIPLE * PIXELS):
                b.store(acc, i, sums[n * (TRIPLE * PIXELS) + i])
            block = ((ky * runs.columns + kx) * plan.blocks + n) * (TRIPLE * runs.length)
            with b.for_("s", runs.length // 2 // plan.steps) as s:
                weights = region(params, block + s * (2 * TRIPLE * plan.steps), dtype="int16")
                b.block(pair_products(plan.steps), region(words, s * (2 * PIXELS * plan.steps)), weights, acc)
            for i in range(TRIPLE * PIXELS):
                b.store(sums, n * (TRIPLE * PIXELS) + i, acc[i])


register_planned("arm_dsp.conv2d_pairs", "nn.conv2d", plan_windows, lower_windows, plevel=8, for_pushes=True)


# Fully connected layers over one row, in blocks of four channels.  Scratch: two bytes per input.


PAIRS = WordForm(2, scaled, start_values, PRESCALE, fits_bytes)


def plan_row(group: Group, target: Target) -> tuple[FusedLayer, PackedWeights] | None:
    """Accept one row of at least four bytes whose accumulators stay below 2^23, with the short requantisation."""
    layer = match_rows(group, target, "dsp", pixels=1)
    if layer is None:
        return None
    depth = int(layer.weight[0].size)
    if prod(layer.out_type.shape[:-1]) != 1 or depth < TAPS or BYTES.requant(layer, target) is None:
        return None
    quads = -(-depth // TAPS)
    matrix = arrange(layer.weight.reshape(layer.channels, depth), 1, QuadPlan(quads, 1))
    ordered = matrix.reshape(layer.channels, quads, TAPS)[..., ORDER].reshape(layer.channels, -1)
    return layer, PackedWeights(ordered, layer.bias, BYTES.best_requant(layer, target), block=CHANNELS, form=PAIRS)


def lower_row(group: Group, _target: Target, name: str, plan: tuple[FusedLayer, PackedWeights]) -> Lowered:
    """Lower one row: unpack the data, then blocks of four channels."""
    layer, stream = plan
    depth = int(layer.weight[0].size)
    (whole, left), quads = divmod(depth, TAPS), -(-depth // TAPS)
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(depth,), out_shape=(layer.channels,))
    params = io.constant("params", stream.data(), "int32")
    words = b.scratch("words", (TAPS * quads,), "int16", align=4)
    b.block(unpack_quads(pack_unroll(whole)), io.data, words, imm(whole))
    if left:  # the last four bytes, some of them again; see run_taps
        b.block(unpack_quads(1), region(io.data, depth - TAPS), region(words, TAPS * whole), imm(1))
    for n, channels in stream.each_block(b):
        start = stream.start(n)
        acc = stream.accumulators(b, params, start, channels)
        b.block(dot_quads(channels, quads), words, stream.weights(params, start, channels), acc)
        for j, value in stream.results(b, params, start, acc):
            io.store((n * stream.block + j,), value)
    steps, counts = dot_steps(quads), stream.counts
    total = 4 * whole + 2 * (whole // pack_unroll(whole)) + 20 + epilogue_instructions(layer)
    total += sum(dot_instructions(n, quads) + n * stream.each + 8 for n in counts) - ONE_BLOCK * (len(counts) == 1)
    code = 90 + sum(4 * (steps.unroll * steps.words + steps.rest) * (2 + n) + 40 + 24 * n for n in stream.sizes)
    return lowered(io, layer, "arm_dsp.dense_pairs", total, code, channels=stream.block, unroll=steps.words * steps.unroll)


for _anchor in ("nn.dense", "nn.conv2d"):
    register_planned("arm_dsp.dense_pairs", _anchor, plan_row, lower_row, plevel=6, for_pushes=True)


# Depthwise convolutions whose window is the whole image, in blocks of four channels.


MAX_TAPS = 32


def plan_depthwise(group: Group, target: Target) -> tuple[FusedLayer, HighMultiply] | None:
    """Accept one result per channel, computed from its whole plane, and a multiple of four channels."""
    layer = match_for(group, target, "dsp")
    if layer is None or layer.channels % TAPS:
        return None
    if layer.data_type.shape != (1, *layer.weight.shape) or any(layer.attrs.padding) or layer.weight[..., 0].size > MAX_TAPS:
        return None
    return (layer, BYTES.best_requant(layer, target)) if BYTES.requant(layer, target) is not None else None


def lower_depthwise(group: Group, _target: Target, name: str, plan: tuple[FusedLayer, HighMultiply]) -> Lowered:
    """Lower one window per channel: blocks of four channels.

    Constants, int32: per four channels the headers [numbers][4], then the weights, int16[taps][4] in ORDER.
    """
    (layer, requant), channels = plan, plan[0].channels
    arrays, taps, blocks = channel_numbers(*plan), int(layer.weight[..., 0].size), channels // TAPS
    numbers = np.stack(arrays).astype(np.int64).reshape(-1, blocks, TAPS).transpose(1, 0, 2)
    words = scaled(layer.weight.reshape(taps, blocks, TAPS)[..., ORDER]).transpose(1, 0, 2)
    words = np.ascontiguousarray(words).reshape(blocks, -1).view(np.int32)
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(taps * channels,), out_shape=(channels,))
    stream = np.concatenate([numbers.reshape(blocks, -1).astype(np.int32), words], axis=1)
    params = io.constant("params", stream.reshape(-1), "int32")
    with b.for_("n", blocks) as n:
        start = n * stream.shape[1]
        acc = b.local("acc", (TAPS,), "int32")
        for j in range(TAPS):
            b.store(acc, j, params[start + j])
        weights = Region(params, (start + TAPS * len(arrays)) * 2, "int16")
        b.block(window_sums(taps, channels), region(io.data, n * TAPS), weights, acc)
        for j in range(TAPS):
            requant_params = load_params(b, requant, (params[start + (TAPS * i + j)] for i in count(1)))
            io.store((n * TAPS + j,), requant.emit_scaled(b, acc[j], requant_params))
    each, window = 5 + len(arrays) + 2 * requant.signed, taps * len(_tap(channels))
    total, code = blocks * (window + TAPS * each + 8) + epilogue_instructions(layer), 60 + 4 * window + 24 * TAPS
    return lowered(io, layer, "arm_dsp.depthwise_window", total, code, channels=TAPS)


register_planned("arm_dsp.depthwise_window", "nn.depthwise_conv2d", plan_depthwise, lower_depthwise, plevel=6, for_pushes=True)


# ---- 16-bit data ----


KINDS = frozenset({("int16", "int8")})


def match_16x8(group: Group, target: Target) -> tuple[FusedLayer, AnyRequant] | None:
    """Return a layer whose sums fit 32 bits, with an epilogue whose operands have the result's shape, and its requantisation."""
    layer = match_layer(group, KINDS) if target.has("dsp") else None
    if layer is None or not supports_epilogue(layer) or layer.weight.ndim == 3 or layer.attrs.weight_zp:
        return None
    matrix = np.abs(layer.weight.reshape(layer.channels, -1)).sum(axis=1)
    if (matrix * 32768 + np.abs(layer.bias) >= 1 << 31).any():
        return None
    return layer, with_short_products(plan_requantize(layer.requant, layer.acc_low, layer.acc_high, target))


class PairStream:
    """The constants in blocks of four channels: int16 weights [pairs][4][2], then int32 bias [4] and parameters that vary [4]."""

    def __init__(self, layer: FusedLayer, requant: AnyRequant) -> None:
        matrix = layer.weight.reshape(layer.channels, -1)
        more = -layer.channels % CHANNELS
        self.channels, self.requant = layer.channels, requant
        self._acc_dtype = tensor_type(layer.anchor).dtype
        self.pairs = (matrix.shape[1] + 1) // 2
        self._weights = np.pad(matrix, ((0, more), (0, 2 * self.pairs - matrix.shape[1])))
        self._arrays = [np.pad(a, (0, more)) for a in [layer.bias, *(f.values for f in requant.params if not f.uniform)]]
        self.block_words = CHANNELS * (self.pairs + len(self._arrays))
        self.each = len(self._arrays) + (8 if isinstance(requant, LongMultiply) else 0)
        """Instructions per result beyond those of the short requantisation with immediate numbers."""

    @property
    def numbers(self) -> int:
        """Words loaded per channel for bias and requantisation."""
        return len(self._arrays)

    def data(self) -> Array:
        """Return the stream as int32."""
        parts: list[Array] = []
        for first in range(0, len(self._weights), CHANNELS):
            block = self._weights[first : first + CHANNELS].reshape(CHANNELS, self.pairs, 2).transpose(1, 0, 2)
            parts.append(np.ascontiguousarray(block.astype(np.int16)).reshape(-1).view(np.int32))
            parts += [a[first : first + CHANNELS].astype(np.int32) for a in self._arrays]
        return np.concatenate(parts)

    def weights(self, params: Buffer, n: Expr) -> Region:
        return Region(params, n * (2 * self.block_words), "int16")

    def number(self, params: Buffer, n: Expr, row: int, j: int) -> Expr:
        """Return number j of row `row` (0: bias) of a block."""
        return params[n * self.block_words + (CHANNELS * (self.pairs + row) + j)]

    def results(self, b: IRBuilder, params: Buffer, n: Expr, j: int, sums: list[Expr]) -> Iterator[Expr]:
        """Iterate over the requantised sums of channel j of a block, which have the accumulators' type in the model."""
        requant_params = load_params(b, self.requant, (self.number(params, n, i, j) for i in count(1)))
        for acc in sums:
            value = acc if isinstance(self.requant, LongMultiply) else cast(self._acc_dtype, acc)
            yield self.requant.emit(b, value, requant_params)


class _Results:
    """Stores the results of `pixels` pixels: with an epilogue first in scratch memory, then all of a tile by `finish`."""

    def __init__(self, io: LayerIo, layer: FusedLayer, pixels: int) -> None:
        self._io, self._size, self._channels = io, pixels * layer.channels, layer.channels
        self._kept = io.ctx.builder.scratch("results", (self._size,), "int16") if layer.epilogue else None

    def store(self, first: Expr, n: Expr, p: int, j: int, value: Expr) -> None:
        """Store a result of channel j of block n for pixel `first` + p."""
        if self._kept is None:
            self._io.store(((first + p) * self._channels + n * CHANNELS + j,), value)
        else:
            self._io.ctx.builder.store(self._kept, n * CHANNELS + (p * self._channels + j), value)

    def finish(self, first: Expr) -> None:
        if self._kept is not None:
            with self._io.ctx.builder.for_("c", self._size) as c:
                self._io.store((first * self._channels + c,), cast("int32", self._kept[c]))


def plan_conv2d(group: Group, target: Target) -> tuple[FusedLayer, AnyRequant] | None:
    """Accept convolutions of at least two pixels."""
    match = match_16x8(group, target)
    if match is None or match[0].weight.ndim != 4 or prod(match[0].out_type.shape[:-1]) < PIXELS:
        return None
    return match


def lower_conv2d(group: Group, _target: Target, name: str, plan: tuple[FusedLayer, AnyRequant]) -> Lowered:
    """Lower a convolution: pairs of pixels; for each, pack both windows, then blocks of four channels."""
    layer, requant = plan
    rows = prod(layer.out_type.shape[:-1])
    stream = PairStream(layer, requant)
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(layer.data_type.size,), out_shape=(rows * layer.channels,), data_align=4)
    params = io.constant("params", stream.data(), "int32")
    words = b.scratch("words", (stream.pairs, PIXELS, 2), "int16", align=4)
    results = _Results(io, layer, PIXELS)
    if layer.weight[0].size % 2:
        for p in range(PIXELS):
            b.store(words, (stream.pairs - 1, p, 1), 0)
    with b.for_("t", -(-rows // PIXELS)) as t:
        first = t * PIXELS if rows % PIXELS == 0 else b.let("pixel", minimum(t * PIXELS, rows - PIXELS))
        for p in range(PIXELS):
            _pack(b, layer, io, words, index=first + p, p=p)
        for n, channels in channel_blocks(b, layer.channels, CHANNELS):
            acc = b.local("acc", (PIXELS, channels), "int32")
            for j in range(channels):
                b.store(acc, (0, j), stream.number(params, n, 0, j))
            b.block(smlad_2x4(stream.pairs, channels), words, stream.weights(params, n), acc)
            for j in range(channels):
                for p, value in enumerate(stream.results(b, params, n, j, [acc[p, j] for p in range(PIXELS)])):
                    results.store(first, n, p, j, value)
        results.finish(first)
    taps, (whole, remainder) = layer.weight.shape[1] * layer.weight.shape[2], divmod(layer.channels, CHANNELS)
    pack = PIXELS * (taps * (14 + layer.weight.shape[3] * (2 if layer.weight.shape[3] % 2 == 0 else 6)) + 20)
    each = PIXELS * (4 + stream.each - stream.numbers) + stream.numbers + 2
    counts = [CHANNELS] * whole + [remainder] * (remainder > 0)
    blocks = sum(smlad_2x4_instructions(c) * stream.pairs + stream.pairs // 2 + c * each + 24 for c in counts)
    instructions = -(-rows // PIXELS) * (pack + blocks + 8) + epilogue_instructions(layer)
    return lowered(io, layer, "arm_dsp.conv2d_16x8", instructions, 900 + 200 * len(layer.epilogue), pixels=PIXELS)


def _pack(b: IRBuilder, layer: FusedLayer, io: LayerIo, words: Buffer, *, index: Expr, p: int) -> None:
    """Pack the window of a pixel into its places, with zeros outside the image; by words if runs begin at words."""
    attrs, (_, height, width, depth) = layer.attrs, layer.data_type.shape
    _, kh, kw, _ = layer.weight.shape
    image, y, x = window_at(b, layer, index, origin=attrs.padding[:2])
    joined = attrs.dilation[1] == 1 and not any(attrs.padding)
    length = kw * depth if joined else depth

    def copy(data: Buffer | None, start: Expr, tap: Expr) -> None:
        if depth % 2 == 0:
            with b.for_("k", length // 2) as k:
                value = imm(0, "uint32") if data is None else data.load("uint32", start // 2 + k)
                b.store_as(words, "uint32", (tap // 2 + k) * PIXELS + p, value)
            return
        with b.for_("k", length) as k:
            at = b.let("at", tap + k)
            value = imm(0) if data is None else data[start + k]
            b.store_as(words, "int16", (at >> 1) * (2 * PIXELS) + (at & 1) + 2 * p, value)

    with b.for_("ky", kh) as ky, b.for_("kx", 1 if joined else kw) as kx:
        row, column = b.let("row", y + ky * attrs.dilation[0]), b.let("column", x + kx * attrs.dilation[1])
        start = b.let("start", ((image * height + row) * width + column) * depth)
        tap = b.let("tap", (ky * kw + kx) * depth)
        if not any(attrs.padding):
            copy(io.data, start, tap)
            return
        inside = logical_and(logical_and(row >= 0, row < height), logical_and(column >= 0, column < width))
        with b.if_(inside):
            copy(io.data, start, tap)
        with b.else_():
            copy(None, start, tap)


register_planned("arm_dsp.conv2d_16x8", "nn.conv2d", plan_conv2d, lower_conv2d, plevel=29)


def plan_dense(group: Group, target: Target) -> tuple[FusedLayer, AnyRequant] | None:
    """Accept rows of an even number of data, so that each begins at a word."""
    match = match_16x8(group, target)
    return match if match is not None and is_rows(match[0]) and match[0].weight[0].size % 2 == 0 else None


def lower_dense(group: Group, _target: Target, name: str, plan: tuple[FusedLayer, AnyRequant]) -> Lowered:
    """Lower rows: for each, blocks of four channels straight from the data."""
    layer, requant = plan
    rows, depth = prod(layer.out_type.shape[:-1]), int(layer.weight[0].size)
    stream = PairStream(layer, requant)
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(rows * depth,), out_shape=(rows * layer.channels,), data_align=4)
    params = io.constant("params", stream.data(), "int32")
    results = _Results(io, layer, 1)
    with b.for_("m", rows) as m:
        for n, channels in channel_blocks(b, layer.channels, CHANNELS):
            acc = b.local("acc", (CHANNELS,), "int32")
            for j in range(CHANNELS):
                b.store(acc, j, stream.number(params, n, 0, j))
            b.block(smlad_1x4(stream.pairs), region(io.data, m * depth), stream.weights(params, n), acc)
            for j in range(channels):
                for value in stream.results(b, params, n, j, [acc[j]]):
                    results.store(m, n, 0, j, value)
        results.finish(m)
    (steps, remainder), unroll = divmod(stream.pairs, 2), unroll_of(stream.pairs)
    loops = 2 * (steps // unroll) if unroll and steps > unroll else 0
    block = 11 * steps + 6 * remainder + loops + CHANNELS * (5 + stream.each) + 12
    blocks = -(-layer.channels // CHANNELS)
    code = (60 + 4 * (11 * unroll + 6) + 80) * (1 + (layer.channels % CHANNELS > 0 and blocks > 1))
    instructions = rows * (blocks * block + 8) + epilogue_instructions(layer)
    return lowered(io, layer, "arm_dsp.dense_16x8", instructions, code, channels=CHANNELS)


for _anchor in ("nn.dense", "nn.conv2d"):
    register_planned("arm_dsp.dense_16x8", _anchor, plan_dense, lower_dense, plevel=30)


@cache
def smlad_1x4(pairs: int) -> TensorIntrin:
    """acc[c] += sum over k < pairs, j < 2 of x[2 k + j] * w[k, c, j], for four channels.

    acc: int32[4] in registers; x: int16[2 pairs] and w: int16[pairs, 4, 2], both aligned to 4 bytes.  Sums must fit.  8 SMLAD, 2
    LDM and LDRD for 16 multiply-accumulates.
    """
    b, x, w = _memory(f"smlad_1x4_k{2 * pairs}")
    acc = b.output("acc", (CHANNELS,), "int32")
    with b.for_("k", pairs) as k:
        values = [b.let("x", cast("int32", x[k * 2 + j])) for j in range(2)]
        for c in range(CHANNELS):
            products = [values[j] * cast("int32", w[(k * CHANNELS + c) * 2 + j]) for j in range(2)]
            b.store(acc, c, acc[c] + (products[0] + products[1]))
    words, data, unroll = ("r8", "r9", "r10", "r11"), ("r12", "lr"), unroll_of(pairs)

    def step(load: str, count: int) -> list[str]:
        text = [load]
        for x in data[:count]:
            text += [f"ldmia %[w]!, {{{', '.join(words)}}}", *(f"smlad %[a{c}], {w}, {x}, %[a{c}]" for c, w in enumerate(words))]
        return text

    text: list[str | Repeat] = [Repeat(unroll, step("ldrd r12, lr, [%[x]], #8", 2))] if unroll else []
    if unroll and pairs // 2 > unroll:
        text = [f"mov %[n], #{pairs // 2 // unroll}", "1:", *text, "subs %[n], %[n], #1", "bne 1b"]
    text += step("ldr r12, [%[x]], #4", 1) if pairs % 2 else []
    return block_of(b, "arm_dsp", lambda ops: asm(ops, text, "w x", acc="a", temporaries="n", clobbers=[*words, *data]))


def unroll_of(pairs: int) -> int:
    """Return the steps of two pairs per iteration of `smlad_1x4`."""
    return max(u for u in range(1, 9) if (pairs // 2) % u == 0) if pairs > 1 else 0


# Requantisation by multipliers of 62 bits with two long products, for sums of 32 bits.  `multiply_by_long_multiplier` adds half
# of 2^right and shifts by right = 31 - shift.  From right = 33 on the half has no bits in the lower word, so nothing carries out
# of it, and only the upper word of the product is needed.


LEAST_RIGHT, MOST_RIGHT = 33, 61


@dataclass(frozen=True, slots=True)
class LongMultiply:
    """Parameters: multiplier, its 31 further bits, half of a result, shift of the upper word."""

    params: tuple[RequantParam, ...]
    lo: int
    hi: int

    def emit(self, b: IRBuilder, acc: Expr, requant_params: tuple[Expr, ...]) -> Expr:
        """Return the clamped int32 result of an accumulator that fits int32."""
        multiplier, fraction, half, shift = requant_params
        x = b.let("x", cast("int32", acc))
        wide = cast("int64", x)
        low = b.let("low", cast("int32", (wide * cast("int64", fraction) + cast("int64", x >> 31)) >> imm(31, "int64")))
        high = cast("int32", (wide * cast("int64", multiplier) + cast("int64", low)) >> imm(32, "int64"))
        result = (high + half) >> shift
        return saturate("ssat", 16, 0)(result) if (self.lo, self.hi) == int_range("int16") else clamp(result, self.lo, self.hi)


AnyRequant = Requant | LongMultiply


def with_short_products(requant: Requant) -> AnyRequant:
    """Return the form above if it is exact, else `requant`; sums must fit int32, and the core must have DSP instructions."""
    if not isinstance(requant, General) or not requant.attrs.fraction or requant.attrs.zero_point:
        return requant
    attrs = requant.attrs
    numbers = {f.name: f.values.astype(np.int64) for f in requant.params}
    right = 31 - numbers["shift"]
    if (right < LEAST_RIGHT).any() or (right > MOST_RIGHT).any():
        return requant
    params = (
        RequantParam("multiplier", numbers["multiplier"]),
        RequantParam("fraction", numbers["fraction"]),
        RequantParam("half", 1 << (right - LEAST_RIGHT)),
        RequantParam("shift", right - 32),
    )
    return LongMultiply(params, attrs.lo, attrs.hi)
