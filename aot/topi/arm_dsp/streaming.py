"""Layers of one position, which run once per new row of a sliding window (--slide): two bytes per weight, for speed.

Such a layer runs often and does little, so packing the data and unpacking weights would be a large part of it.  Here the weights
are stored as 16-bit numbers, 256 times the model's, so that SMLAD uses them as they are and sums requantise as in dense_w8.

Three kernels: fully connected layers (blocks of one row x four channels), convolutions of a few pixels with large windows (two
pixels x three channels), and depthwise convolutions whose window is the whole image (four channels).
"""

from __future__ import annotations

from functools import cache
from itertools import count
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, cast, imm, minimum
from aot.tir.intrin import BlockText, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.arm_dsp.tile import ONE_BLOCK
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
from aot.topi.layer.fused import FusedLayer, LayerIo, epilogue_instructions, lowered, match_for, open_io
from aot.topi.layer.im2col import WindowRuns, is_rows, match_rows, window_at
from aot.topi.layer.requant import HighMultiply, load_params
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


def scaled(values: Array) -> Array:
    """Return int8 values times 256, as int16."""
    result: Array = (values.astype(np.int64) << PRESCALE).astype(np.int16)
    return result


def start_values(bias: Array, _weights: Array) -> Array:
    """Return biases times 256, modulo 2^32."""
    return words32(bias.astype(np.int64) << PRESCALE)


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
    return block_of(b, "arm_dsp", lambda ops: _emit_unpack(QuadLoop(ops, unroll)), quads, ordered=True)


def _emit_unpack(loop: QuadLoop) -> BlockText:
    step = ["ldr %[v], [%[s]], #4", "sxtb16 %[w], %[v]", "sxtb16 %[v], %[v], ror #8", "strd %[w], %[v], [%[d]], #8"]
    return loop.asm(step, "s=x >d=words", TAPS, temporaries="vw")


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
    b = IRBuilder(f"dot_quads_c{channels}_q{quads}")
    x = b.input("x", _UNSIZED, "int16", align=4)
    w = b.input("w", _UNSIZED, "int16", align=4)
    acc = b.output("acc", (channels,), "int32")
    with b.for_("k", 2 * quads) as k:
        values = [b.let("x", cast("int32", x[k * 2 + j])) for j in range(2)]
        for c in range(channels):
            first, second = (values[j] * cast("int32", w[(k * channels + c) * 2 + j]) for j in range(2))
            add_modulo(b, acc, c, first + second)
    return block_of(b, "arm_dsp", lambda ops: _emit_dot(ops, channels, quads))


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


def _emit_dot(operands: Operands, channels: int, quads: int) -> BlockText:
    steps = dot_steps(quads)
    clobbers = [*_DATA[: steps.words], *_WEIGHTS[:channels]]
    counter = "n" if steps.loops > 1 else ""
    return asm(operands, _dot_text(channels, quads), "w x", acc="a", temporaries=counter, clobbers=clobbers, kind="+")


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
    ins = {"pitch": str(pitch)} if pitch >= 256 else {}

    def emit(operands: Operands) -> BlockText:
        return asm(operands, [Repeat(taps, _tap(pitch))], "w x", ins, acc="a", clobbers=["r8", "r9", "r10", "r11"], kind="+")

    return block_of(b, "arm_dsp", emit)


def window_instructions(taps: int, pitch: int) -> int:
    """Return the instructions of `window_sums`."""
    return taps * len(_tap(pitch))


def _tap(pitch: int) -> list[str]:
    load = [f"ldr r8, [%[x]], #{pitch}"] if pitch < 256 else ["ldr r8, [%[x]]", "add %[x], %[x], %[pitch]"]
    products = [f"smla{half} %[a{c}], {x}, {w}, %[a{c}]" for c, half, x, w in _LANES]
    return [*load, "ldrd r10, r11, [%[w]], #8", "sxtb16 r9, r8", "sxtb16 r8, r8, ror #8", *products]


_LANES = ((0, "bb", "r9", "r10"), (2, "tt", "r9", "r10"), (1, "bb", "r8", "r11"), (3, "tt", "r8", "r11"))


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
    return block_of(b, "arm_dsp", _emit_unpack_pairs, quads, ordered=True)


def _emit_unpack_pairs(operands: Operands) -> BlockText:
    step = [
        *("ldr r5, [%[s]], #4", "ldr r6, [%[t]], #4"),
        *("sxtb16 r8, r5", "sxtb16 r9, r6", "sxtb16 r10, r5, ror #8", "sxtb16 r11, r6, ror #8"),
        "stmia %[d]!, {r8, r9, r10, r11}",
    ]
    text, clobbers = ["1:", *step, "subs %[n], %[n], #1", "bne 1b"], ["r5", "r6", "r8", "r9", "r10", "r11"]
    count = [f"uint32_t aot_n = {operands['quads'].value};"]
    return asm(operands, text, "s=x0 t=x1 >d=words", before=count, last=['[n] "+r"(aot_n)'], clobbers=clobbers, kind="+")


@cache
def pair_products(steps: int) -> TensorIntrin:
    """acc[c, p] += sum over k < steps, j < 2 of x[k, p, j] * w[k, c, j], modulo 2^32, for three channels c and two runs p.

    acc: int32[6]; x: int16[steps, 2, 2] and w: int16[steps, 3, 2], both aligned to 4 bytes.  6 SMLAD, an LDRD and an LDM for 12
    multiply-accumulates.
    """
    b = IRBuilder(f"pair_products_{steps}")
    x = b.input("x", _UNSIZED, "int16", align=4)
    w = b.input("w", _UNSIZED, "int16", align=4)
    acc = b.output("acc", (6,), "int32")
    with b.for_("k", steps) as k:
        values = [[b.let("x", cast("int32", x[k * 4 + p * 2 + j])) for j in range(2)] for p in range(2)]
        for c in range(3):
            weights = [b.let("w", cast("int32", w[k * 6 + c * 2 + j])) for j in range(2)]
            for p, pair in enumerate(values):
                add_modulo(b, acc, c * 2 + p, pair[0] * weights[0] + pair[1] * weights[1])
    text, clobbers = [Repeat(steps, _PAIR_STEP)], ["r8", "r9", "r10", "r11", "r12"]
    return block_of(b, "arm_dsp", lambda ops: asm(ops, text, "w x", acc="a", clobbers=clobbers, kind="+"))


def pair_instructions() -> int:
    """Return the instructions of a step of `pair_products`."""
    return len(_PAIR_STEP)


_PRODUCTS = tuple((2 * c + p, w, x) for c, w in enumerate(("r10", "r11", "r12")) for p, x in enumerate(("r8", "r9")))
_PAIR_STEP = [
    "ldrd r8, r9, [%[x]], #8",
    "ldmia %[w]!, {r10, r11, r12}",
    *(f"smlad %[a{i}], {w}, {x}, %[a{i}]" for i, w, x in _PRODUCTS),
]


# Convolutions of a few pixels with large windows: blocks of two pixels x three channels, one row of the window after another.
# One row of two windows is unpacked at a time and used by all channels, whose sums stay in scratch memory until the last row is
# done.  With so few pixels, larger blocks would not divide them evenly.  Scratch: four bytes per tap of one row, eight bytes per
# channel.  Flash: two bytes per weight.


PIXELS, TRIPLE = 2, 3
MAX_STEPS = 28
"""Most steps in a block; longer runs use several blocks."""


def channel_numbers(layer: FusedLayer, requant: HighMultiply) -> list[Array]:
    """Return the header of each channel: the start value, and the requantisation parameters that vary."""
    return [start_values(layer.bias, layer.weight), *(f.values for f in requant.params if not f.uniform)]


@dataclass(frozen=True, slots=True)
class _WindowsPlan:
    """A convolution of a few pixels, its requantisation, and the runs of its windows."""

    layer: FusedLayer
    requant: HighMultiply
    runs: WindowRuns

    @property
    def blocks(self) -> int:
        """Blocks of channels, the last one padded."""
        return -(-self.layer.channels // TRIPLE)

    @property
    def steps(self) -> int:
        """Pairs of taps per block of code: the most that divide the pairs of a run."""
        return max(n for n in range(1, MAX_STEPS + 1) if (self.runs.length // 2) % n == 0)

    @property
    def pixels(self) -> int:
        return prod(self.layer.out_type.shape[:-1])

    @property
    def arrays(self) -> list[Array]:
        return channel_numbers(self.layer, self.requant)

    def stream(self) -> Array:
        """Return int32: per run and block the weights, int16[pairs][3][2] in ORDER; then the headers [channels][numbers]."""
        layer, length = self.layer, self.runs.length
        matrix = layer.weight.reshape(layer.channels, self.runs.count, length // TAPS, TAPS)[..., ORDER]
        matrix = np.pad(matrix, ((0, -layer.channels % TRIPLE), (0, 0), (0, 0), (0, 0)))
        blocks = scaled(matrix).reshape(self.blocks, TRIPLE, self.runs.count, length // 2, 2).transpose(2, 0, 3, 1, 4)
        numbers = np.stack(self.arrays, axis=1).astype(np.int32)
        return np.concatenate([np.ascontiguousarray(blocks).reshape(-1).view(np.int32), numbers.reshape(-1)])


def plan_conv2d(group: Group, target: Target) -> _WindowsPlan | None:
    """Accept at least two pixels, no padding, runs of whole quads, and the short requantisation with sums scaled by 256."""
    layer = match_for(group, target, "dsp")
    if layer is None or layer.weight.ndim != 4 or is_rows(layer):
        return None
    runs = WindowRuns(layer)
    if any(layer.attrs.padding) or runs.length % TAPS or prod(layer.out_type.shape[:-1]) < PIXELS:
        return None
    return _WindowsPlan(layer, BYTES.best_requant(layer, target), runs) if BYTES.requant(layer, target) is not None else None


def lower_conv2d(group: Group, _target: Target, name: str, plan: _WindowsPlan) -> Lowered:
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
            bias = b.let("bias", params[_number(plan, n)])
            for p in range(PIXELS):
                b.store(sums, n * PIXELS + p, bias)
        _sum_rows(b, plan, io, (params, words, sums), first=first)
        with b.for_("n", layer.channels) as n:
            _store(b, plan, io, (params, sums), first=first, n=n)
    total = _conv2d_instructions(plan) + epilogue_instructions(layer) * -(-plan.pixels // PIXELS) * PIXELS // plan.pixels
    code = 400 + 4 * pair_instructions() * plan.steps
    return lowered(io, layer, "arm_dsp.conv2d_pairs", total, code, pixels=PIXELS, channels=TRIPLE)


def _sum_rows(b: IRBuilder, plan: _WindowsPlan, io: LayerIo, place: tuple[Buffer, Buffer, Buffer], *, first: Expr) -> None:
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


def _number(plan: _WindowsPlan, channel: Expr) -> Expr:
    """Return where the header of a channel begins."""
    return channel * len(plan.arrays) + plan.runs.count * plan.blocks * TRIPLE * plan.runs.length // 2


def _store(b: IRBuilder, plan: _WindowsPlan, io: LayerIo, place: tuple[Buffer, Buffer], *, first: Expr, n: Expr) -> None:
    """Requantise and store channel n of two pixels."""
    params, sums = place
    start = _number(plan, n)
    requant_params = load_params(b, plan.requant, (params[start + i] for i in count(1)))
    for p in range(PIXELS):
        value = plan.requant.emit_scaled(b, sums[n * PIXELS + p], requant_params)
        io.store(((first + p) * plan.layer.channels + n,), value)


def _conv2d_instructions(plan: _WindowsPlan) -> int:
    """Return the instructions of one call (from counts under QEMU)."""
    tiles, runs, pairs = -(-plan.pixels // PIXELS), plan.runs, plan.runs.length // 2
    iterations = pairs // plan.steps
    products = pair_instructions() * pairs + (10 * iterations if iterations > 1 else 0)
    run = 9 * (runs.length // TAPS) + 21 + plan.blocks * (products + 13)
    return int(tiles * (runs.count * run + 40 + 6.9 * len(plan.arrays) * plan.layer.channels))


register_planned("arm_dsp.conv2d_pairs", "nn.conv2d", plan_conv2d, lower_conv2d, plevel=8, for_pushes=True)


# Fully connected layers over one row, in blocks of four channels.  Scratch: two bytes per input.


CHANNELS = 4
PAIRS = WordForm(2, scaled, start_values, PRESCALE, fits_bytes)


@dataclass(frozen=True, slots=True)
class _RowPlan:
    """A fully connected layer over one row, its constants, and its inputs."""

    layer: FusedLayer
    stream: PackedWeights
    depth: int

    @property
    def quads(self) -> int:
        return -(-self.depth // TAPS)


def plan_dense(group: Group, target: Target) -> _RowPlan | None:
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
    return _RowPlan(
        layer, PackedWeights(ordered, layer.bias, BYTES.best_requant(layer, target), block=CHANNELS, form=PAIRS), depth
    )


def lower_dense(group: Group, _target: Target, name: str, plan: _RowPlan) -> Lowered:
    """Lower one row: unpack the data, then blocks of four channels."""
    layer, stream, depth = plan.layer, plan.stream, plan.depth
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(depth,), out_shape=(layer.channels,))
    params = io.constant("params", stream.data(), "int32")
    words = b.scratch("words", (TAPS * plan.quads,), "int16", align=4)
    whole = depth // TAPS
    b.block(unpack_quads(pack_unroll(whole)), io.data, words, imm(whole))
    if depth % TAPS:  # the last four bytes, some of them again; see run_taps
        b.block(unpack_quads(1), region(io.data, depth - TAPS), region(words, TAPS * whole), imm(1))

    def block(n: Expr, count: int) -> None:
        start = stream.start(n)
        acc = stream.accumulators(b, params, start, count)
        b.block(dot_quads(count, plan.quads), words, stream.weights(params, start, count), acc)
        for j, value in stream.results(b, params, start, acc):
            io.store((n * stream.block + j,), value)

    with b.for_("n", stream.blocks) as n:
        block(n, stream.block)
    if stream.remainder:
        block(imm(stream.blocks), stream.remainder)
    total, code, steps = _dense_instructions(plan), _dense_code(plan), dot_steps(plan.quads)
    return lowered(io, layer, "arm_dsp.dense_pairs", total, code, channels=stream.block, unroll=steps.words * steps.unroll)


def _dense_instructions(plan: _RowPlan) -> int:
    """Return the instructions of one call (from counts under QEMU)."""
    stream = plan.stream
    whole = plan.depth // TAPS
    unpacking = 4 * whole + 2 * (whole // pack_unroll(whole)) + 20
    blocks = sum(dot_instructions(n, plan.quads) + n * stream.each + 8 for n in stream.counts) - ONE_BLOCK * (
        len(stream.counts) == 1
    )
    return unpacking + blocks + epilogue_instructions(plan.layer)


def _dense_code(plan: _RowPlan) -> int:
    """Return the bytes of code."""
    steps = dot_steps(plan.quads)
    return 90 + sum(4 * (steps.unroll * steps.words + steps.rest) * (2 + n) + 40 + 24 * n for n in plan.stream.sizes)


for _anchor in ("nn.dense", "nn.conv2d"):
    register_planned("arm_dsp.dense_pairs", _anchor, plan_dense, lower_dense, plevel=6, for_pushes=True)


# Depthwise convolutions whose window is the whole image, in blocks of four channels.


MAX_TAPS = 32


@dataclass(frozen=True, slots=True)
class _PlanePlan:
    """A depthwise convolution whose window is the whole image, and its requantisation."""

    layer: FusedLayer
    requant: HighMultiply

    @property
    def taps(self) -> int:
        return int(self.layer.weight[..., 0].size)

    @property
    def arrays(self) -> list[Array]:
        return channel_numbers(self.layer, self.requant)

    @property
    def block_words(self) -> int:
        return TAPS * len(self.arrays) + 2 * self.taps

    def stream(self) -> Array:
        """Return int32: per four channels the headers [numbers][4], then the weights, int16[taps][4] in ORDER."""
        channels = self.layer.channels
        numbers = np.stack(self.arrays).astype(np.int64).reshape(-1, channels // TAPS, TAPS).transpose(1, 0, 2)
        weights = scaled(self.layer.weight.reshape(self.taps, channels // TAPS, TAPS)[..., ORDER]).transpose(1, 0, 2)
        words = np.ascontiguousarray(weights).reshape(channels // TAPS, -1).view(np.int32)
        joined = np.concatenate([numbers.reshape(channels // TAPS, -1).astype(np.int32), words], axis=1)
        return joined.reshape(-1)


def plan_depthwise(group: Group, target: Target) -> _PlanePlan | None:
    """Accept one result per channel, computed from its whole plane, and a multiple of four channels."""
    layer = match_for(group, target, "dsp")
    if layer is None or layer.channels % TAPS:
        return None
    if layer.data_type.shape != (1, *layer.weight.shape) or any(layer.attrs.padding) or layer.weight[..., 0].size > MAX_TAPS:
        return None
    return _PlanePlan(layer, BYTES.best_requant(layer, target)) if BYTES.requant(layer, target) is not None else None


def lower_depthwise(group: Group, _target: Target, name: str, plan: _PlanePlan) -> Lowered:
    """Lower one window per channel: blocks of four channels."""
    layer, channels = plan.layer, plan.layer.channels
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(plan.taps * channels,), out_shape=(channels,))
    params = io.constant("params", plan.stream(), "int32")
    with b.for_("n", channels // TAPS) as n:
        start = n * plan.block_words
        acc = b.local("acc", (TAPS,), "int32")
        for j in range(TAPS):
            b.store(acc, j, params[start + j])
        weights = Region(params, (start + TAPS * len(plan.arrays)) * 2, "int16")
        b.block(window_sums(plan.taps, channels), region(io.data, n * TAPS), weights, acc)
        for j in range(TAPS):
            requant_params = load_params(b, plan.requant, (params[start + (TAPS * i + j)] for i in count(1)))
            io.store((n * TAPS + j,), plan.requant.emit_scaled(b, acc[j], requant_params))
    varying = len(plan.arrays) - 1
    each = 6 + varying + 2 * plan.requant.signed
    window = window_instructions(plan.taps, channels)
    total, code = channels // TAPS * (window + TAPS * each + 8) + epilogue_instructions(layer), 60 + 4 * window + 24 * TAPS
    return lowered(io, layer, "arm_dsp.depthwise_window", total, code, channels=TAPS)


register_planned("arm_dsp.depthwise_window", "nn.depthwise_conv2d", plan_depthwise, lower_depthwise, plevel=6, for_pushes=True)
