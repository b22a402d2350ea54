"""qnn.add: ADD and SUB of TFLite on int8 and int16 with broadcasting (float32 and plain integers: `arithmetic.py`).

out = clamp(zp + rescale(rescale_a((a - zp_a) << n) + sign * rescale_b((b - zp_b) << n)), lo, hi), each rescale a
MultiplyByQuantizedMultiplier with double rounding; n is 20 for int8 and 15 for int16.  Oracles:
`reference_integer_ops::Add` with the parameters of `add.cc`, `reference_ops::BroadcastQuantSubSlow` with those of
`sub.cc`.  int16 with `pot_scale_int16` and scales that are powers of two (`Add` and `BroadcastSub16POTSlow`) is the
same formula with n = 1: (a << 1) * 2^-(1+s) rounds like a / 2^s.

For int8 the loop nest uses `(A*a + B*b + C) >> k` in 32 bits instead where such numbers give the same result for all
65,536 pairs: `linear_form` searches for them and keeps only what it has checked on every pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from aot.ir.op import Array, OpPattern, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import (
    Int64,
    multiply_by_quantized_multiplier,
    named,
    quantize_multiplier,
    tir_multiply_by_quantized_multiplier,
)
from aot.numerics.multipliers import precision, quotient
from aot.op.common.binary import broadcast_at, broadcast_type, two_of_one_type
from aot.op.common.check import Clamped
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp

LEFT_SHIFT = {"int8": 20, "int16": 15}
"""Bits by which the operands are scaled up before they are rescaled."""


@dataclass(frozen=True, slots=True)
class AddAttrs(Clamped):
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
    left_shift: int = LEFT_SHIFT["int8"]
    sign: int = 1


def infer_type(types: Sequence[Type], attrs: AddAttrs) -> Type:
    """Two int8 or int16 tensors whose shapes broadcast -> the same type."""
    a, b = two_of_one_type(list(types), "qnn.add", tuple(LEFT_SHIFT))
    return broadcast_type(a, b, a.dtype, attrs.quant)


def _rescaled(values: Array, attrs: AddAttrs, side: int) -> Int64:
    """One operand in the common scale, int64."""
    shifted = (values.astype(np.int64) - attrs.input_zp[side]) << attrs.left_shift
    return multiply_by_quantized_multiplier(shifted, attrs.multiplier[side], attrs.shift[side])


def evaluate(a: Array, b: Array, *, attrs: AddAttrs, out_type: TensorType) -> Array:
    total = _rescaled(a, attrs, 0) + attrs.sign * _rescaled(b, attrs, 1)
    scaled = multiply_by_quantized_multiplier(total, attrs.output_multiplier, attrs.output_shift)
    return np.clip(scaled + attrs.zero_point, attrs.lo, attrs.hi).astype(out_type.dtype)


@dataclass(frozen=True, slots=True)
class LinearForm:
    """out = clamp((a_factor*a + b_factor*b + bias) >> shift, lo, hi); no intermediate leaves int32."""

    a_factor: int
    b_factor: int
    bias: int
    shift: int


_FREE = 1 << 32
"""The result of a pair of codes that bounds no bias from one side: so far from all results that it is never the nearest."""

_FACTOR_STEPS = (0, 1, -1, 2, -2)


@lru_cache(maxsize=256)
def linear_form(attrs: AddAttrs) -> LinearForm | None:
    """Numbers, the finest that fit into 32 bits, that give ADD's result for all pairs of int8; None if none are found."""
    codes = np.arange(-128, 128, dtype=np.int64)
    type_ = TensorType((256, 256), "int8")
    wanted = evaluate(codes[:, None], codes[None, :], attrs=attrs, out_type=type_).astype(np.int64)
    if attrs.lo == attrs.hi:
        return LinearForm(0, 0, 0, 0)
    output = attrs.output_multiplier * 2.0 ** (attrs.output_shift - 31)
    reals = [attrs.multiplier[i] * 2.0 ** (attrs.shift[i] - 31 + attrs.left_shift) * output for i in range(2)]
    reals[1] *= attrs.sign
    fit = _Fit(wanted, attrs.lo, attrs.hi)
    for shift in range(22, 16, -1):
        factors = [round(r * 2.0**shift) for r in reals]
        if 256 * max(map(abs, factors)) >= 1 << 31:
            continue
        for da in _FACTOR_STEPS:
            for db in _FACTOR_STEPS:
                form = fit.form((factors[0] + da, factors[1] + db), shift)
                if form is not None:
                    return form
    return None


class _Fit:
    """Biases for one ADD: each pair of codes allows an interval of them.

    The pairs that spoilt a choice of factors mostly spoil the next one too, so they are asked before all others.
    """

    def __init__(self, wanted: Int64, lo: int, hi: int) -> None:
        self._wanted, self._codes = wanted, np.arange(-128, 128, dtype=np.int64)
        self._above, self._below = np.where(wanted > lo, wanted, -_FREE), np.where(wanted < hi, wanted, _FREE)
        self._bounded = bool((wanted > lo).any()), bool((wanted < hi).any())
        self._spoilers: tuple[list[int], list[int]] = [], []

    def form(self, factors: tuple[int, int], shift: int) -> LinearForm | None:
        """The bias that makes every pair right with these factors, if there is one."""
        if self._is_spoilt(factors, shift):
            return None
        sides = [f * self._codes for f in factors]
        sums = np.add.outer(*sides)
        least, most = (self._above << shift) - sums, (self._below << shift) - sums
        lowest = int(least.max() if self._bounded[0] else ((self._wanted << shift) - sums).min())
        highest = int(most.min()) + (1 << shift) - 1 if self._bounded[1] else lowest
        if lowest > highest:
            if self._bounded[0]:
                self._spoilers[0].append(int(least.argmax()))
                self._spoilers[1].append(int(most.argmin()))
            return None
        bias = (lowest + highest) // 2
        ends = [sum(int(end(s)) for s in sides) for end in (np.min, np.max)]
        largest = max(*(abs(end + bias) for end in ends), abs(bias) + 128 * max(map(abs, factors)))
        if largest >= 1 << 31:
            return None
        return LinearForm(*factors, bias, shift)

    def _is_spoilt(self, factors: tuple[int, int], shift: int) -> bool:
        """Whether pairs that were found before leave no bias."""
        lows, highs = ([self._low(pair, factors, shift) for pair in pairs] for pairs in self._spoilers)
        return bool(lows and highs) and max(lows) > min(highs) + (1 << shift) - 1

    def _low(self, pair: int, factors: tuple[int, int], shift: int) -> int:
        a, b = divmod(pair, 256)
        return (int(self._wanted[a, b]) << shift) - factors[0] * (a - 128) - factors[1] * (b - 128)


def _tir_rescaled(b: IRBuilder, value: Expr, attrs: AddAttrs, side: int) -> Expr:
    centred = cast("int32", value) - attrs.input_zp[side]
    multiplier, shift = attrs.multiplier[side], attrs.shift[side]
    if multiplier == 1 << 30 and -attrs.left_shift < shift <= 0:
        return centred * (1 << (attrs.left_shift - 1 + shift))  # a power of two: nothing to round
    return tir_multiply_by_quantized_multiplier(b, centred * (1 << attrs.left_shift), multiplier, shift)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: AddAttrs, out_type: TensorType) -> TensorFn:
    form = linear_form(attrs) if out_type.dtype == "int8" else None

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        x, y = (broadcast_at(b, t, i) for t in args)
        if form is not None:
            total = cast("int32", x) * form.a_factor + form.bias + cast("int32", y) * form.b_factor
            return cast("int8", clamp(total >> form.shift, attrs.lo, attrs.hi))
        left, right = _tir_rescaled(b, x, attrs, 0), _tir_rescaled(b, y, attrs, 1)
        total = named(b, "sum", left + right if attrs.sign > 0 else left - right)
        scaled = tir_multiply_by_quantized_multiplier(b, total, attrs.output_multiplier, attrs.output_shift)
        return cast(out_type.dtype, clamp(scaled + attrs.zero_point, attrs.lo, attrs.hi))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


def add_attrs(
    dtype: str,
    scales: tuple[float, ...],
    zero_points: tuple[int, ...],
    *,
    limits: tuple[int, int],
    sign: int = 1,
    quant: QuantParams | None = None,
) -> AddAttrs | None:
    """For scales and zero points of a, b and the result; None if the result's scale is too small for the operands'."""
    (scale_a, scale_b, scale), (zp_a, zp_b, zp) = scales, zero_points
    left_shift = LEFT_SHIFT[dtype]
    twice_max = 2.0 * max(scale_a, scale_b)
    how = precision("ADD" if sign > 0 else "SUB", dtype, oracle="litert")  # TFLM's is the same
    output_real = quotient((twice_max,), (2.0**left_shift, scale), how)
    if output_real >= 1:
        return None
    (m_a, s_a), (m_b, s_b) = (quantize_multiplier(quotient((x,), (twice_max,), how)) for x in (scale_a, scale_b))
    m, s = quantize_multiplier(output_real)
    return AddAttrs((zp_a, zp_b), (m_a, m_b), (s_a, s_b), m, s, zp, *limits, quant, left_shift, sign)


register_op(
    "qnn.add",
    2,
    arguments=[("a", "int8, int16", "the left operand"), ("b", "as a", "the right operand; shapes broadcast")],
    attrs_type=AddAttrs,
    pattern=OpPattern.BROADCAST,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="ADD, SUB; int8, int16, uint8, with broadcasting",
)
F_TE.set("qnn.add", te_rule)
