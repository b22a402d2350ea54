"""select: SELECT and SELECT_V2 of TFLite: out = cond ? a : b, with broadcasting.

Oracles: `reference_ops::Select`, `RankOneSelect`, `BroadcastSelect5DSlow`; data of any type are moved, never rescaled.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.op.common.move import broadcast_index, tensors_of
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr


@dataclass(frozen=True, slots=True)
class SelectAttrs:
    """The result's parameters."""

    quant: QuantParams | None = None


def infer_type(types: Sequence[Type], attrs: SelectAttrs) -> Type:
    """bool, T, T whose shapes broadcast -> T."""
    cond, a, b = tensors_of(types, 3)
    if cond.dtype != "bool" or a.dtype != b.dtype:
        raise TypeRuleError(f"select by {cond} of {a} and {b}")
    try:
        shape = np.broadcast_shapes(cond.shape, a.shape, b.shape)
    except ValueError:
        raise TypeRuleError(f"shapes of {cond}, {a} and {b} do not broadcast") from None
    return TensorType(tuple(map(int, shape)), a.dtype, attrs.quant)


def evaluate(cond: Array, a: Array, b: Array, *, attrs: SelectAttrs, out_type: TensorType) -> Array:
    return np.where(cond, a, b)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: SelectAttrs, out_type: TensorType) -> TensorFn:
    cond, x, y = args

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        # branches and not a select: only the chosen operand is computed
        value = b.local("value", (1,), out_type.dtype)
        with b.if_(cond.at(b, broadcast_index(cond, i))):
            b.store(value, 0, x.at(b, broadcast_index(x, i)))
        with b.else_():
            b.store(value, 0, y.at(b, broadcast_index(y, i)))
        return value[0]

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "select",
    3,
    arguments=[
        ("cond", "bool", "which"),
        ("a", "any", "the values where it is true"),
        ("b", "as a", "the values where it is false"),
    ],
    attrs_type=SelectAttrs,
    pattern=OpPattern.BROADCAST,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="SELECT, SELECT_V2; with broadcasting",
)
F_TE.set("select", te_rule)
