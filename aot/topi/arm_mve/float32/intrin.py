"""One or two pixels by up to eight channels, four channels a vector, all taps of a window in the reference's order.

VMUL and VADD of vectors round as the scalar ones do; VFMA rounds once and is not used.  Vectors take numbers below 2^-126 for
zero, as operands and as results, which is all that differs from `arm_fpu.intrin.dot`, the meaning of the blocks.  (A NaN is
always 0x7fc00000.)

Accumulators fill q0 to q3, weights of a tap q4 and q5, products q6 and q7; data is in core registers, four taps of a pixel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.support.dataclass import dataclass
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_fpu.finish import Text, bits_of
from aot.topi.arm_fpu.intrin import DotForm, dot
from aot.topi.intrin.asm_text import AsmBlock, Repeat, count_instructions

LANES = 4
"""Numbers of a vector."""

_POINTERS = ("r0", "r1")
"""The data of two pixels; r2 is the stream of weights, r12 the runs that are left, LR counts taps."""
_DATA = (("r3", "r4", "r5", "r6"), ("r8", "r9", "r10", "r11"))
_INFINITE = 0x7F800000


@dataclass(frozen=True, slots=True)
class VectorForm(DotForm):
    """As DotForm, the channels in vectors, of which the last may have fewer than four."""

    @property
    def title(self) -> str:
        return "float"

    @property
    def name(self) -> str:
        return DotForm.name.fget(self).replace("_vmla", "")  # type: ignore[attr-defined,no-any-return]

    @property
    def vectors(self) -> int:
        """Of a pixel."""
        return -(-self.channels // LANES)

    @property
    def last(self) -> int:
        """Channels of the last vector if these are fewer than four, else 0."""
        return self.channels % LANES

    @property
    def accumulators(self) -> list[str]:
        """Those of one pixel after the other."""
        return [f"q{i}" for i in range(self.pixels * self.vectors)]

    def run(self, *, first: bool = False) -> Text:
        if not self.loop:
            return [*self.taps(self.unroll + self.rest, first=first)]
        whole, rest = divmod(self.unroll, LANES)
        body: Text = [Repeat(whole, self.taps(LANES)), *self.taps(rest)]
        return ["ldr lr, %[trips]", "dls lr, lr", "2:", *body, "le lr, 2b", *self.taps(self.rest)]

    def taps(self, count: int, *, first: bool = False) -> list[str]:
        text: list[str] = []
        for done in range(0, count, LANES):
            size = min(LANES, count - done)
            for p in range(self.pixels):
                pointer, data = _POINTERS[p], ", ".join(_DATA[p][:size])
                text.append(f"ldr {data}, [{pointer}], #4" if size == 1 else f"ldmia {pointer}!, {{{data}}}")
            for k in range(size):
                text += self.loads("r2", "q4") + self.products(0, k, first=first and done + k == 0)
        return text

    def loads(self, pointer: str, into: str) -> list[str]:
        """A number of each channel to vectors from `into` on; the pointer moves on."""
        return self._moves("vldrw", "u32", pointer, int(into[1:]))

    def stores(self, pointer: str, source: str) -> list[str]:
        """The channels of a pixel from vectors from `source` on."""
        return self._moves("vstrw", "32", pointer, int(source[1:]))

    def _moves(self, op: str, dtype: str, pointer: str, first: int) -> list[str]:
        text = [f"{op}.{dtype} q{first + v}, [{pointer}], #{4 * LANES}" for v in range(self.channels // LANES)]
        if self.last:
            text += ["vpst", f"{op}t.{dtype} q{first + self.vectors - 1}, [{pointer}], #{4 * self.last}"]
        return text

    def products(self, weights: int, k: int, *, first: bool = False) -> list[str]:
        """Those of one tap; a product waits an instruction until it is added."""
        terms = [(p * self.vectors + v, 4 + v, _DATA[p][k]) for p in range(self.pixels) for v in range(self.vectors)]
        if first:
            return [f"vmul.f32 q{acc}, q{w}, {x}" for acc, w, x in terms]
        text: list[str] = []
        for i in range(len(terms) + 1):
            if i < len(terms):
                text.append(f"vmul.f32 q{6 + i % 2}, q{terms[i][1]}, {terms[i][2]}")
            if i:
                text.append(f"vadd.f32 q{terms[i - 1][0]}, q{terms[i - 1][0]}, q{6 + (i - 1) % 2}")
        return text

    def zeros(self) -> Text:
        return [f"vmov.i32 {q}, #0" for q in self.accumulators]

    def mask(self) -> list[str]:
        """The lanes of the last vector, where it is not full."""
        return [f"mov lr, #{self.last}", "vctp.32 lr"] if self.last else []

    def steps(self) -> list[str]:
        """From the end of a run to the next one; flags tell whether there is one."""
        text = ["ldr lr, %[gap]", *(f"add {x}, {x}, lr" for x in _POINTERS[: self.sources])]
        text += ["ldr lr, %[skip]", "add r2, r2, lr"] if self.pixels == 1 else []
        return [*text, "subs r12, r12, #1"]

    def text(self) -> Text:
        start: Text = [*self.mask(), *(["ldr r12, %[runs]"] if self.runs else [])]
        start += [] if self.starts else self.zeros()
        if not self.runs:
            start += self.run(first=self.starts)
        else:
            start += [*self.run(first=True), *self.steps(), "beq 3f"] if self.starts else []
            start += ["1:", *self.run(), *self.steps(), "bne 1b", "3:"]
        return start + self.finish()

    def finish(self) -> Text:
        """Bias, clamp and stores."""
        n = self.vectors
        text: Text = ["ldr lr, %[bias]", *self.loads("lr", "q4")]
        text += [f"vadd.f32 {q}, {q}, q{4 + i % n}" for i, q in enumerate(self.accumulators)]
        text += [*self.clamped(), *(self.mask() if self.clamps else []), "ldr r3, %[o]", *self.stores("r3", "q0")]
        if self.pixels == 2:
            text += ["ldr r3, %[o]", "ldr r4, %[step]", "add r3, r3, r4", *self.stores("r3", f"q{n}")]
        return text

    @property
    def clamps(self) -> bool:
        """Whether the results of comparisons take the place of the mask."""
        return self.clamp.lo not in (None, 0.0) or self.clamp.hi is not None

    def clamped(self) -> Text:
        """Comparisons are false of a NaN, which stays."""
        lo, hi, text = self.clamp.lo, self.clamp.hi, list[str]()
        if lo == 0.0:  # like integers, of which a negative number is one too; there is no -0, and no negative NaN
            text += ["vmov.i32 q6, #0", *(f"vmax.s32 {q}, {q}, q6" for q in self.accumulators)]
        elif lo is not None:
            text += [*_constant("r3", bits_of(lo)), "vdup.32 q6, r3"]
            text += [line for q in self.accumulators for line in (f"vpt.f32 gt, q6, {q}", f"vmovt {q}, q6")]
        if hi is not None:
            text += _constant("r3", bits_of(hi))
            text += [line for q in self.accumulators for line in (f"vpt.f32 gt, {q}, r3", f"vdupt.32 {q}, r3")]
        if not self.clamp.keeps:
            return [*text]
        largest: Text = ["mov r3, #0", *(f"vmaxnmav.f32 r3, {q}" for q in self.accumulators), f"cmp r3, #{_INFINITE}"]
        return [*largest, "bne 9f", *text, "9:"]

    def cost(self, *, runs: float, trips: float) -> float:
        """Instructions of one execution."""
        each = trips * (count_instructions(self.taps(self.unroll)) + self.loop) + count_instructions(self.taps(self.rest))
        each += 2 * self.loop + (len(self.steps()) + 1) * self.runs
        ends = count_instructions(self.finish())
        if self.clamp.keeps:
            ends -= 4 * len(self.accumulators) + 5
        saved = len(self.accumulators) if self.starts else -len(self.accumulators)
        return runs * each + ends - saved + 2 * bool(self.last) + self.runs


def _constant(register: str, bits: int) -> list[str]:
    return [f"movw {register}, #{bits & 0xFFFF}", f"movt {register}, #{bits >> 16}"]


@cache
def vector_dot(form: VectorForm) -> TensorIntrin:
    """As `dot`, with its operands."""
    name = f"arm_mve.{form.name}"
    return replace(dot(form), name=name, emit=lambda ops: emit(form, ops), requires="mve.fp", ordered=True)


def emit(form: VectorForm, operands: Mapping[str, COperand]) -> BlockText:
    """The assembly of a block; what it needs once, it takes from memory."""
    moved = {**{f"x{p}": _POINTERS[p] for p in range(form.sources)}, "w": "r2"}
    inside = {"bias": operands["bias"].pointer, "o": operands["out"].pointer}
    declarations = [f"{'' if n == 'o' else 'const '}void *const aot_{n} = {pointer};" for n, pointer in inside.items()]
    numbers = {n: operands[n].value for n in ("step", "trips", "runs", "gap", "skip", "tap") if n in operands}
    declarations += [f"const int32_t aot_{n} = {'' if n in ('trips', 'runs') else '4 * '}{v};" for n, v in numbers.items()]
    declarations += [f'register const void *aot_{n} __asm("{r}") = {operands[n].pointer};' for n, r in moved.items()]
    free = [r for p in range(form.pixels) for r in _DATA[p]]
    return AsmBlock(
        declarations,
        form.text(),
        outs=[f'"+r"(aot_{n})' for n in moved],
        ins=[f'[{n}] "m"(aot_{n})' for n in (*inside, *numbers)],
        clobbers=[*free, "r12", "lr", *(f"q{i}" for i in range(8))],
    ).emit()
