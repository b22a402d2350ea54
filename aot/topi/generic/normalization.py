"""qnn.softmax16, qnn.log_softmax and qnn.l2_normalize, row by row, without scratch memory.  Integers only."""

from __future__ import annotations

import numpy as np

from aot.numerics.fixed_point import (
    INT32_MAX,
    INT32_MIN,
    tir_doubled,
    tir_inverse_sqrt,
    tir_multiply_by_quantized_multiplier,
    tir_one_over_one_plus_x,
    tir_rounding_divide_by_pot,
    tir_saturating_rounding_doubling_high_mul,
)
from aot.op.qnn.lut import tir_look_up
from aot.op.qnn.softmax import (
    ALPHA_D,
    ALPHA_F,
    ALPHA_I,
    ALPHA_N,
    FRACTION_BITS,
    LOG_2,
    LOG_INTEGER_BITS,
    OUTPUT_BITS,
    OUTPUT_ZERO_POINT,
    QUARTER,
    SQRT_HALF,
    SQRT_SQRT_HALF,
    LogSoftmaxAttrs,
    exp_table16,
    log_exp_table,
    reciprocal_table,
)
from aot.op.qnn.softmax import LOG_ACCUMULATION_BITS as LOG_SUM_BITS
from aot.te.tensor import TensorFn, elements_of
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, imm, maximum, minimum, select
from aot.topi.generic.flat import FlatKernel, register_flat
from aot.topi.generic.softmax import accepts, normalised, row_maximum


@register_flat("qnn.softmax16", accepts=accepts)
def lower_softmax16(kernel: FlatKernel) -> None:
    """Look the exponentials up twice, so that no scratch memory is needed."""
    b, (data,), out, attrs = kernel.b, kernel.args, kernel.out, kernel.attrs
    depth = kernel.shape(0)[-1]
    row = _Row(b, data, depth, attrs.multiplier, attrs.shift)
    exps = elements_of(kernel.table("exps", np.asarray(exp_table16(attrs.tables), np.int16)))
    reciprocals = elements_of(kernel.table("reciprocals", np.asarray(reciprocal_table(attrs.tables), np.int16)))
    with b.for_("m", data.size // depth) as m:
        base = b.let("base", m * depth)
        top = row_maximum(b, data, base, depth)
        total = b.local("total", (1,), "int32", init=0)
        with b.for_("c", depth) as c:
            b.store(total, 0, total[0] + row.exp(base + c, top, exps))
        scale, right = row.reciprocal(total[0], reciprocals)
        half = b.let("half", imm(1) << (right - 1))
        with b.for_("c", depth) as c:
            value = (row.exp(base + c, top, exps) * scale + half) >> right
            b.store(out, base + c, clamp(value, 0, 32767))


class _Row:
    """The steps of one row."""

    def __init__(self, b: IRBuilder, data: Buffer, depth: int, multiplier: int, shift: int) -> None:
        self.b, self.data, self.depth = b, data, depth
        self.multiplier, self.shift = multiplier, shift

    def exp(self, index: Expr, top: Expr, table: TensorFn) -> Expr:
        b = self.b
        difference = b.let("difference", cast("int32", self.data[index]) - top)
        scaled = tir_multiply_by_quantized_multiplier(b, difference, self.multiplier, self.shift)
        return b.let("exp", tir_look_up(b, clamp(scaled + 32767, -32768, 32767), table))

    def reciprocal(self, total: Expr, table: TensorFn) -> tuple[Expr, Expr]:
        """Q0.15 reciprocal of the sum's mantissa, and the final right shift, in [14, 30] for a sum in [2^14, 2^31)."""
        b = self.b
        x = b.local("mantissa", (1,), "uint32")
        zeros = b.local("zeros", (1,), "int32", init=0)
        b.store(x, 0, cast("uint32", total))
        for step in (16, 8, 4, 2, 1):
            with b.if_(x[0] < imm(1 << (32 - step), "uint32")):
                b.store(x, 0, x[0] << step)
                b.store(zeros, 0, zeros[0] + step)
        mantissa = cast("int32", ((x[0] >> 1) + (1 << 13)) >> 14)
        centred = b.let("centred", clamp(mantissa - ((1 << 15) + (1 << 16)), -32768, 32767))
        scale = b.let("scale", tir_look_up(b, centred, table))
        return scale, b.let("right", imm(31) - zeros[0])


_mul = tir_saturating_rounding_doubling_high_mul


@register_flat("qnn.log_softmax", accepts=accepts)
def lower_log_softmax(kernel: FlatKernel) -> None:
    """A table of 256 exponentials; one logarithm per row."""
    b, (data,), out, attrs = kernel.b, kernel.args, kernel.out, kernel.attrs
    depth = kernel.shape(0)[-1]
    table = kernel.table("exps", log_exp_table(attrs).astype(np.int32))
    with b.for_("m", data.size // depth) as m:
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


def _element(b: IRBuilder, out: Buffer, index: Expr, difference: Expr, *, log: Expr, limit: Expr, attrs: LogSoftmaxAttrs) -> None:
    """One result; above the limit, the difference in Q5.26 minus the logarithm fits 32 bits."""
    with b.if_(difference > limit):
        product = cast("int64", difference) * imm(attrs.multiplier << attrs.left_shift, "int64")
        scaled = cast("int32", (product + (1 << 30)) >> 31)
        code = tir_rounding_divide_by_pot(b, scaled - log, FRACTION_BITS) + OUTPUT_ZERO_POINT
        b.store(out, index, clamp(code, -128, 127))
    with b.else_():
        b.store(out, index, imm(-128))


def _log(b: IRBuilder, total: Expr) -> Expr:
    """`aot.op.qnn.softmax.log` of an int32 >= 2^19.

    After normalisation, z * sqrt(1/2) has as many leading zeros as z had, or one more; in the latter case z itself, shifted by
    that many, would saturate.
    """
    x, zeros = normalised(b, cast("uint32", total))
    half = b.let("half", cast("int32", x[0] >> 1))
    root = cast("uint32", _mul(total, imm(SQRT_HALF))) << cast("uint32", zeros[0])
    is_upper = b.let("upper", cast("int32", root >> 31))
    r = minimum(tir_doubled(b.let("lower", _mul(half, imm(SQRT_HALF)))), select(is_upper > 0, half, imm(INT32_MAX)))
    r = b.let("r", r)
    unit = 1 << (31 - LOG_INTEGER_BITS)
    whole = (imm(LOG_SUM_BITS) - zeros[0]) * unit
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


@register_flat("qnn.l2_normalize", name="l2_normalization", accepts=accepts)
def lower_l2(kernel: FlatKernel) -> None:
    """One inverse square root per row."""
    b, (data,), out, attrs = kernel.b, kernel.args, kernel.out, kernel.attrs
    depth = kernel.shape(0)[-1]
    with b.for_("m", data.size // depth) as m:
        base = b.let("base", m * depth)
        total = b.local("total", (1,), "int32", init=0)
        with b.for_("c", depth) as c:
            x = b.let("x", cast("int32", data[base + c]) - attrs.input_zp)
            b.store(total, 0, total[0] + x * x)
        multiplier, shift = tir_inverse_sqrt(b, total[0])
        left = b.let("left", shift + (OUTPUT_BITS - attrs.left_shift))
        with b.for_("c", depth) as c:
            x = (cast("int32", data[base + c]) - attrs.input_zp) * (1 << attrs.left_shift)
            scaled = tir_multiply_by_quantized_multiplier(b, x, multiplier, left)
            b.store(out, base + c, clamp(scaled, -128, 127))
