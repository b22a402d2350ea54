"""Walking and rebuilding loop nests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import is_
from typing import Any

from aot.tir.buffer import Buffer
from aot.tir.expr import BinOp, Call, Cast, Expr, Imm, Load, Select, Var, binop, cast, select
from aot.tir.function import PrimFunc
from aot.tir.stmt import Allocate, Block, CallPrim, For, If, Let, Region, Stmt, Store, While


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, outer before inner, in program order."""
    for stmt in body:
        yield stmt
        kind: type = type(stmt)
        if kind is For:
            yield from walk(stmt.body)  # type: ignore[union-attr]
        elif kind is If or kind is While:
            for inner in bodies(stmt):
                yield from walk(inner)


def has_calls(func: PrimFunc) -> bool:
    """Whether a function calls others."""
    return any(isinstance(stmt, CallPrim) for stmt in walk(func.body))


Callees = dict[str, tuple[str, tuple[Expr, ...]]]
"""Name of a called function -> the function to call instead, and its extra operands."""


def with_callees(func: PrimFunc, callees: Callees) -> PrimFunc:
    """`func` with its calls redirected by `callees`; calls that `callees` does not name stay."""

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, CallPrim) and s.func in callees:
            new, added = callees[s.func]
            return replace(s, func=new, operands=(*s.operands, *added))
        return map_bodies(s, lambda body: tuple(map(stmt, body)))

    return func.with_body(tuple(map(stmt, func.body)))


def bodies(stmt: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """The bodies nested in a statement."""
    match stmt:
        case For(body=body):
            return (body,)
        case If(then=then, orelse=orelse):
            return (then, orelse)
        case While(test=test, body=body):
            return (test, body)
        case _:
            return ()


def map_bodies(stmt: Stmt, f: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]) -> Stmt:
    """`stmt` with `f` applied to the bodies nested in it, in program order; the same object if nothing changed."""
    match stmt:
        case For(body=body):
            new = f(body)
            return stmt if new is body else For(stmt.var, stmt.start, stmt.stop, new, stmt.step, stmt.kind)
        case If(cond, then, orelse):
            t, o = f(then), f(orelse)
            return stmt if t is then and o is orelse else If(cond, t, o)
        case While(test, cond, body, limit):
            t, new = f(test), f(body)
            return stmt if t is test and new is body else While(t, cond, new, limit)
        case _:
            return stmt


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions in a statement itself, excluding nested bodies; a region counts by its index."""
    return _EXPRESSIONS[type(stmt)](stmt)


def _operands(stmt: Block | CallPrim) -> tuple[Expr, ...]:
    return tuple([o.index if type(o) is Region else o for o in stmt.operands])  # type: ignore[misc]


_EXPRESSIONS: dict[type, Callable[[Any], tuple[Expr, ...]]] = {
    For: lambda s: (s.start, s.stop),
    Store: lambda s: (*s.indices, s.value),
    Let: lambda s: (s.value,),
    If: lambda s: (s.cond,),
    While: lambda s: (s.cond,),
    Block: _operands,
    CallPrim: _operands,
    Allocate: lambda _: (),
}


_CHILDREN: dict[type, Callable[[Any], tuple[Expr, ...]]] = {
    Imm: lambda _: (),
    Var: lambda _: (),
    BinOp: lambda e: (e.a, e.b),
    Cast: lambda e: (e.value,),
    Select: lambda e: (e.cond, e.then, e.orelse),
    Load: lambda e: e.indices,
    Call: lambda e: e.args,
}
"""By type: `match` would test one class after the other in the innermost loop of every pass."""


def children(expr: Expr) -> tuple[Expr, ...]:
    """The operands of an expression."""
    return _CHILDREN[type(expr)](expr)


def walk_expr(expr: Expr) -> Iterator[Expr]:
    """`expr` and everything in it, outer before inner."""
    stack: list[Expr] = [expr]
    while stack:
        top = stack.pop()
        yield top
        kind: type = type(top)
        if kind is BinOp:
            stack += (top.b, top.a)  # type: ignore[union-attr]
        elif kind is not Imm and kind is not Var:
            stack += _CHILDREN[kind](top)[::-1]


def loads(expr: Expr) -> Iterator[Load]:
    return (e for e in walk_expr(expr) if isinstance(e, Load))


def accesses(stmt: Stmt) -> list[Load | Store | Region]:
    """Every use of a buffer by the statement itself: loads, its own store, regions of a block or a call."""
    uses: list[Load | Store | Region] = []
    stack = list(expressions(stmt)[::-1])
    while stack:
        top = stack.pop()
        kind: type = type(top)
        if kind is BinOp:
            stack += (top.b, top.a)  # type: ignore[union-attr]
        elif kind is not Imm and kind is not Var:
            if kind is Load:
                uses.append(top)  # type: ignore[arg-type]
            stack += _CHILDREN[kind](top)[::-1]
    if isinstance(stmt, Store):
        uses.append(stmt)
    elif isinstance(stmt, (Block, CallPrim)):
        uses += [o for o in stmt.operands if isinstance(o, Region)]
    return uses


def free_vars(expr: Expr) -> set[Var]:
    return {e for e in walk_expr(expr) if isinstance(e, Var)}


def map_children(expr: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """`expr` with `f` applied to its operands and constants folded; the same object if nothing changed."""
    kind: type = type(expr)  # `match` would test one class after the other in the innermost loop of every pass
    if kind is Imm or kind is Var:
        return expr
    if kind is BinOp:
        a, b = expr.a, expr.b  # type: ignore[union-attr]
        x, y = f(a), f(b)
        return expr if x is a and y is b else binop(expr.op, x, y)  # type: ignore[union-attr]
    old = children(expr)
    new = tuple([f(e) for e in old])
    return expr if _same(new, old) else _REBUILT[kind](expr, new)


_REBUILT: dict[type, Callable[[Any, tuple[Expr, ...]], Expr]] = {
    Cast: lambda e, new: cast(e.dtype, *new),
    Select: lambda _, new: select(*new),
    Load: lambda e, new: Load(e.buffer, new, e.dtype),
    Call: lambda e, new: Call(e.intrin, new),
}
"""By type: the expression over other operands, with constants folded."""


def map_expressions(stmt: Stmt, f: Callable[[Expr], Expr]) -> Stmt:
    """`stmt` with `f` applied to the expressions in the statement itself; nested bodies are left alone.

    Returns the same object if nothing changed.
    """
    match stmt:
        case Store(buffer, indices, value, dtype):
            places, v = tuple([f(i) for i in indices]), f(value)
            return stmt if v is value and _same(places, indices) else Store(buffer, places, v, dtype)
        case Let(var, value):
            v = f(value)
            return stmt if v is value else Let(var, v)
        case For(start=start, stop=stop):
            a, b = f(start), f(stop)
            return stmt if a is start and b is stop else For(stmt.var, a, b, stmt.body, stmt.step, stmt.kind)
        case If(cond, then, orelse):
            c = f(cond)
            return stmt if c is cond else If(c, then, orelse)
        case While(cond=cond):
            c = f(cond)
            return stmt if c is cond else replace(stmt, cond=c)
        case Block(operands=operands) | CallPrim(operands=operands):
            new = tuple([_map_operand(o, f) for o in operands])
            return stmt if all(map(is_, new, operands)) else replace(stmt, operands=new)
        case Allocate():
            return stmt
        case _:
            raise TypeError(f"not a statement: {stmt!r}")


def _map_operand(operand: Region | Expr, f: Callable[[Expr], Expr]) -> Region | Expr:
    if not isinstance(operand, Region):
        return f(operand)
    index = f(operand.index)
    return operand if index is operand.index else replace(operand, index=index)


def _same(new: tuple[Expr, ...], old: tuple[Expr, ...]) -> bool:
    return all(map(is_, new, old))


class Cloner:
    """Copies bodies, replacing variables by expressions and buffers by buffers.

    Whatever the copied statements define (loop variables, lets, local buffers) becomes a new object with the same name, so that a
    body can be copied into one function several times.
    """

    def __init__(self, variables: Mapping[Var, Expr] | None = None, buffers: Mapping[Buffer, Buffer] | None = None) -> None:
        self.variables: dict[Var, Expr] = dict(variables or {})
        self.buffers: dict[Buffer, Buffer] = dict(buffers or {})

    def body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(self.stmt(s) for s in body)

    def stmt(self, stmt: Stmt) -> Stmt:
        new = map_expressions(stmt, self.expr)
        match new:
            case For(var=var, body=body):
                fresh = self._fresh(var)
                return replace(new, var=fresh, body=self.body(body))
            case If() | While():
                return map_bodies(new, self.body)
            case Let(var=var):
                return replace(new, var=self._fresh(var))
            case Allocate(buffer=buffer):
                self.buffers[buffer] = replace(buffer)
                return Allocate(self.buffers[buffer])
            case Store(buffer=buffer):
                return replace(new, buffer=self.buffers.get(buffer, buffer))
            case Block(operands=operands) | CallPrim(operands=operands):
                return replace(new, operands=tuple(self._operand(o) for o in operands))
        raise TypeError(f"not a statement: {stmt!r}")

    def expr(self, expr: Expr) -> Expr:
        if isinstance(expr, Var):
            return self.variables.get(expr, expr)
        new = map_children(expr, self.expr)
        if isinstance(new, Load) and new.buffer in self.buffers:
            return replace(new, buffer=self.buffers[new.buffer])
        return new

    def _fresh(self, var: Var) -> Var:
        fresh = Var(var.name, var.dtype)
        self.variables[var] = fresh
        return fresh

    def _operand(self, operand: Region | Expr) -> Region | Expr:
        if isinstance(operand, Region):
            return replace(operand, buffer=self.buffers.get(operand.buffer, operand.buffer))
        return operand
