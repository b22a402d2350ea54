"""Walking and rebuilding loop nests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from aot.tir.expr import BinOp, Call, Cast, Expr, Imm, Load, Select, Var
from aot.tir.stmt import Allocate, Block, CallPrim, For, If, Let, Region, Stmt, Store


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, outer before inner, in the order of the text."""
    for stmt in body:
        yield stmt
        for inner in bodies(stmt):
            yield from walk(inner)


def bodies(stmt: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """The bodies nested in a statement."""
    match stmt:
        case For(body=body):
            return (body,)
        case If(then=then, orelse=orelse):
            return (then, orelse)
        case _:
            return ()


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions that a statement holds itself, not those of nested bodies; a region counts by its index."""
    match stmt:
        case For(start=start, stop=stop):
            return (start, stop)
        case Store(indices=indices, value=value):
            return (*indices, value)
        case Let(value=value):
            return (value,)
        case If(cond=cond):
            return (cond,)
        case Block(operands=operands) | CallPrim(operands=operands):
            return tuple(o.index if isinstance(o, Region) else o for o in operands)
        case _:
            return ()


def children(expr: Expr) -> tuple[Expr, ...]:
    """The operands of an expression."""
    match expr:
        case BinOp(a=a, b=b):
            return (a, b)
        case Cast(value=value):
            return (value,)
        case Select(cond=cond, then=then, orelse=orelse):
            return (cond, then, orelse)
        case Load(indices=indices):
            return indices
        case Call(args=args):
            return args
        case _:
            return ()


def walk_expr(expr: Expr) -> Iterator[Expr]:
    """`expr` and everything in it, outer before inner."""
    stack = [expr]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(children(top)))


def loads(expr: Expr) -> Iterator[Load]:
    return (e for e in walk_expr(expr) if isinstance(e, Load))


def accesses(stmt: Stmt) -> Iterator[Load | Store | Region]:
    """Every use of a buffer by the statement itself: loads, its own store, regions of a block or a call."""
    for expr in expressions(stmt):
        yield from loads(expr)
    if isinstance(stmt, Store):
        yield stmt
    if isinstance(stmt, (Block, CallPrim)):
        yield from (o for o in stmt.operands if isinstance(o, Region))


def free_vars(expr: Expr) -> set[Var]:
    return {e for e in walk_expr(expr) if isinstance(e, Var)}


def map_children(expr: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """`expr` with `f` applied to its operands; the same object where nothing changed.

    Nothing is folded here: passes that want that do it in `f`.
    """
    match expr:
        case Imm() | Var():
            return expr
        case BinOp(op, a, b):
            x, y = f(a), f(b)
            return expr if x is a and y is b else BinOp(op, x, y)
        case Cast(dtype, value):
            v = f(value)
            return expr if v is value else Cast(dtype, v)
        case Select(cond, then, orelse):
            c, t, o = f(cond), f(then), f(orelse)
            return expr if c is cond and t is then and o is orelse else Select(c, t, o)
        case Load(buffer, indices, dtype):
            new = tuple(f(i) for i in indices)
            return expr if _same(new, indices) else Load(buffer, new, dtype)
        case Call(intrin, args):
            new = tuple(f(a) for a in args)
            return expr if _same(new, args) else Call(intrin, new)
        case _:
            raise TypeError(f"not an expression: {expr!r}")


def map_expressions(stmt: Stmt, f: Callable[[Expr], Expr]) -> Stmt:
    """`stmt` with `f` applied to the expressions that it holds itself; nested bodies are left alone."""
    match stmt:
        case For(start=start, stop=stop):
            return replace(stmt, start=f(start), stop=f(stop))
        case Store(indices=indices, value=value):
            return replace(stmt, indices=tuple(f(i) for i in indices), value=f(value))
        case Let(value=value):
            return replace(stmt, value=f(value))
        case If(cond=cond):
            return replace(stmt, cond=f(cond))
        case Block(operands=operands) | CallPrim(operands=operands):
            new = tuple(replace(o, index=f(o.index)) if isinstance(o, Region) else f(o) for o in operands)
            return replace(stmt, operands=new)
        case Allocate():
            return stmt
        case _:
            raise TypeError(f"not a statement: {stmt!r}")


def _same(new: tuple[Expr, ...], old: tuple[Expr, ...]) -> bool:
    return all(a is b for a, b in zip(new, old, strict=True))
