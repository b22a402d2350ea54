"""vision.decode_boxes and vision.nms in plain C; exponentials of quantised values are tables, so only float models need libm."""

from __future__ import annotations

import numpy as np

from aot.numerics.elementary import EXP_DOUBLE
from aot.op.vision.detection import Real, decoded_parts
from aot.relay.expr import tensor_type
from aot.support.dtype import int_range, is_float
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, imm, logical_and, maximum, minimum
from aot.topi.generic.flat import FlatKernel, accepts_alone, flat_kernel
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


def _parts(kernel: FlatKernel, base: Expr) -> list[Expr]:
    """y / scale, x / scale, e^(h / scale) / 2, e^(w / scale) / 2 of the encoding at `base`, float64."""
    b, data, attrs = kernel.b, kernel.args[0], kernel.group.anchor.attrs
    if is_float(data.dtype):
        wide = [cast("float64", data[base + i]) / imm(attrs.scales[i], "float64") for i in range(4)]
        half = imm(0.5, "float64")
        return [b.let("part", w) if i < 2 else b.let("part", half * EXP_DOUBLE(w)) for i, w in enumerate(wide)]
    low, high = int_range(data.dtype)
    codes = np.repeat(np.arange(low, high + 1).astype(data.dtype)[:, None], 4, axis=1)
    known: dict[bytes, Buffer] = {}
    parts: list[Expr] = []
    for i, column in enumerate(decoded_parts(codes, attrs)):
        table = known.get(column.tobytes())
        if table is None:
            table = known[column.tobytes()] = kernel.table("decoded", np.ascontiguousarray(column))
        parts.append(b.let("part", table[cast("int32", data[base + i]) - low]))
    return parts


def _real(value: Expr, quant: Real) -> Expr:
    """An element as float32."""
    if is_float(value.dtype):
        return value
    return cast("float32", cast("int32", value) - quant[1]) * imm(quant[0], "float32")


def lower_decode_boxes(group: Group, _target: Target, name: str) -> Lowered:
    kernel = flat_kernel(group, name)
    b, (_, anchors), out = kernel.b, kernel.args, kernel.out
    boxes, length = tensor_type(group.anchor.args[0]).shape
    with b.for_("m", boxes) as m:
        y, x, h, w = _parts(kernel, b.let("encoding", m * length))
        first = b.let("first", m * 4)
        anchor = [b.let("anchor", cast("float64", _real(anchors[first + i], group.anchor.attrs.anchors))) for i in range(4)]
        for axis, (centre, half) in enumerate(((y, h), (x, w))):
            middle = b.let("centre", cast("float32", centre * anchor[2 + axis] + anchor[axis]))
            extent = b.let("half", cast("float32", half * anchor[2 + axis]))
            b.store(out, first + axis, middle - extent)
            b.store(out, first + axis + 2, middle + extent)
    return kernel.finish("decode_boxes")


def lower_nms(group: Group, _target: Target, name: str) -> Lowered:
    """The best active box, `count` times; no sorting.  Scratch: each box's best score and whether it is still a candidate."""
    kernel = flat_kernel(group, name)
    b, (boxes, scores), out = kernel.b, kernel.args, kernel.out
    attrs, (n, classes) = group.anchor.attrs, tensor_type(group.anchor.args[1]).shape
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
    return kernel.finish("nms")


def _reaches(score: Expr, threshold: float) -> Expr:
    if is_float(score.dtype):
        return score >= imm(threshold, score.dtype)
    low, high = int_range(score.dtype)
    if not low < threshold <= high:  # all reach it, or none
        return imm(int(threshold <= low), "bool")
    return cast("int32", score) >= int(threshold)


def _corners(b: IRBuilder, boxes: Buffer, index: Expr) -> tuple[list[Expr], Expr]:
    """(ymin, xmin, ymax, xmax) and area."""
    base = b.let("base", index * 4)
    corners: list[Expr] = [b.let("corner", boxes[base + i]) for i in range(4)]
    return corners, b.let("area", (corners[2] - corners[0]) * (corners[3] - corners[1]))


def _drop_overlapping(b: IRBuilder, boxes: Buffer, active: Buffer, *, winner: Expr, threshold: float) -> None:
    """Clear the candidates that overlap the winner by more than the threshold; an empty box overlaps none."""
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


register_impl(OpImplementation("generic.decode_boxes", "vision.decode_boxes", accepts_alone, lower_decode_boxes))
register_impl(OpImplementation("generic.nms", "vision.nms", accepts_alone, lower_nms))
