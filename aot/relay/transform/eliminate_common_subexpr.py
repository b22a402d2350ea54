"""Compute equal things once."""

from __future__ import annotations

from collections.abc import Hashable
from hashlib import sha256

from aot.ir.op import Op
from aot.ir.transform import PassContext, function_pass
from aot.relay.expr import Call, Constant, Expr, Function, TupleGetItem, rewrite


@function_pass(opt_level=2)
def eliminate_common_subexpr(func: Function, _context: PassContext) -> Function:
    """Merge calls of the same operator with equal attributes and operands, and constants of equal type and bytes.

    In and out: operator calls.  The first in post-order stays, with its span.  Law: operators have no effects, so equal
    operands give equal results.  Not done: calls of fused functions, commutativity.
    """
    seen: dict[Hashable, Expr] = {}

    def merged(expr: Expr) -> Expr:
        key = _key(expr)
        return expr if key is None else seen.setdefault(key, expr)

    return rewrite(func, merged)


def _key(expr: Expr) -> Hashable | None:
    """Equal for nodes that compute the same; None if nothing can be said (attributes that cannot be hashed)."""
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
