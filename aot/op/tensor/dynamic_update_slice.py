"""dynamic_update_slice: DYNAMIC_UPDATE_SLICE of TFLite: the data with a part replaced, its place known at run time.

The part always lies inside: its first position is brought into [0, extent - part] in each dimension.
Oracle: `kernels/dynamic_update_slice.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import F_DOMAIN, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import clamped_index, tensors_of
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Imm, imm, logical_and


@dataclass(frozen=True, slots=True)
class DynamicUpdateSliceAttrs:
    """No attributes: the shapes determine everything."""


def infer_type(types: Sequence[Type], attrs: DynamicUpdateSliceAttrs) -> Type:
    """data, a part of the same rank that is no larger, int32 or int64 start positions [rank] -> the data's type."""
    data, update, start = tensors_of(types, 3)
    fits = update.dtype == data.dtype and len(update.shape) == len(data.shape) and start.shape == (len(data.shape),)
    if not fits or start.dtype not in ("int32", "int64") or any(u > n for u, n in zip(update.shape, data.shape, strict=True)):
        raise TypeRuleError(f"dynamic_update_slice of {data} by {update} at {start}")
    return data


def evaluate(data: Array, update: Array, start: Array, *, attrs: DynamicUpdateSliceAttrs, out_type: TensorType) -> Array:
    out = data.copy()
    first = [int(np.clip(s, 0, n - u)) for s, n, u in zip(start, data.shape, update.shape, strict=True)]
    out[tuple(slice(f, f + u) for f, u in zip(first, update.shape, strict=True))] = update
    return out


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: DynamicUpdateSliceAttrs, out_type: TensorType) -> TensorFn:
    data, update, start = args

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        inside: Expr = imm(1, "bool")
        source = []
        for axis, (n, u) in enumerate(zip(data.shape, update.shape, strict=True)):
            if n == u:
                source.append(i[axis])
                continue
            first = clamped_index(b, start.at(b, (imm(axis),)), n - u + 1)
            source.append(i[axis] - first)
            within = logical_and(i[axis] >= first, i[axis] < first + u)
            inside = within if isinstance(inside, Imm) else logical_and(inside, within)
        value = b.local("value", (1,), out_type.dtype)
        with b.if_(inside):
            b.store(value, 0, update.at(b, tuple(source)))
        with b.else_():
            b.store(value, 0, data.at(b, i))
        return value[0]

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "dynamic_update_slice",
    3,
    arguments=[
        ("data", "any", "the tensor"),
        ("update", "as data", "what is put into it"),
        ("start", "int32, int64 [rank]", "where, at run time"),
    ],
    attrs_type=DynamicUpdateSliceAttrs,
    pattern=OpPattern.INJECTIVE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="DYNAMIC_UPDATE_SLICE; position at run time",
)
F_TE.set("dynamic_update_slice", te_rule)


def domain(types: Sequence[Type], _attrs: DynamicUpdateSliceAttrs) -> dict[int, tuple[float, float]]:
    """Any position is taken, and moved inside; these are inside in every dimension that has room."""
    data, update, _ = tensors_of(types, 3)
    return {2: (0, max(n - u for n, u in zip((*data.shape, 0), (*update.shape, 0), strict=True)))}


F_DOMAIN.set("dynamic_update_slice", domain)
