"""A small function that differs from others of its form in its numbers only."""

from __future__ import annotations

from aot.tir.builder import IRBuilder
from aot.tir.expr import cast, clamp
from aot.tir.function import PrimFunc


def scale(count: int, factor: int, zero_point: int, *, name: str = "scale", lo: int = -128) -> PrimFunc:
    """y = clamp(x * factor >> 3 + zero_point), with a local buffer and names of its own."""
    b = IRBuilder(name)
    x, y = b.input(f"x_{name}", (count // 2, 2), "int8"), b.output("y", (count // 2, 2), "int8")
    with b.for_(f"i_{name}", count // 2) as i:
        acc = b.local("acc", (2,), "int32")
        with b.for_("j", 2, kind="unroll") as j:
            b.store(acc, j, cast("int32", x[i, j]) * factor)
        with b.for_("j", 2, kind="unroll") as j:
            b.store(y, (i, j), clamp((acc[j] >> 3) + zero_point, lo, 127))
    return b.finish()
