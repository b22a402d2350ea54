"""Element-wise operators on bytes in MVE vectors: ADD, MUL, tables, QUANTIZE between byte types, DEQUANTIZE."""

from __future__ import annotations

from functools import cache

import numpy as np

from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.op.qnn.lut import LutAttrs
from aot.op.qnn.quantize import DequantizeAttrs, Requantize8Attrs, RequantizeAttrs, evaluate_requantize8
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, numpy_dtype
from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, cast, clamp, imm
from aot.tir.intrin import BlockText, TensorIntrin
from aot.topi.arm_mve.requant import RequantForm, plan_vectors
from aot.topi.intrin.asm_text import Operands, Repeat, asm, count_instructions
from aot.topi.layer.elementwise import (
    CODES,
    AddKernel,
    Flat,
    Limits,
    RowPlan,
    Runs,
    code_of_table,
    element_block,
    match_runs,
    register_flat,
    register_rows,
)
from aot.topi.strategy import Group

LEAST = 16
"""Shortest run, in bytes, for which vectors pay off."""

# ---- ADD: four elements at a time in 32-bit lanes ----


def _limits(limits: Limits) -> list[tuple[str, str, int]]:
    """Instruction, register and value of each limit that is narrower than int8."""
    clamps = (("vmax.s8", "q3", limits.lo, -128), ("vmin.s8", "q4", limits.hi, 127))
    return [(instruction, register, value) for instruction, register, value, usual in clamps if value != usual]


def _emit_add(operands: Operands, limits: Limits) -> BlockText:
    """The loop of ADD: nine instructions per four elements, plus one for each narrower limit."""
    own = _limits(limits)
    text = [
        *(line for _, q, value in own for line in (f"mov r12, #{value & 0xFF}", f"vdup.8 {q}, r12")),
        "vdup.32 q2, %[fa]",
        "dlstp.32 lr, %[n]",
        "1:",
        "vldrb.s32 q0, [%[x]], #4",
        "vmlas.s32 q0, q2, %[bias]",
        "vldrb.s32 q1, [%[y]], #4",
        "vmla.s32 q0, q1, %[fb]",
        *([f"vshr.s32 q0, q0, #{limits.shift}"] if limits.shift else []),
        "vqmovnb.s32 q0, q0",
        "vqmovnb.s16 q0, q0",
        *(f"{instruction} q0, q0, {q}" for instruction, q, _ in own),
        "vstrb.32 q0, [%[out]], #4",
        "letp lr, 1b",
    ]
    ins = {n: operands[o].value for n, o in (("fa", "a"), ("fb", "b"), ("bias", "bias"), ("n", "count"))}
    clobbers = ["lr", "q0", "q1", "q2", *(["r12"] if own else []), *(q for _, q, _ in own)]
    return asm(operands, text, "x y >out", ins, low="x y out", clobbers=clobbers)


def add_instructions(count: int, lo: int = -128, hi: int = 127) -> int:
    """Instructions that one block executes."""
    limits = (lo != -128) + (hi != 127)
    return (9 + limits) * -(-count // 4) + 10 + 2 * limits


def _add_cost(runs: Runs, limits: Limits) -> tuple[int, int]:
    return runs.rows * (add_instructions(runs.length, limits.lo, limits.hi) + 4 * (runs.rows > 1)) + 10, 110


def _add_name(limits: Limits) -> str:
    return f"arm_mve.add_asr{limits.shift}" + f"_{limits.lo}_{limits.hi}" * limits.clamped


ADD = AddKernel("mve", LEAST, _add_name, _emit_add, _add_cost, lambda _length: 1, at="")
register_rows("arm_mve.add", "qnn.add", ADD.plan, plevel=40)

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
        for q in pair if form.ties else ():
            lines += [f"vshr.s32 q2, {q}, #31", f"vadd.i32 {q}, {q}, q2"]
        lines += [f"vrshl.s32 {q}, %[s]" for q in pair] + form.narrow
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

    return element_block("arm_mve.multiply", {"x": "int8", "y": "int8"}, "int8", element, emit, requires="mve")


def _plan_multiply(group: Group, target: Target) -> RowPlan | None:
    runs = match_runs(group, least=LEAST) if target.has("mve") else None
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
    return RowPlan(runs, multiply(product), (), (instructions, 4 * count_instructions(product.text()) + 60), at="")


register_rows("arm_mve.multiply", "qnn.multiply", _plan_multiply, plevel=40)

# ---- functions of one byte: a gather load with sixteen byte offsets ----

BYTES = ("int8", "uint8")
SAME_SCALE = (1 << 30, 1)
"""Multiplier and shift of the factor 1."""
CODE_BYTES = 44
"""Bytes of the loop and its call."""


@cache
def lut(dtype: str = "int8", out_dtype: str = "int8") -> TensorIntrin:
    """out[i] = table[uint8(x[i])] for `count` elements; both dtypes int8 or uint8.

    Operands: x, table out_dtype[256] indexed by the unsigned byte, out (may be x, or must not overlap it), count.  Four
    instructions per sixteen elements.
    """
    steps = ["vldrb.u8 q0, [%[x]], #16", "vldrb.u8 q1, [%[t], q0]", "vstrb.8 q1, [%[out]], #16"]

    def emit(operands: Operands) -> BlockText:
        clobbers = ["lr", "q0", "q1"]
        return asm(operands, _bytes(steps), "x *t=table >out", {"n": operands["count"].value}, clobbers=clobbers)

    name = f"arm_mve.lut_{dtype}_{out_dtype}"
    return element_block(name, {"x": dtype}, out_dtype, code_of_table, emit, requires="mve", table=out_dtype)


def _bytes(steps: list[str]) -> list[str]:
    """A loop over sixteen bytes at a time."""
    return ["wlstp.8 lr, %[n], 2f", "1:", *steps, "letp lr, 1b", "2:"]


def lut_instructions(count: int) -> int:
    """Instructions that one block executes."""
    return 4 * -(-count // 16) + 8


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
        """The instructions on q0."""
        lines = ["vadd.i8 q0, q0, %[half]"] if self.dtype != self.out_dtype else []
        if not self.offset:
            return lines
        if self.out_dtype == "int8":
            return [*lines, "vqadd.s8 q0, q0, %[by]"]
        return [*lines, f"{'vqadd' if self.offset > 0 else 'vqsub'}.u8 q0, q0, %[by]"]


@cache
def shift(numbers: Shift) -> TensorIntrin:
    """out[i] = clamp(x[i] + delta) to the result's type, for `count` elements.

    Operands: x, out (may be x, or must not overlap it), count.  Four or five instructions per sixteen elements.
    """
    steps, dtype = numbers.steps, numbers.out_dtype

    def element(_b: IRBuilder, x: Expr) -> Expr:
        return cast(dtype, clamp(cast("int32", x) + numbers.delta, *int_range(dtype)))

    def emit(operands: Operands) -> BlockText:
        values = {"half": "128", "by": f"{numbers.offset if dtype == 'int8' else abs(numbers.offset)}"}
        used = {name: value for name, value in values.items() if any(f"%[{name}]" in line for line in steps)}
        text = _bytes(["vldrb.u8 q0, [%[x]], #16", *steps, "vstrb.8 q0, [%[out]], #16"])
        return asm(operands, text, "x >out", {"n": operands["count"].value, **used}, clobbers=["lr", "q0"])

    name, suffix = f"arm_mve.shift_{numbers.dtype}_{dtype}", f"_{numbers.delta}"
    return element_block(name, {"x": numbers.dtype}, dtype, element, emit, requires="mve", suffix=suffix)


def _plan_bytes(data: TensorType, result: TensorType, attrs: LutAttrs | Requantize8Attrs) -> Flat | None:
    """The kernel from bytes to bytes."""
    if data.dtype not in BYTES or result.dtype not in BYTES:
        return None
    numbers = _shift(attrs, data.dtype)
    if numbers is not None:
        return Flat(shift(numbers), ((3 + len(numbers.steps)) * -(-result.size // 16) + 8, CODE_BYTES + 4))
    table = _table(attrs, data.dtype, result)
    return Flat(lut(data.dtype, result.dtype), (lut_instructions(result.size), CODE_BYTES), table=table)


def _shift(attrs: LutAttrs | Requantize8Attrs, dtype: str) -> Shift | None:
    """The addition that a change of the zero point amounts to."""
    if isinstance(attrs, LutAttrs) or (attrs.multiplier, attrs.shift) != SAME_SCALE:
        return None
    numbers = Shift(dtype, attrs.dtype, attrs.zero_point - attrs.input_zp)
    return numbers if (attrs.lo, attrs.hi) == int_range(attrs.dtype) and numbers.fits else None


def _table(attrs: LutAttrs | Requantize8Attrs, dtype: str, result: TensorType) -> Array:
    """The results for all bytes, indexed by the unsigned byte."""
    if isinstance(attrs, LutAttrs):
        return np.roll(np.asarray(attrs.table, np.int8), CODES // 2)
    codes = np.arange(CODES, dtype=np.uint8).view(numpy_dtype(dtype))
    return evaluate_requantize8(codes, attrs=attrs, out_type=TensorType((CODES,), result.dtype))


for _op in ("lut", "requantize8"):
    register_flat(f"arm_mve.{_op}", f"qnn.{_op}", _plan_bytes, needs=["mve"], least=LEAST, plevel=40)

# ---- DEQUANTIZE, four at a time ----

LEAST_SCALE = 2.0**-126
"""Vector instructions flush numbers below 2^-126 to zero; with at least this scale, no non-zero result is that small."""


@cache
def dequantize(dtype: str, zero_point: int) -> TensorIntrin:
    """out[i] = (x[i] - zp) * scale for `count` elements; dtype int8 or uint8.

    Operands: x, out float32, scale, count.
    """
    scale = Var("scale", "float32")
    text = ["wlstp.32 lr, %[n], 2f", "1:", f"vldrb.{'s32' if dtype == 'int8' else 'u32'} q0, [%[x]], #4"]
    text += ["vadd.i32 q0, q0, %[zp]"] if zero_point else []
    text += ["vcvt.f32.s32 q0, q0", "vmul.f32 q0, q0, %[scale]", "vstrw.32 q0, [%[out]], #16", "letp lr, 1b", "2:"]

    def element(_b: IRBuilder, x: Expr) -> Expr:
        return cast("float32", cast("int32", x) - zero_point) * scale

    def emit(operands: Operands) -> BlockText:
        ins = {"n": operands["count"].value, "zp": f"{-zero_point}", "scale": "aot_scale.u"}
        floats = ["union { float f; uint32_t u; } aot_scale;", f"aot_scale.f = {operands['scale'].value};"]
        return asm(operands, text, "x >out", ins, low="x", clobbers=["lr", "q0"], before=floats)

    name, suffix = f"arm_mve.dequantize_{dtype}", f"_zp{zero_point}"
    return element_block(
        name, {"x": dtype}, "float32", element, emit, requires="mve.fp", numbers=(scale,), ordered=False, suffix=suffix
    )


def dequantize_instructions(count: int) -> int:
    """Instructions that one block executes."""
    return 6 * -(-count // 4) + 14


def _plan_dequantize(data: TensorType, result: TensorType, attrs: DequantizeAttrs) -> Flat | None:
    """The kernel from bytes to float32."""
    if not isinstance(attrs, DequantizeAttrs) or data.dtype not in BYTES or attrs.scale < LEAST_SCALE:
        return None
    block, scale = dequantize(data.dtype, attrs.zero_point), imm(attrs.scale, "float32")
    return Flat(block, (dequantize_instructions(result.size), 60), (scale,))


register_flat("arm_mve.dequantize", "qnn.dequantize", _plan_dequantize, needs=["mve"], least=LEAST, plevel=40)
