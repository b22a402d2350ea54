"""vision.soft_nms: a heap of candidates in scratch memory; see `aot.op.vision.non_max_suppression`."""

from __future__ import annotations

from dataclasses import dataclass

from aot.numerics.elementary import MATH
from aot.op.vision.non_max_suppression import turns
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, equal, imm, logical_and, maximum, minimum, select
from aot.topi.generic.flat import accepts_alone, flat_kernel
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

ZERO = imm(0.0, "float32")
Item = tuple[Expr, Expr, Expr]
"""Score, box, and how many of the chosen ones it has been compared with."""


@dataclass(frozen=True, slots=True)
class _Heap:
    """Candidates, best first; `size` is how many there are, `levels` as many as the heap can have."""

    b: IRBuilder
    scores: Buffer
    boxes: Buffer
    begins: Buffer
    size: Buffer
    levels: int

    def at(self, place: Expr) -> Item:
        b = self.b
        return b.let("score", self.scores[place]), b.let("box", self.boxes[place]), b.let("begin", self.begins[place])

    def put(self, place: Expr, item: Item) -> None:
        for buffer, value in zip((self.scores, self.boxes, self.begins), item, strict=True):
            self.b.store(buffer, place, value)

    def rise(self, item: Item, hole: Buffer) -> None:
        """Move an item up from a hole; once there, it stays in all further turns."""
        b = self.b
        with b.for_("level", self.levels), b.if_(hole[0] > 0):
            parent = b.let("parent", (hole[0] - 1) >> 1)
            above = self.at(parent)
            with b.if_(above[0] < item[0]):
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
                better = select(self.scores[right] < self.scores[right - 1], right - 1, right)
                b.store(child, 0, better)
                self.put(hole[0], self.at(child[0]))
                b.store(hole, 0, child[0])
            with b.if_(logical_and(equal(n & 1, 0), equal(child[0], (n - 2) >> 1))):
                only = b.let("only", child[0] * 2 + 1)
                self.put(hole[0], self.at(only))
                b.store(hole, 0, only)
            self.rise(last, hole)
        return top


def _overlap(b: IRBuilder, boxes: Buffer, one: Expr, other: Expr) -> Expr:
    """Intersection over union of two boxes; 0 if one has no area."""
    found = []
    for index in (one, other):
        c = [b.let("corner", boxes[index * 4 + i]) for i in range(4)]
        low = [b.let("low", minimum(c[i], c[i + 2])) for i in range(2)]
        high = [b.let("high", maximum(c[i], c[i + 2])) for i in range(2)]
        found.append((low, high, b.let("area", (high[0] - low[0]) * (high[1] - low[1]))))
    (low, high, area), (low2, high2, area2) = found
    sides = [b.let("side", maximum(minimum(high[i], high2[i]) - maximum(low[i], low2[i]), ZERO)) for i in range(2)]
    shared = b.let("shared", sides[0] * sides[1])
    empty = binop("||", area <= ZERO, area2 <= ZERO)
    return b.let("share", select(empty, ZERO, shared / (area + area2 - shared)))


def lower(group: Group, _target: Target, name: str) -> Lowered:
    kernel = flat_kernel(group, name)
    b, (boxes, scores, limit, lowest, sigma), out = kernel.b, kernel.args, kernel.out
    attrs, n = group.anchor.attrs, scores.size
    size = b.local("size", (1,), "int32", init=0)
    memory = [b.scratch(k, (n,), t) for k, t in (("heap_scores", "float32"), ("heap_boxes", "int32"), ("heap_begins", "int32"))]
    heap = _Heap(b, memory[0], memory[1], memory[2], size, n.bit_length() + 1)
    floor, bound = b.let("floor", lowest[0]), b.let("bound", limit[0])
    with b.for_("i", out.size) as i:
        b.store(out, i, 0)
    with b.for_("i", n) as i:
        score = b.let("given", scores[i])
        with b.if_(score > floor):
            heap.push((score, i, imm(0)))
    most = b.let("most", minimum(size[0], attrs.count))
    scale: Expr = ZERO
    if attrs.soft:
        wide = b.let("wide", cast("float64", select(sigma[0] > ZERO, sigma[0], imm(1.0, "float32"))))
        scale = b.let("scale", select(sigma[0] > ZERO, cast("float32", imm(-0.5, "float64") / wide), ZERO))
    with b.for_("turn", turns(n, attrs)), b.if_(logical_and(out[0] < most, size[0] > 0)):
        number = b.let("number", out[0])
        original, box, begin = heap.pop()
        state = b.local("state", (1,), "int32", init=0)  # 0: compare on, 1: enough, 2: dropped
        score_now = b.local("score_now", (1,), "float32")
        b.store(score_now, 0, original)
        with b.for_("k", b.let("others", number - begin)) as k, b.if_(equal(state[0], 0)):
            share = _overlap(b, boxes, box, out[number - k])
            with b.if_(share >= bound):
                b.store(state, 0, 2)
            with b.else_():
                if attrs.soft:
                    with b.if_(sigma[0] > ZERO):
                        b.store(score_now, 0, score_now[0] * MATH["exp"](scale * share * share))
                with b.if_(score_now[0] <= floor):
                    b.store(state, 0, 1)
        with b.if_(binop("!=", state[0], 2)):
            now = b.let("now", score_now[0])
            with b.if_(equal(now, original)):
                b.store(out, 0, number + 1)
                b.store(out, number + 1, box)
                b.store_as(out, "float32", number + (1 + attrs.count), now)
            with b.if_(now > floor):
                heap.push((now, box, number))
    return kernel.finish("soft_nms")


register_impl(OpImplementation("generic.soft_nms", "vision.soft_nms", accepts_alone, lower))
