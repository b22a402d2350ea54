"""The SMLAL chain: three products in one 64-bit multiply-accumulate, on every core with SMLAL (Armv7-M and later,
also without DSP).

Two 8-bit numbers share a word, z = 2^21 apart.  With weight words a + b*z (two output channels) and data words p +
q*z, q + r*z (three pixels), (a + b z)(p + q z) = a p + (a q + b p) z + b q z^2, and likewise for the other word, so
two SMLAL do six multiply-accumulates. Every lane has to stay below 2^20 in magnitude; the low and the middle lane
start at 2^20, so that they never borrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, cast, imm
from aot.tir.intrin import BlockText, COperand, Intrin, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock, Repeat

LANE_BITS = 21
LANE_OFFSET = 1 << 20
"""Start value of the low and middle lanes."""

INIT_LOW = LANE_OFFSET
INIT_HIGH = 1 << (20 + LANE_BITS - 32)


def _mid(lo: int, hi: int) -> int:
    return (lo >> LANE_BITS) | ((hi & 0x3FF) << 11)


CHAIN_MID = Intrin("chain_mid", ("uint32", "uint32"), "uint32", "aot_chain_mid({0}, {1})", _mid, header="aot/chain.h")


MAX_UNROLL = 16
"""Taps in the body of the loop at most; up to as many there is no loop."""


@dataclass(frozen=True, slots=True)
class TapLoop:
    """How the block runs over its taps: bodies of `unroll` taps in a loop (0: no loop), then `rest` taps."""

    unroll: int
    rest: int = 0

    def accepts(self, taps: int) -> bool:
        """Whether `taps` can be covered (the loop runs at least once)."""
        looped = taps - self.rest
        return looped == 0 if self.unroll == 0 else looped > 0 and looped % self.unroll == 0

    def instructions(self, taps: int) -> int:
        """Executed by the block."""
        return 6 * taps + (3 * ((taps - self.rest) // self.unroll) + 3 if self.unroll else 0)


def best_tap_loop(taps: int) -> TapLoop:
    """No loop up to MAX_UNROLL taps, else the largest divisor up to it as body."""
    if taps <= MAX_UNROLL:
        return TapLoop(0, taps)
    return TapLoop(max(u for u in range(1, MAX_UNROLL + 1) if taps % u == 0))


def common_tap_loop(taps: int) -> TapLoop:
    """Bodies of 8 taps and a rest of less than 8, so that few forms serve all layers."""
    return TapLoop(0, taps) if taps < 8 else TapLoop(8, taps % 8)


@cache
def smlal_chain(loop: TapLoop) -> TensorIntrin:
    """acc[4] += words of `taps` taps: 4 channels (two words a tap) by 3 pixels (two words a tap).

    Operands: w int32[2 * taps], x int32[2 * taps], acc uint32[8] (the accumulators (a,pq) (a,qr) (b,pq) (b,qr) as low
    and high words), and taps, which `loop` has to accept.
    """
    taps = Var("taps")
    b = IRBuilder(f"smlal_chain_{loop.unroll}_{loop.rest}")
    w = b.input("w", (UNKNOWN_EXTENT,), "int32", align=4)
    x = b.input("x", (UNKNOWN_EXTENT,), "int32", align=4)
    acc = b.output("acc", (8,), "uint32")
    wide = b.local("wide", (4,), "int64")
    for i in range(4):
        joined = (cast("uint64", acc[2 * i + 1]) << imm(32, "uint64")) | cast("uint64", acc[2 * i])
        b.store(wide, i, joined)
    with b.for_("k", taps if loop.unroll else loop.rest) as k:
        words = [cast("int64", w[2 * k + i]) for i in range(2)]
        pixels = [cast("int64", x[2 * k + i]) for i in range(2)]
        for i in range(4):
            b.store(wide, i, wide[i] + words[i // 2] * pixels[i % 2])
    for i in range(4):
        b.store(acc, 2 * i, cast("uint32", wide[i]))
        b.store(acc, 2 * i + 1, cast("uint32", wide[i] >> imm(32, "int64")))
    desc = replace(b.finish(), scalars=(taps,))
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: _emit_chain(ops, loop), requires="thumb2")


def _emit_chain(operands: Mapping[str, COperand], loop: TapLoop) -> BlockText:
    acc = operands["acc"].scalars
    names = [f"{c}{i}{h}" for c in "ab" for i in "01" for h in "lh"]
    step = ["ldrd %[w0], %[w1], [%[wp]], #8", "ldrd %[x0], %[x1], [%[xp]], #8"]
    step += [f"smlal %[{c}{i}l], %[{c}{i}h], %[w{j}], %[x{i}]" for j, c in enumerate("ab") for i in "01"]
    text: list[str | Repeat] = []
    if loop.unroll:
        text += ["1:", Repeat(loop.unroll, step), "ldr %[w0], %[end]", "cmp %[xp], %[w0]", "bne 1b"]
    if loop.rest:
        text.append(Repeat(loop.rest, step))
    outs = [f'[{n}] "+r"({s})' for n, s in zip(names, acc, strict=True)]
    outs += [f'[{n}] "=&r"(aot_{n})' for n in ("w0", "w1", "x0", "x1")] + [f'[{n}] "+r"(aot_{n})' for n in ("wp", "xp")]
    looped = operands["taps"].value + (f" - {loop.rest}" if loop.rest else "")
    return AsmBlock(
        [
            f"const void *aot_wp = {operands['w'].pointer};",
            f"const void *aot_xp = {operands['x'].pointer};",
            *([f"const void *const aot_end = (const uint8_t *)aot_xp + 8 * ({looped});"] if loop.unroll else []),
            "uint32_t aot_w0, aot_w1, aot_x0, aot_x1;",
        ],
        text,
        outs=outs,
        ins=['[end] "m"(aot_end)'] if loop.unroll else [],
    ).emit()


def chain_lanes(b: IRBuilder, acc: tuple[Expr, Expr, Expr, Expr]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The six sums of one channel pair from its two accumulators (low, high, low, high): pixels p, q, r of channel a and of b.

    Those of channel a are too large by LANE_OFFSET, which the bias takes back.
    """
    low0, high0, low1, high1 = acc
    mask = imm((1 << LANE_BITS) - 1, "uint32")
    ap = b.let("ap", cast("int32", low0 & mask))
    aq = b.let("aq", cast("int32", low1 & mask))
    bq = b.let("bq", cast("int32", high0) >> 10)
    br = b.let("br", cast("int32", high1) >> 10)
    bp = b.let("bp", cast("int32", CHAIN_MID(low0, high0)) - aq)
    ar = b.let("ar", cast("int32", CHAIN_MID(low1, high1)) - bq)
    return (ap, aq, ar), (bp, bq, br)
