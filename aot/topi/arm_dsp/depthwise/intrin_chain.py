"""Strips of a depthwise convolution by SMLAL, for cores without DSP instructions: a word holds two pixels 2^21 apart.

With z = 2^21 let Z_m = x[2m] + x[2m+1] z be the pixel words of a line, and w1 + w0 z, w2 z the weight words of a
kernel row w0 w1 w2. Then A_m = sum over rows of (w1 + w0 z) Z_m + (w2 z) Z_(m+1) has the lanes

    low: sum w1 x[2m]     middle: out[2m]     high: sum w0 x[2m+1] + w2 x[2m+3]

and out[2m+1] is A_m's high lane plus A_(m+1)'s low lane, so six SMLAL make 18 multiply-accumulates.  The low and the
middle lane start at 2^20, so that they never borrow; every lane stays below 2^20 in magnitude (nine products of
bytes).

With a stride of two, even and odd columns lie in words of their own: E_m = x[4m] + x[4m+2] z, O_m = x[4m+1] + x[4m+3] z.
A_m = sum over rows of (w2 + w0 z) E_m + (w1 z) O_m has the same lanes: the middle one is out[2m], and out[2m+1] is the high
lane of A_m plus the low lane of A_(m+1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from functools import lru_cache

from aot.support.dataclass import dataclass
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_dsp.depthwise.intrin import add_immediate, clamp_lines, requantized
from aot.topi.arm_dsp.depthwise.plan import RequantForm
from aot.topi.arm_dsp.smlal.conv2d import INIT_HIGH, INIT_LOW, LANE_BITS
from aot.topi.intrin.asm_text import AsmBlock, Repeat, count_instructions, counted, counted_offset

MAX_ROWS = 3
NUMBERS = ("bias", "constant", "multiplier", "shift")


@dataclass(frozen=True, slots=True)
class ChainStrip:
    """What a block does; `pitch` in words, steps of the result in bytes.

    `stride` is along the lines, `line_step` across, in plane rows; sums are scaled by 2^scale when the bias is added.
    The strip's first `stride` words hold what is before its first result's window; A_0 gives the high lane for the first result.
    """

    kh: int
    stride: int
    scale: int
    line_step: int
    dilation: int
    pitch: int
    rows: int
    outputs: int
    column_step: int
    row_step: int
    rounding: RequantForm

    @property
    def steps(self) -> int:
        return (self.outputs + 1) // 2

    @property
    def numbers(self) -> tuple[str, ...]:
        """What follows the weights in the stream."""
        constant = () if self.rounding.folded else ("constant",)
        return ("bias", *constant, "multiplier", *(("shift",) if self.rounding.shift < 0 else ()))

    @property
    def stream_words(self) -> int:
        """Two weight words a kernel row, bias (less the lanes' start value, scaled), constant, multiplier, shift."""
        return 2 * self.kh + len(self.numbers)

    @property
    def plane_words(self) -> int:
        lines = (self.rows - 1) * self.line_step + (self.kh - 1) * self.dilation
        return lines * self.pitch + self.steps * self.stride + 2

    @property
    def name(self) -> str:
        *sizes, rounding = astuple(self)
        flat = [*sizes, *rounding[:-3], rounding[-1]]  # a chain has neither a table nor halves
        return "arm_dsp.dw_chain_" + "_".join(str(int(v)) for v in flat).replace("-", "m")


@lru_cache(maxsize=256)
def dw_chain(strip: ChainStrip) -> TensorIntrin:
    """Operands: plane int32 words from the strip's first on; params int32, a channel's stream; out int8 from the
    first result on.
    """
    b = IRBuilder("dw_chain")
    plane = b.input("plane", (strip.plane_words,), "int32", align=4)
    params = b.input("params", (strip.stream_words,), "int32", align=4)
    out = b.output("out", ((strip.rows - 1) * strip.row_step + (strip.outputs - 1) * strip.column_step + 1,), "int8")
    loaded = {n: b.let(n, params[2 * strip.kh + i]) for i, n in enumerate(strip.numbers)}
    numbers = [loaded.get(n, imm(0)) for n in NUMBERS]
    mask = imm((1 << LANE_BITS) - 1, "int64")

    def chain(line: Expr, m: Expr) -> Expr:
        """A_m of a line."""
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
        value = requantized(b, strip.rounding, cast("int32", scaled), numbers)
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
    return TensorIntrin(strip.name, b.finish(), lambda ops: _emit(ops, strip), requires="thumb2")


def instructions(strip: ChainStrip) -> int:
    """Executed by one block, counted from its text."""
    return len(_head(strip)) + strip.rows * (count_instructions(_line(strip)) + 3 * (strip.rows > 1))


def code_bytes(strip: ChainStrip) -> int:
    return 4 * (len(_head(strip)) + count_instructions(_line(strip)) + 3 * (strip.rows > 1))


def _weights(strip: ChainStrip) -> list[str]:
    return [f"r{4 + i}" for i in range(2 * strip.kh)]


def _head(strip: ChainStrip) -> list[str]:
    """Weights into r4 and up, the bias into lr."""
    return [f"ldr lr, [r1, #{8 * strip.kh}]", f"ldm r1, {{{', '.join(_weights(strip))}}}"]


def _line(strip: ChainStrip) -> list[str | Repeat]:
    """All results of a line; pointers moved on to the next."""
    far = (strip.outputs - 1) * strip.column_step > 4095
    lines: list[str | Repeat] = [*_sums(strip, 0), "asr r1, r11, #10"]
    whole = strip.outputs // 2
    if whole > 1:
        lines += counted(whole, _step(strip, None, far=far))
    elif whole:
        lines += _step(strip, 0, far=far)
    if strip.outputs % 2:
        lines += [*_sums(strip, strip.steps), "ubfx r12, r10, #0, #21", "add r12, r1, r12", *_finish(strip, ["r12"])]
        lines += _stores(strip, ["r12"], whole, far=far)
    moved = strip.outputs * strip.column_step if far else 0
    line = 4 * strip.line_step * strip.pitch
    return [*lines, *add_immediate("r0", line), *add_immediate("r2", strip.row_step - moved)]


def _sums(strip: ChainStrip, m: int | None) -> list[str]:
    """A_m into r10 and r11; with m None that of the step that `counted` counts, which begin with A_1."""
    lines = [f"mov r10, #{INIT_LOW}", f"mov r11, #{INIT_HIGH}"]
    weights, step = _weights(strip), 4 * strip.stride
    for r in range(strip.kh):
        offset = 4 * r * strip.dilation * strip.pitch + (step if m is None else 0)
        if offset + step * strip.steps <= 1020:
            lines.append(f"ldrd r12, r3, [r0, #{counted_offset(m, step, offset)}]")
        else:
            lines += [f"ldr {x}, [r0, #{counted_offset(m, step, offset + more)}]" for x, more in (("r12", 0), ("r3", 4))]
        lines += [f"smlal r10, r11, r12, {weights[2 * r]}", f"smlal r10, r11, r3, {weights[2 * r + 1]}"]
    return lines


def _step(strip: ChainStrip, index: int | None, *, far: bool) -> list[str]:
    """Two results."""
    lines = _sums(strip, None if index is None else index + 1)
    lines += ["ubfx r12, r10, #0, #21", "add r12, r1, r12", "lsr r3, r10, #21", "bfi r3, r11, #11, #10", "asr r1, r11, #10"]
    return [*lines, *_finish(strip, ["r12", "r3"]), *_stores(strip, ["r12", "r3"], index, far=far)]


def _finish(strip: ChainStrip, accs: list[str]) -> list[str]:
    """Requantise the lanes in `accs`; r10 and r11 are free."""
    rounding = strip.rounding
    lines = [f"add {a}, lr, {a}, lsl #{strip.scale}" for a in accs]
    lines += ["ldr r10, %[multiplier]", *(f"smull r11, {a}, {a}, r10" for a in accs)]
    if rounding.signed:
        for a in accs:
            lines += [f"asr r11, {a}, #31", f"add {a}, {a}, r11, lsl #{rounding.prescale - 1}"]
    if not rounding.folded:
        lines += ["ldr r10, %[constant]", *(f"add {a}, {a}, r10" for a in accs)]
    if rounding.shift < 0:
        lines += ["ldr r10, %[shift]", *(f"asr {a}, {a}, r10" for a in accs)]
    return lines + clamp_lines(rounding, accs)


def _stores(strip: ChainStrip, accs: list[str], index: int | None, *, far: bool) -> list[str]:
    """Of step `index`; beyond the reach of an offset the pointer moves along."""
    step = strip.column_step
    if far:
        return [line for a in accs for line in (f"strb {a}, [r2]", *add_immediate("r2", step))]
    return [f"strb {a}, [r2, #{counted_offset(index, 2 * step, j * step)}]" for j, a in enumerate(accs)]


def _emit(operands: Mapping[str, COperand], strip: ChainStrip) -> BlockText:
    loop = strip.rows > 1
    text = [
        *_head(strip),
        *(["1:"] if loop else []),
        *_line(strip),
        *(["ldr r12, %[end]", "cmp r0, r12", "bne 1b"] if loop else []),
    ]
    names = strip.numbers[1:]
    loads = ['[end] "m"(aot_end)'] * loop + [f'[{n}] "m"(aot_{n})' for n in names]
    end = f"const void *const aot_end = (const uint8_t *)aot_x + {4 * strip.rows * strip.line_step * strip.pitch};"
    return AsmBlock(
        [
            f'register const void *aot_x __asm("r0") = {operands["plane"].pointer};',
            f'register const void *aot_p __asm("r1") = {operands["params"].pointer};',
            f'register void *aot_o __asm("r2") = {operands["out"].pointer};',
            *([end] if loop else []),
            *(f"const int32_t aot_{n} = ((const int32_t *)aot_p)[{2 * strip.kh + 1 + i}];" for i, n in enumerate(names)),
        ],
        text,
        outs=['"+r"(aot_x)', '"+r"(aot_p)', '"+r"(aot_o)'],
        ins=loads,
        clobbers=("r3", *(f"r{i}" for i in range(4, 13)), "lr"),
    ).emit()
