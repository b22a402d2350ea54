"""vision.decode_poses: persons from PoseNet's maps, the custom operator PosenetDecoderOp of Coral's pose and BodyPix networks.

Every place where a keypoint's score is the largest of its 3 x 3 neighbours waits in a heap, whose order of equal scores is that
of the C++ library's. The best that is no found person's keypoint of that kind becomes the root of a new person: along the 16
edges of the skeleton (mid offsets, then five refinements by short offsets, each read between its four neighbours) all 17
keypoints follow. As the skeleton is a tree, each keypoint is reached from one other only, so their order is free. A person's
score is the mean of the logistic of its keypoints' scores, largest first; at the end those near the same keypoint of a better
person count as 0. Places beyond the number of persons hold 0 (the original does not write them). Of equal persons the one found
first comes first, as in the original up to 16 of them; beyond, its sort leaves their order open.
Oracle: the algorithm of libcoral's `posenet_decoder.cc`; the installed LiteRT has no kernel of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.numerics.elementary import apply
from aot.op.common.move import tensors_of
from aot.op.vision.non_max_suppression import Candidate, pop, push
from aot.support.dataclass import dataclass

KEYPOINTS = 17
EDGES = 16
REFINEMENTS = 5
DTYPES = ("uint8", "float32")
ROW = 3 * KEYPOINTS + 1
"""Numbers of a person: keypoints' y and x, their scores, its own score."""
_SKELETON = (
    (0, 1), (1, 3), (0, 2), (2, 4), (0, 5), (5, 7), (7, 9), (5, 11), (11, 13), (13, 15),
    (0, 6), (6, 8), (8, 10), (6, 12), (12, 14), (14, 16),
)  # fmt: skip
"""From nose 0 to eyes 1 and 2, ears 3 and 4, shoulders 5 and 6, elbows, wrists, hips, knees and ankles."""

Linear = tuple[float, int]
"""A float32 factor and a zero point: a number stands for (number - zero point) * factor."""


@dataclass(frozen=True, slots=True)
class DecodePosesAttrs:
    """What the numbers of heat map, short and mid offsets stand for; pixels of a cell; how many persons; their least score.

    Keypoints within `radius` cells of each other are one.
    """

    maps: tuple[Linear, Linear, Linear]
    stride: int
    count: int
    threshold: float
    radius: float

    @property
    def least_score(self) -> np.float32:
        """The score, before the logistic, that a root must have."""
        with np.errstate(all="ignore"):
            return np.float32(-np.log(1.0 / (np.float64(np.float32(self.threshold)) + 1e-6) - 1.0))

    @property
    def near(self) -> np.float32:
        """The largest square of a distance that is near."""
        return np.float32(self.radius) * np.float32(self.radius)


def steps() -> Array:
    """For each root the 16 steps to the other keypoints, uint8 [17, 16, 3]: from, to, channel of the mid offset's y.

    Its x is 16 channels later; the channels of edges that are walked backwards begin at 32.
    """
    table = np.zeros((KEYPOINTS, EDGES, 3), np.uint8)
    for root in range(KEYPOINTS):
        reached, walk = [root], []
        for at in reached:
            for k, (a, b) in enumerate(_SKELETON):
                for source, target, channel in ((a, b, k), (b, a, k + 2 * EDGES)):
                    if source == at and target not in reached:
                        reached.append(target)
                        walk.append((source, target, channel))
        table[root] = walk
    return table


def infer_type(types: Sequence[Type], attrs: DecodePosesAttrs) -> Type:
    """Scores [H, W, 17], short offsets [H, W, 34], mid offsets [H, W, 64], uint8 or float32 -> float32 [52 * count + 1].

    Keypoints [count, 17, 2] in pixels, y before x, their scores [count, 17], persons' scores [count], their number.
    """
    maps = tensors_of(types, 3)
    channels = (KEYPOINTS, 2 * KEYPOINTS, 4 * EDGES)
    fits = all(t.shape == (*maps[0].shape[:2], c) and t.dtype in DTYPES for t, c in zip(maps, channels, strict=True))
    if not fits or attrs.count < 1 or attrs.stride < 1:
        raise TypeRuleError(f"decode_poses of {', '.join(map(str, maps))}")
    return TensorType((ROW * attrs.count + 1,), "float32")


def linear(data: Array, what: Linear) -> Array:
    """What numbers stand for, float32."""
    if data.dtype.kind == "f":
        return np.asarray(data * np.float32(what[0]))
    return np.asarray((data.astype(np.float32) - np.float32(what[1])) * np.float32(what[0]))


def moved(at: Array, offset: Array, shape: tuple[int, ...]) -> Array:
    """A place and an offset, kept within the map."""
    return np.asarray(np.clip(at + offset, np.float32(0), np.array([shape[0] - 1, shape[1] - 1], np.float32)))


def sampled(data: Array, at: Array, channels: Sequence[int]) -> Array:
    """Channels of a map at a place within it, between the four elements around it; float32."""
    low = np.where(at > 0, at, 0).astype(np.int64)
    part = at - low.astype(np.float32)
    high = low + (part > 0)
    one = np.float32(1)
    rows = [
        (one - part[1]) * data[y, low[1], list(channels)] + part[1] * data[y, high[1], list(channels)] for y in (low[0], high[0])
    ]
    return np.asarray((one - part[0]) * rows[0] + part[0] * rows[1], np.float32)


def _candidates(scores: Array, least: np.float32) -> list[Candidate]:
    """The heap of local maxima: score and index."""
    h, w, _ = scores.shape
    padded = np.pad(scores, ((1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    around = [padded[y : y + h, x : x + w] for y in range(3) for x in range(3)]
    heap: list[Candidate] = []
    for index in np.flatnonzero((scores >= least) & ~np.any([a > scores for a in around], axis=0)):
        heap.append((float(scores.flat[index]), int(index), 0))
        push(heap, heap[-1], len(heap) - 1)
    return heap


def _person(maps: Sequence[Array], root: int, start: Array) -> tuple[Array, Array]:
    """Keypoints [17, 2] and the logistic of their scores."""
    scores, shorts, mids = maps
    pose, found = np.zeros((KEYPOINTS, 2), np.float32), np.zeros(KEYPOINTS, np.float32)
    pose[root] = start
    for source, target, channel in steps()[root].tolist():
        at = moved(pose[source], sampled(mids, pose[source], (channel, channel + EDGES)), mids.shape)
        for _ in range(REFINEMENTS):
            at = moved(at, sampled(shorts, at, (target, target + KEYPOINTS)), shorts.shape)
        pose[target] = at
    for k in range(KEYPOINTS):
        found[k] = sampled(scores, pose[k], (k,))[0]
    return pose, np.asarray(np.float32(1) / (np.float32(1) + apply("exp", -found)))


def _mean(scores: Array, *, visible: Array) -> np.float32:
    """The sum of the visible scores, largest first, divided by 17."""
    total = np.float32(0)
    for score in sorted(scores[visible].tolist(), reverse=True):
        total = np.float32(total + np.float32(score))
    return np.float32(total / np.float32(KEYPOINTS))


def _near(a: Array, b: Array, attrs: DecodePosesAttrs) -> Array:
    """Whether places [..., 2] are near each other."""
    square = (b - a) * (b - a)
    return np.asarray(square[..., 0] + square[..., 1] <= attrs.near)


def evaluate(scores: Array, shorts: Array, mids: Array, *, attrs: DecodePosesAttrs, out_type: TensorType) -> Array:
    with np.errstate(all="ignore"):
        maps = [linear(m, what) for m, what in zip((scores, shorts, mids), attrs.maps, strict=True)]
        persons: list[tuple[Array, Array]] = []
        values: list[np.float32] = []
        heap = _candidates(maps[0], attrs.least_score)
        while heap and len(persons) < attrs.count:
            y, x, root = (int(i) for i in np.unravel_index(pop(heap)[1], scores.shape))
            start = moved(np.array([y, x], np.float32), maps[1][y, x, [root, root + KEYPOINTS]], scores.shape)
            if any(_near(start, pose[root], attrs) for pose, _ in persons):
                continue
            person = _person(maps, root, start)
            value = _mean(person[1], visible=np.ones(KEYPOINTS, bool))
            if value >= np.float32(attrs.threshold):
                persons.append(person)
                values.append(value)
        order = sorted(range(len(persons)), key=lambda i: -values[i])
        for place, i in enumerate(order):
            hidden = [_near(persons[i][0], persons[j][0], attrs) for j in order[:place]]
            values[i] = _mean(persons[i][1], visible=~np.any([np.zeros(KEYPOINTS, bool), *hidden], axis=0))
        order = [i for i in sorted(range(len(persons)), key=lambda i: -values[i]) if values[i] >= np.float32(attrs.threshold)]
        poses, parts, own = (np.zeros((attrs.count, n), np.float32) for n in (2 * KEYPOINTS, KEYPOINTS, 1))
        for place, i in enumerate(order):
            poses[place] = persons[i][0].ravel() * np.float32(attrs.stride)
            parts[place], own[place] = persons[i][1], values[i]
    return np.concatenate([poses.ravel(), parts.ravel(), own.ravel(), np.array([len(order)], np.float32)])


register_op(
    "vision.decode_poses",
    3,
    arguments=[
        ("scores", "uint8, float32 [H, W, 17]", "scores of keypoints before the logistic"),
        ("shorts", "uint8, float32 [H, W, 34]", "offsets to the keypoint nearby: all y, then all x"),
        ("mids", "uint8, float32 [H, W, 64]", "offsets along the edges: y and x forwards, y and x backwards"),
    ],
    attrs_type=DecodePosesAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="PosenetDecoderOp: persons and their keypoints from PoseNet's maps",
)
