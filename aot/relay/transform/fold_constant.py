"""Evaluate at compile time what depends on constants only."""

from __future__ import annotations

from typing import cast

from aot.ir.op import Array, Op
from aot.ir.transform import PassContext, function_pass, register_option
from aot.ir.type import TensorType, TupleType
from aot.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, make_tuple, rewrite
from aot.relay.interpreter import call_op
from aot.relay.stored import inheriting

MAX_GROWTH = register_option("fold.max_growth", 1024, "bytes by which a folded result may exceed the constants it comes from")


@function_pass(opt_level=1)
def fold_constant(func: Function, context: PassContext) -> Function:
    """Replace calls whose operands are all constants by their value, computed by the operator's own `evaluate`.

    In and out: operator calls.  A call stays where its value needs more flash than its operands by over `fold.max_growth`
    bytes (a broadcast, a resize).  Calls without operands and calls of functions stay.
    """
    limit = context.option(MAX_GROWTH.key)
    return rewrite(func, lambda expr: _folded(expr, limit))


def _folded(expr: Expr, limit: int) -> Expr:
    match expr:
        case Call(op=Op(), args=args) if args and all(isinstance(a, Constant) for a in args):
            return _value(expr, limit)
        case TupleGetItem(value=Tuple(fields=fields)) if isinstance(fields[expr.index], Constant):
            return fields[expr.index]
        case _:
            return expr


def _value(expr: Call, limit: int) -> Expr:
    arguments = [a for a in expr.args if isinstance(a, Constant)]
    size = sum(f.nbytes for f in (expr.type.fields if isinstance(expr.type, TupleType) else (expr.type,)))
    if size - sum(a.type.nbytes for a in arguments) > limit:
        return expr
    value = call_op(expr, [a.data for a in arguments])
    if isinstance(expr.type, TensorType):
        return inheriting(Constant(cast(Array, value), expr.type, expr.span), arguments)
    fields = [Constant(v, t, expr.span) for v, t in zip(value, expr.type.fields, strict=True)]
    return make_tuple(fields, span=expr.span)
