"""Post-processing of detections: boxes, non-maximum suppression, poses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from aot.numerics.elementary import EXP_DOUBLE, MATH
from aot.op import vision
from aot.relay.expr import tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_float
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, equal, imm, logical_and, maximum, minimum, select
from aot.topi.generic.flat import FlatKernel, fill, register_flat, summed


def _parts(kernel: FlatKernel, base: Expr) -> list[Expr]:
    """y / scale, x / scale, e^(h / scale) / 2, e^(w / scale) / 2 of the encoding at `base`, in float64."""
    b, data, attrs = kernel.b, kernel.args[0], kernel.attrs
    if is_float(data.dtype):
        wide = [cast("float64", data[base + i]) / imm(attrs.scales[i], "float64") for i in range(4)]
        half = imm(0.5, "float64")
        return [b.let("part", w) if i < 2 else b.let("part", half * EXP_DOUBLE(w)) for i, w in enumerate(wide)]
    low, high = int_range(data.dtype)
    codes = np.repeat(np.arange(low, high + 1).astype(data.dtype)[:, None], 4, axis=1)
    tables: dict[bytes, Buffer] = {}
    parts: list[Expr] = []
    for i, column in enumerate(vision.decoded_parts(codes, attrs)):
        table = tables.get(column.tobytes())
        if table is None:
            table = tables[column.tobytes()] = kernel.table("decoded", np.ascontiguousarray(column))
        parts.append(b.let("part", table[cast("int32", data[base + i]) - low]))
    return parts


def _real(value: Expr, quant: vision.Real) -> Expr:
    """An element as float32."""
    if is_float(value.dtype):
        return value
    return cast("float32", cast("int32", value) - quant[1]) * imm(quant[0], "float32")


@register_flat("vision.decode_boxes")
def lower_decode_boxes(kernel: FlatKernel) -> None:
    b, (_, anchors), out = kernel.b, kernel.args, kernel.out
    boxes, length = kernel.shape(0)
    with b.for_("m", boxes) as m:
        y, x, h, w = _parts(kernel, b.let("encoding", m * length))
        first = b.let("first", m * 4)
        anchor = [b.let("anchor", cast("float64", _real(anchors[first + i], kernel.attrs.anchors))) for i in range(4)]
        for axis, (centre, half) in enumerate(((y, h), (x, w))):
            middle = b.let("centre", cast("float32", centre * anchor[2 + axis] + anchor[axis]))
            extent = b.let("half", cast("float32", half * anchor[2 + axis]))
            b.store(out, first + axis, middle - extent)
            b.store(out, first + axis + 2, middle + extent)


@register_flat("vision.nms")
def lower_nms(kernel: FlatKernel) -> None:
    """Select the best active box `count` times, without sorting.  Scratch memory: each box's best score and whether it is still
    active.
    """
    b, (boxes, scores), out = kernel.b, kernel.args, kernel.out
    attrs, (n, classes) = kernel.attrs, kernel.shape(1)
    best = b.scratch("best", (n,), scores.dtype)
    active = b.scratch("active", (n,), "uint8", align=1)
    with b.for_("m", n) as m:
        row = b.let("row", m * classes)
        top = b.local("top", (1,), scores.dtype)
        b.store(top, 0, scores[row + attrs.first_class])
        with b.for_("c", classes, start=attrs.first_class + 1) as c:
            b.store(top, 0, maximum(scores[row + c], top[0]))
        b.store(best, m, top[0])
        b.store(active, m, cast("uint8", _reaches(top[0], attrs.score_threshold)))
    with b.for_("k", attrs.count) as k:
        chosen = b.local("chosen", (1,), "int32", init=-1)
        top = b.local("top", (1,), scores.dtype, init=0)
        with b.for_("m", n) as m, b.if_(binop("!=", active[m], 0)):  # noqa: SIM117 - one loop, one test
            with b.if_(binop("||", chosen[0] < 0, best[m] > top[0])):
                b.store(chosen, 0, m)
                b.store(top, 0, best[m])
        winner = b.let("winner", chosen[0])
        b.store(out, k, winner)
        with b.if_(winner >= 0):
            b.store(active, winner, 0)
            _drop_overlapping(b, boxes, active, winner=winner, threshold=attrs.iou_threshold)


def _reaches(score: Expr, threshold: float) -> Expr:
    if is_float(score.dtype):
        return score >= imm(threshold, score.dtype)
    low, high = int_range(score.dtype)
    if not low < threshold <= high:  # all scores reach the threshold, or none does
        return imm(int(threshold <= low), "bool")
    return cast("int32", score) >= int(threshold)


def _corners(b: IRBuilder, boxes: Buffer, index: Expr) -> tuple[list[Expr], Expr]:
    """(ymin, xmin, ymax, xmax) and area."""
    base = b.let("base", index * 4)
    corners: list[Expr] = [b.let("corner", boxes[base + i]) for i in range(4)]
    return corners, b.let("area", (corners[2] - corners[0]) * (corners[3] - corners[1]))


def _drop_overlapping(b: IRBuilder, boxes: Buffer, active: Buffer, *, winner: Expr, threshold: float) -> None:
    """Deactivate the boxes that overlap the winner by more than the threshold; an empty box overlaps none."""
    zero = imm(0.0, "float32")
    own, area = _corners(b, boxes, winner)
    with b.for_("m", active.size) as m, b.if_(logical_and(area > zero, binop("!=", active[m], 0))):
        other, other_area = _corners(b, boxes, m)
        with b.if_(other_area > zero):
            sides = [
                b.let("side", maximum(minimum(own[i + 2], other[i + 2]) - maximum(own[i], other[i]), zero)) for i in range(2)
            ]
            shared = b.let("shared", sides[0] * sides[1])
            with b.if_(shared / (area + other_area - shared) > imm(threshold, "float32")):
                b.store(active, m, 0)


# A heap in scratch memory that orders equal items like `priority_queue` of the C++ library.


Item = tuple[Expr, ...]
"""One number per column."""


@dataclass(frozen=True, slots=True)
class Heap:
    """A heap of items, best first: name and buffer of each column, and a function that rates an item.

    `size`: current number of items; `levels`: most levels that the heap can have.
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
        """Move an item up from a hole; once in place, it stays there for the remaining iterations."""
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
        """Remove the best item: the hole sinks along the better children, then the last item rises from it."""
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


# vision.soft_nms: a heap of candidates in scratch memory; see `aot.op.vision.non_max_suppression`.


def _overlap(b: IRBuilder, boxes: Buffer, one: Expr, other: Expr) -> Expr:
    """Intersection over union of two boxes; 0 if either has no area."""
    corners = []
    for index in (one, other):
        c = [b.let("corner", boxes[index * 4 + i]) for i in range(4)]
        low = [b.let("low", minimum(c[i], c[i + 2])) for i in range(2)]
        high = [b.let("high", maximum(c[i], c[i + 2])) for i in range(2)]
        corners.append((low, high, b.let("area", (high[0] - low[0]) * (high[1] - low[1]))))
    (low, high, area), (low2, high2, area2) = corners
    sides = [b.let("side", maximum(minimum(high[i], high2[i]) - maximum(low[i], low2[i]), ZERO)) for i in range(2)]
    shared = b.let("shared", sides[0] * sides[1])
    empty = binop("||", area <= ZERO, area2 <= ZERO)
    return b.let("share", select(empty, ZERO, shared / (area + area2 - shared)))


@register_flat("vision.soft_nms")
def lower_soft_nms(kernel: FlatKernel) -> None:
    b, (boxes, scores, limit, lowest, sigma), out = kernel.b, kernel.args, kernel.out
    attrs, n = kernel.attrs, scores.size
    size = b.local("size", (1,), "int32", init=0)
    memory = [b.scratch(k, (n,), t) for k, t in (("heap_scores", "float32"), ("heap_boxes", "int32"), ("heap_begins", "int32"))]
    columns = dict(zip(("score", "box", "begin"), memory, strict=True))
    heap = Heap(b, columns, lambda item: item[0], size, n.bit_length() + 1)
    floor, bound = b.let("floor", lowest[0]), b.let("bound", limit[0])
    fill(b, out, 0)
    with b.for_("i", n) as i:
        score = b.let("given", scores[i])
        with b.if_(score > floor):
            heap.push((score, i, imm(0)))
    most = b.let("most", minimum(size[0], attrs.count))
    scale: Expr = ZERO
    if attrs.soft:
        wide = b.let("wide", cast("float64", select(sigma[0] > ZERO, sigma[0], imm(1.0, "float32"))))
        scale = b.let("scale", select(sigma[0] > ZERO, cast("float32", imm(-0.5, "float64") / wide), ZERO))
    with b.for_("turn", vision.turns(n, attrs)), b.if_(logical_and(out[0] < most, size[0] > 0)):
        number = b.let("number", out[0])
        original, box, begin = heap.pop()
        state = b.local("state", (1,), "int32", init=0)  # 0: go on comparing, 1: done, 2: dropped
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


# A PoseNet map inside of a kernel: dequantised values, interpolated between four elements; see `aot.op.vision.decode_poses`.


ZERO, ONE = imm(0.0, "float32"), imm(1.0, "float32")
Place = tuple[Expr, Expr]
"""y and x, float32, within the map."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The four pixels around a place (upper row first, left first), and the place's distance from the first one, down and to the
    right.
    """

    pixels: tuple[tuple[Expr, Expr], tuple[Expr, Expr]]
    parts: Place


@dataclass(frozen=True, slots=True)
class PoseMap:
    """A flat buffer [height, width, channels] and the meaning of its numbers."""

    b: IRBuilder
    data: Buffer
    shape: tuple[int, ...]
    what: vision.Linear

    def real(self, value: Expr) -> Expr:
        factor, zero_point = self.what
        wide = value if is_float(value.dtype) else cast("float32", cast("int32", value) - zero_point)
        return wide if factor == 1 else wide * imm(factor, "float32")

    def at(self, pixel: Expr, channel: Expr) -> Expr:
        return self.real(self.data[pixel * self.shape[2] + channel])

    def cell(self, place: Place) -> Cell:
        """The cell around a place; NaN counts as the first pixel."""
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
        """A channel, interpolated between the four pixels."""
        b, (down, across) = self.b, cell.parts
        left, right = ([self.at(pixel, channel) for pixel in side] for side in zip(*cell.pixels, strict=True))
        rows = [b.let("mixed", (ONE - across) * p + across * q) for p, q in zip(left, right, strict=True)]
        return b.let("sample", (ONE - down) * rows[0] + down * rows[1])

    def moved(self, place: Place, offset: Place) -> Place:
        """A place plus an offset, clamped to the map."""
        kept = []
        for at, by, size in zip(place, offset, self.shape, strict=False):
            there, last = self.b.let("there", at + by), imm(float(size - 1), "float32")
            kept.append(self.b.let("kept", select(there < ZERO, ZERO, select(last < there, last, there))))
        return kept[0], kept[1]

    def follow(self, at: Buffer, channel: Expr, apart: int) -> None:
        """Move the place in `at` by the offset read there: y in `channel`, x `apart` channels later."""
        b = self.b
        place = (b.let("y", at[0]), b.let("x", at[1]))
        cell = self.cell(place)
        there = self.moved(place, (self.sample(cell, channel), self.sample(cell, channel + apart)))
        for axis in range(2):
            b.store(at, axis, there[axis])


def square_distance(b: IRBuilder, one: Place, other: Place) -> Expr:
    """The square of the distance between two places."""
    dy, dx = (b.let("d", q - p) for p, q in zip(one, other, strict=True))
    return b.let("square", dy * dy + dx * dx)


# vision.decode_poses: a heap of indices and the persons, in scratch memory; see `aot.op.vision.decode_poses`.


@dataclass(frozen=True, slots=True)
class _Persons:
    """Room for `count` persons and their current number: keypoints in cells, the logistic of their scores, the persons' own
    scores.

    `order`: their numbers, best first; `visible`: which keypoints of one person count.
    """

    b: IRBuilder
    attrs: vision.DecodePosesAttrs
    poses: Buffer
    parts: Buffer
    scores: Buffer
    order: Buffer
    visible: Buffer
    number: Buffer

    def place(self, person: Expr, keypoint: Expr) -> Place:
        at = self.b.let("at", (person * vision.KEYPOINTS + keypoint) * 2)
        return self.poses[at], self.poses[at + 1]

    def near(self, one: Place, other: Place) -> Expr:
        return square_distance(self.b, one, other) <= imm(float(self.attrs.near), "float32")

    def mean(self, person: Expr) -> Expr:
        """The sum of the visible scores, largest first, divided by 17; afterwards all are hidden."""
        b = self.b
        total = b.local("total", (1,), "float32", init=0)
        with b.for_("turn", vision.KEYPOINTS):
            best, top = b.local("best", (1,), "int32", init=-1), b.local("top", (1,), "float32", init=-1)
            with b.for_("k", vision.KEYPOINTS) as k, b.if_(binop("!=", self.visible[k], 0)):
                part = b.let("part", self.parts[person * vision.KEYPOINTS + k])
                with b.if_(part > top[0]):
                    b.store(top, 0, part)
                    b.store(best, 0, k)
            with b.if_(best[0] >= 0):
                b.store(total, 0, total[0] + top[0])
                b.store(self.visible, best[0], 0)
        return b.let("mean", total[0] / imm(float(vision.KEYPOINTS), "float32"))

    def show_all(self) -> None:
        fill(self.b, self.visible, 1, loop="k")

    def sort(self) -> None:
        """Sort, best first; of equal persons, the one found first."""
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
        """Hide keypoints that are near the same keypoints of better persons."""
        b = self.b
        with b.for_("i", self.number[0]) as i:
            self.show_all()
            person = b.let("person", self.order[i])
            with b.for_("j", i) as j, b.for_("k", vision.KEYPOINTS) as k:
                better = b.let("better", self.order[j])
                with b.if_(self.near(self.place(person, k), self.place(better, k))):
                    b.store(self.visible, k, 0)
            b.store(self.scores, person, self.mean(person))

    def write(self, out: Buffer) -> None:
        """Write the persons that still have the least score, in pixels, followed by zeros."""
        b, count = self.b, self.attrs.count
        fill(b, out, 0)
        written, last = b.local("written", (1,), "int32", init=0), out.size - 1
        with b.for_("i", self.number[0]) as i:
            person, to = b.let("person", self.order[i]), b.let("to", written[0])
            with b.if_(self.scores[person] >= imm(self.attrs.threshold, "float32")):
                stride, size = imm(float(self.attrs.stride), "float32"), 2 * vision.KEYPOINTS
                with b.for_("k", size) as k:
                    b.store(out, to * size + k, self.poses[person * size + k] * stride)
                with b.for_("k", vision.KEYPOINTS) as k:
                    b.store(out, count * size + to * vision.KEYPOINTS + k, self.parts[person * vision.KEYPOINTS + k])
                b.store(out, to + count * (size + vision.KEYPOINTS), self.scores[person])
                b.store(written, 0, to + 1)
        b.store(out, last, cast("float32", written[0]))


def _fill(heap: Heap, scores: PoseMap, least: float) -> None:
    """Push every score that is at least `least` and is the largest in its neighbourhood."""
    b, (height, width, _) = heap.b, scores.shape
    with b.for_("y", height) as y, b.for_("x", width) as x, b.for_("k", vision.KEYPOINTS) as k:
        index = b.let("index", (y * width + x) * vision.KEYPOINTS + k)
        score = b.let("score", scores.data[index])
        with b.if_(scores.real(score) >= imm(least, "float32")):
            largest = b.local("largest", (1,), "int32", init=1)
            rows = b.let("top", maximum(y - 1, 0)), b.let("bottom", minimum(y + 2, height))
            columns = b.let("left", maximum(x - 1, 0)), b.let("right", minimum(x + 2, width))
            with b.for_("r", rows[1], start=rows[0]) as r, b.for_("c", columns[1], start=columns[0]) as c:  # noqa: SIM117
                with b.if_(scores.data[(r * width + c) * vision.KEYPOINTS + k] > score):
                    b.store(largest, 0, 0)
            with b.if_(binop("!=", largest[0], 0)):
                heap.push((cast(next(iter(heap.columns.values())).dtype, index),))


def _grow(persons: _Persons, maps: tuple[PoseMap, PoseMap, PoseMap], *, walk: Buffer, root: Expr, start: Place) -> None:
    """Build the next person from its root; it is kept if it has the least score."""
    b, (scores, shorts, mids) = persons.b, maps
    person = b.let("person", persons.number[0])
    base = b.let("base", person * (2 * vision.KEYPOINTS))
    for axis in range(2):
        b.store(persons.poses, base + root * 2 + axis, start[axis])
    at = b.local("at", (2,), "float32")
    with b.for_("s", vision.EDGES) as s:
        step = b.let("step", (root * vision.EDGES + s) * 3)
        source, target, channel = (b.let(n, cast("int32", walk[step + i])) for i, n in enumerate(("source", "target", "channel")))
        for axis in range(2):
            b.store(at, axis, persons.poses[base + source * 2 + axis])
        mids.follow(at, channel, vision.EDGES)
        with b.for_("again", vision.REFINEMENTS):
            shorts.follow(at, target, vision.KEYPOINTS)
        for axis in range(2):
            b.store(persons.poses, base + target * 2 + axis, at[axis])
    with b.for_("k", vision.KEYPOINTS) as k:
        y, x = persons.place(person, k)
        score = scores.sample(scores.cell((b.let("y", y), b.let("x", x))), k)
        b.store(persons.parts, person * vision.KEYPOINTS + k, ONE / (ONE + MATH["exp"](ZERO - score)))
    persons.show_all()
    mean = persons.mean(person)
    with b.if_(mean >= imm(persons.attrs.threshold, "float32")):
        b.store(persons.scores, person, mean)
        b.store(persons.number, 0, person + 1)


@register_flat("vision.decode_poses")
def lower_decode_poses(kernel: FlatKernel) -> None:
    b, attrs = kernel.b, kernel.attrs
    shapes = [tensor_type(arg).shape for arg in kernel.anchor.args]
    scores, shorts, mids = (PoseMap(b, d, s, w) for d, s, w in zip(kernel.args, shapes, attrs.maps, strict=True))
    places, count = prod(shapes[0]), attrs.count
    indices = b.scratch("heap", (places,), "uint16" if places <= 1 << 16 else "int32")
    size = b.local("size", (1,), "int32", init=0)
    heap = Heap(b, {"index": indices}, lambda item: scores.data[cast("int32", item[0])], size, places.bit_length() + 1)
    rooms = {"poses": 2 * vision.KEYPOINTS * count, "parts": vision.KEYPOINTS * count, "scores": count}
    memory = {key: b.scratch(key, (n,), "float32") for key, n in rooms.items()}
    order, visible = b.scratch("order", (count,), "int32"), b.scratch("visible", (vision.KEYPOINTS,), "uint8", align=1)
    number = b.local("number", (1,), "int32", init=0)
    persons = _Persons(b, attrs, **memory, order=order, visible=visible, number=number)
    walk = kernel.table("walk", vision.steps().reshape(-1))
    _fill(heap, scores, float(attrs.least_score))
    with b.for_("turn", places), b.if_(logical_and(number[0] < count, size[0] > 0)):
        index = b.let("root_index", cast("int32", heap.pop()[0]))
        pixel = b.let("pixel", index / vision.KEYPOINTS)
        root, y = b.let("root", index - pixel * vision.KEYPOINTS), b.let("y", pixel / shapes[0][1])
        at = (cast("float32", y), cast("float32", pixel - y * shapes[0][1]))
        start = shorts.moved(at, (shorts.at(pixel, root), shorts.at(pixel, root + vision.KEYPOINTS)))
        free = b.local("free", (1,), "int32", init=1)
        with b.for_("p", number[0]) as p, b.if_(persons.near(start, persons.place(p, root))):
            b.store(free, 0, 0)
        with b.if_(binop("!=", free[0], 0)):
            _grow(persons, (scores, shorts, mids), walk=walk, root=root, start=start)
    persons.sort()
    persons.rescore()
    persons.sort()
    persons.write(kernel.out)


# vision.pose_masks in plain C; see `aot.op.vision.pose_masks`.


@register_flat("vision.pose_masks")
def lower_pose_masks(kernel: FlatKernel) -> None:
    """Compute each cell's keypoint places once, then the sums for all persons."""
    b, (data, persons), out = kernel.b, kernel.args, kernel.out
    attrs = kernel.attrs
    longs = PoseMap(b, data, kernel.shape(0), attrs.longs)
    stride = imm(float(attrs.stride), "float32")
    places, at = b.scratch("places", (2 * vision.KEYPOINTS,), "float32"), b.local("at", (2,), "float32")
    fill(b, out, 0)
    number = b.let("number", maximum(cast("int32", persons[persons.size - 1]), 1))
    with b.for_("y", vision.CELLS) as y, b.for_("x", vision.CELLS) as x:
        with b.for_("k", vision.KEYPOINTS) as k:
            b.store(at, 0, cast("float32", y))
            b.store(at, 1, cast("float32", x))
            with b.for_("again", 1 + vision.MASK_REFINEMENTS):
                longs.follow(at, k, vision.KEYPOINTS)
            for axis in range(2):
                b.store(places, k * 2 + axis, at[axis] * stride)
        best, least = b.local("best", (1,), "int32", init=0), b.local("least", (1,), "float32", init=0)
        with b.for_("p", number) as p:

            def square(k: Expr, p: Expr = p) -> Expr:
                to = b.let("to", (p * vision.KEYPOINTS + k) * 2)
                return square_distance(b, (places[k * 2], places[k * 2 + 1]), (persons[to], persons[to + 1]))

            total = summed(b, "k", vision.KEYPOINTS, square, name="sum", dtype="float32")
            with b.if_(binop("||", p < 1, total < least[0])):
                b.store(least, 0, total)
                b.store(best, 0, p)
        b.store(out, (best[0] * vision.CELLS + y) * vision.CELLS + x, 1)
