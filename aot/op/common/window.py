"""Sliding windows: TFLite's SAME and VALID padding, and the part of a window that lies inside the image."""

from __future__ import annotations

from aot.support.dataclass import dataclass
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, maximum, minimum

Padding = tuple[int, int, int, int]
"""(top, left, bottom, right)"""


def output_size(size: int, kernel: int, *, stride: int, dilation: int, before: int, after: int) -> int:
    """Positions of a window of `kernel` taps along one axis, given its padding; 0 or less if none fits."""
    return (size + before + after - ((kernel - 1) * dilation + 1)) // stride + 1


def inside(position: Expr, *, stride: int, before: int, kernel: int, size: int) -> tuple[Expr, Expr]:
    """[start, stop) of the image rows (or columns) that the window at output `position` covers, without the padding."""
    origin = position * stride - before
    return maximum(origin, 0), minimum(origin + kernel, size)


@dataclass(frozen=True, slots=True)
class TransposedTaps:
    """Taps rest + stride*t, t from first to last, of one output coordinate; tap t reads coordinate quotient - t."""

    quotient: Expr
    rest: Expr
    first: Expr
    last: Expr


@dataclass(frozen=True, slots=True)
class TransposedWindow:
    """A transposed convolution's geometry, each (vertical, horizontal); `cut` is left out at the top and the left."""

    image: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, int]
    cut: tuple[int, int]

    def taps(self, b: IRBuilder, *position: Expr) -> list[TransposedTaps]:
        """Along both axes the taps that bring something to the output at `position`."""
        axes = zip(position, self.image, self.kernel, self.strides, self.cut, strict=True)
        return [_transposed_taps(b, at, size=n, taps=k, stride=s, before=cut) for at, n, k, s, cut in axes]


def _transposed_taps(b: IRBuilder, position: Expr, *, size: int, taps: int, stride: int, before: int) -> TransposedTaps:
    shifted = b.let("shifted", position + before)
    quotient, rest = b.let("quotient", shifted // stride), b.let("rest", shifted % stride)
    count = (rest * -1 + (taps + stride - 1)) // stride  # of taps from rest on, none where rest is beyond the window
    first = b.let("first", maximum(quotient - (size - 1), 0))
    return TransposedTaps(quotient, rest, first, b.let("last", minimum(quotient + 1, count)))
