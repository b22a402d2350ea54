"""Convolution to one or two channels, such as an attention map or a mask: blocks of four pixels x one channel, by SMLAD.

The other kernels compute several channels at a time, which such a layer does not have.  This one computes four windows of one
channel at a time instead, so each weight word (two taps) serves four outputs.

The rows that a window covers are kept as 16-bit numbers less the padding value, with zeros around them, in a ring of scratch
memory; each row is widened only once, and no tap needs a test.  Flash: two bytes per weight.

In a transposed convolution, such as the last layer of an autoencoder, each pair of remainders of the stride is a convolution of
stride 1 (aot/topi/layer/phases.py) that reads its rows and columns from the same ring.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, cast, imm, logical_and, minimum, select
from aot.tir.intrin import BlockText, TensorIntrin
from aot.topi.generic.layers import remove_padding_value
from aot.topi.intrin.asm_text import AsmBlock, Operands, Repeat, asm, block_of, count_instructions
from aot.topi.layer.fused import FusedLayer, LayerIo, epilogue_instructions, lowered, match_for, open_io, table_of
from aot.topi.layer.im2col import is_rows
from aot.topi.layer.phases import ANCHOR, SubPixelLayer, SubPixels, sub_pixels
from aot.topi.layer.requant import Requant, plan_requantize
from aot.topi.strategy import Group, Lowered, register_planned

MOST_CHANNELS = 2


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
        return self.layer.channels * (code_bytes(self.run) + 140)

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


Places = list[tuple[Expr, ...]]
"""Indices of results in the output."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Windows, and the ring with the rows that they read."""

    windows: Windows
    ring: Ring


def plan(group: Group, target: Target) -> Plan | None:
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
    windows = Windows(layer, layer.bias, requant, Run((kw * depth + 1) // 2, step * depth), down)
    return Plan(windows, ring) if ring else None


def lower(group: Group, _target: Target, name: str, plan: Plan) -> Lowered:
    """Lower a convolution: rows of the output; for each, fill the ring, then tiles of four pixels, then channels."""
    windows, ring, layer = plan.windows, plan.ring, plan.windows.layer
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
    tile = channels * (windows.lines * (instructions(windows.run) + row) + 7 * windows.results + 4)
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
    if whole is None or whole.layer.channels > MOST_CHANNELS or (whole.layer.epilogue and table_of(whole.layer) is None):
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
            with nullcontext() if part.rows.out == plan.whole.rows.out else b.if_(y < part.rows.out):
                _row(plan, io, (part, phase), (weights, rows), first=first, y=y)
    total = ring.open_instructions() + ring.fill_instructions() + sum(_instructions(phase) for phase in plan.phases)
    total += 2 * whole.out_type.size * bool(whole.epilogue)
    code = 360 + sum(phase.code + 60 for phase in plan.phases)
    return lowered(io, whole, "arm_dsp.conv2d_transpose_few", total, code, phases=len(plan.phases))


def _instructions(phase: Windows) -> int:
    """Return the instructions of all tiles of a phase."""
    each = phase.lines * (instructions(phase.run) + 18 * (phase.lines > 1)) + 7 * phase.results
    each += 12 * (phase.width > PIXELS and phase.width % PIXELS > 0)  # addresses that do not follow from the tile's number
    return phase.layer.out_type.shape[1] * (phase.tiles * phase.layer.channels * each + 8)


def _row(
    plan: PhasesPlan, io: LayerIo, phase: tuple[SubPixels, Windows], buffers: tuple[Buffer, Buffer], *, first: Expr, y: Expr
) -> None:
    """Compute the results of a phase for row `y` of the data; `first`: where the row of the ring's windows is."""
    b, (part, windows) = io.ctx.builder, phase
    _, _, columns, channels = plan.whole.layer.out_type.shape
    (down, right), (from_y, from_x) = plan.whole.layer.attrs.strides, part.remainder
    for x in windows.columns(b):
        at = b.let("at", ((y * down + from_y) * columns + x * right + from_x) * channels)
        for c in range(channels):
            places: Places = [(at + (p * right * channels + c),) for p in range(windows.results)]
            windows.store(io, plan.ring, buffers, origin=(first, x), channel=c, places=places)


register_planned("arm_dsp.conv2d_transpose_few", ANCHOR, plan_transpose, lower_transpose, plevel=19)


PIXELS = 4
LANES = 4
MOST_STEP = 160
"""Most halfwords from window to window that LDRD's offset can reach."""
_MOST_UNROLL = 8


@cache
def widen_4() -> TensorIntrin:
    """out[i] = x[i] - zp for `count` elements, a multiple of LANES; operands x (any address), out: int16, zp, count."""
    zp, count = Var("zp"), Var("count")
    b = IRBuilder("widen_4")
    x = b.input("x", (UNKNOWN_EXTENT,), "int8")
    out = b.output("out", (UNKNOWN_EXTENT,), "int16")
    with b.for_("i", count) as i:
        b.store(out, i, cast("int16", cast("int32", x[i]) - zp))
    return block_of(b, "arm_dsp", _emit_widen, zp, count)


def _emit_widen(operands: Operands) -> BlockText:
    text = [
        "1:",
        "ldr %[v], [%[x]], #4",
        "sxtab16 %[s], %[zp], %[v]",
        "sxtab16 %[v], %[zp], %[v], ror #8",
        "pkhbt %[t], %[s], %[v], lsl #16",
        "pkhtb %[s], %[v], %[s], asr #16",
        "str %[t], [%[out]], #4",
        "str %[s], [%[out]], #4",
        f"subs %[n], %[n], #{LANES}",
        "bne 1b",
    ]
    ins = {"zp": f"((0u - (uint32_t)({operands['zp'].value})) & 0xffffu) * 0x10001u"}
    return asm(operands, text, "x >out", ins, counter="n=count", temporaries="vst")


@dataclass(frozen=True, slots=True)
class Run:
    """`pairs` of taps in a row of the window; `step` halfwords from one window to the next."""

    pairs: int
    step: int

    @property
    def by_words(self) -> bool:
        """Whether every window starts at a word."""
        return self.step % 2 == 0


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
    return block_of(b, "arm_dsp", lambda ops: _emit_dot(ops, run))


def text(run: Run) -> list[str | Repeat]:
    """Return the instructions: two pairs per iteration; windows from the last to the first, whose loads advance the pointer."""

    def products(p: int) -> list[str]:
        return [f"smlad %[a{p}], %[x{j}], %[w{j}], %[a{p}]" for j in range(2)]

    two = ["ldrd %[w0], %[w1], [%[w]], #8"]
    for p in reversed(range(1, PIXELS)):
        at = 2 * p * run.step
        if run.by_words:
            two += [f"ldrd %[x0], %[x1], [%[x], #{at}]", *products(p)]
        else:
            two += [f"ldr %[x{j}], [%[x], #{at + 4 * j}]" for j in range(2)] + products(p)
    first = ["ldrd %[x0], %[x1], [%[x]], #8"] if run.by_words else ["ldr %[x1], [%[x], #4]", "ldr %[x0], [%[x]], #8"]
    two += [*first, *products(0)]
    one = ["ldr %[w0], [%[w]], #4"]
    for p in range(PIXELS):
        one += [f"ldr %[x0], [%[x], #{2 * p * run.step}]", products(p)[0]]
    iterations = run.pairs // 2
    unroll = _unroll(iterations)
    lines: list[str | Repeat] = []
    if iterations > unroll:
        lines += [f"mov %[n], #{iterations // unroll}", "1:", Repeat(unroll, two), "subs %[n], %[n], #1", "bne 1b"]
    elif iterations:
        lines.append(Repeat(unroll, two))
    return [*lines, *(one if run.pairs % 2 else [])]


def _unroll(iterations: int) -> int:
    return max((u for u in range(1, _MOST_UNROLL + 1) if iterations % u == 0), default=0) if iterations else 0


def instructions(run: Run) -> int:
    """Return the instructions that one block executes."""
    iterations, each = run.pairs // 2, 13 if run.by_words else 17
    unroll = _unroll(iterations)
    loop = 2 * (iterations // unroll) + 1 if iterations > unroll else 0
    return each * iterations + loop + 9 * (run.pairs % 2)


def code_bytes(run: Run) -> int:
    """Return the bytes of code of one block."""
    return 4 * count_instructions(text(run))


def _emit_dot(operands: Operands, run: Run) -> BlockText:
    loop = run.pairs // 2 > _unroll(run.pairs // 2)
    temporaries = ["x0", "w0", *(["x1", "w1"] if run.pairs > 1 else [])]
    outs = [f'[a{p}] "+&r"({name})' for p, name in enumerate(operands["acc"].scalars)] + ['[x] "+&r"(aot_x)', '[w] "+&r"(aot_w)']
    outs += [f'[{t}] "=&r"(aot_{t})' for t in temporaries] + (['[n] "=&r"(aot_n)'] if loop else [])
    declarations = [
        f"const void *aot_x = {operands['x'].pointer};",
        f"const void *aot_w = {operands['w'].pointer};",
        f"uint32_t {', '.join(f'aot_{t}' for t in temporaries)};",
        *(["uint32_t aot_n;"] if loop else []),
    ]
    return AsmBlock(declarations, text(run), outs=outs).emit()


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
            if left:
                with b.for_("k", left) as k:
                    b.store(rows, at + k, 0)
            with b.for_("k", self.pitch - right) as k:
                b.store(rows, at + right + k, 0)
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
