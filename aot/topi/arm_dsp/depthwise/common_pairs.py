"""Depthwise convolution with one small function for all layers: kernels of up to 7 columns, strides 1 and 2.

One channel at a time: its image, or a band of rows, becomes a plane of 16-bit numbers with its border, its weights pairs (see
intrin_pairs.py), and four results of a line are summed at once.  The geometry is read from a header before the
weights, which take one byte each (rows rounded up to pairs).  Scratch: the plane and 8 bytes for each pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, equal
from aot.tir.function import FuncAttrs
from aot.tir.stmt import Region
from aot.topi.arm_dsp.depthwise.common_plane import HEADER, Plane, PlanePlan, fits, with_header
from aot.topi.arm_dsp.depthwise.intrin_pairs import (
    MAX_WORDS,
    OUTPUTS,
    band_instructions,
    band_pairs,
    band_text,
    rest_columns,
    row_words,
    unpack_pairs,
)
from aot.topi.arm_dsp.depthwise.plan import NUMBERS, RequantForm
from aot.topi.arm_dsp.depthwise.planes import PACKED_SCALE, Axis, Numbers, axes, plain_layer, plan_numbers
from aot.topi.layer.fused import FusedLayer, describe
from aot.topi.layer.io import open_flat
from aot.topi.strategy import Group, Lowered, register_planned

MAX_PITCH = 512
MORE = ("kernel_rows", "words", "pitch", "packed")
"""Fields after those of the plane; packed: words of a channel that hold weights."""


@dataclass(frozen=True, slots=True)
class _Plan:
    plane: PlanePlan
    numbers: Numbers

    @property
    def words(self) -> int:
        """Pairs of a kernel row."""
        return row_words(self.plane.columns.taps)

    @property
    def packed(self) -> int:
        return -(-self.plane.rows.taps * self.words // 2)

    @property
    def rounding(self) -> RequantForm:
        """Every channel has its own shift, so that layers agree."""
        return replace(self.numbers.rounding, shift=-1)

    def stream(self) -> Array:
        """int32: the header, then for each channel the packed words of its weights (see unpack_pairs) and the NUMBERS."""
        weight = self.numbers.weight >> PACKED_SCALE
        kh, kw, channels = weight.shape
        taps = np.zeros((channels, kh, 2 * self.words), np.int64)
        taps[:, :, :kw] = weight.transpose(2, 0, 1)
        flat = np.zeros((channels, 4 * self.packed), np.int64)
        flat[:, : kh * 2 * self.words] = taps.reshape(channels, -1)
        quads = np.ascontiguousarray(flat.reshape(channels, -1, 2, 2).transpose(0, 1, 3, 2).astype(np.int8))
        multiplier, constant, shift = (f.values for f in self.numbers.requant.fields)
        numbers = np.stack([self.numbers.bias, constant, multiplier, shift], axis=1).astype(np.int32)
        records = np.concatenate([quads.reshape(channels, -1).view(np.int32), numbers], axis=1)
        return with_header(self.plane, (kh, self.words, self.plane.pitch, self.packed), records)

    def instructions(self) -> int:
        """Of one call (from counts under QEMU)."""
        plane = self.plane
        block = (self.words, plane.columns.stride, plane.rows.taps)
        bands = plane.bands * band_instructions(block, lines=plane.band, columns=plane.columns.out)
        total = 60 + 12 * self.packed + plane.copy_instructions() + bands
        return plane.layer.channels * total + 5 * plane.size // 2 + 80


def _plan(group: Group, target: Target) -> _Plan | None:
    layer = plain_layer(group, target)
    if layer is None or layer.tail:
        return None
    rows, columns = axes(layer)
    words = row_words(columns.taps)
    if words > MAX_WORDS or columns.stride > 2 or {rows.dilation, columns.dilation} != {1}:
        return None
    numbers = plan_numbers(layer, target, packed=True)
    plane = _plane(layer, rows, columns)
    return _Plan(plane, numbers) if numbers is not None and plane.pitch <= MAX_PITCH and fits(plane) else None


def _plane(layer: FusedLayer, rows: Axis, columns: Axis) -> PlanePlan:
    """The narrowest plane; `beyond` covers a last block that starts with the last result."""
    beyond = rest_columns(row_words(columns.taps), columns.stride)
    plan = PlanePlan(layer, rows, columns, 2, beyond + 2)
    needed = max(plan.used, columns.before + plan.copied)
    return replace(plan, pitch=needed + needed % 2)


def _lower(group: Group, _target: Target, name: str, plan: _Plan) -> Lowered:
    layer = plan.plane.layer
    b = IRBuilder(name)
    io = open_flat(b, group, layer)
    params = io.constant("params", plan.stream(), "int32")
    pairs = b.scratch("pairs", (8 * plan.packed,), "int16", align=4)
    plane = Plane(b, params, size=plan.plane.size)
    n = plane.n | {field: b.let(field, params[len(HEADER) + i]) for i, field in enumerate(MORE)}
    with b.for_("c", n["channels"]) as c:
        at = b.let("w", c * (n["packed"] + len(NUMBERS)) + (len(HEADER) + len(MORE)))
        b.block(unpack_pairs(), region(params, at * 4, dtype="int8"), region(pairs), n["packed"])
        numbers = region(params, at + n["packed"])
        with b.for_("band", n["bands"]) as band:
            y, count = plane.copy(io.data, c, band, kernel_rows=n["kernel_rows"], pitch=n["pitch"])
            out = region(io.out, c + y * n["out_row"])
            _compute(b, plan, n, regions=(region(plane.buffer), region(pairs), numbers, out), count=count)
    func = b.finish(FuncAttrs(kernel=describe("arm_dsp.depthwise_pairs", columns=OUTPUTS), span=layer.span, macs=layer.macs))
    text = sum(len(band_text(stride, plan.rounding)) for stride in (1, 2))
    return Lowered(func, io.constants, instructions=plan.instructions(), code=710 + 4 * text)


def _compute(b: IRBuilder, plan: _Plan, n: Mapping[str, Expr], *, regions: tuple[Region, ...], count: Expr) -> None:
    """`count` result rows."""
    steps = (n["stride_rows"] * n["pitch"], n["channels"], n["out_row"])
    operands = (*regions, count, n["out_width"], *steps, n["kernel_rows"], n["words"], n["pitch"])
    with b.if_(equal(n["stride"], 1)):
        b.block(band_pairs(1, plan.rounding), *operands)
    with b.else_():
        b.block(band_pairs(2, plan.rounding), *operands)


register_planned("arm_dsp.depthwise_pairs", "nn.depthwise_conv2d", _plan, _lower, plevel=24)
