"""Depthwise convolution with one function for layers of many sizes: the geometry is data, in a header before the weights.

An ordinary kernel has the layer's sizes in its instructions, so every layer adds code.  These three kernels read the sizes from
the header instead, which costs some cycles and saves flash when a network has many depthwise layers.  All keep weights as single
bytes, and all multiply two taps at once: two pixels of an int16 plane and two weights are a word each, and SMLAD multiplies both
pairs.

`depthwise_common`: one function per kernel size and stride.  Planes are tiles of a fixed pitch; blocks are strips (strip.py) of
four, two or one columns.  Scratch: 2 * TILE_PITCH * (rows of a band * stride + kernel rows) bytes.

`depthwise_3x3_common`: 3 x 3 windows at stride 1 or 2.  The weights of a channel stay in registers while strips of two columns
(one at stride 2) run down the plane.

`depthwise_pairs`: windows of up to 7 columns at strides 1 and 2, with one small function for all of them; a block is four results
of a line.  Scratch: the plane, and 8 bytes per pair of weights.  A kernel row is `words` pairs of weights (2, 3 or 4), padded
with zeros.  For results in even columns the pairs are (w0, w1), (w2, w3) ...; for results in odd columns they are the same row
one column later, (0, w0), (w1, w2) ...  So both kinds of results start at an even column of the plane, where a pair of pixels is
one word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Self

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, cast, equal, imm, logical_and, maximum, minimum, select
from aot.tir.intrin import BlockText, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.arm_dsp.depthwise import planes
from aot.topi.arm_dsp.depthwise import strip as blocks
from aot.topi.intrin.asm_text import Operands, asm, block_of
from aot.topi.layer.fused import FusedLayer, lowered, open_flat
from aot.topi.layer.im2col import Axis, axes
from aot.topi.layer.planes import BAND_BYTES, Planes, orientations
from aot.topi.strategy import Group, Lowered, register_planned

OUTPUTS = 4
"""Results of a block."""

MIN_WORDS, MAX_WORDS = 2, 4

_UNSIZED = (UNKNOWN_EXTENT,)


def row_words(columns: int) -> int:
    """Return the number of pairs that can hold a kernel row of either kind."""
    return max(MIN_WORDS, columns // 2 + 1)


@cache
def unpack_pairs() -> TensorIntrin:
    """Unpack bytes to pairs of weights times 256, each in place and one column later.

    Operands: bytes int8[4 * count] of two pairs each, (low 0, low 1, high 0, high 1); pairs int16[8 * count]: for each pair the
    two weights, then the last weight of the previous pair (0 at first) and the first weight.
    """
    b = IRBuilder("unpack_pairs")
    count = Var("count")
    x = b.input("bytes", _UNSIZED, "int8", align=4)
    out = b.output("pairs", _UNSIZED, "int16", align=4)
    before = b.local("before", (1,), "int32", init=0)
    with b.for_("q", count) as q:
        for i in range(2):
            low, high = (b.let("w", cast("int32", x[q * 4 + (i + 2 * half)]) * 256) for half in range(2))
            for j, value in enumerate((low, high, before[0], low)):
                b.store(out, q * 8 + (4 * i + j), value)
            b.store(before, 0, high)
    return block_of(b, "arm_dsp", _emit_unpack, count)


def _emit_unpack(operands: Operands) -> BlockText:
    text = [
        "1:",
        "ldr %[v], [%[s]], #4",
        "and %[a], %[mask], %[v], lsl #8",
        "and %[v], %[v], %[mask]",
        "pkhbt %[o], %[p], %[a], lsl #16",
        "strd %[a], %[o], [%[d]], #8",
        "lsr %[p], %[a], #16",
        "pkhbt %[o], %[p], %[v], lsl #16",
        "lsr %[p], %[v], #16",
        "strd %[v], %[o], [%[d]], #8",
        "cmp %[s], %[end]",
        "bne 1b",
    ]
    last = ['[p] "+r"(aot_p)', *(f'[{n}] "=&r"(aot_{n})' for n in "vao")]
    before, end = ["uint32_t aot_v, aot_a, aot_o, aot_p = 0;"], {"s:r": f"4 * ({operands['count'].value})"}
    ins = {"mask": "0xff00ff00u"}
    return asm(operands, text, "s=bytes >d=pairs", ins, kind="+", end=end, before=before, last=last)


@cache
def copy_lines() -> TensorIntrin:
    """plane[r, c] = data[r, c] for `rows` * `columns` pixels of one channel, at least one.

    Operands: data int8 from the first pixel on; plane int16 from its destination on; rows; columns; bytes from row to row and
    from column to column of the data; pitch of the plane in elements.
    """
    b = IRBuilder("copy_lines")
    rows, columns, row_step, column_step, pitch = scalars = tuple(
        Var(n) for n in ("rows", "columns", "row_step", "column_step", "pitch")
    )
    data = b.input("data", _UNSIZED, "int8")
    plane = b.output("plane", _UNSIZED, "int16")
    with b.for_("r", rows) as r, b.for_("c", columns) as c:
        b.store(plane, r * pitch + c, data[r * row_step + c * column_step])
    return block_of(b, "arm_dsp", _emit_copy, *scalars)


def _emit_copy(operands: Operands) -> BlockText:
    """Emit copy_lines: two pixels per iteration, after a single one if their number is odd."""
    text = ["1:", "mov %[s], %[src]", "mov %[d], %[dst]", "mov %[n], %[columns]"]
    text += ["tst %[n], #1", "beq 2f", "ldrsb %[v], [%[s]]", "add %[s], %[s], %[step]", "strh %[v], [%[d]], #2"]
    text += ["subs %[n], %[n], #1", "beq 3f"]
    text += ["2:", "ldrsb %[v], [%[s]]", "ldrsb %[u], [%[s], %[step]]", "add %[s], %[s], %[step], lsl #1"]
    text += ["strh %[v], [%[d]], #2", "strh %[u], [%[d]], #2", "subs %[n], %[n], #2", "bne 2b"]
    text += ["3:", "add %[src], %[src], %[line]", "add %[dst], %[dst], %[pitch]", "subs %[rows], %[rows], #1", "bne 1b"]
    ins = {n: operands[o].value for n, o in (("columns", "columns"), ("step", "column_step"), ("line", "row_step"))}
    ins["pitch"] = f"2 * ({operands['pitch'].value})"
    return asm(operands, text, "src=data >dst=plane", ins, counter="rows", temporaries="sdnvu")


@cache
def band_pairs(stride: int, rounding: blocks.RequantForm) -> TensorIntrin:
    """`lines` rows of `columns` results of one channel, whose windows are `stride` (1 or 2) columns apart.

    out[y, x] = clamp((hi((bias + sum) * multiplier) + constant) >> shift).  Operands: plane int16 (aligned to 4 bytes) from the
    first window's corner on; weights int16, `rows` * `words` groups from unpack_pairs; numbers int32: bias, constant, multiplier,
    shift; out int8 from the first result on; lines; columns; elements of the plane from line to line; bytes of the result from
    column to column and from line to line; rows of the kernel; words; pitch of the plane in elements, even.
    """
    b = IRBuilder(f"band_pairs_s{stride}" + "_signed" * rounding.signed + f"_{rounding.lo}_{rounding.hi}".replace("-", "m"))
    names = ("lines", "columns", "line", "column_step", "line_step", "rows", "words", "pitch")
    scalars = tuple(Var(n) for n in names)
    lines, columns, line, column_step, line_step, rows, words, pitch = scalars
    plane = b.input("plane", _UNSIZED, "int16", align=4)
    weights = b.input("weights", _UNSIZED, "int16", align=4)
    params = b.input("numbers", (len(blocks.NUMBERS),), "int32", align=4)
    out = b.output("out", _UNSIZED, "int8")
    numbers = [b.let(n, params[i]) for i, n in enumerate(blocks.NUMBERS)]
    with b.for_("y", lines) as y, b.for_("x", columns) as x:
        acc = b.local("acc", (1,), "int32", init=numbers[0])
        kind = b.let("kind", x % 2 if stride == 1 else imm(0))
        corner = b.let("corner", y * line + x * stride - kind)
        with b.for_("r", rows) as r, b.for_("i", words) as i:
            group = b.let("group", (r * words + i) * 4 + kind * 2)
            at = b.let("at", corner + r * pitch + i * 2)
            products = [cast("int32", plane[at + half]) * cast("int32", weights[group + half]) for half in range(2)]
            b.store(acc, 0, acc[0] + products[0] + products[1])
        b.store(out, y * line_step + x * column_step, blocks.requantized(b, rounding, acc[0], numbers))
    return block_of(b, "arm_dsp", lambda ops: _emit(ops, stride, rounding), *scalars)


def _row_single() -> tuple[list[str], list[str]]:
    """Return a kernel row of two pairs, and what a third and a fourth pair add; each pixel word is used twice."""

    def step(p: str, q: str) -> list[str]:
        sums = [f"smlad %[a{j}], %[{(p, p, q, q)[j]}], %[{'ef'[j % 2]}], %[a{j}]" for j in range(OUTPUTS)]
        return ["ldrd %[e], %[f], [%[w]], #8", *sums]

    first = ["ldrd %[p], %[q], [%[x]]", *step("p", "q"), "ldr %[p], [%[x], #8]", *step("q", "p")]
    third = ["ldr %[q], [%[x], #12]", *step("p", "q")]
    return [*first, *SKIP_THIRD, *third], ["ldr %[p], [%[x], #16]", *step("q", "p")]


def _row_double() -> tuple[list[str], list[str]]:
    """As _row_single for stride 2: four pixel words, each of which is overwritten by a pair of weights."""

    def step(first: int) -> list[str]:
        sums = [f"smlad %[a{j}], %[{'pqfg'[(first + j) % 4]}], %[e], %[a{j}]" for j in range(OUTPUTS)]
        return ["ldr %[e], [%[w]], #8", *sums]

    first = ["ldrd %[p], %[q], [%[x]]", "ldrd %[f], %[g], [%[x], #8]", *step(0), "ldr %[p], [%[x], #16]", *step(1)]
    third = ["ldr %[q], [%[x], #20]", *step(2)]
    return [*first, *SKIP_THIRD, *third], ["ldr %[f], [%[x], #24]", *step(3)]


SKIP_THIRD = ("tst %[rows], #3", "beq 2f")
SKIP_FOURTH = ("tst %[rows], #2", "beq 2f")
"""`rows` holds 4 * (rows left - 1) + words - 2."""


def _block(stride: int, rounding: blocks.RequantForm) -> list[str]:
    """Return the instructions for four results, in a0 to a3."""
    accs = [f"%[a{j}]" for j in range(OUTPUTS)]
    three, fourth = _row_single() if stride == 1 else _row_double()
    text = [f"ldr %[a0], {_at('bias')}", *(f"mov {a}, %[a0]" for a in accs[1:])]
    text += [f"ldr %[w], {_at('weights')}", f"ldr %[rows], {_at('count')}"]
    text += ["1:", *three, *SKIP_FOURTH, *fourth]
    text += ["2:", f"ldr %[e], {_at('pitch')}", "add %[x], %[x], %[e]", "subs %[rows], %[rows], #4", "bhs 1b"]
    text += [f"ldr %[e], {_at('next')}", "add %[x], %[x], %[e]"]
    text += [f"ldr %[p], {_at('multiplier')}", f"ldr %[q], {_at('constant')}"]
    for a in accs:
        if rounding.signed:
            text += [f"asr %[e], {a}, #31", f"add %[e], %[q], %[e], lsl #{rounding.prescale - 1}"]
        text.append(f"smmla {a}, {a}, %[p], %[{'e' if rounding.signed else 'q'}]")
    return [*text, f"ldr %[e], {_at('shift')}", *(f"asr {a}, {a}, %[e]" for a in accs), *blocks.clamp_lines(rounding, accs)]


def band_text(stride: int, rounding: blocks.RequantForm) -> list[str]:
    """Return the instructions of band_pairs."""
    text = ["0:", *_block(stride, rounding)]
    text += [f"ldr %[e], {_at('step')}", f"ldr %[p], {_at('left')}", "subs %[p], %[p], #4", f"str %[p], {_at('left')}", "blo 3f"]
    for j in (0, 2):
        text += [f"strb %[a{j}], [%[o]]", f"strb %[a{j + 1}], [%[o], %[e]]", "add %[o], %[o], %[e], lsl #1"]
    text += ["bne 0b", "b 4f"]
    text += ["3:", "strb %[a0], [%[o]]", "cmn %[p], #3", "beq 4f", "strb %[a1], [%[o], %[e]]", "cmn %[p], #2", "beq 4f"]
    text += ["strb %[a2], [%[o], %[e], lsl #1]"]
    text += ["4:", f"ldr %[e], {_at('columns')}", f"str %[e], {_at('left')}"]
    for register, step in (("x", "line"), ("o", "line_step")):
        text += [f"ldr %[{register}], {_at(register + '0')}", f"ldr %[e], {_at(step)}"]
        text += [f"add %[{register}], %[{register}], %[e]", f"str %[{register}], {_at(register + '0')}"]
    return [*text, f"ldr %[e], {_at('lines')}", "subs %[e], %[e], #1", f"str %[e], {_at('lines')}", "bne 0b"]


CONTEXT = (
    *("weights", "count", "pitch", "next", "step", "columns", "line", "line_step"),
    *blocks.NUMBERS,
    *("left", "lines", "x0", "o0"),
)
"""Operands that the block keeps in memory for lack of registers; it reads them all and writes the last four."""


def _at(name: str) -> str:
    return f"[%[k], #{4 * CONTEXT.index(name)}]"


def _emit(operands: Operands, stride: int, rounding: blocks.RequantForm) -> BlockText:
    value = {name: f"({operand.value or operand.pointer})" for name, operand in operands.items()}
    context = {
        "weights": f"(int32_t)(intptr_t){value['weights']}",
        "count": f"4 * {value['rows']} + {value['words']} - 6",
        "pitch": f"2 * {value['pitch']}",
        "next": f"{8 * stride} - 2 * {value['rows']} * {value['pitch']}",
        "step": value["column_step"],
        "columns": value["columns"],
        "line": f"2 * {value['line']}",
        "line_step": value["line_step"],
        **{n: f"{value['numbers']}[{i}]" for i, n in enumerate(blocks.NUMBERS)},
        "left": value["columns"],
        "lines": value["lines"],
        "x0": "(int32_t)(intptr_t)aot_x",
        "o0": "(int32_t)(intptr_t)aot_o",
    }
    temporaries = ["w", "rows", "a0", "a1", "a2", "a3", "p", "q", "e", "f"] + ["g"] * (stride == 2)
    before = ["int32_t aot_k[] = {", *(f"  {context[name]}," for name in CONTEXT), "};"]
    text = band_text(stride, rounding)
    return asm(operands, text, "x=plane >o=out", {"k": "aot_k"}, kind="+", before=before, temporaries=temporaries)


def band_instructions(plan: tuple[int, int, int], *, lines: int, columns: int) -> int:
    """Return the instructions of one block, counted from its text; plan: (words, stride, kernel rows)."""
    words, stride, rows = plan
    row = (18 if stride == 1 else 19) + (6 if words > MIN_WORDS else 0) + (2 + 5) * (words - MIN_WORDS)
    blocks = -(-columns // OUTPUTS)
    return 40 + lines * (17 + blocks * (rows * (row + 1) + 37))


@dataclass(frozen=True, slots=True)
class HeaderPlanes(Planes):
    """Planes of an even pitch; `beyond`: columns that a kernel reads from the last output's window on."""

    beyond: int
    numbers: planes.Numbers
    fpu: bool

    @classmethod
    def of(cls, layer: FusedLayer, target: Target, *, pitch: int, beyond: int) -> Self | None:
        """Plan one band with all result rows, or else bands of equal height whose plane is within BAND_BYTES."""
        numbers = planes.plan_numbers(layer, target, packed=True)
        rows, columns = axes(layer)
        if numbers is None or pitch < max(columns.used, columns.before + columns.copied) or columns.copied == 0:
            return None
        most = max(1, (BAND_BYTES // (2 * pitch) - rows.taps) // rows.stride + 1)
        band = -(-rows.out // -(-rows.out // most))
        return cls(layer, rows, columns, False, band, pitch, beyond, numbers, target.has("fpu"))

    @property
    def rounding(self) -> blocks.RequantForm:
        """The requantisation's form; shifts are per channel so that layers can share code."""
        return replace(self.numbers.rounding, shift=-1)

    @property
    def size(self) -> int:
        """Elements of the plane, an even number."""
        last = (self.columns.out - 1) * self.columns.stride
        size = self.lines * self.pitch + max(0, last + self.beyond - self.pitch)
        return size + size % 2

    @property
    def header(self) -> dict[str, int]:
        """The first words of the constants."""
        rows, columns, pad = self.rows, self.columns, self.layer.attrs.pad_value & 0xFFFF
        return {
            "channels": self.layer.channels, "height": rows.size, "copied": columns.copied, "top": rows.before,
            "left": columns.before, "out_height": rows.out, "out_width": columns.out, "row": rows.data_step,
            "column": columns.data_step, "out_row": rows.out_step, "band": self.band, "bands": self.bands,
            "pad": pad | pad << 16, "plane": self.size // 2, "stride": columns.stride, "stride_rows": rows.stride,
        }  # fmt: skip

    def copy_instructions(self) -> int:
        """Instructions for copying one channel (from counts under QEMU)."""
        rows = self.rows
        inside = min(rows.size, rows.used - rows.before)
        inside += (self.bands - 1) * max(0, rows.taps - rows.stride)
        fill = 5 * self.pitch * (rows.taps - 1) // 2 if self.bands > 1 else 0
        return inside * (7 * self.columns.copied // 2 + 10) + 40 * self.bands + fill


class Plane:
    """The plane of one call; `n` are the header's fields, which are the first words of `params`."""

    def __init__(self, b: IRBuilder, params: Buffer, plan: HeaderPlanes) -> None:
        self.n: dict[str, Expr] = {field: b.let(field, params[i]) for i, field in enumerate(plan.header)}
        self._b, self.buffer = b, b.scratch("plane", (plan.size,), "int16", align=4)
        self._fill(imm(0), self.n["plane"])

    def _fill(self, start: Expr, stop: Expr) -> None:
        """Fill words `start` to `stop` with padding."""
        with self._b.for_("i", stop, start=start) as i:
            self._b.store_as(self.buffer, "int32", i, self.n["pad"])

    def copy(self, data: Buffer, channel: Expr, band: Expr, *, kernel_rows: Expr, pitch: Expr) -> tuple[Expr, Expr]:
        """Fill the plane for a band; return the band's first result row and its number of rows.

        The border stays the same, except for the rows above and below if an image has several bands.
        """
        b, n = self._b, self.n
        y = b.let("y", band * n["band"])
        count = b.let("rows", minimum(n["band"], n["out_height"] - y))
        above = b.let("above", y * n["stride_rows"] - n["top"])
        lines = b.let("lines", (count - 1) * n["stride_rows"] + kernel_rows)
        first = b.let("first", maximum(imm(0) - above, 0))
        last = b.let("last", minimum(lines, n["height"] - above))
        with b.if_(n["bands"] > 1):
            half = b.let("half", pitch >> 1)
            self._fill(imm(0), first * half)
            self._fill(maximum(last, 0) * half, lines * half)
        with b.if_(last > first):
            source = region(data, channel + (above + first) * n["row"])
            target = region(self.buffer, first * pitch + n["left"])
            b.block(copy_lines(), source, target, last - first, n["copied"], n["row"], n["column"], pitch)
        return y, count


def with_header(header: dict[str, int], records: Array) -> Array:
    """Return the constants of a layer: the header, then the channels' records [channels, words]."""
    words = np.asarray([*header.values()], np.int64).astype(np.uint32).view(np.int32)
    return np.concatenate([words, records.reshape(-1).astype(np.int32)])


TILE_PITCH = 26
"""Halfwords per line of the plane, the same for all layers."""
MAX_REACH = 32
"""Most rows of a window."""
WIDTHS = (4, 2, 1)


@dataclass(frozen=True, slots=True)
class TilePlanes(Planes):
    """Planes of TILE_PITCH: tiles of as many columns as that can hold, `band` rows high."""

    numbers: planes.Numbers
    layout: blocks.Layout
    fpu: bool

    def strip(self, outputs: int) -> blocks.Strip:
        stride, rounding = (self.rows.stride, self.columns.stride), self.numbers.rounding
        strip = blocks.shared_strip(self.layout, stride, TILE_PITCH, rounding, outputs=outputs, fpu=self.fpu)
        return replace(strip, dilation=self.rows.dilation)

    @property
    def tile(self) -> int:
        """Outputs per tile, such that the next tile starts in an even column."""
        return tile_outputs(self.columns)

    @property
    def header(self) -> dict[str, int]:
        """The first words of the constants, padded to an even number."""
        rows, columns = self.rows, self.columns
        return {
            "channels": self.layer.channels, "height": rows.size, "width": columns.size, "top": rows.before,
            "left": columns.before, "out_height": rows.out, "out_width": columns.out, "row": rows.data_step,
            "column": columns.data_step, "out_row": rows.out_step, "out_column": columns.out_step, "band": self.band,
            "pad": self.layer.attrs.pad_value, "copied": columns.copied, "lines": rows.copied, "": 0,
        }  # fmt: skip

    @property
    def is_small(self) -> bool:
        """Whether one tile covers the image."""
        return self.band >= self.rows.out and self.tile >= self.columns.out

    def cost(self) -> int:
        """Instructions of all channels (from counts under QEMU)."""
        rows, columns = self.rows, self.columns
        total = 0.0
        for y in range(0, rows.out, self.band):
            height = min(self.band, rows.out - y)
            for x in range(0, columns.out, self.tile):
                width = min(self.tile, columns.out - x)
                total += self._copy_cost((y, x), (height, width))
                for n, count in zip(WIDTHS, (width // 4, width // 2 % 2, width % 2), strict=True):
                    total += count * (blocks.instructions(self.strip(n), height) + 29)
        unpacking = 1.2 * 4 * len(self.layout.words) if not self.layout.resident else 0
        border = 2.3 * TILE_PITCH * self.lines if self.is_small else 0
        return int(self.layer.channels * (total + unpacking) + border)

    def _copy_cost(self, first: tuple[int, int], size: tuple[int, int]) -> float:
        """Return the instructions for copying the data of a tile of `size` results from `first` on (no border if small)."""
        rows, columns = self.rows, self.columns
        if self.is_small:
            copied = columns.copied
            return rows.copied * (13.6 * (copied // 4) + 4.7 * (copied % 4) + 22.7) + 65
        used, reach = ((n - 1) * a.stride + a.reach for n, a in zip(size[::-1], (columns, rows), strict=True))
        top, left = (f * a.stride - a.before for f, a in zip(first, (rows, columns), strict=True))
        inside = sum(0 <= top + r < rows.size for r in range(reach))
        copied = max(0, min(columns.size, left + used) - max(0, left))
        padded = (reach - inside) * used + inside * (used - copied)
        return inside * (22.7 * (copied // 4) + 7.7 * (copied % 4) + 20) + 5 * padded + 97


def tile_outputs(columns: Axis) -> int:
    """Return the results of one tile: as many as the pitch can hold, in multiples of four if there are four."""
    fitting = (TILE_PITCH - columns.taps) // columns.stride + 1
    return fitting // 4 * 4 if fitting >= 4 else fitting // 2 * 2


def _plan_tiles(group: Group, target: Target) -> TilePlanes | None:
    layer = planes.plain_layer(group, target)
    numbers = None if layer is None else planes.plan_numbers(layer, target, packed=True)
    if layer is None or numbers is None:
        return None
    plans = []
    for rows, columns, swapped in orientations(layer):
        if planes.plane_pitch(rows, columns) is None or tile_outputs(columns) <= 0 or rows.reach > MAX_REACH:
            continue
        band = max(1, min(rows.out, (BAND_BYTES // (2 * TILE_PITCH) - rows.reach) // rows.stride + 1))
        layout = planes.layout_of(rows, columns, shared=True)
        plans.append(TilePlanes(layer, rows, columns, swapped, band, TILE_PITCH, numbers, layout, target.has("fpu")))
    return min(plans, key=lambda p: p.cost(), default=None)


def _lower_tiles(group: Group, _target: Target, name: str, plan: TilePlanes) -> Lowered:
    layer = plan.layer
    b = IRBuilder(name)
    io = open_flat(b, group, layer)
    data = planes.stream(layer, plan.numbers, plan.layout, swapped=plan.swapped, packed=True)
    params = io.constant("params", with_header(plan.header, data), "int32")
    table = planes.table_regions(io)
    plane = b.scratch("plane", (plan.lines * TILE_PITCH,), "int16")
    unpacked = planes.unpacked_weights(b, plan.layout, plan.numbers)
    # Read these where they are used: as variables, all fourteen would be spilled to the stack.
    n: dict[str, Expr] = {field: params[i] for i, field in enumerate(plan.header)}
    if plan.is_small:
        with b.for_("i", plane.size) as i:
            b.store(plane, i, n["pad"])
    with b.for_("c", n["channels"]) as c:
        at = b.let("w", c * data.shape[1] + len(plan.header))
        weights = region(params, at)
        if unpacked is not None:
            planes.unpack_stream(b, plan.layout, params, unpacked, at=at, words=data.shape[1])
            weights = region(unpacked)
        tiles = _Tiles(b, plan, n, plane=plane)
        if plan.is_small:
            with b.for_("r", n["lines"]) as r:
                line = b.let("at", (r + n["top"]) * TILE_PITCH + n["left"])
                tiles.pixels(io.data, line, imm(0), n["copied"], source=c + r * n["row"])
            tiles.compute(io.out, c, (weights, *table), size=(n["out_height"], n["out_width"]))
        else:
            for y, x, size in tiles.each():
                tiles.copy(io.data, c, origin=(y, x), size=size)
                tiles.compute(io.out, c + y * n["out_row"] + x * n["out_column"], (weights, *table), size=size)
    code = sum(blocks.code_bytes(plan.strip(w)) for w in WIDTHS) + (640 if plan.is_small else 1000)
    return lowered(io, layer, "arm_dsp.depthwise_common", plan.cost(), code)


class _Tiles:
    """Copies and convolves one tile of one channel; `n` are the header's fields."""

    def __init__(self, b: IRBuilder, plan: TilePlanes, n: dict[str, Expr], *, plane: Buffer) -> None:
        self._b, self._plan, self.numbers, self._plane = b, plan, n, plane

    def each(self) -> Iterator[tuple[Expr, Expr, tuple[Expr, Expr]]]:
        """Loop over the tiles of a channel: the first row and column of the results, and their number in both directions."""
        b, n, tile = self._b, self.numbers, self._plan.tile
        with b.for_("first", (n["out_height"] + n["band"] - 1) // n["band"]) as band:
            y = b.let("y", band * n["band"])
            count = b.let("rows", minimum(n["band"], n["out_height"] - y))
            with b.for_("x", n["out_width"], step=tile) as x:
                yield y, x, (count, b.let("columns", minimum(imm(tile), n["out_width"] - x)))

    def copy(self, data: Buffer, channel: Expr, *, origin: tuple[Expr, Expr], size: tuple[Expr, Expr]) -> None:
        """Copy the tile's pixels, and pad around them what is outside the image."""
        b, n, rows, columns = self._b, self.numbers, self._plan.rows, self._plan.columns
        top = b.let("above", origin[0] * rows.stride - n["top"])
        before = b.let("before", origin[1] * columns.stride - n["left"])
        used = b.let("used", (size[1] - 1) * columns.stride + columns.taps)
        left = b.let("left", minimum(maximum(imm(0) - before, 0), used))
        right = b.let("right", minimum(used, n["width"] - before))
        with b.for_("r", (size[0] - 1) * rows.stride + rows.reach) as r:
            at = b.let("at", r * TILE_PITCH)
            line = b.let("line", top + r)
            inside = logical_and(line >= 0, line < n["height"])
            with b.if_(inside):
                self._pad(at, imm(0), left)
                self.pixels(data, at, left, right, source=channel + line * n["row"] + before * n["column"])
                self._pad(at, maximum(left, right), used)
            with b.else_():
                self._pad(at, imm(0), used)

    def _pad(self, at: Expr, start: Expr, stop: Expr) -> None:
        with self._b.for_("p", stop, start=start) as p:
            self._b.store(self._plane, at + p, self.numbers["pad"])

    def pixels(self, data: Buffer, at: Expr, left: Expr, right: Expr, *, source: Expr) -> None:
        """Copy four pixels per iteration, then the remainder."""
        b, step = self._b, self.numbers["column"]
        start = b.let("s", source)
        whole = b.let("whole", left + ((maximum(right - left, 0) >> 2) * 4))
        with b.for_("p", whole, start=left, step=4) as p:
            pixel = b.let("pixel", start + p * step)
            for u in range(4):
                b.store(self._plane, at + p + u, data.load("int8", pixel + step * u))
        with b.for_("p", right, start=whole) as p:
            b.store(self._plane, at + p, data.load("int8", start + p * step))

    def compute(self, out: Buffer, start: Expr, weights: tuple[Region, ...], *, size: tuple[Expr, Expr]) -> None:
        b, n, stride = self._b, self.numbers, self._plan.columns.stride
        steps = (size[0], n["out_column"], n["out_row"])
        bounds = [imm(0), b.let("fours", (size[1] >> 2) * 4), b.let("twos", (size[1] >> 1) * 2), size[1]]
        for i, width in enumerate(WIDTHS):
            block = blocks.dw_strip(self._plan.strip(width))
            with b.for_("j", bounds[i + 1], start=bounds[i], step=width) as j:
                b.block(block, region(self._plane, j * stride), *weights, region(out, start + j * n["out_column"]), *steps)


register_planned("arm_dsp.depthwise_common", "nn.depthwise_conv2d", _plan_tiles, _lower_tiles, plevel=26)


RESIDENT_PITCH = 84
"""Pitch of all planes: results may be up to 82 columns wide; a larger pitch would enlarge the planes of small images."""

RECORD = 7
"""Words per channel: three of weights, bias, constant, multiplier, shift."""


class ResidentPlanes(HeaderPlanes):
    """Planes of RESIDENT_PITCH for strips whose weights stay in registers."""

    __slots__ = ()

    def strip(self, stride: int) -> blocks.Strip:
        """Return the strip; rows may have a stride of their own, but the function has one for both axes."""
        layout = blocks.Layout(3, 3, stride == 1, True)
        return blocks.shared_strip(layout, (stride, stride), RESIDENT_PITCH, self.rounding, outputs=3 - stride, fpu=self.fpu)

    def instructions(self) -> int:
        """Instructions of one call (from counts under QEMU)."""
        stride = self.columns.stride
        strips = -(-self.columns.out // (3 - stride)) * self.bands
        compute = strips * (blocks.instructions(self.strip(stride), self.band) + 22)
        return self.layer.channels * (compute + self.copy_instructions() + 24) + 5 * self.size // 2 + 60


def _plan_3x3(group: Group, target: Target) -> ResidentPlanes | None:
    layer = planes.plain_layer(group, target)
    if layer is None or layer.attrs.dilation != (1, 1) or layer.weight.shape[:2] != (3, 3):
        return None
    if layer.attrs.strides not in ((1, 1), (2, 2)) or planes.plane_pitch(*axes(layer)) is None:
        return None
    return ResidentPlanes.of(layer, target, pitch=RESIDENT_PITCH, beyond=4)


def _lower_3x3(group: Group, _target: Target, name: str, plan: ResidentPlanes) -> Lowered:
    layer = plan.layer
    b = IRBuilder(name)
    io = open_flat(b, group, layer)
    own_shift = replace(plan.numbers, rounding=plan.rounding)
    data = planes.stream(layer, own_shift, plan.strip(plan.columns.stride).layout, swapped=False, packed=True)
    assert data.shape[1] == RECORD
    params = io.constant("params", with_header(plan.header, data), "int32")
    table = planes.table_regions(io)
    plane = Plane(b, params, plan)
    n = plane.n
    with b.for_("c", n["channels"]) as c:
        weights = (region(params, b.let("w", c * RECORD + len(plan.header))), *table)
        with b.for_("band", n["bands"]) as band:
            y, count = plane.copy(io.data, c, band, kernel_rows=imm(3), pitch=imm(RESIDENT_PITCH))
            start = b.let("o", c + y * n["out_row"])
            with b.if_(equal(n["stride"], 1)), b.for_("x", n["out_width"], step=2) as x:
                # if the width is odd, the first result of the last strip overwrites its second
                step = b.let("step", select(n["out_width"] - x > 1, n["channels"], imm(0)))
                operands = (*weights, region(io.out, start + x * n["channels"]), count, step, n["out_row"])
                b.block(blocks.dw_strip(plan.strip(1)), region(plane.buffer, x), *operands)
            with b.else_(), b.for_("x", n["out_width"]) as x:
                operands = (*weights, region(io.out, start + x * n["channels"]), count, n["channels"], n["out_row"])
                b.block(blocks.dw_strip(plan.strip(2)), region(plane.buffer, x * 2), *operands)
    code = 700 + sum(blocks.code_bytes(plan.strip(stride)) for stride in (1, 2))
    return lowered(io, layer, "arm_dsp.depthwise_3x3_common", plan.instructions(), code)


register_planned("arm_dsp.depthwise_3x3_common", "nn.depthwise_conv2d", _plan_3x3, _lower_3x3, plevel=25)


MAX_PITCH = 512


class PairPlanes(HeaderPlanes):
    """The narrowest planes for blocks of pairs of taps."""

    __slots__ = ()

    @property
    def words(self) -> int:
        """Pairs per kernel row."""
        return row_words(self.columns.taps)

    @property
    def packed(self) -> int:
        """Words of weights per channel."""
        return -(-self.rows.taps * self.words // 2)

    @property
    def more(self) -> dict[str, int]:
        """What follows the header."""
        return {"kernel_rows": self.rows.taps, "words": self.words, "pitch": self.pitch, "packed": self.packed}

    def stream(self) -> Array:
        """Return the header, int32, then for each channel its packed weights (see unpack_pairs) and the NUMBERS."""
        weight = self.numbers.weight >> planes.PACKED_SCALE
        kh, kw, channels = weight.shape
        taps = np.zeros((channels, kh, 2 * self.words), np.int64)
        taps[:, :, :kw] = weight.transpose(2, 0, 1)
        flat = np.zeros((channels, 4 * self.packed), np.int64)
        flat[:, : kh * 2 * self.words] = taps.reshape(channels, -1)
        quads = np.ascontiguousarray(flat.reshape(channels, -1, 2, 2).transpose(0, 1, 3, 2).astype(np.int8))
        multiplier, constant, shift = (f.values for f in self.numbers.requant.params)
        numbers = np.stack([self.numbers.bias, constant, multiplier, shift], axis=1).astype(np.int32)
        records = np.concatenate([quads.reshape(channels, -1).view(np.int32), numbers], axis=1)
        return with_header(self.header | self.more, records)

    def instructions(self) -> int:
        """Instructions of one call (from counts under QEMU)."""
        block = (self.words, self.columns.stride, self.rows.taps)
        bands = self.bands * band_instructions(block, lines=self.band, columns=self.columns.out)
        total = 60 + 12 * self.packed + self.copy_instructions() + bands
        return self.layer.channels * total + 5 * self.size // 2 + 80


def _plan_pairs(group: Group, target: Target) -> PairPlanes | None:
    layer = planes.plain_layer(group, target)
    if layer is None or layer.epilogue or layer.attrs.dilation != (1, 1):
        return None
    columns = axes(layer)[1]
    words = row_words(columns.taps)
    needed = max(columns.used, columns.before + columns.copied)
    pitch = needed + needed % 2  # the narrowest plane; `beyond` covers a last block that starts at the last result
    if words > MAX_WORDS or columns.stride > 2 or pitch > MAX_PITCH:
        return None
    read = 2 * (words + (1 if columns.stride == 1 else 3))  # columns that a block reads, from its first one on
    return PairPlanes.of(layer, target, pitch=pitch, beyond=read + 2)


def _lower_pairs(group: Group, _target: Target, name: str, plan: PairPlanes) -> Lowered:
    layer = plan.layer
    b = IRBuilder(name)
    io = open_flat(b, group, layer)
    params = io.constant("params", plan.stream(), "int32")
    pairs = b.scratch("pairs", (8 * plan.packed,), "int16", align=4)
    plane = Plane(b, params, plan)
    before = len(plan.header)
    n = plane.n | {field: b.let(field, params[before + i]) for i, field in enumerate(plan.more)}
    with b.for_("c", n["channels"]) as c:
        at = b.let("w", c * (n["packed"] + len(blocks.NUMBERS)) + (before + len(plan.more)))
        b.block(unpack_pairs(), region(params, at * 4, dtype="int8"), region(pairs), n["packed"])
        numbers = region(params, at + n["packed"])
        with b.for_("band", n["bands"]) as band:
            y, count = plane.copy(io.data, c, band, kernel_rows=n["kernel_rows"], pitch=n["pitch"])
            regions = (region(plane.buffer), region(pairs), numbers, region(io.out, c + y * n["out_row"]))
            steps = (n["stride_rows"] * n["pitch"], n["channels"], n["out_row"])
            operands = (*regions, count, n["out_width"], *steps, n["kernel_rows"], n["words"], n["pitch"])
            with b.if_(equal(n["stride"], 1)):
                b.block(band_pairs(1, plan.rounding), *operands)
            with b.else_():
                b.block(band_pairs(2, plan.rounding), *operands)
    text = sum(len(band_text(stride, plan.rounding)) for stride in (1, 2))
    return lowered(io, layer, "arm_dsp.depthwise_pairs", plan.instructions(), 710 + 4 * text, columns=OUTPUTS)


register_planned("arm_dsp.depthwise_pairs", "nn.depthwise_conv2d", _plan_pairs, _lower_pairs, plevel=24)
