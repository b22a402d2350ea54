"""Interval arithmetic over many instants at once: what `aot.tir.analysis.bounds` does for one, on numpy vectors.

A value is an int or int64[rows]; a span is its smallest and largest value, both included.  Where both are the same object the
value is known exactly at every instant, and so is the result of every operator.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from aot.ir.op import Array
from aot.support.dtype import int_range, is_float, is_signed
from aot.tir.buffer import Buffer
from aot.tir.expr import COMPARISONS, LOGICAL, BinOp, Call, Cast, Expr, Imm, Load, Select, Var

Value = int | Array
Span = tuple[Value, Value]
Cell = tuple[Buffer, int]
"""An element of scratch memory that holds a known value."""

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
    """All values that `expr` can take at each instant; loads and intrinsics can give all of their type."""
    kind: type = type(expr)  # as `match` would try one class after the other for the commonest nodes
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
            return _fitted(_binop(op, evaluate(a, env), evaluate(b, env), dtype=a.dtype), expr.dtype)
        case Cast(dtype, value):
            if is_float(value.dtype) or is_float(dtype):
                return _type_range(dtype)
            inner = evaluate(value, env)
            return inner if _fits(inner, dtype) else _type_range(dtype)
        case Select(cond, then, orelse):
            return _select(evaluate(cond, env), evaluate(then, env), evaluate(orelse, env))
    raise TypeError(f"not an expression: {expr!r}")


def _type_range(dtype: str) -> Span:
    """All values of a type, as far as sums of many stay within 64 bits; beyond, no offset of a buffer lies."""
    if is_float(dtype):
        return 0, 0
    low, high = int_range(dtype)
    return max(low, -_MOST), min(high, _MOST)


def _fits(span: Span, dtype: str) -> bool:
    low, high = _type_range(dtype)
    least, most = hull(span)
    return bool(least >= low and most <= high)


def _fitted(span: Span, dtype: str) -> Span:
    """Signed results never overflow (that is an error elsewhere); unsigned ones wrap to anything."""
    return span if is_signed(dtype) or dtype == "bool" or _fits(span, dtype) else _type_range(dtype)


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
            return _corners([x * y for x in a for y in b])
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
    """Operators that grow with their left side, and the remainder, which does as long as the quotient stays."""
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


def _corners(values: list[Value]) -> Span:
    return np.minimum.reduce(np.broadcast_arrays(*values)), np.maximum.reduce(np.broadcast_arrays(*values))


def _exact(op: str, a: Value, b: Value, *, dtype: str) -> Span:
    match op:
        case "+":
            return point(a + b)
        case "-":
            return point(a - b)
        case "*" if _largest(point(a)) * _largest(point(b)) <= _MOST:
            return point(a * b)
        case "min":
            return point(np.minimum(a, b))
        case "max":
            return point(np.maximum(a, b))
        case "&":
            return point(a & b)
        case "|":
            return point(a | b)
        case "^":
            return point(a ^ b)
        case ">>" if np.min(b) >= 0 and np.max(b) < 32:
            return point(a >> b)
        case "<<" if np.min(b) >= 0 and _largest(point(a)) << min(int(np.max(b)), 64) <= _MOST:
            return point(a << b)
        case "/" | "%" if np.all(b):
            return point(_quotient(a, b) if op == "/" else a - b * _quotient(a, b))
        case _:
            return _type_range(dtype)


def _decided(op: str, a: Span, b: Span) -> Span:
    """Comparisons and logical operators as 0 and 1."""
    (a0, a1), (b0, b1) = (tuple(map(np.asarray, s)) for s in (a, b))
    match op:
        case "<":
            always, never = a1 < b0, a0 >= b1
        case "<=":
            always, never = a1 <= b0, a0 > b1
        case ">":
            always, never = a0 > b1, a1 <= b0
        case ">=":
            always, never = a0 >= b1, a1 < b0
        case "==":
            always, never = (a0 == a1) & (b0 == b1) & (a0 == b0), (a1 < b0) | (b1 < a0)
        case "!=":
            always, never = (a1 < b0) | (b1 < a0), (a0 == a1) & (b0 == b1) & (a0 == b0)
        case "&&":
            always, never = (a0 != 0) & (b0 != 0), (a1 == 0) | (b1 == 0)
        case _:
            always, never = (a0 != 0) | (b0 != 0), (a1 == 0) & (b1 == 0)
    low = always.astype(np.int64)
    return point(low) if exact(a) and exact(b) else (low, (~never).astype(np.int64))


def narrowed(cond: Expr, env: dict[Var | Cell, Span]) -> dict[Var | Cell, Span]:
    """`env` where `cond` holds: comparisons of a variable, or of one with a constant added, bound it."""
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
