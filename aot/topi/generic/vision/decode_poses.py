"""vision.decode_poses: a heap of indices in scratch memory, persons beside it; see `aot.op.vision.decode_poses`."""

from __future__ import annotations

from math import prod

from aot.numerics.elementary import MATH
from aot.op.vision.decode_poses import EDGES, KEYPOINTS, REFINEMENTS, DecodePosesAttrs, steps
from aot.relay.expr import tensor_type
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, imm, logical_and, maximum, minimum
from aot.topi.generic.flat import accepts_alone, flat_kernel
from aot.topi.generic.vision.heap import Heap
from aot.topi.generic.vision.pose_map import ONE, ZERO, Place, PoseMap, square_distance
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


@dataclass(frozen=True, slots=True)
class _Persons:
    """Room for `count` persons, and how many there are: keypoints in cells, the logistic of their scores, persons' own scores.

    `order` are their numbers, best first; `visible` which keypoints of one of them count.
    """

    b: IRBuilder
    attrs: DecodePosesAttrs
    poses: Buffer
    parts: Buffer
    scores: Buffer
    order: Buffer
    visible: Buffer
    number: Buffer

    def place(self, person: Expr, keypoint: Expr) -> Place:
        at = self.b.let("at", (person * KEYPOINTS + keypoint) * 2)
        return self.poses[at], self.poses[at + 1]

    def near(self, one: Place, other: Place) -> Expr:
        return square_distance(self.b, one, other) <= imm(float(self.attrs.near), "float32")

    def mean(self, person: Expr) -> Expr:
        """The sum of the visible scores, largest first, divided by 17; all are hidden then."""
        b = self.b
        total = b.local("total", (1,), "float32", init=0)
        with b.for_("turn", KEYPOINTS):
            best, top = b.local("best", (1,), "int32", init=-1), b.local("top", (1,), "float32", init=-1)
            with b.for_("k", KEYPOINTS) as k, b.if_(binop("!=", self.visible[k], 0)):
                part = b.let("part", self.parts[person * KEYPOINTS + k])
                with b.if_(part > top[0]):
                    b.store(top, 0, part)
                    b.store(best, 0, k)
            with b.if_(best[0] >= 0):
                b.store(total, 0, total[0] + top[0])
                b.store(self.visible, best[0], 0)
        return b.let("mean", total[0] / imm(float(KEYPOINTS), "float32"))

    def show_all(self) -> None:
        with self.b.for_("k", KEYPOINTS) as k:
            self.b.store(self.visible, k, 1)

    def sort(self) -> None:
        """Best first; of equal ones the one found first."""
        b = self.b
        with b.for_("i", self.number[0]) as i:
            place = b.local("place", (1,), "int32")
            b.store(place, 0, i)
            with b.for_("j", i), b.if_(place[0] > 0):
                above = b.let("above", self.order[place[0] - 1])
                with b.if_(self.scores[above] < self.scores[i]):
                    b.store(self.order, place[0], above)
                    b.store(place, 0, place[0] - 1)
            b.store(self.order, place[0], i)

    def rescore(self) -> None:
        """Hide the keypoints that are near the same ones of better persons."""
        b = self.b
        with b.for_("i", self.number[0]) as i:
            self.show_all()
            person = b.let("person", self.order[i])
            with b.for_("j", i) as j, b.for_("k", KEYPOINTS) as k:
                better = b.let("better", self.order[j])
                with b.if_(self.near(self.place(person, k), self.place(better, k))):
                    b.store(self.visible, k, 0)
            b.store(self.scores, person, self.mean(person))

    def write(self, out: Buffer) -> None:
        """Those that still have the least score, in pixels; zeros behind them."""
        b, count = self.b, self.attrs.count
        with b.for_("i", out.size) as i:
            b.store(out, i, 0)
        written, last = b.local("written", (1,), "int32", init=0), out.size - 1
        with b.for_("i", self.number[0]) as i:
            person, to = b.let("person", self.order[i]), b.let("to", written[0])
            with b.if_(self.scores[person] >= imm(self.attrs.threshold, "float32")):
                stride, size = imm(float(self.attrs.stride), "float32"), 2 * KEYPOINTS
                with b.for_("k", size) as k:
                    b.store(out, to * size + k, self.poses[person * size + k] * stride)
                with b.for_("k", KEYPOINTS) as k:
                    b.store(out, count * size + to * KEYPOINTS + k, self.parts[person * KEYPOINTS + k])
                b.store(out, to + count * (size + KEYPOINTS), self.scores[person])
                b.store(written, 0, to + 1)
        b.store(out, last, cast("float32", written[0]))


def _fill(heap: Heap, scores: PoseMap, least: float) -> None:
    """Every score of at least `least` that is the largest around it."""
    b, (height, width, _) = heap.b, scores.shape
    with b.for_("y", height) as y, b.for_("x", width) as x, b.for_("k", KEYPOINTS) as k:
        index = b.let("index", (y * width + x) * KEYPOINTS + k)
        score = b.let("score", scores.data[index])
        with b.if_(scores.real(score) >= imm(least, "float32")):
            largest = b.local("largest", (1,), "int32", init=1)
            rows = b.let("top", maximum(y - 1, 0)), b.let("bottom", minimum(y + 2, height))
            columns = b.let("left", maximum(x - 1, 0)), b.let("right", minimum(x + 2, width))
            with b.for_("r", rows[1], start=rows[0]) as r, b.for_("c", columns[1], start=columns[0]) as c:  # noqa: SIM117
                with b.if_(scores.data[(r * width + c) * KEYPOINTS + k] > score):
                    b.store(largest, 0, 0)
            with b.if_(binop("!=", largest[0], 0)):
                heap.push((cast(next(iter(heap.columns.values())).dtype, index),))


def _grow(persons: _Persons, maps: tuple[PoseMap, PoseMap, PoseMap], *, walk: Buffer, root: Expr, start: Place) -> None:
    """The next person, from its root; it is kept if it has the least score."""
    b, (scores, shorts, mids) = persons.b, maps
    person = b.let("person", persons.number[0])
    base = b.let("base", person * (2 * KEYPOINTS))
    for axis in range(2):
        b.store(persons.poses, base + root * 2 + axis, start[axis])
    at = b.local("at", (2,), "float32")
    with b.for_("s", EDGES) as s:
        step = b.let("step", (root * EDGES + s) * 3)
        source, target, channel = (b.let(n, cast("int32", walk[step + i])) for i, n in enumerate(("source", "target", "channel")))
        for axis in range(2):
            b.store(at, axis, persons.poses[base + source * 2 + axis])
        mids.follow(at, channel, EDGES)
        with b.for_("again", REFINEMENTS):
            shorts.follow(at, target, KEYPOINTS)
        for axis in range(2):
            b.store(persons.poses, base + target * 2 + axis, at[axis])
    with b.for_("k", KEYPOINTS) as k:
        y, x = persons.place(person, k)
        score = scores.sample(scores.cell((b.let("y", y), b.let("x", x))), k)
        b.store(persons.parts, person * KEYPOINTS + k, ONE / (ONE + MATH["exp"](ZERO - score)))
    persons.show_all()
    mean = persons.mean(person)
    with b.if_(mean >= imm(persons.attrs.threshold, "float32")):
        b.store(persons.scores, person, mean)
        b.store(persons.number, 0, person + 1)


def lower(group: Group, _target: Target, name: str) -> Lowered:
    kernel = flat_kernel(group, name)
    b, attrs = kernel.b, group.anchor.attrs
    shapes = [tensor_type(arg).shape for arg in group.anchor.args]
    scores, shorts, mids = (PoseMap(b, d, s, w) for d, s, w in zip(kernel.args, shapes, attrs.maps, strict=True))
    places, count = prod(shapes[0]), attrs.count
    indices = b.scratch("heap", (places,), "uint16" if places <= 1 << 16 else "int32")
    size = b.local("size", (1,), "int32", init=0)
    heap = Heap(b, {"index": indices}, lambda item: scores.data[cast("int32", item[0])], size, places.bit_length() + 1)
    rooms = {"poses": 2 * KEYPOINTS * count, "parts": KEYPOINTS * count, "scores": count}
    memory = {key: b.scratch(key, (n,), "float32") for key, n in rooms.items()}
    order, visible = b.scratch("order", (count,), "int32"), b.scratch("visible", (KEYPOINTS,), "uint8", align=1)
    number = b.local("number", (1,), "int32", init=0)
    persons = _Persons(b, attrs, **memory, order=order, visible=visible, number=number)
    walk = kernel.table("walk", steps().reshape(-1))
    _fill(heap, scores, float(attrs.least_score))
    with b.for_("turn", places), b.if_(logical_and(number[0] < count, size[0] > 0)):
        index = b.let("root_index", cast("int32", heap.pop()[0]))
        pixel = b.let("pixel", index / KEYPOINTS)
        root, y = b.let("root", index - pixel * KEYPOINTS), b.let("y", pixel / shapes[0][1])
        at = (cast("float32", y), cast("float32", pixel - y * shapes[0][1]))
        start = shorts.moved(at, (shorts.at(pixel, root), shorts.at(pixel, root + KEYPOINTS)))
        free = b.local("free", (1,), "int32", init=1)
        with b.for_("p", number[0]) as p, b.if_(persons.near(start, persons.place(p, root))):
            b.store(free, 0, 0)
        with b.if_(binop("!=", free[0], 0)):
            _grow(persons, (scores, shorts, mids), walk=walk, root=root, start=start)
    persons.sort()
    persons.rescore()
    persons.sort()
    persons.write(kernel.out)
    return kernel.finish("decode_poses")


register_impl(OpImplementation("generic.decode_poses", "vision.decode_poses", accepts_alone, lower))
