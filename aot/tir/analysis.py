"""How far may a kernel's output overlap its input?  The smallest safe distance, from the accesses of the final TIR.

With B written and A consumed (an input, or scratch memory), both at given starts, a run is correct exactly if no byte of B is
written before the last use of a byte of A at the same address.  In offsets from the two starts, with w the end of what was
written so far and r the lowest byte that is still used, A may start anywhere with

    start(A) - start(B) >= max over time of (w - r)       (`up`: for kernels that run upward through memory)

and with w the lowest offset written so far and r the end of what is still used, B may start anywhere with

    start(B) - start(A) >= max over time of (r - w)       (`down`).

Time is the order of the statements.  Each loop is followed iteration by iteration while the number of iterations stays below
`LIMIT`, otherwise in chunks.  Within a chunk, a tensor intrinsic or a call, and only there, everything is assumed to be used
after everything is written.  The ranges come from interval arithmetic, so the answer is never too small, and it is exact if loops
are followed iteration by iteration and indices depend on loop variables only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from functools import lru_cache
from itertools import count

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_float, is_signed, itemsize
from aot.tir.arith import INT_MEANING, decided
from aot.tir.buffer import Buffer, flat_index
from aot.tir.expr import COMPARISONS, LOGICAL, BinOp, Call, Cast, Expr, Imm, Load, Select, Var
from aot.tir.function import PrimFunc
from aot.tir.functor import accesses, bodies, children, loads, walk
from aot.tir.stmt import Allocate, Block, CallPrim, For, If, Let, Region, Stmt, Store, While

Value = int | Array
Span = tuple[Value, Value]
Cell = tuple[Buffer, int]
"""An element of scratch memory with a known value."""

Env = Mapping[Var | Cell, Span]


_MOST = 1 << 40


def exact(span: Span) -> bool:
    """Whether the value is known at every instant."""
    return span[0] is span[1]


def point(value: Value) -> Span:
    return value, value


def hull(span: Span) -> tuple[int, int]:
    """The smallest and the largest value at any instant."""
    low, high = span
    return low if isinstance(low, int) else int(low.min()), high if isinstance(high, int) else int(high.max())


def evaluate(expr: Expr, env: Env) -> Span:
    """All possible values of `expr` at each instant; loads and intrinsics may yield any value of their type."""
    kind: type = type(expr)  # `match` would test one class after the other for the commonest nodes
    if kind is Imm:
        return point(0 if is_float(expr.dtype) else int(expr.value))  # type: ignore[union-attr,arg-type]
    if kind is Var:
        return env.get(expr) or _type_range(expr.dtype)  # type: ignore[arg-type]
    match expr:
        case Load(buffer, (Imm(value),), dtype) if (buffer, int(value)) in env and dtype == buffer.dtype:
            return env[buffer, int(value)]
        case Load() | Call():
            return _type_range(expr.dtype)
        case BinOp(op, a, b):
            if is_float(a.dtype):
                return 0, 1
            span, of = _binop(op, evaluate(a, env), evaluate(b, env), dtype=a.dtype), expr.dtype
            # signed results never overflow (which is an error elsewhere); unsigned ones may wrap to any value
            return span if is_signed(of) or of == "bool" or _fits(span, of) else _type_range(of)
        case Cast(dtype, value):
            if is_float(value.dtype) or is_float(dtype):
                return _type_range(dtype)
            inner = evaluate(value, env)
            return inner if _fits(inner, dtype) else _type_range(dtype)
        case Select(cond, then, orelse):
            return _select(evaluate(cond, env), evaluate(then, env), evaluate(orelse, env))
    raise TypeError(f"not an expression: {expr!r}")


def _type_range(dtype: str) -> Span:
    """All values of a type, limited so that sums of many stay within 64 bits; no buffer offset is beyond that."""
    if is_float(dtype):
        return 0, 0
    low, high = int_range(dtype)
    return max(low, -_MOST), min(high, _MOST)


def _fits(span: Span, dtype: str) -> bool:
    low, high = _type_range(dtype)
    least, most = hull(span)
    return bool(least >= low and most <= high)


def _select(cond: Span, then: Span, orelse: Span) -> Span:
    always, never = np.asarray(cond[0]) != 0, np.asarray(cond[1]) == 0
    low = np.where(always, then[0], np.where(never, orelse[0], np.minimum(then[0], orelse[0])))
    if exact(cond) and exact(then) and exact(orelse):
        return point(low)
    return low, np.where(always, then[1], np.where(never, orelse[1], np.maximum(then[1], orelse[1])))


def _binop(op: str, a: Span, b: Span, *, dtype: str) -> Span:
    if op in COMPARISONS or op in LOGICAL:
        return _decided(op, a, b)
    if exact(a) and exact(b):
        return _exact(op, a[0], b[0], dtype=dtype)
    match op:
        case "+":
            return a[0] + b[0], a[1] + b[1]
        case "-":
            return a[0] - b[1], a[1] - b[0]
        case "*" if _largest(a) * _largest(b) <= _MOST:
            corners = np.broadcast_arrays(*(x * y for x in a for y in b))
            return np.minimum.reduce(corners), np.maximum.reduce(corners)
        case "min":
            return np.minimum(a[0], b[0]), np.minimum(a[1], b[1])
        case "max":
            return np.maximum(a[0], b[0]), np.maximum(a[1], b[1])
        case "/" | "%" | ">>" if isinstance(b[0], int) and b[0] > 0 and exact(b):
            return _by_constant(op, a, b[0])
        case "&" if isinstance(b[0], int) and b[0] >= 0 and exact(b):
            return 0, b[0]
        case _:
            return _type_range(dtype)


def _largest(span: Span) -> int:
    """The largest magnitude."""
    low, high = hull(span)
    return max(-low, high)


def _by_constant(op: str, a: Span, b: int) -> Span:
    """Operators that grow with their left side; and the remainder, which does while the quotient is constant."""
    match op:
        case "/":
            return _quotient(a[0], b), _quotient(a[1], b)
        case ">>":
            return a[0] >> b, a[1] >> b
        case _:
            low, high = _quotient(a[0], b), _quotient(a[1], b)
            same = (np.asarray(low) == high) & ((np.asarray(a[0]) >= 0) | (np.asarray(a[1]) < 0))
            least = np.where(np.asarray(a[0]) < 0, 1 - b, 0)
            return np.where(same, a[0] - b * low, least), np.where(same, a[1] - b * high, b - 1)


def _quotient(a: Value, b: Value) -> Value:
    """C's division, which truncates."""
    quotient: Array = np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))
    return quotient


def _exact(op: str, a: Value, b: Value, *, dtype: str) -> Span:
    match op:
        case "min" | "max":
            return point((np.minimum if op == "min" else np.maximum)(a, b))
        case "/" | "%" if np.all(b):
            quotient = _quotient(a, b)
            return point(quotient if op == "/" else a - b * quotient)
        case "*":
            is_known = _largest(point(a)) * _largest(point(b)) <= _MOST
        case ">>":
            is_known = bool(np.min(b) >= 0 and np.max(b) < 32)
        case "<<":
            is_known = bool(np.min(b) >= 0 and _largest(point(a)) << min(int(np.max(b)), 64) <= _MOST)
        case _:
            is_known = op in ("+", "-", "&", "|", "^")
    return point(INT_MEANING[op](a, b)) if is_known else _type_range(dtype)  # type: ignore[arg-type]


def _decided(op: str, a: Span, b: Span) -> Span:
    """Comparisons and logical operators as 0 and 1."""
    always, never = decided(op, *(tuple(map(np.asarray, s)) for s in (a, b)))
    low = always.astype(np.int64)
    return point(low) if exact(a) and exact(b) else (low, (~never).astype(np.int64))


def narrowed(cond: Expr, env: dict[Var | Cell, Span]) -> dict[Var | Cell, Span]:
    """`env` where `cond` holds: bounds from comparisons of a variable, or of a variable plus a constant."""
    match cond:
        case BinOp("&&", a, b):
            return narrowed(b, narrowed(a, env))
        case BinOp(op, a, b) if op in ("<", "<=", ">", ">="):
            swapped = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}[op]
            return _bounded(b, swapped, a, env=_bounded(a, op, b, env=env))
        case _:
            return env


def _bounded(left: Expr, op: str, right: Expr, *, env: dict[Var | Cell, Span]) -> dict[Var | Cell, Span]:
    offset = 0
    match left:
        case BinOp("+", Var() as inner, Imm(value)):
            left, offset = inner, int(value)
        case BinOp("-", Var() as inner, Imm(value)):
            left, offset = inner, -int(value)
    if not isinstance(left, Var) or left not in env or exact(env[left]) or not is_signed(left.dtype):
        return env
    low, high = env[left]
    limit = evaluate(right, env)
    if op in ("<", "<="):
        high = np.minimum(high, limit[1] - offset - (op == "<"))
    else:
        low = np.maximum(low, limit[0] - offset + (op == ">"))
    return {**env, left: (low, high)}


LIMIT = 100_000
"""Most instants into which a loop nest is divided."""

EXACT_LIMIT = 4_096
"""Instants up to which loops without writes are also followed iteration by iteration, which handles padding exactly."""

_WORK = 2_000_000
"""Limit for instants times accesses in the text: kernels with long bodies get fewer instants."""

_FAR = 1 << 40
"""Beyond every offset."""

Pair = tuple[Buffer, Buffer]
Ranges = dict[Buffer, tuple[Value, Value]]
"""Range of bytes at each instant, from the first to after the last; (_FAR, -_FAR) if there are none."""


@dataclass(frozen=True, slots=True)
class Distance:
    """Distances in bytes; `up`: start(A) - start(B) is safe from there on; `down`: start(B) - start(A) is."""

    up: int
    down: int


def safe_distances(func: PrimFunc, funcs: Mapping[str, PrimFunc] | None = None, *, limit: int = LIMIT) -> dict[Pair, Distance]:
    """The distances of each pair (A, B) of the function's own buffers: (input, output), (input, scratch), (scratch, output).

    A distance equal to the size of the buffer that comes first means that they may not overlap on that side.  `funcs` holds the
    called functions; a callee that is missing is assumed to use its operands whole.
    """
    return dict(_safe_distances(func.core, tuple(sorted(_callees(func, funcs or {}).items())), limit))


def _callees(func: PrimFunc, funcs: Mapping[str, PrimFunc]) -> dict[str, PrimFunc]:
    """The known functions that a function calls, directly or indirectly."""
    functions: dict[str, PrimFunc] = {}
    waiting = [func] if funcs else []
    while waiting:
        for stmt in walk(waiting.pop().body):
            if isinstance(stmt, CallPrim) and stmt.func in funcs and stmt.func not in functions:
                functions[stmt.func] = funcs[stmt.func]
                waiting.append(funcs[stmt.func])
    return functions


@lru_cache(4096)  # every trial of a memory plan asks about the same kernels
def _safe_distances(func: PrimFunc, callees: tuple[tuple[str, PrimFunc], ...], limit: int) -> dict[Pair, Distance]:
    funcs = dict(callees)
    watched = [(a, b) for a in func.inputs for b in func.outputs + func.scratch]
    watched += [(a, b) for a in func.scratch for b in func.outputs]
    pairs = frozenset(p for p in watched if not type_based(*p))
    if any(not b.is_sized for p in pairs for b in p):
        return {}
    if any(isinstance(s, While) for s in walk(func.body)):
        return {}  # its iterations are not known, so nothing may overlap
    accesses = sum(1 for s in walk(func.body) if isinstance(s, (Store, Let, Block, CallPrim)))
    walker = _Walker(pairs, funcs, max(64, min(limit, _WORK // max(1, accesses))))
    trace = _Trace(pairs)
    walker.body(func.body, _Scope({}, 1), trace)
    distances = {}
    for a, b in (p for p in watched if p in pairs):
        up, down = (int(np.max(v)) for v in trace.distance.get((a, b), (-_FAR, -_FAR)))
        # at most the distance from which nothing overlaps, on either side
        distances[a, b] = Distance(max(-a.nbytes, min(b.nbytes, up)), max(-b.nbytes, min(a.nbytes, down)))
    return distances


def type_based(a: Buffer, b: Buffer) -> bool:
    """Whether a C compiler may assume that accesses to the two are independent: different element types, neither bytes."""
    return a.dtype != b.dtype and itemsize(a.dtype) > 1 and itemsize(b.dtype) > 1


@dataclass(slots=True)
class _Trace:
    """What happened from some instant on, one entry per row: used and written ranges, and the largest distances (up, down)."""

    pairs: frozenset[Pair]
    used: Ranges = field(default_factory=dict)
    written: Ranges = field(default_factory=dict)
    distance: dict[Pair, tuple[Value, Value]] = field(default_factory=dict)

    def use(self, buffer: Buffer, low: Value, high: Value) -> None:
        for b, (first, end) in self.written.items():
            if (buffer, b) in self.pairs:
                self._raise((buffer, b), end - low, high - first)
        _widen(self.used, buffer, low, high)

    def write(self, buffer: Buffer, low: Value, high: Value) -> None:
        if buffer.scope == "arena":
            self.use(buffer, low, high)  # written scratch is in use from here on
        _widen(self.written, buffer, low, high)

    def then(self, later: _Trace) -> None:
        for a, (low, high) in later.used.items():
            self.use(a, low, high)
        for pair, (up, down) in later.distance.items():
            self._raise(pair, up, down)
        for b, (low, high) in later.written.items():
            _widen(self.written, b, low, high)

    def _raise(self, pair: Pair, up: Value, down: Value) -> None:
        old = self.distance.get(pair)
        self.distance[pair] = (up, down) if old is None else (np.maximum(old[0], up), np.maximum(old[1], down))

    def unordered(self) -> None:
        """Forget the order: everything may be used after everything was written."""
        for a, b in self.pairs:
            if a in self.used and b in self.written:
                (low, high), (first, end) = self.used[a], self.written[b]
                self._raise((a, b), end - low, high - first)

    def where(self, mask: Array) -> None:
        """Clear the rows in which the mask is false."""
        for ranges in (self.used, self.written):
            for b, (low, high) in ranges.items():
                ranges[b] = np.where(mask, low, _FAR), np.where(mask, high, -_FAR)
        for pair, sides in self.distance.items():
            up, down = (np.where(mask, v, -_FAR) for v in sides)
            self.distance[pair] = up, down

    def joined(self, rows: int, times: int) -> _Trace:
        """The trace of `rows` loops of `times` iterations each, from the trace of rows * times iterations."""

        def table(value: Value) -> Array:
            return np.broadcast_to(value, (rows * times,)).reshape(rows, times)

        out = _Trace(self.pairs)
        used = {b: (table(low), table(high)) for b, (low, high) in self.used.items()}
        written = {b: (table(low), table(high)) for b, (low, high) in self.written.items()}
        for ranges, source in ((out.used, used), (out.written, written)):
            for b, (low, high) in source.items():
                ranges[b] = low.min(axis=1), high.max(axis=1)
        for pair, (up, down) in self.distance.items():
            out._raise(pair, table(up).max(axis=1), table(down).max(axis=1))
        for a, b in self.pairs if times > 1 else ():
            if a in used and b in written:
                end = np.maximum.accumulate(written[b][1], axis=1)[:, :-1]
                first = np.minimum.accumulate(written[b][0], axis=1)[:, :-1]
                low, high = used[a][0][:, 1:], used[a][1][:, 1:]
                out._raise((a, b), (end - low).max(axis=1), (high - first).max(axis=1))
        return out


def _widen(ranges: Ranges, buffer: Buffer, low: Value, high: Value) -> None:
    old = ranges.get(buffer)
    ranges[buffer] = (low, high) if old is None else (np.minimum(old[0], low), np.maximum(old[1], high))


@dataclass(frozen=True, slots=True)
class _Scope:
    """`env` has one entry per row; `places` maps a callee's parameters to a buffer and a byte offset in it.

    `divided` is false inside a chunk, where loops are no longer followed iteration by iteration.
    """

    env: dict[Var | Cell, Span]
    rows: int
    places: Mapping[Buffer, tuple[Buffer, Span]] = field(default_factory=dict)
    divided: bool = True

    def bind(self, var: Var | Cell, span: Span) -> _Scope:
        return _Scope({**self.env, var: span}, self.rows, self.places, self.divided)

    def repeated(self, times: int) -> _Scope:
        def repeat(vector: Array) -> Array:
            return np.repeat(vector, times)

        env = {v: per_row(s, self.rows, repeat) for v, s in self.env.items()}
        places = {p: (b, per_row(s, self.rows, repeat)) for p, (b, s) in self.places.items()}
        return replace(self, env=env, rows=self.rows * times, places=places)


def _vector(value: Value, rows: int) -> Array:
    return np.broadcast_to(value, (rows,))


def per_row(span: Span, rows: int, rule: Callable[[Array], Array]) -> Span:
    """The span with `rule` applied to its vectors of `rows` values; numbers stay as they are."""
    low = span[0] if isinstance(span[0], int) else rule(_vector(span[0], rows))
    if exact(span):
        return point(low)
    return low, span[1] if isinstance(span[1], int) else rule(_vector(span[1], rows))


_Side = Expr | tuple[Stmt, ...]


class _Walker:
    """Follows the statements of a body in order and records in a trace what they touch."""

    def __init__(self, pairs: frozenset[Pair], funcs: Mapping[str, PrimFunc], limit: int) -> None:
        self._pairs = pairs
        self._funcs = funcs
        self._limit = limit
        self._watched = {b for p in pairs for b in p}
        self._scratch = {b for b in self._watched if b.scope == "arena"}
        self._mixed: dict[int, tuple[bool, For]] = {}
        self._relative: dict[tuple[Value, ...], tuple[_Trace, PrimFunc]] = {}

    def body(self, stmts: Iterable[Stmt], scope: _Scope, trace: _Trace) -> None:
        for stmt in stmts:
            if isinstance(stmt, Let):
                self._expr(stmt.value, scope, trace)
                scope = scope.bind(stmt.var, evaluate(stmt.value, scope.env))
            elif not isinstance(stmt, Allocate):
                inner = _forgotten(stmt, scope) if isinstance(stmt, For) else scope
                self._stmt(stmt, inner, trace)
                scope = self._remembered(stmt, scope)

    def _remembered(self, stmt: Stmt, scope: _Scope) -> _Scope:
        """Track numbers in scratch memory from which addresses are computed, if the element's index is constant."""
        match stmt:
            case Store(buffer, (Imm(index),), value, dtype) if buffer in self._scratch and dtype == buffer.dtype == "int32":
                return scope.bind((buffer, int(index)), evaluate(value, scope.env))
        return _forgotten(stmt, scope)

    def _stmt(self, stmt: Stmt, scope: _Scope, trace: _Trace) -> None:
        match stmt:
            case For():
                self._expr(stmt.start, scope, trace)
                self._expr(stmt.stop, scope, trace)
                self._loop(stmt, scope, trace)
            case Store(buffer, indices, value, dtype):
                for expr in (*indices, value):
                    self._expr(expr, scope, trace)
                self._access(trace.write, buffer, indices, dtype, scope=scope)
            case If(cond, then, orelse):
                self._either(cond, (then, orelse), scope, trace)
            case Block(intrin, operands):
                self._call(intrin.desc, operands, scope, trace, ordered=intrin.ordered)
            case CallPrim(name, operands):
                self._call(self._funcs.get(name), operands, scope, trace)
            case _:
                raise TypeError(f"not a statement: {stmt!r}")

    def _either(self, cond: Expr, sides: tuple[_Side, _Side], scope: _Scope, trace: _Trace) -> None:
        """Evaluate a condition, then each side where its case is possible."""
        self._expr(cond, scope, trace)
        holds = evaluate(cond, scope.env)
        self._side(sides[0], replace(scope, env=narrowed(cond, scope.env)), trace, np.asarray(holds[1]) != 0)
        self._side(sides[1], scope, trace, np.asarray(holds[0]) == 0)

    def _side(self, side: _Side, scope: _Scope, trace: _Trace, mask: Array) -> None:
        """Follow one side in the rows where `mask` is set."""
        if not mask.any():
            return
        inner = _Trace(self._pairs)
        if isinstance(side, tuple):
            self.body(side, scope, inner)
        else:
            self._expr(side, scope, inner)
        if not mask.all() and (inner.used or inner.written):
            inner.where(mask)
        trace.then(inner)

    # ---- loops

    def _loop(self, loop: For, scope: _Scope, trace: _Trace) -> None:
        start, stop = evaluate(loop.start, scope.env), evaluate(loop.stop, scope.env)
        trips = -((start[0] - np.asarray(stop[1])) // loop.step)  # the largest possible number
        most = int(np.max(trips))
        if most <= 0:
            return
        limit = self._limit if self._mixes(loop) else EXACT_LIMIT
        parts = min(most, max(1, limit // scope.rows))
        if not (scope.divided and exact(start) and exact(stop)) or 1 == parts < most:
            self._collapsed(loop, scope, trace, (start, trips))
            return
        size = -(-most // parts)
        parts = -(-most // size)
        inner = scope.repeated(parts)
        first = np.tile(np.arange(parts, dtype=np.int64) * size, scope.rows)
        trips, begin = (np.repeat(_vector(v, scope.rows), parts) for v in (trips, start[0]))
        low = begin + first * loop.step
        span = point(low) if size == 1 else (low, begin + (np.minimum(first + size, trips) - 1) * loop.step)
        body = _Trace(self._pairs)
        self.body(loop.body, replace(inner.bind(loop.var, span), divided=size == 1), body)
        if size > 1:
            body.unordered()
        alive = first < trips
        if not alive.all():
            body.where(alive)
        trace.then(body.joined(scope.rows, parts))

    def _collapsed(self, loop: For, scope: _Scope, trace: _Trace, bounds: tuple[Span, Array]) -> None:
        """All iterations as a single instant."""
        start, trips = bounds
        span = (start[0], start[1] + (np.maximum(trips, 1) - 1) * loop.step)
        body = _Trace(self._pairs)
        self.body(loop.body, replace(scope.bind(loop.var, span), divided=False), body)
        body.unordered()
        alive = np.asarray(trips) > 0
        if not alive.all():
            body.where(alive)
        trace.then(body)

    def _mixes(self, loop: For) -> bool:
        """Whether the loop both uses and writes watched buffers."""
        entry = self._mixed.get(id(loop))
        if entry is None:
            writes = any(isinstance(s, (Store, Block, CallPrim)) and _stores(s) for s in walk(loop.body))
            entry = self._mixed[id(loop)] = writes, loop
        return entry[0]

    # ---- accesses

    def _expr(self, expr: Expr, scope: _Scope, trace: _Trace) -> None:
        kind: type = type(expr)  # `match` would test one class after the other for the commonest nodes
        if kind is Imm or kind is Var:
            return
        match expr:
            case Load(buffer, indices, dtype):
                for index in indices:
                    self._expr(index, scope, trace)
                self._access(trace.use, buffer, indices, dtype, scope=scope)
            case Select(cond, then, orelse):
                self._either(cond, (then, orelse), scope, trace)
            case BinOp(op, a, b) if op in LOGICAL:
                self._expr(a, scope, trace)
                self._side(b, scope, trace, np.asarray(True))
            case _:
                for child in children(expr):
                    self._expr(child, scope, trace)

    def _access(
        self, note: Callable[[Buffer, Value, Value], None], buffer: Buffer, indices: tuple[Expr, ...], dtype: str,
        *, scope: _Scope,
    ) -> None:  # fmt: skip
        root, base = scope.places.get(buffer, (buffer, point(0)))
        if root in self._watched:
            low, high = evaluate(flat_index(buffer, indices), scope.env)
            size = itemsize(dtype)
            self._note(note, root, (base[0] + low * size, base[1] + high * size + size))

    def _note(self, note: Callable[[Buffer, Value, Value], None], root: Buffer, span: Span) -> None:
        (low, high), end = span, root.nbytes if root.is_sized else _FAR
        low = max(low, 0) if isinstance(low, int) else np.maximum(low, 0)
        note(root, low, min(high, end) if isinstance(high, int) else np.minimum(high, end))

    def _call(
        self, callee: PrimFunc | None, operands: tuple[Region | Expr, ...], scope: _Scope, trace: _Trace, *, ordered: bool = False
    ) -> None:
        """A tensor intrinsic or a function: one instant, unless it keeps the order of its body."""
        inner = _Trace(self._pairs)
        env: dict[Var | Cell, Span] = {}
        places: dict[Buffer, tuple[Buffer, Span]] = {}
        for i, operand in zip(count(), operands):
            param = callee.params[i] if callee is not None else None
            if not isinstance(operand, Region):
                self._expr(operand, scope, trace)
                if isinstance(param, Var):
                    env[param] = evaluate(operand, scope.env)
                continue
            self._expr(operand.index, scope, trace)
            place = self._place(operand, scope)
            if isinstance(param, Buffer):
                places[param] = place
            elif place[0] in self._watched:  # nothing is known about the callee
                self._note(inner.use, place[0], (place[1][0], _FAR))
                self._note(inner.write, place[0], (place[1][0], _FAR))
        if callee is not None and any(root in self._watched for root, _ in places.values()):
            if ordered and scope.divided:
                self.body(callee.body, _Scope(env, scope.rows, places), inner)
                trace.then(inner)
                return
            if all(exact(s) and isinstance(s[0], int) for s in env.values()):
                self._shifted(callee, env, places, inner)
            else:
                self.body(callee.body, _Scope(env, scope.rows, places, divided=False), inner)
        inner.unordered()
        trace.then(inner)

    def _shifted(
        self, callee: PrimFunc, env: dict[Var | Cell, Span], places: Mapping[Buffer, tuple[Buffer, Span]], trace: _Trace
    ) -> None:
        """What a callee with constant scalars touches, which is always the same part of its parameters."""
        key = (id(callee), *(s[0] for s in env.values()))
        entry = self._relative.get(key)
        if entry is None:
            alone = _Walker(frozenset(), self._funcs, 1)
            alone._watched = set(places)
            entry = self._relative[key] = _Trace(frozenset()), callee
            alone.body(callee.body, _Scope(env, 1, divided=False), entry[0])
        for note, ranges in ((trace.use, entry[0].used), (trace.write, entry[0].written)):
            for param, (low, high) in ranges.items():
                root, base = places[param]
                if root in self._watched:
                    self._note(note, root, (base[0] + low, base[1] + high))

    def _place(self, operand: Region, scope: _Scope) -> tuple[Buffer, Span]:
        root, base = scope.places.get(operand.buffer, (operand.buffer, point(0)))
        index, size = evaluate(operand.index, scope.env), itemsize(operand.dtype)
        if exact(index) and exact(base):
            return root, point(base[0] + index[0] * size)
        return root, (base[0] + index[0] * size, base[1] + index[1] * size)


def _forgotten(stmt: Stmt, scope: _Scope) -> _Scope:
    """The scope without the tracked values of scratch memory that the statement may write."""
    cells = [c for c in scope.env if isinstance(c, tuple)]
    if not cells:
        return scope
    inside = [s for s in walk((stmt,)) if isinstance(s, (Store, Block, CallPrim))]
    stored = {s.buffer for s in inside if isinstance(s, Store)}
    stored |= {o.buffer for s in inside if not isinstance(s, Store) for o in s.operands if isinstance(o, Region)}
    gone = [c for c in cells if c[0] in stored]
    return replace(scope, env={v: s for v, s in scope.env.items() if v not in gone}) if gone else scope


def _stores(stmt: Store | Block | CallPrim) -> bool:
    """Whether a statement writes memory, not only registers."""
    if isinstance(stmt, Store):
        return stmt.buffer.scope != "local"
    return any(isinstance(o, Region) and o.buffer.scope in ("param", "arena") for o in stmt.operands)


# May a kernel's output be placed exactly over its input?  Checked byte by byte, for cases that ranges (above) cannot
# decide.
#
# A depthwise convolution processes one channel after the other: its first writes and its last reads are a whole tensor apart,
# yet every byte is written only after its last read.  Here each byte gets the time of its last use and of its first write; time
# is the order of statements, and within a tensor intrinsic everything counts as used after everything was written.

MOST_ACCESSES = 2_000_000
"""Most accesses to follow; a kernel with more (it reads its input many times) gets the answer no."""

_NEVER = np.iinfo(np.int64).max


def in_place_pairs(func: PrimFunc, *, limit: int = MOST_ACCESSES) -> frozenset[Pair]:
    """The (input, output) pairs of equal size that may start at the same address; kernels that cannot be followed have none."""
    return _in_place_pairs(func.core, limit)


@lru_cache(4096)  # every trial of a memory plan asks about the same kernels
def _in_place_pairs(func: PrimFunc, limit: int) -> frozenset[Pair]:
    pairs = [(a, b) for a in func.inputs for b in func.outputs if a.nbytes == b.nbytes and a.is_sized and not type_based(a, b)]
    if not pairs or any(isinstance(s, CallPrim) for s in walk(func.body)):
        return frozenset()
    clock = _Clock({b for p in pairs for b in p}, limit)
    try:
        clock.body(func.body, _Instant({}, 1, np.zeros(1, np.int64)))
    except (_NotFollowedError, IndexError):  # a guard that is not followed may lead out of bounds
        return frozenset()
    return frozenset((a, b) for a, b in pairs if bool(np.all(clock.used[a] < clock.written[b])))


class _NotFollowedError(Exception):
    """The accesses depend on data, or there are too many."""


@dataclass(frozen=True, slots=True)
class _Instant:
    """`rows` executions of a statement, each with its variables and time; `frozen`: inside an intrinsic."""

    env: dict[Var | Cell, Span]
    rows: int
    time: Array
    places: Mapping[Buffer, tuple[Buffer, Span]] = field(default_factory=dict)
    frozen: bool = False

    def take(self, which: Array) -> _Instant:
        """Select rows by their numbers, possibly several times."""

        def taken(vector: Array) -> Array:
            return vector[which]

        env = {v: per_row(s, self.rows, taken) for v, s in self.env.items()}
        places = {p: (b, per_row(s, self.rows, taken)) for p, (b, s) in self.places.items()}
        return replace(self, env=env, rows=len(which), time=self.time[which], places=places)


class _Clock:
    """Walks a body through every iteration of every loop that touches a watched buffer."""

    def __init__(self, watched: set[Buffer], limit: int) -> None:
        self.used = {b: np.full(b.nbytes, -1, np.int64) for b in watched}
        self.written = {b: np.full(b.nbytes, _NEVER, np.int64) for b in watched}
        self._left = limit

    def body(self, stmts: Iterable[Stmt], at: _Instant) -> None:
        for stmt in stmts:
            if isinstance(stmt, Let):
                self._expr(stmt.value, at)
                at = replace(at, env={**at.env, stmt.var: evaluate(stmt.value, at.env)})
            elif self._touches(stmt, at):
                self._stmt(stmt, at)
            if not at.frozen:
                at = replace(at, time=at.time + _duration(stmt, _hull(at.env)))

    def _touches(self, stmt: Stmt, at: _Instant) -> bool:
        """Whether the statement, or one inside it, uses a watched buffer."""
        inside = (a.buffer for s in walk((stmt,)) for a in accesses(s))
        return any(at.places.get(b, (b,))[0] in self.used for b in inside)

    def _stmt(self, stmt: Stmt, at: _Instant) -> None:
        match stmt:
            case For():
                self._loop(stmt, at)
            case Store(buffer, indices, value, dtype):
                for expr in (*indices, value):
                    self._expr(expr, at)
                self._access(buffer, indices, dtype, at, written=True)
            case If(cond, then, orelse):
                self._expr(cond, at)
                holds = self._known(cond, at) != 0
                for branch, mask in ((then, holds), (orelse, ~holds)):
                    rows = np.flatnonzero(mask)
                    if branch and len(rows):
                        self.body(branch, at.take(rows))
            case Block(intrin, operands):
                self._block(intrin.desc, operands, at)
            case _:
                raise _NotFollowedError

    def _loop(self, loop: For, at: _Instant) -> None:
        for bound in (loop.start, loop.stop):
            self._expr(bound, at)
        start, stop = self._known(loop.start, at), self._known(loop.stop, at)
        trips = np.maximum(0, -((start - stop) // loop.step))
        total = int(trips.sum())
        self._spend(total)
        if not total:
            return
        rows = np.repeat(np.arange(at.rows), trips)
        number = np.arange(total) - np.repeat(np.cumsum(trips) - trips, trips)
        inner = at.take(rows)
        value = start[rows] + number * loop.step
        time = inner.time
        if not at.frozen:
            span = int(start.min()), int((start + trips * loop.step).max())
            time = time + number * _length(loop.body, {**_hull(at.env), loop.var: span})
        self.body(loop.body, replace(inner, env={**inner.env, loop.var: point(value)}, time=time))

    def _known(self, expr: Expr, at: _Instant) -> Array:
        span = evaluate(expr, at.env)
        if not exact(span):
            raise _NotFollowedError
        return np.broadcast_to(np.asarray(span[0], np.int64), (at.rows,))

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise _NotFollowedError

    def _expr(self, expr: Expr, at: _Instant) -> None:
        match expr:
            case Load(buffer, indices, dtype):
                for index in indices:
                    self._expr(index, at)
                self._access(buffer, indices, dtype, at, written=False)
            case Select(cond, then, orelse):
                self._expr(cond, at)
                if any(True for side in (then, orelse) for _ in loads(side)):
                    holds = self._known(cond, at) != 0
                    for side, mask in ((then, holds), (orelse, ~holds)):
                        rows = np.flatnonzero(mask)
                        if len(rows):
                            self._expr(side, at.take(rows))
            case _:
                for child in children(expr):
                    self._expr(child, at)

    def _access(self, buffer: Buffer, indices: tuple[Expr, ...], dtype: str, at: _Instant, *, written: bool) -> None:
        root, base = at.places.get(buffer, (buffer, point(0)))
        if root not in self.used:
            return
        size = itemsize(dtype)
        index = flat_index(buffer, indices)
        self._spend(at.rows)
        if not exact(base):
            raise _NotFollowedError
        first = self._known(index, at) * size + base[0]
        # an intrinsic uses at the end of its time what it writes at the start; any other statement loads before it stores
        time: Array = at.time + int(written != at.frozen)
        for byte in range(size):
            where: Array = first + byte
            if written:
                np.minimum.at(self.written[root], where, time)
            else:
                np.maximum.at(self.used[root], where, time)

    def _block(self, desc: PrimFunc, operands: tuple[Region | Expr, ...], at: _Instant) -> None:
        env: dict[Var | Cell, Span] = {}
        places: dict[Buffer, tuple[Buffer, Span]] = {}
        for param, operand in zip(desc.params, operands, strict=True):
            if isinstance(operand, Region) and isinstance(param, Buffer):
                root, base = at.places.get(operand.buffer, (operand.buffer, point(0)))
                index = evaluate(operand.index, at.env)
                here = point(base[0] + index[0] * itemsize(operand.dtype)) if exact(index) and exact(base) else (-1, 1)
                places[param] = root, here
            elif not isinstance(operand, Region) and isinstance(param, Var):
                self._expr(operand, at)
                env[param] = evaluate(operand, at.env)
        self.body(desc.body, _Instant(env, at.rows, at.time, places, frozen=True))


def _hull(env: Mapping[Var | Cell, Span]) -> dict[Var | Cell, Span]:
    """The range of values over all rows."""
    return {v: hull(span) for v, span in env.items()}


def _length(stmts: Iterable[Stmt], env: dict[Var | Cell, Span]) -> int:
    """The most ticks of a body; `env` holds one row."""
    total = 0
    for stmt in stmts:
        total += _duration(stmt, env)
        if isinstance(stmt, Let):
            env = {**env, stmt.var: evaluate(stmt.value, env)}
    return total


def _duration(stmt: Stmt, env: dict[Var | Cell, Span]) -> int:
    """Two ticks for a statement without a body, so that loads come before stores."""
    if not isinstance(stmt, For):
        return 2 + sum(_length(b, env) for b in bodies(stmt))
    start, stop = evaluate(stmt.start, env), evaluate(stmt.stop, env)
    (low, last), (_, high) = hull(start), hull(stop)
    trips = max(0, -((low - high) // stmt.step))
    if trips > MOST_ACCESSES:
        raise _NotFollowedError
    span = low, max(low, last + (trips - 1) * stmt.step)
    return trips * _length(stmt.body, {**env, stmt.var: span}) + 2
