"""reshape: RESHAPE, EXPAND_DIMS and SQUEEZE of TFLite: other dimensions over the same bytes, which costs nothing at run time.

Oracle: TFLite copies the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm


@dataclass(frozen=True, slots=True)
class ReshapeAttrs:
    """The new dimensions, all of them known."""

    newshape: tuple[int, ...]


def infer_type(types: Sequence[Type], attrs: ReshapeAttrs) -> Type:
    """A tensor -> the same elements in `newshape`."""
    (data,) = types
    if not isinstance(data, TensorType) or prod(attrs.newshape) != data.size or any(n < 0 for n in attrs.newshape):
        raise TypeRuleError(f"reshape of {data} to {list(attrs.newshape)}")
    return TensorType(attrs.newshape, data.dtype, data.quant)


def evaluate(data: Array, *, attrs: ReshapeAttrs, out_type: TensorType) -> Array:
    return data.reshape(attrs.newshape)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: ReshapeAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        flat: Expr = imm(0)
        for extent, index in zip(out_type.shape, i, strict=True):
            flat = flat * extent + index
        source: list[Expr] = []
        for extent in reversed(data.shape[1:]):
            source.append(flat % extent)
            flat = flat / extent
        return data.at(b, tuple(reversed([*source, flat])) if data.shape else ())

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "reshape",
    1,
    arguments=[("data", "any", "the operand")],
    attrs_type=ReshapeAttrs,
    pattern=OpPattern.INJECTIVE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="RESHAPE, EXPAND_DIMS, SQUEEZE; no instruction at run time",
    is_view=True,
)
F_TE.set("reshape", te_rule)
