"""Integer semantics and constant folding of scalar expressions."""

from __future__ import annotations

from collections.abc import Callable

from aot.support.dtype import bits, int_range, is_float, is_int, is_signed
from aot.tir.expr import BinOp, Expr, Imm


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
    """`expr`, or an equal and never larger expression: constants computed, neutral elements dropped."""
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
