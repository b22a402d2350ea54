"""Drop what no output depends on."""

from __future__ import annotations

from dataclasses import replace

from aot.ir.transform import PassContext, function_pass
from aot.relay.expr import Call, Expr, Function, Tuple, TupleGetItem, post_order, rewrite


@function_pass(opt_level=1)
def dead_code(func: Function, _context: PassContext) -> Function:
    """Remove dead tuple fields and dead parameters of fused functions.

    In and out: any function.  A node that nothing reads is not part of the graph in the first place; what remains to do is
    field i of a tuple that is spelled out (it is that field, and the others die), and arguments that a fused function does
    not use. The parameters of `func` itself are its interface and stay.  Not done: operators with several results of which
    one is unused.
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
