"""vision.decode_boxes and vision.nms: TFLite_Detection_PostProcess, the custom operator at the end of SSD detectors.

Boxes are decoded from centres and sizes relative to anchors, then the best box is chosen again and again (the first of equal
ones), each time dropping those that overlap it by more than a threshold; classes and scores of the chosen ones follow from
slices, `topk` and `take`.  Places beyond the number of detections hold 0 (the reference does not write them).
Oracle: `kernels/detection_postprocess.cc`, its fast form; of the regular one (`use_regular_nms`), none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
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
