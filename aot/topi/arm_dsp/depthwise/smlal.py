"""Depthwise convolution by channel planes for cores with SMLAL but without DSP instructions (Cortex-M3): kernels up to 3 x 3.

A block is a strip of one channel, up to 12 columns; stride 1 or 2 along the strips, any stride across.  The axis along which
strips run is chosen by cost.  Flash: eight bytes per kernel row.  Scratch: 2 * (rows of a band) * (columns + 6) bytes.

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
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import product

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm
from aot.tir.intrin import TensorIntrin
from aot.topi.arm_dsp.depthwise import strip as blocks
from aot.topi.arm_dsp.depthwise.planes import MAX_REACH, Numbers, is_supported, plan_numbers, rounding_of, without_vanishing
from aot.topi.arm_dsp.smlal import INIT_HIGH, INIT_LOW, LANE_BITS, LANE_OFFSET
from aot.topi.intrin.asm_text import counted_offset
from aot.topi.layer.fused import FusedLayer, lowered, match_layer, open_flat
from aot.topi.layer.planes import Planes, Strips, band_height, counted, each_strip, equal_strips, orientations
from aot.topi.layer.requant import plan_folded
from aot.topi.strategy import Group, Lowered, register_planned

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
class ChainPlanes(Planes):
    """Planes with the `strips` of their rows; `pitch` in words, sums scaled by 2^scale."""

    numbers: Numbers
    scale: int
    strips: Strips

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


def _plan(group: Group, target: Target) -> ChainPlanes | None:
    """Refuse cores with DSP instructions: strips with SMLAD are faster there."""
    layer = match_layer(group)
    if layer is None or layer.epilogue or target.has("dsp") or not is_supported(layer, target, feature="thumb2"):
        return None
    numbers, scale = _numbers(layer, target)
    if numbers is None:
        return None
    plans = []
    for rows, columns, swapped in orientations(layer):
        steps = (columns.out + 1) // 2
        pitch = steps + 2 if columns.stride == 1 else 2 * (steps + 1)
        small = columns.taps <= MAX_COLUMNS and rows.taps <= MAX_ROWS and columns.stride <= 2 and columns.dilation == 1
        if small and 4 * (rows.reach - 1) * pitch <= MAX_REACH:
            band, strips = band_height(rows, line_bytes=4 * pitch), equal_strips(columns.out, MAX_STRIP)
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


def _lower(group: Group, _target: Target, name: str, plan: ChainPlanes) -> Lowered:
    layer, columns = plan.layer, plan.columns
    b = IRBuilder(name)
    io = open_flat(b, group, layer)
    data = _stream(plan)
    params = io.constant("params", data.reshape(-1), "int32")
    plane = b.scratch("plane", (plan.lines * plan.pitch,), "int32")
    pad = imm(layer.attrs.pad_value)
    with b.for_("i", plane.size) as i:
        b.store(plane, i, _word(pad, pad))

    def row(at: Expr, start: Expr | None) -> None:
        _copy_row(b, plan, plane, b.let("d", at * plan.pitch), plan.pixels(io.data, start))

    for channel, out in plan.results(b, row):
        start = b.let("o", out)
        weights = region(params, b.let("w", channel * data.shape[1]))
        for x, outputs in each_strip(b, plan.strips):
            at = region(plane, x >> 1 if columns.stride == 1 else x)
            b.block(dw_chain(plan.strip(outputs)), at, weights, region(io.out, start + x * columns.out_step))
    widths = {n for _, n in plan.strips}
    code = sum(_Chains(plan.strip(n)).code_bytes() for n in widths) + (320 if plan.bands > 1 else 160)
    cost = layer.data_type.shape[0] * layer.channels * plan.cost + 3 * plane.size
    return lowered(io, layer, "arm_dsp.depthwise_chain", cost, code, band=plan.band, columns=max(widths))


def _word(low: Expr, high: Expr) -> Expr:
    return low + high * (1 << LANE_BITS)


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
            b.store(plane, at + i, _word(low, high))

    if not count:
        return
    at, head = before // size * stride, min(-before % size, count)
    if head:
        group(target + at, imm(0), range(before % size, before % size + head))
        at += stride
    groups, remainder = divmod(count - head, size)
    iterations = -(-groups * stride // UNROLLED_WORDS)
    unroll = groups // max(iterations, 1)
    for t in counted(b, iterations, "p") if iterations else ():
        for u in range(unroll):
            group(target + (t * (unroll * stride) + (at + u * stride)), t * (unroll * size) + (head + u * size), range(size))
    for u in range(iterations * unroll, groups):
        group(target + (at + u * stride), imm(head + u * size), range(size))
    if remainder:
        group(target + (at + groups * stride), imm(count - remainder), range(remainder))


register_planned("arm_dsp.depthwise_chain", "nn.depthwise_conv2d", _plan, _lower, plevel=30)
