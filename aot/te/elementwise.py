"""Scalar functions for the rules of `te.compute`."""

from __future__ import annotations

from collections.abc import Callable

from aot.numerics.elementary import ATAN2, FMOD, MATH, POW
from aot.support.dtype import is_dtype, is_float
from aot.te.operation import wrong
from aot.tir.expr import Expr, ExprOps, Imm, IntoExpr, as_expr, binop, imm, logical_and, maximum, minimum
from aot.tir.expr import select as _select
from aot.tir.intrin import Intrin


def const(value: int | float, dtype: str = "int32") -> Expr:
    """A number of an element type (E5070 if it does not fit).

    `value`: the number; `dtype`: the element type, such as "int8".
    """
    if not is_dtype(dtype) or isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong(f"{value!r} is not a constant of type {dtype!r}")
    return as_expr(value, dtype)


def if_then_else(cond: Expr, then: IntoExpr, orelse: IntoExpr) -> Expr:
    """`then` if `cond` holds, else `orelse`; only the chosen side is computed, so it may guard an index."""
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

    `a` and `b` have the same element type.
    """
    return maximum(a, b)


def minimum_of(a: IntoExpr, b: IntoExpr) -> Expr:
    """The smaller of two values (te.min reduces over an axis).

    `a` and `b` have the same element type.
    """
    return minimum(a, b)


def all(*conditions: Expr) -> Expr:
    """Whether every condition holds; each is evaluated only if all before it hold."""
    return _joined("&&", conditions)


def any(*conditions: Expr) -> Expr:
    """Whether at least one condition holds."""
    return _joined("||", conditions)


def _joined(op: str, conditions: tuple[Expr, ...]) -> Expr:
    if not conditions:
        raise wrong("no condition", "te.all" if op == "&&" else "te.any")
    result = as_expr(conditions[0])
    for c in conditions[1:]:
        result = logical_and(result, c) if op == "&&" else binop("||", result, c)
    return result


def _pair(a: IntoExpr, b: IntoExpr) -> tuple[Expr, Expr]:
    """Two values of the same type; a Python number gets the type of the other."""
    if isinstance(a, ExprOps) and not isinstance(a, Imm):
        x = as_expr(a)
        return x, as_expr(b, x.dtype)
    y = as_expr(b)
    return as_expr(a, y.dtype), y


# Elementary functions of float32, bit-exact with the operators of networks.


def _call(name: str, intrin: Intrin, *operands: IntoExpr) -> Expr:
    values = [as_expr(x, "float32") for x in operands]
    for value in values:
        if value.dtype != "float32":
            raise wrong(f'te.{name} of {value.dtype}: convert it with astype("float32")', f"te.{name}")
    return intrin(*values)


def _function(name: str, intrin: Intrin, result: str) -> Callable[[IntoExpr], Expr]:
    """The function of an intrinsic; `result`: what it returns, for the documentation."""

    def function(x: IntoExpr) -> Expr:
        return _call(name, intrin, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{result} (float32; E5070 for another type)."
    return function


exp = _function("exp", MATH["exp"], "e to the power of x")
log = _function("log", MATH["log"], "The natural logarithm of x")
sqrt = _function("sqrt", MATH["sqrt"], "The square root of x")
tanh = _function("tanh", MATH["tanh"], "The hyperbolic tangent of x")
sin = _function("sin", MATH["sin"], "The sine of x")
cos = _function("cos", MATH["cos"], "The cosine of x")
floor = _function("floor", MATH["floor"], "The largest whole number not above x")
ceil = _function("ceil", MATH["ceil"], "The smallest whole number not below x")
nearbyint = _function("nearbyint", MATH["rint"], "The whole number nearest to x, halves to even")


def rsqrt(x: IntoExpr) -> Expr:
    """1 / sqrt(x), rounded twice (float32; E5070 for another type)."""
    return imm(1.0, "float32") / sqrt(x)


def sigmoid(x: IntoExpr) -> Expr:
    """1 / (1 + exp(-x)), rounded in each step (float32; E5070 for another type)."""
    one = imm(1.0, "float32")
    return one / (one + exp(as_expr(x, "float32") * imm(-1.0, "float32")))


def trunc(x: IntoExpr) -> Expr:
    """x rounded towards zero (float32; E5070 for another type)."""
    value = as_expr(x, "float32")
    return _select(binop("<", value, 0.0), ceil(value), floor(value))


def abs(x: IntoExpr) -> Expr:
    """The magnitude of x, for any signed type; it is undefined for the lowest integer."""
    value = as_expr(x)
    if is_float(value.dtype):
        return _select(binop(">", value, 0.0), value, binop("-", 0.0, value))
    return _select(binop("<", value, 0), binop("-", 0, value), value)


def power(x: IntoExpr, y: IntoExpr) -> Expr:
    """x to the power of y (float32; E5070 for another type)."""
    return _call("power", POW, x, y)


def fmod(x: IntoExpr, y: IntoExpr) -> Expr:
    """The remainder of x / y with the sign of x (float32; E5070 for another type)."""
    return _call("fmod", FMOD, x, y)


def atan2(y: IntoExpr, x: IntoExpr) -> Expr:
    """The angle of the point (x, y) (float32; E5070 for another type)."""
    return _call("atan2", ATAN2, y, x)
