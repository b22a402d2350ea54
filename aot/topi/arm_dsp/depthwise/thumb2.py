"""Depthwise convolution for cores with Thumb-2 but without DSP instructions (Cortex-M3), with SMLAL or MLA.

`depthwise_chain`: kernels up to 3 x 3 by channel planes.  A block is a strip of one channel, up to 12 columns; stride 1 or 2
along the strips, any stride across.  The axis along which strips run is chosen by cost.  Flash: eight bytes per kernel row.
Scratch: 2 * (rows of a band) * (columns + 6) bytes.

The trick: one 64-bit multiply-accumulate does up to four products, because two pixels share a word of the plane, spaced z = 2^21
apart.  At stride 1 they are neighbours, at stride 2 they are two columns apart.

Stride 1: let Z_m = x[2m] + x[2m+1] z be the pixel words of a line, and w1 + w0 z, w2 z the weight words of a kernel row w0 w1 w2.
Then A_m = sum over rows of (w1 + w0 z) Z_m + (w2 z) Z_(m+1) has the lanes

    low: sum w1 x[2m]     middle: out[2m]     high: sum w0 x[2m+1] + w2 x[2m+3]

and out[2m+1] is the high lane of A_m plus the low lane of A_(m+1).  So six SMLAL do 18 multiply-accumulates.  The low and the
middle lane start at 2^20, so that they never borrow; every lane stays below 2^20 in magnitude (nine products of bytes).

Stride 2: even and odd columns are in separate words, E_m = x[4m] + x[4m+2] z, O_m = x[4m+1] + x[4m+3] z.  A_m = sum over rows of
(w2 + w0 z) E_m + (w1 z) O_m has the same kind of lanes: the middle one is out[2m], and out[2m+1] is the high lane of A_m plus the
low lane of A_(m+1).

`depthwise_lanes`: blocks of six outputs of one channel, from planes, also for windows larger than 3 x 3.  Two pixels share a
32-bit word, so that four MLA do six multiply-accumulates (aot/topi/layer/planes.py).  Here the words of a tap stay in their
registers for the next tap, and SMULL requantises.

`depthwise_line`: windows of one row or one column without padding; up to five outputs of one line of a channel at a time,
straight from the data, without a plane or scratch memory.  While the weight of a tap is in a register, so are as many bytes as
there are outputs; all but the first of them serve the next tap as well, so each tap loads one new byte.  Flash: four bytes per
weight, scaled so that all channels can have the same shift.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache, partial
from itertools import product
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm
from aot.tir.intrin import BlockText, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.arm_dsp.depthwise import strip as blocks
from aot.topi.arm_dsp.depthwise.planes import MAX_REACH, Numbers, is_supported, plan_numbers, rounding_of, without_vanishing
from aot.topi.arm_dsp.smlal import INIT_HIGH, INIT_LOW, LANE_BITS, LANE_OFFSET
from aot.topi.intrin.asm_text import Operands, asm, block_of, counted_offset
from aot.topi.layer import planes
from aot.topi.layer.fused import FusedLayer, LayerIo, epilogue_each, lowered, match_for, match_layer, open_flat
from aot.topi.layer.im2col import Axis, axes
from aot.topi.layer.requant import HighMultiply, plan_folded, plan_high_multiply, plan_requantize, plan_uniform
from aot.topi.strategy import Group, Lowered, register_planned

# ---- depthwise_chain ----

MAX_ROWS, MAX_COLUMNS = 3, 3
MAX_STRIP = 12
SCALES = (8, 7, 6, 4)
"""Bits by which sums are scaled, tried in this order: more make a common shift likelier, fewer allow larger shifts."""
FOLDED_SCALES = (12, 11, 10, 9, 8, 7, 6, 5, 4)
"""The same if nothing is added after the product."""
FOLDED_SHIFTS = (15, 17, 22)
UNROLLED_WORDS = 6
"""Words of two pixels that are stored per iteration."""


@dataclass(frozen=True, slots=True)
class ChainStrip(blocks.Lines):
    """Lines from a plane of words that hold two pixels.

    `stride` is along the lines; sums are scaled by 2^scale when the bias is added.  The strip's first `stride` words are before
    the window of its first result: A_0 gives the high lane for that result.
    """

    kh: int
    stride: int
    scale: int

    @property
    def steps(self) -> int:
        return (self.outputs + 1) // 2

    @property
    def numbers(self) -> tuple[str, ...]:
        """The names of what follows the weights in the stream."""
        constant = () if self.rounding.folded else ("constant",)
        return ("bias", *constant, "multiplier", *(("shift",) if self.rounding.shift < 0 else ()))

    @property
    def stream_words(self) -> int:
        """Two weight words per kernel row, bias (less the lanes' start value, scaled), constant, multiplier, shift."""
        return 2 * self.kh + len(self.numbers)

    @property
    def plane_words(self) -> int:
        lines = (self.rows - 1) * self.line_step + (self.kh - 1) * self.dilation
        return lines * self.pitch + self.steps * self.stride + 2

    @property
    def name(self) -> str:
        sizes = (self.line_step, self.dilation, self.pitch, self.rows, self.outputs, self.column_step, self.row_step)
        return blocks.joined("dw_chain", self.kh, self.stride, self.scale, *sizes, *self.rounding.numbers, self.rounding.folded)


@lru_cache(maxsize=256)
def dw_chain(strip: ChainStrip) -> TensorIntrin:
    """The block of a strip.

    Operands: plane int32 words from the strip's first on; params int32, a channel's stream; out int8 from the first result on.
    """
    b = IRBuilder("dw_chain")
    plane = b.input("plane", (strip.plane_words,), "int32", align=4)
    params = b.input("params", (strip.stream_words,), "int32", align=4)
    out = b.output("out", (strip.written,), "int8")
    loaded = {n: b.let(n, params[2 * strip.kh + i]) for i, n in enumerate(strip.numbers)}
    numbers = [loaded.get(n, imm(0)) for n in blocks.NUMBERS]
    mask = imm((1 << LANE_BITS) - 1, "int64")

    def chain(line: Expr, m: Expr) -> Expr:
        """Return A_m of a line."""
        acc = b.local("a", (1,), "int64", init=imm(INIT_HIGH << 32 | INIT_LOW, "int64"))
        with b.for_("r", strip.kh) as r:
            at = b.let("at", (line * strip.line_step + r * strip.dilation) * strip.pitch + m * strip.stride)
            for i in range(2):
                b.store(acc, 0, acc[0] + cast("int64", plane[at + i]) * cast("int64", params[r * 2 + i]))
        return b.let("sum", acc[0])

    def lane(total: Expr, i: int) -> Expr:
        return cast("int32", (total >> imm(LANE_BITS * i, "int64")) & mask)

    def finish(y: Expr, x: Expr, lanes: Expr) -> None:
        scaled = cast("uint32", numbers[0]) + (cast("uint32", lanes) << imm(strip.scale, "uint32"))  # the offset may wrap around
        value = blocks.requantized(b, strip.rounding, cast("int32", scaled), numbers)
        b.store(out, y * strip.row_step + x * strip.column_step, value)

    with b.for_("y", strip.rows) as y:
        high = b.local("high", (1,), "int32")
        b.store(high, 0, cast("int32", chain(y, imm(0)) >> imm(2 * LANE_BITS, "int64")))
        with b.for_("m", strip.outputs // 2) as m:
            total = chain(y, m + 1)
            finish(y, m * 2, high[0] + lane(total, 0))
            finish(y, m * 2 + 1, lane(total, 1))
            b.store(high, 0, cast("int32", total >> imm(2 * LANE_BITS, "int64")))
        if strip.outputs % 2:
            finish(y, imm(strip.outputs - 1), high[0] + lane(chain(y, imm(strip.steps)), 0))
    return TensorIntrin(strip.name, b.finish(), lambda ops: blocks.emit_strip(ops, _Chains(strip)), requires="thumb2")


class _Chains(blocks.StripText):
    """Weights in r4 and up, the bias in lr, A_m in r10 and r11, the high lane of the previous A in r1."""

    strip: ChainStrip
    acc = ("r12", "r3")
    pixels = ("r12", "r3")

    def __init__(self, strip: ChainStrip) -> None:
        super().__init__(strip, step=2, line_bytes=4 * strip.line_step * strip.pitch)
        self.weights = [f"r{4 + i}" for i in range(2 * strip.kh)]
        self.in_memory = [(n, 2 * strip.kh + 1 + i) for i, n in enumerate(strip.numbers[1:])]

    def head(self) -> list[str]:
        return [f"ldr lr, [r1, #{8 * self.strip.kh}]", f"ldm r1, {{{', '.join(self.weights)}}}"]

    def start(self) -> list[str]:
        return [*self._sums(0), "asr r1, r11, #10"]

    def _sums(self, m: int | None) -> list[str]:
        """Return the instructions that compute A_m in r10 and r11; m None: A of the loop's current step, counted from A_1."""
        strip, lines = self.strip, [f"mov r10, #{INIT_LOW}", f"mov r11, #{INIT_HIGH}"]
        step = 4 * strip.stride
        for r in range(strip.kh):
            offset = 4 * r * strip.dilation * strip.pitch + (step if m is None else 0)
            if offset + step * strip.steps <= blocks.MAX_PAIR_OFFSET:
                lines.append(f"ldrd r12, r3, [r0, #{counted_offset(m, step, offset)}]")
            else:
                lines += [f"ldr {x}, [r0, #{counted_offset(m, step, offset + more)}]" for x, more in (("r12", 0), ("r3", 4))]
            lines += [f"smlal r10, r11, {x}, {self.weights[2 * r + i]}" for i, x in enumerate(("r12", "r3"))]
        return lines

    def results(self, outputs: int, index: int | None) -> list[str]:
        lines = [*self._sums(None if index is None else index + 1), "ubfx r12, r10, #0, #21", "add r12, r1, r12"]
        lines += ["lsr r3, r10, #21", "bfi r3, r11, #11, #10", "asr r1, r11, #10"] if outputs > 1 else []
        return lines + self._finish(self.acc[:outputs])

    def _finish(self, accs: tuple[str, ...]) -> list[str]:
        """Requantise the lanes in `accs`; r10 and r11 are free."""
        rounding = self.strip.rounding
        lines = [f"add {a}, lr, {a}, lsl #{self.strip.scale}" for a in accs]
        lines += ["ldr r10, %[multiplier]", *(f"smull r11, {a}, {a}, r10" for a in accs)]
        if rounding.signed:
            for a in accs:
                lines += [f"asr r11, {a}, #31", f"add {a}, {a}, r11, lsl #{rounding.prescale - 1}"]
        if not rounding.folded:
            lines += ["ldr r10, %[constant]", *(f"add {a}, {a}, r10" for a in accs)]
        if rounding.shift < 0:
            lines += ["ldr r10, %[shift]", *(f"asr {a}, {a}, r10" for a in accs)]
        return lines + blocks.clamp_lines(rounding, accs)


@dataclass(frozen=True, slots=True)
class ChainPlanes(planes.Planes):
    """Planes with the `strips` of their rows; `pitch` in words, sums scaled by 2^scale."""

    numbers: Numbers
    scale: int
    strips: planes.Strips

    @property
    def before(self) -> int:
        """Columns of a line before the image; one of them (two at stride 2) is in no window."""
        return self.columns.before + self.columns.stride

    @property
    def copied(self) -> int:
        return max(0, min(self.columns.size, 2 * self.pitch - self.before))

    def strip(self, outputs: int) -> ChainStrip:
        rows, columns = self.rows, self.columns
        sizes = (rows.stride, rows.dilation, self.pitch, self.band, outputs, columns.out_step, rows.out_step)
        return ChainStrip(*sizes, self.numbers.rounding, rows.taps, columns.stride, self.scale)

    @property
    def cost(self) -> int:
        """Instructions of one channel (from counts under QEMU)."""
        bands = self.bands
        lines = self.lines if bands > 1 else min(self.rows.size, self.lines)
        strips = sum(_Chains(self.strip(n)).instructions(self.band) + 16 for _, n in self.strips)
        iterations = self.copied // (2 * UNROLLED_WORDS)
        loop = iterations * (1 if self.columns.stride == 1 else 4) if iterations > 1 else 0
        return bands * (strips + lines * (2 * self.copied + 3 + loop + 10 * (bands > 1))) + 20


def _plan_chain(group: Group, target: Target) -> ChainPlanes | None:
    """Refuse cores with DSP instructions: strips with SMLAD are faster there."""
    layer = match_layer(group)
    if layer is None or layer.epilogue or target.has("dsp") or not is_supported(layer, target, feature="thumb2"):
        return None
    numbers, scale = _numbers(layer, target)
    if numbers is None:
        return None
    plans = []
    for rows, columns, swapped in planes.orientations(layer):
        steps = (columns.out + 1) // 2
        pitch = steps + 2 if columns.stride == 1 else 2 * (steps + 1)
        small = columns.taps <= MAX_COLUMNS and rows.taps <= MAX_ROWS and columns.stride <= 2 and columns.dilation == 1
        if small and 4 * (rows.reach - 1) * pitch <= MAX_REACH:
            band, strips = planes.band_height(rows, line_bytes=4 * pitch), planes.equal_strips(columns.out, MAX_STRIP)
            plans.append(ChainPlanes(layer, rows, columns, swapped, band, pitch, numbers, scale, strips))
    return min(plans, key=lambda p: p.cost, default=None)


def _numbers(layer: FusedLayer, target: Target) -> tuple[Numbers | None, int]:
    """Return the numbers and the bits by which they are scaled; the constant is folded into the bias if that is exact."""
    attrs, used = without_vanishing(layer)
    weight, bias = layer.weight * used, layer.bias * used
    for scale, limit in product(FOLDED_SCALES, FOLDED_SHIFTS):
        folded = plan_folded(attrs, layer.acc_low * used, layer.acc_high * used, target=target, prescale=scale, limit=limit)
        if folded is not None:
            requant, added = folded
            return Numbers(weight << scale, (bias << scale) + added, requant, rounding_of(requant, layer, folded=True)), scale
    options = ((plan_numbers(layer, target, packed=True, scale=s), s) for s in SCALES)
    return next(((n, s) for n, s in options if n is not None), (None, 0))


def _stream(plan: ChainPlanes) -> Array:
    """Return int32 [channels, words], see ChainStrip.stream_words."""
    weight = plan.numbers.weight >> plan.scale
    weight = weight.transpose(1, 0, 2) if plan.swapped else weight
    taps = np.pad(weight, ((0, 0), (0, MAX_COLUMNS - weight.shape[1]), (0, 0)))
    with_first, alone = (1, 2) if plan.columns.stride == 1 else (2, 1)
    words = [w for row in taps for w in (row[with_first] + (row[0] << LANE_BITS), row[alone] << LANE_BITS)]
    numbers = {f.name: f.values for f in plan.numbers.requant.params} | {"bias": plan.numbers.bias - (LANE_OFFSET << plan.scale)}
    return np.stack([*words, *(numbers[n] for n in plan.strip(1).numbers)], axis=1).astype(np.int32)


def _lower_chain(group: Group, _target: Target, name: str, plan: ChainPlanes) -> Lowered:
    layer, columns = plan.layer, plan.columns
    b = IRBuilder(name)
    io = open_flat(b, group, layer)
    data = _stream(plan)
    params = io.constant("params", data.reshape(-1), "int32")
    plane, row = planes.word_rows(b, plan, io.data, LANE_BITS, partial(_copy_row, b, plan))
    for channel, out in plan.results(b, row):
        start = b.let("o", out)
        weights = region(params, b.let("w", channel * data.shape[1]))
        for x, outputs in planes.each_strip(b, plan.strips):
            at = region(plane, x >> 1 if columns.stride == 1 else x)
            b.block(dw_chain(plan.strip(outputs)), at, weights, region(io.out, start + x * columns.out_step))
    widths = {n for _, n in plan.strips}
    code = sum(_Chains(plan.strip(n)).code_bytes() for n in widths) + (320 if plan.bands > 1 else 160)
    cost = layer.data_type.shape[0] * layer.channels * plan.cost + 3 * plane.size
    return lowered(io, layer, "arm_dsp.depthwise_chain", cost, code, band=plan.band, columns=max(widths))


def _copy_row(b: IRBuilder, plan: ChainPlanes, plane: Buffer, target: Expr, pixel: Callable[[Expr], Expr]) -> None:
    """Store the words that hold pixels, in whole groups of columns; a group at either end may also contain border."""
    count, before, stride = plan.copied, plan.before, plan.columns.stride
    size = 2 * stride  # columns of a group: `stride` words, with columns that far apart

    def group(at: Expr, first: Expr, columns: range) -> None:
        """Store the group at word `at`; its columns `columns` are the pixels from number `first` on."""
        for i in range(stride):
            low, high = (
                pixel(first + (c - columns.start)) if c in columns else imm(plan.layer.attrs.pad_value) for c in (i, i + stride)
            )
            b.store(plane, at + i, planes.word(low, high, LANE_BITS))

    if not count:
        return
    at, head = before // size * stride, min(-before % size, count)
    if head:
        group(target + at, imm(0), range(before % size, before % size + head))
        at += stride
    groups, remainder = divmod(count - head, size)
    iterations = -(-groups * stride // UNROLLED_WORDS)
    unroll = groups // max(iterations, 1)
    for t in planes.counted(b, iterations, "p") if iterations else ():
        for u in range(unroll):
            group(target + (t * (unroll * stride) + (at + u * stride)), t * (unroll * size) + (head + u * size), range(size))
    for u in range(iterations * unroll, groups):
        group(target + (at + u * stride), imm(head + u * size), range(size))
    if remainder:
        group(target + (at + groups * stride), imm(count - remainder), range(remainder))


register_planned("arm_dsp.depthwise_chain", "nn.depthwise_conv2d", _plan_chain, _lower_chain, plevel=30)

# ---- depthwise_lanes ----

MOST_SCALE = 14
"""Most bits by which sums are scaled to reach a common shift."""


def _row(taps: planes.Taps, ky: int) -> list[str]:
    """The taps of a row of the window: LDR and MLA."""
    x, y = ["x0", "x1"], ["y0", "y1"]
    sliding = taps.stride == taps.dilation or taps.columns == 1  # the second word of a tap is the first word of the next tap
    text = [f"ldr %[{n}], [%[{n[0]}]]" for n in (x[0], y[0])] if sliding else []
    for kx in range(taps.columns):
        first = 4 * kx * taps.dilation
        second = first + 4 * taps.stride
        if not sliding:
            text += [f"ldr %[{n}], [%[{n[0]}], #{first}]" for n in (x[0], y[0])]
        text += [f"ldrsb %[v], [%[w], #{ky * taps.columns + kx}]"]
        text += [f"ldr %[{n}], [%[{n[0]}], #{second}]" for n in (x[1], y[1])]
        text += [f"mla %[a{i}], %[{n}], %[v], %[a{i}]" for i, n in enumerate((*x, *y))]
        if sliding:
            x, y = x[::-1], y[::-1]
    return text


def _uniform(layer: FusedLayer, target: Target, *, least: int) -> HighMultiply | None:
    """Return one shift for all channels, if exact for sums scaled by `least` bits or more."""
    low, high = layer.acc_low, layer.acc_high
    most = min(30 - int(np.maximum(np.abs(low), np.abs(high) + 1).max()).bit_length(), MOST_SCALE)
    options = (plan_uniform(layer.requant, low, high, target=target, prescale=scale) for scale in range(most, least - 1, -1))
    return next((form for form in options if form is not None), None)


def _requantise(layer: FusedLayer, target: Target) -> planes.LaneRequant:
    """Return one shift for all channels if exact, which also settles the rounding."""
    form = _uniform(layer, target, least=5) or plan_requantize(layer.requant, layer.acc_low, layer.acc_high, target)
    return planes.LaneRequant(form, np.zeros_like(layer.bias))


def _result_cost(requant: planes.LaneRequant) -> int:
    form = requant.form
    return 5 + 3 * form.rounded + form.signed if isinstance(form, HighMultiply) else 25


M3 = planes.Machine(
    "arm_dsp.depthwise_lanes", "arm_dsp.mla", "thumb2", "rr", row=_row, temporaries=("x0", "x1", "y0", "y1", "v"), reach=1000,
    requantise=_requantise, result_cost=_result_cost, group_cost=15,
)  # fmt: skip
planes.register_lanes(M3, lacks="dsp", plevel=25)


# ---- depthwise_line ----


@dataclass(frozen=True, slots=True)
class Line:
    """`taps` weights, `outputs` results, `step` bytes between neighbours in the data."""

    taps: int
    outputs: int
    step: int

    @property
    def bytes_read(self) -> int:
        return self.taps + self.outputs - 1

    @property
    def far(self) -> bool:
        """Whether offsets do not reach the last byte, so that the pointer advances."""
        return (self.bytes_read - 1) * self.step > MAX_OFFSET

    @property
    def instructions(self) -> int:
        """Instructions of `mla_line`."""
        moves = self.bytes_read if self.far and self.step > MAX_STEP else 0
        return self.taps * (1 + self.outputs) + self.bytes_read + moves


MAX_OUTPUTS = 5
"""Most sums, and bytes, in registers, besides a weight and two pointers."""
MAX_OFFSET, MAX_STEP = 4095, 255
"""Largest offset of LDRSB, and of LDRSB with pointer update."""


@cache
def mla_line(line: Line) -> TensorIntrin:
    """acc[i] += sum over k < taps of w[k] * x[(i + k) * step], i < outputs; acc int32 in registers, w int32, x int8."""
    b = IRBuilder(f"mla_line_{line.taps}_{line.outputs}_{line.step}")
    w = b.input("w", (line.taps,), "int32", align=4)
    x = b.input("x", ((line.bytes_read - 1) * line.step + 1,), "int8")
    acc = b.output("acc", (line.outputs,), "int32")
    with b.for_("k", line.taps) as k:
        for i in range(line.outputs):
            b.store(acc, i, acc[i] + w[k] * cast("int32", x[(k + i) * line.step]))
    return block_of(b, "arm_dsp", lambda ops: _emit_line(ops, line), requires="thumb2")


def _load(line: Line, n: int) -> list[str]:
    """Return the load of byte n into its register, which is reused by byte n + outputs."""
    register = f"%[x{n % line.outputs}]"
    if not line.far:
        return [f"ldrsb {register}, [%[xp], #{n * line.step}]"]
    if line.step <= MAX_STEP:
        return [f"ldrsb {register}, [%[xp]], #{line.step}"]
    return [f"ldrsb {register}, [%[xp]]", "add %[xp], %[step]"]


def _emit_line(operands: Operands, line: Line) -> BlockText:
    text: list[str] = []
    for n in range(line.outputs - 1):
        text += _load(line, n)
    for k in range(line.taps):
        text += [*_load(line, k + line.outputs - 1), f"ldr %[v], [%[w], #{4 * k}]"]
        text += [f"mla %[a{i}], %[x{(k + i) % line.outputs}], %[v], %[a{i}]" for i in range(line.outputs)]
    temporaries = [*(f"x{i}" for i in range(line.outputs)), "v"]
    ins = {"step": f"{line.step}"} if line.far and line.step > MAX_STEP else {}
    return asm(operands, text, "xp=x *w", ins, kind="+", acc="a", temporaries=temporaries)


@dataclass(frozen=True, slots=True)
class LinePlan:
    """`along` is the axis of the window, `across` the other axis; `outputs` per block."""

    layer: FusedLayer
    requant: HighMultiply
    along: Axis
    across: Axis
    outputs: int

    def line(self, outputs: int) -> Line:
        return Line(self.along.taps, outputs, self.along.data_step)

    @property
    def remainder(self) -> int:
        return self.along.out % self.outputs

    def block_cost(self, outputs: int) -> int:
        requant = self.requant
        each = 4 + 2 * requant.signed + (not requant.params[2].uniform) + 2 * (requant.lo > -128 or requant.hi < 127)
        around = 17 if outputs > 1 else 4
        return self.line(outputs).instructions + outputs * (each + epilogue_each(self.layer)) + around

    @property
    def cost(self) -> int:
        """Instructions of one call (from counts under QEMU)."""
        line = self.along.out // self.outputs * self.block_cost(self.outputs) + 10
        line += self.block_cost(self.remainder) if self.remainder else 0
        return self.layer.out_type.shape[0] * self.layer.channels * (self.across.out * line + 14)


MAX_TAPS = 32
PLAIN_SCALE = 2
"""Bits by which sums are scaled without a common shift; from this value on the product needs no rounding."""


def _plan_line(group: Group, target: Target) -> LinePlan | None:
    """Refuse cores with DSP instructions: they have kernels with fewer instructions."""
    layer = match_for(group, target, "thumb2")
    if (
        layer is None
        or target.has("dsp")
        or layer.data_type.dtype != "int8"
        or 0 in layer.out_type.shape
        or any(layer.attrs.padding)
    ):
        return None
    requant = _uniform(layer, target, least=4)
    requant = requant or plan_high_multiply(layer.requant, layer.acc_low, layer.acc_high, target=target, prescale=PLAIN_SCALE)
    y, x = axes(layer)
    along, across = (y, x) if x.taps == 1 else (x, y)
    if requant is None or across.taps > 1 or along.taps > MAX_TAPS or along.stride > 1 or (along.taps > 1 and along.dilation > 1):
        return None
    plans = [LinePlan(layer, requant, along, across, n) for n in range(1, min(along.out, MAX_OUTPUTS) + 1)]
    return min(plans, key=lambda p: p.cost)


def _lower_line(group: Group, _target: Target, name: str, plan: LinePlan) -> Lowered:
    layer, along, across, requant = plan.layer, plan.along, plan.across, plan.requant
    b = IRBuilder(name)
    io = open_flat(b, group, layer)
    # scaled weights and bias, then the requantisation parameters that vary between channels
    scale, taps = 1 << int(requant.prescale[0]), layer.weight.reshape(along.taps, -1)
    varying = [f.values for f in requant.params if not f.uniform]
    stream = np.stack([*(scale * taps), scale * layer.bias, *varying], axis=1).astype(np.int32)
    params = io.constant("params", stream.reshape(-1), "int32")
    depth, multiplier = layer.data_type.shape[-1], layer.attrs.multiplier
    for image in planes.counted(b, layer.data_type.shape[0], "n"):
        with b.for_("c", depth) as c:
            for m in planes.counted(b, multiplier, "m"):
                data = b.let("data", image * prod(layer.data_type.shape[1:]) + c)
                out = b.let("out", image * prod(layer.out_type.shape[1:]) + (c * multiplier + m))
                words = b.let("words", (c * multiplier + m) * stream.shape[1])
                loads = (params[words + i] for i in range(along.taps, stream.shape[1]))
                bias = b.let("bias", next(loads))
                requant_params = tuple(imm(int(f.values[0])) if f.uniform else b.let(f.name, next(loads)) for f in requant.params)
                for line in planes.counted(b, across.out, "line"):
                    start = data + line * (across.stride * across.data_step), out + line * across.out_step
                    _line(b, plan, io, region(params, words), start=start, bias=bias, numbers=requant_params)
    blocks = [plan.line(n) for n in (plan.outputs, plan.remainder) if n]
    code = 120 + sum(4 * line.instructions + 24 * line.outputs * (1 + len(layer.epilogue)) for line in blocks)
    return lowered(io, layer, "arm_dsp.depthwise_line", plan.cost, code, outputs=plan.outputs)


def _line(
    b: IRBuilder, plan: LinePlan, io: LayerIo, weights: Region, *, start: tuple[Expr, Expr], bias: Expr, numbers: tuple[Expr, ...]
) -> None:
    """Compute a line of one channel; `start`: its first datum and its first result."""

    def block(first: Expr, outputs: int) -> None:
        sums = b.local("acc", (outputs,), "int32")
        for i in range(outputs):
            b.store(sums, i, bias)
        source = region(io.data, b.let("x", start[0] + first * plan.along.data_step))
        b.block(mla_line(plan.line(outputs)), weights, source, sums)
        values = [plan.requant.emit_scaled(b, sums[i], numbers) for i in range(outputs)]
        at = b.let("o", start[1] + first * plan.along.out_step)
        io.store_all([(at + i * plan.along.out_step,) for i in range(outputs)], values)

    for n in planes.counted(b, plan.along.out // plan.outputs, "n"):
        block(n * plan.outputs, plan.outputs)
    if plan.remainder:
        block(imm(plan.along.out - plan.remainder), plan.remainder)


register_planned("arm_dsp.depthwise_line", "nn.depthwise_conv2d", _plan_line, _lower_line, plevel=32)
