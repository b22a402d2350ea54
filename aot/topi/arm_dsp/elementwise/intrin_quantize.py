"""QUANTIZE and DEQUANTIZE on cores with the DSP extension and an FPU: eight numbers a turn.

VCVT to 16-bit fixed point with one fraction bit gives t = 2x towards zero, saturated, and 0 for NaN.  Then half of t, halves away
from zero, plus the zero point is (t - (t < 0) + 1 + 2*zp) >> 1: QSUB16 and the halving SHADD16 do that for two results at once.
Saturation at +-16383.5 is far outside every range of quantised values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from aot.op.qnn.quantize import tir_quantize
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, cast
from aot.tir.function import PrimFunc
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock, Repeat

LANES = 8
"""Elements of one turn of the loops."""

_FLOATS = [f"s{i}" for i in range(4)]


def _meaning(name: str, dtypes: tuple[str, str], element: Callable[[IRBuilder, Expr, Var], Expr]) -> PrimFunc:
    """out[i] = element(b, x[i], scale) for i < count; `dtypes` of x and out."""
    scale, count = Var("scale", "float32"), Var("count")
    b = IRBuilder(name)
    x = b.input("x", (UNKNOWN_EXTENT,), dtypes[0])
    out = b.output("out", (UNKNOWN_EXTENT,), dtypes[1])
    with b.for_("i", count) as i:
        b.store(out, i, element(b, x[i], scale))
    return replace(b.finish(), scalars=(scale, count))


@dataclass(frozen=True, slots=True)
class _Loop:
    """Four elements a `step`, which moves x and out on; `temps`: its registers, `scale`: its factor or divisor, in C."""

    step: Sequence[str]
    temps: str
    inputs: Sequence[str]
    scale: str = "{}"

    def emit(self, operands: Mapping[str, COperand]) -> BlockText:
        text: list[str | Repeat] = ["1:", Repeat(LANES // 4, self.step), f"subs %[n], %[n], #{LANES}", "bne 1b"]
        return AsmBlock(
            [
                f"const void *aot_x = {operands['x'].pointer};",
                f"void *aot_out = {operands['out'].pointer};",
                f"const float aot_scale = {self.scale.format(operands['scale'].value)};",
                f"int32_t aot_n = {operands['count'].value};",
                f"uint32_t {', '.join(f'aot_{t}' for t in self.temps)};",
            ],
            text,
            outs=[f'[{n}] "+r"(aot_{n})' for n in ("x", "out", "n")] + [f'[{t}] "=&r"(aot_{t})' for t in self.temps],
            ins=['[scale] "t"(aot_scale)', *self.inputs],
            clobbers=_FLOATS,
        ).emit()


@cache
def quantize_8(dtype: str, zero_point: int, *, reciprocal: bool) -> TensorIntrin:
    """out[i] = clamp(zp + round(x[i] / scale)) of `count` elements, a multiple of LANES; dtype int8 or uint8.

    Operands: x float32[count], out, scale, count.  `reciprocal`: the scale is a power of two, so that a product with 1 / scale is
    the quotient.
    """

    def element(b: IRBuilder, x: Expr, scale: Var) -> Expr:
        return cast(dtype, tir_quantize(b, x, scale=scale, zero_point=zero_point, limits=int_range(dtype)))

    loop = _quantize_loop(dtype, zero_point, reciprocal=reciprocal)
    desc = _meaning(f"quantize_8_{dtype}", ("float32", dtype), element)
    return TensorIntrin(f"arm_dsp.{desc.name}_zp{zero_point}{'_reciprocal' * reciprocal}", desc, loop.emit, requires="vfp")


def rounded_codes() -> list[str]:
    """s0 to s3, halves rounded away from zero, become the bytes of %[a], saturated; clobbers %[b], %[c], %[d].

    Needs %[one] = 1 and %[offset] = 1 + 2 * (the code of zero) in both halves of a register.
    """
    return [
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
    ]


def _quantize_loop(dtype: str, zero_point: int, *, reciprocal: bool) -> _Loop:
    lowest = int_range(dtype)[0]
    offset = 1 + 2 * (zero_point - lowest)  # codes counted from the lowest: an unsigned byte each
    step = [
        "vldmia %[x]!, {s0-s3}",
        *[f"{'vmul.f32' if reciprocal else 'vdiv.f32'} {s}, {s}, %[scale]" for s in _FLOATS],
        *rounded_codes(),
        *(["eor %[a], %[a], #0x80808080"] if lowest else []),
        "str %[a], [%[out]], #4",
    ]
    inputs = ['[one] "r"(0x00010001u)', f'[offset] "r"({offset | offset << 16:#x}u)']
    return _Loop(step, temps="abcd", inputs=inputs, scale="1.0f / ({})" if reciprocal else "{}")


@cache
def dequantize_8(dtype: str, zero_point: int) -> TensorIntrin:
    """out[i] = (x[i] - zp) * scale of `count` elements, a multiple of LANES; dtype int8 or uint8.

    Operands: x, out float32[count], scale, count.
    """

    def element(_b: IRBuilder, x: Expr, scale: Var) -> Expr:
        return cast("float32", cast("int32", x) - zero_point) * scale

    desc = _meaning(f"dequantize_8_{dtype}", (dtype, "float32"), element)
    return TensorIntrin(f"arm_dsp.{desc.name}_zp{zero_point}", desc, _dequantize_loop(dtype, zero_point).emit, requires="vfp")


def _dequantize_loop(dtype: str, zero_point: int) -> _Loop:
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
    return _Loop(step, temps="ab", inputs=[f'[zp] "r"({minus | minus << 16:#x}u)'])
