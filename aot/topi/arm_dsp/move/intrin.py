"""Bytes and halfwords from rows to columns in registers: words of several rows, PKHBT, PKHTB and SEL, words of several columns.

SEL takes bytes 0 and 2 from its first operand and bytes 1 and 3 from the second: UADD8 has set two of the four flags before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock, Repeat, count_instructions

Along = Literal["rows", "columns"]


@dataclass(frozen=True, slots=True)
class Form:
    """Tiles of `rows` by `columns` elements of `dtype`, one after the other along rows or columns, `unroll` a turn of the loop.

    Tiles are 4x4 bytes, 2x2 halfwords, or those of strips: 2x4 and 3x4 bytes, whose results are contiguous, and 4x2 and 4x3,
    whose data are.
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
    def joins(self) -> bool:
        """Whether the results of a strip are contiguous."""
        return self.rows < self.columns

    @property
    def parts(self) -> bool:
        """Whether the data of a strip are contiguous."""
        return self.columns < self.rows


@cache
def transposed(form: Form) -> TensorIntrin:
    """out[c * out_stride + r] = x[r * stride + c] of `count` tiles, a multiple of the form's `unroll`.

    Operands: x and out of the form's type, apart from each other; count; stride and out_stride in elements.
    """
    count, stride, out_stride = Var("count"), Var("stride"), Var("out_stride")
    b = IRBuilder(f"transposed_{form.dtype}_{form.rows}x{form.columns}_{form.along}_{form.unroll}")
    x = b.input("x", (UNKNOWN_EXTENT,), form.dtype)
    out = b.output("out", (UNKNOWN_EXTENT,), form.dtype)
    with b.for_("k", count) as k, b.for_("i", form.rows) as i, b.for_("j", form.columns) as j:
        r, c = (k * form.rows + i, j) if form.along == "rows" else (i, k * form.columns + j)
        b.store(out, c * out_stride + r, x[r * stride + c])
    desc = replace(b.finish(), scalars=(count, stride, out_stride))
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: _emit(ops, form), requires="dsp")


def _apart(low: str, high: str) -> list[str]:
    """Two rows' bytes a and b: `low` becomes [a0 b0 a2 b2], `high` [a1 b1 a3 b3]."""
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
    "sel %[d2], %[d0], %[d1]",
    "sel %[d0], %[x], %[d0]",
    "lsr %[x], %[x], #8",
    "lsl %[d1], %[d1], #8",
    "sel %[d1], %[x], %[d1]",
]
"""Twelve bytes in d0 to d2 to columns d0, d1, d2."""


def _places(pointer: str, stride: str, count: int) -> list[str]:
    """Addresses of the rows or columns of a tile."""
    offsets = ("", f", %[{stride}]", f", %[{stride}], lsl #1", f", %[{stride}3]")
    return [f"[%[{pointer}]{offset}]" for offset in offsets[:count]]


def _tile(form: Form) -> list[str]:
    """One tile: loads, moves in registers, stores; both pointers go on to the next tile."""
    words = min(form.rows, form.columns)
    contiguous = [""] * words
    loads = contiguous if form.parts else _places("p", "s", words)
    stores = contiguous if form.joins else _places("o", "t", words)
    results = {
        (2, 2): ("x", "d1"), (4, 4): ("x", "y", "d2", "d3"), (2, 4): ("x", "d1"), (3, 4): ("d1", "y", "d2"),
        (4, 2): ("d0", "d1"), (4, 3): ("d0", "d1", "d2"),
    }[form.rows, form.columns]  # fmt: skip
    moves = {
        (2, 2): _HALVES, (4, 4): _BYTES, (2, 4): _JOIN_2, (3, 4): _JOIN_3, (4, 2): _PART_2, (4, 3): _PART_3,
    }[form.rows, form.columns]  # fmt: skip
    return [
        *_moved("ldr", [f"d{i}" for i in range(words)], loads, "p", follows=form.parts or form.along == "columns", stride="s"),
        *moves,
        *_moved("str", results, stores, "o", follows=form.joins or form.along == "rows", stride="t"),
    ]


def _moved(op: str, registers: Sequence[str], places: list[str], pointer: str, *, follows: bool, stride: str) -> list[str]:
    """Loads or stores.  `follows`: the next tile's words follow this one's, so that the pointer moves on with the first one,
    which is taken last; else the next tile is as many rows away as this one has.
    """
    after = f"[%[{pointer}]], #4"
    if not places[0]:
        return [f"{op} %[{r}], {after}" for r in registers]
    rest = [f"{op} %[{r}], {p}" for r, p in zip(registers[1:], places[1:], strict=True)]
    if follows:
        return [*rest, f"{op} %[{registers[0]}], {after}"]
    shift = {2: 1, 4: 2}[len(registers)]
    return [*rest, f"{op} %[{registers[0]}], {places[0]}", f"add %[{pointer}], %[{pointer}], %[{stride}], lsl #{shift}"]


def text(form: Form) -> list[str | Repeat]:
    """All instructions of the block, of which the first two set the flags that SEL reads."""
    tiles = [line for _ in range(form.unroll) for line in _tile(form)]
    flags = ["mov %[x], #0x00ff00ff", "uadd8 %[x], %[x], %[x]"] if form.dtype != "int16" else []
    threefold = [f"add %[{s}3], %[{s}], %[{s}], lsl #1" for s in "st"] if form.rows == form.columns == 4 else []
    return [*flags, *threefold, "1:", *tiles, f"subs %[n], %[n], #{form.unroll}", "bne 1b"]


def instructions(form: Form) -> int:
    """Of one turn of the loop."""
    whole = text(form)
    return count_instructions(whole[whole.index("1:") :])


def _emit(operands: Mapping[str, COperand], form: Form) -> BlockText:
    words, size = min(form.rows, form.columns), 2 if form.dtype == "int16" else 1
    data = ["x", *(["y"] if size == 1 else []), *(f"d{i}" for i in range(words))]
    threefold = ["s3", "t3"] if words == 4 else []
    strides = [name for name, needed in (("s", not form.parts), ("t", not form.joins)) if needed]
    values = {"s": operands["stride"].value, "t": operands["out_stride"].value}
    return AsmBlock(
        [
            f"const void *aot_p = {operands['x'].pointer};",
            f"void *aot_o = {operands['out'].pointer};",
            f"int32_t aot_n = {operands['count'].value};",
            *(f"const int32_t aot_{s} = {size} * ({values[s]});" for s in strides),
            f"uint32_t {', '.join(f'aot_{name}' for name in (*data, *threefold))};",
        ],
        text(form),
        outs=[
            *(f'[{n}] "+&r"(aot_{n})' for n in "pon"),
            *(f'[{n}] "=&r"(aot_{n})' for n in (*data, *threefold)),
        ],
        ins=[f'[{s}] "r"(aot_{s})' for s in strides],
    ).emit()
