"""PosenetDecoderOp: models of it, drawn maps, and what the published algorithm makes of them, one number after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import hypothesis.strategies as st
import numpy as np
from flatbuffers import flexbuffers

from aot.numerics.elementary import apply
from aot.testing import ModelBuilder
from tests.op._differential import SEEDS, check, same
from tests.op._drawn_count import count

Array = np.ndarray[Any, Any]
F = np.float32
_NAMES = "nose leye reye lear rear lsho rsho lelb relb lwri rwri lhip rhip lknee rknee lank rank"
_EDGES = (
    "nose-leye leye-lear nose-reye reye-rear nose-lsho lsho-lelb lelb-lwri lsho-lhip lhip-lknee lknee-lank "
    "nose-rsho rsho-relb relb-rwri rsho-rhip rhip-rknee rknee-rank"
)
NAMES = {name: i for i, name in enumerate(_NAMES.split())}
EDGES = [tuple(NAMES[end] for end in edge.split("-")) for edge in _EDGES.split()]
QUANTS = ((0.09, 150), (0.75, 134), (1.5, 118), (1.2, 137))


@dataclass(frozen=True)
class Poses:
    """A decoder: its maps' size and type, whether it makes masks, its options."""

    size: tuple[int, int] = (5, 4)
    dtype: str = "uint8"
    masks: bool = False
    count: int = 4
    threshold: float = 0.2
    radius: float = 10.0
    stride: int = 16

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        size = (33, 33) if self.masks else self.size
        return [(1, *size, c) for c in ((17, 34, 64, 34) if self.masks else (17, 34, 64))]

    def model(self, **options: Any) -> bytes:
        b = ModelBuilder()
        quants = [{"scale": s, "zero_point": z} if self.dtype == "uint8" else {} for s, z in QUANTS]
        sources = [b.tensor(f"x{i}", s, self.dtype, **q) for i, (s, q) in enumerate(zip(self.shapes, quants, strict=False))]  # type: ignore[arg-type]
        n = self.count
        shapes = [(1, n, 17, 2), (1, n, 17), (1, n), (1,), (1, n, 33, 33)][: 5 if self.masks else 4]
        results = [b.tensor(f"y{i}", s, "float32") for i, s in enumerate(shapes)]
        given = {"max_detections": n, "score_threshold": self.threshold, "stride": self.stride, "nms_radius": self.radius}
        b.custom_op("PosenetDecoderOp", sources, results, custom_options=bytes(flexbuffers.Dumps(given | options)))
        return b.build(sources, results)

    def data(self, seed: int) -> list[Array]:
        """Maps with peaks here and there, of which some are equal; offsets of a few cells."""
        rng = np.random.default_rng(seed)
        found = []
        for i, shape in enumerate(self.shapes):
            if self.dtype == "uint8":
                zero = QUANTS[i][1]
                spread = (25.0, 12.0, 20.0, 20.0)[i]
                codes = np.rint(rng.normal(zero + (-10 if i == 0 else 0), spread, shape))
                if i == 0 and seed % 3 == 0:
                    codes = np.rint(codes / 16) * 16
                found.append(np.clip(codes, 0, 255).astype(np.uint8))
            else:
                found.append(rng.normal(-1 if i == 0 else 0, (2.5, 10.0, 30.0, 25.0)[i], shape).astype(F))
        return found

    def expected(self, *given: Array) -> list[Array]:
        """All results, zeros behind the persons."""
        maps = [_meaning(x[0], i, self) for i, x in enumerate(given)]
        persons = _persons(maps, self)
        n = self.count
        out = [np.zeros(s, F) for s in ((1, n, 17, 2), (1, n, 17), (1, n), (1,))]
        for i, (score, places, parts) in enumerate(persons):
            out[0][0, i] = [[y * F(self.stride), x * F(self.stride)] for y, x in places]
            out[1][0, i], out[2][0, i] = parts, score
        out[3][0] = len(persons)
        return [*out, _masks(maps[3], out[0][0, : len(persons)], self)] if self.masks else out


def _meaning(data: Array, i: int, poses: Poses) -> Array:
    part = F(1 / poses.stride) if i else F(1)
    if data.dtype == F:
        return np.asarray(data * part)
    scale, zero = QUANTS[i]
    return np.asarray((data.astype(F) - F(zero)) * (F(scale) * part))


class Queue:
    """A binary heap numbered from 1, as C++ libraries keep one: a hole sinks to the bottom, the last item rises from there."""

    def __init__(self) -> None:
        self.items: list[tuple[F, Any]] = [(F(0), None)]

    def push(self, item: tuple[F, Any]) -> None:
        self.items.append(item)
        self._rise(len(self.items) - 1, item)

    def _rise(self, at: int, item: tuple[F, Any]) -> None:
        while at > 1 and self.items[at // 2][0] < item[0]:
            self.items[at] = self.items[at // 2]
            at //= 2
        self.items[at] = item

    def pop(self) -> tuple[F, Any]:
        best, last = self.items[1], self.items.pop()
        at, size = 1, len(self.items) - 1
        if size:
            while 2 * at <= size:
                child = 2 * at
                if child + 1 <= size and not self.items[child + 1][0] < self.items[child][0]:
                    child += 1
                self.items[at], at = self.items[child], child
            self._rise(at, last)
        return best

    def __bool__(self) -> bool:
        return len(self.items) > 1


def _kept(value: F, size: int) -> F:
    return F(0) if value < 0 else F(size - 1) if value > size - 1 else value


def _read(data: Array, y: F, x: F, channel: int) -> F:
    top, left = int(np.floor(y)), int(np.floor(x))
    bottom, right = int(np.ceil(y)), int(np.ceil(x))
    down, across = F(y - F(top)), F(x - F(left))
    above = (F(1) - across) * data[top, left, channel] + across * data[top, right, channel]
    below = (F(1) - across) * data[bottom, left, channel] + across * data[bottom, right, channel]
    return F((F(1) - down) * above + down * below)


def _followed(data: Array, y: F, x: F, channels: tuple[int, int]) -> tuple[F, F]:
    dy, dx = (_read(data, y, x, c) for c in channels)
    return _kept(F(y + dy), data.shape[0]), _kept(F(x + dx), data.shape[1])


def _queue(scores: Array, shorts: Array, least: F) -> Queue:
    queue = Queue()
    h, w, _ = scores.shape
    for y, x, k in np.ndindex(scores.shape):
        around = scores[max(y - 1, 0) : min(y + 2, h), max(x - 1, 0) : min(x + 2, w), k]
        if scores[y, x, k] >= least and not (around > scores[y, x, k]).any():
            place = _kept(F(y) + shorts[y, x, k], h), _kept(F(x) + shorts[y, x, 17 + k], w)
            queue.push((scores[y, x, k], (place, k)))
    return queue


def _grown(maps: Sequence[Array], root: Any) -> tuple[dict[int, tuple[F, F]], list[F]]:
    """The keypoint with the best score is settled next, and offers its neighbours."""
    scores, shorts, mids, *_ = maps
    place, kind = root
    settled: dict[int, tuple[F, F]] = {}
    found = [F(0)] * 17
    queue = Queue()
    queue.push((_read(scores, *place, kind), (place, kind)))
    while queue:
        score, (place, kind) = queue.pop()
        if kind in settled:
            continue
        settled[kind], found[kind] = place, F(1) / (F(1) + apply("exp", np.array([-score], F))[0])
        for number, edge in enumerate(EDGES):
            for backwards, (source, target) in enumerate((edge, edge[::-1])):
                if source == kind and target not in settled:
                    channel = 32 * backwards + number
                    y, x = _followed(mids, *place, (channel, channel + 16))
                    for _ in range(5):
                        y, x = _followed(shorts, y, x, (target, target + 17))
                    queue.push((_read(scores, y, x, target), ((y, x), target)))
    return settled, found


def _apart(a: tuple[F, F], b: tuple[F, F]) -> F:
    dy, dx = F(b[0] - a[0]), F(b[1] - a[1])
    return F(dy * dy + dx * dx)


def _total(parts: Sequence[F]) -> F:
    total = F(0)
    for part in sorted(parts, reverse=True):
        total = F(total + part)
    return F(total / F(17))


def _persons(maps: Sequence[Array], poses: Poses) -> list[tuple[F, list[tuple[F, F]], list[F]]]:
    threshold = F(poses.threshold)
    radius = F(F(poses.radius) / F(poses.stride))
    near = F(radius * radius)
    queue = _queue(maps[0], maps[1], F(-log(1 / (float(threshold) + 1e-6) - 1)))
    found: list[list[Any]] = []
    while queue and len(found) < poses.count:
        _, (place, kind) = queue.pop()
        if any(_apart(place, places[kind]) <= near for _, places, _ in found):
            continue
        settled, parts = _grown(maps, (place, kind))
        score = _total(parts)
        if score >= threshold:
            found.append([score, [settled[k] for k in range(17)], parts])
    found.sort(key=lambda p: -p[0])
    better: list[list[tuple[F, F]]] = []
    for person in found:
        shown = [
            part
            for k, part in enumerate(person[2])
            if all(_apart(person[1][k], places[k]) > near for places in better)
        ]  # fmt: skip
        person[0] = _total(shown)
        better.append(person[1])
    # The sort that follows is of the persons as they were found; that is the order of equal ones.
    return [(p[0], p[1], p[2]) for p in sorted(found, key=lambda p: -p[0]) if p[0] >= threshold]


def _masks(longs: Array, persons: Array, poses: Poses) -> Array:
    out = np.zeros((1, poses.count, 33, 33), F)
    for row, column in np.ndindex(33, 33):
        places = []
        for k in range(17):
            y, x = F(row), F(column)
            for _ in range(3):
                y, x = _followed(longs, y, x, (k, k + 17))
            places.append((y * F(poses.stride), x * F(poses.stride)))
        sums = []
        for person in persons:
            total = F(0)
            for place, wanted in zip(places, person, strict=True):
                total = F(total + _apart(place, (wanted[0], wanted[1])))
            sums.append(total)
        out[0, sums.index(min(sums)) if sums else 0, row, column] = 1
    return out


def check_maps(poses: Poses, given: Sequence[Array], *, host: bool = False) -> list[Array]:
    """All ways of running the decoder against each other and against the algorithm."""
    model = poses.model()
    (found,) = check(model, given, host=host, oracle="tflm")
    same(found, poses.expected(*given), "evaluate differs from the algorithm")
    count(model, [given])
    return found


def check_poses(poses: Poses, seed: int, *, host: bool = False) -> list[Array]:
    return check_maps(poses, poses.data(seed), host=host)


def form(dtype: str) -> bytes:
    """The smallest model, with masks."""
    return Poses(dtype=dtype, masks=True, count=1).model()


@st.composite
def drawn(draw: st.DrawFn, *, dtype: str, largest: int = 7) -> tuple[Poses, int]:
    size = draw(st.integers(1, largest)), draw(st.integers(1, largest))
    threshold, radius = draw(st.sampled_from([0.05, 0.2, 0.4, 0.6])), draw(st.sampled_from([0.0, 6.0, 10.0, 24.0]))
    poses = Poses(size, dtype, False, draw(st.integers(1, largest)), threshold, radius, draw(st.sampled_from([8, 16, 32])))
    return poses, draw(SEEDS)
