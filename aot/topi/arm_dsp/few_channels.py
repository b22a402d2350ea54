"""Convolutions with few channels, by SMLAD: one or two out (an attention map, a mask), or five to eight in; two bytes per weight.

`conv2d_few`, `conv2d_transpose_few`: blocks of four pixels x one channel.  The other kernels compute several channels at a time,
which a layer with one or two does not have.  This one computes four windows of one channel at a time instead, so each weight word
(two taps) serves four outputs.  The rows that a window covers are kept as 16-bit numbers less the padding value, with zeros
around them, in a ring of scratch memory; each row is widened only once, and no tap needs a test.  In a transposed convolution,
such as the last layer of an autoencoder, each pair of remainders of the stride is a convolution of stride 1 that reads its rows
and columns from the same ring (aot/topi/layer/fused.py).

`conv2d_smlad`, pointwise convolutions of 5 to 8 input channels: blocks of two pixels x all channels.  The data of two pixels fit
registers, so they are loaded and unpacked once; the weights and parameters of all output channels stream past them, pre-scaled so
that all channels have the same shift.  This saves packing, which would dominate such short sums.  No scratch memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, cast, imm, logical_and, minimum, select
from aot.tir.intrin import BlockText, TensorIntrin
from aot.topi.arm_dsp.weights import words32
from aot.topi.generic.layers import remove_padding_value
from aot.topi.intrin.asm_text import Operands, Repeat, asm, block_of, count_instructions
from aot.topi.intrin.scalar import SMMLA, saturate
from aot.topi.layer.fused import (
    TRANSPOSE,
    FusedLayer,
    LayerIo,
    SubPixelLayer,
    epilogue_instructions,
    lowered,
    match_for,
    open_io,
    sub_pixels,
)
from aot.topi.layer.im2col import is_rows
from aot.topi.layer.requant import HighMultiply, Requant, plan_high_multiply, plan_requantize
from aot.topi.strategy import Group, Lowered, register_planned

MOST_CHANNELS = 2
PIXELS = LANES = 4
PAIR = 2
"""Pixels of a block of conv2d_smlad."""
MOST_STEP = 160
"""Most halfwords from window to window that LDRD's offset can reach."""

# ---- blocks: bytes to 16-bit numbers, and four windows of one channel ----


@cache
def widen_4() -> TensorIntrin:
    """out[i] = x[i] - zp for `count` elements, a multiple of LANES; operands x (any address), out: int16, zp, count."""
    zp, count = Var("zp"), Var("count")
    b = IRBuilder("widen_4")
    x = b.input("x", (UNKNOWN_EXTENT,), "int8")
    out = b.output("out", (UNKNOWN_EXTENT,), "int16")
    with b.for_("i", count) as i:
        b.store(out, i, cast("int16", cast("int32", x[i]) - zp))
    text = [
        *("1:", "ldr %[v], [%[x]], #4", "sxtab16 %[s], %[zp], %[v]", "sxtab16 %[v], %[zp], %[v], ror #8"),
        *(
            "pkhbt %[t], %[s], %[v], lsl #16",
            "pkhtb %[s], %[v], %[s], asr #16",
            "str %[t], [%[out]], #4",
            "str %[s], [%[out]], #4",
        ),
        *(f"subs %[n], %[n], #{LANES}", "bne 1b"),
    ]

    def emit(operands: Operands) -> BlockText:
        ins = {"zp": f"((0u - (uint32_t)({operands['zp'].value})) & 0xffffu) * 0x10001u"}
        return asm(operands, text, "x >out", ins, counter="n=count", temporaries="vst")

    return block_of(b, "arm_dsp", emit, zp, count)


@dataclass(frozen=True, slots=True)
class Run:
    """`pairs` of taps in a row of the window; `step` halfwords from one window to the next."""

    pairs: int
    step: int

    @property
    def by_words(self) -> bool:
        """Whether every window starts at a word."""
        return self.step % 2 == 0

    @property
    def unroll(self) -> int:
        """Iterations, of two pairs each, without a loop."""
        return max((u for u in range(1, 9) if self.pairs // 2 % u == 0), default=0) if self.pairs > 1 else 0

    @property
    def loops(self) -> int:
        """How often the loop runs; 0 without a loop."""
        return self.pairs // 2 // self.unroll if self.pairs // 2 > self.unroll else 0

    def steps(self) -> tuple[list[str], list[str]]:
        """The text for two pairs and for one: windows from the last to the first, whose loads advance the pointer."""

        def products(p: int) -> list[str]:
            return [f"smlad %[a{p}], %[x{j}], %[w{j}], %[a{p}]" for j in range(2)]

        two = ["ldrd %[w0], %[w1], [%[w]], #8"]
        for p in reversed(range(1, PIXELS)):
            at = 2 * p * self.step
            loads = [f"ldr %[x{j}], [%[x], #{at + 4 * j}]" for j in range(2)]
            two += [*([f"ldrd %[x0], %[x1], [%[x], #{at}]"] if self.by_words else loads), *products(p)]
        two += ["ldrd %[x0], %[x1], [%[x]], #8"] if self.by_words else ["ldr %[x1], [%[x], #4]", "ldr %[x0], [%[x]], #8"]
        loads = [f"ldr %[x0], [%[x], #{2 * p * self.step}]" for p in range(PIXELS)]
        one = ["ldr %[w0], [%[w]], #4", *(line for p in range(PIXELS) for line in (loads[p], products(p)[0]))]
        return [*two, *products(0)], one

    def text(self) -> list[str | Repeat]:
        two, one = self.steps()
        lines: list[str | Repeat] = [Repeat(self.unroll, two)] if self.unroll else []
        if self.loops:
            lines = [f"mov %[n], #{self.loops}", "1:", *lines, "subs %[n], %[n], #1", "bne 1b"]
        return [*lines, *(one if self.pairs % 2 else [])]

    def instructions(self) -> int:
        """Instructions that one block executes."""
        two, one = self.steps()
        return len(two) * (self.pairs // 2) + 2 * self.loops + bool(self.loops) + len(one) * (self.pairs % 2)


@cache
def dot_4(run: Run) -> TensorIntrin:
    """acc[p] += sum over k < 2 pairs of x[p step + k] * w[k], for four windows p.

    acc: int32[4] in registers; w: int16, aligned to words; x: int16, aligned to words if `by_words`.
    """
    b = IRBuilder(f"dot_4_k{2 * run.pairs}_s{run.step}")
    x = b.input("x", (UNKNOWN_EXTENT,), "int16", align=4 if run.by_words else 2)
    w = b.input("w", (2 * run.pairs,), "int16", align=4)
    acc = b.output("acc", (PIXELS,), "int32")
    with b.for_("k", run.pairs) as k:
        weights = [b.let("w", cast("int32", w[2 * k + j])) for j in range(2)]
        for p in range(PIXELS):
            products = [cast("int32", x[2 * k + (p * run.step + j)]) * weights[j] for j in range(2)]
            b.store(acc, p, acc[p] + (products[0] + products[1]))
    temporaries = ["x0", "w0", *(["x1", "w1"] if run.pairs > 1 else [])]
    counter, out = (["uint32_t aot_n;"], ['[n] "=&r"(aot_n)']) if run.loops else ([], [])

    def emit(operands: Operands) -> BlockText:
        return asm(operands, run.text(), "x w", acc="a", temporaries=temporaries, after=counter, last=out)

    return block_of(b, "arm_dsp", emit)


# ---- rows in a ring ----

MOST_SCRATCH = 1 << 14
"""Most bytes of scratch memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
    """`span` rows of `pitch` halfwords for the windows of `layer`, whose weights matter only by shape; data are less `zp`."""

    layer: FusedLayer
    zp: int
    span: int
    pitch: int

    @classmethod
    def of(cls, layer: FusedLayer, zp: int) -> Ring | None:
        """Return the ring, or None if it is too large."""
        _, kh, kw, depth = layer.weight.shape
        outputs = max(layer.out_type.shape[2], PIXELS)
        columns = max((outputs - 1) * layer.attrs.strides[1] + kw, layer.attrs.padding[1] + layer.data_type.shape[2])
        pitch = (columns * depth + 2) // 2 * 2  # an odd window reads one halfword more
        ring = cls(layer, zp, (kh - 1) * layer.attrs.dilation[0] + 1, pitch)
        return ring if 2 * ring.span * pitch <= MOST_SCRATCH else None

    def open(self, b: IRBuilder) -> Buffer:
        """Declare the scratch memory, and write the zeros at both ends of every row, which nothing overwrites."""
        rows = b.scratch("rows", (self.span * self.pitch,), "int16", align=4)
        _, _, width, depth = self.layer.data_type.shape
        left = self.layer.attrs.padding[1] * depth
        right = left + width * depth
        with b.for_("z", self.span) as z:
            at = b.let("at", z * self.pitch)
            for first, size in [(0, left)] * bool(left) + [(right, self.pitch - right)]:
                with b.for_("k", size) as k:
                    b.store(rows, at + first + k, 0)
        return rows

    def fill(self, b: IRBuilder, data: Buffer, rows: Buffer, *, image: Expr, y: Expr) -> None:
        """Put the rows into the ring that the windows of row `y` are the first to cover."""
        layer = self.layer
        _, height, width, depth = layer.data_type.shape
        (stride, _), (top, left, _, _) = layer.attrs.strides, layer.attrs.padding
        size = width * depth
        whole = size - size % LANES
        start = select(y > 0, imm(max(self.span - stride, 0)), imm(0))
        with b.for_("r", self.span, start=start) as r:
            at = b.let("at", (y * stride + r) % self.span * self.pitch + left * depth)
            line = b.let("line", y * stride + r - top)
            with b.if_(logical_and(line >= 0, line < height)):
                source = b.let("source", (image * height + line) * size)
                if whole:
                    b.block(widen_4(), region(data, source), region(rows, at), imm(self.zp), imm(whole))
                for k in range(whole, size):
                    b.store(rows, at + k, cast("int32", data[source + k]) - self.zp)
            with b.else_(), b.for_("k", size) as column:
                b.store(rows, at + column, 0)

    def row(self, number: Expr) -> Expr:
        """Return where row `number` begins, for numbers below twice the span."""
        return select(number >= self.span, number - self.span, number) * self.pitch

    def open_instructions(self) -> int:
        """Instructions of `open`."""
        return self.span * (3 * (self.pitch - self.layer.data_type.shape[2] * self.layer.data_type.shape[3]) + 8)

    def fill_instructions(self) -> int:
        """Instructions of `fill` for all rows of one image."""
        layer = self.layer
        _, height, width, depth = layer.data_type.shape
        (stride, _), top = layer.attrs.strides, layer.attrs.padding[0]
        ring, outputs = (0 if self.span == 1 else 16), int(layer.out_type.shape[1])
        lines = [y * stride + r - top for y in range(outputs) for r in range(max(self.span - stride, 0) if y else 0, self.span)]
        inside = sum(1 for line in lines if 0 <= line < height)
        size = int(width * depth)
        total = inside * (9 * (size // LANES) + 4 * (size % LANES) + 14 + ring) + (len(lines) - inside) * (5 * size // 4 + 30)
        return total + outputs * (8 + ring)


# ---- one or two channels out ----

Places = list[tuple[Expr, ...]]
"""Indices of results in the output."""


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """The windows of a layer, or of one pair of remainders of a transposed one, in the ring.

    `bias` is for data less the zero point; `down` is the dilation of rows; `row` and `column`: where these windows are within the
    ring's; `weights`: where their weights are.
    """

    layer: FusedLayer
    bias: Array
    requant: Requant
    run: Run
    down: int = 1
    row: int = 0
    column: int = 0
    weights: int = 0

    @property
    def lines(self) -> int:
        return int(self.layer.weight.shape[1])

    @property
    def width(self) -> int:
        return int(self.layer.out_type.shape[2])

    @property
    def results(self) -> int:
        """Results per tile; fewer than four if the image is narrow."""
        return min(PIXELS, self.width)

    @property
    def tiles(self) -> int:
        return -(-self.width // PIXELS)

    @property
    def code(self) -> int:
        """Bytes of code."""
        return self.layer.channels * (4 * count_instructions(self.run.text()) + 140)

    def stream(self) -> Array:
        """Return int16 [channels, rows of the window, taps of a row rounded up to an even number]."""
        lines = self.layer.weight.reshape(self.layer.channels, self.lines, -1)
        return np.pad(lines, ((0, 0), (0, 0), (0, 2 * self.run.pairs - lines.shape[2]))).astype(np.int16).reshape(-1)

    def columns(self, b: IRBuilder) -> Iterator[Expr]:
        """Iterate over the first columns of the tiles."""
        with b.for_("t", self.tiles) as t:
            even = self.width % PIXELS == 0 or self.width < PIXELS
            yield t * PIXELS if even else b.let("x", minimum(t * PIXELS, self.width - PIXELS))

    def store(
        self, io: LayerIo, ring: Ring, buffers: tuple[Buffer, Buffer], *, origin: tuple[Expr, Expr], channel: int, places: Places
    ) -> None:
        """Compute a tile of one channel; `origin`: where its first row is in the ring, and its column."""
        b, (weights, rows), (first, x), run = io.ctx.builder, buffers, origin, self.run
        acc = b.local("acc", (PIXELS,), "int32", init=imm(int(self.bias[channel])))
        with b.for_("ky", self.lines) as ky:
            row = b.let("row", first + (ky * self.down + self.row))
            at = ring.row(row) + (x + self.column) * run.step
            w = region(weights, self.weights + (channel * self.lines + ky) * (2 * run.pairs))
            b.block(dot_4(run), region(rows, at), w, acc)
        requant_params = tuple(imm(int(f.values[channel])) for f in self.requant.params)
        io.store_all(places, (self.requant.emit(b, acc[p], requant_params) for p in range(len(places))))


def plan(group: Group, target: Target) -> tuple[Windows, Ring] | None:
    """Accept layers whose windows have no gaps between columns and whose rows are not too long."""
    matched = match_for(group, target, "dsp", wide=True)
    if matched is None or matched.channels > MOST_CHANNELS or matched.weight.ndim != 4:
        return None
    if is_rows(matched):  # windows of one tap are for dense_w8_direct
        return None
    layer, zp = remove_padding_value(matched)
    _, _, kw, depth = layer.weight.shape
    (_, step), (down, across) = layer.attrs.strides, layer.attrs.dilation
    if (across > 1 and kw > 1) or step * depth > MOST_STEP:
        return None
    ring = Ring.of(layer, zp)
    requant = plan_requantize(layer.requant, layer.acc_low, layer.acc_high, target)
    return (Windows(layer, layer.bias, requant, Run((kw * depth + 1) // 2, step * depth), down), ring) if ring else None


def lower(group: Group, _target: Target, name: str, plan: tuple[Windows, Ring]) -> Lowered:
    """Lower a convolution: rows of the output; for each, fill the ring, then tiles of four pixels, then channels."""
    (windows, ring), layer = plan, plan[0].layer
    count, height, width, channels = layer.out_type.shape
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(layer.data_type.size,), out_shape=layer.out_type.shape)
    weights = io.constant("weights", windows.stream(), "int16")
    rows = ring.open(b)
    with b.for_("i", count) as i, b.for_("y", height) as y:
        ring.fill(b, io.data, rows, image=i, y=y)
        first = b.let("first", y * layer.attrs.strides[0] % ring.span)
        for x in windows.columns(b):
            for c in range(channels):
                places: Places = [(i, y, x + p, imm(c)) for p in range(windows.results)]
                windows.store(io, ring, (weights, rows), origin=(first, x), channel=c, places=places)
    row = 0 if windows.lines == 1 else 9 if width <= PIXELS else 14
    tile = channels * (windows.lines * (windows.run.instructions() + row) + 7 * windows.results + 4)
    total = count * (height * windows.tiles * tile + ring.fill_instructions()) + epilogue_instructions(layer)
    return lowered(io, layer, "arm_dsp.conv2d_few", total + ring.open_instructions(), 360 + windows.code, pixels=PIXELS)


register_planned("arm_dsp.conv2d_few", "nn.conv2d", plan, lower, plevel=19)


@dataclass(frozen=True, slots=True, eq=False)
class PhasesPlan:
    """A layer by phases: their windows, and the ring with the rows that all of them read."""

    whole: SubPixelLayer
    ring: Ring
    phases: tuple[Windows, ...]


def plan_transpose(group: Group, target: Target) -> PhasesPlan | None:
    """Accept one or two channels, at most a table as epilogue, and rows that are not too long."""
    whole = sub_pixels(group) if target.has("dsp") else None
    if whole is None or whole.layer.channels > MOST_CHANNELS:
        return None
    zp, depth = whole.layer.attrs.input_zp, whole.layer.data_type.shape[3]
    ring = Ring.of(whole.window, zp) if depth <= MOST_STEP else None
    if ring is None:
        return None
    phases, weights = [], 0
    for part in whole.phases:
        layer = part.layer
        bias = layer.bias + zp * layer.weight.sum(axis=(1, 2, 3))
        if (np.abs(layer.weight).sum(axis=(1, 2, 3)) * 255 + np.abs(bias) >= 1 << 31).any():
            return None
        requant = plan_requantize(layer.requant, layer.acc_low, layer.acc_high, target)
        run = Run((len(part.columns.taps) * depth + 1) // 2, depth)
        row, column = whole.rows.before - part.rows.before, whole.columns.before - part.columns.before
        phases.append(Windows(layer, bias, requant, run, row=row, column=column, weights=weights))
        weights += phases[-1].stream().size
    return PhasesPlan(whole, ring, tuple(phases))


def lower_transpose(group: Group, _target: Target, name: str, plan: PhasesPlan) -> Lowered:
    """Emit the loops: rows of data, phases, four columns of data, channels."""
    whole, ring = plan.whole.layer, plan.ring
    b = IRBuilder(name)
    io = open_io(b, group, whole, data_shape=(whole.data_type.size,), out_shape=(whole.out_type.size,))
    weights = io.constant("weights", np.concatenate([phase.stream() for phase in plan.phases]), "int16")
    rows = ring.open(b)
    with b.for_("y", plan.whole.rows.out) as y:
        ring.fill(b, io.data, rows, image=imm(0), y=y)
        first = b.let("first", y % ring.span)
        for part, phase in zip(plan.whole.phases, plan.phases, strict=True):
            _, _, columns, channels = whole.out_type.shape
            (down, right), (from_y, from_x) = whole.attrs.strides, part.remainder
            with nullcontext() if part.rows.out == plan.whole.rows.out else b.if_(y < part.rows.out):
                for x in phase.columns(b):
                    at = b.let("at", ((y * down + from_y) * columns + x * right + from_x) * channels)
                    for c in range(channels):
                        places: Places = [(at + (p * right * channels + c),) for p in range(phase.results)]
                        phase.store(io, ring, (weights, rows), origin=(first, x), channel=c, places=places)
    total = ring.open_instructions() + ring.fill_instructions() + sum(map(_instructions, plan.phases))
    total += 2 * whole.out_type.size * bool(whole.epilogue)
    code = 360 + sum(phase.code + 60 for phase in plan.phases)
    return lowered(io, whole, "arm_dsp.conv2d_transpose_few", total, code, phases=len(plan.phases))


def _instructions(phase: Windows) -> int:
    """Return the instructions of all tiles of a phase."""
    each = phase.lines * (phase.run.instructions() + 18 * (phase.lines > 1)) + 7 * phase.results
    each += 12 * (phase.width > PIXELS and phase.width % PIXELS > 0)  # addresses that do not follow from the tile's number
    return phase.layer.out_type.shape[1] * (phase.tiles * phase.layer.channels * each + 8)


register_planned("arm_dsp.conv2d_transpose_few", TRANSPOSE, plan_transpose, lower_transpose, plevel=19)


# ---- five to eight channels in ----


MAX_CHANNELS = 1024
"""STRB's offset to the second pixel has 12 bits."""


def plan_shallow(group: Group, target: Target) -> tuple[FusedLayer, HighMultiply] | None:
    """Accept rows of 5 to 8 bytes, at least two, no epilogue, the whole int8 range, the short requantisation without sign term.

    Accumulators of channel c are scaled by 2^p[c] with p[c] >= 2, so that all channels have the same shift; weights stay int16.
    """
    layer = match_for(group, target, "dsp", wide=True)
    if layer is None or layer.epilogue or not is_rows(layer):
        return None
    if prod(layer.out_type.shape[:-1]) < PAIR or layer.weight[0].size not in DEPTHS or layer.channels > MAX_CHANNELS:
        return None
    right = -np.broadcast_to(np.asarray(layer.requant.shift, np.int64), (layer.channels,))
    prescale = int(right.max()) + 2 - right
    if (layer.requant.lo, layer.requant.hi) != int_range("int8") or int(prescale.max()) > 24:
        return None
    if int(np.abs(layer.weight.reshape(layer.channels, -1) << prescale.reshape(-1, 1)).max()) > int_range("int16")[1]:
        return None
    requant = plan_high_multiply(layer.requant, layer.acc_low, layer.acc_high, target=target, prescale=prescale)
    return None if requant is None or requant.signed or not requant.params[-1].uniform else (layer, requant)


def lower_shallow(group: Group, _target: Target, name: str, plan: tuple[FusedLayer, HighMultiply]) -> Lowered:
    """Lower to one block per pair of pixels, which computes all channels."""
    layer, requant = plan
    rows, depth, channels = prod(layer.out_type.shape[:-1]), int(layer.weight[0].size), layer.channels
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(rows * depth,), out_shape=(rows * channels,))
    scale, (multiplier, constant, _) = requant.prescale, (f.values for f in requant.params)
    stream = records(layer.weight.reshape(channels, -1) << scale.reshape(-1, 1), layer.bias << scale, multiplier, constant)
    params = io.constant("params", stream, "int32")
    block = pixels_2(depth, channels, int(requant.params[-1].values[0]))
    with b.for_("t", -(-rows // PAIR)) as t:
        # The last pair starts early enough to be complete; if the number of pixels is odd, one is computed twice.
        first = b.let("pixel", minimum(t * PAIR, rows - PAIR)) if rows % PAIR else t * PAIR
        b.block(block, region(io.data, first * depth), params, region(io.out, first * channels))
    unroll = channel_unroll(channels)
    each = 18 * channels + (3 * channels // unroll if unroll != channels else 0) + 26
    return lowered(io, layer, "arm_dsp.conv2d_smlad", -(-rows // PAIR) * each, 100 + 72 * unroll, pixels=PAIR)


register_planned("arm_dsp.conv2d_smlad", "nn.conv2d", plan_shallow, lower_shallow, plevel=25)


DEPTHS = range(5, 9)
"""Taps: two words of data; the second may overlap the first."""

RECORD = 7
"""Words per channel: weights 0, bias, weights 1 to 3, multiplier, constant."""

_ORDER = ((0, 2), (1, 3), (4, 6), (5, 7))
"""The data bytes (of two words) in the halves of the four weight words, in the order of SXTB16."""


def byte_taps(depth: int) -> list[int]:
    """Return the tap in each byte of the two data words; -1 for bytes of the second word that are in the first too."""
    return [0, 1, 2, 3, *(t if t >= 4 else -1 for t in range(depth - 4, depth))]


def records(weights: Array, bias: Array, multiplier: Array, constant: Array) -> Array:
    """Return int32[O * RECORD] from pre-scaled weights [O, K] and numbers [O]."""
    taps = byte_taps(weights.shape[1])
    placed = [np.where(t >= 0, weights[:, max(t, 0)], 0) for t in taps]
    words = [(placed[low] & 0xFFFF) | ((placed[high] & 0xFFFF) << 16) for low, high in _ORDER]
    columns = [words[0], bias, *words[1:], multiplier, constant]
    return words32(np.stack(columns, axis=1).astype(np.int64)).reshape(-1)


def channel_unroll(channels: int) -> int:
    return max(u for u in (4, 3, 2, 1) if channels % u == 0)


@cache
def pixels_2(depth: int, channels: int, shift: int) -> TensorIntrin:
    """out[p, c] = ssat8((hi32(acc * multiplier) + constant) >> shift), acc = bias + sum of weights * x[p], for two pixels.

    Operands: x int8[2 * depth] at any address; params int32[channels * RECORD] from `records`; out int8[2 * channels].  Per
    channel: 8 SMLAD, 5 loads and 6 instructions for the two results.
    """
    b = IRBuilder(f"pixels_2_k{depth}_c{channels}_s{shift}")
    x = b.input("x", (2 * depth,), "int8")
    params = b.input("params", (UNKNOWN_EXTENT,), "int32", align=4)
    out = b.output("out", (2 * channels,), "int8")
    bytes_ = [0, 1, 2, 3, *range(depth - 4, depth)]
    with b.for_("c", channels) as c, b.for_("p", 2, kind="unroll") as p:
        total: Expr = cast("uint32", params[c * RECORD + 1])
        for word, halves in enumerate(_ORDER):
            for half, byte in enumerate(halves):
                weight = params.load("int16", (c * RECORD + (word + bool(word))) * 2 + half)
                total = total + cast("uint32", cast("int32", weight) * cast("int32", x[p * depth + bytes_[byte]]))
        acc = b.let("acc", cast("int32", total))
        high = SMMLA(acc, params[c * RECORD + 5], params[c * RECORD + 6])
        b.store(out, p * channels + c, saturate("ssat", 8, shift)(high))
    # All 14 registers: a1 holds the data's address at first, the end of the loop is a word in memory.
    load = ["ldr %[p0], [%[a1]]", f"ldr %[p2], [%[a1], #{depth - 4}]"]
    load += [f"ldr %[q0], [%[a1], #{depth}]", f"ldr %[q2], [%[a1], #{2 * depth - 4}]"]
    for pixel in "pq":
        for word in (0, 2):
            load.append(f"sxtb16 %[{pixel}{word + 1}], %[{pixel}{word}], ror #8")
            load.append(f"sxtb16 %[{pixel}{word}], %[{pixel}{word}]")
    unroll = channel_unroll(channels)
    loop = unroll != channels
    end = ["ldr %[w0], %[end]", "cmp %[wp], %[w0]", "bne 1b"] if loop else []
    registers = [*(f"{v}{i}" for v in "pq" for i in range(4)), "a0", "w0", "w1"]
    text: list[str | Repeat] = [*load, *(["1:"] if loop else []), Repeat(unroll, _channel(channels, shift)), *end]
    last = {"wp:m": f"{4 * RECORD * channels}"} if loop else {}

    def emit(operands: Operands) -> BlockText:
        return asm(operands, text, "a1=x wp=params >out", end=last, temporaries=registers, temporaries_first=True, kind="+")

    return block_of(b, "arm_dsp", emit)


def _channel(channels: int, shift: int) -> list[str]:
    return [
        *("ldrd %[w0], %[a0], [%[wp]], #8", "smlad %[a1], %[q0], %[w0], %[a0]", "smlad %[a0], %[p0], %[w0], %[a0]"),
        *("ldrd %[w0], %[w1], [%[wp]], #8", "smlad %[a0], %[p1], %[w0], %[a0]", "smlad %[a1], %[q1], %[w0], %[a1]"),
        *("smlad %[a0], %[p2], %[w1], %[a0]", "smlad %[a1], %[q2], %[w1], %[a1]", "ldr %[w0], [%[wp]], #4"),
        *("smlad %[a0], %[p3], %[w0], %[a0]", "smlad %[a1], %[q3], %[w0], %[a1]", "ldrd %[w0], %[w1], [%[wp]], #8"),
        *("smmla %[a0], %[a0], %[w0], %[w1]", "smmla %[a1], %[a1], %[w0], %[w1]", f"ssat %[a0], #8, %[a0], asr #{shift}"),
        *(f"ssat %[a1], #8, %[a1], asr #{shift}", f"strb %[a1], [%[out], #{channels}]", "strb %[a0], [%[out]], #1"),
    ]
