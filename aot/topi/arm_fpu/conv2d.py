"""Convolutions of float32: two neighbouring pixels by eight channels, straight from the image."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import cast

import numpy as np

from aot.ir.op import Array, Op
from aot.op.nn.conv2d_transpose import FLOAT_TRANSPOSE as TRANSPOSE
from aot.op.nn.conv2d_transpose import FloatTransposeAttrs
from aot.relay.expr import Constant, tensor_type
from aot.relay.expr import Var as Tensor
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, imm
from aot.tir.function import FuncAttrs
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.arm_fpu.dot import (
    CHANNELS,
    MOST_CHANNELS,
    REGISTERS,
    Clamp,
    DepthwiseForm,
    DotForm,
    ManyForm,
    NarrowForm,
    Text,
    WideForm,
    assembled,
    compared,
    depthwise_dot,
    described,
    dot,
    float_operands,
    limited,
    limits,
    store_clamped,
    unroll_many,
    vector,
    waits,
)
from aot.topi.arm_fpu.layer import (
    MANY,
    UNROLL,
    Axis,
    FloatIo,
    FloatLayer,
    Spread,
    Tile,
    WindowKernel,
    bias_of,
    match_float_layer,
    register_forms,
    stored_form,
    unroll_of,
    with_relu,
)
from aot.topi.arm_fpu.stored import StoredForm, stored_dot
from aot.topi.generic.layers import TapRange
from aot.topi.intrin.asm_text import Repeat, count_instructions
from aot.topi.layer.fused import describe
from aot.topi.layer.phases import PhaseAxis, phase_axes
from aot.topi.strategy import Group, Lowered, register_planned


@dataclass(frozen=True, slots=True)
class Plan:
    """A layer with weights [O, KH, KW, I]; `dilated`: the columns of its windows are apart."""

    layer: FloatLayer
    dilated: bool


def plan(group: Group, target: Target, operator: str) -> Plan | None:
    """One group of channels; depthwise layers of one channel; windows that are dilated in one row only."""
    layer = match_float_layer(group, operator) if target.has("vfp") else None
    if layer is None:
        return None
    if operator == "nn.depthwise_conv2d_float":
        if layer.depth > 1:
            return None
        layer = replace(layer, weight=layer.weight[0].transpose(2, 0, 1)[..., None])
    if layer.weight.ndim == 2:
        layer = replace(layer, weight=layer.weight[:, None, None, :])
    dilated = layer.columns.dilation > 1 and layer.columns.taps > 1
    if layer.weight.shape[3] != layer.depth or (dilated and layer.rows.taps > 1):
        return None
    return Plan(layer, dilated)


def plan_stored(group: Group, target: Target, operator: str) -> Plan | None:
    """Weights that the file has in fewer bytes; of one pixel no single taps, which are widened where they are used."""
    found = plan(group, target, operator)
    if found is None:
        return None
    pixels = found.layer.batch * found.layer.rows.out * found.layer.columns.out
    if pixels == 1 and is_pointwise(found.layer):
        return None
    return None if stored_form(found.layer, weights_of(found.layer)) is None else found


def lower(group: Group, _target: Target, name: str, found: Plan, *, form: str, small: bool = False) -> Lowered:
    layer = found.layer
    kernel = DenseKernel(
        IRBuilder(name), group, layer, inner=layer.depth, fused=form == "vmla", dilated=found.dilated, small=small
    )
    return kernel.lowered(f"arm_fpu.{title_of(layer)}", f"_{form}", unroll=UNROLL)


def title_of(layer: FloatLayer) -> str:
    """A layer of one pixel is a fully connected one."""
    return "dense" if layer.rows.out == layer.columns.out == 1 else "conv2d"


class DenseKernel(WindowKernel):
    """Every channel of a result reads all channels of the data."""

    def matrix(self) -> Array:
        return weights_of(self.layer)

    @property
    def wide(self) -> bool:
        """Whether all pixels are done one by one, and their products without VMLA."""
        return not self.fused and self.stored is None and self.pairs == 0

    @property
    def many(self) -> int:
        alone = self.layer.channels == 1 and not self.layer.epilogue and self._spread.strides[1] == 1
        return self.pairs // 2 if alone and not self.fused and self.stored is None else 0

    @property
    def block(self) -> int:
        return MOST_CHANNELS if self.wide else CHANNELS

    def form(self, pixels: int, count: int) -> DotForm:
        run, varies = self.run, pixels == 1 and self.run_varies
        unroll = max(u for u in range(1, UNROLL + 1) if self.layer.depth % u == 0) if varies else unroll_of(run)
        narrow = pixels == 2 and count == 1 and not self.fused and self.stored is None
        if narrow:
            unroll = next((u for u in (32, 24, 16) if run % u == 0), unroll)
        elif pixels > 2:
            unroll = unroll_many(run, unroll)
        loop = varies or run > unroll + UNROLL
        rest = 0 if varies else run % unroll if loop else run - unroll
        make = ManyForm if pixels > 2 else NarrowForm if narrow else WideForm if self.wide else DotForm
        return make(pixels, count, self.fused, unroll, rest, loop, self.runs > 1, self.clamp)

    def intrin(self, form: DotForm) -> TensorIntrin:
        return dot(form)

    def data(self, start: Expr, channel: Expr, form: DotForm) -> list[Region]:
        return [region(self.io.data, start + p * self.layer.columns.stride * self.layer.depth) for p in range(form.pixels)]

    def gap(self, taps: Expr) -> Expr:
        rows, columns, depth = self.layer.rows, self.layer.columns, self.layer.depth
        return (columns.dilation if self._dilated else rows.dilation * columns.size) * depth - taps


def is_pointwise(layer: FloatLayer) -> bool:
    """Whether each result reads one pixel, inside the image."""
    return all(a.taps == 1 and a.whole == (0, a.out) for a in (layer.rows, layer.columns))


def weights_of(layer: FloatLayer) -> Array:
    """[taps, channels]."""
    found: Array = layer.weight.reshape(layer.channels, -1).T
    return found


# Fully connected layers of a few rows, and pointwise convolutions of a few pixels, with the weights as the file has them.
#
# No scratch.  Weights take two, one or half a byte each in flash, [channels / 8][inputs][8] in whole words, behind the block's
# bias and scales; they are widened where they are used.


MOST_PIXELS = 8
DIRECT_UNROLL = 4


def plan_direct(group: Group, target: Target, operator: str) -> Plan | None:
    """Few pixels of one tap each, and weights that the file has in fewer bytes."""
    found = plan(group, target, operator)
    if found is None or not is_pointwise(found.layer):
        return None
    pixels = found.layer.batch * found.layer.rows.out * found.layer.columns.out
    return found if pixels <= MOST_PIXELS and stored_form(found.layer, weights_of(found.layer)) is not None else None


def lower_direct(group: Group, _target: Target, name: str, found: Plan, *, form: str) -> Lowered:
    kernel = DirectKernel(IRBuilder(name), group, found.layer, inner=found.layer.depth, fused=form == "vmla", small=True)
    return kernel.lowered("arm_fpu.dense", f"_{form}", unroll=DIRECT_UNROLL)


class DirectKernel(DenseKernel):
    """All pixels one by one."""

    @property
    def unfolds(self) -> bool:
        return False

    @property
    def pairs(self) -> int:
        return 0

    def form(self, pixels: int, count: int) -> DotForm:
        assert self.stored is not None
        loop = self.run > 2 * DIRECT_UNROLL
        unroll, rest = (DIRECT_UNROLL, self.run % DIRECT_UNROLL) if loop else (self.run, 0)
        kind, zero = self.stored.kind, self.stored.zero is not None
        return StoredForm(pixels, count, self.fused, unroll, rest, loop, False, self.clamp, kind, zero)

    def intrin(self, form: DotForm) -> TensorIntrin:
        assert isinstance(form, StoredForm)
        return stored_dot(form)


# Convolutions of float32 whose windows have several rows, and columns that are apart: packed first, then multiplied as one run.
#
# Scratch: the windows of the pixels that are done together, 4 bytes a tap, with zeros for what is outside the image, which change
# no sum (see layer.py).  Packing takes some instructions a tap, which all channels share.


TURNS = {4: 13, 2: 9, 1: 5}
"""Channels of a pixel that a turn copies, the most that divide their number, and the instructions that it takes under QEMU."""

PACKING_AROUND = 11
"""Instructions of a tap's pixel besides."""


def plan_packed(group: Group, target: Target) -> FloatLayer | None:
    """One group of channels, several rows of taps, columns of taps that are apart."""
    layer = match_float_layer(group, "nn.conv2d_float") if target.has("vfp") else None
    if layer is None or layer.weight.shape[3] != layer.depth:
        return None
    return layer if layer.columns.dilation > 1 and layer.columns.taps > 1 and layer.rows.taps > 1 else None


def lower_packed(group: Group, _target: Target, name: str, layer: FloatLayer, *, form: str) -> Lowered:
    return PackedKernel(IRBuilder(name), group, layer, fused=form == "vmla").lowered(
        "arm_fpu.conv2d_packed", f"_{form}", unroll=UNROLL
    )


class PackedKernel(DenseKernel):
    """A pointwise layer on packed windows."""

    def __init__(self, b: IRBuilder, group: Group, layer: FloatLayer, *, fused: bool) -> None:
        taps = layer.weight[0].size
        rows, columns = (Axis(a.out, a.out) for a in (layer.rows, layer.columns))
        weight = layer.weight.reshape(layer.channels, 1, 1, taps)
        pointwise = replace(layer, weight=weight, depth=taps, rows=rows, columns=columns)
        super().__init__(b, group, pointwise, inner=taps, fused=fused)
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
        """The windows of some neighbouring pixels, one behind the other."""
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
        each = next(n for n in TURNS if depth % n == 0)
        with self.b.for_("k", depth, step=each) as k:
            for n in range(each):
                self.b.store(self._packed, to + (k + n), value(k + n))

    def instructions(self) -> tuple[int, int]:
        instructions, cycles = super().instructions()
        packing = self._packing()
        return instructions + packing, cycles + packing

    def code(self) -> int:
        return super().code() + 160

    def _packing(self) -> int:
        """Instructions."""
        layer = self._window
        each = next(n for n in TURNS if layer.depth % n == 0)
        pixels = layer.batch * layer.rows.out * layer.columns.out
        return pixels * layer.rows.taps * layer.columns.taps * (PACKING_AROUND + layer.depth // each * TURNS[each])


# Transposed convolutions of float32: each phase a convolution of stride 1 whose results lie apart in the image.
#
# See aot/topi/layer/phases.py.  The reference adds an output's products in the order of the data's pixels, as a convolution with
# flipped weights does.


@dataclass(frozen=True, slots=True)
class TransposePlan:
    """The whole layer, whose axes mean nothing, and each phase with the places of its results."""

    layer: FloatLayer
    phases: tuple[tuple[FloatLayer, Spread], ...]


def plan_transpose(group: Group, target: Target) -> TransposePlan | None:
    """Constant finite weights, sums that end with the bias, no epilogue but RELU, and a tap inside the image for each result."""
    whole = _match_transpose(group) if target.has("vfp") else None
    if whole is None:
        return None
    attrs = whole.anchor.attrs
    _, height, width, _ = whole.data.type.shape
    axes = []
    for i, size in enumerate((height, width)):
        cut, stride, kernel = attrs.padding[i], attrs.strides[i], whole.weight.shape[1 + i]
        found = phase_axes(out=attrs.size[i], kernel=kernel, stride=stride, cut=cut)
        if not all(a.out and a.before >= 0 and _phase_axis(a, size).never_empty for a in found):
            return None
        axes.append(found)
    phases = []
    for y, x in product(range(attrs.strides[0]), range(attrs.strides[1])):
        rows, columns = axes[0][y], axes[1][x]
        weight = whole.weight[:, rows.taps][:, :, columns.taps]
        layer = replace(whole, weight=weight, rows=_phase_axis(rows, height), columns=_phase_axis(columns, width))
        phases.append((layer, Spread(attrs.strides, (y, x), attrs.size)))
    return TransposePlan(whole, tuple(phases))


def _phase_axis(axis: PhaseAxis, size: int) -> Axis:
    return Axis(size, axis.out, len(axis.taps), before=axis.before)


def _match_transpose(group: Group) -> FloatLayer | None:
    anchor = group.anchor
    if not isinstance(anchor.op, Op) or anchor.op.name != TRANSPOSE:
        return None
    attrs: FloatTransposeAttrs = anchor.attrs
    data, *constants = anchor.args
    arrays = [c.data for c in constants if isinstance(c, Constant)]
    if not isinstance(data, Tensor) or len(arrays) < len(constants) or not all(np.isfinite(a).all() for a in arrays):
        return None
    bounds, head, epilogue = with_relu((attrs.clamp.lo, attrs.clamp.hi), anchor, group.followers)
    if epilogue or attrs.bias_first:
        return None
    out, weight = tensor_type(anchor), arrays[0]
    bias = bias_of(arrays[1:], out.shape[-1])
    batch, *_, depth = data.type.shape
    macs = data.type.size * weight[..., 0].size
    return FloatLayer(anchor, head, data, weight, bias, *bounds, (), out, batch, Axis(1, 1), Axis(1, 1), depth, macs)


def lower_transpose(group: Group, _target: Target, name: str, found: TransposePlan, *, form: str) -> Lowered:
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


# Depthwise convolutions: any window, stride and dilation; weights as above.


DEPTHWISE = "nn.depthwise_conv2d_float"
MOST_UNROLLED = 7
"""Columns of a window whose taps stand one after the other; more are in a loop."""


def plan_depthwise(group: Group, target: Target) -> FloatLayer | None:
    """One filter for each channel."""
    layer = match_float_layer(group, DEPTHWISE) if target.has("vfp") else None
    return layer if layer is not None and layer.depth == layer.channels else None


def plan_depthwise_stored(group: Group, target: Target) -> FloatLayer | None:
    """Also weights that the file has in fewer bytes."""
    layer = plan_depthwise(group, target)
    return None if layer is None or stored_form(layer, _depthwise_matrix(layer)) is None else layer


def lower_depthwise(group: Group, _target: Target, name: str, layer: FloatLayer, *, form: str, small: bool = False) -> Lowered:
    kernel = DepthwiseKernel(IRBuilder(name), group, layer, inner=1, fused=form == "vmla", small=small)
    return kernel.lowered("arm_fpu.depthwise", f"_{form}", channels=CHANNELS)


class DepthwiseKernel(WindowKernel):
    """Every channel of a result reads its own channel of the data."""

    def matrix(self) -> Array:
        return _depthwise_matrix(self.layer)

    def form(self, pixels: int, count: int) -> DotForm:
        columns = self.layer.columns
        shared = self.fused and pixels == 2 and columns.stride == columns.dilation
        loop = (pixels == 1 and self.run_varies) or self.run > MOST_UNROLLED
        unroll = (1 if pixels == 1 else 4) if loop else self.run
        rest = self.run % unroll if loop else 0
        return DepthwiseForm(pixels, count, self.fused, unroll, rest, loop, self.runs > 1, self.clamp, shared)

    def intrin(self, form: DotForm) -> TensorIntrin:
        return depthwise_dot(cast("DepthwiseForm", form))

    def data(self, start: Expr, channel: Expr, form: DotForm) -> list[Region]:
        return [
            region(self.io.data, start + channel + p * self.layer.columns.stride * self.layer.depth) for p in range(form.sources)
        ]

    def gap(self, taps: Expr) -> Expr:
        rows, columns, depth = self.layer.rows, self.layer.columns, self.layer.depth
        return (rows.dilation * columns.size - taps * columns.dilation) * depth

    def more(self) -> list[Expr]:
        return [imm(self.layer.columns.dilation * self.layer.depth)]


def _depthwise_matrix(layer: FloatLayer) -> Array:
    found: Array = layer.weight.reshape(-1, layer.channels)
    return found


# A product and a bias for each channel: pixels one after the other, the numbers of up to eight channels in FPU registers.


_SPARE = 4
"""Registers beside those of results and constants."""
_RESULTS = 16
"""The most results between a load and a store."""


@dataclass(frozen=True, slots=True)
class ScaleForm:
    """`channels` of pixels, which lie side by side or, where they are `apart`, a step from each other; `unroll` loads a turn.

    Registers: results s0 and up, then weights, biases, and `_SPARE` others.
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
        """Pixels of a load."""
        room = min(_RESULTS, len(REGISTERS) - _SPARE - 2 * self.channels)
        return 1 if self.apart or self.unroll == 1 else room // self.channels

    @property
    def pixels(self) -> int:
        """Of a turn."""
        return self.group * self.unroll

    @property
    def _count(self) -> int:
        return self.group * self.channels

    @property
    def _weights(self) -> int:
        return max(self._count, 3)  # a clamp of one result after the other spoils the first three

    @property
    def _spare(self) -> int:
        return self._weights + 2 * self.channels

    @property
    def _is_checked_last(self) -> bool:
        """Whether the clamp is for results that are not finite only, which the sum of all results tells."""
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
        """What tells whether all results are finite."""
        if not self._is_checked_last:
            return []
        total = self._spare
        return [f"vadd.f32 s{total}, s{total}, s{total + 1}", *compared(total)]

    def exceptions(self) -> Text:
        """Clamp stored results where they are, as the operators' descriptions do."""
        if not self._is_checked_last:
            return []
        text: Text = ["bne 9f", *limits(self.clamp, 1, 2)]
        pixels, count = (self.pixels, self.channels) if self.apart else (1, self.pixels * self.channels)
        text += ["5:", f"mov %[u], #{pixels}", "6:", f"mov %[t], #{count}", "7:", "vldr.32 s0, [%[f]]", *limited(0, 1, 2)]
        text += ["vstmia %[f]!, {s0}", "subs %[t], %[t], #1", "bne 7b"]
        text += [f"sub %[f], %[f], #{4 * count}", "add %[f], %[f], %[step]"] * self.apart
        return [*text, "subs %[u], %[u], #1", "bne 6b", "subs %[k], %[k], #1", "bne 5b", "9:"]

    def text(self) -> Text:
        """All of the block."""
        return [*self.begin(), *self.body(), *self.end(), *self.exceptions()]


@cache
def scale(form: ScaleForm) -> TensorIntrin:
    """out[p * step + c] = clamp(x[p * step + c] * w[c] + w[channels + c]) for p < trips * pixels, c < channels.

    Operands: x float32; w float32[2 * channels], weights and biases; out; trips; and, where pixels are apart, step.
    """
    b = IRBuilder(form.name)
    x, w, out = float_operands(b, "x", "w")
    trips, step = Var("trips"), Var("step")
    each = step if form.apart else imm(form.channels)
    found = b.local("found", (form.group, form.channels), "float32")
    with b.for_("n", trips * form.unroll) as n:
        for p in range(form.group):
            for c in range(form.channels):
                at = (n * form.group + p) * each + c
                b.store(found, (p, c), x[at] * w[c] + w[form.channels + c])
        for p in range(form.group):
            for c in range(form.channels):
                b.store(out, (n * form.group + p) * each + c, form.clamp.meaning(b, found[p, c]))
    return described(b, (trips, step) if form.apart else (trips,), lambda ops: _emit_scale(form, ops), ordered=True)


def _emit_scale(form: ScaleForm, operands: Mapping[str, COperand]) -> BlockText:
    temporaries = ("o", "f", "k", "t", "u")
    declarations = [
        f"const void *aot_x = {operands['x'].pointer};",
        f"const void *aot_w = {operands['w'].pointer};",
        f"void *aot_q = {operands['out'].pointer};",
        f"int32_t aot_n = {operands['trips'].value};",
        f"uint32_t {', '.join(f'aot_{n}' for n in temporaries)};",
    ]
    if form.apart:
        declarations.append(f"const int32_t aot_step = 4 * {operands['step'].value};")
    return assembled(declarations, form.text(), moved=("x", "w", "q", "n"), spoilt=temporaries, read=["step"] * form.apart)


def scale_price(form: ScaleForm, trips: int) -> tuple[int, int]:
    """Instructions of one execution with finite results, and cycles of a Cortex-M4."""
    around: Text = [*form.begin(), *form.end()]
    ends = form.exceptions()[:1]
    total = count_instructions(around) + len(ends) + trips * count_instructions(form.body())
    return total, total + len(ends) + waits(around) + trips * (waits(form.body()) + 1)


# Depthwise convolutions with windows of one tap: a product and a bias for each channel.
#
# No scratch, and results may overlap the data.  Weights take four bytes each in flash, [channels / 8][weights, biases], and stay
# in registers for all pixels.


SCALE_UNROLL = 4
SCALE_AROUND = np.array([14, 22])
"""Instructions and cycles around a block of channels."""


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """A layer of `pixels`."""

    layer: FloatLayer
    pixels: int

    def blocks(self, count: int) -> list[tuple[ScaleForm, int, int]]:
        """Of `count` channels: forms, the first pixel of each, its turns."""
        apart, clamp = count < self.layer.depth, Clamp(self.layer.lo, self.layer.hi)
        form, single = (ScaleForm(count, apart, n, clamp) for n in (SCALE_UNROLL, 1))
        trips, rest = divmod(self.pixels, form.pixels)
        return [(form, 0, trips)] * (trips > 0) + [(single, trips * form.pixels, rest)] * (rest > 0)

    @property
    def counts(self) -> list[int]:
        """Channels of each block."""
        whole, rest = divmod(self.layer.depth, CHANNELS)
        return [CHANNELS] * whole + [rest] * (rest > 0)

    @property
    def price(self) -> tuple[int, int]:
        """Instructions and cycles."""
        total = np.array([20, 30])
        for count in self.counts:
            total += sum(np.array(scale_price(form, trips)) + SCALE_AROUND for form, _, trips in self.blocks(count))
        found, cycles = map(int, total)
        return found, cycles


def plan_scale(group: Group, target: Target) -> ScalePlan | None:
    """One tap inside the image for each result, without an epilogue."""
    layer = plan_depthwise(group, target)
    if layer is None or layer.epilogue or layer.rows != Axis(1, 1):
        return None
    pixels = layer.columns.out
    return ScalePlan(layer, pixels) if layer.columns == Axis(pixels, pixels) and layer.batch == 1 else None


def lower_scale(group: Group, _target: Target, name: str, found: ScalePlan) -> Lowered:
    layer, b = found.layer, IRBuilder(name)
    io = FloatIo(b, group, layer, run=CHANNELS)
    depth = layer.depth
    numbers = (layer.weight.reshape(-1), layer.bias)
    starts = range(0, depth, CHANNELS)
    params = io.stream(np.concatenate([a[n : n + CHANNELS] for n in starts for a in numbers]))
    code = 0
    for count in dict.fromkeys(found.counts):
        first = imm(0) if count == CHANNELS else imm(depth - count)
        with b.for_("c", found.counts.count(count)) as c:
            channel = b.let("channel", c * CHANNELS + first)
            for form, pixel, trips in found.blocks(count):
                at = channel + pixel * depth
                step = [imm(depth)] * form.apart
                b.block(scale(form), region(io.data, at), region(params, channel * 2), region(io.out, at), imm(trips), *step)
                code += 60 + 4 * count_instructions(form.text())
    func = b.finish(FuncAttrs(kernel=describe("arm_fpu.scale", channels=min(CHANNELS, depth)), span=layer.span, macs=layer.macs))
    instructions, cycles = found.price
    return Lowered(func, io.constants, instructions, 40 + code, cycles)


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
register_planned("arm_fpu.scale", DEPTHWISE, plan_scale, lower_scale, plevel=31)
