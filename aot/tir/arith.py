"""Integer semantics, constant folding and interval arithmetic of scalar expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aot.support.dtype import bits, int_range, is_float, is_int, is_signed
from aot.tir.expr import BinOp, Call, Cast, Expr, Imm, Load, Select, Var


def wrap(value: int, dtype: str) -> int:
    """`value` reduced to the range of an integer dtype, modulo 2^width."""
    if dtype == "bool":
        return int(bool(value))
    n = bits(dtype)
    value &= (1 << n) - 1
    return value - (1 << n) if is_signed(dtype) and value >> (n - 1) else value


def trunc_div(a: int, b: int) -> int:
    """C's integer division."""
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def trunc_mod(a: int, b: int) -> int:
    """C's remainder: the sign of the dividend."""
    return a - b * trunc_div(a, b)


INT_MEANING: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": trunc_div,
    "%": trunc_mod,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "min": min,
    "max": max,
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "&&": lambda a, b: int(bool(a) and bool(b)),
    "||": lambda a, b: int(bool(a) or bool(b)),
}
"""The exact value of each operator, before the result is fitted into its dtype."""


def fold(expr: BinOp) -> Expr:
    """`expr`, or an equal expression that is never larger: constants folded, neutral elements dropped."""
    a, b = expr.a, expr.b
    if is_float(a.dtype):
        return expr
    if isinstance(a, Imm) and isinstance(b, Imm):
        return _fold_constants(expr, int(a.value), int(b.value))
    if isinstance(b, Imm):
        return _fold_right(expr, int(b.value))
    if isinstance(a, Imm):
        return _fold_left(expr, int(a.value))
    return expr


def _fold_constants(expr: BinOp, a: int, b: int) -> Expr:
    if expr.op in ("/", "%") and b == 0:
        return expr
    if expr.op in ("<<", ">>") and not 0 <= b < bits(expr.a.dtype):
        return expr
    value = INT_MEANING[expr.op](a, b)
    if expr.dtype == "bool":
        return Imm(value, "bool")
    low, high = int_range(expr.dtype)
    if not low <= value <= high:
        if is_signed(expr.dtype):
            return expr  # overflow: leave it for the verifier and the interpreter to report
        value = wrap(value, expr.dtype)
    return Imm(value, expr.dtype)


def _fold_right(expr: BinOp, b: int) -> Expr:
    a = expr.a
    if b == 0 and expr.op in ("+", "-", "<<", ">>", "|", "^"):
        return a
    if b == 1 and expr.op in ("*", "/"):
        return a
    if b == 0 and expr.op in ("*", "&"):
        return Imm(0, expr.dtype)
    if b == 1 and expr.op == "%":
        return Imm(0, expr.dtype)
    if expr.op in ("+", "-") and is_int(a.dtype) and isinstance(a, BinOp) and a.op in ("+", "-") and isinstance(a.b, Imm):
        # (x ± c1) ± c2 == x + (±c1 ± c2)
        total = (int(a.b.value) if a.op == "+" else -int(a.b.value)) + (b if expr.op == "+" else -b)
        if total == 0:
            return a.a
        return BinOp("+", a.a, Imm(total, a.dtype)) if total > 0 else BinOp("-", a.a, Imm(-total, a.dtype))
    if expr.op == "+" and b < 0 and is_signed(a.dtype) and b > int_range(a.dtype)[0]:
        return BinOp("-", a, Imm(-b, a.dtype))
    low, high = int_range(a.dtype) if is_int(a.dtype) else (0, 1)
    if (expr.op == "min" and b == high) or (expr.op == "max" and b == low):
        return a
    return expr


def _fold_left(expr: BinOp, a: int) -> Expr:
    b = expr.b
    if a == 0 and expr.op in ("+", "|", "^"):
        return b
    if a == 1 and expr.op == "*":
        return b
    if a == 0 and expr.op in ("*", "&", "/", "%", "<<", ">>"):
        return Imm(0, expr.dtype)
    if expr.op in ("+", "*"):
        return fold(BinOp(expr.op, b, expr.a))  # constants go right
    return expr


# Bounds: which values can an integer expression have, given the ranges of its variables?


Interval = tuple[int, int]
"""Smallest and largest value, both included."""


def exact_interval(op: str, a: Interval, b: Interval, *, dtype: str) -> Interval:
    """The mathematical values of `a op b`, before they are fitted into `dtype` (the operands' type)."""
    match op:
        case "+":
            return a[0] + b[0], a[1] + b[1]
        case "-":
            return a[0] - b[1], a[1] - b[0]
        case "*":
            if a[0] >= 0 and b[0] >= 0:
                return a[0] * b[0], a[1] * b[1]
            return _corners([x * y for x in a for y in b])
        case "min":
            return min(a[0], b[0]), min(a[1], b[1])
        case "max":
            return max(a[0], b[0]), max(a[1], b[1])
        case "/":
            return _quotient(a, b)
        case "%":
            return _remainder(a, b)
        case "<<" | ">>":
            return _shifted(op, a, b, dtype=dtype)
        case "&" | "|" | "^":
            return _bitwise(op, a, b)
        case _:
            always, never = decided(op, a, b)
            return int(always), int(not never)


def _corners(values: list[int]) -> Interval:
    return min(values), max(values)


def _quotient(a: Interval, b: Interval) -> Interval:
    if b[0] <= 0 <= b[1]:
        largest = max(abs(a[0]), abs(a[1]))
        return -largest, largest
    return _corners([trunc_div(x, y) for x in a for y in b])


def _remainder(a: Interval, b: Interval) -> Interval:
    smallest = b[0] if b[0] > 0 else -b[1] if b[1] < 0 else 0
    if a[0] >= 0 and a[1] < smallest:
        return a
    limit = max(abs(b[0]), abs(b[1]), 1) - 1
    return (0 if a[0] >= 0 else max(-limit, a[0])), (0 if a[1] <= 0 else min(limit, a[1]))


def _shifted(op: str, a: Interval, b: Interval, *, dtype: str) -> Interval:
    """Shift amounts outside the width are reported elsewhere, so only valid ones count here."""
    width = bits(dtype)
    low, high = max(b[0], 0), min(max(b[1], 0), width - 1)
    low = min(low, high)
    if op == "<<":
        return _corners([x << s for x in a for s in (low, high)])
    return _corners([x >> s for x in a for s in (low, high)])


def _bitwise(op: str, a: Interval, b: Interval) -> Interval:
    width = max(x.bit_length() for x in (*a, *b))
    if op == "&" and (a[0] >= 0 or b[0] >= 0):
        return 0, min(x[1] for x in (a, b) if x[0] >= 0)
    if a[0] >= 0 and b[0] >= 0:
        return 0, (1 << width) - 1
    return -(1 << width), (1 << width) - 1


def decided(op: str, a: Any, b: Any) -> tuple[Any, Any]:
    """Whether a comparison or logical operator of two intervals is always true, and whether it never is: numbers or arrays."""
    match op:
        case "<":
            return a[1] < b[0], a[0] >= b[1]
        case "<=":
            return a[1] <= b[0], a[0] > b[1]
        case "==":
            return (a[0] == a[1]) & (b[0] == b[1]) & (a[0] == b[0]), (a[1] < b[0]) | (b[1] < a[0])
        case "&&":
            return (a[0] != 0) & (b[0] != 0), (a[1] == 0) | (b[1] == 0)
        case "||":
            return (a[0] != 0) | (b[0] != 0), (a[1] == 0) & (b[1] == 0)
        case ">" | ">=":
            return decided("<" if op == ">" else "<=", b, a)
        case "!=":
            return decided("==", a, b)[::-1]
        case _:
            raise TypeError(f"unknown operator {op}")


def fits(value: Interval, dtype: str) -> bool:
    """Whether every value of the interval is one of `dtype`."""
    low, high = int_range(dtype)
    return low <= value[0] and value[1] <= high


def fitted(value: Interval, dtype: str) -> Interval:
    """The interval after the result is fitted into `dtype`: signed results that overflow do not return, unsigned ones wrap."""
    low, high = int_range(dtype)
    if low <= value[0] and value[1] <= high:
        return value
    if is_signed(dtype) and value[0] <= high and value[1] >= low:
        return max(low, value[0]), min(high, value[1])
    return low, high


def interval(expr: Expr, ranges: Mapping[Var, Interval]) -> Interval:
    """All possible values of `expr`; a variable without a known range has the range of its type. Integer and bool types only."""
    return Intervals(ranges).of(expr)


class Intervals:
    """`interval` with a cache, for many queries about expressions that share parts.

    `ranges` may grow between queries, but must not change for a variable that was part of one.
    """

    def __init__(self, ranges: Mapping[Var, Interval]) -> None:
        self._ranges = ranges
        self._known: dict[int, tuple[Expr, Interval]] = {}  # by id; keeping the expression keeps its id unique

    def of(self, expr: Expr) -> Interval:
        kind: type = type(expr)
        if kind is Imm:
            value = 0 if is_float(expr.dtype) else int(expr.value)  # type: ignore[union-attr,arg-type]
            return value, value
        if kind is Var:
            return self._ranges.get(expr) or int_range(expr.dtype)  # type: ignore[arg-type]
        entry = self._known.get(id(expr))
        if entry is None:
            values = self._binop(expr) if kind is BinOp else self._compute(expr)  # type: ignore[arg-type]
            entry = self._known[id(expr)] = expr, values
        return entry[1]

    def _binop(self, expr: BinOp) -> Interval:
        dtype = expr.a.dtype
        if is_float(dtype):
            return (0, 1)
        exact = exact_interval(expr.op, self.of(expr.a), self.of(expr.b), dtype=dtype)
        low, high = int_range(expr.dtype)
        return exact if low <= exact[0] and exact[1] <= high else fitted(exact, expr.dtype)

    def _compute(self, expr: Expr) -> Interval:
        match expr:
            case Load() | Call():
                return int_range(expr.dtype)
            case Cast(dtype, value):
                if is_float(value.dtype):
                    return int_range(dtype)
                inner = self.of(value)
                return inner if fits(inner, dtype) else int_range(dtype)
            case Select(cond, then, orelse):
                chosen = self.of(cond)
                if chosen[0] == chosen[1]:
                    return self.of(then if chosen[0] else orelse)
                t, o = self.of(then), self.of(orelse)
                return min(t[0], o[0]), max(t[1], o[1])
            case _:
                raise TypeError(f"not an expression: {expr!r}")
