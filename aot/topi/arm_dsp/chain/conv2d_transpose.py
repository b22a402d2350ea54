"""Transposed convolutions as sub-pixel convolutions: the results of one remainder of the stride are an ordinary convolution.

See aot/topi/layer/phases.py.  Each pair of remainders (one for rows, one for columns) is a convolution of stride 1 with its part
of the weights, whose results lie s rows and s columns apart.  No product with an inserted zero is computed.

The three pixels of a tile have the same Y, X in all phases.  What any phase reads of the data is packed once, and each phase
takes its rows of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np

from aot.ir.op import Array, Op
from aot.ir.type import TensorType
from aot.op.nn.conv2d import Conv2DAttrs
from aot.op.nn.conv2d_transpose import Conv2DTransposeAttrs
from aot.op.qnn.requantize import RequantizeAttrs
from aot.relay.expr import Call, Constant, Var, is_call, tensor_type
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm, logical_and, minimum
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.chain.conv2d import (
    CHANNELS,
    PIXELS,
    TapSource,
    border_groups,
    has_short_form,
)
from aot.topi.arm_dsp.chain.phase import PhaseStream, Runs
from aot.topi.layer.fused import FusedLayer, describe, settle_constant_channels, table_of
from aot.topi.layer.io import LayerIo, open_io
from aot.topi.layer.phases import PhaseAxis, phase_axes
from aot.topi.strategy import Group, Lowered, register_planned

ANCHOR = "nn.conv2d_transpose"


@dataclass(frozen=True, slots=True)
class Phase:
    """One pair of remainders (rows, columns), the convolution that makes its results, and its taps among the packed ones."""

    remainder: tuple[int, int]
    layer: FusedLayer
    runs: Runs


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole layer as kernels see one, its phases, and the convolution that reads what any of them reads."""

    layer: FusedLayer
    phases: tuple[Phase, ...]
    window: FusedLayer


def _whole(axes: Sequence[PhaseAxis]) -> PhaseAxis:
    """What any of these reads."""
    before, behind = (max(0, *(getattr(a, side) for a in axes)) for side in ("before", "behind"))
    return PhaseAxis(max(a.out for a in axes), tuple(range(before + 1 + behind)), before)


def plan(group: Group, target: Target) -> Plan | None:
    """int8, one image, sums that fit int32, at most a table after it, every phase with the short requantisation."""
    whole = _match(group)
    if whole is None or not target.has("thumb2") or (whole.tail and table_of(whole) is None):
        return None
    attrs: Conv2DTransposeAttrs = whole.attrs
    _, height, width, depth = whole.data_type.shape
    _, kh, kw, _ = whole.weight.shape
    axes: list[list[PhaseAxis]] = []
    for size, out, kernel, stride, cut in zip((height, width), attrs.size, (kh, kw), attrs.strides, attrs.padding, strict=True):
        axes.append(phase_axes(out=out, kernel=kernel, stride=stride, cut=cut))
        if any(a.out < size or not a.taps for a in axes[-1]):
            return None
    rows, columns = map(_whole, axes)
    if rows.out * columns.out < PIXELS:
        return None
    phases = []
    for y, x in product(range(attrs.strides[0]), range(attrs.strides[1])):
        layer = _phase(whole, axes[0][y], axes[1][x])
        if layer is None or not has_short_form(layer, target):
            return None
        phases.append(Phase((y, x), layer, _runs(axes[0][y], axes[1][x], rows, columns, depth)))
    return Plan(whole, tuple(phases), _window(whole, rows, columns))


def _runs(rows: PhaseAxis, columns: PhaseAxis, all_rows: PhaseAxis, all_columns: PhaseAxis, depth: int) -> Runs:
    """The taps of a phase among those of the whole window."""
    width = len(all_columns.taps)
    start = ((all_rows.before - rows.before) * width + all_columns.before - columns.before) * depth
    lines, length = len(rows.taps), len(columns.taps)
    if length == width:
        lines, length = 1, lines * length
    return Runs(start, lines, length * depth, width * depth)


def _window(whole: FusedLayer, rows: PhaseAxis, columns: PhaseAxis) -> FusedLayer:
    """The convolution of stride 1 whose windows have all that a phase reads; only its shapes count."""
    _, height, width, depth = whole.data_type.shape
    bottom, right = (max(0, a.out - 1 + a.behind - (size - 1)) for a, size in ((rows, height), (columns, width)))
    attrs = Conv2DAttrs((1, 1), (rows.before, columns.before, bottom, right), (1, 1), 0, whole.attrs.input_zp)
    weight = np.zeros((whole.channels, len(rows.taps), len(columns.taps), depth), np.int64)
    out = TensorType((1, rows.out, columns.out, whole.channels), "int8", whole.requant.quant)
    return replace(whole, weight=weight, attrs=attrs, out_type=out)


def _match(group: Group) -> FusedLayer | None:
    """The layer with weights less their zero point and the bias as the model has it."""
    anchor, rest = group.anchor, list(group.followers)
    if not isinstance(anchor.op, Op) or anchor.op.name != ANCHOR or tensor_type(anchor).dtype != "int32":
        return None
    data, weight = anchor.args
    if not isinstance(data, Var) or not isinstance(weight, Constant) or data.type.dtype != "int8" or data.type.shape[0] > 1:
        return None
    values = weight.data.astype(np.int64) - anchor.attrs.weight_zp
    bias = np.zeros(values.shape[0], np.int64)
    if rest and is_call(rest[0], "nn.bias_add"):
        constant = rest.pop(0).args[1]
        if not isinstance(constant, Constant):
            return None
        bias = constant.data.astype(np.int64)
    if not rest or not is_call(rest[0], "qnn.requantize") or rest[0].attrs.dtype != "int8" or np.abs(values).max() > 255:
        return None
    requant: RequantizeAttrs = rest.pop(0).attrs
    tail: tuple[Call, ...] = tuple(rest)
    out = tensor_type(tail[-1]) if tail else tensor_type(anchor).with_dtype("int8", requant.quant)
    macs = data.type.size * prod(values.shape[:-1])
    return FusedLayer(anchor, data, values, bias, anchor.attrs, requant, tail, out, bias, bias, macs)


def _phase(whole: FusedLayer, rows: PhaseAxis, columns: PhaseAxis) -> FusedLayer | None:
    """The convolution of one phase; data outside the image is the zero point.  None if its sums may leave int32."""
    weight = whole.weight[:, rows.taps][:, :, columns.taps]
    zp, axes = whole.attrs.input_zp, (1, 2, 3)
    bias: Array = whole.bias - zp * weight.sum(axis=axes)
    if (np.abs(weight).sum(axis=axes) * 256 + np.abs(bias) >= 1 << 31).any():
        return None
    low = bias + np.minimum(weight * 127, weight * -128).sum(axis=axes)
    high = bias + np.maximum(weight * 127, weight * -128).sum(axis=axes)
    settled, requant, values = settle_constant_channels(whole.requant, low, high)
    weight = np.where(settled.reshape(-1, 1, 1, 1), 0, weight)
    bias, low, high = (np.where(settled, values, a) for a in (bias, low, high))
    out = TensorType((1, rows.out, columns.out, whole.channels), "int8", whole.requant.quant)
    layer = replace(whole, weight=weight, bias=bias, requant=requant, tail=(), out_type=out)
    return replace(layer, acc_low=low, acc_high=high, macs=out.size * weight[0].size)


def lower(group: Group, target: Target, name: str, found: Plan) -> Lowered:
    """Triples of pixels, phases, blocks of channels."""
    whole, window = found.layer, found.window
    b = IRBuilder(name)
    io = open_io(b, group, whole, data_shape=(whole.data_type.size,), out_shape=(whole.out_type.size,))
    streams = [PhaseStream(phase.layer, target, phase.runs) for phase in found.phases]
    params = [io.constant("params", stream.data(), "int32") for stream in streams]
    taps = max(window.weight[0].size, *(stream.end for stream in streams))
    source = TapSource(b, window, io, taps, apart=True)
    rows = prod(window.out_type.shape[:-1])
    tiles = -(-rows // PIXELS)
    with b.for_("t", tiles) as t:
        first = t * PIXELS if rows % PIXELS == 0 else b.let("pixel", minimum(t * PIXELS, rows - PIXELS))
        source.pack(first)
        pixels = [_Pixel.of(b, found, first + p) for p in range(PIXELS)]
        for phase, stream, numbers in zip(found.phases, streams, params, strict=True):
            _emit(b, io, _Results(found, phase, pixels), stream, numbers, source.words)
    kernel = describe("arm_dsp.conv2d_transpose_chain", phases=len(found.phases))
    func = b.finish(FuncAttrs(kernel=kernel, span=whole.span, macs=whole.macs))
    tail = 2 * whole.out_type.size * bool(whole.tail)
    partial = sum(2 * PIXELS * whole.channels for p in found.phases if p.layer.out_type.shape != window.out_type.shape)
    blocks = sum((s.blocks + bool(s.tail)) * s.instructions() for s in streams) + partial
    each = blocks + 8 * taps + 80 + 20 * window.weight.shape[1]
    instructions = tiles * each + 7 * taps * border_groups(window, PIXELS) + tail
    return Lowered(func, io.constants, instructions, code=690 + sum(s.code() for s in streams))


@dataclass(frozen=True, slots=True)
class _Pixel:
    """Of a tile: row and column, and the element of the result at which those of the first phase begin."""

    line: Expr
    column: Expr
    at: Expr

    @classmethod
    def of(cls, b: IRBuilder, found: Plan, number: Expr) -> _Pixel:
        index = b.let("index", number)
        line = b.let("line", index // found.window.out_type.shape[2])
        column = b.let("column", index - line * found.window.out_type.shape[2])
        attrs: Conv2DTransposeAttrs = found.layer.attrs
        at = (line * (attrs.strides[0] * attrs.size[1]) + column * attrs.strides[1]) * found.layer.channels
        return cls(line, column, b.let("at", at))


@dataclass(frozen=True, slots=True)
class _Results:
    """Where a phase's results for a tile go."""

    plan: Plan
    phase: Phase
    pixels: Sequence[_Pixel]

    def at(self, pixel: _Pixel, channel: Expr) -> Expr:
        (y, x), whole = self.phase.remainder, self.plan.layer.out_type.shape
        return pixel.at + channel + (y * whole[2] + x) * whole[3]

    @property
    def whole(self) -> bool:
        """Whether all tiles are inside the result."""
        return self.phase.layer.out_type.shape == self.plan.window.out_type.shape

    def inside(self, pixel: _Pixel) -> Expr:
        _, rows, columns, _ = self.phase.layer.out_type.shape
        return logical_and(pixel.line < rows, pixel.column < columns)


def _emit(b: IRBuilder, io: LayerIo, results: _Results, stream: PhaseStream, params: Buffer, words: Buffer) -> None:
    """The blocks of channels of one phase of a tile."""
    if results.whole:
        _channels(b, io, results, stream, params, words, [])
        return
    inside = [b.let("inside", results.inside(p)) for p in results.pixels]
    with b.if_(results.pixels[0].line < results.phase.layer.out_type.shape[1]):  # not beyond the last row
        _channels(b, io, results, stream, params, words, inside)


def _channels(
    b: IRBuilder, io: LayerIo, results: _Results, stream: PhaseStream, params: Buffer, words: Buffer, inside: Sequence[Expr]
) -> None:
    """Those of one phase of a tile; `inside`: which of its pixels have results, empty if all have."""
    for n, count in _blocks(b, stream):
        lanes = stream.sums(b, params, words, n)
        for j in range(count):
            bias = b.let("bias", stream.number(params, n, 0, j))
            fields = stream.fields(params, n, j)
            values = [stream.requant.emit_scaled(b, bias + lanes[j][p] * stream.scale, fields) for p in range(PIXELS)]
            places = [(results.at(pixel, n * CHANNELS + j),) for pixel in results.pixels]
            if not inside:
                io.store_all(places, values)
                continue
            for place, value, here in zip(places, io.finished(places, values), inside, strict=True):
                value = b.let("value", value)
                with b.if_(here):
                    b.store(io.out, place, value)


def _blocks(b: IRBuilder, stream: PhaseStream) -> Iterator[tuple[Expr, int]]:
    """Number and channels of each block."""
    if stream.blocks:
        with b.for_("n", stream.blocks) as n:
            yield n, CHANNELS
    if stream.tail:
        yield imm(stream.blocks), stream.tail


register_planned("arm_dsp.conv2d_transpose_chain", ANCHOR, plan, lower, plevel=20)
