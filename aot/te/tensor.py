"""Rules of operators: a tensor as a function of its indices (TensorFn; te.Tensor, of the schedules, is an expression).

`at(b, indices)` returns the scalar expression of one element.  Element-wise rules only build an expression; reductions append
their loop to the builder `b` and return the accumulator, so a reduction composes with anything that follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aot.support.dataclass import dataclass
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, IntoExpr, Var, as_expr, maximum, minimum

At = Callable[[IRBuilder, tuple[Expr, ...]], Expr]


@dataclass(frozen=True, slots=True)
class TensorFn:
    """Shape, element type and the rule that gives element `indices`."""

    shape: tuple[int, ...]
    dtype: str
    at: At


@dataclass(frozen=True, slots=True)
class IterVar:
    """A reduction axis from `start` to `stop` (expressions; the range may be empty)."""

    name: str
    start: Expr
    stop: Expr


def elements_of(buffer: Buffer) -> TensorFn:
    """The elements of a buffer."""
    return TensorFn(buffer.shape, buffer.dtype, lambda _b, i: buffer[i])


def tensor_fn(shape: Sequence[int], dtype: str, rule: Callable[..., Expr]) -> TensorFn:
    """A tensor by an element-wise rule: `rule(b, *indices)`."""
    return TensorFn(tuple(shape), dtype, lambda b, i: rule(b, *i))


def reduce_axis(stop: IntoExpr, *, start: IntoExpr = 0, name: str = "r") -> IterVar:
    return IterVar(name, as_expr(start), as_expr(stop))


def reduce(
    b: IRBuilder,
    axes: Sequence[IterVar],
    term: Callable[..., Expr],
    *,
    combine: Callable[[Expr, Expr], Expr],
    init: IntoExpr,
    dtype: str = "int32",
) -> Expr:
    """Append loops over `axes` that combine `term(*axis variables)` into an accumulator; return the accumulator."""
    acc = b.local("acc", (1,), dtype, init=init)

    def nest(rest: Sequence[IterVar], variables: tuple[Var, ...]) -> None:
        if not rest:
            b.store(acc, 0, combine(acc[0], term(*variables)))
            return
        with b.for_(rest[0].name, rest[0].stop, start=rest[0].start) as var:
            nest(rest[1:], (*variables, var))

    nest(tuple(axes), ())
    return acc[0]


def wrapping(dtype: str) -> str:
    """The type in which sums of `dtype` wrap, as C leaves an overflow of signed ones undefined; only int32's can occur."""
    return "uint32" if dtype == "int32" else dtype


def sum(b: IRBuilder, axes: Sequence[IterVar], term: Callable[..., Expr], *, init: IntoExpr = 0, dtype: str = "int32") -> Expr:
    return reduce(b, axes, term, combine=lambda x, y: x + y, init=init, dtype=dtype)


def max(b: IRBuilder, axes: Sequence[IterVar], term: Callable[..., Expr], *, init: IntoExpr, dtype: str = "int32") -> Expr:
    return reduce(b, axes, term, combine=maximum, init=init, dtype=dtype)


def min(b: IRBuilder, axes: Sequence[IterVar], term: Callable[..., Expr], *, init: IntoExpr, dtype: str = "int32") -> Expr:
    return reduce(b, axes, term, combine=minimum, init=init, dtype=dtype)
