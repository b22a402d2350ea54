"""Transposed convolutions of float32: each phase a convolution of stride 1 whose results lie apart in the image.

See aot/topi/layer/phases.py.  The reference adds an output's products in the order of the data's pixels, as a convolution with
flipped weights does.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from aot.ir.op import Op
from aot.op.nn.conv2d_transpose_float import NAME as OPERATOR
from aot.op.nn.conv2d_transpose_float import FloatTransposeAttrs
from aot.relay.expr import Constant, Var, tensor_type
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.function import FuncAttrs
from aot.topi.arm_fpu.conv2d import DenseKernel
from aot.topi.arm_fpu.intrin import CHANNELS
from aot.topi.arm_fpu.layer import Axis, FloatIo, FloatLayer, bias_of, with_relu
from aot.topi.arm_fpu.window import UNROLL, Spread
from aot.topi.layer.fused import describe
from aot.topi.layer.phases import PhaseAxis, phase_axes
from aot.topi.strategy import Group, Lowered, register_planned


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole layer, whose axes mean nothing, and each phase with the places of its results."""

    layer: FloatLayer
    phases: tuple[tuple[FloatLayer, Spread], ...]


def plan(group: Group, target: Target) -> Plan | None:
    """Constant finite weights, sums that end with the bias, no tail but RELU, and a tap inside the image for each result."""
    whole = _match(group) if target.has("vfp") else None
    if whole is None:
        return None
    attrs = whole.anchor.attrs
    _, height, width, _ = whole.data.type.shape
    axes = []
    for i, size in enumerate((height, width)):
        cut, stride, kernel = attrs.padding[i], attrs.strides[i], whole.weight.shape[1 + i]
        found = phase_axes(out=attrs.size[i], kernel=kernel, stride=stride, cut=cut)
        if not all(a.out and a.before >= 0 and _axis(a, size).never_empty for a in found):
            return None
        axes.append(found)
    phases = []
    for y, x in product(range(attrs.strides[0]), range(attrs.strides[1])):
        rows, columns = axes[0][y], axes[1][x]
        weight = whole.weight[:, rows.taps][:, :, columns.taps]
        layer = replace(whole, weight=weight, rows=_axis(rows, height), columns=_axis(columns, width))
        phases.append((layer, Spread(attrs.strides, (y, x), attrs.size)))
    return Plan(whole, tuple(phases))


def _axis(axis: PhaseAxis, size: int) -> Axis:
    return Axis(size, axis.out, len(axis.taps), before=axis.before)


def _match(group: Group) -> FloatLayer | None:
    anchor = group.anchor
    if not isinstance(anchor.op, Op) or anchor.op.name != OPERATOR:
        return None
    attrs: FloatTransposeAttrs = anchor.attrs
    data, *constants = anchor.args
    arrays = [c.data for c in constants if isinstance(c, Constant)]
    if not isinstance(data, Var) or len(arrays) < len(constants) or not all(np.isfinite(a).all() for a in arrays):
        return None
    bounds, head, tail = with_relu((attrs.clamp.lo, attrs.clamp.hi), anchor, group.followers)
    if tail or attrs.bias_first:
        return None
    out, weight = tensor_type(anchor), arrays[0]
    bias = bias_of(arrays[1:], out.shape[-1])
    batch, *_, depth = data.type.shape
    macs = data.type.size * weight[..., 0].size
    return FloatLayer(anchor, head, data, weight, bias, *bounds, (), out, batch, Axis(1, 1), Axis(1, 1), depth, macs)


def lower(group: Group, _target: Target, name: str, found: Plan, *, form: str) -> Lowered:
    b = IRBuilder(name)
    io = FloatIo(b, group, found.layer, run=2 * CHANNELS)
    instructions = cycles = code = 0
    for layer, spread in found.phases:
        kernel = DenseKernel(b, group, layer, inner=layer.depth, fused=form == "vmla", within=(io, spread))
        kernel.emit()
        more, longer = kernel.instructions()
        instructions, cycles, code = instructions + more, cycles + longer, code + kernel.code()
    text = describe(f"arm_fpu.conv2d_transpose_{form}", phases=len(found.phases), unroll=UNROLL)
    func = b.finish(FuncAttrs(kernel=text, span=found.layer.span, macs=found.layer.macs))
    return Lowered(func, io.constants, instructions, code, cycles)


for _form, _plevel in (("vmla", 30), ("vmul", 29)):
    register_planned(f"arm_fpu.conv2d_transpose_{_form}", OPERATOR, plan, partial(lower, form=_form), plevel=_plevel)
