"""MUL of bytes, four at a time (Armv7E-M's DSP extension): products of halves of words, requantised one by one."""

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
    """What the code of a loop depends on: the final shift, the sign of halves, and what the second operand is."""

    shift: int
    signed: bool
    second: Second

    @property
    def requant(self) -> HighMultiply:
        """The meaning of a product that comes doubled."""
        return HighMultiply((), np.array([1]), True, self.signed, -128, 127, "int8", True)


@cache
def multiply_4(form: Form) -> TensorIntrin:
    """out[i] = sat8(requantised((x[i] - zx) * (y[i] - zy))) of `count` elements, a multiple of LANES.

    Operands: x, y, out, m, c, zx, zy (only of `bytes`), count; x, out and bytes of y at any address, out may be x or y.
    `halves`: y is int16, aligned to words.  `one`: y is int32, twice the factor.  m and c are the requantisation's multiplier
    and constant.
    """
    names = ("m", "c", "zx", *(("zy",) if form.second == "bytes" else ()), "count")
    numbers = {n: Var(n) for n in names}
    b = IRBuilder(f"multiply_4_{form.second}_asr{form.shift}{'_signed' if form.signed else ''}")
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
                other = (cast("int32", factor[i + lane]) - numbers["zy"]) * 2
            doubled.append(b.let("p", (cast("int32", x[i + lane]) - numbers["zx"]) * other))
        for lane, p in enumerate(doubled):
            value = form.requant.emit_scaled(b, p, (numbers["m"], numbers["c"], imm(form.shift)))
            b.store(out, i + lane, cast("int8", value))
    desc = replace(b.finish(), scalars=(*((one,) if factor is None else ()), *numbers.values()))
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: _emit(ops, form), ordered=True)


def text(form: Form) -> list[str]:
    """The loop."""

    def element(out: str, half: str, x: str, y: str) -> list[str]:
        return [
            f"smul{half}{half} %[t], %[{x}], %[{y}]",
            f"smmlar %[{out}], %[t], %[m], %[c]",
            *([f"add %[{out}], %[{out}], %[t], asr #31"] if form.signed else []),
            f"ssat %[{out}], #8, %[{out}], asr #{form.shift}",
        ]

    even, odd = ("y", "y") if form.second == "one" else ("s", "q")
    lines = ["ldr %[p], [%[x]], #4"]
    if form.second == "halves":
        lines += ["ldrd %[s], %[q], [%[y]], #8"]
    elif form.second == "bytes":
        lines += ["ldr %[q], [%[y]], #4", "sxtab16 %[s], %[zy], %[q]", "sxtab16 %[q], %[zy], %[q], ror #8"]
        lines += [f"sadd16 %[{n}], %[{n}], %[{n}]" for n in "sq"]
    lines += ["sxtab16 %[r], %[zx], %[p]", "sxtab16 %[p], %[zx], %[p], ror #8"]
    lines += [*element("u", "b", "r", even), *element("r", "t", "r", even), "bfi %[u], %[r], #16, #8"]
    lines += [*element("r", "b", "p", odd), "bfi %[u], %[r], #8, #8"]
    lines += [*element("r", "t", "p", odd), "bfi %[u], %[r], #24, #8"]
    return ["1:", *lines, "str %[u], [%[out]], #4", f"subs %[n], %[n], #{LANES}", "bne 1b"]


def _emit(operands: Mapping[str, COperand], form: Form) -> BlockText:
    value = {n: o.value for n, o in operands.items() if n in ("m", "c", "zx", "zy", "count")}
    pointers = ["x", "out"] if form.second == "one" else ["x", "y", "out"]
    temporaries = "prtu" if form.second == "one" else "pqrstu"
    declarations = [
        *(f"{'' if n == 'out' else 'const '}void *aot_{n} = {operands[n].pointer};" for n in pointers),
        f"int32_t aot_n = {value['count']};",
        f"uint32_t {', '.join(f'aot_{t}' for t in temporaries)};",
    ]
    twice = {f"{n}": f"(0u - (uint32_t)({value[n]}))" for n in ("zx", "zy") if n in value}
    if form.second == "one":
        twice["y"] = f"(uint32_t)({operands['y'].value})"
    ins = [f'[{n}] "r"({value[n]})' for n in "mc"]
    ins += [f'[{n}] "r"(({number} & 0xffffu) * 0x10001u)' for n, number in twice.items()]
    outs = [f'[{n}] "+&r"(aot_{n})' for n in (*pointers, "n")] + [f'[{t}] "=&r"(aot_{t})' for t in temporaries]
    return AsmBlock(declarations, text(form), outs=outs, ins=ins).emit()
