"""Two products in one 64-bit multiply-accumulate, for one row of data: two channels' weights share a word, 2^23 apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, cast, imm
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_dsp.chain.intrin import TapLoop
from aot.topi.intrin.asm_text import AsmBlock, Repeat

BITS = 23
OFFSET = 1 << (BITS - 1)
"""Start value of the low lanes, which have to stay within [-OFFSET, OFFSET)."""
CHANNELS = 4
STEP = 2
"""Taps of a turn: four words of weights, two of data."""
STEP_INSTRUCTIONS = 6
_UNROLL = 16


def tap_loop(taps: int) -> TapLoop:
    """Straight code for few taps, else bodies of 16; `taps` is a multiple of STEP."""
    return TapLoop(0, taps) if taps < 2 * _UNROLL else TapLoop(_UNROLL, taps % _UNROLL)


@cache
def smlal_pairs(loop: TapLoop) -> TensorIntrin:
    """acc[2] += words of `taps` taps: 4 channels (two words a tap) by one row.

    Operands: w int32[2 * taps], x int32[taps], acc uint32[4] (two accumulators as low and high words), and taps, which `loop`
    has to accept.  6 instructions for eight products.
    """
    taps = Var("taps")
    b = IRBuilder(f"smlal_pairs_{loop.unroll}_{loop.rest}")
    w = b.input("w", (UNKNOWN_EXTENT,), "int32", align=4)
    x = b.input("x", (UNKNOWN_EXTENT,), "int32", align=4)
    acc = b.output("acc", (4,), "uint32")
    wide = b.local("wide", (2,), "int64")
    for i in range(2):
        b.store(wide, i, (cast("uint64", acc[2 * i + 1]) << imm(32, "uint64")) | cast("uint64", acc[2 * i]))
    with b.for_("k", taps if loop.unroll else loop.rest) as k:
        value = b.let("value", cast("int64", x[k]))
        for i in range(2):
            b.store(wide, i, wide[i] + cast("int64", w[2 * k + i]) * value)
    for i in range(2):
        b.store(acc, 2 * i, cast("uint32", wide[i]))
        b.store(acc, 2 * i + 1, cast("uint32", wide[i] >> imm(32, "int64")))
    desc = replace(b.finish(), scalars=(taps,))
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: _emit(ops, loop), requires="thumb2")


def _emit(operands: Mapping[str, COperand], loop: TapLoop) -> BlockText:
    step = ["ldmia %[wp]!, {r4, r5, r6, r8}", "ldrd %[x0], %[x1], [%[xp]], #8"]
    step += [
        f"smlal %[a{i}l], %[a{i}h], {w}, %[x{t}]"
        for t, pair in enumerate((("r4", "r5"), ("r6", "r8")))
        for i, w in enumerate(pair)
    ]
    text: list[str | Repeat] = []
    if loop.unroll:
        text += ["1:", Repeat(loop.unroll // STEP, step), "cmp %[xp], %[end]", "bne 1b"]
    text += [Repeat(loop.rest // STEP, step)] if loop.rest else []
    names = ("a0l", "a0h", "a1l", "a1h")
    outs = [f'[{n}] "+r"({s})' for n, s in zip(names, operands["acc"].scalars, strict=True)]
    outs += [f'[{n}] "=&r"(aot_{n})' for n in ("x0", "x1")] + [f'[{n}] "+r"(aot_{n})' for n in ("wp", "xp")]
    end = f"const void *const aot_end = (const uint8_t *)aot_xp + 4 * ({operands['taps'].value} - {loop.rest});"
    return AsmBlock(
        [
            f"const void *aot_wp = {operands['w'].pointer};",
            f"const void *aot_xp = {operands['x'].pointer};",
            *([end] if loop.unroll else []),
            "uint32_t aot_x0, aot_x1;",
        ],
        text,
        outs=outs,
        ins=['[end] "r"(aot_end)'] if loop.unroll else [],
        clobbers=["r4", "r5", "r6", "r8"],
    ).emit()


def pair_sums(b: IRBuilder, acc: Buffer, pair: int) -> tuple[Expr, Expr]:
    """The sums of two channels; that of the first is too large by OFFSET."""
    low, high = acc[2 * pair], acc[2 * pair + 1]
    first = b.let("first", cast("int32", low & imm((1 << BITS) - 1, "uint32")))
    return first, b.let("second", cast("int32", (low >> imm(BITS, "uint32")) | (high << imm(32 - BITS, "uint32"))))
