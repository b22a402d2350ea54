"""nn.conv3d and nn.conv3d_transpose: CONV_3D and CONV_3D_TRANSPOSE of TFLite on float32, [N, D, H, W, C].

Sums run in the reference's order: over the window and the input channels, or, transposed, over the input positions and channels
that contribute to a result.  Oracles: `reference_ops::Conv3D`, `reference_ops::Conv3DTranspose`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.op.common.operator import Index, elementwise, register
from aot.op.common.tensors import tensors_of
from aot.support.dataclass import dataclass
from aot.te.tensor import IterVar, TensorFn, reduce_axis, sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, equal, imm, logical_and, maximum, minimum, select

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Conv3DAttrs:
    """Strides, dilations, padding before the first position (depth, height, width), and the result's extents."""

    strides: Triple
    dilation: Triple
    before: Triple
    extents: Triple


def infer_conv3d(types: Sequence[Type], attrs: Conv3DAttrs) -> Type:
    """float32 [N, D, H, W, I], weights [KD, KH, KW, I, O] -> [N, *extents, O]."""
    return _checked(types, attrs, channels=(3, 4))


def infer_transpose(types: Sequence[Type], attrs: Conv3DAttrs) -> Type:
    """float32 [N, D, H, W, I], weights [KD, KH, KW, O, I] -> [N, *extents, O]."""
    return _checked(types, attrs, channels=(4, 3))


def _checked(types: Sequence[Type], attrs: Conv3DAttrs, *, channels: tuple[int, int]) -> Type:
    """The result's type; `channels`: the axes of the weights with input and output channels."""
    data, weight = tensors_of(types, 2)
    fits = data.dtype == weight.dtype == "float32" and len(data.shape) == len(weight.shape) == 5
    if not fits or data.shape[4] != weight.shape[channels[0]] or not data.size or not weight.size:
        raise TypeRuleError(f"a three-dimensional convolution of {data} by {weight} is not valid")
    if min(*attrs.strides, *attrs.dilation, *attrs.extents) < 1 or min(attrs.before) < 0:
        raise TypeRuleError(f"a three-dimensional convolution with {attrs} is not valid")
    return TensorType((data.shape[0], *attrs.extents, weight.shape[channels[1]]), "float32")


def evaluate_conv3d(data: Array, weight: Array, *, attrs: Conv3DAttrs, out_type: TensorType) -> Array:
    total = np.zeros(out_type.shape, np.float32)
    with np.errstate(all="ignore"):
        for taps in product(*(range(k) for k in weight.shape[:3])):
            places, inside = zip(*(_reads(attrs, data, axis, tap) for axis, tap in enumerate(taps)), strict=True)
            if not all(len(p) for p in places):
                continue
            part, under = np.ix_(range(len(data)), *inside), data[np.ix_(range(len(data)), *places)]
            for channel in range(data.shape[4]):
                total[part] += under[..., channel, None] * weight[taps][channel]
    return total


def _reads(attrs: Conv3DAttrs, data: Array, axis: int, tap: int) -> tuple[list[int], list[int]]:
    """Positions of the data that a tap reads along an axis, and the result positions for which it does."""
    places = [(i * attrs.strides[axis] - attrs.before[axis] + tap * attrs.dilation[axis], i) for i in range(attrs.extents[axis])]
    pairs = [(p, i) for p, i in places if 0 <= p < data.shape[axis + 1]]
    return [p for p, _ in pairs], [i for _, i in pairs]


def evaluate_transpose(data: Array, weight: Array, *, attrs: Conv3DAttrs, out_type: TensorType) -> Array:
    total = np.zeros(out_type.shape, np.float32)
    taps = list(product(*(range(k) for k in weight.shape[:3])))
    with np.errstate(all="ignore"):
        for place in product(*(range(n) for n in data.shape[1:4])):
            for channel in range(data.shape[4]):
                here: Any = (slice(None), *place, channel)
                values = data[here][:, None]
                for tap in taps:
                    out = [
                        p * s - b + t * d
                        for p, s, b, t, d in zip(place, attrs.strides, attrs.before, tap, attrs.dilation, strict=True)
                    ]
                    if all(0 <= o < n for o, n in zip(out, attrs.extents, strict=True)):
                        there: Any = (slice(None), *out)
                        total[there] += values * weight[tap][:, channel]
    return total


def element_conv3d(
    attrs: Conv3DAttrs, b: IRBuilder, index: Index, data: TensorFn, weight: TensorFn, *, out_type: TensorType
) -> Expr:  # fmt: skip
    n, *position, o = index
    origins = [b.let("origin", i * s - p) for i, s, p in zip(position, attrs.strides, attrs.before, strict=True)]

    def term(*taps: Expr) -> Expr:
        *window, channel = taps
        places = [o + t * d for o, t, d in zip(origins, window, attrs.dilation, strict=True)]
        inside: Expr | None = None
        for axis, (place, size) in enumerate(zip(places, data.shape[1:4], strict=True)):
            reach = (attrs.extents[axis] - 1) * attrs.strides[axis] + (weight.shape[axis] - 1) * attrs.dilation[axis]
            if attrs.before[axis] or reach >= size:
                within = logical_and(place >= 0, place < size)
                inside = within if inside is None else logical_and(inside, within)
        value = data.at(b, (n, *places, channel)) * weight.at(b, (*window, channel, o))
        # a sum that starts with +0 is never -0, so adding +0 leaves it unchanged
        return value if inside is None else select(inside, value, imm(0.0, "float32"))

    axes = [reduce_axis(extent, name="k") for extent in (*weight.shape[:3], data.shape[4])]
    return sum(b, axes, term, init=imm(0.0, "float32"), dtype="float32")


def element_transpose(
    attrs: Conv3DAttrs, b: IRBuilder, index: Index, data: TensorFn, weight: TensorFn, *, out_type: TensorType
) -> Expr:  # fmt: skip
    n, *position, o = index
    reach = [b.let("reach", i + p) for i, p in zip(position, attrs.before, strict=True)]

    def axis_of(axis: int) -> IterVar:
        """The data positions from which some tap contributes to this result position."""
        stride, span = attrs.strides[axis], (weight.shape[axis] - 1) * attrs.dilation[axis]
        first = maximum((reach[axis] - span + (stride - 1)) / stride, 0)
        last = minimum(reach[axis] / stride + 1, data.shape[axis + 1])
        return reduce_axis(b.let("last", last), start=b.let("first", first), name="p")

    def term(*at: Expr) -> Expr:
        *places, channel = at
        steps = [r - p * s for r, p, s in zip(reach, places, attrs.strides, strict=True)]
        taps = [s / d for s, d in zip(steps, attrs.dilation, strict=True)]
        value = data.at(b, (n, *places, channel)) * weight.at(b, (*taps, o, channel))
        for step, dilation in zip(steps, attrs.dilation, strict=True):
            if dilation > 1:
                value = select(equal(step % dilation, 0), value, imm(0.0, "float32"))
        return value

    axes = [*(axis_of(axis) for axis in range(3)), reduce_axis(data.shape[4], name="c")]
    return sum(b, axes, term, init=imm(0.0, "float32"), dtype="float32")


for _name, _infer, _evaluate, _rule, _weights, _opcode in (
    ("nn.conv3d", infer_conv3d, evaluate_conv3d, elementwise(element_conv3d), "I, O", "CONV_3D"),
    ("nn.conv3d_transpose", infer_transpose, evaluate_transpose, elementwise(element_transpose), "O, I", "CONV_3D_TRANSPOSE"),
):
    register(
        _name,
        f"{_opcode}; float32",
        [("data", "float32 [N, D, H, W, I]", "volumes"), ("weight", f"float32 [KD, KH, KW, {_weights}]", "the window")],
        OpPattern.OUT_ELEMWISE_FUSABLE,
        attrs=Conv3DAttrs,
        infer_type=_infer,
        evaluate=_evaluate,
        te=_rule,
    )
