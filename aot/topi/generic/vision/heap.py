"""A heap in scratch memory that orders equal items as the C++ library's `priority_queue` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aot.support.dataclass import dataclass
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, equal, imm, logical_and, select

Item = tuple[Expr, ...]
"""One number for each column."""


@dataclass(frozen=True, slots=True)
class Heap:
    """Items, best first: name and buffer of each column, and how good an item is.

    `size` is how many there are, `levels` as many as the heap can have.
    """

    b: IRBuilder
    columns: Mapping[str, Buffer]
    score: Callable[[Item], Expr]
    size: Buffer
    levels: int

    def at(self, place: Expr) -> Item:
        return tuple(self.b.let(name, buffer[place]) for name, buffer in self.columns.items())

    def put(self, place: Expr, item: Item) -> None:
        for buffer, value in zip(self.columns.values(), item, strict=True):
            self.b.store(buffer, place, value)

    def _score_at(self, place: Expr) -> Expr:
        return self.score(tuple(buffer[place] for buffer in self.columns.values()))

    def rise(self, item: Item, hole: Buffer) -> None:
        """Move an item up from a hole; once there, it stays in all further turns."""
        b = self.b
        with b.for_("level", self.levels), b.if_(hole[0] > 0):
            parent = b.let("parent", (hole[0] - 1) >> 1)
            above = self.at(parent)
            with b.if_(self.score(above) < self.score(item)):
                self.put(hole[0], above)
                b.store(hole, 0, parent)
        self.put(hole[0], item)

    def push(self, item: Item) -> None:
        hole = self.b.local("hole", (1,), "int32")
        self.b.store(hole, 0, self.size[0])
        self.b.store(self.size, 0, self.size[0] + 1)
        self.rise(item, hole)

    def pop(self) -> Item:
        """Take the best one: the hole sinks along the better children, then the last item rises from it."""
        b, top = self.b, self.at(imm(0))
        b.store(self.size, 0, self.size[0] - 1)
        n = b.let("n", self.size[0])
        with b.if_(n > 0):
            last = self.at(n)
            hole, child = b.local("hole", (1,), "int32", init=0), b.local("child", (1,), "int32", init=0)
            with b.for_("level", self.levels), b.if_(child[0] < (n - 1) >> 1):
                right = b.let("right", (child[0] + 1) * 2)
                better = select(self._score_at(right) < self._score_at(right - 1), right - 1, right)
                b.store(child, 0, better)
                self.put(hole[0], self.at(child[0]))
                b.store(hole, 0, child[0])
            with b.if_(logical_and(equal(n & 1, 0), equal(child[0], (n - 2) >> 1))):
                only = b.let("only", child[0] * 2 + 1)
                self.put(hole[0], self.at(only))
                b.store(hole, 0, only)
            self.rise(last, hole)
        return top
