"""4-bit weights that stay packed in flash: eight taps per word, eight 16-bit products.

Two weights n0, n1 in [-8, 7] are the byte B = 16 n1 + u0, where u0 = n0 + 8 is in [0, 15].  With e = x0 + 128 in [0, 255] and

    X = x1      and      Y = 16 e - x1  in [-127, 4208]

B X + u0 Y = 16 n1 x1 + 16 (n0 + 8) e.  So a sum of these, less 128 times the sum of all e, is 16 times the sum of n1 x1 + n0 x0 +
128 n0. SXTB16 of a word extracts two bytes B, and AND with 0x000f000f then both u0: two instructions and two SMLAD for four taps.

The sum of the e is the same for all channels, and the packing of the data computes it on the way; the term with n0 is folded into
the bias.  Sums are modulo 2^32, so only the final one has to fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from aot.ir.op import Array
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, cast
from aot.tir.intrin import BlockText, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.arm_dsp.int8_weights import OPERANDS, TAPS, QuadLoop, Weights, WordForm, word_block
from aot.topi.layer.fused import FusedLayer

WORD_TAPS = 8
"""Taps per word of weights: two quads of data."""

PRESCALE = 4
"""Accumulators are scaled by 2^4."""

LOW, HIGH = -8, 7
"""Range of the weights."""

OFFSET = 128
"""Added to the data of even taps."""

_UNSIZED = (UNKNOWN_EXTENT,)
_LOW_NIBBLES = "#0x000f000f"


def nibble_words(weights: Array) -> Array:
    """Pack values [..., K] in [-8, 7], K a multiple of 8, as int16 numbers [..., K / 4].

    The bytes of a word hold taps 0 and 1, 4 and 5, 2 and 3, 6 and 7: bytes 0 and 2 meet the first quad of data.
    """
    pairs = weights.reshape(*weights.shape[:-1], -1, 4, 2).astype(np.int64)[..., [0, 2, 1, 3], :]
    packed = (pairs[..., 1] & 15) * 16 + pairs[..., 0] + 8
    words: Array = (packed[..., 0::2] + 256 * packed[..., 1::2]).astype(np.uint16).view(np.int16)
    return words.reshape(*weights.shape[:-1], -1)


def nibble_bias_words(bias: Array, weights: Array) -> Array:
    """Return the start values int32[O] for weights [O, K]: 16 * (bias without the even taps' offset), modulo 2^32."""
    total = 16 * (bias.astype(np.int64) - OFFSET * weights[:, 0::2].astype(np.int64).sum(axis=1))
    start: Array = (total & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    return start


@cache
def pack_w4(pixels: int, unroll: int) -> TensorIntrin:
    """Pack one pixel: 4 * quads bytes at any address -> per quad the words {X1, X3} and, `pixels` words further, {Y0, Y2}.

    Operands: x int8[4 * quads]; words int16 in groups of 4 * pixels, of which two and two are written; sums int32[1]; quads, a
    multiple of `unroll`.  128 times the sum of x0 + 128 over the even taps is subtracted from `sums`, modulo 2^32.
    """
    b = IRBuilder(f"pack_w4_p{pixels}_u{unroll}")
    quads = Var("quads")
    x = b.input("x", _UNSIZED, "int8")
    words = b.output("words", _UNSIZED, "int16", align=4)
    sums = b.output("sums", _UNSIZED, "int32", align=4)
    with b.for_("q", quads) as q:
        values = [b.let("v", cast("int32", x[q * TAPS + i])) for i in range(TAPS)]
        store_quad(b, region(words, q * (4 * pixels)), region(sums), values, pixels)
    desc = replace(b.finish(), scalars=(quads,))
    # Read four bytes, then write eight, quad by quad: the order of the assembly.
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: _emit_pack(pixels, QuadLoop(ops, unroll)), ordered=True)


def store_quad(b: IRBuilder, words: Region, sums: Region | None, values: Sequence[Expr], pixels: int) -> None:
    """Store the data words of up to four values in the order of pack_w4, padded with zeros."""
    assert sums is not None
    evens = [b.let("even", v + OFFSET) for v in values[0::2]]
    for i, even in enumerate(evens):
        odd = values[2 * i + 1] if 2 * i + 1 < len(values) else None
        b.store(words.buffer, words.index + i, 0 if odd is None else odd)
        b.store(words.buffer, words.index + (2 * pixels + i), even * 16 if odd is None else even * 16 - odd)
    for i in range(len(evens), 2):
        b.store(words.buffer, words.index + i, 0)
        b.store(words.buffer, words.index + (2 * pixels + i), 0)
    total = evens[0] + evens[1] if len(evens) > 1 else evens[0]
    b.store(sums.buffer, sums.index, cast("int32", cast("uint32", sums.buffer[sums.index]) - cast("uint32", total * OFFSET)))


def _emit_pack(pixels: int, loop: QuadLoop) -> BlockText:
    """Emit pack_w4. SMLAD by -8 subtracts 16 e of both even taps from the sum before Y overwrites it."""
    store = ["str %[y], [%[d], #" + str(4 * pixels) + "]", f"str %[x], [%[d]], #{8 * pixels}"]
    step = [
        "ldr %[v], [%[s]], #4",
        "sxtb16 %[x], %[v], ror #8",
        "eor %[v], %[v], #0x00800080",
        "and %[y], %[mask], %[v], lsl #4",
        "smlad %[n], %[y], %[m8], %[n]",
        "ssub16 %[y], %[y], %[x]",
        *(store if pixels > 1 else ["strd %[x], %[y], [%[d]], #8"]),
    ]
    ins = {"sums": "aot_sums", "mask": "0x0ff00ff0u", "m8": "0xfff8fff8u"}
    sums = [f"void *const aot_sums = {loop.block['sums'].pointer};"]
    around = ["ldr %[n], [%[sums]]"], ["str %[n], [%[sums]]"]
    return loop.asm(step, "s=x >d=words", TAPS, temporaries="vxyn", ins=ins, before=sums, around=around)


@cache
def dot_w4(channels: int, unroll: int, rest: int = 0) -> TensorIntrin:
    """One pixel x up to four channels: acc[c] += the words' sums of B X + u0 Y, modulo 2^32.

    Operands: w int16 as [quads, channels, 2] from nibble_words; x int16 as [quads, 2, 4] from pack_w4(1); acc int32[channels];
    quads (here words of weights), a multiple of `unroll`, or any number if `rest` is 1.  Four channels: 16 SMLAD, 16 instructions
    to unpack, LDM and two LDRD for 32 multiply-accumulates.
    """

    def meaning(b: IRBuilder, w: Buffer, x: Buffer, acc: Buffer, q: Expr) -> None:
        with b.for_("c", channels, kind="unroll") as c:
            _accumulate(b, (acc, c), w=(w, (q * channels + c) * 2), x=(x, q * 8), pixels=1)

    return word_block(f"dot_w4_c{channels}", (unroll, rest), channels, meaning, lambda loop: _emit_dot(channels, loop))


@cache
def matmul_w4(unroll: int, rest: int = 0) -> TensorIntrin:
    """Three pixels x two channels: acc[c, p] += the words' sums of B X + u0 Y, modulo 2^32.

    Operands: w int16 as [quads, 2, 2] from nibble_words; x int16 as [quads, 2, 12] from pack_w4(3); acc int32[6]; quads as in
    dot_w4. 24 SMLAD, 8 instructions to unpack and 9 loads for 48 multiply-accumulates, using all 14 registers.
    """

    def meaning(b: IRBuilder, w: Buffer, x: Buffer, acc: Buffer, q: Expr) -> None:
        with b.for_("c", 2, kind="unroll") as c, b.for_("p", 3, kind="unroll") as p:
            _accumulate(b, (acc, c * 3 + p), w=(w, (q * 2 + c) * 2), x=(x, q * 24 + p * 2), pixels=3)

    return word_block("matmul_w4", (unroll, rest), 6, meaning, _emit_matmul)


def _accumulate(b: IRBuilder, acc: tuple[Buffer, Expr], *, w: tuple[Buffer, Expr], x: tuple[Buffer, Expr], pixels: int) -> None:
    """acc += the eight products of a word: low bytes of its halves with the first quad of data, high bytes with the second."""
    total: Expr | None = None
    for lane in range(2):
        half = b.let("half", cast("int32", w[0][w[1] + lane]))
        for quad, byte in enumerate((cast("int32", cast("int8", half)), half >> 8)):
            at = x[1] + (quad * 4 * pixels + lane)
            products = byte * cast("int32", x[0][at]) + (byte & 15) * cast("int32", x[0][at + 2 * pixels])
            total = products if total is None else total + products
    assert total is not None
    b.store(*acc, cast("int32", cast("uint32", acc[0][acc[1]]) + cast("uint32", total)))


def _emit_dot(channels: int, loop: QuadLoop) -> BlockText:
    """Emit dot_w4. LDM needs ascending registers, so they are fixed."""
    words = [f"r{8 + c}" for c in range(channels)]
    step = [f"ldmia %[wp]!, {{{', '.join(words)}}}" if channels > 1 else "ldr r8, [%[wp]], #4"]
    for rotation in ("", ", ror #8"):
        step.append("ldrd r12, lr, [%[xp]], #8")
        for c, word in enumerate(words):
            step += [f"sxtb16 %[t], {word}{rotation}", f"smlad %[a{c}], %[t], r12, %[a{c}]"]
            step += [f"and %[t], %[t], {_LOW_NIBBLES}", f"smlad %[a{c}], %[t], lr, %[a{c}]"]
    return loop.asm(step, OPERANDS, 4 * TAPS, acc="a", temporaries="t", clobbers=[*words, "r12", "lr"], spare="%[t]")


def _emit_matmul(loop: QuadLoop) -> BlockText:
    """Emit matmul_w4. Data words come in pairs, so the third pixel's pair reuses a register of the first two."""
    step = ["ldrd %[w0], %[w1], [%[wp]], #8"]
    for rotation in ("", ", ror #8"):
        for part in range(2):
            for c in range(2):
                unpack = f"and %[t{c}], %[t{c}], {_LOW_NIBBLES}" if part else f"sxtb16 %[t{c}], %[w{c}]{rotation}"
                step.append(unpack)
            step.append("ldrd %[x0], %[x1], [%[xp]], #8")
            step += [f"smlad %[a{3 * c + p}], %[t{c}], %[x{p}], %[a{3 * c + p}]" for p in range(2) for c in range(2)]
            step.append("ldr %[x0], [%[xp]], #4")
            step += [f"smlad %[a{3 * c + 2}], %[t{c}], %[x0], %[a{3 * c + 2}]" for c in range(2)]
    return loop.asm(step, OPERANDS, 12 * TAPS, acc="a", temporaries=("w0", "w1", "t0", "t1", "x0", "x1"), spare="%[w0]")


def fits_nibbles(layer: FusedLayer) -> bool:
    """Whether the model has 4-bit weights that, less their zero point, are in [-8, 7]."""
    return layer.weight_dtype == "int4" and int(layer.weight.min()) >= LOW and int(layer.weight.max()) <= HIGH


NIBBLES = WordForm(WORD_TAPS, nibble_words, nibble_bias_words, PRESCALE, fits_nibbles)

W4 = Weights("w4", NIBBLES, 4, pack_w4, store_quad, dot_w4, matmul_w4, pixel_step=2, pack_cost=(8, 20, 18), sums=True)
