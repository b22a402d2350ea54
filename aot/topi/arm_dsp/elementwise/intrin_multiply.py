"""MUL of bytes, four at a time (Armv7E-M's DSP extension): products of halves of words, requantised one by one.

A code less -128 is the byte with its sign bit turned over: twice that, of two bytes, is a shifted AND, where a subtraction and a
doubling take two instructions.

Where a negative product takes the constant less 1, SMLAL adds the product to 64 bits that begin as constant : 0, so that both are
there; SMLSLD puts the product of the other halves in its place.  With two words a turn that is less than seven instructions an
element for every pair of zero points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Literal

import numpy as np

from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, cast, imm
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock
from aot.topi.layer.requant import HighMultiply

LANES = 4

ORDER = (0, 2, 1, 3)
"""The element of each half of the two words of four prepared factors: SXTAB16 takes every second byte."""

Second = Literal["bytes", "halves", "one"]
"""The other factors: as bytes; prepared, as twice their distances from the zero point in ORDER; one such number for all."""


@dataclass(frozen=True, slots=True)
class Form:
    """What the code of a loop depends on: the final shift, the sign of halves, what the second operand is, and whether its zero
    point is -128 (of bytes).
    """

    shift: int
    signed: bool
    second: Second
    lowest: bool = False

    @property
    def subtracted(self) -> bool:
        """Whether the second operand's zero point is a number to the block."""
        return self.second == "bytes" and not self.lowest

    @property
    def constant_in_memory(self) -> bool:
        """Whether no element takes the requantisation's constant from a register."""
        return self.signed and self.subtracted

    @property
    def words(self) -> int:
        """Words of a turn."""
        return 2 if self.second == "bytes" and self.signed else 1

    @property
    def requant(self) -> HighMultiply:
        """The meaning of a product that comes doubled."""
        return HighMultiply((), np.array([1]), True, self.signed, -128, 127, "int8", True)


@cache
def multiply_4(form: Form) -> TensorIntrin:
    """out[i] = sat8(requantised((x[i] - zx) * (y[i] - zy))) of `count` elements, a multiple of LANES.

    Operands: x, y, out, m, c, zx, zy (only of `bytes`, not of the lowest), count; x, out and bytes of y at any address, out may
    be x or y.
    `halves`: y is int16, aligned to words.  `one`: y is int32, twice the factor.  m and c are the requantisation's multiplier
    and constant.
    """
    names = ("m", "c", "zx", *(("zy",) if form.subtracted else ()), "count")
    numbers = {n: Var(n) for n in names}
    b = IRBuilder(f"multiply_4_{form.second}{'_lowest' * form.lowest}_asr{form.shift}{'_signed' * form.signed}")
    x = b.input("x", (UNKNOWN_EXTENT,), "int8")
    halves = form.second == "halves"
    kind, align = ("int16", 4) if halves else ("int8", 1)
    factor = None if form.second == "one" else b.input("y", (UNKNOWN_EXTENT,), kind, align=align)
    one = Var("y")
    out = b.output("out", (UNKNOWN_EXTENT,), "int8")
    with b.for_("i", numbers["count"], step=LANES) as i:
        doubled = []
        for lane in range(LANES):
            other: Expr = one
            if factor is not None and halves:
                other = cast("int32", factor[i + ORDER.index(lane)])
            elif factor is not None:
                other = (cast("int32", factor[i + lane]) - numbers.get("zy", imm(-128))) * 2
            doubled.append(b.let("p", (cast("int32", x[i + lane]) - numbers["zx"]) * other))
        for lane, p in enumerate(doubled):
            value = form.requant.emit_scaled(b, p, (numbers["m"], numbers["c"], imm(form.shift)))
            b.store(out, i + lane, cast("int8", value))
    desc = replace(b.finish(), scalars=(*((one,) if factor is None else ()), *numbers.values()))
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: _emit(ops, form), ordered=True)


def text(form: Form) -> list[str]:
    """The loop; of two words a turn, an odd one is done first by the second half of a turn."""
    word = _word(form)
    count = [f"subs %[n], %[n], #{LANES * form.words}", "bne 1b"]
    if form.words == 1:
        return ["1:", *word, *count]
    return [f"tst %[n], #{LANES}", "itt ne", f"addne %[n], %[n], #{LANES}", "bne 2f", "1:", *word, "2:", *word, *count]


def instructions(form: Form) -> float:
    """For one word, its part of the loop included."""
    return len(_word(form)) + 2 / form.words


def code_bytes(form: Form) -> int:
    """Of the block."""
    return 4 * len(text(form))


def _word(form: Form) -> list[str]:
    """Four elements."""
    even, odd = ("y", "y") if form.second == "one" else ("s", "q")
    lines = ["ldr %[p], [%[x]], #4", *_factors(form)]
    lines += ["sxtab16 %[r], %[zx], %[p]", "sxtab16 %[p], %[zx], %[p], ror #8"]
    if form.constant_in_memory:
        lines += [*_signed_pair(form, ("r", "s"), wide="tu", outs="uv"), "bfi %[u], %[v], #16, #8"]
    else:
        lines += [*_element(form, "u", "b", of=("r", even)), *_element(form, "r", "t", of=("r", even)), "bfi %[u], %[r], #16, #8"]
    if form.words > 1:
        lines += [*_signed_pair(form, ("p", "q"), wide="ts", outs="sr"), "bfi %[u], %[s], #8, #8", "bfi %[u], %[r], #24, #8"]
    else:
        lines += [*_element(form, "r", "b", of=("p", odd)), "bfi %[u], %[r], #8, #8"]
        lines += [*_element(form, "r", "t", of=("p", odd)), "bfi %[u], %[r], #24, #8"]
    return [*lines, "str %[u], [%[out]], #4"]


def _factors(form: Form) -> list[str]:
    """s and q become twice the distances of the second operand's codes, as halves."""
    match form.second:
        case "one":
            return []
        case "halves":
            return ["ldrd %[s], %[q], [%[y]], #8"]
        case "bytes" if form.lowest:
            turned = ["ldr %[q], [%[y]], #4", "eor %[q], %[q], #0x80808080"]
            return [*turned, "and %[s], %[mask], %[q], lsl #1", "and %[q], %[mask], %[q], lsr #7"]
    less = ["ldr %[q], [%[y]], #4", "sxtab16 %[s], %[zy], %[q]", "sxtab16 %[q], %[zy], %[q], ror #8"]
    return [*less, *(f"sadd16 %[{n}], %[{n}], %[{n}]" for n in "sq")]


def _element(form: Form, out: str, half: str, *, of: tuple[str, str]) -> list[str]:
    return [
        f"smul{half}{half} %[t], %[{of[0]}], %[{of[1]}]",
        f"smmlar %[{out}], %[t], %[m], %[c]",
        *([f"add %[{out}], %[{out}], %[t], asr #31"] if form.signed else []),
        f"ssat %[{out}], #8, %[{out}], asr #{form.shift}",
    ]


def _signed_pair(form: Form, halves: tuple[str, str], *, wide: str, outs: str) -> list[str]:
    """The results of the lower and of the upper halves; `wide` are the lower and the upper word of the sum."""
    low, high = (f"%[{n}]" for n in wide)
    x, y = (f"%[{n}]" for n in halves)
    lines = [f"ldrd {low}, {high}, %[k]"]
    for product, out in (("smlaltt", outs[1]), ("smlsld", outs[0])):
        lines += [f"{product} {low}, {high}, {x}, {y}", f"smmlar %[{out}], {low}, %[m], {high}"]
        lines.append(f"ssat %[{out}], #8, %[{out}], asr #{form.shift}")
    return lines


def _emit(operands: Mapping[str, COperand], form: Form) -> BlockText:
    value = {n: o.value for n, o in operands.items() if n in ("m", "c", "zx", "zy", "count")}
    pointers = ["x", "out"] if form.second == "one" else ["x", "y", "out"]
    temporaries = "prtu" if form.second == "one" else "pqrstu" + "v" * form.constant_in_memory
    declarations = [
        *(f"{'' if n == 'out' else 'const '}void *aot_{n} = {operands[n].pointer};" for n in pointers),
        f"int32_t aot_n = {value['count']};",
        f"uint32_t {', '.join(f'aot_{t}' for t in temporaries)};",
    ]
    twice = {f"{n}": f"(0u - (uint32_t)({value[n]}))" for n in ("zx", "zy") if n in value}
    if form.second == "one":
        twice["y"] = f"(uint32_t)({operands['y'].value})"
    ins = [f'[{n}] "r"({value[n]})' for n in ("m" if form.constant_in_memory else "mc")]
    ins += [f'[{n}] "r"(({number} & 0xffffu) * 0x10001u)' for n, number in twice.items()]
    if form.lowest:
        ins.append('[mask] "r"(0x01fe01feu)')
    if form.words > 1:
        declarations.append(f"uint64_t aot_k = (uint64_t)(uint32_t)({value['c']}) << 32;")
        ins.append('[k] "m"(aot_k)')
    outs = [f'[{n}] "+&r"(aot_{n})' for n in (*pointers, "n")] + [f'[{t}] "=&r"(aot_{t})' for t in temporaries]
    return AsmBlock(declarations, text(form), outs=outs, ins=ins).emit()
