"""Schedule: loop transformations as primitives, each of which checks that it preserves the meaning.

    s = Schedule(func)
    outer, inner = s.split(s.loop("c"), 4)
    s.unroll(inner)
    func = s.func

A loop is named by its variable.  A primitive that refuses raises ScheduleError and leaves the schedule unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from aot.errors import Problem, UsageError
from aot.tir.expr import BinOp, Expr, Imm, Load, Var
from aot.tir.function import PrimFunc
from aot.tir.functor import Cloner, accesses, free_vars, loads, map_bodies, walk
from aot.tir.stmt import Allocate, Block, CallPrim, For, If, Let, Stmt, Store

Tail = Literal["exact", "loop", "guard"]

_COMMUTATIVE = frozenset({"+", "min", "max", "&", "|", "^"})


class ScheduleError(UsageError):
    """A primitive was asked for something that it cannot prove correct (E5040)."""

    def __init__(self, message: str, where: str) -> None:
        super().__init__(Problem("E5040", message, where))


class Schedule:
    """The transformations of one PrimFunc so far; `func` is the result."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func

    def loops(self) -> list[Var]:
        """The loop variables, outer before inner, in program order."""
        return [s.var for s in walk(self.func.body) if isinstance(s, For)]

    def loop(self, name: str) -> Var:
        """The loop whose variable has this name; ScheduleError if there is none or more than one."""
        loops = [v for v in self.loops() if v.name == name]
        if len(loops) != 1:
            raise ScheduleError(f"{len(loops)} loops are named {name}", self.func.name)
        return loops[0]

    def split(self, loop: Var, factor: int, tail: Tail = "exact") -> tuple[Var, Var]:
        """Replace a loop of n iterations by n / factor outer and `factor` inner ones; return both variables.

        If factor does not divide n, `tail` decides: "exact" refuses, "loop" runs the remaining iterations in a loop of their own,
        "guard" puts the body under a condition.  Bounds must be constant.  ScheduleError E5040 if refused.  The order of
        iterations does not change, so no other check is needed.

        `tail`: what to do with an incomplete last round."""
        node = self._find(loop)
        start, extent = self._extent(node)
        if factor < 1:
            raise ScheduleError(f"a factor of {factor}; it must be at least 1", self._where(loop))
        full, remainder = divmod(extent, factor)
        if remainder and tail == "exact":
            raise ScheduleError(f"{factor} does not divide the {extent} iterations", self._where(loop))
        outer, inner = Var(f"{loop.name}_o", loop.dtype), Var(f"{loop.name}_i", loop.dtype)
        body = Cloner({loop: (outer * factor + inner) * node.step + start}).body(node.body)
        if remainder and tail == "guard":
            body = (If((outer * factor + inner) < extent, body),)
            full += 1
        nest = For(inner, Imm(0, loop.dtype), Imm(factor, loop.dtype), body)
        new: list[Stmt] = [For(outer, Imm(0, loop.dtype), Imm(full, loop.dtype), (nest,))]
        if remainder and tail == "loop":
            last = Var(f"{loop.name}_t", loop.dtype)
            low, high = start + full * factor * node.step, start + extent * node.step
            body = Cloner({loop: last}).body(node.body)
            new.append(For(last, Imm(low, loop.dtype), Imm(high, loop.dtype), body, node.step))
        self._replace(node, tuple(new))
        return outer, inner

    def fuse(self, outer: Var, inner: Var) -> Var:
        """Fuse two perfectly nested loops with constant bounds into one; return its variable.

        `outer`, `inner`: the loops' variables.
        """
        a, b = self._nested(outer, inner)
        (a_start, a_extent), (b_start, b_extent) = self._extent(a), self._extent(b)
        fused = Var(f"{outer.name}_{inner.name}", outer.dtype)
        places = {outer: fused / b_extent * a.step + a_start, inner: fused % b_extent * b.step + b_start}
        body = Cloner(places).body(b.body)
        self._replace(a, (For(fused, Imm(0, outer.dtype), Imm(a_extent * b_extent, outer.dtype), body),))
        return fused

    def reorder(self, outer: Var, inner: Var) -> None:
        """Exchange two perfectly nested loops.

        Refused (ScheduleError E5040) unless the order of iterations cannot matter: each buffer that the body writes is written at
        only one place, and either the body never reads it and all iterations of both loops write different elements, or it is
        read only to be updated by a commutative operator at that same place.  Blocks and calls are refused.

        `outer`, `inner`: the loops' variables.
        """
        a, b = self._nested(outer, inner)
        if outer in free_vars(b.start) | free_vars(b.stop):
            raise ScheduleError(f"the bounds of {inner.name} depend on {outer.name}", self._where(outer))
        self._check_order(b.body, (a, b))
        self._replace(a, (replace(b, body=(replace(a, body=b.body),)),))

    def unroll(self, loop: Var) -> None:
        """Mark a loop with constant bounds for unrolling."""
        node = self._find(loop)
        self._extent(node)
        self._replace(node, (replace(node, kind="unroll"),))

    def _where(self, loop: Var) -> str:
        return f"loop {loop.name} of {self.func.name}"

    def _find(self, loop: Var) -> For:
        for stmt in walk(self.func.body):
            if isinstance(stmt, For) and stmt.var is loop:
                return stmt
        raise ScheduleError("there is no such loop any more", self._where(loop))

    def _extent(self, node: For) -> tuple[int, int]:
        """First value and number of iterations."""
        if not isinstance(node.start, Imm) or not isinstance(node.stop, Imm):
            raise ScheduleError("its bounds are not constant", self._where(node.var))
        start, stop = int(node.start.value), int(node.stop.value)
        return start, max(0, -(-(stop - start) // node.step))

    def _reach(self, node: For) -> int:
        """How far the variable goes beyond its first value, plus one; a huge number if its bounds are not constant."""
        if isinstance(node.start, Imm) and isinstance(node.stop, Imm):
            return max(0, int(node.stop.value) - int(node.start.value))
        return 1 << 62

    def _nested(self, outer: Var, inner: Var) -> tuple[For, For]:
        a = self._find(outer)
        if len(a.body) != 1 or not isinstance(a.body[0], For) or a.body[0].var is not inner:
            raise ScheduleError(f"{inner.name} is not the only statement in it", self._where(outer))
        return a, a.body[0]

    def _replace(self, old: Stmt, new: tuple[Stmt, ...]) -> None:
        self.func = self.func.with_body(_replace(self.func.body, lambda s: new if s is old else None))

    def _check_order(self, body: tuple[Stmt, ...], nest: tuple[For, For]) -> None:
        where = self._where(nest[0].var)
        variables = tuple(loop.var for loop in nest)
        extents = {s.var: self._reach(s) for s in (*nest, *walk(body)) if isinstance(s, For)}
        lets = {s.var for s in walk(body) if isinstance(s, Let)}
        private = {s.buffer for s in walk(body) if isinstance(s, Allocate)}
        stores: dict[object, Store] = {}
        for stmt in walk(body):
            if isinstance(stmt, (Block, CallPrim)):
                raise ScheduleError("its body calls a block or a function", where)
            if isinstance(stmt, Store) and stmt.buffer not in private:
                if stmt.buffer in stores:
                    raise ScheduleError(f"{stmt.buffer.name} is written at two places", where)
                stores[stmt.buffer] = stmt
        for store in stores.values():
            reads = sum(isinstance(a, Load) and a.buffer is store.buffer for s in walk(body) for a in accesses(s))
            if reads and not (reads == 1 and _is_update(store)):
                raise ScheduleError(f"{store.buffer.name} is read and written", where)
            if not reads and not all(_indexes(store, v, extents, lets) for v in variables):
                raise ScheduleError(f"iterations write the same element of {store.buffer.name}", where)


def _replace(body: tuple[Stmt, ...], rule: Callable[[Stmt], tuple[Stmt, ...] | None]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in body:
        new = rule(stmt)
        out.extend((map_bodies(stmt, lambda inner: _replace(inner, rule)),) if new is None else new)
    return tuple(out)


def _is_update(store: Store) -> bool:
    """`x[i] = x[i] op e`, or `e op x[i]`, with a commutative integer operator and without x in e."""
    value = store.value
    if not isinstance(value, BinOp) or value.op not in _COMMUTATIVE or value.dtype.startswith("float"):
        return False
    for own, other in ((value.a, value.b), (value.b, value.a)):
        if own == Load(store.buffer, store.indices, store.dtype):
            return all(access.buffer is not store.buffer for access in loads(other))
    return False


def _indexes(store: Store, var: Var, extents: Mapping[Var, int], lets: set[Var]) -> bool:
    """Whether different values of `var` certainly write different elements.

    True if some index is a mixed-radix number in loop variables of the nest, including `var`: sorted by factor, each factor is at
    least the range of all digits before it.  Other forms of index, or indices through a let, are not analysed.
    """
    for index in store.indices:
        terms: dict[Var, int] = {}
        if not _linear(index, 1, terms) or var not in terms or lets & terms.keys():
            continue
        reach, injective = 0, True
        for digit, factor in sorted(((v, f) for v, f in terms.items() if v in extents), key=lambda t: abs(t[1])):
            injective = injective and abs(factor) > reach
            reach += abs(factor) * max(0, extents[digit] - 1)
        if injective:
            return True
    return False


def _linear(expr: Expr, factor: int, terms: dict[Var, int]) -> bool:
    """Add `factor * expr` to `terms` (variable -> factor); False if it is not linear with constant factors."""
    match expr:
        case Imm():
            return True
        case Var():
            terms[expr] = terms.get(expr, 0) + factor
            return True
        case BinOp("+", a, b):
            return _linear(a, factor, terms) and _linear(b, factor, terms)
        case BinOp("-", a, b):
            return _linear(a, factor, terms) and _linear(b, -factor, terms)
        case BinOp("*", a, Imm(value)):
            return _linear(a, factor * int(value), terms)
        case _:
            return False
