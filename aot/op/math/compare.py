"""equal, less, ...: comparisons of two tensors with broadcasting; bool.

Codes of different quantisations are brought to one scale first: rescale((x - zp) << 8) by their own scale, double rounding;
int16 only for EQUAL and NOT_EQUAL (and by TFLM, for GREATER): LESS and the like of LiteRT compare int16 values without rescaling.
Oracles: `reference_ops::BroadcastComparison4DSlowImpl`, `ComparisonWithScaling` with the parameters of `comparisons.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, register_op
from aot.ir.type import TensorType, Type
from aot.numerics.fixed_point import multiply_by_quantized_multiplier, named, tir_multiply_by_quantized_multiplier
from aot.op.common.binary import broadcast_at, broadcast_type, two_of_one_type
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast

DTYPES = ("float32", "int32", "int64", "int16", "int8", "uint8", "bool")
LEFT_SHIFT = 8


@dataclass(frozen=True, slots=True)
class Rescale:
    """(x - zero_point) << 8, times the scale."""

    zero_point: int
    multiplier: int
    shift: int


@dataclass(frozen=True, slots=True)
class CompareAttrs:
    """How codes of the operands come to one scale; None for plain numbers."""

    rescale: tuple[Rescale, Rescale] | None = None


def infer_type(types: Sequence[Type], _attrs: CompareAttrs) -> Type:
    """Two tensors of one type whose shapes broadcast -> bool."""
    a, b = two_of_one_type(list(types), "a comparison", DTYPES)
    return broadcast_type(a, b, "bool")


def _scaled(x: Array, rescale: Rescale) -> Array:
    shifted = (x.astype(np.int64) - rescale.zero_point) << LEFT_SHIFT
    return np.asarray(multiply_by_quantized_multiplier(shifted, rescale.multiplier, rescale.shift))


def _tir_scaled(b: IRBuilder, x: Expr, rescale: Rescale) -> Expr:
    shifted = named(b, "x", (cast("int32", x) - rescale.zero_point) * (1 << LEFT_SHIFT))
    return named(b, "scaled", tir_multiply_by_quantized_multiplier(b, shifted, rescale.multiplier, rescale.shift))


COMPARISONS = {
    "equal": ("==", "EQUAL"),
    "not_equal": ("!=", "NOT_EQUAL"),
    "less": ("<", "LESS"),
    "less_equal": ("<=", "LESS_EQUAL"),
    "greater": (">", "GREATER"),
    "greater_equal": (">=", "GREATER_EQUAL"),
}
"""Operator -> (in C, in TFLite)."""


def _register(name: str, symbol: str, opcode: str) -> None:
    function = getattr(np, name)

    def evaluate(a: Array, b: Array, *, attrs: CompareAttrs, out_type: TensorType) -> Array:
        if attrs.rescale is not None:
            a, b = _scaled(a, attrs.rescale[0]), _scaled(b, attrs.rescale[1])
        return np.asarray(function(a, b)).reshape(out_type.shape)

    def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: CompareAttrs, out_type: TensorType) -> TensorFn:
        def rule(b: IRBuilder, *i: Expr) -> Expr:
            x, y = broadcast_at(b, args[0], i), broadcast_at(b, args[1], i)
            if attrs.rescale is not None:
                x, y = _tir_scaled(b, x, attrs.rescale[0]), _tir_scaled(b, y, attrs.rescale[1])
            elif x.dtype == "bool":
                x, y = cast("int32", x), cast("int32", y)
            return binop(symbol, x, y)

        return tensor_fn(out_type.shape, "bool", rule)

    register_op(
        name,
        2,
        arguments=[("a", "numbers, int8", "the left operand"), ("b", "as a", "the right operand; shapes broadcast")],
        attrs_type=CompareAttrs,
        pattern=OpPattern.BROADCAST,
        infer_type=infer_type,
        evaluate=evaluate,
        doc=f"{opcode}; all types",
    )
    F_TE.set(name, te_rule)


for _name, (_symbol, _opcode) in COMPARISONS.items():
    _register(_name, _symbol, _opcode)
