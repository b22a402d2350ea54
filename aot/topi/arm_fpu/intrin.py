"""One or two pixels by up to eight channels, all taps of a window: products are added in their order, as the reference adds them.

VMLA of Armv7-M and Armv8-M is not fused: it rounds the product, then the sum, so it is `total += x * w` bit for bit, in one
instruction of three cycles.  VMUL and VADD are two instructions of a cycle each.  Accumulators of two pixels fill s0 to s15,
weights of eight channels s16 to s23, data s24 and up.

A sum begins with 0.  Where the first product is known to be the first it is not added to 0: that makes a difference only if it is
-0, and after the bias none, as a bias of -0 is taken for 0 (a sum that begins with 0 is never -0).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, imm
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_fpu.finish import REGISTERS, Clamp, Text, add_bias, store_clamped, vector
from aot.topi.intrin.asm_text import AsmBlock, Repeat, count_instructions

CHANNELS = 8
"""Output channels of a full block."""

_DATA = 24
"""The first register of data."""


@dataclass(frozen=True, slots=True)
class DotForm:
    """What the text of a block depends on: its size, how products are added (`fused`: VMLA), the loop over a run of taps, whether
    there are several runs, and the clamp.

    A run has trips * unroll + rest taps; `trips` is 0 or 1 where there is no loop.
    """

    pixels: int
    channels: int
    fused: bool
    unroll: int
    rest: int
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
        return kind + f"_rest{self.rest}" * bool(self.rest) + "_runs" * self.runs + self.clamp.name

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
        """Pixels whose results are apart, and results of each that are side by side."""
        return self.pixels, self.channels

    @property
    def temporaries(self) -> tuple[str, ...]:
        """Core registers that the text spoils."""
        return ("t", "u")

    @property
    def free(self) -> int:
        """The first register after the accumulators."""
        return 16 if self.pixels == 2 else 8

    @property
    def together(self) -> int:
        """Taps whose data is loaded at once."""
        return 4 if self.pixels == 1 or self.fused else 2

    @property
    def starts(self) -> bool:
        """Whether the first tap's products are where the sums begin, which a window in a loop does not say apart."""
        return not self.loop

    def run(self, *, first: bool = False) -> Text:
        """The products of one run, the first one of a window or another."""
        if not self.loop:
            return [*self.taps(self.unroll, first=first), *self.taps(self.rest)]
        whole, rest = divmod(self.unroll, 4)
        body: Text = [Repeat(whole, self.taps(4)), *self.taps(rest)]
        return ["mov %[t], %[trips]", "2:", *body, "subs %[t], %[t], #1", "bne 2b", *self.taps(self.rest)]

    def taps(self, count: int, *, first: bool = False) -> list[str]:
        """`count` taps one after the other, data and weights moving on; `first`: nothing is added up yet."""
        text: list[str] = []
        for done in range(0, count, self.together):
            size = min(self.together, count - done)
            text += [f"vldmia %[x{p}]!, {vector(_DATA + p * self.together, size)}" for p in range(self.pixels)]
            each = max(1, (_DATA - self.free) // self.channels)  # taps whose weights are loaded at once
            for k in range(size):
                if k % each == 0:
                    text.append(f"vldmia %[w]!, {vector(self.free, min(each, size - k) * self.channels)}")
                text += self.products(self.free + k % each * self.channels, k, first=first and done + k == 0)
        return text

    def products(self, weights: int, k: int, *, first: bool = False) -> list[str]:
        """Those of one tap; a product waits two instructions until it is added."""
        terms = [
            (p * self.channels + c, weights + c, _DATA + p * self.together + k)
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
        """Sums of nothing yet."""
        return ["mov %[t], #0", *(f"vmov d{i}, %[t], %[t]" for i in range((self.pixels * self.channels + 1) // 2))]

    def text(self) -> Text:
        """All of the block."""
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

    Operands: x0 and, for more pixels, x1 and so on float32: runs of trips * unroll + rest taps with `gap` elements between
    them; w float32: as many rows of `channels` weights, with `skip` elements between the runs (one pixel only); bias
    float32[channels]; out; then, of step, trips, runs, gap and skip, those that the form has.
    """
    b = IRBuilder(form.name)
    given = scalars(form)
    xs, w, bias, out = buffers(b, form)
    acc = b.local("acc", (form.pixels, form.channels), "float32", init=imm(0.0, "float32"))
    taps = run_length(form, given)
    with b.for_("r", given.get("runs", imm(1))) as r, b.for_("k", taps) as k:
        tap = r * (taps * form.channels + given.get("skip", imm(0))) + k * form.channels
        for p, x in enumerate(xs):
            value = b.let("x", x[r * (taps + given.get("gap", imm(0))) + k])
            for c in range(form.channels):
                b.store(acc, (p, c), acc[p, c] + value * w[tap + c])
    finish(b, form, acc, bias, out, given)
    desc = replace(b.finish(), scalars=tuple(given.values()))
    return TensorIntrin(f"arm_fpu.{form.name}", desc, lambda ops: emit(form, ops), requires="vfp")


def scalars(form: DotForm) -> dict[str, Var]:
    """The numbers that a block of the form is given, in their order."""
    names = ["step"] if form.pixels == 2 else []
    names += ["trips"] if form.loop else []
    names += ["runs", "gap"] + ["skip"] * (form.pixels == 1) if form.runs else []
    return {name: Var(name) for name in names}


def buffers(b: IRBuilder, form: DotForm) -> tuple[list[Buffer], Buffer, Buffer, Buffer]:
    """Data, weights, bias and results of a block's description."""
    xs = [b.input(f"x{p}", (UNKNOWN_EXTENT,), "float32", align=4) for p in range(form.sources)]
    w = b.input("w", (UNKNOWN_EXTENT,), "float32", align=4)
    bias = b.input("bias", (UNKNOWN_EXTENT,), "float32", align=4)
    return xs, w, bias, b.output("out", (UNKNOWN_EXTENT,), "float32", align=4)


def run_length(form: DotForm, given: Mapping[str, Var]) -> Expr:
    """Taps of a run."""
    return given["trips"] * form.unroll + form.rest if form.loop else imm(form.unroll + form.rest)


def finish(b: IRBuilder, form: DotForm, acc: Buffer, bias: Buffer, out: Buffer, given: Mapping[str, Var]) -> None:
    """Bias, clamp and stores of a block's description."""
    for p in range(form.pixels):
        for c in range(form.channels):
            b.store(out, given.get("step", imm(form.channels)) * p + c, form.clamp.meaning(b, acc[p, c] + bias[c]))


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
    return AsmBlock(
        declarations,
        form.text(),
        outs=[*(f'[{n}] "+&r"(aot_{n})' for n in moved), *(f'[{n}] "=&r"(aot_{n})' for n in form.temporaries)],
        ins=[f'[{n}] "r"(aot_{n})' for n in inputs],
        clobbers=REGISTERS,
    ).emit()


def instructions(form: DotForm, *, runs: int, trips: float) -> tuple[float, float]:
    """Of one execution, and the cycles of a Cortex-M4."""
    body, rest, around = form.taps(form.unroll), form.taps(form.rest), _around(form)
    count = trips * (count_instructions(body) + 2 * form.loop) + form.loop + count_instructions(rest) + 4 * form.runs
    extra = trips * (waits(body) + 2 * form.loop) + waits(rest) + 2 * form.runs
    additions = form.pixels * form.channels if form.starts else 0
    total = runs * count + count_instructions(around) - additions * (not form.fused)
    return total, total + runs * extra + waits(around) - 2 * additions * form.fused


_LIST = re.compile(r"^v(?:ldm|stm)ia .*\{s(\d+)(?:-s(\d+))?\}$")


def waits(text: Sequence[str | Repeat]) -> int:
    """Cycles beyond one an instruction: N of a load or store of N numbers, 2 of VMLA and STRD, 1 of VMOV of two numbers."""
    total = 0
    for line in text:
        if isinstance(line, Repeat):
            total += line.count * waits(line.lines)
        elif found := _LIST.match(line):
            first, last = found.groups()
            total += int(last or first) - int(first) + 1
        else:
            total += 2 * line.startswith(("vmla", "strd")) + line.startswith("vmov %[t], %[u]")
    return total


def _around(form: DotForm) -> Text:
    """What stands before the runs and after them, without what only infinite results need."""
    ends = store_clamped(form.clamp, *form.stored, free=form.free, multiply=form.fused)
    names = [line if isinstance(line, str) else "" for line in ends]
    last = next((i for i, line in enumerate(names) if line in ("b 9f", "bne 9f")), len(ends) - 1)
    start: Text = ["nop"] * form.runs if form.starts else form.zeros()
    return start + add_bias(form.pixels, form.channels, form.free) + ends[: last + 1]
