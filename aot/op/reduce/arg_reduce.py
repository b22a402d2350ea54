"""argmax and argmin: ARG_MAX and ARG_MIN of TFLite: the first position of the largest or smallest element along one axis.

Oracle: `reference_ops::ArgMinMax`.  A NaN is passed over: the first of the largest numbers counts, and position 0 where there is
none.  TFLM compares with `>` and `<` alone, so that a NaN in the first place stays.

The limit: along the last axis (or before axes of one element), from four elements on, LiteRT's x86 build uses the NEON form of
the kernel with the pairwise minimum of ARMv7, which lets a NaN through, so that it contradicts itself along other axes and on
AArch64 (a comment there calls it a limitation); its result, which depends on the lane of the NaN, is not reproduced.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.numerics.fixed_point import named
from aot.op.common.move import tensors_of
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.support.dtype import is_float, numpy_dtype
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, equal, imm, logical_and


@dataclass(frozen=True, slots=True)
class ArgReduceAttrs:
    """The axis, which the result lacks; whether the largest is looked for; the type of positions; whether NaN are passed over."""

    axis: int
    largest: bool
    dtype: str = "int32"
    passes_nan: bool = False


def infer_type(types: Sequence[Type], attrs: ArgReduceAttrs) -> Type:
    """A tensor -> positions in the shape without the axis."""
    (data,) = tensors_of(types, 1)
    if not 0 <= attrs.axis < len(data.shape) or not data.shape[attrs.axis]:
        raise TypeRuleError(f"the extreme position along axis {attrs.axis} of {data}")
    return TensorType((*data.shape[: attrs.axis], *data.shape[attrs.axis + 1 :]), attrs.dtype)


def evaluate(data: Array, *, attrs: ArgReduceAttrs, out_type: TensorType) -> Array:
    if is_float(str(data.dtype)):  # numpy stops at a NaN
        return _first_extreme(data, attrs)
    found = np.argmax(data, attrs.axis) if attrs.largest else np.argmin(data, attrs.axis)
    return np.asarray(found, numpy_dtype(attrs.dtype))


def _first_extreme(data: Array, attrs: ArgReduceAttrs) -> Array:
    """The position after going through the axis and keeping what is beyond the best one so far."""
    moved = np.moveaxis(data, attrs.axis, 0)
    best, found = moved[0], np.zeros(moved.shape[1:], numpy_dtype(attrs.dtype))
    for k, value in enumerate(moved):
        better = value > best if attrs.largest else value < best
        if attrs.passes_nan:
            better |= np.isnan(best) & ~np.isnan(value)
        best, found = np.where(better, value, best), np.where(better, found.dtype.type(k), found)
    return np.asarray(found)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: ArgReduceAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args
    axis = attrs.axis

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        def element(k: Expr) -> Expr:
            return data.at(b, (*i[:axis], k, *i[axis:]))

        best = b.local("best", (1,), data.dtype, init=element(imm(0)))
        where = b.local("where", (1,), attrs.dtype, init=0)
        with b.for_("k", data.shape[axis], start=1) as k:
            value = named(b, "value", element(k))
            better = value > best[0] if attrs.largest else value < best[0]
            if attrs.passes_nan:  # a NaN is not equal to itself
                better = binop("||", better, logical_and(binop("!=", best[0], best[0]), equal(value, value)))
            with b.if_(better):
                b.store(best, 0, value)
                b.store(where, 0, k)
        return where[0]

    return tensor_fn(out_type.shape, out_type.dtype, rule)


for _name in ("argmax", "argmin"):
    register_op(
        _name,
        1,
        arguments=[("data", "numbers", "the operand")],
        attrs_type=ArgReduceAttrs,
        pattern=OpPattern.COMM_REDUCE,
        infer_type=infer_type,
        evaluate=evaluate,
        doc=f"{_name[:3].upper()}_{_name[3:].upper()}; one constant axis; a NaN is ignored (with a limit, see its file)",
    )
    F_TE.set(_name, te_rule)
