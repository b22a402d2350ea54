"""vision.pose_masks: which person a cell of the image belongs to, the last result of PosenetDecoderOp in BodyPix networks.

From every cell the long offsets lead to where each of the 17 keypoints of its person should be, with two refinements; the cell is
the person's whose keypoints are nearest by the sum of squares (the first of equal ones). Without any person all cells are the
first one's: so does the original. What follows the persons found is 0 (the original does not write it).
Oracle: as `aot.op.vision.decode_poses`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.check import require_dtype, require_quant
from aot.op.common.custom import CustomOptions
from aot.op.common.move import reshaped, tensors_of
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.tensor.strided_slice import slice_of
from aot.op.vision.decode_poses import DTYPES, EDGES, KEYPOINTS, ROW, DecodePosesAttrs, Linear, linear, moved, sampled
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call
from aot.support.dataclass import dataclass

REFINEMENTS = 2
CELLS = 33
"""Rows and columns of the masks: the original knows no other number."""
MOST = 1 << 10
"""Persons."""
ORACLES = ("litert",)


@dataclass(frozen=True, slots=True)
class PoseMasksAttrs:
    """What the long offsets' numbers stand for; pixels of a cell; for how many persons there is room."""

    longs: Linear
    stride: int
    count: int


def infer_type(types: Sequence[Type], attrs: PoseMasksAttrs) -> Type:
    """Long offsets [33, 33, 34] and the result of decode_poses -> float32 [count, 33, 33], 1 for a cell of the person."""
    longs, persons = tensors_of(types, 2)
    fits = longs.shape == (CELLS, CELLS, 2 * KEYPOINTS) and longs.dtype in DTYPES and attrs.stride >= 1
    if not fits or persons.dtype != "float32" or persons.shape != (ROW * attrs.count + 1,):
        raise TypeRuleError(f"pose_masks of {longs} and {persons}")
    return TensorType((attrs.count, CELLS, CELLS), "float32")


def evaluate(longs: Array, persons: Array, *, attrs: PoseMasksAttrs, out_type: TensorType) -> Array:
    masks = np.zeros(out_type.shape, np.float32)
    number = int(persons[-1])
    poses = persons[: 2 * KEYPOINTS * attrs.count].reshape(attrs.count, KEYPOINTS, 2)
    with np.errstate(all="ignore"):
        offsets = linear(longs, attrs.longs)
        for cell in np.ndindex(CELLS, CELLS):
            sums = np.zeros(max(number, 1), np.float32)
            for k in range(KEYPOINTS):
                at = np.array(cell, np.float32)
                for _ in range(1 + REFINEMENTS):
                    at = moved(at, sampled(offsets, at, (k, k + KEYPOINTS)), offsets.shape)
                square = (poses[: sums.size, k] - at * np.float32(attrs.stride)) ** 2
                sums = np.asarray(sums + (square[:, 0] + square[:, 1]))
            masks[(int(sums.argmin()), *cell)] = 1
    return masks


def _linear(ctx: ConvertContext, op: OperatorView, i: int, *, stride: int) -> Linear:
    """What operand i stands for, in cells: factors are divided by `stride` in float32."""
    type_, part = ctx.input_type(op, i), np.float32(1.0 / stride)
    require_dtype(ctx, op, type_, DTYPES)
    scale, zero_point = require_quant(ctx, op, type_) if type_.dtype == "uint8" else (1.0, 0)
    return float(np.float32(scale) * part), zero_point


@from_tflite("CUSTOM:PosenetDecoderOp", "uint8 float32", "strided_slice vision.decode_poses vision.pose_masks", oracle="libcoral")
def convert(ctx: ConvertContext, op: OperatorView) -> list[RelayExpr]:
    """Keypoints, their scores, persons' scores, their number, and masks where long offsets are given; all float32."""
    options, span, given = CustomOptions(ctx, op), ctx.span(op), len(op.inputs)
    count, stride = options.integer("max_detections", 1, MOST), options.integer("stride", 1, 1 << 10)
    threshold, radius = options.real("score_threshold"), options.real("nms_radius")
    if (given, len(op.outputs)) not in ((3, 4), (4, 5)):
        unsupported(ctx, op, f"it has {given} operands and {len(op.outputs)} results; 3 and 4, or 4 and 5, fit", code="E1122")
    shapes = [ctx.input_type(op, i).shape for i in range(given)]
    channels = (KEYPOINTS, 2 * KEYPOINTS, 4 * EDGES, 2 * KEYPOINTS)
    cells = [shapes[0][1:3]] * 3 + [(CELLS, CELLS)]
    if any(s != (1, *n, c) for s, n, c in zip(shapes, cells, channels, strict=False)):
        unsupported(ctx, op, f"maps of {shapes} do not fit; they have {channels} channels, long offsets 33 x 33", code="E1122")
    maps = [_linear(ctx, op, i, stride=stride if i else 1) for i in range(given)]
    data = [reshaped(operand(ctx, op, i), shape[1:], span) for i, shape in enumerate(shapes)]
    near = float(np.float32(radius) / np.float32(stride))
    attrs = DecodePosesAttrs((maps[0], maps[1], maps[2]), stride, count, float(np.float32(threshold)), near)
    persons = call("vision.decode_poses", data[:3], attrs, span=span)
    results, start = [], 0
    for shape in ((1, count, KEYPOINTS, 2), (1, count, KEYPOINTS), (1, count), (1,)):
        size = int(np.prod(shape))
        results.append(reshaped(slice_of(ctx, op, persons, [range(start, start + size)]), shape, span))
        start += size
    if given == 4:
        masks = call("vision.pose_masks", [data[3], persons], PoseMasksAttrs(maps[3], stride, count), span=span)
        results.append(reshaped(masks, (1, count, CELLS, CELLS), span))
    return results


register_op(
    "vision.pose_masks",
    2,
    arguments=[
        ("longs", "uint8, float32 [33, 33, 34]", "offsets to the keypoints of a cell's person: all y, then all x"),
        ("persons", "float32 [52 * count + 1]", "the result of decode_poses"),
    ],
    attrs_type=PoseMasksAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="PosenetDecoderOp of BodyPix: the person that each cell belongs to",
)
