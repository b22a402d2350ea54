"""May a kernel's output be placed exactly over its input?  Checked byte by byte, for cases that ranges (overlap.py) cannot
decide.

A depthwise convolution processes one channel after the other: its first writes and its last reads are a whole tensor apart, yet
every byte is written only after its last read.  Here each byte gets the time of its last use and of its first write; time is the
order of statements, and within a tensor intrinsic everything counts as used after everything was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from functools import lru_cache

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.support.dtype import itemsize
from aot.tir.analysis.overlap import Cell, Pair, Span, evaluate, exact, hull, point, type_based
from aot.tir.buffer import Buffer, flat_index
from aot.tir.expr import Expr, Load, Select, Var
from aot.tir.function import PrimFunc
from aot.tir.functor import accesses, bodies, children, walk
from aot.tir.stmt import Block, CallPrim, For, If, Let, Region, Stmt, Store

LIMIT = 2_000_000
"""Most accesses to follow; a kernel with more (it reads its input many times) gets the answer no."""

_NEVER = np.iinfo(np.int64).max


def in_place_pairs(func: PrimFunc, *, limit: int = LIMIT) -> frozenset[Pair]:
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

        def taken(span: Span) -> Span:
            if exact(span):
                return point(span[0] if isinstance(span[0], int) else np.broadcast_to(span[0], (self.rows,))[which])
            low, high = (v if isinstance(v, int) else np.broadcast_to(v, (self.rows,))[which] for v in span)
            return low, high

        env = {v: taken(s) for v, s in self.env.items()}
        places = {p: (b, taken(s)) for p, (b, s) in self.places.items()}
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
                if any(isinstance(e, Load) for side in (then, orelse) for e in _all(side)):
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


def _all(expr: Expr) -> Iterable[Expr]:
    yield expr
    for child in children(expr):
        yield from _all(child)


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
    if trips > LIMIT:
        raise _NotFollowedError
    span = low, max(low, last + (trips - 1) * stmt.step)
    return trips * _length(stmt.body, {**env, stmt.var: span}) + 2
