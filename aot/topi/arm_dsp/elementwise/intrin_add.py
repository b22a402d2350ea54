"""ADD of bytes, four at a time (Armv7E-M's DSP extension).

Bytes are masked to halves of words that hold them times 256.  SMLAW takes the upper 32 of the 48 bits of a product by such a
half, so that with a factor of 256 * A it adds exactly A * x.

Limits other than those of bytes: USAT makes 0 of the lower one, UQADD8 of four results 255 of the upper one, and UADD8 moves both
back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var, cast, clamp
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock
from aot.topi.intrin.bytes import splat

LANES = 4

FACTOR_LIMIT = 1 << 23
"""Factors are below this in magnitude, as 256 times them are words."""


@cache
def add_4(shift: int, lo: int = -128, hi: int = 127) -> TensorIntrin:
    """out[i] = clamp((x[i] * a + y[i] * b + bias) >> shift, lo, hi) of `count` elements, a multiple of LANES.

    Operands: x, y, out at any address (out may be x or y), a, b, bias, count.  22 instructions for four, and two of the loop;
    three more with limits of their own, for which bias - (lo << shift) has to fit the sum too.
    """
    factors = (Var("a"), Var("b"), Var("bias"))
    count = Var("count")
    limits = "" if (lo, hi) == (-128, 127) else f"_{lo & 255:02x}_{hi & 255:02x}"
    b = IRBuilder(f"add_4_asr{shift}{limits}")
    x = b.input("x", (UNKNOWN_EXTENT,), "int8")
    y = b.input("y", (UNKNOWN_EXTENT,), "int8")
    out = b.output("out", (UNKNOWN_EXTENT,), "int8")
    with b.for_("i", count) as i:
        total = cast("int32", x[i]) * factors[0] + factors[2] + cast("int32", y[i]) * factors[1]
        b.store(out, i, cast("int8", clamp(total >> shift, lo, hi)))
    desc = replace(b.finish(), scalars=(*factors, count))
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: _emit(ops, shift, lo=lo, hi=hi), ordered=True)


def _emit(operands: Mapping[str, COperand], shift: int, *, lo: int, hi: int) -> BlockText:
    clamped = (lo, hi) != (-128, 127)
    saturate = "usat" if clamped else "ssat"

    def element(out: str, halves: str, *, of: tuple[str, str]) -> list[str]:
        return [
            f"smlaw{halves} %[{out}], %[fa], %[{of[0]}], %[bias]",
            f"smlaw{halves} %[{out}], %[fb], %[{of[1]}], %[{out}]",
            f"{saturate} %[{out}], #8, %[{out}], asr #{shift}",
        ]

    text = [
        "1:",
        "ldr %[p], [%[x]], #4",
        "ldr %[q], [%[y]], #4",
        "and %[r], %[mask], %[p], lsl #8",
        "and %[s], %[mask], %[q], lsl #8",
        *element("t", "b", of=("r", "s")),
        *element("r", "t", of=("r", "s")),
        "and %[p], %[mask], %[p]",
        "and %[q], %[mask], %[q]",
        "bfi %[t], %[r], #16, #8",
        *element("r", "b", of=("p", "q")),
        *element("s", "t", of=("p", "q")),
        "bfi %[t], %[r], #8, #8",
        "bfi %[t], %[s], #24, #8",
        *(_within(hi) if clamped else []),
        "str %[t], [%[out]], #4",
        f"subs %[n], %[n], #{LANES}",
        "bne 1b",
    ]
    value = {n: operands[n].value for n in ("a", "b", "bias", "count")}
    temporaries = "pqrst"
    return AsmBlock(
        [
            f"const void *aot_x = {operands['x'].pointer};",
            f"const void *aot_y = {operands['y'].pointer};",
            f"void *aot_out = {operands['out'].pointer};",
            f"int32_t aot_n = {value['count']};",
            f"uint32_t {', '.join(f'aot_{t}' for t in temporaries)};",
        ],
        text,
        outs=[f'[{n}] "+&r"(aot_{n})' for n in ("x", "y", "out", "n")] + [f'[{t}] "=&r"(aot_{t})' for t in temporaries],
        ins=[
            f'[fa] "r"({value["a"]} * 256)',
            f'[fb] "r"({value["b"]} * 256)',
            f'[bias] "r"({value["bias"]}{f" - {lo} * {1 << shift}" if clamped else ""})',
            '[mask] "r"(0xff00ff00u)',
            *([f'[room] "r"({splat(255 - hi + lo)}u)'] if clamped else []),
        ],
    ).emit()


def _within(hi: int) -> list[str]:
    """Four sums less the lower limit, from 0 to 255, become results up to `hi`; the lower limit is hi - 255 + room."""
    return ["uqadd8 %[t], %[t], %[room]", f"mov %[r], #{splat(hi + 1)}", "uadd8 %[t], %[t], %[r]"]
