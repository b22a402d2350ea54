"""3 x 3 convolution of stride 1 by Winograd's F(2x2, 3x3) and F(4x4, 3x3), exact in integers.

The trick (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks"): transformed into Winograd's domain, a tile of m x
m outputs needs n x n products per input channel, n = m + 2, instead of 9 m^2.  That is 16 in place of 36 for m = 2, and 36 in
place of 144 for m = 4.

A block is two tiles of m x m outputs x four output channels.  For two tiles at a time: copy their windows with the border
(`patch`), transform all input channels; then for every four output channels multiply both tiles in one block of assembly,
transform back and requantise.  If the image is not a multiple of m, the last row and column of tiles move inwards and compute
some outputs twice.

With the matrices below, all of integers and modulo 2^32,

    U = G g G^T (weights, offline)     V = B^T x B (inputs)     M = sum over channels of U * V     A^T M A = scale * acc

position by position; the denominators of G are multiplied out.  For m = 4 `scale` differs by output row and column, which saves
shifts; see `Winograd.row_factor`.

With DSP instructions, U and V are pairs of halfwords, two input channels per word, and SMLAD multiplies.  Without them they are
words, one channel each, and MLA multiplies; the input transform still handles two channels at once, as numbers p + q * 2^16,
which are separated at its end (`split`).

Flash: 2 * (m + 2)^2 / 9 bytes per weight, 3.56 for m = 2 and 8 for m = 4. Scratch, for I input channels rounded up to a multiple
of 4: 88 * I + 520 bytes for m = 2, 180 * I + 1456 for m = 4. Without DSP instructions (`conv2d_winograd_f4_mla`): 16 bytes per
weight, 324 * I + 1456 bytes of scratch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Load, Var, as_expr, binop, cast, imm, logical_and, maximum, minimum
from aot.tir.intrin import BlockText, TensorIntrin
from aot.topi.intrin.asm_text import Operands, Repeat, asm, block_of
from aot.topi.intrin.scalar import SADD16, SSUB16, SXTB16, SXTB16_ROR8, UXTB16, UXTB16_ROR8
from aot.topi.layer.fused import FusedLayer, LayerIo, epilogue_each, lowered, match_layer, open_io, supports_epilogue
from aot.topi.layer.requant import MAX_CONSTANT_BITS, HighMultiply, RequantParam, load_params, plan_smmla, thresholds
from aot.topi.strategy import Group, Lowered, register_planned

TILES, CHANNELS = 2, 4
"""The product block computes two tiles x four output channels."""

SUMS = TILES * CHANNELS


@dataclass(frozen=True, slots=True)
class Winograd:
    """One size of tile: `g` is G with n rows; `row_factor[i]` is what output row or column i lacks to the common `denominator`.

    A^T M A at (i, j) is acc * denominator^2 / (row_factor[i] * row_factor[j]).  `bias_gain` is what position 1 contributes to
    every output of a row, including the row's factor.  `input_gain` bounds |V| / |x|, and `offset_gain` bounds |V| / x if no x is
    negative.  `span` adjacent tiles share a window.
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
        """Inputs per row of the window of `span` tiles."""
        return self.m * self.span + 2

    @property
    def positions(self) -> int:
        return self.n * self.n


F2 = Winograd(2, ((2, 0, 0), (1, 1, 1), (1, -1, 1), (0, 0, 2)), (1, 1), denominator=2, bias_gain=1, input_gain=4, offset_gain=4,
              span=2)  # fmt: skip
F4 = Winograd(4, ((6, 0, 0), (-1, -1, -1), (-1, 1, -1), (1, 2, 4), (1, -2, 4), (0, 0, 6)), (1, 2, 4, 4), denominator=24,
              bias_gain=4, input_gain=100, offset_gain=68, span=1)  # fmt: skip


def transform_numbers(b: IRBuilder, x: Sequence[Expr]) -> list[Expr]:
    """Return B^T x for m = 4 and six values modulo 2^32 (uint32), using shifted operands."""

    let = partial(b.let, "t")
    even, odd = let(x[4] - x[2] * 4), let(x[3] - x[1] * 4)
    near, step = let(x[4] - x[2]), let(x[3] - x[1])
    first, last = let(x[0] - x[2]), let(x[5] - x[3])
    sums = [near + first * 4, even + odd, even - odd, near + step * 2, near - step * 2, last - step * 4]
    return [let(value) for value in sums]


def split(b: IRBuilder, number: Expr) -> tuple[Expr, Expr]:
    """Return p and q of p + q * 2^16 modulo 2^32, both within int16, as words (uint32)."""
    low = b.let("p", cast("int32", cast("int16", number)))
    return cast("uint32", low), b.let("q", cast("uint32", cast("int32", number - cast("uint32", low)) >> 16))


def transform_input(b: IRBuilder, form: Winograd, x: Sequence[Expr]) -> list[Expr]:
    """Return B^T x for n values that are pairs of int16 (uint32)."""

    def add(p: Expr, q: Expr) -> Expr:
        return b.let("s", SADD16(p, q))

    def sub(p: Expr, q: Expr) -> Expr:
        return b.let("d", SSUB16(p, q))

    if form.m == 2:
        return [sub(x[0], x[2]), add(x[1], x[2]), sub(x[2], x[1]), sub(x[1], x[3])]
    x1, x2 = add(x[1], x[1]), add(x[2], x[2])
    even, odd = sub(x[4], add(x2, x2)), sub(x[3], add(x1, x1))  # x4 - 4 x2, x3 - 4 x1
    near, step = sub(x[4], x[2]), sub(x[3], x[1])
    step = add(step, step)
    first = sub(x[0], x[2])
    first, last = add(first, first), sub(x[5], x[3])
    sums = [add(add(first, first), near), add(even, odd), sub(even, odd)]
    return [*sums, add(near, step), sub(near, step), sub(last, add(step, step))]


def slide_input(b: IRBuilder, x: Sequence[Expr]) -> list[tuple[int, Expr]]:
    """Return what the newest of three or four values completes of B^T x for m = 2: (index, value) pairs."""
    if len(x) == 4:
        return [(3, b.let("d", SSUB16(x[1], x[3])))]
    return [(0, b.let("d", SSUB16(x[0], x[2]))), (1, b.let("s", SADD16(x[1], x[2]))), (2, b.let("d", SSUB16(x[2], x[1])))]


def transform_output(b: IRBuilder, form: Winograd, m: Sequence[Expr]) -> list[Expr]:
    """Return A^T m for n values modulo 2^32 (uint32); row i lacks the factor row_factor[i]."""

    let = partial(b.let, "t")
    if form.m == 2:
        return [let(m[0] + m[1] + m[2]), let(m[1] - m[2] - m[3])]
    s12, d12 = let(m[1] + m[2]), let(m[1] - m[2])
    s34, d34 = let(m[3] + m[4]), let(m[3] - m[4])
    return [let(m[0] + s34 + s12 * 4), let(d34 + d12 * 2), let(s12 + s34), let(m[5] + d12 + d34 * 2)]


_CHUNK = ("r2", "r3", "r4", "r5")


def pixel_body(words: int) -> int:
    """Return the words per iteration of the loops over pixels: all of a pixel's, or the largest divisor up to 32."""
    return max(u for u in range(1, 33) if words % u == 0)


@cache
def copy_pixels(words: int) -> TensorIntrin:
    """y[i] = x[i] for i < words * pixels (0 or more pixels); operands: x and y uint32, pixels."""
    text: list[str | Repeat] = []
    body = pixel_body(words)
    for first in range(0, body, len(_CHUNK)):
        regs = _CHUNK[: min(len(_CHUNK), body - first)]
        if len(regs) == 1:
            text += ["ldr r2, [%[xp]], #4", "str r2, [%[yp]], #4"]
        else:
            text += [f"{op} %[{p}]!, {{{', '.join(regs)}}}" for op, p in (("ldmia", "xp"), ("stmia", "yp"))]
    return _pixels(f"copy_pixels_{words}", words, text)


@cache
def fill_pixels(words: int) -> TensorIntrin:
    """y[i] = value for i < words * pixels (0 or more pixels); operands: y uint32, pixels, value (uint32)."""
    text = [Repeat(pixel_body(words), ["str %[value], [%[yp]], #4"])]
    return _pixels(f"fill_pixels_{words}", words, text, Var("value", "uint32"))


def _pixels(name: str, words: int, body: Sequence[str | Repeat], value: Var | None = None) -> TensorIntrin:
    """Build a loop that runs `body` to the end of the pixels, possibly zero times: it writes `value`, or else a copy."""
    b, pixels = IRBuilder(name), Var("pixels")
    y = b.output("y", (UNKNOWN_EXTENT,), "uint32", align=4)
    x = b.input("x", (UNKNOWN_EXTENT,), "uint32", align=4) if value is None else y
    with b.for_("i", pixels * words) as i:
        b.store(y, i, x[i] if value is None else as_expr(value))
    text: list[str | Repeat] = ["b 2f", "1:", *body, "2:", "cmp %[yp], %[end]", "bne 1b"]

    def emit(operands: Operands) -> BlockText:
        end = {"yp:r": f"{4 * words} * ({operands['pixels'].value})"}
        if value is not None:
            return asm(operands, text, ">yp=y", {"value": operands["value"].value}, end=end, kind="+")
        return asm(operands, text, ">yp=y xp=x", end=end, clobbers=_CHUNK[: min(words, len(_CHUNK))], kind="+")

    return block_of(b, "arm_dsp", emit, pixels, *([] if value is None else [value]), requires="thumb2")


MAX_STRAIGHT = 32
"""Most words of an output channel for which a position needs no inner loop."""


def unrolled_words(words: int) -> int:
    """Return the words in the straight part of the product block: all, or the largest divisor up to 16."""
    return words if words <= MAX_STRAIGHT else max(u for u in range(1, 17) if words % u == 0)


def product_instructions(words: int) -> int:
    """Return the instructions that the product block executes at one position."""
    if words <= MAX_STRAIGHT:
        return 11 * words + 4
    return 11 * words + 3 * (words // unrolled_words(words)) + 8 + 2 + 4


@dataclass(frozen=True, slots=True)
class Product:
    """What a word of the products holds: with `pair`, two int16 for SMLAD (DSP instructions), else one number for MLA."""

    pair: bool

    @property
    def inputs(self) -> int:
        """Input channels per word."""
        return 2 if self.pair else 1


PAIRS, NUMBERS = Product(pair=True), Product(pair=False)


@cache
def winograd_product(positions: int, words: int, product: Product) -> TensorIntrin:
    """The products at every position: 4 output channels x 2 tiles, summed over the input channels of `words` words, modulo 2^32.

    Operands: w int32[positions][words][4]; v uint32[positions][2 * words + 8], each position with the data [words][2 tiles],
    which are read, then the sums [4 channels][2 tiles], which are written.
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
    requires = "dsp" if product.pair else "thumb2"
    return block_of(b, "arm_dsp", lambda ops: _emit_product(ops, positions, words, product), requires=requires)


_WEIGHTS, _INPUTS = ("r2", "r3"), ("r12", "lr")
_ACCS = tuple(f"r{4 + i}" for i in range(SUMS))


def _step(product: Product, *, first: bool) -> list[str]:
    """Return the instructions for one word per channel; STM needs ascending registers, so these are fixed here."""
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


def _emit_product(operands: Operands, positions: int, words: int, product: Product) -> BlockText:
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
    stop, out = (["uint32_t aot_stop = 0u;"], ['[stop] "+m"(aot_stop)']) if unroll != words else ([], [])
    end, clobbers = {"vp:m": str(positions * row)}, (*_WEIGHTS, *_ACCS, *_INPUTS)
    return asm(operands, text, "wp=w >vp=v", end=end, after=stop, last=out, clobbers=clobbers, kind="+")


# Requantisation of accumulators that are scaled by a gain, with one high multiply and one saturation; see aot.topi.layer.requant.


INT32_MAX = (1 << 31) - 1


def plan_scaled(layer: FusedLayer, prescale: Array) -> HighMultiply | None:
    """Return TFLite's own steps for gains 2^prescale, at least 4, per channel; None if a number does not fit."""
    attrs = layer.requant
    if (prescale < 2).any() or (-np.asarray(attrs.shift, np.int64) < int(attrs.rounding == "double")).any():
        return None
    return plan_smmla(attrs, layer.acc_low, layer.acc_high, prescale)


def plan_gain(layer: FusedLayer, gain: int, *, limit: int) -> HighMultiply | None:
    """Return a form for any gain: one shift for all channels, a multiplier in (0, limit], no sign term; None if the thresholds do
    not prove it exact.
    """
    attrs, low, high = layer.requant, layer.acc_low.astype(np.int64), layer.acc_high.astype(np.int64)
    at = thresholds(attrs, low, high) if int(np.maximum(np.abs(low), np.abs(high) + 1).max()) * gain <= INT32_MAX else None
    if at is None:
        return None
    fixed = ((at <= low) | (at > high)).all(axis=0)  # channels with one result, for which any multiplier will do
    real = np.ldexp(np.asarray(attrs.multiplier, np.float64), np.asarray(attrs.shift, np.int64) - 31 + 32) / gain
    real = np.where(fixed, 0.0, np.broadcast_to(real, low.shape))
    shift = MAX_CONSTANT_BITS if fixed.all() else min(int(np.floor(np.log2(limit / real.max()))), MAX_CONSTANT_BITS)
    if shift < 0:
        return None
    multiplier = np.minimum(np.rint(np.ldexp(real, shift)), limit).astype(np.int64)
    constant = _constant(at, (low, high), multiplier * gain, codes=np.arange(attrs.lo + 1, attrs.hi + 1).reshape(-1, 1) << shift)
    if constant is None:
        return None
    params = (
        RequantParam("multiplier", multiplier),
        RequantParam("constant", constant),
        RequantParam("shift", np.full_like(low, shift)),
    )
    return HighMultiply(params, np.zeros_like(low), False, False, attrs.lo, attrs.hi, attrs.dtype, True)


def _constant(at: Array, bounds: tuple[Array, Array], ratio: Array, *, codes: Array) -> Array | None:
    """Return C per channel, or one C for all if possible, so that hi(acc * ratio) + C first reaches codes[k] at acc = at[k]."""
    low, high = bounds
    far = np.int64(1) << 40
    least = np.where(at <= high, codes - (at * ratio >> 32), -far).max(axis=0, initial=-far)
    most = np.where(at > low, codes - 1 - ((at - 1) * ratio >> 32), far).min(axis=0, initial=far)
    if (least > most).any():
        return None
    constant: Array = np.where(least == -far, most, np.where(most == far, least, (least + most) >> 1))
    if least.max() <= most.min():
        constant = np.full_like(constant, constant[least.argmax()] if least.max() == -far else least.max())
    largest = np.abs(constant) + (np.maximum(np.abs(low), np.abs(high)) * ratio >> 32) + 1
    return None if (largest > INT32_MAX).any() else constant


INT16_MAX = (1 << 15) - 1
MIN_INPUTS, MAX_WORDS = 8, 508
"""Fewest input channels, as fewer are not worth the transforms; most words per channel, for the inner loop's end to be in reach.
"""
BYTE_OFFSET = 128
"""Added to the data without DSP instructions: they are then unpacked as unsigned bytes."""


@dataclass(frozen=True, slots=True)
class WinogradPlan:
    """Weights in the transform domain, and the requantisation.

    `weights` is U, int16 values [O][positions][I], channels padded to multiples of 4, position x * n + y.  `bias` is added at
    position (1, 1).  The output transform gives acc * gain / f modulo 2^32, f = row_factor[y] * row_factor[x].  If `factor` is 1,
    the requantisation multiplies this by its multiplier times f; else this times factor * f is acc * 64.
    """

    form: Winograd
    product: Product
    requant: HighMultiply
    weights: Array
    bias: Array
    factor: int


def is_winograd_shape(layer: FusedLayer, product: Product) -> bool:
    """Whether the window is 3 x 3, of stride 1 and dilation 1, with enough input channels."""
    if layer.weight.ndim != 4 or layer.weight.shape[1:3] != (3, 3):
        return False
    if not MIN_INPUTS <= layer.weight.shape[3] <= MAX_WORDS * product.inputs:
        return False
    return bool(layer.attrs.strides == (1, 1) and layer.attrs.dilation == (1, 1))


def plan_winograd(layer: FusedLayer, form: Winograd, product: Product = PAIRS) -> WinogradPlan | None:
    """Return the cheapest plan that is provably exact for all data, or None.

    |U| and |V| must fit int16 and the scaled accumulator int32: acc * 4 for m = 2; acc * 576 for m = 4 or, if that does not fit
    or has no exact requantisation, acc * 64 with one more multiplication per output.
    """
    if (128 * form.input_gain if product.pair else 255 * form.offset_gain) > INT16_MAX:
        return None
    g = np.asarray(form.g, np.int64)
    domain = np.einsum("xi,yj,ojik->oxyk", g, g, layer.weight.astype(np.int64))
    largest = int(np.abs(domain).max())
    if largest > INT16_MAX:
        return None
    room = (INT16_MAX if product.pair else INT32_MAX) // np.abs(domain).reshape(domain.shape[0], -1).max(axis=1, initial=1)
    cheapest = _requantise(layer, form, room=room)
    if cheapest is None:
        return None
    requant, extra, factor = cheapest
    outputs, inputs = domain.shape[0], domain.shape[3]
    weights = domain.reshape(outputs, form.positions, inputs) << extra[:, None, None]
    weights = np.pad(weights, ((0, -outputs % CHANNELS), (0, 0), (0, -inputs % 4)))
    bias = (
        layer.bias if product.pair else layer.bias - BYTE_OFFSET * layer.weight.reshape(outputs, -1).sum(axis=1, dtype=np.int64)
    )
    scaled = bias * (form.denominator**2 // form.bias_gain**2) << extra
    return WinogradPlan(form, product, requant, weights, scaled, factor)


def _requantise(layer: FusedLayer, form: Winograd, *, room: Array) -> tuple[HighMultiply, Array, int] | None:
    """Return the cheapest exact (requantisation, bits by which the weights of each channel are scaled up, factor), or None.

    The weights of a channel have `room` for a factor of 2^bits.  These factors make the last shift the same for all channels.
    """
    gain = form.denominator**2
    odd = gain // (gain & -gain)
    none = np.zeros_like(layer.bias)
    if odd != 1:
        requant = plan_gain(layer, gain, limit=INT32_MAX // max(form.row_factor) ** 2)
        if requant is not None:
            return requant, none, 1
    least = (gain // odd).bit_length() - 1
    right = -np.broadcast_to(np.asarray(layer.requant.shift, np.int64), layer.bias.shape)
    extra = np.minimum(right.max() - right, 15)
    for bits in (extra, none):
        requant = plan_scaled(layer, least + bits) if ((1 << bits) <= room).all() else None
        if requant is not None:
            return requant, bits, pow(odd, -1, 1 << 32)
    return None


class WinogradStream:
    """The packed constants of a plan, int32: per block of 4 channels U [positions][words][4], then rows of numbers [4 channels].

    A word of U holds the weight of one input or, with pairs, of inputs k and k + 2 (k even or odd within 4), because SXTB16
    extracts these two bytes of a word of data.
    """

    def __init__(self, plan: WinogradPlan) -> None:
        self.plan = plan
        self.words = plan.weights.shape[2] // plan.product.inputs
        self.blocks = plan.weights.shape[0] // CHANNELS
        self._rows = [plan.bias, *(f.values for f in plan.requant.params if not f.uniform)]

    @property
    def block_words(self) -> int:
        return int(CHANNELS * (self.plan.form.positions * self.words + len(self._rows)))

    @property
    def numbers(self) -> int:
        """Words read per channel."""
        return len(self._rows)

    def data(self) -> Array:
        words = self.plan.weights
        if self.plan.product.pair:
            u = words.reshape(self.blocks, CHANNELS, self.plan.form.positions, -1, 2, 2)  # ... [quad][half][even or odd]
            words = (u[..., 0, :] & 0xFFFF) | (u[..., 1, :] << 16)
        words = words.reshape(self.blocks, CHANNELS, self.plan.form.positions, self.words).transpose(0, 2, 3, 1)
        padded = [np.pad(r, (0, self.blocks * CHANNELS - len(r))).reshape(self.blocks, CHANNELS) for r in self._rows]
        out = np.concatenate([words.reshape(self.blocks, -1), *padded], axis=1)
        return (out & 0xFFFFFFFF).astype(np.uint32).view(np.int32).reshape(-1)

    def _number(self, params: Buffer, start: Expr, row: int) -> Expr:
        return params[start + CHANNELS * (self.plan.form.positions * self.words + row)]

    def bias(self, params: Buffer, start: Expr) -> Expr:
        """Return the bias of the channel whose numbers begin at word `start` (block * block_words + channel in the block)."""
        return self._number(params, start, 0)

    def requant_params(self, b: IRBuilder, params: Buffer, start: Expr) -> tuple[Expr, ...]:
        """Return the requantisation parameters of that channel; emits their loads."""
        return load_params(b, self.plan.requant, (self._number(params, start, row) for row in range(1, len(self._rows))))


def plan(group: Group, target: Target, *, form: Winograd, product: Product) -> tuple[FusedLayer, WinogradPlan] | None:
    """Accept layers with at least one whole tile and a plan that is provably exact.

    MLA is for cores without DSP instructions, as SMLAD does two products.
    """
    layer = match_layer(group, wide=True)
    if layer is None or not target.has("thumb2") or target.has("dsp") != product.pair:
        return None
    if not supports_epilogue(layer) or not is_winograd_shape(layer, product):
        return None
    _, height, width, _ = layer.out_type.shape
    exact = plan_winograd(layer, form, product) if height >= form.m and width >= form.m * form.span else None
    return None if exact is None else (layer, exact)


def lower(group: Group, _target: Target, name: str, plan: tuple[FusedLayer, WinogradPlan]) -> Lowered:
    layer, exact = plan
    kernel = _Kernel(IRBuilder(name), group, layer, exact)
    kernel.body()
    described = "arm_dsp.conv2d_winograd" + "_mla" * (not exact.product.pair)
    return lowered(kernel.io, layer, described, kernel.instructions(), kernel.code(), m=exact.form.m)


class _Kernel:
    """Emits the loops: two tiles at a time; for these, patch and input transform, then blocks of four channels."""

    def __init__(self, b: IRBuilder, group: Group, layer: FusedLayer, plan: WinogradPlan) -> None:
        self._b, self._layer, self._form, self._plan = b, layer, plan.form, plan
        self._stream = WinogradStream(plan)
        self._inputs = layer.weight.shape[3]
        self._words = plan.weights.shape[2] // 4
        """Words per pixel of the patch."""
        self._by_words = self._inputs % 4 == 0
        self.io: LayerIo = open_io(
            b,
            group,
            layer,
            data_shape=(prod(layer.data_type.shape),),
            out_shape=(prod(layer.out_type.shape),),
            data_align=4 if self._by_words else 1,
        )
        self._params = self.io.constant("params", self._stream.data(), "int32")
        self._row = TILES * self._stream.words + SUMS
        self._patch = b.scratch("patch", (self._form.n * self._form.window_width * self._words,), "uint32")
        self._domain = b.scratch("domain", (self._form.positions * self._row,), "uint32")
        self._half = b.scratch("half", (2 * self._form.positions,), "uint32") if self._form.span == 1 else None
        self._origin = b.scratch("origin", (2 * TILES // self._form.span,), "int32")
        n, height, width, _ = layer.out_type.shape
        self._units_y, self._units_x = -(-height // self._form.m), -(-width // (self._form.m * self._form.span))
        self._units = n * self._units_y * self._units_x

    def body(self) -> None:
        b, at_once = self._b, TILES // self._form.span
        with b.for_("pair", -(-self._units // at_once)) as pair:
            with b.for_("t", at_once) as t:
                unit: Expr = pair * at_once + t
                if self._units % at_once:
                    unit = b.let("unit", minimum(unit, self._units - 1))
                self._load_unit(unit, t)
                with b.for_("k", self._words) as k:
                    self._transform(k, t)
            with b.for_("n", self._stream.blocks) as block:
                start = b.let("block", block * self._stream.block_words)
                product = winograd_product(self._form.positions, self._stream.words, self._plan.product)
                b.block(product, region(self._params, start), self._domain)
                left = self._layer.channels - block * CHANNELS
                count = CHANNELS if self._layer.channels % CHANNELS == 0 else minimum(left, CHANNELS)
                with b.for_("c", count) as c:
                    self._channel(start + c, block * CHANNELS + c, c)

    def _load_unit(self, unit: Expr, t: Expr) -> None:
        """Copy the window of one unit, `span` tiles, to the patch, and remember where its outputs begin."""
        b, form, padding = self._b, self._form, self._layer.attrs.padding
        layer = self._layer
        _, height, width, channels = layer.out_type.shape
        line = b.let("line", unit / self._units_x)
        image: Expr = imm(0)
        row: Expr = line
        if self._layer.out_type.shape[0] > 1:
            image = b.let("image", line / self._units_y)
            row = line - image * self._units_y
        y = b.let("y", minimum(row * form.m, height - form.m))
        x = b.let("x", minimum((unit - line * self._units_x) * (form.m * form.span), width - form.m * form.span))
        place = b.let("place", ((image * height + y) * width + x) * channels)
        b.store(self._origin, t, place)
        if layer.epilogue:
            b.store(self._origin, t + TILES // form.span, place)
        data_height, data_width = self._layer.data_type.shape[1:3]
        column = b.let("column", x - padding[1])
        columns = imm(form.window_width)
        first: Expr = imm(0)
        last: Expr = columns
        if any(padding):
            first = b.let("first", minimum(maximum(0 - column, 0), columns))
            last = b.let("last", maximum(minimum(data_width - column, columns), first))
        with b.for_("r", form.n) as r:
            at = b.let("at", y - padding[0] + r)
            source = ((image * data_height + at) * data_width + column) * self._inputs
            if any(padding):
                with b.if_(logical_and(at >= 0, at < data_height)):
                    self._fill(r, imm(0), first)
                    self._copy(source, r, first, last)
                    self._fill(r, last, columns)
                with b.else_():
                    self._fill(r, imm(0), columns)
            else:
                self._copy(source, r, first, last)

    def _fill(self, r: Expr, first: Expr, last: Expr) -> None:
        """Set pixels first..last of row r to the padding value."""
        word = (self._layer.attrs.pad_value & 0xFF) * 0x01010101
        at = (r * self._form.window_width + first) * self._words
        self._b.block(fill_pixels(self._words), region(self._patch, at), last - first, imm(word, "uint32"))

    def _copy(self, source: Expr, r: Expr, first: Expr, last: Expr) -> None:
        """Copy pixels first..last of row r; `source` is the byte of the row's pixel 0."""
        b = self._b
        row = r * (self._form.window_width * self._words)
        if self._by_words:
            data = region(self.io.data, (source + first * self._inputs) / 4, dtype="uint32")
            b.block(copy_pixels(self._words), data, region(self._patch, row + first * self._words), last - first)
            return
        with b.for_("p", last, start=first) as p, b.for_("i", self._inputs) as i:
            value = self.io.data.load("int8", source + p * self._inputs + i)
            b.store_as(self._patch, "int8", (row + p * self._words) * 4 + i, value)

    def _transform(self, k: Expr, t: Expr) -> None:
        """Compute V of four channels (word k of each pixel)."""
        target = self._b.let("target", k * (4 // self._plan.product.inputs * TILES) + t)
        if self._half is None:
            for part in range(2):
                self._slide(k, target, part)
        else:
            self._transform_by_halves(k, target, self._half)

    def _store_domain(self, target: Expr, values: Sequence[Expr], *, position: tuple[int, int], part: int) -> None:
        """Store `values` at positions (x, y), (x, y + 1) ...; they are of channels 0 and 2 (part 0) or 1 and 3 of the four."""
        x, y = position
        for j, value in enumerate(values):
            words = (value,) if self._plan.product.pair else split(self._b, value)
            for i, word in enumerate(words):
                at = (x * self._form.n + y + j) * self._row + (part + 2 * i) * TILES
                self._b.store(self._domain, target + at, word)

    def _slide(self, k: Expr, target: Expr, part: int) -> None:
        """Transform two adjacent tiles, column by column; three columns are live at a time."""
        b, form = self._b, self._form
        extend = (SXTB16, SXTB16_ROR8)[part]
        columns: list[list[Expr]] = []
        for c in range(form.window_width):
            words = [b.let("w", self._patch[k + (r * form.window_width + c) * self._words]) for r in range(form.n)]
            columns.append(transform_input(b, form, [b.let("x", extend(w)) for w in words]))
            tile = (c - 2) // form.m
            for j in range(form.n if c >= 2 else 0):
                old = [columns[i][j] for i in range(form.m * tile, c + 1)]
                for x, value in slide_input(b, old):
                    self._store_domain(target + tile, [value], position=(x, j), part=part)

    def _transform_by_halves(self, k: Expr, target: Expr, half: Buffer) -> None:
        """Transform one tile: first its rows, then its columns, whose positions are adjacent.

        The intermediate values are in `half`.  The compiler must assume that it overlaps the other memory, so it keeps the order
        of loads and stores and does not run out of registers.
        """
        b, n, pair = self._b, self._form.n, self._plan.product.pair

        def transformed(values: Sequence[Expr]) -> list[Expr]:
            return transform_input(b, self._form, values) if pair else transform_numbers(b, values)

        for r in range(n):
            words: list[Expr] = [b.let("w", self._patch[k + (r * n + c) * self._words]) for c in range(n)]
            if not pair:  # BYTE_OFFSET
                words = [b.let("w", binop("^", w, 0x80808080)) for w in words]
            for part, extend in enumerate((SXTB16, SXTB16_ROR8) if pair else (UXTB16, UXTB16_ROR8)):
                for i, value in enumerate(transformed([b.let("x", extend(w)) for w in words])):
                    b.store(half, (part * n + i) * n + r, value)
        for part in range(2):
            for i in range(n):
                column: list[Expr] = [b.let("x", half[(part * n + i) * n + r]) for r in range(n)]
                self._store_domain(target, transformed(column), position=(i, 0), part=part)

    def _channel(self, start: Expr, channel: Expr, c: Expr) -> None:
        """Compute both tiles of one output channel, `c` in its block."""
        b, form = self._b, self._form
        bias = b.let("bias", cast("uint32", self._stream.bias(self._params, start)))
        requant_params = self._stream.requant_params(b, self._params, start)
        with b.for_("u", TILES // form.span) as u:
            place = b.let("place", self._origin[u] + channel)
            other = b.let("other", self._origin[u + TILES // form.span] + channel) if self._layer.epilogue else place
            for s in range(form.span):
                sums = b.let("sums", c * TILES + (u * form.span + s + TILES * self._stream.words))
                rows = self._inverse(sums, bias)
                shift = s * form.m * self._layer.channels
                self._outputs(rows, (place + shift, other + shift), requant_params)

    def _inverse(self, sums: Expr, bias: Expr) -> list[list[Expr]]:
        """Return A^T M A by rows, not divided; `sums` is the index of M at position 0."""
        b, n, form = self._b, self._form.n, self._form
        columns: list[list[Expr]] = []
        for i in range(n):
            loaded: list[Expr] = [b.let("m", self._domain[sums + (i * n + j) * self._row]) for j in range(n)]
            if i == 1:
                loaded[1] = b.let("m", loaded[1] + bias)
            columns.append(transform_output(b, form, loaded))
            if self._half is not None:
                for y, value in enumerate(columns[-1]):
                    b.store(self._half, y * n + i, value)
        if self._half is None:
            return [[columns[i][y] for i in range(n)] for y in range(form.m)]
        return [[self._half[y * n + i] for i in range(n)] for y in range(form.m)]

    def _outputs(self, rows: list[list[Expr]], places: tuple[Expr, Expr], requant_params: tuple[Expr, ...]) -> None:
        """Emit the second half of the inverse transform, the requantisation, and the stores.

        `places` has the element of the tile's first output, in the output and in operands of the epilogue.  The numbers are
        equal; the compiler does not know that, so it keeps a pointer for each and reaches all elements from these.
        """
        b, form, plan = self._b, self._form, self._plan
        _, _, width, channels = self._layer.out_type.shape
        scales: dict[int, Expr] = {1: requant_params[0]}
        for y, row in enumerate(rows):
            for x, value in enumerate(transform_output(b, form, [b.let("h", v) if isinstance(v, Load) else v for v in row])):
                lacking = form.row_factor[y] * form.row_factor[x]
                if plan.factor != 1:
                    value = value * imm(plan.factor * lacking & 0xFFFFFFFF, "uint32")
                    lacking = 1
                if lacking not in scales:
                    scales[lacking] = b.let("scale", requant_params[0] * lacking)
                scaled = b.let("acc", cast("int32", value))
                result = plan.requant.emit_scaled(b, scaled, (scales[lacking], *requant_params[1:]))
                step = (y * width + x) * channels
                (result,) = self.io.finished([(places[1] + step,)], [result])
                b.store(self.io.out, (places[0] + step,), result)

    def instructions(self) -> int:
        """Return the instructions of one call (parts from counts under QEMU)."""
        form, words, layer = self._form, self._words, self._layer
        padded = any(layer.attrs.padding)
        body = pixel_body(words)
        pixel = words // body * (2 * -(-body // 4) + 2) if self._by_words else 3 * self._inputs + 5
        row = form.window_width * pixel + (28 if padded else 10)
        plan, requant = self._plan, self._plan.requant
        transform = 308 if form is F2 else 868 if plan.product.pair else 1104
        output = (
            3
            + (plan.factor != 1)
            + 2 * requant.signed
            + (not requant.params[2].uniform)
            + 2 * ((requant.lo, requant.hi) != (-128, 127))
        )
        output += epilogue_each(layer)
        tile = 42 if form is F2 else 208 if plan.product.pair else 249
        channel = 22 + self._stream.numbers + TILES * (tile + form.m**2 * output)
        product = form.positions * product_instructions(self._stream.words) + 20
        load = TILES // form.span * (40 + form.n * row + words * transform)
        pairs = -(-self._units * form.span // TILES)
        return int(pairs * (load + self._stream.blocks * product + layer.channels * channel + 14))

    def code(self) -> int:
        """Return the bytes of code of the function."""
        form = self._form
        transforms = 1900 + 15 * self._words if form is F2 else 4600 + 25 * self._words
        output = 40 * len(self._layer.epilogue) + 12 * self._plan.requant.signed + 10 * (self._plan.factor != 1)
        return int(transforms + 44 * unrolled_words(self._stream.words) + form.m**2 * form.span * output)


for _name, _form, _product, _plevel in (("f2", F2, PAIRS, 30), ("f4", F4, PAIRS, 31), ("f4_mla", F4, NUMBERS, 31)):
    _plan = partial(plan, form=_form, product=_product)
    register_planned(f"arm_dsp.conv2d_winograd_{_name}", "nn.conv2d", _plan, lower, plevel=_plevel)
