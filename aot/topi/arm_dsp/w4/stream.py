"""What the kernels of 4-bit weights share: their words, the requantisation, and the packing of data (see w4/intrin.py)."""

from __future__ import annotations

from aot.ir.op import Array
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm
from aot.tir.stmt import Region
from aot.topi.arm_dsp.w4.intrin import HIGH, LOW, PRESCALE, WORD_TAPS, nibble_bias_words, nibble_words, pack_w4, store_quad
from aot.topi.arm_dsp.w8.intrin import TAPS
from aot.topi.arm_dsp.w8.stream import QuadPlan, WordForm, arrange, plan_quads
from aot.topi.arm_dsp.w8.window import pack_unroll
from aot.topi.layer.fused import FusedLayer
from aot.topi.layer.requant import HighMultiply, plan_high_multiply
from aot.topi.layer.threshold import plan_uniform

NIBBLES = WordForm(WORD_TAPS, nibble_words, nibble_bias_words)

QUADS = WORD_TAPS // TAPS
"""Quads of data to a word of weights."""

MAX_UNROLL = 4
"""Words in the body of a loop."""

COMMON_UNROLL = 2
"""Of kernels that layers of different size share."""


def plan_w4(layer: FusedLayer, target: Target) -> HighMultiply | None:
    """Requantisation of accumulators times 16, of layers that keep 4-bit weights; those less their zero point lie in [-8, 7]."""
    if layer.weight_dtype != "int4" or int(layer.weight.min()) < LOW or int(layer.weight.max()) > HIGH:
        return None
    return plan_high_multiply(layer.requant, layer.acc_low, layer.acc_high, target=target, prescale=PRESCALE)


def best_requant_w4(layer: FusedLayer, target: Target, *, common: bool) -> HighMultiply:
    """For a layer that plan_w4 takes: with one shift for all channels where that is exact, unless code is shared."""
    requant = plan_w4(layer, target)
    assert requant is not None
    if common or requant.fields[-1].uniform:
        return requant
    return plan_uniform(layer.requant, layer.acc_low, layer.acc_high, target=target, prescale=PRESCALE) or requant


def plan_nibbles(quads: int, *, cost: int, common: bool) -> QuadPlan:
    """The words for `quads` quads of data; `cost`: instructions of a word."""
    return plan_quads(-(-quads // QUADS), cost=cost, common=common, most=COMMON_UNROLL if common else MAX_UNROLL)


def arrange_nibbles(weights: Array, runs: int, plan: QuadPlan) -> Array:
    """As `arrange`, [O, 8 * plan.quads]."""
    return arrange(weights, runs, QuadPlan(QUADS * plan.quads, 1))


def run_instructions_w4(length: int, *, unroll: int = 4) -> int:
    """Of packing one run (from counts under QEMU)."""
    whole, rest = divmod(length, TAPS)
    loops = whole // min(unroll, pack_unroll(whole)) if whole > unroll else 0
    return whole * 8 + 2 * loops + 20 + (18 if rest else 0)


def pack_run_w4(
    b: IRBuilder, source: tuple[Buffer, Expr], length: int, *, words: Region, sums: Region, pixels: int, unroll: int = 4
) -> None:
    """Pack `length` bytes from (buffer, start) on into the quads from `words` on; the order is that of run_taps."""
    data, start = source
    whole, step = length // TAPS, TAPS * pixels
    if whole:
        b.block(pack_w4(pixels, min(unroll, pack_unroll(whole))), region(data, start), words, sums, imm(whole))
    if length % TAPS and whole:
        last = region(words.buffer, words.index + whole * step)
        b.block(pack_w4(pixels, 1), region(data, start + (length - TAPS)), last, sums, imm(1))
    elif length % TAPS:
        values: list[Expr] = [b.let("v", cast("int32", data.load("int8", start + i))) for i in range(length)]
        store_quad(b, (words.buffer, words.index), (sums.buffer, sums.index), values, pixels=pixels)
