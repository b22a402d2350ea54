"""vision.soft_nms: NON_MAX_SUPPRESSION_V4 and NON_MAX_SUPPRESSION_V5 of TFLite: the best boxes that do not overlap.

Candidates wait in a heap of the C++ library, whose order of equal scores is kept.  The best one is dropped if it overlaps a
chosen box by the threshold or more; with a sigma its score falls with every overlap, and it waits again.  A chosen candidate
also waits again, and then overlaps itself: only a box without area is chosen twice.  What is after the chosen ones is 0.
Oracle: `reference_ops::NonMaxSuppression`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.numerics.elementary import apply
from aot.op.common.move import tensors_of
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SoftNmsAttrs:
    """How many boxes to choose; whether scores fall with overlaps."""

    count: int
    soft: bool


def infer_type(types: Sequence[Type], attrs: SoftNmsAttrs) -> Type:
    """float32 corners [N, 4], scores [N], overlap [1], lowest score [1], sigma [1] -> int32 [1 + 2 * count].

    The number of chosen boxes, their numbers, the bits of their float32 scores.
    """
    boxes, scores, *numbers = tensors_of(types, 5)
    fits = boxes.shape == (*scores.shape, 4) and len(scores.shape) == 1 and all(n.shape == (1,) for n in numbers)
    if not fits or any(t.dtype != "float32" for t in (boxes, scores, *numbers)) or attrs.count < 1:
        raise TypeRuleError(f"soft_nms of {boxes} by {scores}")
    return TensorType((1 + 2 * attrs.count,), "int32")


def turns(boxes: int, attrs: SoftNmsAttrs) -> int:
    """The most candidates that are taken from the heap: one is only weighed again after another was chosen."""
    return (boxes + 1) * (attrs.count + 1) if attrs.soft else boxes + attrs.count


def overlap(a: Array, b: Array) -> np.float32:
    """Intersection over union of two boxes, float32; 0 if one has no area."""
    low = [np.minimum(x[:2], x[2:]) for x in (a, b)]
    high = [np.maximum(x[:2], x[2:]) for x in (a, b)]
    areas = [(h[0] - w[0]) * (h[1] - w[1]) for w, h in zip(low, high, strict=True)]
    if areas[0] <= 0 or areas[1] <= 0:
        return np.float32(0)
    sides = np.maximum(np.minimum(*high) - np.maximum(*low), np.float32(0))
    shared = sides[0] * sides[1]
    return np.float32(shared / (areas[0] + areas[1] - shared))


Candidate = tuple[float, int, int]
"""Score, box, and how many of the chosen ones it has been compared with."""


def push(heap: list[Candidate], item: Candidate, hole: int) -> None:
    """Move an item up from a hole."""
    while hole > 0 and heap[(hole - 1) // 2][0] < item[0]:
        heap[hole] = heap[(hole - 1) // 2]
        hole = (hole - 1) // 2
    heap[hole] = item


def pop(heap: list[Candidate]) -> Candidate:
    """Take the best: the hole sinks to the bottom along the better children, then the last item moves up from it."""
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


def evaluate(
    boxes: Array, scores: Array, limit: Array, lowest: Array, sigma: Array, *, attrs: SoftNmsAttrs, out_type: TensorType
) -> Array:  # fmt: skip
    heap: list[Candidate] = []
    for i, score in enumerate(scores.tolist()):
        if score > lowest[0]:
            heap.append((score, i, 0))
            push(heap, heap[-1], len(heap) - 1)
    most = min(len(heap), attrs.count)
    chosen: list[int] = []
    kept: list[np.float32] = []
    soft = attrs.soft and bool(sigma[0] > 0)
    with np.errstate(all="ignore"):
        scale = np.float32(-0.5 / np.float64(sigma[0])) if soft else np.float32(0)
        while len(chosen) < most and heap:
            original, box, begin = pop(heap)
            score, dropped = np.float32(original), False
            for other in reversed(chosen[begin:]):
                share = overlap(boxes[box], boxes[other])
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
    out[1 + attrs.count : 1 + attrs.count + len(chosen)] = np.array(kept, np.float32).view(np.int32)
    return out


register_op(
    "vision.soft_nms",
    5,
    arguments=[
        ("boxes", "float32 [N, 4]", "corners of boxes"),
        ("scores", "float32 [N]", "one score for each box"),
        ("limit", "float32 [1]", "the overlap from which a box is dropped"),
        ("lowest", "float32 [1]", "what a score has to exceed"),
        ("sigma", "float32 [1]", "how slowly scores fall with overlaps; 0: they do not"),
    ],
    attrs_type=SoftNmsAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="NON_MAX_SUPPRESSION_V4, NON_MAX_SUPPRESSION_V5; float32",
)
