"""TRANSPOSE of bytes and of halfwords, tile by tile in registers (cores with DSP instructions).

Byte by byte, a transposition costs a load and a store per element.  Here a tile, such as 4 x 4 bytes, is loaded and stored in
words and rearranged in registers by PKHBT, PKHTB and SEL.

Covers every movement of one tensor that exchanges rows and columns, once or many times, whatever the operators are: if the
innermost axes of result and data differ, tiles cover these two axes, and loops the others.  A last tile that would leave the
tensor starts earlier and moves some elements twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import prod
from typing import Literal

from aot.relay.expr import Var as RelayVar
from aot.relay.expr import tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import is_float, itemsize
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, imm, minimum
from aot.tir.function import FuncAttrs
from aot.tir.intrin import BlockText, TensorIntrin
from aot.topi.generic.copy import Axis, Nest, plan_movement
from aot.topi.intrin.asm_text import Operands, Repeat, asm, block_of, count_instructions
from aot.topi.layer.planes import counted
from aot.topi.strategy import Group, Lowered, register_planned

LEAST = 64
"""Fewest bytes for which the loops pay."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`rows` are contiguous in the result, `columns` in the data, `outer` axes around them; in elements of `form`'s type."""

    out: int
    start: int
    outer: tuple[Axis, ...]
    rows: Axis
    columns: Axis
    form: Form

    @property
    def counts(self) -> tuple[int, int]:
        """Elements along the tiles of one block, and across them."""
        counts = self.rows.count, self.columns.count
        return counts if self.form.along == "rows" else (counts[1], counts[0])


def plan(group: Group, target: Target) -> Plan | None:
    """Return None for other cores and movements, for elements of four bytes, and for axes that are too short."""
    result = tensor_type(group.result)
    if not target.has("dsp") or not target.has("unaligned") or len(group.params) != 1:
        return None
    if is_float(result.dtype) or itemsize(result.dtype) > 2 or result.size * itemsize(result.dtype) < LEAST:
        return None
    movement = plan_movement(group)
    if movement is None or movement.epilogue or len(movement.nests) != 1:
        return None
    if not movement.nests[0].source or not isinstance(movement.sources[movement.nests[0].source - 1].node, RelayVar):
        return None
    nest, size = _in_units(movement.nests[0], itemsize(result.dtype))
    contiguous = [axis for axis in nest.axes[:-1] if axis.source == 1]
    if nest.inner.out != 1 or len(contiguous) != 1:
        return None
    form = form_of(nest.inner, contiguous[0], size)
    outer = tuple(axis for axis in nest.axes[:-1] if axis is not contiguous[0])
    return None if form is None else Plan(nest.out, nest.start, outer, nest.inner, contiguous[0], form)


def _in_units(nest: Nest, size: int) -> tuple[Nest, int]:
    """Return the nest in elements of `size` bytes; if it moves pairs of bytes, in pairs."""
    numbers = [nest.out, nest.start, *(n for axis in nest.axes[:-1] for n in (axis.out, axis.source))]
    if size != 1 or nest.inner != Axis(2, 1, 1) or any(n % 2 for n in numbers) or len(nest.axes) < 2:
        return nest, size
    axes = tuple(Axis(a.count, a.out // 2, a.source // 2) for a in nest.axes[:-1])
    return replace(nest, out=nest.out // 2, start=nest.start // 2, axes=axes), 2


def form_of(rows: Axis, columns: Axis, size: int) -> Form | None:
    """Return the tiles for so many rows (contiguous in the result) and columns (in the data) of elements of `size` bytes."""
    counts = rows.count, columns.count
    along: Along = "rows" if rows.count >= columns.count else "columns"
    if size == 2:
        form = Form("int16", 2, 2, along) if min(counts) >= 2 else None
    elif min(counts) >= 4:
        form = Form("int8", 4, 4, along)
    elif rows.count in (2, 3) and columns.count >= 4 and columns.out == rows.count:
        form = Form("int8", rows.count, 4, "columns")
    elif columns.count in (2, 3) and rows.count >= 4 and rows.source == columns.count:
        form = Form("int8", 4, columns.count, "rows")
    else:
        form = None
    if form is None:
        return None
    most = 2 if form.rows == form.columns == 4 else 4
    return replace(form, unroll=max(n for n in range(1, most + 1) if max(counts) // form.step % n == 0))


def lower(group: Group, _target: Target, name: str, plan: Plan) -> Lowered:
    """Lower a movement: loops over the outer axes, each with one transposition in tiles."""
    form, result = plan.form, tensor_type(group.result)
    wide = 2 if form.dtype == "int16" else 1
    size = result.size * itemsize(result.dtype) // wide
    align = 4 if size * wide % 4 == 0 else 1
    b = IRBuilder(name)
    data = b.input("data", (tensor_type(group.params[0]).size,), result.dtype, align=align)
    out = b.output("out", (result.size,), result.dtype, align=align)

    def nested(axes: tuple[Axis, ...], start: Expr, place: Expr) -> None:
        if not axes:
            _matrix(b, plan, (data, start), (out, place))
            return
        with b.for_("i", axes[0].count) as i:
            nested(axes[1:], start + i * axes[0].source, place + i * axes[0].out)

    nested(plan.outer, imm(plan.start), imm(plan.out))
    func = b.finish(FuncAttrs(kernel=f"arm_dsp.transpose(rows={form.rows}, columns={form.columns})", span=group.anchor.span))
    (along, across), step = plan.counts, form.step
    strips = prod(axis.count for axis in plan.outer) * -(-across // (form.rows if form.along == "columns" else form.columns))
    each = instructions(form) * along // step // form.unroll + 20 + (instructions(form) + 12) * bool(along % step)
    code = 120 + 4 * instructions(form) * (1 + bool(along % step))
    return Lowered(func, {}, strips * each + 20, code)


def _matrix(b: IRBuilder, plan: Plan, data: tuple[Buffer, Expr], out: tuple[Buffer, Expr]) -> None:
    """Emit one transposition, in strips of tiles along the longer axis; a strip's last tile is aligned with its end."""
    form, (along, across) = plan.form, plan.counts
    width, strides = form.columns if form.along == "rows" else form.rows, (plan.rows.source, plan.columns.out)
    tile_step, strip_step = (strides[0], 1), (1, strides[1])
    if form.along == "columns":
        tile_step, strip_step = strip_step, tile_step
    tiles = [(0, along // form.step, form)]
    if along % form.step:
        tiles.append((along - form.step, 1, replace(form, unroll=1)))
    for k in counted(b, -(-across // width), "k"):
        start = minimum(k * width, across - width) if across % width else k * width
        first = b.let("first", start) if across > width else imm(0)
        starts = [(t, at + first * s) for (t, at), s in zip((data, out), strip_step, strict=True)]
        for begin, count, of in tiles:
            places = [region(t, at + begin * s, dtype=form.dtype) for (t, at), s in zip(starts, tile_step, strict=True)]
            b.block(transposed(of), *places, imm(count), *map(imm, strides))


for _anchor in ("transpose", "reshape", "strided_slice"):
    register_planned("arm_dsp.transpose", _anchor, plan, lower, plevel=14, several=_anchor != "transpose")


# Load words of several rows, rearrange with PKHBT, PKHTB and SEL, store words of several columns.  SEL selects bytes 0 and 2 from
# its first operand and bytes 1 and 3 from the second: UADD8 has set two of the four flags before.


Along = Literal["rows", "columns"]


@dataclass(frozen=True, slots=True)
class Form:
    """Tiles of `rows` by `columns` elements of `dtype`, one after another along rows or columns, `unroll` per iteration.

    Tiles are 4x4 bytes, 2x2 halfwords, or tiles of strips: 2x4 and 3x4 bytes, whose results are contiguous, and 4x2 and 4x3,
    whose data are contiguous.
    """

    dtype: str
    rows: int
    columns: int
    along: Along
    unroll: int = 1

    @property
    def step(self) -> int:
        """Elements from one tile to the next, along the axis on which they follow one another."""
        return self.rows if self.along == "rows" else self.columns

    @property
    def words(self) -> int:
        """Words of a tile."""
        return min(self.rows, self.columns)

    @property
    def joins(self) -> bool:
        """Whether the results of a strip are contiguous."""
        return self.rows < self.columns

    @property
    def parts(self) -> bool:
        """Whether the data of a strip are contiguous."""
        return self.columns < self.rows


@cache
def transposed(form: Form) -> TensorIntrin:
    """out[c * out_stride + r] = x[r * stride + c] for `count` tiles, a multiple of the form's `unroll`.

    Operands: x and out of the form's type, not overlapping; count; stride and out_stride in elements.
    """
    count, stride, out_stride = Var("count"), Var("stride"), Var("out_stride")
    b = IRBuilder(f"transposed_{form.dtype}_{form.rows}x{form.columns}_{form.along}_{form.unroll}")
    x = b.input("x", (UNKNOWN_EXTENT,), form.dtype)
    out = b.output("out", (UNKNOWN_EXTENT,), form.dtype)
    with b.for_("k", count) as k, b.for_("i", form.rows) as i, b.for_("j", form.columns) as j:
        r, c = (k * form.rows + i, j) if form.along == "rows" else (i, k * form.columns + j)
        b.store(out, c * out_stride + r, x[r * stride + c])
    return block_of(b, "arm_dsp", lambda ops: _emit(ops, form), count, stride, out_stride)


def _apart(low: str, high: str) -> list[str]:
    """Interleave two rows' bytes a and b: `low` becomes [a0 b0 a2 b2], `high` [a1 b1 a3 b3]."""
    return [
        f"lsl %[x], {high}, #8",
        f"lsr %[y], {low}, #8",
        f"sel {low}, {low}, %[x]",
        f"sel {high}, %[y], {high}",
    ]


_BYTES = [
    *_apart("%[d0]", "%[d1]"),
    *_apart("%[d2]", "%[d3]"),
    "pkhbt %[x], %[d0], %[d2], lsl #16",
    "pkhtb %[d2], %[d2], %[d0], asr #16",
    "pkhbt %[y], %[d1], %[d3], lsl #16",
    "pkhtb %[d3], %[d3], %[d1], asr #16",
]
"""Rows d0 to d3 to columns x, y, d2, d3."""

_HALVES = ["pkhbt %[x], %[d0], %[d1], lsl #16", "pkhtb %[d1], %[d1], %[d0], asr #16"]
"""Rows d0, d1 to columns x, d1."""

_JOIN_2 = [*_apart("%[d0]", "%[d1]"), *_HALVES]
"""Rows d0, d1 to eight bytes in x, d1."""

_JOIN_3 = [
    "lsl %[x], %[d1], #8",
    "lsr %[y], %[d1], #8",
    "sel %[x], %[d0], %[x]",  # a0 b0 a2 b2
    "sel %[d0], %[d2], %[d0]",  # c0 a1 c2 a3
    "sel %[y], %[y], %[d2]",  # b1 c1 b3 c3
    "pkhbt %[d1], %[x], %[d0], lsl #16",
    "pkhtb %[d2], %[y], %[d0], asr #16",
    "pkhbt %[y], %[y], %[x]",
]
"""Rows d0 to d2 to twelve bytes in d1, y, d2."""

_PART_2 = [
    *_HALVES,  # x: a0 b0 a2 b2, d1: a1 b1 a3 b3
    "lsl %[y], %[d1], #8",
    "sel %[d0], %[x], %[y]",
    "lsr %[x], %[x], #8",
    "sel %[d1], %[x], %[d1]",
]
"""Eight bytes in d0, d1 to columns d0, d1."""

_PART_3 = [
    "pkhbt %[x], %[d0], %[d1]",  # a0 b0 a2 b2
    "lsr %[d0], %[d0], #16",
    "pkhbt %[d0], %[d0], %[d2], lsl #16",  # c0 a1 c2 a3
    "pkhbt %[d1], %[d1], %[d2]",  # b1 c1 b3 c3
    *("sel %[d2], %[d0], %[d1]", "sel %[d0], %[x], %[d0]", "lsr %[x], %[x], #8"),
    *("lsl %[d1], %[d1], #8", "sel %[d1], %[x], %[d1]"),
]
"""Twelve bytes in d0 to d2 to columns d0, d1, d2."""


_TILES = {
    (2, 2): (_HALVES, ("x", "d1")),
    (4, 4): (_BYTES, ("x", "y", "d2", "d3")),
    (2, 4): (_JOIN_2, ("x", "d1")),
    (3, 4): (_JOIN_3, ("d1", "y", "d2")),
    (4, 2): (_PART_2, ("d0", "d1")),
    (4, 3): (_PART_3, ("d0", "d1", "d2")),
}
"""By rows and columns: the rearrangement of a tile, and the registers of its results."""


def _accesses(op: str, registers: Sequence[str], pointer: str, stride: str, *, contiguous: bool, follows: bool) -> list[str]:
    """Return the loads or stores of a tile, which advance the pointer to the next tile.

    `contiguous`: all words are next to each other.  `follows`: the next tile's words are next to this tile's, so the access of
    the first word, which comes last, advances the pointer; else the next tile is as many rows away as this tile has.
    """
    after = f"[%[{pointer}]], #4"
    if contiguous:
        return [f"{op} %[{r}], {after}" for r in registers]
    offsets = (f"%[{stride}]", f"%[{stride}], lsl #1", f"%[{stride}3]")
    others = [f"{op} %[{r}], [%[{pointer}], {o}]" for r, o in zip(registers[1:], offsets, strict=False)]
    if follows:
        return [*others, f"{op} %[{registers[0]}], {after}"]
    shift = {2: 1, 4: 2}[len(registers)]
    return [*others, f"{op} %[{registers[0]}], [%[{pointer}]]", f"add %[{pointer}], %[{pointer}], %[{stride}], lsl #{shift}"]


def text(form: Form) -> list[str | Repeat]:
    """Return all instructions of the block; the first two set the flags that SEL reads."""
    moves, results = _TILES[form.rows, form.columns]
    data = [f"d{i}" for i in range(form.words)]
    tile = _accesses("ldr", data, "p", "s", contiguous=form.parts, follows=form.parts or form.along == "columns")
    tile += [*moves, *_accesses("str", results, "o", "t", contiguous=form.joins, follows=form.joins or form.along == "rows")]
    flags = ["mov %[x], #0x00ff00ff", "uadd8 %[x], %[x], %[x]"] if form.dtype != "int16" else []
    threefold = [f"add %[{s}3], %[{s}], %[{s}], lsl #1" for s in "st"] if form.words == 4 else []
    return [*flags, *threefold, "1:", *tile * form.unroll, f"subs %[n], %[n], #{form.unroll}", "bne 1b"]


def instructions(form: Form) -> int:
    """Return the instructions per iteration."""
    whole = text(form)
    return count_instructions(whole[whole.index("1:") :])


def _emit(operands: Operands, form: Form) -> BlockText:
    size = 2 if form.dtype == "int16" else 1
    threefold = ["s3", "t3"] if form.words == 4 else []
    spare = ["x", *(["y"] if size == 1 else []), *(f"d{i}" for i in range(form.words)), *threefold]
    strides = {} if form.parts else {"s": operands["stride"].value}
    strides |= {} if form.joins else {"t": operands["out_stride"].value}
    before = [f"int32_t aot_n = {operands['count'].value};"]
    before += [f"const int32_t aot_{n} = {size} * ({value});" for n, value in strides.items()]
    after, outs = [f"uint32_t {', '.join(f'aot_{n}' for n in spare)};"], [f'[{n}] "=&r"(aot_{n})' for n in spare]
    ins = {n: f"aot_{n}" for n in strides}
    return asm(operands, text(form), "p=x >o=out", ins, before=before, after=after, last=['[n] "+&r"(aot_n)', *outs])
