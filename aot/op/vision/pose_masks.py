"""vision.pose_masks: which person a cell of the image belongs to, the last result of PosenetDecoderOp in BodyPix networks.

From every cell the long offsets lead to where each of the 17 keypoints of its person should be, with two refinements; the cell is
the person's whose keypoints are nearest by the sum of squares (the first of equal ones). Without any person all cells are the
first one's: so does the original. What follows the persons found is 0 (the original does not write it).
Oracle: as `aot.op.vision.decode_poses`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.op.vision.decode_poses import DTYPES, KEYPOINTS, ROW, Linear, linear, moved, sampled
from aot.support.dataclass import dataclass

REFINEMENTS = 2
CELLS = 33
"""Rows and columns of the masks: the original knows no other number."""


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
