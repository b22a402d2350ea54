"""qnn.cast_sums: sums whose products with the multiplier do not fit an int32, as x86's conversion leaves them.

Stands between a fully connected layer's sums and qnn.requantize where the scales allow such products at all, which is in broken
networks only; `aot.numerics.indefinite` says what the reference makes of them and why x86 is what counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, imm, maximum, minimum, select


@dataclass(frozen=True, slots=True)
class CastSumsAttrs:
    """As in `aot.numerics.indefinite.CastSums`: one limit and bound for all sums, or for each index of the last axis."""

    limit: tuple[int, ...]
    bound: tuple[int, ...]
    sign: int

    def __post_init__(self) -> None:
        assert len(self.limit) == len(self.bound)
        assert self.sign in (1, -1)


def infer_type(types: Sequence[Type], attrs: CastSumsAttrs) -> Type:
    """int32 or int64 [..., C] -> the same type."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype not in ("int32", "int64"):
        raise TypeRuleError(f"cast_sums takes an int32 or int64 tensor, not {data}")
    if len(attrs.limit) not in (1, data.shape[-1]):
        raise TypeRuleError(f"{len(attrs.limit)} limits for {data.shape[-1]} channels")
    return data


def evaluate(data: Array, *, attrs: CastSumsAttrs, out_type: TensorType) -> Array:
    limit, bound = np.asarray(attrs.limit, np.int64), np.asarray(attrs.bound, np.int64)
    beyond = data > limit if attrs.sign > 0 else data < limit
    result: Array = np.where(beyond, -attrs.sign * bound, np.clip(data, -bound, bound)).astype(out_type.dtype)
    return result


def te_rule(ctx: TeContext, args: Sequence[TensorFn], attrs: CastSumsAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args
    limit, lowest, highest = (
        _numbers(ctx, name, values, out_type.dtype)
        for name, values in (("limit", attrs.limit), ("lowest", [-b for b in attrs.bound]), ("highest", attrs.bound))
    )

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        acc = b.let("acc", data.at(b, i))
        low, high = lowest(b, i[-1]), highest(b, i[-1])
        beyond = binop(">" if attrs.sign > 0 else "<", acc, limit(b, i[-1]))
        return select(beyond, low if attrs.sign > 0 else high, minimum(maximum(acc, low), high))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


def _numbers(ctx: TeContext, name: str, values: Sequence[int], dtype: str) -> Callable[[IRBuilder, Expr], Expr]:
    """The number for a channel: a constant, or read from a table."""
    if len(values) == 1:
        return lambda _b, _channel: imm(values[0], dtype)
    table = ctx.constant(name, np.asarray(values, dtype))
    return lambda b, channel: b.let(name, table.at(b, (channel,)))


register_op(
    "qnn.cast_sums",
    1,
    arguments=[("data", "int32, int64 [..., C]", "the sums of a layer")],
    attrs_type=CastSumsAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="sums whose products leave an int32, as x86 casts them; fully connected layers of impossible scales",
)
F_TE.set("qnn.cast_sums", te_rule)
