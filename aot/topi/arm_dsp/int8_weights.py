"""int8 weights that stay one byte each in flash: six 16-bit products per four taps; packing of data, the stream of constants.

Two weights b0, b1 are stored as the 16-bit number 256 * b1 + b0, so one 32-bit word, here called a quad, holds four taps.  With

    X = x1 - 127  in [-255, 0]      and      Y = 256 * x0 - X  in [-32768, 32767]

(256 b1 + b0) X + b0 Y = 256 (b0 x0 + b1 (x1 - 127)) exactly.  SMLAD multiplies both halves of a word, and SXTB16 extracts both b0
of a word, so one SXTB16 and two SMLAD do four taps: nearly the speed of 16-bit weights at half the flash.

Sums are modulo 2^32, so only the final one has to fit; the term with 127 is folded into the bias.  Weights are in [-127, 127],
because b1 = -128 would leave no room for a negative b0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, cast, imm
from aot.tir.intrin import BlockText, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.intrin.asm_text import Operands, Repeat, asm
from aot.topi.layer.fused import FusedLayer
from aot.topi.layer.requant import HighMultiply, plan_high_multiply, plan_uniform

TAPS = 4
"""Taps per word of weights."""

PRESCALE = 8
"""Accumulators are scaled by 2^8."""

OFFSET = 127
"""Subtracted from the data of odd taps."""

OPERANDS = "wp=w xp=x"
"""How the assembly of products names its pointers to weights and data."""

_UNSIZED = (UNKNOWN_EXTENT,)


def weight_words(weights: Array) -> Array:
    """Pack values [..., K] in [-127, 127], K a multiple of 4, as int16 numbers [..., K / 2]."""
    pairs = weights.reshape(*weights.shape[:-1], -1, 2).astype(np.int64)
    words: Array = (256 * pairs[..., 1] + pairs[..., 0]).astype(np.uint16).view(np.int16)
    return words


def bias_words(bias: Array, weights: Array) -> Array:
    """Return the accumulators' start values int32[O] for weights [O, K]: 256 * (bias + offset of the odd taps), modulo 2^32."""
    total = 256 * (bias.astype(np.int64) + OFFSET * weights[:, 1::2].astype(np.int64).sum(axis=1))
    start: Array = (total & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    return start


def direct_bias_words(bias: Array, weights: Array) -> Array:
    """As bias_words, for dot_w8_direct and weights [O, K] in the order of `swapped`."""
    total = 256 * bias.astype(np.int64) - OFFSET * weights[:, 0::2].astype(np.int64).sum(axis=1)
    start: Array = (total & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    return start


def swapped(weights: Array) -> Array:
    """Exchange the two values of each pair of [..., K], the order that dot_w8_direct needs."""
    pairs: Array = weights.reshape(*weights.shape[:-1], -1, 2)[..., ::-1].reshape(weights.shape)
    return pairs


@cache
def pack_w8(pixels: int, unroll: int) -> TensorIntrin:
    """Pack one pixel: 4 * quads bytes at any address -> per quad the words {X1, X3} and {Y0, Y2}.

    Operands: x int8[4 * quads]; words int16 in groups of 4 * pixels, of which the first four are written; quads, a multiple of
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
    desc = replace(b.finish(), scalars=(quads,))
    # Read four bytes, then write eight, quad by quad: the order of the assembly.
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: _emit_pack(pixels, QuadLoop(ops, unroll)), ordered=True)


def _emit_pack(pixels: int, loop: QuadLoop) -> BlockText:
    step = [
        "ldr %[v], [%[s]], #4",
        "sxtb16 %[x], %[v], ror #8",
        "and %[y], %[mask], %[v], lsl #8",
        "ssub16 %[x], %[x], %[c127]",
        "ssub16 %[y], %[y], %[x]",
        f"strd %[x], %[y], [%[d]], #{8 * pixels}",
    ]
    return loop.asm(step, "s=x >d=words", TAPS, temporaries="vxy", ins={"mask": "0xff00ff00u", "c127": "0x007f007fu"})


@cache
def dot_w8(channels: int, unroll: int, rest: int = 0) -> TensorIntrin:
    """One pixel x up to four channels: acc[c] += 256 * the sum of the quads' products, modulo 2^32.

    Operands: w int16 as [quads, channels, 2]; x int16 as [quads, 4] from pack_w8(1); acc int32[channels]; quads, a multiple of
    `unroll`, or any number if `rest` is 1.  Four channels: 8 SMLAD, 4 SXTB16, LDM and LDRD for 16 multiply-accumulates.
    """

    def meaning(b: IRBuilder, w: Buffer, x: Buffer, acc: Buffer, q: Expr) -> None:
        with b.for_("c", channels, kind="unroll") as c:
            _accumulate(b, acc, c, w=(w, (q * channels + c) * 2), x=(x, q * 4))

    return word_block(f"dot_w8_c{channels}", (unroll, rest), channels, meaning, lambda loop: _emit_dot(channels, loop))


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
            b.store(acc, c, cast("int32", cast("uint32", acc[c]) + cast("uint32", first + second)))
    desc = replace(b.finish(), scalars=(quads,))
    name = f"arm_dsp.{desc.name}"
    return TensorIntrin(name, desc, lambda ops: _emit_dot(channels, QuadLoop(ops, unroll, rest), size=TAPS))


@cache
def matmul_w8(unroll: int, rest: int = 0) -> TensorIntrin:
    """Three pixels x two channels: acc[c, p] += 256 * the sum of the quads' products, modulo 2^32.

    Operands: w int16 as [quads, 2, 2]; x int16 as [quads, 3, 4] from pack_w8(3); acc int32[6]; quads, a multiple of `unroll`, or
    any number if `rest` is 1.  12 SMLAD, 2 SXTB16 and 4 LDRD for 24 multiply-accumulates, using all 14 registers.
    """

    def meaning(b: IRBuilder, w: Buffer, x: Buffer, acc: Buffer, q: Expr) -> None:
        with b.for_("c", 2, kind="unroll") as c, b.for_("p", 3, kind="unroll") as p:
            _accumulate(b, acc, c * 3 + p, w=(w, (q * 2 + c) * 2), x=(x, (q * 3 + p) * 4))

    return word_block("matmul_w8", (unroll, rest), 6, meaning, _emit_matmul)


def word_block(
    name: str,
    loop: tuple[int, int],
    accumulators: int,
    meaning: Callable[[IRBuilder, Buffer, Buffer, Buffer, Expr], None],
    emit: Callable[[QuadLoop], BlockText],
) -> TensorIntrin:
    """Build a block that loops over weight words; `meaning(b, w, x, acc, number)` describes one word; `loop`: unroll and rest."""
    (unroll, rest), quads = loop, Var("quads")
    b = IRBuilder(f"{name}_u{unroll}" + "_rest" * rest)
    w = b.input("w", _UNSIZED, "int16", align=4)
    x = b.input("x", _UNSIZED, "int16", align=4)
    acc = b.output("acc", (accumulators,), "int32")
    with b.for_("q", quads) as q:
        meaning(b, w, x, acc, q)
    desc = replace(b.finish(), scalars=(quads,))
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: emit(QuadLoop(ops, unroll, rest)))


def _accumulate(b: IRBuilder, acc: Buffer, at: Expr, *, w: tuple[Buffer, Expr], x: tuple[Buffer, Expr]) -> None:
    """acc[at] += the two SMLAD of a quad: w[0..1] * X[0..1] + sign-extended low bytes of w * Y[0..1]."""
    total: Expr | None = None
    for i in range(2):
        word = b.let("word", cast("int32", w[0][w[1] + i]))
        products = word * cast("int32", x[0][x[1] + i]) + cast("int32", cast("int8", word)) * cast("int32", x[0][x[1] + (2 + i)])
        total = products if total is None else total + products
    assert total is not None
    b.store(acc, at, cast("int32", cast("uint32", acc[at]) + cast("uint32", total)))


def _emit_dot(channels: int, loop: QuadLoop, *, size: int = 2 * TAPS) -> BlockText:
    """Emit dot_w8. LDM needs ascending registers, so they are fixed.  `size`: bytes of data per quad, packed or not."""
    words = [f"r{8 + c}" for c in range(channels)]
    load = f"ldmia %[wp]!, {{{', '.join(words)}}}" if channels > 1 else "ldr r8, [%[wp]], #4"
    plain = ["ldr r12, [%[xp]], #4", "eor lr, r12, #0x007f007f", "sxtb16 r12, r12"]
    step = [load, *(plain if size == TAPS else ["ldrd r12, lr, [%[xp]], #8"])]
    for c, word in enumerate(words):
        step += [f"smlad %[a{c}], {word}, r12, %[a{c}]", f"sxtb16 {word}, {word}", f"smlad %[a{c}], {word}, lr, %[a{c}]"]
    return loop.asm(step, OPERANDS, size, acc="a", clobbers=[*words, "r12", "lr"], spare="" if loop.single else "r8")


def _emit_matmul(loop: QuadLoop) -> BlockText:
    step = ["ldrd %[w0], %[w1], [%[wp]], #8", "ldrd %[x0], %[x1], [%[xp]], #24", "sxtb16 %[s0], %[w0]", "sxtb16 %[s1], %[w1]"]
    for p in range(3):
        if p:
            step.append(f"ldrd %[x0], %[x1], [%[xp], #{8 * p - 24}]")
        step += [f"smlad %[a{3 * c + p}], %[{v}{c}], %[x{i}], %[a{3 * c + p}]" for i, v in enumerate("ws") for c in range(2)]
    return loop.asm(step, OPERANDS, 24, acc="a", temporaries=("w0", "w1", "s0", "s1", "x0", "x1"), spare="%[w0]")


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
        around: tuple[Sequence[str], Sequence[str]] = ((), ()),
    ) -> BlockText:  # fmt: skip
        """Return the loops as assembly: `step` handles a quad, for which the pointer to x advances by `size` bytes.

        End addresses are in registers or, with a register `spare` for them, in memory.  `around`: lines before and after.
        """
        (pointer,) = (n for n, _, o in (p.partition("=") for p in pointers.split()) if o == "x")
        start, kind = f"(const uint8_t *)aot_{pointer} + {size}", "m" if spare else "r"
        ends = {} if self._once else {"end": f"{start} * ({self.count})"}
        ends |= {} if self.single else {"rest": f"{start} * (({self.count}) % {self.unroll})"}
        before = [*before, *(f"const void *const aot_{n} = {value};" for n, value in ends.items())]
        ins = {f"{n}:{kind}": f"aot_{n}" for n in ends} | dict(ins or {})
        text = [*around[0], *self._text(step, pointer, spare), *around[1]]
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
        """Return the bytes of code of the loops, at `each` bytes per quad."""
        return each * (self.unroll + self.rest) + 24 * self.rest


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
        self,
        b: IRBuilder,
        source: tuple[Buffer, Expr],
        length: int,
        *,
        words: Region,
        sums: Region | None = None,
        pixels: int = 1,
        total: int = 0,
        unroll: int = 4,
    ) -> None:
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


W8 = Weights("w8", BYTES, MAX_UNROLL, pack_w8, _store_short, dot_w8, matmul_w8, pixel_step=TAPS, pack_cost=(6, 13, 11))


class PackedWeights:
    """The constants of a layer: arranged weights [O, form.taps * quads] and a header, in blocks of `block` channels.

    Layout of a block of n channels, in words: bias [n], requantisation parameters that vary [n][params], weights [quads][n].  The
    last block may be smaller.

    `whole`: pad the last block with channels of zero weights, so that only `remainder` of its channels count.  `common`: no
    parameter becomes an immediate; uniform ones are the first words of the stream, after `lead`.  `split_weights`: the weights
    are an array of their own, so that layers with the same matrix but other biases (for another zero point of the data) can share
    it.
    """

    def __init__(
        self,
        weights: Array,
        bias: Array,
        requant: HighMultiply,
        *,
        block: int,
        whole: bool = False,
        common: bool = False,
        lead: Sequence[int] = (),
        form: WordForm = BYTES,
        split_weights: bool = False,
    ) -> None:
        self.channels, taps = (int(n) for n in weights.shape)
        self.quads, self._form = taps // form.taps, form
        self.block = block if whole else min(block, self.channels)
        self.blocks, self.remainder = divmod(self.channels, self.block)
        self.requant = requant
        uniform = all(f.uniform for f in requant.params)
        self._head = [int(f.values[0]) for f in requant.params] if common and uniform else []
        self._lead = list(lead)
        self.split_weights = split_weights
        self._loaded = [not f.uniform or (common and not uniform) for f in requant.params]
        pairs = zip(requant.params, self._loaded, strict=True)
        arrays = [form.start(bias, weights)] + [f.values for f, loaded in pairs if loaded]
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
    def each(self) -> int:
        """Instructions per result."""
        return 5 - self.shift_is_immediate + self.fields_loaded + 2 * self.requant.signed

    @property
    def shift_is_immediate(self) -> bool:
        return not self._head and not self._loaded[-1]

    def block_words(self, count: int) -> int:
        return count * (len(self._arrays) + (0 if self.split_weights else self.quads))

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
        return [self._form.block(self._weights[first : first + self.block]) for first in range(0, self._packed, self.block)]

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
            shared = tuple(b.let("field", params[len(self._lead) + i]) for i in range(len(self._head)))
            return lambda _j: shared

        def own(j: int) -> tuple[Expr, ...]:
            loads = iter([params[start + (count + j * self.fields_loaded + i)] for i in range(self.fields_loaded)])
            pairs = zip(self.requant.params, self._loaded, strict=True)
            return tuple(b.let("field", next(loads)) if loaded else imm(int(f.values[0])) for f, loaded in pairs)

        return own

    def results(self, b: IRBuilder, params: Buffer, start: Expr, acc: Buffer) -> Iterator[tuple[int, Expr]]:
        """Iterate over the channels of a block, as (number, requantised sum)."""
        params_of = self.requant_params(b, params, start, count=acc.size)
        for j in range(acc.size):
            yield j, self.requant.emit_scaled(b, acc[j], params_of(j))
