"""3 x 3 convolution of stride 1 by Winograd's F(2x2, 3x3) and F(4x4, 3x3), exact in integers; see intrin_winograd.

For two tiles of m x m outputs: copy their windows with the border (`patch`), transform the channels, then for every four output
channels take the products of both tiles in one block, transform back and requantise.  The last row and column of tiles are moved
inwards where the image is no multiple of m, so they compute some outputs twice.

Weights take 2 * (m + 2)^2 / 9 bytes each in flash: 3.56 for m = 2, 8 for m = 4.
Scratch, for I input channels rounded up to a multiple of 4 and n = m + 2: n^2 * (5 * I + 32) + 8 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from aot.op.impl import Group, Impl, Lowered, register_impl
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Load, cast, equal, imm, logical_and, maximum, minimum
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.intrin import SXTB16, SXTB16_ROR8
from aot.topi.arm_dsp.intrin_winograd import (
    CHANNELS,
    F2,
    F4,
    SUMS,
    TILES,
    Winograd,
    product_instructions,
    transform_input,
    transform_output,
    unrolled_pairs,
    winograd_product,
)
from aot.topi.arm_dsp.winograd_plan import WinogradPlan, WinogradStream, is_winograd_shape, plan_winograd
from aot.topi.fused import FusedLayer, describe, match_layer, tail_accepts
from aot.topi.layer_io import LayerIo, open_io


def accepts(group: Group, target: Target, *, form: Winograd) -> bool:
    """Layers of at least one whole tile, exact by proof."""
    layer = match_layer(group)
    if layer is None or not target.has("dsp") or not tail_accepts(layer) or not is_winograd_shape(layer):
        return False
    _, height, width, _ = layer.out_type.shape
    return height >= form.m and width >= form.m and plan_winograd(layer, form, target) is not None


def lower(group: Group, target: Target, name: str, *, form: Winograd) -> Lowered:
    layer = match_layer(group)
    assert layer is not None
    plan = plan_winograd(layer, form, target)
    assert plan is not None
    b = IRBuilder(name)
    kernel = _Kernel(b, group, layer, plan)
    kernel.body()
    func = b.finish(FuncAttrs(kernel=describe("arm_dsp.conv2d_winograd", m=form.m), span=layer.span, macs=layer.macs))
    return Lowered(func, kernel.io.constants, instructions=kernel.instructions(), code=kernel.code())


class _Kernel:
    def __init__(self, b: IRBuilder, group: Group, layer: FusedLayer, plan: WinogradPlan) -> None:
        self._b, self._layer, self._form, self._plan = b, layer, plan.form, plan
        self._stream = WinogradStream(plan)
        self._inputs = layer.weight.shape[3]
        self._words = 2 * self._stream.pairs // 4
        """Words of one pixel of the patch."""
        self._by_words = self._inputs % 4 == 0
        self.io: LayerIo = open_io(
            b,
            group,
            layer,
            data_shape=(prod(layer.data_type.shape),),
            out_shape=(prod(layer.out_type.shape),),
            data_align=4 if self._by_words else 1,
        )
        self._params = self.io.constant("params", self._stream.data(), "int32")
        self._row = TILES * self._stream.pairs + SUMS
        self._patch = b.scratch("patch", (self._form.positions * self._words,), "uint32")
        self._domain = b.scratch("domain", (self._form.positions * self._row,), "uint32")
        self._half = b.scratch("half", (2 * self._form.positions,), "uint32")
        self._origin = b.scratch("origin", (TILES,), "int32")
        n, height, width, _ = layer.out_type.shape
        self._tiles_y, self._tiles_x = -(-height // self._form.m), -(-width // self._form.m)
        self._tiles = n * self._tiles_y * self._tiles_x

    def body(self) -> None:
        b = self._b
        with b.for_("pair", -(-self._tiles // TILES)) as pair:
            with b.for_("t", TILES) as t:
                tile = b.let("tile", minimum(pair * TILES + t, self._tiles - 1))
                self._load_tile(tile, t)
                with b.for_("k", self._words) as k:
                    self._transform(k, t)
            with b.for_("n", self._stream.blocks) as block:
                start = b.let("block", block * self._stream.block_words)
                product = winograd_product(self._form.positions, self._stream.pairs)
                b.block(product, region(self._params, start), self._domain)
                left = self._layer.channels - block * CHANNELS
                count = CHANNELS if self._layer.channels % CHANNELS == 0 else minimum(left, CHANNELS)
                with b.for_("c", count) as c:
                    self._channel(start + c, block * CHANNELS + c, c)

    def _load_tile(self, tile: Expr, t: Expr) -> None:
        """Copy the tile's window to the patch and note where its outputs begin."""
        b, m = self._b, self._form.m
        _, height, width, channels = self._layer.out_type.shape
        line = b.let("line", tile / self._tiles_x)
        image: Expr = imm(0)
        row = line
        if self._layer.out_type.shape[0] > 1:
            image = b.let("image", line / self._tiles_y)
            row = line - image * self._tiles_y
        y = b.let("y", minimum(row * m, height - m))
        x = b.let("x", minimum((tile - line * self._tiles_x) * m, width - m))
        b.store(self._origin, t, ((image * height + y) * width + x) * channels)
        top, left, _, _ = self._layer.attrs.padding
        data_height, data_width = self._layer.data_type.shape[1:3]
        column = b.let("column", x - left)
        n = self._form.n
        if any(self._layer.attrs.padding):
            first = b.let("first", minimum(maximum(0 - column, 0), n))
            last = b.let("last", maximum(minimum(data_width - column, n), first))
        else:
            first, last = imm(0), imm(n)
        with b.for_("r", n) as r:
            at = b.let("at", y - top + r)
            source = ((image * data_height + at) * data_width + column) * self._inputs
            if any(self._layer.attrs.padding):
                with b.if_(logical_and(at >= 0, at < data_height)):
                    self._fill(r, imm(0), first)
                    self._copy(source, r, first, last)
                    self._fill(r, last, imm(n))
                with b.else_():
                    self._fill(r, imm(0), imm(n))
            else:
                self._copy(source, r, first, last)

    def _fill(self, r: Expr, first: Expr, last: Expr) -> None:
        """Pixels first..last of row r become the padding value."""
        b, row = self._b, r * (self._form.n * self._words)
        word = (self._layer.attrs.pad_value & 0xFF) * 0x01010101
        with b.for_("f", row + last * self._words, start=row + first * self._words) as f:
            b.store(self._patch, f, imm(word, "uint32"))

    def _copy(self, source: Expr, r: Expr, first: Expr, last: Expr) -> None:
        """Pixels first..last of row r; `source` is the byte of the row's pixel 0."""
        b = self._b
        row = r * (self._form.n * self._words)
        if self._by_words:
            step = max(u for u in (4, 2, 1) if self._words % u == 0)
            shift = b.let("shift", source / 4 - row)
            with b.for_("i", row + last * self._words, start=row + first * self._words, step=step) as i:
                values = [b.let("v", self.io.data.load("uint32", shift + i + u)) for u in range(step)]
                for u, value in enumerate(values):
                    b.store(self._patch, i + u, value)
            return
        with b.for_("p", last, start=first) as p, b.for_("i", self._inputs) as i:
            value = self.io.data.load("int8", source + p * self._inputs + i)
            b.store_as(self._patch, "int8", (row + p * self._words) * 4 + i, value)

    def _transform(self, k: Expr, t: Expr) -> None:
        """V of four channels (word k of each pixel): rows first, then columns, whose positions lie side by side.

        What is between the two lies in `half`.  As the compiler has to take it for the same memory as the rest, it keeps the order
        of loads and stores and so has enough registers.
        """
        b, n = self._b, self._form.n
        for r in range(n):
            words = [b.let("w", self._patch[k + (r * n + c) * self._words]) for c in range(n)]
            for part, extend in enumerate((SXTB16, SXTB16_ROR8)):
                for i, value in enumerate(transform_input(b, self._form, [b.let("x", extend(w)) for w in words])):
                    b.store(self._half, (part * n + i) * n + r, value)
        target = b.let("target", k * (2 * TILES) + t)
        for part in range(2):
            for i in range(n):
                column = transform_input(b, self._form, [b.let("x", self._half[(part * n + i) * n + r]) for r in range(n)])
                for j, value in enumerate(column):
                    b.store(self._domain, target + ((i * n + j) * self._row + part * TILES), value)

    def _channel(self, start: Expr, channel: Expr, c: Expr) -> None:
        """Both tiles of one output channel, `c` in its block."""
        b = self._b
        bias = b.let("bias", cast("uint32", self._stream.bias(self._params, start)))
        fields = tuple(f if not isinstance(f, Load) else b.let("field", f) for f in self._stream.fields(self._params, start))
        factor = None if self._plan.factor is None else b.let("factor", cast("uint32", self._stream.factor(self._params, start)))
        with b.for_("u", TILES) as u:
            sums = b.let("sums", c * TILES + u + TILES * self._stream.pairs)
            out = b.let("place", self._origin[u] + channel)
            self._outputs(sums, out, bias, factor, fields)

    def _outputs(self, sums: Expr, out: Expr, bias: Expr, factor: Expr | None, fields: tuple[Expr, ...]) -> None:
        b, n, form = self._b, self._form.n, self._form
        _, _, width, channels = self._layer.out_type.shape
        for i in range(n):
            loaded: list[Expr] = [b.let("m", self._domain[sums + (i * n + j) * self._row]) for j in range(n)]
            if i == 1:
                loaded[1] = b.let("m", loaded[1] + bias)
            for y, value in enumerate(transform_output(b, form, loaded)):
                b.store(self._half, y * n + i, value)
        scales: dict[int, Expr] = {}
        for y in range(form.m):
            row: list[Expr] = [b.let("h", self._half[y * n + i]) for i in range(n)]
            for x, value in enumerate(transform_output(b, form, row)):
                if factor is not None:
                    lacking = form.row_factor[y] * form.row_factor[x]
                    if lacking not in scales:
                        scales[lacking] = b.let("scale", factor * lacking)
                    value = value * scales[lacking]
                scaled = b.let("acc", cast("int32", value))
                self.io.store((out + (y * width + x) * channels,), self._plan.requant.emit_scaled(b, scaled, fields))

    def instructions(self) -> int:
        return 1

    def code(self) -> int:
        return 1


def _register(name: str, form: Winograd, plevel: int) -> None:
    register_impl(Impl(name, "nn.conv2d", partial(accepts, form=form), partial(lower, form=form), plevel))


_register("arm_dsp.conv2d_winograd_f2", F2, 30)
_register("arm_dsp.conv2d_winograd_f4", F4, 31)
