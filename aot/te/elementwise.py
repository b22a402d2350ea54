"""Scalar functions for the rules of computes."""

from __future__ import annotations

from aot.support.dtype import is_dtype
from aot.te.operation import wrong
from aot.tir.expr import Expr, ExprOps, Imm, IntoExpr, as_expr, binop, logical_and, maximum, minimum
from aot.tir.expr import select as _select


def const(value: int | float, dtype: str = "int32") -> Expr:
    """A number of an element type (E5070 if it does not fit).

    `value`: the number; `dtype`: the element type, such as "int8".
    """
    if not is_dtype(dtype) or isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong(f"{value!r} is not a constant of type {dtype!r}")
    return as_expr(value, dtype)


def if_then_else(cond: Expr, then: IntoExpr, orelse: IntoExpr) -> Expr:
    """`then` where `cond` holds, else `orelse`; only the chosen side is computed, so it may guard an index."""
    x, y = _pair(then, orelse)
    test = as_expr(cond)
    if test.dtype != "bool":
        raise wrong(f"a condition of type {test.dtype}", "te.if_then_else")
    return _select(test, x, y)


def clip(value: IntoExpr, low: int | float, high: int | float) -> Expr:
    """min(max(value, low), high)."""
    if not low <= high:
        raise wrong(f"a range from {low} to {high}", "te.clip")
    return minimum(maximum(value, low), high)


def maximum_of(a: IntoExpr, b: IntoExpr) -> Expr:
    """The larger of two values (te.max reduces over an axis).

    `a` and `b` have one element type.
    """
    return maximum(a, b)


def minimum_of(a: IntoExpr, b: IntoExpr) -> Expr:
    """The smaller of two values (te.min reduces over an axis).

    `a` and `b` have one element type.
    """
    return minimum(a, b)


def all(*conditions: Expr) -> Expr:
    """Whether every condition holds; each is looked at only where those before it hold."""
    return _joined("&&", conditions)


def any(*conditions: Expr) -> Expr:
    """Whether one of the conditions holds."""
    return _joined("||", conditions)


def _joined(op: str, conditions: tuple[Expr, ...]) -> Expr:
    if not conditions:
        raise wrong("no condition", "te.all" if op == "&&" else "te.any")
    result = as_expr(conditions[0])
    for c in conditions[1:]:
        result = logical_and(result, c) if op == "&&" else binop("||", result, c)
    return result


def _pair(a: IntoExpr, b: IntoExpr) -> tuple[Expr, Expr]:
    """Two values of one type, a Python number taking the other's."""
    if isinstance(a, ExprOps) and not isinstance(a, Imm):
        x = as_expr(a)
        return x, as_expr(b, x.dtype)
    y = as_expr(b)
    return as_expr(a, y.dtype), y
