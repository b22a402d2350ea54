"""DEQUANTIZE of bytes to float32, four at a time.

Vector instructions take numbers below 2^-126 for zero: with a scale at least as large, no result but 0 is below that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var, cast
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock

LEAST_SCALE = 2.0**-126


@cache
def dequantize(dtype: str, zero_point: int) -> TensorIntrin:
    """out[i] = (x[i] - zp) * scale of `count` elements; dtype int8 or uint8.

    Operands: x, out float32, scale, count.
    """
    scale, count = Var("scale", "float32"), Var("count")
    b = IRBuilder(f"dequantize_{dtype}")
    x = b.input("x", (UNKNOWN_EXTENT,), dtype)
    out = b.output("out", (UNKNOWN_EXTENT,), "float32")
    with b.for_("i", count) as i:
        b.store(out, i, cast("float32", cast("int32", x[i]) - zero_point) * scale)
    desc = replace(b.finish(), scalars=(scale, count))
    return TensorIntrin(f"arm_mve.{desc.name}_zp{zero_point}", desc, lambda ops: _emit(ops, dtype, zero_point), requires="mve.fp")


def _emit(operands: Mapping[str, COperand], dtype: str, zero_point: int) -> BlockText:
    kind = "s32" if dtype == "int8" else "u32"
    text = ["wlstp.32 lr, %[n], 2f", "1:", f"vldrb.{kind} q0, [%[x]], #4"]
    text += ["vadd.i32 q0, q0, %[zp]"] if zero_point else []
    text += ["vcvt.f32.s32 q0, q0", "vmul.f32 q0, q0, %[scale]", "vstrw.32 q0, [%[out]], #16", "letp lr, 1b", "2:"]
    return AsmBlock(
        [
            f"const void *aot_x = {operands['x'].pointer};",
            f"void *aot_out = {operands['out'].pointer};",
            "union { float f; uint32_t u; } aot_scale;",
            f"aot_scale.f = {operands['scale'].value};",
        ],
        text,
        outs=['[x] "+&l"(aot_x)', '[out] "+&r"(aot_out)'],
        ins=[f'[n] "r"({operands["count"].value})', f'[zp] "r"({-zero_point})', '[scale] "r"(aot_scale.u)'],
        clobbers=["lr", "q0"],
    ).emit()


def dequantize_instructions(count: int) -> int:
    return 6 * -(-count // 4) + 14
