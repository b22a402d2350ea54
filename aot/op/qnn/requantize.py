"""qnn.requantize: from an accumulator to a narrow quantised type, as TFLite's kernels do it.

out = clamp(zero_point + round(acc * multiplier * 2^(shift - 31)), lo, hi) with a 31-bit multiplier and TFLite's sign of the shift
(positive shifts left).  `rounding` says how: "double" rounds twice, in the doubling high multiply and in the right shift
(gemmlowp; convolutions, and everything of TFLite Micro), "single" once with halves upwards, "away" once with halves away from
zero (TFLite's fully connected; `aot.numerics.ties` says where that is the same), with 31 further bits of the multiplier if need
be.

64-bit accumulators (int16 data with a 64-bit bias) are rounded once.  Convolutions keep 16 bits of the multiplier there,
(acc * m16 + 2^(14-shift)) >> (15-shift), which is "single" with the multiplier m16 << 16 (`reduced_multiplier`).  Either way the
result is the same for an accumulator that fits 32 bits as for the wide one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import (
    is_reduced,
    multiply_by_long_multiplier,
    multiply_by_quantized_multiplier,
    tir_multiply_by_quantized_multiplier,
    tir_multiply_long,
    tir_multiply_wide,
)
from aot.op.common.check import Clamped
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp


@dataclass(frozen=True, slots=True)
class RequantizeAttrs(Clamped):
    """One (multiplier, shift) for all, or one for each index of the last axis; the result lies in [lo, hi].

    `fraction`: 31 further bits of each multiplier, for "away" alone, or nothing.
    """

    multiplier: tuple[int, ...]
    shift: tuple[int, ...]
    zero_point: int
    lo: int
    hi: int
    rounding: str
    dtype: str = "int8"
    quant: QuantParams | None = None
    fraction: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert self.rounding in ("double", "single", "away")
        assert len(self.multiplier) == len(self.shift)
        assert not self.fraction or (self.rounding == "away" and len(self.fraction) == len(self.multiplier))

    @property
    def per_channel(self) -> bool:
        return len(self.multiplier) > 1


def infer_type(types: Sequence[Type], attrs: RequantizeAttrs) -> Type:
    """int32 or, rounded once, int64 [..., C] -> attrs.dtype of the same shape."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype not in ("int32", "int64"):
        raise TypeRuleError(f"requantize takes an int32 or int64 tensor, not {data}")
    if data.dtype == "int64" and attrs.rounding == "double":
        raise TypeRuleError("int64 accumulators are rounded once")
    if attrs.per_channel and len(attrs.multiplier) != data.shape[-1]:
        raise TypeRuleError(f"{len(attrs.multiplier)} multipliers for {data.shape[-1]} channels")
    low, high = int_range(attrs.dtype)
    if not low <= attrs.lo <= attrs.hi <= high:
        raise TypeRuleError(f"clamp range [{attrs.lo}, {attrs.hi}] outside {attrs.dtype}")
    return data.with_dtype(attrs.dtype, attrs.quant)


def evaluate(data: Array, *, attrs: RequantizeAttrs, out_type: TensorType) -> Array:
    multiplier, shift = np.asarray(attrs.multiplier, np.int64), np.asarray(attrs.shift, np.int64)
    if attrs.fraction:
        scaled = multiply_by_long_multiplier(data, multiplier, np.asarray(attrs.fraction, np.int64), shift)
    else:
        scaled = multiply_by_quantized_multiplier(data, multiplier, shift, rounding=attrs.rounding)
    return np.clip(scaled.astype(np.int64) + attrs.zero_point, attrs.lo, attrs.hi).astype(attrs.dtype)


def te_rule(ctx: TeContext, args: Sequence[TensorFn], attrs: RequantizeAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args
    if attrs.per_channel:
        multipliers = ctx.constant("multiplier", np.asarray(attrs.multiplier, np.int32))
        shifts = ctx.constant("shift", np.asarray(attrs.shift, np.int32))
        fractions = ctx.constant("fraction", np.asarray(attrs.fraction, np.int32)) if attrs.fraction else None

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        multiplier: Expr | int = multipliers.at(b, i[-1:]) if attrs.per_channel else attrs.multiplier[0]
        shift: Expr | int = shifts.at(b, i[-1:]) if attrs.per_channel else attrs.shift[0]
        acc = b.let("acc", data.at(b, i))
        if attrs.fraction:
            fraction: Expr | int = fractions.at(b, i[-1:]) if attrs.per_channel and fractions else attrs.fraction[0]
            scaled = tir_multiply_long(b, acc, multiplier, fraction=fraction, shift=shift)
        elif acc.dtype == "int64":
            reduced = is_reduced(attrs.multiplier)
            scaled = tir_multiply_wide(b, acc, multiplier, shift, reduced=reduced, rounding=attrs.rounding)
        else:
            scaled = tir_multiply_by_quantized_multiplier(b, acc, multiplier, shift, rounding=attrs.rounding)
        return cast(attrs.dtype, clamp(scaled + attrs.zero_point, attrs.lo, attrs.hi))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "qnn.requantize",
    1,
    arguments=[("data", "int32, int64 [..., C]", "the sums of a layer")],
    attrs_type=RequantizeAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="accumulator to int8 or int16, rounding as the oracle does",
)
F_TE.set("qnn.requantize", te_rule)
