"""Images: resizing, boxes, poses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.numerics.elementary import apply
from aot.numerics.fixed_point import named
from aot.op.common.operator import operator
from aot.op.common.te_rule import TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, select

# image.resize_bilinear: RESIZE_BILINEAR of TFLite.
#
# out = sum of the four neighbours, each times the weight of its row and of its column.  int8 and int16 compute in units of 2^-10
# (`reference_ops::ResizeBilinearInteger`), float32 and uint8 in floats (`reference_ops::ResizeBilinear`; uint8 rounds half up).
# Positions and weights are computed here in the reference's way; a position that its rounding puts after the last row or
# column counts as the last.

FIXED_POINT = ("int8", "int16")
RESIZABLE = (*FIXED_POINT, "uint8", "float32")
ONE = 1 << 10
"""The weight 1 in fixed point."""


@dataclass(frozen=True, slots=True)
class Line:
    """For each output position of an axis the two source positions and their weights (integers, or float32 values)."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    lower_weight: tuple[float, ...]
    upper_weight: tuple[float, ...]


@operator(
    "image.resize_bilinear",
    "RESIZE_BILINEAR; int8, int16, uint8, float32",
    [("data", "int8, int16, float32 [N, H, W, C]", "the image")],
    OpPattern.OUT_ELEMWISE_FUSABLE,  # each element is read up to four times: producers must not be fused into it
)
class ResizeBilinearAttrs:
    """Rows and columns of the result."""

    rows: Line
    columns: Line

    def infer_type(self, data: TensorType) -> Type:
        """[N, H, W, C] -> [N, rows, columns, C]."""
        if len(data.shape) != 4 or data.dtype not in RESIZABLE:
            raise TypeRuleError(f"resize_bilinear of {data} is not valid")
        for line, size in ((self.rows, data.shape[1]), (self.columns, data.shape[2])):
            positions = (*line.lower, *line.upper)
            if not positions or not 0 <= min(positions) <= max(positions) < size:
                raise TypeRuleError(f"resize_bilinear reads positions {positions} of {size}")
        shape = (data.shape[0], len(self.rows.lower), len(self.columns.lower), data.shape[3])
        return TensorType(shape, data.dtype, data.quant)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        fixed = out_type.dtype in FIXED_POINT
        wide = np.int64 if fixed else np.float32
        rows, columns = self.rows, self.columns
        total: Array = np.zeros((), wide)
        for x, x_weight in ((columns.lower, columns.lower_weight), (columns.upper, columns.upper_weight)):
            for y, y_weight in ((rows.lower, rows.lower_weight), (rows.upper, rows.upper_weight)):
                part: Array = data[:, list(y)][:, :, list(x)].astype(wide)
                for weights in (np.array(y_weight, wide)[:, None, None], np.array(x_weight, wide)[:, None]):
                    part = np.multiply(part, weights)
                total = part if total.ndim == 0 else total + part
        if fixed:
            rounded = np.abs(total) + (ONE * ONE // 2) >> 20
            return np.asarray(np.sign(total) * rounded, out_type.dtype)
        total = total + np.float32(0.5 if out_type.dtype == "uint8" else 0.0)  # turns -0 into 0
        return total.astype(out_type.dtype)

    def te_rule(self, ctx: TeContext, args: Sequence[TensorFn], out_type: TensorType) -> TensorFn:
        (data,) = args
        fixed = out_type.dtype in FIXED_POINT
        largest = 1 << (7 if out_type.dtype == "int8" else 15)
        wide = "float32" if not fixed else "int32" if _fits_int32(self, largest) else "int64"
        tables = [_tables(ctx, line, name, fixed=fixed) for line, name in ((self.rows, "row"), (self.columns, "column"))]

        def rule(b: IRBuilder, n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
            (y_positions, y_weights), (x_positions, x_weights) = (
                (
                    [b.let("at", cast("int32", t.at(b, (i,)))) for t in table[:2]],
                    [b.let("weight", cast(wide, t.at(b, (i,)))) for t in table[2:]],
                )
                for table, i in zip(tables, (y, x), strict=True)
            )
            total: Expr | None = None
            for x_position, x_weight in zip(x_positions, x_weights, strict=True):
                for y_position, y_weight in zip(y_positions, y_weights, strict=True):
                    part = cast(wide, data.at(b, (n, y_position, x_position, c))) * y_weight * x_weight
                    total = part if total is None else total + part
            assert total is not None
            if not fixed:
                return cast(out_type.dtype, total + imm(0.5 if out_type.dtype == "uint8" else 0.0, wide))
            total = named(b, "total", total)
            half = ONE * ONE // 2
            return cast(out_type.dtype, (total + select(total > 0, imm(half, wide), imm(-half, wide))) / (ONE * ONE))

        return tensor_fn(out_type.shape, out_type.dtype, rule)


def _fits_int32(attrs: ResizeBilinearAttrs, largest: int) -> bool:
    """Whether no sum of products exceeds 32 bits."""
    sums = [
        max(abs(a) + abs(b) for a, b in zip(line.lower_weight, line.upper_weight, strict=True))
        for line in (attrs.rows, attrs.columns)
    ]
    return largest * sums[0] * sums[1] + ONE * ONE < 1 << 31


def _tables(ctx: TeContext, line: Line, name: str, *, fixed: bool) -> list[TensorFn]:
    """Positions and weights of an axis, in flash."""
    weight_type = np.int16 if fixed else np.float32
    columns = ((line.lower, np.int16), (line.upper, np.int16), (line.lower_weight, weight_type), (line.upper_weight, weight_type))
    return [ctx.constant(name, np.array(values, dtype)) for values, dtype in columns]


# image.resize_nearest: RESIZE_NEAREST_NEIGHBOR of TFLite; only moves data.
#
# The source row and column of each output position are computed here, in float32 as in the reference.
# Oracle: `reference_ops::ResizeNearestNeighbor` (`GetNearestNeighbor`).
@operator(
    "image.resize_nearest",
    "RESIZE_NEAREST_NEIGHBOR; align_corners, half_pixel_centers",
    [("data", "any [N, H, W, C]", "the image")],
    OpPattern.INJECTIVE,
)
class ResizeNearestAttrs:
    """The source row of each output row, the source column of each output column."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]

    def infer_type(self, data: TensorType) -> Type:
        """[N, H, W, C] -> [N, len(rows), len(columns), C]."""
        if len(data.shape) != 4:
            raise TypeRuleError(f"resize needs one 4-D tensor, not {data}")
        for indices, size in ((self.rows, data.shape[1]), (self.columns, data.shape[2])):
            if not indices or not 0 <= min(indices) <= max(indices) < size:
                raise TypeRuleError(f"resize reads positions {indices} of {size}")
        return TensorType((data.shape[0], len(self.rows), len(self.columns), data.shape[3]), data.dtype, data.quant)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        return np.ascontiguousarray(data[:, list(self.rows)][:, :, list(self.columns)])

    def te_rule(self, ctx: TeContext, args: Sequence[TensorFn], out_type: TensorType) -> TensorFn:
        (data,) = args

        def rule(b: IRBuilder, n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
            row = _position(ctx, y, self.rows, data.shape[1])
            column = _position(ctx, x, self.columns, data.shape[2])
            return data.at(b, (n, row, column, c))

        return tensor_fn(out_type.shape, out_type.dtype, rule)


def _position(ctx: TeContext, index: Expr, table: tuple[int, ...], size: int) -> Expr:
    """`table[index]`: by arithmetic if a quotient gives the same, else from a table."""
    n = len(table)
    if table == tuple(range(n)):
        return index
    if n % size == 0 and table == tuple(i // (n // size) for i in range(n)):
        return index / (n // size)
    if table == tuple(i * size // n for i in range(n)):
        return index * size / n
    return cast("int32", ctx.constant("positions", np.asarray(table, np.int16)).at(ctx.builder, (index,)))


# vision.soft_nms: NON_MAX_SUPPRESSION_V4 and NON_MAX_SUPPRESSION_V5 of TFLite: the best boxes that do not overlap.
#
# Candidates wait in a heap of the C++ library, whose order of equal scores is kept.  The best one is dropped if it overlaps a
# chosen box by the threshold or more; with a sigma its score decreases with every overlap, and it is queued again.  A chosen
# candidate is also queued again, and then overlaps itself: only a box without area is chosen twice.  Results after the chosen
# ones are 0.  Oracle: `reference_ops::NonMaxSuppression`.
@operator(
    "vision.soft_nms",
    "NON_MAX_SUPPRESSION_V4, NON_MAX_SUPPRESSION_V5; float32",
    [
        ("boxes", "float32 [N, 4]", "corners of boxes"),
        ("scores", "float32 [N]", "one score for each box"),
        ("limit", "float32 [1]", "the overlap from which a box is dropped"),
        ("lowest", "float32 [1]", "what a score has to exceed"),
        ("sigma", "float32 [1]", "how slowly scores fall with overlaps; 0: they do not"),
    ],
)
class SoftNmsAttrs:
    """The number of boxes to choose; whether scores decrease with overlaps."""

    count: int
    soft: bool

    def infer_type(self, boxes: TensorType, scores: TensorType, *numbers: TensorType) -> Type:
        """float32 corners [N, 4], scores [N], overlap [1], lowest score [1], sigma [1] -> int32 [1 + 2 * count].

        The number of chosen boxes, their indices, the bits of their float32 scores.
        """
        fits = boxes.shape == (*scores.shape, 4) and len(scores.shape) == 1 and all(n.shape == (1,) for n in numbers)
        if not fits or any(t.dtype != "float32" for t in (boxes, scores, *numbers)) or self.count < 1:
            raise TypeRuleError(f"soft_nms of {boxes} by {scores} is not valid")
        return TensorType((1 + 2 * self.count,), "int32")

    def evaluate(self, boxes: Array, scores: Array, limit: Array, lowest: Array, sigma: Array, *, out_type: TensorType) -> Array:
        heap: list[Candidate] = []
        for i, score in enumerate(scores.tolist()):
            if score > lowest[0]:
                heap.append((score, i, 0))
                push(heap, heap[-1], len(heap) - 1)
        most = min(len(heap), self.count)
        chosen: list[int] = []
        kept: list[np.float32] = []
        soft = self.soft and bool(sigma[0] > 0)
        with np.errstate(all="ignore"):
            scale = np.float32(-0.5 / np.float64(sigma[0])) if soft else np.float32(0)
            while len(chosen) < most and heap:
                original, box, begin = pop(heap)
                score, dropped = np.float32(original), False
                for other in reversed(chosen[begin:]):
                    share = overlap_of_two(boxes[box], boxes[other])
                    if share >= limit[0]:
                        dropped = True
                        break
                    if soft:
                        score = np.float32(score * apply("exp", np.array([scale * share * share], np.float32))[0])
                    if score <= lowest[0]:
                        break
                now = len(chosen)
                if dropped:
                    continue
                if score == np.float32(original):
                    chosen.append(box)
                    kept.append(score)
                if score > lowest[0]:
                    heap.append((float(score), box, now))
                    push(heap, heap[-1], len(heap) - 1)
        out = np.zeros(out_type.shape, np.int32)
        out[0] = len(chosen)
        out[1 : 1 + len(chosen)] = chosen
        out[1 + self.count : 1 + self.count + len(chosen)] = np.array(kept, np.float32).view(np.int32)
        return out


def turns(boxes: int, attrs: SoftNmsAttrs) -> int:
    """The maximum number of candidates popped from the heap: one is only reweighed after another was chosen."""
    return (boxes + 1) * (attrs.count + 1) if attrs.soft else boxes + attrs.count


def overlap_of_two(a: Array, b: Array) -> np.float32:
    """Intersection over union of two boxes, float32; 0 if one has no area."""
    corners = np.array([[*np.minimum(x[:2], x[2:]), *np.maximum(x[:2], x[2:])] for x in (a, b)], np.float32)
    return np.float32(overlap(corners[0], corners[1:])[0])


Candidate = tuple[float, int, int]
"""Score, box, and the number of chosen boxes that it has been compared with."""


def push(heap: list[Candidate], item: Candidate, hole: int) -> None:
    """Move an item up from a hole."""
    while hole > 0 and heap[(hole - 1) // 2][0] < item[0]:
        heap[hole] = heap[(hole - 1) // 2]
        hole = (hole - 1) // 2
    heap[hole] = item


def pop(heap: list[Candidate]) -> Candidate:
    """Pop the best: the hole sinks to the bottom along the better children, then the last item moves up from it."""
    top, last = heap[0], heap.pop()
    n, hole, child = len(heap), 0, 0
    if not n:
        return top
    while child < (n - 1) // 2:
        child = 2 * (child + 1)
        child -= heap[child][0] < heap[child - 1][0]
        heap[hole], hole = heap[child], child
    if n % 2 == 0 and child == (n - 2) // 2:
        heap[hole], hole = heap[2 * child + 1], 2 * child + 1
    push(heap, last, hole)
    return top


# vision.decode_boxes and vision.nms: TFLite_Detection_PostProcess, the custom operator at the end of SSD detectors.
#
# Boxes are decoded from centres and sizes relative to anchors, then the best box is chosen repeatedly (the first of equal
# ones), each time dropping those that overlap it by more than a threshold; classes and scores of the chosen ones follow from
# slices, `topk` and `take`.  Results beyond the number of detections are 0 (the reference does not write them).
# Oracle: `kernels/detection_postprocess.cc`, its fast form; there is none for the regular one (`use_regular_nms`).

CODES = ("uint8", "int8")
BOX_TYPES = (*CODES, "float32")

Real = tuple[float, int]
"""Scale and zero point; (1, 0) for floats."""


@operator(
    "vision.decode_boxes",
    "TFLite_Detection_PostProcess: boxes from centres and sizes",
    [
        ("encodings", "float32, int8, uint8 [N, 4]", "centres and sizes relative to the anchors"),
        ("anchors", "float32, int8, uint8 [N, 4]", "centres and sizes"),
    ],
)
class DecodeBoxesAttrs:
    """Quantisation of encodings and anchors; divisors of y, x, h, w."""

    encodings: Real
    anchors: Real
    scales: tuple[float, float, float, float]

    def infer_type(self, encodings: TensorType, anchors: TensorType) -> Type:
        """Encodings [N, 4 or more] and anchors [N, 4] -> float32 corners [N, 4] (ymin, xmin, ymax, xmax)."""
        fits = len(encodings.shape) == 2 and encodings.shape[1] >= 4 and anchors.shape == (encodings.shape[0], 4)
        if not fits or encodings.dtype not in BOX_TYPES or anchors.dtype not in BOX_TYPES:
            raise TypeRuleError(f"boxes of {encodings} with {anchors} are not valid")
        return TensorType(anchors.shape, "float32")

    def evaluate(self, encodings: Array, anchors: Array, *, out_type: TensorType) -> Array:
        y, x, h, w = decoded_parts(encodings, self)
        anchor = real(anchors, self.anchors).astype(np.float64)
        centre_y, centre_x = ((p * anchor[:, 2 + i] + anchor[:, i]).astype(np.float32) for i, p in enumerate((y, x)))
        half_h, half_w = ((p * anchor[:, 2 + i]).astype(np.float32) for i, p in enumerate((h, w)))
        return np.stack([centre_y - half_h, centre_x - half_w, centre_y + half_h, centre_x + half_w], axis=1)


@operator(
    "vision.nms",
    "TFLite_Detection_PostProcess: the best boxes that do not overlap",
    [("boxes", "float32 [N, 4]", "corners of boxes"), ("scores", "float32 [N, classes]", "one score for each box and class")],
)
class NmsAttrs:
    """The number of boxes to choose; the first column of scores that counts; thresholds (the score's in units of its type)."""

    count: int
    first_class: int
    score_threshold: float
    iou_threshold: float

    def infer_type(self, boxes: TensorType, scores: TensorType) -> Type:
        """float32 corners [N, 4] and scores [N, classes] -> int32 [count]: chosen boxes, then -1."""
        fits = boxes.dtype == "float32" and boxes.shape[1:] == (4,) and len(scores.shape) == 2
        if not fits or scores.shape[0] != boxes.shape[0] or not 0 <= self.first_class < scores.shape[1] or self.count < 1:
            raise TypeRuleError(f"nms of {boxes} by {scores} is not valid")
        return TensorType((self.count,), "int32")

    def evaluate(self, boxes: Array, scores: Array, *, out_type: TensorType) -> Array:
        best = scores[:, self.first_class :].max(axis=1).astype(np.float64)
        active = best >= self.score_threshold
        chosen = np.full(self.count, -1, np.int32)
        for k in range(self.count):
            if not active.any():
                break
            chosen[k] = int(np.argmax(np.where(active, best, -np.inf)))
            active[chosen[k]] = False
            active &= overlap(boxes[chosen[k]], boxes) <= np.float32(self.iou_threshold)
        return chosen


def real(codes: Array, quant: Real) -> Array:
    """Quantised values as float32, as the reference's Dequantizer computes them."""
    if codes.dtype.kind == "f":
        return codes
    return np.asarray((codes.astype(np.float32) - np.float32(quant[1])) * np.float32(quant[0]))


def decoded_parts(encodings: Array, attrs: DecodeBoxesAttrs) -> list[Array]:
    """y and x divided by their scales, half of e to the h and w divided by theirs; float64."""
    wide = [real(encodings[..., i], attrs.encodings).astype(np.float64) / attrs.scales[i] for i in range(4)]
    with np.errstate(over="ignore"):
        return [wide[0], wide[1], 0.5 * np.exp(wide[2]), 0.5 * np.exp(wide[3])]


def overlap(box: Array, others: Array) -> Array:
    """Intersection over union of one box with others, float32; 0 if one of them is empty."""
    area = (box[2] - box[0]) * (box[3] - box[1])
    areas = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    sides = np.maximum(high - low, np.float32(0))
    shared = sides[:, 0] * sides[:, 1]
    with np.errstate(all="ignore"):
        ratio = shared / (area + areas - shared)
    return np.where((area <= 0) | (areas <= 0), np.float32(0), ratio)


# vision.decode_poses: persons from PoseNet's maps, the custom operator PosenetDecoderOp of Coral's pose and BodyPix networks. #
# Every position whose keypoint score is the largest of its 3 x 3 neighbours waits in a heap, with the C++ library's order of
# equal scores.  The best one that is not already a found person's keypoint of that kind becomes the root of a new person: all 17
# keypoints follow along the 16 edges of the skeleton (mid offsets, then five refinements by short offsets, each interpolated
# between its four neighbours).  As the skeleton is a tree, each keypoint is reached from one other only, so their order does not
# matter.  A person's score is the mean of the logistic of its keypoints' scores, largest first; at the end those near the same
# keypoint of a better person count as 0.  Results beyond the number of persons are 0 (the original does not write them).  Equal
# persons stay in the order in which they were found, as in the original up to 16 of them; beyond, its sort leaves their order
# open. Oracle: the algorithm of libcoral's `posenet_decoder.cc`; the installed LiteRT has no kernel for it.

KEYPOINTS = 17
EDGES = 16
REFINEMENTS = 5
POSE_TYPES = ("uint8", "float32")
ROW = 3 * KEYPOINTS + 1
"""Numbers per person: keypoints' y and x, their scores, the person's score."""
_SKELETON = (
    (0, 1), (1, 3), (0, 2), (2, 4), (0, 5), (5, 7), (7, 9), (5, 11), (11, 13), (13, 15),
    (0, 6), (6, 8), (8, 10), (6, 12), (12, 14), (14, 16),
)  # fmt: skip
"""From nose 0 to eyes 1 and 2, ears 3 and 4, shoulders 5 and 6, elbows, wrists, hips, knees and ankles."""

Linear = tuple[float, int]
"""A float32 factor and a zero point: a number stands for (number - zero point) * factor."""


@operator(
    "vision.decode_poses",
    "PosenetDecoderOp: persons and their keypoints from PoseNet's maps",
    [
        ("scores", "uint8, float32 [H, W, 17]", "scores of keypoints before the logistic"),
        ("shorts", "uint8, float32 [H, W, 34]", "offsets to the keypoint nearby: all y, then all x"),
        ("mids", "uint8, float32 [H, W, 64]", "offsets along the edges: y and x forwards, y and x backwards"),
    ],
)
class DecodePosesAttrs:
    """Scaling of heat map, short and mid offsets; pixels per cell; maximum number of persons; their least score.

    Keypoints within `radius` cells of each other count as the same.
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
        """The largest squared distance that counts as near."""
        return np.float32(self.radius) * np.float32(self.radius)

    def infer_type(self, scores: TensorType, shorts: TensorType, mids: TensorType) -> Type:
        """Scores [H, W, 17], short offsets [H, W, 34], mid offsets [H, W, 64], uint8 or float32 -> float32 [52 * count + 1].

        Keypoints [count, 17, 2] in pixels, y before x, their scores [count, 17], persons' scores [count], their number.
        """
        maps = scores, shorts, mids
        channels = (KEYPOINTS, 2 * KEYPOINTS, 4 * EDGES)
        fits = all(t.shape == (*maps[0].shape[:2], c) and t.dtype in POSE_TYPES for t, c in zip(maps, channels, strict=True))
        if not fits or self.count < 1 or self.stride < 1:
            raise TypeRuleError(f"decode_poses of {', '.join(map(str, maps))} is not valid")
        return TensorType((ROW * self.count + 1,), "float32")

    def evaluate(self, scores: Array, shorts: Array, mids: Array, *, out_type: TensorType) -> Array:
        with np.errstate(all="ignore"):
            maps = [linear(m, what) for m, what in zip((scores, shorts, mids), self.maps, strict=True)]
            persons: list[tuple[Array, Array]] = []
            values: list[np.float32] = []
            heap = _candidates(maps[0], self.least_score)
            while heap and len(persons) < self.count:
                y, x, root = (int(i) for i in np.unravel_index(pop(heap)[1], scores.shape))
                start = moved(np.array([y, x], np.float32), maps[1][y, x, [root, root + KEYPOINTS]], scores.shape)
                if any(_near(start, pose[root], self) for pose, _ in persons):
                    continue
                person = _person(maps, root, start)
                value = _mean(person[1], visible=np.ones(KEYPOINTS, bool))
                if value >= np.float32(self.threshold):
                    persons.append(person)
                    values.append(value)
            order = sorted(range(len(persons)), key=lambda i: -values[i])
            for place, i in enumerate(order):
                hidden = [_near(persons[i][0], persons[j][0], self) for j in order[:place]]
                values[i] = _mean(persons[i][1], visible=~np.any([np.zeros(KEYPOINTS, bool), *hidden], axis=0))
            order = [i for i in sorted(range(len(persons)), key=lambda i: -values[i]) if values[i] >= np.float32(self.threshold)]
            poses, parts, own = (np.zeros((self.count, n), np.float32) for n in (2 * KEYPOINTS, KEYPOINTS, 1))
            for place, i in enumerate(order):
                poses[place] = persons[i][0].ravel() * np.float32(self.stride)
                parts[place], own[place] = persons[i][1], values[i]
        return np.concatenate([poses.ravel(), parts.ravel(), own.ravel(), np.array([len(order)], np.float32)])


def steps() -> Array:
    """For each root the 16 steps to the other keypoints, uint8 [17, 16, 3]: from, to, channel of the mid offset's y.

    The offset's x is 16 channels later; the channels of edges that are walked backwards start at 32.
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


def linear(data: Array, what: Linear) -> Array:
    """Scaled values, float32."""
    if data.dtype.kind == "f":
        return np.asarray(data * np.float32(what[0]))
    return np.asarray((data.astype(np.float32) - np.float32(what[1])) * np.float32(what[0]))


def moved(at: Array, offset: Array, shape: tuple[int, ...]) -> Array:
    """A position plus an offset, kept within the map."""
    return np.asarray(np.clip(at + offset, np.float32(0), np.array([shape[0] - 1, shape[1] - 1], np.float32)))


def sampled(data: Array, at: Array, channels: Sequence[int]) -> Array:
    """Channels of a map at a position within it, interpolated between the four elements around it; float32."""
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
    pose, logistic = np.zeros((KEYPOINTS, 2), np.float32), np.zeros(KEYPOINTS, np.float32)
    pose[root] = start
    for source, target, channel in steps()[root].tolist():
        at = moved(pose[source], sampled(mids, pose[source], (channel, channel + EDGES)), mids.shape)
        for _ in range(REFINEMENTS):
            at = moved(at, sampled(shorts, at, (target, target + KEYPOINTS)), shorts.shape)
        pose[target] = at
    for k in range(KEYPOINTS):
        logistic[k] = sampled(scores, pose[k], (k,))[0]
    return pose, np.asarray(np.float32(1) / (np.float32(1) + apply("exp", -logistic)))


def _mean(scores: Array, *, visible: Array) -> np.float32:
    """The sum of the visible scores, largest first, divided by 17."""
    total = np.float32(0)
    for score in sorted(scores[visible].tolist(), reverse=True):
        total = np.float32(total + np.float32(score))
    return np.float32(total / np.float32(KEYPOINTS))


def _near(a: Array, b: Array, attrs: DecodePosesAttrs) -> Array:
    """Whether positions [..., 2] are near each other."""
    square = (b - a) * (b - a)
    return np.asarray(square[..., 0] + square[..., 1] <= attrs.near)


# vision.pose_masks: the person to which each cell of the image belongs, the last result of PosenetDecoderOp in BodyPix networks.
# # From every cell the long offsets lead to the expected positions of its person's 17 keypoints, with two refinements; the cell
# belongs to the person whose keypoints are nearest by the sum of squares (the first of equal ones).  Without any person all cells
# belong to the first one, as in the original.  Results beyond the found persons are 0 (the original does not write them).
# Oracle: as in vision.decode_poses.

MASK_REFINEMENTS = 2
CELLS = 33
"""Rows and columns of the masks: the original supports no other number."""


@operator(
    "vision.pose_masks",
    "PosenetDecoderOp of BodyPix: the person that each cell belongs to",
    [
        ("longs", "uint8, float32 [33, 33, 34]", "offsets to the keypoints of a cell's person: all y, then all x"),
        ("persons", "float32 [52 * count + 1]", "the result of decode_poses"),
    ],
)
class PoseMasksAttrs:
    """Scaling of the long offsets; pixels per cell; maximum number of persons."""

    longs: Linear
    stride: int
    count: int

    def infer_type(self, longs: TensorType, persons: TensorType) -> Type:
        """Long offsets [33, 33, 34] and the result of decode_poses -> float32 [count, 33, 33], 1 for a cell of the person."""
        fits = longs.shape == (CELLS, CELLS, 2 * KEYPOINTS) and longs.dtype in POSE_TYPES and self.stride >= 1
        if not fits or persons.dtype != "float32" or persons.shape != (ROW * self.count + 1,):
            raise TypeRuleError(f"pose_masks of {longs} and {persons} is not valid")
        return TensorType((self.count, CELLS, CELLS), "float32")

    def evaluate(self, longs: Array, persons: Array, *, out_type: TensorType) -> Array:
        masks = np.zeros(out_type.shape, np.float32)
        number = int(persons[-1])
        poses = persons[: 2 * KEYPOINTS * self.count].reshape(self.count, KEYPOINTS, 2)
        with np.errstate(all="ignore"):
            offsets = linear(longs, self.longs)
            for cell in np.ndindex(CELLS, CELLS):
                sums = np.zeros(max(number, 1), np.float32)
                for k in range(KEYPOINTS):
                    at = np.array(cell, np.float32)
                    for _ in range(1 + MASK_REFINEMENTS):
                        at = moved(at, sampled(offsets, at, (k, k + KEYPOINTS)), offsets.shape)
                    square = (poses[: sums.size, k] - at * np.float32(self.stride)) ** 2
                    sums = np.asarray(sums + (square[:, 0] + square[:, 1]))
                masks[(int(sums.argmin()), *cell)] = 1
        return masks
