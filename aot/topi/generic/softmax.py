"""qnn.softmax, softmax16, log_softmax and l2_normalize, row by row, without scratch memory.  Integers only."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from aot.numerics import fixed_point
from aot.numerics.fixed_point import tir_saturating_rounding_doubling_high_mul as _mul
from aot.op.qnn import softmax as op
from aot.op.qnn.lut import tir_look_up
from aot.support.dtype import bits, int_range
from aot.te.tensor import TensorFn, elements_of
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, imm, maximum, minimum, select
from aot.tir.function import PrimFunc
from aot.topi.generic.flat import Cost, FlatKernel, accepts_tensor, flat_kernel, register_flat, summed
from aot.topi.strategy import Group

TAKES, TAKES_V6M = (34, 100), (90, 450)
"""Instructions per element and per row, from counts under QEMU; 64-bit products are calls on Armv6-M."""


def _rows(kernel: FlatKernel) -> Iterator[Expr]:
    """Loop over rows of the last dimension: where each begins."""
    with kernel.b.for_("m", kernel.args[0].size // kernel.shape(0)[-1]) as m:
        yield kernel.b.let("base", m * kernel.shape(0)[-1])


def row_maximum(b: IRBuilder, data: Buffer, base: Expr, depth: int) -> Expr:
    """The largest of `depth` values (int8 or int16) from `base` on, as int32."""
    largest = b.local("largest", (1,), "int32", init=int_range(data.dtype)[0])
    with b.for_("c", depth) as c:
        b.store(largest, 0, maximum(largest[0], cast("int32", data[base + c])))
    return b.let("top", largest[0])


@register_flat("qnn.softmax", accepts=accepts_tensor)
def lower_softmax(kernel: FlatKernel) -> Cost:
    """A table of 256 exponentials; one reciprocal per row."""
    table = kernel.table("exps", op.exp_table(kernel.attrs).astype(np.int32))
    depth = _softmax(kernel, lambda below: table[below])
    each, row = TAKES_V6M if kernel.on("v6m") else TAKES
    # Its bytes of code are not stated, as MAIN_CODE of the budgets includes them.
    return Cost(instructions=kernel.out.size // depth * (each * depth + row))


def without_table(group: Group, name: str) -> PrimFunc:
    """The same kernel with each exponential computed: slower, but without constants."""
    kernel = flat_kernel(group, name)
    b, attrs = kernel.b, kernel.attrs

    def exp(below: Expr) -> Expr:
        code = fixed_point.named(b, "below", below)
        scaled = _mul(minimum(code, -attrs.diff_min) * -(1 << attrs.left_shift), imm(attrs.multiplier))
        return select(code <= -attrs.diff_min, fixed_point.tir_exp_on_negative_values(b, scaled), imm(0))

    _softmax(kernel, exp)
    return kernel.finish("softmax").func


def _softmax(kernel: FlatKernel, exp_of: Callable[[Expr], Expr]) -> int:
    """All rows; return the elements of one.  `exp_of`: Q0.31 exponential of the value that is so far below the largest."""
    b, (data,), out, attrs, depth = kernel.b, kernel.args, kernel.out, kernel.attrs, kernel.shape(0)[-1]
    rounding = 1 << (op.ACCUMULATION_INTEGER_BITS - 1)
    for base in [imm(0)] if data.size == depth else _rows(kernel):
        top = row_maximum(b, data, base, depth)

        def rounded(c: Expr, base: Expr = base, top: Expr = top) -> Expr:
            exp = cast("uint32", exp_of(top - cast("int32", data[base + c])))
            return (exp + rounding) >> op.ACCUMULATION_INTEGER_BITS

        scale, shift = row_reciprocal(b, summed(b, "c", depth, rounded, dtype="uint32"), bits(attrs.out_dtype))
        with b.for_("c", depth) as c:
            exp = exp_of(top - cast("int32", data[base + c]))
            # (v + 2^(n-1)) >> n as ((v >> (n-1)) + 1) >> 1, which cannot overflow
            value = cast("int32", ((cast("uint32", _mul(scale, exp)) >> shift) + 1) >> 1)
            b.store(out, base + c, minimum(value + attrs.zero_point, int_range(attrs.out_dtype)[1]))
    return depth


def _shift_up(b: IRBuilder, x: Buffer, zeros: Buffer, *steps: int) -> None:
    """Shift a uint32 left until its highest bit is set, and add the number of its leading zeros."""
    for step in steps:
        with b.if_(x[0] < imm(1 << (32 - step), "uint32")):
            b.store(x, 0, x[0] << step)
            b.store(zeros, 0, zeros[0] + step)


def normalised(b: IRBuilder, total: Expr) -> tuple[Buffer, Buffer]:
    """A uint32 >= 2^16 shifted left until its highest bit is set, and its number of leading zeros (int32)."""
    x = b.local("mantissa", (1,), "uint32")
    b.store(x, 0, total)
    zeros = b.local("zeros", (1,), "int32", init=0)
    _shift_up(b, x, zeros, 8, 4, 2, 1)
    return x, zeros


def row_reciprocal(b: IRBuilder, total: Expr, places: int) -> tuple[Expr, Expr]:
    """GetReciprocal of a sum >= 2^19: Q0.31 mantissa (int32), and the final right shift to `places` bits minus one (uint32, at
    most 31).
    """
    x, zeros = normalised(b, total)
    mantissa = fixed_point.tir_one_over_one_plus_x(b, b.let("half", cast("int32", x[0] >> 1)))
    shift = b.let("shift", minimum(imm(op.ACCUMULATION_INTEGER_BITS + 31 - places - 1) - zeros[0], 31))
    return mantissa, cast("uint32", shift)


@register_flat("qnn.softmax16", accepts=accepts_tensor)
def lower_softmax16(kernel: FlatKernel) -> None:
    """Look the exponentials up twice, so that no scratch memory is needed."""
    b, (data,), out, attrs, depth = kernel.b, kernel.args, kernel.out, kernel.attrs, kernel.shape(0)[-1]
    exps = elements_of(kernel.table("exps", np.asarray(op.exp_table16(attrs.tables), np.int16)))
    reciprocals = elements_of(kernel.table("reciprocals", np.asarray(op.reciprocal_table(attrs.tables), np.int16)))

    def exp(index: Expr, top: Expr) -> Expr:
        difference = b.let("difference", cast("int32", data[index]) - top)
        scaled = fixed_point.tir_multiply_by_quantized_multiplier(b, difference, attrs.multiplier, attrs.shift)
        return b.let("exp", tir_look_up(b, clamp(scaled + 32767, -32768, 32767), exps))

    for base in _rows(kernel):
        top = row_maximum(b, data, base, depth)
        total = summed(b, "c", depth, lambda c, base=base, top=top: exp(base + c, top), dtype="int32")  # type: ignore[misc]
        scale, right = _reciprocal16(b, total, reciprocals)
        half = b.let("half", imm(1) << (right - 1))
        with b.for_("c", depth) as c:
            value = (exp(base + c, top) * scale + half) >> right
            b.store(out, base + c, clamp(value, 0, 32767))


def _reciprocal16(b: IRBuilder, total: Expr, table: TensorFn) -> tuple[Expr, Expr]:
    """Q0.15 reciprocal of the sum's mantissa, and the final right shift, in [14, 30] for a sum in [2^14, 2^31)."""
    x, zeros = b.local("mantissa", (1,), "uint32"), b.local("zeros", (1,), "int32", init=0)
    b.store(x, 0, cast("uint32", total))
    _shift_up(b, x, zeros, 16, 8, 4, 2, 1)
    mantissa = cast("int32", ((x[0] >> 1) + (1 << 13)) >> 14)
    centred = b.let("centred", clamp(mantissa - ((1 << 15) + (1 << 16)), -32768, 32767))
    scale = b.let("scale", tir_look_up(b, centred, table))
    return scale, b.let("right", imm(31) - zeros[0])


@register_flat("qnn.log_softmax", accepts=accepts_tensor)
def lower_log_softmax(kernel: FlatKernel) -> None:
    """A table of 256 exponentials; one logarithm per row."""
    b, (data,), out, attrs, depth = kernel.b, kernel.args, kernel.out, kernel.attrs, kernel.shape(0)[-1]
    table = kernel.table("exps", op.log_exp_table(attrs).astype(np.int32))
    for base in _rows(kernel):
        top = row_maximum(b, data, base, depth)
        below = lambda c, base=base, top=top: table[top - cast("int32", data[base + c])]  # noqa: E731
        log = b.let("log", _log(b, summed(b, "c", depth, below, dtype="int32")))
        back = fixed_point.tir_multiply_by_quantized_multiplier(
            b, log + fixed_point.INT32_MIN, attrs.reverse_multiplier, attrs.reverse_shift
        )
        limit = b.let("limit", maximum(back, attrs.diff_min - 1))
        with b.for_("c", depth) as c:
            difference = b.let("difference", cast("int32", data[base + c]) - top)
            with b.if_(difference > limit):  # then the difference in Q5.26 minus the logarithm fits 32 bits
                product = cast("int64", difference) * imm(attrs.multiplier << attrs.left_shift, "int64")
                scaled = cast("int32", (product + (1 << 30)) >> 31)
                code = fixed_point.tir_rounding_divide_by_pot(b, scaled - log, op.FRACTION_BITS) + op.OUTPUT_ZERO_POINT
                b.store(out, base + c, clamp(code, -128, 127))
            with b.else_():
                b.store(out, base + c, imm(-128))


def _log(b: IRBuilder, total: Expr) -> Expr:
    """`aot.op.qnn.softmax.log` of an int32 >= 2^19.

    After normalisation, z * sqrt(1/2) has as many leading zeros as z had, or one more; in the latter case z itself, shifted by
    that many, would saturate.
    """
    x, zeros = normalised(b, cast("uint32", total))
    half = b.let("half", cast("int32", x[0] >> 1))
    root = cast("uint32", _mul(total, imm(op.SQRT_HALF))) << cast("uint32", zeros[0])
    is_upper = b.let("upper", cast("int32", root >> 31))
    r = minimum(
        fixed_point.tir_doubled(b.let("lower", _mul(half, imm(op.SQRT_HALF)))),
        select(is_upper > 0, half, imm(fixed_point.INT32_MAX)),
    )
    r = b.let("r", r)
    unit = 1 << (31 - op.LOG_INTEGER_BITS)
    whole = (imm(op.LOG_ACCUMULATION_BITS) - zeros[0]) * unit
    power = b.let("power", whole + select(is_upper > 0, imm(unit - op.QUARTER), imm(op.QUARTER)))
    p = b.let("p", cast("int32", (cast("uint32", r) + (op.SQRT_SQRT_HALF + 1)) >> 1))
    q = b.let("q", (r - op.SQRT_SQRT_HALF) * 2)
    square = b.let("square", _mul(q, q))
    numerator = _mul(q, r) + _mul(_mul(q, square), imm(op.ALPHA_N))
    denominator = _mul(p, q + op.ALPHA_I + _mul(square, imm(op.ALPHA_D))) + _mul(q, imm(op.ALPHA_F))
    half_sum = b.let("half", cast("int32", (cast("uint32", denominator) + imm(1 << 31, "uint32")) >> 1))
    quotient = fixed_point.tir_one_over_one_plus_x(b, half_sum)
    small = fixed_point.tir_rounding_divide_by_pot(b, numerator, op.LOG_INTEGER_BITS)
    return (_mul(power, imm(op.LOG_2)) + _mul(small, quotient)) * 2


@register_flat("qnn.l2_normalize", name="l2_normalization", accepts=accepts_tensor)
def lower_l2(kernel: FlatKernel) -> None:
    """One inverse square root per row."""
    b, (data,), out, attrs, depth = kernel.b, kernel.args, kernel.out, kernel.attrs, kernel.shape(0)[-1]
    for base in _rows(kernel):

        def square(c: Expr, base: Expr = base) -> Expr:
            x = b.let("x", cast("int32", data[base + c]) - attrs.input_zp)
            return x * x

        multiplier, shift = fixed_point.tir_inverse_sqrt(b, summed(b, "c", depth, square, dtype="int32"))
        left = b.let("left", shift + (op.OUTPUT_BITS - attrs.left_shift))
        with b.for_("c", depth) as c:
            x = (cast("int32", data[base + c]) - attrs.input_zp) * (1 << attrs.left_shift)
            scaled = fixed_point.tir_multiply_by_quantized_multiplier(b, x, multiplier, left)
            b.store(out, base + c, clamp(scaled, -128, 127))
