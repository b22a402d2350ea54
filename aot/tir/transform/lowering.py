"""Passes from what a builder or parser creates to what the code generator prints: simplify, flatten_buffer, unroll_loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from operator import is_

from aot.errors import internal
from aot.ir.transform import PassContext, prim_func_pass
from aot.support.dtype import int_range, is_float, is_int
from aot.tir.arith import Interval, Intervals
from aot.tir.buffer import Buffer, flat_index
from aot.tir.expr import BinOp, Cast, Expr, Imm, Load, Select, Var, cast
from aot.tir.function import PrimFunc
from aot.tir.functor import Cloner, bodies, children, expressions, map_bodies, map_children, map_expressions, walk
from aot.tir.stmt import Allocate, Block, CallPrim, For, If, Let, Region, Stmt, Store, While


@lru_cache(4096)
def simplified(func: PrimFunc) -> PrimFunc:
    """Return an equal, simpler function.

    Constants are folded; min, max, comparisons, `/` and `%` are decided from the ranges of loop variables; branches and loops
    with a known outcome are resolved; unused lets and local buffers are dropped.  A statement that would fail at run time (an
    overflow, say) may disappear if its value is not needed.
    """
    return func.with_body(_without_dead(_Simplifier().body(func.body)))


def simplified_expr(expr: Expr, ranges: Mapping[Var, Interval]) -> Expr:
    """An equal expression, simplified for variables with the given ranges."""
    return _Simplifier(ranges).expr(expr)


class _Simplifier:
    def __init__(self, ranges: Mapping[Var, Interval] | None = None) -> None:
        self._ranges: dict[Var, Interval] = dict(ranges or {})
        self._values: dict[Var, Expr] = {}
        self._interval = Intervals(self._ranges).of
        self._done: dict[int, tuple[Expr, Expr]] = {}

    def body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for stmt in body:
            out.extend(self._stmt(stmt))
        return tuple(out)

    def _stmt(self, stmt: Stmt) -> tuple[Stmt, ...]:
        new = map_expressions(stmt, self.expr)
        match new:
            case For():
                return self._for(new)
            case If(cond, then, orelse):
                if isinstance(cond, Imm):
                    return self.body(then if cond.value else orelse)
                new = map_bodies(new, self.body)
                return (new,) if any(bodies(new)) else ()
            case While():
                return (map_bodies(new, self.body),)
            case Let(var, value):
                if isinstance(value, (Imm, Var)):
                    self._values[var] = value
                    return ()
                if is_int(var.dtype):
                    self._ranges[var] = self._interval(value)
                return (new,)
            case _:
                return (new,)

    def _for(self, loop: For) -> tuple[Stmt, ...]:
        start, stop = self._interval(loop.start), self._interval(loop.stop)
        if stop[1] <= start[0]:
            return ()
        if isinstance(loop.start, Imm) and isinstance(loop.stop, Imm) and start[0] + loop.step >= stop[0]:
            self._values[loop.var] = loop.start
            return self.body(loop.body)
        last = stop[1] - 1
        if start[0] == start[1] and stop[0] == stop[1]:
            last -= (last - start[0]) % loop.step
        self._ranges[loop.var] = start[0], last
        body = self.body(loop.body)
        return (For(loop.var, loop.start, loop.stop, body, loop.step, loop.kind),) if body else ()

    def expr(self, expr: Expr) -> Expr:
        kind: type = type(expr)  # `match` would test one class after the other in the innermost loop of the pass
        if kind is Imm:
            return expr
        if kind is Var:
            return self._variable(expr)  # type: ignore[arg-type]
        done = self._done.get(id(expr))
        if done is None:
            done = self._done[id(expr)] = expr, self._simplify(expr)
        return done[1]

    def _variable(self, var: Var) -> Expr:
        """Its value, if known."""
        value = self._values.get(var, var)
        if type(value) is Var and value in self._ranges:
            low, high = self._ranges[value]
            return Imm(low, value.dtype) if low == high else value
        return value

    def _constant(self, expr: Expr) -> Expr:
        """Replace an integer expression with only one possible value by that value."""
        kind = type(expr)
        if kind is Imm or kind is Load or is_float(expr.dtype):
            return expr
        low, high = self._interval(expr)
        return Imm(low, expr.dtype) if low == high else expr

    def _simplify(self, expr: Expr) -> Expr:
        new = self._constant(map_children(expr, self.expr))
        kind: type = type(new)
        if kind is BinOp:
            return self._binop(new)  # type: ignore[arg-type]
        if kind is Cast and type(new.value) is Cast:  # type: ignore[union-attr]
            inner = new.value.value  # type: ignore[union-attr]
            return self._double_cast(new) if _all_integers(new.dtype, new.value.dtype, inner.dtype) else new  # type: ignore
        if kind is Select and new.then == new.orelse and not is_float(new.cond.dtype):  # type: ignore[union-attr]
            return new.then  # type: ignore[union-attr]
        return new

    def _binop(self, new: BinOp) -> Expr:
        op = new.op
        if op == "+" or op == "*":
            return new
        if op == "min" or op == "max":
            return self._extremum(new)
        if op == "/" or op == "%":
            return self._division(new)
        if op == "&&" or op == "||":
            return _logical(new)
        if op == "-" and new.a is new.b and type(new.a) is Var and is_int(new.a.dtype):
            return Imm(0, new.a.dtype)
        return new

    def _extremum(self, expr: BinOp) -> Expr:
        if is_float(expr.a.dtype):
            return expr
        a, b = self._interval(expr.a), self._interval(expr.b)
        if expr.op == "max":
            a, b = (-a[1], -a[0]), (-b[1], -b[0])
        if a[1] <= b[0]:
            return expr.a
        return expr.b if b[1] <= a[0] else expr

    def _division(self, expr: BinOp) -> Expr:
        """With c > 0: x % c = x if 0 <= x < c; (x * k * c + y) / c = x * k + y / c, and likewise for %, if everything is >= 0."""
        if not isinstance(expr.b, Imm) or is_float(expr.b.dtype) or expr.b.value <= 0:
            return expr
        c = int(expr.b.value)
        low, high = self._interval(expr.a)
        if low >= 0 and high < c:
            return expr.a if expr.op == "%" else Imm(0, expr.dtype)
        multiple, remainder = _split_multiple(expr.a, c)
        if multiple is None or self._interval(multiple)[0] < 0 or self._interval(remainder)[0] < 0:
            return expr
        if expr.op == "%":
            return self.expr(BinOp("%", remainder, expr.b))
        return self.expr(multiple + BinOp("/", remainder, expr.b))

    def _double_cast(self, expr: Cast) -> Expr:
        """Drop the inner conversion if it cannot change the value."""
        assert isinstance(expr.value, Cast)
        inner = expr.value.value
        low, high = self._interval(inner)
        kept = int_range(expr.value.dtype)
        return cast(expr.dtype, inner) if kept[0] <= low and high <= kept[1] else expr


def _split_multiple(expr: Expr, c: int) -> tuple[Expr | None, Expr]:
    """(m, remainder) with expr = m * c + remainder, as far as the form of a sum shows it; (None, expr) otherwise."""
    match expr:
        case BinOp("*", x, Imm(k)) if int(k) % c == 0 and k > 0:
            return x * (int(k) // c), Imm(0, expr.dtype)
        case BinOp("+", a, b):
            m, remainder = _split_multiple(a, c)
            if m is not None:
                return m, remainder + b
            m, remainder = _split_multiple(b, c)
            return (m, a + remainder) if m is not None else (None, expr)
        case _:
            return None, expr


def _all_integers(*dtypes: str) -> bool:
    return all(is_int(d) for d in dtypes)


def _logical(expr: BinOp) -> Expr:
    absorbing = expr.op == "||"
    for constant, other in ((expr.a, expr.b), (expr.b, expr.a)):
        if isinstance(constant, Imm):
            return Imm(int(absorbing), "bool") if bool(constant.value) == absorbing else other
    return Imm(0, "bool") if expr.op == "&&" and _contradictory(expr) else expr


def _contradictory(expr: BinOp) -> bool:
    """Whether an expression would have to be above one constant and below a smaller one."""
    low: dict[Expr, int] = {}
    high: dict[Expr, int] = {}
    for part in _conjuncts(expr):
        match part:
            case BinOp(">" | ">=" | "<" | "<=" | "==" as op, value, Imm(bound)) if is_int(value.dtype):
                if op in (">", ">=", "=="):
                    low[value] = max(low.get(value, int(bound)), int(bound) + (op == ">"))
                if op in ("<", "<=", "=="):
                    high[value] = min(high.get(value, int(bound)), int(bound) - (op == "<"))
    return any(low[value] > high[value] for value in low.keys() & high.keys())


def _conjuncts(expr: Expr) -> Iterator[Expr]:
    if isinstance(expr, BinOp) and expr.op == "&&":
        yield from _conjuncts(expr.a)
        yield from _conjuncts(expr.b)
    else:
        yield expr


def _without_dead(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Drop unused lets and local buffers that nobody reads, until nothing more can be removed."""
    while True:
        variables: set[Var] = set()
        read: set[Buffer] = set()
        local: set[Buffer] = set()
        exprs: list[Expr] = []
        for stmt in walk(body):
            exprs += expressions(stmt)
            if isinstance(stmt, (Block, CallPrim)):
                read |= {o.buffer for o in stmt.operands if isinstance(o, Region)}
            if isinstance(stmt, Allocate):
                local.add(stmt.buffer)
        _uses(exprs, variables, read)
        new = _drop(body, used=variables, dead=local - read)
        if new is body:
            return body
        body = new


def _uses(stack: list[Expr], variables: set[Var], read: set[Buffer]) -> None:
    """Add the variables of the expressions in `stack`, which is emptied, and the buffers that they load from."""
    seen: set[int] = set()  # statements share expressions
    while stack:
        top = stack.pop()
        kind: type = type(top)
        if kind is Var:
            variables.add(top)  # type: ignore[arg-type]
        elif kind is not Imm and id(top) not in seen:
            seen.add(id(top))
            if kind is BinOp:
                stack += (top.a, top.b)  # type: ignore[union-attr]
                continue
            if kind is Load:
                read.add(top.buffer)  # type: ignore[union-attr]
            stack += children(top)


def _drop(body: tuple[Stmt, ...], *, used: set[Var], dead: set[Buffer]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in body:
        match stmt:
            case Let(var=var) if var not in used:
                continue
            case Allocate(buffer=buffer) | Store(buffer=buffer) if buffer in dead:
                continue
            case _:
                new = map_bodies(stmt, lambda inner: _drop(inner, used=used, dead=dead))
                if isinstance(new, While) or not bodies(new) or any(bodies(new)):
                    out.append(new)
    changed = len(out) != len(body) or any(a is not b for a, b in zip(out, body, strict=True))
    return tuple(out) if changed else body


@prim_func_pass(opt_level=1)
def simplify(func: PrimFunc, _context: PassContext) -> PrimFunc:
    """Decide at compile time what the ranges of loop variables decide; drop unused definitions."""
    return simplified(func)


# flatten_buffer: one row-major index for every access.


def flatten(func: PrimFunc) -> PrimFunc:
    """`func` with a single index in each load and store; buffers keep their shapes.

    Afterwards, bounds can only be checked for a buffer as a whole, so run the verifier before.
    """
    return func.with_body(_flattened(func.body))


def _flattened(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    new = tuple([_stmt(s) for s in body])
    return body if all(map(is_, new, body)) else new


def _stmt(stmt: Stmt) -> Stmt:
    new = map_expressions(stmt, _expr)
    if isinstance(new, Store) and len(new.indices) != 1:
        return Store(new.buffer, (flat_index(new.buffer, new.indices),), new.value, new.dtype)
    return map_bodies(new, _flattened)


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


# unroll_loop: loops of kind "unroll" become copies of their body.


def unroll(func: PrimFunc) -> PrimFunc:
    """`func` without loops of kind "unroll"; InternalError if such a loop does not have constant bounds.

    If a body defines names or registers, every copy gets new ones, so that copies are independent in the enclosing body.
    """
    return func.with_body(_unrolled(func.body, where=func.name))


def _unrolled(body: tuple[Stmt, ...], *, where: str) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, For) and stmt.kind == "unroll":
            out.extend(_copies(stmt, where=where))
        else:
            out.append(map_bodies(stmt, lambda inner: _unrolled(inner, where=where)))
    return tuple(out)


def _copies(loop: For, *, where: str) -> list[Stmt]:
    """Unroll from the outside in, so that inner bounds may depend on outer variables."""
    if not isinstance(loop.start, Imm) or not isinstance(loop.stop, Imm):
        raise internal(f"the loop over {loop.var.name} cannot be unrolled, because its bounds are not constant", where=where)
    out: list[Stmt] = []
    for value in range(int(loop.start.value), int(loop.stop.value), loop.step):
        copy = Cloner({loop.var: Imm(value, loop.var.dtype)}).body(loop.body)
        out.extend(_unrolled(copy, where=where))
    return out


@prim_func_pass(opt_level=0)
def unroll_loop(func: PrimFunc, _context: PassContext) -> PrimFunc:
    """Replace loops of kind "unroll" by copies of their bodies.

    Without this pass they are loops in C as well, except those that index registers.
    """
    return unroll(func)
