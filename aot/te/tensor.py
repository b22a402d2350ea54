"""Rules of operators: a tensor as a function of its indices (TensorFn; te.Tensor, used by schedules, is an expression).

`at(b, indices)` returns the scalar expression of one element.  Element-wise rules only build an expression; reductions append
their loop to the builder `b` and return the accumulator, so a reduction composes with whatever follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aot.support.dataclass import dataclass
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, IntoExpr, Var, as_expr, imm, maximum, minimum

At = Callable[[IRBuilder, tuple[Expr, ...]], Expr]


@dataclass(frozen=True, slots=True)
class TensorFn:
    """Shape, element type and the rule that computes the element at `indices`."""

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
    """A tensor defined by an element-wise rule: `rule(b, *indices)`."""
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

    def nest(remaining: Sequence[IterVar], variables: tuple[Var, ...]) -> None:
        if not remaining:
            b.store(acc, 0, combine(acc[0], term(*variables)))
            return
        with b.for_(remaining[0].name, remaining[0].stop, start=remaining[0].start) as var:
            nest(remaining[1:], (*variables, var))

    nest(tuple(axes), ())
    return acc[0]


def wrapping(dtype: str) -> str:
    """The type in which sums of `dtype` wrap, since C leaves signed overflow undefined; only int32 can overflow."""
    return "uint32" if dtype == "int32" else dtype


def sum(b: IRBuilder, axes: Sequence[IterVar], term: Callable[..., Expr], *, init: IntoExpr = 0, dtype: str = "int32") -> Expr:
    return reduce(b, axes, term, combine=lambda x, y: x + y, init=init, dtype=dtype)


def max(b: IRBuilder, axes: Sequence[IterVar], term: Callable[..., Expr], *, init: IntoExpr, dtype: str = "int32") -> Expr:
    return reduce(b, axes, term, combine=maximum, init=init, dtype=dtype)


def min(b: IRBuilder, axes: Sequence[IterVar], term: Callable[..., Expr], *, init: IntoExpr, dtype: str = "int32") -> Expr:
    return reduce(b, axes, term, combine=minimum, init=init, dtype=dtype)


# From tensors to loop nests: one nest per output, over its shape.


_NAMES = {1: ("c",), 2: ("m", "c"), 3: ("h", "w", "c"), 4: ("n", "h", "w", "c")}


def emit_nest(b: IRBuilder, out: Buffer, tensor: TensorFn) -> None:
    """Append loops over `out.shape` that store each element of `tensor`; an axis of extent 1 gets no loop.

    The shape of `out` may only differ by being flat: one axis with the same number of elements.
    """
    shape = tensor.shape
    flat = out.shape != shape
    if out.size != tensor_size(shape) or (flat and len(out.shape) != 1):
        raise ValueError(f"{out.name} of shape {out.shape} cannot hold a tensor of shape {shape}")
    names = _NAMES.get(len(shape)) or tuple(f"i{axis}" for axis in range(len(shape)))

    def nest(indices: tuple[Expr, ...]) -> None:
        axis = len(indices)
        if axis == len(shape):
            value = tensor.at(b, indices)
            b.store(out, _row_major(shape, indices) if flat or not shape else indices, value)
        elif shape[axis] == 1:
            nest((*indices, imm(0)))
        else:
            with b.for_(names[axis], shape[axis]) as var:
                nest((*indices, var))

    nest(())


def emit_flat(b: IRBuilder, out: Buffer, tensor: TensorFn, *, unroll: int = 4) -> None:
    """Append one loop that stores the elements of a one-dimensional tensor, `unroll` at a time, then the remaining elements.

    The values of an iteration are computed before any of them is stored, so that loads do not wait for stores.
    """
    (size,) = tensor.shape
    if out.shape != tensor.shape:
        raise ValueError(f"{out.name} of shape {out.shape} cannot hold a tensor of shape {tensor.shape}")

    def iteration(start: Expr, count: int) -> None:
        values = [b.let("value", tensor.at(b, (start + u,))) for u in range(count)]
        for u, value in enumerate(values):
            b.store(out, start + u, value)

    whole = size - size % unroll
    if whole == unroll:
        iteration(imm(0), unroll)
    elif whole:
        with b.for_("i", whole, step=unroll) as i:
            iteration(i, unroll)
    if whole < size:
        iteration(imm(whole), size - whole)


def tensor_size(shape: Sequence[int]) -> int:
    """Number of elements."""
    size = 1
    for extent in shape:
        size *= extent
    return size


def _row_major(shape: Sequence[int], indices: Sequence[Expr]) -> Expr:
    flat: Expr = imm(0)
    for extent, index in zip(shape, indices, strict=True):
        flat = flat * extent + index
    return flat
