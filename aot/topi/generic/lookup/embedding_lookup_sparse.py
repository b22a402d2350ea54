"""embedding_lookup_sparse: entry by entry, with the place of the last one and its weights in registers."""

from __future__ import annotations

from math import prod

from aot.numerics.elementary import MATH
from aot.op.lookup.embedding_lookup_sparse import EmbeddingLookupSparseAttrs
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, imm, logical_and
from aot.topi.generic.flat import accepts_alone, flat_kernel
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


def _divide(
    b: IRBuilder, attrs: EmbeddingLookupSparseAttrs, out: Buffer, place: Expr, sums: tuple[Buffer, Buffer], n: int
) -> None:
    """The row of `place` by what its weights make."""
    total, squares = sums
    divisor = b.let("divisor", total[0] if attrs.combiner == "MEAN" else MATH["sqrt"](squares[0]))
    with b.for_("c", n) as c:
        at = b.let("at", place * n + c)
        b.store(out, at, out[at] / divisor)


def lower_embedding_lookup_sparse(group: Group, _target: Target, name: str) -> Lowered:
    """Zeros, then each entry."""
    kernel = flat_kernel(group, name)
    b, (ids, indices, weights, table), out = kernel.b, kernel.args, kernel.out
    attrs: EmbeddingLookupSparseAttrs = group.anchor.attrs
    depth, inner = len(attrs.places) + 1, out.size // prod(attrs.places)
    with b.for_("i", out.size) as i:
        b.store(out, i, 0.0)
    now, number = b.local("now", (1,), "int32", init=0), b.local("number", (1,), "int32", init=0)
    sums = (b.local("total", (1,), "float32", init=0.0), b.local("squares", (1,), "float32", init=0.0))
    with b.for_("i", ids.size) as i:
        row = b.let("row", ids[i])
        inside = logical_and(row >= 0, row < table.size // inner)
        numbers = [b.let("number", indices[i * depth + k]) for k in range(depth - 1)]
        for k, extent in zip(numbers, attrs.places, strict=True):
            inside = logical_and(inside, logical_and(k >= 0, k < extent))
        with b.if_(inside):
            place: Expr = imm(0)
            for k, extent in zip(numbers, attrs.places, strict=True):
                place = place * extent + k
            place = b.let("place", place)
            with b.if_(binop("!=", place, now[0])):
                if attrs.combiner != "SUM":
                    with b.if_(number[0] > 0):
                        _divide(b, attrs, out, now[0], sums, inner)
                b.store(now, 0, place)
                b.store(number, 0, 0)
                for s in sums:
                    b.store(s, 0, 0.0)
            w = b.let("w", weights[i])
            b.store(number, 0, number[0] + 1)
            b.store(sums[0], 0, sums[0][0] + w)
            b.store(sums[1], 0, sums[1][0] + w * w)
            with b.for_("c", inner) as c:
                at = b.let("at", place * inner + c)
                b.store(out, at, out[at] + table[row * inner + c] * w)
    if attrs.combiner != "SUM":
        with b.if_(number[0] > 0):
            _divide(b, attrs, out, now[0], sums, inner)
    return kernel.finish("embedding_lookup_sparse")


register_impl(
    OpImplementation("generic.embedding_lookup_sparse", "embedding_lookup_sparse", accepts_alone, lower_embedding_lookup_sparse)
)
