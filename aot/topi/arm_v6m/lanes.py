"""Three pixels in two 32-bit sums for Armv6-M, which has no wider products: the block that multiplies them by a channel's
weights.

See aot/topi/layer/planes.py for the arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var, cast
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock, Repeat
from aot.topi.layer.im2col import Packing, TapLoop
from aot.topi.layer.planes import BITS, WORDS

SIX = Packing(6, BITS, (0, 1, 3, 4))
STRIDE = 4 * WORDS
"""Bytes between a channel's weights; equal to the bytes of data per tap, so that one register addresses both."""
UNIFIED = ".syntax unified"
TAP = 2 + 2 * WORDS
"""Instructions per tap."""
_UNROLL = 8


def tap_loop(taps: int) -> TapLoop:
    """Straight-line code for few taps, else loop bodies of eight."""
    return TapLoop(0, taps) if taps <= 2 * _UNROLL else TapLoop(_UNROLL, taps % _UNROLL)


@cache
def mul_lanes(loop: TapLoop) -> TensorIntrin:
    """acc[4] += the words of `taps` taps times a channel's weights.

    Operands: w int8, one every `STRIDE` bytes; x int32[4 * taps]; acc uint32[4]; taps, which must suit `loop`.  10 instructions
    per tap: LDRSB, LDMIA, four MULS in place, four ADD to high registers.  The weights' pointer is kept as its distance from x,
    so LDMIA advances both.
    """
    taps = Var("taps")
    b = IRBuilder(f"mul_lanes_{loop.unroll}_{loop.rest}")
    w = b.input("w", (UNKNOWN_EXTENT,), "int8")
    x = b.input("x", (UNKNOWN_EXTENT,), "int32", align=4)
    acc = b.output("acc", (WORDS,), "uint32")
    with b.for_("k", taps if loop.unroll else loop.rest) as k:
        weight = b.let("weight", cast("uint32", cast("int32", w[k * STRIDE])))
        for i in range(WORDS):
            b.store(acc, i, acc[i] + weight * cast("uint32", x[k * WORDS + i]))
    desc = replace(b.finish(), scalars=(taps,))
    return TensorIntrin(f"arm_v6m.{desc.name}", desc, lambda ops: _emit(ops, loop), requires="v6m")


def _emit(operands: Mapping[str, COperand], loop: TapLoop) -> BlockText:
    step = ["ldrsb r4, [%[w], %[x]]", "ldmia %[x]!, {r0, r1, r2, r3}"]
    for i in range(WORDS):
        step += [f"muls r{i}, r4, r{i}", f"add %[a{i}], r{i}"]
    text: list[str | Repeat] = [UNIFIED]
    if loop.unroll:
        text += ["1:", Repeat(loop.unroll, step), "cmp %[x], %[end]", "bne 1b"]
    text += [Repeat(loop.rest, step)] if loop.rest else []
    looped = operands["taps"].value + (f" - {loop.rest}" if loop.rest else "")
    return AsmBlock(
        [
            f"const void *aot_x = {operands['x'].pointer};",
            f"const uintptr_t aot_w = (uintptr_t){operands['w'].pointer} - (uintptr_t)aot_x;",
            *([f"const void *const aot_end = (const uint8_t *)aot_x + {STRIDE} * ({looped});"] if loop.unroll else []),
        ],
        text,
        outs=[*(f'[a{i}] "+h"({s})' for i, s in enumerate(operands["acc"].scalars)), '[x] "+l"(aot_x)'],
        ins=['[w] "l"(aot_w)', *(['[end] "h"(aot_end)'] if loop.unroll else [])],
        clobbers=["r0", "r1", "r2", "r3", "r4"],
    ).emit()
