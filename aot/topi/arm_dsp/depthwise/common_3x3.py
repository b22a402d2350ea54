"""Depthwise convolution, 3x3, with one function for all layers whatever their size and stride (1 or 2).

The weights of a channel stay in registers while strips of two columns, or one with stride 2, run down the plane (see
intrin.py); sizes and steps are read from a header.  Weights take one byte each.
"""

from __future__ import annotations

from dataclasses import replace

from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, equal, imm, select
from aot.tir.function import FuncAttrs
from aot.tir.stmt import Region
from aot.topi.arm_dsp.depthwise.common_plane import HEADER, Plane, PlanePlan, fits, with_header
from aot.topi.arm_dsp.depthwise.intrin import code_bytes, dw_strip, instructions
from aot.topi.arm_dsp.depthwise.plan import Layout, Strip
from aot.topi.arm_dsp.depthwise.planes import Numbers, StripPlan, axes, orient, plain_layer, plan_numbers, stream, table_regions
from aot.topi.layer.fused import describe
from aot.topi.layer.io import LayerIo, open_flat
from aot.topi.strategy import Group, Lowered, register_planned

PITCH = 84
"""Of all planes: results up to 82 columns wide; wider ones would make the planes of small images larger."""

RECORD = 7
"""Words of a channel: three of weights, bias, constant, multiplier, shift."""


@dataclass(frozen=True, slots=True)
class _Plan:
    plane: PlanePlan
    numbers: Numbers
    tiling: StripPlan
    fpu: bool

    def strip(self, stride: int) -> Strip:
        """Rows may have a stride of their own; the function serves equal ones."""
        layout = Layout(3, 3, stride == 1, True)
        return Strip(layout, (stride, stride), 1, PITCH, 0, 3 - stride, 0, 0, self.numbers.rounding, self.fpu, True, True)

    def instructions(self) -> int:
        """Of one call (from counts under QEMU)."""
        plane, stride = self.plane, self.plane.columns.stride
        strips = -(-plane.columns.out // (3 - stride)) * plane.bands
        compute = strips * (instructions(self.strip(stride), plane.band) + 22)
        return plane.layer.channels * (compute + plane.copy_instructions() + 24) + 5 * plane.size // 2 + 60


def _plan(group: Group, target: Target) -> _Plan | None:
    layer = plain_layer(group, target)
    if layer is None:
        return None
    rows, columns = axes(layer)
    if {rows.dilation, columns.dilation} != {1} or (rows.taps, columns.taps) != (3, 3):
        return None
    if (rows.stride, columns.stride) not in ((1, 1), (2, 2)):
        return None
    numbers = plan_numbers(layer, target, packed=True)
    tiling = orient(rows, columns, swapped=False, packed=True, shared=True)
    plane = PlanePlan(layer, rows, columns, PITCH, 4)
    if numbers is None or tiling is None or not fits(plane):
        return None
    own_shift = replace(numbers, rounding=replace(numbers.rounding, shift=-1))
    return _Plan(plane, own_shift, tiling, target.has("fpu"))


def _lower(group: Group, _target: Target, name: str, plan: _Plan) -> Lowered:
    layer = plan.plane.layer
    b = IRBuilder(name)
    io = open_flat(b, group, layer)
    data = stream(layer, plan.numbers, plan.tiling)
    assert data.shape[1] == RECORD
    params = io.constant("params", with_header(plan.plane, (), data), "int32")
    table = table_regions(io)
    plane = Plane(b, params, size=plan.plane.size)
    with b.for_("c", plane.n["channels"]) as c:
        weights = region(params, b.let("w", c * RECORD + len(HEADER)))
        with b.for_("band", plane.n["bands"]) as band:
            y, count = plane.copy(io.data, c, band, kernel_rows=imm(3), pitch=imm(PITCH))
            _compute(b, plan, plane, io=io, weights=(weights, *table), out=c + y * plane.n["out_row"], count=count)
    func = b.finish(FuncAttrs(kernel=describe("arm_dsp.depthwise_3x3_common"), span=layer.span, macs=layer.macs))
    code = 700 + sum(code_bytes(plan.strip(stride)) for stride in (1, 2))
    return Lowered(func, io.constants, instructions=plan.instructions(), code=code)


def _compute(
    b: IRBuilder, plan: _Plan, plane: Plane, *, io: LayerIo, weights: tuple[Region, ...], out: Expr, count: Expr
) -> None:
    """All strips of a band; the last one of an odd width stores its second result under its first."""
    n = plane.n
    start = b.let("o", out)
    with b.if_(equal(n["stride"], 1)), b.for_("x", n["out_width"], step=2) as x:
        step = b.let("step", select(n["out_width"] - x > 1, n["channels"], imm(0)))
        target = region(io.out, start + x * n["channels"])
        b.block(dw_strip(plan.strip(1)), region(plane.buffer, x), *weights, target, count, step, n["out_row"])
    with b.else_(), b.for_("x", n["out_width"]) as x:
        target = region(io.out, start + x * n["channels"])
        b.block(dw_strip(plan.strip(2)), region(plane.buffer, x * 2), *weights, target, count, n["channels"], n["out_row"])


register_planned("arm_dsp.depthwise_3x3_common", "nn.depthwise_conv2d", _plan, _lower, plevel=25)
