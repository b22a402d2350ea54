"""Blocks of float32 products: one or two pixels by some channels, over all taps of a window, in the reference's order of
addition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, imm, select
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock, Repeat, count_instructions

LARGEST = float(np.finfo(np.float32).max)

Text = list[str | Repeat]


@dataclass(frozen=True, slots=True)
class Clamp:
    """The bounds of a fused activation, None if there is none."""

    lo: float | None
    hi: float | None

    @property
    def name(self) -> str:
        names = {(None, None): "", (-LARGEST, LARGEST): "", (0.0, LARGEST): "_relu", (0.0, 6.0): "_relu6"}
        suffix = names.get((self.lo, self.hi), f"_clamp_{bits_of(self.lo):x}_{bits_of(self.hi):x}")
        return suffix + "_unbounded" * (self.lo is None)

    @property
    def rectifies(self) -> bool:
        """Whether BIC with the sign does the clamp for finite numbers."""
        return self.lo == 0.0 and self.hi in (6.0, LARGEST)

    @property
    def keeps(self) -> bool:
        """Whether the clamp changes no finite number."""
        return self.lo == -LARGEST and self.hi == LARGEST

    def meaning(self, b: IRBuilder, value: Expr) -> Expr:
        """Clamp as the operators' te rules do."""
        for bound, below in ((self.lo, True), (self.hi, False)):
            if bound is not None:
                value = b.let("value", value)
                limit = imm(float(np.float32(bound)), "float32")
                value = select(value < limit if below else value > limit, limit, value)
        return value


def bits_of(bound: float | None) -> int:
    """The bits of a bound as float32."""
    return int(np.float32(0 if bound is None else bound).view(np.uint32))


def vector(first: int, count: int) -> str:
    """A list of registers for VLDM and VSTM."""
    return f"{{s{first}}}" if count == 1 else f"{{s{first}-s{first + count - 1}}}"


def add_bias(pixels: int, channels: int, free: int) -> Text:
    """Add the bias to results in s0 and up, one pixel after the other; the bias is loaded into `free` and up."""
    text: Text = [f"vldmia %[bias], {vector(free, channels)}"]
    return text + [
        f"vadd.f32 s{p * channels + c}, s{p * channels + c}, s{free + c}" for p in range(pixels) for c in range(channels)
    ]


def store_clamped(clamp: Clamp, pixels: int, channels: int, *, free: int, multiply: bool) -> Text:
    """Store results to %[o] and those of a second pixel to %[o] + %[step]; `free`: the first of four free registers after them.

    Clobbers the core registers t, u, w and, for two pixels, x0.  `multiply`: the test for finite results multiplies them (fewer
    instructions), otherwise it adds them (fewer cycles).
    """
    raw: Text = [f"vstmia %[o], {vector(0, channels)}"]
    if pixels == 2:
        raw += ["add %[x0], %[o], %[step]", f"vstmia %[x0], {vector(channels, channels)}"]
    if clamp.lo is None or clamp.hi is None:
        return raw
    slow = [line for o in ("o", "x0")[:pixels] for line in one_by_one(clamp, o, channels)]
    if not (clamp.keeps or clamp.rectifies):
        return [*raw, *slow]
    test = [*_sum(pixels * channels, free, multiply=multiply), *compared(free)]
    if clamp.keeps:
        return [*test, *raw, "bne 9f", *slow, "9:"]
    fast = _rectified(clamp, pixels, channels)
    return [*test, "beq 8f", *fast, "b 9f", "8:", *raw, *slow, "9:"]


def _sum(count: int, free: int, *, multiply: bool) -> Text:
    """Compute into `free` a number that is finite only if all results are."""
    if count == 1:
        return [f"vmov.f32 s{free}, s0"]
    if multiply:
        pairs = [(i, i + 1) for i in range(0, count - 1, 2)]
        text: Text = [f"{'vmul' if i < 2 else 'vmla'}.f32 s{free + i % 2}, s{a}, s{b}" for i, (a, b) in enumerate(pairs)]
        sums = [f"s{free + i}" for i in range(min(2, len(pairs)))] + [f"s{count - 1}"] * (count % 2)
    else:
        text = [f"vadd.f32 s{free + i // 2}, s{i}, s{i + 1}" for i in range(0, min(8, count - 1), 2)]
        sums = [f"s{free + i}" for i in range(len(text))]
        remainder = range(2 * len(text), count)
        text += [f"vadd.f32 {sums[i % len(sums)]}, {sums[i % len(sums)]}, s{r}" for i, r in enumerate(remainder)]
    for other in sums[1:]:
        text.append(f"vadd.f32 s{free}, s{free}, {other}")
    return text


def exceeds(count: int, free: int, *, fused: bool) -> Text:
    """Compare such that "equal" means: one of `count` results may not be finite.  Clobbers t, `free` and four more registers."""
    if fused and count > 1:
        text: Text = [f"{'vmla' if i else 'vmul'}.f32 s{free}, s{i}, s{i + 1}" for i in range(0, count - 1, 2)]
        text += [f"vadd.f32 s{free}, s{free}, s{count - 1}"] * (count % 2)
    elif count > 1:
        text = _sum(count, free, multiply=False)
    else:
        text, free = [], 0
    return [*text, *compared(free)]


def compared(register: int) -> Text:
    """Compare an exponent with the exponent of infinities and NaN."""
    return [f"vmov %[t], s{register}", "ubfx %[t], %[t], #23, #8", "cmp %[t], #255"]


def _rectified(clamp: Clamp, pixels: int, channels: int) -> Text:
    """Store finite results through core registers."""
    text: Text = [*constant("%[w]", bits_of(6.0))] if clamp.hi == 6.0 else []
    for p in range(pixels):
        if p:
            text.append(f"sub %[o], %[o], #{4 * channels}")
            text.append("add %[o], %[o], %[step]")
        for c in range(0, channels - 1, 2):
            s = p * channels + c
            text.append(f"vmov %[t], %[u], s{s}, s{s + 1}")
            text += _positive(clamp, "t") + _positive(clamp, "u") + ["strd %[t], %[u], [%[o]], #8"]
        if channels % 2:
            text += [f"vmov %[t], s{p * channels + channels - 1}", *_positive(clamp, "t"), "str %[t], [%[o]], #4"]
    return text


def _positive(clamp: Clamp, register: str) -> Text:
    r = f"%[{register}]"
    text: Text = [f"bic {r}, {r}, {r}, asr #31"]
    if clamp.hi == 6.0:
        text += [f"cmp {r}, %[w]", "it gt", f"movgt {r}, %[w]"]
    return text


def constant(register: str, bits: int) -> list[str]:
    """Load a word into a core register."""
    return [f"movw {register}, #{bits & 0xFFFF}", f"movt {register}, #{bits >> 16}"]


def limits(clamp: Clamp, low: int, high: int) -> list[str]:
    """Load the bounds into s`low` and s`high`; clobbers t."""
    pairs = ((low, clamp.lo), (high, clamp.hi))
    return [line for s, bound in pairs for line in (*constant("%[t]", bits_of(bound)), f"vmov s{s}, %[t]")]


def limited(value: int, low: int, high: int) -> list[str]:
    """Clamp a number as the operators' te rules do, with bounds in registers."""
    text: list[str] = []
    for s, condition in ((low, "mi"), (high, "gt")):
        text += [f"vcmp.f32 s{value}, s{s}", "vmrs APSR_nzcv, fpscr", f"it {condition}", f"vmov{condition}.f32 s{value}, s{s}"]
    return text


def one_by_one(clamp: Clamp, pointer: str, channels: int) -> Sequence[str]:
    """Clamp stored results in place."""
    text = [*limits(clamp, 1, 2), f"mov %[t], #{channels}", f"7: vldr.32 s0, [%[{pointer}]]", *limited(0, 1, 2)]
    return [*text, f"vstmia %[{pointer}]!, {{s0}}", "subs %[t], %[t], #1", "bne 7b"]


REGISTERS = tuple(f"s{i}" for i in range(32))
"""Registers that a block clobbers: it uses all of them by name."""


def float_operands(b: IRBuilder, *names: str) -> list[Buffer]:
    """The inputs of a block's description by name, and its output, all float32."""
    inputs = [b.input(name, (UNKNOWN_EXTENT,), "float32", align=4) for name in names]
    return [*inputs, b.output("out", (UNKNOWN_EXTENT,), "float32", align=4)]


def described(
    b: IRBuilder, scalars: Iterable[Var], emit: Callable[[Mapping[str, COperand]], BlockText], *, ordered: bool = False
) -> TensorIntrin:
    """The intrinsic for a description, with some numbers as operands."""
    desc = replace(b.finish(), scalars=tuple(scalars))
    return TensorIntrin(f"arm_fpu.{desc.name}", desc, emit, requires="vfp", ordered=ordered)


def assembled(
    declarations: Sequence[str],
    text: Text,
    *,
    moved: Sequence[str],
    spoilt: Sequence[str] = (),
    read: Sequence[str] = (),
    clobbers: Sequence[str] = (),
) -> BlockText:
    """A block whose operand [n] is the variable aot_n; the text changes those in `moved`, and any register of the FPU."""
    outs = [*(f'[{n}] "+&r"(aot_{n})' for n in moved), *(f'[{n}] "=&r"(aot_{n})' for n in spoilt)]
    ins = [f'[{n}] "r"(aot_{n})' for n in read]
    return AsmBlock(declarations, text, outs=outs, ins=ins, clobbers=(*clobbers, *REGISTERS)).emit()


# One or two pixels by up to eight channels, over all taps of a window; products are added in the reference's order.
#
# VMLA of Armv7-M and Armv8-M is not fused: it rounds the product and then the sum, so it equals `total += x * w` bit for bit.  It
# is one instruction but takes three cycles; VMUL and VADD are two instructions of one cycle each.  Accumulators of two pixels
# fill s0 to s15, weights of eight channels s16 to s23, data s24 and up.
#
# A sum begins with 0.  If the first product is known at compile time, it is not added to 0.  That differs only for a product of
# -0, and no longer after the bias is added, because a bias of -0 is replaced by 0 (a sum that begins with 0 is never -0).


NEAR = 1020
"""Bytes that VLDR and VSTR reach from a pointer, in both directions."""

CHANNELS = 8
"""Output channels of a full block."""

DATA = 24
"""The first register of data."""


@dataclass(frozen=True, slots=True)
class DotForm:
    """Everything that a block's text depends on: its size, how products are added (`fused`: VMLA), the loop over a run of taps,
    whether there are several runs, and the clamp.

    A run has trips * unroll + remainder taps; without a loop, `trips` is 0 or 1.
    """

    pixels: int
    channels: int
    fused: bool
    unroll: int
    remainder: int
    loop: bool
    runs: bool
    clamp: Clamp

    @property
    def title(self) -> str:
        return "dot"

    @property
    def name(self) -> str:
        size = f"{self.title}_{self.pixels}x{self.channels}_{'vmla' if self.fused else 'vmul'}"
        kind = f"{size}_u{self.unroll}" + "_once" * (not self.loop)
        return kind + f"_rest{self.remainder}" * bool(self.remainder) + "_runs" * self.runs + self.clamp.name

    @property
    def sources(self) -> int:
        """Pointers to data."""
        return self.pixels

    @property
    def pointers(self) -> tuple[str, ...]:
        """Operands in memory that are read."""
        return (*(f"x{p}" for p in range(self.sources)), "w", "bias")

    @property
    def stored(self) -> tuple[int, int]:
        """Pixels whose results are stored separately, and adjacent results of each."""
        return self.pixels, self.channels

    @property
    def temporaries(self) -> tuple[str, ...]:
        """Core registers that the text clobbers."""
        return ("t", "u")

    @property
    def free(self) -> int:
        """The first register after the accumulators."""
        return 16 if self.pixels == 2 else 8

    @property
    def together(self) -> int:
        """Taps whose data are loaded at once."""
        return 4 if self.pixels == 1 or self.fused else 2

    @property
    def starts(self) -> bool:
        """Whether sums start as the first tap's products; a loop over runs cannot treat the first tap differently."""
        return not self.loop

    def run(self, *, first: bool = False) -> Text:
        """The products of one run; `first`: the first run of a window."""
        if not self.loop:
            return [*self.taps(self.unroll, first=first), *self.taps(self.remainder)]
        whole, remainder = divmod(self.unroll, 4)
        body: Text = [Repeat(whole, self.taps(4)), *self.taps(remainder)]
        return ["mov %[t], %[trips]", "2:", *body, "subs %[t], %[t], #1", "bne 2b", *self.taps(self.remainder)]

    def taps(self, count: int, *, first: bool = False) -> list[str]:
        """`count` taps in sequence, with data and weights advancing; `first`: no sums exist yet."""
        text: list[str] = []
        for done in range(0, count, self.together):
            size = min(self.together, count - done)
            text += [f"vldmia %[x{p}]!, {vector(DATA + p * self.together, size)}" for p in range(self.pixels)]
            each = max(1, (DATA - self.free) // self.channels)  # taps per load of weights
            for k in range(size):
                if k % each == 0:
                    text.append(f"vldmia %[w]!, {vector(self.free, min(each, size - k) * self.channels)}")
                text += self.products(self.free + k % each * self.channels, k, first=first and done + k == 0)
        return text

    def products(self, weights: int, k: int, *, first: bool = False) -> list[str]:
        """The products of one tap; two other instructions separate each product from its addition."""
        terms = [
            (p * self.channels + c, weights + c, DATA + p * self.together + k)
            for p in range(self.pixels)
            for c in range(self.channels)
        ]
        if self.fused or first:
            return [f"{'vmul' if first else 'vmla'}.f32 s{acc}, s{w}, s{x}" for acc, w, x in terms]
        text: list[str] = []
        for i in range(len(terms) + 2):
            if i < len(terms):
                text.append(f"vmul.f32 s{28 + i % 4}, s{terms[i][1]}, s{terms[i][2]}")
            if i >= 2:
                text.append(f"vadd.f32 s{terms[i - 2][0]}, s{terms[i - 2][0]}, s{28 + (i - 2) % 4}")
        return text

    def zeros(self) -> Text:
        """Set all sums to 0."""
        return ["mov %[t], #0", *(f"vmov d{i}, %[t], %[t]" for i in range((self.pixels * self.channels + 1) // 2))]

    def text(self) -> Text:
        """The whole block."""
        step: Text = [f"add %[x{p}], %[x{p}], %[gap]" for p in range(self.sources)]
        step += ["add %[w], %[w], %[skip]"] if self.pixels == 1 else []
        step += ["subs %[runs], %[runs], #1"]
        text = [] if self.starts else self.zeros()
        if not self.runs:
            text += self.run(first=self.starts)
        else:
            text += [*self.run(first=True), *step, "beq 3f"] if self.starts else []
            text += ["1:", *self.run(), *step, "bne 1b", "3:"]
        text += add_bias(self.pixels, self.channels, self.free)
        return text + store_clamped(self.clamp, *self.stored, free=self.free, multiply=self.fused)


@cache
def dot(form: DotForm) -> TensorIntrin:
    """out[p * step + c] = clamp(sum over runs and taps of x_p * w + bias[c]) for p < pixels, c < channels.

    Operands: x0 and, for more pixels, x1 and so on, float32: runs of trips * unroll + remainder taps with `gap` elements between
    them; w float32: as many rows of `channels` weights, with `skip` elements between runs (one pixel only); bias
    float32[channels]; out; then step, trips, runs, gap and skip, if the form has them.
    """
    b = IRBuilder(form.name)
    numbers = scalars(form)
    xs, w, bias, out = buffers(b, form)
    acc = b.local("acc", (form.pixels, form.channels), "float32", init=imm(0.0, "float32"))
    taps = run_length(form, numbers)
    with b.for_("r", numbers.get("runs", imm(1))) as r, b.for_("k", taps) as k:
        tap = r * (taps * form.channels + numbers.get("skip", imm(0))) + k * form.channels
        for p, x in enumerate(xs):
            value = b.let("x", x[r * (taps + numbers.get("gap", imm(0))) + k])
            for c in range(form.channels):
                b.store(acc, (p, c), acc[p, c] + value * w[tap + c])
    finish(b, form, acc, bias, out, numbers)
    return described(b, numbers.values(), lambda ops: emit(form, ops))


def scalars(form: DotForm) -> dict[str, Var]:
    """The numbers that a block of the form has as operands, in order."""
    names = ["step"] if form.pixels == 2 else []
    names += ["trips"] if form.loop else []
    names += ["runs", "gap"] + ["skip"] * (form.pixels == 1) if form.runs else []
    return {name: Var(name) for name in names}


def buffers(b: IRBuilder, form: DotForm) -> tuple[list[Buffer], Buffer, Buffer, Buffer]:
    """Data, weights, bias and results of a block's description."""
    *xs, w, bias, out = float_operands(b, *(f"x{p}" for p in range(form.sources)), "w", "bias")
    return xs, w, bias, out


def run_length(form: DotForm, numbers: Mapping[str, Var]) -> Expr:
    """Taps of a run."""
    return numbers["trips"] * form.unroll + form.remainder if form.loop else imm(form.unroll + form.remainder)


def finish(b: IRBuilder, form: DotForm, acc: Buffer, bias: Buffer, out: Buffer, numbers: Mapping[str, Var]) -> None:
    """Bias, clamp and stores of a block's description."""
    for p in range(form.pixels):
        for c in range(form.channels):
            b.store(out, numbers.get("step", imm(form.channels)) * p + c, form.clamp.meaning(b, acc[p, c] + bias[c]))


def emit(form: DotForm, operands: Mapping[str, COperand]) -> BlockText:
    """The assembly of a block."""
    pointers = form.pointers
    declarations = [f"const void *aot_{name} = {operands[name].pointer};" for name in pointers]
    declarations += [f"void *aot_o = {operands['out'].pointer};", f"uint32_t {', '.join(f'aot_{n}' for n in form.temporaries)};"]
    moved = [*pointers, "o"]
    inputs: list[str] = []
    for name in ("step", "trips", "runs", "gap", "skip", "tap"):
        if name in operands:
            bytes_each = "" if name in ("trips", "runs") else "4 * "
            value = operands[name].value
            declarations.append(f"{'' if name == 'runs' else 'const '}int32_t aot_{name} = {bytes_each}{value};")
            (moved if name == "runs" else inputs).append(name)
    return assembled(declarations, form.text(), moved=moved, spoilt=form.temporaries, read=inputs)


def instructions(form: DotForm, *, runs: int, trips: float) -> tuple[float, float]:
    """Instructions per execution, and cycles on a Cortex-M4."""
    body, remainder, around = form.taps(form.unroll), form.taps(form.remainder), _around(form)
    count = trips * (count_instructions(body) + 2 * form.loop) + form.loop + count_instructions(remainder) + 4 * form.runs
    extra = trips * (waits(body) + 2 * form.loop) + waits(remainder) + 2 * form.runs
    additions = form.pixels * form.channels if form.starts else 0
    total = runs * count + count_instructions(around) - additions * (not form.fused)
    return total, total + runs * extra + waits(around) - 2 * additions * form.fused


_LIST = re.compile(r"^v(?:ldm|stm)ia .*\{s(\d+)(?:-s(\d+))?\}$")


def waits(text: Sequence[str | Repeat]) -> int:
    """Cycles beyond one per instruction: N for a load or store of N numbers, 2 for VMLA and STRD, 1 for VMOV of two numbers."""
    total = 0
    for line in text:
        if isinstance(line, Repeat):
            total += line.count * waits(line.lines)
        elif match := _LIST.match(line):
            first, last = match.groups()
            total += int(last or first) - int(first) + 1
        else:
            total += 2 * line.startswith(("vmla", "strd")) + line.startswith("vmov %[t], %[u]")
    return total


def _around(form: DotForm) -> Text:
    """The text before and after the runs, without the code for results that are not finite."""
    ends = store_clamped(form.clamp, *form.stored, free=form.free, multiply=form.fused)
    names = [line if isinstance(line, str) else "" for line in ends]
    last = next((i for i, line in enumerate(names) if line in ("b 9f", "bne 9f")), len(ends) - 1)
    start: Text = ["nop"] * form.runs if form.starts else form.zeros()
    return start + add_bias(form.pixels, form.channels, form.free) + ends[: last + 1]


# One pixel by up to sixteen channels; two or four pixels by one.  A number that is used only once is overwritten by its product.
#
# Larger loads are cheaper: a load of N numbers takes 1 + N cycles.


MOST_CHANNELS = 16
_FLOATS = 32
_FEW = 4
"""Up to this many channels, more data are loaded at once, because each number is used less often."""


@dataclass(frozen=True, slots=True)
class WideForm(DotForm):
    """DotForm for one pixel and up to sixteen channels, without VMLA."""

    @property
    def title(self) -> str:
        return "wide"

    @property
    def free(self) -> int:
        return self.channels

    @property
    def together(self) -> int:
        return 8 if self.channels <= _FEW else 4

    def run(self, *, first: bool = False) -> Text:
        if not self.loop:
            return [*self.taps(self.unroll + self.remainder, first=first)]
        whole, remainder = divmod(self.unroll, self.together)
        body: Text = [Repeat(whole, self.taps(self.together)), *self.taps(remainder)]
        return ["mov %[t], %[trips]", "2:", *body, "subs %[t], %[t], #1", "bne 2b", *self.taps(self.remainder)]

    def taps(self, count: int, *, first: bool = False) -> list[str]:
        text: list[str] = []
        for done in range(0, count, self.together):
            size = min(self.together, count - done)
            text += [f"vldmia %[x0]!, {vector(_FLOATS - self.together, size)}"]
            text += self._stream(size, first=first and done == 0)
        return text

    def _stream(self, taps: int, *, first: bool) -> list[str]:
        """The products of taps whose data are loaded; loads as many weights at once as there are registers."""
        text: list[str] = []
        data, most = _FLOATS - self.together, _FLOATS - self.together - self.channels
        total = taps * self.channels
        for start in range(0, total, most):
            size = min(most, total - start)
            text.append(f"vldmia %[w]!, {vector(self.free, size)}")
            waiting: list[str] = []
            for i in range(size):
                k, c = divmod(start + i, self.channels)
                into = c if first and k == 0 else self.free + i
                text.append(f"vmul.f32 s{into}, s{self.free + i}, s{data + k}")
                waiting += [] if into == c else [f"vadd.f32 s{c}, s{c}, s{into}"]
                if len(waiting) > 2:
                    text.append(waiting.pop(0))
            text += waiting
        return text


@dataclass(frozen=True, slots=True)
class NarrowForm(WideForm):
    """DotForm for two pixels by one channel, without VMLA: each number of the data is used once."""

    @property
    def title(self) -> str:
        return "narrow"

    @property
    def free(self) -> int:
        return 2

    @property
    def together(self) -> int:
        return 8

    def taps(self, count: int, *, first: bool = False) -> list[str]:
        text: list[str] = []
        weights, data = 2, (2 + self.together, 2 + 2 * self.together)
        for done in range(0, count, self.together):
            size = min(self.together, count - done)
            text += [f"vldmia %[x{p}]!, {vector(x, size)}" for p, x in enumerate(data)]
            text.append(f"vldmia %[w]!, {vector(weights, size)}")
            waiting: list[str] = []
            for k in range(size):
                for p, x in enumerate(data):
                    into = p if first and done + k == 0 else x + k
                    text.append(f"vmul.f32 s{into}, s{x + k}, s{weights + k}")
                    waiting += [] if into == p else [f"vadd.f32 s{p}, s{p}, s{into}"]
                    if len(waiting) > 2:
                        text.append(waiting.pop(0))
            text += waiting
        return text


@dataclass(frozen=True, slots=True)
class ManyForm(WideForm):
    """DotForm for four neighbouring pixels by one channel, without VMLA: one load of weights serves all pixels."""

    @property
    def title(self) -> str:
        return "many"

    @property
    def stored(self) -> tuple[int, int]:
        return 1, self.pixels

    @property
    def free(self) -> int:
        return self.pixels

    @property
    def together(self) -> int:
        most = (_FLOATS - self.pixels) // 2
        return next((n for n in range(most, most // 2, -1) if self.unroll % n == 0), most)

    def taps(self, count: int, *, first: bool = False) -> list[str]:
        text: list[str] = []
        for done in range(0, count, self.together):
            size = min(self.together, count - done)
            text.append(f"vldmia %[w]!, {vector(self.free, size)}")
            for p in range(self.pixels):
                text += self._pixel(p, size, first=first and done == 0)
        return text

    def _pixel(self, p: int, taps: int, *, first: bool) -> list[str]:
        data = self.free + self.together
        text, waiting = [f"vldmia %[x{p}]!, {vector(data, taps)}"], []
        for k in range(taps):
            into = p if first and k == 0 else data + k
            text.append(f"vmul.f32 s{into}, s{data + k}, s{self.free + k}")
            waiting += [] if into == p else [f"vadd.f32 s{p}, s{p}, s{into}"]
            if len(waiting) > 2:
                text.append(waiting.pop(0))
        return text + waiting


def unroll_many(run: int, otherwise: int) -> int:
    """Taps per loop iteration with ManyForm, such that its loads are large."""
    return next((u for u in (42, 28, 36, 24, 40, 20, 32, 16) if run % u == 0), otherwise)


# Depthwise windows: one or two pixels by up to eight channels; data and weights of a tap are loaded alternately.
#
# Where the next pixel's window is one tap further (`shared`), VMLA leaves the data of a tap as it is, so that the second pixel
# takes from the registers what the first one needs next.  VMUL puts its products over the data, as all registers are in use.


@dataclass(frozen=True, slots=True)
class DepthwiseForm(DotForm):
    """DotForm with one data channel per result channel; `shared` requires two pixels and `fused`."""

    shared: bool = False

    @property
    def title(self) -> str:
        return "depthwise_shared" if self.shared else "depthwise"

    @property
    def sources(self) -> int:
        return 1 if self.shared else self.pixels

    def run(self, *, first: bool = False) -> Text:
        data: Text = [f"vldmia %[x0], {vector(DATA, self.channels)}"] if self.shared else []
        if not self.loop:
            return [*data, *self.taps(self.unroll + self.remainder, first=first)]
        body: Text = [Repeat(self.unroll, self.taps(1))]
        return ["mov %[t], %[trips]", *data, "2:", *body, "subs %[t], %[t], #1", "bne 2b", *self.taps(self.remainder)]

    def taps(self, count: int, *, first: bool = False) -> list[str]:
        return [line for k in range(count) for line in self._tap(first=first and k == 0)]

    def _tap(self, *, first: bool) -> list[str]:
        n, text = self.channels, [f"vldmia %[w]!, {vector(self.free, self.channels)}"]
        for p in range(self.pixels):
            if self.shared and p:
                text += ["add %[x0], %[x0], %[tap]", f"vldmia %[x0], {vector(DATA, n)}"]
            elif not self.shared:
                text += [f"vldmia %[x{p}], {vector(DATA, n)}", f"add %[x{p}], %[x{p}], %[tap]"]
            if self.fused or first:
                text += [f"{'vmul' if first else 'vmla'}.f32 s{p * n + c}, s{DATA + c}, s{self.free + c}" for c in range(n)]
            else:
                text += [f"vmul.f32 s{DATA + c}, s{DATA + c}, s{self.free + c}" for c in range(n)]
                text += [f"vadd.f32 s{p * n + c}, s{p * n + c}, s{DATA + c}" for c in range(n)]
        return text


@cache
def depthwise_dot(form: DepthwiseForm) -> TensorIntrin:
    """out[p * step + c] = clamp(sum over runs and taps of x_p[.., c] * w[.., c] + bias[c]) for p < pixels, c < channels.

    Operands as for `dot`, then `tap`, the elements from a tap's data to the next tap's.  With `shared`, x0 serves both pixels:
    the second one's data are one tap after the first's.
    """
    b = IRBuilder(form.name)
    numbers = {**scalars(form), "tap": Var("tap")}
    xs, w, bias, out = buffers(b, form)
    acc = b.local("acc", (form.pixels, form.channels), "float32", init=imm(0.0, "float32"))
    taps, tap = run_length(form, numbers), numbers["tap"]
    with b.for_("r", numbers.get("runs", imm(1))) as r, b.for_("k", taps) as k:
        weights = r * (taps * form.channels + numbers.get("skip", imm(0))) + k * form.channels
        start = r * (taps * tap + numbers.get("gap", imm(0))) + k * tap
        for p in range(form.pixels):
            x = xs[0] if form.shared else xs[p]
            for c in range(form.channels):
                b.store(acc, (p, c), acc[p, c] + x[start + c + tap * (p if form.shared else 0)] * w[weights + c])
    finish(b, form, acc, bias, out, numbers)
    return described(b, numbers.values(), lambda ops: emit(form, ops))
