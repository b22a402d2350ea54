"""Convolutions of float32: two neighbouring pixels by eight channels at a time, reading the image in place.

The 16 sums stay in FPU registers.  Each weight that is loaded serves two pixels, and each datum eight channels.  Products are
added in the reference's order, so results are equal bit for bit (see dot.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from itertools import product

import numpy as np

from aot.ir.op import Array
from aot.op.nn.conv import FLOAT_TRANSPOSE as TRANSPOSE
from aot.op.nn.conv import FloatTransposeAttrs
from aot.relay.expr import Var as Tensor
from aot.relay.expr import is_call, tensor_type
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, imm
from aot.tir.intrin import BlockText, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.arm_fpu.dot import (
    CHANNELS,
    REGISTERS,
    Clamp,
    DotForm,
    Text,
    compared,
    float_operands,
    limited,
    limits,
    store_clamped,
    vector,
    waits,
)
from aot.topi.arm_fpu.layer import (
    DEPTHWISE,
    DIRECT_UNROLL,
    MANY,
    UNROLL,
    FloatIo,
    FloatLayer,
    Spread,
    Tile,
    WindowKernel,
    bias_of,
    finite_constants,
    match_float_layer,
    on_fpu,
    register_forms,
    with_relu,
)
from aot.topi.intrin.asm_text import Operands, Repeat, asm, block_of, count_instructions
from aot.topi.layer.fused import PhaseAxis, phase_axes
from aot.topi.layer.im2col import Axis, TapRange
from aot.topi.layer.planes import block_sizes
from aot.topi.strategy import Group, Lowered, register_planned


def plan(group: Group, operator: str) -> FloatLayer | None:
    """Layers with one group of channels, or depthwise with one channel; dilated windows only if they have one row."""
    layer = match_float_layer(group, operator)
    if layer is None:
        return None
    if layer.depthwise:
        if layer.depth > 1:
            return None
        layer = replace(layer, weight=layer.weight[0].transpose(2, 0, 1)[..., None], depthwise=False)
    if layer.weight.ndim == 2:
        layer = replace(layer, weight=layer.weight[:, None, None, :])
    return None if layer.weight.shape[3] != layer.depth or (layer.dilated and layer.rows.taps > 1) else layer


def plan_stored(group: Group, operator: str) -> FloatLayer | None:
    """Layers whose weights are smaller in the file; not single pixels with one tap, whose weights are widened where they are
    used.
    """
    layer = plan(group, operator)
    return None if layer is None or (layer.pixels == 1 and is_pointwise(layer)) or layer.stored is None else layer


def plan_direct(group: Group, operator: str) -> FloatLayer | None:
    """Fully connected layers with a few rows, and pointwise convolutions with a few pixels, with weights in the form of the file.

    No scratch memory.  Weights are two, one or half a byte each in flash, [channels / 8][inputs][8] in whole words, after the
    block's bias and scales; they are widened where they are used.
    """
    layer = plan(group, operator)
    return None if layer is None or layer.pixels > MOST_PIXELS or not is_pointwise(layer) or layer.stored is None else layer


def lower(group: Group, _target: Target, name: str, layer: FloatLayer, *, form: str, small: bool = False) -> Lowered:
    kernel = WindowKernel(IRBuilder(name), group, layer, fused=form == "vmla", small=small)
    return kernel.lowered(f"arm_fpu.{title_of(layer)}", f"_{form}", unroll=UNROLL)


def lower_direct(group: Group, _target: Target, name: str, layer: FloatLayer, *, form: str) -> Lowered:
    kernel = WindowKernel(IRBuilder(name), group, layer, fused=form == "vmla", small=True, direct=True)
    return kernel.lowered("arm_fpu.dense", f"_{form}", unroll=DIRECT_UNROLL)


def title_of(layer: FloatLayer) -> str:
    """The kernel's operator: a layer with one pixel is a fully connected one."""
    return "dense" if layer.rows.out == layer.columns.out == 1 else "conv2d"


def is_pointwise(layer: FloatLayer) -> bool:
    """Whether each result reads exactly one pixel, inside the image."""
    return all(a.taps == 1 and a.whole == (0, a.out) for a in (layer.rows, layer.columns))


MOST_PIXELS = 8
"""For weights that are widened where they are used."""


# Dilated convolutions of float32 with several rows and columns of taps: windows are packed and then multiplied as one run.
#
# Scratch memory: the windows of the pixels computed together, 4 bytes per tap.  Taps outside of the image are zeros, which change
# no sum (see layer.py).  Packing costs some instructions per tap, shared by all channels.


COPYING = {4: 13, 2: 9, 1: 5}
"""Channels of a pixel copied per iteration (the largest that divides their number) -> instructions, counted under QEMU."""

PACKING_AROUND = 11
"""Further instructions per tap's pixel."""


def plan_packed(group: Group) -> FloatLayer | None:
    """Layers with one group of channels, several rows of taps, and dilated columns."""
    layer = match_float_layer(group, "nn.conv2d_float")
    return layer if layer and layer.weight.shape[3] == layer.depth and layer.dilated and layer.rows.taps > 1 else None


def lower_packed(group: Group, _target: Target, name: str, layer: FloatLayer, *, form: str) -> Lowered:
    kernel = PackedKernel(IRBuilder(name), group, layer, fused=form == "vmla")
    return kernel.lowered("arm_fpu.conv2d_packed", f"_{form}", unroll=UNROLL)


class PackedKernel(WindowKernel):
    """A pointwise layer on packed windows."""

    def __init__(self, b: IRBuilder, group: Group, layer: FloatLayer, *, fused: bool) -> None:
        taps = layer.weight[0].size
        rows, columns = (Axis(a.out, a.out) for a in (layer.rows, layer.columns))
        weight = layer.weight.reshape(layer.channels, 1, 1, taps)
        pointwise = replace(layer, weight=weight, depth=taps, rows=rows, columns=columns)
        super().__init__(b, group, pointwise, fused=fused)
        self._window, self._taps = layer, taps
        most = MANY if self.many else min(2, columns.out)
        self._packed = b.scratch("windows", (most * taps,), "float32")
        self._at: tuple[Expr, Expr] = imm(0), imm(0)

    def data(self, start: Expr, channel: Expr, form: DotForm) -> list[Region]:
        return [region(self._packed, p * self._taps) for p in range(form.pixels)]

    def _row(self, i: Expr, y: Expr, body: Callable[[Tile, Expr], None]) -> None:
        self._at = i, y
        super()._row(i, y, body)

    def _whole(self, x: Expr, rows: TapRange, line: Expr, pixels: int) -> Tile:
        self._pack(x, pixels)
        return Tile(x, pixels, imm(0), imm(0), imm(1), imm(self._taps))

    def _single(self, x: Expr, rows: TapRange, line: Expr) -> Tile:
        return self._whole(x, rows, line, 1)

    def _pack(self, x: Expr, pixels: int) -> None:
        """Pack the windows of some neighbouring pixels, one after another."""
        b, layer, (i, y) = self.b, self._window, self._at
        rows, columns, depth = layer.rows, layer.columns, layer.depth
        with b.for_("p", pixels) as p, b.for_("ky", rows.taps) as ky:
            row = b.let("row", y * rows.stride + (ky * rows.dilation - rows.before))
            to_row = b.let("to_row", (p * rows.taps + ky) * (columns.taps * depth))
            first = b.let("first", (x + p) * columns.stride - columns.before)
            with b.for_("kx", columns.taps) as kx:
                column = b.let("column", first + kx * columns.dilation)
                to = b.let("to", to_row + kx * depth)
                inside = (row >= 0) & (row < rows.size) & (column >= 0) & (column < columns.size)
                with b.if_(inside):
                    start = b.let("start", ((i * rows.size + row) * columns.size + column) * depth)
                    self._fill(to, lambda k: self.io.data[start + k])
                with b.else_():
                    self._fill(to, lambda _: imm(0.0, "float32"))

    def _fill(self, to: Expr, value: Callable[[Expr], Expr]) -> None:
        depth = self._window.depth
        each = next(n for n in COPYING if depth % n == 0)
        with self.b.for_("k", depth, step=each) as k:
            for n in range(each):
                self.b.store(self._packed, to + (k + n), value(k + n))

    def instructions(self) -> Array:
        return super().instructions() + self._packing()

    def code(self) -> int:
        return super().code() + 160

    def _packing(self) -> int:
        """Instructions for packing."""
        layer = self._window
        each = next(n for n in COPYING if layer.depth % n == 0)
        return layer.pixels * layer.rows.taps * layer.columns.taps * (PACKING_AROUND + layer.depth // each * COPYING[each])


# Transposed convolutions of float32: each phase is a convolution of stride 1 whose results are spread over the image.
#
# See aot/topi/layer/fused.py.  The reference adds an output's products in the order of the data's pixels, as does a convolution
# with flipped weights.


@dataclass(frozen=True, slots=True)
class TransposePlan:
    """The whole layer, whose axes are unused, and each phase with the places of its results."""

    layer: FloatLayer
    phases: tuple[tuple[FloatLayer, Spread], ...]


def plan_transpose(group: Group) -> TransposePlan | None:
    """Layers with constant finite weights, the bias added last, no epilogue but RELU, and a tap in the image for each result."""
    whole = _match_transpose(group)
    if whole is None:
        return None
    attrs = whole.anchor.attrs
    _, height, width, _ = whole.data.type.shape
    axes = []
    for i, size in enumerate((height, width)):
        cut, stride, kernel = attrs.padding[i], attrs.strides[i], whole.weight.shape[1 + i]
        phases = phase_axes(out=attrs.size[i], kernel=kernel, stride=stride, cut=cut)
        if not all(a.out and a.before >= 0 and _phase_axis(a, size).never_empty for a in phases):
            return None
        axes.append(phases)
    layers = []
    for y, x in product(range(attrs.strides[0]), range(attrs.strides[1])):
        rows, columns = axes[0][y], axes[1][x]
        weight = whole.weight[:, rows.taps][:, :, columns.taps]
        layer = replace(whole, weight=weight, rows=_phase_axis(rows, height), columns=_phase_axis(columns, width))
        layers.append((layer, Spread(attrs.strides, (y, x), attrs.size)))
    return TransposePlan(whole, tuple(layers))


def _phase_axis(axis: PhaseAxis, size: int) -> Axis:
    return Axis(size, axis.out, len(axis.taps), before=axis.before)


def _match_transpose(group: Group) -> FloatLayer | None:
    anchor = group.anchor
    if not is_call(anchor, TRANSPOSE):
        return None
    attrs: FloatTransposeAttrs = anchor.attrs
    data, arrays = anchor.args[0], finite_constants(anchor.args[1:])
    if not isinstance(data, Tensor) or arrays is None:
        return None
    bounds, head, epilogue = with_relu((attrs.clamp.lo, attrs.clamp.hi), anchor, group.followers)
    if epilogue or attrs.bias_first:
        return None
    out, weight = tensor_type(anchor), arrays[0]
    bias = bias_of(arrays[1:], out.shape[-1])
    batch, *_, depth = data.type.shape
    macs = data.type.size * weight[..., 0].size
    return FloatLayer(anchor, head, data, weight, bias, *bounds, (), out, batch, Axis(1, 1), Axis(1, 1), depth, macs)


def lower_transpose(group: Group, _target: Target, name: str, plan: TransposePlan, *, form: str) -> Lowered:
    b = IRBuilder(name)
    io = FloatIo(b, group, plan.layer, run=2 * CHANNELS)
    price, code = np.zeros(2), 0
    for layer, spread in plan.phases:
        kernel = WindowKernel(b, group, layer, fused=form == "vmla", within=(io, spread))
        kernel.emit()
        price, code = price + kernel.instructions(), code + kernel.code()
    return io.lowered(f"arm_fpu.conv2d_transpose_{form}", price, code, phases=len(plan.phases), unroll=UNROLL)


# Depthwise convolutions with any window, stride and dilation; weights as above.


def plan_depthwise(group: Group) -> FloatLayer | None:
    """Layers with one filter per channel."""
    layer = match_float_layer(group, DEPTHWISE)
    return layer if layer is not None and layer.depth == layer.channels else None


def plan_depthwise_stored(group: Group) -> FloatLayer | None:
    """As plan_depthwise, if the weights are smaller in the file."""
    layer = plan_depthwise(group)
    return None if layer is None or layer.stored is None else layer


def lower_depthwise(group: Group, _target: Target, name: str, layer: FloatLayer, *, form: str, small: bool = False) -> Lowered:
    kernel = WindowKernel(IRBuilder(name), group, layer, fused=form == "vmla", small=small)
    return kernel.lowered("arm_fpu.depthwise", f"_{form}", channels=CHANNELS)


# One product and one bias per channel: pixel after pixel, with the numbers of up to eight channels in FPU registers.


_SPARE = 4
"""Registers besides those of results and constants."""
_RESULTS = 16
"""Most results between a load and a store."""


@dataclass(frozen=True, slots=True)
class ScaleForm:
    """`channels` channels of pixels that are adjacent or, if they are `apart`, a step from each other; `unroll` loads per
    iteration.

    Registers: results in s0 and up, then weights, biases, and `_SPARE` others.
    """

    channels: int
    apart: bool
    unroll: int
    clamp: Clamp

    @property
    def name(self) -> str:
        return f"scale_{self.channels}" + "_apart" * self.apart + f"_u{self.unroll}{self.clamp.name}"

    @property
    def group(self) -> int:
        """Pixels per load."""
        room = min(_RESULTS, len(REGISTERS) - _SPARE - 2 * self.channels)
        return 1 if self.apart or self.unroll == 1 else room // self.channels

    @property
    def pixels(self) -> int:
        """Pixels per iteration."""
        return self.group * self.unroll

    @property
    def _count(self) -> int:
        return self.group * self.channels

    @property
    def _weights(self) -> int:
        return max(self._count, 3)  # clamping results one by one clobbers the first three

    @property
    def _spare(self) -> int:
        return self._weights + 2 * self.channels

    @property
    def _is_checked_last(self) -> bool:
        """Whether only results that are not finite need the clamp; the sum of all results tells."""
        return self.clamp.keeps and self.clamp.lo is not None

    def begin(self) -> Text:
        text: Text = [f"vldmia %[w], {vector(self._weights, 2 * self.channels)}"]
        if self._is_checked_last:
            text += ["mov %[f], %[q]", "mov %[k], %[n]", "mov %[t], #0"]
            text += [f"vmov s{self._spare + i}, %[t]" for i in range(2)]
        return text

    def body(self) -> Text:
        return ["1:", Repeat(self.unroll, self._pixels()), "subs %[n], %[n], #1", "bne 1b"]

    def _pixels(self) -> Text:
        n, w = self._count, self._weights
        text: Text = [f"vldmia %[x], {vector(0, n)}", "add %[x], %[x], %[step]"] if self.apart else []
        text = text or [f"vldmia %[x]!, {vector(0, n)}"]
        text += [f"vmul.f32 s{i}, s{i}, s{w + i % self.channels}" for i in range(n)]
        text += [f"vadd.f32 s{i}, s{i}, s{w + self.channels + i % self.channels}" for i in range(n)]
        if self._is_checked_last or self.clamp.lo is None or self.clamp.hi is None:
            moved = [f"vstmia %[q], {vector(0, n)}", "add %[q], %[q], %[step]"]
            text += moved if self.apart else [f"vstmia %[q]!, {vector(0, n)}"]
            totals = [self._spare + i % 2 for i in range(n)] if self._is_checked_last else []
            return text + [f"vadd.f32 s{total}, s{total}, s{i}" for i, total in enumerate(totals)]
        text += ["mov %[o], %[q]", f"add %[q], %[q], {'%[step]' if self.apart else f'#{4 * n}'}"]
        return text + store_clamped(self.clamp, 1, n, free=self._spare, multiply=False)

    def end(self) -> Text:
        """Test whether all results are finite."""
        if not self._is_checked_last:
            return []
        total = self._spare
        return [f"vadd.f32 s{total}, s{total}, s{total + 1}", *compared(total)]

    def exceptions(self) -> Text:
        """Clamp stored results in place, as the operators' te rules do."""
        if not self._is_checked_last:
            return []
        text: Text = ["bne 9f", *limits(self.clamp, 1, 2)]
        pixels, count = (self.pixels, self.channels) if self.apart else (1, self.pixels * self.channels)
        text += ["5:", f"mov %[u], #{pixels}", "6:", f"mov %[t], #{count}", "7:", "vldr.32 s0, [%[f]]", *limited(0, 1, 2)]
        text += ["vstmia %[f]!, {s0}", "subs %[t], %[t], #1", "bne 7b"]
        text += [f"sub %[f], %[f], #{4 * count}", "add %[f], %[f], %[step]"] * self.apart
        return [*text, "subs %[u], %[u], #1", "bne 6b", "subs %[k], %[k], #1", "bne 5b", "9:"]

    def text(self) -> Text:
        """The whole block."""
        return [*self.begin(), *self.body(), *self.end(), *self.exceptions()]


@cache
def scale(form: ScaleForm) -> TensorIntrin:
    """out[p * step + c] = clamp(x[p * step + c] * w[c] + w[channels + c]) for p < trips * pixels, c < channels.

    Operands: x float32; w float32[2 * channels], weights and biases; out; trips; step, if pixels are apart.
    """
    b = IRBuilder(form.name)
    x, w, out = float_operands(b, "x", "w")
    trips, step = Var("trips"), Var("step")
    each = step if form.apart else imm(form.channels)
    results = b.local("found", (form.group, form.channels), "float32")
    with b.for_("n", trips * form.unroll) as n:
        for p in range(form.group):
            for c in range(form.channels):
                at = (n * form.group + p) * each + c
                b.store(results, (p, c), x[at] * w[c] + w[form.channels + c])
        for p in range(form.group):
            for c in range(form.channels):
                b.store(out, (n * form.group + p) * each + c, form.clamp.meaning(b, results[p, c]))

    def emit(operands: Operands) -> BlockText:
        more = [f"const int32_t aot_step = 4 * {operands['step'].value};"] if form.apart else []
        ins, counter = {"step": "aot_step"} if form.apart else {}, "n=trips"
        return asm(operands, form.text(), "x w >q=out", ins, counter=counter, temporaries="ofktu", after=more, clobbers=REGISTERS)

    numbers = (trips, step) if form.apart else (trips,)
    return block_of(b, "arm_fpu", emit, *numbers, requires="vfp", ordered=True)


def scale_price(form: ScaleForm, trips: int) -> tuple[int, int]:
    """Instructions per execution with finite results, and cycles on a Cortex-M4."""
    around: Text = [*form.begin(), *form.end()]
    ends = form.exceptions()[:1]
    total = count_instructions(around) + len(ends) + trips * count_instructions(form.body())
    return total, total + len(ends) + waits(around) + trips * (waits(form.body()) + 1)


# Depthwise convolutions with windows of one tap: one product and one bias per channel.
#
# No scratch memory, and results may overlap the data.  Weights are four bytes each in flash, [channels / 8][weights, biases], and
# stay in registers for all pixels.


SCALE_UNROLL = 4
SCALE_AROUND = np.array([14, 22])
"""Instructions and cycles around a block of channels."""


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """A layer with `pixels` pixels."""

    layer: FloatLayer
    pixels: int

    def blocks(self, count: int) -> list[tuple[ScaleForm, int, int]]:
        """For `count` channels: each form, its first pixel, its iterations."""
        apart = count < self.layer.depth
        form, single = (ScaleForm(count, apart, n, self.layer.clamp) for n in (SCALE_UNROLL, 1))
        trips, remainder = divmod(self.pixels, form.pixels)
        return [(form, 0, trips)] * (trips > 0) + [(single, trips * form.pixels, remainder)] * (remainder > 0)

    @property
    def counts(self) -> list[int]:
        """Channels of each block."""
        return block_sizes(self.layer.depth, CHANNELS)

    @property
    def price(self) -> Array:
        """Instructions and cycles."""
        blocks = [(form, trips) for count in self.counts for form, _, trips in self.blocks(count)]
        return sum((np.array(scale_price(*block)) + SCALE_AROUND for block in blocks), np.array([20, 30]))


def plan_scale(group: Group) -> ScalePlan | None:
    """Layers with one tap inside the image for each result, without an epilogue."""
    layer = plan_depthwise(group)
    if layer is None or layer.epilogue or layer.rows != Axis(1, 1):
        return None
    pixels = layer.columns.out
    return ScalePlan(layer, pixels) if layer.columns == Axis(pixels, pixels) and layer.batch == 1 else None


def lower_scale(group: Group, _target: Target, name: str, plan: ScalePlan) -> Lowered:
    layer, b = plan.layer, IRBuilder(name)
    io = FloatIo(b, group, layer, run=CHANNELS)
    depth = layer.depth
    numbers = (layer.weight.reshape(-1), layer.bias)
    starts = range(0, depth, CHANNELS)
    params = io.stream(np.concatenate([a[n : n + CHANNELS] for n in starts for a in numbers]))
    code = 0
    for count in dict.fromkeys(plan.counts):
        first = imm(0) if count == CHANNELS else imm(depth - count)
        with b.for_("c", plan.counts.count(count)) as c:
            channel = b.let("channel", c * CHANNELS + first)
            for form, pixel, trips in plan.blocks(count):
                at = channel + pixel * depth
                step = [imm(depth)] * form.apart
                b.block(scale(form), region(io.data, at), region(params, channel * 2), region(io.out, at), imm(trips), *step)
                code += 60 + 4 * count_instructions(form.text())
    return io.lowered("arm_fpu.scale", plan.price, 40 + code, channels=min(CHANNELS, depth))


for _operator in ("nn.conv2d_float", "nn.dense_float", DEPTHWISE):
    _name = _operator.removeprefix("nn.").removesuffix("_float").removeprefix("depthwise_")
    register_forms(_name, _operator, partial(plan, operator=_operator), lower, plevel=30)
    _stored = partial(plan_stored, operator=_operator)
    register_forms(f"{_name}_stored", _operator, _stored, partial(lower, small=True), plevel=28, keeps=True)
    if _operator != DEPTHWISE:
        _direct = partial(plan_direct, operator=_operator)
        register_forms(f"{_name}_direct", _operator, _direct, lower_direct, plevel=27, keeps=True)
register_forms("conv2d_packed", "nn.conv2d_float", plan_packed, lower_packed, plevel=28)
register_forms("conv2d_transpose", TRANSPOSE, plan_transpose, lower_transpose, plevel=30)
register_forms("depthwise", DEPTHWISE, plan_depthwise, lower_depthwise, plevel=30)
register_forms("depthwise_stored", DEPTHWISE, plan_depthwise_stored, partial(lower_depthwise, small=True), plevel=28, keeps=True)
register_planned("arm_fpu.scale", DEPTHWISE, on_fpu(plan_scale), lower_scale, plevel=31)
