"""QUANTIZE of float32 to bytes or 16 bits: products for quotients (quotient.py), VCVTA rounds halves away from zero.

Sixteen numbers at a time by VLD4, the first of every four in one vector, so that narrowing puts them in order (eight by VLD2
where results have 16 bits); the rest four at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.op.qnn.quantize import tir_quantize
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var, cast, imm
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_mve.elementwise.quotient import Reciprocal
from aot.topi.intrin.asm_text import AsmBlock, count_instructions


@dataclass(frozen=True, slots=True)
class Codes:
    """`dtype` (int8, uint8, int16) and zero point of the results, their limits, and the scale with its `reciprocal`."""

    dtype: str
    zero_point: int
    lo: int
    hi: int
    scale: float
    reciprocal: Reciprocal

    @property
    def wide(self) -> bool:
        return self.dtype == "int16"

    @property
    def lanes(self) -> int:
        """Numbers of a turn of the first loop."""
        return 8 if self.wide else 16


@cache
def quantize(codes: Codes) -> TensorIntrin:
    """out[i] = clamp(zp + round(x[i] / scale)) of `count` elements.

    Operands: x float32, out, count.
    """
    count = Var("count")
    b = IRBuilder(f"quantize_{codes.dtype}")
    x = b.input("x", (UNKNOWN_EXTENT,), "float32", align=4)
    out = b.output("out", (UNKNOWN_EXTENT,), codes.dtype)
    scale = imm(codes.scale, "float32")
    with b.for_("i", count) as i:
        code = tir_quantize(b, x[i], scale=scale, zero_point=codes.zero_point, limits=(codes.lo, codes.hi))
        b.store(out, i, cast(codes.dtype, code))
    # numbers are read before the results are written that belong to them
    desc = replace(b.finish(), scalars=(count,))
    name = f"arm_mve.{desc.name}_zp{codes.zero_point}_{codes.lo}_{codes.hi}_{codes.reciprocal.bits[0]:08x}"
    return TensorIntrin(name, desc, lambda ops: _emit(ops, codes), requires="mve.fp", ordered=True)


def _emit(operands: Mapping[str, COperand], codes: Codes) -> BlockText:
    high, low = codes.reciprocal.bits
    values = {"high": f"{high:#010x}u", "low": f"{low:#010x}u", "zp": str(codes.zero_point)}
    lines = [*_setup(codes), *_many(codes), *_four(codes)]
    return AsmBlock(
        [
            f"const void *aot_x = {operands['x'].pointer};",
            f"void *aot_out = {operands['out'].pointer};",
            f"int32_t aot_n = {operands['count'].value};",
        ],
        [
            *_setup(codes),
            f"lsr lr, %[n], #{3 if codes.wide else 4}",
            "wls lr, lr, 2f",
            "1:",
            *_many(codes),
            "le lr, 1b",
            "2:",
            f"and %[n], %[n], #{codes.lanes - 1}",
            "wlstp.32 lr, %[n], 4f",
            "3:",
            *_four(codes),
            "letp lr, 3b",
            "4:",
        ],
        outs=[f'[{n}] "+&r"(aot_{n})' for n in ("x", "out", "n")],
        ins=[f'[{n}] "r"({v})' for n, v in values.items() if any(f"%[{n}]" in line for line in lines)],
        clobbers=["r0", "lr", *(f"q{i}" for i in range(8))],
    ).emit()


def _setup(codes: Codes) -> list[str]:
    """Limits that are not those of the type to q6 and q7."""
    lines: list[str] = []
    for register, limit, usual in zip(("q6", "q7"), (codes.lo, codes.hi), int_range(codes.dtype), strict=True):
        if limit != usual:
            bits = limit & 0xFFFF
            lines += [f"movw r0, #{bits}", f"vdup.{16 if codes.wide else 8} {register}, r0"]
    return lines


def _rounded(codes: Codes, x: str, result: str) -> list[str]:
    """The nearest integers of the quotients of the numbers in `x`, plus the zero point where results are wide; not in place."""
    lines = [f"vmul.f32 {result}, {x}, %[high]"]
    if codes.reciprocal.low:
        lines = [f"vmul.f32 {result}, {x}, %[low]", f"vfma.f32 {result}, {x}, %[high]"]
    lines.append(f"vcvta.s32.f32 {result}, {result}")
    return [*lines, *([f"vqadd.s32 {result}, {result}, %[zp]"] if codes.wide and codes.zero_point else [])]


def _limited(codes: Codes, register: str) -> list[str]:
    kind = {"int8": "s8", "uint8": "u8", "int16": "s16"}[codes.dtype]
    low, high = int_range(codes.dtype)
    lines = [f"vmax.{kind} {register}, {register}, q6"] if codes.lo != low else []
    return [*lines, *([f"vmin.{kind} {register}, {register}, q7"] if codes.hi != high else [])]


def _narrow(codes: Codes) -> str:
    return "vqmovun" if codes.dtype == "uint8" else "vqmovn"


def _many(codes: Codes) -> list[str]:
    """`lanes` numbers."""
    if codes.wide:
        lines = [f"vld2{i}.32 {{q0, q1}}, [%[x]]{'!' * i}" for i in range(2)]
        lines += [*_rounded(codes, "q0", "q4"), *_rounded(codes, "q1", "q0"), "vqmovnb.s32 q4, q4", "vqmovnt.s32 q4, q0"]
        return [*lines, *_limited(codes, "q4"), "vstrh.16 q4, [%[out]], #16"]
    lines = [f"vld4{i}.32 {{q0, q1, q2, q3}}, [%[x]]{'!' * (i == 3)}" for i in range(4)]
    for x, result in (("q0", "q4"), ("q1", "q0"), ("q2", "q1"), ("q3", "q2")):
        lines += _rounded(codes, x, result)
    # of every four numbers the first and third to q4, the second and fourth to q0
    lines += ["vqmovnb.s32 q4, q4", "vqmovnb.s32 q0, q0", "vqmovnt.s32 q4, q1", "vqmovnt.s32 q0, q2"]
    lines += [f"vqadd.s16 {q}, {q}, %[zp]" for q in ("q4", "q0")] if codes.zero_point else []
    lines += [f"{_narrow(codes)}b.s16 q4, q4", f"{_narrow(codes)}t.s16 q4, q0"]
    return [*lines, *_limited(codes, "q4"), "vstrb.8 q4, [%[out]], #16"]


def _four(codes: Codes) -> list[str]:
    lines = ["vldrw.u32 q0, [%[x]], #16", *_rounded(codes, "q0", "q4"), "vqmovnb.s32 q4, q4"]
    if codes.wide:
        return [*lines, *_limited(codes, "q4"), "vstrh.32 q4, [%[out]], #8"]
    lines += ["vqadd.s16 q4, q4, %[zp]"] if codes.zero_point else []
    return [*lines, f"{_narrow(codes)}b.s16 q4, q4", *_limited(codes, "q4"), "vstrb.32 q4, [%[out]], #4"]


def quantize_instructions(codes: Codes, count: int) -> int:
    """Executed by one block."""
    whole, rest = divmod(count, codes.lanes)
    many, four = (count_instructions(lines) + 1 for lines in (_many(codes), _four(codes)))
    return whole * many + -(-rest // 4) * four + len(_setup(codes)) + 16


def code_bytes(codes: Codes) -> int:
    return 4 * count_instructions([*_setup(codes), *_many(codes), *_four(codes)]) + 60
