"""Winograd's minimal filtering F(m x m, 3 x 3) in integers, modulo 2^32.

A tile of m x m outputs needs n x n inputs, n = m + 2.  With the matrices below, all of integers,

    U = G g G^T (weights, offline)     V = B^T x B (inputs)     M = sum over channels of U * V     A^T M A = scale * acc

position by position (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", with the denominators of G multiplied
out).  `scale` differs by output row and column for m = 4, which saves the shifts; see `Winograd.row_factor`.

With DSP instructions U and V are pairs of halfwords, two input channels a word, and SMLAD takes the products.  Without them they
are words, one channel each, and MLA takes the products; the input transform still works on two channels at once, as numbers
p + q * 2^16, which are taken apart at its end (`split`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, cast
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock, Repeat
from aot.topi.intrin.dsp import SADD16, SSUB16

TILES, CHANNELS = 2, 4
"""The product block works on two tiles by four output channels."""

SUMS = TILES * CHANNELS


@dataclass(frozen=True, slots=True)
class Winograd:
    """One size of tile: `g` is G with n rows, `row_factor[i]` what output row or column i lacks to the common `denominator`.

    A^T M A at (i, j) is acc * denominator^2 / (row_factor[i] * row_factor[j]).  `bias_gain` is what position 1 contributes to
    every output of a row, with its factor.  `input_gain` bounds |V| / |x|, `offset_gain` |V| / x where no x is negative.  `span`
    tiles lie side by side and share a window.
    """

    m: int
    g: tuple[tuple[int, int, int], ...]
    row_factor: tuple[int, ...]
    denominator: int
    bias_gain: int
    input_gain: int
    offset_gain: int
    span: int

    @property
    def n(self) -> int:
        """Inputs along one side of a tile."""
        return self.m + 2

    @property
    def window_width(self) -> int:
        """Inputs along the row that `span` tiles need."""
        return self.m * self.span + 2

    @property
    def positions(self) -> int:
        return self.n * self.n


F2 = Winograd(
    m=2,
    g=((2, 0, 0), (1, 1, 1), (1, -1, 1), (0, 0, 2)),
    row_factor=(1, 1),
    denominator=2,
    bias_gain=1,
    input_gain=4,
    offset_gain=4,
    span=2,
)
F4 = Winograd(
    m=4,
    g=((6, 0, 0), (-1, -1, -1), (-1, 1, -1), (1, 2, 4), (1, -2, 4), (0, 0, 6)),
    row_factor=(1, 2, 4, 4),
    denominator=24,
    bias_gain=4,
    input_gain=100,
    offset_gain=68,
    span=1,
)


def transform_numbers(b: IRBuilder, x: Sequence[Expr]) -> list[Expr]:
    """B^T x for m = 4 and six values modulo 2^32 (uint32), with shifted operands."""

    def let(value: Expr) -> Expr:
        return b.let("t", value)

    even, odd = let(x[4] - x[2] * 4), let(x[3] - x[1] * 4)
    near, step = let(x[4] - x[2]), let(x[3] - x[1])
    first, last = let(x[0] - x[2]), let(x[5] - x[3])
    sums = [near + first * 4, even + odd, even - odd, near + step * 2, near - step * 2, last - step * 4]
    return [let(value) for value in sums]


def split(b: IRBuilder, number: Expr) -> tuple[Expr, Expr]:
    """p and q of p + q * 2^16 modulo 2^32, both within int16, as words (uint32)."""
    low = b.let("p", cast("int32", cast("int16", number)))
    return cast("uint32", low), b.let("q", cast("uint32", cast("int32", number - cast("uint32", low)) >> 16))


def transform_input(b: IRBuilder, form: Winograd, x: Sequence[Expr]) -> list[Expr]:
    """B^T x for n values that are pairs of int16 (uint32)."""

    def add(p: Expr, q: Expr) -> Expr:
        return b.let("s", SADD16(p, q))

    def sub(p: Expr, q: Expr) -> Expr:
        return b.let("d", SSUB16(p, q))

    if form.m == 2:
        return [sub(x[0], x[2]), add(x[1], x[2]), sub(x[2], x[1]), sub(x[1], x[3])]
    x1, x2 = add(x[1], x[1]), add(x[2], x[2])
    even, odd = sub(x[4], add(x2, x2)), sub(x[3], add(x1, x1))  # x4 - 4 x2, x3 - 4 x1
    near = sub(x[4], x[2])
    step = sub(x[3], x[1])
    step = add(step, step)
    first = sub(x[0], x[2])
    first = add(first, first)
    last = sub(x[5], x[3])
    return [
        add(add(first, first), near),
        add(even, odd),
        sub(even, odd),
        add(near, step),
        sub(near, step),
        sub(last, add(step, step)),
    ]


def slide_input(b: IRBuilder, x: Sequence[Expr]) -> list[tuple[int, Expr]]:
    """Of B^T x for m = 2, what the newest of three or four values completes: (index, value) pairs."""
    if len(x) == 4:
        return [(3, b.let("d", SSUB16(x[1], x[3])))]
    return [(0, b.let("d", SSUB16(x[0], x[2]))), (1, b.let("s", SADD16(x[1], x[2]))), (2, b.let("d", SSUB16(x[2], x[1])))]


def transform_output(b: IRBuilder, form: Winograd, m: Sequence[Expr]) -> list[Expr]:
    """A^T m for n values modulo 2^32 (uint32); row i lacks the factor row_factor[i]."""

    def let(value: Expr) -> Expr:
        return b.let("t", value)

    if form.m == 2:
        return [let(m[0] + m[1] + m[2]), let(m[1] - m[2] - m[3])]
    s12, d12 = let(m[1] + m[2]), let(m[1] - m[2])
    s34, d34 = let(m[3] + m[4]), let(m[3] - m[4])
    return [let(m[0] + s34 + s12 * 4), let(d34 + d12 * 2), let(s12 + s34), let(m[5] + d12 + d34 * 2)]


_CHUNK = ("r2", "r3", "r4", "r5")


def pixel_body(words: int) -> int:
    """Words that one turn of the loops over pixels handles: all of a pixel, or the largest divisor up to 32."""
    return max(u for u in range(1, 33) if words % u == 0)


def _pixels_in(name: str, words: int) -> tuple[IRBuilder, Var, Buffer]:
    b = IRBuilder(f"{name}_{words}")
    return b, Var("pixels"), b.output("y", (UNKNOWN_EXTENT,), "uint32", align=4)


@cache
def copy_pixels(words: int) -> TensorIntrin:
    """y[i] = x[i] for i < words * pixels (0 pixels and more); operands: x and y uint32, pixels."""
    b, pixels, y = _pixels_in("copy_pixels", words)
    x = b.input("x", (UNKNOWN_EXTENT,), "uint32", align=4)
    with b.for_("i", pixels * words) as i:
        b.store(y, i, x[i])
    text: list[str | Repeat] = []
    body = pixel_body(words)
    for first in range(0, body, len(_CHUNK)):
        regs = _CHUNK[: min(len(_CHUNK), body - first)]
        if len(regs) == 1:
            text += ["ldr r2, [%[xp]], #4", "str r2, [%[yp]], #4"]
        else:
            text += [f"{op} %[{p}]!, {{{', '.join(regs)}}}" for op, p in (("ldmia", "xp"), ("stmia", "yp"))]
    desc = replace(b.finish(), scalars=(pixels,))
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: _emit_pixels(ops, text, words), requires="thumb2")


@cache
def fill_pixels(words: int) -> TensorIntrin:
    """y[i] = value for i < words * pixels (0 pixels and more); operands: y uint32, pixels, value (uint32)."""
    b, pixels, y = _pixels_in("fill_pixels", words)
    value = Var("value", "uint32")
    with b.for_("i", pixels * words) as i:
        b.store(y, i, value)
    desc = replace(b.finish(), scalars=(pixels, value))
    text = [Repeat(pixel_body(words), ["str %[value], [%[yp]], #4"])]
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: _emit_pixels(ops, text, words), requires="thumb2")


def _emit_pixels(operands: Mapping[str, COperand], body: Sequence[str | Repeat], words: int) -> BlockText:
    """A loop that runs `body` to the end of the pixels, which may be never."""
    fill = "value" in operands
    inputs = [f'[value] "r"({operands["value"].value})'] if fill else []
    clobbers = () if fill else _CHUNK[: min(words, len(_CHUNK))]
    outs = ['[yp] "+r"(aot_yp)'] + ([] if fill else ['[xp] "+r"(aot_xp)'])
    text: list[str | Repeat] = ["b 2f", "1:", *body, "2:", "cmp %[yp], %[end]", "bne 1b"]
    return AsmBlock(
        [
            f"void *aot_yp = {operands['y'].pointer};",
            *([] if fill else [f"const void *aot_xp = {operands['x'].pointer};"]),
            f"const void *const aot_end = (const uint8_t *)aot_yp + {4 * words} * ({operands['pixels'].value});",
        ],
        text,
        outs=outs,
        ins=['[end] "r"(aot_end)', *inputs],
        clobbers=clobbers,
    ).emit()


MAX_STRAIGHT = 32
"""Words of an output channel up to which one position has no inner loop."""


def unrolled_words(words: int) -> int:
    """Words in the straight part of the product block: all, or the largest divisor up to 16."""
    return words if words <= MAX_STRAIGHT else max(u for u in range(1, 17) if words % u == 0)


def product_instructions(words: int) -> int:
    """Executed by the product block at one position."""
    if words <= MAX_STRAIGHT:
        return 11 * words + 4
    return 11 * words + 3 * (words // unrolled_words(words)) + 8 + 2 + 4


@dataclass(frozen=True, slots=True)
class Product:
    """What a word of the products holds: `pair`, two int16 by SMLAD (cores with DSP instructions), else one number by MLA."""

    pair: bool

    @property
    def inputs(self) -> int:
        """Input channels in a word."""
        return 2 if self.pair else 1


PAIRS, NUMBERS = Product(pair=True), Product(pair=False)


@cache
def winograd_product(positions: int, words: int, product: Product) -> TensorIntrin:
    """Products at every position: 4 output channels by 2 tiles, summed over the input channels of `words` words, modulo 2^32.

    Operands: w int32[positions][words][4]; v uint32[positions][2 * words + 8], where each position has data [words][2 tiles],
    which are read, and then the sums [4 channels][2 tiles], which are written.
    """
    row = TILES * words + SUMS
    b = IRBuilder(f"winograd_product_{positions}_{words}" if product.pair else f"winograd_mla_{positions}_{words}")
    w = b.input("w", (positions * words * CHANNELS,), "int32", align=4)
    v = b.output("v", (positions * row,), "uint32", align=4)
    with b.for_("p", positions) as p, b.for_("c", CHANNELS) as c, b.for_("t", TILES) as t:
        total = b.local("total", (1,), "uint32", init=0)
        with b.for_("k", words) as k:
            weight = b.let("weight", w[(p * words + k) * CHANNELS + c])
            value = v[p * row + k * TILES + t]
            if product.pair:
                data = b.let("data", cast("int32", value))
                low = cast("int32", cast("int16", weight)) * cast("int32", cast("int16", data))
                high = (weight >> 16) * (data >> 16)
                b.store(total, 0, total[0] + cast("uint32", low) + cast("uint32", high))
            else:
                b.store(total, 0, total[0] + cast("uint32", weight) * value)
        b.store(v, p * row + TILES * words + c * TILES + t, total[0])
    desc = b.finish()
    requires = "dsp" if product.pair else "thumb2"
    return TensorIntrin(
        f"arm_dsp.{desc.name}", desc, lambda ops: _emit_product(ops, positions, words, product), requires=requires
    )


_WEIGHTS, _INPUTS = ("r2", "r3"), ("r12", "lr")
_ACCS = tuple(f"r{4 + i}" for i in range(SUMS))


def _step(product: Product, *, first: bool) -> list[str]:
    """One word of each channel; STM wants ascending registers, so they are named here and not by the compiler."""
    text = [f"ldrd {_WEIGHTS[0]}, {_WEIGHTS[1]}, [%[wp]], #8", f"ldrd {_INPUTS[0]}, {_INPUTS[1]}, [%[vp]], #8"]
    begin, go_on = ("smuad", "smlad") if product.pair else ("mul", "mla")
    for half in range(2):
        if half:
            text.append(f"ldrd {_WEIGHTS[0]}, {_WEIGHTS[1]}, [%[wp]], #8")
        for j in range(2):
            for t in range(TILES):
                acc = _ACCS[(2 * half + j) * TILES + t]
                factors = f"{acc}, {_WEIGHTS[j]}, {_INPUTS[t]}"
                text.append(f"{begin} {factors}" if first else f"{go_on} {factors}, {acc}")
    return text


def _emit_product(operands: Mapping[str, COperand], positions: int, words: int, product: Product) -> BlockText:
    unroll, row = unrolled_words(words), 4 * (TILES * words + SUMS)
    text: list[str | Repeat] = ["1:"]
    if unroll == words:
        text += _step(product, first=True)
        if words > 1:
            text.append(Repeat(words - 1, _step(product, first=False)))
    else:
        text += [f"mov {acc}, #0" for acc in _ACCS]
        text += [f"add r2, %[vp], #{8 * words}", "str r2, %[stop]", "2:", Repeat(unroll, _step(product, first=False))]
        text += ["ldr r2, %[stop]", "cmp %[vp], r2", "bne 2b"]
    text += [f"stmia %[vp]!, {{{', '.join(_ACCS)}}}", "ldr r2, %[end]", "cmp %[vp], r2", "bne 1b"]
    stop = unroll != words
    outs = ['[wp] "+r"(aot_wp)', '[vp] "+r"(aot_vp)', *(['[stop] "+m"(aot_stop)'] if stop else [])]
    return AsmBlock(
        [
            f"const void *aot_wp = {operands['w'].pointer};",
            f"void *aot_vp = {operands['v'].pointer};",
            f"const void *const aot_end = (const uint8_t *)aot_vp + {positions * row};",
            *(["uint32_t aot_stop = 0u;"] if stop else []),
        ],
        text,
        outs=outs,
        ins=['[end] "m"(aot_end)'],
        clobbers=(*_WEIGHTS, *_ACCS, *_INPUTS),
    ).emit()
