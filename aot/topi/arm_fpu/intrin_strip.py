"""Strips of depthwise layers: what a StripForm means, its C text and its price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import pairwise

from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, imm, maximum, minimum
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_fpu.finish import REGISTERS, Text
from aot.topi.arm_fpu.intrin import waits
from aot.topi.arm_fpu.strip_form import StripForm
from aot.topi.intrin.asm_text import AsmBlock, count_instructions


@cache
def strip(form: StripForm) -> TensorIntrin:
    """out[y * orow + p * channels] = clamp(sum over the taps inside the image of x * w + bias) for p < columns and all rows y.

    Operands: x float32, the first number of the strip's first column that is inside the image, `row` elements to the next row; w
    float32[taps + 1], the channel's weights and its bias; out; row; orow; trips of the loop; left and right, 1 where the strip's
    first and last column is outside the image.
    """
    (kh, kw), (sh, sw), d = form.taps, form.strides, form.depth
    b = IRBuilder(form.name)
    x = b.input("x", (UNKNOWN_EXTENT,), "float32", align=4)
    w = b.input("w", (UNKNOWN_EXTENT,), "float32", align=4)
    out = b.output("out", (UNKNOWN_EXTENT,), "float32", align=4)
    row, orow, trips, left, right = scalars = tuple(Var(n) for n in ("row", "orow", "trips", "left", "right"))
    rows = _rows(form, trips)
    height = (rows - 1) * sh + kh - form.before - form.after  # of the image
    sums = b.local("sum", (1,), "float32")
    with b.for_("y", rows) as y:
        for p in range(form.columns):
            b.store(sums, 0, imm(0.0, "float32"))
            at = b.let("at", y * sh - form.before)
            with b.for_("ky", b.let("last", minimum(height - at, kh)), start=b.let("first", maximum(0 - at, 0))) as ky:
                inside = form.inside(p)
                first: Expr = left if p == 0 and form.left else imm(inside.start)
                last: Expr = imm(kw) - right if p == form.columns - 1 and form.right else imm(inside.stop)
                with b.for_("kx", last, start=first) as kx:
                    column = (kx + p * sw - left) if form.left else kx + (p * sw - form.outside[0])
                    b.store(sums, 0, sums[0] + x[(at + ky) * row + column * d] * w[ky * kw + kx])
            b.store(out, y * orow + p * form.channels, form.clamp.meaning(b, sums[0] + w[kh * kw]))
    desc = replace(b.finish(), scalars=scalars)
    return TensorIntrin(f"arm_fpu.{form.name}", desc, lambda ops: _emit(form, ops), requires="vfp")


def _rows(form: StripForm, trips: Expr) -> Expr:
    """Rows of results."""
    return trips * form.rows_open - form.start + form.tail if form.loop else imm(form.tail)


def _emit(form: StripForm, operands: Mapping[str, COperand]) -> BlockText:
    left, right = operands["left"].value, operands["right"].value
    column = 4 * form.depth
    first = f"((const char *){operands['x'].pointer})"
    inside = f"{first} + {column} * (1 - {left})" if form.left else first
    declarations = [
        *(["static const float aot_zero = 0.0f;"] if form.left or form.right else []),
        f"const int32_t aot_row = 4 * {operands['row'].value}, aot_orow = 4 * {operands['orow'].value};",
        f"const void *aot_x = {inside} + {column * form.origin};",
        f"const void *aot_w = {operands['w'].pointer};",
        f"void *aot_o = {operands['out'].pointer};",
        "uint32_t aot_t, aot_u;",
    ]
    if form.loop:
        declarations.append(f"int32_t aot_n = {operands['trips'].value};")
    moved, steps = ["x", "w", "o"], ["row", "orow"]
    for edge, name, outside, place in (
        (form.left, "l", left, first),
        (form.right, "r", right, f"{inside} + {column * (form.width - 1 - form.left)}"),
    ):
        if edge:
            declarations.append(f"const void *aot_{name} = {outside} ? (const void *)&aot_zero : (const void *)({place});")
            declarations.append(f"const int32_t aot_{name}row = {outside} ? 0 : aot_row;")
            moved.append(name)
            steps.append(f"{name}row")
    counter = ['[n] "+&r"(aot_n)'] if form.loop else []
    return AsmBlock(
        declarations,
        form.text(),
        outs=[*(f'[{n}] "+&r"(aot_{n})' for n in moved), *counter, *(f'[{n}] "=&r"(aot_{n})' for n in ("t", "u"))],
        ins=[f'[{n}] "r"(aot_{n})' for n in steps],
        clobbers=REGISTERS,
    ).emit()


def price(form: StripForm, trips: int) -> tuple[int, int]:
    """Instructions of one execution, and cycles of a Cortex-M4."""
    parts = [(form.begin(), 1), (form.body(), trips * form.loop), (form.last(), 1)]
    skipped: Text = [line for phase in range(form.start * form.loop) for line in form.step(phase)]
    parts.append((skipped, -1))
    total = sum(times * count_instructions(text) for text, times in parts)
    return total + 4, total + 8 + sum(times * _waits(text) for text, times in parts) + trips


def _waits(text: Text) -> int:
    """As `waits`, with loads side by side, of which only the first one takes two cycles, and single stores."""
    names = [line.partition(" ")[0] if isinstance(line, str) else "" for line in text]
    is_load = [n in ("vldr.32", "ldr") for n in names]
    first = sum(here and not before for before, here in pairwise([False, *is_load]))
    return waits(text) + first + names.count("vstr.32")
