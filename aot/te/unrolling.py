"""Unrolling as schedules ask for it, and what it means for local buffers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from aot.tir.buffer import Buffer
from aot.tir.expr import Imm, Load
from aot.tir.function import PrimFunc
from aot.tir.functor import accesses, bodies, walk
from aot.tir.schedule import ScheduleError
from aot.tir.stmt import For, If, Stmt, Store, While
from aot.tir.transform.simplify import simplified
from aot.tir.transform.unroll_loop import unroll

MAX_STATEMENTS = 1 << 14
"""Of a function, once its loops are unrolled."""

MAX_SCALARS = 64
"""Elements of a local buffer that become C variables of their own; more make an array."""


def auto_unrolled(loop: For, steps: int) -> For:
    """`loop` with every loop marked for unrolling whose body would be copied at most `steps` times in all."""
    if _copies(loop) <= steps:
        return replace(loop, kind="unroll", body=tuple(_marked(s, steps) for s in loop.body))
    return replace(loop, body=tuple(_marked(s, steps) for s in loop.body))


def _marked(stmt: Stmt, steps: int) -> Stmt:
    match stmt:
        case For():
            return auto_unrolled(stmt, steps)
        case If(then=then, orelse=orelse):
            return replace(stmt, then=tuple(_marked(s, steps) for s in then), orelse=tuple(_marked(s, steps) for s in orelse))
        case While(test=test, body=body):
            return replace(stmt, test=tuple(_marked(s, steps) for s in test), body=tuple(_marked(s, steps) for s in body))
        case _:
            return stmt


def _extent(loop: For) -> int:
    assert isinstance(loop.stop, Imm)
    return int(loop.stop.value)


def _copies(stmt: Stmt) -> int:
    inner = max((_copies(s) for body in bodies(stmt) for s in body), default=1)
    return _extent(stmt) * inner if isinstance(stmt, For) else inner


def check_size(body: Iterable[Stmt], name: str) -> None:
    """Raise ScheduleError where unrolling makes a function too large."""
    total = sum(map(_statements, body))
    if total > MAX_STATEMENTS:
        raise ScheduleError(f"its unrolled loops make {total} statements; at most {MAX_STATEMENTS}", f"function {name}")


def _statements(stmt: Stmt) -> int:
    inner = sum(_statements(s) for body in bodies(stmt) for s in body)
    if isinstance(stmt, For):
        return inner * _extent(stmt) if stmt.kind == "unroll" else inner + 1
    return inner + 1


def needs_array(func: PrimFunc, buffer: Buffer) -> bool:
    """Whether a local buffer has elements known only at run time, or too many for C variables."""
    if buffer.size > MAX_SCALARS:
        return True
    name, shape = buffer.name, buffer.shape  # copies made by unrolling are other objects
    for stmt in walk(simplified(unroll(simplified(func))).body):
        for access in accesses(stmt):
            if not isinstance(access, (Load, Store)) or access.buffer.scope != "local":
                continue
            same = (access.buffer.name, access.buffer.shape) == (name, shape)
            if same and not all(isinstance(i, Imm) for i in access.indices):
                return True
    return False
