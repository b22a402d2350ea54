"""QUANTIZE of float32 to bytes or 16 bits in MVE vectors, provided that products give the same results as the reference's
quotients.

MVE has no division.  Let 1 / s = high + low, the sum of two float32 numbers, with high rounded down.  Then
RN(x * high + RN(x * low)) is a VMUL and a VFMA.  Both it and the quotient RN(x / s) are monotone and odd in x; so the quantised
values are equal for all x if they change at the same numbers, which the proof checks one by one.  Infinities stay infinite (both
factors are positive), NaN stays NaN.  VCVTA rounds halves away from zero.

VLD4 loads sixteen numbers at a time and puts every fourth one in the same vector, so that narrowing leaves them in order (VLD2
and eight numbers for 16-bit results).  The remainder is done four at a time.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from aot.ir.type import TensorType
from aot.op.qnn.quantize import QuantizeAttrs, tir_quantize
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm
from aot.tir.intrin import BlockText, TensorIntrin
from aot.topi.intrin.asm_text import Operands, asm, count_instructions
from aot.topi.layer.elementwise import Flat, element_block, register_flat

LEAST = 4
"""Fewest numbers for which vectors pay off."""

# ---- quotients as products ----

LEAST_SCALE, LARGEST_SCALE = 2.0**-60, 2.0**60
"""Between these limits, no number that decides a result is below 2^-126 (flushed to zero by vectors) or beyond float32."""
_NEAR = 3
"""Numbers on each side of scale * threshold among which the quotient reaches the threshold."""

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reciprocal:
    """The two factors; `low` is 0 if the product with `high` alone equals the quotient."""

    high: float
    low: float

    @property
    def bits(self) -> tuple[int, int]:
        """The bits of both factors as float32."""
        high, low = np.array([self.high, self.low], np.float32).view(np.uint32)
        return int(high), int(low)

    def product(self, x: Float32) -> Float32:
        """The result of the instructions for numbers that are neither too small nor too large."""
        high, low = np.float32(self.high), np.float32(self.low)
        return _fused(x, high, x * low) if self.low else x * high


@lru_cache(maxsize=64)
def reciprocal(scale: float, steps: int) -> Reciprocal | None:
    """Factors that are proven to give the nearest integer to x / scale (halves away from zero) for every float32 x; else None.

    `steps`: quantised values on either side of zero, before the clamp.
    """
    divisor = np.float32(scale)
    if not LEAST_SCALE <= divisor <= LARGEST_SCALE:
        return None
    factors = _factors(divisor)
    return factors if is_proven(factors, divisor, steps) else None


def is_proven(factors: Reciprocal, divisor: np.float32, steps: int) -> bool:
    """Whether results change at the same numbers: each of `steps` thresholds is first reached by the same float32."""
    thresholds = (np.arange(steps, dtype=np.float64) + 0.5)[:, None]
    middle = (thresholds * np.float64(divisor)).astype(np.float32).view(np.int32)
    near = (middle + np.arange(-_NEAR, _NEAR + 1, dtype=np.int32)).view(np.float32)
    reached = near / divisor >= thresholds
    if reached[:, 0].any() or not reached[:, -1].all():
        return False
    return bool(((factors.product(near) >= thresholds) == reached).all())


def _factors(divisor: np.float32) -> Reciprocal:
    high = np.float32(1 / np.float64(divisor))
    if np.float64(high) * np.float64(divisor) > 1:  # exact: the product has 48 bits
        high = np.nextafter(high, np.float32(0))
    left = 1 - np.float64(high) * np.float64(divisor)
    return Reciprocal(float(high), float(np.float32(left / np.float64(divisor))))


def _fused(x: Float32, factor: np.float32, more: Float32) -> Float32:
    """x * factor + more, rounded once.

    The product is exact in float64.  The sum is rounded to odd in float64, so that rounding it again equals rounding the exact
    sum (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd").
    """
    a, b = x.astype(np.float64) * np.float64(factor), more.astype(np.float64)
    total = a + b
    shift = total - a
    error = (a - (total - shift)) + (b - shift)
    bits = np.array(total).view(np.int64)
    toward = np.where((error > 0) == (total > 0), 1, -1)
    odd = np.where((error != 0) & (bits % 2 == 0), bits + toward, bits)
    return odd.view(np.float64).astype(np.float32)


# ---- the loop ----


@dataclass(frozen=True, slots=True)
class Codes:
    """`dtype` (int8, uint8, int16), zero point and limits of the results, and the scale with its `reciprocal`."""

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
        """Numbers per iteration of the first loop."""
        return 8 if self.wide else 16

    def setup(self) -> list[str]:
        """Load limits that are narrower than the type into q6 and q7."""
        lines: list[str] = []
        for register, limit, usual in zip(("q6", "q7"), (self.lo, self.hi), int_range(self.dtype), strict=True):
            if limit != usual:
                lines += [f"movw r0, #{limit & 0xFFFF}", f"vdup.{16 if self.wide else 8} {register}, r0"]
        return lines

    def _rounded(self, x: str, result: str) -> list[str]:
        """The nearest integers to the quotients of the numbers in `x`, plus the zero point if results are wide; not in place."""
        lines = [f"vmul.f32 {result}, {x}, %[high]"]
        if self.reciprocal.low:
            lines = [f"vmul.f32 {result}, {x}, %[low]", f"vfma.f32 {result}, {x}, %[high]"]
        lines.append(f"vcvta.s32.f32 {result}, {result}")
        return [*lines, *([f"vqadd.s32 {result}, {result}, %[zp]"] if self.wide and self.zero_point else [])]

    def _limited(self, register: str) -> list[str]:
        kind = {"int8": "s8", "uint8": "u8", "int16": "s16"}[self.dtype]
        low, high = int_range(self.dtype)
        lines = [f"vmax.{kind} {register}, {register}, q6"] if self.lo != low else []
        return [*lines, *([f"vmin.{kind} {register}, {register}, q7"] if self.hi != high else [])]

    @property
    def _narrow(self) -> str:
        return "vqmovun" if self.dtype == "uint8" else "vqmovn"

    def many(self) -> list[str]:
        """Code for `lanes` numbers."""
        if self.wide:
            lines = [f"vld2{i}.32 {{q0, q1}}, [%[x]]{'!' * i}" for i in range(2)]
            lines += [*self._rounded("q0", "q4"), *self._rounded("q1", "q0"), "vqmovnb.s32 q4, q4", "vqmovnt.s32 q4, q0"]
            return [*lines, *self._limited("q4"), "vstrh.16 q4, [%[out]], #16"]
        lines = [f"vld4{i}.32 {{q0, q1, q2, q3}}, [%[x]]{'!' * (i == 3)}" for i in range(4)]
        for x, result in (("q0", "q4"), ("q1", "q0"), ("q2", "q1"), ("q3", "q2")):
            lines += self._rounded(x, result)
        # the first and third of every four numbers to q4, the second and fourth to q0
        lines += ["vqmovnb.s32 q4, q4", "vqmovnb.s32 q0, q0", "vqmovnt.s32 q4, q1", "vqmovnt.s32 q0, q2"]
        lines += [f"vqadd.s16 {q}, {q}, %[zp]" for q in ("q4", "q0")] if self.zero_point else []
        lines += [f"{self._narrow}b.s16 q4, q4", f"{self._narrow}t.s16 q4, q0"]
        return [*lines, *self._limited("q4"), "vstrb.8 q4, [%[out]], #16"]

    def four(self) -> list[str]:
        """Code for up to four numbers."""
        lines = ["vldrw.u32 q0, [%[x]], #16", *self._rounded("q0", "q4"), "vqmovnb.s32 q4, q4"]
        if self.wide:
            return [*lines, *self._limited("q4"), "vstrh.32 q4, [%[out]], #8"]
        lines += ["vqadd.s16 q4, q4, %[zp]"] if self.zero_point else []
        return [*lines, f"{self._narrow}b.s16 q4, q4", *self._limited("q4"), "vstrb.32 q4, [%[out]], #4"]

    def cost(self, count: int) -> tuple[int, int]:
        """Instructions that one block executes, and bytes of code."""
        whole, remainder = divmod(count, self.lanes)
        setup, many, four = (count_instructions(lines) for lines in (self.setup(), self.many(), self.four()))
        return whole * (many + 1) + -(-remainder // 4) * (four + 1) + setup + 16, 4 * (setup + many + four) + 60


@cache
def quantize(codes: Codes) -> TensorIntrin:
    """out[i] = clamp(zp + round(x[i] / scale)) for `count` elements.

    Operands: x float32, out, count.
    """
    scale = imm(codes.scale, "float32")

    def element(b: IRBuilder, x: Expr) -> Expr:
        return cast(codes.dtype, tir_quantize(b, x, scale=scale, zero_point=codes.zero_point, limits=(codes.lo, codes.hi)))

    name, bits = f"arm_mve.quantize_{codes.dtype}", codes.reciprocal.bits[0]
    suffix = f"_zp{codes.zero_point}_{codes.lo}_{codes.hi}_{bits:08x}"
    return element_block(
        name,
        {"x": "float32"},
        codes.dtype,
        element,
        lambda ops: _emit(ops, codes),
        requires="mve.fp",
        suffix=suffix,
        align=(4, 1),
    )


def _emit(operands: Operands, codes: Codes) -> BlockText:
    high, low = codes.reciprocal.bits
    values = {"high": f"{high:#010x}u", "low": f"{low:#010x}u", "zp": str(codes.zero_point)}
    many, four = codes.many(), codes.four()
    text = [*codes.setup(), f"lsr lr, %[n], #{3 if codes.wide else 4}", "wls lr, lr, 2f", "1:", *many, "le lr, 1b", "2:"]
    text += [f"and %[n], %[n], #{codes.lanes - 1}", "wlstp.32 lr, %[n], 4f", "3:", *four, "letp lr, 3b", "4:"]
    ins = {n: v for n, v in values.items() if any(f"%[{n}]" in line for line in (*many, *four))}
    return asm(operands, text, "x >out", ins, counter="n=count", clobbers=["r0", "lr", *(f"q{i}" for i in range(8))])


def _plan(_data: TensorType, result: TensorType, attrs: QuantizeAttrs) -> Flat | None:
    zp = attrs.zero_point
    factors = reciprocal(attrs.scale, max(attrs.hi - zp, zp - attrs.lo))
    if factors is None:
        return None
    codes = Codes(attrs.dtype, zp, attrs.lo, attrs.hi, attrs.scale, factors)
    return Flat(quantize(codes), codes.cost(result.size))


register_flat("arm_mve.quantize", "qnn.quantize", _plan, needs=["mve"], least=LEAST, plevel=40)
