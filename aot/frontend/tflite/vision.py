"""Converters of operators for images: resizing, boxes, poses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.frontend.tflite.convert import EVERY, CustomOptions, Operator, converter
from aot.numerics.fixed_point import round_half_away
from aot.op import vision as images
from aot.op.common.tensors import MOVABLE
from aot.op.gather import TakeAttrs
from aot.op.math.arithmetic import CompareAttrs, SelectAttrs
from aot.op.math.unary import BitcastAttrs, CastAttrs
from aot.op.qnn.quantize import DequantizeAttrs
from aot.op.reduce import ReduceAttrs, TopKAttrs
from aot.op.tensor import BroadcastToAttrs
from aot.relay.expr import Expr, const, tensor_type
from aot.support.dataclass import dataclass


def integer_line(size: int, new_size: int, *, align_corners: bool, half_pixel_centers: bool) -> images.Line:
    """ComputeInterpolationValuesInteger for every position of an axis of `new_size` over one of `size`; C's division."""
    scale = (images.ONE * size + new_size // 2) // new_size
    if align_corners and new_size > 1:
        scale = (images.ONE * (size - 1) + (new_size - 1) // 2) // (new_size - 1)
    rows = []
    for i in range(new_size):
        scaled = i * scale + (scale // 2 - (1 << 9) if half_pixel_centers else 0)
        lower = max(int(scaled / images.ONE), 0)
        upper = min(int((scaled + images.ONE - 1) / images.ONE), size - 1)
        fraction = scaled - images.ONE * lower
        rows.append((min(lower, size - 1), max(upper, 0), images.ONE - fraction, fraction))
    return images.Line(*zip(*rows, strict=True))


def float_line(size: int, new_size: int, *, align_corners: bool, half_pixel_centers: bool) -> images.Line:
    """ComputeInterpolationValues for every position of an axis, in float32."""
    f32 = np.float32
    scale = f32(size - 1) / f32(new_size - 1) if align_corners and new_size > 1 else f32(size) / f32(new_size)
    rows = []
    for i in range(new_size):
        scaled = (f32(i) + f32(0.5)) * scale - f32(0.5) if half_pixel_centers else f32(i) * scale
        lower = max(int(np.floor(scaled)), 0)
        upper = min(int(np.ceil(scaled)), size - 1)
        fraction = f32(scaled - f32(lower))
        rows.append((min(lower, size - 1), max(upper, 0), float(f32(1) - fraction), float(fraction)))
    return images.Line(*zip(*rows, strict=True))


@converter("RESIZE_BILINEAR", "int8 uint8 int16 float32", "image.resize_bilinear")
def _resize_bilinear(op: Operator) -> Expr:
    """image.resize_bilinear; the new size has to be constant."""
    data = op.type(0, images.RESIZABLE)
    size = op.ints(1)
    if len(data.shape) != 4 or len(size) != 2 or min(size) < 1:
        op.refuse(f"a resize of {list(data.shape)} to {size} is not supported", code="E1131")
    if max(*size, *data.shape[1:3]) >= 1 << 13:
        op.refuse("images of more than 8191 rows or columns are not supported")
    line = integer_line if data.dtype in images.FIXED_POINT else float_line
    align, half = bool(op.option("align_corners")), bool(op.option("half_pixel_centers"))
    if align and half:
        op.refuse("align_corners and half_pixel_centers are mutually exclusive", code="E1131")
    rows, columns = (line(data.shape[i + 1], size[i], align_corners=align, half_pixel_centers=half) for i in range(2))
    return op.call("image.resize_bilinear", [op.operand(0)], images.ResizeBilinearAttrs(rows, columns))


DTYPES = MOVABLE


def nearest_neighbors(size: int, new_size: int, *, align_corners: bool, half_pixel_centers: bool) -> tuple[int, ...]:
    """GetNearestNeighbor for every position of an axis of `new_size` over one of `size`."""
    f32 = np.float32
    scale = f32(size - 1) / f32(new_size - 1) if align_corners and new_size > 1 else f32(size) / f32(new_size)
    offset = f32(0.5) if half_pixel_centers else f32(0)
    positions = []
    for i in range(new_size):
        position = float((f32(i) + offset) * scale)
        nearest = round_half_away(position) if align_corners else int(np.floor(position))
        positions.append(max(min(nearest, size - 1), 0))
    return tuple(positions)


@converter("RESIZE_NEAREST_NEIGHBOR", EVERY, "image.resize_nearest")
def _resize_nearest(op: Operator) -> Expr:
    """image.resize_nearest; the new size has to be constant."""
    data = op.type(0, DTYPES)
    size = [int(n) for n in op.constant(1).ravel()]
    if len(data.shape) != 4 or len(size) != 2 or min(size) < 1:
        op.refuse(f"a resize of {list(data.shape)} to {size} is not supported", code="E1131")
    if max(*size, *data.shape[1:3]) >= 1 << 15:
        op.refuse("images of more than 32767 rows or columns are not supported")
    rows, columns = (
        nearest_neighbors(
            data.shape[axis + 1],
            size[axis],
            align_corners=bool(op.option("align_corners")),
            half_pixel_centers=bool(op.option("half_pixel_centers")),
        )
        for axis in range(2)
    )
    return op.call("image.resize_nearest", [op.operand(0)], images.ResizeNearestAttrs(rows, columns))


MOST_BOXES = 1 << 14
"""Maximum number of boxes, and of results."""


@converter("NON_MAX_SUPPRESSION_V4", "float32", "strided_slice vision.soft_nms")
@converter("NON_MAX_SUPPRESSION_V5", "float32", "bitcast strided_slice vision.soft_nms")
def _non_max_suppression(op: Operator) -> list[Expr]:
    """Indices of boxes (and their scores), and their number; the number of results must be a constant."""
    soft = op.opcode == "NON_MAX_SUPPRESSION_V5"
    boxes, scores = op.type(0), op.type(1)
    for i in (0, 1, 3, 4, *([5] if soft else [])):
        op.require_dtype(op.type(i), {"float32"})
    count = op.one_int(2)
    if (
        boxes.shape != (*scores.shape, 4)
        or len(scores.shape) != 1
        or not 1 <= boxes.shape[0] <= MOST_BOXES
        or not 1 <= count <= MOST_BOXES
    ):
        op.refuse(f"{count} of boxes {boxes} by {scores} is not supported", code="E1207")
    numbers = [op.reshaped(op.operand(i), (1,)) for i in (3, 4, 5 if soft else 4)]
    args = [op.operand(0), op.operand(1), *numbers]
    selected = op.call("vision.soft_nms", args, images.SoftNmsAttrs(count, soft))
    number = op.reshaped(op.slice_of(selected, [range(1)]), ())
    chosen = op.slice_of(selected, [range(1, 1 + count)])
    if not soft:
        return [chosen, number]
    bits = op.slice_of(selected, [range(1 + count, 1 + 2 * count)])
    return [chosen, op.call("bitcast", [bits], BitcastAttrs((count,), "float32")), number]


@dataclass(frozen=True, slots=True)
class _DetectionOptions:
    """The options that the fast form uses."""

    max_detections: int
    max_classes: int
    num_classes: int
    score_threshold: float
    iou_threshold: float
    scales: tuple[float, float, float, float]


def _detection_options(op: Operator) -> _DetectionOptions:
    said = CustomOptions(op)
    if said.flag("use_regular_nms", default=False):
        op.refuse("use_regular_nms is not supported; convert the model with the fast non-maximum suppression")
    scales = tuple(said.real(f"{c}_scale") for c in "yxhw")
    most, classes, number = (int(said.get(n)) for n in ("max_detections", "max_classes_per_detection", "num_classes"))
    score, iou = said.real("nms_score_threshold"), said.real("nms_iou_threshold")
    options = _DetectionOptions(most, classes, number, score, iou, (scales[0], scales[1], scales[2], scales[3]))
    if min(scales) <= 0 or options.max_detections < 1 or not 1 <= options.max_classes <= options.num_classes:
        op.refuse(f"its options contradict each other: {options}", code="E1122")
    return options


def _score(op: Operator, i: int) -> images.Real:
    type_ = op.type(i, images.BOX_TYPES)
    return op.quant(type_) if type_.dtype in images.CODES else (1.0, 0)


def score_limit(threshold: float, dtype: str, quant: images.Real) -> float:
    """The smallest score, in units of its type, that reaches the threshold; one more than the largest if none does."""
    if dtype == "float32":
        return threshold
    limits = np.iinfo(dtype)
    codes = np.arange(limits.min, limits.max + 1)
    reached = codes[images.real(codes, quant) >= np.float32(threshold)]
    return float(reached[0]) if reached.size else float(limits.max + 1)


@converter("CUSTOM:TFLite_Detection_PostProcess", "float32", "vision.decode_boxes vision.nms")
def _detection(op: Operator) -> list[Expr]:
    """Boxes, classes, scores and their number, all float32; anchors may be constants."""
    options = _detection_options(op)
    boxes, classes, anchors = op.types(0, 1, 2)
    quants = [_score(op, i) for i in range(3)]
    sizes_fit = (
        len(boxes.shape) == 3 and len(classes.shape) == 3 and boxes.shape[:2] == classes.shape[:2] == (1, anchors.shape[0])
    )
    first = classes.shape[-1] - options.num_classes
    if not sizes_fit or first < 0:
        op.refuse(f"boxes {boxes}, classes {classes} and anchors {anchors} do not fit", code="E1122")
    encodings, scores = (op.reshaped(op.operand(i), t.shape[1:]) for i, t in enumerate((boxes, classes)))
    decode = images.DecodeBoxesAttrs(quants[0], quants[2], options.scales)
    corners = op.call("vision.decode_boxes", [encodings, op.operand(2)], decode)
    limit = score_limit(options.score_threshold, classes.dtype, quants[1])
    nms = images.NmsAttrs(options.max_detections, first, limit, options.iou_threshold)
    chosen = op.call("vision.nms", [corners, scores], nms)
    count = tensor_type(scores).shape[1]
    picked = op.call("take", [scores, chosen], TakeAttrs(0))
    rows = op.slice_of(picked, [range(options.max_detections), range(first, count)])
    top = op.call("topk", [rows], TopKAttrs(options.max_classes))
    values: Expr = op.call("take", [rows, top], TakeAttrs(1, 1))
    if classes.dtype in images.CODES:
        values = op.call("qnn.dequantize", [values], DequantizeAttrs(*quants[1]))
    return _detections(op, corners, chosen, found=top, values=values)


def _detections(op: Operator, corners: Expr, chosen: Expr, *, found: Expr, values: Expr) -> list[Expr]:
    """The operator's four results from chosen boxes, their classes and scores; zeros in unused places."""
    (count, each) = tensor_type(found).shape
    zero, zero_float = const(np.zeros(1, np.int32)), const(np.zeros(1, np.float32))
    valid = op.call("greater_equal", [chosen, zero], CompareAttrs())

    def masked(data: Expr, shape: Sequence[int]) -> Expr:
        extra = [1] * (len(tensor_type(data).shape) - 1)
        cond = op.reshaped(valid, (count, *extra))
        return op.reshaped(op.call("select", [cond, data, zero_float], SelectAttrs()), shape)

    boxes = op.call("take", [corners, chosen], TakeAttrs(0))
    if each > 1:  # every class of a box comes with its corners
        boxes = op.call("broadcast_to", [op.reshaped(boxes, (count, 1, 4))], BroadcastToAttrs((count, each, 4)))
    classes = op.call("cast", [found], CastAttrs("float32"))
    number = op.call("sum", [op.call("cast", [valid], CastAttrs("int32"))], ReduceAttrs("sum", (0,), True))
    return [
        masked(boxes, (1, count * each, 4)),
        masked(classes, (1, count * each)),
        masked(values, (1, count * each)),
        op.call("cast", [number], CastAttrs("float32")),
    ]


MOST_POSES = 1 << 10
"""Persons."""


def _pose_scale(op: Operator, i: int, *, stride: int) -> images.Linear:
    """The scaling of operand i, in cells: factors are divided by `stride` in float32."""
    type_, part = op.type(i, images.POSE_TYPES), np.float32(1.0 / stride)
    scale, zero_point = op.quant(type_) if type_.dtype == "uint8" else (1.0, 0)
    return float(np.float32(scale) * part), zero_point


@converter("CUSTOM:PosenetDecoderOp", "uint8 float32", "strided_slice vision.decode_poses vision.pose_masks", oracle="libcoral")
def _pose_masks(op: Operator) -> list[Expr]:
    """Keypoints, their scores, persons' scores, their number, and masks if long offsets are given; all float32."""
    options, operand_count = CustomOptions(op), len(op.inputs)
    count, stride = options.integer("max_detections", 1, MOST_POSES), options.integer("stride", 1, 1 << 10)
    threshold, radius = options.real("score_threshold"), options.real("nms_radius")
    if (operand_count, len(op.outputs)) not in ((3, 4), (4, 5)):
        op.refuse(f"it has {operand_count} operands and {len(op.outputs)} results; expected 3 and 4, or 4 and 5", code="E1122")
    shapes = [op.type(i).shape for i in range(operand_count)]
    channels = (images.KEYPOINTS, 2 * images.KEYPOINTS, 4 * images.EDGES, 2 * images.KEYPOINTS)
    cells = [shapes[0][1:3]] * 3 + [(images.CELLS, images.CELLS)]
    if any(s != (1, *n, c) for s, n, c in zip(shapes, cells, channels, strict=False)):
        op.refuse(f"maps of {shapes} do not match; expected {channels} channels, long offsets 33 x 33", code="E1122")
    maps = [_pose_scale(op, i, stride=stride if i else 1) for i in range(operand_count)]
    data = [op.reshaped(op.operand(i), shape[1:]) for i, shape in enumerate(shapes)]
    near = float(np.float32(radius) / np.float32(stride))
    attrs = images.DecodePosesAttrs((maps[0], maps[1], maps[2]), stride, count, float(np.float32(threshold)), near)
    persons = op.call("vision.decode_poses", data[:3], attrs)
    results, start = [], 0
    for shape in ((1, count, images.KEYPOINTS, 2), (1, count, images.KEYPOINTS), (1, count), (1,)):
        size = int(np.prod(shape))
        results.append(op.reshaped(op.slice_of(persons, [range(start, start + size)]), shape))
        start += size
    if operand_count == 4:
        masks = op.call("vision.pose_masks", [data[3], persons], images.PoseMasksAttrs(maps[3], stride, count))
        results.append(op.reshaped(masks, (1, count, images.CELLS, images.CELLS)))
    return results
