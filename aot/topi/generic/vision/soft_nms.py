"""vision.soft_nms: a heap of candidates in scratch memory; see `aot.op.vision.non_max_suppression`."""

from __future__ import annotations

from aot.numerics.elementary import MATH
from aot.op.vision.non_max_suppression import turns
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, equal, imm, logical_and, maximum, minimum, select
from aot.topi.generic.flat import accepts_alone, flat_kernel
from aot.topi.generic.vision.heap import Heap
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

ZERO = imm(0.0, "float32")


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
    columns = dict(zip(("score", "box", "begin"), memory, strict=True))
    heap = Heap(b, columns, lambda item: item[0], size, n.bit_length() + 1)
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
