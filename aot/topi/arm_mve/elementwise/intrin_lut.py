"""Bytes through a table of 256, sixteen at a time: a load whose offsets are the bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var, cast
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock

CODES = 256


@cache
def lut(dtype: str = "int8", out_dtype: str = "int8") -> TensorIntrin:
    """out[i] = table[uint8(x[i])] of `count` elements; both dtypes int8 or uint8.

    Operands: x, table out_dtype[256] in the order of the bytes' bits, out (x too, or apart from it), count.  Four instructions
    for sixteen.
    """
    count = Var("count")
    b = IRBuilder(f"lut_{dtype}_{out_dtype}")
    x = b.input("x", (UNKNOWN_EXTENT,), dtype)
    table = b.input("table", (CODES,), out_dtype)
    out = b.output("out", (UNKNOWN_EXTENT,), out_dtype)
    with b.for_("i", count) as i:
        b.store(out, i, table[cast("int32", cast("uint8", x[i]))])
    # sixteen bytes are read before the sixteen are written that belong to them
    desc = replace(b.finish(), scalars=(count,))
    return TensorIntrin(f"arm_mve.{desc.name}", desc, _emit, requires="mve", ordered=True)


def _emit(operands: Mapping[str, COperand]) -> BlockText:
    text = [
        "wlstp.8 lr, %[n], 2f",
        "1:",
        "vldrb.u8 q0, [%[x]], #16",
        "vldrb.u8 q1, [%[t], q0]",
        "vstrb.8 q1, [%[out]], #16",
        "letp lr, 1b",
        "2:",
    ]
    return AsmBlock(
        [
            f"const void *aot_x = {operands['x'].pointer};",
            f"const void *const aot_t = {operands['table'].pointer};",
            f"void *aot_out = {operands['out'].pointer};",
        ],
        text,
        outs=['[x] "+&r"(aot_x)', '[out] "+&r"(aot_out)'],
        ins=['[t] "r"(aot_t)', f'[n] "r"({operands["count"].value})'],
        clobbers=["lr", "q0", "q1"],
    ).emit()


def lut_instructions(count: int) -> int:
    return 4 * -(-count // 16) + 8
