"""What reductions share: axes, shapes and indices."""

from __future__ import annotations

from collections.abc import Sequence

from aot.ir.op import TypeRuleError
from aot.tir.expr import Expr


def reduced_shape(shape: Sequence[int], axes: Sequence[int], *, keepdims: bool) -> tuple[int, ...]:
    """`shape` without the axes, or with extent 1 in their place."""
    if any(not 0 <= a < len(shape) for a in axes):
        raise TypeRuleError(f"axes {axes} of {list(shape)}")
    return tuple(1 if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes)


def reduced_index(outer: Sequence[Expr], inner: Sequence[Expr], *, axes: Sequence[int], keepdims: bool) -> tuple[Expr, ...]:
    """The element of the data for element `outer` of the result and positions `inner` along the (sorted) axes."""
    rank = len(outer) if keepdims else len(outer) + len(axes)
    kept, reduced = iter(outer), iter(inner)
    index = []
    for axis in range(rank):
        own = next(kept) if keepdims or axis not in axes else None
        found = next(reduced) if axis in axes else own
        assert found is not None
        index.append(found)
    return tuple(index)
