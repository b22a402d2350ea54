"""SOFTMAX of bytes for MVE, row by row: maximum, sum and results in vectors; the reciprocal is computed as in generic.softmax.

Exponentials are gathered from a table with increasing entries.  The base of the loads is chosen such that a quantised value is
itself the offset, and the row's maximum selects the last entry.  Negative values reach below the base, as addresses wrap modulo
2^32.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from aot.numerics.fixed_point import tir_saturating_rounding_doubling_high_mul
from aot.op.qnn.softmax import ACCUMULATION_INTEGER_BITS, SoftmaxAttrs, exp_table
from aot.relay.expr import tensor_type
from aot.support.dtype import bits, int_range
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Var, cast, imm, maximum, minimum
from aot.tir.function import FuncAttrs
from aot.tir.intrin import BlockText, TensorIntrin
from aot.topi.generic.flat import accepts_tensor
from aot.topi.generic.softmax import row_reciprocal
from aot.topi.intrin.asm_text import Operands, asm, block_of
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

RECIPROCAL = 92
"""Instructions of a row's reciprocal (estimate)."""

CODES = 256
_POINTER = "const void *aot_b;"
_BASE = ["rsb %[b], %[top], #255", "add %[b], %[t], %[b], lsl #2"]
_EXPONENTIALS = ["vldrb.s32 q0, [%[x]], #4", "vldrw.u32 q1, [%[b], q0, uxtw #2]"]


@cache
def row_sum(depth: int) -> TensorIntrin:
    """top[0] = the largest of x[:depth]; total[0] = the sum of exps[255 - top + x[i]], each rounded to 12 integer bits.

    Operands: x int8; exps int32[256], Q0.31; top int32[1] and total uint32[1], both local.
    """
    b = IRBuilder(f"softmax_sum_{depth}")
    x = b.input("x", (depth,), "int8")
    exps = b.input("exps", (CODES,), "int32", align=4)
    top, total = b.output("top", (1,), "int32"), b.output("total", (1,), "uint32")
    b.store(top, 0, -128)
    with b.for_("i", depth) as i:
        b.store(top, 0, maximum(top[0], cast("int32", x[i])))
    b.store(total, 0, 0)
    with b.for_("j", depth) as j:
        exp = cast("uint32", exps[cast("int32", x[j]) - top[0] + (CODES - 1)])
        b.store(total, 0, total[0] + ((exp + (1 << (ACCUMULATION_INTEGER_BITS - 1))) >> ACCUMULATION_INTEGER_BITS))
    text = ["mvn %[top], #127", "mov %[b], %[x]", f"movw r12, #{depth}", "dlstp.8 lr, r12"]
    text += ["1:", "vldrb.u8 q0, [%[b]], #16", "vmaxv.s8 %[top], q0", "letp lr, 1b"]
    text += [*_BASE, "dlstp.32 lr, r12", "mov r12, #0", "2:", *_EXPONENTIALS]
    text += [f"vrshr.u32 q1, q1, #{ACCUMULATION_INTEGER_BITS}", "vaddva.u32 r12, q1", "letp lr, 2b", "mov %[total], r12"]

    def emit(operands: Operands) -> BlockText:
        (largest,), (sums,) = operands["top"].scalars, operands["total"].scalars
        last = ['[b] "=&r"(aot_b)', f'[top] "=&r"({largest})', f'[total] "=r"({sums})']
        return asm(operands, text, "x *t=exps", low="x", before=[_POINTER], last=last, clobbers=["r12", "lr", "q0", "q1"])

    return block_of(b, "arm_mve", emit)


@cache
def row_results(depth: int, dtype: str, zero_point: int) -> TensorIntrin:
    """out[i] = scale * exps[255 - top + x[i]], shifted right by less + 1 with rounding, as a quantised value.

    Operands: x int8; exps as in `row_sum`; out of `dtype` (int8, int16); top; scale Q0.31; less, uint32 up to 31.
    """
    top, scale, less = Var("top"), Var("scale"), Var("less", "uint32")
    b = IRBuilder(f"softmax_results_{depth}_{dtype}")
    x = b.input("x", (depth,), "int8")
    exps = b.input("exps", (CODES,), "int32", align=4)
    out = b.output("out", (depth,), dtype)
    with b.for_("i", depth) as i:
        exp = exps[cast("int32", x[i]) - top + (CODES - 1)]
        product = cast("uint32", tir_saturating_rounding_doubling_high_mul(scale, exp))
        value = cast("int32", ((product >> less) + 1) >> 1)
        b.store(out, i, cast(dtype, minimum(value + zero_point, int_range(dtype)[1])))
    narrow = ["vadd.i32 q1, q1, %[zp]", "vqmovnb.s32 q1, q1", "vstrh.32 q1, [%[out]], #8"]
    if dtype == "int8":
        narrow = ["vqmovnb.s32 q1, q1", "vqadd.s16 q1, q1, %[zp]", "vqmovnb.s16 q1, q1", "vstrb.32 q1, [%[out]], #4"]
    text = [*_BASE, f"movw lr, #{depth}", "dlstp.32 lr, lr", "1:", *_EXPONENTIALS, "vqrdmulh.s32 q1, q1, %[scale]"]
    text += ["vrshl.s32 q1, %[s]", *narrow, "letp lr, 1b"]

    def emit(operands: Operands) -> BlockText:
        ins = {n: operands[n].value for n in ("top", "scale")} | {"s": f"~({operands['less'].value})", "zp": f"{zero_point}"}
        last, clobbers = ['[b] "=&r"(aot_b)'], ["lr", "q0", "q1"]
        return asm(operands, text, "x *t=exps >out", ins, low="x out", before=[_POINTER], last=last, clobbers=clobbers)

    return block_of(b, "arm_mve", emit, top, scale, less, ordered=True)  # data are read before their results are written


def row_instructions(depth: int, dtype: str) -> int:
    """Instructions of both blocks."""
    fours = -(-depth // 4)
    return 3 * -(-depth // 16) + fours * (5 + (9 if dtype == "int8" else 8)) + 24


def accepts(group: Group, target: Target) -> bool:
    return target.has("mve") and accepts_tensor(group, target)


def lower(group: Group, _target: Target, name: str) -> Lowered:
    type_ = tensor_type(group.anchor)
    attrs: SoftmaxAttrs = group.anchor.attrs
    depth = type_.shape[-1]
    rows = type_.size // depth
    b = IRBuilder(name)
    data, out = b.input("data", (type_.size,), "int8"), b.output("out", (type_.size,), type_.dtype)
    exps = b.const("exps", (CODES,), "int32", align=4)
    with b.for_("m", rows) as m:
        base = b.let("base", m * depth) if rows > 1 else imm(0)
        top, total = b.local("top", (1,), "int32"), b.local("total", (1,), "uint32")
        b.block(row_sum(depth), region(data, base), exps, top, total)
        scale, less = row_reciprocal(b, total[0], bits(attrs.out_dtype))
        results = row_results(depth, attrs.out_dtype, attrs.zero_point)
        b.block(results, region(data, base), exps, region(out, base), top[0], scale, less)
    func = b.finish(FuncAttrs(kernel="arm_mve.softmax", span=group.anchor.span))
    instructions = rows * (row_instructions(depth, attrs.out_dtype) + RECIPROCAL) + 12
    return Lowered(func, {exps.name: exp_table(attrs)[::-1].astype(np.int32)}, instructions, 340)


register_impl(OpImplementation("arm_mve.softmax", "qnn.softmax", accepts, lower, plevel=40))
