"""The end of every block of arm_fpu: bias, clamp and store, with the reference's clamp for what is not finite too.

The clamp of a fused activation is a comparison, which costs four instructions on an FPU without VMIN.  Numbers that are not NaN
and not below zero compare like integers, so ReLU is BIC with the sign.  What is left is an overflow or a NaN: a sum of products
of all results is infinite or NaN if one of them is, and then the results are clamped one by one as the description says.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.support.dataclass import dataclass
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm, select
from aot.topi.intrin.asm_text import Repeat

LARGEST = float(np.finfo(np.float32).max)

Text = list[str | Repeat]


@dataclass(frozen=True, slots=True)
class Clamp:
    """The bounds of a fused activation, None if there is none."""

    lo: float | None
    hi: float | None

    @property
    def name(self) -> str:
        known = {(None, None): "", (-LARGEST, LARGEST): "", (0.0, LARGEST): "_relu", (0.0, 6.0): "_relu6"}
        suffix = known.get((self.lo, self.hi), f"_clamp_{bits_of(self.lo):x}_{bits_of(self.hi):x}")
        return suffix + "_unbounded" * (self.lo is None)

    @property
    def rectifies(self) -> bool:
        """Whether BIC does it for finite numbers."""
        return self.lo == 0.0 and self.hi in (6.0, LARGEST)

    @property
    def keeps(self) -> bool:
        """Whether it does not change finite numbers."""
        return self.lo == -LARGEST and self.hi == LARGEST

    def meaning(self, b: IRBuilder, value: Expr) -> Expr:
        """As the operators' descriptions clamp."""
        for bound, below in ((self.lo, True), (self.hi, False)):
            if bound is not None:
                value = b.let("value", value)
                limit = imm(float(np.float32(bound)), "float32")
                value = select(value < limit if below else value > limit, limit, value)
        return value


def bits_of(bound: float | None) -> int:
    """A bound as a float32's bits."""
    return int(np.float32(0 if bound is None else bound).view(np.uint32))


def vector(first: int, count: int) -> str:
    """A list of registers for VLDM and VSTM."""
    return f"{{s{first}}}" if count == 1 else f"{{s{first}-s{first + count - 1}}}"


def add_bias(pixels: int, channels: int, free: int) -> Text:
    """Results in s0 and up, those of one pixel after the other; the bias goes to `free` and up."""
    text: Text = [f"vldmia %[bias], {vector(free, channels)}"]
    return text + [
        f"vadd.f32 s{p * channels + c}, s{p * channels + c}, s{free + c}" for p in range(pixels) for c in range(channels)
    ]


def store_clamped(clamp: Clamp, pixels: int, channels: int, *, free: int, multiply: bool) -> Text:
    """Results to %[o] and, of a second pixel, to %[o] + %[step]; `free` is a register after them with three more after it.

    Spoils the core registers t, u, w and, for two pixels, x0.  `multiply`: test products (fewer instructions), else sums (fewer
    cycles).
    """
    raw: Text = [f"vstmia %[o], {vector(0, channels)}"]
    if pixels == 2:
        raw += ["add %[x0], %[o], %[step]", f"vstmia %[x0], {vector(channels, channels)}"]
    if clamp.lo is None or clamp.hi is None:
        return raw
    slow = [line for o in ("o", "x0")[:pixels] for line in one_by_one(clamp, o, channels)]
    if not (clamp.keeps or clamp.rectifies):
        return [*raw, *slow]
    test = [*_sum(pixels * channels, free, multiply=multiply), *_compare(free)]
    if clamp.keeps:
        return [*test, *raw, "bne 9f", *slow, "9:"]
    fast = _rectified(clamp, pixels, channels)
    return [*test, "beq 8f", *fast, "b 9f", "8:", *raw, *slow, "9:"]


def _sum(count: int, free: int, *, multiply: bool) -> Text:
    """In `free` a number that is finite only if all results are."""
    if count == 1:
        return [f"vmov.f32 s{free}, s0"]
    if multiply:
        pairs = [(i, i + 1) for i in range(0, count - 1, 2)]
        text: Text = [f"{'vmul' if i < 2 else 'vmla'}.f32 s{free + i % 2}, s{a}, s{b}" for i, (a, b) in enumerate(pairs)]
        sums = [f"s{free + i}" for i in range(min(2, len(pairs)))] + [f"s{count - 1}"] * (count % 2)
    else:
        text = [f"vadd.f32 s{free + i // 2}, s{i}, s{i + 1}" for i in range(0, min(8, count - 1), 2)]
        sums = [f"s{free + i}" for i in range(len(text))]
        rest = range(2 * len(text), count)
        text += [f"vadd.f32 {sums[i % len(sums)]}, {sums[i % len(sums)]}, s{r}" for i, r in enumerate(rest)]
    for other in sums[1:]:
        text.append(f"vadd.f32 s{free}, s{free}, {other}")
    return text


def exceeds(count: int, free: int, *, fused: bool) -> Text:
    """Compare such that "equal" tells that one of `count` results may not be finite; spoils t, and `free` and four more."""
    if fused and count > 1:
        text: Text = [f"{'vmla' if i else 'vmul'}.f32 s{free}, s{i}, s{i + 1}" for i in range(0, count - 1, 2)]
        text += [f"vadd.f32 s{free}, s{free}, s{count - 1}"] * (count % 2)
    elif count > 1:
        text = _sum(count, free, multiply=False)
    else:
        text, free = [], 0
    return [*text, *_compare(free)]


def _compare(register: int) -> Text:
    """Compare an exponent with that of what is not finite."""
    return [f"vmov %[t], s{register}", "ubfx %[t], %[t], #23, #8", "cmp %[t], #255"]


def _rectified(clamp: Clamp, pixels: int, channels: int) -> Text:
    """Finite results through core registers."""
    six = bits_of(6.0)
    text: Text = [f"movw %[w], #{six & 0xFFFF}", f"movt %[w], #{six >> 16}"] if clamp.hi == 6.0 else []
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


def one_by_one(clamp: Clamp, pointer: str, channels: int) -> Sequence[str]:
    """Clamp stored results where they are."""
    text = []
    for s, bound in ((1, clamp.lo), (2, clamp.hi)):
        bits = bits_of(bound)
        text += [f"movw %[t], #{bits & 0xFFFF}", f"movt %[t], #{bits >> 16}", f"vmov s{s}, %[t]"]
    text += [f"mov %[t], #{channels}", f"7: vldr.32 s0, [%[{pointer}]]", "vcmp.f32 s0, s1", "vmrs APSR_nzcv, fpscr", "it mi"]
    text += ["vmovmi.f32 s0, s1", "vcmp.f32 s0, s2", "vmrs APSR_nzcv, fpscr", "it gt", "vmovgt.f32 s0, s2"]
    return [*text, f"vstmia %[{pointer}]!, {{s0}}", "subs %[t], %[t], #1", "bne 7b"]


REGISTERS = tuple(f"s{i}" for i in range(32))
"""What a block spoils: it names them freely."""
