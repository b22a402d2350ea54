"""Transposed convolutions as sub-pixel convolutions: the results of one remainder of the stride are an ordinary convolution.

Output row s*Y + r takes the taps rest, rest + s ... of the window, with rest = (r + cut) % s, from the data rows Y + base,
Y + base - 1 ... with base = (r + cut) / s.  So each pair of remainders (one for rows, one for columns) is a convolution of
stride 1 with its part of the weights, flipped, whose results lie s rows and s columns apart.  No product with an inserted zero is
computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from aot.ir.op import Array, Op
from aot.ir.type import TensorType
from aot.op.nn.conv2d import Conv2DAttrs
from aot.op.nn.conv2d_transpose import Conv2DTransposeAttrs
from aot.op.qnn.requantize import RequantizeAttrs
from aot.relay.expr import Call, Constant, Var, is_call, tensor_type
from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm, minimum
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.chain.conv2d import (
    CHANNELS,
    PIXELS,
    ChainConfig,
    ChainStream,
    TapSource,
    block_sums,
    code_bytes,
    estimate,
    has_short_form,
)
from aot.topi.layer.fused import FusedLayer, describe, settle_constant_channels, table_of
from aot.topi.layer.io import LayerIo, open_io
from aot.topi.strategy import Group, Lowered, register_planned

ANCHOR = "nn.conv2d_transpose"
CONFIG = ChainConfig(common=False)


@dataclass(frozen=True, slots=True)
class Phase:
    """One pair of remainders (rows, columns) and the convolution that makes its results."""

    remainder: tuple[int, int]
    layer: FusedLayer


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole layer as kernels see one, and its phases."""

    layer: FusedLayer
    phases: tuple[Phase, ...]


@dataclass(frozen=True, slots=True)
class _PhaseAxis:
    """Rows or columns of a phase: how many results, which taps in the order of the data, the padding before and after."""

    out: int
    taps: tuple[int, ...]
    before: int
    after: int


def _phase_axis(remainder: int, *, size: int, out: int, kernel: int, stride: int, cut: int) -> _PhaseAxis | None:
    """None if the phase has no results, no taps, or starts beyond the first datum."""
    count = -(-(out - remainder) // stride)
    base, rest = divmod(remainder + cut, stride)
    taps = tuple(range(rest, kernel, stride))[::-1]
    before = len(taps) - 1 - base
    if count < size or not taps or before < 0:
        return None
    return _PhaseAxis(count, taps, before, max(0, count - 1 + base - (size - 1)))


def plan(group: Group, target: Target) -> Plan | None:
    """int8, one image, sums that fit int32, at most a table after it, every phase with the short requantisation."""
    whole = _match(group)
    if whole is None or not target.has("thumb2") or (whole.tail and table_of(whole) is None):
        return None
    attrs: Conv2DTransposeAttrs = whole.attrs
    _, height, width, _ = whole.data_type.shape
    _, kh, kw, _ = whole.weight.shape
    axes: list[list[_PhaseAxis]] = []
    for size, out, kernel, stride, cut in zip((height, width), attrs.size, (kh, kw), attrs.strides, attrs.padding, strict=True):
        found = [_phase_axis(r, size=size, out=out, kernel=kernel, stride=stride, cut=cut) for r in range(stride)]
        axes.append([a for a in found if a is not None])
        if len(axes[-1]) < stride:
            return None
    phases = []
    for y, x in product(range(attrs.strides[0]), range(attrs.strides[1])):
        layer = _phase(whole, axes[0][y], axes[1][x])
        if layer is None or prod(layer.out_type.shape[:-1]) < PIXELS or not has_short_form(layer, target):
            return None
        phases.append(Phase((y, x), layer))
    return Plan(whole, tuple(phases))


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


def _phase(whole: FusedLayer, rows: _PhaseAxis, columns: _PhaseAxis) -> FusedLayer | None:
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
    attrs = Conv2DAttrs((1, 1), (rows.before, columns.before, rows.after, columns.after), (1, 1), 0, zp)
    out = TensorType((1, rows.out, columns.out, whole.channels), "int8", whole.requant.quant)
    layer = replace(whole, weight=weight, bias=bias, attrs=attrs, requant=requant, tail=(), out_type=out)
    return replace(layer, acc_low=low, acc_high=high, macs=out.size * weight[0].size)


def lower(group: Group, target: Target, name: str, found: Plan) -> Lowered:
    whole = found.layer
    b = IRBuilder(name)
    io = open_io(b, group, whole, data_shape=(whole.data_type.size,), out_shape=(whole.out_type.size,))
    instructions = code = 0
    for phase in found.phases:
        stream = ChainStream(phase.layer, target, CONFIG)
        _emit(b, io, whole, phase, stream)
        rows = prod(phase.layer.out_type.shape[:-1])
        instructions += estimate(phase.layer, stream, rows) + 12 * -(-rows // PIXELS)
        code += code_bytes(phase.layer, stream, None)
    kernel = describe("arm_dsp.conv2d_transpose_chain", phases=len(found.phases))
    func = b.finish(FuncAttrs(kernel=kernel, span=whole.span, macs=whole.macs))
    tail = 2 * whole.out_type.size * bool(whole.tail)
    return Lowered(func, io.constants, instructions=instructions + tail, code=code)


def _emit(b: IRBuilder, io: LayerIo, whole: FusedLayer, phase: Phase, stream: ChainStream) -> None:
    """The loops of one phase: triples of pixels, blocks of channels."""
    layer = phase.layer
    rows = prod(layer.out_type.shape[:-1])
    params = io.constant("params", stream.data(), "int32")
    source = TapSource(b, layer, io, stream.segments.taps)
    with b.for_("t", -(-rows // PIXELS)) as t:
        first = t * PIXELS if rows % PIXELS == 0 else b.let("pixel", minimum(t * PIXELS, rows - PIXELS))
        source.pack(first)
        places = list(_places(b, whole, phase, first))
        for n, count in _blocks(b, stream):
            lanes = block_sums(b, stream, params, source.words, n)
            for j in range(count):
                bias = b.let("bias", stream.number(params, n, 0, j))
                fields = stream.fields(params, n, j)
                values = [stream.requant.emit_scaled(b, bias + lanes[j][p] * stream.scale, fields) for p in range(PIXELS)]
                io.store_all([(place + n * CHANNELS + j,) for place in places], values)


def _blocks(b: IRBuilder, stream: ChainStream) -> Iterator[tuple[Expr, int]]:
    """Number and channels of each block."""
    if stream.blocks:
        with b.for_("n", stream.blocks) as n:
            yield n, CHANNELS
    if stream.tail:
        yield imm(stream.blocks), stream.tail


def _places(b: IRBuilder, whole: FusedLayer, phase: Phase, first: Expr) -> Sequence[Expr]:
    """The elements of the result at which the channels of the three pixels begin."""
    columns = phase.layer.out_type.shape[2]
    (sy, sx), (ry, rx), (_, width) = whole.attrs.strides, phase.remainder, whole.attrs.size
    found = []
    for p in range(PIXELS):
        index = b.let("index", first + p)
        line = b.let("line", index // columns)
        at = (line * sy + ry) * width + (index - line * columns) * sx + rx
        found.append(b.let("at", at * whole.channels))
    return found


register_planned("arm_dsp.conv2d_transpose_chain", ANCHOR, plan, lower, plevel=20)
