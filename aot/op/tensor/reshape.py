"""reshape: RESHAPE, EXPAND_DIMS and SQUEEZE of TFLite: other dimensions over the same bytes, which costs nothing at run time.

Oracle: TFLite copies the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.convert import EVERY, ConvertContext, from_tflite, operand, unsupported
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm

Shape = tuple[int, ...]


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


@from_tflite("RESHAPE", f"{EVERY} complex64", "reshape")
@from_tflite("EXPAND_DIMS", f"{EVERY} complex64", "reshape")
@from_tflite("SQUEEZE", f"{EVERY} complex64", "reshape")
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """reshape to dimensions that follow from the operand and from constants."""
    shape = _NEW_SHAPES[op.opcode](ctx, op, ctx.input_type(op, 0).shape)
    return call("reshape", [operand(ctx, op, 0)], ReshapeAttrs(shape), span=ctx.span(op))


def _reshaped(ctx: ConvertContext, op: OperatorView, data: Shape) -> Shape:
    """Operand 1, or the option; of one -1 in it what remains is meant.  Without either, what the file declares."""
    if ctx.input(op, 1) is not None:
        wanted = [int(n) for n in ctx.constant(op, 1).ravel()]
    elif op.option("new_shape"):
        wanted = [] if tuple(op.option("new_shape")) == (0,) else list(op.option("new_shape"))  # (0,): a scalar, of old
    else:
        declared = ctx.output_shape(op)
        if declared is None:
            unsupported(ctx, op, "the new shape is missing", code="E1205")
        return declared
    known = prod(n for n in wanted if n != -1)
    if wanted.count(-1) == 1 and known > 0:
        wanted[wanted.index(-1)] = prod(data) // known
    return tuple(wanted)


def _expanded(ctx: ConvertContext, op: OperatorView, data: Shape) -> Shape:
    """One more dimension, at the axis."""
    values = ctx.constant(op, 1).ravel()
    axis = int(values[0]) if values.size == 1 else len(data) + 1
    if not -len(data) - 1 <= axis <= len(data):
        unsupported(ctx, op, f"axis {values.tolist()} of {len(data) + 1} dimensions", code="E1126")
    axis %= len(data) + 1
    return (*data[:axis], 1, *data[axis:])


def _squeezed(ctx: ConvertContext, op: OperatorView, data: Shape) -> Shape:
    """Without the dimensions that are named, or without all that are 1."""
    named = op.option("squeeze_dims")
    if any(not -len(data) <= d < len(data) or data[d] != 1 for d in named):
        unsupported(ctx, op, f"dimensions {list(named)} of shape {list(data)} are not all 1", code="E1115")
    gone = {d % len(data) for d in named} if named else {i for i, n in enumerate(data) if n == 1}
    return tuple(n for i, n in enumerate(data) if i not in gone)


_NEW_SHAPES: dict[str, Callable[[ConvertContext, OperatorView, Shape], Shape]] = {
    "RESHAPE": _reshaped,
    "EXPAND_DIMS": _expanded,
    "SQUEEZE": _squeezed,
}


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
