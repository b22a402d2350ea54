"""A row of bytes by six or three channels for Armv6-M; channels share words, three in two (arithmetic: lanes.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var, cast
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_v6m.lanes import UNIFIED
from aot.topi.intrin.asm_text import AsmBlock
from aot.topi.layer.im2col import TapLoop

UNROLL = 12
"""Taps in the body of the loop: as many as a conditional branch can jump over."""


def tap_cost(words: int) -> int:
    """Instructions per tap of the channels that share this many words."""
    return 2 + 2 * words


def tap_loop(taps: int) -> TapLoop:
    """Straight-line code for few taps."""
    return TapLoop(0, taps) if taps < 2 * UNROLL else TapLoop(UNROLL, taps % UNROLL)


@cache
def dot_words(loop: TapLoop, words: int) -> TensorIntrin:
    """acc[words] += words of weights times a row: six channels in four words, or three in two.

    Operands: w int32[words * taps]; x uint8[taps]; acc uint32[words]; taps, which must suit `loop`.  `tap_cost` instructions per
    tap.
    """
    taps = Var("taps")
    b = IRBuilder(f"dot_{'words' if words == 4 else 'pair'}_{loop.unroll}_{loop.rest}")
    w = b.input("w", (UNKNOWN_EXTENT,), "int32", align=4)
    x = b.input("x", (UNKNOWN_EXTENT,), "uint8")
    acc = b.output("acc", (words,), "uint32")
    with b.for_("k", taps if loop.unroll else loop.rest) as k:
        value = b.let("value", cast("uint32", x[k]))
        for i in range(words):
            b.store(acc, i, acc[i] + cast("uint32", w[k * words + i]) * value)
    desc = replace(b.finish(), scalars=(taps,))
    return TensorIntrin(f"arm_v6m.{desc.name}", desc, lambda ops: _emit(ops, loop), requires="v6m")


def _step(k: int, words: int) -> list[str]:
    step = [f"ldmia %[w]!, {{{', '.join(f'r{i}' for i in range(words))}}}", f"ldrb r4, [%[x], #{k}]"]
    for i in range(words):
        step += [f"muls r{i}, r4, r{i}", f"add %[a{i}], r{i}"]
    return step


def _emit(operands: Mapping[str, COperand], loop: TapLoop) -> BlockText:
    text, words = [UNIFIED], len(operands["acc"].scalars)
    if loop.unroll:
        body = [line for k in range(loop.unroll) for line in _step(k, words)]
        text += ["1:", *body, f"adds %[x], #{loop.unroll}", "cmp %[x], %[end]", "bne 1b"]
    text += [line for k in range(loop.rest) for line in _step(k, words)]
    end = f"const void *const aot_end = (const uint8_t *)aot_x + ({operands['taps'].value} - {loop.rest});"
    return AsmBlock(
        [
            f"const void *aot_w = {operands['w'].pointer};",
            f"const void *aot_x = {operands['x'].pointer};",
            *([end] if loop.unroll else []),
        ],
        text,
        outs=[*(f'[a{i}] "+h"({s})' for i, s in enumerate(operands["acc"].scalars)), '[w] "+l"(aot_w)', '[x] "+l"(aot_x)'],
        ins=['[end] "h"(aot_end)'] if loop.unroll else [],
        clobbers=[*(f"r{i}" for i in range(words)), "r4"],
    ).emit()
