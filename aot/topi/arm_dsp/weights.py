"""Packed weights of int8 layers: int8 weights stay one byte each in flash, 4-bit weights half a byte; SMLAD on 16-bit numbers.

Blocks of assembly for both forms (W8, W4), packing of data, and the stream of a layer's constants.

**W8**, six 16-bit products per four taps.  Two weights b0, b1 are stored as the 16-bit number 256 * b1 + b0, so one 32-bit word,
here called a quad, holds four taps.  With

    X = x1 - 127  in [-255, 0]      and      Y = 256 * x0 - X  in [-32768, 32767]

(256 b1 + b0) X + b0 Y = 256 (b0 x0 + b1 (x1 - 127)) exactly.  SMLAD multiplies both halves of a word, and SXTB16 extracts both b0
of a word, so one SXTB16 and two SMLAD do four taps: nearly the speed of 16-bit weights at half the flash.  The term with 127 is
folded into the bias.  Weights are in [-127, 127], because b1 = -128 would leave no room for a negative b0.

**W4**, eight taps per word, eight products.  Two weights n0, n1 in [-8, 7] are the byte B = 16 n1 + u0, where u0 = n0 + 8 is in
[0, 15].  With e = x0 + 128 in [0, 255] and

    X = x1      and      Y = 16 e - x1  in [-127, 4208]

B X + u0 Y = 16 n1 x1 + 16 (n0 + 8) e.  So a sum of these, less 128 times the sum of all e, is 16 times the sum of n1 x1 + n0 x0 +
128 n0. SXTB16 of a word extracts two bytes B, and AND with 0x000f000f then both u0: two instructions and two SMLAD for four taps.
The sum of the e is the same for all channels, and the packing of the data computes it on the way; the term with n0 is folded into
the bias.

Sums are modulo 2^32, so only the final one has to fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial, reduce
from operator import add

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, cast, imm
from aot.tir.intrin import BlockText, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.intrin.asm_text import Operands, Repeat, asm, block_of
from aot.topi.layer.fused import FusedLayer
from aot.topi.layer.requant import HighMultiply, Requant, plan_high_multiply, plan_uniform

TAPS = 4
"""Taps per quad: four bytes of data, or a word of int8 weights."""

PRESCALE, PRESCALE_W4 = 8, 4
"""Accumulators are scaled by 2^8, and with 4-bit weights by 2^4."""

OFFSET, OFFSET_W4 = 127, 128
"""Subtracted from the data of odd taps; with 4-bit weights, added to the data of even taps."""

OPERANDS = "wp=w xp=x"
"""How the assembly of products names its pointers to weights and data."""

_UNSIZED = (UNKNOWN_EXTENT,)
_LOW_NIBBLES = "#0x000f000f"


def words32(values: Array) -> Array:
    """Return int64 values modulo 2^32, as int32."""
    words: Array = (values & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    return words


def _sums(weights: Array) -> Array:
    sums: Array = weights.astype(np.int64).sum(axis=1)
    return sums


def weight_words(weights: Array) -> Array:
    """Pack values [..., K] in [-127, 127], K a multiple of 4, as int16 numbers [..., K / 2]."""
    pairs = weights.reshape(*weights.shape[:-1], -1, 2).astype(np.int64)
    words: Array = (256 * pairs[..., 1] + pairs[..., 0]).astype(np.uint16).view(np.int16)
    return words


def bias_words(bias: Array, weights: Array) -> Array:
    """Return the accumulators' start values int32[O] for weights [O, K]: 256 * (bias + offset of the odd taps), modulo 2^32."""
    return words32(256 * (bias.astype(np.int64) + OFFSET * _sums(weights[:, 1::2])))


def direct_bias_words(bias: Array, weights: Array) -> Array:
    """As bias_words, for dot_w8_direct and weights [O, K] in the order of `swapped`."""
    return words32(256 * bias.astype(np.int64) - OFFSET * _sums(weights[:, 0::2]))


def swapped(weights: Array) -> Array:
    """Exchange the two values of each pair of [..., K], the order that dot_w8_direct needs."""
    pairs: Array = weights.reshape(*weights.shape[:-1], -1, 2)[..., ::-1].reshape(weights.shape)
    return pairs


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
    return words32(16 * (bias.astype(np.int64) - OFFSET_W4 * _sums(weights[:, 0::2])))


# ---- blocks of int8 weights ----


@cache
def pack_w8(pixels: int, unroll: int) -> TensorIntrin:
    """Pack one pixel: 4 * quads bytes at any address -> per quad the words {X1, X3} and {Y0, Y2}.

    Operands: x int8[4 * quads]; words int16 in groups of 4 * pixels, whose first four are written; quads, a multiple of
    `unroll`.  The core must allow unaligned LDR, as Armv7E-M and Armv8-M Main do for normal memory.
    """
    b = IRBuilder(f"pack_w8_p{pixels}_u{unroll}")
    quads = Var("quads")
    x = b.input("x", _UNSIZED, "int8")
    words = b.output("words", _UNSIZED, "int16", align=4)
    with b.for_("q", quads) as q:
        values = [b.let("v", cast("int32", x[q * TAPS + i])) for i in range(TAPS)]
        for i in range(2):
            odd = b.let("odd", values[2 * i + 1] - OFFSET)
            b.store(words, q * (4 * pixels) + i, odd)
            b.store(words, q * (4 * pixels) + (2 + i), values[2 * i] * 256 - odd)
    step = [
        *("ldr %[v], [%[s]], #4", "sxtb16 %[x], %[v], ror #8", "and %[y], %[mask], %[v], lsl #8"),
        *("ssub16 %[x], %[x], %[c127]", "ssub16 %[y], %[y], %[x]", f"strd %[x], %[y], [%[d]], #{8 * pixels}"),
    ]
    ins = {"mask": "0xff00ff00u", "c127": "0x007f007fu"}

    def emit(operands: Operands) -> BlockText:
        return QuadLoop(operands, unroll).asm(step, "s=x >d=words", TAPS, temporaries="vxy", ins=ins)

    # Read four bytes, then write eight, quad by quad: the order of the assembly.
    return block_of(b, "arm_dsp", emit, quads, ordered=True)


@cache
def dot_w8(channels: int, unroll: int, rest: int = 0) -> TensorIntrin:
    """One pixel x up to four channels: acc[c] += 256 * the sum of the quads' products, modulo 2^32.

    Operands: w int16 as [quads, channels, 2]; x int16 as [quads, 4] from pack_w8(1); acc int32[channels]; quads, a multiple of
    `unroll`, or any number if `rest` is 1.  Four channels: 8 SMLAD, 4 SXTB16, LDM and LDRD for 16 multiply-accumulates.
    """
    return word_block(f"dot_w8_c{channels}", (1, channels), (unroll, rest), _quad, partial(_emit_dot, channels))


@cache
def dot_w8_direct(channels: int, unroll: int, rest: int = 0) -> TensorIntrin:
    """As dot_w8, but for plain bytes at any address: acc[c] += 256 * sum of the quads' products + 127 * sum of the odd taps'
    weights.

    Operands: w int16 as [quads, channels, 2] of weights in the order of `swapped`; x int8[4 * quads]; acc int32[channels]; quads
    as in dot_w8.  With 256 * b0 + b1 in each half of a word, (256 b0 + b1) x0 + b1 (256 x1 + 127 - x0) = 256 (b0 x0 + b1 x1) +
    127 b1. SXTB16 extracts both x0; EOR with 0x7f turns the low byte x0 into 127 - x0 and leaves x1 above it.  So two
    instructions per quad replace the packing of the data.
    """
    b = IRBuilder(f"dot_w8_direct_c{channels}_u{unroll}" + "_rest" * rest)
    w = b.input("w", _UNSIZED, "int16", align=4)
    x = b.input("x", _UNSIZED, "int8")
    acc, quads = b.output("acc", (channels,), "int32"), Var("quads")
    with b.for_("q", quads) as q:
        values = [b.let("v", cast("int32", x[q * TAPS + i])) for i in range(TAPS)]
        both = [b.let("both", values[i + 1] * 256 + (OFFSET - values[i])) for i in (0, 2)]
        for c in range(channels):
            words = [b.let("word", cast("int32", w[(q * channels + c) * 2 + i])) for i in range(2)]
            first, second = (words[i] * values[2 * i] + cast("int32", cast("int8", words[i])) * both[i] for i in range(2))
            add_modulo(b, acc, c, first + second)
    return block_of(b, "arm_dsp", lambda ops: _emit_dot(channels, QuadLoop(ops, unroll, rest), size=TAPS), quads)


@cache
def matmul_w8(unroll: int, rest: int = 0) -> TensorIntrin:
    """Three pixels x two channels: acc[c, p] += 256 * the sum of the quads' products, modulo 2^32.

    Operands: w int16 as [quads, 2, 2]; x int16 as [quads, 3, 4] from pack_w8(3); acc int32[6]; quads, a multiple of `unroll`, or
    any number if `rest` is 1.  12 SMLAD, 2 SXTB16 and 4 LDRD for 24 multiply-accumulates, using all 14 registers.
    """
    step = ["ldrd %[w0], %[w1], [%[wp]], #8", "ldrd %[x0], %[x1], [%[xp]], #24", "sxtb16 %[s0], %[w0]", "sxtb16 %[s1], %[w1]"]
    for p in range(3):
        if p:
            step.append(f"ldrd %[x0], %[x1], [%[xp], #{8 * p - 24}]")
        step += [f"smlad %[a{3 * c + p}], %[{v}{c}], %[x{i}], %[a{3 * c + p}]" for i, v in enumerate("ws") for c in range(2)]

    def emit(loop: QuadLoop) -> BlockText:
        return loop.asm(step, OPERANDS, 24, acc="a", temporaries=("w0", "w1", "s0", "s1", "x0", "x1"), spare="%[w0]")

    return word_block("matmul_w8", (3, 2), (unroll, rest), _quad, emit)


Place = tuple[Expr, Expr, int]
"""Number of a word, of a pixel, and how many pixels there are."""

Products = Callable[[IRBuilder, Sequence[Expr], Buffer, Place], Expr]
"""(builder, loads of the two halves of a word of weights, data, place of the data) -> the sum of their products"""


def word_block(
    name: str, tile: tuple[int, int], loop: tuple[int, int], products: Products, emit: Callable[[QuadLoop], BlockText]
) -> TensorIntrin:
    """Build a block that adds the products of words of weights to the sums acc[c, p], modulo 2^32.

    `tile`: pixels and channels; `loop`: unroll and rest.
    """
    (pixels, channels), (unroll, rest), quads = tile, loop, Var("quads")
    b = IRBuilder(f"{name}_u{unroll}" + "_rest" * rest)
    w = b.input("w", _UNSIZED, "int16", align=4)
    x = b.input("x", _UNSIZED, "int16", align=4)
    acc = b.output("acc", (channels * pixels,), "int32")
    with b.for_("q", quads) as q, b.for_("c", channels, kind="unroll") as c:
        word = (q * channels + c) * 2
        with nullcontext(imm(0)) if pixels == 1 else b.for_("p", pixels, kind="unroll") as p:
            halves = [cast("int32", w[word + i]) for i in range(2)]
            add_modulo(b, acc, c * pixels + p, products(b, halves, x, (q, p, pixels)))
    return block_of(b, "arm_dsp", lambda ops: emit(QuadLoop(ops, unroll, rest)), quads)


def add_modulo(b: IRBuilder, acc: Buffer, at: Expr | int, value: Expr) -> None:
    """acc[at] += value, modulo 2^32."""
    b.store(acc, at, cast("int32", cast("uint32", acc[at]) + cast("uint32", value)))


def _quad(b: IRBuilder, halves: Sequence[Expr], x: Buffer, place: Place) -> Expr:
    """Return the two SMLAD of a quad: w[0..1] * X[0..1] + sign-extended low bytes of w * Y[0..1]."""
    q, p, pixels = place
    at, sums = (q * pixels + p) * 4, []
    for i, half in enumerate(halves):
        word = b.let("word", half)
        sums.append(word * cast("int32", x[at + i]) + cast("int32", cast("int8", word)) * cast("int32", x[at + (2 + i)]))
    return sums[0] + sums[1]


def _emit_dot(channels: int, loop: QuadLoop, *, size: int = 2 * TAPS) -> BlockText:
    """Emit dot_w8. LDM needs ascending registers, so they are fixed.  `size`: bytes of data per quad, packed or not."""
    words = [f"r{8 + c}" for c in range(channels)]
    load = f"ldmia %[wp]!, {{{', '.join(words)}}}" if channels > 1 else "ldr r8, [%[wp]], #4"
    plain = ["ldr r12, [%[xp]], #4", "eor lr, r12, #0x007f007f", "sxtb16 r12, r12"]
    step = [load, *(plain if size == TAPS else ["ldrd r12, lr, [%[xp]], #8"])]
    for c, word in enumerate(words):
        step += [f"smlad %[a{c}], {word}, r12, %[a{c}]", f"sxtb16 {word}, {word}", f"smlad %[a{c}], {word}, lr, %[a{c}]"]
    return loop.asm(step, OPERANDS, size, acc="a", clobbers=[*words, "r12", "lr"], spare="" if loop.single else "r8")


# ---- blocks of 4-bit weights ----


@cache
def pack_w4(pixels: int, unroll: int) -> TensorIntrin:
    """Pack one pixel: 4 * quads bytes at any address -> per quad the words {X1, X3} and, `pixels` words further, {Y0, Y2}.

    Operands: x int8[4 * quads]; words int16 in groups of 4 * pixels (two pairs of each); sums int32[1]; quads, a
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
    # SMLAD by -8 subtracts 16 e of both even taps from the sum before Y overwrites it.
    store = ["str %[y], [%[d], #" + str(4 * pixels) + "]", f"str %[x], [%[d]], #{8 * pixels}"]
    step = [
        *("ldr %[v], [%[s]], #4", "sxtb16 %[x], %[v], ror #8", "eor %[v], %[v], #0x00800080"),
        *("and %[y], %[mask], %[v], lsl #4", "smlad %[n], %[y], %[m8], %[n]", "ssub16 %[y], %[y], %[x]"),
        *(store if pixels > 1 else ["strd %[x], %[y], [%[d]], #8"]),
    ]
    ins, around = {"sums": "aot_sums", "mask": "0x0ff00ff0u", "m8": "0xfff8fff8u"}, ("ldr %[n], [%[sums]]", "str %[n], [%[sums]]")

    def emit(operands: Operands) -> BlockText:
        before = [f"void *const aot_sums = {operands['sums'].pointer};"]
        loop = QuadLoop(operands, unroll)
        return loop.asm(step, "s=x >d=words", TAPS, temporaries="vxyn", ins=ins, before=before, around=around)

    return block_of(b, "arm_dsp", emit, quads, ordered=True)


def store_quad(b: IRBuilder, words: Region, sums: Region | None, values: Sequence[Expr], pixels: int) -> None:
    """Store the data words of up to four values in the order of pack_w4, padded with zeros."""
    assert sums is not None
    evens = [b.let("even", v + OFFSET_W4) for v in values[0::2]]
    for i, even in enumerate(evens):
        odd = values[2 * i + 1] if 2 * i + 1 < len(values) else None
        b.store(words.buffer, words.index + i, 0 if odd is None else odd)
        b.store(words.buffer, words.index + (2 * pixels + i), even * 16 if odd is None else even * 16 - odd)
    for i in range(len(evens), 2):
        b.store(words.buffer, words.index + i, 0)
        b.store(words.buffer, words.index + (2 * pixels + i), 0)
    total = evens[0] + evens[1] if len(evens) > 1 else evens[0]
    b.store(sums.buffer, sums.index, cast("int32", cast("uint32", sums.buffer[sums.index]) - cast("uint32", total * OFFSET_W4)))


@cache
def dot_w4(channels: int, unroll: int, rest: int = 0) -> TensorIntrin:
    """One pixel x up to four channels: acc[c] += the words' sums of B X + u0 Y, modulo 2^32.

    Operands: w int16 as [quads, channels, 2] from nibble_words; x int16 as [quads, 2, 4] from pack_w4(1); acc int32[channels];
    quads (here words of weights), a multiple of `unroll`, or any number if `rest` is 1.  Four channels: 16 SMLAD, 16 instructions
    to unpack, LDM and two LDRD for 32 multiply-accumulates.
    """
    # LDM needs ascending registers, so they are fixed.
    words = [f"r{8 + c}" for c in range(channels)]
    step = [f"ldmia %[wp]!, {{{', '.join(words)}}}" if channels > 1 else "ldr r8, [%[wp]], #4"]
    for rotation in ("", ", ror #8"):
        step.append("ldrd r12, lr, [%[xp]], #8")
        for c, word in enumerate(words):
            step += [f"sxtb16 %[t], {word}{rotation}", f"smlad %[a{c}], %[t], r12, %[a{c}]"]
            step += [f"and %[t], %[t], {_LOW_NIBBLES}", f"smlad %[a{c}], %[t], lr, %[a{c}]"]

    def emit(loop: QuadLoop) -> BlockText:
        return loop.asm(step, OPERANDS, 4 * TAPS, acc="a", temporaries="t", clobbers=[*words, "r12", "lr"], spare="%[t]")

    return word_block(f"dot_w4_c{channels}", (1, channels), (unroll, rest), _two_quads, emit)


@cache
def matmul_w4(unroll: int, rest: int = 0) -> TensorIntrin:
    """Three pixels x two channels: acc[c, p] += the words' sums of B X + u0 Y, modulo 2^32.

    Operands: w int16 as [quads, 2, 2] from nibble_words; x int16 as [quads, 2, 12] from pack_w4(3); acc int32[6]; quads as in
    dot_w4. 24 SMLAD, 8 instructions to unpack and 9 loads for 48 multiply-accumulates, using all 14 registers.
    """
    # Data words come in pairs, so the third pixel's pair reuses a register of the first two.
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

    def emit(loop: QuadLoop) -> BlockText:
        return loop.asm(step, OPERANDS, 12 * TAPS, acc="a", temporaries=("w0", "w1", "t0", "t1", "x0", "x1"), spare="%[w0]")

    return word_block("matmul_w4", (3, 2), (unroll, rest), _two_quads, emit)


def _two_quads(b: IRBuilder, halves: Sequence[Expr], x: Buffer, place: Place) -> Expr:
    """Return the eight products of a word: low bytes of its halves with the first quad of data, high bytes with the second."""
    q, p, pixels = place
    sums = []
    for lane, loaded in enumerate(halves):
        half = b.let("half", loaded)
        for quad, byte in enumerate((cast("int32", cast("int8", half)), half >> 8)):
            at = q * (8 * pixels) + p * 2 + (quad * 4 * pixels + lane)
            sums.append(byte * cast("int32", x[at]) + (byte & 15) * cast("int32", x[at + 2 * pixels]))
    return reduce(add, sums)


# ---- loops, packing, and the forms of weights ----


@dataclass(frozen=True, slots=True)
class QuadLoop:
    """The loop over quads, or over other words of weights.

    `unroll` of them per iteration; with `rest`, the remainder comes first, one by one.  There is no loop if the count is the
    literal `unroll` and there is no `rest`.
    """

    block: Operands
    unroll: int
    rest: int = 0

    @property
    def count(self) -> str:
        return self.block["quads"].value

    @property
    def single(self) -> bool:
        """Whether there is at most one loop."""
        return not self.rest

    @property
    def _once(self) -> bool:
        return self.single and self.count == str(self.unroll)

    def asm(
        self, step: list[str], pointers: str, size: int, *, ins: Mapping[str, str] | None = None, spare: str = "", acc: str = "",
        temporaries: Sequence[str] = (), clobbers: Sequence[str] = (), before: Sequence[str] = (),
        around: tuple[str, ...] = (),
    ) -> BlockText:  # fmt: skip
        """Return the loops as assembly: `step` handles a quad, for which the pointer to x advances by `size` bytes.

        End addresses are in registers or, with a register `spare` for them, in memory.  `around`: a line before and one after.
        """
        (pointer,) = (n for n, _, o in (p.partition("=") for p in pointers.split()) if o == "x")
        start, kind = f"(const uint8_t *)aot_{pointer} + {size}", "m" if spare else "r"
        ends = {} if self._once else {"end": f"{start} * ({self.count})"}
        ends |= {} if self.single else {"rest": f"{start} * (({self.count}) % {self.unroll})"}
        before = [*before, *(f"const void *const aot_{n} = {value};" for n, value in ends.items())]
        ins = {f"{n}:{kind}": f"aot_{n}" for n in ends} | dict(ins or {})
        text = [*around[:1], *self._text(step, pointer, spare), *around[1:]]
        return asm(self.block, text, pointers, ins, acc=acc, temporaries=temporaries, clobbers=clobbers, before=before, kind="+")

    def _text(self, step: list[str], pointer: str, spare: str) -> list[str | Repeat]:
        """Return the loops; end addresses in memory are loaded into `spare` (if any) to compare %[pointer] with them."""
        if self._once:
            return [Repeat(self.unroll, step)]

        def test(name: str) -> list[str]:
            if not spare:
                return [f"cmp %[{pointer}], %[{name}]"]
            return [f"ldr {spare}, %[{name}]", f"cmp %[{pointer}], {spare}"]

        body: list[str | Repeat] = ["1:", Repeat(self.unroll, step), *test("end"), "bne 1b"]
        if self.single:
            return body
        return [*test("rest"), "beq 3f", "2:", *step, *test("rest"), "bne 2b", "3:", *test("end"), "beq 4f", *body, "4:"]


MAX_WEIGHT, MAX_UNROLL, COMMON_UNROLL = 127, 8, 4
"""The largest weight; most words per iteration; words per iteration of kernels that layers of different sizes share."""


@dataclass(frozen=True, slots=True)
class QuadPlan:
    """`quads` words of weights in all, `unroll` of them per iteration; quads beyond the layer's weights are zero.

    `rest`: 1 if a second loop handles a remainder.
    """

    quads: int
    unroll: int
    rest: int = 0

    def instructions(self, each: int) -> int:
        """Return the instructions of the loops, at `each` instructions per quad."""
        if self.rest:
            return each * self.quads + 3 * (2 + self.quads // self.unroll + self.quads % self.unroll) + 2
        return each * self.quads + (3 * (self.quads // self.unroll) if self.quads > self.unroll else 0)

    def code(self, each: int) -> int:
        """Return the bytes of code of the loops, at `each` instructions per quad."""
        return 4 * each * (self.unroll + self.rest) + 24 * self.rest


def plan_quads(quads: int, *, cost: int, common: bool, most: int = MAX_UNROLL) -> QuadPlan:
    """Round `quads` up, by at most a sixteenth, if it has no good divisor; `cost`: instructions per quad.

    `common`: one unrolling for any number of quads, so that layers share code.  `most`: most quads per iteration.
    """
    if common:
        return QuadPlan(quads, most // 2, rest=1)
    if quads <= most:
        return QuadPlan(quads, quads)
    plans = [QuadPlan(n, max(u for u in range(1, most + 1) if n % u == 0)) for n in range(quads, quads + max(1, quads // 16) + 1)]
    return min(plans, key=lambda p: (p.instructions(cost), p.quads))


def run_taps(length: int) -> list[int]:
    """Return the tap at each place of the quads that hold a run of `length` bytes; -1 if none.

    If the length is not a multiple of four, the last quad holds the last four bytes, so that nothing beyond the run is read.
    """
    whole = length // TAPS * TAPS
    taps = list(range(whole))
    if length == whole:
        return taps
    last = range(length - TAPS, length) if length >= TAPS else range(TAPS)
    return taps + [t if whole <= t < length else -1 for t in last]


def run_quads(length: int) -> int:
    return -(-length // TAPS)


def pack_unroll(quads: int) -> int:
    """Return the quads per iteration of the packing loop."""
    return max(u for u in (4, 3, 2, 1) if quads % u == 0)


def arrange(weights: Array, runs: int, plan: QuadPlan, *, taps: int = TAPS) -> Array:
    """Arrange weights [O, K] of `runs` runs of equal length as [O, taps * plan.quads] in the order of the quads."""
    channels = weights.shape[0]
    by_run = weights.reshape(channels, runs, -1)
    places = np.asarray(run_taps(by_run.shape[2]))
    placed = np.where(places >= 0, by_run[:, :, np.maximum(places, 0)], 0).reshape(channels, -1)
    return np.pad(placed, ((0, 0), (0, taps * plan.quads - placed.shape[1])))


@dataclass(frozen=True, slots=True)
class WordForm:
    """How weights are packed into words: `taps` per word, with accumulators scaled by 2^prescale.

    `words` packs values [..., K] as int16 numbers, two per word.  `start` computes the accumulators' start values from biases [O]
    and weights [O, K].  `fits`: whether the weights of a layer can be packed like this.
    """

    taps: int
    words: Callable[[Array], Array]
    start: Callable[[Array, Array], Array]
    prescale: int
    fits: Callable[[FusedLayer], bool]

    def block(self, weights: Array) -> Array:
        """Return the arranged weights of a block's channels, [n, taps * quads], as int32 [quads][n]."""
        words = self.words(weights).reshape(len(weights), -1, 2)
        return np.ascontiguousarray(words.transpose(1, 0, 2)).reshape(-1).view(np.int32)

    def requant(self, layer: FusedLayer, target: Target) -> HighMultiply | None:
        """Return the short requantisation if every accumulator fits 32 bits; else, or if the weights do not fit, None."""
        if not self.fits(layer):
            return None
        return plan_high_multiply(layer.requant, layer.acc_low, layer.acc_high, target=target, prescale=self.prescale)

    def best_requant(self, layer: FusedLayer, target: Target, *, common: bool = False) -> HighMultiply:
        """Return the requantisation of an accepted layer, with one shift for all channels if exact, unless code is shared."""
        requant = self.requant(layer, target)
        assert requant is not None
        if common or requant.params[-1].uniform:
            return requant
        return plan_uniform(layer.requant, layer.acc_low, layer.acc_high, target=target, prescale=self.prescale) or requant


def fits_bytes(layer: FusedLayer) -> bool:
    """Whether weights are in [-127, 127], so that 256 * b1 + b0 fits 16 bits; zero points of weights can make -128 and beyond."""
    return int(np.abs(layer.weight).max()) <= MAX_WEIGHT


BYTES = WordForm(TAPS, weight_words, bias_words, PRESCALE, fits_bytes)
DIRECT_BYTES = replace(BYTES, start=direct_bias_words)


@dataclass(frozen=True, slots=True)
class Weights:
    """A form of weights with its blocks of assembly: `pack` (pixels, unroll) packs data, `short` fewer bytes than a quad.

    `dot` (channels, unroll, rest): one pixel x up to four channels; `matmul` (unroll, rest): three pixels x two channels.
    `sums`: packing also computes a sum over the data, with which accumulators start.  `pixel_step`: int16 numbers from one
    pixel's words to the next pixel's.  `pack_cost`: instructions per quad, per run, and for the last bytes of an odd run (from
    counts under QEMU).
    """

    name: str
    form: WordForm
    most: int
    pack: Callable[[int, int], TensorIntrin]
    short: Callable[[IRBuilder, Region, Region | None, list[Expr], int], None]
    dot: Callable[[int, int, int], TensorIntrin]
    matmul: Callable[[int, int], TensorIntrin]
    pixel_step: int
    pack_cost: tuple[int, int, int]
    sums: bool = False

    @property
    def quads(self) -> int:
        """Quads of data per word of weights."""
        return self.form.taps // TAPS

    def plan(self, quads: int, *, cost: int, common: bool) -> QuadPlan:
        """Plan the words of weights for `quads` quads of data; `cost`: instructions per word."""
        return plan_quads(-(-quads // self.quads), cost=cost, common=common, most=self.most)

    def arrange(self, weights: Array, runs: int, plan: QuadPlan) -> Array:
        return arrange(weights, runs, plan, taps=self.form.taps)

    def pack_run(
        self, b: IRBuilder, source: tuple[Buffer, Expr], length: int, *, words: Region, sums: Region | None = None,
        pixels: int = 1, total: int = 0, unroll: int = 4,
    ) -> None:  # fmt: skip
        """Pack `length` bytes from (buffer, start) on into the quads from `words` on, in the order of run_taps.

        Quads beyond them, up to `total`, become zero.  `unroll`: most quads per iteration.
        """
        data, start = source
        whole, step = length // TAPS, TAPS * pixels
        more = () if sums is None else (sums,)
        if whole:
            b.block(self.pack(pixels, min(unroll, pack_unroll(whole))), region(data, start), words, *more, imm(whole))
        if length % TAPS and whole:
            last = region(words.buffer, words.index + whole * step)
            b.block(self.pack(pixels, 1), region(data, start + (length - TAPS)), last, *more, imm(1))
        elif length % TAPS:
            values: list[Expr] = [b.let("v", cast("int32", data.load("int8", start + i))) for i in range(length)]
            self.short(b, words, sums, values, pixels)
        if total > run_quads(length):
            with b.for_("z", total * step, start=run_quads(length) * step) as z:
                b.store(words.buffer, z, 0)

    def run_instructions(self, length: int, *, unroll: int = 4) -> int:
        """Return the instructions for packing one run."""
        (quad, run, last), (whole, remainder) = self.pack_cost, divmod(length, TAPS)
        loops = whole // min(unroll, pack_unroll(whole)) if whole > unroll else 0
        return whole * quad + 2 * loops + run + (last if remainder else 0)


def _store_short(b: IRBuilder, words: Region, _sums: Region | None, values: list[Expr], _pixels: int) -> None:
    """Store one quad of fewer than four bytes, padded with zeros."""
    values = values + [imm(0)] * (TAPS - len(values))
    for i in range(2):
        odd = values[2 * i + 1] - OFFSET
        b.store(words.buffer, words.index + i, odd)
        b.store(words.buffer, words.index + (2 + i), values[2 * i] * 256 - odd)


def fits_nibbles(layer: FusedLayer) -> bool:
    """Whether the model has 4-bit weights that, less their zero point, are in [-8, 7]."""
    return layer.weight_dtype == "int4" and int(layer.weight.min()) >= -8 and int(layer.weight.max()) <= 7


NIBBLES = WordForm(2 * TAPS, nibble_words, nibble_bias_words, PRESCALE_W4, fits_nibbles)

W8 = Weights("w8", BYTES, MAX_UNROLL, pack_w8, _store_short, dot_w8, matmul_w8, pixel_step=TAPS, pack_cost=(6, 13, 11))
W4 = Weights("w4", NIBBLES, 4, pack_w4, store_quad, dot_w4, matmul_w4, pixel_step=2, pack_cost=(8, 20, 18), sums=True)


class PackedWeights:
    """The constants of a layer: arranged weights [O, form.taps * quads] and a header, in blocks of `block` channels.

    Layout of a block of n channels, in words: bias [n], requantisation parameters that vary [n][params], weights [quads][n].  The
    last block may be smaller.

    `whole`: pad the last block with channels of zero weights, so that only `remainder` of its channels count.  `common`: no
    parameter becomes an immediate; uniform ones are the first words of the stream, after `lead`.  `split_weights`: the weights
    are an array of their own, so that layers with the same matrix but other biases (for another zero point of the data) can share
    it.  `segments`: sums are not scaled; the weights are cut into segments, each with its start values [n] before its words.
    """

    def __init__(
        self, weights: Array, bias: Array, requant: Requant, *, block: int, whole: bool = False, common: bool = False,
        lead: Sequence[int] = (), form: WordForm = BYTES, split_weights: bool = False, segments: int = 0,
    ) -> None:  # fmt: skip
        self.channels, taps = (int(n) for n in weights.shape)
        self.quads, self._form = taps // form.taps, form
        self.block = block if whole else min(block, self.channels)
        self.blocks, self.remainder = divmod(self.channels, self.block)
        self.requant = requant
        uniform = all(f.uniform for f in requant.params)
        self._head = [int(f.values[0]) for f in requant.params] if common and uniform else []
        self._lead = list(lead)
        self.split_weights, self._segments = split_weights, segments
        self._loaded = [not f.uniform or (common and not uniform) for f in requant.params]
        pairs = zip(requant.params, self._loaded, strict=True)
        arrays = [bias if segments else form.start(bias, weights)] + [f.values for f, loaded in pairs if loaded]
        self._packed = self.channels + (-self.channels % self.block if whole else 0)
        more = self._packed - self.channels
        self._weights = np.pad(weights, ((0, more), (0, 0)))
        self._arrays = [np.pad(a, (0, more)) for a in arrays]

    @property
    def counts(self) -> list[int]:
        """Channels of each block."""
        return [self.block] * self.blocks + [self.remainder] * bool(self.remainder)

    @property
    def sizes(self) -> list[int]:
        """The sizes of blocks that occur: the full one, and the smaller last one if there is any."""
        return [self.block, *([self.remainder] if self.remainder else [])]

    @property
    def fields_loaded(self) -> int:
        return len(self._arrays) - 1

    @property
    def signed(self) -> bool:
        return isinstance(self.requant, HighMultiply) and self.requant.signed

    @property
    def each(self) -> int:
        """Instructions per result."""
        return 4 + bool(self._head or self._loaded[-1]) + self.fields_loaded + 2 * self.signed

    def block_words(self, count: int) -> int:
        return count * (len(self._arrays) + (0 if self.split_weights else self._segments + self.quads))

    def each_block(self, b: IRBuilder, *, looped: bool = True) -> Iterator[tuple[Expr, int]]:
        """Iterate over the blocks, as (number, channels): the whole ones, in a loop if `looped`, then the remainder."""
        if self.blocks:
            with b.for_("n", self.blocks) if looped else nullcontext(imm(0)) as n:
                yield n, self.block
        if self.remainder:
            yield imm(self.blocks), self.remainder

    def data(self) -> Array:
        """Return the stream as int32."""
        parts: list[Array] = [np.asarray(self._lead + self._head, np.int32)]
        weights = iter(self._weights_of_blocks())
        for first in range(0, self._packed, self.block):
            last = min(first + self.block, self._packed)
            parts.append(self._arrays[0][first:last].astype(np.int32))
            if self.fields_loaded:
                parts.append(np.stack([v[first:last] for v in self._arrays[1:]], axis=1).reshape(-1).astype(np.int32))
            if not self.split_weights:
                parts.append(next(weights))
        return np.concatenate(parts)

    def weights_data(self) -> Array:
        """Return the weights alone as int32: [quads][n] of each block in turn."""
        return np.concatenate(self._weights_of_blocks())

    def _weights_of_blocks(self) -> list[Array]:
        return [self._words(self._weights[first : first + self.block]) for first in range(0, self._packed, self.block)]

    def _words(self, weights: Array) -> Array:
        if not self._segments:
            return self._form.block(weights)
        parts = np.split(weights, self._segments, axis=1)
        none = np.zeros(len(weights), np.int64)
        return np.concatenate([words for part in parts for words in (self._form.start(none, part), self._form.block(part))])

    def start(self, n: Expr) -> Expr:
        """Return the word index of block `n`, which may be the last one."""
        return n * self.block_words(self.block) + (len(self._lead) + len(self._head))

    def accumulators(self, b: IRBuilder, params: Buffer, start: Expr, count: int) -> Buffer:
        """Return the accumulators of a block, set to their start values."""
        acc = b.local("acc", (count,), "int32")
        for j in range(count):
            b.store(acc, j, params[start + j])
        return acc

    def weights(self, params: Buffer, start: Expr, count: int) -> Region:
        """Return the weights of the block of `count` channels at `start`."""
        return Region(params, (start + count * len(self._arrays)) * 2, "int16")

    def weights_in_array(self, weights: Buffer, n: Expr, skipped: Expr) -> Region:
        """Return the weights of block `n` in their own array, from word `skipped` of the block on."""
        return Region(weights, (n * (self.block * self.quads) + skipped) * 2, "int16")

    def requant_params(self, b: IRBuilder, params: Buffer, start: Expr, *, count: int) -> Callable[[int], tuple[Expr, ...]]:
        """Return a function of j: the parameters of channel j of the block of `count` channels at `start`; emits their loads."""
        if self._head:
            shared = tuple(b.let(p.name, params[len(self._lead) + i]) for i, p in enumerate(self.requant.params))
            return lambda _j: shared

        def own(j: int) -> tuple[Expr, ...]:
            loads = iter([params[start + (count + j * self.fields_loaded + i)] for i in range(self.fields_loaded)])
            pairs = zip(self.requant.params, self._loaded, strict=True)
            return tuple(b.let(f.name, next(loads)) if loaded else imm(int(f.values[0])) for f, loaded in pairs)

        return own

    def results(self, b: IRBuilder, params: Buffer, start: Expr, acc: Buffer) -> Iterator[tuple[int, Expr]]:
        """Iterate over the channels of a block, as (number, requantised sum)."""
        params_of = self.requant_params(b, params, start, count=acc.size)
        for j in range(acc.size):
            yield j, self.requantized(b, acc[j], params_of(j))

    def requantized(self, b: IRBuilder, acc: Expr, requant_params: tuple[Expr, ...]) -> Expr:
        """Return the result of an accumulator."""
        if isinstance(self.requant, HighMultiply) and not self._segments:
            return self.requant.emit_scaled(b, acc, requant_params)
        return self.requant.emit(b, acc, requant_params)
