"""unroll_loop: loops of kind "unroll" become copies of their body."""

from __future__ import annotations

from dataclasses import replace

from aot.errors import internal
from aot.ir.transform import PassContext, prim_func_pass
from aot.tir.expr import Imm
from aot.tir.function import PrimFunc
from aot.tir.functor import Cloner
from aot.tir.stmt import For, If, Stmt, While


def unroll(func: PrimFunc) -> PrimFunc:
    """`func` without loops of kind "unroll"; InternalError where such a loop has bounds that are not constant.

    A body that defines names or registers is copied with new ones, so each copy stands for itself in the enclosing body.
    """
    return func.with_body(_body(func.body, where=func.name))


def _body(body: tuple[Stmt, ...], *, where: str) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in body:
        match stmt:
            case For(kind="unroll"):
                out.extend(_copies(stmt, where=where))
            case For(body=inner):
                out.append(replace(stmt, body=_body(inner, where=where)))
            case If(then=then, orelse=orelse):
                out.append(replace(stmt, then=_body(then, where=where), orelse=_body(orelse, where=where)))
            case While(test=test, body=inner):
                out.append(replace(stmt, test=_body(test, where=where), body=_body(inner, where=where)))
            case _:
                out.append(stmt)
    return tuple(out)


def _copies(loop: For, *, where: str) -> list[Stmt]:
    """Unrolled from the outside in, so that inner bounds may depend on outer variables."""
    if not isinstance(loop.start, Imm) or not isinstance(loop.stop, Imm):
        raise internal(f"the loop over {loop.var.name} is to be unrolled, but its bounds are not constant", where=where)
    out: list[Stmt] = []
    for value in range(int(loop.start.value), int(loop.stop.value), loop.step):
        copy = Cloner({loop.var: Imm(value, loop.var.dtype)}).body(loop.body)
        out.extend(_body(copy, where=where))
    return out


@prim_func_pass(opt_level=0)
def unroll_loop(func: PrimFunc, _context: PassContext) -> PrimFunc:
    """Replace loops of kind "unroll" by copies of their bodies.

    Without it they are loops of the C code as well, but for those that index registers.
    """
    return unroll(func)
