"""Strips of a depthwise convolution over one channel's int16 plane, each one block of assembly.

A strip is `rows` lines x `outputs` columns of the result of one channel.  A line of the plane is `pitch` halfwords (even), so a
word holds the pixels of columns 2i and 2i + 1, and SMLAD multiplies both with a pair of weights.  Outputs that start in an even
column use the pairs (w0, w1), (w2, w3) ...; outputs that start in an odd column use (w1, w2), (w3, w4) ...  A tap without a
partner is a single SMLAxy with one half of a word.  Every pixel word is used by all outputs that need it while it is in a
register.

There are two register plans.  Resident: all weight words of the channel stay in registers (3 x 3 and short 1-D kernels); two
outputs at a time, or one if the stride is even.  Streamed: up to four outputs at a time; LDM reads the weights again for each
kernel row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, cast, clamp, imm
from aot.tir.intrin import BlockText, TensorIntrin
from aot.topi.intrin.asm_text import Operands, Repeat, add_immediate, asm, count_instructions, counted, counted_offset
from aot.topi.intrin.scalar import SMMLA, SMMLAR
from aot.topi.layer.requant import sign_term

Tap = tuple[int, int]
"""(row, column) of the kernel."""

NUMBERS = ("bias", "constant", "multiplier", "shift")
RESIDENT_WORDS = 6
STREAMED_WORDS = 6
STREAMED_OUTPUTS = 4


@dataclass(frozen=True, slots=True)
class RequantForm:
    """Requantisation of pre-scaled accumulators: high multiply plus constant, shift, clamp (see topi/layer/requant.py).

    `shift` is -1 if each channel has its own, which then follows the constant in the stream.  `rounded` uses SMMLAR; `signed`
    adds the sign of the accumulator times 2^(prescale - 1).  `table`: the result is looked up in a table.  `halves`: data and
    results are int16, and results start at the type's minimum or at 0.  `folded`: the constant is part of the bias and is not in
    the stream.
    """

    shift: int
    rounded: bool
    signed: bool
    lo: int
    hi: int
    prescale: int = 1
    table: bool = False
    halves: bool = False
    folded: bool = False

    @property
    def dtype(self) -> str:
        return "int16" if self.halves else "int8"

    @property
    def numbers(self) -> tuple[int, ...]:
        """What a block's name tells of it."""
        return self.shift, self.rounded, self.signed, self.lo, self.hi, self.prescale


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the weight of each tap is in a channel's stream: words of two int16, low half first.

    `odd`: some outputs start in an odd column.  In a resident plan bias, constant, multiplier and, if needed, the shift follow
    the words; a streamed plan has the bias first.
    """

    kh: int
    kw: int
    odd: bool
    resident: bool

    @property
    def chunks(self) -> tuple[tuple[int, int], ...]:
        """The kernel row, cut into runs (start, length) of columns whose words fit the registers; only the last may be odd."""
        widest = STREAMED_WORDS + 1 if self.odd else 2 * STREAMED_WORDS
        if self.resident or self.kw <= widest:
            return ((0, self.kw),)
        step = widest // 2 * 2
        return tuple((k, min(step, self.kw - k)) for k in range(0, self.kw, step))

    def chunk_words(self, chunk: tuple[int, int]) -> tuple[tuple[int, ...], ...]:
        """Return the columns in the halves of each word of a chunk of a row, single ones last."""
        start, length = chunk
        words: list[tuple[int, ...]]
        words = [(start + k, start + k + 1) for parity in ((0, 1) if self.odd else (0,)) for k in range(parity, length - 1, 2)]
        if length == 1 or (length % 2 and not self.odd):  # a tap that is in no pair
            words.append((start + length - 1,))
        return tuple(words)

    @property
    def words(self) -> tuple[tuple[Tap, ...], ...]:
        """The taps in the halves of each weight word of a channel; one tap if the high half is zero."""
        return _words(self)

    @property
    def first(self) -> int:
        """Words before the weights: the bias in a streamed plan."""
        return 0 if self.resident else 1

    def half(self, tap: Tap) -> int:
        """Return the index of a tap's weight in the channel's stream, in int16 units (its first place)."""
        return 2 * self.first + _places(self)[tap][0]


@lru_cache(maxsize=64)
def _words(layout: Layout) -> tuple[tuple[Tap, ...], ...]:
    rows = range(layout.kh)
    if not layout.resident:
        return tuple(tuple((r, k) for k in word) for r in rows for chunk in layout.chunks for word in layout.chunk_words(chunk))
    row = layout.chunk_words((0, layout.kw))
    pairs = [tuple((r, k) for k in word) for r in rows for word in row if len(word) == 2]
    singles = [(r, word[0]) for r in rows for word in row if len(word) == 1]
    return (*pairs, *(tuple(singles[i : i + 2]) for i in range(0, len(singles), 2)))


@lru_cache(maxsize=64)
def _places(layout: Layout) -> Mapping[Tap, tuple[int, ...]]:
    """Return the halves that hold each tap."""
    places: dict[Tap, tuple[int, ...]] = {}
    for i, word in enumerate(_words(layout)):
        for half, tap in enumerate(word):
            places[tap] = (*places.get(tap, ()), 2 * i + half)
    return places


def packed_words(layout: Layout) -> int:
    return (len(layout.words) + 1) // 2


@dataclass(frozen=True, slots=True)
class Lines:
    """The `rows` lines of `outputs` results that a block computes; steps of the result in bytes.

    Lines of the plane are `pitch` elements long, kernel rows `dilation` lines apart and results `line_step` lines apart.
    """

    line_step: int
    dilation: int
    pitch: int
    rows: int
    outputs: int
    column_step: int
    row_step: int
    rounding: RequantForm

    @property
    def written(self) -> int:
        """Bytes of the result from the first one on."""
        return (self.rows - 1) * self.row_step + (self.outputs - 1) * self.column_step + 1


@dataclass(frozen=True, slots=True)
class Strip(Lines):
    """Lines from a plane of int16; results are `stride` columns apart.  `fpu`: there are FPU registers.

    `packed` (resident plans): two weight words share one word of bytes, see unpack, and weights are scaled by 256.  `shared`:
    rows and steps are operands of the block, so that layers of any size use one function; these fields are then 0.
    """

    layout: Layout
    stride: int
    fpu: bool
    packed: bool = False
    shared: bool = False

    @property
    def constants(self) -> int:
        return 3 + (self.rounding.shift < 0)

    @property
    def weight_words(self) -> int:
        """Words of weights in the stream."""
        return packed_words(self.layout) if self.packed else len(self.layout.words)

    @property
    def stream_words(self) -> int:
        return self.weight_words + self.constants

    @property
    def number_indices(self) -> tuple[int, ...]:
        """Where bias, constant, multiplier and, if there is one, the shift are in the stream."""
        after = range(self.layout.first + self.weight_words, self.stream_words)
        return tuple(after) if self.layout.resident else (0, *after)

    @property
    def row_bytes(self) -> int:
        """Bytes between kernel rows in the plane."""
        return 2 * self.dilation * self.pitch

    @property
    def line_bytes(self) -> int:
        """Bytes between result rows in the plane."""
        return 2 * self.line_step * self.pitch

    @property
    def plane_size(self) -> int:
        """Halfwords from the strip's first pixel to the end of the last word that is loaded."""
        lines = (self.rows - 1) * self.line_step + (self.layout.kh - 1) * self.dilation
        columns = (self.outputs - 1) * self.stride + self.layout.kw
        return lines * self.pitch + (columns + 1) // 2 * 2

    @property
    def step(self) -> int:
        """Outputs per step."""
        if self.layout.resident:
            return min(2 if self.stride % 2 else 1, self.outputs)
        return self.outputs

    @property
    def name(self) -> str:
        layout, rounding = self.layout, self.rounding
        sizes = (self.dilation, self.pitch, self.rows, self.outputs, self.column_step, self.row_step)
        values = (
            layout.kh,
            layout.kw,
            layout.odd,
            layout.resident,
            *rounding.numbers,
            *sizes,
            self.fpu,
            self.packed,
            self.shared,
        )
        return joined("dw_strip", *values, self.line_step, self.stride) + "_table" * rounding.table + "_halves" * rounding.halves


def joined(name: str, *values: int) -> str:
    """The name of a block that depends on `values`."""
    return f"arm_dsp.{name}_" + "_".join(str(int(v)) for v in values).replace("-", "m")


def shared_strip(layout: Layout, stride: tuple[int, int], pitch: int, rounding: RequantForm, *, outputs: int, fpu: bool) -> Strip:
    """Return a strip of bytes whose rows and steps are operands; `stride`: of lines and of columns."""
    return Strip(stride[0], 1, pitch, 0, outputs, 0, 0, rounding, layout, stride[1], fpu, layout.resident, True)


@dataclass(frozen=True, slots=True)
class Mac:
    """One multiply: output `output`, pixel word `pixels` of the kernel row, weight word `word`; op is d, bb, bt, tb or tt."""

    output: int
    pixels: int
    word: int
    op: str


def row_macs(layout: Layout, r: int, chunk: tuple[int, int], stride: int, outputs: int) -> list[Mac]:
    """Return the multiplies of one chunk of kernel row r, ordered by pixel word, then by output."""
    start, length = chunk
    places = _places(layout)
    macs = []
    for j in range(outputs):
        k = start
        while k < start + length:
            pixel = j * stride + k
            if pixel % 2 == 0 and k + 1 < start + length:
                word = next(p // 2 for p in places[r, k] if p % 2 == 0 and p + 1 in places[r, k + 1])
                macs.append(Mac(j, pixel // 2, word, "d"))
                k += 2
                continue
            place = places[r, k][0]
            macs.append(Mac(j, pixel // 2, place // 2, "bt"[pixel % 2] + "bt"[place % 2]))
            k += 1
    return sorted(macs, key=lambda m: (m.pixels, m.output))


TABLE = 256
"""Bytes of a table."""

HALF_MAX = 32767
"""The largest int16."""

MAX_OFFSET, MAX_PAIR_OFFSET = 4095, 1020
"""Largest offsets, in bytes, of LDR and STR, and of LDRD."""


@lru_cache(maxsize=256)
def dw_strip(strip: Strip) -> TensorIntrin:
    """out[y, x] = clamp((hi(acc * multiplier) + constant) >> shift), acc = bias + sum of plane * weight, over a strip.

    Operands: plane int16 (aligned to 4 bytes) from the strip's first pixel on; params int32, a channel's stream; out int8 from
    the strip's first result on; if shared, also the rows, and the steps of the result in bytes.  A table comes before `out`:
    int8[256] by quantised value, -128 first.
    """
    b = IRBuilder("dw_strip")
    layout, each = strip.layout, 2 if strip.rounding.halves else 1
    sizes = (strip.plane_size, strip.stream_words, (strip.written - 1) // each + 1)
    plane_size, words, written = (UNKNOWN_EXTENT,) * 3 if strip.shared else sizes
    plane = b.input("plane", (plane_size,), "int16", align=4)
    params = b.input("params", (words,), "int32", align=4)
    table = b.input("table", (TABLE,), "int8") if strip.rounding.table else None
    out = b.output("out", (written,), strip.rounding.dtype)
    scalars = tuple(Var(n) for n in ("rows", "column_step", "row_step")) if strip.shared else ()
    rows, column_step, row_step = scalars or (imm(strip.rows), imm(strip.column_step), imm(strip.row_step))
    numbers = [b.let(n, params[i]) for n, i in zip(NUMBERS, strip.number_indices, strict=False)]
    places = [[layout.half((r, k)) for k in range(layout.kw)] for r in range(layout.kh)]
    pitch = places[1][0] - places[0][0] if layout.kh > 1 else 0
    regular = not strip.packed and all(p == r * pitch + places[0][k] for r, row in enumerate(places) for k, p in enumerate(row))
    with b.for_("y", rows) as y, b.for_("i", strip.outputs) as i:
        # A shared strip stores its first result last, so that with a column step of 0 only that one remains.
        x: Expr = strip.outputs - 1 - i if strip.shared else i
        acc = b.local("acc", (1,), "int32", init=numbers[0])
        at = b.let("at", y * (strip.line_step * strip.pitch) + x * strip.stride)

        def tap(line: Expr, k: int, weight: Expr) -> None:
            b.store(acc, 0, acc[0] + cast("int32", plane[line + k]) * weight)

        if regular:
            with b.for_("r", layout.kh) as r:
                for k in range(layout.kw):
                    tap(at + r * (strip.dilation * strip.pitch), k, cast("int32", params.load("int16", r * pitch + places[0][k])))
        else:
            for row in range(layout.kh):
                for k in range(layout.kw):
                    tap(at + row * strip.dilation * strip.pitch, k, _weight(params, places[row][k], packed=strip.packed))
        result = requantized(b, strip.rounding, acc[0], numbers)
        b.store(out, y * (row_step // each) + x * (column_step // each), result if table is None else table[result + TABLE // 2])
    func = replace(b.finish(), scalars=scalars)
    return TensorIntrin(strip.name, func, lambda ops: emit_strip(ops, _text(strip)), requires="dsp")


def _weight(params: Buffer, half: int, *, packed: bool) -> Expr:
    if not packed:
        return cast("int32", params.load("int16", half))
    return cast("int32", params.load("int8", 4 * (half // 4) + half // 2 % 2 + half % 2 * 2)) * 256


def unpack(register: str, other: str) -> list[str]:
    """Return the instructions that unpack a word with bytes low a, low b, high a, high b to the words a and b, times 256."""
    mask = "#0xff00ff00"
    return [f"and {other}, {register}, {mask}", f"lsl {register}, {register}, #8", f"and {register}, {register}, {mask}"]


def requantized(b: IRBuilder, rounding: RequantForm, acc: Expr, numbers: Sequence[Expr]) -> Expr:
    """Return the meaning of the block's requantisation; `numbers`: bias, constant, multiplier and, if it varies, shift."""
    scaled = b.let("scaled", acc)
    constant = numbers[1] + sign_term(scaled, rounding.prescale) if rounding.signed else numbers[1]
    total = (SMMLAR if rounding.rounded else SMMLA)(scaled, numbers[2], constant)
    shift = imm(rounding.shift) if rounding.shift >= 0 else numbers[3]
    return clamp(total >> shift, rounding.lo, rounding.hi)


def emit_strip(operands: Operands, text: StripText) -> BlockText:
    """Emit the block of a strip: r0 points at its pixels, r1 at the stream, r2 at its results."""
    strip, ins = text.strip, dict[str, str]()
    shared = isinstance(strip, Strip) and strip.shared
    before = ["void *aot_out = aot_o;"] * text.out_in_memory
    if text.loop:
        size = f"{operands['rows'].value} * {text.line_bytes}" if shared else f"{text.line_bytes * strip.rows}"
        before.append(f"const void *const aot_end = (const uint8_t *)aot_x + {size};")
    if shared:
        before.append(f"const int32_t aot_step = {operands['column_step'].value};")
        before.append(f"const int32_t aot_back = {operands['row_step'].value} - {text.moved} * aot_step;")
        ins |= {"step:m": "aot_step", "back:m": "aot_back"}
    if strip.rounding.table:
        before.append(f"const int8_t *const aot_table = {operands['table'].pointer} + {TABLE // 2};")
        ins["table:m"] = "aot_table"
    ins |= {"end:m": "aot_end"} if text.loop else {}
    for name, i in text.in_memory:
        before.append(f"const int32_t aot_{name} = ((const int32_t *)aot_p)[{i}];")
        ins[f"{name}:m"] = f"aot_{name}"
    last = ['[out] "+m"(aot_out)'] * text.out_in_memory
    pointers = "x@r0=plane p@r1=params >o@r2=out"
    return asm(operands, text.text(), pointers, ins, kind="+", before=before, last=last, clobbers=text.clobbers)


@lru_cache(maxsize=256)
def instructions(strip: Strip, rows: int) -> int:
    """Return the instructions that one block executes for so many rows, counted from its text."""
    return _text(strip).instructions(rows)


@lru_cache(maxsize=256)
def code_bytes(strip: Strip) -> int:
    return _text(strip).code_bytes()


def _text(strip: Strip) -> StripText:
    return _Resident(strip) if strip.layout.resident else _Streamed(strip)


def clamp_lines(rounding: RequantForm, accs: Sequence[str]) -> list[str]:
    """Return SSAT with the common shift and, for bounds other than int8's, compares."""
    shift = f", asr #{rounding.shift}" if rounding.shift > 0 else ""
    if rounding.halves:
        return [f"{'usat' if rounding.lo == 0 else 'ssat'} {a}, #{15 if rounding.lo == 0 else 16}, {a}{shift}" for a in accs]
    lines = [f"ssat {a}, #8, {a}{shift}" for a in accs]
    for a in accs:
        if rounding.lo > -128:
            lines += [f"cmp {a}, #{rounding.lo}", "it lt", f"movlt {a}, #{rounding.lo}"]
        if rounding.hi < 127:
            lines += [f"cmp {a}, #{rounding.hi}", "it gt", f"movgt {a}, #{rounding.hi}"]
    return lines


class StripText:
    """What all register plans share: the loop over lines, the steps of a line, requantisation, stores.

    A line is computed `step` results at a time; lines are `line_bytes` apart in the plane.
    """

    acc: tuple[str, ...]
    pixels: tuple[str, str]
    clobbers: tuple[str, ...] = ("r3", *(f"r{i}" for i in range(4, 13)), "lr")
    out_in_memory = False

    def __init__(self, strip: Lines, *, step: int, line_bytes: int) -> None:
        self.strip, self.step, self.line_bytes = strip, step, line_bytes
        self.store = "strh" if strip.rounding.halves else "strb"
        self.in_memory: list[tuple[str, int]] = []

    def head(self) -> list[str]:
        """Return the instructions before the first line."""
        return []

    def start(self) -> list[str]:
        """Return the instructions before the steps of each line."""
        return []

    def results(self, outputs: int, index: int | None) -> list[str]:
        """Return instructions that put `outputs` results of step `index` (None: the loop's) into the first accumulators."""
        raise NotImplementedError

    def line(self) -> list[str | Repeat]:
        """Return one line of the strip, after which both pointers are at the next line.

        If offsets do not reach the end of a line, the result's pointer advances within it.
        """
        strip = self.strip
        full, remainder = divmod(strip.outputs, self.step)
        far = (strip.outputs - 1) * strip.column_step > MAX_OFFSET
        lines: list[str | Repeat] = [*self.start()]
        if full > 1:
            lines += counted(full, self._step(self.step, None, far=far))
        elif full:
            lines += self._step(self.step, 0, far=far)
        if remainder:
            lines += self._step(remainder, full, far=far)
        moved = strip.outputs * strip.column_step if far else 0
        return [*lines, *add_immediate("r0", self.line_bytes), *add_immediate("r2", strip.row_step - moved)]

    def _step(self, outputs: int, index: int | None, *, far: bool) -> list[str]:
        accs, lines, step = self.acc[:outputs], self.results(outputs, index), self.strip.column_step
        if far:
            return lines + [line for a in accs for line in (f"{self.store} {a}, [r2]", *add_immediate("r2", step))]
        offsets = (counted_offset(index, self.step * step, j * step) for j in range(outputs))
        return lines + [f"{self.store} {a}, [r2, #{offset}]" for a, offset in zip(accs, offsets, strict=True)]

    def text(self) -> list[str | Repeat]:
        loop = self.loop
        scratch = self.pixels[0]
        ending = [f"ldr {scratch}, %[end]", f"cmp r0, {scratch}", "bne 1b"]
        return [*self.head(), *(["1:"] if loop else []), *self.line(), *(ending if loop else [])]

    @property
    def loop(self) -> bool:
        return self.strip.rows != 1

    @property
    def moved(self) -> int:
        """Columns by which a shared strip has advanced the result's pointer at the end of a line."""
        return (self.strip.outputs - 1) // 2 * 2

    def shared_stores(self, accs: Sequence[str], out: str, spare: str, *, last: bool) -> list[str]:
        """Store results in pairs (or one), with the step in memory; then advance to the next ones, or to the next line."""
        lines = [f"ldr {spare}, %[step]"] if len(accs) > 1 else []
        for j in range(0, len(accs), 2):
            if j:
                lines.append(f"add {out}, {out}, {spare}, lsl #1")
            lines += [f"strb {a}, [{out}, {spare}]" for a in accs[j + 1 : j + 2]] + [f"strb {accs[j]}, [{out}]"]
        if last:
            return [*lines, f"ldr {spare}, %[back]", f"add {out}, {out}, {spare}"]
        if len(accs) == 1:
            return [*lines, f"ldr {spare}, %[step]", f"add {out}, {out}, {spare}"]
        return [*lines, f"add {out}, {out}, {spare}, lsl #1"]

    def instructions(self, rows: int) -> int:
        return count_instructions(self.head()) + rows * (count_instructions(self.line()) + 3 * self.loop)

    def code_bytes(self) -> int:
        return 4 * count_instructions(self.text())

    def clamped(self, accs: Sequence[str], spare: str) -> list[str]:
        lines, rounding = clamp_lines(self.strip.rounding, accs), self.strip.rounding
        if rounding.halves and rounding.hi < HALF_MAX:
            lines.append(f"movw {spare}, #{rounding.hi}")
            lines += [line for a in accs for line in (f"cmp {a}, {spare}", "it gt", f"movgt {a}, {spare}")]
        if not rounding.table:
            return lines
        return [*lines, f"ldr {spare}, %[table]", *(f"ldrsb {a}, [{spare}, {a}]" for a in accs)]

    def multiply(
        self, macs: Sequence[Mac], pair: Sequence[int], words: Sequence[str], begun: tuple[set[int], str], *, base: int = 0
    ) -> list[str]:
        """Return the products with the pixel words in `pair`; `begun`: outputs that have a sum, and what the others start with.

        `words` are the registers of the weight words from number `base` on.
        """
        (started, first), lines = begun, []
        for m in macs:
            if m.pixels in pair:
                acc = self.acc[m.output]
                addend = acc if m.output in started else first
                started.add(m.output)
                lines.append(f"smla{m.op} {acc}, {self.pixels[pair.index(m.pixels)]}, {words[m.word - base]}, {addend}")
        return lines

    def load_pixels(self, places: Sequence[str], *, near: bool) -> list[str]:
        """Load one or two adjacent pixel words, with LDRD if its offset reaches them."""
        if len(places) == 2 and near:
            return [f"ldrd {self.pixels[0]}, {self.pixels[1]}, [r0, #{places[0]}]"]
        return [f"ldr {register}, [r0, #{place}]" for register, place in zip(self.pixels, places, strict=False)]

    def high_multiply(self, accs: Sequence[str], multiplier: str, constant: str, spare: str) -> list[str]:
        rounding, lines = self.strip.rounding, []
        for a in accs:
            if rounding.signed and rounding.prescale > 1:
                lines += [f"asr {spare}, {a}, #31", f"add {spare}, {constant}, {spare}, lsl #{rounding.prescale - 1}"]
            elif rounding.signed:
                lines.append(f"add {spare}, {constant}, {a}, asr #31")
            lines.append(f"smmla{'r' * rounding.rounded} {a}, {a}, {multiplier}, {spare if rounding.signed else constant}")
        return lines


def _pixel_pairs(macs: Sequence[Mac]) -> Iterator[list[int]]:
    """Iterate over the pixel words that products need, two at a time if they are adjacent."""
    needed = sorted({m.pixels for m in macs})
    while needed:
        pair = needed[:2] if needed[1:2] == [needed[0] + 1] else needed[:1]
        needed = needed[len(pair) :]
        yield pair


class _Resident(StripText):
    """Weights, bias and constant in r4 and up; multiplier and shift there too if there is room, else in the FPU or in memory."""

    strip: Strip
    pixels = ("r12", "r3")

    def __init__(self, strip: Strip) -> None:
        super().__init__(strip, step=strip.step, line_bytes=strip.line_bytes)
        self.acc = ("r1", "lr")[: strip.step]
        pool = [f"r{i}" for i in range(4, 12)]
        count = len(strip.layout.words)
        if count > RESIDENT_WORDS:
            raise ValueError(f"{count} weight words do not fit the registers")
        self.words, self.bias, self.constant = pool[:count], pool[count], pool[count + 1]
        self.loaded = pool[count : count + 2]
        self.places: list[str] = []
        vector = ["s15", "s14"]
        for i, name in enumerate(("multiplier", "shift")[: strip.constants - 2]):
            index = count + 2 + i
            if index < len(pool):
                self.places.append(pool[index])
                self.loaded.append(pool[index])
            elif strip.fpu:
                self.places.append(vector[i])
            else:
                self.places.append(f"%[{name}]")
                self.in_memory.append((name, strip.weight_words + 2 + i))
        floats = [p for p in self.places if p.startswith("s")]
        self.clobbers = (*self.clobbers, *floats)

    def head(self) -> list[str]:
        first = self.strip.weight_words + 2
        lines = [f"vldr {p}, [r1, #{4 * (first + i)}]" for i, p in enumerate(self.places) if p.startswith("s")]
        count = len(self.words)
        if not self.strip.packed:
            return [*lines, f"ldm r1, {{{', '.join((*self.words, *self.loaded))}}}"]
        for i in range(0, count, 2):
            one = self.words[i]
            lines += [f"ldr {one}, [r1], #4", *unpack(one, self.words[i + 1] if i + 1 < count else self.pixels[0])]
        return [*lines, f"ldm r1, {{{', '.join(self.loaded)}}}"]

    @property
    def moved(self) -> int:
        return self.strip.outputs - 1 if self.strip.stride % 2 == 0 else super().moved

    def line(self) -> list[str | Repeat]:
        return self._shared_line() if self.strip.shared else super().line()

    def _shared_line(self) -> list[str | Repeat]:
        strip, step = self.strip, self.strip.step
        lines: list[str | Repeat] = []
        for first in range(0, strip.outputs, step):
            count = min(step, strip.outputs - first)
            accs = self.acc[:count]
            lines += self.results(count, first // step)
            lines += self.shared_stores(accs, "r2", self.pixels[0], last=first + count == strip.outputs)
        return [*lines, *add_immediate("r0", strip.line_bytes)]

    def results(self, outputs: int, index: int | None) -> list[str]:
        strip, layout = self.strip, self.strip.layout
        started: set[int] = set()
        lines: list[str] = []
        words_a_step = strip.step * strip.stride * 2
        for r in range(layout.kh):
            macs = row_macs(layout, r, (0, layout.kw), strip.stride, outputs)
            for pair in _pixel_pairs(macs):
                offset = r * strip.row_bytes + 4 * pair[0]
                limit = offset + words_a_step * (-(-strip.outputs // strip.step) - 1)
                places = [counted_offset(index, words_a_step, offset + 4 * i) for i in range(len(pair))]
                lines += self.load_pixels(places, near=limit <= MAX_PAIR_OFFSET)
                lines += self.multiply(macs, pair, self.words, (started, self.bias))
        return lines + self._finish(self.acc[:outputs])

    def _finish(self, accs: Sequence[str]) -> list[str]:
        spare = self.pixels
        multiplier, lines = self._get(self.places[0], spare[0])
        lines = [*lines, *self.high_multiply(accs, multiplier, self.constant, spare[1])]
        if self.strip.rounding.shift < 0:
            shift, more = self._get(self.places[1], spare[1])
            lines += [*more, *(f"asr {a}, {a}, {shift}" for a in accs)]
        return [*lines, *self.clamped(accs, spare[1])]

    def _get(self, place: str, register: str) -> tuple[str, list[str]]:
        if place.startswith("s"):
            return register, [f"vmov {register}, {place}"]
        if place.startswith("%"):
            return register, [f"ldr {register}, {place}"]
        return place, []


class _Streamed(StripText):
    """Accumulators in r3 and up, then weight words, pixels in the last two registers; the out pointer in memory if needed."""

    strip: Strip

    def __init__(self, strip: Strip) -> None:
        super().__init__(strip, step=strip.step, line_bytes=strip.line_bytes)
        free = ["r3", *(f"r{i}" for i in range(4, 13)), "lr"]
        self.acc = tuple(free[: strip.outputs])
        widest = max(len(strip.layout.chunk_words(c)) for c in strip.layout.chunks)
        room = len(free) - strip.outputs - 2
        self.out_in_memory = widest > room
        if self.out_in_memory:
            free.insert(0, "r2")
            self.acc = tuple(free[: strip.outputs])
            room += 1
        if widest > room:
            raise ValueError(f"{widest} weight words do not fit the registers")
        self.words = free[strip.outputs : strip.outputs + widest]
        self.pixels = (free[-2], free[-1])

    def line(self) -> list[str | Repeat]:
        strip, layout = self.strip, self.strip.layout
        last = self.acc[-1]
        lines = [f"ldr {last}, [r1], #4"]
        started: set[int] = set()
        base = 0
        for r in range(layout.kh):
            for chunk in layout.chunks:
                count = len(layout.chunk_words(chunk))
                names = self.words[:count]
                lines.append(f"ldm r1!, {{{', '.join(names)}}}" if count > 1 else f"ldr {names[0]}, [r1], #4")
                macs = row_macs(layout, r, chunk, strip.stride, strip.outputs)
                for pair in _pixel_pairs(macs):
                    places = [f"{r * strip.row_bytes + 4 * word}" for word in pair]
                    lines += self.load_pixels(places, near=r * strip.row_bytes + 4 * pair[0] <= MAX_PAIR_OFFSET)
                    lines += self.multiply(macs, pair, names, (started, last), base=base)
                base += count
        return [*lines, *self._finish()]

    def _finish(self) -> list[str]:
        """Requantise; multiplier and constant are loaded into registers of weights and pixels, which are free by now."""
        strip, accs = self.strip, self.acc
        constant, multiplier = self.pixels
        lines = [f"ldrd {constant}, {multiplier}, [r1], #8"]
        spare = self.words[0]
        lines += self.high_multiply(accs, multiplier, constant, spare)
        if strip.rounding.shift < 0:
            lines += [f"ldr {spare}, [r1], #4", *(f"asr {a}, {a}, {spare}" for a in accs)]
        lines += [*self.clamped(accs, spare), *add_immediate("r1", -4 * strip.stream_words)]
        out = self.pixels[1] if self.out_in_memory else "r2"
        if self.out_in_memory:
            lines.append(f"ldr {out}, %[out]")
        moved = 0
        if strip.shared:
            lines += self.shared_stores(accs, out, self.words[0], last=True)
        for j, a in enumerate(accs if not strip.shared else ()):
            if j * strip.column_step - moved > 4095:
                lines += add_immediate(out, j * strip.column_step - moved)
                moved = j * strip.column_step
            lines.append(f"{self.store} {a}, [{out}, #{j * strip.column_step - moved}]")
        lines += add_immediate(out, strip.row_step - moved) if not strip.shared else []
        if self.out_in_memory:
            lines.append(f"str {out}, %[out]")
        return [*lines, *add_immediate("r0", strip.line_bytes)]
