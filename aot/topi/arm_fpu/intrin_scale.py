"""A product and a bias for each channel: pixels one after the other, the numbers of up to eight channels in FPU registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var, imm
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_fpu.finish import REGISTERS, Clamp, Text, bits_of, store_clamped, vector
from aot.topi.arm_fpu.intrin import waits
from aot.topi.intrin.asm_text import AsmBlock, Repeat, count_instructions

_SPARE = 4
"""Registers beside those of results and constants."""
_TOGETHER = 16
"""The most results between a load and a store."""


@dataclass(frozen=True, slots=True)
class ScaleForm:
    """`channels` of pixels, which lie side by side or, where they are `apart`, a step from each other; `unroll` loads a turn.

    Registers: results s0 and up, then weights, biases, and `_SPARE` others.
    """

    channels: int
    apart: bool
    unroll: int
    clamp: Clamp

    @property
    def name(self) -> str:
        return f"scale_{self.channels}" + "_apart" * self.apart + f"_u{self.unroll}{self.clamp.name}"

    @property
    def group(self) -> int:
        """Pixels of a load."""
        room = min(_TOGETHER, len(REGISTERS) - _SPARE - 2 * self.channels)
        return 1 if self.apart or self.unroll == 1 else room // self.channels

    @property
    def pixels(self) -> int:
        """Of a turn."""
        return self.group * self.unroll

    @property
    def _count(self) -> int:
        return self.group * self.channels

    @property
    def _weights(self) -> int:
        return max(self._count, 3)  # a clamp of one result after the other spoils the first three

    @property
    def _spare(self) -> int:
        return self._weights + 2 * self.channels

    @property
    def _is_checked_last(self) -> bool:
        """Whether the clamp is for results that are not finite only, which the sum of all results tells."""
        return self.clamp.keeps and self.clamp.lo is not None

    def begin(self) -> Text:
        text: Text = [f"vldmia %[w], {vector(self._weights, 2 * self.channels)}"]
        if self._is_checked_last:
            text += ["mov %[f], %[q]", "mov %[k], %[n]", "mov %[t], #0"]
            text += [f"vmov s{self._spare + i}, %[t]" for i in range(2)]
        return text

    def body(self) -> Text:
        return ["1:", Repeat(self.unroll, self._pixels()), "subs %[n], %[n], #1", "bne 1b"]

    def _pixels(self) -> Text:
        n, w = self._count, self._weights
        text: Text = [f"vldmia %[x], {vector(0, n)}", "add %[x], %[x], %[step]"] if self.apart else []
        text = text or [f"vldmia %[x]!, {vector(0, n)}"]
        text += [f"vmul.f32 s{i}, s{i}, s{w + i % self.channels}" for i in range(n)]
        text += [f"vadd.f32 s{i}, s{i}, s{w + self.channels + i % self.channels}" for i in range(n)]
        if self._is_checked_last or self.clamp.lo is None or self.clamp.hi is None:
            moved = [f"vstmia %[q], {vector(0, n)}", "add %[q], %[q], %[step]"]
            text += moved if self.apart else [f"vstmia %[q]!, {vector(0, n)}"]
            totals = [self._spare + i % 2 for i in range(n)] if self._is_checked_last else []
            return text + [f"vadd.f32 s{total}, s{total}, s{i}" for i, total in enumerate(totals)]
        text += ["mov %[o], %[q]", f"add %[q], %[q], {'%[step]' if self.apart else f'#{4 * n}'}"]
        return text + store_clamped(self.clamp, 1, n, free=self._spare, multiply=False)

    def end(self) -> Text:
        """What tells whether all results are finite."""
        if not self._is_checked_last:
            return []
        total = self._spare
        return [
            f"vadd.f32 s{total}, s{total}, s{total + 1}",
            f"vmov %[t], s{total}",
            "ubfx %[t], %[t], #23, #8",
            "cmp %[t], #255",
        ]

    def exceptions(self) -> Text:
        """Clamp stored results where they are, as the operators' descriptions do."""
        if not self._is_checked_last:
            return []
        text: Text = ["bne 9f"]
        for s, bound in ((1, self.clamp.lo), (2, self.clamp.hi)):
            bits = bits_of(bound)
            text += [f"movw %[t], #{bits & 0xFFFF}", f"movt %[t], #{bits >> 16}", f"vmov s{s}, %[t]"]
        pixels, count = (self.pixels, self.channels) if self.apart else (1, self.pixels * self.channels)
        text += ["5:", f"mov %[u], #{pixels}", "6:", f"mov %[t], #{count}", "7:", "vldr.32 s0, [%[f]]"]
        for s, condition in ((1, "mi"), (2, "gt")):
            text += [f"vcmp.f32 s0, s{s}", "vmrs APSR_nzcv, fpscr", f"it {condition}", f"vmov{condition}.f32 s0, s{s}"]
        text += ["vstmia %[f]!, {s0}", "subs %[t], %[t], #1", "bne 7b"]
        text += [f"sub %[f], %[f], #{4 * count}", "add %[f], %[f], %[step]"] * self.apart
        return [*text, "subs %[u], %[u], #1", "bne 6b", "subs %[k], %[k], #1", "bne 5b", "9:"]

    def text(self) -> Text:
        """All of the block."""
        return [*self.begin(), *self.body(), *self.end(), *self.exceptions()]


@cache
def scale(form: ScaleForm) -> TensorIntrin:
    """out[p * step + c] = clamp(x[p * step + c] * w[c] + w[channels + c]) for p < trips * pixels, c < channels.

    Operands: x float32; w float32[2 * channels], weights and biases; out; trips; and, where pixels are apart, step.
    """
    b = IRBuilder(form.name)
    x, w = (b.input(n, (UNKNOWN_EXTENT,), "float32", align=4) for n in ("x", "w"))
    out = b.output("out", (UNKNOWN_EXTENT,), "float32", align=4)
    trips, step = Var("trips"), Var("step")
    each = step if form.apart else imm(form.channels)
    found = b.local("found", (form.group, form.channels), "float32")
    with b.for_("n", trips * form.unroll) as n:
        for p in range(form.group):
            for c in range(form.channels):
                at = (n * form.group + p) * each + c
                b.store(found, (p, c), x[at] * w[c] + w[form.channels + c])
        for p in range(form.group):
            for c in range(form.channels):
                b.store(out, (n * form.group + p) * each + c, form.clamp.meaning(b, found[p, c]))
    desc = replace(b.finish(), scalars=(trips, step) if form.apart else (trips,))
    return TensorIntrin(f"arm_fpu.{form.name}", desc, lambda ops: _emit(form, ops), requires="vfp", ordered=True)


def _emit(form: ScaleForm, operands: Mapping[str, COperand]) -> BlockText:
    temporaries = ("o", "f", "k", "t", "u")
    declarations = [
        f"const void *aot_x = {operands['x'].pointer};",
        f"const void *aot_w = {operands['w'].pointer};",
        f"void *aot_q = {operands['out'].pointer};",
        f"int32_t aot_n = {operands['trips'].value};",
        f"uint32_t {', '.join(f'aot_{n}' for n in temporaries)};",
    ]
    if form.apart:
        declarations.append(f"const int32_t aot_step = 4 * {operands['step'].value};")
    return AsmBlock(
        declarations,
        form.text(),
        outs=[*(f'[{n}] "+&r"(aot_{n})' for n in ("x", "w", "q", "n")), *(f'[{n}] "=&r"(aot_{n})' for n in temporaries)],
        ins=['[step] "r"(aot_step)'] * form.apart,
        clobbers=REGISTERS,
    ).emit()


def price(form: ScaleForm, trips: int) -> tuple[int, int]:
    """Instructions of one execution with finite results, and cycles of a Cortex-M4."""
    around: Text = [*form.begin(), *form.end()]
    ends = form.exceptions()[:1]
    total = count_instructions(around) + len(ends) + trips * count_instructions(form.body())
    return total, total + len(ends) + waits(around) + trips * (waits(form.body()) + 1)
