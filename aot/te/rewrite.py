"""New rules from old ones: readers of a cache, a rule with axes of its own, partial reductions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aot.support.dtype import int_range, is_float, is_signed
from aot.te.operation import ComputeOp, IterVar, Reduce, Tensor, tensor_of
from aot.te.relation import Relation, Split
from aot.tir.analysis.bounds import interval
from aot.tir.buffer import Buffer
from aot.tir.expr import Expr, Var
from aot.tir.functor import Cloner

Body = Expr | Reduce


def commutes(body: Reduce, data: Sequence[IterVar]) -> str:
    """Why the values of a reduction may not be taken in another order; "" where they may.

    Float results depend on the order.  Signed partial sums may overflow in one order and not in another, unless all of them fit.
    """
    dtype = body.dtype
    if is_float(dtype):
        return f"this changes the order of a {body.combiner} of {dtype}, and with it the rounding"
    if body.combiner in ("max", "min") or not is_signed(dtype):
        return ""
    ranges = {a.var: (0, (a.extent or int_range("int32")[1]) - 1) for a in (*data, *body.axes)}
    low, high = interval(body.value, ranges)
    count = 1
    for axis in body.axes:
        count *= axis.extent or 1
    least, most = int_range(dtype)
    if body.combiner == "sum" and count * min(low, 0) >= least and count * max(high, 0) <= most:
        return ""
    return (
        f"this changes the order of a {body.combiner} of {dtype}, and partial results might overflow: "
        f"{count} values in {low}..{high}; accumulate in a wider type"
    )


def map_body(body: Body, cloner: Cloner) -> Body:
    """A rule with its variables and tensors replaced."""
    if isinstance(body, Reduce):
        return Reduce(body.combiner, cloner.expr(body.value), body.axes)
    return cloner.expr(body)


def reads_from(body: Body, tensors: Mapping[Tensor, Tensor]) -> Body:
    """A rule that reads other tensors in the place of some."""
    replaced: dict[Buffer, Buffer] = {old: new for old, new in tensors.items()}
    return map_body(body, Cloner(buffers=replaced))


def copied_rule(axis: Sequence[IterVar], body: Body, tensor: Tensor, *, name: str) -> Tensor:
    """A tensor of the same rule with data axes of its own; reduction axes are shared."""
    fresh = tuple(IterVar(f"{a.name}.c", "data", a.extent) for a in axis)
    places: dict[Var, Expr] = {a.var: f.var for a, f in zip(axis, fresh, strict=True)}
    return tensor_of(ComputeOp(name, fresh, map_body(body, Cloner(places))), tensor.shape)


def factored(
    axes: Sequence[IterVar], body: Reduce, relations: tuple[Relation, ...], *, axis: tuple[IterVar, int], name: str
) -> tuple[Tensor, Reduce] | str:
    """(tensor of partial results, reduction that combines them), or why that cannot be done.

    `axis`: the loop that becomes dimension number axis[1] of the partial results.
    """
    loop, position = axis
    found = _parts(body, relations, loop)
    if isinstance(found, str):
        return found
    root, factor, other = found
    extent = loop.extent or 1
    chosen = IterVar(loop.name, "data", extent)
    places: dict[Var, Expr] = {}
    rest = tuple(a for a in body.axes if a is not root)
    if other is None:
        places[root.var] = chosen.var
    else:
        left = IterVar(other.name, "reduce", other.extent)
        outer, inner = (chosen, left) if factor > 0 else (left, chosen)
        places[root.var] = outer.var * abs(factor) + inner.var
        rest = tuple(left if a is root else a for a in body.axes)
    fresh = [IterVar(f"{a.name}.f", "data", a.extent) for a in axes]
    places |= {a.var: f.var for a, f in zip(axes, fresh, strict=True)}
    value = Cloner(places).expr(body.value)
    all_axes = (*fresh[:position], chosen, *fresh[position:])
    op = ComputeOp(name, all_axes, Reduce(body.combiner, value, rest) if rest else value)
    partial = tensor_of(op, tuple(a.extent or 1 for a in all_axes))
    last = IterVar(f"{loop.name}.v", "reduce", extent)
    indices: list[Expr] = [a.var for a in axes]
    element = partial[(*indices[:position], last.var, *indices[position:])]
    return partial, Reduce(body.combiner, element, (last,))


def _parts(body: Reduce, relations: tuple[Relation, ...], loop: IterVar) -> tuple[IterVar, int, IterVar | None] | str:
    """(axis, factor of the split, other half): the factor is negative where `loop` is the inner half."""
    if not relations and loop in body.axes:
        return loop, 1, None
    if len(relations) == 1 and isinstance(relations[0], Split) and relations[0].parent in body.axes:
        split = relations[0]
        outer, inner, total = split.outer.extent or 1, split.inner.extent or 1, split.parent.extent
        if outer * inner != total:
            return f"the split into {outer} times {inner} does not divide the {total} iterations"
        if loop is split.outer:
            return split.parent, inner, split.inner
        if loop is split.inner:
            return split.parent, -inner, split.outer
    return "rfactor takes a reduction axis, or one half of its split, before other primitives on the stage"
