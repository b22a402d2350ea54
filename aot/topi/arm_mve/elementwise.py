"""Element-wise operators in MVE vectors: ADD, MUL, tables, QUANTIZE, DEQUANTIZE; alone, or as the epilogue of a layer."""

from __future__ import annotations

from functools import cache, lru_cache, partial
from math import prod

import numpy as np
import numpy.typing as npt

from aot.ir.type import TensorType
from aot.op.qnn.lut import LutAttrs
from aot.op.qnn.quantize import (
    DequantizeAttrs,
    QuantizeAttrs,
    Requantize8Attrs,
    RequantizeAttrs,
    tir_quantize,
)
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, numpy_dtype
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, cast, clamp, imm
from aot.tir.intrin import BlockText, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.arm_mve.vectors import RequantForm, plan_vectors
from aot.topi.intrin.asm_text import Operands, Repeat, asm, count_instructions
from aot.topi.layer import elementwise as flat
from aot.topi.layer.fused import FusedLayer, LayerIo, residual_factors
from aot.topi.strategy import Group

LEAST = 16
"""Shortest run, in bytes, for which vectors pay off."""

# ---- ADD: four elements at a time in 32-bit lanes ----


def _emit_add(operands: Operands, limits: flat.Limits) -> BlockText:
    """The loop of ADD: nine instructions per four elements, plus one for each limit that is narrower than int8."""
    clamps = (("vmax.s8", "q3", limits.lo, -128), ("vmin.s8", "q4", limits.hi, 127))
    own = [(instruction, q, value) for instruction, q, value, usual in clamps if value != usual]
    text = [line for _, q, value in own for line in (f"mov r12, #{value & 0xFF}", f"vdup.8 {q}, r12")]
    text += ["vdup.32 q2, %[fa]", "dlstp.32 lr, %[n]", "1:", "vldrb.s32 q0, [%[x]], #4", "vmlas.s32 q0, q2, %[bias]"]
    text += ["vldrb.s32 q1, [%[y]], #4", "vmla.s32 q0, q1, %[fb]", *[f"vshr.s32 q0, q0, #{limits.shift}"] * bool(limits.shift)]
    text += ["vqmovnb.s32 q0, q0", "vqmovnb.s16 q0, q0", *(f"{instruction} q0, q0, {q}" for instruction, q, _ in own)]
    text += ["vstrb.32 q0, [%[out]], #4", "letp lr, 1b"]
    clobbers = ["lr", "q0", "q1", "q2", *(["r12"] if own else []), *(q for _, q, _ in own)]
    return asm(operands, text, "x y >out", "fa=a fb=b bias n=count", low="x y out", clobbers=clobbers)


def add_instructions(count: int, lo: int = -128, hi: int = 127) -> int:
    """Instructions that one block executes."""
    limits = (lo != -128) + (hi != 127)
    return (9 + limits) * -(-count // 4) + 10 + 2 * limits


def _add_cost(runs: flat.Runs, limits: flat.Limits) -> tuple[int, int]:
    return runs.rows * (add_instructions(runs.length, limits.lo, limits.hi) + 4 * (runs.rows > 1)) + 10, 110


def _add_name(limits: flat.Limits) -> str:
    return f"arm_mve.add_asr{limits.shift}" + f"_{limits.lo}_{limits.hi}" * limits.clamped


ADD = flat.AddKernel("mve", LEAST, _add_name, _emit_add, _add_cost, lambda _length: 1, at="")
flat.register_rows("arm_mve.add", "qnn.add", ADD.plan, plevel=40)

# ---- MUL: products of 16-bit differences, requantised in 32-bit lanes, even and odd elements separately ----

LANES = 8


@dataclass(frozen=True, slots=True)
class Product:
    """The numbers of MUL: the operands' zero points, and its requantisation by `multiplier` and `shift` (not positive)."""

    zero_points: tuple[int, int]
    multiplier: int
    shift: int
    form: RequantForm

    def text(self) -> list[str | Repeat]:
        """A loop over whole vectors, then the remaining elements."""
        loop = ["lsr lr, %[n], #3", "wls lr, lr, 2f", "1:", *self.eight(masked=False), "le lr, 1b", "2:"]
        remainder = ["ands %[n], %[n], #7", "beq 3f", "vctp.16 %[n]", *self.eight(masked=True), "3:"]
        return [*self.form.setup, *loop, *remainder]

    def eight(self, *, masked: bool) -> list[str]:
        """Code for eight elements."""
        form, pair = self.form, ("q0", "q1")
        lines = ["vpstt", "vldrbt.s16 q2, [%[x]], #8", "vldrbt.s16 q3, [%[y]], #8"]
        if not masked:
            lines = ["vldrb.s16 q2, [%[x]], #8", "vldrb.s16 q3, [%[y]], #8"]
        for q, zp, name in (("q2", self.zero_points[0], "zx"), ("q3", self.zero_points[1], "zy")):
            lines += [f"vadd.i16 {q}, {q}, %[{name}]"] if zp else []
        lines += ["vmullb.s16 q0, q2, q3", "vmullt.s16 q1, q2, q3", *(f"{form.multiply} {q}, {q}, %[m]" for q in pair)]
        lines += [*form.shift(pair, "q2", "%[s]"), *form.narrow]
        return [*lines, *(["vpst", "vstrbt.16 q0, [%[out]], #8"] if masked else ["vstrb.16 q0, [%[out]], #8"])]

    def instructions(self, count: int) -> int:
        """Instructions that one block executes."""
        whole, remainder = divmod(count, LANES)
        each = len(self.eight(masked=False)) + 1
        return count_instructions(self.form.setup) + 12 + whole * each + bool(remainder) * (each + 2)


@cache
def multiply(product: Product) -> TensorIntrin:
    """out[i] = requantised((x[i] - zx) * (y[i] - zy)) for `count` elements.

    Operands: x, y, out at any address (out may be x or y), count.
    """

    def element(b: IRBuilder, *pair: Expr) -> Expr:
        factors = [cast("int32", v) - zp for v, zp in zip(pair, product.zero_points, strict=True)]
        numbers = (imm(0), imm(product.multiplier), imm(product.shift))
        return product.form.meaning(b, factors[0] * factors[1], numbers)

    def emit(operands: Operands) -> BlockText:
        zx, zy = product.zero_points
        ins = {"zx": f"{-zx}", "zy": f"{-zy}", "m": f"{product.multiplier}", "s": f"{product.shift}"}
        clobbers = ["r0", "lr", *(f"q{i}" for i in range(8))]
        return asm(operands, product.text(), "x y >out", ins, counter="n=count", low="x y out", clobbers=clobbers)

    return flat.element_block("arm_mve.multiply", {"x": "int8", "y": "int8"}, "int8", element, emit, requires="mve")


def _plan_multiply(group: Group, target: Target) -> flat.RowPlan | None:
    runs = flat.match_runs(group, least=LEAST) if target.has("mve") else None
    if runs is None:
        return None
    attrs = group.anchor.attrs
    factors = [[abs(end - zp) for end in (-128, 127)] for zp in attrs.input_zp]
    largest = np.array([max(factors[0]) * max(factors[1])])
    rescaling = RequantizeAttrs((attrs.multiplier,), (attrs.shift,), attrs.zero_point, attrs.lo, attrs.hi, "double")
    requant = plan_vectors(rescaling, -largest, largest)
    if requant is None or requant.form.left:
        return None
    product = Product(tuple(attrs.input_zp), attrs.multiplier, int(requant.right[0]), requant.form)
    instructions = runs.rows * (product.instructions(runs.length) + 4 * (runs.rows > 1)) + 10
    return flat.RowPlan(runs, multiply(product), (), (instructions, 4 * count_instructions(product.text()) + 60), at="")


flat.register_rows("arm_mve.multiply", "qnn.multiply", _plan_multiply, plevel=40)

# ---- functions of one byte: a gather load with sixteen byte offsets, or a saturating addition ----

BYTES = ("int8", "uint8")
SAME_SCALE = (1 << 30, 1)
"""Multiplier and shift of the factor 1."""
CODE_BYTES = 44
"""Bytes of the loop and its call."""


def _sixteen(steps: list[str], count: int) -> int:
    """Instructions that a block executes for `count` bytes, sixteen at a time."""
    return (len(steps) + 1) * -(-count // 16) + 8


def _loop(steps: list[str], width: int = 8) -> list[str]:
    """A loop over the elements of `width` bits of a vector at a time; those of the last vector are predicated."""
    return [f"wlstp.{width} lr, %[n], 2f", "1:", *steps, "letp lr, 1b", "2:"]


LUT = ["vldrb.u8 q0, [%[x]], #16", "vldrb.u8 q1, [%[t], q0]", "vstrb.8 q1, [%[out]], #16"]


@cache
def lut(dtype: str = "int8", out_dtype: str = "int8") -> TensorIntrin:
    """out[i] = table[uint8(x[i])] for `count` elements; both dtypes int8 or uint8.

    Operands: x, table out_dtype[256] indexed by the unsigned byte, out (may be x, or must not overlap it), count.  Four
    instructions per sixteen elements.
    """
    emit = partial(asm, text=_loop(LUT), pointers="x *t=table >out", ins="n=count", clobbers=["lr", "q0", "q1"])
    name = f"arm_mve.lut_{dtype}_{out_dtype}"
    return flat.element_block(name, {"x": dtype}, out_dtype, flat.code_of_table, emit, requires="mve", table=out_dtype)


@dataclass(frozen=True, slots=True)
class Shift:
    """out = saturated(x + delta), which is QUANTIZE between equal scales; dtypes int8 or uint8."""

    dtype: str
    out_dtype: str
    delta: int

    @property
    def offset(self) -> int:
        """The amount to add after the change of the type, which adds 128 modulo 256."""
        return self.delta - int_range(self.out_dtype)[0] + int_range(self.dtype)[0]

    @property
    def fits(self) -> bool:
        """Whether the saturating instructions of the result's type can add `offset`."""
        low, high = int_range(self.out_dtype)
        return low <= self.offset <= high if low else abs(self.offset) <= high

    @property
    def steps(self) -> list[str]:
        steps = ["vldrb.u8 q0, [%[x]], #16", *(["vadd.i8 q0, q0, %[half]"] if self.dtype != self.out_dtype else [])]
        op = "vqadd.s8" if self.out_dtype == "int8" else "vqadd.u8" if self.offset > 0 else "vqsub.u8"
        return [*steps, *([f"{op} q0, q0, %[by]"] if self.offset else []), "vstrb.8 q0, [%[out]], #16"]


@cache
def shift(numbers: Shift) -> TensorIntrin:
    """out[i] = clamp(x[i] + delta) to the result's type, for `count` elements.

    Operands: x, out (may be x, or must not overlap it), count.  Four or five instructions per sixteen elements.
    """
    steps, dtype = numbers.steps, numbers.out_dtype

    def element(_b: IRBuilder, x: Expr) -> Expr:
        return cast(dtype, clamp(cast("int32", x) + numbers.delta, *int_range(dtype)))

    def emit(operands: Operands) -> BlockText:
        values = {"n": operands["count"].value, "half": "128"}
        values["by"] = f"{numbers.offset if dtype == 'int8' else abs(numbers.offset)}"
        used = {name: value for name, value in values.items() if any(f"%[{name}]" in line for line in _loop(steps))}
        return asm(operands, _loop(steps), "x >out", used, clobbers=["lr", "q0"])

    name, suffix = f"arm_mve.shift_{numbers.dtype}_{dtype}", f"_{numbers.delta}"
    return flat.element_block(name, {"x": numbers.dtype}, dtype, element, emit, requires="mve", suffix=suffix)


def _plan_bytes(data: TensorType, result: TensorType, attrs: LutAttrs | Requantize8Attrs) -> flat.Flat | None:
    """The kernel from bytes to bytes."""
    if data.dtype not in BYTES or result.dtype not in BYTES:
        return None
    if isinstance(attrs, LutAttrs):
        table = np.roll(np.asarray(attrs.table, np.int8), flat.CODES // 2)
    else:
        numbers = Shift(data.dtype, attrs.dtype, attrs.zero_point - attrs.input_zp)
        unclamped = (attrs.lo, attrs.hi) == int_range(attrs.dtype)
        if (attrs.multiplier, attrs.shift) == SAME_SCALE and unclamped and numbers.fits:
            return flat.Flat(shift(numbers), (_sixteen(numbers.steps, result.size), CODE_BYTES + 4))
        codes = np.arange(flat.CODES, dtype=np.uint8).view(numpy_dtype(data.dtype))
        table = attrs.evaluate(codes, out_type=TensorType((flat.CODES,), result.dtype))
    return flat.Flat(lut(data.dtype, result.dtype), (_sixteen(LUT, result.size), CODE_BYTES), table=table)


for _op in ("lut", "requantize8"):
    flat.register_flat(f"arm_mve.{_op}", f"qnn.{_op}", _plan_bytes, needs=["mve"], least=LEAST, plevel=40)

# ---- DEQUANTIZE, four at a time ----

LEAST_SCALE = 2.0**-126
"""Vector instructions flush numbers below 2^-126 to zero; with at least this scale, no non-zero result is that small."""


@cache
def dequantize(dtype: str, zero_point: int) -> TensorIntrin:
    """out[i] = (x[i] - zp) * scale for `count` elements; dtype int8 or uint8.

    Operands: x, out float32, scale, count.
    """
    scale = Var("scale", "float32")
    steps = [f"vldrb.{'s32' if dtype == 'int8' else 'u32'} q0, [%[x]], #4", *(["vadd.i32 q0, q0, %[zp]"] if zero_point else [])]
    steps += ["vcvt.f32.s32 q0, q0", "vmul.f32 q0, q0, %[scale]", "vstrw.32 q0, [%[out]], #16"]

    def element(_b: IRBuilder, x: Expr) -> Expr:
        return cast("float32", cast("int32", x) - zero_point) * scale

    def emit(operands: Operands) -> BlockText:
        ins = {"n": operands["count"].value, "zp": f"{-zero_point}", "scale": "aot_scale.u"}
        floats = ["union { float f; uint32_t u; } aot_scale;", f"aot_scale.f = {operands['scale'].value};"]
        return asm(operands, _loop(steps, 32), "x >out", ins, low="x", clobbers=["lr", "q0"], before=floats)

    name, suffix = f"arm_mve.dequantize_{dtype}", f"_zp{zero_point}"
    return flat.element_block(
        name, {"x": dtype}, "float32", element, emit, requires="mve.fp", numbers=(scale,), ordered=False, suffix=suffix
    )


def dequantize_instructions(count: int) -> int:
    """Instructions that one block executes."""
    return 6 * -(-count // 4) + 14


def _plan_dequantize(data: TensorType, result: TensorType, attrs: DequantizeAttrs) -> flat.Flat | None:
    """The kernel from bytes to float32."""
    if not isinstance(attrs, DequantizeAttrs) or data.dtype not in BYTES or attrs.scale < LEAST_SCALE:
        return None
    block, scale = dequantize(data.dtype, attrs.zero_point), imm(attrs.scale, "float32")
    return flat.Flat(block, (dequantize_instructions(result.size), 60), (scale,))


flat.register_flat("arm_mve.dequantize", "qnn.dequantize", _plan_dequantize, needs=["mve"], least=LEAST, plevel=40)

# ---- QUANTIZE of float32, provided that products give the same results as the reference's quotients ----
#
# MVE has no division.  Let 1 / s = high + low, the sum of two float32 numbers, with high rounded down.  Then RN(x * high + RN(x *
# low)) is a VMUL and a VFMA.  Both it and the quotient RN(x / s) are monotone and odd in x; so the quantised values are equal for
# all x if they change at the same numbers, which the proof checks one by one.  Infinities stay infinite (both factors are
# positive), NaN stays NaN.  VCVTA rounds halves away from zero.
#
# VLD4 loads sixteen numbers at a time and puts every fourth one in the same vector, so that narrowing leaves them in order (VLD2
# and eight numbers for 16-bit results).  The remainder is done four at a time.

LEAST_DIVISOR, LARGEST_DIVISOR = 2.0**-60, 2.0**60
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
    if not LEAST_DIVISOR <= divisor <= LARGEST_DIVISOR:
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
    emit = partial(_emit_quantize, codes=codes)
    return flat.element_block(name, {"x": "float32"}, codes.dtype, element, emit, requires="mve.fp", suffix=suffix, align=(4, 1))


def _emit_quantize(operands: Operands, codes: Codes) -> BlockText:
    high, low = codes.reciprocal.bits
    values = {"high": f"{high:#010x}u", "low": f"{low:#010x}u", "zp": str(codes.zero_point)}
    many, four = codes.many(), codes.four()
    text = [*codes.setup(), f"lsr lr, %[n], #{3 if codes.wide else 4}", "wls lr, lr, 2f", "1:", *many, "le lr, 1b", "2:"]
    text += [f"and %[n], %[n], #{codes.lanes - 1}", "wlstp.32 lr, %[n], 4f", "3:", *four, "letp lr, 3b", "4:"]
    ins = {n: v for n, v in values.items() if any(f"%[{n}]" in line for line in (*many, *four))}
    return asm(operands, text, "x >out", ins, counter="n=count", clobbers=["r0", "lr", *(f"q{i}" for i in range(8))])


def _plan_quantize(_data: TensorType, result: TensorType, attrs: QuantizeAttrs) -> flat.Flat | None:
    zp = attrs.zero_point
    factors = reciprocal(attrs.scale, max(attrs.hi - zp, zp - attrs.lo))
    if factors is None:
        return None
    codes = Codes(attrs.dtype, zp, attrs.lo, attrs.hi, attrs.scale, factors)
    return flat.Flat(quantize(codes), codes.cost(result.size))


flat.register_flat("arm_mve.quantize", "qnn.quantize", _plan_quantize, needs=["mve"], least=4, plevel=40)

# ---- the epilogue of a layer ----

EACH = 12
"""Instructions per element and call of an epilogue without vectors."""


class Results:
    """`size` consecutive results at a time: a block writes them to `place`, then `finish` runs the epilogue, if there is one.

    With `over`, results go to the output and the epilogue updates them there; this is for kernels that do not compute them in one
    run.  An epilogue that is a table is left to `end`, which a kernel calls after all results: one loop over the output, no
    scratch memory.
    """

    def __init__(self, b: IRBuilder, io: LayerIo, layer: FusedLayer, *, target: Target, size: int, over: bool = False) -> None:
        self._b, self._io, self._layer, self._size = b, io, layer, size
        self._factors: flat.Factors | None = None
        self._floats: DequantizeAttrs | None = None
        self._buffer: Buffer | None = None
        if layer.epilogue and io.table is None:
            self._factors = residual_factors(layer, target) if len(io.operands) == 1 else None
            attrs, alone = layer.epilogue[0].attrs, len(layer.epilogue) == 1 and layer.requant.dtype == "int8"
            if alone and isinstance(attrs, DequantizeAttrs) and attrs.scale >= LEAST_SCALE:
                self._floats = attrs
            self._buffer = io.out if over else b.scratch("results", (size,), "int8")

    def place(self, first: Expr) -> Region:
        """Where to write the results from element `first` of the output on."""
        return region(self._io.out, first) if self._buffer is None else region(self._buffer)

    def finish(self, first: Expr, count: Expr | None = None) -> None:
        """Run the epilogue over the first `count` results (default: all)."""
        b, io, f = self._b, self._io, self._factors
        number = imm(self._size) if count is None else count
        if self._buffer is None:
            return
        if f is not None:
            operands = self._buffer, region(io.operands[0], first), region(io.out, first)
            b.block(ADD.block(f, self._size), *operands, *f.numbers, number)
            return
        if self._floats is not None:
            block = dequantize("int8", self._floats.zero_point)
            b.block(block, self._buffer, region(io.out, first), imm(self._floats.scale, "float32"), number)
            return
        with b.for_("i", number) as i:
            value = b.let("result", cast("int32", self._buffer.load("int8", i)))
            io.store((first + i,), value)

    def end(self) -> None:
        """Run an epilogue that is a table, over all results."""
        table = self._io.table
        if table is not None:
            self._io.index_by_bits()
            out = region(self._io.out)
            self._b.block(lut(), out, table, out, imm(prod(self._layer.out_type.shape)))

    @property
    def instructions_at_end(self) -> int:
        """Instructions of `end`."""
        return 0 if self._io.table is None else _sixteen(LUT, prod(self._layer.out_type.shape))

    @property
    def instructions(self) -> int:
        """Instructions of the epilogue for `size` results."""
        if self._buffer is None:
            return 0
        if self._factors is not None:
            return add_instructions(self._size, self._factors.lo, self._factors.hi) + 4
        if self._floats is not None:
            return dequantize_instructions(self._size)
        return EACH * len(self._layer.epilogue) * self._size

    @property
    def code(self) -> int:
        """Bytes of code."""
        if self._buffer is None:
            return 0 if self._io.table is None else 44
        return 120 if self._factors is None and self._floats is None else 60
