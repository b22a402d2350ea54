"""A residual ADD after a float32 layer: the results of one or two pixels and another tensor, with ADD's own clamp."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_fpu.finish import REGISTERS, Clamp, Text, store_clamped, vector
from aot.topi.intrin.asm_text import AsmBlock

_OTHER = 16
"""The first register of the other tensor."""


@cache
def add_clamped(pixels: int, channels: int, clamp: Clamp) -> TensorIntrin:
    """out[p * step + c] = clamp(x[p * channels + c] + y[p * step + c]) for p < pixels, c < channels, at most 16 in all."""
    b = IRBuilder(f"add_{pixels}x{channels}{clamp.name}")
    step = Var("step")
    x = b.input("x", (UNKNOWN_EXTENT,), "float32", align=4)
    y = b.input("y", (UNKNOWN_EXTENT,), "float32", align=4)
    out = b.output("out", (UNKNOWN_EXTENT,), "float32", align=4)
    sums = b.local("sum", (pixels, channels), "float32")
    for p in range(pixels):
        for c in range(channels):
            b.store(sums, (p, c), x[p * channels + c] + y[step * p + c])
    for p in range(pixels):
        for c in range(channels):
            b.store(out, step * p + c, clamp.meaning(b, sums[p, c]))
    desc = replace(b.finish(), scalars=(step,))
    name = f"arm_fpu.{desc.name}"
    return TensorIntrin(name, desc, lambda ops: _emit(ops, pixels, channels, clamp), requires="vfp", ordered=True)


def _emit(operands: Mapping[str, COperand], pixels: int, channels: int, clamp: Clamp) -> BlockText:
    text: Text = [f"vldmia %[w], {vector(0, pixels * channels)}"]
    for p in range(pixels):
        text += [*(["add %[x0], %[x0], %[step]"] * (p > 0)), f"vldmia %[x0], {vector(_OTHER, channels)}"]
        text += [f"vadd.f32 s{p * channels + c}, s{p * channels + c}, s{_OTHER + c}" for c in range(channels)]
    text += store_clamped(clamp, pixels, channels, free=_OTHER, multiply=True)
    return AsmBlock(
        [
            f"const void *aot_w = {operands['x'].pointer};",
            f"const void *aot_x0 = {operands['y'].pointer};",
            f"void *aot_o = {operands['out'].pointer};",
            f"const int32_t aot_step = 4 * {operands['step'].value};",
            "uint32_t aot_t, aot_u;",
        ],
        text,
        outs=[*(f'[{n}] "+&r"(aot_{n})' for n in ("w", "x0", "o")), '[t] "=&r"(aot_t)', '[u] "=&r"(aot_u)'],
        ins=['[step] "r"(aot_step)'],
        clobbers=REGISTERS,
    ).emit()
