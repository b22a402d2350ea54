"""Scalar expressions of the loop-nest IR.

Arithmetic follows C, made strict: signed overflow is an error (the interpreter reports it), unsigned types wrap, `/` and `%`
truncate, `<<` multiplies by a power of two (negative values too, which C99 leaves undefined), `>>` is arithmetic on signed types,
and shift amounts must be within the width.  Both operands of a BinOp have the same dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import cache
from operator import index
from typing import TYPE_CHECKING, Any

from aot.errors import Problem, UsageError
from aot.support.dataclass import dataclass
from aot.support.dtype import is_dtype, is_float

if TYPE_CHECKING:
    from aot.tir.buffer import Buffer
    from aot.tir.intrin import Intrin

COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!="})
LOGICAL = frozenset({"&&", "||"})
TRUTHS = COMPARISONS | LOGICAL
"""Operators that yield bool."""
ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^", "min", "max"})


class ExprError(UsageError, TypeError):
    """An expression that cannot be built: operands of different types, or a value that is not an expression (E5070)."""

    def __init__(self, message: str) -> None:
        super().__init__(Problem("E5070", message))


def _operator(op: str) -> Callable[[Any, IntoExpr], Expr]:
    """The method that builds `self op other`."""
    return lambda self, other: binop(op, self, other)


def _reflected(op: str) -> Callable[[Any, IntoExpr], Expr]:
    """The method that builds `other op self`."""
    return lambda self, other: binop(op, other, self)


class ExprOps:
    """Operator overloads that fold constants and drop neutral elements while building."""

    __slots__ = ()

    def astype(self, dtype: str) -> Expr:
        """The value converted to `dtype`: narrowing an integer keeps the low bits, float to integer truncates.

        Raises E5070 for an unknown type.
        """
        if not is_dtype(dtype):
            raise ExprError(f"unknown element type {dtype!r}")
        return cast(dtype, as_expr(self))

    def equal(self, other: IntoExpr) -> Expr:
        """`self == other` as an expression; Python's `==` compares the nodes themselves."""
        return binop("==", self, other)

    def not_equal(self, other: IntoExpr) -> Expr:
        """`self != other` as an expression."""
        return binop("!=", self, other)

    def __neg__(self) -> Expr:
        value = as_expr(self)
        return binop("*", value, -1) if is_float(value.dtype) else binop("-", 0, value)  # 0 - 0.0 would lose the sign

    __add__, __radd__ = _operator("+"), _reflected("+")
    __sub__, __rsub__ = _operator("-"), _reflected("-")
    __mul__, __rmul__ = _operator("*"), _reflected("*")
    __floordiv__ = __truediv__ = _operator("/")
    __mod__ = _operator("%")
    __lshift__, __rshift__ = _operator("<<"), _operator(">>")
    __and__, __or__ = _operator("&"), _operator("|")
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("<", "<=", ">", ">="))


class Symbol(ExprOps):
    """An object that can be used as an expression, such as a loop axis."""

    __slots__ = ()

    def as_expr(self) -> Expr:
        """The expression that it represents."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, init=False)
class Imm(ExprOps):
    """A constant; int, or float for float types."""

    value: int | float
    dtype: str = "int32"

    def __init__(self, value: int | float, dtype: str = "int32") -> None:
        _set_value(self, value)
        _set_dtype(self, dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Var(ExprOps):
    """A loop variable, a let-bound name or a scalar parameter; compared by identity."""

    name: str
    dtype: str = "int32"


@dataclass(frozen=True, slots=True, init=False)
class BinOp(ExprOps):
    """`a op b`; comparisons and logical operators yield bool."""

    op: str
    a: Expr
    b: Expr
    dtype: str = field(init=False, repr=False, compare=False)

    def __init__(self, op: str, a: Expr, b: Expr) -> None:
        _set_op(self, op)
        _set_a(self, a)
        _set_b(self, b)
        _set_type(self, "bool" if op in TRUTHS else a.dtype)

    def __bool__(self) -> bool:
        if self.op in COMPARISONS or self.op in LOGICAL:
            raise ExprError("a comparison has no value yet: use te.if_then_else and te.all in place of Python's if, and, or")
        return True


def _setters(node: type) -> tuple[Callable[[Any, Any], None], ...]:
    """Return what sets the slots of the commonest nodes: they dominate a compilation, and a frozen dataclass is 50 % slower."""
    return tuple(vars(node)[name].__set__ for name in node.__slots__)  # type: ignore[attr-defined]


_set_value, _set_dtype = _setters(Imm)
_set_op, _set_a, _set_b, _set_type = _setters(BinOp)


@dataclass(frozen=True, slots=True)
class Cast(ExprOps):
    """Conversion: narrowing an integer keeps the low bits; float to integer truncates and must be in range.

    float16 is a storage type: it is converted from and to float32 only; nothing is computed in it.
    """

    dtype: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Select(ExprOps):
    """`cond ? then : orelse`; only the chosen side is evaluated."""

    cond: Expr
    then: Expr
    orelse: Expr

    @property
    def dtype(self) -> str:
        return self.then.dtype


@dataclass(frozen=True, slots=True)
class Load(ExprOps):
    """An element of a buffer.

    If `dtype` is the buffer's, there is one index per dimension (or one flat index after flatten_buffer).  With another dtype (a
    typed load from a packed stream) there is one index, which counts elements of that dtype from the start of the buffer.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Call(ExprOps):
    """A scalar intrinsic."""

    intrin: Intrin
    args: tuple[Expr, ...]

    @property
    def dtype(self) -> str:
        return self.intrin.dtype


Expr = Imm | Var | BinOp | Cast | Select | Load | Call
IntoExpr = Expr | ExprOps | int | float

_NODES = frozenset({Imm, Var, BinOp, Cast, Select, Load, Call})


def imm(value: int | float, dtype: str = "int32") -> Imm:
    return Imm(value, dtype)


def as_expr(value: IntoExpr, dtype: str = "int32") -> Expr:
    """A Python number as an Imm of `dtype`; an expression unchanged. Raises E5070 for anything else."""
    if type(value) in _NODES:
        return value  # type: ignore[return-value]
    if isinstance(value, (int, float)):
        if isinstance(value, float) and not is_float(dtype):
            raise ExprError(f"{value!r} is not a {dtype}: convert the other operand with astype")
        return Imm(float(value) if is_float(dtype) else value, dtype)
    if isinstance(value, Symbol):
        return value.as_expr()
    try:
        return Imm(index(value), dtype)  # type: ignore[arg-type]  # numpy's integers
    except TypeError:
        raise ExprError(f"{type(value).__name__} is not an expression or a number") from None


def binop(op: str, a: IntoExpr, b: IntoExpr) -> Expr:
    """Build `a op b`; a Python number gets the dtype of the other side. Raises E5070 for operands of different types."""
    if type(a) in _NODES:
        x: Expr = a  # type: ignore[assignment]
        y: Expr = b if type(b) in _NODES else as_expr(b, x.dtype)  # type: ignore[assignment]
    else:
        y = as_expr(b, as_expr(a).dtype if isinstance(a, Symbol) else "int32")
        x = as_expr(a, y.dtype)
    if x.dtype != y.dtype:
        raise ExprError(f"{op} of {x.dtype} and {y.dtype}: convert one of them with astype")
    return _fold()(BinOp(op, x, y))


@cache
def _fold() -> Callable[[BinOp], Expr]:
    """The folding rules; imported here because they need the node classes above."""
    from aot.tir.arith import fold

    return fold


def cast(dtype: str, value: Expr) -> Expr:
    """Conversion, dropped if it changes nothing."""
    if value.dtype == dtype:
        return value
    if isinstance(value, Imm) and not is_float(dtype) and isinstance(value.value, int):
        from aot.tir.arith import wrap

        return Imm(wrap(value.value, dtype), dtype)
    return Cast(dtype, value)


def select(cond: Expr, then: Expr, orelse: Expr) -> Expr:
    """`cond ? then : orelse`, resolved at once if the condition is constant."""
    if isinstance(cond, Imm):
        return then if cond.value else orelse
    return Select(cond, then, orelse)


def minimum(a: IntoExpr, b: IntoExpr) -> Expr:
    return binop("min", a, b)


def maximum(a: IntoExpr, b: IntoExpr) -> Expr:
    return binop("max", a, b)


def clamp(value: Expr, low: int, high: int) -> Expr:
    """min(max(value, low), high)."""
    return minimum(maximum(value, low), high)


def equal(a: IntoExpr, b: IntoExpr) -> Expr:
    return binop("==", a, b)


def logical_and(a: IntoExpr, b: IntoExpr) -> Expr:
    return binop("&&", a, b)
