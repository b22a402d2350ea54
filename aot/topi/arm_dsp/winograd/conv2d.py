"""3 x 3 convolution of stride 1 by Winograd's F(2x2, 3x3) and F(4x4, 3x3), exact in integers; see winograd/intrin.py.

For two tiles of m x m outputs: copy their windows with the border (`patch`), transform the channels, then for every four output
channels take the products of both tiles in one block, transform back and requantise.  The last row and column of tiles are moved
inwards if the image is not a multiple of m, so they compute some outputs twice.

Weights take 2 * (m + 2)^2 / 9 bytes each in flash: 3.56 for m = 2, 8 for m = 4.
Scratch, for I input channels rounded up to a multiple of 4: 88 * I + 520 bytes for m = 2, 180 * I + 1456 for m = 4.
Without DSP instructions (`conv2d_winograd_f4_mla`) weights and transformed data are words: 16 bytes a weight,
324 * I + 1456 bytes of scratch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Load, binop, cast, imm, logical_and, maximum, minimum
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.winograd.intrin import (
    CHANNELS,
    F2,
    F4,
    NUMBERS,
    PAIRS,
    SUMS,
    TILES,
    Product,
    Winograd,
    copy_pixels,
    fill_pixels,
    pixel_body,
    product_instructions,
    slide_input,
    split,
    transform_input,
    transform_numbers,
    transform_output,
    unrolled_words,
    winograd_product,
)
from aot.topi.arm_dsp.winograd.plan import WinogradPlan, WinogradStream, is_winograd_shape, plan_winograd
from aot.topi.intrin.dsp import SXTB16, SXTB16_ROR8, UXTB16, UXTB16_ROR8
from aot.topi.layer.fused import FusedLayer, describe, match_layer, tail_accepts, tail_each
from aot.topi.layer.io import LayerIo, open_io
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


@dataclass(frozen=True, slots=True)
class Kind:
    """A kernel: its tiles and its products."""

    form: Winograd
    product: Product

    def suits(self, target: Target) -> bool:
        """MLA is for cores without DSP instructions: SMLAD takes two products."""
        return target.has("thumb2") and target.has("dsp") == self.product.pair

    @property
    def name(self) -> str:
        return "arm_dsp.conv2d_winograd" + ("" if self.product.pair else "_mla")


def accepts(group: Group, target: Target, *, kind: Kind) -> bool:
    """Layers of at least one whole tile, exact by proof."""
    layer = match_layer(group, wide=True)
    if layer is None or not kind.suits(target) or not tail_accepts(layer) or not is_winograd_shape(layer, kind.product):
        return False
    _, height, width, _ = layer.out_type.shape
    form = kind.form
    return height >= form.m and width >= form.m * form.span and plan_winograd(layer, form, kind.product) is not None


def lower(group: Group, target: Target, name: str, *, kind: Kind) -> Lowered:
    layer = match_layer(group, wide=True)
    assert layer is not None
    plan = plan_winograd(layer, kind.form, kind.product)
    assert plan is not None
    b = IRBuilder(name)
    kernel = _Kernel(b, group, layer, plan)
    kernel.body()
    func = b.finish(FuncAttrs(kernel=describe(kind.name, m=kind.form.m), span=layer.span, macs=layer.macs))
    return Lowered(func, kernel.io.constants, instructions=kernel.instructions(), code=kernel.code())


class _Kernel:
    def __init__(self, b: IRBuilder, group: Group, layer: FusedLayer, plan: WinogradPlan) -> None:
        self._b, self._layer, self._form, self._plan = b, layer, plan.form, plan
        self._stream = WinogradStream(plan)
        self._inputs = layer.weight.shape[3]
        self._words = plan.weights.shape[2] // 4
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
        self._row = TILES * self._stream.words + SUMS
        self._patch = b.scratch("patch", (self._form.n * self._form.window_width * self._words,), "uint32")
        self._domain = b.scratch("domain", (self._form.positions * self._row,), "uint32")
        self._half = b.scratch("half", (2 * self._form.positions,), "uint32") if self._form.span == 1 else None
        self._origin = b.scratch("origin", (2 * TILES // self._form.span,), "int32")
        n, height, width, _ = layer.out_type.shape
        self._units_y, self._units_x = -(-height // self._form.m), -(-width // (self._form.m * self._form.span))
        self._units = n * self._units_y * self._units_x

    def body(self) -> None:
        b, at_once = self._b, TILES // self._form.span
        with b.for_("pair", -(-self._units // at_once)) as pair:
            with b.for_("t", at_once) as t:
                unit: Expr = pair * at_once + t
                if self._units % at_once:
                    unit = b.let("unit", minimum(unit, self._units - 1))
                self._load_unit(unit, t)
                with b.for_("k", self._words) as k:
                    self._transform(k, t)
            with b.for_("n", self._stream.blocks) as block:
                start = b.let("block", block * self._stream.block_words)
                product = winograd_product(self._form.positions, self._stream.words, self._plan.product)
                b.block(product, region(self._params, start), self._domain)
                left = self._layer.channels - block * CHANNELS
                count = CHANNELS if self._layer.channels % CHANNELS == 0 else minimum(left, CHANNELS)
                with b.for_("c", count) as c:
                    self._channel(start + c, block * CHANNELS + c, c)

    def _load_unit(self, unit: Expr, t: Expr) -> None:
        """Copy the window of one unit, `span` tiles, to the patch and note where its outputs begin."""
        b, form, padding = self._b, self._form, self._layer.attrs.padding
        layer = self._layer
        _, height, width, channels = layer.out_type.shape
        line = b.let("line", unit / self._units_x)
        image: Expr = imm(0)
        row: Expr = line
        if self._layer.out_type.shape[0] > 1:
            image = b.let("image", line / self._units_y)
            row = line - image * self._units_y
        y = b.let("y", minimum(row * form.m, height - form.m))
        x = b.let("x", minimum((unit - line * self._units_x) * (form.m * form.span), width - form.m * form.span))
        place = b.let("place", ((image * height + y) * width + x) * channels)
        b.store(self._origin, t, place)
        if layer.tail:
            b.store(self._origin, t + TILES // form.span, place)
        data_height, data_width = self._layer.data_type.shape[1:3]
        column = b.let("column", x - padding[1])
        columns = imm(form.window_width)
        first: Expr = imm(0)
        last: Expr = columns
        if any(padding):
            first = b.let("first", minimum(maximum(0 - column, 0), columns))
            last = b.let("last", maximum(minimum(data_width - column, columns), first))
        with b.for_("r", form.n) as r:
            at = b.let("at", y - padding[0] + r)
            source = ((image * data_height + at) * data_width + column) * self._inputs
            if any(padding):
                with b.if_(logical_and(at >= 0, at < data_height)):
                    self._fill(r, imm(0), first)
                    self._copy(source, r, first, last)
                    self._fill(r, last, columns)
                with b.else_():
                    self._fill(r, imm(0), columns)
            else:
                self._copy(source, r, first, last)

    def _fill(self, r: Expr, first: Expr, last: Expr) -> None:
        """Pixels first..last of row r become the padding value."""
        word = (self._layer.attrs.pad_value & 0xFF) * 0x01010101
        at = (r * self._form.window_width + first) * self._words
        self._b.block(fill_pixels(self._words), region(self._patch, at), last - first, imm(word, "uint32"))

    def _copy(self, source: Expr, r: Expr, first: Expr, last: Expr) -> None:
        """Pixels first..last of row r; `source` is the byte of the row's pixel 0."""
        b = self._b
        row = r * (self._form.window_width * self._words)
        if self._by_words:
            data = region(self.io.data, (source + first * self._inputs) / 4, dtype="uint32")
            b.block(copy_pixels(self._words), data, region(self._patch, row + first * self._words), last - first)
            return
        with b.for_("p", last, start=first) as p, b.for_("i", self._inputs) as i:
            value = self.io.data.load("int8", source + p * self._inputs + i)
            b.store_as(self._patch, "int8", (row + p * self._words) * 4 + i, value)

    def _transform(self, k: Expr, t: Expr) -> None:
        """V of four channels (word k of each pixel)."""
        target = self._b.let("target", k * (4 // self._plan.product.inputs * TILES) + t)
        if self._half is None:
            for part in range(2):
                self._slide(k, target, part)
        else:
            self._transform_by_halves(k, target, self._half)

    def _store_domain(self, target: Expr, values: Sequence[Expr], *, position: tuple[int, int], part: int) -> None:
        """`values` to the positions (x, y), (x, y + 1) ...; those of channels 0 and 2 (part 0) or 1 and 3 of the four."""
        x, y = position
        for j, value in enumerate(values):
            words = (value,) if self._plan.product.pair else split(self._b, value)
            for i, word in enumerate(words):
                at = (x * self._form.n + y + j) * self._row + (part + 2 * i) * TILES
                self._b.store(self._domain, target + at, word)

    def _slide(self, k: Expr, target: Expr, part: int) -> None:
        """Two tiles side by side: columns one after another, of which three are alive."""
        b, form = self._b, self._form
        extend = (SXTB16, SXTB16_ROR8)[part]
        columns: list[list[Expr]] = []
        for c in range(form.window_width):
            words = [b.let("w", self._patch[k + (r * form.window_width + c) * self._words]) for r in range(form.n)]
            columns.append(transform_input(b, form, [b.let("x", extend(w)) for w in words]))
            tile = (c - 2) // form.m
            for j in range(form.n if c >= 2 else 0):
                old = [columns[i][j] for i in range(form.m * tile, c + 1)]
                for x, value in slide_input(b, old):
                    self._store_domain(target + tile, [value], position=(x, j), part=part)

    def _transform_by_halves(self, k: Expr, target: Expr, half: Buffer) -> None:
        """One tile: rows first, then columns, whose positions lie side by side.

        What is between the two lies in `half`.  As the compiler has to take it for the same memory as the rest, it keeps the
        order of loads and stores and so has enough registers.
        """
        b, n, pair = self._b, self._form.n, self._plan.product.pair

        def transformed(values: Sequence[Expr]) -> list[Expr]:
            return transform_input(b, self._form, values) if pair else transform_numbers(b, values)

        for r in range(n):
            words: list[Expr] = [b.let("w", self._patch[k + (r * n + c) * self._words]) for c in range(n)]
            if not pair:  # BYTE_OFFSET
                words = [b.let("w", binop("^", w, 0x80808080)) for w in words]
            for part, extend in enumerate((SXTB16, SXTB16_ROR8) if pair else (UXTB16, UXTB16_ROR8)):
                for i, value in enumerate(transformed([b.let("x", extend(w)) for w in words])):
                    b.store(half, (part * n + i) * n + r, value)
        for part in range(2):
            for i in range(n):
                column: list[Expr] = [b.let("x", half[(part * n + i) * n + r]) for r in range(n)]
                self._store_domain(target, transformed(column), position=(i, 0), part=part)

    def _channel(self, start: Expr, channel: Expr, c: Expr) -> None:
        """Both tiles of one output channel, `c` in its block."""
        b, form = self._b, self._form
        bias = b.let("bias", cast("uint32", self._stream.bias(self._params, start)))
        fields = tuple(f if not isinstance(f, Load) else b.let("field", f) for f in self._stream.fields(self._params, start))
        with b.for_("u", TILES // form.span) as u:
            place = b.let("place", self._origin[u] + channel)
            other = b.let("other", self._origin[u + TILES // form.span] + channel) if self._layer.tail else place
            for s in range(form.span):
                sums = b.let("sums", c * TILES + (u * form.span + s + TILES * self._stream.words))
                rows = self._inverse(sums, bias)
                shift = s * form.m * self._layer.channels
                self._outputs(rows, (place + shift, other + shift), fields)

    def _inverse(self, sums: Expr, bias: Expr) -> list[list[Expr]]:
        """A^T M A by rows, not divided; `sums` is the index of M at position 0."""
        b, n, form = self._b, self._form.n, self._form
        columns: list[list[Expr]] = []
        for i in range(n):
            loaded: list[Expr] = [b.let("m", self._domain[sums + (i * n + j) * self._row]) for j in range(n)]
            if i == 1:
                loaded[1] = b.let("m", loaded[1] + bias)
            columns.append(transform_output(b, form, loaded))
            if self._half is not None:
                for y, value in enumerate(columns[-1]):
                    b.store(self._half, y * n + i, value)
        if self._half is None:
            return [[columns[i][y] for i in range(n)] for y in range(form.m)]
        return [[self._half[y * n + i] for i in range(n)] for y in range(form.m)]

    def _outputs(self, rows: list[list[Expr]], places: tuple[Expr, Expr], fields: tuple[Expr, ...]) -> None:
        """Second half of the inverse transform, requantisation, stores.

        `places` is the element of the tile's first output in the output and in operands of the tail.  The numbers are equal, but
        as the compiler does not know it, it keeps one pointer for each and reaches all elements from it.
        """
        b, form, plan = self._b, self._form, self._plan
        _, _, width, channels = self._layer.out_type.shape
        scales: dict[int, Expr] = {1: fields[0]}
        for y, row in enumerate(rows):
            for x, value in enumerate(transform_output(b, form, [b.let("h", v) if isinstance(v, Load) else v for v in row])):
                lacking = form.row_factor[y] * form.row_factor[x]
                if plan.factor != 1:
                    value = value * imm(plan.factor * lacking & 0xFFFFFFFF, "uint32")
                    lacking = 1
                if lacking not in scales:
                    scales[lacking] = b.let("scale", fields[0] * lacking)
                scaled = b.let("acc", cast("int32", value))
                result = plan.requant.emit(b, scaled, (scales[lacking], *fields[1:]))
                step = (y * width + x) * channels
                (result,) = self.io.finished([(places[1] + step,)], [result])
                b.store(self.io.out, (places[0] + step,), result)

    def instructions(self) -> int:
        """Of one call (parts from counts under QEMU)."""
        form, words, layer = self._form, self._words, self._layer
        padded = any(layer.attrs.padding)
        body = pixel_body(words)
        pixel = words // body * (2 * -(-body // 4) + 2) if self._by_words else 3 * self._inputs + 5
        row = form.window_width * pixel + (28 if padded else 10)
        plan, requant = self._plan, self._plan.requant
        transform = 308 if form is F2 else 868 if plan.product.pair else 1104
        output = 3 + (plan.factor != 1) + 2 * requant.signed + (not requant.fields[2].uniform) + 2 * (not requant.saturates)
        output += tail_each(layer)
        tile = 42 if form is F2 else 208 if plan.product.pair else 249
        channel = 22 + self._stream.numbers + TILES * (tile + form.m**2 * output)
        product = form.positions * product_instructions(self._stream.words) + 20
        load = TILES // form.span * (40 + form.n * row + words * transform)
        pairs = -(-self._units * form.span // TILES)
        return int(pairs * (load + self._stream.blocks * product + layer.channels * channel + 14))

    def code(self) -> int:
        """Bytes of the function."""
        form = self._form
        transforms = 1900 + 15 * self._words if form is F2 else 4600 + 25 * self._words
        output = 40 * len(self._layer.tail) + 12 * self._plan.requant.signed + 10 * (self._plan.factor != 1)
        return int(transforms + 44 * unrolled_words(self._stream.words) + form.m**2 * form.span * output)


def _register(name: str, kind: Kind, plevel: int) -> None:
    register_impl(OpImplementation(name, "nn.conv2d", partial(accepts, kind=kind), partial(lower, kind=kind), plevel))


_register("arm_dsp.conv2d_winograd_f2", Kind(F2, PAIRS), 30)
_register("arm_dsp.conv2d_winograd_f4", Kind(F4, PAIRS), 31)
_register("arm_dsp.conv2d_winograd_f4_mla", Kind(F4, NUMBERS), 31)
