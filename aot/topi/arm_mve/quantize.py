"""QUANTIZE of float32 to bytes or 16 bits by vectors, if products give the codes of the reference's quotients.

Vectors have no division.  With 1 / s = high + low as the sum of two float32 numbers, high rounded down, RN(x * high + RN(x *
low)) is a VMUL and a VFMA.  It and the quotient RN(x / s) never fall as x rises, and are odd in x; so codes are equal for all x
if they change at the same numbers, which the proof looks at one by one.  Infinities stay infinite (both factors are positive),
NaN stays NaN.  VCVTA rounds halves away from zero.

Sixteen numbers at a time by VLD4, the first of every four in one vector, so that narrowing puts them in order (eight by VLD2 if
results have 16 bits); the rest four at a time.
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
from aot.topi.intrin.asm_text import count_instructions
from aot.topi.layer.elementwise import Flat, Operands, element_block, register_flat, stream

LEAST = 4
"""Numbers from which on vectors pay."""

# ---- quotients as products ----

LEAST_SCALE, LARGEST_SCALE = 2.0**-60, 2.0**60
"""Between them nothing that decides a code is below the 2^-126 that vector instructions take for zero, or beyond float32."""
_NEAR = 3
"""Numbers on each side of scale * threshold among which the quotient reaches the threshold."""

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reciprocal:
    """The factors; `low` is 0 where the product with `high` alone is the quotient."""

    high: float
    low: float

    @property
    def bits(self) -> tuple[int, int]:
        """Those of both as float32."""
        high, low = np.array([self.high, self.low], np.float32).view(np.uint32)
        return int(high), int(low)

    def product(self, x: Float32) -> Float32:
        """What the instructions make of numbers that are not too small or large."""
        high, low = np.float32(self.high), np.float32(self.low)
        return _fused(x, high, x * low) if self.low else x * high


@lru_cache(maxsize=64)
def reciprocal(scale: float, steps: int) -> Reciprocal | None:
    """The factors that give the nearest code of x / scale (halves away from zero) for all float32 x, if they are proven to.

    `steps`: codes on either side of zero, beyond which they are clamped.
    """
    divisor = np.float32(scale)
    if not LEAST_SCALE <= divisor <= LARGEST_SCALE:
        return None
    found = _factors(divisor)
    return found if is_proven(found, divisor, steps) else None


def is_proven(factors: Reciprocal, divisor: np.float32, steps: int) -> bool:
    """Whether codes change at the same numbers: each of `steps` thresholds is reached from the same float32 on."""
    thresholds = (np.arange(steps, dtype=np.float64) + 0.5)[:, None]
    middle = (thresholds * np.float64(divisor)).astype(np.float32).view(np.int32)
    near = (middle + np.arange(-_NEAR, _NEAR + 1, dtype=np.int32)).view(np.float32)
    reached = near / divisor >= thresholds
    if reached[:, 0].any() or not reached[:, -1].all():
        return False
    return bool(((factors.product(near) >= thresholds) == reached).all())


def _factors(divisor: np.float32) -> Reciprocal:
    high = np.float32(1 / np.float64(divisor))
    if np.float64(high) * np.float64(divisor) > 1:  # a product of 48 bits is exact
        high = np.nextafter(high, np.float32(0))
    left = 1 - np.float64(high) * np.float64(divisor)
    return Reciprocal(float(high), float(np.float32(left / np.float64(divisor))))


def _fused(x: Float32, factor: np.float32, more: Float32) -> Float32:
    """x * factor + more, rounded once.

    The product is exact in float64.  Their sum is rounded to odd there, so that rounding it again is rounding the exact one
    (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd").
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

    def setup(self) -> list[str]:
        """Limits that are not the ones of the type to q6 and q7."""
        lines: list[str] = []
        for register, limit, usual in zip(("q6", "q7"), (self.lo, self.hi), int_range(self.dtype), strict=True):
            if limit != usual:
                lines += [f"movw r0, #{limit & 0xFFFF}", f"vdup.{16 if self.wide else 8} {register}, r0"]
        return lines

    def _rounded(self, x: str, result: str) -> list[str]:
        """The nearest integers of the quotients of the numbers in `x`, plus the zero point if results are wide; not in place."""
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
        """`lanes` numbers."""
        if self.wide:
            lines = [f"vld2{i}.32 {{q0, q1}}, [%[x]]{'!' * i}" for i in range(2)]
            lines += [*self._rounded("q0", "q4"), *self._rounded("q1", "q0"), "vqmovnb.s32 q4, q4", "vqmovnt.s32 q4, q0"]
            return [*lines, *self._limited("q4"), "vstrh.16 q4, [%[out]], #16"]
        lines = [f"vld4{i}.32 {{q0, q1, q2, q3}}, [%[x]]{'!' * (i == 3)}" for i in range(4)]
        for x, result in (("q0", "q4"), ("q1", "q0"), ("q2", "q1"), ("q3", "q2")):
            lines += self._rounded(x, result)
        # of every four numbers the first and third to q4, the second and fourth to q0
        lines += ["vqmovnb.s32 q4, q4", "vqmovnb.s32 q0, q0", "vqmovnt.s32 q4, q1", "vqmovnt.s32 q0, q2"]
        lines += [f"vqadd.s16 {q}, {q}, %[zp]" for q in ("q4", "q0")] if self.zero_point else []
        lines += [f"{self._narrow}b.s16 q4, q4", f"{self._narrow}t.s16 q4, q0"]
        return [*lines, *self._limited("q4"), "vstrb.8 q4, [%[out]], #16"]

    def four(self) -> list[str]:
        """Up to four numbers."""
        lines = ["vldrw.u32 q0, [%[x]], #16", *self._rounded("q0", "q4"), "vqmovnb.s32 q4, q4"]
        if self.wide:
            return [*lines, *self._limited("q4"), "vstrh.32 q4, [%[out]], #8"]
        lines += ["vqadd.s16 q4, q4, %[zp]"] if self.zero_point else []
        return [*lines, f"{self._narrow}b.s16 q4, q4", *self._limited("q4"), "vstrb.32 q4, [%[out]], #4"]

    def cost(self, count: int) -> tuple[int, int]:
        """Instructions executed by one block, and bytes of code."""
        whole, rest = divmod(count, self.lanes)
        setup, many, four = (count_instructions(lines) for lines in (self.setup(), self.many(), self.four()))
        return whole * (many + 1) + -(-rest // 4) * (four + 1) + setup + 16, 4 * (setup + many + four) + 60


@cache
def quantize(codes: Codes) -> TensorIntrin:
    """out[i] = clamp(zp + round(x[i] / scale)) of `count` elements.

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
    return stream(operands, text, "x out", ins, counter="n", clobbers=["r0", "lr", *(f"q{i}" for i in range(8))])


def _plan(_data: TensorType, result: TensorType, attrs: QuantizeAttrs) -> Flat | None:
    zp = attrs.zero_point
    found = reciprocal(attrs.scale, max(attrs.hi - zp, zp - attrs.lo))
    if found is None:
        return None
    codes = Codes(attrs.dtype, zp, attrs.lo, attrs.hi, attrs.scale, found)
    return Flat(quantize(codes), codes.cost(result.size))


register_flat("arm_mve.quantize", "qnn.quantize", _plan, needs=["mve"], least=LEAST, plevel=40)
