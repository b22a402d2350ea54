"""sum, prod, reduce_max, reduce_min, any, all and average: SUM, REDUCE_PROD, REDUCE_MAX, REDUCE_MIN, REDUCE_ANY, REDUCE_ALL and
MEAN of TFLite on plain numbers (and the extremes of quantised values, which need no arithmetic) over any constant axes.

Floats are added in the order of memory, as the reference does; integers wrap; an average of integers is cut towards zero.
Codes are added by `mean.py` and multiplied by `prod.py`.  Oracles: `reference_ops::ReduceGeneric`, `Mean`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.op.common.reduce import reduced_index, reduced_shape
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_float
from aot.te.tensor import TensorFn, reduce, reduce_axis, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, imm, maximum, minimum

NUMBERS = ("int32", "int64", "float32")
ORDERED = ("int8", "uint8", "int16", *NUMBERS)

OPERATORS = {
    "SUM": ("sum", NUMBERS),
    "MEAN": ("average", NUMBERS),
    "REDUCE_PROD": ("prod", NUMBERS),
    "REDUCE_MAX": ("reduce_max", ORDERED),
    "REDUCE_MIN": ("reduce_min", ORDERED),
    "REDUCE_ANY": ("any", ("bool",)),
    "REDUCE_ALL": ("all", ("bool",)),
}
"""TFLite operator -> relay operator, element types."""


_TYPES = dict(OPERATORS.values())
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class ReduceAttrs:
    """`kind` is the operator's name; `axes` sorted and non-negative."""

    kind: str
    axes: tuple[int, ...]
    keepdims: bool


def infer_type(types: Sequence[Type], attrs: ReduceAttrs) -> Type:
    """A tensor -> the same type without the axes, or with extent 1 in their place."""
    (data,) = tensors_of(types, 1)
    if data.dtype not in _TYPES[attrs.kind]:
        raise TypeRuleError(f"{attrs.kind} of {data}")
    return TensorType(reduced_shape(data.shape, attrs.axes, keepdims=attrs.keepdims), data.dtype, data.quant)


def start_value(kind: str, dtype: str) -> int | float:
    """What the reduction of nothing is."""
    low, high = (-_LARGEST, _LARGEST) if is_float(dtype) else int_range(dtype)
    starts = {"prod": 1, "all": 1, "reduce_max": low, "reduce_min": high}
    return float(starts.get(kind, 0)) if is_float(dtype) else starts.get(kind, 0)


def evaluate(data: Array, *, attrs: ReduceAttrs, out_type: TensorType) -> Array:
    kept = [a for a in range(data.ndim) if a not in attrs.axes]
    rows = np.transpose(data, (*kept, *attrs.axes)).reshape(out_type.size, prod(data.shape[a] for a in attrs.axes))
    start = np.full((out_type.size, 1), start_value(attrs.kind, out_type.dtype), data.dtype)
    with np.errstate(all="ignore"):
        return np.asarray(_reduced(rows, start, attrs.kind), data.dtype).reshape(out_type.shape)


def _reduced(rows: Array, start: Array, kind: str) -> Array:
    """One number for each row; floats one after the other from the start value on."""
    both = np.concatenate([start, rows], axis=1)
    simple = {"any": np.logical_or, "all": np.logical_and, "reduce_max": np.fmax, "reduce_min": np.fmin}
    if kind in simple:
        return np.asarray(simple[kind].reduce(both, axis=1))
    total: Array = (np.multiply if kind == "prod" else np.add).accumulate(both, axis=1)[:, -1]
    if kind == "average" and is_float(str(rows.dtype)):
        return np.asarray(total / np.float32(rows.shape[1]))
    if kind == "average":
        whole: Array = both.sum(axis=1, dtype=np.int64)
        down: Array = whole // rows.shape[1]
        return np.asarray(down + ((whole < 0) & (down * rows.shape[1] != whole)))
    return total


def _accumulator(kind: str, dtype: str) -> str:
    """Integers are added in unsigned types, which wrap; an average of int32 in 64 bits."""
    if kind == "average" and dtype == "int32":
        return "int64"
    return {"int32": "uint32", "int64": "uint64"}.get(dtype, dtype) if kind in ("sum", "average", "prod") else dtype


def _combine(kind: str, acc: Expr, value: Expr) -> Expr:
    match kind:
        case "any":
            return binop("||", acc, value)
        case "all":
            return binop("&&", acc, value)
        case "reduce_max":
            return maximum(value, acc)  # in this order a NaN changes nothing
        case "reduce_min":
            return minimum(value, acc)
        case "prod":
            return acc * value
        case _:
            return acc + value


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: ReduceAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args
    kind, wide = attrs.kind, _accumulator(attrs.kind, data.dtype)
    count = prod(data.shape[a] for a in attrs.axes)

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        def term(*reduced: Expr) -> Expr:
            return cast(wide, data.at(b, reduced_index(i, reduced, axes=attrs.axes, keepdims=attrs.keepdims)))

        start = imm(start_value(kind, data.dtype), wide)
        axes = [reduce_axis(data.shape[a], name="r") for a in attrs.axes]
        total = reduce(b, axes, term, combine=lambda acc, value: _combine(kind, acc, value), init=start, dtype=wide)
        if kind != "average":
            return cast(out_type.dtype, total)
        if is_float(wide):
            return total / imm(float(count), wide)
        return cast(out_type.dtype, cast("int64", total) / count)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


for _opcode, (_kind, _dtypes) in OPERATORS.items():
    register_op(
        _kind,
        1,
        arguments=[("data", "numbers, bool", "the operand")],
        attrs_type=ReduceAttrs,
        pattern=OpPattern.COMM_REDUCE,
        infer_type=infer_type,
        evaluate=evaluate,
        doc=f"{_opcode}; {', '.join(_dtypes)}, any axes",
    )
    F_TE.set(_kind, te_rule)
