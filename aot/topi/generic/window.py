"""Sliding windows over NHWC images: which taps of the kernel lie inside the image at an output position."""

from __future__ import annotations

from aot.support.dataclass import dataclass
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm, maximum, minimum


@dataclass(frozen=True, slots=True)
class TapRange:
    """Taps [first, last) of one axis; tap t reads coordinate origin + t * dilation."""

    origin: Expr
    first: Expr
    last: Expr

    def at(self, tap: Expr, dilation: int) -> Expr:
        return self.origin + tap * dilation


def tap_range(
    b: IRBuilder, position: Expr, *, size: int, taps: int, stride: int, dilation: int, before: int, after: int
) -> TapRange:
    """The taps inside an axis of `size` at output `position`; all of them where there is no padding."""
    origin = position * stride - before
    first: Expr = imm(0)
    last: Expr = imm(taps)
    if before or after:
        origin = b.let("origin", origin)
    if before:
        first = b.let("first", (maximum(0 - origin, 0) + (dilation - 1)) // dilation)
    if after:
        last = b.let("last", minimum((size - origin + (dilation - 1)) // dilation, taps))
    return TapRange(origin, first, last)
