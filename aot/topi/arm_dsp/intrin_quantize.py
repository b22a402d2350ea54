"""QUANTIZE and DEQUANTIZE on cores with the DSP extension and an FPU: eight numbers a turn.

VCVT to 16-bit fixed point with one fraction bit gives t = 2x towards zero, saturated, and 0 for NaN.  Then half of t, halves away
from zero, plus the zero point is (t - (t < 0) + 1 + 2*zp) >> 1: QSUB16 and the halving SHADD16 do that for two results at once.
Saturation at +-16383.5 is far outside every range of codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.op.quantize import tir_quantize
from aot.support.dtype import int_range
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var, cast
from aot.tir.intrin import COperand, TensorIntrin
from aot.topi.asm_text import Repeat, asm_template

LANES = 8
"""Elements of one turn of the loops."""

_FLOATS = [f"s{i}" for i in range(4)]


@cache
def quantize_8(dtype: str, zero_point: int, *, reciprocal: bool) -> TensorIntrin:
    """out[i] = clamp(zp + round(x[i] / scale)) of `count` elements, a multiple of LANES; dtype int8 or uint8.

    Operands: x float32[count], out, scale, count.  `reciprocal`: the scale is a power of two, so that a product with 1 / scale is
    the quotient.
    """
    scale, count = Var("scale", "float32"), Var("count")
    b = IRBuilder(f"quantize_8_{dtype}")
    x = b.input("x", (UNKNOWN_EXTENT,), "float32")
    out = b.output("out", (UNKNOWN_EXTENT,), dtype)
    with b.for_("i", count) as i:
        b.store(out, i, cast(dtype, tir_quantize(b, x[i], scale=scale, zero_point=zero_point, limits=int_range(dtype))))
    desc = replace(b.finish(), scalars=(scale, count))
    name = f"arm_dsp.{desc.name}_zp{zero_point}{'_reciprocal' if reciprocal else ''}"
    return TensorIntrin(
        name, desc, lambda ops: _emit_quantize(ops, dtype, zero_point, _ratio(reciprocal=reciprocal)), requires="vfp"
    )


def _ratio(*, reciprocal: bool) -> tuple[str, str]:
    """The instruction that divides by the scale, and the expression of its operand."""
    return ("vmul.f32", "1.0f / ({})") if reciprocal else ("vdiv.f32", "{}")


def _emit_quantize(operands: Mapping[str, COperand], dtype: str, zero_point: int, ratio: tuple[str, str]) -> str:
    lowest = int_range(dtype)[0]
    offset = 1 + 2 * (zero_point - lowest)  # codes counted from the lowest: an unsigned byte each
    step = [
        "vldmia %[x]!, {s0-s3}",
        *[f"{ratio[0]} {s}, {s}, %[scale]" for s in _FLOATS],
        *[f"vcvt.s16.f32 {s}, {s}, #1" for s in _FLOATS],
        "vmov %[a], %[b], s0, s1",
        "vmov %[c], %[d], s2, s3",
        "pkhbt %[a], %[a], %[c], lsl #16",
        "pkhbt %[b], %[b], %[d], lsl #16",
        "and %[c], %[one], %[a], lsr #15",
        "and %[d], %[one], %[b], lsr #15",
        "qsub16 %[a], %[a], %[c]",
        "qsub16 %[b], %[b], %[d]",
        "shadd16 %[a], %[a], %[offset]",
        "shadd16 %[b], %[b], %[offset]",
        "usat16 %[a], #8, %[a]",
        "usat16 %[b], #8, %[b]",
        "orr %[a], %[a], %[b], lsl #8",
        *(["eor %[a], %[a], #0x80808080"] if lowest else []),
        "str %[a], [%[out]], #4",
    ]
    text: list[str | Repeat] = ["1:", Repeat(LANES // 4, step), f"subs %[n], %[n], #{LANES}", "bne 1b"]
    return "\n".join([
        "{",
        f"  const void *aot_x = {operands['x'].pointer};",
        f"  void *aot_out = {operands['out'].pointer};",
        f"  const float aot_scale = {ratio[1].format(operands['scale'].value)};",
        f"  int32_t aot_n = {operands['count'].value};",
        "  uint32_t aot_a, aot_b, aot_c, aot_d;",
        "  __asm volatile(",
        *asm_template(text),
        '      : [x] "+r"(aot_x), [out] "+r"(aot_out), [n] "+r"(aot_n),',
        '        [a] "=&r"(aot_a), [b] "=&r"(aot_b), [c] "=&r"(aot_c), [d] "=&r"(aot_d)',
        f'      : [scale] "t"(aot_scale), [one] "r"(0x00010001u), [offset] "r"({offset | offset << 16:#x}u)',
        f'      : {", ".join(chr(34) + s + chr(34) for s in _FLOATS)}, "cc", "memory");',
        "}",
    ])  # fmt: skip


@cache
def dequantize_8(dtype: str, zero_point: int) -> TensorIntrin:
    """out[i] = (x[i] - zp) * scale of `count` elements, a multiple of LANES; dtype int8 or uint8.

    Operands: x, out float32[count], scale, count.
    """
    scale, count = Var("scale", "float32"), Var("count")
    b = IRBuilder(f"dequantize_8_{dtype}")
    x = b.input("x", (UNKNOWN_EXTENT,), dtype)
    out = b.output("out", (UNKNOWN_EXTENT,), "float32")
    with b.for_("i", count) as i:
        b.store(out, i, cast("float32", cast("int32", x[i]) - zero_point) * scale)
    desc = replace(b.finish(), scalars=(scale, count))
    name = f"arm_dsp.{desc.name}_zp{zero_point}"
    return TensorIntrin(name, desc, lambda ops: _emit_dequantize(ops, dtype, zero_point), requires="vfp")


def _emit_dequantize(operands: Mapping[str, COperand], dtype: str, zero_point: int) -> str:
    extend = "sxtab16" if dtype == "int8" else "uxtab16"
    minus = -zero_point & 0xFFFF
    step = [
        "ldr %[a], [%[x]], #4",
        f"{extend} %[b], %[zp], %[a], ror #8",
        f"{extend} %[a], %[zp], %[a]",
        "vmov s0, s1, %[a], %[b]",
        "lsr %[a], %[a], #16",
        "lsr %[b], %[b], #16",
        "vmov s2, s3, %[a], %[b]",
        *[f"vcvt.f32.s16 {s}, {s}, #0" for s in _FLOATS],
        *[f"vmul.f32 {s}, {s}, %[scale]" for s in _FLOATS],
        "vstmia %[out]!, {s0-s3}",
    ]
    text: list[str | Repeat] = ["1:", Repeat(LANES // 4, step), f"subs %[n], %[n], #{LANES}", "bne 1b"]
    return "\n".join([
        "{",
        f"  const void *aot_x = {operands['x'].pointer};",
        f"  void *aot_out = {operands['out'].pointer};",
        f"  const float aot_scale = {operands['scale'].value};",
        f"  int32_t aot_n = {operands['count'].value};",
        "  uint32_t aot_a, aot_b;",
        "  __asm volatile(",
        *asm_template(text),
        '      : [x] "+r"(aot_x), [out] "+r"(aot_out), [n] "+r"(aot_n), [a] "=&r"(aot_a), [b] "=&r"(aot_b)',
        f'      : [scale] "t"(aot_scale), [zp] "r"({minus | minus << 16:#x}u)',
        f'      : {", ".join(chr(34) + s + chr(34) for s in _FLOATS)}, "cc", "memory");',
        "}",
    ])  # fmt: skip
