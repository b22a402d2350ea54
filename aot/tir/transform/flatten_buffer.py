"""flatten_buffer: one row-major index for every access."""

from __future__ import annotations

from dataclasses import replace

from aot.ir.transform import PassContext, prim_func_pass
from aot.tir.buffer import flat_index
from aot.tir.expr import Expr, Load
from aot.tir.function import PrimFunc
from aot.tir.functor import map_children, map_expressions
from aot.tir.stmt import For, If, Stmt, Store, While


def flatten(func: PrimFunc) -> PrimFunc:
    """`func` whose loads and stores have one index each; buffers keep their shapes.

    Afterwards bounds hold for a buffer as a whole only, so run the verifier before.
    """
    return func.with_body(_body(func.body))


def _body(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    return tuple(_stmt(s) for s in body)


def _stmt(stmt: Stmt) -> Stmt:
    new = map_expressions(stmt, _expr)
    match new:
        case For(body=body):
            return replace(new, body=_body(body))
        case If(then=then, orelse=orelse):
            return replace(new, then=_body(then), orelse=_body(orelse))
        case While(test=test, body=body):
            return replace(new, test=_body(test), body=_body(body))
        case Store(buffer=buffer, indices=indices) if len(indices) != 1:
            return replace(new, indices=(flat_index(buffer, indices),))
        case _:
            return new


def _expr(expr: Expr) -> Expr:
    new = map_children(expr, _expr)
    if isinstance(new, Load) and len(new.indices) != 1:
        return replace(new, indices=(flat_index(new.buffer, new.indices),))
    return new


@prim_func_pass(opt_level=0)
def flatten_buffer(func: PrimFunc, _context: PassContext) -> PrimFunc:
    """Replace the indices of every access by one row-major index."""
    return flatten(func)
