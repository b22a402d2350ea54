"""A table of bytes after a requantised result: one load, from the middle of the table by the signed code."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from aot.tir.builder import IRBuilder
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock

CODES = 256


@cache
def lookup(count: int) -> TensorIntrin:
    """values[i] = table[values[i] + 128]; operands: table int8[256], values int32[count] within int8.

    GCC would add 128 to each value; here it is part of the address, once for all.
    """
    b = IRBuilder(f"lookup_{count}")
    table = b.input("table", (CODES,), "int8")
    values = b.output("values", (count,), "int32")
    for i in range(count):
        b.store(values, i, table[values[i] + CODES // 2])
    return TensorIntrin(f"lookup_{count}", b.finish(), _emit, requires="thumb2")


def _emit(operands: Mapping[str, COperand]) -> BlockText:
    values = operands["values"].scalars
    return AsmBlock(
        [f"const int8_t *const aot_middle = {operands['table'].pointer} + {CODES // 2};"],
        [f"ldrsb %[v{i}], [%[t], %[v{i}]]" for i in range(len(values))],
        outs=[f'[v{i}] "+&r"({value})' for i, value in enumerate(values)],
        ins=['[t] "r"(aot_middle)'],
    ).emit()
