"""qnn.softmax row by row: a table of 256 exponentials, one reciprocal per row, no scratch memory.  Integers only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from aot.numerics.fixed_point import (
    named,
    tir_exp_on_negative_values,
    tir_one_over_one_plus_x,
    tir_saturating_rounding_doubling_high_mul,
)
from aot.op.qnn.softmax import ACCUMULATION_INTEGER_BITS, SoftmaxAttrs, exp_table
from aot.relay.expr import Var
from aot.support.dtype import bits, int_range
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, maximum, minimum, select
from aot.tir.function import PrimFunc
from aot.topi.generic.flat import FlatKernel, flat_kernel
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

TAKES, TAKES_V6M = (34, 100), (90, 450)
"""Instructions per element and per row, from counts under QEMU; 64-bit products are calls on Armv6-M."""

_mul = tir_saturating_rounding_doubling_high_mul


def accepts(group: Group, _target: Target) -> bool:
    return not group.followers and isinstance(group.anchor.args[0], Var) and len(group.params) == 1


def lower(group: Group, target: Target, name: str) -> Lowered:
    kernel = flat_kernel(group, name)
    table = kernel.table("exps", exp_table(kernel.attrs).astype(np.int32))
    depth = _rows(kernel, lambda below: table[below])
    each, row = TAKES_V6M if target.has("v6m") else TAKES
    # Its bytes of code are not stated, as MAIN_CODE of the budgets includes them.
    return replace(kernel.finish("softmax"), instructions=kernel.out.size // depth * (each * depth + row))


def without_table(group: Group, name: str) -> PrimFunc:
    """The same kernel with each exponential computed: slower, but without constants."""
    kernel = flat_kernel(group, name)
    b, attrs = kernel.b, kernel.attrs

    def exp(below: Expr) -> Expr:
        code = named(b, "below", below)
        scaled = _mul(minimum(code, -attrs.diff_min) * -(1 << attrs.left_shift), imm(attrs.multiplier))
        return select(code <= -attrs.diff_min, tir_exp_on_negative_values(b, scaled), imm(0))

    _rows(kernel, exp)
    return kernel.finish("softmax").func


Exp = Callable[[Expr], Expr]
"""Q0.31 exponential of the value that is so far below the largest."""


def _rows(kernel: FlatKernel, exp: Exp) -> int:
    """All rows; return the elements of one."""
    b, (data,), depth = kernel.b, kernel.args, kernel.shape(0)[-1]
    if data.size == depth:
        _row(b, data, kernel.out, exp, attrs=kernel.attrs, base=imm(0), depth=depth)
        return depth
    with b.for_("m", data.size // depth) as m:
        _row(b, data, kernel.out, exp, attrs=kernel.attrs, base=b.let("base", m * depth), depth=depth)
    return depth


def row_maximum(b: IRBuilder, data: Buffer, base: Expr, depth: int) -> Expr:
    """The largest of `depth` values (int8 or int16) from `base` on, as int32."""
    largest = b.local("largest", (1,), "int32", init=int_range(data.dtype)[0])
    with b.for_("c", depth) as c:
        b.store(largest, 0, maximum(largest[0], cast("int32", data[base + c])))
    return b.let("top", largest[0])


def _row(b: IRBuilder, data: Buffer, out: Buffer, exp_of: Exp, *, attrs: SoftmaxAttrs, base: Expr, depth: int) -> None:
    top = row_maximum(b, data, base, depth)
    total = b.local("total", (1,), "uint32", init=0)
    rounding = 1 << (ACCUMULATION_INTEGER_BITS - 1)
    with b.for_("c", depth) as c:
        exp = cast("uint32", exp_of(top - cast("int32", data[base + c])))
        b.store(total, 0, total[0] + ((exp + rounding) >> ACCUMULATION_INTEGER_BITS))
    scale, shift = row_reciprocal(b, total[0], bits(attrs.out_dtype))
    with b.for_("c", depth) as c:
        exp = exp_of(top - cast("int32", data[base + c]))
        # (v + 2^(n-1)) >> n as ((v >> (n-1)) + 1) >> 1, which cannot overflow
        value = cast("int32", ((cast("uint32", _mul(scale, exp)) >> shift) + 1) >> 1)
        b.store(out, base + c, minimum(value + attrs.zero_point, int_range(attrs.out_dtype)[1]))


def normalised(b: IRBuilder, total: Expr) -> tuple[Buffer, Buffer]:
    """A uint32 >= 2^16 shifted left until its highest bit is set, and its number of leading zeros (int32)."""
    x = b.local("mantissa", (1,), "uint32")
    b.store(x, 0, total)
    zeros = b.local("zeros", (1,), "int32", init=0)
    for step in (8, 4, 2, 1):
        with b.if_(x[0] < imm(1 << (32 - step), "uint32")):
            b.store(x, 0, x[0] << step)
            b.store(zeros, 0, zeros[0] + step)
    return x, zeros


def row_reciprocal(b: IRBuilder, total: Expr, places: int) -> tuple[Expr, Expr]:
    """GetReciprocal of a sum >= 2^19: Q0.31 mantissa (int32), and the final right shift to `places` bits minus one (uint32, at
    most 31).
    """
    x, zeros = normalised(b, total)
    mantissa = tir_one_over_one_plus_x(b, b.let("half", cast("int32", x[0] >> 1)))
    shift = b.let("shift", minimum(imm(ACCUMULATION_INTEGER_BITS + 31 - places - 1) - zeros[0], 31))
    return mantissa, cast("uint32", shift)


register_impl(OpImplementation("generic.softmax", "qnn.softmax", accepts, lower))
