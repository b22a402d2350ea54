"""qnn.add: ADD of TFLite on int8 with broadcasting.

out = clamp(zp + rescale(rescale_a((a - zp_a) << 20) + rescale_b((b - zp_b) << 20)), lo, hi), each rescale a
MultiplyByQuantizedMultiplier with double rounding.  Oracle: `reference_integer_ops::Add` with the parameters of `add.cc`.

The loop nest uses `(A*a + B*b + C) >> k` in 32 bits instead where such numbers give the same result for all 65,536 pairs:
`linear_form` searches for them and keeps only what it has checked on every pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.op._check import fused_range, narrowed, require_dtype, require_quant
from aot.op._fixed_point import (
    Int64,
    multiply_by_quantized_multiplier,
    named,
    quantize_multiplier,
    tir_multiply_by_quantized_multiplier,
)
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call
from aot.te.tensor import Tensor, compute
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, imm

LEFT_SHIFT = 20
"""Bits by which the operands are scaled up before they are rescaled."""


@dataclass(frozen=True, slots=True)
class AddAttrs:
    """Zero point, multiplier and shift of each operand and of the result; the clamp [lo, hi]; the result's parameters."""

    input_zp: tuple[int, int]
    multiplier: tuple[int, int]
    shift: tuple[int, int]
    output_multiplier: int
    output_shift: int
    zero_point: int
    lo: int
    hi: int
    quant: QuantParams | None = None

    def clipped(self, lo: int, hi: int) -> AddAttrs:
        """The same followed by a clamp to [lo, hi]."""
        new_lo, new_hi = narrowed(lo, hi, inner=(self.lo, self.hi))
        return replace(self, lo=new_lo, hi=new_hi)


def infer_type(types: Sequence[Type], attrs: AddAttrs) -> Type:
    """Two int8 tensors whose shapes broadcast -> int8."""
    a, b = types
    if not isinstance(a, TensorType) or not isinstance(b, TensorType) or (a.dtype, b.dtype) != ("int8", "int8"):
        raise TypeRuleError(f"qnn.add takes two int8 tensors, not {a} and {b}")
    try:
        shape = np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise TypeRuleError(f"shapes of {a} and {b} do not broadcast") from None
    return TensorType(tuple(map(int, shape)), "int8", attrs.quant)


def _rescaled(values: Array, attrs: AddAttrs, side: int) -> Int64:
    """One operand in the common scale, int64."""
    shifted = (values.astype(np.int64) - attrs.input_zp[side]) << LEFT_SHIFT
    return multiply_by_quantized_multiplier(shifted, attrs.multiplier[side], attrs.shift[side])


def evaluate(a: Array, b: Array, *, attrs: AddAttrs, out_type: TensorType) -> Array:
    total = _rescaled(a, attrs, 0) + _rescaled(b, attrs, 1)
    scaled = multiply_by_quantized_multiplier(total, attrs.output_multiplier, attrs.output_shift)
    return np.clip(scaled + attrs.zero_point, attrs.lo, attrs.hi).astype(np.int8)


@dataclass(frozen=True, slots=True)
class LinearForm:
    """out = clamp((a_factor*a + b_factor*b + bias) >> shift, lo, hi); no intermediate leaves int32."""

    a_factor: int
    b_factor: int
    bias: int
    shift: int


_FACTOR_STEPS = (0, 1, -1, 2, -2)


@lru_cache(maxsize=256)
def linear_form(attrs: AddAttrs) -> LinearForm | None:
    """Numbers, the finest that fit into 32 bits, that give ADD's result for all pairs of int8; None where none are found."""
    codes = np.arange(-128, 128, dtype=np.int64)
    type_ = TensorType((256, 256), "int8")
    wanted = evaluate(codes[:, None], codes[None, :], attrs=attrs, out_type=type_).astype(np.int64)
    if attrs.lo == attrs.hi:
        return LinearForm(0, 0, 0, 0)
    output = attrs.output_multiplier * 2.0 ** (attrs.output_shift - 31)
    reals = [attrs.multiplier[i] * 2.0 ** (attrs.shift[i] - 31 + LEFT_SHIFT) * output for i in range(2)]
    for shift in range(22, 16, -1):
        factors = [round(r * 2.0**shift) for r in reals]
        if 256 * max(factors) >= 1 << 31:
            continue
        for da in _FACTOR_STEPS:
            for db in _FACTOR_STEPS:
                form = _fit_bias(wanted, (factors[0] + da, factors[1] + db), shift=shift, limits=(attrs.lo, attrs.hi))
                if form is not None:
                    return form
    return None


def _fit_bias(wanted: Int64, factors: tuple[int, int], *, shift: int, limits: tuple[int, int]) -> LinearForm | None:
    """The bias that makes every pair right with these factors, if there is one: each pair allows an interval of it."""
    codes = np.arange(-128, 128, dtype=np.int64)
    sums = factors[0] * codes[:, None] + factors[1] * codes[None, :]
    low = (wanted << shift) - sums
    above, below = wanted > limits[0], wanted < limits[1]
    lowest = int(low[above].max()) if above.any() else int(low.min())
    highest = int(low[below].min()) + (1 << shift) - 1 if below.any() else lowest
    if lowest > highest:
        return None
    bias = (lowest + highest) // 2
    largest = max(abs(int(sums.min()) + bias), abs(int(sums.max()) + bias), abs(bias) + 128 * max(map(abs, factors)))
    if largest >= 1 << 31:
        return None
    return LinearForm(*factors, bias, shift)


def broadcast_at(b: IRBuilder, data: Tensor, indices: tuple[Expr, ...]) -> Expr:
    """The element of `data` that belongs to element `indices` of the broadcast result."""
    own = indices[len(indices) - len(data.shape) :]
    return data.at(b, tuple(imm(0) if extent == 1 else i for extent, i in zip(data.shape, own, strict=True)))


def _tir_rescaled(b: IRBuilder, value: Expr, attrs: AddAttrs, side: int) -> Expr:
    centred = cast("int32", value) - attrs.input_zp[side]
    multiplier, shift = attrs.multiplier[side], attrs.shift[side]
    if multiplier == 1 << 30 and -LEFT_SHIFT < shift <= 0:
        return centred * (1 << (LEFT_SHIFT - 1 + shift))  # a power of two: nothing to round
    return tir_multiply_by_quantized_multiplier(b, centred * (1 << LEFT_SHIFT), multiplier, shift)


def te_rule(_ctx: TeContext, args: Sequence[Tensor], attrs: AddAttrs, out_type: TensorType) -> Tensor:
    form = linear_form(attrs)

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        x, y = (broadcast_at(b, t, i) for t in args)
        if form is not None:
            total = cast("int32", x) * form.a_factor + form.bias + cast("int32", y) * form.b_factor
            return cast("int8", clamp(total >> form.shift, attrs.lo, attrs.hi))
        total = named(b, "sum", _tir_rescaled(b, x, attrs, 0) + _tir_rescaled(b, y, attrs, 1))
        scaled = tir_multiply_by_quantized_multiplier(b, total, attrs.output_multiplier, attrs.output_shift)
        return cast("int8", clamp(scaled + attrs.zero_point, attrs.lo, attrs.hi))

    return compute(out_type.shape, out_type.dtype, rule)


@from_tflite("ADD")
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """qnn.add; the multipliers in double precision as AddPrepare computes them."""
    types = (ctx.input_type(op, 0), ctx.input_type(op, 1), ctx.output_type(op))
    for type_ in types:
        require_dtype(ctx, op, type_, {"int8"})
    (scale_a, zp_a), (scale_b, zp_b), (scale, zp) = (require_quant(ctx, op, t) for t in types)
    twice_max = 2.0 * max(scale_a, scale_b)
    output_real = twice_max / ((1 << LEFT_SHIFT) * scale)
    if output_real >= 1:
        unsupported(ctx, op, "the output's scale is too small for the inputs' scales", code="E1206")
    (m_a, s_a), (m_b, s_b) = quantize_multiplier(scale_a / twice_max), quantize_multiplier(scale_b / twice_max)
    m, s = quantize_multiplier(output_real)
    lo, hi = fused_range(ctx, op, types[2])
    attrs = AddAttrs((zp_a, zp_b), (m_a, m_b), (s_a, s_b), m, s, zp, lo, hi, types[2].quant)
    return call("qnn.add", [operand(ctx, op, 0), operand(ctx, op, 1)], attrs, span=ctx.span(op))


register_op("qnn.add", pattern=OpPattern.BROADCAST, infer_type=infer_type, evaluate=evaluate, doc="ADD; int8, with broadcasting")
F_TE.set("qnn.add", te_rule)
