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
def add(shift: int) -> TensorIntrin:
    """out[i] = sat8((x[i] * a + y[i] * b + bias) >> shift) of `count` elements, at least one.

    Operands: x, y, out at any address (out may be x or y), a, b, bias, count.  Nine instructions for four.
    """
    factors = (Var("a"), Var("b"), Var("bias"))
    count = Var("count")
    b = IRBuilder(f"add_asr{shift}")
    x = b.input("x", (UNKNOWN_EXTENT,), "int8")
    y = b.input("y", (UNKNOWN_EXTENT,), "int8")
    out = b.output("out", (UNKNOWN_EXTENT,), "int8")
    with b.for_("i", count) as i:
        total = cast("int32", x[i]) * factors[0] + factors[2] + cast("int32", y[i]) * factors[1]
        b.store(out, i, cast("int8", clamp(total >> shift, -128, 127)))
    desc = replace(b.finish(), scalars=(*factors, count))
    return TensorIntrin(f"arm_mve.{desc.name}", desc, lambda ops: _emit(ops, shift), requires="mve", ordered=True)


def _emit(operands: Mapping[str, COperand], shift: int) -> BlockText:
    text = [
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
        clobbers=["lr", "q0", "q1", "q2"],
    ).emit()


def add_instructions(count: int) -> int:
    return 9 * -(-count // 4) + 10
