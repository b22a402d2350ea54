"""vision.pose_masks in plain C; see `aot.op.vision.pose_masks`."""

from __future__ import annotations

from aot.op.vision.decode_poses import KEYPOINTS
from aot.op.vision.pose_masks import CELLS, REFINEMENTS
from aot.relay.expr import tensor_type
from aot.target.target import Target
from aot.tir.expr import binop, cast, imm, maximum
from aot.topi.generic.flat import accepts_alone, flat_kernel
from aot.topi.generic.vision.pose_map import PoseMap, square_distance
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


def lower(group: Group, _target: Target, name: str) -> Lowered:
    """Each cell's places of keypoints once, then the sums for all persons."""
    kernel = flat_kernel(group, name)
    b, (data, persons), out = kernel.b, kernel.args, kernel.out
    attrs = group.anchor.attrs
    longs = PoseMap(b, data, tensor_type(group.anchor.args[0]).shape, attrs.longs)
    stride = imm(float(attrs.stride), "float32")
    places, at = b.scratch("places", (2 * KEYPOINTS,), "float32"), b.local("at", (2,), "float32")
    with b.for_("i", out.size) as i:
        b.store(out, i, 0)
    number = b.let("number", maximum(cast("int32", persons[persons.size - 1]), 1))
    with b.for_("y", CELLS) as y, b.for_("x", CELLS) as x:
        with b.for_("k", KEYPOINTS) as k:
            b.store(at, 0, cast("float32", y))
            b.store(at, 1, cast("float32", x))
            with b.for_("again", 1 + REFINEMENTS):
                longs.follow(at, k, KEYPOINTS)
            for axis in range(2):
                b.store(places, k * 2 + axis, at[axis] * stride)
        best, least = b.local("best", (1,), "int32", init=0), b.local("least", (1,), "float32", init=0)
        with b.for_("p", number) as p:
            total = b.local("sum", (1,), "float32", init=0)
            with b.for_("k", KEYPOINTS) as k:
                to = b.let("to", (p * KEYPOINTS + k) * 2)
                square = square_distance(b, (places[k * 2], places[k * 2 + 1]), (persons[to], persons[to + 1]))
                b.store(total, 0, total[0] + square)
            with b.if_(binop("||", p < 1, total[0] < least[0])):
                b.store(least, 0, total[0])
                b.store(best, 0, p)
        b.store(out, (best[0] * CELLS + y) * CELLS + x, 1)
    return kernel.finish("pose_masks")


register_impl(OpImplementation("generic.pose_masks", "vision.pose_masks", accepts_alone, lower))
