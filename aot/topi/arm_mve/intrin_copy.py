"""Copying and filling runs of bytes in MVE vectors; the last vector is predicated, so nothing outside of a run is accessed.

Operands that change are early clobbers, because GCC gives one register to two operands of equal value (3 rows and 3 bytes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_mve.requant import VECTOR
from aot.topi.intrin.asm_text import AsmBlock, Repeat

MOST_STRAIGHT = 8
"""Most vectors of a row without a loop over them."""


@cache
def copy_rows() -> TensorIntrin:
    """to[r * to_step + i] = data[r * step + i] for r < rows, i < length; rows at least 1.

    Operands: data, to (int8, not overlapping); rows, length, step, to_step.
    """
    b = IRBuilder("copy_rows")
    data = b.input("data", (UNKNOWN_EXTENT,), "int8")
    to = b.output("to", (UNKNOWN_EXTENT,), "int8")
    rows, length, step, to_step = (Var(n) for n in ("rows", "length", "step", "to_step"))
    with b.for_("r", rows) as r, b.for_("i", length) as i:
        b.store(to, r * to_step + i, data[r * step + i])
    desc = replace(b.finish(), scalars=(rows, length, step, to_step))
    return TensorIntrin("arm_mve.copy_rows", desc, _emit_copy, requires="mve")


def _emit_copy(operands: Mapping[str, COperand]) -> BlockText:
    value = {n: operands[n].value for n in ("rows", "length", "step", "to_step")}
    text: list[str | Repeat] = ["1:", "mov r0, %[s]", "mov r1, %[d]", "wlstp.8 lr, %[n], 3f"]
    text += ["2:", "vldrb.u8 q0, [r0], #16", "vstrb.8 q0, [r1], #16", "letp lr, 2b", "3:"]
    text += ["add %[s], %[s], %[t]", "add %[d], %[d], %[u]", "subs %[rows], %[rows], #1", "bgt 1b"]
    return AsmBlock(
        [
            f"const void *aot_s = {operands['data'].pointer};",
            f"void *aot_d = {operands['to'].pointer};",
            f"int32_t aot_rows = {value['rows']};",
        ],
        text,
        outs=['[s] "+&r"(aot_s)', '[d] "+&r"(aot_d)', '[rows] "+&r"(aot_rows)'],
        ins=[f'[n] "r"({value["length"]})', f'[t] "r"({value["step"]})', f'[u] "r"({value["to_step"]})'],
        clobbers=["r0", "r1", "lr", "q0"],
    ).emit()


def copy_rows_instructions(rows: int, length: int) -> int:
    """Instructions that one block executes."""
    return rows * (7 + 3 * -(-length // VECTOR)) + 8


@cache
def pack_rows(length: int) -> TensorIntrin:
    """to[r * length + i] = data[r * step + i] for r < rows, i < length; rows at least 1.

    Operands: data, to (int8, not overlapping); rows, step.  Two instructions per vector, two for the loop.
    """
    b = IRBuilder(f"pack_rows_{length}")
    data = b.input("data", (UNKNOWN_EXTENT,), "int8")
    to = b.output("to", (UNKNOWN_EXTENT,), "int8")
    rows, step = Var("rows"), Var("step")
    with b.for_("r", rows) as r, b.for_("i", length) as i:
        b.store(to, r * length + i, data[r * step + i])
    desc = replace(b.finish(), scalars=(rows, step))
    return TensorIntrin(f"arm_mve.{desc.name}", desc, lambda ops: _emit_pack(ops, length), requires="mve")


def pack_rows_straight(length: int) -> bool:
    """Whether `pack_rows` supports rows of that length."""
    return -(-length // VECTOR) <= MOST_STRAIGHT


def _emit_pack(operands: Mapping[str, COperand], length: int) -> BlockText:
    whole, remainder = divmod(length, VECTOR)
    body: list[str | Repeat] = []
    for v in range(whole):
        body += [f"vldrb.u8 q0, [%[s], #{VECTOR * v}]", "vstrb.8 q0, [%[d]], #16"]
    if remainder:
        body += ["vpstt", f"vldrbt.u8 q0, [%[s], #{VECTOR * whole}]", f"vstrbt.8 q0, [%[d]], #{remainder}"]
    head = [f"mov lr, #{remainder}", "vctp.8 lr"] if remainder else []
    return AsmBlock(
        [
            f"const void *aot_s = {operands['data'].pointer};",
            f"void *aot_d = {operands['to'].pointer};",
        ],
        [*head, "dls lr, %[rows]", "1:", *body, "add %[s], %[s], %[t]", "le lr, 1b"],
        outs=['[s] "+&r"(aot_s)', '[d] "+&r"(aot_d)'],
        ins=[f'[rows] "r"({operands["rows"].value})', f'[t] "r"({operands["step"].value})'],
        clobbers=["lr", "q0"],
    ).emit()


def pack_rows_instructions(rows: int, length: int) -> int:
    """Instructions that one block executes."""
    whole, remainder = divmod(length, VECTOR)
    return rows * (2 * whole + 3 * bool(remainder) + 2) + 6 + 2 * bool(remainder)


@cache
def fill() -> TensorIntrin:
    """to[i] = value for i < length.  Operands: to (int8), value, length."""
    b = IRBuilder("fill")
    to = b.output("to", (UNKNOWN_EXTENT,), "int8")
    value, length = Var("value"), Var("length")
    with b.for_("i", length) as i:
        b.store(to, i, value)
    desc = replace(b.finish(), scalars=(value, length))
    return TensorIntrin("arm_mve.fill", desc, _emit_fill, requires="mve")


def _emit_fill(operands: Mapping[str, COperand]) -> BlockText:
    text = ["vdup.8 q0, %[v]", "wlstp.8 lr, %[n], 2f", "1:", "vstrb.8 q0, [%[d]], #16", "letp lr, 1b", "2:"]
    return AsmBlock(
        [f"void *aot_d = {operands['to'].pointer};"],
        text,
        outs=['[d] "+&r"(aot_d)'],
        ins=[f'[v] "r"({operands["value"].value})', f'[n] "r"({operands["length"].value})'],
        clobbers=["lr", "q0"],
    ).emit()


def fill_instructions(length: int) -> int:
    return 2 * -(-length // VECTOR) + 6
