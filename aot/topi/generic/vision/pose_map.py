"""A map of PoseNet's in a kernel: what its numbers stand for, read between four elements; see `aot.op.vision.decode_poses`."""

from __future__ import annotations

from aot.op.vision.decode_poses import Linear
from aot.support.dataclass import dataclass
from aot.support.dtype import is_float
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, select

ZERO, ONE = imm(0.0, "float32"), imm(1.0, "float32")
Place = tuple[Expr, Expr]
"""y and x, float32, within the map."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The pixels around a place, upper ones first, left ones first, and how far it is from the first, down and to the right."""

    pixels: tuple[tuple[Expr, Expr], tuple[Expr, Expr]]
    parts: Place


@dataclass(frozen=True, slots=True)
class PoseMap:
    """A flat buffer [height, width, channels] and what its numbers stand for."""

    b: IRBuilder
    data: Buffer
    shape: tuple[int, ...]
    what: Linear

    def real(self, value: Expr) -> Expr:
        factor, zero_point = self.what
        wide = value if is_float(value.dtype) else cast("float32", cast("int32", value) - zero_point)
        return wide if factor == 1 else wide * imm(factor, "float32")

    def at(self, pixel: Expr, channel: Expr) -> Expr:
        return self.real(self.data[pixel * self.shape[2] + channel])

    def cell(self, place: Place) -> Cell:
        """A place that is no number is the first one."""
        b = self.b
        low = [b.let("low", cast("int32", select(at > ZERO, at, ZERO))) for at in place]
        parts = [b.let("part", at - cast("float32", at_low)) for at, at_low in zip(place, low, strict=True)]
        right, below = (
            b.let("high", n + cast("int32", part > ZERO)) for n, part in zip(reversed(low), reversed(parts), strict=True)
        )
        rows = [b.let("row", y * self.shape[1]) for y in (low[0], below)]
        pixels = [(b.let("left", row + low[1]), b.let("right", row + right)) for row in rows]
        return Cell((pixels[0], pixels[1]), (parts[0], parts[1]))

    def sample(self, cell: Cell, channel: Expr) -> Expr:
        """A channel between the four pixels."""
        b, (down, across) = self.b, cell.parts
        left, right = ([self.at(pixel, channel) for pixel in side] for side in zip(*cell.pixels, strict=True))
        rows = [b.let("mixed", (ONE - across) * p + across * q) for p, q in zip(left, right, strict=True)]
        return b.let("sample", (ONE - down) * rows[0] + down * rows[1])

    def moved(self, place: Place, offset: Place) -> Place:
        """A place and an offset, kept within the map."""
        kept = []
        for at, by, size in zip(place, offset, self.shape, strict=False):
            there, last = self.b.let("there", at + by), imm(float(size - 1), "float32")
            kept.append(self.b.let("kept", select(there < ZERO, ZERO, select(last < there, last, there))))
        return kept[0], kept[1]

    def follow(self, at: Buffer, channel: Expr, apart: int) -> None:
        """Move the place in `at` by the offset that is read there: y in `channel`, x `apart` channels later."""
        b = self.b
        place = (b.let("y", at[0]), b.let("x", at[1]))
        cell = self.cell(place)
        there = self.moved(place, (self.sample(cell, channel), self.sample(cell, channel + apart)))
        for axis in range(2):
            b.store(at, axis, there[axis])


def square_distance(b: IRBuilder, one: Place, other: Place) -> Expr:
    """The square of the distance of two places."""
    dy, dx = (b.let("d", q - p) for p, q in zip(one, other, strict=True))
    return b.let("square", dy * dy + dx * dx)
