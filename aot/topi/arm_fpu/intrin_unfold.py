"""Widening a block's rows of weights to float32 in scratch memory, once for all pixels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_fpu.finish import REGISTERS, Text, vector
from aot.topi.arm_fpu.rows import RowForm
from aot.topi.intrin.asm_text import AsmBlock, count_instructions

_SCALE, _ZERO, _ROW = 0, 8, 16


@cache
def unfold(row: RowForm) -> TensorIntrin:
    """out[r * channels + c] = weight c of row r for r < rows.

    Operands: w, the rows, as `row.dtype`; of integers s float32, scales and zero points; out; rows.
    """
    b = IRBuilder(f"unfold_{row.name}")
    rows = Var("rows")
    w = b.input("w", (UNKNOWN_EXTENT,), row.dtype, align=4)
    s = b.input("s", (UNKNOWN_EXTENT,), "float32", align=4) if row.parameters else None
    out = b.output("out", (UNKNOWN_EXTENT,), "float32", align=4)
    with b.for_("r", rows) as r:
        for c in range(row.channels):
            b.store(out, r * row.channels + c, row.value(w, s, r, c))
    desc = replace(b.finish(), scalars=(rows,))
    return TensorIntrin(f"arm_fpu.{desc.name}", desc, lambda ops: _emit(row, ops), requires="vfp")


def _loop(row: RowForm) -> list[str]:
    text = row.load(_ROW, scale=_SCALE, zero=_ZERO)
    return [*text, f"vstmia %[o]!, {vector(_ROW, row.channels)}", "subs %[rows], %[rows], #1", "bne 1b"]


def _emit(row: RowForm, operands: Mapping[str, COperand]) -> BlockText:
    text: Text = [*row.load_scales(_SCALE), *row.load_zeros(_ZERO), "1:", *_loop(row)]
    pointers = ["w", *(["s"] if row.parameters else [])]
    temporary = ["a", "b", "u"] if row.parameters else []
    return AsmBlock(
        [
            *(f"const void *aot_{n} = {operands[n].pointer};" for n in pointers),
            f"void *aot_o = {operands['out'].pointer};",
            f"int32_t aot_rows = {operands['rows'].value};",
            *([f"uint32_t {', '.join(f'aot_{n}' for n in temporary)};"] if temporary else []),
        ],
        text,
        outs=[*(f'[{n}] "+&r"(aot_{n})' for n in (*pointers, "o", "rows")), *(f'[{n}] "=&r"(aot_{n})' for n in temporary)],
        clobbers=REGISTERS,
    ).emit()


def unfold_instructions(row: RowForm, rows: int) -> int:
    """Of one execution."""
    return 10 + rows * count_instructions(_loop(row))


def unfold_code(row: RowForm) -> int:
    """Bytes."""
    return 4 * count_instructions(_loop(row)) + 48
