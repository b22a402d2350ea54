"""What operators that move data share: their element types, constant operands, axes."""

from __future__ import annotations

from collections.abc import Sequence

from aot.frontend.view import OperatorView
from aot.ir.op import TypeRuleError
from aot.ir.span import Span
from aot.ir.type import TensorType, Type
from aot.op.convert import EVERY, ConvertContext, unsupported
from aot.op.tensor.reshape import ReshapeAttrs
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call, tensor_type
from aot.te.tensor import TensorFn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, imm

MOVABLE = tuple(EVERY.split())
"""Element types that movement of data takes: bytes are copied, whatever they mean."""

INDEX_TYPES = ("int16", "int32", "int64")


def constant_ints(ctx: ConvertContext, op: OperatorView, i: int) -> list[int]:
    """Operand i, a constant, as a flat list."""
    return [int(n) for n in ctx.constant(op, i).ravel()]


def one_int(ctx: ConvertContext, op: OperatorView, i: int) -> int:
    """Operand i, a constant of one element (E1122 otherwise)."""
    values = constant_ints(ctx, op, i)
    if len(values) != 1:
        unsupported(ctx, op, f"operand {i} must be a scalar, but has {len(values)} elements", code="E1130")
    return values[0]


def normalized_axis(ctx: ConvertContext, op: OperatorView, axis: int, rank: int) -> int:
    """`axis` counted from the front; E1122 if there is no such dimension."""
    if not -rank <= axis < rank:
        unsupported(ctx, op, f"axis {axis} is out of range for {rank} dimensions", code="E1126")
    return axis % rank


def reshaped(expr: RelayExpr, shape: Sequence[int], span: Span) -> RelayExpr:
    """`expr` reshaped; unchanged if the shape matches."""
    if tensor_type(expr).shape == tuple(shape):
        return expr
    return call("reshape", [expr], ReshapeAttrs(tuple(shape)), span=span)


def tensors_of(types: Sequence[Type], count: int) -> list[TensorType]:
    """The operands' types, which must be `count` single tensors."""
    found = [t for t in types if isinstance(t, TensorType)]
    if len(found) != count or len(types) != count:
        raise TypeRuleError(f"{count} tensors are expected, not {', '.join(map(str, types))}")
    return found


def broadcast_index(data: TensorFn, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The element of `data` that belongs to element `indices` of a result it is broadcast to."""
    own = indices[len(indices) - len(data.shape) :]
    return tuple(imm(0) if extent == 1 else i for extent, i in zip(data.shape, own, strict=True))


def clamped_index(b: IRBuilder, value: Expr, extent: int) -> Expr:
    """An index that comes from data, brought into [0, extent): whatever the data say, no access leaves the tensor.

    The reference reports an error instead; there is nobody to report to here.
    """
    return b.let("index", cast("int32", clamp(value, 0, extent - 1)))
