"""Bytes through a table, sixteen a turn: UXTB takes words of values apart, ORR puts words of results together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var, cast
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock, Repeat

LANES = 32
"""Elements of one turn of the loop."""

_WORDS = ("r3", "r4", "r5", "r6")


@cache
def lut_words() -> TensorIntrin:
    """out[i] = table[uint8(x[i])] of `count` elements, a multiple of LANES.

    Operands: x and out int8, aligned to 4 bytes; table int8[256] in the order of the quantised values' bits; count.
    """
    count = Var("count")
    b = IRBuilder("lut_words")
    x = b.input("x", (UNKNOWN_EXTENT,), "int8", align=4)
    table = b.input("table", (256,), "int8")
    out = b.output("out", (UNKNOWN_EXTENT,), "int8", align=4)
    with b.for_("i", count) as i:
        b.store(out, i, table[cast("int32", cast("uint8", x[i]))])
    # sixteen bytes are read before the sixteen are written that belong to them
    desc = replace(b.finish(), scalars=(count,))
    return TensorIntrin("arm_dsp.lut_words", desc, _emit, requires="thumb2", ordered=True)


def _word(register: str) -> list[str]:
    """The four codes of a register through the table, in the same register."""
    a, b, c, t = (f"%[{n}]" for n in "abct")
    extract = [f"uxtb {a}, {register}", f"uxtb {b}, {register}, ror #8", f"uxtb {c}, {register}, ror #16"]
    look = [f"ldrb {r}, [{t}, {r}]" for r in (a, b, c, register)]
    join = [f"orr {a}, {a}, {b}, lsl #8", f"orr {a}, {a}, {c}, lsl #16", f"orr {register}, {a}, {register}, lsl #24"]
    return [*extract, f"lsr {register}, {register}, #24", *look, *join]


def _emit(operands: Mapping[str, COperand]) -> BlockText:
    words = ", ".join(_WORDS)
    step = [f"ldmia %[x]!, {{{words}}}", *(line for r in _WORDS for line in _word(r)), f"stmia %[o]!, {{{words}}}"]
    return AsmBlock(
        [
            f"const void *aot_x = {operands['x'].pointer};",
            f"const void *const aot_t = {operands['table'].pointer};",
            f"void *aot_o = {operands['out'].pointer};",
            f"int32_t aot_n = {operands['count'].value};",
            "uint32_t aot_a, aot_b, aot_c;",
        ],
        ["1:", Repeat(LANES // 16, step), f"subs %[n], %[n], #{LANES}", "bne 1b"],
        outs=[*(f'[{n}] "+&r"(aot_{n})' for n in "xon"), *(f'[{n}] "=&r"(aot_{n})' for n in "abc")],
        ins=['[t] "r"(aot_t)'],
        clobbers=_WORDS,
    ).emit()
