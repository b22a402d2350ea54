"""flatten_buffer: one row-major index for every access."""

from __future__ import annotations

from dataclasses import replace
from operator import is_

from aot.ir.transform import PassContext, prim_func_pass
from aot.tir.buffer import flat_index
from aot.tir.expr import Expr, Imm, Load, Var
from aot.tir.function import PrimFunc
from aot.tir.functor import map_children, map_expressions
from aot.tir.stmt import For, If, Stmt, Store, While


def flatten(func: PrimFunc) -> PrimFunc:
    """`func` whose loads and stores have one index each; buffers keep their shapes.

    Afterwards bounds hold for a buffer as a whole only, so run the verifier before.
    """
    return func.with_body(_body(func.body))


def _body(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    new = tuple([_stmt(s) for s in body])
    return body if all(map(is_, new, body)) else new


def _stmt(stmt: Stmt) -> Stmt:
    new = map_expressions(stmt, _expr)
    match new:
        case For(body=body):
            inner = _body(body)
            return new if inner is body else For(new.var, new.start, new.stop, inner, new.step, new.kind)
        case If(then=then, orelse=orelse):
            return replace(new, then=_body(then), orelse=_body(orelse))
        case While(test=test, body=body):
            return replace(new, test=_body(test), body=_body(body))
        case Store(buffer=buffer, indices=indices) if len(indices) != 1:
            return Store(buffer, (flat_index(buffer, indices),), new.value, new.dtype)
        case _:
            return new


def _expr(expr: Expr) -> Expr:
    kind: type = type(expr)
    if kind is Imm or kind is Var:
        return expr
    new = map_children(expr, _expr)
    if type(new) is Load and len(new.indices) != 1:
        return Load(new.buffer, (flat_index(new.buffer, new.indices),), new.dtype)
    return new


@prim_func_pass(opt_level=0, required=True)
def flatten_buffer(func: PrimFunc, _context: PassContext) -> PrimFunc:
    """Replace the indices of every access by one row-major index."""
    return flatten(func)
