"""reshape: RESHAPE, EXPAND_DIMS and SQUEEZE of TFLite: other dimensions over the same bytes, which costs nothing at run time.

Oracle: TFLite copies the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.convert import EVERY, ConvertContext, from_tflite, operand, unsupported
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call
from aot.te.tensor import Tensor, compute
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


def te_rule(_ctx: TeContext, args: Sequence[Tensor], attrs: ReshapeAttrs, out_type: TensorType) -> Tensor:
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

    return compute(out_type.shape, out_type.dtype, rule)


@from_tflite("RESHAPE", EVERY, "reshape")
@from_tflite("EXPAND_DIMS", EVERY, "reshape")
@from_tflite("SQUEEZE", EVERY, "reshape")
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """reshape to the declared dimensions of the result, which the converter has computed; the new shape must be constant."""
    data, out = ctx.input_type(op, 0), ctx.output_type(op)
    if op.opcode == "RESHAPE" and ctx.input(op, 1) is not None:
        wanted = [int(n) for n in ctx.constant(op, 1).ravel()]
        known = prod(n for n in wanted if n != -1)
        if wanted.count(-1) == 1 and known > 0:
            wanted[wanted.index(-1)] = data.size // known
        if tuple(wanted) != out.shape:
            unsupported(ctx, op, f"the new shape is {wanted}, but the result is declared as {list(out.shape)}", code="E1120")
    return call("reshape", [operand(ctx, op, 0)], ReshapeAttrs(out.shape), span=ctx.span(op))


register_op(
    "reshape",
    pattern=OpPattern.INJECTIVE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="RESHAPE, EXPAND_DIMS, SQUEEZE; no instruction at run time",
    is_view=True,
)
F_TE.set("reshape", te_rule)
