"""Operations on the bits of unsigned numbers."""

from __future__ import annotations

from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast


def bit_length(b: IRBuilder, x: Expr) -> Expr:
    """The bits that a uint32 expression needs, 0 to 32, as int32."""
    rest, length = b.local("rest", (1,), "uint32", init=x), b.local("length", (1,), "int32", init=0)
    for step in (16, 8, 4, 2, 1):
        with b.if_(binop("!=", rest[0] >> step, 0)):
            b.store(rest, 0, rest[0] >> step)
            b.store(length, 0, length[0] + step)
    return b.let("bits", length[0] + cast("int32", rest[0]))
