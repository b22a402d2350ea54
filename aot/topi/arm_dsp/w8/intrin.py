"""Multiply-accumulate on int8 weights that stay one byte each in flash: six 16-bit products for four taps.

Two weights b0, b1 are stored as the 16-bit number 256 * b1 + b0, so a word holds four taps (a quad).  With

    X = x1 - 127  in [-255, 0]      and      Y = 256 * x0 - X  in [-32768, 32767]

(256 b1 + b0) X + b0 Y = 256 (b0 x0 + b1 (x1 - 127)) exactly.  SMLAD takes both 16-bit numbers of a word at once, and SXTB16 of
the word yields the b0 of both: one SXTB16 and two SMLAD for four taps.  Sums are modulo 2^32, so only the last one has to fit;
the term with 127 belongs into the bias.  Weights lie in [-127, 127], as b1 = -128 would leave no room for a negative b0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, cast
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock, Repeat

TAPS = 4
"""Taps in a word of weights."""

PRESCALE = 8
"""Accumulators come times 2^8."""

OFFSET = 127
"""What the data of odd taps is reduced by."""

_UNSIZED = (UNKNOWN_EXTENT,)


def weight_words(weights: Array) -> Array:
    """Values [..., K] in [-127, 127], K a multiple of 4, as int16 numbers [..., K / 2]."""
    pairs = weights.reshape(*weights.shape[:-1], -1, 2).astype(np.int64)
    words: Array = (256 * pairs[..., 1] + pairs[..., 0]).astype(np.uint16).view(np.int16)
    return words


def bias_words(bias: Array, weights: Array) -> Array:
    """Start values int32[O] of the accumulators for weights [O, K]: 256 times the bias with the odd taps' offset, modulo 2^32."""
    total = 256 * (bias.astype(np.int64) + OFFSET * weights[:, 1::2].astype(np.int64).sum(axis=1))
    start: Array = (total & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    return start


def direct_bias_words(bias: Array, weights: Array) -> Array:
    """As bias_words, for weights [O, K] in the order of `swapped` and dot_w8_direct."""
    total = 256 * bias.astype(np.int64) - OFFSET * weights[:, 0::2].astype(np.int64).sum(axis=1)
    start: Array = (total & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    return start


def swapped(weights: Array) -> Array:
    """Values [..., K] with the two of each pair exchanged, as dot_w8_direct wants them."""
    pairs: Array = weights.reshape(*weights.shape[:-1], -1, 2)[..., ::-1].reshape(weights.shape)
    return pairs


@cache
def pack_w8(pixels: int, unroll: int) -> TensorIntrin:
    """Data words of one pixel: 4 * quads bytes at any address -> for each quad the words {X1, X3} and {Y0, Y2}.

    Operands: x int8[4 * quads], words int16 in groups of 4 * pixels (of which the first four are written), quads, a multiple of
    `unroll`.  The core has to allow unaligned LDR, as Armv7E-M and Armv8-M Main do for normal memory.
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
    desc = replace(b.finish(), scalars=(quads,))
    # four bytes are read, then eight written, quad by quad: the order of the description
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: _emit_pack(ops, pixels, QuadLoop(ops, unroll)), ordered=True)


def _emit_pack(operands: Mapping[str, COperand], pixels: int, loop: QuadLoop) -> BlockText:
    step = [
        "ldr %[v], [%[s]], #4",
        "sxtb16 %[x], %[v], ror #8",
        "and %[y], %[mask], %[v], lsl #8",
        "ssub16 %[x], %[x], %[c127]",
        "ssub16 %[y], %[y], %[x]",
        f"strd %[x], %[y], [%[d]], #{8 * pixels}",
    ]
    return AsmBlock(
        [
            f"const void *aot_s = {operands['x'].pointer};",
            f"void *aot_d = {operands['words'].pointer};",
            *loop.ends("aot_s", TAPS),
            "uint32_t aot_v, aot_x, aot_y;",
        ],
        loop.text(step, "s", ""),
        outs=['[s] "+r"(aot_s)', '[d] "+r"(aot_d)', *(f'[{n}] "=&r"(aot_{n})' for n in "vxy")],
        ins=[*loop.operands("r"), '[mask] "r"(0xff00ff00u)', '[c127] "r"(0x007f007fu)'],
    ).emit()


@cache
def dot_w8(channels: int, unroll: int, rest: int = 0) -> TensorIntrin:
    """One pixel by up to four channels: acc[c] += 256 * sum of the quads' products, modulo 2^32.

    Operands: w int16 as [quads, channels, 2]; x int16 as [quads, 4] of pack_w8(1); acc int32[channels]; quads, a multiple of
    `unroll`, or with `rest` = 1 any number.  For four channels 8 SMLAD, 4 SXTB16, LDM and LDRD for 16 multiply-accumulates.
    """
    b = IRBuilder(f"dot_w8_c{channels}_u{unroll}" + "_rest" * rest)
    w, x, acc, quads = _matrix_operands(b, channels)
    with b.for_("q", quads) as q, b.for_("c", channels, kind="unroll") as c:
        _accumulate(b, acc, c, w=(w, (q * channels + c) * 2), x=(x, q * 4))
    desc = replace(b.finish(), scalars=(quads,))
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: _emit_dot(ops, channels, QuadLoop(ops, unroll, rest)))


@cache
def dot_w8_direct(channels: int, unroll: int, rest: int = 0) -> TensorIntrin:
    """As dot_w8, but the data are plain bytes at any address: acc[c] += 256 * sum of the quads' products + 127 * sum of odd taps.

    Operands: w int16 as [quads, channels, 2] of weights in the order of `swapped`; x int8[4 * quads]; acc int32[channels]; quads
    as there.  With a word's halves 256 * b0 + b1, (256 b0 + b1) x0 + b1 (256 x1 + 127 - x0) = 256 (b0 x0 + b1 x1) + 127 b1.
    SXTB16 yields the x0 of both halves; EOR with 0x7f makes 127 - x0 of a low byte x0, below the x1 that is there: two
    instructions a quad in place of packed data.
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
            b.store(acc, c, cast("int32", cast("uint32", acc[c]) + cast("uint32", first + second)))
    desc = replace(b.finish(), scalars=(quads,))
    name = f"arm_dsp.{desc.name}"
    return TensorIntrin(name, desc, lambda ops: _emit_dot(ops, channels, QuadLoop(ops, unroll, rest), size=TAPS))


@cache
def matmul_w8(unroll: int, rest: int = 0) -> TensorIntrin:
    """Three pixels by two channels: acc[c, p] += 256 * sum of the quads' products, modulo 2^32.

    Operands: w int16 as [quads, 2, 2]; x int16 as [quads, 3, 4] of pack_w8(3); acc int32[6]; quads, a multiple of `unroll`, or
    with `rest` = 1 any number.  12 SMLAD, 2 SXTB16 and 4 LDRD for 24 multiply-accumulates, in all 14 registers.
    """
    b = IRBuilder(f"matmul_w8_u{unroll}" + "_rest" * rest)
    w, x, acc, quads = _matrix_operands(b, 6)
    with b.for_("q", quads) as q, b.for_("c", 2, kind="unroll") as c, b.for_("p", 3, kind="unroll") as p:
        _accumulate(b, acc, c * 3 + p, w=(w, (q * 2 + c) * 2), x=(x, (q * 3 + p) * 4))
    desc = replace(b.finish(), scalars=(quads,))
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: _emit_matmul(ops, QuadLoop(ops, unroll, rest)))


def _matrix_operands(b: IRBuilder, accumulators: int) -> tuple[Buffer, Buffer, Buffer, Var]:
    w = b.input("w", _UNSIZED, "int16", align=4)
    x = b.input("x", _UNSIZED, "int16", align=4)
    return w, x, b.output("acc", (accumulators,), "int32"), Var("quads")


def _accumulate(b: IRBuilder, acc: Buffer, at: Expr, *, w: tuple[Buffer, Expr], x: tuple[Buffer, Expr]) -> None:
    """acc[at] += the two SMLAD of a quad: w[0..1] * X[0..1] + sign-extended low bytes of w * Y[0..1]."""
    total: Expr | None = None
    for i in range(2):
        word = b.let("word", cast("int32", w[0][w[1] + i]))
        products = word * cast("int32", x[0][x[1] + i]) + cast("int32", cast("int8", word)) * cast("int32", x[0][x[1] + (2 + i)])
        total = products if total is None else total + products
    assert total is not None
    b.store(acc, at, cast("int32", cast("uint32", acc[at]) + cast("uint32", total)))


def _emit_dot(operands: Mapping[str, COperand], channels: int, loop: QuadLoop, *, size: int = 2 * TAPS) -> BlockText:
    """LDM wants rising registers, so the words have fixed ones.  `size`: bytes of data in a quad, packed or not."""
    words = [f"r{8 + c}" for c in range(channels)]
    load = f"ldmia %[wp]!, {{{', '.join(words)}}}" if channels > 1 else "ldr r8, [%[wp]], #4"
    plain = ["ldr r12, [%[xp]], #4", "eor lr, r12, #0x007f007f", "sxtb16 r12, r12"]
    step = [load, *(plain if size == TAPS else ["ldrd r12, lr, [%[xp]], #8"])]
    for c, word in enumerate(words):
        step += [f"smlad %[a{c}], {word}, r12, %[a{c}]", f"sxtb16 {word}, {word}", f"smlad %[a{c}], {word}, lr, %[a{c}]"]
    return AsmBlock(
        [*pointers(operands), *loop.ends("aot_xp", size)],
        loop.text(step, "xp", "" if loop.single else "r8"),
        outs=accumulators(operands),
        ins=loop.operands("r" if loop.single else "m"),
        clobbers=[*words, "r12", "lr"],
    ).emit()


def _emit_matmul(operands: Mapping[str, COperand], loop: QuadLoop) -> BlockText:
    step = ["ldrd %[w0], %[w1], [%[wp]], #8", "ldrd %[x0], %[x1], [%[xp]], #24", "sxtb16 %[s0], %[w0]", "sxtb16 %[s1], %[w1]"]
    for p in range(3):
        if p:
            step.append(f"ldrd %[x0], %[x1], [%[xp], #{8 * p - 24}]")
        step += [f"smlad %[a{3 * c + p}], %[{v}{c}], %[x{i}], %[a{3 * c + p}]" for i, v in enumerate("ws") for c in range(2)]
    temporaries = ("w0", "w1", "s0", "s1", "x0", "x1")
    return AsmBlock(
        [*pointers(operands), *loop.ends("aot_xp", 24), f"uint32_t {', '.join('aot_' + t for t in temporaries)};"],
        loop.text(step, "xp", "%[w0]"),
        outs=[*accumulators(operands), *(f'[{t}] "=&r"(aot_{t})' for t in temporaries)],
        ins=loop.operands("m"),
    ).emit()


@dataclass(frozen=True, slots=True)
class QuadLoop:
    """The loop over the quads, or other words of weights.

    `unroll` of them at a time; with `rest` the remainder first, one by one.
    There is no loop where the trip count is the literal `unroll` (and no rest).
    """

    block: Mapping[str, COperand]
    unroll: int
    rest: int = 0

    @property
    def count(self) -> str:
        return self.block["quads"].value

    @property
    def single(self) -> bool:
        """At most one loop."""
        return not self.rest

    @property
    def _once(self) -> bool:
        return self.single and self.count == str(self.unroll)

    def ends(self, pointer: str, size: int) -> list[str]:
        """Declarations of the addresses where the loops end; `size`: bytes of data in a quad."""
        start = f"(const uint8_t *){pointer} + {size}"
        last = [] if self._once else [f"const void *const aot_end = {start} * ({self.count});"]
        first = [] if self.single else [f"const void *const aot_rest = {start} * (({self.count}) % {self.unroll});"]
        return last + first

    def operands(self, constraint: str) -> list[str]:
        names = [*([] if self._once else ["end"]), *([] if self.single else ["rest"])]
        return [f'[{n}] "{constraint}"(aot_{n})' for n in names]

    def text(self, step: list[str], pointer: str, spare: str) -> list[str | Repeat]:
        """The loops; addresses in memory are loaded to `spare` (if any) before they are compared with %[pointer]."""
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


def pointers(operands: Mapping[str, COperand]) -> list[str]:
    """Declarations of the pointers to weights and data."""
    return [f"const void *aot_wp = {operands['w'].pointer};", f"const void *aot_xp = {operands['x'].pointer};"]


def accumulators(operands: Mapping[str, COperand]) -> list[str]:
    """The accumulators and the pointers as operands of the assembly."""
    named = [f'[a{i}] "+r"({name})' for i, name in enumerate(operands["acc"].scalars)]
    return [*named, '[wp] "+r"(aot_wp)', '[xp] "+r"(aot_xp)']
