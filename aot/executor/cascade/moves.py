"""The small kernels of a cascade beside its layers: moving rows, and filling rows with one value."""

from __future__ import annotations

from functools import lru_cache

from aot.support.dtype import itemsize
from aot.tir.builder import IRBuilder
from aot.tir.expr import Imm
from aot.tir.function import FuncAttrs, PrimFunc

UNROLL = 8


@lru_cache(maxsize=256)
def move_rows(size: int, *, words: bool) -> PrimFunc:
    """Copy `size` bytes upward, so that the target may start at any place before the source and overlap it.

    `words`: both addresses and `size` are multiples of four.
    """
    b = IRBuilder("move_rows")
    align = 4 if words else 1
    source = b.input("source", (size,), "int8", align=align)
    target = b.output("target", (size,), "int8", align=align)
    unit = "int32" if words else "int8"
    count = size // itemsize(unit)
    full = count // UNROLL * UNROLL
    if full:
        with b.for_("i", full, step=UNROLL) as i:
            for k in range(UNROLL):
                b.store_as(target, unit, i + k, source.load(unit, i + k))
    for k in range(full, count):
        b.store_as(target, unit, k, source.load(unit, k))
    return b.finish(FuncAttrs(kernel=f"generic.move_rows(bytes={size})", opt="speed"))


def move_instructions(size: int, *, words: bool) -> int:
    """About: a load and a store a unit, a loop of eight."""
    units = size // (4 if words else 1)
    return 12 + 2 * units + 3 * (units // UNROLL)


@lru_cache(maxsize=256)
def fill_rows(count: int, dtype: str, value: int | float) -> PrimFunc:
    """`count` elements of one value."""
    b = IRBuilder("fill_rows")
    target = b.output("target", (count,), dtype, align=1 if itemsize(dtype) == 1 else itemsize(dtype))
    with b.for_("i", count) as i:
        b.store(target, i, Imm(value, dtype))
    return b.finish(FuncAttrs(kernel=f"generic.fill_rows(elements={count})", opt="size"))
