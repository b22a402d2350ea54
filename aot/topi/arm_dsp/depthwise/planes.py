"""Depthwise convolution by channel planes: each channel is copied into an int16 plane with its border, then convolved
in asm strips.

Any kernel size, stride and padding, a channel multiplier, dilation along one axis.  The axis that strips run along is
chosen by cost, so k x 1 kernels of audio networks become 1 x k.  Scratch: 2 * (rows of a band * stride + kernel rows)
* (columns + kernel columns) bytes, where bands of rows keep it below BAND_BYTES.  `depthwise_bands` takes few rows at a
time of all channels: little scratch, and results of a band lie at most a band before the data that are still read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.op.qnn.requantize import RequantizeAttrs
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm, logical_and, minimum
from aot.tir.function import FuncAttrs
from aot.tir.stmt import Region
from aot.topi.arm_dsp.depthwise.intrin import code_bytes, dw_strip, instructions
from aot.topi.arm_dsp.depthwise.plan import RESIDENT_WORDS, STREAMED_OUTPUTS, Layout, RequantForm, Strip, packed_words
from aot.topi.layer.fused import FusedLayer, describe, match_layer, table_of
from aot.topi.layer.io import LayerIo, open_flat
from aot.topi.layer.requant import HighMultiply, plan_high_multiply
from aot.topi.layer.threshold import plan_uniform
from aot.topi.strategy import Group, Lowered, register_planned

COMMON_SHIFTS = (11, 12, 10, 13, 9, 14, 8, 15, 7, 16, 6, 17, 5, 18, 19, 20, 4, 3)
"""Final shifts in the order of preference: layers that agree on one share their code."""
PACKED_SCALE = 8
"""Bits by which unpacked bytes are scaled."""
PACKED_SHIFTS = (11, 13, 22)
"""Limits to the common shift of packed weights, tried in this order."""
MAX_STRIP = 16
"""Outputs of a resident strip; two blocks of it stay below 1.5 KB."""
MAX_TAPS = 128
BAND_BYTES = 4096
SMALL_BANDS = 5
"""Bands that an image is cut into to save scratch memory."""
UNROLLED_COPY = 12
"""Pixels copied in a straight line."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One image axis: sizes of data and result, kernel, and the distance of neighbours in bytes."""

    size: int
    out: int
    taps: int
    stride: int
    dilation: int
    before: int
    data_step: int
    out_step: int

    @property
    def reach(self) -> int:
        return (self.taps - 1) * self.dilation + 1


@dataclass(frozen=True, slots=True)
class StripPlan:
    """`rows`, `columns`: the image axes as the strips see them; `band` result rows at a time; `strips`: (first
    output, outputs); `bands_first`: a band of all channels before the next one, so that the result may lie over the data.
    """

    rows: Axis
    columns: Axis
    swapped: bool
    band: int
    pitch: int
    strips: tuple[tuple[int, int], ...]
    layout: Layout
    packed: bool
    bands_first: bool = False

    @property
    def band_rows(self) -> int:
        return (self.band - 1) * self.rows.stride + self.rows.reach

    @property
    def bands(self) -> int:
        return -(-self.rows.out // self.band)

    @property
    def copied(self) -> int:
        """Image columns that the plane holds."""
        return min(self.columns.size, (self.columns.out - 1) * self.columns.stride + self.columns.reach - self.columns.before)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Weights [KH, KW, O] and bias scaled by each channel's power of two, and the fields of the requantisation."""

    weight: Array
    bias: Array
    requant: HighMultiply
    rounding: RequantForm


def plan_numbers(layer: FusedLayer, target: Target, *, packed: bool, scale: int = PACKED_SCALE) -> Numbers | None:
    """A shift common to all channels if the scaled weights fit int16 (3 instructions an output), else one for each (4 or 5).

    For packed weights: all times 2^scale, and a common shift where thresholds prove it; None if no form is exact.
    """
    attrs, used = without_vanishing(layer)
    weight, bias = layer.weight * used, layer.bias * used
    low, high = layer.acc_low * used, layer.acc_high * used
    largest = np.abs(weight).max(axis=(0, 1))
    if not packed and (weight.min() < -128 or weight.max() > 127):
        scale = min(scale, PACKED_SCALE - 1)  # nine bits of a weight, less the zero point of a uint8 model
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
    """Multiplier 0 and shift 1 for channels whose product always rounds to zero, |acc| < 2^(s - 1); and which
    channels are others.
    """
    multiplier = np.broadcast_to(np.asarray(layer.requant.multiplier, np.int64), layer.bias.shape)
    right = -np.broadcast_to(np.asarray(layer.requant.shift, np.int64), layer.bias.shape)
    magnitude = np.maximum(np.abs(layer.acc_low), np.abs(layer.acc_high)).astype(np.int64)
    used = (multiplier != 0) & ~((right >= 1) & (magnitude < (1 << np.clip(right - 1, 0, 40))))
    numbers = {"multiplier": np.where(used, multiplier, 0), "shift": -np.where(used, right, 1)}
    return replace(layer.requant, **{n: tuple(map(int, v)) for n, v in numbers.items()}), used  # type: ignore[arg-type]


def rounding_of(requant: HighMultiply, layer: FusedLayer, *, folded: bool = False) -> RequantForm:
    """A requantisation as a block of assembly wants it; `folded`: what `plan_folded` gives."""
    shift = requant.fields[2]
    common = int(shift.values[0]) if shift.uniform else -1
    scale = int(requant.prescale[0]) if requant.signed else 1
    return RequantForm(
        common, requant.rounded, requant.signed, requant.lo, requant.hi, scale, table_of(layer) is not None, folded=folded
    )


def axes(layer: FusedLayer) -> tuple[Axis, Axis]:
    """Height and width."""
    _, height, width, depth = layer.data_type.shape
    _, out_height, out_width, channels = layer.out_type.shape
    kh, kw, _ = layer.weight.shape
    (sy, sx), (dy, dx), (top, left, _, _) = layer.attrs.strides, layer.attrs.dilation, layer.attrs.padding
    y = Axis(height, out_height, kh, sy, dy, top, width * depth, out_width * channels)
    return y, Axis(width, out_width, kw, sx, dx, left, depth, channels)


def plan_strips(layer: FusedLayer, numbers: Numbers, target: Target, *, packed: bool, other: bool = False) -> StripPlan | None:
    """The better orientation, by instructions; or the `other` one."""
    y, x = axes(layer)
    found = [s for s in (orient(y, x, swapped=False, packed=packed), orient(x, y, swapped=True, packed=packed)) if s is not None]
    found.sort(key=lambda s: _channel_cost(s, numbers.rounding, target))
    return next(iter(found[other:]), None)


def orient(rows: Axis, columns: Axis, *, swapped: bool, packed: bool, shared: bool = False) -> StripPlan | None:
    """`columns` along the strips; `shared`: the layout must serve results of any width."""
    if columns.taps > 1 and columns.dilation > 1:
        return None
    columns, rows = replace(columns, dilation=1), replace(rows, dilation=rows.dilation if rows.taps > 1 else 1)
    odd = columns.stride % 2 == 1 and (shared or columns.out > 1)
    layout = Layout(rows.taps, columns.taps, odd, True)
    if len(layout.words) > RESIDENT_WORDS:
        layout = replace(layout, resident=False)
    pitch = max((columns.out - 1) * columns.stride + columns.reach, columns.before + 1)
    pitch += pitch % 2
    if 2 * (rows.reach - 1) * pitch > 3500:
        return None
    band = band_height(rows, line_bytes=2 * pitch)
    return StripPlan(rows, columns, swapped, band, pitch, _strips(layout, columns), layout, packed)


def banded(tiling: StripPlan | None) -> StripPlan | None:
    """The plan with SMALL_BANDS bands (or as many as it has) of all channels; None if that is one row or all."""
    if tiling is None:
        return None
    band = min(tiling.band, -(-tiling.rows.out // SMALL_BANDS))
    return replace(tiling, band=band, bands_first=True) if band < tiling.rows.out else None


def band_height(rows: Axis, *, line_bytes: int) -> int:
    """Result rows of the fewest equal bands whose plane stays within BAND_BYTES, 1 where none does."""
    heights = (-(-rows.out // n) for n in range(1, rows.out + 1))
    return next((h for h in heights if line_bytes * ((h - 1) * rows.stride + rows.reach) <= BAND_BYTES), 1)


def _strips(layout: Layout, columns: Axis) -> tuple[tuple[int, int], ...]:
    """Equal strips and a rest; every strip starts in an even column of the plane."""
    width = STREAMED_OUTPUTS
    if layout.resident:
        count = -(-columns.out // MAX_STRIP)
        width = columns.out // count // 2 * 2 if count > 1 else columns.out
    firsts = list(range(0, columns.out, width))
    if len(firsts) > 1 and columns.out - firsts[-1] == 1 and layout.resident:
        firsts.pop()
    return tuple((f, (firsts[i + 1] if i + 1 < len(firsts) else columns.out) - f) for i, f in enumerate(firsts))


def strip_of(tiling: StripPlan, rounding: RequantForm, target: Target, *, outputs: int) -> Strip:
    """The asm block of a strip of `outputs` results."""
    rows, columns = tiling.rows, tiling.columns
    return Strip(
        tiling.layout,
        (rows.stride, columns.stride),
        rows.dilation,
        tiling.pitch,
        tiling.band,
        outputs,
        columns.out_step * (2 if rounding.halves else 1),
        rows.out_step * (2 if rounding.halves else 1),
        rounding,
        target.has("fpu"),
        tiling.packed and tiling.layout.resident,
    )


def _channel_cost(tiling: StripPlan, rounding: RequantForm, target: Target) -> int:
    """Instructions for one plane with one filter (what GCC makes of the loops from counts under QEMU)."""
    strips = sum(instructions(strip_of(tiling, rounding, target, outputs=n), tiling.band) + 11.5 for _, n in tiling.strips)
    turns = _turns(tiling.copied)[1]
    inside, outside = _lines(tiling)
    line = 2 * tiling.copied + (2.6 * turns if turns > 1 else 0) + 5 + (4 if outside else 0)
    expand = 4 * len(tiling.layout.words) + 10 if tiling.packed and not tiling.layout.resident else 0
    return int(tiling.bands * (strips + expand) + inside * line + outside * 5 * tiling.copied)


def _lines(tiling: StripPlan) -> tuple[int, int]:
    """Rows that all bands copy, and those in the padding, which only several bands write."""
    rows, band = tiling.rows, tiling.band_rows
    if tiling.bands == 1:
        return max(0, min(rows.size, band - rows.before)), 0
    firsts = [min(i * tiling.band, rows.out - tiling.band) * rows.stride - rows.before for i in range(tiling.bands)]
    inside = sum(max(0, min(rows.size, first + band) - max(0, first)) for first in firsts)
    return inside, tiling.bands * band - inside


def _turns(count: int) -> tuple[int, int]:
    """Pixels that are copied in a straight line, and how often, before the rest."""
    unroll = count if count <= UNROLLED_COPY else max(u for u in range(1, UNROLLED_COPY + 1) if count % u == 0 or u <= 8)
    return unroll, count // max(unroll, 1)


def is_supported(layer: FusedLayer, target: Target, *, feature: str = "dsp") -> bool:
    """int8 throughout, at most a table after the requantisation, and a kernel small enough for straight-line code."""
    if (
        (layer.tail and table_of(layer) is None)
        or not target.has(feature)
        or 0 in layer.out_type.shape
        or prod(layer.weight.shape[:2]) > MAX_TAPS
    ):
        return False
    return {layer.data_type.dtype, layer.requant.dtype, layer.out_type.dtype} == {"int8"}


def plain_layer(group: Group, target: Target) -> FusedLayer | None:
    """A supported layer of one image with one filter for each channel, which the kernels take whose sizes are data."""
    layer = match_layer(group)
    if layer is None or not is_supported(layer, target) or layer.data_type.shape[0] > 1 or layer.attrs.multiplier > 1:
        return None
    return layer


_Plan = tuple[FusedLayer, Numbers, StripPlan]


def _plan(group: Group, target: Target, *, packed: bool) -> _Plan | None:
    layer = match_layer(group, wide=not packed)
    if layer is None or not is_supported(layer, target):
        return None
    numbers = plan_numbers(layer, target, packed=packed)
    tiling = plan_strips(layer, numbers, target, packed=packed) if numbers is not None else None
    return (layer, numbers, tiling) if numbers is not None and tiling is not None else None


def _plan_turned(group: Group, target: Target) -> _Plan | None:
    """Of the other orientation, where there are two."""
    plan = _plan(group, target, packed=False)
    tiling = None if plan is None else plan_strips(plan[0], plan[1], target, packed=False, other=True)
    return (plan[0], plan[1], tiling) if plan is not None and tiling is not None else None


def _plan_bands(group: Group, target: Target) -> _Plan | None:
    plan = _plan(group, target, packed=False)
    if plan is None:
        return None
    y, x = axes(plan[0])
    tiling = banded(orient(y, x, swapped=False, packed=False))
    return None if tiling is None else (plan[0], plan[1], tiling)


def lower_strips(group: Group, target: Target, name: str, plan: _Plan, *, turned: bool = False) -> Lowered:
    """The kernel of a plan; `turned`: of the orientation that is not the usual one."""
    layer, numbers, tiling = plan
    suffix = "_w8" * tiling.packed + "_bands" * tiling.bands_first + "_16x8" * numbers.rounding.halves + "_turned" * turned
    kernel = "arm_dsp.depthwise" + suffix
    b = IRBuilder(name)
    shape, out_shape = layer.data_type.shape, layer.out_type.shape
    io = open_flat(b, group, layer)
    data = stream(layer, numbers, tiling)
    params = io.constant("params", data.reshape(-1), "int32")
    table = table_regions(io)
    plane = b.scratch("plane", (tiling.band_rows * tiling.pitch + 2,), "int16")
    with b.for_("i", plane.size // 2) as i:
        pad = layer.attrs.pad_value & 0xFFFF
        b.store_as(plane, "uint32", i, imm(pad | pad << 16, "uint32"))
    channels, multiplier = shape[-1], layer.attrs.multiplier
    unpacked = (
        b.scratch("weights", (unpacked_words(tiling, numbers),), "int32")
        if tiling.packed and not tiling.layout.resident
        else None
    )
    for image in counted(b, shape[0], "n"):
        for c, band in _planes(b, tiling, channels):
            source = image * prod(shape[1:]) + c
            _copy(b, tiling, io.data, plane, source=source, first=band, pad=layer.attrs.pad_value)
            for m in counted(b, multiplier, "m"):
                channel = c * multiplier + m
                target_at = image * prod(out_shape[1:]) + channel + band * tiling.rows.out_step
                weights = region(params, b.let("w", channel * data.shape[1]))
                if unpacked is not None:
                    unpack_stream(b, tiling, params, unpacked, at=channel * data.shape[1], words=data.shape[1])
                    weights = region(unpacked)
                _compute(b, tiling, numbers, target, planes=(plane, io.out), weights=(weights, *table), out=target_at)
    form = describe(kernel, band=tiling.band, columns=max(n for _, n in tiling.strips))
    func = b.finish(FuncAttrs(kernel=form, span=layer.span, macs=layer.macs))
    cost = shape[0] * channels * multiplier * _channel_cost(tiling, numbers.rounding, target) + plane.size // 2 * 3
    distinct = {n for _, n in tiling.strips}
    code = sum(code_bytes(strip_of(tiling, numbers.rounding, target, outputs=n)) for n in distinct)
    return Lowered(
        func,
        io.constants,
        instructions=cost,
        code=code + (280 if tiling.bands > 1 else 110) + 8 * min(tiling.copied, UNROLLED_COPY),
    )


def _planes(b: IRBuilder, tiling: StripPlan, channels: int) -> Iterator[tuple[Expr, Expr]]:
    """Channel and first result row of each plane, in the order of the plan."""
    if tiling.bands_first:
        for band in band_starts(b, tiling.rows, tiling.band):
            with b.for_("c", channels) as c:
                yield c, band
        return
    with b.for_("c", channels) as c:
        for band in band_starts(b, tiling.rows, tiling.band):
            yield c, band


def counted(b: IRBuilder, count: int, name: str) -> Iterator[Expr]:
    """The variable of a loop, or 0 where it runs once."""
    if count == 1:
        yield imm(0)
        return
    with b.for_(name, count) as n:
        yield n


def band_starts(b: IRBuilder, rows: Axis, band: int) -> Iterator[Expr]:
    """The first result row of each band; the last band reaches back over rows that are done where they do not divide evenly."""
    if band >= rows.out:
        yield imm(0)
        return
    with b.for_("band", -(-rows.out // band)) as i:
        yield b.let("first", minimum(i * band, rows.out - band)) if rows.out % band else i * band


def stream(layer: FusedLayer, numbers: Numbers, tiling: StripPlan) -> Array:
    """int32 [channels, words]: the weight words of the layout with bias, constant, multiplier and shift (see Strip).

    Packed: words of four bytes first, see unpack, then bias, constant, multiplier.
    """
    weight = numbers.weight.transpose(1, 0, 2) if tiling.swapped else numbers.weight
    layout = tiling.layout
    words = np.zeros((2 * packed_words(layout), layer.channels), np.int64)
    for i, taps in enumerate(layout.words):
        for half, (r, k) in enumerate(taps):
            words[i] |= (weight[r, k] & 0xFFFF) << (16 * half)
    multiplier, constant, shift = numbers.requant.fields
    tail = [constant.values, multiplier.values] + ([shift.values] if numbers.rounding.shift < 0 else [])
    if tiling.packed:
        columns = [*(words[0::2] >> 8 | words[1::2]), numbers.bias, *tail]
    else:
        words = words[: len(layout.words)]
        columns = [*words, numbers.bias, *tail] if layout.resident else [numbers.bias, *words, *tail]
    return np.stack(columns, axis=1).astype(np.uint32).view(np.int32)


def table_regions(io: LayerIo) -> tuple[Region, ...]:
    """The operand of `dw_strip` for a layer whose tail is a table; none for others."""
    return () if io.table is None else (region(io.table),)


def unpacked_words(tiling: StripPlan, numbers: Numbers) -> int:
    return 2 * packed_words(tiling.layout) + 3 + (numbers.rounding.shift < 0)


def unpack_stream(b: IRBuilder, tiling: StripPlan, params: Buffer, weights: Buffer, *, at: Expr, words: int) -> None:
    """A channel's packed stream as the streamed plan reads it: bias, words of two int16, the other numbers."""
    count = packed_words(tiling.layout)
    start = b.let("start", at)
    unroll = max(u for u in (4, 3, 2, 1) if count % u == 0)
    with b.for_("k", count, step=unroll) as k:
        for u in range(unroll):
            word = b.let("word", params.load("uint32", start + k + u))
            b.store_as(weights, "uint32", (k + u) * 2 + 1, (word << 8) & imm(0xFF00FF00, "uint32"))
            b.store_as(weights, "uint32", (k + u) * 2 + 2, word & imm(0xFF00FF00, "uint32"))
    b.store(weights, 0, params[start + count])
    for i in range(words - count - 1):
        b.store(weights, 1 + len(tiling.layout.words) + i, params[start + (count + 1 + i)])


def _copy(b: IRBuilder, tiling: StripPlan, data: Buffer, plane: Buffer, *, source: Expr, first: Expr, pad: int) -> None:
    """One band's pixels into the plane; with several bands the border rows change place, so they are written too."""
    rows = tiling.rows
    if tiling.bands == 1:
        count = min(rows.size, tiling.band_rows - rows.before)
        if count > 0:
            with b.for_("y", count) as y:
                _copy_row(b, tiling, data, plane, source=b.let("s", source + y * rows.data_step), row=y + rows.before, pad=None)
        return
    with b.for_("y", tiling.band_rows) as y:
        line = b.let("line", first * rows.stride + y - rows.before)
        with b.if_(logical_and(line >= 0, line < rows.size)):
            _copy_row(b, tiling, data, plane, source=b.let("s", source + line * rows.data_step), row=y, pad=None)
        with b.else_():
            _copy_row(b, tiling, data, plane, source=imm(0), row=y, pad=pad)


def _copy_row(b: IRBuilder, tiling: StripPlan, data: Buffer, plane: Buffer, *, source: Expr, row: Expr, pad: int | None) -> None:
    count, step = tiling.copied, tiling.columns.data_step
    if count <= 0:
        return
    target = b.let("d", row * tiling.pitch + tiling.columns.before)

    def one(x: Expr) -> None:
        b.store(plane, target + x, data[source + x * step] if pad is None else pad)

    if pad is not None:
        with b.for_("x", count) as x:
            one(x)
        return
    unroll, loops = _turns(count)
    if loops > 1:
        with b.for_("x", loops * unroll, step=unroll) as x:
            for u in range(unroll):
                one(x + u)
    for u in range(loops * unroll if loops > 1 else 0, count):
        one(imm(u))


def equal_runs(strips: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """(first output, outputs of each, number of strips) of runs of equal strips."""
    runs: list[tuple[int, int, int]] = []
    for first, outputs in strips:
        if runs and runs[-1][1] == outputs:
            runs[-1] = (*runs[-1][:2], runs[-1][2] + 1)
        else:
            runs.append((first, outputs, 1))
    return runs


def _compute(
    b: IRBuilder,
    tiling: StripPlan,
    numbers: Numbers,
    target: Target,
    *,
    planes: tuple[Buffer, Buffer],
    weights: tuple[Region, ...],
    out: Expr,
) -> None:
    """All strips of one band with one filter; a loop over those of equal width."""
    plane, result = planes
    columns, start = tiling.columns, b.let("o", out)
    for first, outputs, count in equal_runs(tiling.strips):
        block = dw_strip(strip_of(tiling, numbers.rounding, target, outputs=outputs))
        with strip_loop(b, first, count, step=outputs) as x:
            b.block(block, region(plane, x * columns.stride), *weights, region(result, start + x * columns.out_step))


@contextmanager
def strip_loop(b: IRBuilder, first: int, count: int, *, step: int) -> Iterator[Expr]:
    """The first outputs of `count` strips of equal width."""
    if count == 1:
        yield imm(first)
        return
    with b.for_("x", first + count * step, start=first, step=step) as x:
        yield x


register_planned("arm_dsp.depthwise", "nn.depthwise_conv2d", partial(_plan, packed=False), lower_strips, plevel=30)
register_planned("arm_dsp.depthwise_w8", "nn.depthwise_conv2d", partial(_plan, packed=True), lower_strips, plevel=28)
register_planned("arm_dsp.depthwise_bands", "nn.depthwise_conv2d", _plan_bands, lower_strips, plevel=9, small=True)
_TURNED = partial(lower_strips, turned=True)
register_planned("arm_dsp.depthwise_turned", "nn.depthwise_conv2d", _plan_turned, _TURNED, plevel=5, for_records=True)
