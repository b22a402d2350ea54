"""qnn.log_softmax row by row: a table of 256 exponentials, one logarithm a row, no scratch.  Integers only."""

from __future__ import annotations

import numpy as np

from aot.ir.type import TensorType
from aot.numerics.fixed_point import (
    INT32_MAX,
    INT32_MIN,
    tir_doubled,
    tir_multiply_by_quantized_multiplier,
    tir_one_over_one_plus_x,
    tir_rounding_divide_by_pot,
    tir_saturating_rounding_doubling_high_mul,
)
from aot.op.qnn.log_softmax import (
    ACCUMULATION_INTEGER_BITS,
    ALPHA_D,
    ALPHA_F,
    ALPHA_I,
    ALPHA_N,
    FRACTION_BITS,
    LOG_2,
    LOG_INTEGER_BITS,
    OUTPUT_ZERO_POINT,
    QUARTER,
    SQRT_HALF,
    SQRT_SQRT_HALF,
    LogSoftmaxAttrs,
    exp_table,
)
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, imm, maximum, minimum, select
from aot.tir.function import FuncAttrs
from aot.topi.generic.softmax import accepts, normalised, row_maximum
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

_mul = tir_saturating_rounding_doubling_high_mul


def lower(group: Group, _target: Target, name: str) -> Lowered:
    type_, attrs = group.anchor.type, group.anchor.attrs
    assert isinstance(type_, TensorType)
    depth = type_.shape[-1]
    b = IRBuilder(name)
    data, out = b.input("data", (type_.size,), "int8"), b.output("out", (type_.size,), "int8")
    table = b.const("exps", (256,), "int32")
    with b.for_("m", type_.size // depth) as m:
        base = b.let("base", m * depth)
        top = row_maximum(b, data, base, depth)
        total = b.local("total", (1,), "int32", init=0)
        with b.for_("c", depth) as c:
            b.store(total, 0, total[0] + table[top - cast("int32", data[base + c])])
        log = b.let("log", _log(b, total[0]))
        back = tir_multiply_by_quantized_multiplier(b, log + INT32_MIN, attrs.reverse_multiplier, attrs.reverse_shift)
        limit = b.let("limit", maximum(back, attrs.diff_min - 1))
        with b.for_("c", depth) as c:
            difference = b.let("difference", cast("int32", data[base + c]) - top)
            _element(b, out, base + c, difference, log=log, limit=limit, attrs=attrs)
    func = b.finish(FuncAttrs(kernel="generic.log_softmax", span=group.anchor.span))
    return Lowered(func, {table.name: exp_table(attrs).astype(np.int32)})


def _element(b: IRBuilder, out: Buffer, index: Expr, difference: Expr, *, log: Expr, limit: Expr, attrs: LogSoftmaxAttrs) -> None:
    """One result; above the limit the difference in Q5.26 less the logarithm stays in 32 bits."""
    with b.if_(difference > limit):
        product = cast("int64", difference) * imm(attrs.multiplier << attrs.left_shift, "int64")
        scaled = cast("int32", (product + (1 << 30)) >> 31)
        code = tir_rounding_divide_by_pot(b, scaled - log, FRACTION_BITS) + OUTPUT_ZERO_POINT
        b.store(out, index, clamp(code, -128, 127))
    with b.else_():
        b.store(out, index, imm(-128))


def _log(b: IRBuilder, total: Expr) -> Expr:
    """`aot.op.qnn.log_softmax.log` of an int32 >= 2^19.

    With the leading zeros gone, z * sqrt(1/2) has either as many as z had or one more; in the second case z itself, shifted by as
    many, would saturate.
    """
    x, zeros = normalised(b, cast("uint32", total))
    half = b.let("half", cast("int32", x[0] >> 1))
    root = cast("uint32", _mul(total, imm(SQRT_HALF))) << cast("uint32", zeros[0])
    is_upper = b.let("upper", cast("int32", root >> 31))
    r = minimum(tir_doubled(b.let("lower", _mul(half, imm(SQRT_HALF)))), select(is_upper > 0, half, imm(INT32_MAX)))
    r = b.let("r", r)
    unit = 1 << (31 - LOG_INTEGER_BITS)
    whole = (imm(ACCUMULATION_INTEGER_BITS) - zeros[0]) * unit
    power = b.let("power", whole + select(is_upper > 0, imm(unit - QUARTER), imm(QUARTER)))
    p = b.let("p", cast("int32", (cast("uint32", r) + (SQRT_SQRT_HALF + 1)) >> 1))
    q = b.let("q", (r - SQRT_SQRT_HALF) * 2)
    square = b.let("square", _mul(q, q))
    numerator = _mul(q, r) + _mul(_mul(q, square), imm(ALPHA_N))
    denominator = _mul(p, q + ALPHA_I + _mul(square, imm(ALPHA_D))) + _mul(q, imm(ALPHA_F))
    half_sum = b.let("half", cast("int32", (cast("uint32", denominator) + imm(1 << 31, "uint32")) >> 1))
    quotient = tir_one_over_one_plus_x(b, half_sum)
    small = tir_rounding_divide_by_pot(b, numerator, LOG_INTEGER_BITS)
    return (_mul(power, imm(LOG_2)) + _mul(small, quotient)) * 2


register_impl(OpImplementation("generic.log_softmax", "qnn.log_softmax", accepts, lower))
