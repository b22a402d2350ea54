"""Depthwise convolution with one function for all layers of a kernel size and stride: sizes and steps are data.

As depthwise.py, but planes are tiles of fixed pitch, strips are four, two and one columns wide, and the layer's
geometry is read from a header before its weights, which take one byte each.  Scratch: 2 * PITCH * (rows of a
band * stride + kernel rows) bytes.
"""

from __future__ import annotations

import numpy as np

from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm, logical_and, maximum, minimum
from aot.tir.function import FuncAttrs
from aot.tir.stmt import Region
from aot.topi.arm_dsp.depthwise.intrin import code_bytes, dw_strip, instructions
from aot.topi.arm_dsp.depthwise.plan import Strip
from aot.topi.arm_dsp.depthwise.planes import (
    BAND_BYTES,
    Axis,
    Numbers,
    StripPlan,
    axes,
    orient,
    plain_layer,
    plan_numbers,
    stream,
    table_regions,
    unpack_stream,
    unpacked_words,
)
from aot.topi.layer.fused import FusedLayer, describe
from aot.topi.layer.io import LayerIo, open_flat
from aot.topi.strategy import Group, Lowered, register_planned

PITCH = 26
"""Halfwords of a plane's line, for all layers."""
WIDTHS = (4, 2, 1)
HEADER = (
    "channels", "height", "width", "top", "left", "out_height", "out_width",
    "row", "column", "out_row", "out_column", "band", "pad", "copied", "lines",
)  # fmt: skip
HEADER_WORDS = 16


@dataclass(frozen=True, slots=True)
class _Plan:
    layer: FusedLayer
    numbers: Numbers
    tiling: StripPlan
    target: Target

    def strip(self, outputs: int) -> Strip:
        tiling = self.tiling
        return Strip(
            tiling.layout,
            (tiling.rows.stride, tiling.columns.stride),
            tiling.rows.dilation,
            PITCH,
            0,
            outputs,
            0,
            0,
            self.numbers.rounding,
            self.target.has("fpu"),
            tiling.layout.resident,
            True,
        )

    @property
    def tile(self) -> int:
        """Outputs of a tile, so that the next one starts in an even column."""
        return tile_outputs(self.tiling.columns)

    @property
    def band(self) -> int:
        rows = self.tiling.rows
        return max(1, min(rows.out, (BAND_BYTES // (2 * PITCH) - rows.reach) // rows.stride + 1))

    @property
    def is_small(self) -> bool:
        """Whether one tile is all."""
        return self.band >= self.tiling.rows.out and self.tile >= self.tiling.columns.out

    @property
    def inside(self) -> tuple[int, int]:
        """Columns and rows of the image that a plane of the whole of it holds."""
        rows, columns = self.tiling.rows, self.tiling.columns
        used = (columns.out - 1) * columns.stride + columns.taps - columns.before
        lines = (rows.out - 1) * rows.stride + rows.reach - rows.before
        return max(0, min(columns.size, used)), max(0, min(rows.size, lines))

    def cost(self) -> int:
        """Instructions of all channels (from counts under QEMU)."""
        rows, columns = self.tiling.rows, self.tiling.columns
        total = 0.0
        for y in range(0, rows.out, self.band):
            height = min(self.band, rows.out - y)
            for x in range(0, columns.out, self.tile):
                width = min(self.tile, columns.out - x)
                total += self._copy_cost((y, x), (height, width))
                for n, count in zip(WIDTHS, (width // 4, width // 2 % 2, width % 2), strict=True):
                    total += count * (instructions(self.strip(n), height) + 29)
        unpacking = 1.2 * 4 * len(self.tiling.layout.words) if not self.tiling.layout.resident else 0
        border = 2.3 * PITCH * ((self.band - 1) * rows.stride + rows.reach) if self.is_small else 0
        return int(self.layer.channels * (total + unpacking) + border)

    def _copy_cost(self, first: tuple[int, int], size: tuple[int, int]) -> float:
        """Instructions of copying the data of a tile's `size` results from `first` on; the border of a small image is kept."""
        rows, columns = self.tiling.rows, self.tiling.columns
        if self.is_small:
            copied, lines = self.inside
            return lines * (13.6 * (copied // 4) + 4.7 * (copied % 4) + 22.7) + 65
        used, reach = ((n - 1) * a.stride + a.reach for n, a in zip(size[::-1], (columns, rows), strict=True))
        top, left = (f * a.stride - a.before for f, a in zip(first, (rows, columns), strict=True))
        inside = sum(0 <= top + r < rows.size for r in range(reach))
        copied = max(0, min(columns.size, left + used) - max(0, left))
        padded = (reach - inside) * used + inside * (used - copied)
        return inside * (22.7 * (copied // 4) + 7.7 * (copied % 4) + 20) + 5 * padded + 97


def tile_outputs(columns: Axis) -> int:
    """Results of one tile: as many as the pitch holds, in fours where there are four."""
    fitting = (PITCH - columns.taps) // columns.stride + 1
    return fitting // 4 * 4 if fitting >= 4 else fitting // 2 * 2


def _plan(group: Group, target: Target) -> _Plan | None:
    layer = plain_layer(group, target)
    if layer is None:
        return None
    numbers = plan_numbers(layer, target, packed=True)
    if numbers is None:
        return None
    y, x = axes(layer)
    found = [orient(y, x, swapped=False, packed=True, shared=True), orient(x, y, swapped=True, packed=True, shared=True)]
    plans = [
        _Plan(layer, numbers, s, target) for s in found if s is not None and tile_outputs(s.columns) > 0 and s.rows.reach <= 32
    ]
    return min(plans, key=lambda p: p.cost(), default=None)


def _lower(group: Group, _target: Target, name: str, plan: _Plan) -> Lowered:
    layer, tiling = plan.layer, plan.tiling
    b = IRBuilder(name)
    io = open_flat(b, group, layer)
    data = stream(layer, plan.numbers, tiling)
    header = np.zeros(HEADER_WORDS, np.int32)
    rows, columns = tiling.rows, tiling.columns
    values = (layer.channels, rows.size, columns.size, rows.before, columns.before, rows.out, columns.out)
    steps = (rows.data_step, columns.data_step, rows.out_step, columns.out_step)
    header[: len(HEADER)] = (*values, *steps, plan.band, layer.attrs.pad_value, *plan.inside)
    params = io.constant("params", np.concatenate([header, data.reshape(-1)]), "int32")
    table = table_regions(io)
    height = (plan.band - 1) * rows.stride + rows.reach
    plane = b.scratch("plane", (height * PITCH,), "int16")
    unpacked = None if tiling.layout.resident else b.scratch("weights", (unpacked_words(tiling, plan.numbers),), "int32")
    # read where they are used: fourteen variables would stand on the stack
    n: dict[str, Expr] = {field: params[i] for i, field in enumerate(HEADER)}
    if plan.is_small:
        with b.for_("i", plane.size) as i:
            b.store(plane, i, n["pad"])
    with b.for_("c", n["channels"]) as c:
        at = b.let("w", c * data.shape[1] + HEADER_WORDS)
        weights = region(params, at)
        if unpacked is not None:
            unpack_stream(b, tiling, params, unpacked, at=at, words=data.shape[1])
            weights = region(unpacked)
        tiles = _Tiles(b, plan, n, plane=plane)
        if plan.is_small:
            size = (n["out_height"], n["out_width"])
            tiles.copy_image(io.data, c)
            tiles.compute(io.out, c, (weights, *table), size=size)
        else:
            _tiled(b, plan, tiles, io=io, channel=c, weights=(weights, *table))
    func = b.finish(FuncAttrs(kernel=describe("arm_dsp.depthwise_common"), span=layer.span, macs=layer.macs))
    code = sum(code_bytes(plan.strip(w)) for w in WIDTHS) + (640 if plan.is_small else 1000)
    return Lowered(func, io.constants, instructions=plan.cost(), code=code)


def _tiled(b: IRBuilder, plan: _Plan, tiles: _Tiles, *, io: LayerIo, channel: Expr, weights: tuple[Region, ...]) -> None:
    """All tiles of one channel."""
    n = tiles.numbers
    with b.for_("first", (n["out_height"] + n["band"] - 1) // n["band"]) as band:
        y = b.let("y", band * n["band"])
        count = b.let("rows", minimum(n["band"], n["out_height"] - y))
        with b.for_("x", n["out_width"], step=plan.tile) as x:
            width = b.let("columns", minimum(imm(plan.tile), n["out_width"] - x))
            tiles.copy(io.data, channel, origin=(y, x), size=(count, width))
            tiles.compute(io.out, channel + y * n["out_row"] + x * n["out_column"], weights, size=(count, width))


class _Tiles:
    """Copying and convolving one tile of one channel; `n` are the header's fields."""

    def __init__(self, b: IRBuilder, plan: _Plan, n: dict[str, Expr], *, plane: Buffer) -> None:
        self._b, self._plan, self.numbers, self._plane = b, plan, n, plane

    def copy_image(self, data: Buffer, channel: Expr) -> None:
        """All of a small image into the middle of the plane, whose border stays."""
        b, n = self._b, self.numbers
        with b.for_("r", n["lines"]) as r:
            at = b.let("at", (r + n["top"]) * PITCH + n["left"])
            self._pixels(data, at, imm(0), n["copied"], source=channel + r * n["row"])

    def copy(self, data: Buffer, channel: Expr, *, origin: tuple[Expr, Expr], size: tuple[Expr, Expr]) -> None:
        """The tile's pixels with what lies outside the image around them."""
        b, n, tiling = self._b, self.numbers, self._plan.tiling
        rows, columns = tiling.rows, tiling.columns
        top = b.let("above", origin[0] * rows.stride - n["top"])
        before = b.let("before", origin[1] * columns.stride - n["left"])
        used = b.let("used", (size[1] - 1) * columns.stride + columns.taps)
        left = b.let("left", minimum(maximum(imm(0) - before, 0), used))
        right = b.let("right", minimum(used, n["width"] - before))
        with b.for_("r", (size[0] - 1) * rows.stride + rows.reach) as r:
            at = b.let("at", r * PITCH)
            line = b.let("line", top + r)
            inside = logical_and(line >= 0, line < n["height"])
            with b.if_(inside):
                self._pad(at, imm(0), left)
                self._pixels(data, at, left, right, source=channel + line * n["row"] + before * n["column"])
                self._pad(at, maximum(left, right), used)
            with b.else_():
                self._pad(at, imm(0), used)

    def _pad(self, at: Expr, start: Expr, stop: Expr) -> None:
        with self._b.for_("p", stop, start=start) as p:
            self._b.store(self._plane, at + p, self.numbers["pad"])

    def _pixels(self, data: Buffer, at: Expr, left: Expr, right: Expr, *, source: Expr) -> None:
        """Four pixels a turn, then those left over."""
        b, step = self._b, self.numbers["column"]
        start = b.let("s", source)
        whole = b.let("whole", left + ((maximum(right - left, 0) >> 2) * 4))
        with b.for_("p", whole, start=left, step=4) as p:
            pixel = b.let("pixel", start + p * step)
            for u in range(4):
                b.store(self._plane, at + p + u, data.load("int8", pixel + step * u))
        with b.for_("p", right, start=whole) as p:
            b.store(self._plane, at + p, data.load("int8", start + p * step))

    def compute(self, out: Buffer, start: Expr, weights: tuple[Region, ...], *, size: tuple[Expr, Expr]) -> None:
        b, n, stride = self._b, self.numbers, self._plan.tiling.columns.stride
        steps = (size[0], n["out_column"], n["out_row"])
        bounds = [imm(0), b.let("fours", (size[1] >> 2) * 4), b.let("twos", (size[1] >> 1) * 2), size[1]]
        for i, width in enumerate(WIDTHS):
            block = dw_strip(self._plan.strip(width))
            with b.for_("j", bounds[i + 1], start=bounds[i], step=width) as j:
                b.block(block, region(self._plane, j * stride), *weights, region(out, start + j * n["out_column"]), *steps)


register_planned("arm_dsp.depthwise_common", "nn.depthwise_conv2d", _plan, _lower, plevel=26)
