"""Sigmoid and tanh of 16-bit numbers, as gemmlowp computes them (`aot.numerics.fixed16`), in about 50 instructions.

A number a that is not 0 goes as m = |a| - 1, so that the bits of m are those of the fraction and of the factors of the
exponential.  Half of a product's upper part with halves rounded up is one SMMULR where an operand is times 2^17; with a factor f
of 2^14 and more, which leaves 32 bits then, v f / 2^15 = v (f - 2^15) / 2^15 + v is one SMMLAR.  Newton's steps have 2^17 times
the estimate plus 1: the 1 moves halves of the difference that SMMLSR rounds to the side where the reference has them.  Times
2^17, an estimate of 2^14 leaves 32 bits: it saturates, and makes the largest result of tanh, which is right.
tests/topi/arm_dsp/recurrent/test_intrin.py compares all 65,536 numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from aot.ir.op import Array
from aot.numerics.fixed16 import SIGMOID16, TANH16
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import imm
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock, count_instructions

MOST_BITS = 3
"""Integer bits of tanh's argument; with more it saturates, after a shift to the left, where this one does."""

_FACTORS = (25520, 19875, 12055, 4435, 600, 11)
_SIGMOID_BITS = 3
_SHIFT = 17


def numbers(bits: int) -> Array:
    """int32: the constants of exp of arguments with `bits` integer bits, in the order in which they are loaded."""
    words = [(4096 - (1 << bits)) << _SHIFT, 0x14000, 10923 << _SHIFT, 28918 << _SHIFT]
    words += [f << _SHIFT for f in _FACTORS[: bits + 2]]
    words += [-15420 << _SHIFT, (23130 << _SHIFT) + 1, 8192]
    return np.array(words, np.int64).astype(np.uint32).view(np.int32)


@cache
def sigmoid16(count: int) -> TensorIntrin:
    """values[i] = 1 / (1 + e^-values[i]) with three integer bits.

    Operands: numbers, those of `numbers(3)`; values int32[count] within int16.
    """
    b = IRBuilder(f"sigmoid16_{count}")
    b.input("numbers", (UNKNOWN_EXTENT,), "int32")
    values = b.output("values", (count,), "int32")
    for i in range(count):
        b.store(values, i, SIGMOID16(values[i]))
    return TensorIntrin(f"arm_dsp.sigmoid16_{count}", b.finish(), lambda ops: _emit(ops, None), header="aot/fixed16.h")


@cache
def tanh16(count: int, bits: int) -> TensorIntrin:
    """values[i] = tanh of values[i] with `bits` integer bits, 0 to `MOST_BITS`.

    Operands: numbers, those of `numbers(bits + 1)`; values int32[count] within int16.
    """
    assert 0 <= bits <= MOST_BITS
    b = IRBuilder(f"tanh16_{count}_b{bits}")
    b.input("numbers", (UNKNOWN_EXTENT,), "int32")
    values = b.output("values", (count,), "int32")
    for i in range(count):
        b.store(values, i, TANH16(values[i], imm(bits)))
    name = f"arm_dsp.tanh16_{count}_b{bits}"
    return TensorIntrin(name, b.finish(), lambda ops: _emit(ops, bits), header="aot/fixed16.h")


def instructions(bits: int | None) -> int:
    """Of one value; `bits` of tanh, None of sigmoid."""
    return count_instructions(_sigmoid("") if bits is None else _tanh("", bits))


def _emit(operands: Mapping[str, COperand], bits: int | None) -> BlockText:
    """One value after the other, as each takes all registers that there are for numbers."""
    values = operands["values"].scalars
    lines: list[str] = []
    for i in range(len(values)):
        if i:
            lines.append(f"sub %[k], %[k], #{numbers(_SIGMOID_BITS if bits is None else bits + 1).nbytes}")
        lines += _sigmoid(f"%[v{i}]") if bits is None else _tanh(f"%[v{i}]", bits)
    return AsmBlock(
        [f"const void *aot_k = {operands['numbers'].pointer};"],
        lines,
        outs=[*(f'[v{i}] "+&r"({value})' for i, value in enumerate(values)), '[k] "+&r"(aot_k)'],
        clobbers=["r4", "r5", "r6", "r8", "r9", "r10", "r11", "r12", *["lr"] * (bits == MOST_BITS)],
    ).emit()


def _sigmoid(value: str) -> list[str]:
    finish = ["lsl r9, r9, #3", "add r9, r9, r8, asr #16", f"eor r9, r9, {value}, asr #31", f"ubfx {value}, r9, #0, #15"]
    return [*_exp(value, _SIGMOID_BITS), *_reciprocal(saturates=False), *finish]


def _tanh(value: str, bits: int) -> list[str]:
    return [
        *_exp(value, bits + 1),
        *_reciprocal(saturates=True),
        *("lsl r9, r9, #4", "add r9, r9, r8, asr #15", "sub r9, r9, #32768", f"eor r9, r9, {value}, asr #31"),
        *(f"cmp {value}, #0", "it ne", f"addne {value}, r9, {value}, lsr #31"),
    ]


def _exp(value: str, bits: int) -> list[str]:
    """r12 = e^-|value| with 15 fractional bits."""
    width = 13 - bits
    lines = [
        *(f"rsb r10, {value}, #0", f"eor r9, {value}, {value}, asr #31", "sub r9, r9, r10, lsr #31"),
        "ldmia %[k]!, {r4, r5, r6, r8}",
        *(f"ubfx r10, r9, #0, #{width}", f"sub r10, r4, r10, lsl #{_SHIFT + bits}", f"asr r11, r10, #{_SHIFT}"),
        *("smmulr r12, r10, r11", "smmulr r4, r10, r12", "mla r5, r12, r12, r5", f"add r5, r4, r5, asr #{_SHIFT}"),
        *("smmlar r12, r5, r6, r12", "add r12, r12, #65537", "add r12, r11, r12, asr #1", "smmlar r12, r12, r8, r12"),
        f"ldmia %[k]!, {{{', '.join(_FACTOR_REGISTERS[: bits + 2])}}}",
    ]
    for i, register in enumerate(_FACTOR_REGISTERS[: bits + 2]):
        multiply = f"smmlar{{0}} r12, r12, {register}, r12" if _FACTORS[i] >= 1 << 14 else f"smmulr{{0}} r12, r12, {register}"
        if i % 2 == 0:  # the bit goes to N, the next one to C
            lines.append(f"lsls r11, r9, #{31 - width - i}")
        condition = "cs" if i % 2 else "mi"
        lines += [f"it {condition}", multiply.format(condition)]
    return lines


_FACTOR_REGISTERS = ("r4", "r5", "r6", "r8", "r10", "lr")


def _reciprocal(*, saturates: bool) -> list[str]:
    """r8 = 2^17 times the second estimate + 1, r9 the last correction's quarter, from r12."""
    step = ["smmlsr r9, r12, r8, r6", "smmulr r9, r8, r9"]
    second = ["lsl r9, r9, #19", "qadd r8, r8, r9"] if saturates else ["add r8, r8, r9, lsl #19"]
    return [
        *("ldmia %[k]!, {r4, r5, r6}", "add r12, r12, #32768", "asr r12, r12, #1"),
        *("smmulr r8, r12, r4", f"add r8, r5, r8, lsl #{_SHIFT}"),
        *(*step, "add r8, r8, r9, lsl #19", *step, *second, *step),
    ]
