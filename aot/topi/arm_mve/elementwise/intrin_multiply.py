"""MUL of bytes, eight at a time: products of 16-bit differences, requantised as 32-bit numbers of even and odd elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var, cast, imm
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_mve.requant import RequantForm
from aot.topi.intrin.asm_text import AsmBlock, Repeat, count_instructions

LANES = 8


@dataclass(frozen=True, slots=True)
class Product:
    """The numbers of a MUL: zero points of the operands, its requantisation by `multiplier` and `shift` (not positive)."""

    zero_points: tuple[int, int]
    multiplier: int
    shift: int
    form: RequantForm


@cache
def multiply(product: Product) -> TensorIntrin:
    """out[i] = requantised((x[i] - zx) * (y[i] - zy)) of `count` elements.

    Operands: x, y, out at any address (out may be x or y), count.
    """
    count = Var("count")
    b = IRBuilder("multiply")
    x = b.input("x", (UNKNOWN_EXTENT,), "int8")
    y = b.input("y", (UNKNOWN_EXTENT,), "int8")
    out = b.output("out", (UNKNOWN_EXTENT,), "int8")
    with b.for_("i", count) as i:
        factors = [cast("int32", v[i]) - zp for v, zp in zip((x, y), product.zero_points, strict=True)]
        numbers = (imm(0), imm(product.multiplier), imm(product.shift))
        b.store(out, i, product.form.meaning(b, factors[0] * factors[1], numbers))
    desc = replace(b.finish(), scalars=(count,))
    return TensorIntrin("arm_mve.multiply", desc, lambda ops: _emit(ops, product), requires="mve", ordered=True)


def _emit(operands: Mapping[str, COperand], product: Product) -> BlockText:
    return AsmBlock(
        [
            f"const void *aot_x = {operands['x'].pointer};",
            f"const void *aot_y = {operands['y'].pointer};",
            f"void *aot_out = {operands['out'].pointer};",
            f"int32_t aot_n = {operands['count'].value};",
        ],
        text(product),
        outs=[*(f'[{n}] "+&l"(aot_{n})' for n in ("x", "y", "out")), '[n] "+&r"(aot_n)'],  # loads that widen take low registers
        ins=[
            f'[zx] "r"({-product.zero_points[0]})',
            f'[zy] "r"({-product.zero_points[1]})',
            f'[m] "r"({product.multiplier})',
            f'[s] "r"({product.shift})',
        ],
        clobbers=["r0", "lr", *(f"q{i}" for i in range(8))],
    ).emit()


def text(product: Product) -> list[str | Repeat]:
    """A loop over whole vectors, then the rest."""
    loop = ["lsr lr, %[n], #3", "wls lr, lr, 2f", "1:", *_eight(product, masked=False), "le lr, 1b", "2:"]
    rest = ["ands %[n], %[n], #7", "beq 3f", "vctp.16 %[n]", *_eight(product, masked=True), "3:"]
    return [*product.form.setup, *loop, *rest]


def _eight(product: Product, *, masked: bool) -> list[str]:
    form, pair = product.form, ("q0", "q1")
    lines = ["vpstt", "vldrbt.s16 q2, [%[x]], #8", "vldrbt.s16 q3, [%[y]], #8"]
    if not masked:
        lines = ["vldrb.s16 q2, [%[x]], #8", "vldrb.s16 q3, [%[y]], #8"]
    for q, zp, name in (("q2", product.zero_points[0], "zx"), ("q3", product.zero_points[1], "zy")):
        lines += [f"vadd.i16 {q}, {q}, %[{name}]"] if zp else []
    lines += ["vmullb.s16 q0, q2, q3", "vmullt.s16 q1, q2, q3", *(f"{form.multiply} {q}, {q}, %[m]" for q in pair)]
    for q in pair if form.ties else ():
        lines += [f"vshr.s32 q2, {q}, #31", f"vadd.i32 {q}, {q}, q2"]
    lines += [f"vrshl.s32 {q}, %[s]" for q in pair] + form.narrow
    return [*lines, *(["vpst", "vstrbt.16 q0, [%[out]], #8"] if masked else ["vstrb.16 q0, [%[out]], #8"])]


def multiply_instructions(product: Product, count: int) -> int:
    """Executed by one block."""
    whole, rest = divmod(count, LANES)
    each = len(_eight(product, masked=False)) + 1
    return count_instructions(product.form.setup) + 12 + whole * each + bool(rest) * (each + 2)


def code_bytes(product: Product) -> int:
    return 4 * count_instructions(text(product))
