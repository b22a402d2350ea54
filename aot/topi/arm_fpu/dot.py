"""Blocks of float32 products: a few pixels by some channels, over all taps of a window, in the reference's order of addition."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache

import numpy as np

from aot.ir.op import Array
from aot.op.common.te_rule import pack_nibbles
from aot.relay.expr import Constant
from aot.relay.stored import codes_of, encoded
from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, binop, cast, imm, select
from aot.tir.intrin import BlockText, TensorIntrin
from aot.topi.intrin.asm_text import Operands, Repeat, asm, block_of, count_instructions

LARGEST = float(np.finfo(np.float32).max)

Text = list[str | Repeat]


@dataclass(frozen=True, slots=True)
class Clamp:
    """The bounds of a fused activation, None if there is none."""

    lo: float | None
    hi: float | None

    @property
    def name(self) -> str:
        names = {(None, None): "", (-LARGEST, LARGEST): "", (0.0, LARGEST): "_relu", (0.0, 6.0): "_relu6"}
        suffix = names.get((self.lo, self.hi), f"_clamp_{bits_of(self.lo):x}_{bits_of(self.hi):x}")
        return suffix + "_unbounded" * (self.lo is None)

    @property
    def rectifies(self) -> bool:
        """Whether BIC with the sign does the clamp for finite numbers."""
        return self.lo == 0.0 and self.hi in (6.0, LARGEST)

    @property
    def keeps(self) -> bool:
        """Whether the clamp changes no finite number."""
        return self.lo == -LARGEST and self.hi == LARGEST

    def meaning(self, b: IRBuilder, value: Expr) -> Expr:
        """Clamp as the operators' te rules do."""
        for bound, below in ((self.lo, True), (self.hi, False)):
            if bound is not None:
                value = b.let("value", value)
                limit = imm(float(np.float32(bound)), "float32")
                value = select(value < limit if below else value > limit, limit, value)
        return value


def bits_of(bound: float | None) -> int:
    """The bits of a bound as float32."""
    return int(np.float32(0 if bound is None else bound).view(np.uint32))


def vector(first: int, count: int) -> str:
    """A list of registers for VLDM and VSTM."""
    return f"{{s{first}}}" if count == 1 else f"{{s{first}-s{first + count - 1}}}"


def add_bias(pixels: int, channels: int, free: int) -> Text:
    """Add the bias to results in s0 and up, one pixel after the other; the bias is loaded into `free` and up."""
    text: Text = [f"vldmia %[bias], {vector(free, channels)}"]
    return text + [
        f"vadd.f32 s{p * channels + c}, s{p * channels + c}, s{free + c}" for p in range(pixels) for c in range(channels)
    ]


def store_clamped(clamp: Clamp, pixels: int, channels: int, *, free: int, multiply: bool) -> Text:
    """Store results to %[o] and those of a second pixel to %[o] + %[step]; `free`: the first of four free registers after them.

    Clobbers the core registers t, u, w and, for two pixels, x0.  `multiply`: the test for finite results multiplies them (fewer
    instructions), otherwise it adds them (fewer cycles).
    """
    raw: Text = [f"vstmia %[o], {vector(0, channels)}"]
    if pixels == 2:
        raw += ["add %[x0], %[o], %[step]", f"vstmia %[x0], {vector(channels, channels)}"]
    if clamp.lo is None or clamp.hi is None:
        return raw
    slow = [line for o in ("o", "x0")[:pixels] for line in one_by_one(clamp, o, channels)]
    if not (clamp.keeps or clamp.rectifies):
        return [*raw, *slow]
    test = [*_sum(pixels * channels, free, multiply=multiply), *compared(free)]
    if clamp.keeps:
        return [*test, *raw, "bne 9f", *slow, "9:"]
    fast = _rectified(clamp, pixels, channels)
    return [*test, "beq 8f", *fast, "b 9f", "8:", *raw, *slow, "9:"]


def _sum(count: int, free: int, *, multiply: bool) -> Text:
    """Compute into `free` a number that is finite only if all results are."""
    if count == 1:
        return [f"vmov.f32 s{free}, s0"]
    if multiply:
        pairs = [(i, i + 1) for i in range(0, count - 1, 2)]
        text: Text = [f"{'vmul' if i < 2 else 'vmla'}.f32 s{free + i % 2}, s{a}, s{b}" for i, (a, b) in enumerate(pairs)]
        sums = [f"s{free + i}" for i in range(min(2, len(pairs)))] + [f"s{count - 1}"] * (count % 2)
    else:
        text = [f"vadd.f32 s{free + i // 2}, s{i}, s{i + 1}" for i in range(0, min(8, count - 1), 2)]
        sums = [f"s{free + i}" for i in range(len(text))]
        remainder = range(2 * len(text), count)
        text += [f"vadd.f32 {sums[i % len(sums)]}, {sums[i % len(sums)]}, s{r}" for i, r in enumerate(remainder)]
    for other in sums[1:]:
        text.append(f"vadd.f32 s{free}, s{free}, {other}")
    return text


def exceeds(count: int, free: int, *, fused: bool) -> Text:
    """Compare such that "equal" means: one of `count` results may not be finite.  Clobbers t, `free` and four more registers."""
    if fused and count > 1:
        text: Text = [f"{'vmla' if i else 'vmul'}.f32 s{free}, s{i}, s{i + 1}" for i in range(0, count - 1, 2)]
        text += [f"vadd.f32 s{free}, s{free}, s{count - 1}"] * (count % 2)
    elif count > 1:
        text = _sum(count, free, multiply=False)
    else:
        text, free = [], 0
    return [*text, *compared(free)]


def compared(register: int) -> Text:
    """Compare an exponent with the exponent of infinities and NaN."""
    return [f"vmov %[t], s{register}", "ubfx %[t], %[t], #23, #8", "cmp %[t], #255"]


def _rectified(clamp: Clamp, pixels: int, channels: int) -> Text:
    """Store finite results through core registers."""
    text: Text = [*constant("%[w]", bits_of(6.0))] if clamp.hi == 6.0 else []
    for p in range(pixels):
        if p:
            text.append(f"sub %[o], %[o], #{4 * channels}")
            text.append("add %[o], %[o], %[step]")
        for c in range(0, channels - 1, 2):
            s = p * channels + c
            text.append(f"vmov %[t], %[u], s{s}, s{s + 1}")
            text += positive(clamp, "t") + positive(clamp, "u") + ["strd %[t], %[u], [%[o]], #8"]
        if channels % 2:
            text += [f"vmov %[t], s{p * channels + channels - 1}", *positive(clamp, "t"), "str %[t], [%[o]], #4"]
    return text


def positive(clamp: Clamp, register: str) -> Text:
    """Clamp a finite number in a core register; for ReLU6, 6 is in %[w]."""
    r = f"%[{register}]"
    text: Text = [f"bic {r}, {r}, {r}, asr #31"]
    if clamp.hi == 6.0:
        text += [f"cmp {r}, %[w]", "it gt", f"movgt {r}, %[w]"]
    return text


def constant(register: str, bits: int) -> list[str]:
    """Load a word into a core register."""
    return [f"movw {register}, #{bits & 0xFFFF}", f"movt {register}, #{bits >> 16}"]


def limits(clamp: Clamp, low: int, high: int) -> list[str]:
    """Load the bounds into s`low` and s`high`; clobbers t."""
    pairs = ((low, clamp.lo), (high, clamp.hi))
    return [line for s, bound in pairs for line in (*constant("%[t]", bits_of(bound)), f"vmov s{s}, %[t]")]


def limited(value: int, low: int, high: int) -> list[str]:
    """Clamp a number as the operators' te rules do, with bounds in registers."""
    text: list[str] = []
    for s, condition in ((low, "mi"), (high, "gt")):
        text += [f"vcmp.f32 s{value}, s{s}", "vmrs APSR_nzcv, fpscr", f"it {condition}", f"vmov{condition}.f32 s{value}, s{s}"]
    return text


def one_by_one(clamp: Clamp, pointer: str, channels: int) -> Sequence[str]:
    """Clamp stored results in place."""
    text = [*limits(clamp, 1, 2), f"mov %[t], #{channels}", f"7: vldr.32 s0, [%[{pointer}]]", *limited(0, 1, 2)]
    return [*text, f"vstmia %[{pointer}]!, {{s0}}", "subs %[t], %[t], #1", "bne 7b"]


FLOATS = 32
"""Registers of an FPU."""

REGISTERS = tuple(f"s{i}" for i in range(FLOATS))
"""Registers that a block clobbers: it uses all of them by name."""

NEAR = 1020
"""Bytes that VLDR and VSTR reach from a pointer, in both directions."""


def float_operands(b: IRBuilder, *names: str) -> list[Buffer]:
    """The inputs of a block's description by name, and its output, all float32."""
    inputs = [b.input(name, (UNKNOWN_EXTENT,), "float32", align=4) for name in names]
    return [*inputs, b.output("out", (UNKNOWN_EXTENT,), "float32", align=4)]


Term = tuple[int, int, int, int, bool]
"""Registers of an accumulator, of a product, and of the two factors; whether the product is the accumulator's first value."""


def multiplied(terms: Iterable[Term], *, fused: bool, lag: int = 2) -> list[str]:
    """Products and sums: VMLA if `fused`, else VMUL and, `lag` products later, VADD."""
    text, waiting = list[str](), list[str]()
    for acc, product, x, y, first in terms:
        if first or fused:
            text.append(f"{'vmul' if first else 'vmla'}.f32 s{acc}, s{x}, s{y}")
            continue
        text.append(f"vmul.f32 s{product}, s{x}, s{y}")
        waiting.append(f"vadd.f32 s{acc}, s{acc}, s{product}")
        if len(waiting) > lag:
            text.append(waiting.pop(0))
    return text + waiting


def products_of_pixel(channels: int, taps: int, *, data: int, first: bool, fused: bool = False) -> list[str]:
    """The products of a pixel's taps, whose data are in s`data` and up: each load of weights fills all registers in between."""
    text, most, total = list[str](), data - channels, taps * channels
    for start in range(0, total, most):
        size = min(most, total - start)
        text.append(f"vldmia %[w]!, {vector(channels, size)}")
        places = enumerate(divmod(start + i, channels) for i in range(size))
        terms = ((c, channels + i, channels + i, data + k, first and k == 0) for i, (k, c) in places)
        text += multiplied(terms, fused=fused)
    return text


# Rows of weights that flash holds as float16 or integers: how a block of channels is packed and widened into FPU registers.
#
# A row is the weights of one tap for up to eight channels, in whole words.  A block's rows follow its biases and, for integers,
# the scales and any zero points, all as float32: value = scale * (float(stored integer) - zero), with the reference's single
# rounding (the difference is exact).


LEAST = 128
"""Fewest weights of a layer for which a small form is worth its code."""


@dataclass(frozen=True, slots=True)
class RowForm:
    """`kind`: float16, int8 or int4; `channels`: weights per row; `zero`: with zero points."""

    kind: str
    channels: int
    zero: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind}_{self.channels}" + "_zero" * self.zero

    @property
    def words(self) -> int:
        """Words per row."""
        return -(-self.channels * {"float16": 2, "int8": 1}.get(self.kind, 0) // 4) or 1

    @property
    def parameters(self) -> int:
        """Words of scales and zero points."""
        return self.channels * (0 if self.kind == "float16" else 2 if self.zero else 1)

    @property
    def dtype(self) -> str:
        """The type as which a description reads the stored weights."""
        return "uint32" if self.kind == "int4" else self.kind

    @property
    def per_word(self) -> int:
        """Elements of `dtype` per word."""
        return {"float16": 2, "int8": 4}.get(self.kind, 1)

    def value(self, codes: Buffer, parameters: Buffer | None, row: Expr, channel: int) -> Expr:
        """A weight in a block's description; `codes` are seen as `dtype`."""
        start = row * (self.words * self.per_word)
        if self.kind == "float16":
            return cast("float32", codes[start + channel])
        assert parameters is not None
        if self.kind == "int4":
            nibble = cast("int32", (codes[start] >> 4 * channel) & 15)
            code = cast("float32", binop("^", nibble, 8) - 8)
        else:
            code = cast("float32", cast("int32", codes[start + channel]))
        code = code - parameters[self.channels + channel] if self.zero else code
        return code * parameters[channel]

    def load(self, first: int, *, scale: int, zero: int) -> list[str]:
        """Load the next row into s`first` and up; scales are in s`scale`, zero points in s`zero` and up.  Clobbers a and b."""
        n = self.channels
        if self.kind == "float16":
            text = [f"vldmia %[w]!, {vector(first, self.words)}"]
            return text + [f"vcvt{'bt'[c % 2]}.f32.f16 s{first + c}, s{first + c // 2}" for c in reversed(range(n))]
        text = []
        for c in range(0, n, 2):
            text += self._integers(first, c)
        text += [f"vcvt.f32.s32 s{first + c}, s{first + c}" for c in range(n)]
        text += [f"vsub.f32 s{first + c}, s{first + c}, s{zero + c}" for c in range(n * self.zero)]
        return text + [f"vmul.f32 s{first + c}, s{first + c}, s{scale + c}" for c in range(n)]

    def _integers(self, first: int, c: int) -> list[str]:
        """Load weights c and c + 1 of a row as integers."""
        width = 4 if self.kind == "int4" else 8
        at = c * width % 32
        text = ["ldr %[a], [%[w]], #4"] if at == 0 else []
        text.append(f"sbfx %[b], %[a], #{at}, #{width}")
        if c + 1 == self.channels:
            return [*text, f"vmov s{first + c}, %[b]"]
        done = c + 2 == self.channels or (at + 2 * width) % 32 == 0  # the word is used up
        into = "a" if done else "u"
        return [*text, f"sbfx %[{into}], %[a], #{at + width}, #{width}", f"vmov s{first + c}, s{first + c + 1}, %[b], %[{into}]"]

    def load_scales(self, first: int) -> Text:
        """Load the scales into s`first` and up; the pointer advances to the zero points."""
        return [] if self.kind == "float16" else [f"vldmia %[s]!, {vector(first, self.channels)}"]

    def load_zeros(self, first: int) -> list[str]:
        """Load the zero points into s`first` and up."""
        return [f"vldmia %[s], {vector(first, self.channels)}"] * self.zero

    def widening(self) -> list[str]:
        """The loop that widens rows; scales are in s0 and up, zero points in s8 and up."""
        text = self.load(16, scale=0, zero=8)
        return [*text, f"vstmia %[o]!, {vector(16, self.channels)}", "subs %[rows], %[rows], #1", "bne 1b"]


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """Weights [taps, channels] in their small form; integers have a float32 `scale` and an int32 `zero` per channel."""

    kind: str
    codes: Array
    scale: Array | None = None
    zero: Array | None = None

    def row(self, channels: int) -> RowForm:
        return RowForm(self.kind, channels, self.zero is not None)

    def words(self, channels: int) -> int:
        """Words of a block."""
        row = self.row(channels)
        return channels + row.parameters + row.words * len(self.codes)

    def pack(self, bias: Array, block: int) -> Array:
        """Pack blocks of up to `block` channels as words: bias, scales, zero points, rows."""
        parts: list[Array] = []
        for first in range(0, bias.size, block):
            part = slice(first, first + block)
            numbers = [a[part].astype(np.float32) for a in (bias, self.scale, self.zero) if a is not None]
            parts += [a.view(np.uint32) for a in numbers] + [self._rows(self.codes[:, part])]
        return np.concatenate(parts)

    def _rows(self, codes: Array) -> Array:
        row = self.row(codes.shape[1])
        width = {"float16": 2, "int8": 4}.get(self.kind, 8) * row.words
        padded = np.pad(codes, ((0, 0), (0, width - codes.shape[1])))
        data = pack_nibbles(padded) if self.kind == "int4" else np.ascontiguousarray(padded)
        return np.frombuffer(data.tobytes(), np.uint32)


def stored_matrix(weight: Constant, matrix: Array, *, channel_axis: int) -> StoredMatrix | None:
    """`matrix` [taps, channels], which has the elements of `weight` in another order, in the form that the file has.

    None if there is no smaller form, if scales are not per channel, or if there are few weights.
    """
    original = codes_of(weight) if matrix.size >= LEAST else None
    if original is None:
        return None
    if original.scale is None:
        return StoredMatrix("float16", matrix.astype(np.float16))
    rank = weight.data.ndim
    if original.scale.size > 1 and original.scale.shape[channel_axis % rank] == 1:
        return None
    channels = matrix.shape[1]
    zeros = np.zeros(1, np.int32) if original.zero is None else original.zero
    scale, zero = (np.broadcast_to(a.reshape(-1), channels) for a in (original.scale, zeros))
    codes = encoded(matrix, original.dtype, scale, zero)
    return None if codes is None else StoredMatrix(codes.dtype, codes.data, scale, None if codes.zero is None else zero)


# One or two pixels by up to eight channels, over all taps of a window; products are added in the reference's order.
#
# VMLA of Armv7-M and Armv8-M is not fused: it rounds the product and then the sum, so it equals `total += x * w` bit for bit.  It
# is one instruction but takes three cycles; VMUL and VADD are two instructions of one cycle each.  Accumulators of two pixels
# fill s0 to s15, weights of eight channels s16 to s23, data s24 and up.
#
# A sum begins with 0.  If the first product is known at compile time, it is not added to 0.  That differs only for a product of
# -0, and no longer after the bias is added, because a bias of -0 is replaced by 0 (a sum that begins with 0 is never -0).


CHANNELS = 8
"""Output channels of a full block."""

MOST_CHANNELS = 16
"""Output channels of a full block of kind "wide"."""

DATA = 24
"""The first register of data."""

_SCALE = 16
"""The first register of scales; zero points and data share registers."""

_FEW = 4
"""Up to this many channels, more data are loaded at once, because each number is used less often."""


@dataclass(frozen=True, slots=True)
class DotForm:
    """Everything that a block's text depends on: its size, how products are added (`fused`: VMLA), the loop over a run of taps,
    whether there are several runs, and the clamp.

    A run has trips * unroll + remainder taps; without a loop, `trips` is 0 or 1.  Kinds:

    - dot: one or two pixels; with a `row`, one pixel and one run, whose weights are widened where they are used (for layers with
      a few pixels, for which widening them to scratch memory first does not pay off).
    - Without VMLA, a number that is used only once is overwritten by its product, and larger loads are cheaper (a load of N
      numbers takes 1 + N cycles).  wide: one pixel by up to sixteen channels; narrow: two pixels by one channel; many: four
      neighbouring pixels by one channel, so that one load of weights serves all of them.
    - depthwise: one data channel per result channel; data and weights of a tap are loaded alternately.  depthwise_shared: two
      pixels with VMLA, the second one's data being one tap after the first's.  VMLA leaves the data of a tap as it is, so the
      second pixel takes from the registers what the first one needs next.  (VMUL puts its products over the data, as all
      registers are in use.)
    """

    pixels: int
    channels: int
    fused: bool
    unroll: int
    remainder: int
    loop: bool
    runs: bool
    clamp: Clamp
    kind: str = "dot"
    row: RowForm | None = None

    @property
    def name(self) -> str:
        title = self.kind if self.row is None else f"dot_{self.row.kind}" + "_zero" * self.row.zero
        size = f"{title}_{self.pixels}x{self.channels}_{'vmla' if self.fused else 'vmul'}"
        kind = f"{size}_u{self.unroll}" + "_once" * (not self.loop)
        return kind + f"_rest{self.remainder}" * bool(self.remainder) + "_runs" * self.runs + self.clamp.name

    @property
    def _scaled(self) -> bool:
        return self.row is not None and self.row.parameters > 0

    @property
    def _depthwise(self) -> bool:
        return self.kind in ("depthwise", "depthwise_shared")

    @property
    def sources(self) -> int:
        """Pointers to data."""
        return 1 if self.kind == "depthwise_shared" else self.pixels

    @property
    def pointers(self) -> tuple[str, ...]:
        """Operands in memory that are read."""
        return (*(f"x{p}" for p in range(self.sources)), "w", *(["s"] * self._scaled), "bias")

    @property
    def numbers(self) -> tuple[str, ...]:
        """The numbers that the block has as operands, in order."""
        runs = ["runs", "gap", *(["skip"] * (self.pixels == 1))] if self.runs else []
        return (*["step"] * (self.pixels == 2), *["trips"] * self.loop, *runs, *["tap"] * self._depthwise)

    def run_length(self, numbers: Mapping[str, Var]) -> Expr:
        """Taps of a run."""
        return numbers["trips"] * self.unroll + self.remainder if self.loop else imm(self.unroll + self.remainder)

    @property
    def stored(self) -> tuple[int, int]:
        """Pixels whose results are stored separately, and adjacent results of each."""
        return (1, self.pixels) if self.kind == "many" else (self.pixels, self.channels)

    @property
    def free(self) -> int:
        """The first register after the accumulators."""
        if self.kind in ("wide", "narrow", "many"):
            return self.pixels * self.channels
        return 16 if self.pixels == 2 else 8

    @property
    def together(self) -> int:
        """Taps whose data are loaded at once."""
        match self.kind:
            case "wide":
                return 8 if self.channels <= _FEW else 4
            case "narrow":
                return 8
            case "many":
                most = (FLOATS - self.pixels) // 2
                return next((n for n in range(most, most // 2, -1) if self.unroll % n == 0), most)
            case "depthwise" | "depthwise_shared":
                return 1
        if self.row is not None:
            return 1 if self.row.zero else 4
        return 4 if self.pixels == 1 or self.fused else 2

    @property
    def starts(self) -> bool:
        """Whether sums start as the first tap's products; a loop over runs cannot treat the first tap differently."""
        return not self.loop

    def run(self, *, first: bool = False) -> Text:
        """The products of one run; `first`: the first run of a window."""
        data: Text = [f"vldmia %[x0], {vector(DATA, self.channels)}"] * (self.kind == "depthwise_shared")
        each = 4 if self.kind == "dot" else self.together
        if not self.loop:
            parts = (self.unroll, self.remainder) if self.kind == "dot" else (self.unroll + self.remainder, 0)
            return [*data, *self.taps(parts[0], first=first), *self.taps(parts[1])]
        whole, remainder = divmod(self.unroll, each)
        body: Text = [Repeat(whole, self.taps(each)), *self.taps(remainder)]
        return ["mov %[t], %[trips]", *data, "2:", *body, "subs %[t], %[t], #1", "bne 2b", *self.taps(self.remainder)]

    def taps(self, count: int, *, first: bool = False) -> list[str]:
        """`count` taps in sequence, with data and weights advancing; `first`: no sums exist yet."""
        text = list[str]()
        for done in range(0, count, self.together):
            text += self._loaded(min(self.together, count - done), first=first and done == 0)
        return text

    def _loaded(self, size: int, *, first: bool) -> list[str]:
        """Taps whose data are loaded together."""
        match self.kind:
            case "wide":
                data = FLOATS - self.together
                products = products_of_pixel(self.channels, size, data=data, first=first)
                return [f"vldmia %[x0]!, {vector(data, size)}", *products]
            case "narrow":
                places = [self.free + self.together * (p + 1) for p in range(self.pixels)]
                text = [f"vldmia %[x{p}]!, {vector(x, size)}" for p, x in enumerate(places)]
                terms = ((p, x + k, x + k, 2 + k, first and k == 0) for k in range(size) for p, x in enumerate(places))
                return [*text, f"vldmia %[w]!, {vector(self.free, size)}", *multiplied(terms, fused=False)]
            case "many":
                text, data = [f"vldmia %[w]!, {vector(self.free, size)}"], self.free + self.together
                for p in range(self.pixels):
                    terms = ((p, data + k, data + k, self.free + k, first and k == 0) for k in range(size))
                    text += [f"vldmia %[x{p}]!, {vector(data, size)}", *multiplied(terms, fused=False)]
                return text
            case "depthwise" | "depthwise_shared":
                return self._channel_by_channel(first=first)
        return self._pixels_by_channels(size, first=first)

    def _channel_by_channel(self, *, first: bool) -> list[str]:
        """One tap of a depthwise window."""
        n, shared = self.channels, self.kind == "depthwise_shared"
        text = [f"vldmia %[w]!, {vector(self.free, n)}"]
        for p in range(self.pixels):
            x = f"%[x{0 if shared else p}]"
            load, step = f"vldmia {x}, {vector(DATA, n)}", f"add {x}, {x}, %[tap]"
            text += ([step, load] if p else []) if shared else [load, step]
            terms = ((p * n + c, DATA + c, DATA + c, self.free + c, first) for c in range(n))
            text += multiplied(terms, fused=self.fused, lag=n)
        return text

    def _pixels_by_channels(self, size: int, *, first: bool) -> list[str]:
        data = [f"vldmia %[x{p}]!, {vector(DATA + p * self.together, size)}" for p in range(self.pixels)]
        if self.row is not None and self.row.zero:  # zero points, then data are in the same registers
            load = self.row.load_zeros(DATA) + self.row.load(self.free, scale=_SCALE, zero=DATA)
            return load + data + self.products(self.free, 0, first=first)
        text, each = data, max(1, (DATA - self.free) // self.channels) if self.row is None else 1  # taps per load of weights
        for k in range(size):
            if self.row is not None:
                text += self.row.load(self.free, scale=_SCALE, zero=DATA)
            elif k % each == 0:
                text.append(f"vldmia %[w]!, {vector(self.free, min(each, size - k) * self.channels)}")
            text += self.products(self.free + k % each * self.channels, k, first=first and k == 0)
        return text

    def products(self, weights: int, k: int, *, first: bool = False) -> list[str]:
        """The products of one tap."""
        n = self.channels
        places = enumerate((p, c) for p in range(self.pixels) for c in range(n))
        terms = ((p * n + c, FLOATS - 4 + i % 4, weights + c, DATA + p * self.together + k, first) for i, (p, c) in places)
        return multiplied(terms, fused=self.fused)

    def zeros(self) -> Text:
        """Set all sums to 0."""
        return ["mov %[t], #0", *(f"vmov d{i}, %[t], %[t]" for i in range((self.pixels * self.channels + 1) // 2))]

    def text(self) -> Text:
        """The whole block."""
        step: Text = [f"add %[x{p}], %[x{p}], %[gap]" for p in range(self.sources)]
        step += ["add %[w], %[w], %[skip]"] if self.pixels == 1 else []
        step += ["subs %[runs], %[runs], #1"]
        text: Text = [*(self.row.load_scales(_SCALE) if self.row is not None else []), *([] if self.starts else self.zeros())]
        if not self.runs:
            text += self.run(first=self.starts)
        else:
            text += [*self.run(first=True), *step, "beq 3f"] if self.starts else []
            text += ["1:", *self.run(), *step, "bne 1b", "3:"]
        return text + add_bias(self.pixels, self.channels, self.free) + self.end

    @property
    def end(self) -> Text:
        """Clamp and stores."""
        return store_clamped(self.clamp, *self.stored, free=self.free, multiply=self.fused)

    def instructions(self, *, runs: int, trips: float) -> tuple[float, float]:
        """Instructions per execution, and cycles on a Cortex-M4."""
        body, remainder, around = self.taps(self.unroll), self.taps(self.remainder), self._around()
        count = trips * (count_instructions(body) + 2 * self.loop) + self.loop + count_instructions(remainder) + 4 * self.runs
        extra = trips * (waits(body) + 2 * self.loop) + waits(remainder) + 2 * self.runs
        additions = self.pixels * self.channels if self.starts else 0
        total = runs * count + count_instructions(around) - additions * (not self.fused)
        return total, total + runs * extra + waits(around) - 2 * additions * self.fused

    def _around(self) -> Text:
        """The text before and after the runs, without the code for results that are not finite."""
        end = self.end
        last = next((i for i, line in enumerate(end) if line in ("b 9f", "bne 9f")), len(end) - 1)
        start: Text = ["nop"] * self.runs if self.starts else self.zeros()
        return start + add_bias(self.pixels, self.channels, self.free) + end[: last + 1]


@cache
def dot(form: DotForm) -> TensorIntrin:
    """out[p * step + c] = clamp(sum over runs and taps of x_p * w[.., c] + bias[c]) for p < pixels, c < channels.

    Operands: x0 and, for more pixels, x1 and so on, float32: runs of trips * unroll + remainder taps with `gap` elements between
    them; w, as many rows of `channels` weights, with `skip` elements between runs (one pixel only), float32 or as `row.dtype`;
    then for integers s, scales and zero points; bias float32[channels]; out; then step, trips, runs, gap and skip, if the form
    has them.  A depthwise form reads x_p[.., c]; its last operand is `tap`, the elements from a tap's data to the next tap's.
    """
    b = IRBuilder(form.name)
    numbers, row = {name: Var(name) for name in form.numbers}, form.row
    dtypes = {} if row is None else {"w": row.dtype}
    read = {n: b.input(n, (UNKNOWN_EXTENT,), dtypes.get(n, "float32"), align=4) for n in form.pointers}
    out = b.output("out", (UNKNOWN_EXTENT,), "float32", align=4)
    acc = b.local("acc", (form.pixels, form.channels), "float32", init=imm(0.0, "float32"))
    taps, tap, depthwise = form.run_length(numbers), numbers.get("tap", imm(1)), "tap" in numbers
    runs = b.for_("r", numbers.get("runs", imm(1))) if row is None else nullcontext(imm(0))
    with runs as r, b.for_("k", taps) as k:
        start = r * (taps * tap + numbers.get("gap", imm(0))) + k * tap
        first = r * (taps * form.channels + numbers.get("skip", imm(0))) + k * form.channels
        for p in range(form.pixels):
            x, shift = (read[f"x{p}"], 0) if p < form.sources else (read["x0"], p)
            value = None if depthwise else b.let("x", x[start])
            for c in range(form.channels):
                weight = read["w"][first + c] if row is None else row.value(read["w"], read.get("s"), k, c)
                b.store(acc, (p, c), acc[p, c] + (x[start + c + tap * shift] if value is None else value) * weight)
    for p in range(form.pixels):
        for c in range(form.channels):
            result = form.clamp.meaning(b, acc[p, c] + read["bias"][c])
            b.store(out, numbers.get("step", imm(form.channels)) * p + c, result)
    return block_of(b, "arm_fpu", lambda ops: _emit(form, ops), *numbers.values(), requires="vfp")


def _emit(form: DotForm, operands: Operands) -> BlockText:
    spoilt = ("t", "u", "a", "b") if form._scaled else ("t", "u")
    numbers = [n for n in form.numbers if n != "runs"]
    declared = {n: f"const int32_t aot_{n} = {'' if n == 'trips' else '4 * '}{operands[n].value};" for n in numbers}
    early = [declared.pop(n) for n in ("step", "trips") if n in declared]
    return asm(
        operands, form.text(), f"{' '.join(form.pointers)} >o=out", {n: f"aot_{n}" for n in numbers}, counter="runs" * form.runs,
        before=[f"uint32_t {', '.join(f'aot_{n}' for n in spoilt)};", *early], after=list(declared.values()),
        last=[f'[{n}] "=&r"(aot_{n})' for n in spoilt], clobbers=REGISTERS,
    )  # fmt: skip


_LIST = re.compile(r"^v(?:ldm|stm)ia .*\{s(\d+)(?:-s(\d+))?\}$")


def waits(text: Sequence[str | Repeat]) -> int:
    """Cycles beyond one per instruction: N for a load or store of N numbers, 2 for VMLA and STRD, 1 for VMOV of two numbers."""
    total = 0
    for line in text:
        if isinstance(line, Repeat):
            total += line.count * waits(line.lines)
        elif match := _LIST.match(line):
            first, last = match.groups()
            total += int(last or first) - int(first) + 1
        else:
            total += 2 * line.startswith(("vmla", "strd")) + line.startswith("vmov %[t], %[u]")
    return total


def _around(form: DotForm) -> Text:
    """The text before and after the runs, without the code for results that are not finite."""
    ends = store_clamped(form.clamp, *form.stored, free=form.free, multiply=form.fused)
    names = [line if isinstance(line, str) else "" for line in ends]
    last = next((i for i, line in enumerate(names) if line in ("b 9f", "bne 9f")), len(ends) - 1)
    start: Text = ["nop"] * form.runs if form.starts else form.zeros()
    return start + add_bias(form.pixels, form.channels, form.free) + ends[: last + 1]


def unroll_many(run: int, otherwise: int) -> int:
    """Taps per loop iteration with kind "many", such that its loads are large."""
    return next((u for u in (42, 28, 36, 24, 40, 20, 32, 16) if run % u == 0), otherwise)


# Widens a block's rows of weights to float32 in scratch memory, once for all pixels.


@cache
def unfold(row: RowForm) -> TensorIntrin:
    """out[r * channels + c] = weight c of row r for r < rows.

    Operands: w, the rows, as `row.dtype`; for integers s float32, scales and zero points; out; rows.
    """
    b = IRBuilder(f"unfold_{row.name}")
    rows = Var("rows")
    w = b.input("w", (UNKNOWN_EXTENT,), row.dtype, align=4)
    s = b.input("s", (UNKNOWN_EXTENT,), "float32", align=4) if row.parameters else None
    out = b.output("out", (UNKNOWN_EXTENT,), "float32", align=4)
    with b.for_("r", rows) as r:
        for c in range(row.channels):
            b.store(out, r * row.channels + c, row.value(w, s, r, c))

    def emit(operands: Operands) -> BlockText:
        text: Text = [*row.load_scales(0), *row.load_zeros(8), "1:", *row.widening()]
        pointers, spoilt = ("w s >o=out", "abu") if row.parameters else ("w >o=out", "")
        return asm(operands, text, pointers, counter="rows", temporaries=spoilt, clobbers=REGISTERS)

    return block_of(b, "arm_fpu", emit, rows, requires="vfp")


def unfold_instructions(row: RowForm, rows: int) -> int:
    """Instructions per execution."""
    return 10 + rows * count_instructions(row.widening())


def unfold_code(row: RowForm) -> int:
    """Bytes of code."""
    return 4 * count_instructions(row.widening()) + 48
