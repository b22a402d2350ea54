"""FloatLayer: the normalised view of a float32 layer and everything fused into it.

A sum that starts at +0 never becomes -0, so adding a zero of either sign changes no bit of it.  Hence taps outside of the image
are left out, and a layer without a bias gets a bias of zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np

from aot.ir.op import Array
from aot.ir.span import Span
from aot.ir.type import TensorType
from aot.op.common.te_rule import TeContext
from aot.relay.expr import Call, Constant, is_call, tensor_type
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import Var as Tensor
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.te.tensor import TensorFn, elements_of
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, imm, select
from aot.tir.function import FuncAttrs
from aot.tir.intrin import BlockText, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.arm_fpu.dot import (
    CHANNELS,
    MOST_CHANNELS,
    REGISTERS,
    Clamp,
    DotForm,
    StoredMatrix,
    Text,
    dot,
    float_operands,
    store_clamped,
    stored_matrix,
    unfold,
    unfold_code,
    unfold_instructions,
    unroll_many,
    vector,
)
from aot.topi.generic.flat import is_elementwise
from aot.topi.intrin.asm_text import Operands, asm, block_of, count_instructions
from aot.topi.layer.elementwise import te_of
from aot.topi.layer.fused import EPILOGUE_INSTRUCTIONS, describe
from aot.topi.layer.im2col import Axis, TapRange
from aot.topi.layer.planes import block_sizes, channel_blocks
from aot.topi.strategy import Group, Lowered, Plan, register_planned

DEPTHWISE = "nn.depthwise_conv2d_float"

Bounds = tuple[float | None, float | None]
"""Lower and upper bound of a clamp, each None if there is none."""


@dataclass(frozen=True, slots=True)
class FloatLayer:
    """`clamp(sum w*x + bias)`, which is the value of `head`; then `epilogue`, the element-wise calls on it.

    `weight` is [O, KH, KW, I], [O, I] or, for `depthwise` layers, [1, KH, KW, O]; bias is float32[O]; data are NHWC with the
    extents batch, `rows.size`, `columns.size` and `depth`.  `lo` and `hi` are the attributes of the clamp.
    """

    anchor: Call
    head: Call
    data: Tensor
    weight: Array
    bias: Array
    lo: float | None
    hi: float | None
    epilogue: tuple[Call, ...]
    out_type: TensorType
    batch: int
    rows: Axis
    columns: Axis
    depth: int
    macs: int
    depthwise: bool = False

    @property
    def span(self) -> Span:
        return self.anchor.span

    @property
    def channels(self) -> int:
        return int(self.bias.size)

    @property
    def clamp(self) -> Clamp:
        return Clamp(self.lo, self.hi)

    @property
    def pixels(self) -> int:
        """Pixels of the result."""
        return self.batch * self.rows.out * self.columns.out

    @property
    def dilated(self) -> bool:
        """Whether the columns of a window, whose channels are read together, are apart."""
        return not self.depthwise and self.columns.dilation > 1 and self.columns.taps > 1

    @property
    def matrix(self) -> Array:
        """The weights as [taps, channels], in the order of accumulation."""
        matrix: Array = self.weight.reshape(-1, self.channels) if self.depthwise else self.weight.reshape(self.channels, -1).T
        return matrix

    @property
    def stored(self) -> StoredMatrix | None:
        """The matrix in the form that the file has; None if it has no smaller form."""
        constant = self.anchor.args[1]
        assert isinstance(constant, Constant)
        return stored_matrix(constant, self.matrix, channel_axis=-1 if is_call(self.anchor, DEPTHWISE) else 0)


def match_float_layer(group: Group, operator: str) -> FloatLayer | None:
    """The view of a group anchored at `operator`, or None.

    The weights must be constant and finite, every result must have a tap inside the image, and the epilogue may read only tensors
    of the result's shape and constants.
    """
    anchor = group.anchor
    if not is_call(anchor, operator):
        return None
    data, arrays = anchor.args[0], finite_constants(anchor.args[1:])
    if not isinstance(data, Tensor) or arrays is None:
        return None
    weight, out, depthwise = arrays[0], tensor_type(anchor), operator == DEPTHWISE
    bias = bias_of(arrays[1:], out.shape[-1])
    batch, rows, columns = _axes(data.type.shape, out.shape, weight, anchor.attrs)
    (lo, hi), head, epilogue = with_relu((anchor.attrs.lo, anchor.attrs.hi), anchor, group.followers)
    out_type = tensor_type(epilogue[-1]) if epilogue else out
    macs = out.size * (weight.size // weight.shape[-1] if depthwise else weight[0].size)
    layer = FloatLayer(
        anchor, head, data, weight, bias, lo, hi, epilogue, out_type, batch, rows, columns, data.type.shape[-1], macs, depthwise
    )
    return _simplified(layer) if rows.never_empty and columns.never_empty and supports_epilogue(layer) else None


def finite_constants(args: Sequence[RelayExpr]) -> list[Array] | None:
    """The data of arguments that all are constants with finite numbers; else None."""
    arrays = [c.data for c in args if isinstance(c, Constant)]
    return arrays if len(arrays) == len(args) and all(np.isfinite(a).all() for a in arrays) else None


def bias_of(arrays: Sequence[Array], channels: int) -> Array:
    """The bias, or zeros if there is none; -0 becomes 0, which makes no difference to a sum."""
    return arrays[0].reshape(-1) + np.float32(0) if arrays else np.zeros(channels, np.float32)


def _axes(shape: tuple[int, ...], out: tuple[int, ...], weight: Array, attrs: Any) -> tuple[int, Axis, Axis]:
    """Batch, rows and columns; the rows of a fully connected layer are pixels."""
    if len(shape) == 2:
        return 1, Axis(1, 1), Axis(shape[0], out[0])
    rows, columns = (
        Axis(shape[1 + i], out[1 + i], int(weight.shape[1 + i]), attrs.strides[i], attrs.dilation[i], attrs.padding[i])
        for i in range(2)
    )
    return shape[0], rows, columns


def _simplified(layer: FloatLayer) -> FloatLayer:
    """Turn pointwise layers into one row of pixels, and images with one column into images with one row."""
    rows, columns = layer.rows, layer.columns
    if all(a.taps == a.stride == 1 and not a.before and a.out == a.size for a in (rows, columns)):
        pixels = layer.batch * rows.size * columns.size
        return replace(layer, batch=1, rows=Axis(1, 1), columns=Axis(pixels, pixels))
    if columns.size == columns.out == columns.taps == 1 and layer.weight.ndim == 4:
        return replace(layer, rows=columns, columns=rows, weight=layer.weight.swapaxes(1, 2))
    return layer


def supports_epilogue(layer: FloatLayer) -> bool:
    """Whether the epilogue has only element-wise operators whose other operands can be read at a pixel and a channel."""
    shape = layer.out_type.shape
    for call in layer.epilogue:
        if not is_elementwise(call) or tensor_type(call).shape != shape:
            return False
        for arg in call.args:
            if arg is layer.data or (isinstance(arg, Tensor) and arg.type.shape != shape):
                return False
            if isinstance(arg, Constant) and _by_channel(arg.data, shape) is None:
                return False
    return True


def with_relu(bounds: Bounds, head: Call, epilogue: tuple[Call, ...]) -> tuple[Bounds, Call, tuple[Call, ...]]:
    """Fold RELUs that follow a clamp into it: the new bounds, the last folded call, the remaining epilogue."""
    while epilogue and is_call(epilogue[0], "relu") and not any(a is head for call in epilogue[1:] for a in call.args):
        (lo, hi), attrs = bounds, epilogue[0].attrs
        if lo is None or hi is None:
            break
        lo, hi = max(lo, lo if attrs.lo is None else attrs.lo), min(hi, hi if attrs.hi is None else attrs.hi)
        if lo > hi:
            break
        bounds, head, epilogue = (lo, hi), epilogue[0], epilogue[1:]
    return bounds, head, epilogue


def residual_bounds(layer: FloatLayer) -> Bounds | None:
    """The clamp of an epilogue that is one ADD of another float32 tensor, perhaps followed by a RELU; else None."""
    if not layer.epilogue or not is_call(layer.epilogue[0], "add"):
        return None
    add = layer.epilogue[0]
    others = [a for a in add.args if isinstance(a, Tensor)]
    if len(others) != 1 or others[0].type.dtype != "float32" or others[0].type.shape != layer.out_type.shape:
        return None
    bounds, _, left = with_relu((add.attrs.lo, add.attrs.hi), add, layer.epilogue[1:])
    return None if left else bounds


def epilogue_instructions(layer: FloatLayer) -> int:
    """Instructions of the epilogue."""
    each = EPILOGUE_INSTRUCTIONS * len(layer.epilogue) if residual_bounds(layer) is None else 5
    return each * layer.out_type.size


def _by_channel(data: Array, shape: tuple[int, ...]) -> Array | None:
    """A constant that broadcasts to `shape`, as one that broadcasts to [pixels, channels]; None if that is impossible."""
    if data.size == 1:
        return data.reshape(1)
    if data.shape == shape:
        return data.reshape(-1, shape[-1])
    return data.reshape(-1) if data.size == data.shape[-1] == shape[-1] else None


class FloatIo:
    """Parameters of the PrimFunc: flat data and result, other operands of the epilogue, packed constants."""

    def __init__(self, b: IRBuilder, group: Group, layer: FloatLayer, *, run: int, weight: Tensor | None = None) -> None:
        """`run`: the most results that one iteration of a kernel yields; `weight`: the weights, if they are a tensor."""
        self._b, self._layer, self._ctx = b, layer, TeContext(b)
        self._tensors: dict[int, TensorFn] = {}
        self._shape = (layer.out_type.size // layer.channels, layer.channels)
        self._other: Buffer | None = None
        data: Buffer | None = None
        self.weight: Buffer | None = None
        for var in group.params:
            if var is layer.data and data is None:
                data = b.input("data", (prod(var.type.shape),), "float32", align=4)
            elif var is weight:
                self.weight = b.input("weight", (prod(var.type.shape),), "float32", align=4)
            else:
                operand = b.input("operand", self._shape, var.type.dtype, align=1 if residual_bounds(layer) is None else 4)
                self._tensors[id(var)] = elements_of(operand)
                self._other = None if residual_bounds(layer) is None else operand
        assert data is not None
        self.data = data
        self.out = b.output("out", (layer.out_type.size,), layer.out_type.dtype, align=4)
        for arg in (a for call in layer.epilogue for a in call.args):
            if isinstance(arg, Constant):
                values = _by_channel(arg.data, layer.out_type.shape)
                assert values is not None
                self._tensors[id(arg)] = self._ctx.constant("table", values)
        self.results = b.scratch("results", (run,), "float32") if layer.epilogue else None

    def lowered(self, kernel: str, price: Sequence[float] | Array, code: int, **schedule: int) -> Lowered:
        """The finished function; `price`: instructions and cycles, `code` in bytes."""
        attrs = FuncAttrs(kernel=describe(kernel, **schedule), span=self._layer.span, macs=self._layer.macs)
        return Lowered(self._b.finish(attrs), dict(self._ctx.constants), int(price[0]), code, int(price[1]))

    def stream(self, data: Array, dtype: str = "float32") -> Buffer:
        """Declare the packed weights and biases: float32, or words that hold some of them in a smaller form."""
        buffer = self._b.const("params", (data.size,), dtype, align=4)
        self._ctx.constants[buffer.name] = data.astype(dtype)
        return buffer

    def target(self, pixel: Expr, channel: Expr, count: int) -> tuple[Region, int]:
        """Where a kernel stores `count` results of a pixel, starting at a channel, and the distance to the next pixel's in
        elements.
        """
        if self.results is not None:
            return region(self.results), count
        return region(self.out, pixel * self._layer.channels + channel), self._layer.channels

    def finish(self, pixel: Expr, channel: Expr, *, pixels: int, count: int) -> None:
        """Run the epilogue on `count` channels of `pixels` pixels, whose results are in scratch memory."""
        if self.results is None:
            return
        b, layer, results = self._b, self._layer, self.results
        if self._other is not None:
            at, bounds = pixel * layer.channels + channel, residual_bounds(layer)
            assert bounds is not None
            block = add_clamped(pixels, count, Clamp(*bounds))
            b.block(block, results, region(self._other, at), region(self.out, at), imm(layer.channels))
            return
        for p in range(pixels):
            with b.for_("j", count) as j:
                current = TensorFn(self._shape, "float32", lambda _b, _i, at=p * count + j: results[at])  # type: ignore[misc]
                done = {id(layer.head): current}
                for call in layer.epilogue:
                    args = [done.get(id(a)) or self._tensors[id(a)] for a in call.args]
                    current = done[id(call)] = te_of(self._ctx, call, args, self._shape)
                value = current.at(b, (pixel + p, channel + j))
                b.store(self.out, (pixel + p) * layer.channels + channel + j, value)


# A residual ADD after a float32 layer: results of one or two pixels plus another tensor, with the clamp of ADD.


_OTHER = 16
"""The first register of the other tensor."""


@cache
def add_clamped(pixels: int, channels: int, clamp: Clamp) -> TensorIntrin:
    """out[p * step + c] = clamp(x[p * channels + c] + y[p * step + c]) for p < pixels, c < channels (at most 16 results)."""
    b = IRBuilder(f"add_{pixels}x{channels}{clamp.name}")
    step = Var("step")
    x, y, out = float_operands(b, "x", "y")
    sums = b.local("sum", (pixels, channels), "float32")
    for p in range(pixels):
        for c in range(channels):
            b.store(sums, (p, c), x[p * channels + c] + y[step * p + c])
    for p in range(pixels):
        for c in range(channels):
            b.store(out, step * p + c, clamp.meaning(b, sums[p, c]))

    def emit(operands: Operands) -> BlockText:
        text: Text = [f"vldmia %[w], {vector(0, pixels * channels)}"]
        for p in range(pixels):
            text += [*(["add %[x0], %[x0], %[step]"] * (p > 0)), f"vldmia %[x0], {vector(_OTHER, channels)}"]
            text += [f"vadd.f32 s{p * channels + c}, s{p * channels + c}, s{_OTHER + c}" for c in range(channels)]
        text += store_clamped(clamp, pixels, channels, free=_OTHER, multiply=True)
        before = [f"const int32_t aot_step = 4 * {operands['step'].value};"]
        ins = {"step": "aot_step"}
        return asm(operands, text, "w=x x0=y >o=out", ins, temporaries="tu", before=before, clobbers=REGISTERS)

    return block_of(b, "arm_fpu", emit, step, requires="vfp", ordered=True)


# The loops of a float32 layer: images, rows, groups of neighbouring pixels, single pixels, blocks of channels.
#
# A pixel is computed alone, with the columns inside the image, if its window crosses the border or if it is the last of an odd
# number.  Weights that flash holds in a smaller form are widened for one block of channels at a time, which then runs over all
# pixels.


@dataclass(frozen=True, slots=True)
class Tile:
    """Neighbouring pixels: column of the first, start of its data, taps left out before it, number of runs, taps per run."""

    x: Expr
    pixels: int
    data: Expr
    skipped: Expr
    runs: Expr
    taps: Expr


@dataclass(frozen=True, slots=True)
class Spread:
    """Results that are `strides` rows and columns apart in an image of (rows, columns) `size`; the first one is at `first`."""

    strides: tuple[int, int]
    first: tuple[int, int]
    size: tuple[int, int]

    def row(self, i: Expr, y: Expr) -> Expr:
        """The pixel of the first result in row y of image i."""
        return (i * self.size[0] + y * self.strides[0] + self.first[0]) * self.size[1] + self.first[1]

    def pixel(self, row: Expr, x: Expr) -> Expr:
        return row + x * self.strides[1]


UNROLL = 8
"""Taps per loop iteration, if the number of taps allows it."""

DIRECT_UNROLL = 4
"""With weights that are widened where they are used."""

MOST_UNROLLED = 7
"""Most columns of a depthwise window whose taps are unrolled; more columns are in a loop."""

MANY = 4
"""Neighbouring pixels that a layer with one channel computes together."""

ENOUGH = 32
"""Pixels per widening of the weights: more would be slightly faster, but would prevent the result from overlapping the data."""


class WindowKernel:
    """Emits the loops and estimates their cost.

    A run is the taps of one row of the window; if its columns are apart (`dilated`), it is one column of the window's only row.
    """

    def __init__(
        self,
        b: IRBuilder,
        group: Group,
        layer: FloatLayer,
        *,
        fused: bool,
        small: bool = False,
        direct: bool = False,
        within: tuple[FloatIo, Spread] | None = None,
    ) -> None:
        """`small`: keep the weights in the file's form.  They are widened to scratch memory or, if `direct`, where they are used,
        for one pixel at a time.  `within`: the parameters of a larger layer without an epilogue, and where in that layer's result
        this kernel's results are.
        """
        self.b, self.layer, self.fused, self._direct, self._matrix = b, layer, fused, direct, layer.matrix
        self.io = FloatIo(b, group, layer, run=2 * CHANNELS) if within is None else within[0]
        self.stored = layer.stored if small else None
        if self.stored is not None:
            self._params = self.io.stream(self.stored.pack(layer.bias, self.block), "uint32")
        else:
            self._params = self.io.stream(pack(self._matrix, layer.bias, self.block))
        widens = self.stored is not None and not direct
        if widens:
            self.layer = layer = in_rows(layer)
        lines = layer.rows.out
        self._together = next((n for n in range(1, lines) if lines % n == 0 and n * layer.columns.out >= ENOUGH), lines)
        widened = min(self.block, layer.channels) * len(self._matrix)
        self._scratch = b.scratch("widened", (widened,), "float32") if widens else None
        self._forms: dict[tuple[int, int], DotForm] = {}
        size = (layer.rows.out, layer.columns.out)
        self._spread = Spread((1, 1), (0, 0), size) if within is None else within[1]
        first, _ = layer.columns.whole
        self._first, self._many = first, self.many
        self._pairs = self.pairs - MANY // 2 * self._many
        self._singles = layer.columns.out - self._inside

    def form(self, pixels: int, count: int) -> DotForm:
        """The block for `pixels` pixels by `count` channels."""
        run, runs, varies, kind, row = self.run, self.runs > 1, pixels == 1 and self.run_varies, "dot", None
        if self.layer.depthwise:
            columns = self.layer.columns
            kind = "depthwise" + "_shared" * (self.fused and pixels == 2 and columns.stride == columns.dilation)
            loop = varies or run > MOST_UNROLLED
            unroll = (1 if pixels == 1 else 4) if loop else run
            remainder = run % unroll if loop else 0
        elif self._direct and self.stored is not None:
            row, runs, loop = self.stored.row(count), False, run > 2 * DIRECT_UNROLL
            unroll, remainder = (DIRECT_UNROLL, run % DIRECT_UNROLL) if loop else (run, 0)
        else:
            unroll = max(u for u in range(1, UNROLL + 1) if self.layer.depth % u == 0) if varies else unroll_of(run)
            if pixels == 2 and count == 1 and not self.fused and self.stored is None:
                kind, unroll = "narrow", next((u for u in (32, 24, 16) if run % u == 0), unroll)
            elif pixels > 2:
                kind, unroll = "many", unroll_many(run, unroll)
            elif self.wide:
                kind = "wide"
            loop = varies or run > unroll + UNROLL
            remainder = 0 if varies else run % unroll if loop else run - unroll
        return DotForm(pixels, count, self.fused, unroll, remainder, loop, runs, self.layer.clamp, kind, row)

    def intrin(self, form: DotForm) -> TensorIntrin:
        return dot(form)

    def data(self, start: Expr, channel: Expr, form: DotForm) -> list[Region]:
        """Where the data of a tile's pixels start."""
        first = start + channel if self.layer.depthwise else start
        return [region(self.io.data, first + p * self.layer.columns.stride * self.layer.depth) for p in range(form.sources)]

    def gap(self, taps: Expr) -> Expr:
        """Elements between the data of a run of `taps` and the next run's."""
        rows, columns, depth = self.layer.rows, self.layer.columns, self.layer.depth
        if self.layer.depthwise:
            return (rows.dilation * columns.size - taps * columns.dilation) * depth
        return (columns.dilation if self.layer.dilated else rows.dilation * columns.size) * depth - taps

    @property
    def pairs(self) -> int:
        """Pairs of neighbouring pixels in a row that are computed together."""
        first, last = self.layer.columns.whole
        return 0 if self._direct else (last - first) // 2

    @property
    def wide(self) -> bool:
        """Whether all pixels are computed one by one, without VMLA."""
        return not self.fused and not self.layer.depthwise and self.stored is None and self.pairs == 0

    @property
    def many(self) -> int:
        """Blocks of MANY pixels among the pairs."""
        layer = self.layer
        alone = layer.channels == 1 and not layer.depthwise and not layer.epilogue and self._spread.strides[1] == 1
        return self.pairs // 2 if alone and not self.fused and self.stored is None else 0

    @property
    def _inside(self) -> int:
        """Pixels that are not computed alone."""
        return MANY * self._many + 2 * self._pairs

    @property
    def block(self) -> int:
        """Channels that are computed together."""
        return MOST_CHANNELS if self.wide else CHANNELS

    def more(self, _count: int, _blocks: int) -> list[Expr]:
        """Further numbers that `_blocks` blocks of `_count` channels need at the end."""
        return [imm(self.layer.columns.dilation * self.layer.depth)] * self.layer.depthwise

    @property
    def _inner(self) -> int:
        """Taps of a column of a run."""
        return 1 if self.layer.depthwise else self.layer.depth

    @property
    def run(self) -> int:
        """Taps of a whole run."""
        return self._inner * (1 if self.layer.dilated else self.layer.columns.taps)

    @property
    def runs(self) -> int:
        """Runs of a whole window."""
        return self.layer.columns.taps if self.layer.dilated else self.layer.rows.taps

    @property
    def run_varies(self) -> bool:
        """Whether the runs of single pixels differ in length."""
        return self.layer.columns.whole != (0, self.layer.columns.out) and not self.layer.dilated

    def lowered(self, kernel: str, form: str = "", **sizes: int) -> Lowered:
        """The finished function with its costs; its name says how the weights are stored."""
        self.emit()
        title = kernel + (f"_{self.stored.kind}" if self.stored is not None else "") + form
        return self.io.lowered(title, self.instructions(), self.code(), **sizes)

    def emit(self) -> None:
        """Emit the loops."""
        b, rows = self.b, self.layer.rows.out
        with b.for_("i", self.layer.batch) as i:
            if self._scratch is None:
                with b.for_("y", rows) as y:
                    self._row(i, y, self._channels)
            else:
                with b.for_("g", rows // self._together) as g:
                    for block in self._blocks():
                        self._unfolded(i, g * self._together, *block)

    def _unfolded(self, i: Expr, first: Expr, channel: Expr, offset: Expr, count: int) -> None:
        """Widen the weights of a block of channels, then compute it for some rows of an image."""
        assert self.stored is not None
        assert self._scratch is not None
        row = self.stored.row(count)
        codes = offset + (count + row.parameters)
        operands = [region(self._params, codes * row.per_word, dtype=row.dtype)]
        operands += [region(self._params, offset + count, dtype="float32")] * bool(row.parameters)
        self.b.block(unfold(row), *operands, self._scratch, imm(len(self._matrix)))
        with self.b.for_("y", self._together) as y:
            self._row(i, first + y, lambda tile, pixel: self._block(tile, pixel, channel, offset, count))

    def _row(self, i: Expr, y: Expr, body: Callable[[Tile, Expr], None]) -> None:
        """Run `body` for each tile of a row; its second argument is the row's first pixel in the result."""
        b, layer = self.b, self.layer

        def named(tile: Tile) -> Tile:
            runs, taps, skipped = b.let("runs", tile.runs), b.let("taps", tile.taps), b.let("skipped", tile.skipped)
            return replace(tile, runs=runs, taps=taps, skipped=skipped)

        rows = layer.rows.taps_at(b, y)
        line = b.let("line", (i * layer.rows.size + rows.at(rows.first, layer.rows.dilation)) * layer.columns.size)
        pixel = b.let("pixel", self._spread.row(i, y))
        for pixels, tiles, start in ((MANY, self._many, 0), (2, self._pairs, MANY * self._many)):
            if tiles:
                with b.for_("t", tiles) as t:
                    body(named(self._whole(t * pixels + (self._first + start), rows, line, pixels)), pixel)
        if self._singles:
            with b.for_("s", self._singles) as s:
                behind = s + self._inside
                x = select(s < self._first, s, behind) if self._first and self._inside else behind
                body(named(self._single(b.let("x", x), rows, line)), pixel)

    def _whole(self, x: Expr, rows: TapRange, line: Expr, pixels: int) -> Tile:
        columns = self.layer.columns
        start = self.b.let("start", (line + x * columns.stride - columns.before) * self.layer.depth)
        runs = imm(columns.taps) if self.layer.dilated else rows.last - rows.first
        skipped = imm(0) if self.layer.dilated else rows.first * self.run
        return Tile(x, pixels, start, skipped, runs, imm(self.run))

    def _single(self, x: Expr, rows: TapRange, line: Expr) -> Tile:
        columns, inner, b = self.layer.columns, self._inner, self.b
        inside = columns.taps_at(b, x)
        start = b.let("start", (line + inside.at(inside.first, columns.dilation)) * self.layer.depth)
        count = inside.last - inside.first
        if self.layer.dilated:
            return Tile(x, 1, start, inside.first * inner, count, imm(inner))
        skipped = (rows.first * columns.taps + inside.first) * inner
        return Tile(x, 1, start, skipped, rows.last - rows.first, count * inner)

    def _channels(self, tile: Tile, pixel: Expr) -> None:
        for block in self._blocks():
            self._block(tile, pixel, *block)

    def _blocks(self) -> Iterator[tuple[Expr, Expr, int]]:
        """The blocks of channels: first channel, offset in the constants, number of channels."""
        each = self.block
        size = each * (1 + len(self._matrix)) if self.stored is None else self.stored.words(each)
        for n, count in channel_blocks(self.b, self.layer.channels, each, one=True):
            yield n * each, n * size, count

    def _block(self, tile: Tile, pixel: Expr, channel: Expr, offset: Expr, count: int, *, blocks: int = 1) -> None:
        form = self._forms[tile.pixels, count] = self.form(tile.pixels, count)
        at = self._spread.pixel(pixel, tile.x)
        to, step = self.io.target(at, channel, count)
        numbers: list[Expr] = [imm(step * self._spread.strides[1])] if tile.pixels == 2 else []
        numbers += [(tile.taps - form.remainder) // form.unroll] if form.loop else []
        if form.runs:
            numbers += [tile.runs, self.gap(tile.taps)]
            whole = self._inner if self.layer.dilated else self.run
            numbers += [(whole - tile.taps) * count] if tile.pixels == 1 else []
        weights = self._weights(offset, tile.skipped, count)
        bias = region(self._params, offset, dtype="float32")
        data = self.data(tile.data, channel, form)
        self.b.block(self.intrin(form), *data, *weights, bias, to, *numbers, *self.more(count, blocks))
        self.io.finish(at, channel, pixels=tile.pixels, count=count)

    def _weights(self, offset: Expr, skipped: Expr, count: int) -> list[Region]:
        """Where a block reads its weights from a tap on, and how they are scaled."""
        if self._scratch is not None:
            return [region(self._scratch, skipped * count)]
        if self.stored is None:
            return [region(self._params, offset + count + skipped * count)]
        row = self.stored.row(count)
        codes = offset + (count + row.parameters) + skipped * row.words
        scales = [region(self._params, offset + count, dtype="float32")] * bool(row.parameters)
        return [region(self._params, codes * row.per_word, dtype=row.dtype), *scales]

    def instructions(self) -> Array:
        """Estimates per call: instructions, and cycles on a Cortex-M4, where a load of N numbers takes 1 + N cycles."""
        layer = self.layer
        total = np.zeros(2)
        lines = layer.batch * layer.rows.out
        rows = sum(len(layer.rows.inside(y)) for y in range(layer.rows.out)) / layer.rows.out
        runs = float(self.runs) if self.layer.dilated else rows
        blocks = block_sizes(layer.channels, self.block)
        for pixels, tiles in ((MANY, self._many), (2, self._pairs), (1, self._singles)):
            for count in blocks if tiles else ():
                form = self.form(pixels, count)
                trips = (self.run * self._share(pixels) - form.remainder) / form.unroll if form.loop else 1.0
                once, twice = (np.array(self.price(form, runs=r, trips=trips)) for r in (1, 2))
                around = np.array([14, 22]) * (len(blocks) > 1)
                total += lines * tiles * (once + (runs - 1) * (twice - once) + around)
        total += self._unfolding() + epilogue_instructions(layer) + 14 * lines * (self._many + self._pairs + self._singles) + 20
        return total.astype(np.int64)

    def price(self, form: DotForm, *, runs: int, trips: float) -> tuple[float, float]:
        """Instructions and cycles of a block."""
        return form.instructions(runs=runs, trips=trips)

    def _share(self, pixels: int) -> float:
        """The average share of a row's taps that is inside the image."""
        columns = self.layer.columns
        if pixels > 1 or not self.run_varies:
            return 1.0
        first, last = self._first, self._first + self._inside
        singles = [x for x in range(columns.out) if not first <= x < last]
        return sum(len(columns.inside(x)) for x in singles) / (len(singles) * columns.taps)

    def _unfolding(self) -> int:
        """Instructions for widening stored weights."""
        if self.stored is None or self._scratch is None:
            return 0
        blocks = [self.stored.row(n) for n in block_sizes(self.layer.channels, CHANNELS)]
        iterations = self.layer.batch * self.layer.rows.out // self._together
        return iterations * sum(unfold_instructions(row, len(self._matrix)) for row in blocks)

    def code(self) -> int:
        """Bytes of code."""
        counts = {f.channels for f in self._forms.values()} if self.stored is not None and self._scratch is not None else ()
        widening = sum(unfold_code(self.stored.row(n)) for n in counts if self.stored is not None)
        return 120 + widening + sum(4 * count_instructions(f.text()) + 80 for f in self._forms.values())


def in_rows(layer: FloatLayer) -> FloatLayer:
    """A pointwise layer with one row of pixels as one with several rows: weights are widened for some pixels at a time."""
    pixels = layer.columns.out
    if layer.rows != Axis(1, 1) or layer.columns != Axis(pixels, pixels):
        return layer
    width = next((n for n in range(ENOUGH, pixels) if pixels % n == 0 and n % 2 == 0), pixels)
    return replace(layer, rows=Axis(pixels // width, pixels // width), columns=Axis(width, width))


def pack(matrix: Array, bias: Array, block: int) -> Array:
    """Pack blocks of up to `block` channels: bias [n], weights [taps][n]."""
    blocks = [slice(n, n + block) for n in range(0, bias.size, block)]
    return np.concatenate([a.reshape(-1) for n in blocks for a in (bias[n], matrix[:, n])])


def unroll_of(run: int) -> int:
    """Taps per iteration: all of a short run, else a divisor of it near UNROLL, else UNROLL."""
    if run <= UNROLL:
        return run
    return next((u for u in (8, 7, 6, 5, 9, 10, 4) if run % u == 0), UNROLL)


def register_forms(
    name: str,
    operator: str,
    plan: Callable[[Group], Plan | None],
    lower: Callable[..., Lowered],
    *,
    plevel: int,
    keeps: bool = False,
) -> None:
    """Register a kernel in two forms: with VMLA, and after it with separate products and sums."""
    for less, form in enumerate(("vmla", "vmul")):
        source = partial(lower, form=form)
        register_planned(f"arm_fpu.{name}_{form}", operator, on_fpu(plan), source, plevel=plevel - less, keeps=keeps)


def on_fpu(plan: Callable[[Group], Plan | None]) -> Callable[[Group, Target], Plan | None]:
    """The plan on cores with an FPU, else None."""
    return lambda group, target: plan(group) if target.has("vfp") else None
