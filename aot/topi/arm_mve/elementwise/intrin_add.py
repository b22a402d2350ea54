"""ADD of bytes, four at a time in lanes of 32 bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var, cast, clamp
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock


@cache
def add(shift: int, lo: int = -128, hi: int = 127) -> TensorIntrin:
    """out[i] = clamp((x[i] * a + y[i] * b + bias) >> shift, lo, hi) of `count` elements, at least one.

    Operands: x, y, out at any address (out may be x or y), a, b, bias, count.  Nine instructions for four, and one for each
    limit that is not that of bytes.
    """
    factors = (Var("a"), Var("b"), Var("bias"))
    count = Var("count")
    b = IRBuilder(f"add_asr{shift}" + f"_{lo}_{hi}" * bool(_limits(lo, hi)))
    x = b.input("x", (UNKNOWN_EXTENT,), "int8")
    y = b.input("y", (UNKNOWN_EXTENT,), "int8")
    out = b.output("out", (UNKNOWN_EXTENT,), "int8")
    with b.for_("i", count) as i:
        total = cast("int32", x[i]) * factors[0] + factors[2] + cast("int32", y[i]) * factors[1]
        b.store(out, i, cast("int8", clamp(total >> shift, lo, hi)))
    desc = replace(b.finish(), scalars=(*factors, count))
    name = f"arm_mve.{desc.name}"
    return TensorIntrin(name, desc, lambda ops: _emit(ops, shift, _limits(lo, hi)), requires="mve", ordered=True)


def _limits(lo: int, hi: int) -> list[tuple[str, str, int]]:
    """Instruction, register and value of limits that are not those of bytes."""
    wanted = (("vmax.s8", "q3", lo, -128), ("vmin.s8", "q4", hi, 127))
    return [(instruction, register, value) for instruction, register, value, usual in wanted if value != usual]


def _emit(operands: Mapping[str, COperand], shift: int, limits: list[tuple[str, str, int]]) -> BlockText:
    text = [
        *(line for _, q, value in limits for line in (f"mov r12, #{value & 0xFF}", f"vdup.8 {q}, r12")),
        "vdup.32 q2, %[fa]",
        "dlstp.32 lr, %[n]",
        "1:",
        "vldrb.s32 q0, [%[x]], #4",
        "vmlas.s32 q0, q2, %[bias]",
        "vldrb.s32 q1, [%[y]], #4",
        "vmla.s32 q0, q1, %[fb]",
        *([f"vshr.s32 q0, q0, #{shift}"] if shift else []),
        "vqmovnb.s32 q0, q0",
        "vqmovnb.s16 q0, q0",
        *(f"{instruction} q0, q0, {q}" for instruction, q, _ in limits),
        "vstrb.32 q0, [%[out]], #4",
        "letp lr, 1b",
    ]
    value = {n: operands[n].value for n in ("a", "b", "bias", "count")}
    return AsmBlock(
        [
            f"const void *aot_x = {operands['x'].pointer};",
            f"const void *aot_y = {operands['y'].pointer};",
            f"void *aot_out = {operands['out'].pointer};",
        ],
        text,
        outs=[f'[{n}] "+&l"(aot_{n})' for n in ("x", "y", "out")],  # loads that widen take low registers
        ins=[f'[fa] "r"({value["a"]})', f'[fb] "r"({value["b"]})', f'[bias] "r"({value["bias"]})', f'[n] "r"({value["count"]})'],
        clobbers=["lr", "q0", "q1", "q2", *(["r12"] if limits else []), *(q for _, q, _ in limits)],
    ).emit()


def add_instructions(count: int, lo: int = -128, hi: int = 127) -> int:
    """Executed by one block."""
    limits = len(_limits(lo, hi))
    return (9 + limits) * -(-count // 4) + 10 + 2 * limits
