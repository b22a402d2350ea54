"""One or two pixels by up to eight channels, all taps of a window: products are added in their order, as the reference adds them.

VMLA of Armv7-M and Armv8-M is not fused: it rounds the product, then the sum, so it is `total += x * w` bit for bit, in one
instruction of three cycles.  VMUL and VADD are two instructions of a cycle each.  Accumulators of two pixels fill s0 to s15,
weights of eight channels s16 to s23, data s24 and up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

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

    def run(self) -> Text:
        """The products of one run."""
        if not self.loop:
            return [*self.taps(self.unroll), *self.taps(self.rest)]
        whole, rest = divmod(self.unroll, 4)
        body: Text = [Repeat(whole, self.taps(4)), *self.taps(rest)]
        return ["mov %[t], %[trips]", "2:", *body, "subs %[t], %[t], #1", "bne 2b", *self.taps(self.rest)]

    def taps(self, count: int) -> list[str]:
        """`count` taps one after the other, data and weights moving on."""
        text: list[str] = []
        for first in range(0, count, self.together):
            size = min(self.together, count - first)
            text += [f"vldmia %[x{p}]!, {vector(_DATA + p * self.together, size)}" for p in range(self.pixels)]
            each = max(1, (_DATA - self.free) // self.channels)  # taps whose weights are loaded at once
            for k in range(size):
                if k % each == 0:
                    text.append(f"vldmia %[w]!, {vector(self.free, min(each, size - k) * self.channels)}")
                text += self.products(self.free + k % each * self.channels, k)
        return text

    def products(self, weights: int, k: int) -> list[str]:
        """Those of one tap; a product waits two instructions until it is added."""
        terms = [
            (p * self.channels + c, weights + c, _DATA + p * self.together + k)
            for p in range(self.pixels)
            for c in range(self.channels)
        ]
        if self.fused:
            return [f"vmla.f32 s{acc}, s{w}, s{x}" for acc, w, x in terms]
        text: list[str] = []
        for i in range(len(terms) + 2):
            if i < len(terms):
                text.append(f"vmul.f32 s{28 + i % 4}, s{terms[i][1]}, s{terms[i][2]}")
            if i >= 2:
                text.append(f"vadd.f32 s{terms[i - 2][0]}, s{terms[i - 2][0]}, s{28 + (i - 2) % 4}")
        return text

    def text(self) -> Text:
        """All of the block."""
        count = self.pixels * self.channels
        text: Text = ["mov %[t], #0", *(f"vmov d{i}, %[t], %[t]" for i in range((count + 1) // 2))]
        step: Text = [f"add %[x{p}], %[x{p}], %[gap]" for p in range(self.sources)]
        step += ["add %[w], %[w], %[skip]"] if self.pixels == 1 else []
        text += ["1:", *self.run(), *step, "subs %[runs], %[runs], #1", "bne 1b"] if self.runs else self.run()
        text += add_bias(self.pixels, self.channels, self.free)
        return text + store_clamped(self.clamp, self.pixels, self.channels, free=self.free, multiply=self.fused)


@cache
def dot(form: DotForm) -> TensorIntrin:
    """out[p * step + c] = clamp(sum over runs and taps of x_p * w + bias[c]) for p < pixels, c < channels.

    Operands: x0 and, for two pixels, x1 float32: runs of trips * unroll + rest taps with `gap` elements between them; w float32:
    as many rows of `channels` weights, with `skip` elements between the runs (one pixel only); bias float32[channels]; out; then,
    of step, trips, runs, gap and skip, those that the form has.
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
            b.store(out, given.get("step", imm(0)) * p + c, form.clamp.meaning(b, acc[p, c] + bias[c]))


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


def instructions(form: DotForm, *, runs: int, trips: int) -> int:
    """Of one execution."""
    per_run = trips * (count_instructions(form.taps(form.unroll)) + 2 * form.loop) + form.loop
    per_run += count_instructions(form.taps(form.rest)) + 4 * form.runs
    return runs * per_run + count_instructions(_around(form))


def _around(form: DotForm) -> Text:
    """What stands before the runs and after them, without what only infinite results need."""
    count = form.pixels * form.channels
    ends = store_clamped(form.clamp, form.pixels, form.channels, free=form.free, multiply=form.fused)
    names = [line if isinstance(line, str) else "" for line in ends]
    last = next((i for i, line in enumerate(names) if line in ("b 9f", "bne 9f")), len(ends) - 1)
    return ["nop"] * (1 + (count + 1) // 2) + add_bias(form.pixels, form.channels, form.free) + ends[: last + 1]
