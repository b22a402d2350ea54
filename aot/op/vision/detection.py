"""vision.decode_boxes and vision.nms: TFLite_Detection_PostProcess, the custom operator at the end of SSD detectors.

Boxes are decoded from centres and sizes relative to anchors, then the best box is chosen again and again (the first of equal
ones), each time dropping those that overlap it by more than a threshold; classes and scores of the chosen ones follow from
slices, `topk` and `take`.  Places beyond the number of detections hold 0 (the reference does not write them).
Oracle: `kernels/detection_postprocess.cc`, its fast form; of the regular one (`use_regular_nms`), none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.frontend.flexbuffer import FlexbufferError, Scalar, read_map
from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.check import require_dtype, require_quant
from aot.op.common.move import reshaped, tensors_of
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.math.cast import CastAttrs
from aot.op.math.compare import CompareAttrs
from aot.op.math.select import SelectAttrs
from aot.op.qnn.dequantize import DequantizeAttrs
from aot.op.reduce.reduce import ReduceAttrs
from aot.op.reduce.topk import TopKAttrs
from aot.op.tensor.broadcast_to import BroadcastToAttrs
from aot.op.tensor.strided_slice import slice_of
from aot.op.tensor.take import TakeAttrs
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call, const, tensor_type
from aot.support.dataclass import dataclass

CODES = ("uint8", "int8")
DTYPES = (*CODES, "float32")

Real = tuple[float, int]
"""Scale and zero point; (1, 0) for floats."""


@dataclass(frozen=True, slots=True)
class DecodeBoxesAttrs:
    """Quantisation of encodings and anchors; divisors of y, x, h, w."""

    encodings: Real
    anchors: Real
    scales: tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class NmsAttrs:
    """How many boxes to choose; the first column of scores that counts; thresholds (the score's in units of its type)."""

    count: int
    first_class: int
    score_threshold: float
    iou_threshold: float


def real(codes: Array, quant: Real) -> Array:
    """Codes as float32, as the reference's Dequantizer computes them."""
    if codes.dtype.kind == "f":
        return codes
    return np.asarray((codes.astype(np.float32) - np.float32(quant[1])) * np.float32(quant[0]))


def infer_decode_boxes(types: Sequence[Type], attrs: DecodeBoxesAttrs) -> Type:
    """Encodings [N, 4 or more] and anchors [N, 4] -> float32 corners [N, 4] (ymin, xmin, ymax, xmax)."""
    encodings, anchors = tensors_of(types, 2)
    fits = len(encodings.shape) == 2 and encodings.shape[1] >= 4 and anchors.shape == (encodings.shape[0], 4)
    if not fits or encodings.dtype not in DTYPES or anchors.dtype not in DTYPES:
        raise TypeRuleError(f"boxes of {encodings} with {anchors}")
    return TensorType(anchors.shape, "float32")


def decoded_parts(encodings: Array, attrs: DecodeBoxesAttrs) -> list[Array]:
    """y and x divided by their scales, half of e to the h and w divided by theirs; float64."""
    wide = [real(encodings[..., i], attrs.encodings).astype(np.float64) / attrs.scales[i] for i in range(4)]
    with np.errstate(over="ignore"):
        return [wide[0], wide[1], 0.5 * np.exp(wide[2]), 0.5 * np.exp(wide[3])]


def evaluate_decode_boxes(encodings: Array, anchors: Array, *, attrs: DecodeBoxesAttrs, out_type: TensorType) -> Array:
    y, x, h, w = decoded_parts(encodings, attrs)
    anchor = real(anchors, attrs.anchors).astype(np.float64)
    centre_y, centre_x = ((p * anchor[:, 2 + i] + anchor[:, i]).astype(np.float32) for i, p in enumerate((y, x)))
    half_h, half_w = ((p * anchor[:, 2 + i]).astype(np.float32) for i, p in enumerate((h, w)))
    return np.stack([centre_y - half_h, centre_x - half_w, centre_y + half_h, centre_x + half_w], axis=1)


def infer_nms(types: Sequence[Type], attrs: NmsAttrs) -> Type:
    """float32 corners [N, 4] and scores [N, classes] -> int32 [count]: chosen boxes, then -1."""
    boxes, scores = tensors_of(types, 2)
    fits = boxes.dtype == "float32" and boxes.shape[1:] == (4,) and len(scores.shape) == 2
    if not fits or scores.shape[0] != boxes.shape[0] or not 0 <= attrs.first_class < scores.shape[1] or attrs.count < 1:
        raise TypeRuleError(f"nms of {boxes} by {scores}")
    return TensorType((attrs.count,), "int32")


def overlap(box: Array, others: Array) -> Array:
    """Intersection over union of one box with others, float32; 0 where one of them is empty."""
    area = (box[2] - box[0]) * (box[3] - box[1])
    areas = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    sides = np.maximum(high - low, np.float32(0))
    shared = sides[:, 0] * sides[:, 1]
    with np.errstate(all="ignore"):
        found = shared / (area + areas - shared)
    return np.where((area <= 0) | (areas <= 0), np.float32(0), found)


def evaluate_nms(boxes: Array, scores: Array, *, attrs: NmsAttrs, out_type: TensorType) -> Array:
    best = scores[:, attrs.first_class :].max(axis=1).astype(np.float64)
    active = best >= attrs.score_threshold
    chosen = np.full(attrs.count, -1, np.int32)
    for k in range(attrs.count):
        if not active.any():
            break
        chosen[k] = int(np.argmax(np.where(active, best, -np.inf)))
        active[chosen[k]] = False
        active &= overlap(boxes[chosen[k]], boxes) <= np.float32(attrs.iou_threshold)
    return chosen


@dataclass(frozen=True, slots=True)
class _Options:
    """The options that the fast form uses."""

    max_detections: int
    max_classes: int
    num_classes: int
    score_threshold: float
    iou_threshold: float
    scales: tuple[float, float, float, float]


def _options(ctx: ConvertContext, op: OperatorView) -> _Options:
    try:
        found = read_map(op.custom_options)
    except FlexbufferError as error:
        unsupported(ctx, op, f"its options cannot be read: {error}", code="E1116")

    def get(name: str, default: Scalar | None = None) -> Scalar:
        value = found.get(name, default)
        if value is None:
            unsupported(ctx, op, f"its options lack {name}", code="E1116")
        return value

    if get("use_regular_nms", default=False):
        unsupported(ctx, op, "use_regular_nms is not supported; convert with the fast form of non-maximum suppression")
    scales = tuple(float(get(f"{c}_scale")) for c in "yxhw")
    options = _Options(
        int(get("max_detections")),
        int(get("max_classes_per_detection")),
        int(get("num_classes")),
        float(get("nms_score_threshold")),
        float(get("nms_iou_threshold")),
        (scales[0], scales[1], scales[2], scales[3]),
    )
    if min(scales) <= 0 or options.max_detections < 1 or not 1 <= options.max_classes <= options.num_classes:
        unsupported(ctx, op, f"its options contradict each other: {options}", code="E1122")
    return options


def _real(ctx: ConvertContext, op: OperatorView, i: int) -> Real:
    type_ = ctx.input_type(op, i)
    require_dtype(ctx, op, type_, DTYPES)
    return require_quant(ctx, op, type_) if type_.dtype in CODES else (1.0, 0)


def score_limit(threshold: float, dtype: str, quant: Real) -> float:
    """The smallest score, in units of its type, that reaches the threshold; one more than the largest if none does."""
    if dtype == "float32":
        return threshold
    limits = np.iinfo(dtype)
    codes = np.arange(limits.min, limits.max + 1)
    reached = codes[real(codes, quant) >= np.float32(threshold)]
    return float(reached[0]) if reached.size else float(limits.max + 1)


@from_tflite("CUSTOM:TFLite_Detection_PostProcess", "float32", "vision.decode_boxes vision.nms")
def convert(ctx: ConvertContext, op: OperatorView) -> list[RelayExpr]:
    """Boxes, classes, scores and their number, all float32; anchors may be constants."""
    options, span = _options(ctx, op), ctx.span(op)
    boxes, classes, anchors = (ctx.input_type(op, i) for i in range(3))
    quants = [_real(ctx, op, i) for i in range(3)]
    sizes_fit = (
        len(boxes.shape) == 3 and len(classes.shape) == 3 and boxes.shape[:2] == classes.shape[:2] == (1, anchors.shape[0])
    )
    first = classes.shape[-1] - options.num_classes
    if not sizes_fit or first < 0:
        unsupported(ctx, op, f"boxes {boxes}, classes {classes} and anchors {anchors} do not fit", code="E1122")
    encodings, scores = (reshaped(operand(ctx, op, i), t.shape[1:], span) for i, t in enumerate((boxes, classes)))
    decode = DecodeBoxesAttrs(quants[0], quants[2], options.scales)
    corners = call("vision.decode_boxes", [encodings, operand(ctx, op, 2)], decode, span=span)
    limit = score_limit(options.score_threshold, classes.dtype, quants[1])
    nms = NmsAttrs(options.max_detections, first, limit, options.iou_threshold)
    chosen = call("vision.nms", [corners, scores], nms, span=span)
    count = tensor_type(scores).shape[1]
    picked = call("take", [scores, chosen], TakeAttrs(0), span=span)
    rows = slice_of(ctx, op, picked, [range(options.max_detections), range(first, count)])
    found = call("topk", [rows], TopKAttrs(options.max_classes), span=span)
    values: RelayExpr = call("take", [rows, found], TakeAttrs(1, 1), span=span)
    if classes.dtype in CODES:
        values = call("qnn.dequantize", [values], DequantizeAttrs(*quants[1]), span=span)
    return _results(ctx, op, corners, chosen, found=found, values=values)


def _results(
    ctx: ConvertContext, op: OperatorView, corners: RelayExpr, chosen: RelayExpr, *, found: RelayExpr, values: RelayExpr
) -> list[RelayExpr]:
    """The operator's four results from chosen boxes, their classes and scores; zeros where nothing was chosen."""
    span, (count, each) = ctx.span(op), tensor_type(found).shape
    zero, zero_float = const(np.zeros(1, np.int32)), const(np.zeros(1, np.float32))
    valid = call("greater_equal", [chosen, zero], CompareAttrs(), span=span)

    def masked(data: RelayExpr, shape: Sequence[int]) -> RelayExpr:
        extra = [1] * (len(tensor_type(data).shape) - 1)
        cond = reshaped(valid, (count, *extra), span)
        return reshaped(call("select", [cond, data, zero_float], SelectAttrs(), span=span), shape, span)

    boxes = call("take", [corners, chosen], TakeAttrs(0), span=span)
    if each > 1:  # every class of a box comes with its corners
        boxes = call("broadcast_to", [reshaped(boxes, (count, 1, 4), span)], BroadcastToAttrs((count, each, 4)), span=span)
    classes = call("cast", [found], CastAttrs("float32"), span=span)
    number = call("sum", [call("cast", [valid], CastAttrs("int32"), span=span)], ReduceAttrs("sum", (0,), True), span=span)
    return [
        masked(boxes, (1, count * each, 4)),
        masked(classes, (1, count * each)),
        masked(values, (1, count * each)),
        call("cast", [number], CastAttrs("float32"), span=span),
    ]


register_op(
    "vision.decode_boxes",
    2,
    arguments=[
        ("encodings", "float32, int8, uint8 [N, 4]", "centres and sizes relative to the anchors"),
        ("anchors", "float32, int8, uint8 [N, 4]", "centres and sizes"),
    ],
    attrs_type=DecodeBoxesAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_decode_boxes,
    evaluate=evaluate_decode_boxes,
    doc="TFLite_Detection_PostProcess: boxes from centres and sizes",
)
register_op(
    "vision.nms",
    2,
    arguments=[
        ("boxes", "float32 [N, 4]", "corners of boxes"),
        ("scores", "float32 [N, classes]", "one score for each box and class"),
    ],
    attrs_type=NmsAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_nms,
    evaluate=evaluate_nms,
    doc="TFLite_Detection_PostProcess: the best boxes that do not overlap",
)
