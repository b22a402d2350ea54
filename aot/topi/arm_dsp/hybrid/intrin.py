"""Quantisation at run time: the range of float32 numbers and their codes, on cores with DSP instructions and an FPU.

Numbers that are no NaN compare like integers if their signs agree: the largest is the largest signed integer from 0 on, the least
the largest unsigned one from -0 on.

Codes: the reference adds 0.5 to the magnitude in float32 and cuts.  That differs from rounding halves away from zero for one
number only, 0.5 - 2^-25, which the sum rounds to 1.  A VMLA with EPSILON, a little over 2^-25, takes that number to 0.5 and no
other one up to 127.5 across a half: there p * EPSILON is below half of the last place of p.  Then VCVT to 16 bits with one
fraction bit, cut towards zero, and halving as `quantize_8` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var, binop, cast, imm, maximum, minimum, select
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_dsp.elementwise import rounded_codes
from aot.topi.intrin.asm_text import AsmBlock, Repeat

LANES = 8
"""Elements of one turn of the loops."""

LARGEST_CODE = 127
INFINITE_BITS = 0x7F800000
EPSILON = 2.0**-25 * (1 + 2.0**-22)

_FLOATS = tuple(f"s{i}" for i in range(4))


@cache
def float_range() -> TensorIntrin:
    """ends[0] = max(ends[0], x[i] as int32), ends[1] = max(ends[1], x[i] as uint32) of `count` numbers, a multiple of LANES.

    Operands: x float32[count]; ends uint32[2] in registers; count.
    """
    count = Var("count")
    b = IRBuilder("float_range")
    x = b.input("x", (UNKNOWN_EXTENT,), "float32", align=4)
    ends = b.output("ends", (2,), "uint32")
    with b.for_("i", count) as i:
        signed, unsigned = b.let("signed", x.load("int32", i)), b.let("unsigned", x.load("uint32", i))
        b.store(ends, 0, cast("uint32", maximum(cast("int32", ends[0]), signed)))
        b.store(ends, 1, maximum(ends[1], unsigned))
    return TensorIntrin("arm_dsp.float_range", replace(b.finish(), scalars=(count,)), _emit_range, requires="thumb2")


def _emit_range(operands: Mapping[str, COperand]) -> BlockText:
    registers = ("r4", "r5", "r6", "r8")
    text: list[str | Repeat] = ["1:"]
    for _ in range(LANES // len(registers)):
        text.append(f"ldmia %[x]!, {{{', '.join(registers)}}}")
        for r in registers:
            text += [f"cmp {r}, %[high]", "it gt", f"movgt %[high], {r}", f"cmp {r}, %[low]", "it hi", f"movhi %[low], {r}"]
    high, low = operands["ends"].scalars
    return AsmBlock(
        [f"const void *aot_x = {operands['x'].pointer};", f"int32_t aot_n = {operands['count'].value};"],
        [*text, f"subs %[n], %[n], #{LANES}", "bne 1b"],
        outs=['[x] "+r"(aot_x)', '[n] "+r"(aot_n)', f'[high] "+r"({high})', f'[low] "+r"({low})'],
        clobbers=registers,
    ).emit()


@cache
def quantize_symmetric() -> TensorIntrin:
    """out[i] = the code of x[i] * factor within +-127 for `count` numbers, a multiple of LANES; those of NaN are 0.

    Operands: x float32[count], out int8[count], sum float32[1] in a register, factor, count.  The products of neighbours are
    added to `sum`, which is infinite or NaN if one of the numbers is.
    """
    factor, count = Var("factor", "float32"), Var("count")
    b = IRBuilder("quantize_symmetric")
    x = b.input("x", (UNKNOWN_EXTENT,), "float32", align=4)
    out = b.output("out", (UNKNOWN_EXTENT,), "int8")
    total = b.output("sum", (1,), "float32")
    far, zero = imm(1000.0, "float32"), imm(0.0, "float32")
    with b.for_("i", count // 2) as i:
        pair = []
        for p in range(2):
            value = b.let("value", x[2 * i + p] * factor)
            value = b.let("value", value + value * imm(EPSILON, "float32"))
            pair.append(value)
            known = select(binop("==", value, value), value, zero)
            bounded = b.let("bounded", select(value >= far, far, select(value <= zero - far, zero - far, known)))
            halves = b.let("halves", cast("int32", bounded * imm(2.0, "float32")))
            code = (halves + select(halves < 0, imm(0), imm(1))) >> 1
            b.store(out, 2 * i + p, cast("int8", maximum(imm(-LARGEST_CODE), minimum(code, imm(LARGEST_CODE)))))
        b.store(total, 0, total[0] + pair[0] * pair[1])
    desc = replace(b.finish(), scalars=(factor, count))
    return TensorIntrin("arm_dsp.quantize_symmetric", desc, _emit_quantize, requires="vfp")


def _emit_quantize(operands: Mapping[str, COperand]) -> BlockText:
    offset = 1 + 2 * LARGEST_CODE  # codes counted from the lowest, 0 to 254, then one more but for 255: the lowest byte is -127
    step = [
        "vldmia %[x]!, {s0-s3}",
        *[f"vmul.f32 {s}, {s}, %[factor]" for s in _FLOATS],
        *[f"vmla.f32 {s}, {s}, %[epsilon]" for s in _FLOATS],
        "vmla.f32 %[sum], s0, s1",
        "vmla.f32 %[sum], s2, s3",
        *rounded_codes(),
        "uqadd8 %[a], %[a], %[ones]",
        "eor %[a], %[a], #0x80808080",
        "str %[a], [%[out]], #4",
    ]
    return AsmBlock(
        [
            f"const void *aot_x = {operands['x'].pointer};",
            f"void *aot_out = {operands['out'].pointer};",
            f"const float aot_factor = {operands['factor'].value};",
            f"const float aot_epsilon = {float(EPSILON).hex()}f;",
            f"int32_t aot_n = {operands['count'].value};",
            "uint32_t aot_a, aot_b, aot_c, aot_d;",
        ],
        ["1:", Repeat(LANES // 4, step), f"subs %[n], %[n], #{LANES}", "bne 1b"],
        outs=[
            *(f'[{n}] "+r"(aot_{n})' for n in ("x", "out", "n")),
            *(f'[{t}] "=&r"(aot_{t})' for t in "abcd"),
            f'[sum] "+t"({operands["sum"].scalars[0]})',
        ],
        ins=[
            '[factor] "t"(aot_factor)',
            '[epsilon] "t"(aot_epsilon)',
            '[one] "r"(0x00010001u)',
            '[ones] "r"(0x01010101u)',
            f'[offset] "r"({offset | offset << 16:#x}u)',
        ],
        clobbers=_FLOATS,
    ).emit()
