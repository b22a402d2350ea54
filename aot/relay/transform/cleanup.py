"""Dead code, common subexpressions, constants: the standard clean-up passes."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from hashlib import sha256
from typing import cast

from aot.ir.op import Array, Op
from aot.ir.transform import PassContext, function_pass, register_option
from aot.ir.type import TensorType, TupleType
from aot.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, make_tuple, post_order, rewrite
from aot.relay.interpreter import call_op
from aot.relay.stored import inheriting


@function_pass(opt_level=1)
def dead_code(func: Function, _context: PassContext) -> Function:
    """Remove dead tuple fields and dead parameters of fused functions.

    In and out: any function.  A node that nothing reads is not part of the graph in the first place.  What remains: field i of an
    explicit tuple (replaced by the field itself, so that the others die), and arguments that a fused function does not use.  The
    parameters of `func` are its interface and stay.  Not done: operators with several results if one of them is unused.
    """
    return rewrite(func, _simplified)


def _simplified(expr: Expr) -> Expr:
    match expr:
        case TupleGetItem(value=Tuple(fields=fields)):
            return fields[expr.index]
        case Call(op=Function() as func):
            return _without_dead_params(expr, func)
        case _:
            return expr


def _without_dead_params(expr: Call, func: Function) -> Call:
    used = {id(e) for e in post_order(func.body)}
    alive = [(p, a) for p, a in zip(func.params, expr.args, strict=True) if id(p) in used]
    if len(alive) == len(func.params):
        return expr
    smaller = Function(tuple(p for p, _ in alive), func.body, func.attrs)
    return replace(expr, op=smaller, args=tuple(a for _, a in alive))


@function_pass(opt_level=2)
def eliminate_common_subexpr(func: Function, _context: PassContext) -> Function:
    """Merge calls of the same operator with equal attributes and operands, and constants of equal type and bytes.

    In and out: operator calls.  The first one in post-order stays, with its span.  Law: operators have no side effects, so equal
    operands give equal results.  Not done: calls of fused functions, commutativity.
    """
    seen: dict[Hashable, Expr] = {}

    def merged(expr: Expr) -> Expr:
        key = _key(expr)
        return expr if key is None else seen.setdefault(key, expr)

    return rewrite(func, merged)


def _key(expr: Expr) -> Hashable | None:
    """Equal for nodes that compute the same; None if that cannot be decided (attributes that cannot be hashed)."""
    match expr:
        case Constant():
            return ("const", expr.type, sha256(expr.data.tobytes()).digest())
        case TupleGetItem():
            return ("item", id(expr.value), expr.index)
        case Call(op=Op() as op):
            key = (op.name, expr.attrs, expr.type, tuple(id(a) for a in expr.args))
            try:
                hash(key)
            except TypeError:
                return None
            return key
        case _:
            return None


MAX_GROWTH = register_option("fold.max_growth", 1024, "bytes by which a folded result may exceed the constants it comes from")


@function_pass(opt_level=1)
def fold_constant(func: Function, context: PassContext) -> Function:
    """Replace calls whose operands are all constants by their value, computed by the operator's own `evaluate`.

    In and out: operator calls.  A call stays if its value needs over `fold.max_growth` more bytes of flash than its operands (a
    broadcast, a resize).  Calls without operands and calls of functions stay.
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
