"""Depthwise convolution by channel planes: copy one channel into an int16 plane with its border, then convolve it in strips.

The data of a channel are `channels` bytes apart, so no instruction can load two neighbouring pixels.  In the plane they share a
word, and blocks of one row x several columns multiply two taps per SMLAD (strip.py); the border in the plane makes tests for
padding unnecessary.

Accepts any kernel size, stride and padding, a channel multiplier, and dilation along one axis.  The axis along which strips run
is chosen by cost, so the k x 1 kernels of audio networks become 1 x k.

Scratch: 2 * (rows of a band * stride + kernel rows) * (columns + kernel columns) bytes; the plane is cut into bands of rows that
keep it below BAND_BYTES.  `depthwise_bands` computes a few rows of all channels at a time: little scratch memory, and the result
may overlap the data, because it is at most one band in front of the data that are still read.  `depthwise_16x8` is for 16-bit
data whose sums provably fit 32 bits.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.op.qnn.quantize import RequantizeAttrs
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm
from aot.tir.stmt import Region
from aot.topi.arm_dsp.depthwise import strip as blocks
from aot.topi.layer.fused import FusedLayer, LayerIo, lowered, match_layer, open_flat, table_of
from aot.topi.layer.im2col import Axis
from aot.topi.layer.planes import Planes, Strips, band_height, cut, each_strip, equal_strips, orientations
from aot.topi.layer.requant import HighMultiply, plan_high_multiply, plan_uniform
from aot.topi.strategy import Group, Lowered, register_planned


@dataclass(frozen=True, slots=True)
class Numbers:
    """Weights [KH, KW, O] and bias, scaled by each channel's power of two, and the requantisation."""

    weight: Array
    bias: Array
    requant: HighMultiply
    rounding: blocks.RequantForm


COMMON_SHIFTS = (11, 12, 10, 13, 9, 14, 8, 15, 7, 16, 6, 17, 5, 18, 19, 20, 4, 3)
"""Final shifts in order of preference: layers with the same shift share their code."""
PACKED_SCALE = 8
"""Bits by which unpacked bytes are scaled."""
PACKED_SHIFTS = (11, 13, 22)
"""Limits of the common shift of packed weights, tried in this order."""
MAX_STRIP = 16
"""Outputs of a resident strip; two blocks of this size stay below 1.5 KB of code."""
MAX_TAPS = 128
HALVES = frozenset({("int16", "int8")})
LOWEST_HALVES = (int_range("int16")[0], 0)
"""Lower bounds of 16-bit results that a saturating instruction can enforce."""
SMALL_BANDS = 5
"""Bands into which an image is cut to save scratch memory."""
MAX_REACH = 3500
"""Most bytes of the plane's rows that one result row reads."""
UNROLLED_COPY = 12
"""Most pixels that are copied without a loop."""


def plan_numbers(layer: FusedLayer, target: Target, *, packed: bool, scale: int = PACKED_SCALE) -> Numbers | None:
    """Return one shift for all channels if the scaled weights fit int16 (3 instructions per output), else one per channel (4 or
    5).

    Packed weights: everything is scaled by 2^scale, with a common shift if thresholds prove it exact; None if no form is exact.
    """
    attrs, used = without_vanishing(layer)
    weight, bias = layer.weight * used, layer.bias * used
    low, high = layer.acc_low * used, layer.acc_high * used
    largest = np.abs(weight).max(axis=(0, 1))
    if not packed and (weight.min() < -128 or weight.max() > 127):
        scale = min(scale, PACKED_SCALE - 1)  # nine bits per weight, less the zero point of a uint8 model
    right = -np.asarray(attrs.shift, np.int64)
    for shift in COMMON_SHIFTS if attrs.rounding == "double" and not packed else ():
        p = np.where(used, shift + 1 - right, shift)
        if (p < 2).any() or ((largest << np.clip(p, 0, 16)) > 32767).any():
            continue
        requant = plan_high_multiply(attrs, low, high, target=target, prescale=p)
        if requant is not None and not requant.signed:
            return Numbers(weight << p, bias << p, requant, rounding_of(requant, layer))
    for limit in PACKED_SHIFTS:
        requant = plan_uniform(attrs, low, high, target=target, prescale=scale, limit=limit)
        if requant is not None:
            return Numbers(weight << scale, bias << scale, requant, rounding_of(requant, layer))
    for bits in (scale,) if packed else (1, scale):  # one bit is the cheapest, more allow left shifts
        requant = plan_high_multiply(attrs, low, high, target=target, prescale=bits)
        if requant is not None:
            return Numbers(weight << bits, bias << bits, requant, rounding_of(requant, layer))
    return None


def without_vanishing(layer: FusedLayer) -> tuple[RequantizeAttrs, Array]:
    """Give channels whose product always rounds to zero, |acc| < 2^(s - 1), multiplier 0 and shift 1; also return the others."""
    multiplier = np.broadcast_to(np.asarray(layer.requant.multiplier, np.int64), layer.bias.shape)
    right = -np.broadcast_to(np.asarray(layer.requant.shift, np.int64), layer.bias.shape)
    magnitude = np.maximum(np.abs(layer.acc_low), np.abs(layer.acc_high)).astype(np.int64)
    used = (multiplier != 0) & ~((right >= 1) & (magnitude < (1 << np.clip(right - 1, 0, 40))))
    numbers = {"multiplier": np.where(used, multiplier, 0), "shift": -np.where(used, right, 1)}
    return replace(layer.requant, **{n: tuple(map(int, v)) for n, v in numbers.items()}), used  # type: ignore[arg-type]


def rounding_of(requant: HighMultiply, layer: FusedLayer, *, folded: bool = False) -> blocks.RequantForm:
    """Return a requantisation in the form that a block of assembly needs; `folded`: it comes from `plan_folded`."""
    halves = layer.data_type.dtype == "int16"
    shift = requant.params[2]
    common = int(shift.values[0]) if shift.uniform else -1
    scale = int(requant.prescale[0]) if requant.signed else 1
    form = blocks.RequantForm(
        common, requant.rounded, requant.signed, requant.lo, requant.hi, scale, halves=halves, folded=folded
    )
    return replace(form, table=table_of(layer) is not None)


def layout_of(rows: Axis, columns: Axis, *, shared: bool = False) -> blocks.Layout:
    """Return the layout; `shared`: for results of any width."""
    odd = columns.stride % 2 == 1 and (shared or columns.out > 1)
    layout = blocks.Layout(rows.taps, columns.taps, odd, True)
    return replace(layout, resident=False) if len(layout.words) > blocks.RESIDENT_WORDS else layout


def plane_pitch(rows: Axis, columns: Axis) -> int | None:
    """Return the halfwords per line, even; None if the wrong axis is dilated or the rows of a window are out of reach."""
    pitch = max(columns.used, columns.before + 1)
    pitch += pitch % 2
    return None if columns.dilation > 1 or 2 * (rows.reach - 1) * pitch > MAX_REACH else pitch


@dataclass(frozen=True, slots=True)
class StripPlanes(Planes):
    """Planes with the `strips` of their rows; `packed` weights; `fpu`: there are FPU registers; `bands_first` as in `results`."""

    numbers: Numbers
    strips: Strips
    layout: blocks.Layout
    packed: bool
    fpu: bool
    bands_first: bool = False

    def strip(self, outputs: int) -> blocks.Strip:
        """Return the block for a strip of `outputs` results."""
        rows, columns, rounding = self.rows, self.columns, self.numbers.rounding
        each, packed = 2 if rounding.halves else 1, self.packed and self.layout.resident
        sizes = (rows.stride, rows.dilation, self.pitch, self.band, outputs, each * columns.out_step, each * rows.out_step)
        return blocks.Strip(*sizes, rounding, self.layout, columns.stride, self.fpu, packed)

    @property
    def channel_cost(self) -> int:
        """Instructions for one plane with one filter (as GCC compiles the loops, from counts under QEMU)."""
        copied = self.columns.copied
        strips = sum(blocks.instructions(self.strip(n), self.band) + 11.5 for _, n in self.strips)
        iterations = _copy_loop(copied)[1]
        inside, outside = self._copied_lines()
        line = 2 * copied + (2.6 * iterations if iterations > 1 else 0) + 5 + (4 if outside else 0)
        expand = 4 * len(self.layout.words) + 10 if self.packed and not self.layout.resident else 0
        return int(self.bands * (strips + expand) + inside * line + outside * 5 * copied)

    def _copied_lines(self) -> tuple[int, int]:
        """Rows of the image that all bands copy, and rows of padding, which are written only if there are several bands."""
        rows = self.rows
        if self.bands == 1:
            return max(0, min(rows.size, self.lines - rows.before)), 0
        firsts = [min(i * self.band, rows.out - self.band) * rows.stride - rows.before for i in range(self.bands)]
        inside = sum(max(0, min(rows.size, first + self.lines) - max(0, first)) for first in firsts)
        return inside, self.bands * self.lines - inside


def _plans(layer: FusedLayer, numbers: Numbers | None, target: Target, *, packed: bool = False) -> list[StripPlanes]:
    """Return the plans with strips along the image's rows and along its columns, if these are possible."""
    plans: list[StripPlanes] = []
    if numbers is None:
        return plans
    for rows, columns, swapped in orientations(layer):
        pitch, layout = plane_pitch(rows, columns), layout_of(rows, columns)
        if pitch is None:
            continue
        strips = (
            equal_strips(columns.out, MAX_STRIP) if layout.resident else cut(columns.out, blocks.STREAMED_OUTPUTS, join=False)
        )
        band = band_height(rows, line_bytes=2 * pitch)
        plans.append(StripPlanes(layer, rows, columns, swapped, band, pitch, numbers, strips, layout, packed, target.has("fpu")))
    return plans


def _copy_loop(count: int) -> tuple[int, int]:
    """Return the pixels that are copied per iteration, and the number of iterations; a remainder follows."""
    unroll = count if count <= UNROLLED_COPY else max(u for u in range(1, UNROLLED_COPY + 1) if count % u == 0 or u <= 8)
    return unroll, count // max(unroll, 1)


def is_supported(layer: FusedLayer, target: Target, *, feature: str = "dsp") -> bool:
    """Whether a layer is int8 throughout, with at most a table as epilogue, and a kernel small enough for straight-line code."""
    if (
        (layer.epilogue and table_of(layer) is None)
        or not target.has(feature)
        or 0 in layer.out_type.shape
        or prod(layer.weight.shape[:2]) > MAX_TAPS
    ):
        return False
    return {layer.data_type.dtype, layer.requant.dtype, layer.out_type.dtype} == {"int8"}


def plain_layer(group: Group, target: Target) -> FusedLayer | None:
    """Return a supported layer of one image with one filter per channel, as kernels whose sizes are data need it."""
    layer = match_layer(group)
    if layer is None or not is_supported(layer, target) or layer.data_type.shape[0] > 1 or layer.attrs.multiplier > 1:
        return None
    return layer


def _plan(group: Group, target: Target, *, packed: bool = False, other: bool = False, bands: bool = False) -> StripPlanes | None:
    """Return the orientation with fewer instructions, or the `other` one.

    `bands`: rows of the image in SMALL_BANDS bands (or as many as possible) of all channels, of less than the image.
    """
    layer = match_layer(group, wide=not packed)
    if layer is None or not is_supported(layer, target):
        return None
    plans = _plans(layer, plan_numbers(layer, target, packed=packed), target, packed=packed)
    if not bands:
        return next(iter(sorted(plans, key=lambda p: p.channel_cost)[other:]), None)
    if not plans or plans[0].swapped:
        return None
    band = min(plans[0].band, -(-plans[0].rows.out // SMALL_BANDS))
    return replace(plans[0], band=band, bands_first=True) if band < plans[0].rows.out else None


def _plan_16x8(group: Group, target: Target) -> StripPlanes | None:
    """Accept layers without epilogue and zero points, whose results start at the type's minimum or at 0."""
    layer = match_layer(group, HALVES) if target.has("dsp") else None
    if layer is None or layer.epilogue or layer.attrs.weight_zp or 0 in layer.out_type.shape or layer.out_type.dtype != "int16":
        return None
    if prod(layer.weight.shape[:2]) > MAX_TAPS or layer.requant.lo not in LOWEST_HALVES or layer.requant.hi < 0:
        return None
    return min(_plans(layer, _numbers_16x8(layer, target), target), key=lambda p: p.channel_cost, default=None)


def _numbers_16x8(layer: FusedLayer, target: Target) -> Numbers | None:
    """Return one shift for all channels if the sums, scaled by each channel's power of two, still fit; else one per channel."""
    attrs, used = without_vanishing(layer)
    weight, bias = layer.weight * used, layer.bias * used
    magnitude = np.abs(weight).sum(axis=(0, 1)) * 32768 + np.abs(bias)
    largest = np.abs(weight).max(axis=(0, 1))
    right = -np.asarray(attrs.shift, np.int64)
    least = 0 if attrs.rounding == "single" else 1
    common: list[Array] = [shift + 1 - right for shift in range(int(right.max()) + 2, int(right.max()) + least - 2, -1)]
    for prescale in (*common, np.ones_like(right), np.zeros_like(right)):
        p = np.clip(prescale, 0, 16)
        if (p != prescale).any() or (magnitude << p >= 1 << 31).any() or (largest << p > int_range("int16")[1]).any():
            continue
        requant = plan_high_multiply(attrs, -magnitude, magnitude, target=target, prescale=p)
        if requant is not None:
            return Numbers(weight << p, bias << p, requant, rounding_of(requant, layer))
    return None


def _lower(group: Group, _target: Target, name: str, plan: StripPlanes, *, turned: bool = False) -> Lowered:
    """Return the kernel of a plan; `turned`: the plan has the orientation that is usually not chosen."""
    layer, columns, rounding = plan.layer, plan.columns, plan.numbers.rounding
    suffix = "_w8" * plan.packed + "_bands" * plan.bands_first + "_16x8" * rounding.halves + "_turned" * turned
    b = IRBuilder(name)
    io = open_flat(b, group, layer)
    data = stream(layer, plan.numbers, plan.layout, swapped=plan.swapped, packed=plan.packed)
    params = io.constant("params", data.reshape(-1), "int32")
    table = table_regions(io)
    plane = b.scratch("plane", (plan.lines * plan.pitch + 2,), "int16")
    with b.for_("i", plane.size // 2) as i:
        pad = layer.attrs.pad_value & 0xFFFF
        b.store_as(plane, "uint32", i, imm(pad | pad << 16, "uint32"))
    unpacked = unpacked_weights(b, plan.layout, plan.numbers) if plan.packed else None

    row = partial(_copy_row, b, plan, io.data, plane)
    for channel, out in plan.results(b, row, bands_first=plan.bands_first):
        weights = region(params, b.let("w", channel * data.shape[1]))
        if unpacked is not None:
            unpack_stream(b, plan.layout, params, unpacked, at=channel * data.shape[1], words=data.shape[1])
            weights = region(unpacked)
        start = b.let("o", out)
        for x, outputs in each_strip(b, plan.strips):
            at, result = region(plane, x * columns.stride), region(io.out, start + x * columns.out_step)
            b.block(blocks.dw_strip(plan.strip(outputs)), at, weights, *table, result)
    widths = {n for _, n in plan.strips}
    cost = layer.data_type.shape[0] * layer.channels * plan.channel_cost + plane.size // 2 * 3
    code = sum(blocks.code_bytes(plan.strip(n)) for n in widths) + 8 * min(columns.copied, UNROLLED_COPY)
    code += 280 if plan.bands > 1 else 110
    return lowered(io, layer, "arm_dsp.depthwise" + suffix, cost, code, band=plan.band, columns=max(widths))


def stream(layer: FusedLayer, numbers: Numbers, layout: blocks.Layout, *, swapped: bool, packed: bool) -> Array:
    """Return int32 [channels, words]: the weight words of the layout with bias, constant, multiplier and shift (see Strip).

    Packed: first the words of four bytes, see unpack, then bias, constant, multiplier.
    """
    weight = numbers.weight.transpose(1, 0, 2) if swapped else numbers.weight
    words = np.zeros((2 * blocks.packed_words(layout), layer.channels), np.int64)
    for i, taps in enumerate(layout.words):
        for half, (r, k) in enumerate(taps):
            words[i] |= (weight[r, k] & 0xFFFF) << (16 * half)
    multiplier, constant, shift = numbers.requant.params
    requant_params = [constant.values, multiplier.values] + ([shift.values] if numbers.rounding.shift < 0 else [])
    if packed:
        columns = [*(words[0::2] >> 8 | words[1::2]), numbers.bias, *requant_params]
    else:
        words = words[: len(layout.words)]
        columns = [*words, numbers.bias, *requant_params] if layout.resident else [numbers.bias, *words, *requant_params]
    return np.stack(columns, axis=1).astype(np.uint32).view(np.int32)


def table_regions(io: LayerIo) -> tuple[Region, ...]:
    """Return the table operand of `dw_strip` for a layer whose epilogue is a table, else nothing."""
    return () if io.table is None else (region(io.table),)


def unpacked_weights(b: IRBuilder, layout: blocks.Layout, numbers: Numbers) -> Buffer | None:
    """Return the buffer for the unpacked stream of a channel; None for resident layouts, which unpack in registers."""
    if layout.resident:
        return None
    return b.scratch("weights", (2 * blocks.packed_words(layout) + 3 + (numbers.rounding.shift < 0),), "int32")


def unpack_stream(b: IRBuilder, layout: blocks.Layout, params: Buffer, weights: Buffer, *, at: Expr, words: int) -> None:
    """Unpack a channel's stream into the form that the streamed plan reads: bias, words of two int16, the other numbers."""
    count = blocks.packed_words(layout)
    start = b.let("start", at)
    unroll = max(u for u in (4, 3, 2, 1) if count % u == 0)
    with b.for_("k", count, step=unroll) as k:
        for u in range(unroll):
            word = b.let("word", params.load("uint32", start + k + u))
            b.store_as(weights, "uint32", (k + u) * 2 + 1, (word << 8) & imm(0xFF00FF00, "uint32"))
            b.store_as(weights, "uint32", (k + u) * 2 + 2, word & imm(0xFF00FF00, "uint32"))
    b.store(weights, 0, params[start + count])
    for i in range(words - count - 1):
        b.store(weights, 1 + len(layout.words) + i, params[start + (count + 1 + i)])


def _copy_row(b: IRBuilder, plan: StripPlanes, data: Buffer, plane: Buffer, row: Expr, source: Expr | None) -> None:
    """Copy one row of the image into the plane, or fill it with padding."""
    count, step = plan.columns.copied, plan.columns.data_step
    if not count:
        return
    target = b.let("d", row * plan.pitch + plan.columns.before)
    if source is None:
        with b.for_("x", count) as x:
            b.store(plane, target + x, plan.layer.attrs.pad_value)
        return

    def one(x: Expr) -> None:
        b.store(plane, target + x, data[source + x * step])

    unroll, loops = _copy_loop(count)
    if loops > 1:
        with b.for_("x", loops * unroll, step=unroll) as x:
            for u in range(unroll):
                one(x + u)
    for u in range(loops * unroll if loops > 1 else 0, count):
        one(imm(u))


_register = partial(register_planned, anchor="nn.depthwise_conv2d")
_register("arm_dsp.depthwise", plan=_plan, lower=_lower, plevel=30)
_register("arm_dsp.depthwise_w8", plan=partial(_plan, packed=True), lower=_lower, plevel=28)
_register("arm_dsp.depthwise_bands", plan=partial(_plan, bands=True), lower=_lower, plevel=9, small=True)
_register("arm_dsp.depthwise_16x8", plan=_plan_16x8, lower=_lower, plevel=30)
_other, _turned = partial(_plan, other=True), partial(_lower, turned=True)
_register("arm_dsp.depthwise_turned", plan=_other, lower=_turned, plevel=5, for_records=True)
