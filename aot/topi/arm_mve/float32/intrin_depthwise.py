"""Depthwise windows by vectors: one or two pixels by all channels, eight or fewer at a time in a loop of the block.

Registers: r0 and r1 the data of the pixels, r2 weights, r5 biases, r6 and r8 results, r9 the blocks of channels that are left,
r10 and r11 what is added to a pointer behind a tap and behind a run, r12 runs that are left; q0 to q3 sums, q4 and q5 weights, q6
and q7 data, then products.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.support.dataclass import dataclass
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, imm
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_fpu.finish import Text
from aot.topi.arm_fpu.intrin import buffers, run_length, scalars
from aot.topi.arm_mve.float32.intrin import LANES, VectorForm
from aot.topi.intrin.asm_text import AsmBlock, Repeat, count_instructions

NEAREST = 508
"""Bytes by which a load of a vector can move its pointer."""

_POINTERS = ("r0", "r1")
_RESULTS = ("r6", "r8")


@dataclass(frozen=True, slots=True)
class DepthwiseVectors(VectorForm):
    """As VectorForm, a channel of data for each channel of results; `near`: bytes from a tap's data to that of the next, 0 if
    loads cannot move the pointer by so many.
    """

    near: int = 0

    @property
    def title(self) -> str:
        return f"depthwise_float_{self.near}" if self.near else "depthwise_float"

    def run(self, *, first: bool = False) -> Text:
        if not self.loop:
            return [*self.taps(self.unroll + self.rest, first=first)]
        body: Text = [Repeat(self.unroll, self.taps(1))]
        return ["ldr lr, %[trips]", "dls lr, lr", "2:", *body, "le lr, 2b", *self.taps(self.rest)]

    def taps(self, count: int, *, first: bool = False) -> list[str]:
        text: list[str] = []
        for k in range(count):
            text += self.loads("r2", "q4")
            for p in range(self.pixels):
                text += self._data(p) + self._products(p, first=first and k == 0)
        return text

    def _data(self, p: int) -> list[str]:
        """The channels of a pixel at a tap, to q6 and q7."""
        pointer = _POINTERS[p]
        text, goes = [], f", #{self.near}" if self.near else ""
        for v in reversed(range(self.vectors)):
            place = f"[{pointer}, #{4 * LANES}]" if v else f"[{pointer}]{goes}"
            masked = self.last > 0 and v == self.vectors - 1
            text += ["vpst", f"vldrwt.u32 q{6 + v}, {place}"] if masked else [f"vldrw.u32 q{6 + v}, {place}"]
        return text if self.near else [*text, f"add {pointer}, {pointer}, r10"]

    def _products(self, p: int, *, first: bool) -> list[str]:
        accumulators = self.accumulators[p * self.vectors : (p + 1) * self.vectors]
        if first:
            return [f"vmul.f32 {q}, q{6 + v}, q{4 + v}" for v, q in enumerate(accumulators)]
        text = [f"vmul.f32 q{6 + v}, q{6 + v}, q{4 + v}" for v in range(self.vectors)]
        return text + [f"vadd.f32 {q}, {q}, q{6 + v}" for v, q in enumerate(accumulators)]

    def steps(self) -> list[str]:
        text = [f"add {x}, {x}, r11" for x in _POINTERS[: self.pixels]]
        text += ["ldr lr, %[skip]", "add r2, r2, lr"] if self.pixels == 1 else []
        return [*text, "subs r12, r12, #1"]

    def text(self) -> Text:
        start: Text = [*self.mask(), "ldr r9, %[blocks]"]
        start += [] if self.near else ["ldr r10, %[tap]"]
        start += ["ldr r11, %[gap]"] if self.runs else []
        return [*start, "6:", *self._block(), *self._around(), "bne 6b"]

    def _block(self) -> Text:
        """Eight channels, or as many as there are."""
        text: Text = [] if self.starts else self.zeros()
        text += ["ldr r12, %[runs]"] if self.runs else []
        if not self.runs:
            text += self.run(first=self.starts)
        else:
            text += [*self.run(first=True), *self.steps(), "beq 3f"] if self.starts else []
            text += ["1:", *self.run(), *self.steps(), "bne 1b", "3:"]
        return text + self.finish()

    def _around(self) -> Text:
        """To the next block's data, weights and biases."""
        text: Text = ["ldr lr, %[xback]", *(f"add {x}, {x}, lr" for x in _POINTERS[: self.pixels])]
        return [*text, "ldr lr, %[wback]", "add r2, r2, lr", "ldr lr, %[bback]", "add r5, r5, lr", "subs r9, r9, #1"]

    def finish(self) -> Text:
        n = self.vectors
        text: Text = [*self.loads("r5", "q4")]
        text += [f"vadd.f32 {q}, {q}, q{4 + i % n}" for i, q in enumerate(self.accumulators)]
        text += [*self.clamped(), *(self.mask() if self.clamps else [])]
        return text + [line for p in range(self.pixels) for line in self.stores(_RESULTS[p], f"q{p * n}")]

    def price(self, *, runs: float, trips: float, blocks: int) -> float:
        """Instructions of one execution."""
        each = self.cost(runs=runs, trips=trips) - self.runs - len(self.mask()) + count_instructions(self._around()) + 1
        return blocks * (each + self.runs) + 4


@cache
def depthwise_vectors(form: DepthwiseVectors) -> TensorIntrin:
    """out[p * step + n * 8 + c] = clamp(sum over runs and taps of x_p[.., n * 8 + c] * w[n * each + .., c] + bias[n * each + c])
    for p < pixels, n < blocks, c < channels.

    Operands as those of `dot`; then `tap`, the elements from the data of a tap to that of the next, `blocks` and `each`, the
    elements from a block's weights, and biases, to the next one's.
    """
    b = IRBuilder(form.name)
    given = {**scalars(form), **{n: Var(n) for n in ("tap", "blocks", "each")}}
    xs, w, bias, out = buffers(b, form)
    taps, zero = run_length(form, given), imm(0)
    with b.for_("n", given["blocks"]) as n:
        acc = b.local("acc", (form.pixels, form.channels), "float32", init=imm(0.0, "float32"))
        with b.for_("r", given.get("runs", imm(1))) as r, b.for_("k", taps) as k:
            weights = n * given["each"] + r * (taps * form.channels + given.get("skip", zero)) + k * form.channels
            start = n * form.channels + r * (taps * given["tap"] + given.get("gap", zero)) + k * given["tap"]
            for p, x in enumerate(xs):
                for c in range(form.channels):
                    b.store(acc, (p, c), acc[p, c] + x[start + c] * w[weights + c])
        for p in range(form.pixels):
            at: Expr = given.get("step", zero) * p + n * form.channels
            for c in range(form.channels):
                b.store(out, at + c, form.clamp.meaning(b, acc[p, c] + bias[n * given["each"] + c]))
    desc = replace(b.finish(), scalars=tuple(given.values()))
    name = f"arm_mve.{form.name}"
    return TensorIntrin(name, desc, lambda ops: _emit(form, ops), requires="mve.fp", ordered=True)


def _emit(form: DepthwiseVectors, operands: Mapping[str, COperand]) -> BlockText:
    value = {n: f"({o.value})" for n, o in operands.items() if o.value}
    taps = f"({value['trips']} * {form.unroll} + {form.rest})" if form.loop else f"{form.unroll + form.rest}"
    runs, gap, skip = (value.get(n, other) for n, other in (("runs", "1"), ("gap", "0"), ("skip", "0")))
    numbers: dict[str, str] = {n: value[n] for n in ("trips", "runs", "blocks") if n in value}
    numbers |= {n: f"4 * {value[n]}" for n in ("gap", "skip", "tap") if n in value and not (n == "tap" and form.near)}
    numbers["xback"] = f"4 * ({form.channels} - {runs} * ({taps} * {value['tap']} + {gap}))"
    numbers["wback"] = f"4 * ({value['each']} - {runs} * ({taps} * {form.channels} + {skip}))"
    numbers["bback"] = f"4 * ({value['each']} - {form.channels})"
    moved = {f"x{p}": (_POINTERS[p], operands[f"x{p}"].pointer) for p in range(form.pixels)}
    moved |= {"w": ("r2", operands["w"].pointer), "bias": ("r5", operands["bias"].pointer)}
    results = {
        f"o{p}": (_RESULTS[p], operands["out"].pointer if not p else f"(float *)aot_o0 + {value['step']}")
        for p in range(form.pixels)
    }
    declarations = [f"const int32_t aot_{n} = {v};" for n, v in numbers.items()]
    declarations += [f'register const void *aot_{n} __asm("{r}") = {p};' for n, (r, p) in moved.items()]
    declarations += [f'register void *aot_{n} __asm("{r}") = {p};' for n, (r, p) in results.items()]
    return AsmBlock(
        declarations,
        form.text(),
        outs=[f'"+r"(aot_{n})' for n in (*moved, *results)],
        ins=[f'[{n}] "m"(aot_{n})' for n in numbers],
        clobbers=["r3", "r9", "r10", "r11", "r12", "lr", *(f"q{i}" for i in range(8))],
    ).emit()
